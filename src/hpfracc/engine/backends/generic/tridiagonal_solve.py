"""Tridiagonal systems by parallel cyclic reduction: whole arrays at a time, in log2(n) steps.

Every step eliminates from each equation its two neighbours at the current distance, which doubles. After the last step
each equation has one unknown. A composition of library functions, with derivatives of any order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.generic.library import Library


def make_kernels(library: Library) -> dict[str, Kernel]:
    """Reduction along the last axis."""
    xp = library.xp

    def shifted(x: Any, distance: int, fill: float) -> Any:
        """``x[i - distance]``, for either sign, with ``fill`` beyond the ends."""
        size = min(abs(distance), x.shape[-1])
        edge = xp.zeros_like(x[..., :size]) + fill
        parts = [edge, x[..., : x.shape[-1] - size]] if distance > 0 else [x[..., size:], edge]
        return xp.concatenate(parts, -1)

    def reduce(lower: Any, diagonal: Any, upper: Any, rhs: Any) -> Any:
        shapes = [tuple(one.shape) for one in (lower, diagonal, upper, rhs)]
        n = shapes[-1][-1]
        if 0 in np.broadcast_shapes(*shapes):
            return lower * diagonal * upper * rhs
        # Unused entries are set to zero: they would couple the ends to points outside.
        a = xp.concatenate([xp.zeros_like(lower[..., :1]), lower[..., 1:]], -1)
        c = xp.concatenate([upper[..., :-1], xp.zeros_like(upper[..., :1])], -1)
        # A single equation is not coupled to others, which would broadcast the right-hand side.
        b, d, distance = diagonal, rhs + xp.zeros_like(lower * upper) if n == 1 else rhs, 1
        while distance < n:
            before = -a / shifted(b, distance, 1.0)
            after = -c / shifted(b, -distance, 1.0)
            b = b + before * shifted(c, distance, 0.0) + after * shifted(a, -distance, 0.0)
            d = d + before * shifted(d, distance, 0.0) + after * shifted(d, -distance, 0.0)
            a, c = before * shifted(a, distance, 0.0), after * shifted(c, -distance, 0.0)
            distance *= 2
        x = d / b
        good = xp.isfinite(xp.stop_gradient(x)).all(-1)[..., None]
        return xp.where(good, x, float("nan"))

    return {"reduction": Kernel(library.finished(xp.jit(reduce)))}

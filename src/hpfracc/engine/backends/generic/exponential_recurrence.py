"""Exponential recurrence in libraries whose arrays can be written to: segments of the signal in parallel."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from hpfracc._xp import Namespace
from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.numerics.recurrence import own_steps, taint, uniform_steps

__all__ = ["make_kernels"]


def make_kernels(
    xp: Namespace, segments: Callable[[int, int], int], all_finite: Callable[[Any], bool] | None = None
) -> dict[str, Kernel]:
    """``segments(n, states)`` is the number of segments of ``n`` steps of their own that are processed together.

    ``states`` is the number of states of one segment. ``all_finite(x)`` says whether nothing has to be replaced; None
    for a device that would have to be waited for.
    """

    def recur_blocked(
        rates: Any,
        weights: Any,
        steps: Any,
        signal: Any,
        initial: Any,
        *,
        degree: int | None = None,
        lagged: bool = False,
        final: bool = False,
    ) -> Any:
        """Values, followed by the final states if requested."""
        rates, weights, steps = map(xp.array, (rates, weights, steps))
        complex_ = "c" in (signal.dtype.kind, initial.dtype.kind)
        batch = np.broadcast_shapes(signal.shape[:-1], initial.shape[:-1])
        n, terms = signal.shape[-1], len(rates)
        wide = np.complex128 if complex_ else np.float64
        x = xp.module.broadcast_to(signal.astype(wide), (*batch, n))
        start = xp.module.broadcast_to(initial.astype(wide), (*batch, terms))
        kind = signal.dtype if signal.dtype.kind in "fc" else np.dtype(np.float64)
        kind = np.result_type(kind, np.complex64) if complex_ else kind
        shape = (*batch, n + terms * final)
        if not n or not terms or 0 in shape:
            result = xp.module.zeros(shape, kind)
            if final:
                result[..., n:] = start
            return result
        clean = all_finite is not None and all_finite(x) and all_finite(start)
        operand, from_ = (x, start) if clean else (xp.where(xp.isfinite(array), array, 0) for array in (x, start))
        if steps.size == 1:
            y, last = uniform_steps(xp, rates, weights, steps.reshape(()), operand, from_, degree, lagged)
        else:
            together = max(1, segments(n, terms * max(1, math.prod(batch))))
            y, last = own_steps(xp, rates, weights, steps, operand, from_, degree, lagged, together)
        if not clean:
            y, last = taint(xp, y, last, x, start, lagged)
        result = xp.module.empty(shape, kind)
        result[..., :n] = y
        if final:
            result[..., n:] = last
        return result

    return {"blocked": Kernel(xp.quiet(recur_blocked))}

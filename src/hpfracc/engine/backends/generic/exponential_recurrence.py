"""Exponential recurrence: segments of the signal in parallel.

Compositions of library functions, with derivatives of any order, in rates, weights and steps too. For non-uniform steps
the derivative would store the states of every step, so the signal is then processed in parts whose states are computed
again.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hpfracc._arrays import dtype_name
from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.generic.library import Library
from hpfracc.engine.numerics.recurrence import Recurrence, own_steps, taint, uniform_steps
from hpfracc.engine.primitives.base import INEXACT, complex_of


def make_kernels(library: Library) -> dict[str, Kernel]:
    """One kernel, for uniform steps and for others."""
    xp = library.xp

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
        rates, weights, steps = (xp.astype(array, "float64") for array in (rates, weights, steps))
        complex_ = xp.is_complex(signal) or xp.is_complex(initial)
        kind = dtype_name(signal) if dtype_name(signal) in INEXACT else "float64"
        batch = np.broadcast_shapes(tuple(signal.shape[:-1]), tuple(initial.shape[:-1]))
        n, terms = signal.shape[-1], rates.shape[0]
        wide = "complex128" if complex_ else "float64"
        x = xp.module.broadcast_to(xp.astype(signal, wide), (*batch, n))
        start = xp.module.broadcast_to(xp.astype(initial, wide), (*batch, terms))
        if not n or not terms or 0 in batch:
            y, last = x * 0, start
        else:
            clean = library.all_finite(x) and library.all_finite(start)
            operand, from_ = (x, start) if clean else (xp.where(xp.isfinite(one), one, 0.0) for one in (x, start))
            recur = _uniform if math.prod(steps.shape) == 1 else _own
            y, last = recur(library, rates, weights, steps, operand, from_, degree, lagged)
            if not clean:
                y, last = taint(xp, y, last, xp.stop_gradient(x), xp.stop_gradient(start), lagged)
        # A copy, because without steps or terms the final states are the initial ones.
        made = xp.concatenate([y, last], -1) if final else y
        return xp.astype(made, complex_of(kind) if complex_ else kind)

    return {"blocked": Kernel(library.finished(library.wide(recur_blocked)))}


def _uniform(
    library: Library, rates: Any, weights: Any, step: Any, x: Any, state: Any, degree: int | None, lagged: bool
) -> tuple[Any, Any]:
    return uniform_steps(library.xp, rates, weights, step.reshape(()), x, state, degree, lagged, library.scan)


def _own(
    library: Library, rates: Any, weights: Any, steps: Any, x: Any, state: Any, degree: int | None, lagged: bool
) -> tuple[Any, Any]:
    """Parts in turn, of which only the ends are stored for a derivative; segments in parallel within each."""
    xp, n = library.xp, x.shape[-1]
    arrays = (rates, weights, steps, x, state)
    part = library.part_length(n, *arrays)
    given = Recurrence(xp, rates, weights, degree, lagged, library.scan, library.is_differentiated(*arrays))

    def of_part(state: Any, now: tuple[Any, Any]) -> tuple[Any, Any]:
        steps, x = now
        length = x.shape[-1]
        together = library.segments(length, rates.shape[0] * max(1, math.prod(x.shape[:-1])), x)
        y, last = own_steps(given, steps, x, state, together)
        return last, y

    if part == n:
        last, y = of_part(state, (steps, x))
        return y, last
    parts, whole = -(-n // part), -(-n // part) * part
    # Steps of length 0 without input do not change the states.
    steps, x = (xp.concatenate([one, xp.zeros((*one.shape[:-1], whole - n), one.dtype, one)], -1) for one in (steps, x))
    rows = xp.moveaxis(x.reshape((*x.shape[:-1], parts, part)), -2, 0)
    last, values = library.scan(library.recomputed(of_part, *arrays), state, (steps.reshape((parts, part)), rows))
    y = xp.moveaxis(values, 0, -2)
    return y.reshape((*y.shape[:-2], whole))[..., :n], last

"""Exponential recurrence in NumPy: segments of the signal in parallel."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hpfracc._xp import NUMPY
from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.numpy.nonfinite import all_finite
from hpfracc.engine.numerics.recurrence import own_steps, taint, uniform_steps

__all__ = ["KERNELS", "recur_blocked"]

#: States that are processed together: with their factors they stay in a second-level cache.
_STATES_TOGETHER = 1 << 14
Array = np.ndarray[Any, Any]


@np.errstate(all="ignore")
def recur_blocked(
    rates: Array,
    weights: Array,
    steps: Array,
    signal: Array,
    initial: Array,
    *,
    degree: int | None = None,
    lagged: bool = False,
    final: bool = False,
) -> Array:
    """Values, followed by the final states if requested."""
    rates, weights, steps = (np.asarray(array, np.float64) for array in (rates, weights, steps))
    complex_ = "c" in (signal.dtype.kind, initial.dtype.kind)
    batch = np.broadcast_shapes(signal.shape[:-1], initial.shape[:-1])
    n, terms = signal.shape[-1], len(rates)
    wide = np.complex128 if complex_ else np.float64
    x = np.broadcast_to(signal.astype(wide), (*batch, n))
    start = np.broadcast_to(initial.astype(wide), (*batch, terms))
    kind = signal.dtype if signal.dtype.kind in "fc" else np.dtype(np.float64)
    kind = np.result_type(kind, np.complex64) if complex_ else kind
    shape = (*batch, n + terms * final)
    if not n or not terms or 0 in shape:
        result = np.zeros(shape, kind)
        if final:
            result[..., n:] = start
        return result
    clean = all_finite(x) and all_finite(start)
    operand, from_ = (x, start) if clean else (np.where(np.isfinite(x), x, 0), np.where(np.isfinite(start), start, 0))
    if steps.size == 1:
        y, last = uniform_steps(NUMPY, rates, weights, steps.reshape(()), operand, from_, degree, lagged)
    else:
        together = max(1, _STATES_TOGETHER // (terms * max(1, math.prod(batch))))
        y, last = own_steps(NUMPY, rates, weights, steps, operand, from_, degree, lagged, together)
    if not clean:
        y, last = taint(NUMPY, y, last, x, start, lagged)
    result = np.empty(shape, kind)
    result[..., :n] = y
    if final:
        result[..., n:] = last
    return result


KERNELS: dict[str, Kernel] = {"blocked": Kernel(recur_blocked)}

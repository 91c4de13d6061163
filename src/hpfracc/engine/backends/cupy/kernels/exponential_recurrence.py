"""Exponential recurrence in CuPy: segments of the signal in parallel."""

from __future__ import annotations

import math

import cupy
import numpy as np

from hpfracc._xp import namespace
from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.numerics.recurrence import own_steps, taint, uniform_steps

__all__ = ["KERNELS", "recur_blocked"]

#: States that are processed together: enough to fill a GPU, few enough for small passes.
_STATES_TOGETHER = 1 << 19
_XP = namespace("cupy")


def recur_blocked(
    rates: cupy.ndarray,
    weights: cupy.ndarray,
    steps: cupy.ndarray,
    signal: cupy.ndarray,
    initial: cupy.ndarray,
    *,
    degree: int | None = None,
    lagged: bool = False,
    final: bool = False,
) -> cupy.ndarray:
    """Values, followed by the final states if requested."""
    rates, weights, steps = (array.astype(np.float64, copy=False) for array in (rates, weights, steps))
    complex_ = "c" in (signal.dtype.kind, initial.dtype.kind)
    batch = np.broadcast_shapes(signal.shape[:-1], initial.shape[:-1])
    n, terms = signal.shape[-1], len(rates)
    wide = np.complex128 if complex_ else np.float64
    x = cupy.broadcast_to(signal.astype(wide), (*batch, n))
    start = cupy.broadcast_to(initial.astype(wide), (*batch, terms))
    kind = signal.dtype if signal.dtype.kind in "fc" else np.dtype(np.float64)
    kind = np.result_type(kind, np.complex64) if complex_ else kind
    shape = (*batch, n + terms * final)
    if not n or not terms or 0 in shape:
        result = cupy.zeros(shape, kind)
        if final:
            result[..., n:] = start
        return result
    operand, from_ = (cupy.where(cupy.isfinite(array), array, 0) for array in (x, start))
    if steps.size == 1:
        y, last = uniform_steps(_XP, rates, weights, steps.reshape(()), operand, from_, degree, lagged)
    else:
        # At most the square root of the steps as the number of segments, because the states are propagated between
        # them.
        rows = terms * max(1, math.prod(batch))
        together = max(1, min(_STATES_TOGETHER // rows, int(np.sqrt(n))))
        y, last = own_steps(_XP, rates, weights, steps, operand, from_, degree, lagged, together)
    y, last = taint(_XP, y, last, x, start, lagged)
    result = cupy.empty(shape, kind)
    result[..., :n] = y
    if final:
        result[..., n:] = last
    return result


KERNELS: dict[str, Kernel] = {"blocked": Kernel(recur_blocked)}

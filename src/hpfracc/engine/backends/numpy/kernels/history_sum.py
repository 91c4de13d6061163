"""History sum in NumPy: the generic kernel, with threads; or by a tree of clusters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hpfracc._xp import NUMPY
from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.generic.history_sum import make_kernels
from hpfracc.engine.backends.numpy.nonfinite import all_finite
from hpfracc.engine.numerics.history_tree import HistoryTree

__all__ = ["KERNELS", "sum_by_tree", "sum_direct"]

#: Weights of a block (also in the adapter), and its outputs: with their temporaries they stay in a second-level cache.
_HISTORY_BLOCK, _HISTORY_ROWS = 1 << 16, 256
Array = np.ndarray[Any, Any]

_DIRECT = make_kernels(NUMPY, _HISTORY_BLOCK, _HISTORY_ROWS, all_finite)
sum_direct: Callable[..., Array] = _DIRECT["direct"].run


@np.errstate(all="ignore")
def sum_by_tree(times: Array, signal: Array, *parameters: Array, kernel: str = "power", scaled: bool = False) -> Array:
    """The sum in O(n log n): distant intervals act through polynomials, to rounding."""
    times = np.asarray(times, np.float64)
    n = signal.shape[-1]
    if n < 2 or not (np.diff(times) > 0.0).all() or not np.isfinite(times[-1]):
        return sum_direct(times, signal, *parameters, kernel=kernel, scaled=scaled)
    kind = signal.dtype if signal.dtype.kind in "fc" else np.dtype(np.float64)
    x = signal.astype(np.complex128 if kind.kind == "c" else np.float64)
    result = np.zeros(x.shape, kind)
    if not result.size:
        return result
    x[..., 0] = 0.0
    clean = all_finite(x)
    operand = x if clean else np.where(np.isfinite(x), x, 0)
    options = tuple(float(np.asarray(parameter).reshape(())) for parameter in parameters)
    tree = HistoryTree(kernel, times, operand, options, scaled)
    for block in range(tree.blocks):
        place, value = tree.sum_block(block)
        result[..., place] = value
    if not clean:
        result[np.logical_or.accumulate(~np.isfinite(x), -1)] = np.nan
    return result


KERNELS: dict[str, Kernel] = {**_DIRECT, "tree": Kernel(sum_by_tree)}

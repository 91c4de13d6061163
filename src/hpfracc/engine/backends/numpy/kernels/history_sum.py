"""History sum in NumPy: blocks of weights, each computed, used and freed; or by a tree of clusters."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpfracc._xp import NUMPY
from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.numpy.nonfinite import all_finite
from hpfracc.engine.numerics.history_tree import HistoryTree
from hpfracc.engine.numerics.history_weights import block_of_weights, output_blocks
from hpfracc.engine.workers import run_blocks

__all__ = ["KERNELS", "sum_by_tree", "sum_direct"]

#: Weights of a block (also in the adapter), and its outputs: with their temporaries they stay in a second-level cache.
_HISTORY_BLOCK, _HISTORY_ROWS = 1 << 16, 256
Array = np.ndarray[Any, Any]


@np.errstate(all="ignore")
def sum_direct(
    times: Array, signal: Array, *parameters: Array, kernel: str = "power", scaled: bool = False, workers: int = 1
) -> Array:
    """The sum, a block of outputs at a time; blocks are divided among threads."""
    n = signal.shape[-1]
    kind = signal.dtype if signal.dtype.kind in "fc" else np.dtype(np.float64)
    x = signal.astype(np.complex128 if kind.kind == "c" else np.float64)
    result = np.zeros(x.shape, kind)
    if not result.size:
        return result
    times = np.asarray(times, np.float64)
    options = tuple(np.asarray(parameter, np.float64) for parameter in parameters)
    if kernel != "tabulated":
        options = tuple(option.reshape(()) for option in options)
        x[..., 0] = 0.0
    clean = all_finite(x)
    operand = x if clean else np.where(np.isfinite(x), x, 0)

    @np.errstate(all="ignore")
    def work(some: list[tuple[int, int]]) -> None:
        for low, high in some:
            weights, first = block_of_weights(NUMPY, kernel, times, options, (low, high), scaled)
            result[..., low:high] = operand[..., first:high] @ weights.T

    blocks = output_blocks(n, _HISTORY_BLOCK, _HISTORY_ROWS)
    # Distributed in turn, because later blocks take longer.
    run_blocks(work, [blocks[part::workers] for part in range(workers)], workers)
    if not clean:
        result[np.logical_or.accumulate(~np.isfinite(x), -1)] = np.nan
    return result


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


KERNELS: dict[str, Kernel] = {"direct": Kernel(sum_direct), "tree": Kernel(sum_by_tree)}

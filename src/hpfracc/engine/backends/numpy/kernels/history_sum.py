"""History sum in NumPy: the generic kernel, with threads; or by a tree of clusters."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.generic.history_sum import make_kernels, sum_causally
from hpfracc.engine.backends.numpy.library import LIBRARY
from hpfracc.engine.numerics.history_sums import HistoryTree

Array = np.ndarray[Any, Any]
_DIRECT = make_kernels(LIBRARY)


def sum_by_tree(times: Array, signal: Array, *parameters: Array, kernel: str = "power", scaled: bool = False) -> Array:
    """The sum in O(n log n): distant intervals act through polynomials, to rounding."""
    times = np.asarray(times, np.float64)
    if signal.shape[-1] < 2 or not (np.diff(times) > 0.0).all() or not np.isfinite(times[-1]):
        return np.asarray(_DIRECT["direct"].run(times, signal, *parameters, kernel=kernel, scaled=scaled))

    def sum_of(times: Array, x: Array, options: tuple[Array, ...]) -> Array:
        tree = HistoryTree(kernel, times, x, tuple(map(float, options)), scaled)
        result = np.zeros_like(x)
        for block in range(tree.blocks):
            place, value = tree.sum_block(block)
            result[..., place] = value
        return result

    return np.asarray(sum_causally(LIBRARY, sum_of, times, signal, parameters, kernel))


KERNELS: dict[str, Kernel] = {**_DIRECT, "tree": Kernel(LIBRARY.finished(sum_by_tree))}

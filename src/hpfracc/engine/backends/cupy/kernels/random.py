"""Counter-based random numbers in CuPy: one thread computes a block of four."""

from __future__ import annotations

from functools import cache
from typing import Any

import cupy
import numpy as np

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.cupy.random_source import THREADS, random_source

#: Blocks of threads along a grid's first axis.
_MAX_BLOCKS = 2**31 - 1


@cache
def _kernel(kind: str, dtype: str) -> Any:
    return cupy.RawKernel(random_source(kind, dtype), "fill", options=("--fmad=false",))


def random_fused(
    paths: cupy.ndarray, key: cupy.ndarray, *, n: int, kind: str = "normal", stream: int = 0, dtype: str = "float64"
) -> cupy.ndarray:
    """Number by number, in one pass."""
    numbers = cupy.ravel(paths).astype(np.uint64)
    result = cupy.empty((numbers.size, n), dtype)
    if result.size:
        blocks = numbers.size * -(-n // 4)
        grid = min(-(-blocks // THREADS), _MAX_BLOCKS)
        arguments = (numbers, key.astype(np.uint64), np.uint64(stream), np.int64(numbers.size), np.int64(n), result)
        _kernel(kind, dtype)((grid,), (THREADS,), arguments)
    return result.reshape(*paths.shape, n)


KERNELS: dict[str, Kernel] = {"fused": Kernel(random_fused)}

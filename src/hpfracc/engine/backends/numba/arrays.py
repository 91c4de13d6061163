"""Arrays as compiled code wants them.

Numba compiles once more for every memory layout, and for arrays that may not be written. So that each dtype is compiled
once, kernels see flat, contiguous, writeable arrays; whatever is laid out otherwise is copied.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["Array", "behaved", "flat", "spread"]

Array = np.ndarray[Any, Any]


def behaved(array: Array) -> Array:
    """``array`` itself if it is contiguous, aligned and writeable, else a copy that is."""
    return array if array.flags.carray else np.require(array, requirements=("C", "A", "W"))


def flat(array: Array) -> Array:
    """The elements in one row, row-major."""
    return behaved(array).reshape(-1)


def spread(array: Array, shape: tuple[int, ...]) -> Array:
    """``array`` repeated to ``shape``; itself where it has that: what is repeated is read-only, and would be copied."""
    return array if array.shape == shape else np.broadcast_to(array, shape)

"""Conversion of arrays for compiled code.

Numba compiles separately for every memory layout, and for read-only arrays. So that each dtype is compiled once,
kernels get flat, contiguous, writeable arrays; others are copied.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def behaved(array: Array) -> Array:
    """``array`` itself if it is contiguous, aligned and writeable, otherwise such a copy."""
    return array if array.flags.carray else np.require(array, requirements=("C", "A", "W"))


def flat(array: Array) -> Array:
    """The elements in one row, row-major."""
    return behaved(array).reshape(-1)


def spread(array: Array, shape: tuple[int, ...]) -> Array:
    """``array`` broadcast to ``shape``; itself if it has that shape, because broadcast arrays are copied."""
    return array if array.shape == shape else np.broadcast_to(array, shape)

"""Arrays for test cases: seeded, of any dtype, and laid out in memory in the ways that kernels must bear."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["reversed_view", "samples", "strided_view"]


def samples(dtype: str, shape: int | tuple[int, ...], seed: int) -> np.ndarray[Any, Any]:
    """Normal numbers for inexact dtypes, the whole range for integers; the same for the same arguments."""
    generator = np.random.default_rng(seed)
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return np.asarray(generator.integers(0, 2, shape).astype(bool))
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        return np.asarray(generator.integers(limits.min, limits.max, shape, dtype=kind.type, endpoint=True))
    if kind.kind == "c":
        return np.asarray((generator.standard_normal(shape) + 1j * generator.standard_normal(shape)).astype(kind))
    return np.asarray(generator.standard_normal(shape).astype(kind))


def strided_view(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same elements with gaps between them: every axis steps over every other element of a larger array."""
    room = np.zeros(tuple(2 * size for size in array.shape), array.dtype)
    view = room[tuple(slice(None, None, 2) for _ in array.shape)]
    view[...] = array
    return view


def reversed_view(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same elements, the last axis stored backwards."""
    return np.ascontiguousarray(array[..., ::-1])[..., ::-1]

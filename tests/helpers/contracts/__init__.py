"""What every kernel of a primitive is tested against: a plain reference in NumPy, and cases in all memory layouts.

One module a primitive, with ``reference(primitive, *arrays, **params)`` and ``cases(primitive, dtype)``.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hpfracc.engine.primitives.base import Primitive


@dataclass(frozen=True, slots=True)
class Case:
    """One test case of a primitive: operands by a seeded generator, and the parameters to call it with."""

    name: str
    arrays: tuple[np.ndarray, ...]
    params: Mapping[str, Any] = field(default_factory=dict)
    differentiable: bool = False


def reference(primitive: Primitive, *arrays: np.ndarray[Any, Any], **params: Any) -> np.ndarray[Any, Any]:
    """A simple, correct implementation in NumPy, possibly slow, against which every kernel is tested."""
    found: np.ndarray[Any, Any] = _module(primitive).reference(primitive, *arrays, **params)
    return found


def cases(primitive: Primitive, dtype: str) -> Iterator[Case]:
    """Test cases: plain, batched, non-contiguous, zero-length, odd sizes."""
    yield from _module(primitive).cases(primitive, dtype)


def _module(primitive: Primitive) -> Any:
    return importlib.import_module(f"{__name__}.{primitive.name}")


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

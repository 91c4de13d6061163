"""Reading of operands: fast access to shape and dtype of any array-like, and errors with a remedy.

An operand is an array of any library, an :class:`~hpfracc.engine.primitives.base.ArraySpec` or a Python number or
list; only ``shape`` and ``dtype`` are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from hpfracc import _reading
from hpfracc.engine.primitives.base import INEXACT, NUMBERS, dtype_of, shape_of
from hpfracc.errors import InvalidInputError, ShapeError, UnsupportedDtypeError

#: Cached names of dtypes, because formatting one takes a microsecond.
_NAMES: dict[Any, str] = {}
_COMPLEX = {"float32": "complex64", "float64": "complex128"}
_REAL = {"complex64": "float32", "complex128": "float64"}


def read_dtype(operation: str, name: str, array: Any, allowed: frozenset[str] = NUMBERS) -> str:
    """The dtype of an operand; raises :class:`UnsupportedDtypeError` with a remedy if it is not supported."""
    key = getattr(array, "dtype", None)
    dtype = _NAMES.get(key) if key is not None else None
    if dtype is None:
        try:
            dtype = dtype_of(array)
        except ValueError as error:
            raise ShapeError(f"{operation}: {name} is not an array ({error}); make its rows equally long") from None
        if key is not None:
            _NAMES[key] = dtype
    if dtype not in allowed:
        raise UnsupportedDtypeError(f"{operation}: {name} has dtype {dtype!r}, {_remedy(dtype, allowed)}")
    return dtype


def read_shape(operation: str, name: str, array: Any) -> tuple[int, ...]:
    """The shape of an operand with at least one axis, or :class:`ShapeError`."""
    shape = shape_of(array)
    if not shape:
        raise ShapeError(f"{operation}: {name} has shape (); it needs at least one axis")
    return shape


def signal_dtype(operation: str, signal: Any, **others: Any) -> str:
    """The dtype of a computation in the precision of the signal, complex if one of the ``others`` is."""
    dtype = inexact(read_dtype(operation, "signal", signal))
    widened = [read_dtype(operation, name, array).startswith("complex") for name, array in others.items()]
    return complex_of(dtype) if any(widened) else dtype


def _remedy(dtype: str, allowed: frozenset[str]) -> str:
    if dtype == "object":
        return "which holds Python objects; convert it to numbers first, as with numpy.asarray(x, dtype=float)"
    if dtype.startswith(("float16", "bfloat16", "float8", "float4")) and "float32" in allowed:
        return "which has too few digits; convert it to float32"
    if dtype in ("float96", "float128", "longdouble") and "float64" in allowed:
        return "which no backend supports; convert it to float64"
    if dtype in ("complex192", "complex256", "clongdouble") and "complex128" in allowed:
        return "which no backend supports; convert it to complex128"
    if dtype[0] in "<>" and dtype[1] in "fciu":
        return f"which is not in this machine's byte order; convert it with .astype({dtype[1:]!r})"
    return f"which it does not take; convert it to one of {', '.join(sorted(allowed))}"


@lru_cache(maxsize=4096)
def promoted(names: tuple[str, ...]) -> str:
    """The dtype that NumPy would give an operation over arrays of these dtypes."""
    return str(np.result_type(*names))


def complex_of(dtype: str) -> str:
    """The complex dtype of the same precision."""
    return _COMPLEX.get(dtype, dtype)


def inexact(dtype: str) -> str:
    """The dtype of a computation with numbers of ``dtype``: float64 for integers and booleans."""
    return dtype if dtype in INEXACT else "float64"


def real_of(dtype: str) -> str:
    """The real dtype of the same precision."""
    return _REAL.get(dtype, dtype)


def broadcast(operation: str, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that ``shapes`` broadcast to, or :class:`ShapeError`."""
    first = shapes[0]
    if all(shape == first for shape in shapes):
        return first
    axes = max(map(len, shapes))
    result = []
    for axis in range(-axes, 0):
        sizes = {shape[axis] for shape in shapes if len(shape) >= -axis} - {1}
        if len(sizes) > 1:
            shown = " and ".join(map(str, shapes))
            raise ShapeError(
                f"{operation}: shapes {shown} do not broadcast; axes must be equal, or 1, counted from the last"
            )
        result.append(sizes.pop() if sizes else 1)
    return tuple(result)


def normal_axis(operation: str, axis: Any, axes: int) -> int:
    """``axis`` counted from the front; raises :class:`InvalidInputError` if it does not exist."""
    number = _reading.whole(f"{operation}: axis", axis)
    if not -axes <= number < axes:
        raise InvalidInputError(
            f"{operation}: axis={number} of an array with {axes} axes; use {-axes} to {axes - 1}"
            if axes
            else f"{operation}: axis={number} of an array without axes; give it at least one, or omit axis"
        )
    return number % axes


def normal_axes(operation: str, axes: Any, ndim: int) -> tuple[int, ...]:
    """``axes``, one or several different ones, counted from the front, in the given order."""
    chosen = tuple(axes) if isinstance(axes, Sequence) and not isinstance(axes, str) else (axes,)
    numbers = tuple(normal_axis(operation, axis, ndim) for axis in chosen)
    if len(set(numbers)) < len(numbers):
        raise InvalidInputError(f"{operation}: axes={axes!r} names an axis twice; name each once")
    return numbers

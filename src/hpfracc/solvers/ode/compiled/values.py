"""The values of a right-hand side while its code is read: their numbers are unknown.

A value is one of

- a Python number, None, tuple or list: known, and computed by Python itself;
- :class:`Scalar`: a float, either Python's or NumPy's, which differ in when they raise errors;
- :class:`Truth`: the outcome of a comparison;
- :class:`Array`: a float array of known shape whose elements are the above;
- :class:`Known`: a module or function.

:class:`Symbols` represents an argument whose numbers are given later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Array", "BailError", "Known", "RefusedError", "Scalar", "Symbols", "Truth", "Value", "literal"]

Value = Any

#: Integers up to this size are exactly representable as floats.
_EXACT = 2**53


class RefusedError(Exception):
    """The function does something whose compiled result might differ; the message says what."""


class BailError(Exception):
    """Python raises an error here for all numbers."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """A float, computed by ``code``.

    Attributes
    ----------
    numpy : bool
        Whether it is NumPy's float64, whose operations raise nothing, or Python's float.
    view : bool
        Whether it is a zero-dimensional array, which in-place operations would change.
    """

    code: str
    numpy: bool
    view: bool = False


@dataclass(frozen=True, slots=True)
class Truth:
    """A bool, Python's or NumPy's."""

    code: str
    numpy: bool


@dataclass(slots=True, eq=False)
class Array:
    """A float array, or one of bools.

    Attributes
    ----------
    items : numpy.ndarray of object
        Its elements, :class:`Scalar` or :class:`Truth`, or None if not written yet.
    writable : bool
        Whether it was created by the function itself and has no views, so that it may be written to.
    """

    items: Any
    writable: bool = False


@dataclass(frozen=True, slots=True)
class Known:
    """A module or function."""

    object: Any


@dataclass(frozen=True, slots=True)
class Symbols:
    """A float array among the arguments: ``codes`` compute its elements, in C order."""

    shape: tuple[int, ...]
    codes: tuple[str, ...]

    def value(self) -> Value:
        """The value that the function receives."""
        items = np.empty(len(self.codes), object)
        for n, code in enumerate(self.codes):
            items[n] = Scalar(code, numpy=True, view=not self.shape)
        return Array(items.reshape(self.shape)) if self.shape else items[0]


def literal(number: float) -> str:
    """Source code of a known number as a float."""
    if isinstance(number, int) and abs(number) > _EXACT:
        raise RefusedError(f"the integer {number} is not exactly a float")
    value = float(number)
    if np.isnan(value):
        return "nan"
    if np.isinf(value):
        return "inf" if value > 0.0 else "(-inf)"
    return repr(value) if value > 0.0 or repr(value) == "0.0" else f"({value!r})"

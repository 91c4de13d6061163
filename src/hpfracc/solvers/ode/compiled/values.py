"""The values of a right-hand side while its code is read: their numbers are not known yet.

A value is one of

- a Python number, None, tuple or list: known, computed by Python itself;
- :class:`Scalar`: a float, either Python's or NumPy's, which differ in what raises an error;
- :class:`Truth`: the outcome of a comparison;
- :class:`Array`: a float array whose shape is known and whose elements are the above;
- :class:`Known`: a module or function.

:class:`Symbols` stands for an argument whose numbers are given later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Array", "BailError", "Known", "RefusedError", "Scalar", "Symbols", "Truth", "Value", "literal"]

Value = Any

#: Integers up to this size are floats exactly.
_EXACT = 2**53


class RefusedError(Exception):
    """The function does something whose compiled result might differ; the message says what."""


class BailError(Exception):
    """Python raises an error here, whatever the numbers are."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """A float: ``code`` computes it.

    Attributes
    ----------
    numpy : bool
        NumPy's float64, whose operations raise nothing, or Python's float.
    view : bool
        An array without axes, which operations in place would change.
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
        Its elements, :class:`Scalar` or :class:`Truth`, or None where nothing was written yet.
    writable : bool
        Made by the function itself. Nothing else looks at its memory as long as no view of it was taken.
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
        """What the function is given."""
        items = np.empty(len(self.codes), object)
        for n, code in enumerate(self.codes):
            items[n] = Scalar(code, numpy=True, view=not self.shape)
        return Array(items.reshape(self.shape)) if self.shape else items[0]


def literal(number: float) -> str:
    """A known number as source of a float."""
    if isinstance(number, int) and abs(number) > _EXACT:
        raise RefusedError(f"the integer {number} is no float exactly")
    value = float(number)
    if np.isnan(value):
        return "nan"
    if np.isinf(value):
        return "inf" if value > 0.0 else "(-inf)"
    return repr(value) if value > 0.0 or repr(value) == "0.0" else f"({value!r})"

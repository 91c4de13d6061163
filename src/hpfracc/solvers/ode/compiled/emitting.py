"""Arithmetic on unknown numbers, emitted as source code with the semantics of Python and NumPy.

Where Python raises an error (a division by zero, an overflowing power), the source bails out: the caller then evaluates
the function in Python, which raises it. NumPy numbers raise nothing; infinities and NaN propagate as in NumPy.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from hpfracc.solvers.ode.compiled.values import Array, BailError, RefusedError, Scalar, Truth, Value, literal

__all__ = ["Emitter", "ForkError"]

#: Limits of reading: lines of one path, forks on it, and bits of a known integer.
_MAX_LINES, _MAX_FORKS, _MAX_BITS = 3000, 16, 512

_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_NUMBERS = (int, float)  # bool is an int


class ForkError(Exception):
    """A condition that decides the path, for which no decision was given."""

    def __init__(self, condition: str) -> None:
        super().__init__(condition)
        self.condition = condition


class Emitter:
    """Emits one path through a function: ``decisions`` says which branch it takes at each condition."""

    def __init__(self, decisions: tuple[bool, ...]) -> None:
        self.lines: list[str] = []
        self._decisions = decisions
        self._forks = 0
        self._names = 0

    # -- writing ------------------------------------------------------------------------------------------------------

    def line(self, text: str) -> None:
        """Append a line."""
        if len(self.lines) >= _MAX_LINES:
            raise RefusedError(f"it takes more than {_MAX_LINES} operations")
        self.lines.append(text)

    def _name(self, letter: str, code: str) -> str:
        self._names += 1
        name = f"{letter}{self._names}"
        self.line(f"{name} = {code}")
        return name

    def number(self, code: str, *, numpy: bool) -> Scalar:
        """A float computed by ``code``."""
        return Scalar(self._name("v", code), numpy)

    def truth(self, code: str, *, numpy: bool) -> Truth:
        """A bool computed by ``code``."""
        return Truth(self._name("c", code), numpy)

    def bail_if(self, condition: str) -> None:
        """Leave the rest to Python if ``condition`` holds."""
        self.line(f"if {condition}:")
        self.line("    bail")

    def checked(self, code: str) -> Scalar:
        """A Python float; if it is not finite, Python would have raised an error."""
        found = self.number(code, numpy=False)
        self.bail_if(f"not isfinite({found.code})")
        return found

    def decide(self, condition: str) -> bool:
        """Choose the branch; both are read, one after the other."""
        if self._forks == len(self._decisions):
            if self._forks >= _MAX_FORKS:
                raise RefusedError(f"more than {_MAX_FORKS} conditions follow each other")
            raise ForkError(condition)
        self.lines.clear()  # the lines before a fork were emitted when it was found
        decision = self._decisions[self._forks]
        self._forks += 1
        return decision

    def is_true(self, value: Value) -> bool:
        """The effect of ``if value:``."""
        if isinstance(value, Truth):
            return self.decide(value.code)
        if isinstance(value, Scalar):
            return self.decide(f"{value.code} != 0.0")
        if isinstance(value, bool | int | float | tuple | list | None):
            return bool(value)
        raise RefusedError("the truth value of an array or object decides a branch")

    # -- reading values -----------------------------------------------------------------------------------------------

    def scalar(self, value: Value) -> Scalar:
        """A number as a float."""
        if isinstance(value, Scalar):
            return value
        if isinstance(value, Truth):
            return self.number(f"1.0 if {value.code} else 0.0", numpy=value.numpy)
        if isinstance(value, _NUMBERS):
            return Scalar(literal(value), numpy=False)
        raise RefusedError(f"a {_describe(value)} is used as a number")

    def items(self, value: Value) -> Any:
        """The elements of ``np.asarray(value)``, as an array of objects."""
        if isinstance(value, Array):
            if any(each is None for each in value.items.flat):
                raise RefusedError("an array is read before all of it is written")
            return value.items
        if isinstance(value, list | tuple):
            rows = [self.items(each) for each in value]
            if not rows:
                raise RefusedError("it creates an empty array")
            if len({row.shape for row in rows}) > 1:
                raise RefusedError("it creates an array from a ragged sequence")
            found = np.empty((len(rows), *rows[0].shape), object)
            for n, row in enumerate(rows):
                found[n] = row if row.ndim else row[()]
            return found
        found = np.empty((), object)
        found[()] = value if isinstance(value, Truth | int | float) else self.scalar(value)
        return found

    def array(self, value: Value, *, floats: bool = False) -> Any:
        """The elements of ``np.asarray(value)`` as floats; arrays of integers or bools are refused.

        With ``floats`` they are not refused, because the array has a float dtype.
        """
        items = self.items(value)
        flat = list(items.flat)
        if not floats and not any(isinstance(each, Scalar | float) for each in flat):
            raise RefusedError("it creates an array of integers or bools")
        return self.map(self._element, items)

    def _element(self, value: Value) -> Scalar:
        found = self.scalar(value)
        return Scalar(found.code, numpy=True)

    @staticmethod
    def map(function: Callable[..., Any], *arrays: Any) -> Any:
        """``function`` applied to the elements of arrays of one shape."""
        found = np.empty(arrays[0].shape, object)
        for index in np.ndindex(found.shape):
            found[index] = function(*(array[index] for array in arrays))
        return found

    def wrap(self, items: Any, *, view: bool = False) -> Value:
        """An array of objects as a value."""
        if items.ndim:
            return Array(items, writable=not view)
        element = items[()]
        if element is None:
            raise RefusedError("an array is read before all of it is written")
        return Scalar(element.code, numpy=True, view=True) if isinstance(element, Scalar) else element

    # -- arithmetic ---------------------------------------------------------------------------------------------------

    def binary(self, symbol: str, left: Value, right: Value) -> Value:
        """``left symbol right``, for arithmetic and comparisons."""
        if isinstance(left, _NUMBERS) and isinstance(right, _NUMBERS):
            return _known(symbol, left, right)
        if isinstance(left, Array) or isinstance(right, Array):
            for each in (left, right):
                if isinstance(each, list | tuple):
                    raise RefusedError("arithmetic of an array and a sequence")
            return self.elementwise(lambda one, other: self._pair(symbol, one, other, array=True), left, right)
        if symbol in ("+", "*") and isinstance(left, tuple) and isinstance(right, tuple):
            raise RefusedError("arithmetic of tuples")
        return self._pair(symbol, left, right)

    def elementwise(self, function: Callable[..., Any], *values: Value) -> Value:
        """``function`` applied to elements, with NumPy's broadcasting; of numbers alone, a number."""
        arrays = [self.items(value) for value in values]
        try:
            wide = np.broadcast_arrays(*arrays)
        except ValueError:
            raise BailError from None
        found = self.map(function, *wide)
        return Array(found, writable=True) if found.ndim else found[()]

    def _pair(self, symbol: str, left: Value, right: Value, *, array: bool = False) -> Value:
        if isinstance(left, Truth) or isinstance(right, Truth):
            return self._with_truth(symbol, left, right, array=array)
        if array and isinstance(left, _NUMBERS) and isinstance(right, _NUMBERS):
            raise RefusedError("arithmetic of arrays of integers")
        one, other = self.scalar(left), self.scalar(right)
        numpy = array or one.numpy or other.numpy
        if symbol in ("<", "<=", ">", ">=", "==", "!="):
            return self.truth(f"{one.code} {symbol} {other.code}", numpy=numpy)
        if symbol in ("+", "-", "*"):
            return self.number(f"{one.code} {symbol} {other.code}", numpy=numpy)
        if symbol == "/":
            if not numpy:
                self._not_zero(right, other)
            return self.number(f"{one.code} / {other.code}", numpy=numpy)
        if symbol == "**":
            return self.power(left, right, numpy=numpy, array=array or getattr(left, "view", False))
        if symbol == "%":
            return self.modulo(right, one, other, numpy=numpy)
        raise RefusedError(f"the operation {symbol}")

    def _with_truth(self, symbol: str, left: Value, right: Value, *, array: bool) -> Value:
        """Arithmetic with a bool, which counts as 0 or 1 if the other operand is a float."""
        both = isinstance(left, Truth) and isinstance(right, Truth)
        if both and symbol in ("&", "|"):
            word = "and" if symbol == "&" else "or"
            return self.truth(f"{left.code} {word} {right.code}", numpy=left.numpy or right.numpy)
        if both or symbol not in ("+", "-", "*", "/") or isinstance(left, int) or isinstance(right, int):
            raise RefusedError(f"the operation {symbol} on bools")
        return self._pair(symbol, self.scalar(left), self.scalar(right), array=array)

    def _not_zero(self, divisor: Value, written: Scalar) -> None:
        if not isinstance(divisor, _NUMBERS):
            self.bail_if(f"{written.code} == 0.0")
        elif divisor == 0:
            raise BailError

    def power(self, base: Value, exponent: Value, *, numpy: bool, array: bool = False) -> Scalar:
        """``base ** exponent``."""
        one, other = self.scalar(base), self.scalar(exponent)
        code = f"pow({one.code}, {other.code})"
        if isinstance(exponent, _NUMBERS):
            if exponent in (2, 3):
                code = " * ".join([one.code] * int(exponent))
            elif exponent == 0.5 and array:  # NumPy takes the root of arrays, and the power of numbers
                code = f"sqrt({one.code})"
        # A negative base gives a complex number in Python, zero to a negative power and an overflow give an error.
        return self.number(code, numpy=True) if numpy else self.checked(code)

    def modulo(self, divisor: Value, one: Scalar, other: Scalar, *, numpy: bool) -> Scalar:
        """``one % other``, with the sign of ``other``."""
        self._not_zero(divisor, other)
        rest = self.number(f"fmod({one.code}, {other.code})", numpy=numpy)
        sign = f"({other.code} < 0.0) != ({rest.code} < 0.0)"
        return self.number(
            f"(({rest.code} + {other.code}) if {sign} else {rest.code}) if {rest.code} != 0.0 "
            f"else copysign(0.0, {other.code})",
            numpy=numpy,
        )

    def negative(self, value: Value) -> Value:
        """``-value``."""
        if isinstance(value, _NUMBERS):
            return -value
        if isinstance(value, Array):
            return Array(self.map(self.negative, self.items(value)), writable=True)
        if isinstance(value, Scalar):
            return self.number(f"-{value.code}", numpy=value.numpy)
        raise RefusedError(f"the negative of a {_describe(value)}")

    def absolute(self, value: Value) -> Value:
        """``abs(value)``."""
        if isinstance(value, _NUMBERS):
            return abs(value)
        if isinstance(value, Array):
            return Array(self.map(self.absolute, self.items(value)), writable=True)
        if isinstance(value, Scalar):
            return self.number(f"abs({value.code})", numpy=value.numpy)
        raise RefusedError(f"the absolute value of a {_describe(value)}")

    def invert(self, value: Value) -> Value:
        """``~value``, of bools."""
        if isinstance(value, Array):
            return Array(self.map(self.invert, self.items(value)), writable=True)
        if isinstance(value, Truth) and value.numpy:
            return self.truth(f"not {value.code}", numpy=True)
        raise RefusedError("the operation ~")

    def product(self, left: Value, right: Value) -> Value:
        """``left @ right``."""
        if not (isinstance(left, Array) and isinstance(right, Array)):
            raise RefusedError("a matrix product of something other than arrays")
        one, other = self.array(left), self.array(right)
        if one.ndim > 2 or other.ndim > 2:
            raise RefusedError("a matrix product of more than two axes")
        if one.shape[-1] != other.shape[0]:
            raise BailError
        rows, columns = one.reshape(-1, one.shape[-1]), other.reshape(other.shape[0], -1)
        found = np.empty((len(rows), columns.shape[1]), object)
        for i, j in np.ndindex(found.shape):
            found[i, j] = self.total([self._pair("*", a, b) for a, b in zip(rows[i], columns[:, j], strict=True)])
        shape = (*one.shape[:-1], *other.shape[1:])
        if not shape:
            return found[0, 0]
        return Array(found.reshape(shape), writable=True)

    def total(self, terms: list[Value]) -> Value:
        """The sum of NumPy numbers."""
        found = terms[0]
        for each in terms[1:]:
            found = self._pair("+", found, each)
        return found


def _known(symbol: str, left: float, right: float) -> Value:
    """The result computed by Python itself."""
    if symbol in ("&", "|"):
        raise RefusedError(f"the operation {symbol} on numbers")
    if (
        isinstance(left, int)
        and isinstance(right, int)
        and symbol == "**"
        and abs(right) * left.bit_length() > _MAX_BITS
    ):
        raise RefusedError("an unbounded power of integers")
    try:
        found = _OPERATORS[symbol](left, right)
    except (ArithmeticError, ValueError, TypeError):
        raise BailError from None
    except KeyError:
        raise RefusedError(f"the operation {symbol}") from None
    if isinstance(found, complex) or (isinstance(found, int) and found.bit_length() > _MAX_BITS):
        raise RefusedError("a number that is not a float")
    return found


def _describe(value: Value) -> str:
    name = type(value).__name__
    if isinstance(value, Array):
        return f"array of shape {value.items.shape}"
    return getattr(value.object, "__name__", name) if name == "Known" else name

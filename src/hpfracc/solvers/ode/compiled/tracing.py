"""Numbers of a right-hand side while it is read: they record what is computed with them as source code.

The function is called with :class:`Scalar`, :class:`Truth` and :class:`Array` in place of its numbers. Python and NumPy
run it; operators and elementwise functions arrive here as ufuncs. The source has the semantics of Python and NumPy:
where Python raises an error (a division by zero, an overflowing power), it bails out, and the caller evaluates the
function in Python, which raises it. NumPy numbers raise nothing; infinities and NaN propagate as in NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

Items = np.ndarray[Any, Any]  # of objects: Scalar, Truth, numbers, and None where nothing was written yet

#: Limits of reading: lines of one path, and forks on it.
_MAX_LINES, _MAX_FORKS = 3000, 16
#: Integers up to this size are exactly representable as floats.
_EXACT = 2**53
_NOBODY: frozenset[int] = frozenset()


class RefusedError(Exception):
    """The function does something whose compiled result might differ; the message says what."""


class ForkError(Exception):
    """A condition that decides the path, for which no decision was given."""

    def __init__(self, condition: str) -> None:
        super().__init__(condition)
        self.condition = condition


class Tracer:
    """The source of one path through a function: ``decisions`` says which branch it takes at each condition."""

    def begin(self, decisions: tuple[bool, ...]) -> None:
        """Start another path."""
        self.lines: list[str] = []
        self._decisions = decisions
        self._forks = 0
        self._known: dict[str, str] = {}

    def line(self, text: str) -> None:
        """Append a line."""
        if len(self.lines) >= _MAX_LINES:
            raise RefusedError(f"it takes more than {_MAX_LINES} operations")
        self.lines.append(text)

    def name(self, letter: str, code: str) -> str:
        """The name of a value; what was computed before is not computed again."""
        found = self._known.get(code)
        if found is None:
            found = self._known[code] = f"{letter}{len(self._known) + 1}"
            self.line(f"{found} = {code}")
        return found

    def number(self, pattern: str, *operands: Any, numpy: bool = True) -> Scalar:
        """A float computed from ``operands``."""
        code = pattern.format(*(self.code(each) for each in operands))
        return Scalar(self, self.name("v", code), numpy, _owners(operands))

    def truth(self, pattern: str, *operands: Any, numpy: bool = True) -> Truth:
        """A bool computed from ``operands``."""
        code = pattern.format(*(each.code if isinstance(each, Truth) else self.code(each) for each in operands))
        return Truth(self, self.name("c", code), numpy, _owners(operands))

    def code(self, value: Any) -> str:
        """Source code of a number as a float."""
        if isinstance(value, Truth):
            return self.name("v", f"1.0 if {value.code} else 0.0")
        return str(value.code) if isinstance(value, Scalar) else _literal(value)

    def bail_if(self, pattern: str, *operands: Any) -> None:
        """Leave the rest to Python if a condition holds."""
        condition = f"if {pattern.format(*(self.code(each) for each in operands))}:"
        if condition not in self._known:
            self._known[condition] = "bail"
            self.line(condition)
            self.line("    bail")

    def checked(self, pattern: str, *operands: Any) -> Scalar:
        """A Python float; if it is not finite, Python would have raised an error."""
        found = self.number(pattern, *operands, numpy=False)
        self.bail_if("not isfinite({0})", found)
        return found

    def decide(self, condition: str, owners: frozenset[int]) -> bool:
        """Choose the branch; both are read, one after the other."""
        if owners:
            raise RefusedError("a condition on the state of a member decides for all; use np.where")
        if self._forks == len(self._decisions):
            if self._forks >= _MAX_FORKS:
                raise RefusedError(f"more than {_MAX_FORKS} conditions follow each other")
            raise ForkError(condition)
        self.lines.clear()  # the lines before a fork were emitted when it was found
        self._forks += 1
        return self._decisions[self._forks - 1]


class _Traced(NDArrayOperatorsMixin):
    """Operators and elementwise functions of NumPy."""

    __slots__ = ()

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = (), **options: Any) -> Any:
        if method != "__call__" or options or ufunc not in UFUNCS:
            raise RefusedError(f"it uses np.{ufunc.__name__}")
        if ufunc is np.matmul:
            found = wrap(np.matmul(*(floats(each) for each in inputs)))
        else:
            found = _elementwise(ufunc, inputs)
        if out and isinstance(out[0], np.ndarray):
            raise RefusedError("it changes an array of constants in place")
        if out and isinstance(out[0], Array):
            out[0][...] = found
            return out[0]
        return found

    def __format__(self, form: str) -> str:
        raise RefusedError("a number becomes text")

    __str__ = __repr__ = lambda self: self.__format__("")


class _Element(_Traced):
    """A number or a bool, computed by ``code``.

    Attributes
    ----------
    numpy : bool
        Whether it is NumPy's, whose operations raise nothing, or Python's.
    owners : frozenset of int
        The members of an ensemble that it depends on.
    """

    __slots__ = ("code", "numpy", "owners", "tracer")

    def __init__(self, tracer: Tracer, code: str, numpy: bool, owners: frozenset[int] = _NOBODY) -> None:
        self.tracer, self.code, self.numpy, self.owners = tracer, code, numpy, owners

    def __bool__(self) -> bool:
        condition = self.code if isinstance(self, Truth) else f"{self.code} != 0.0"
        return self.tracer.decide(condition, self.owners)


class Scalar(_Element):
    """A float."""

    __slots__ = ()


class Truth(_Element):
    """The outcome of a comparison."""

    __slots__ = ()


def _rearranged(name: str) -> Any:
    """A method of NumPy's arrays that rearranges the elements."""
    return lambda self, *given: Array(getattr(self.items, name)(*given))


class Array(_Traced):
    """An array of floats, or of bools. Its elements are an array of objects, so views and broadcasting are NumPy's."""

    __slots__ = ("items",)

    dtype = np.dtype(float)
    shape = property(lambda self: self.items.shape)
    size = property(lambda self: self.items.size)
    ndim = property(lambda self: self.items.ndim)
    T = property(lambda self: Array(self.items.T))

    def __init__(self, items: Items) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Any]:
        return (self[n] for n in range(len(self)))

    def __bool__(self) -> bool:
        if self.size != 1:
            raise RefusedError("the truth value of an array decides a branch")
        return bool(_written(self.items.item()))

    def __getitem__(self, index: Any) -> Any:
        found = self.items[_read_index(index)]
        return Array(found) if isinstance(found, np.ndarray) else _written(found)

    def __setitem__(self, index: Any, value: Any) -> None:
        place = _read_index(index)
        if isinstance(self.items[place], np.ndarray):
            self.items[place] = floats(value)
        elif np.ndim(items(value)):
            raise RefusedError("it assigns an array to an element")
        else:
            self.items[place] = floats(value)[()]

    copy, reshape, ravel, transpose = map(_rearranged, ("copy", "reshape", "ravel", "transpose"))

    def sum(self, axis: Any = None, keepdims: bool = False) -> Any:
        """Sums along an axis. NumPy starts with 0.0, so none is -0.0."""
        return wrap(floats(self).sum(axis=axis, keepdims=keepdims)) + 0.0

    def mean(self, axis: Any = None, keepdims: bool = False) -> Any:
        """Means along an axis."""
        total = self.sum(axis, keepdims)
        return total / (self.size / np.size(items(total)))

    def dot(self, other: Any) -> Any:
        """The product of matrices or vectors."""
        return wrap(np.dot(floats(self), floats(other)))


def _owners(values: tuple[Any, ...]) -> frozenset[int]:
    return _NOBODY.union(*(each.owners for each in values if isinstance(each, _Element)))


def _literal(number: Any) -> str:
    """Source code of a known number as a float."""
    if not isinstance(number, int | float | np.integer | np.bool_):
        raise RefusedError(f"a {type(number).__name__} is used as a number")
    if not isinstance(number, float) and abs(int(number)) > _EXACT:
        raise RefusedError(f"the integer {number} is not exactly a float")
    text = repr(float(number))  # nan and inf are names in the source
    return f"({text})" if text.startswith("-") else text


def _written(element: Any) -> Any:
    if element is None:
        raise RefusedError("an array is read before all of it is written")
    return element


def _read_index(index: Any) -> Any:
    if any(isinstance(each, _Traced) for each in (index if isinstance(index, tuple) else (index,))):
        raise RefusedError("an index that is not a known integer")
    return index


def wrap(found: Any) -> Any:
    """An array of objects as a value."""
    return Array(found) if isinstance(found, np.ndarray) else found


def items(value: Any) -> Items:
    """The elements of ``np.asarray(value)``."""
    if isinstance(value, Array):
        for each in value.items.flat:
            _written(each)
        return value.items
    if isinstance(value, list | tuple):
        rows = [items(each) for each in value]
        if not rows or len({row.shape for row in rows}) > 1:
            raise RefusedError("it creates an array from an empty or a ragged sequence")
        return np.stack(rows)
    if isinstance(value, np.ndarray):
        return value.astype(object)
    found = np.empty((), object)
    found[()] = value
    return found


def floats(value: Any) -> Items:
    """The elements of ``np.asarray(value)``, as NumPy's floats."""
    return np.asarray(np.frompyfunc(_as_float, 1, 1)(items(value)), object)


def _as_float(value: Any) -> Any:
    if isinstance(value, _Element):
        return Scalar(value.tracer, value.tracer.code(value), True, value.owners)
    _literal(value)
    return np.float64(value)


def is_numpy(value: Any) -> bool:
    """Whether operations on this number raise nothing."""
    return value.numpy if isinstance(value, _Element) else isinstance(value, np.generic)


# -- elementwise functions --------------------------------------------------------------------------------------------


def _elementwise(ufunc: np.ufunc, inputs: tuple[Any, ...]) -> Any:
    """A ufunc of elements, with NumPy's broadcasting; of numbers alone, a number."""
    if any(isinstance(each, list | tuple) for each in inputs):
        raise RefusedError("arithmetic of a sequence")
    array = any(isinstance(each, Array | np.ndarray) for each in inputs)
    if ufunc is np.power and array and isinstance(inputs[1], float) and inputs[1] == 0.5:
        return _elementwise(np.sqrt, inputs[:1])  # as NumPy does, for arrays
    write = UFUNCS[ufunc]

    def one(*values: Any) -> Any:
        tracer = next((each.tracer for each in values if isinstance(each, _Element)), None)
        return ufunc(*values) if tracer is None else write(tracer, array or any(map(is_numpy, values)), *values)

    return wrap(np.frompyfunc(one, len(inputs), 1)(*(items(each) for each in inputs)))


def _function(pattern: str, kind: str = "number", *, keeps: bool = False) -> Callable[..., Any]:
    """A function of floats, whose result is NumPy's; if it ``keeps`` kinds, Python's for Python's floats."""

    def write(tracer: Tracer, numpy: bool, *values: Any) -> Any:
        _refuse_bools(values)
        return getattr(tracer, kind)(pattern, *values, numpy=numpy or not keeps)

    return write


def _refuse_bools(values: tuple[Any, ...]) -> None:
    if any(isinstance(each, Truth | bool | np.bool_) for each in values):
        raise RefusedError("a function or operation on bools")


def _operator(pattern: str) -> Callable[..., Any]:
    """Arithmetic; a bool counts as 0 or 1 if the other operand is a float."""

    def write(tracer: Tracer, numpy: bool, *values: Any) -> Any:
        if not any(isinstance(each, Scalar | float) for each in values):
            raise RefusedError("arithmetic of bools and integers")
        if pattern == "{0} / {1}" and not numpy:
            _bail_at_zero(tracer, values[1])
        return tracer.number(pattern, *values, numpy=numpy)

    return write


def _logical(pattern: str) -> Callable[..., Any]:
    def write(tracer: Tracer, numpy: bool, *values: Any) -> Any:
        if not all(isinstance(each, Truth) for each in values) or (len(values) == 1 and not numpy):
            raise RefusedError("a bitwise operation")
        return tracer.truth(pattern, *values, numpy=numpy)

    return write


def _bail_at_zero(tracer: Tracer, divisor: Any) -> None:
    if isinstance(divisor, Scalar):
        tracer.bail_if("{0} == 0.0", divisor)
    elif divisor == 0:
        raise ZeroDivisionError


def _power(tracer: Tracer, numpy: bool, base: Any, exponent: Any) -> Any:
    _refuse_bools((base, exponent))
    pattern = "pow({0}, {1})"
    if not isinstance(exponent, Scalar) and exponent in (2, 3):
        pattern = " * ".join(["{0}"] * int(exponent))
    # A negative base gives a complex number in Python, zero to a negative power and an overflow give an error.
    return tracer.number(pattern, base, exponent) if numpy else tracer.checked(pattern, base, exponent)


def _remainder(tracer: Tracer, numpy: bool, value: Any, divisor: Any) -> Any:
    """The remainder, with the sign of the divisor."""
    _refuse_bools((value, divisor))
    _bail_at_zero(tracer, divisor)
    rest = tracer.number("fmod({0}, {1})", value, divisor, numpy=numpy)
    signed = "(({0} + {1}) if ({1} < 0.0) != ({0} < 0.0) else {0}) if {0} != 0.0 else copysign(0.0, {1})"
    return tracer.number(signed, rest, divisor, numpy=numpy)


def _extreme(symbol: str) -> Callable[..., Any]:
    """``np.maximum`` and ``np.minimum``: NaN wins, and of two zeros with different signs NumPy may return either."""

    def write(tracer: Tracer, numpy: bool, *values: Any) -> Any:
        _refuse_bools(values)
        tracer.bail_if("{0} == 0.0 and {1} == 0.0 and copysign(1.0, {0}) != copysign(1.0, {1})", *values)
        return tracer.number(f"{{0}} if {{0}} {symbol} {{1}} or {{0}} != {{0}} else {{1}}", *values)

    return write


def _same(tracer: Tracer, numpy: bool, value: Any) -> Any:
    _refuse_bools((value,))
    return value


#: NumPy's functions with the name that they have in ``math``.
_ELEMENTARY = {
    np.sin: "sin", np.cos: "cos", np.tan: "tan", np.arcsin: "asin", np.arccos: "acos", np.arctan: "atan",
    np.sinh: "sinh", np.cosh: "cosh", np.tanh: "tanh", np.arcsinh: "asinh", np.arccosh: "acosh", np.arctanh: "atanh",
    np.exp: "exp", np.expm1: "expm1", np.log: "log", np.log10: "log10", np.log1p: "log1p", np.log2: "log2",
    np.sqrt: "sqrt", np.floor: "floor", np.ceil: "ceil", np.trunc: "trunc", np.rint: "rint", np.fabs: "abs",
}  # fmt: skip

_COMPARISONS = {
    np.less: "<", np.less_equal: "<=", np.greater: ">", np.greater_equal: ">=", np.equal: "==", np.not_equal: "!=",
}  # fmt: skip

#: The supported ufuncs, and how they are emitted.
UFUNCS: dict[np.ufunc, Callable[..., Any]] = {
    **{function: _function(f"{name}({{0}})") for function, name in _ELEMENTARY.items()},
    np.arctan2: _function("atan2({0}, {1})"),
    np.hypot: _function("hypot({0}, {1})"),
    np.copysign: _function("copysign({0}, {1})"),
    np.square: _function("{0} * {0}"),
    np.reciprocal: _function("1.0 / {0}"),
    np.sign: _function("1.0 if {0} > 0.0 else (-1.0 if {0} < 0.0 else (0.0 if {0} == 0.0 else nan))"),
    np.add: _operator("{0} + {1}"),
    np.subtract: _operator("{0} - {1}"),
    np.multiply: _operator("{0} * {1}"),
    np.divide: _operator("{0} / {1}"),
    np.negative: _operator("-{0}"),
    np.absolute: _operator("abs({0})"),
    np.positive: _same,
    np.power: _power,
    np.remainder: _remainder,
    np.matmul: _same,
    np.maximum: _extreme(">="),
    np.minimum: _extreme("<="),
    **{function: _function(f"{{0}} {symbol} {{1}}", "truth", keeps=True) for function, symbol in _COMPARISONS.items()},
    np.bitwise_and: _logical("{0} and {1}"),
    np.bitwise_or: _logical("{0} or {1}"),
    np.invert: _logical("not {0}"),
    np.isnan: _function("{0} != {0}", "truth"),
    np.isfinite: _function("isfinite({0})", "truth"),
}

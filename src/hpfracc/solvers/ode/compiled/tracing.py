"""Numbers of a right-hand side while it is read: they record what is computed with them as source code.

The function is called with :class:`Symbol` in place of its numbers, and :class:`Array`, NumPy's array of such objects,
in place of its arrays. Python and NumPy run it; operators and elementwise functions arrive here as ufuncs. The source
has the semantics of Python and NumPy: where Python raises an error (a division by zero, an overflowing power), it bails
out, and the caller evaluates the function in Python, which raises it. NumPy numbers raise nothing; infinities and NaN
propagate as in NumPy.

What a function may use besides operators stands in :data:`REPLACEMENTS`, by identity, so that a name bound to something
else is not mistaken for it. Functions of known numbers alone are computed by Python and NumPy themselves.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

#: Limits of reading: lines of one path, and forks on it.
_MAX_LINES, _MAX_FORKS = 3000, 16
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

    def write(
        self, pattern: str, operands: tuple[Any, ...], numpy: bool = True, truth: bool = False, checked: bool = False
    ) -> Symbol:
        """What is computed from ``operands``; if ``checked``, Python raises an error where that is not finite."""
        code = pattern.format(*map(code_of, operands))
        found = self._known.get(code)  # what was computed before is not computed again
        if found is None:
            found = self._known[code] = f"v{len(self._known) + 1}"
            self.line(f"{found} = 1.0 if {code} else 0.0" if truth else f"{found} = {code}")
            if checked:
                self.line(f"if not isfinite({found}):")
                self.line("    bail")
        owners = _NOBODY.union(*(each.owners for each in operands if isinstance(each, Symbol)))
        return Symbol(self, found, numpy, owners, truth)

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


class Symbol(NDArrayOperatorsMixin):
    """A float computed by ``code``; of a comparison, 1 or 0.

    Attributes
    ----------
    numpy : bool
        Whether it is NumPy's, whose operations raise nothing, or Python's.
    owners : frozenset of int
        The members of an ensemble that it depends on.
    truth : bool
        Whether it stands for a bool.
    """

    __slots__ = ("code", "numpy", "owners", "tracer", "truth")

    def __init__(
        self, tracer: Tracer, code: str, numpy: bool, owners: frozenset[int] = _NOBODY, truth: bool = False
    ) -> None:
        self.tracer, self.code, self.numpy, self.owners, self.truth = tracer, code, numpy, owners, truth

    def __bool__(self) -> bool:
        return self.tracer.decide(f"{self.code} != 0.0", self.owners)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        return _run_ufunc(ufunc, method, inputs, options)

    def __format__(self, form: str) -> str:
        raise RefusedError("a number becomes text")

    __str__ = __repr__ = lambda self: self.__format__("")


class Array(np.ndarray[Any, Any]):
    """An array of symbols and NumPy's floats, with None where nothing was written yet; views are NumPy's."""

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        return _run_ufunc(ufunc, method, inputs, options)

    def __setitem__(self, index: Any, value: Any) -> None:
        values = floats(value)
        if np.ndim(self[index]) < values.ndim == np.ndim(value):
            raise RefusedError("it assigns an array to an element")
        super().__setitem__(index, values if values.ndim else values[()])


def as_number(value: Any, numpy: bool) -> Any:
    """The same number as NumPy's or Python's."""
    if isinstance(value, Symbol):
        return Symbol(value.tracer, value.code, numpy, value.owners, value.truth)
    if value is None or isinstance(value, bool | np.bool_):
        return value
    code_of(value)
    return np.float64(value)


def floats(value: Any) -> Array:
    """The elements of an array or of nested sequences, as NumPy's floats."""
    found = np.frompyfunc(lambda each: as_number(each, True), 1, 1)(np.array(value, dtype=object))
    return np.asarray(found, object).view(Array)


def code_of(value: Any) -> str:
    """Source code of a number."""
    if isinstance(value, Symbol):
        return value.code
    if value is None:
        raise RefusedError("an array is read before all of it is written")
    if not isinstance(value, int | float | np.integer | np.bool_):
        raise RefusedError(f"a {type(value).__name__} is used as a number")
    text = repr(float(value))  # nan and inf are names in the source
    return f"({text})" if text.startswith("-") else text


# -- elementwise functions --------------------------------------------------------------------------------------------

#: NumPy's functions with the name that they have in ``math``, and others as source code.
_FUNCTIONS: dict[np.ufunc, str] = {
    **{
        function: f"{name}({{0}})"
        for function, name in {
            np.sin: "sin", np.cos: "cos", np.tan: "tan", np.arcsin: "asin", np.arccos: "acos", np.arctan: "atan",
            np.sinh: "sinh", np.cosh: "cosh", np.tanh: "tanh", np.arcsinh: "asinh", np.arccosh: "acosh",
            np.arctanh: "atanh", np.exp: "exp", np.expm1: "expm1", np.log: "log", np.log10: "log10",
            np.log1p: "log1p", np.log2: "log2", np.sqrt: "sqrt", np.floor: "floor", np.ceil: "ceil",
            np.trunc: "trunc", np.rint: "rint", np.fabs: "abs",
        }.items()
    },
    np.arctan2: "atan2({0}, {1})",
    np.hypot: "hypot({0}, {1})",
    np.copysign: "copysign({0}, {1})",
    np.square: "{0} * {0}",
    np.reciprocal: "1.0 / {0}",
    np.sign: "1.0 if {0} > 0.0 else (-1.0 if {0} < 0.0 else (0.0 if {0} == 0.0 else nan))",
    np.maximum: "{0} if {0} >= {1} or {0} != {0} else {1}",
    np.minimum: "{0} if {0} <= {1} or {0} != {0} else {1}",
}  # fmt: skip
#: Operators, whose results are Python's for Python's numbers.
_OPERATORS: dict[np.ufunc, str] = {
    np.add: "{0} + {1}",
    np.subtract: "{0} - {1}",
    np.multiply: "{0} * {1}",
    np.negative: "-{0}",
    np.absolute: "abs({0})",
    np.positive: "{0}",
}
#: Operators that raise an error for some of Python's numbers. The remainder is that of ``fmod``, as {2}.
_CHECKED: dict[np.ufunc, str] = {
    np.divide: "{0} / {1}",
    np.power: "pow({0}, {1})",
    np.remainder: "(({2} + {1}) if ({1} < 0.0) != ({2} < 0.0) else {2}) if {2} != 0.0 else copysign(0.0, {1})",
}
_COMPARISONS: dict[np.ufunc, str] = {
    np.less: "{0} < {1}",
    np.less_equal: "{0} <= {1}",
    np.greater: "{0} > {1}",
    np.greater_equal: "{0} >= {1}",
    np.equal: "{0} == {1}",
    np.not_equal: "{0} != {1}",
    np.isnan: "{0} != {0}",
    np.isfinite: "isfinite({0})",
}
#: Operations on bools.
_LOGICAL: dict[np.ufunc, str] = {
    np.bitwise_and: "{0} != 0.0 and {1} != 0.0",
    np.bitwise_or: "{0} != 0.0 or {1} != 0.0",
    np.invert: "{0} == 0.0",
}
_PATTERNS = _FUNCTIONS | _OPERATORS | _CHECKED | _COMPARISONS | _LOGICAL


#: Options of NumPy's own calls that make no difference to objects.
_CASTS = ("casting", "subok")


def _is_numpy(value: Any) -> bool:
    return value.numpy if isinstance(value, Symbol) else isinstance(value, np.generic)


def _run_ufunc(ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """A ufunc of symbols, with NumPy's broadcasting; of numbers alone, a number."""
    if any(isinstance(each, list | tuple) for each in inputs):
        raise RefusedError("arithmetic of a sequence")
    out = options.pop("out", None)
    options = {name: value for name, value in options.items() if value is not None and name not in _CASTS}
    plain = [np.array(each, object) for each in inputs]  # without what brings NumPy here
    if ufunc is np.matmul:
        found = np.matmul(*plain)
    elif ufunc not in _PATTERNS or (options and method == "__call__"):
        raise RefusedError(f"it uses np.{ufunc.__name__}")
    else:
        array = any(isinstance(each, np.ndarray) for each in inputs)

        def one(*values: Any) -> Any:
            return _write(ufunc, array or any(map(_is_numpy, values)), values)

        found = getattr(np.frompyfunc(one, ufunc.nin, 1), method)(*plain, **options)
    if isinstance(found, np.ndarray):
        found = found.view(Array)
    if not out or not isinstance(out[0], np.ndarray):
        return found
    if not isinstance(out[0], Array):
        raise RefusedError("it changes an array of constants in place")
    out[0][...] = found
    return out[0]


def _write(ufunc: np.ufunc, numpy: bool, values: tuple[Any, ...]) -> Any:
    """One element of the result."""
    tracer = next((each.tracer for each in values if isinstance(each, Symbol)), None)
    if tracer is None:
        return ufunc(*(as_number(each, True) for each in values))
    truths = [each.truth if isinstance(each, Symbol) else isinstance(each, bool | np.bool_) for each in values]
    logical = ufunc in _LOGICAL and (numpy or ufunc is not np.invert)
    # A bool counts as 0 or 1 if the other operand is a float.
    if logical != all(truths) or (any(truths) and not logical and ufunc not in _OPERATORS):
        raise RefusedError(f"np.{ufunc.__name__} of a bool, or of bits")
    pattern = _PATTERNS[ufunc]
    if ufunc is np.power and not isinstance(values[1], Symbol) and values[1] in (2, 3):
        pattern = " * ".join(["{0}"] * int(values[1]))
    if ufunc is np.remainder:
        values = (*values, tracer.write("fmod({0}, {1})", values))
    checked = ufunc in _CHECKED and not numpy
    return tracer.write(pattern, values, numpy or ufunc in _FUNCTIONS, ufunc in _COMPARISONS | _LOGICAL, checked)


# -- what a function may use ------------------------------------------------------------------------------------------

#: Functions of ``math``, of one number and of two.
_OF_ONE = (
    "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "exp", "expm1",
    "log", "log10", "log1p", "log2", "sqrt", "erf", "erfc", "gamma", "lgamma", "fabs",
)  # fmt: skip
_OF_TWO = ("atan2", "hypot", "copysign", "pow", "fmod")
MATH = (*_OF_ONE, *_OF_TWO)


class _Module:
    """The part of a module that may be used."""

    def __init__(self, module: Any) -> None:
        self.__dict__["__name__"] = module.__name__
        for name, value in vars(module).items():
            if isinstance(value, float | type(None)):
                self.__dict__[name] = value
            elif callable(value) and value in REPLACEMENTS and value not in vars(builtins).values():
                self.__dict__[name] = REPLACEMENTS[value]

    def __getattr__(self, name: str) -> Any:
        raise RefusedError(f"it uses {self.__name__}.{name}")

    def __setattr__(self, name: str, value: Any) -> None:
        raise RefusedError(f"it changes {self.__name__}.{name}")


def _of_numbers(function: Callable[..., Any], pattern: str, truth: bool = False) -> Callable[..., Any]:
    """A function of ``math``: gives a Python number; if it is not finite, Python raises an error."""

    def call(*values: Any) -> Any:
        numbers = tuple(each[()] if isinstance(each, np.ndarray) and not each.ndim else each for each in values)
        tracer = next((each.tracer for each in numbers if isinstance(each, Symbol)), None)
        return function(*numbers) if tracer is None else tracer.write(pattern, numbers, False, truth, not truth)

    return call


def _of_arrays(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of NumPy on arrays of symbols. Arrays of floats may be written to; integers and bools are known."""

    def known(value: Any) -> Any:
        return object if value is REPLACEMENTS[float] or value is REPLACEMENTS[np.float64] else value

    def call(*values: Any, **options: Any) -> Any:
        found = function(*map(known, values), **{name: known(value) for name, value in options.items()})
        if not isinstance(found, np.ndarray) or isinstance(found, Array) or found.dtype.kind in "iub":
            return found
        if found.dtype not in (np.float64, np.object_):
            raise RefusedError(f"an array of dtype {found.dtype}")
        return floats(found)

    return call


def _where(condition: Any, one: Any, other: Any) -> Any:
    def choose(condition: Any, one: Any, other: Any) -> Any:
        if not isinstance(condition, Symbol):
            return one if condition else other
        return condition.tracer.write("{1} if {0} != 0.0 else {2}", (condition, one, other))

    return floats(np.frompyfunc(choose, 3, 1)(*(np.array(each, object) for each in (condition, one, other))))


def _clip(value: Any, low: Any, high: Any) -> Any:
    return np.minimum(np.maximum(value, low), high)


def _sum(values: Any, start: Any = 0) -> Any:
    terms = list(values)
    plain = [each for each in (start, *terms) if isinstance(each, float | Symbol) and not _is_numpy(each)]
    if len(plain) > 2 and any(isinstance(each, Symbol) for each in plain):
        raise RefusedError("sum of floats, which Python 3.12 and later compensate for rounding; use np.sum or a loop")
    return sum(terms, start)


def _empty(shape: Any, dtype: Any = None) -> Any:
    return np.empty(shape, object)


#: Supported functions, and what stands for them.
REPLACEMENTS: dict[Any, Any] = {
    **{function: function for function in (*_PATTERNS, np.matmul)},
    **{getattr(math, name): _of_numbers(getattr(math, name), f"{name}({{0}})") for name in _OF_ONE},
    **{getattr(math, name): _of_numbers(getattr(math, name), f"{name}({{0}}, {{1}})") for name in _OF_TWO},
    math.isnan: _of_numbers(math.isnan, "{0} != {0}", truth=True),
    math.isfinite: _of_numbers(math.isfinite, "isfinite({0})", truth=True),
    **{
        each: _of_arrays(each)
        for each in (
            np.stack, np.concatenate, np.hstack, np.roll, np.flip, np.reshape, np.transpose, np.ravel, np.sum, np.mean,
            np.dot, np.diff, np.arange, np.array, np.zeros, np.ones, np.full, np.zeros_like, np.ones_like,
            np.empty_like,
        )
    },
    np.empty: _of_arrays(_empty),
    np.asarray: _of_arrays(np.asanyarray),
    np.where: _where,
    np.clip: _clip,
    np.float64: lambda value: as_number(value, True),
    float: lambda value: as_number(value, False) if isinstance(value, Symbol) else float(value),
    **{
        each: each
        for each in (
            abs, all, any, enumerate, len, list, map, max, min, pow, range, reversed, tuple, zip,
        )
    },
    sum: _sum,
}  # fmt: skip
REPLACEMENTS[np], REPLACEMENTS[math] = _Module(np), _Module(math)

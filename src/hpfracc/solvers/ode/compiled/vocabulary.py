"""The functions that a right-hand side may call and still be compiled automatically, each with its meaning.

A function is recognised by its identity, so that a name bound to something else is not mistaken for it.
"""

from __future__ import annotations

import builtins
import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from hpfracc.solvers.ode.compiled.emitting import Emitter
from hpfracc.solvers.ode.compiled.values import Array, BailError, Known, RefusedError, Scalar, Truth, Value

__all__ = ["FUNCTIONS", "MATH", "attribute", "method"]

Handler = Callable[..., Value]

_FLOATS = (float, np.float64)


# -- elementary functions ---------------------------------------------------------------------------------------------


def _math_function(function: Callable[..., float], code: str, count: int) -> Handler:
    """A function of ``math``: takes numbers only, gives a Python float; if it is not finite, Python raises an error."""

    def handle(e: Emitter, *values: Value) -> Value:
        if len(values) != count:
            raise RefusedError(f"math.{function.__name__} with {len(values)} arguments")
        if all(isinstance(value, int | float) for value in values):
            try:
                return function(*values)
            except (ArithmeticError, ValueError):
                raise BailError from None
        return e.checked(f"{code}({', '.join(e.scalar(value).code for value in values)})")

    return handle


def _ufunc(pattern: str, count: int, *, of_integers: bool = True) -> Handler:
    """An elementwise NumPy function; ``of_integers``: whether it converts integers to floats."""

    def write(e: Emitter, *values: Value) -> Value:
        if any(isinstance(value, Truth | bool) for value in values):
            raise RefusedError("a NumPy function of bools")
        if not of_integers and all(isinstance(value, int) for value in values):
            raise RefusedError("a NumPy function of integers")
        return e.number(pattern.format(*(e.scalar(value).code for value in values)), numpy=True)

    return _on_elements(write, count)


def _on_elements(write: Handler, count: int) -> Handler:
    def handle(e: Emitter, *values: Value) -> Value:
        if len(values) != count:
            raise RefusedError(f"a NumPy function with {len(values)} arguments")
        return e.elementwise(lambda *each: write(e, *each), *values)

    return handle


def _test(pattern: str, *, numpy: bool) -> Handler:
    def handle(e: Emitter, value: Value) -> Value:
        if not isinstance(value, Scalar):
            raise RefusedError("a test of something other than a float")
        return e.truth(pattern.format(value.code), numpy=numpy)

    return handle


def _extreme(symbol: str) -> Handler:
    """``np.maximum`` and ``np.minimum``: NaN wins, and of two zeros with different signs NumPy may return either."""

    def write(e: Emitter, left: Value, right: Value) -> Value:
        if isinstance(left, int) and isinstance(right, int):
            raise RefusedError("a NumPy function of integers")
        if isinstance(left, Truth) or isinstance(right, Truth):
            raise RefusedError("a NumPy function of bools")
        one, other = e.scalar(left).code, e.scalar(right).code
        e.bail_if(f"{one} == 0.0 and {other} == 0.0 and copysign(1.0, {one}) != copysign(1.0, {other})")
        return e.number(f"{one} if {one} {symbol} {other} or {one} != {one} else {other}", numpy=True)

    return _on_elements(write, 2)


def _power(e: Emitter, base: Value, exponent: Value) -> Value:
    def write(one: Value, other: Value) -> Value:
        if isinstance(one, int) and isinstance(other, int):
            raise RefusedError("a NumPy function of integers")
        return e.power(one, other, numpy=True, array=isinstance(base, Array))

    return e.elementwise(write, base, exponent)


def _arithmetic(symbol: str) -> Handler:
    """``np.add`` etc.: like the operator, on NumPy numbers."""

    def write(e: Emitter, left: Value, right: Value) -> Value:
        if isinstance(left, int) and isinstance(right, int):
            raise RefusedError("a NumPy function of integers")
        one, other = e.scalar(left), e.scalar(right)
        return e.binary(symbol, Scalar(one.code, numpy=True), Scalar(other.code, numpy=True))

    return _on_elements(write, 2)


def _square(e: Emitter, value: Value) -> Value:
    return _power(e, value, 2) if not isinstance(value, int) else _refuse("np.square of an integer")


def _where(e: Emitter, condition: Value, one: Value, other: Value) -> Value:
    def write(chosen: Value, left: Value, right: Value) -> Value:
        if not isinstance(chosen, Truth | bool):
            raise RefusedError("np.where on something other than a comparison")
        if isinstance(left, Truth | bool | int) and isinstance(right, Truth | bool | int):
            raise RefusedError("np.where gives integers or bools")
        first, second = e.scalar(left), e.scalar(right)
        if isinstance(chosen, bool):
            return Scalar(first.code if chosen else second.code, numpy=True)
        return e.number(f"{first.code} if {chosen.code} else {second.code}", numpy=True)

    found = e.elementwise(write, condition, one, other)
    return Scalar(found.code, numpy=True, view=True) if isinstance(found, Scalar) else found


def _clip(e: Emitter, value: Value, low: Value, high: Value) -> Value:
    return FUNCTIONS[np.minimum](e, FUNCTIONS[np.maximum](e, value, low), high)


# -- arrays -----------------------------------------------------------------------------------------------------------


def _reads_float(dtype: Value) -> bool:
    if dtype is None:
        return False
    if isinstance(dtype, Known) and dtype.object in _FLOATS:
        return True
    raise RefusedError("an array of a dtype other than float")


def _array(e: Emitter, value: Value, dtype: Value = None) -> Value:
    floats = _reads_float(dtype)
    if isinstance(value, Array) and _is_bools(value):
        raise RefusedError("an array of bools")
    return e.wrap(np.array(e.array(value, floats=floats)))


def _asarray(e: Emitter, value: Value, dtype: Value = None) -> Value:
    if isinstance(value, Array) and not _is_bools(value):
        _reads_float(dtype)
        return value
    return _array(e, value, dtype)


def _is_bools(value: Array) -> bool:
    return any(isinstance(each, Truth) for each in value.items.flat)


def _filled(content: float | None) -> Handler:
    def handle(e: Emitter, shape: Value, dtype: Value = None) -> Value:
        _reads_float(dtype)
        return _make(shape, content)

    return handle


def _filled_like(content: float | None) -> Handler:
    def handle(e: Emitter, like: Value, dtype: Value = None) -> Value:
        _reads_float(dtype)
        if not isinstance(like, Array) or (_is_bools(like) and dtype is None):
            raise RefusedError("an array like something other than a float array")
        return _make(like.items.shape, content)

    return handle


def _make(shape: Value, content: float | None) -> Array:
    sizes = shape if isinstance(shape, tuple) else (shape,)
    if not all(type(size) is int and 0 < size <= 4096 for size in sizes) or not sizes or math.prod(sizes) > 4096:
        raise RefusedError(f"an array of shape {shape!r}")
    items = np.empty(sizes, object)
    items[...] = None if content is None else Scalar(repr(content), numpy=True)
    return Array(items, writable=True)


def _full(e: Emitter, shape: Value, content: Value, dtype: Value = None) -> Value:
    if isinstance(content, Array | Truth | int) and not (isinstance(content, int) and _reads_float(dtype)):
        raise RefusedError("np.full with something other than a float")
    found = _make(shape, 0.0)
    found.items[...] = Scalar(e.scalar(content).code, numpy=True)
    return found


def _structural(function: Callable[..., Any], *, joins: bool = False, **fixed: Any) -> Handler:
    """NumPy's own function applied to the array of elements: it rearranges them and computes nothing."""

    def handle(e: Emitter, value: Value, *more: Value, **options: Value) -> Value:
        for each in (*more, *options.values()):
            if not (each is None or type(each) is int or (type(each) is tuple and all(type(n) is int for n in each))):
                raise RefusedError(f"np.{function.__name__} with an argument that is not a known integer")
        if joins and not isinstance(value, list | tuple):
            raise RefusedError(f"np.{function.__name__} of something other than a list")
        if not joins and not isinstance(value, Array):
            raise RefusedError(f"np.{function.__name__} of something other than an array")
        arrays: Any = e.array(value) if not joins else [e.array(each, floats=isinstance(each, int)) for each in value]
        if joins and all(isinstance(each, int) for each in value):
            raise RefusedError("it creates an array of integers")
        try:
            found = function(arrays, *more, **{**fixed, **options})
        except (ValueError, IndexError, TypeError):
            raise BailError from None
        if isinstance(value, Array):
            value.writable = False  # it may be changed through the result
        return e.wrap(np.array(found), view=not joins)

    return handle


def _sum(e: Emitter, value: Value, axis: Value = None) -> Value:
    if not (axis is None or type(axis) is int):
        raise RefusedError("a sum along something other than one axis")
    items = e.array(value)
    if axis is None or items.ndim == 1:
        if axis not in (None, 0, -1):
            raise BailError
        return e.binary("+", e.total(list(items.reshape(-1))), 0.0)  # NumPy starts with 0.0: no sum is -0.0
    try:
        moved = np.moveaxis(items, axis, 0)
    except ValueError:
        raise BailError from None
    found = np.empty(moved.shape[1:], object)
    for index in np.ndindex(found.shape):
        found[index] = e.binary("+", e.total([row[index] for row in moved]), 0.0)
    return Array(found, writable=True)


def _mean(e: Emitter, value: Value, axis: Value = None) -> Value:
    shape = e.array(value).shape
    return e.binary("/", _sum(e, value, axis), float(math.prod(shape) if axis is None else shape[axis]))


def _diff(e: Emitter, value: Value) -> Value:
    items = e.array(value)
    if items.ndim != 1 or len(items) < 2:
        raise RefusedError("np.diff of more than one axis")
    return e.binary("-", Array(items[1:]), Array(items[:-1]))


def _dot(e: Emitter, left: Value, right: Value) -> Value:
    return e.product(left, right)


#: Whether ``sum`` of Python's floats compensates for rounding errors.
COMPENSATED = sys.version_info >= (3, 12)


# -- builtins ---------------------------------------------------------------------------------------------------------


def _best(symbol: str) -> Handler:
    """``max`` and ``min`` of numbers, which return the first of equal ones and skip NaN as comparisons do."""

    def handle(e: Emitter, *values: Value) -> Value:
        if len(values) == 1:
            values = tuple(_iterate(e, values[0]))
        if not values or not all(isinstance(each, int | float | Scalar) for each in values):
            raise RefusedError("max or min of something other than numbers")
        best = values[0]
        for each in values[1:]:
            if e.is_true(e.binary(symbol, each, best)):
                best = each
        return best

    return handle


def _builtin_sum(e: Emitter, values: Value, start: Value = 0) -> Value:
    terms = list(_iterate(e, values))
    plain = sum(isinstance(each, float) or (isinstance(each, Scalar) and not each.numpy) for each in (start, *terms))
    if COMPENSATED and plain > 2:
        raise RefusedError("sum of floats, which Python 3.12 and later compensate for rounding; use np.sum or a loop")
    for each in terms:
        start = e.binary("+", start, each)
    return start


def _float(e: Emitter, value: Value) -> Value:
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, Scalar):
        return Scalar(value.code, numpy=False)
    raise RefusedError("float of something other than a number")


def _float64(e: Emitter, value: Value) -> Value:
    if isinstance(value, Array | Truth):
        raise RefusedError("np.float64 of something other than a number")
    return Scalar(e.scalar(value).code, numpy=True)


def _len(e: Emitter, value: Value) -> Value:
    if isinstance(value, Array):
        return len(value.items)
    if isinstance(value, tuple | list):
        return len(value)
    raise RefusedError("len of something other than a sequence")


def _range(e: Emitter, *limits: Value) -> Value:
    if not all(type(limit) is int for limit in limits) or not 1 <= len(limits) <= 3 or limits[2:] == (0,):
        raise RefusedError("a range with unknown limits")
    found = range(*limits)
    if len(found) > 4096:
        raise RefusedError("a range of more than 4096")
    return tuple(found)


def _iterate(e: Emitter, value: Value) -> list[Value]:
    """The values that ``for each in value`` iterates over."""
    if isinstance(value, tuple | list):
        return list(value)
    if isinstance(value, Array):
        items = e.items(value)
        value.writable = False  # a loop sees later writes
        return [items[n] if items.ndim == 1 else Array(items[n]) for n in range(len(items))]
    raise RefusedError("a loop over something other than a known sequence")


def _sequence(kind: Callable[[list[Value]], Value]) -> Handler:
    return lambda e, value: kind(_iterate(e, value))


def _zip(e: Emitter, *values: Value) -> Value:
    return tuple(zip(*(_iterate(e, value) for value in values), strict=False))


def _enumerate(e: Emitter, value: Value) -> Value:
    return tuple(enumerate(_iterate(e, value)))


def _refuse(what: str) -> Value:
    raise RefusedError(what)


# -- the table --------------------------------------------------------------------------------------------------------

#: Functions of ``math``, and the number of their arguments.
MATH = {
    "sin": 1, "cos": 1, "tan": 1, "asin": 1, "acos": 1, "atan": 1, "atan2": 2, "sinh": 1, "cosh": 1, "tanh": 1,
    "asinh": 1, "acosh": 1, "atanh": 1, "exp": 1, "expm1": 1, "log": 1, "log10": 1, "log1p": 1, "log2": 1, "sqrt": 1,
    "erf": 1, "erfc": 1, "gamma": 1, "lgamma": 1, "hypot": 2, "copysign": 2, "fabs": 1, "pow": 2, "fmod": 2,
}  # fmt: skip

_ELEMENTARY = {
    np.sin: "sin", np.cos: "cos", np.tan: "tan", np.arcsin: "asin", np.arccos: "acos", np.arctan: "atan",
    np.sinh: "sinh", np.cosh: "cosh", np.tanh: "tanh", np.arcsinh: "asinh", np.arccosh: "acosh", np.arctanh: "atanh",
    np.exp: "exp", np.expm1: "expm1", np.log: "log", np.log10: "log10", np.log1p: "log1p", np.log2: "log2",
    np.sqrt: "sqrt",
}  # fmt: skip

#: The supported functions, and how they are emitted.
FUNCTIONS: dict[Any, Handler] = {
    **{getattr(math, name): _math_function(getattr(math, name), name, count) for name, count in MATH.items()},
    **{function: _ufunc(f"{code}({{0}})", 1) for function, code in _ELEMENTARY.items()},
    np.arctan2: _ufunc("atan2({0}, {1})", 2),
    np.hypot: _ufunc("hypot({0}, {1})", 2),
    np.copysign: _ufunc("copysign({0}, {1})", 2),
    np.absolute: _ufunc("abs({0})", 1, of_integers=False),
    np.fabs: _ufunc("abs({0})", 1),
    np.negative: _ufunc("-{0}", 1, of_integers=False),
    np.reciprocal: _ufunc("1.0 / {0}", 1, of_integers=False),
    np.floor: _ufunc("floor({0})", 1, of_integers=False),
    np.ceil: _ufunc("ceil({0})", 1, of_integers=False),
    np.trunc: _ufunc("trunc({0})", 1, of_integers=False),
    np.rint: _ufunc("rint({0})", 1, of_integers=False),
    np.sign: _ufunc(
        "1.0 if {0} > 0.0 else (-1.0 if {0} < 0.0 else (0.0 if {0} == 0.0 else nan))", 1, of_integers=False
    ),
    np.square: _square,
    np.power: _power,
    np.add: _arithmetic("+"),
    np.subtract: _arithmetic("-"),
    np.multiply: _arithmetic("*"),
    np.divide: _arithmetic("/"),
    np.remainder: _arithmetic("%"),
    np.maximum: _extreme(">="),
    np.minimum: _extreme("<="),
    np.where: _where,
    np.clip: _clip,
    np.isnan: _test("{0} != {0}", numpy=True),
    np.isfinite: _test("isfinite({0})", numpy=True),
    math.isnan: _test("{0} != {0}", numpy=False),
    math.isfinite: _test("isfinite({0})", numpy=False),
    np.array: _array,
    np.asarray: _asarray,
    np.zeros: _filled(0.0),
    np.ones: _filled(1.0),
    np.empty: _filled(None),
    np.zeros_like: _filled_like(0.0),
    np.ones_like: _filled_like(1.0),
    np.empty_like: _filled_like(None),
    np.full: _full,
    np.stack: _structural(np.stack, joins=True),
    np.concatenate: _structural(np.concatenate, joins=True),
    np.hstack: _structural(np.hstack, joins=True),
    np.roll: _structural(np.roll),
    np.reshape: _structural(np.reshape),
    np.transpose: _structural(np.transpose),
    np.flip: _structural(np.flip),
    np.ravel: _structural(np.ravel),
    np.sum: _sum,
    np.mean: _mean,
    np.diff: _diff,
    np.dot: _dot,
    np.matmul: _dot,
    np.float64: _float64,
    float: _float,
    abs: lambda e, value: e.absolute(value),
    builtins.pow: lambda e, base, exponent: e.binary("**", base, exponent),
    max: _best(">"),
    min: _best("<"),
    sum: _builtin_sum,
    len: _len,
    range: _range,
    tuple: _sequence(tuple),
    list: _sequence(list),
    zip: _zip,
    enumerate: _enumerate,
}  # fmt: skip

_METHODS: dict[str, Handler] = {
    "sum": _sum,
    "mean": _mean,
    "dot": _dot,
    "copy": lambda e, value: Array(np.array(e.items(value)), writable=True),
    "reshape": lambda e, value, *shape: FUNCTIONS[np.reshape](e, value, *(shape if len(shape) == 1 else (shape,))),
    "ravel": FUNCTIONS[np.ravel],
    "transpose": FUNCTIONS[np.transpose],
}


def method(name: str) -> Handler:
    """A method of an array."""
    if name not in _METHODS:
        raise RefusedError(f"the method {name!r} of an array")
    return _METHODS[name]


def attribute(e: Emitter, value: Value, name: str) -> Value:
    """``value.name`` for an array."""
    if isinstance(value, Array):
        if name == "T":
            return FUNCTIONS[np.transpose](e, value)
        if name in ("shape", "size", "ndim"):
            return getattr(value.items, name)
    raise RefusedError(f"the attribute {name!r}")

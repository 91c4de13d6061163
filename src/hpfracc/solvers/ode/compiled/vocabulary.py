"""What a right-hand side may use and still be compiled automatically, and what it gets instead while it is read.

A function is recognised by its identity, so that a name bound to something else is not mistaken for it. Functions of
known numbers alone are computed by Python and NumPy themselves.
"""

from __future__ import annotations

import builtins
import math
import sys
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from hpfracc.solvers.ode.compiled.tracing import UFUNCS, Array, RefusedError, Scalar, Truth, floats, is_numpy, items

#: Functions of ``math``.
MATH = (
    "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "exp",
    "expm1", "log", "log10", "log1p", "log2", "sqrt", "erf", "erfc", "gamma", "lgamma", "hypot", "copysign", "fabs",
    "pow", "fmod",
)  # fmt: skip
#: Longest loop that is written out.
_MAX_LENGTH = 4096
#: Whether ``sum`` of Python's floats compensates for rounding errors.
COMPENSATED = sys.version_info >= (3, 12)


class _Module:
    """The part of a module that may be used."""

    def __init__(self, name: str, **content: Any) -> None:
        self.__dict__.update(content)
        self.__dict__["__name__"] = name

    def __getattr__(self, name: str) -> Any:
        raise RefusedError(f"it uses {self.__name__}.{name}")

    def __setattr__(self, name: str, value: Any) -> None:
        raise RefusedError(f"it changes {self.__name__}.{name}")


def _is_traced(value: Any) -> bool:
    return isinstance(value, Scalar | Truth | Array) or (
        isinstance(value, list | tuple) and any(_is_traced(each) for each in value)
    )


def _known(value: Any) -> Any:
    """A result of NumPy for known numbers; arrays of floats may be written to."""
    if isinstance(value, np.ndarray) and value.dtype.kind not in "iub":
        if value.dtype != np.float64:
            raise RefusedError(f"an array of dtype {value.dtype}")
        return Array(floats(value))
    return value


def _either(function: Callable[..., Any], traced: Callable[..., Any]) -> Callable[..., Any]:
    """A replacement that leaves known numbers to ``function`` itself."""

    def call(*values: Any, **options: Any) -> Any:
        if any(_is_traced(each) for each in (*values, *options.values())):
            return traced(*values, **options)
        return _known(function(*map(_original, values), **{name: _original(options[name]) for name in options}))

    return call


def _original(value: Any) -> Any:
    """``float`` for what stands for it, as a dtype."""
    return float if value is REPLACEMENTS[float] or value is REPLACEMENTS[np.float64] else value


# -- numbers ----------------------------------------------------------------------------------------------------------


def _number(value: Any) -> Any:
    """A number, which may be an array without axes."""
    found = items(value)
    if found.ndim or isinstance(found[()], Truth):
        raise RefusedError("a function of a number, called with an array or a bool")
    return found[()]


def _math_function(name: str) -> Callable[..., Any]:
    """A function of ``math``: gives a Python float; if it is not finite, Python raises an error."""

    def call(*values: Any) -> Any:
        numbers = [_number(each) for each in values]
        tracer = next(each.tracer for each in numbers if isinstance(each, Scalar))
        return tracer.checked(f"{name}({', '.join(f'{{{n}}}' for n in range(len(values)))})", *numbers)

    return _either(getattr(math, name), call)


def _of_number(function: Callable[..., Any], write: Callable[[Any], Any]) -> Callable[..., Any]:
    """A function of one number, which ``write`` emits."""
    return _either(function, lambda value: write(_number(value)))


def _range(*limits: int) -> range:
    found = range(*limits)
    if len(found) > _MAX_LENGTH:
        raise RefusedError(f"a loop of more than {_MAX_LENGTH}")
    return found


def _sum(values: Iterable[Any], start: Any = 0) -> Any:
    terms = list(values)
    plain = sum(isinstance(each, float | Scalar) and not is_numpy(each) for each in (start, *terms))
    if COMPENSATED and plain > 2 and _is_traced([start, *terms]):
        raise RefusedError("sum of floats, which Python 3.12 and later compensate for rounding; use np.sum or a loop")
    return sum(terms, start)


# -- arrays -----------------------------------------------------------------------------------------------------------


def _refuse_dtype(dtype: Any) -> None:
    if dtype is not None and np.dtype(_original(dtype)) != np.float64:
        raise RefusedError("an array of a dtype other than float")


def _array(value: Any, dtype: Any = None) -> Array:
    _refuse_dtype(dtype)
    if all(isinstance(each, Truth | int) for each in items(value).flat) and dtype is None:
        raise RefusedError("it creates an array of integers or bools")
    return Array(floats(value))


def _asarray(value: Any, dtype: Any = None) -> Any:
    _refuse_dtype(dtype)
    return value if isinstance(value, Array) else REPLACEMENTS[np.array](value, dtype=dtype)


def _filled(content: Any) -> Callable[..., Any]:
    """``np.zeros`` and the like: an array that may be written to; None stands for elements that are not set."""

    def call(shape: Any, dtype: Any = None) -> Array:
        _refuse_dtype(dtype)
        if np.prod(shape) > _MAX_LENGTH:
            raise RefusedError(f"an array of shape {shape!r}")
        found = np.empty(shape, object)
        found[...] = content
        return Array(found)

    return call


def _full(shape: Any, content: Any, dtype: Any = None) -> Any:
    if isinstance(content, int) and dtype is None:
        raise RefusedError("it creates an array of integers or bools")
    found = _filled(None)(shape, dtype)
    found[...] = content
    return found


def _filled_like(content: Any) -> Callable[..., Any]:
    def call(like: Any, dtype: Any = None) -> Any:
        if not isinstance(like, Array):
            raise RefusedError("an array like something other than a float array")
        return _filled(content)(like.shape, dtype)

    return call


def _structural(function: Callable[..., Any]) -> Callable[..., Any]:
    """NumPy's own function applied to the elements: it rearranges them and computes nothing."""

    def call(value: Any, *more: Any, **options: Any) -> Any:
        joined = isinstance(value, list | tuple)
        return Array(function([floats(each) for each in value] if joined else items(value), *more, **options))

    return _either(function, call)


def _method(name: str) -> Callable[..., Any]:
    """A function of NumPy that is also a method of arrays."""
    return _either(
        getattr(np, name), lambda value, *more, **options: getattr(Array(floats(value)), name)(*more, **options)
    )


def _where(condition: Any, one: Any, other: Any) -> Array:
    def choose(chosen: Any, left: Any, right: Any) -> Any:
        if not isinstance(chosen, Truth):
            if isinstance(chosen, bool | np.bool_):
                return left if chosen else right
            raise RefusedError("np.where on something other than a comparison")
        condition = Scalar(chosen.tracer, chosen.code, True, chosen.owners)  # written as it is, not as a float
        return chosen.tracer.number("{1} if {0} else {2}", condition, left, right)

    pieces = np.broadcast_arrays(items(condition), floats(one), floats(other))
    return Array(np.asarray(np.frompyfunc(choose, 3, 1)(*pieces), object))


def _clip(value: Any, low: Any, high: Any) -> Any:
    return np.minimum(np.maximum(value, low), high)


def _diff(value: Any) -> Any:
    found = Array(floats(value))
    if found.ndim != 1:
        raise RefusedError("np.diff of more than one axis")
    return found[1:] - found[:-1]


_CONTENTS = {"zeros": np.float64(0.0), "ones": np.float64(1.0), "empty": None}

#: Supported functions, and what stands for them.
REPLACEMENTS: dict[Any, Any] = {
    **{function: function for function in UFUNCS},
    **{getattr(math, name): _math_function(name) for name in MATH},
    **{
        each: _structural(each)
        for each in (np.stack, np.concatenate, np.hstack, np.roll, np.flip, np.reshape, np.transpose, np.ravel)
    },
    **{getattr(np, name): _method(name) for name in ("sum", "mean", "dot")},
    **{getattr(np, name): _filled(content) for name, content in _CONTENTS.items()},
    **{getattr(np, f"{name}_like"): _filled_like(content) for name, content in _CONTENTS.items()},
    np.full: _full,
    math.isnan: _of_number(math.isnan, lambda each: each.tracer.truth("{0} != {0}", each, numpy=False)),
    math.isfinite: _of_number(math.isfinite, lambda each: each.tracer.truth("isfinite({0})", each, numpy=False)),
    np.array: _either(np.array, _array),
    np.asarray: _asarray,
    np.where: _either(np.where, _where),
    np.clip: _clip,
    np.diff: _either(np.diff, _diff),
    np.arange: _either(np.arange, _refuse_dtype),
    np.float64: _of_number(np.float64, lambda each: Scalar(each.tracer, each.code, True, each.owners)),
    float: _of_number(float, lambda each: Scalar(each.tracer, each.code, False, each.owners)),
    range: _range,
    sum: _sum,
    **{each: each for each in (abs, all, any, enumerate, len, list, map, max, min, pow, reversed, tuple, zip)},
}


def _part(module: Any) -> _Module:
    content: dict[str, Any] = {}
    for name, value in vars(module).items():
        replaced = callable(value) and value in REPLACEMENTS and value not in vars(builtins).values()
        if replaced or isinstance(value, float | type(None)):
            content[name] = REPLACEMENTS[value] if replaced else value
    return _Module(module.__name__, **content)


REPLACEMENTS[np], REPLACEMENTS[math] = _part(np), _part(math)

"""The vocabulary in which arguments are read and refused, and amounts are shown.

Every message has the name, the value and what to give. A function that takes a number, a choice or an object reads it
with one of these at its public face, and can rely on it from then on. Rooms read what is theirs (orders, grids,
boundary conditions) on top of them.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import math
import operator
import os
import re
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from hpfracc._arrays import library_of, refuse_masked, refuse_units
from hpfracc._optional import machine_memory
from hpfracc.errors import InvalidInputError, OutOfMemoryError, ShapeError, UnsupportedDtypeError

_T = TypeVar("_T")
_F = TypeVar("_F", bound=Callable[..., Any])
#: Keywords of other libraries, and ours.
_OURS = {
    "order": "alpha", "frac_order": "alpha", "fractional_order": "alpha", "q": "alpha", "dt": "step", "dx": "step",
    "h": "step", "tol": "rtol", "eps": "rtol", "hurst": "H", "seed": "rng", "n_paths": "paths",
}  # fmt: skip
#: Largest integer of 64 bits.
_LARGEST = 2**63 - 1
#: Characters of a value in a message; the rest says nothing.
_MAX_SHOWN = 80


def shown(value: Any) -> str:
    """A short ``repr``, or the type of an object whose ``repr`` fails or is long."""
    try:
        words = repr(value)
    except Exception as error:  # a user's class may raise anything, and the message is about the argument
        return f"an object of type {type(value).__name__} (its repr raises {type(error).__name__})"
    return words if len(words) <= _MAX_SHOWN else f"{words[: _MAX_SHOWN - 3]}..."


def _range(least: float | None, above: float | None, most: float | None, below: float | None) -> str:
    low = f"at least {float(least):g}" if least is not None else f"above {float(above):g}" if above is not None else ""
    high = f"at most {float(most):g}" if most is not None else f"below {float(below):g}" if below is not None else ""
    return " and ".join(words for words in (low, high) if words)


def number(
    name: str,
    value: Any,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
    infinite: bool = False,
) -> float:
    """A real number as a float: finite unless ``infinite``, never nan, and within the limits.

    Takes Python's and NumPy's numbers and arrays of one element of any library that is on the host. Text, booleans and
    complex numbers are refused.
    """
    if type(value) is not float:
        refuse_masked(value, name)
    limits = _range(least, above, most, below)
    wanted = f"give a {'' if infinite else 'finite '}number{' ' if limits else ''}{limits}"
    try:
        if isinstance(value, str | bytes | bool | np.bool_):
            raise TypeError
        # An array of one element has one, whatever its number of axes.
        found = float(value.item() if getattr(value, "ndim", 0) else value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        raise InvalidInputError(f"{name}={shown(value)} is not a number; {wanted}") from None
    if (
        math.isnan(found)
        or (not infinite and math.isinf(found))
        or (least is not None and found < least)
        or (above is not None and found <= above)
        or (most is not None and found > most)
        or (below is not None and found >= below)
    ):
        raise InvalidInputError(f"{name}={shown(value)}: {wanted}")
    return found


def whole(name: str, value: Any, *, least: int | None = None, most: int | None = _LARGEST) -> int:
    """An integer within the limits, by default of 64 bits; booleans and floats are refused."""
    limits = _range(least, None, None if most == _LARGEST else most, None)
    wanted = f"give an integer{' ' if limits else ''}{limits}"
    try:
        if isinstance(value, bool | np.bool_):
            raise TypeError
        found = operator.index(value)
    except TypeError:
        raise InvalidInputError(f"{name}={shown(value)} is not an integer; {wanted}") from None
    if (least is not None and found < least) or (most is not None and found > most):
        raise InvalidInputError(f"{name}={shown(found)}: {wanted}{', of 64 bits' if most == _LARGEST else ''}")
    return found


def count(name: str, value: Any, *, least: int = 1) -> int:
    """A number of values, which have to fit into the memory of this machine."""
    found = whole(name, value, least=least)
    require_room(f"{name}={found:,}", found)
    return found


def require_room(what: str, values: float, each: int = 8) -> None:
    """Raise an error for an array of ``values`` numbers of ``each`` bytes that the memory of this machine cannot hold.

    Whether memory is free is the business of the engine; this is for mistyped sizes and steps.
    """
    need, there = values * each, machine_memory()
    if need > there:
        raise OutOfMemoryError(
            f"{what} needs {format_bytes(need)} for one array, and this machine has {format_bytes(there)}; give fewer"
        )


def flag(name: str, value: Any) -> bool:
    """True or False."""
    if not isinstance(value, bool | np.bool_):
        raise InvalidInputError(f"{name}={shown(value)} is neither True nor False")
    return bool(value)


def choice(name: str, value: Any, options: Collection[str]) -> str:
    """One of the ``options``; the message names the closest."""
    if isinstance(value, str) and value in options:
        return value
    close = difflib.get_close_matches(value, options, n=1) if isinstance(value, str) else []
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise InvalidInputError(f"{name}={shown(value)}: {hint}use {', '.join(map(repr, options))}")


def hint(name: str, options: Iterable[str]) -> str:
    """The beginning of a sentence that lists all options: the closest ones to an unknown name, if any."""
    close = difflib.get_close_matches(name, list(options), n=2, cutoff=0.5)
    return f"did you mean {' or '.join(map(repr, close))}? There are" if close else "there are"


def corrected(error: TypeError, function: Callable[..., Any], options: Iterable[str] = ()) -> TypeError:
    """The error that a call has just raised, with the function's own name of a keyword that it does not have.

    Of ``options``, which a function with further options lets through, the first that is called otherwise here.
    """
    found = re.search(r"unexpected keyword argument '(\w+)'", str(error))
    names = [name for name in inspect.signature(function).parameters if name != "self"]
    given = (
        found[1] if found else next((each for each in options if each not in names and _OURS.get(each) in names), "")
    )
    if not given or error.__traceback__ is None or error.__traceback__.tb_next is not None:  # raised further in
        return error
    if given == "vectorized":
        words = "leave it out: functions take arrays of states with any leading axes"
    elif _OURS.get(given) in names:
        words = f"here it is {_OURS[given]}="
    else:
        words = f"{hint(given, names)}: {', '.join(names)}"
    return TypeError(f"{function.__qualname__}() got an unexpected keyword argument {given!r}; {words}")


def corrects_keywords(function: _F) -> _F:
    """Decorate a function so that an unknown keyword is answered with the one that it has."""

    @functools.wraps(function)
    def call(*values: Any, **options: Any) -> Any:
        try:
            return function(*values, **options)
        except TypeError as error:
            raise corrected(error, function, options) from error.__cause__

    return cast("_F", call)


def text(name: str, value: Any) -> str:
    """A string that is not empty."""
    if not isinstance(value, str) or not value:
        raise InvalidInputError(f"{name}={shown(value)} is not text; give a string")
    return value


def path(name: str, value: Any) -> Path:
    """The path of a file or folder."""
    if not isinstance(value, str | os.PathLike) or not os.fspath(value):
        raise InvalidInputError(f"{name}={shown(value)} is not a path; give a string or a pathlib.Path")
    try:
        return Path(value)
    except TypeError:  # a path of bytes
        raise InvalidInputError(f"{name}={shown(value)} is a path of bytes; give a string or a pathlib.Path") from None


def function(name: str, value: Any, takes: str) -> Callable[..., Any]:
    """Something that can be called; ``takes`` spells its arguments, such as ``(t, y)``."""
    if not callable(value):
        raise InvalidInputError(f"{name}={shown(value)} is not a function; give one that takes {takes}")
    found: Callable[..., Any] = value
    return found


def instance(name: str, value: Any, kind: type[_T] | tuple[type[_T], ...], example: str) -> _T:
    """An object of a class; ``example`` spells how one is made, such as ``hf.Caputo(0.5)``."""
    if not isinstance(value, kind) or isinstance(value, type):
        kinds = " or ".join(each.__name__ for each in (kind if isinstance(kind, tuple) else (kind,)))
        raise InvalidInputError(f"{name}={shown(value)} is no {kinds}; give one, such as {example}")
    return value


def numbers(
    name: str, value: Any, *, ndim: int | None = None, finite: bool = True, least: float | None = None
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Real numbers on the host as float64, of any shape or of ``ndim`` axes.

    Text, objects, complex numbers, rows of different lengths and masked arrays are refused.
    """
    refuse_masked(value, name)
    try:
        found = np.asarray(value)
        if found.dtype.kind not in "fiu" and not (found.dtype.kind == "b" and library_of(value) == "numpy"):
            raise TypeError
        found = found.astype(np.float64)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        raise UnsupportedDtypeError(f"{name}={shown(value)} is not an array of real numbers; give floats") from None
    if ndim is not None and found.ndim != ndim:
        raise ShapeError(f"{name} has shape {found.shape}; give an array of {ndim} axes")
    if finite and not np.isfinite(found).all():
        raise InvalidInputError(f"{name} has entries that are not finite; give finite numbers")
    if least is not None and found.size and float(found.min()) < least:
        raise InvalidInputError(f"{name} has an entry of {float(found.min()):g}; give numbers of at least {least:g}")
    return found


def increasing_times(t: Any) -> np.ndarray:
    """Increasing times from 0 or later to one above 0."""
    times = numbers("t", t, ndim=1, least=0.0)
    if not times.size or times[-1] == 0.0 or (np.diff(times) <= 0.0).any():
        raise InvalidInputError("t has to increase, from 0 or later, to a time above 0")
    return times


def pair(name: str, value: Any, *, infinite: bool = False) -> tuple[float, float]:
    """Two numbers in ascending order, such as bounds."""
    refuse_units(value, name)
    try:
        if isinstance(value, set | frozenset | dict):
            raise TypeError  # in no order
        low, high = value
    except (TypeError, ValueError):
        raise InvalidInputError(f"{name}={shown(value)} is not a pair of numbers; give (low, high)") from None
    ends = number(f"{name}[0]", low, infinite=infinite), number(f"{name}[1]", high, infinite=infinite)
    if not ends[0] < ends[1]:
        raise InvalidInputError(f"{name}={shown(value)}: give (low, high) with low < high")
    return ends


def generator(rng: Any) -> np.random.Generator:
    """A generator of NumPy from one, from a seed, or new for None."""
    try:
        return np.random.default_rng(rng)
    except (TypeError, ValueError):
        raise InvalidInputError(
            f"rng={shown(rng)}: give a numpy.random.Generator, or a whole number from 0 on"
        ) from None


def array(name: str, value: Any) -> Any:
    """An array of numbers of any library; lists and numbers become NumPy arrays.

    Text, ragged rows and masked arrays, whose masks would be lost, are refused.
    """
    refuse_masked(value, name)
    if library_of(value) != "python" and not isinstance(value, np.ndarray | np.generic):
        return value
    try:
        found = np.asarray(value)
    except ValueError:
        raise ShapeError(f"{name}={shown(value)} has rows of different lengths; give an array of numbers") from None
    if found.dtype.kind not in "biufc":
        raise UnsupportedDtypeError(f"{name}={shown(value)} is not an array of numbers; give floats or complex numbers")
    return found


def check_value(value: Any, shape: tuple[int, ...], dtype: Any, name: str) -> np.ndarray:
    """The result of the user's function as an array; raises an error if its shape or dtype is wrong."""
    found: np.ndarray = np.asarray(array(f"the value of {name}(t, y)", value))
    if found.shape == () and shape == (1,):  # one equation: fun may return the number itself
        found = found.reshape(shape)
    if found.shape != shape:
        raise ShapeError(f"{name}(t, y) returned shape {found.shape}; return an array of the shape {shape} of y")
    if found.dtype.kind == "c" and np.dtype(dtype).kind != "c":
        raise UnsupportedDtypeError(f"{name}(t, y) returned complex values for a real y; give y0 as complex numbers")
    return found.astype(dtype, copy=False)


def broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    """Whether an array of ``shape`` broadcasts to the shape ``to``, without making it larger."""
    try:
        return np.broadcast_shapes(shape, to) == tuple(to)
    except ValueError:
        return False


def axis(value: Any, ndim: int) -> int:
    """The axis of samples with ``ndim`` axes, counted from the first."""
    try:
        place = whole("axis", value, least=-ndim, most=ndim - 1)
    except InvalidInputError:
        raise ShapeError(
            f"axis={shown(value)} is not an axis of samples with {ndim} axes; use {-ndim} to {ndim - 1}"
        ) from None
    return place % ndim


def listed(name: str, value: Any, what: str) -> list[Any]:
    """The items of a sequence or another iterable; ``what`` says what they are."""
    try:
        if isinstance(value, str | bytes | type):
            raise TypeError
        return list(value)
    except TypeError:  # also of an array without an axis
        raise InvalidInputError(f"{name}={shown(value)} is not a sequence; give {what}") from None


def times_between(name: str, value: Any, t0: float, t1: float) -> tuple[float, ...]:
    """Increasing times within an interval; None and an empty sequence are none."""
    listing = [] if value is None else listed(name, value, "times between t0 and t1")
    if not listing:
        return ()
    times = numbers(name, listing, ndim=1)
    if np.any(np.diff(times, prepend=t0, append=t1) <= 0.0):
        raise InvalidInputError(f"{name}={shown(value)}: give increasing times between {t0:g} and {t1:g}")
    return tuple(times.tolist())


def format_seconds(seconds: float | None) -> str:
    """A time with a suitable unit; ``-`` if it is unknown (None, nan) or infinite."""
    if seconds is None or not math.isfinite(seconds):
        return "-"
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if abs(seconds) >= scale:
            return f"{seconds / scale:.3g} {unit}" if abs(seconds) < 1000.0 else f"{seconds:,.0f} s"
    return "0" if seconds == 0 else f"{seconds * 1e9:.3g} ns"


def format_bytes(size: float | None) -> str:
    """A number of bytes with a suitable unit; ``-`` if it is unknown."""
    if size is None:
        return "-"
    for scale, unit in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if abs(size) >= scale:
            return f"{size / scale:.3g} {unit}"
    return f"{size:.0f} B"


def format_share(share: float) -> str:
    """A fraction as a percentage."""
    return f"{share:.0%}" if share >= 0.1 or share == 0 else f"{share:.1%}"

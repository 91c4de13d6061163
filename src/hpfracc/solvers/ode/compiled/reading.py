"""Reading a right-hand side: source code of a compiled function equal to it up to rounding, or the reason for refusal.

A copy of the function is called with numbers that record what is computed with them (see ``tracing.py``), once for each
path that comparisons can take. The copy has its own namespace, with replacements for what the function captures:

- floats are parameters, which are read again for every solve; integers, None and tuples are known;
- NumPy, ``math`` and built-in functions are replaced by those of ``tracing.py``, other functions by such copies;
- everything else is refused: arrays, lists, dictionaries and objects can change without notice.

So are functions that bind captured names, import modules or handle exceptions. An exception on a path is left to
Python: the compiled function bails out there.

``fun(t, y, *args)`` of an ensemble takes all members at once, with y of shape (M, d). One thread per member needs the
function of a single member (:func:`read_member`). The function is read for ensembles of one and of two members. It
separates if each member's derivative is computed from that member's state and parameters alone, by the same operations
in both readings: then members do not interact, and nothing depends on their number. Arrays in ``args`` whose first axis
is as long as the ensemble are per member; others are shared.
"""

from __future__ import annotations

import builtins
import dis
import functools
import math
import types
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import numpy as np

from hpfracc.engine.execution.batch.driver import keep_bounded
from hpfracc.solvers.ode.compiled.tracing import (
    REPLACEMENTS,
    Array,
    ForkError,
    RefusedError,
    Symbol,
    Tracer,
    code_of,
    floats,
)

#: Limits: components of a state, each of which is written out, and lines of all paths together.
_MAX_COMPONENTS, _MAX_LINES = 128, 6000
#: Largest number of argument values per member, each of which is written out.
_MAX_NUMBERS = 4096

_FORBIDDEN = {
    "STORE_GLOBAL": "it binds a global name",
    "DELETE_GLOBAL": "it deletes a global name",
    "IMPORT_NAME": "it imports a module",
    "PUSH_EXC_INFO": "it has a try or with statement",
}


class Symbols(NamedTuple):
    """A float array among the arguments, whose numbers are given later.

    Attributes
    ----------
    shape : tuple of int
        Its shape.
    codes : tuple of str
        Source code of its elements, in C order; if they are the members', of those of one member.
    own : bool
        Whether the first axis counts members.
    """

    shape: tuple[int, ...]
    codes: tuple[str, ...]
    own: bool = False

    def value(self, tracer: Tracer) -> Any:
        """What the function gets; a write to it would be seen by others."""
        items = np.empty(math.prod(self.shape), object)
        for n in range(items.size):
            member, place = divmod(n, len(self.codes))
            items[n] = Symbol(tracer, self.codes[place], True, frozenset([member] if self.own else []))
        items.flags.writeable = False
        return items.reshape(self.shape).view(Array)


class BoundSource(NamedTuple):
    """The source of a function together with the numbers of one solve.

    Attributes
    ----------
    source : str
        The body of a compiled function of ``t``, ``y`` and ``p`` that writes ``out``.
    parameters : tuple of float
        The values of ``p``.
    captured : tuple of (object, str, object)
        Where each captured value was found, and the value.
    """

    source: str
    parameters: tuple[float, ...]
    captured: tuple[tuple[Any, str, Any], ...]

    def unchanged(self) -> bool:
        """Whether every captured value is still the same object."""
        try:
            return all(_fetch(owner, name) is value for owner, name, value in self.captured)
        except (LookupError, ValueError):
            return False


def _fetch(owner: Any, name: str) -> Any:
    """A global variable, the content of a cell, or the code or defaults of a function."""
    if isinstance(owner, dict):
        return owner[name] if name in owner else vars(builtins)[name]
    return getattr(owner, name)


class _Copy:
    """A copy of a function with replacements for what it captures.

    Attributes
    ----------
    parameters : list of float
        The captured floats.
    signature : list
        Everything else that the source depends on.
    captured : list
        Where each value was found, and the value.
    """

    def __init__(self, function: types.FunctionType, args: tuple[Any, ...]) -> None:
        self.tracer = Tracer()
        self.parameters: list[float] = []
        self.signature: list[Any] = []
        self.captured: list[tuple[Any, str, Any]] = []
        self._copies: dict[types.FunctionType, types.FunctionType] = {}
        self.arguments = [self._replace(value, f"args[{n}]") for n, value in enumerate(args)]
        self.function = self._copy(function)

    def _replace(self, value: Any, name: str) -> Any:
        kind = type(value)
        if kind in (float, np.float64):
            self.signature.append(kind)
            self.parameters.append(float(value))
            return Symbol(self.tracer, f"p[{len(self.parameters) - 1}]", kind is np.float64)
        if kind is tuple:
            self.signature.append(len(value))
            return tuple(self._replace(each, name) for each in value)
        if _is_listed(value):
            self.signature.append(value)
            return REPLACEMENTS[value]
        if kind is types.FunctionType:
            return self._copy(value)
        if kind is Symbols:
            self.signature.append(value)
            return value.value(self.tracer)
        if kind in (int, bool, types.NoneType) or (isinstance(value, type) and issubclass(value, Exception)):
            self.signature.append((kind, value))
            return value
        if isinstance(value, type | types.BuiltinFunctionType | np.ufunc | types.ModuleType):
            raise RefusedError(f"{name!r} is not one of the functions that can be read")
        raise RefusedError(f"{name!r} is of the type {kind.__name__}, whose value may change")

    def _look(self, owner: Any, name: str, shown: str) -> Any:
        try:
            value = _fetch(owner, name)
        except (LookupError, ValueError):
            raise RefusedError(f"{shown!r} is not defined") from None
        self.captured.append((owner, name, value))
        return self._replace(value, shown)

    def _copy(self, function: types.FunctionType) -> types.FunctionType:
        if function in self._copies:
            self.signature.append(("again", list(self._copies).index(function)))
            return self._copies[function]
        code = function.__code__
        self.signature.append(code)
        self.captured.append((function, "__code__", code))
        space: dict[str, Any] = {"__builtins__": {"__import__": __import__}}  # which methods of arrays use
        cells = [types.CellType() for _ in code.co_freevars]
        copy = types.FunctionType(code, space, function.__name__, None, tuple(cells))
        self._copies[function] = copy
        for cell, name, given in zip(cells, code.co_freevars, function.__closure__ or (), strict=True):
            cell.cell_contents = self._look(given, "cell_contents", name)
        for name in _globals_of(code):
            space[name] = self._look(function.__globals__, name, name)
        copy.__defaults__ = self._look(function, "__defaults__", f"the defaults of {function.__name__}")
        if function.__kwdefaults__:
            raise RefusedError(f"{function.__name__} has defaults of keywords")
        return copy


def _is_listed(value: Any) -> bool:
    try:
        return value in REPLACEMENTS
    except TypeError:  # unhashable
        return False


@functools.lru_cache(maxsize=256)
def _globals_of(code: types.CodeType) -> tuple[str, ...]:
    """Global names that a function reads; refuses what it must not do."""
    names: dict[str, None] = {}
    codes = [code]
    for each in codes:
        for step in dis.get_instructions(each):
            if step.opname in _FORBIDDEN:
                raise RefusedError(_FORBIDDEN[step.opname])
            if step.opname in ("STORE_DEREF", "DELETE_DEREF") and step.argval in code.co_freevars:
                raise RefusedError(f"it binds {step.argval!r}, which is not its own")
            if step.opname == "LOAD_GLOBAL":
                names[step.argval] = None
        codes += [inner for inner in each.co_consts if isinstance(inner, types.CodeType)]
    return tuple(names)


_readings: dict[Hashable, tuple[str, str]] = {}


def read_function(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    shape: tuple[int, ...],
    out_shape: tuple[int, ...],
    dtype: Any,
    *,
    by_member: bool = False,
) -> BoundSource | str:
    """``function(t, y, *args)`` for real ``y`` of ``shape``, with a result of ``out_shape``; or a message why not.

    With ``by_member`` the first axis counts members, each of which must be computed in the same way from its own
    numbers alone; the source is that of one of them.
    """
    if not isinstance(function, types.FunctionType):
        return f"it is not a plain function, but a {type(function).__name__}"
    if np.dtype(dtype) != np.float64:
        return f"the state is {np.dtype(dtype)}, not float64"
    if math.prod(out_shape) > _MAX_COMPONENTS:
        return f"its result has {math.prod(out_shape)} components, more than {_MAX_COMPONENTS}"
    try:
        copy = _Copy(function, args)
    except RefusedError as error:
        return str(error)
    key = (tuple(copy.signature), shape, out_shape, by_member)
    if key not in _readings:
        keep_bounded(_readings, key, _read(copy, shape, out_shape, by_member))
    source, refusal = _readings[key]
    return refusal or BoundSource(source, tuple(copy.parameters), tuple(copy.captured))


def _read(copy: _Copy, shape: tuple[int, ...], out_shape: tuple[int, ...], by_member: bool) -> tuple[str, str]:
    """The source, and the reason for refusal."""
    count = math.prod(shape[1:] if by_member else shape)
    state = Symbols(shape, tuple(f"y[{n}]" for n in range(count)), own=by_member)
    errors: list[str] = []
    try:
        with np.errstate(all="ignore"):
            source = "\n".join(_explore(copy, state, out_shape, (), errors))
    except RefusedError as error:
        return "", str(error)
    except RecursionError:
        return "", "functions call each other too deeply"
    return (source, "") if "return" in source else ("", f"it raises an error: {errors[0]}")


def _explore(
    copy: _Copy, state: Symbols, out_shape: tuple[int, ...], decisions: tuple[bool, ...], errors: list[str]
) -> list[str]:
    """The lines of all paths that start with ``decisions``, without those before the last decision."""
    tracer = copy.tracer
    tracer.begin(decisions)
    y = state.value(tracer).copy()
    try:
        found: Any = floats(copy.function(Symbol(tracer, "t", False), y, *copy.arguments))
        if found.shape == () and out_shape == (1,):  # one equation: a plain number is accepted
            found = found.reshape(1)
        if found.shape != out_shape:
            raise RefusedError(f"it returns shape {found.shape} instead of {out_shape}")
        _write(tracer, found.reshape(-1), len(state.codes) if state.own else found.size)
    except (RefusedError, RecursionError):
        raise
    except ForkError as fork:
        lines = list(tracer.lines)
        for head, decision in ((f"if {fork.condition}:", True), ("else:", False)):
            inner = _explore(copy, state, out_shape, (*decisions, decision), errors)
            lines += [head, *(f"    {line}" for line in inner)]
            if len(lines) > _MAX_LINES:
                raise RefusedError("it has too many paths") from None
        return lines
    except Exception as error:  # Python raises it there too
        errors.append(f"{type(error).__name__}: {error}")
        tracer.line("bail")
    return tracer.lines


def _write(tracer: Tracer, found: Any, count: int) -> None:
    """The results; those of all members must be computed in the same way."""
    codes = [code_of(each) for each in found]
    for n, each in enumerate(found):
        if getattr(each, "owners", frozenset()) - {n // count}:
            raise RefusedError("its value for a member depends on the state or parameters of others")
        if codes[n] != codes[n % count]:
            raise RefusedError("what it computes for a member depends on the number of members")
    for n in range(count):
        tracer.line(f"out[{n}] = {codes[n]}")
    tracer.line("return")


# -- members of an ensemble -------------------------------------------------------------------------------------------


class MemberFunction(NamedTuple):
    """The function of a single member.

    Attributes
    ----------
    source : str
        The body of a function of ``t``, ``y``, ``p``, ``shared``, ``own`` and the index ``i`` of the member, which
        writes ``out``.
    numbers : tuple of float
        The values of ``p``: captured numbers, and those in the arguments.
    shared : array, shape (S,)
        Elements of the arrays that all members share.
    own : tuple of arrays, each of shape (M, ...)
        Elements that are per member: ``own[k, i]`` in the source is element k of member i, array after array.
    """

    source: str
    numbers: tuple[float, ...]
    shared: np.ndarray[Any, Any]
    own: tuple[np.ndarray[Any, Any], ...]

    @property
    def own_count(self) -> int:
        """Numbers that belong to one member."""
        return sum(math.prod(array.shape[1:]) for array in self.own)


def some_members(args: tuple[Any, ...], members: int, count: int) -> tuple[Any, ...]:
    """``args`` for the first ``count`` members of an ensemble."""
    return tuple(value[:count] if _belongs(value, members) else value for value in args)


def _belongs(value: Any, members: int) -> bool:
    return isinstance(value, np.ndarray) and value.ndim > 0 and value.shape[0] == members


def read_member(fun: Callable[..., Any], args: tuple[Any, ...], shape: tuple[int, int]) -> MemberFunction | str:
    """The function of one member for ``fun(t, y, *args)`` with y of ``shape`` (M, d); or a message why not."""
    members, d = shape
    shared, own = [np.zeros(0)], []
    given: list[Any] = []  # the arguments, with symbols for arrays; the first axis of those of members is 1 for now
    counts = {True: 0, False: 0}
    for n, value in enumerate(args):
        if not isinstance(value, np.ndarray):
            given.append(value)
            continue
        if value.dtype.kind != "f":
            return f"args[{n}] is an array of dtype {value.dtype}; convert it to float64"
        belongs = _belongs(value, members)
        size = value.size // members if belongs else value.size
        if size > _MAX_NUMBERS:
            return f"args[{n}] has the shape {value.shape}, more than {_MAX_NUMBERS} numbers for a member"
        form = "own[{}, i]" if belongs else "shared[{}]"
        codes = tuple(form.format(counts[belongs] + k) for k in range(size))
        given.append(Symbols((1, *value.shape[1:]) if belongs else value.shape, codes, own=belongs))
        counts[belongs] += size
        own += [value] if belongs else []
        shared += [] if belongs else [value.reshape(-1)]
    found: list[BoundSource] = []
    for count in (1, 2):
        some = tuple(
            each._replace(shape=(count, *each.shape[1:])) if isinstance(each, Symbols) and each.own else each
            for each in given
        )
        one = read_function(fun, some, (count, d), (count, d), np.float64, by_member=True)
        if isinstance(one, BoundSource) and found and one.source != found[0].source:
            one = "what it computes for a member depends on the number of members"
        if isinstance(one, str):
            hint = f"; arrays in args whose first axis is as long as the ensemble ({members}) belong to its members"
            return one + hint if own else one
        found.append(one)
    return MemberFunction(found[0].source, found[0].parameters, np.concatenate(shared), tuple(own))

"""Programs compiled from users' functions, cached while the values that these capture are unchanged."""

from __future__ import annotations

import functools
import hashlib
import sys
import threading
import types
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from hpfracc._arrays import is_tracer, library_of
from hpfracc.errors import RecompilationWarning, warn

#: Packages whose functions do not change what they capture.
_SETTLED = frozenset({"builtins", "math", "cmath", "operator", "numpy", "scipy", "jax", "jaxlib", "numba", "torch"})
_PLAIN = (bool, int, float, complex, str, bytes, np.generic, types.NoneType, types.EllipsisType, slice, range)
#: Maximum number of cached programs, in total and for one piece of code with different captured values.
MAX_PROGRAMS = 64
MAX_ALIKE = 4

Functions = tuple[Callable[..., Any], Callable[..., Any] | None]


class _UnknownError(Exception):
    """A value may have changed in place: an object, a dictionary, a list."""


def surroundings(fun: Callable[..., Any], *more: Any) -> tuple[Any, ...] | None:
    """Closure, globals and defaults of ``fun`` and the functions that it uses, and ``more``; None if they may change.

    If two results are equal by :func:`same_surroundings`, a copy compiled with one is valid for the other. Arrays are
    compared by content. With objects that may be changed in place the result is None.
    """
    found: list[Any] = []
    try:
        _look(fun, (), found, set())
        for value in more:
            _look(value, (), found, set())
    except _UnknownError:
        return None
    return tuple(found)


def same_surroundings(old: tuple[Any, ...] | None, new: tuple[Any, ...] | None) -> bool:
    """Whether both are known and equal."""
    if old is None or new is None or len(old) != len(new):
        return False
    pairs = zip(old, new, strict=True)
    return all(one is other or (type(one) is type(other) is _Value and one == other) for one, other in pairs)


class _Value(tuple[Any, ...]):
    """A value that is compared by content; all others are compared by identity."""


def _look(value: Any, names: tuple[str, ...], found: list[Any], seen: set[int]) -> None:
    """Add what a value is, and what it refers to; immutable arrays of JAX are compared by identity."""
    inner: Iterable[Any] = ()
    what = value
    if isinstance(value, _PLAIN):
        what = _Value((type(value).__name__, repr(value)))
    elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
        digest = hashlib.blake2b(value.tobytes(), digest_size=16).digest()
        what = _Value((value.dtype.str, value.shape, value.strides, digest))
    elif isinstance(value, tuple):
        what, inner = _Value(("tuple", len(value))), value
    elif isinstance(value, types.ModuleType):
        known = vars(value)
        inner = () if _root(value.__name__) in _SETTLED else [known[name] for name in names if name in known]
    elif library_of(value) == "jax" and is_tracer(value):  # of one transformation only
        raise _UnknownError
    elif id(value) in seen:
        return
    elif isinstance(value, types.FunctionType):
        what, settled = value.__code__, _root(value.__module__ or "") in _SETTLED
        names, inner = ((), ()) if settled else captured(value)
    elif isinstance(getattr(value, "py_func", None), types.FunctionType):  # compiled by Numba
        names, inner = captured(value.py_func)
    elif isinstance(value, functools.partial):
        what = _Value(("partial", len(value.args), *value.keywords))
        names, inner = (), (value.func, *value.args, *value.keywords.values())
    elif not (
        isinstance(value, type | types.BuiltinFunctionType | np.ufunc)
        or library_of(value) == "jax"
        or _root(type(value).__module__) in _SETTLED - {"torch", "builtins"}
    ) or isinstance(value, np.ndarray):
        raise _UnknownError
    seen.add(id(value))
    found.append(what)
    for each in inner:
        _look(each, names, found, seen)


def captured(function: types.FunctionType) -> tuple[tuple[str, ...], list[Any]]:
    """The names that a function uses; and what it finds in its closure, its defaults and its globals.

    A variable that is not set yet is given as its cell.
    """
    names, space = _names(function.__code__), function.__globals__
    found = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    for cell in function.__closure__ or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:
            found.append(cell)
    return names, [*found, *(space[name] for name in names if name in space)]


def _names(code: types.CodeType) -> tuple[str, ...]:
    """Names used in a function and in the functions nested in it."""
    inner = [_names(each) for each in code.co_consts if isinstance(each, types.CodeType)]
    return tuple(dict.fromkeys([*code.co_names, *(name for names in inner for name in names)]))


def _root(module: str) -> str:
    return module.partition(".")[0]


# -- programs of JAX ---------------------------------------------------------------------------------------------------


class _CompiledProgram:
    """A program, the captured values of its functions when it was compiled, and the newest equal functions."""

    def __init__(self, around: tuple[Any, ...], solve: Callable[..., Any], functions: Functions) -> None:
        self.around, self.functions = around, functions

        def current(*given: Any) -> Any:
            # For other shapes it is traced again, with the newest functions, because captured values may have changed.
            return solve(self.functions, *given)

        self.program = sys.modules["jax"].jit(current, static_argnums=(0,))


_programs: OrderedDict[Any, list[_CompiledProgram]] = OrderedDict()
_lock = threading.Lock()
_compilations: dict[Any, int] = {}
_warned = False


def run_program(
    solve: Callable[..., Any], functions: Functions, static: tuple[Any, ...], given: tuple[Any, ...]
) -> Any:
    """``solve(functions, *static, *given)`` as one compiled program.

    Compiled once for each combination of functions and their captured values, shapes of ``given``, and ``static``. A
    function that is created for every call, such as a lambda, counts as the same if its code and captured values are. A
    function that captures mutable values, such as an object or a dictionary, is compiled at each call.
    """
    program, fresh = program_of(solve, functions)
    found = program(static, *given)
    if fresh and not any(is_tracer(leaf) for leaf in sys.modules["jax"].tree_util.tree_leaves(found)):
        _note(solve, functions[0])
    return found


def program_of(solve: Callable[..., Any], functions: Functions) -> tuple[Callable[..., Any], bool]:
    """The compiled program, and whether it is new."""

    def unpacked(functions: Any, static: tuple[Any, ...], *given: Any) -> Any:
        return solve(functions, *static, *given)

    fun, jacobian = functions
    around = surroundings(fun, *(() if jacobian is None else (jacobian,)))
    if around is None or not isinstance(fun, types.FunctionType):
        return sys.modules["jax"].jit(partial(unpacked, functions), static_argnums=(0,)), True
    key = (solve, fun.__code__)  # the same for functions created at each call
    with _lock:
        alike = _programs.setdefault(key, [])
        _programs.move_to_end(key)
        for kept in alike:
            if same_surroundings(kept.around, around):
                kept.functions = functions
                return kept.program, False
        made = _CompiledProgram(around, unpacked, functions)
        alike.insert(0, made)
        del alike[MAX_ALIKE:]
        while len(_programs) > MAX_PROGRAMS:
            _programs.popitem(last=False)
    return made.program, True


def _note(solve: Callable[..., Any], fun: Any) -> None:
    """Warn once per process if one piece of code is compiled a third time."""
    global _warned
    key = (solve, getattr(fun, "__code__", type(fun)))
    with _lock:
        if len(_compilations) > 16 * MAX_PROGRAMS:
            _compilations.clear()
        _compilations[key] = _compilations.get(key, 0) + 1
        if _warned or _compilations[key] < 3:
            return
        _warned = True
    name = getattr(fun, "__qualname__", type(fun).__qualname__)
    warn(
        f"the right-hand side {name} was compiled three times, because it captures changing values or a mutable "
        "object: define it once and pass what changes as args=(...), or wrap the solve in jax.jit.",
        RecompilationWarning,
    )

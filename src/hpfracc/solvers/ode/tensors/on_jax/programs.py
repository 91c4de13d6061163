"""Compiled programs of the user's functions, kept as long as nothing that a function sees has changed."""

from __future__ import annotations

import threading
import types
import warnings
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any

import jax

from hpfracc._arrays import is_tracer
from hpfracc.errors import RecompilationWarning
from hpfracc.solvers.ode.surroundings import same_surroundings, surroundings

__all__ = ["program_of", "run_program"]

#: Programs that are kept, and those of one piece of code whose surroundings differ.
MOST_PROGRAMS = 64
MOST_ALIKE = 4

Functions = tuple[Callable[..., Any], Callable[..., Any] | None]


class _Kept:
    """A program, what its functions saw when it was made, and the newest of the functions that are the same."""

    def __init__(self, around: tuple[Any, ...], solve: Callable[..., Any], functions: Functions) -> None:
        self.around, self.functions = around, functions

        def current(*given: Any) -> Any:
            # For other shapes it is traced again: then by the newest, for what the first one sees may have changed.
            return solve(self.functions, *given)

        self.program = jax.jit(current, static_argnums=(0,))


_programs: OrderedDict[Any, list[_Kept]] = OrderedDict()
_lock = threading.Lock()
_compilations: dict[Any, int] = {}
_warned = False


def run_program(
    solve: Callable[..., Any], functions: Functions, static: tuple[Any, ...], given: tuple[Any, ...]
) -> Any:
    """``solve(functions, *static, *given)`` as one compiled program.

    Compiled once for functions with what they see around them, the shapes of ``given`` and ``static``. A function that
    is written anew for every call, such as a lambda, is the same function as long as its code is and what it sees.
    One that sees what may be changed in place, such as an object or a dictionary, is compiled at each call.
    """
    program, fresh = program_of(solve, functions)
    found = program(static, *given)
    if fresh and not any(is_tracer(leaf) for leaf in jax.tree_util.tree_leaves(found)):
        _note(solve, functions[0])
    return found


def program_of(solve: Callable[..., Any], functions: Functions) -> tuple[Callable[..., Any], bool]:
    """The compiled program, and whether it had to be made."""

    def unpacked(functions: Any, static: tuple[Any, ...], *given: Any) -> Any:
        return solve(functions, *static, *given)

    fun, jacobian = functions
    around = surroundings(fun, *(() if jacobian is None else (jacobian,)))
    code = _code(fun)
    if around is None or code is None:
        return jax.jit(partial(unpacked, functions), static_argnums=(0,)), True
    key = (solve, code)
    with _lock:
        alike = _programs.setdefault(key, [])
        _programs.move_to_end(key)
        for kept in alike:
            if same_surroundings(kept.around, around):
                kept.functions = functions
                return kept.program, False
        made = _Kept(around, unpacked, functions)
        alike.insert(0, made)
        del alike[MOST_ALIKE:]
        while len(_programs) > MOST_PROGRAMS:
            _programs.popitem(last=False)
    return made.program, True


def _code(fun: Any) -> Any:
    """What is the same in functions that are written anew at each call; None where a function has no code."""
    return fun.__code__ if isinstance(fun, types.FunctionType) else None


def _note(solve: Callable[..., Any], fun: Any) -> None:
    """Warn once in a process where one piece of code is compiled a third time."""
    global _warned
    key = (solve, getattr(fun, "__code__", type(fun)))
    with _lock:
        if len(_compilations) > 16 * MOST_PROGRAMS:
            _compilations.clear()
        _compilations[key] = _compilations.get(key, 0) + 1
        if _warned or _compilations[key] < 3:
            return
        _warned = True
    name = getattr(fun, "__qualname__", type(fun).__qualname__)
    warnings.warn(
        f"the right-hand side {name} was compiled three times, because it sees other values each time, or an object "
        "that may have changed: define it once and give what changes as args=(...), or put jax.jit around the solve.",
        RecompilationWarning,
        stacklevel=2,
    )

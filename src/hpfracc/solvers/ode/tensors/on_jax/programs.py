"""Compiled programs of the user's functions, cached while the values that they capture are unchanged."""

from __future__ import annotations

import threading
import types
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any

import jax

from hpfracc._arrays import is_tracer
from hpfracc.errors import RecompilationWarning, warn
from hpfracc.solvers.ode.surroundings import same_surroundings, surroundings

#: Maximum number of cached programs, in total and for one piece of code with different captured values.
MAX_PROGRAMS = 64
MAX_ALIKE = 4

Functions = tuple[Callable[..., Any], Callable[..., Any] | None]


class _CompiledProgram:
    """A program, the captured values of its functions when it was compiled, and the newest equal functions."""

    def __init__(self, around: tuple[Any, ...], solve: Callable[..., Any], functions: Functions) -> None:
        self.around, self.functions = around, functions

        def current(*given: Any) -> Any:
            # For other shapes it is traced again, with the newest functions, because captured values may have changed.
            return solve(self.functions, *given)

        self.program = jax.jit(current, static_argnums=(0,))


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
    if fresh and not any(is_tracer(leaf) for leaf in jax.tree_util.tree_leaves(found)):
        _note(solve, functions[0])
    return found


def program_of(solve: Callable[..., Any], functions: Functions) -> tuple[Callable[..., Any], bool]:
    """The compiled program, and whether it is new."""

    def unpacked(functions: Any, static: tuple[Any, ...], *given: Any) -> Any:
        return solve(functions, *static, *given)

    fun, jacobian = functions
    around = surroundings(fun, *(() if jacobian is None else (jacobian,)))
    if around is None or not isinstance(fun, types.FunctionType):
        return jax.jit(partial(unpacked, functions), static_argnums=(0,)), True
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

"""Compiling a right-hand side: done, refused in words, or left with a note."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hpfracc.errors import InvalidInputError
from hpfracc.solvers.ode import _compile_policy as policy
from hpfracc.solvers.ode.compiled import NotCompiledError, load
from hpfracc.solvers.ode.compiled.reading import read_function

if TYPE_CHECKING:
    from hpfracc.solvers.ode._problem import Problem
    from hpfracc.solvers.ode.compiled.functions import CompiledFunction

__all__ = ["CompiledProblem", "compile_problem"]

Array = np.ndarray[Any, Any]

_log = logging.getLogger("hpfracc")


@dataclass(frozen=True, slots=True)
class CompiledProblem:
    """The functions of a problem, compiled; ``jac`` is None where there is none, or none was wanted."""

    fun: CompiledFunction
    jac: CompiledFunction | None


def compile_problem(
    problem: Problem, points: Iterable[tuple[float, Array]], notes: list[str], *, must: bool, jacobian: bool = False
) -> tuple[CompiledProblem | None, float]:
    """Compile ``fun``, and ``jac`` where it is wanted; also the seconds that took.

    Unless it ``must``, a function is compiled only where reading its code shows that the numbers cannot differ beyond
    rounding; otherwise None comes back, with a note. A function that must be compiled without that is compared with the
    given one at ``points``.
    """
    started = time.perf_counter()
    try:
        fun = _compile(problem.fun, problem, points, problem.shape, must=must)
        jac = None
        if jacobian and problem.jac is not None:
            jac = _compile(problem.jac, problem, points, (*problem.shape, problem.shape[-1]), must=must)
    except NotCompiledError as error:
        if must:
            raise InvalidInputError(
                f"compile=True, and the right-hand side cannot be compiled: {error}; use compile=False, or write it in "
                "what Numba knows"
            ) from error
        notes.append(f"the right-hand side stays in Python: {error}")
        _log.info("right-hand side not compiled: %s", error)
        return None, time.perf_counter() - started
    seconds = time.perf_counter() - started
    if fun.fresh:  # one that was kept tells nothing of what the next will take
        policy.note_compilation(seconds)
    return CompiledProblem(fun, jac), seconds


def _compile(
    function: Callable[..., Any],
    problem: Problem,
    points: Iterable[tuple[float, Array]],
    out_shape: tuple[int, ...],
    *,
    must: bool,
) -> CompiledFunction:
    shape, args = problem.shape, problem.args
    bound = read_function(function, args, shape, out_shape, problem.dtype)
    if isinstance(bound, str):
        if not must and not _is_compiled(function, args):
            raise NotCompiledError(bound)
    elif not must and numpy_raises():
        raise NotCompiledError("np.errstate asks for errors, which compiled code does not raise")
    load("functions")
    from hpfracc.solvers.ode.compiled.functions import compare, compile_as_given, compile_bound

    if not isinstance(bound, str):
        return compile_bound(bound, shape, out_shape)
    found = compile_as_given(function, args, problem.t0, np.array(problem.y0), out_shape)
    if function is problem.fun:
        for t, y in points:
            compare(found, problem.evaluate(t, y.copy()), t, y)
    return found


def _is_compiled(function: Callable[..., Any], args: tuple[Any, ...]) -> bool:
    """Whether this is a function that the user compiled with Numba: then there are no other numbers to differ from."""
    numba = sys.modules.get("numba")
    is_dispatcher = numba is not None and isinstance(function, numba.core.dispatcher.Dispatcher)
    return is_dispatcher and all(isinstance(each, float) for each in args)


def numpy_raises() -> bool:
    """Whether NumPy is told to raise errors, or to call a function, at a division by zero and the like."""
    return not {"raise", "call"}.isdisjoint(np.geterr().values())

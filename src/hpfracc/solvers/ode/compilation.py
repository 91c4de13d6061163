"""Compilation of right-hand sides: whether it is allowed, when it pays off, and how it is done.

When it pays off is a ski rental problem, decided on the engine's account
(:data:`~hpfracc.engine.selection.rent_or_buy.compile_account`). The rent is the time that steps take in Python.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hpfracc._config import BACKENDS, get_settings
from hpfracc._optional import is_installed
from hpfracc.engine.backends.registry import import_cost
from hpfracc.engine.selection import request
from hpfracc.engine.selection.rent_or_buy import KernelPrice, compile_account
from hpfracc.engine.selection.request import Preference, numba_wish
from hpfracc.errors import InvalidInputError
from hpfracc.solvers.ode import compiled
from hpfracc.solvers.ode.compiled import NotCompiledError
from hpfracc.solvers.stepping.options import Options

if TYPE_CHECKING:
    from hpfracc.solvers.ode.compiled.functions import CompiledFunction
    from hpfracc.solvers.ode.problem import Problem

Array = np.ndarray[Any, Any]
Points = Iterable[tuple[float, Array]]

_log = logging.getLogger("hpfracc")

#: The name of a solve in ``config(pin=..., never=...)``.
OPERATION = "solve_fode"
#: Seconds assumed before the first measurement (two shared cores, Numba 0.68): what Numba's first compilation loads,
#: one right-hand side, and the kernels of a method with and without Numba's cache.
_FIRST, _FUNCTION, _CACHED_KERNEL, _COLD_KERNEL = 3.3, 0.7, 0.3, 4.0
#: Seconds that a compiled right-hand side takes between two looks at adaptive steps, some 50 times 2 us.
_COMPILED_CALLS = 1e-4
#: Account entries of right-hand sides and of Numba's first compilation.
_FUNCTIONS, _NUMBA = "ode right-hand side", "numba first compilation"
#: The folder with the kernels.
_FOLDER = Path(__file__).parent / "compiled"


def solve_preference(options: Options) -> Preference | None:
    """The requested backend of a solve, read as for the operations of the engine; None if there is none."""
    if options.backend not in (*BACKENDS, "auto"):  # a name of the solvers alone, or of nothing
        return Preference(options.backend, "the backend= argument")
    return request.read_preference(OPERATION, options.backend)


def read_backend(options: Options) -> str:
    """``"auto"``, ``"numpy"`` or ``"numba"``, by the argument, ``use_backend``, ``config`` and the environment."""
    preference = solve_preference(options)
    asked = "" if preference is None else preference.backend
    others = f"use 'numpy' or 'numba', 'numba-cuda' for an ensemble, or give y0 as an array of {asked}"
    runs_on = f"it solves no NumPy problem: {others}"
    wish = numba_wish(OPERATION, preference, runs_on, compile=options.compile, strict=True)
    if wish == "numba" or options.compile is True:
        compiled.require()
    return wish


def _asks_for_numba(options: Options) -> bool:
    return read_backend(options) == "numba" or options.compile is True


def refuse_compiled(options: Options, name: str) -> str | None:
    """Why a method with few long steps is not compiled; None if compilation was not requested."""
    if not _asks_for_numba(options):
        return None
    return f"method={name!r} is not compiled, and Numba was requested; omit that, or use 'pece' or 'implicit_trapezoid'"


class FunctionPrice:
    """Cost of compiling one right-hand side, and the time it would have saved so far.

    Parameters
    ----------
    function : callable
        The right-hand side. Its code object, or the type of another object, is its key in the account.
    family, start : pair of str and float
        Account entries of such functions and of the first compilation, and their prices before the first measurement.
    """

    def __init__(self, function: Callable[..., Any], family: tuple[str, float], start: tuple[str, float]) -> None:
        self._family, self._start = family[0], start[0]
        self.item = (family[0], getattr(function, "__code__", type(function)))
        for name, seconds in (family, start):
            compile_account.set_prior(name, seconds)

    @property
    def started(self) -> bool:
        """Whether the first compilation was made."""
        return compile_account.is_bought(self._start)

    @property
    def seconds(self) -> float:
        """The price now."""
        own = compile_account.price(self._family, self.item)
        return own + compile_account.price(self._start, self._start) + import_cost("numba")

    def pays(self, ahead: float) -> bool:
        """Whether to compile now; ``ahead`` is the time that this solve would save."""
        # Numba is looked up last, because the lookup takes as long as tens of steps.
        return compile_account.pays(self.item, self.seconds, ahead) and is_installed("numba")

    def credited(self) -> float:
        """Seconds that compiling would have saved in this process so far."""
        return compile_account.saved(self.item)

    def credit(self, seconds: float) -> None:
        """Add the time of steps that were not compiled."""
        compile_account.credit(self.item, seconds)

    def buy(self, seconds: float) -> None:
        """Record a compilation. The first one also loads what all later ones need, so its time is not typical."""
        first = not self.started
        compile_account.buy(self._start, self._start)
        compile_account.buy(self._family, self.item, None if first else seconds)


def _function_price(function: Callable[..., Any]) -> FunctionPrice:
    return FunctionPrice(function, (_FUNCTIONS, _FUNCTION), (_NUMBA, _FIRST))


def compile_price(function: Callable[..., Any]) -> FunctionPrice | None:
    """Cost of compiling ``function``; None in a deterministic run.

    The decision depends on measured times, and compiled steps differ in the last digits. Therefore a deterministic run
    compiles only on explicit request.
    """
    return None if get_settings().deterministic else _function_price(function)


def kernel_price(kind: str, dtype: Any) -> KernelPrice:
    """The price of compiled steps of that kind around a function in Python."""
    item, source = ("ode kernel", kind, dtype), _FOLDER / "kernels.py"
    return KernelPrice("ode kernel", item, _COLD_KERNEL, _CACHED_KERNEL, source, kind, np.dtype(dtype).name)


class CompileSwitch:
    """What the switches to compiled functions and steps share.

    Parameters
    ----------
    problem, options
        Of the solve.
    """

    def __init__(self, problem: Problem, options: Options) -> None:
        self.options = options
        self.notes: list[str] = []
        self.compile_seconds = 0.0
        self._backend = read_backend(options)
        may = options.compile == "auto" and self._backend != "numpy"
        self._price = compile_price(problem.fun) if may else None
        self._tried = options.compile is False


def compile_problem(
    problem: Problem, points: Points, notes: list[str], *, must: bool, jacobian: bool = False
) -> tuple[tuple[CompiledFunction, CompiledFunction | None] | None, float]:
    """Compile ``fun``, and ``jac`` if needed; also returns the seconds that it took.

    Unless it ``must``, a function is compiled only if its source shows that results cannot differ beyond rounding;
    otherwise None is returned, with a note. A function that must be compiled without such a check is compared with the
    original at ``points``.
    """
    started = time.perf_counter()
    try:
        fun = _compile(problem.fun, problem, points, problem.shape, must=must)
        jac = None
        if jacobian and problem.jac is not None:
            jac = _compile(problem.jac, problem, points, (*problem.shape, problem.shape[-1]), must=must)
    except NotCompiledError as error:
        if must:
            raise InvalidInputError(f"compile=True, and fun cannot be compiled: {error}; use compile=False") from error
        notes.append(f"the right-hand side stays in Python: {error}")
        _log.info("right-hand side not compiled: %s", error)
        return None, time.perf_counter() - started
    seconds = time.perf_counter() - started
    if fun.fresh:
        _function_price(problem.fun).buy(seconds)
    return (fun, jac), seconds


def _compile(
    function: Callable[..., Any], problem: Problem, points: Points, out_shape: tuple[int, ...], *, must: bool
) -> CompiledFunction:
    from hpfracc.solvers.ode.compiled.reading import read_function

    shape, args = problem.shape, problem.args
    bound = read_function(function, args, shape, out_shape, problem.dtype)
    if isinstance(bound, str):
        # Of a function that the user compiled there is no Python version to agree with.
        as_given = compiled.is_jitted(function) and all(isinstance(each, float) for each in args)
        if not must and not as_given:
            raise NotCompiledError(bound)
    elif not must and numpy_raises():
        raise NotCompiledError("np.errstate requests errors, which compiled code does not raise")
    compiled.load("functions")
    from hpfracc.solvers.ode.compiled.functions import compare, compile_as_given, compile_bound

    if not isinstance(bound, str):
        return compile_bound(bound, shape, out_shape, must=must)
    found = compile_as_given(function, args, problem.t0, np.array(problem.y0), out_shape)
    if function is problem.fun:
        for t, y in points:
            compare(found, problem.evaluate(t, y.copy()), t, y)
    return found


def numpy_raises() -> bool:
    """Whether ``np.errstate`` is set to raise errors or call a function on division by zero and similar."""
    return not {"raise", "call"}.isdisjoint(np.geterr().values())


# -- adaptive steps ---------------------------------------------------------------------------------------------------


def _misfit(problem: Problem) -> str | None:
    """Reason why the right-hand side is not compiled; None if it can be."""
    if problem.delays:
        return "the equation has delays"
    return None if problem.memory is None else "its derivative is not Caputo's"


def refuse_numba(problem: Problem, options: Options, name: str) -> str | None:
    """Reason why Numba cannot be used although it was requested, or None."""
    reason = _misfit(problem) if _asks_for_numba(options) else None
    return None if reason is None else f"method={name!r} is not compiled here: {reason}; omit Numba"


class AdaptiveSwitch(CompileSwitch):
    """The choice between Python and a compiled right-hand side in one solve with adaptive steps, over all its passes.

    The steps themselves are NumPy's: compiled, they took two thirds of the time, and 12 s to compile.
    """

    def __init__(self, problem: Problem, options: Options) -> None:
        super().__init__(problem, options)
        self._problem, self._tried = problem, self._tried or _misfit(problem) is not None
        self._function: CompiledFunction | None = None
        self._system: Any = None

    @property
    def compiled(self) -> bool:
        """Whether the right-hand side is compiled."""
        return self._function is not None

    def begin(self, system: Any) -> None:
        """Called before the steps of a pass with its ``OrdinarySystem``."""
        self._system, must = system, self.options.compile is True
        if not self._tried and (must or (self._backend == "numba" and self._price is not None)):
            self._switch(0.0, system.start(0.0), must=must)
        elif self.compiled:
            system.fun = self._evaluate

    def look(self, step: Any) -> None:
        """Called every few steps: compiles the right-hand side if that pays off."""
        if self._tried or self._price is None:
            return
        self._price.credit(max(self._system.seconds - _COMPILED_CALLS, 0.0))
        self._system.seconds = 0.0
        if self._price.pays(0.0):
            self._switch(step.tau, step.y, must=False)

    def _switch(self, tau: float, y: Array, *, must: bool) -> None:
        """Compile the right-hand side, or record why not."""
        here = self._system.time(tau), y.reshape(self._problem.shape)
        self._tried = True
        found, self.compile_seconds = compile_problem(self._problem, [here], self.notes, must=must)
        if found is not None:
            self._function, self._system.fun = found[0], self._evaluate

    def _evaluate(self, t: float, y: Array, *args: Any) -> Any:
        """The compiled right-hand side; where it is not finite, Python's, which may raise an error."""
        function, why = self._function, "a captured value changed during the solve"
        assert function is not None
        if function.unchanged():
            value = function(t, y, self._problem.shape)
            if np.isfinite(value).all():
                return value
            why = f"compiled, it failed where Python could evaluate it, at t = {t:g}"
        value = self._problem.fun(t, y, *args)
        if np.isfinite(value).all():
            self._function, self._system.fun = None, self._problem.fun
            self.notes.append(f"the right-hand side returned to Python: {why}")
        return value

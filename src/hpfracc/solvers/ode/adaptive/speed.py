"""Decides when adaptive steps and the right-hand side are compiled: as soon as that pays off."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from hpfracc.solvers.ode import compilation, compiled
from hpfracc.solvers.ode.adaptive.system import FlatSystem
from hpfracc.solvers.ode.compilation import compile_problem, read_backend
from hpfracc.solvers.ode.options import Options
from hpfracc.solvers.ode.problem import Problem

if TYPE_CHECKING:
    from hpfracc.solvers.ode.adaptive.stepper import Stepper
    from hpfracc.solvers.ode.compiled.functions import CompiledFunction

__all__ = ["Speed", "refuse_numba"]

#: Largest state for compiled arithmetic; larger ones are left to NumPy's loops.
_MAX_COMPONENTS = 64
#: Steps between two readings of the clock.
_EVERY = 16
#: Remaining fraction of a step's time with compiled arithmetic, and its seconds without the right-hand side
#: (benchmarks/ode.py --adaptive).
_LEFT, _OWN = 0.35, 5e-5


def _misfit(problem: Problem) -> str | None:
    """Reason why the arithmetic cannot be compiled; None if it can."""
    assert problem.orders.known is not None
    if problem.delays:
        return "the equation has delays"
    if np.unique(problem.orders.known).size > 1:
        return "components have different orders"
    size = int(np.prod(problem.shape))
    if size > _MAX_COMPONENTS:
        return f"a state of {size} numbers is left to NumPy (from {_MAX_COMPONENTS + 1} numbers on)"
    return None


def refuse_numba(problem: Problem, options: Options, name: str) -> str | None:
    """Reason why Numba cannot be used although it was requested, or None."""
    if read_backend(options) != "numba" and options.compile is not True:
        return None
    reason = _misfit(problem)
    return None if reason is None else f"method={name!r} is not compiled here: {reason}; omit Numba"


class Speed:
    """The choice between NumPy and compiled steps in one solve, over all its passes."""

    def __init__(self, problem: Problem, options: Options) -> None:
        self.notes: list[str] = []
        self.compiled = False
        self.compile_seconds = 0.0
        self._problem, self._options = problem, options
        self._kernel = compilation.kernel_price("adaptive", np.dtype(problem.dtype))
        self._lesson: compilation.KernelLesson | None = None
        self._backend = read_backend(options)
        self._fits = self._backend != "numpy" and _misfit(problem) is None
        self._kernels = False
        self._function: CompiledFunction | None = None
        self._tried = options.compile is False
        self._price = compilation.compile_price(problem.fun)
        self._steps, self._since = 0, 0.0

    def begin(self, stepper: Stepper) -> None:
        """Called before the steps of a pass."""
        if self._fits and not self._kernels:
            asked = self._backend == "numba" or self._options.compile is True
            self._kernels = asked or (self._kernel.is_bought and compilation.kernel_pays(self._kernel))
        if self._kernels and self._options.compile is True and not self._tried:
            self._compile(stepper, must=True)
        self._use(stepper)
        self._steps, self._since = 0, time.perf_counter()

    def look(self, stepper: Stepper) -> None:
        """Called after a step. Every few steps, switches to compiled steps if that pays off."""
        if self._lesson is not None:
            self._lesson.learn()
        self._steps += 1
        if self._steps < _EVERY or not self._fits or (self._kernels and self._tried):
            return
        now = time.perf_counter()
        seconds, steps = now - self._since, self._steps
        if not self._kernels:
            self._kernel.credit((1.0 - _LEFT) * seconds)
            if compilation.kernel_pays(self._kernel):
                self._kernels = True
                self._use(stepper)
        elif self._price is not None:
            self._price.credit(max(seconds - steps * _OWN, 0.0))
            if self._price.pays(0.0):
                self._compile(stepper, must=False)
                self._use(stepper)
        self._steps, self._since = 0, time.perf_counter()

    def _use(self, stepper: Stepper) -> None:
        if self._kernels:
            compiled.load("adaptive")
            from hpfracc.solvers.ode.compiled.adaptive import CompiledArithmetic

            assert isinstance(stepper.system, FlatSystem)
            stepper.arithmetic = CompiledArithmetic(stepper.system, self._function, self._abandon)
            if self._lesson is None:
                self._lesson = compilation.KernelLesson(self._kernel)

    def _compile(self, stepper: Stepper, *, must: bool) -> None:
        """Compile the right-hand side, or record why not."""
        self._tried = True
        here = stepper.system.time(stepper.tau), stepper.y.reshape(self._problem.shape)
        found, self.compile_seconds = compile_problem(self._problem, [here], self.notes, must=must)
        if found is not None:
            self._function, self.compiled = found.fun, True

    def _abandon(self, why: str) -> None:
        """Return to the right-hand side in Python."""
        self._function, self.compiled = None, False
        self.notes.append(f"the right-hand side returned to Python: {why}")

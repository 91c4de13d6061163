"""The arithmetic of adaptive steps, compiled; the right-hand side compiled with it, or called in Python."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from hpfracc.solvers.ode._newton import Norm
from hpfracc.solvers.ode.adaptive.arithmetic import StepState, Taken, Trial
from hpfracc.solvers.ode.adaptive.corrector import LEAST_RATE, MOST_ITERATIONS, MOST_NEWTON, PART, Solved
from hpfracc.solvers.ode.adaptive.stencil import Stencil
from hpfracc.solvers.ode.adaptive.system import FlatSystem, NotFiniteError
from hpfracc.solvers.ode.compiled import adaptive_kernels as kernels
from hpfracc.solvers.ode.compiled import call_kernel
from hpfracc.solvers.ode.compiled.functions import CompiledFunction

__all__ = ["CompiledArithmetic"]

Array = np.ndarray[Any, Any]


class CompiledArithmetic:
    """As :class:`NumpyArithmetic`, for components that share one order.

    Parameters
    ----------
    system : FlatSystem
        The equation, without delays.
    fun : CompiledFunction or None
        Its right-hand side compiled; None where that stays in Python.
    abandon : callable
        Told why, where the compiled right-hand side is not used any longer.
    """

    def __init__(self, system: FlatSystem, fun: CompiledFunction | None, abandon: Callable[[str], None]) -> None:
        self.system = system
        self._fun, self._abandon = fun, abandon
        size, dtype = system.size, system.dtype
        self._kind = dtype.kind
        self._counts = np.zeros(1, np.int64)
        self._address, parameters = (0, np.zeros(1)) if fun is None else (fun.address, fun.parameters)
        self._tools = (np.zeros(size, dtype), np.zeros(size, dtype), parameters, self._counts)
        (self._alpha, _), *_ = system.groups
        self._gamma = math.gamma(self._alpha)
        self._nothing = np.zeros((0, 1, 1), dtype)

    def attempt(self, stepper: StepState, step: float, level: int | None, end: float, degree: int) -> Trial | None:
        """Solve the equation of a step."""
        system, corrector, memory, past = self.system, stepper.corrector, stepper.memories[0], stepper.values
        corrector.loops = self
        if self._fun is not None and not self._fun.unchanged():
            self._leave("a value that it captures changed during the solve")
        tables = memory.tables(step)
        lengths = np.array(stepper.steps[: max(len(past) - 1, 1)] or [0.0])
        start = system.start(end).astype(system.dtype, copy=False)
        order = (self._alpha, self._gamma, memory.kernel.power)
        tolerance = (stepper.atol, stepper.rtol, stepper.share)
        common = (order, step, degree, lengths, past, start, tables.weighted, memory.states, tolerance, stepper.y)
        steps, d, factor = stepper.accepted + stepper.rejected, system.components, stepper.distance_factor(step, end)
        size, n, dtype = len(past) + 1, system.size, system.dtype
        differences, polynomials, weights = np.zeros((3, size, size))
        known, inherited, guess, y = np.empty((4, n), dtype)
        scale, errors = np.empty(n), np.empty(size)
        values, terms = np.empty((2, size, n), dtype)
        prepared = (differences, polynomials, weights, known, inherited, guess, scale)
        finished = (values, terms, errors, scale)
        if self._fun is not None and not corrector.stiff:
            status, contraction = self._call(
                kernels.attempt,
                *(self._address, system.time(end), *common, d, self._nothing, factor, self._tools),
                *(prepared, y, finished),
            )
            self._count()
            if status == 2:
                self._check_in_python(end)
                return self.attempt(stepper, step, level, end, degree)
            if contraction >= 0.0:
                corrector.contraction = contraction
            if status:
                corrector.failed(steps)
                return None
        else:
            weight = self._call(kernels.prepare, *common, prepared)
            if corrector.stiff:
                solved = corrector.solve(end, known, weight, guess, Norm(scale, d), steps)
            else:
                solved, contraction = self._iterate(end, known, weight, guess, scale)
                if contraction >= 0.0:
                    corrector.contraction = contraction
                if solved is None:
                    corrector.failed(steps)
            if solved is None:
                return None
            y = solved.y
            inverse = self._nothing if corrector.inverse is None else corrector.inverse
            scale = np.empty(n)
            finished = (values, terms, errors, scale)
            self._call(kernels.finish, past, solved.f, weights, y, stepper.y, tolerance, inverse, d, factor, finished)
        stencil = Stencil(differences, polynomials)
        return Trial(y, values, stencil, weights, terms, errors.tolist(), scale, inherited)

    def _iterate(
        self, tau: float, known: Array, weight: float, guess: Array, scale: Array
    ) -> tuple[Solved | None, float]:
        """As :func:`kernels.iterate`, with the right-hand side in Python."""
        y, last, contraction = guess.copy(), math.inf, -1.0
        for turn in range(MOST_ITERATIONS):
            f = self.system(tau, y)
            size = self._call(kernels.correct, known, weight, f, y, scale, self.system.components)
            if size <= PART:
                return Solved(y, f), contraction
            if turn and size > 0.6 * last:
                break
            contraction, last = size / last, size
        return None, contraction

    def newton(self, tau: float, known: Array, weight: Any, guess: Array, norm: Norm, inverse: Array) -> Solved | None:
        """The corrector's loop."""
        if self._fun is None:
            return self._newton(tau, known, float(weight), guess, norm, inverse)
        y, f = np.empty((2, *guess.shape), guess.dtype)
        status = self._call(
            kernels.newton,
            *(self._address, self.system.time(tau), known, float(weight), guess, norm.scale, norm.components, inverse),
            *(self._tools, y, f),
        )
        self._count()
        if status == 2:
            self._check_in_python(tau)
            return self.newton(tau, known, weight, guess, norm, inverse)
        return None if status else Solved(y, f)

    def _newton(
        self, tau: float, known: Array, weight: float, guess: Array, norm: Norm, inverse: Array
    ) -> Solved | None:
        """As :func:`kernels.newton`, with the right-hand side in Python."""
        y, last = guess.copy(), math.inf
        for _ in range(MOST_NEWTON):
            f = self.system(tau, y)
            size = self._call(kernels.correct_newton, known, weight, f, y, norm.scale, norm.components, inverse)
            rate = size / last if math.isfinite(last) else 0.5
            if size * max(rate, LEAST_RATE) <= PART:
                return Solved(y, (y - known) / weight)
            if not rate <= 0.9:
                break
            last = size
        return None

    def take(self, stepper: StepState, trial: Trial, step: float, end: float, degree: int) -> Taken:
        """Propagate the error, and remember the step."""
        system, memory = self.system, stepper.memories[0]
        tables = memory.tables(step)
        states = memory.trimmed(tables)
        rules = (trial.stencil.differences, trial.stencil.polynomials, trial.weights)
        inverse = stepper.corrector.inverse
        moved = (stepper.moved, stepper.largest)
        rest = (
            self._nothing if inverse is None else inverse,
            (states, tables.decay, tables.moments, memory.kernel.power),
            step,
            (stepper.atol, stepper.rtol),
        )
        n, dtype = system.size, system.dtype
        defect = min(degree + 1, len(trial.values) - 1)
        error, moved_now = np.empty((2, n), dtype)
        coefficients, largest = np.empty((degree + 1, n), dtype), np.empty(n)
        new, both = np.empty_like(states), np.zeros((defect + 1, 2 * n), dtype)
        out = (error, moved_now, coefficients, new, both, largest)
        there = False
        if self._fun is not None:
            time = (system.time(end), stepper.tau, end)
            there, ratio = self._call(
                kernels.take,
                *(self._address, time, degree, trial.y, trial.values, rules, trial.terms, trial.inherited, moved),
                *(*rest, self._tools, out),
            )
            self._count()
        if not there:
            known, guess, other = np.empty((3, n), dtype)
            self._call(
                kernels.begin_take,
                *(degree, trial.y, trial.weights, trial.terms, trial.inherited, stepper.moved, known, guess, other),
            )
            try:
                value, there = system(end, other), True
            except NotFiniteError:
                value = known
            span, both[...] = (stepper.tau, end), 0.0
            ratio = self._call(
                kernels.end_take,
                *(there, value, known, guess, span, degree, trial.y, trial.values, rules, moved, *rest, out),
            )
        memory.replace(new, step, both)
        return Taken(error, moved_now, coefficients, largest, ratio)

    def _call(self, kernel: Callable[..., Any], *arguments: Any) -> Any:
        return call_kernel(kernel, self._kind, *arguments)

    def _count(self) -> None:
        self.system.nfev += int(self._counts[0])
        self._counts[0] = 0

    def _check_in_python(self, tau: float) -> None:
        """The compiled right-hand side was not finite: Python raises what is to be raised, or knows better."""
        self.system(tau, self._tools[0].copy())
        self._leave(f"compiled, it failed where Python could evaluate it, at t = {self.system.time(tau):g}")

    def _leave(self, why: str) -> None:
        self._fun = None
        self._abandon(why)

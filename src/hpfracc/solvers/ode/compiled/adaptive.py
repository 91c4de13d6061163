"""The arithmetic of adaptive steps, compiled; the right-hand side is compiled with it or called in Python."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from hpfracc.solvers.ode.adaptive.arithmetic import StepState, Taken, Trial
from hpfracc.solvers.ode.adaptive.corrector import MAX_ITERATIONS, MAX_NEWTON, MIN_RATE, PART, Solved
from hpfracc.solvers.ode.adaptive.stencil import Stencil
from hpfracc.solvers.ode.adaptive.system import FlatSystem, NotFiniteError
from hpfracc.solvers.ode.compiled import adaptive_kernels as kernels
from hpfracc.solvers.ode.compiled import call_kernel
from hpfracc.solvers.ode.compiled.functions import CompiledFunction
from hpfracc.solvers.ode.newton import Norm

__all__ = ["CompiledArithmetic"]

Array = np.ndarray[Any, Any]


class CompiledArithmetic:
    """Like :class:`NumpyArithmetic`, for components that share one order.

    Parameters
    ----------
    system : FlatSystem
        The equation, without delays.
    fun : CompiledFunction or None
        Its compiled right-hand side; None if that stays in Python.
    abandon : callable
        Called with the reason if the compiled right-hand side is no longer used.
    """

    def __init__(self, system: FlatSystem, fun: CompiledFunction | None, abandon: Callable[[str], None]) -> None:
        self.system = system
        self._fun, self._abandon = fun, abandon
        dtype = system.dtype
        self._kind = dtype.kind
        self._reference = None if fun is None else fun.reference
        self._parameters: Array = np.zeros(1) if fun is None else fun.parameters
        self._scratch = np.zeros((2, system.size), dtype)
        (self._alpha, _), *_ = system.groups
        self._gamma = math.gamma(self._alpha)
        self._nothing = np.zeros((0, 1, 1), dtype)
        self._rules: Array = np.empty(0)  # of the latest trial
        self._table: Array = np.empty(0)

    def attempt(self, stepper: StepState, step: float, level: int | None, end: float, degree: int) -> Trial | None:
        """Solve the equation of a step."""
        system, corrector, memory, past = self.system, stepper.corrector, stepper.memories[0], stepper.values
        corrector.loops = self
        if self._fun is not None and not self._fun.unchanged():
            self._leave("a captured value changed during the solve")
        tables = memory.tables(step)
        lengths = np.array(stepper.steps[: max(len(past) - 1, 1)] or [0.0])
        start = system.start(end).astype(system.dtype, copy=False)
        tolerance = (stepper.atol, stepper.rtol, stepper.share)
        common = (
            *(self._alpha, self._gamma, memory.kernel.power, step, degree, lengths, past, start, tables.weighted),
            *(memory.states, *tolerance, stepper.y),
        )
        steps, d, factor = stepper.accepted + stepper.rejected, system.components, stepper.distance_factor(step, end)
        size, n, dtype = len(past) + 1, system.size, system.dtype
        rules, vectors, reals = np.zeros((3, size, size)), np.empty((5, n), dtype), np.empty(n + size)
        table = np.empty((2, size, n), dtype)
        scale = reals[:n]
        if self._fun is not None and not corrector.stiff:
            status, contraction, evaluations = call_kernel(
                *(kernels.attempt, self._kind, self._reference, system.time(end), *common, d, self._nothing, factor),
                *(self._scratch, self._parameters, rules, vectors, reals, table),
            )
            system.nfev += evaluations
            if status == 2:
                self._check_in_python(end)
                return self.attempt(stepper, step, level, end, degree)
            if contraction >= 0.0:
                corrector.contraction = contraction
            if status:
                corrector.failed(steps)
                return None
            y = vectors[3]
        else:
            weight = call_kernel(kernels.prepare, self._kind, *common, rules, vectors, scale)
            known, guess = vectors[0], vectors[2]
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
            call_kernel(
                *(kernels.finish, self._kind, past, solved.f, y, stepper.y, *tolerance, inverse, d, factor),
                *(rules, table, reals),
            )
        self._rules, self._table = rules, table
        stencil = Stencil(rules[0], rules[1])
        return Trial(y, table[0], stencil, rules[2], table[1], reals[n:].tolist(), scale, vectors[1])

    def _iterate(
        self, tau: float, known: Array, weight: float, guess: Array, scale: Array
    ) -> tuple[Solved | None, float]:
        """Like :func:`kernels.iterate`, with the right-hand side in Python."""
        y, last, contraction = guess.copy(), math.inf, -1.0
        for turn in range(MAX_ITERATIONS):
            f = self.system(tau, y)
            size = call_kernel(kernels.correct, self._kind, known, weight, f, y, scale, self.system.components)
            if size <= PART:
                return Solved(y, f), contraction
            if turn and size > 0.6 * last:
                break
            contraction, last = size / last, size
        return None, contraction

    def newton(self, tau: float, known: Array, weight: Any, guess: Array, norm: Norm, inverse: Array) -> Solved | None:
        """Run the corrector's loop."""
        if self._fun is None:
            return self._newton(tau, known, float(weight), guess, norm, inverse)
        out = np.empty((2, guess.size), guess.dtype)
        status, evaluations = call_kernel(
            *(kernels.newton, self._kind, self._reference, self.system.time(tau), known, float(weight), guess),
            *(norm.scale, norm.components, inverse, self._scratch, self._parameters, out),
        )
        self.system.nfev += evaluations
        if status == 2:
            self._check_in_python(tau)
            return self.newton(tau, known, weight, guess, norm, inverse)
        return None if status else Solved(out[0], out[1])

    def _newton(
        self, tau: float, known: Array, weight: float, guess: Array, norm: Norm, inverse: Array
    ) -> Solved | None:
        """Like :func:`kernels.newton`, with the right-hand side in Python."""
        y, last = guess.copy(), math.inf
        for _ in range(MAX_NEWTON):
            f = self.system(tau, y)
            size = call_kernel(
                *(kernels.correct_newton, self._kind, known, weight, f, y, norm.scale, norm.components, inverse)
            )
            rate = size / last if math.isfinite(last) else 0.5
            if size * max(rate, MIN_RATE) <= PART:
                return Solved(y, (y - known) / weight)
            if not rate <= 0.9:
                break
            last = size
        return None

    def take(self, stepper: StepState, trial: Trial, step: float, end: float, degree: int) -> Taken:
        """Propagate the error, and add the step to the memory."""
        system, memory, inverse = self.system, stepper.memories[0], stepper.corrector.inverse
        tables = memory.tables(step)
        states = memory.trimmed(tables)
        n, dtype = system.size, system.dtype
        defect = min(degree + 1, len(trial.values) - 1)
        errors, largest = np.empty((2, n), dtype), np.empty(n)
        both, new = np.zeros((defect + 1, 2 * n), dtype), np.empty_like(states)
        common = (
            *(stepper.tau, end, degree, trial.y, self._rules, self._table, stepper.moved, stepper.largest),
            *(self._nothing if inverse is None else inverse, states, tables.decay, tables.moments),
            *(memory.kernel.power, step, stepper.atol, stepper.rtol, errors, largest, both, new),
        )
        there = False
        if self._fun is not None:
            there, ratio, evaluations = call_kernel(
                *(kernels.take, self._kind, self._reference, system.time(end), trial.inherited, self._scratch),
                *(self._parameters, *common),
            )
            system.nfev += evaluations
        if not there:
            equation = np.empty((3, n), dtype)
            call_kernel(
                *(kernels.begin_take, self._kind, degree, trial.y, self._rules, trial.inherited, self._table),
                *(stepper.moved, self._nothing if inverse is None else inverse, equation),
            )
            try:
                value = system(end, equation[2])
                if call_kernel(
                    *(kernels.is_far, self._kind, trial.y, self._rules, self._table, value),
                    *(self._nothing if inverse is None else inverse, equation),
                ):
                    value = system(end, equation[2])
                there = True
            except NotFiniteError:
                value = equation[0]
            both[...] = 0.0
            ratio = call_kernel(kernels.end_take, self._kind, there, value, equation, *common)
        memory.replace(new, step, both)
        return Taken(errors[0], errors[1], both[: degree + 1, :n], largest, ratio)

    def _check_in_python(self, tau: float) -> None:
        """Evaluate in Python if the compiled right-hand side was not finite; raises what Python raises."""
        self.system(tau, self._scratch[0].copy())
        self._leave(f"compiled, it failed where Python could evaluate it, at t = {self.system.time(tau):g}")

    def _leave(self, why: str) -> None:
        self._fun = None
        self._abandon(why)

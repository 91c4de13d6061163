"""The arithmetic of adaptive steps, compiled; the right-hand side is compiled with it or called in Python."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from hpfracc.solvers.ode.adaptive.arithmetic import Stencil, Taken, Trial
from hpfracc.solvers.ode.adaptive.corrector import Solved
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
        (alpha, _), *_ = system.groups
        # Reused at each step, because making an array takes as long as some of the arithmetic.
        self._reals = np.array([alpha, math.gamma(alpha), 0.0, 0.0, 0.0, 0.0])
        self._sizes = np.array([math.ceil(alpha) - 1, 0, system.components])
        self._state = np.zeros(2, np.int64)
        self._nothing = np.zeros((0, 1, 1), dtype)
        self._rules: Array = np.empty(0)  # of the latest trial
        self._table: Array = np.empty(0)

    def attempt(self, stepper: Any, step: float, level: int | None, end: float, degree: int) -> Trial | None:
        """Solve the equation of a step."""
        system, corrector, memory, past = self.system, stepper.corrector, stepper.memories[0], stepper.values
        corrector.loops = self
        if self._fun is not None and not self._fun.unchanged():
            self._leave("a captured value changed during the solve")
        tables = memory.tables(step)
        lengths = np.array(stepper.steps[: max(len(past) - 1, 1)] or [0.0])
        start = system.start(end).astype(system.dtype, copy=False)
        steps, d, factor = stepper.accepted + stepper.rejected, system.components, stepper.distance_factor(step, end)
        reals, sizes = self._reals, self._sizes
        reals[2], reals[3], reals[4], reals[5] = step, stepper.rtol, stepper.share, factor
        sizes[1] = degree
        given = (reals, sizes, lengths, past, start, tables.weighted, memory.states, stepper.atol, stepper.y)
        size, n, dtype = len(past) + 1, system.size, system.dtype
        rules, vectors, found = np.empty((3, size, size)), np.empty((5, n), dtype), np.empty(n + size + 1)
        table, scale = np.empty((2, size, n), dtype), found[:n]
        if not corrector.stiff:
            arguments = (*given, self._nothing, rules, table, found, vectors)
            status = self._run(kernels.attempt, kernels.run_attempt, end, arguments, vectors[3], vectors[4])
            if status == 2:
                self._check_in_python(end)
                return self.attempt(stepper, step, level, end, degree)
            if found[-1] >= 0.0:
                corrector.contraction = float(found[-1])
            if status:
                corrector.failed(steps)
                return None
            y = vectors[3]
        else:
            weight = call_kernel(kernels.prepare, self._kind, *given, rules, vectors, scale)
            solved = corrector.solve(end, vectors[0], weight, vectors[2], Norm(scale, d), steps)
            if solved is None:
                return None
            y = solved.y
            inverse = self._nothing if corrector.inverse is None else corrector.inverse
            values = (past, solved.f, y, stepper.y, stepper.atol)
            call_kernel(kernels.finish, self._kind, reals, sizes, *values, inverse, rules, table, found)
        self._rules, self._table = rules, table
        stencil = Stencil(rules[0], rules[1])
        return Trial(y, table[0], stencil, rules[2], table[1], found[n:-1].tolist(), scale, vectors[1])

    def _run(self, steps: Any, run: Any, tau: float, arguments: tuple[Any, ...], point: Array, value: Array) -> int:
        """Run a kernel with the right-hand side at ``point`` in ``value``, evaluated here or compiled; its outcome."""
        state = self._state
        state.fill(0)
        if self._fun is not None:
            functions = (self._reference, self.system.time(tau), self._scratch, self._parameters)
            call_kernel(run, self._kind, *functions, *arguments, state)
            self.system.nfev += int(state[kernels.EVALUATIONS])
        else:
            for _ in call_kernel(steps, self._kind, *arguments, state):
                value[:] = self.system(tau, point)
        return int(state[kernels.STATUS])

    def newton(self, tau: float, known: Array, weight: Any, guess: Array, norm: Norm, inverse: Array) -> Solved | None:
        """Run the corrector's loop."""
        out = np.empty((2, guess.size), guess.dtype)
        arguments = (known, float(weight), guess, norm.scale, norm.components, inverse, out)
        status = self._run(kernels.newton, kernels.run_newton, tau, arguments, out[0], out[1])
        if status == 2:
            self._check_in_python(tau)
            return self.newton(tau, known, weight, guess, norm, inverse)
        return None if status else Solved(out[0], out[1])

    def take(self, stepper: Any, trial: Trial, step: float, end: float, degree: int) -> Taken:
        """Propagate the error, and add the step to the memory."""
        system, memory, inverse = self.system, stepper.memories[0], stepper.corrector.inverse
        tables = memory.tables(step)
        states = memory.trimmed(tables)
        n, dtype = system.size, system.dtype
        defect = min(degree + 1, len(trial.values) - 1)
        errors, found, equation = np.empty((2, n), dtype), np.empty(n + 1), np.empty((4, n), dtype)
        both, new = np.empty((defect + 1, 2 * n), dtype), np.empty_like(states)
        self._reals[2], self._reals[3], self._reals[4] = step, stepper.rtol, stepper.tau / end
        self._sizes[1] = degree
        arguments = (
            *(self._reals, self._sizes, trial.y, self._rules, self._table, trial.inherited),
            *(stepper.moved, stepper.largest, self._nothing if inverse is None else inverse),
            *(states, tables.decay, tables.moments, stepper.atol, errors, found, both, new, equation),
        )
        status = 2
        if self._fun is not None:
            status = self._run(kernels.take, kernels.run_take, end, arguments, equation[2], equation[3])
        if status:
            state = self._state
            state.fill(0)
            for _ in call_kernel(kernels.take, self._kind, *arguments, state):
                try:
                    equation[3] = system(end, equation[2])
                except NotFiniteError:
                    state[kernels.STATUS] = 2
        memory.replace(new, step, both)
        return Taken(errors[0], errors[1], both[: degree + 1, :n], found[:n], float(found[n]))

    def _check_in_python(self, tau: float) -> None:
        """Evaluate in Python if the compiled right-hand side was not finite; raises what Python raises."""
        self.system(tau, self._scratch[0].copy())
        self._leave(f"compiled, it failed where Python could evaluate it, at t = {self.system.time(tau):g}")

    def _leave(self, why: str) -> None:
        self._fun = None
        self._abandon(why)

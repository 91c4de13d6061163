"""The arithmetic of adaptive steps, compiled; the right-hand side compiled with it, or called in Python."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hpfracc.solvers.ode._evaluation import RightHandSide
from hpfracc.solvers.ode._newton import Norm
from hpfracc.solvers.ode.adaptive.arithmetic import StepState, Taken, Trial
from hpfracc.solvers.ode.adaptive.corrector import Solved
from hpfracc.solvers.ode.adaptive.stencil import Stencil
from hpfracc.solvers.ode.adaptive.system import FlatSystem, NotFiniteError
from hpfracc.solvers.ode.compiled import adaptive_kernels as kernels
from hpfracc.solvers.ode.compiled.functions import CallBack, CompiledFunction
from hpfracc.solvers.ode.compiled.interpreter import PythonCall
from hpfracc.solvers.ode.compiled.stepper import python_pointer

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
    """

    def __init__(self, system: FlatSystem, fun: CompiledFunction | None) -> None:
        self.system, self.compiled = system, fun is not None
        size, dtype, shape = system.size, system.dtype, system.shape
        point, value = np.zeros(size, dtype), np.zeros(size, dtype)
        flag, self._counts = np.zeros(1, np.int64), np.zeros(1, np.int64)
        self._back: CallBack | PythonCall | None
        if fun is None:
            rhs = RightHandSide(system.problem)
            pointer, parameters, self._back = python_pointer(rhs, point.reshape(shape), value.reshape(shape), flag)
        else:
            pointer, parameters, self._back = fun.pointer, fun.parameters, None
        self._held, self._fun = pointer, int(pointer.address)  # good for as long as the pointer lives
        self._point, self._flag = point, flag
        self._tools = (point, value, parameters, flag, self._counts)
        (self._alpha, _), *_ = system.groups
        self._gamma = math.gamma(self._alpha)
        self._nothing = np.zeros((0, 1, 1), dtype)

    def attempt(self, stepper: StepState, step: float, level: int | None, end: float, degree: int) -> Trial | None:
        """Solve the equation of a step."""
        system, corrector, memory, past = self.system, stepper.corrector, stepper.memories[0], stepper.values
        corrector.loops = self
        tables = memory.tables(step)
        lengths = np.array(stepper.steps[: max(len(past) - 1, 1)] or [0.0])
        start = system.start(end).astype(system.dtype, copy=False)
        order = (self._alpha, self._gamma, memory.kernel.power)
        tolerance = (stepper.atol, stepper.rtol, stepper.share)
        common = (order, step, degree, lengths, past, start, tables.weighted, memory.states, tolerance, stepper.y)
        steps, d, factor = stepper.accepted + stepper.rejected, system.components, stepper.distance_factor(step, end)
        if corrector.stiff:
            differences, polynomials, weights, weight, known, inherited, guess, scale = kernels.prepare(*common)
            solved = corrector.solve(end, known, weight, guess, Norm(scale, d), steps)
            if solved is None:
                return None
            y = solved.y
            values, terms, errors, scale = kernels.finish(
                past, solved.f, weights, y, stepper.y, tolerance, corrector.inverse, d, factor
            )
        else:
            status, contraction, differences, polynomials, weights, inherited, y, values, terms, errors, scale = (
                kernels.attempt(self._fun, system.time(end), *common, d, self._nothing, factor, self._tools)
            )
            self._look(status, end)
            if contraction >= 0.0:
                corrector.contraction = contraction
            if status:
                corrector.failed(steps)
                return None
        stencil = Stencil(differences, polynomials)
        return Trial(y, values, stencil, weights, terms, errors.tolist(), scale, inherited)

    def newton(self, tau: float, known: Array, weight: Any, guess: Array, norm: Norm, inverse: Array) -> Solved | None:
        """The corrector's loop."""
        status, y, f = kernels.newton(
            self._fun, self.system.time(tau), known, float(weight), guess, norm.scale, norm.components, inverse,
            self._tools,
        )  # fmt: skip
        self._look(status, tau)
        return None if status else Solved(y, f)

    def take(self, stepper: StepState, trial: Trial, step: float, end: float, degree: int) -> Taken:
        """Propagate the error, and remember the step."""
        memory = stepper.memories[0]
        tables = memory.tables(step)
        states = memory.trimmed(tables)
        rules = (trial.stencil.differences, trial.stencil.polynomials, trial.weights)
        inverse = stepper.corrector.inverse
        status, error, moved, coefficients, new, both, ratio, largest = kernels.take(
            self._fun,
            (self.system.time(end), stepper.tau, end),
            degree,
            trial.y,
            trial.values,
            rules,
            trial.terms,
            trial.inherited,
            (stepper.moved, stepper.largest),
            self._nothing if inverse is None else inverse,
            (states, tables.decay, tables.moments, memory.kernel.power),
            step,
            (stepper.atol, stepper.rtol),
            self._tools,
        )
        if status == 3:
            self._look(status, end)
        self._count()
        memory.replace(new, step, both)
        return Taken(error, moved, coefficients, largest, ratio)

    def _count(self) -> None:
        self.system.nfev += int(self._counts[0])
        self._counts[0] = 0

    def _look(self, status: int, tau: float) -> None:
        """Raise what the right-hand side raised, or that it was not finite."""
        self._count()
        if status == 3:
            self._flag[0] = 0
            assert self._back is not None
            self._back.check()
        if status == 2:
            if self.compiled:  # an exception cannot leave compiled code: it may be raised in Python
                self.system(tau, self._point.copy())
            raise NotFiniteError(f"fun(t, y) is not finite at t = {self.system.time(tau):.6g}")

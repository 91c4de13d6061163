"""Walks through blocks with the compiled kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hpfracc.solvers.ode._evaluation import RightHandSide
from hpfracc.solvers.ode._newton import DIGITS, KEPT_ITERATIONS, LEAST_RATE, PART, Newton
from hpfracc.solvers.ode._scheme import Scheme, Tableau
from hpfracc.solvers.ode._stepping import NumpyStepper
from hpfracc.solvers.ode.compiled import kernels
from hpfracc.solvers.ode.compiled.functions import CallBack, CompiledFunction
from hpfracc.solvers.ode.compiled.interpreter import PythonCall, reads_arrays

__all__ = ["CompiledStepper", "python_pointer"]

Array = np.ndarray[Any, Any]


def python_pointer(
    evaluate: RightHandSide, point: Array, value: Array, flag: Array
) -> tuple[Any, Array, CallBack | PythonCall]:
    """A pointer to a function that stays in Python, its parameters, and what holds it and raises its exceptions."""
    if reads_arrays():
        call = PythonCall(evaluate.fun, evaluate.args, point, value, flag)
        return call.pointer, call.parameters, call
    back = CallBack(evaluate.writer(point, value), point.dtype, flag)
    return back, np.zeros(1), back


class CompiledStepper:
    """The same as :class:`NumpyStepper`, with the loop over steps compiled.

    Parameters
    ----------
    tableau, scheme, block
        As there.
    evaluate : RightHandSide or CompiledFunction
        The right-hand side: called back into Python, or compiled.
    newton : Newton or None
        For an implicit scheme: its Jacobian and its counters.
    jacobian : CompiledFunction or None
        A compiled Jacobian.
    """

    def __init__(
        self,
        tableau: Tableau,
        scheme: Scheme,
        block: int,
        evaluate: RightHandSide | CompiledFunction,
        newton: Newton | None,
        jacobian: CompiledFunction | None = None,
    ) -> None:
        self.tableau = tableau
        self.scheme = scheme
        self.newton = newton
        self.evaluations = 0
        weights, rows = tableau.weights, len(tableau.y)
        reach = min(block, weights.shape[2] - 1)
        self._past = np.zeros((*weights.shape[:2], block))  # newest last
        self._past[:, :, block - reach :] = weights[:, :, reach:0:-1]
        self._now = np.ascontiguousarray(weights[:, :, 0])
        self._which = np.zeros(rows, np.int64) if tableau.which is None else tableau.which
        self._flag = np.zeros(1, np.int64)
        self._counts = np.zeros(3, np.int64)
        dtype, shape = tableau.y.dtype, tableau.problem.shape
        self._point, self._value = np.zeros(rows, dtype), np.zeros(rows, dtype)
        self._backs: list[CallBack | PythonCall] = []
        if isinstance(evaluate, CompiledFunction):
            self._fun, self._parameters = evaluate.pointer, evaluate.parameters
        else:
            self._fun, self._parameters, back = python_pointer(
                evaluate, self._point.reshape(shape), self._value.reshape(shape), self._flag
            )
            self._backs.append(back)
        self.compiled = isinstance(evaluate, CompiledFunction)
        self._jac, self._has_jac = self._fun, False
        d = rows if newton is not None else 0
        self._derivative = np.zeros((d, d), dtype)
        self._factors, self._exchanges = np.zeros((d, d), dtype), np.zeros(d + 3, np.int64)
        self.block = block
        if jacobian is not None:
            self._jac, self._has_jac = jacobian.pointer, True
        elif newton is not None and newton.jacobian is not None:
            write = newton.jacobian.writer(self._point.reshape(shape), self._derivative)
            self._jac, self._has_jac = self._call_back(write), True

    def _call_back(self, make: Callable[[Callable[[BaseException], None]], Any]) -> CallBack:
        back = CallBack(make, self._point.dtype, self._flag)
        self._backs.append(back)
        return back

    def run(self, begin: int, first: int, stop: int) -> int:
        """Steps ``first .. stop-1`` of the block that begins at ``begin``; the number of points then known."""
        while True:
            reached = self._run(begin, first, stop)
            if reached == stop or self._flag[0] != 2:
                self._flag[0] = 0
                return reached
            self._flag[0] = 0
            first = self._solve_damped(begin, reached)
            if first in (reached, stop):
                return first

    def _solve_damped(self, begin: int, first: int) -> int:
        """One step by :class:`Newton`, which the compiled iteration could not solve."""
        newton = self.newton
        assert newton is not None

        def evaluate(t: float, y: Array) -> Array:
            return newton.evaluate(t, y.reshape(-1)).reshape(y.shape)

        return NumpyStepper(self.tableau, self.scheme, self.block, evaluate, newton).run(begin, first, first + 1)

    def _run(self, begin: int, first: int, stop: int) -> int:
        table, grid = self.tableau, self.tableau.grid
        data = (table.y, table.f, table.sums)
        scratch = (self._point, self._value, self._parameters)
        common: tuple[Any, ...] = (self._fun, grid.t0, grid.step, (begin, first, stop), data)
        common = (*common, self._past, self._now, self._which, scratch, self._flag)
        if self.scheme.kind == "explicit":
            reached = kernels.explicit(*common)
            self.evaluations += reached - first
        elif self.scheme.kind == "corrected":
            reached = kernels.corrected(*common, self.scheme.corrections)
            self.evaluations += (reached - first) * (1 + self.scheme.corrections)
        else:
            assert self.newton is not None
            matrices = (self._derivative, self._factors, self._exchanges)
            atol = np.array(np.broadcast_to(self.newton.atol, len(self._point)), dtype=float)
            tolerance = (self.newton.rtol, atol, PART, DIGITS)
            limits = (KEPT_ITERATIONS, LEAST_RATE, self.newton.price)
            reached = kernels.implicit(*common, self._jac, self._has_jac, matrices, tolerance, limits, self._counts)
            self.evaluations += int(self._counts[0])
            self.newton.iterations += int(self._counts[1])
            self.newton.jacobians += int(self._counts[2])
            self._counts[:] = 0
        table.known = int(reached)
        for back in self._backs:
            back.check()
        return int(reached)

"""Runs the blocks with the compiled kernels; the right-hand side is compiled too, or called in Python."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from hpfracc._reading import check_value
from hpfracc.solvers.ode.compiled import call_kernel, kernels
from hpfracc.solvers.ode.compiled.functions import CompiledFunction
from hpfracc.solvers.ode.fixed.scheme import Tableau
from hpfracc.solvers.ode.fixed.stepping import NumpyStepper
from hpfracc.solvers.ode.problem import RightHandSide
from hpfracc.solvers.stepping.newton import Newton

Array = np.ndarray[Any, Any]


class CompiledStepper:
    """Like :class:`NumpyStepper`, with the arithmetic of the steps compiled.

    A right-hand side in Python is called from an ordinary loop: its exceptions, and interrupts, propagate unchanged,
    and the completed steps are kept.

    Parameters
    ----------
    tableau, block
        As for :class:`NumpyStepper`.
    fun : RightHandSide
        The right-hand side, which counts the evaluations.
    newton : Newton or None
        For an implicit method: its Jacobian and counters.
    functions : pair of CompiledFunction or None
        The compiled right-hand side and Jacobian; none if they stay in Python.
    """

    def __init__(
        self,
        tableau: Tableau,
        block: int,
        fun: RightHandSide,
        newton: Newton | None,
        functions: tuple[CompiledFunction, CompiledFunction | None] | None = None,
    ) -> None:
        self.tableau = tableau
        self.fun, self.newton, self.functions = fun, newton, functions
        self._corrections = tableau.rule.corrections
        weights, rows = tableau.weights, len(tableau.y)
        reach = min(block, weights.shape[2] - 1)
        past = np.zeros((*weights.shape[:2], block))  # newest last
        past[:, :, block - reach :] = weights[:, :, reach:0:-1]
        which = np.zeros(rows, np.int64) if tableau.which is None else tableau.which
        self._rules = (past, np.ascontiguousarray(weights[:, :, 0]), which)
        dtype = tableau.y.dtype
        self._state = np.zeros(kernels.STATE_SIZE, np.int64)
        self._points, self._value = np.zeros((1, rows), dtype), np.zeros(rows, dtype)
        d = rows if newton is not None else 0
        self._derivative = np.zeros((d, d), dtype)
        self._matrices = (self._derivative, np.zeros((d, d), dtype), np.zeros(4, np.int64), np.full(1, np.inf))
        self.block = block

    def unchanged(self) -> bool:
        """Whether compiled functions still match the given ones."""
        return all(each is None or each.unchanged() for each in self.functions or ())

    def run(self, begin: int, first: int, stop: int) -> int:
        """Make steps ``first .. stop-1`` of the block that starts at ``begin``; returns the number of known points."""
        while True:
            reached = self._run(begin, first, stop)
            if reached == stop or self._state[kernels.REQUEST] != kernels.STUCK:
                return reached
            first = self._solve_damped(begin, reached)
            if first in (reached, stop):
                return first

    def _solve_damped(self, begin: int, first: int) -> int:
        """Make one step by :class:`Newton`, after the compiled iteration has failed."""
        return NumpyStepper(self.tableau, self.block, self.fun, self.newton).run(begin, first, first + 1)

    def _run(self, begin: int, first: int, stop: int) -> int:
        table, state, newton = self.tableau, self._state, self.newton
        state[:] = 0
        state[kernels.KNOWN] = first
        data = (table.y, table.f, table.sums)
        common = ((table.grid.t0, table.grid.step), (begin, first, stop), data, self._rules)
        rules: tuple[Any, ...] = (self._corrections,)
        if newton is not None:
            atol = np.array(np.broadcast_to(newton.atol, len(self._value)), dtype=float)
            rules = (self._matrices, (float(newton.rtol), atol, newton.part, int(newton.price)))
        try:
            if self.functions is not None:
                self._run_compiled(*self.functions, common, rules)
            else:
                self._run_python(common, rules)
        finally:
            table.known = int(state[kernels.KNOWN])
            if newton is None:
                self.fun.count += (table.known - first) * (1 + self._corrections)
            else:
                self.fun.count += int(state[kernels.EVALUATIONS])
                newton.iterations += int(state[kernels.ITERATIONS])
                newton.jacobians += int(state[kernels.JACOBIANS])
        return table.known

    def _run_compiled(
        self, fun: CompiledFunction, jacobian: CompiledFunction | None, common: tuple[Any, ...], rules: tuple[Any, ...]
    ) -> None:
        functions: tuple[Any, ...] = (fun.reference, fun.parameters)
        arguments, kind = (*common, self._points, self._value, self._state), self._value.dtype.kind
        if self.newton is None:
            call_kernel(kernels.run_corrected, kind, *functions, *arguments, *rules)
        else:
            jac = fun if jacobian is None else jacobian
            functions += (jac.reference, jac.parameters)
            call_kernel(kernels.run_implicit, kind, *functions, *arguments, jacobian is not None, *rules)

    def _run_python(self, common: tuple[Any, ...], rules: tuple[Any, ...]) -> None:
        """Every evaluation gets its own row for the state, because the function may keep or change it."""
        _, first, stop = common[1]
        shape, dtype, state = self.tableau.problem.shape, self._value.dtype, self._state
        jacobian: Any = None
        if self.newton is None:
            rows = np.empty(((stop - first) * (1 + self._corrections), self._value.size), dtype)
            points: Any = rows.reshape(-1, *shape)
            steps = call_kernel(kernels.corrected, dtype.kind, *common, rows, self._value, state, *rules)
        else:
            jacobian = self.newton.jacobian
            copy = self._points[0].copy
            points = (copy() for _ in itertools.count())
            given = (*common, self._points, self._value, state, jacobian is not None, *rules)
            steps = call_kernel(kernels.implicit, dtype.kind, *given)
        fun, value = self.fun.bare, self._value.reshape(shape)
        # For real numbers along one axis, a memoryview stores an array and compares its shape and dtype fastest.
        store: Any = value.data if value.ndim == 1 and dtype.kind == "f" else None
        for t, point in zip(steps, points, strict=False):
            if jacobian is not None and state[kernels.REQUEST] == kernels.JACOBIAN:
                self._derivative[...] = jacobian(t, point)
                continue
            found = fun(t, point)
            if store is not None:
                try:
                    store[:] = found
                    continue
                except (TypeError, ValueError):  # another shape or dtype
                    pass
            if type(found) is not np.ndarray or found.shape != shape or found.dtype != dtype:
                found = check_value(found, shape, dtype, "fun")
            value[...] = found

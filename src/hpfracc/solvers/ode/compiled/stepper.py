"""Runs the blocks with the compiled kernels; the right-hand side is compiled too, or called in Python."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from hpfracc.solvers.ode.compiled import call_kernel, kernels
from hpfracc.solvers.ode.compiled.functions import CompiledFunction
from hpfracc.solvers.ode.fixed.scheme import Scheme, Tableau
from hpfracc.solvers.ode.fixed.stepping import NumpyStepper
from hpfracc.solvers.ode.newton import DIGITS, KEPT_ITERATIONS, MIN_RATE, REMEASURE, SMALL_CHANGE, Newton
from hpfracc.solvers.ode.problem import RightHandSide, check_value

__all__ = ["CompiledStepper"]

Array = np.ndarray[Any, Any]


class CompiledStepper:
    """Like :class:`NumpyStepper`, with the arithmetic of the steps compiled.

    A right-hand side in Python is called from an ordinary loop: its exceptions, and interrupts, propagate unchanged,
    and the completed steps are kept.

    Parameters
    ----------
    tableau, scheme, block
        As for :class:`NumpyStepper`.
    evaluate : RightHandSide or CompiledFunction
        The right-hand side.
    newton : Newton or None
        For an implicit scheme: its Jacobian and counters.
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
        self._evaluate, self._jacobian = evaluate, jacobian
        self._corrections = scheme.corrections if scheme.kind == "corrected" else 0
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
        self._matrices = (self._derivative, np.zeros((d, d), dtype), np.zeros(d + 4, np.int64), np.full(1, np.inf))
        self.block = block

    @property
    def compiled(self) -> bool:
        """Whether the right-hand side is compiled."""
        return isinstance(self._evaluate, CompiledFunction)

    def unchanged(self) -> bool:
        """Whether compiled functions still match the given ones."""
        functions = (self._evaluate, self._jacobian)
        return all(each.unchanged() for each in functions if isinstance(each, CompiledFunction))

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
        fun = self._evaluate if isinstance(self._evaluate, RightHandSide) else RightHandSide(self.tableau.problem)
        return NumpyStepper(self.tableau, self.scheme, self.block, fun, self.newton).run(begin, first, first + 1)

    def _run(self, begin: int, first: int, stop: int) -> int:
        table, state = self.tableau, self._state
        state[:] = 0
        state[kernels.KNOWN] = first
        try:
            if isinstance(self._evaluate, CompiledFunction):
                self._run_compiled(self._evaluate, (begin, first, stop))
            else:
                self._run_python(self._evaluate, (begin, first, stop))
        finally:
            table.known = int(state[kernels.KNOWN])
            self._count(table.known - first)
        return table.known

    def _common(self, span: tuple[int, int, int], points: Array) -> tuple[Any, ...]:
        table, grid = self.tableau, self.tableau.grid
        data = (table.y, table.f, table.sums)
        return ((grid.t0, grid.step), span, data, self._rules, points, self._value, self._state)

    def _newton_rules(self) -> tuple[Any, ...]:
        """Matrices, tolerance and limits of the iteration."""
        assert self.newton is not None
        atol = np.array(np.broadcast_to(self.newton.atol, len(self._value)), dtype=float)
        tolerance = (float(self.newton.rtol), atol, self.newton.part, DIGITS)
        limits = (KEPT_ITERATIONS, MIN_RATE, int(self.newton.price), REMEASURE, SMALL_CHANGE)
        return self._matrices, tolerance, limits

    def _run_compiled(self, fun: CompiledFunction, span: tuple[int, int, int]) -> None:
        common = self._common(span, self._points)
        functions: tuple[Any, ...] = (fun.reference, fun.parameters)
        kind = self._value.dtype.kind
        if self.newton is None:
            call_kernel(kernels.run_corrected, kind, *functions, *common, self._corrections)
        else:
            jac = fun if self._jacobian is None else self._jacobian
            functions += (jac.reference, jac.parameters)
            rules = (self._jacobian is not None, *self._newton_rules())
            call_kernel(kernels.run_implicit, kind, *functions, *common, *rules)

    def _run_python(self, evaluate: RightHandSide, span: tuple[int, int, int]) -> None:
        """Every evaluation gets its own row for the state, because the function may keep or change it."""
        _, first, stop = span
        shape, dtype, state = self.tableau.problem.shape, self._value.dtype, self._state
        jacobian: Any = None
        if self.newton is None:
            rows = np.empty(((stop - first) * (1 + self._corrections), self._value.size), dtype)
            points: Any = rows.reshape(-1, *shape)
            steps = call_kernel(kernels.corrected, dtype.kind, *self._common(span, rows), self._corrections)
        else:
            jacobian = self.newton.jacobian
            copy = self._points[0].copy
            points = (copy() for _ in itertools.count())
            rules = (jacobian is not None, *self._newton_rules())
            steps = call_kernel(kernels.implicit, dtype.kind, *self._common(span, self._points), *rules)
        fun, value = evaluate.bare, self._value.reshape(shape)
        store = _memory(value)
        for t, point in zip(steps, points, strict=False):
            if jacobian is not None and state[kernels.REQUEST] == kernels.JACOBIAN:
                self._derivative[...] = jacobian(t, point)
                continue
            found = fun(t, point)
            try:
                store[:] = found
            except (TypeError, ValueError):
                value[...] = check_value(found, shape, dtype, "fun")

    def _count(self, steps: int) -> None:
        state = self._state
        if self.newton is None:
            self.evaluations += steps * (1 + self._corrections)
            return
        self.evaluations += int(state[kernels.EVALUATIONS])
        self.newton.iterations += int(state[kernels.ITERATIONS])
        self.newton.jacobians += int(state[kernels.JACOBIANS])


def _memory(value: Array) -> Any:
    """An object whose ``[:]`` accepts arrays of the same shape and dtype; others raise TypeError or ValueError.

    For real numbers along one axis, a memoryview does that faster than comparing both.
    """
    return value.data if value.ndim == 1 and value.dtype.kind == "f" else _CheckedArray(value)


class _CheckedArray:
    def __init__(self, value: Array) -> None:
        self._value = value

    def __setitem__(self, index: slice, found: Any) -> None:
        if type(found) is not np.ndarray or found.shape != self._value.shape or found.dtype != self._value.dtype:
            raise TypeError
        self._value[...] = found

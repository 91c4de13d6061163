r"""Multi-term equations as systems: :math:`D^\alpha y + \sum_i c_i D^{\alpha_i} y = f(t, y)`.

With all orders and the integers between them sorted, :math:`0 = b_0 < b_1 < \dots < b_L = \alpha`, the states
:math:`u_l = D^{b_l} y` satisfy :math:`D^{b_{l+1}-b_l} u_l = u_{l+1}` and, for the last, the equation itself. For
the Caputo derivative this is equivalent (K. Diethelm, The Analysis of Fractional Differential Equations (2010), theorem
8.1). Initial values of integer order are given; the others are 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.solvers.ode.jacobian import expand_sparsity, is_sparse
from hpfracc.solvers.ode.options import Options
from hpfracc.solvers.ode.orders import Orders
from hpfracc.solvers.ode.problem import Problem, check_jacobian, check_value
from hpfracc.solvers.ode.result import FODEResult

__all__ = ["reduce_terms", "solve_reduced"]

Array = np.ndarray[Any, Any]


def _check_terms(problem: Problem) -> float:
    """The leading order; raises an error if the equation cannot be written as a system."""
    leading = problem.orders.single
    if leading is None:
        raise InvalidInputError(
            "a multi-term equation has one leading order for all components; give a number as alpha"
        )
    if problem.derivative != "caputo":
        raise InvalidInputError(
            f"multi-term equations support the Caputo derivative, not derivative={problem.derivative!r}"
        )
    if problem.library != "numpy":
        raise InvalidInputError(f"multi-term equations take NumPy arrays, and y0 is of {problem.library}; convert it")
    for term in problem.terms:
        if not callable(term.coefficient):
            _check_coefficient(np.asarray(term.coefficient), problem.shape)
    highest = max(term.order for term in problem.terms)
    if highest >= leading:
        raise InvalidInputError(
            f"a term of order {highest:g} is not below the leading order {leading:g}: divide the equation by the "
            "coefficient of the highest derivative, and give that order as alpha"
        )
    return leading


def _check_coefficient(value: Array, shape: tuple[int, ...]) -> None:
    """Raise an error for a coefficient that would change the shape of the state."""
    if not value.ndim:
        return
    try:
        fits = np.broadcast_shapes(value.shape, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ShapeError(
            f"terms holds a coefficient of shape {value.shape}, and the state has shape {shape}: give a number, or one "
            "number for each component. A matrix that mixes components belongs in fun, in a system whose further "
            "components are the lower derivatives"
        )


@dataclass(frozen=True, slots=True)
class _System:
    """The right-hand side, Jacobian and shapes of the reduced system."""

    problem: Problem
    places: tuple[float, ...]

    @property
    def d(self) -> int:
        return int(self.problem.shape[-1])

    def coefficient(self, value: Any, t: float) -> Any:
        found = np.asarray(value(t) if callable(value) else value)
        _check_coefficient(found, self.problem.shape)
        return found

    def fun(self, t: float, y: Array, *more: Any) -> Array:
        d, states = self.d, len(self.places)
        delayed = more[: bool(self.problem.delays)]
        if delayed:
            delayed = (tuple(state[..., :d] for state in delayed[0]),)
        rest = more[len(delayed) :]
        last = check_value(self.problem.fun(t, y[..., :d].copy(), *delayed, *rest), self.problem.shape, y.dtype, "fun")
        for term in self.problem.terms:
            place = self.places.index(term.order) * d
            last = last - self.coefficient(term.coefficient, t) * y[..., place : place + d]
        return np.concatenate([y[..., d:], last], axis=-1) if states > 1 else last

    def _sparse(self, t: float, given: Any) -> Any:
        """The same for a sparse Jacobian of one state."""
        from scipy.sparse import block_array, csc_array, diags_array, eye_array

        d, states = self.d, len(self.places)
        blocks: list[list[Any]] = [
            [csc_array((d, d)) if i == j else None for j in range(states)] for i in range(states)
        ]
        for row in range(states - 1):
            blocks[row][row + 1] = eye_array(d)
        parts = {0: given}
        for term in self.problem.terms:
            place = self.places.index(term.order)
            factor = diags_array(np.broadcast_to(self.coefficient(term.coefficient, t), (d,)))
            parts[place] = parts.get(place, csc_array((d, d))) - factor
        for place, block in parts.items():
            blocks[-1][place] = block
        return csc_array(block_array(blocks))

    def jac(self, t: float, y: Array, *more: Any) -> Any:
        d, size = self.d, self.d * len(self.places)
        assert self.problem.jac is not None
        delayed = more[: bool(self.problem.delays)]
        if delayed:
            delayed = (tuple(state[..., :d] for state in delayed[0]),)
        given = self.problem.jac(t, y[..., :d].copy(), *delayed, *more[len(delayed) :])
        given = check_jacobian(given, self.problem.shape, y.dtype)
        if is_sparse(given):
            return self._sparse(t, given)
        matrix = np.zeros((*y.shape, size), dtype=y.dtype)
        matrix[..., : size - d, d:] = np.eye(size - d)
        matrix[..., size - d :, :d] += given
        for term in self.problem.terms:
            place = self.places.index(term.order) * d
            factor = np.broadcast_to(self.coefficient(term.coefficient, t), y[..., :d].shape)
            matrix[..., size - d :, place : place + d] -= factor[..., np.newaxis] * np.eye(d)
        return matrix


def reduce_terms(problem: Problem) -> Problem:
    """The equivalent system, whose first d components are the solution."""
    leading = _check_terms(problem)
    orders = {0.0, *(term.order for term in problem.terms), *map(float, range(math.ceil(leading)))}
    places = tuple(sorted(orders))
    system = _System(problem, places)
    d = problem.shape[-1]
    initial = [problem.y0, *problem.dy0]
    states = [initial[int(b)] if b.is_integer() else np.zeros_like(problem.y0) for b in places]
    gaps = np.repeat(np.diff([*places, leading]), d)
    return replace(
        problem,
        fun=system.fun,
        jac=system.jac if problem.jac is not None else None,
        y0=np.concatenate(states, axis=-1),
        dy0=(),
        orders=Orders(gaps, gaps, None, 1),
        terms=(),
        jac_sparsity=_sparsity(problem, places),
        history=_history(problem, len(places)) if problem.history is not None else None,
    )


def _sparsity(problem: Problem, places: tuple[float, ...]) -> Any:
    """The pattern of the system's Jacobian, if that of the equation was given."""
    if problem.jac_sparsity is None:
        return None
    return expand_sparsity(problem.jac_sparsity, len(places), [places.index(term.order) for term in problem.terms])


def _history(problem: Problem, states: int) -> Callable[[float], Array]:
    """The given history of y. Its derivatives do not occur with delays."""

    def history(t: float) -> Array:
        assert problem.history is not None
        value = np.broadcast_to(np.asarray(problem.history(t)), problem.shape)
        return np.concatenate([value, *[np.zeros_like(value)] * (states - 1)], axis=-1)

    return history


def solve_reduced(problem: Problem, options: Options, solve: Callable[[Problem, Options], FODEResult]) -> FODEResult:
    """Solve the system with ``solve``, and return the components of y."""
    if options.compile is True:
        raise InvalidInputError("compile=True: multi-term equations are not compiled; omit compile")
    d = problem.shape[-1]
    reduced = reduce_terms(problem)
    states = reduced.shape[-1] // d
    atol = np.asarray(options.atol)
    if atol.ndim:
        options = replace(options, atol=np.concatenate([np.broadcast_to(atol, problem.shape)] * states, axis=-1))
    options = replace(options, events=tuple(_first(event, d) for event in options.events))
    if callable(options.progress):
        tell = options.progress
        options = replace(options, progress=lambda t, y: tell(t, y[..., :d]))
    result = solve(reduced, options)
    result.y = result.y[..., :d, :]
    if "component_errors" in result.stats:  # of y only, without its derivatives
        errors = result.stats["component_errors"] = result.stats["component_errors"][..., :d]
        result.error_estimate = float(errors.max())
    if result.sol is not None:
        result.sol = _FirstComponents(result.sol, d, len(problem.shape) - 1)
    if result.y_events is not None:
        result.y_events = [states[..., :d] for states in result.y_events]
    return result


@dataclass(frozen=True, slots=True)
class _FirstComponents:
    """``sol(t)`` of the equation from that of the system: its first ``count`` components, along ``axis``."""

    whole: Callable[[Any], Any]
    count: int
    axis: int

    def __call__(self, t: Any) -> Array:
        return np.take(self.whole(t), range(self.count), axis=self.axis)


def _first(event: Callable[..., Any], d: int) -> Callable[..., Any]:
    def watched(t: float, y: Array, *args: Any) -> Any:
        return event(t, y[..., :d], *args)

    for name in ("terminal", "direction"):
        if hasattr(event, name):
            setattr(watched, name, getattr(event, name))
    return watched

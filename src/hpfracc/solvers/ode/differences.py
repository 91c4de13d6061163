"""L1 and L2-1sigma on a given mesh: steps for arrays of any library; the history is that of y'."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from hpfracc._reading import number
from hpfracc._xp import convert_like, namespace_of
from hpfracc.history.intervals import interval_integrals
from hpfracc.history.states import Memory, make_memory, moments, remember, remembered
from hpfracc.solvers.ode.fixed.grid import row_orders
from hpfracc.solvers.ode.fixed.walk import solve_on_mesh
from hpfracc.solvers.ode.method import Method
from hpfracc.solvers.ode.newton import Newton
from hpfracc.solvers.ode.options import Options
from hpfracc.solvers.ode.problem import Problem
from hpfracc.solvers.ode.result import FODEResult

__all__ = ["DifferenceTables", "GradedMethod", "make_difference_tables", "step_l1", "step_l2_sigma"]

Array = np.ndarray[Any, Any]

#: Relative error of the kernel.
_KERNEL = 1e-14

#: ``solve(t, known, weight, guess)`` returns y with ``y = known + weight f(t, y)``.
Solve = Callable[[Any, Any, Any, Any], Any]


class DifferenceTables(NamedTuple):
    """Quantities of each step that depend on the mesh and the order, each of shape (N, ...).

    Attributes
    ----------
    at : array
        Times after t0 at which the equation is collocated.
    step, width : arrays
        Lengths of the interval and of the previous one (0 for the first).
    distance : array
        Distance from the end of the history to ``at``.
    weight : array
        Weight of f (L1) or of the newest difference of y (L2-1sigma).
    level, bend : array or None
        L2-1sigma: contributions of the mean slope and of its change on the previous interval.
    sigma : array or None
        L2-1sigma: relative position of the collocation point in the interval.
    """

    at: Any
    step: Any
    width: Any
    distance: Any
    weight: Any
    level: Any = None
    bend: Any = None
    sigma: Any = None


def make_difference_tables(name: str, order: Any, mesh: Array, like: Any) -> DifferenceTables:
    """The tables of ``"l1"`` or ``"l2_1sigma"``, computed in float64 and converted to ``like``."""
    xp = namespace_of(order)
    step = np.diff(mesh)
    width = np.concatenate([[0.0], step[:-1]])
    with xp.scope():
        alpha = xp.array(order)
        if name == "l1":
            column = (slice(None), *(None,) * alpha.ndim)
            weight = xp.exp(alpha * xp.array(np.log(step)[column])) * xp.exp(xp.lgamma(2.0 - alpha))
            made: tuple[Any, ...] = (mesh[1:], step, width, step, weight)
            return DifferenceTables(*(convert_like(each, like) for each in made))
        sigma, steps, widths = 1.0 - 0.5 * alpha, xp.array(step), xp.array(width)
        near = sigma * steps
        mean, moment = interval_integrals(xp, alpha, near, widths, parabola=True)
        newest, _ = interval_integrals(xp, alpha, 0.0 * near, near, parabola=False)
        bend = 2.0 * moment * widths * widths / (widths + steps)
        made = (
            xp.array(mesh[:-1]) + near, steps, widths, near + widths, newest * sigma + bend / steps, mean * widths,
            bend, sigma + 0.0 * steps,
        )  # fmt: skip
        return DifferenceTables(*(convert_like(each, like) for each in made))


def step_l1(xp: Any, memory: Memory, solve: Solve, carried: tuple[Any, ...], row: DifferenceTables) -> tuple[Any, ...]:
    """One step of L1: y' is constant on each interval."""
    y, slope, states = carried
    known = y - row.weight * remembered(xp, memory, states, row.distance)
    new = solve(row.at, known, row.weight, y + row.step * slope)
    slope = (new - y) / row.step
    states = remember(xp, memory, states, row.step, moments(xp, memory, row.step), slope[None])
    return new, slope, states


def step_l2_sigma(
    xp: Any, memory: Memory, solve: Solve, carried: tuple[Any, ...], row: DifferenceTables
) -> tuple[Any, ...]:
    """One step of L2-1sigma: y is quadratic on past intervals and linear on the newest.

    The slope over the previous interval is stored, and added to the history when the next one is known.
    """
    y, rise, states = carried
    past = remembered(xp, memory, states, row.distance) + rise * (row.level - row.bend)
    # weight (y_n - y) + past = f(at, y_sigma), y_sigma = sigma y_n + (1 - sigma) y: solved for y_sigma.
    known = y - row.sigma * past / row.weight
    middle = solve(row.at, known, row.sigma / row.weight, y + row.sigma * row.step * rise)
    new = y + (middle - y) / row.sigma
    slope = (new - y) / row.step
    curve = 2.0 * (slope - rise) / (row.width + row.step)
    coefficients = xp.stack([rise + 0.5 * row.width * curve, -row.width * curve])
    states = remember(xp, memory, states, row.width, moments(xp, memory, row.width), coefficients)
    return new, slope, states


@dataclass(frozen=True, slots=True)
class GradedMethod(Method):
    r"""L1 or L2-1sigma on the mesh :math:`t_j = t_0 + T (j/N)^r`, for arrays of every library.

    Parameters
    ----------
    grading : float, optional
        r, at least 1.
    """

    grading: float | None = None

    libraries: ClassVar[frozenset[str]] = frozenset({"numpy", "torch", "jax"})
    implicit: ClassVar[bool] = True
    #: The order of accuracy on a mesh that is graded enough, minus a multiple of alpha.
    accuracy: ClassVar[tuple[float, float]]

    def __post_init__(self) -> None:
        if self.grading is not None:
            number("grading", self.grading, least=1.0)  # 1 is a uniform mesh

    def grade(self, order: float) -> float:
        """r, as given or so that a solution like ``t^order`` does not reduce the order of accuracy; at most 10."""
        return (
            min((self.accuracy[0] - self.accuracy[1] * order) / order, 10.0) if self.grading is None else self.grading
        )

    def solve(self, problem: Problem, options: Options) -> FODEResult:
        """One implicit equation per step."""
        known, name = problem.orders.known, self.name
        grading = self.grading if known is None else self.grade(float(known.min()))
        if problem.library != "numpy":
            from hpfracc.solvers.ode.tensors.mesh import solve_graded_tensors

            return solve_graded_tensors(problem, options, name, grading)
        assert grading is not None

        def steps(newton: Newton, mesh: Array) -> Iterator[Array]:
            return _steps(problem, newton, name, mesh)

        return solve_on_mesh(problem, options, name, steps, grading=grading, history="exponentials")


def _steps(problem: Problem, newton: Newton, name: str, mesh: Array) -> Iterator[Array]:
    """The states after the steps of :mod:`hpfracc.solvers.ode.differences`, with Newton's method."""

    def solve(tau: float, known: Array, weight: Any, guess: Array) -> Array:
        solved = newton.solve(problem.t0 + tau, known, np.broadcast_to(weight, known.shape), guess)
        return np.full_like(known, np.nan) if solved is None else solved[0]

    order = row_orders(problem) if problem.orders.single is None else np.float64(problem.orders.single)
    y = np.array(problem.y0).reshape(-1)
    # D^alpha y = I^(1-alpha) y': the history is that of an integral of order 1 - alpha of y'.
    shortest, length = float(np.diff(mesh).min()), float(mesh[-1])
    memory = make_memory(1.0 - order, 0, shortest, length, _KERNEL, y, 1 if name == "l1" else 2)
    tables = make_difference_tables(name, order, mesh, y)
    one = step_l1 if name == "l1" else step_l2_sigma
    carried: tuple[Any, ...] = y, np.zeros_like(y), np.zeros((1, len(memory.rates), y.size), y.dtype)
    for n in range(len(mesh) - 1):
        row = DifferenceTables(*(None if each is None else each[n] for each in tables))
        carried = one(np, memory, solve, carried, row)
        if np.isnan(carried[0]).all():
            return
        yield carried[0]

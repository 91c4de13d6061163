"""L1 and L2-1sigma on a given mesh: steps for arrays of any library; the history is that of y'."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from hpfracc._xp import convert_like, namespace_of
from hpfracc.history.intervals import interval_integrals
from hpfracc.history.states import Memory, moments, remember, remembered

Array = np.ndarray[Any, Any]

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

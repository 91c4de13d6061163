"""The solution between the adaptive steps: the method's integral, evaluated at any time."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from hpfracc.history.states import ExponentialKernel, Snapshot
from hpfracc.solvers.stepping.rules import make_bulges
from hpfracc.solvers.stepping.system import FlatSystem

Array = np.ndarray[Any, Any]

#: The states are stored before every n-th step; between these the stored polynomials are integrated.
_EVERY = 12
_POINTS, _WEIGHTS = special.roots_legendre(14)
_POINTS, _WEIGHTS = 0.5 * (_POINTS + 1.0), 0.5 * _WEIGHTS


class Piece(NamedTuple):
    """The right-hand side over one step: a polynomial in ``x = (right - t)/step``, ``coefficients[q]`` that of x^q.

    If the equation is stiff, a small error of the right-hand side is a large error of its integral, except at the
    steps. Then ``between`` has the coefficients of the polynomial through the states.
    """

    left: float
    step: float
    right: float
    coefficients: Array
    between: Array | None = None


def piece_integral(piece: Piece, kernel: ExponentialKernel, tau: Array, columns: Any) -> Array:
    r"""Contribution of a piece to the integral at times after its left end, shape (len(tau), columns)."""
    coefficients = piece.coefficients[:, columns]
    result = np.empty((tau.size, coefficients.shape[1]), coefficients.dtype)
    count = len(coefficients)
    far = tau - piece.right >= piece.step
    if far.any():  # the kernel is smooth there, and powers about a distant point would lose digits
        distance = (tau[far] - piece.right)[:, np.newaxis] + piece.step * _POINTS
        values = _POINTS[:, np.newaxis] ** np.arange(count) @ coefficients
        result[far] = (kernel.exact(distance) * (_WEIGHTS * piece.step)) @ values
    if not far.all():
        shift = ((tau[~far] - piece.right) / piece.step)[:, np.newaxis]
        near, end = np.maximum(shift, 0.0), ((tau[~far] - piece.left) / piece.step)[:, np.newaxis]
        integrals = end ** np.arange(count) * kernel.integrals(end[:, 0] * piece.step, count)
        if (later := near[:, 0] > 0.0).any():
            integrals[later] -= near[later] ** np.arange(count) * kernel.integrals(near[later, 0] * piece.step, count)
        # Horner's scheme for the coefficients of p(x - shift).
        moved = np.repeat(coefficients[np.newaxis], len(shift), axis=0)
        for start in range(count - 1):
            for q in range(count - 2, start - 1, -1):
                moved[:, q] -= shift * moved[:, q + 1]
        result[~far] = np.einsum("tq,tqn->tn", integrals, moved)
    return result


class Continuation(NamedTuple):
    """The solution over the last of several pieces, from the states before the first one.

    Attributes
    ----------
    groups : sequence of (float, index)
        Orders and the components that have them.
    snapshots : sequence of Snapshot
        One for each group, at the start of the first piece.
    origin : float
        The start of the first piece.
    pieces : sequence of Piece
        At least two unless the first starts at 0, because the sum of exponentials is accurate only one step away.
    start : callable
        The polynomial of the initial values.
    """

    groups: Sequence[tuple[float, Any]]
    snapshots: Sequence[Snapshot]
    origin: float
    pieces: Sequence[Piece]
    start: Any

    def __call__(self, tau: Array) -> Array:
        """Flat states at these times, which lie in the last piece; shape (len(tau), n)."""
        last = self.pieces[-1]
        if last.between is not None:
            x = (last.right - tau) / last.step
            return np.asarray(x[:, np.newaxis] ** np.arange(len(last.between)) @ last.between)
        total = np.stack([self.start(float(time)) for time in tau])
        for (_, which), snapshot in zip(self.groups, self.snapshots, strict=True):
            part = np.zeros_like(total[:, which])
            if self.origin > 0.0:
                part += snapshot.history(tau - self.origin)[:, : part.shape[1]]
            for piece in self.pieces:
                part += piece_integral(piece, snapshot.kernel, tau, which)
            total[:, which] += part
        return total


def interpolate(step: Any, trial: Any, tolerance: Array) -> tuple[Array | None, Array, float]:
    """The solution over a step: the method's integral, or a polynomial through the states if that is more accurate.

    What the polynomial of the right-hand side omits is 0 at the steps, so that its integral up to a time between them
    is larger than up to the end: many times so for small orders. If the equation is stiff, the implicit solve damps
    the error at the end as well, and the states are smooth: of the polynomials through the newest 2, 3, ... of them
    the one with the smallest next term is used.

    Returns the coefficients in powers of x, None for the integral; the error between the steps beyond that at the end;
    and the power of the step with which it decreases. ``step`` is an ``AdaptiveStep``, and ``trial`` its ``Trial``.
    """
    rules, rows, system = trial.rules, len(trial.terms), step.system
    defect = min(trial.degree + 1, rows - 1)
    omitted = defect if trial.each is None else np.minimum(trial.each + 1, rows - 1)
    own = np.abs(trial.terms[defect])
    for (_, which), memory in zip(system.groups, step.memories, strict=True):
        tables = memory.tables(trial.step)
        bulges, inner = make_bulges(trial.points, tables.profile, tables.between)
        own[which] *= bulges[omitted] - (not system.stiff)
    best: tuple[Array | None, Array, float] = (None, own, defect + step.least)
    if not system.stiff:
        return best
    states = np.stack([trial.y, *step.states])
    least = system.measure(own, tolerance, 0.0)[0]
    for points in range(2, min(rows, len(states))):
        error = inner[points] * np.abs(rules.differences[points, : points + 1] @ states[: points + 1])
        ratio = system.measure(error, tolerance, 0.0)[0]
        if ratio < least:
            least, part = ratio, slice(0, points)
            coefficients = rules.polynomials[part, part].T @ rules.differences[part]
            best = coefficients[:, part] @ states[part], error, float(points)
    return best


class PieceStore:
    """The steps of a solve, from which its state at any time is integrated.

    Parameters
    ----------
    system : FlatSystem
        The equation.
    """

    def __init__(self, system: FlatSystem) -> None:
        self._system = system
        self._pieces: list[Piece] = []
        self.rights: list[float] = []
        self._kept: list[list[Snapshot]] = []

    def add(self, piece: Piece, before: list[Snapshot]) -> None:
        """Add a step and the states before it."""
        if len(self._pieces) % _EVERY == 0:
            self._kept.append(before)
        self._pieces.append(piece)
        self.rights.append(piece.right)

    def state(self, tau: float) -> Array:
        """The flat state at one time."""
        if not self._pieces or tau == 0.0:
            return np.asarray(self._system.start(0.0), self._system.dtype)
        index = min(bisect.bisect_left(self.rights, tau), len(self._pieces) - 1)
        return np.asarray(self.continuation(index)(np.array([tau]))[0])

    def continuation(self, index: int) -> Continuation:
        """The solution over a step."""
        # At least one full step between the states and the time, unless they are the initial states.
        block = max(index - 1, 0) // _EVERY
        first = block * _EVERY
        pieces = self._pieces[first : index + 1]
        return Continuation(self._system.groups, self._kept[block], pieces[0].left, pieces, self._system.start)

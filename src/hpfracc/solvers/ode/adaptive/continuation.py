"""The solution between the steps: the method's own integral, evaluated anywhere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from hpfracc.solvers.ode.adaptive.memory import Snapshot

__all__ = ["Continuation", "Piece", "piece_integral"]

Array = np.ndarray[Any, Any]

_POINTS, _WEIGHTS = special.roots_legendre(14)
_POINTS, _WEIGHTS = 0.5 * (_POINTS + 1.0), 0.5 * _WEIGHTS


@dataclass(frozen=True, slots=True)
class Piece:
    """The right-hand side over one step: a polynomial in ``x = (right - t)/step``, ``coefficients[q]`` that of x^q.

    Where the equation is stiff, a small error of the right-hand side is a large one of its integral (at the steps the
    two balance): there ``between`` holds the coefficients of the polynomial through the states instead.
    """

    left: float
    step: float
    right: float
    coefficients: Array
    between: Array | None = None


def piece_integral(piece: Piece, alpha: float, tau: Array, columns: Any) -> Array:
    r"""What a piece adds to the fractional integral at times after its left end, shape (len(tau), columns)."""
    coefficients = piece.coefficients[:, columns]
    result = np.empty((tau.size, coefficients.shape[1]), coefficients.dtype)
    far = tau - piece.right >= piece.step
    if far.any():  # smooth there, and powers about a distant point would lose digits
        distance = (tau[far] - piece.right)[:, np.newaxis] + piece.step * _POINTS
        values = _POINTS[:, np.newaxis] ** np.arange(len(coefficients)) @ coefficients
        kernel = distance ** (alpha - 1.0) * (_WEIGHTS * piece.step / math.gamma(alpha))
        result[far] = kernel @ values
    for index in np.flatnonzero(~far):
        shift = (tau[index] - piece.right) / piece.step
        near, end = max(shift, 0.0), (tau[index] - piece.left) / piece.step
        powers = alpha + np.arange(len(coefficients))
        integrals = (end**powers - near**powers) / powers
        moved = _moved(coefficients, -shift)
        result[index] = (piece.step**alpha / math.gamma(alpha)) * (integrals @ moved)
    return result


def _moved(coefficients: Array, shift: float) -> Array:
    """Coefficients of ``p(x + shift)``, by Horner's scheme."""
    moved = coefficients.copy()
    degree = len(moved) - 1
    for start in range(degree):
        for q in range(degree - 1, start - 1, -1):
            moved[q] = moved[q] + shift * moved[q + 1]
    return moved


@dataclass(frozen=True, slots=True)
class Continuation:
    """The solution over the last of some pieces, from the states before the first of them.

    Attributes
    ----------
    groups : sequence of (float, index)
        Orders and the components that have them.
    snapshots : sequence of Snapshot
        One for each group, of the time at which the first piece begins.
    origin : float
        That time.
    pieces : sequence of Piece
        Two or more unless the first begins at 0: the sum of exponentials holds a step away from its time.
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
        for (alpha, which), snapshot in zip(self.groups, self.snapshots, strict=True):
            part = np.zeros_like(total[:, which])
            if self.origin > 0.0:
                part += snapshot.history(tau - self.origin)[:, : part.shape[1]]
            for piece in self.pieces:
                part += piece_integral(piece, alpha, tau, which)
            total[:, which] += part
        return total

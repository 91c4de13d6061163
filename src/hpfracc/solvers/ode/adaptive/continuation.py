"""The solution between the steps: the method's integral, evaluated at any time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from hpfracc.history.states import Snapshot

__all__ = ["Continuation", "Piece", "piece_integral"]

Array = np.ndarray[Any, Any]

_POINTS, _WEIGHTS = special.roots_legendre(14)
_POINTS, _WEIGHTS = 0.5 * (_POINTS + 1.0), 0.5 * _WEIGHTS


@dataclass(frozen=True, slots=True)
class Piece:
    """The right-hand side over one step: a polynomial in ``x = (right - t)/step``, ``coefficients[q]`` that of x^q.

    If the equation is stiff, a small error of the right-hand side is a large error of its integral, except at the
    steps. Then ``between`` has the coefficients of the polynomial through the states.
    """

    left: float
    step: float
    right: float
    coefficients: Array
    between: Array | None = None


def piece_integral(piece: Piece, alpha: float, tau: Array, columns: Any) -> Array:
    r"""Contribution of a piece to the fractional integral at times after its left end, shape (len(tau), columns)."""
    coefficients = piece.coefficients[:, columns]
    result = np.empty((tau.size, coefficients.shape[1]), coefficients.dtype)
    far = tau - piece.right >= piece.step
    if far.any():  # the kernel is smooth there, and powers about a distant point would lose digits
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
        for (alpha, which), snapshot in zip(self.groups, self.snapshots, strict=True):
            part = np.zeros_like(total[:, which])
            if self.origin > 0.0:
                part += snapshot.history(tau - self.origin)[:, : part.shape[1]]
            for piece in self.pieces:
                part += piece_integral(piece, alpha, tau, which)
            total[:, which] += part
        return total

"""History sums with weights that depend on the distance alone, by transforms of blocks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hpfracc.solvers.ode.fixed.history import History

__all__ = ["TRANSFORMS_FROM", "ToeplitzHistory"]

Array = np.ndarray[Any, Any]

#: Number of steps from which transforms are faster than products of blocks; a guess, not measured.
TRANSFORMS_FROM = 2048
#: Steps whose mutual contributions are summed directly.
_BLOCK = 128


class ToeplitzHistory:
    """``h_n = sum_{k<n} b[n - k] x_k``, completed block by block with the history sums of the ODE solvers.

    Parameters
    ----------
    weights : numpy.ndarray
        The weights b, from distance 0 on.
    steps : int
        Number of steps.
    like : numpy.ndarray
        A state with the shape and dtype of the x.
    """

    name = "fft"

    def __init__(self, weights: Array, steps: int, like: Array) -> None:
        self._shape, self._complex = like.shape, like.dtype.kind == "c"
        rows = math.prod(self._shape) * (2 if self._complex else 1)
        self._weights = weights
        # x_k has index k - 1 and h_n has index n - 1, so that the distance is the same.
        self._values = np.zeros((rows, steps))
        self._sums = np.zeros((1, rows, steps))
        self._history = History(weights[None, None, :], None, self._values, self._sums, _BLOCK)
        self._known = 0

    def begin(self, n: int) -> tuple[float, Any]:
        """The weight of the newest x, and the sum over the earlier ones; None for the first step."""
        first = (n - 1) // _BLOCK * _BLOCK
        if n == 1:
            return float(self._weights[0]), None
        total = self._sums[0, :, n - 1]
        if n - 1 > first:
            total = total + self._values[:, first : n - 1] @ self._weights[n - 1 - first : 0 : -1]
        flat = np.ascontiguousarray(total)
        flat = flat.view(np.complex128) if self._complex else flat
        return float(self._weights[0]), flat.reshape(self._shape)

    def remember(self, x: Array) -> None:
        """Append the newest x."""
        flat = np.ascontiguousarray(x).reshape(-1)
        self._values[:, self._known] = flat.view(np.float64) if self._complex else flat
        self._known += 1
        if self._known % _BLOCK == 0 and self._known < self._values.shape[1]:
            self._history.complete(self._known)

    @staticmethod
    def forecast(steps: int, size: int) -> int:
        """Bytes for a state of ``size`` bytes: values, sums, and the transforms of the longest block."""
        return 5 * steps * size

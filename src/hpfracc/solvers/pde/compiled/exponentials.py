"""The update of a sum of exponentials, in one pass over its states."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

__all__ = ["update"]

Array = np.ndarray[Any, Any]

#: Points whose sums stay in the L1 cache during the loop over all exponentials.
_POINTS = 512


def update(states: Array, decay: Array, p: Array, q: Array | None, g: Array, x: Array, y: Array | None) -> Array:
    """``states <- decay states + p x + q y``; returns ``g . states``. Reads and writes each state once."""
    found = np.empty(states.shape[1])
    if y is None:
        _one_input(states, decay, p, g, x, found)
    else:
        _two_inputs(states, decay, p, q, g, x, y, found)
    return found


@njit(cache=True, fastmath={"contract"}, nogil=True)
def _one_input(states: Array, decay: Array, p: Array, g: Array, x: Array, found: Array) -> None:
    terms, points = states.shape
    for start in range(0, points, _POINTS):
        stop = min(points, start + _POINTS)
        total = found[start:stop]
        total[:] = 0.0
        here = x[start:stop]
        for j in range(terms):
            row = states[j, start:stop]
            a, b, c = decay[j], p[j], g[j]
            for i in range(stop - start):
                s = a * row[i] + b * here[i]
                row[i] = s
                total[i] += c * s


@njit(cache=True, fastmath={"contract"}, nogil=True)
def _two_inputs(states: Array, decay: Array, p: Array, q: Array, g: Array, x: Array, y: Array, found: Array) -> None:
    terms, points = states.shape
    for start in range(0, points, _POINTS):
        stop = min(points, start + _POINTS)
        total = found[start:stop]
        total[:] = 0.0
        here, there = x[start:stop], y[start:stop]
        for j in range(terms):
            row = states[j, start:stop]
            a, b, c, d = decay[j], p[j], g[j], q[j]
            for i in range(stop - start):
                s = a * row[i] + b * here[i] + d * there[i]
                row[i] = s
                total[i] += c * s

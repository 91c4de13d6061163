"""Steps of L1 and L2-1sigma: many of them for a few modes at a time, and the update of a sum of exponentials.

Each mode is an independent equation, so the states of a few modes stay in the L1 cache over many steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

Array = np.ndarray[Any, Any]

#: Modes processed together: their rows for all steps of a block fit the nearer caches.
_WIDE = 512
#: Points whose sums stay in the L1 cache during the loop over all exponentials.
_POINTS = 512


@njit(cache=True, nogil=True, fastmath={"contract"})
def march_block(
    weights: Array, far: Array, past: Array, symbol: Array, known: Array, sigma: float, u: Array, out: Array
) -> None:
    """Make the steps of one block, each with a column of ``weights`` and a row of ``past``.

    Both may have further entries before those of the first step. ``far`` contains the contributions that are not in
    ``past``. Fills ``past`` and ``out``, and advances ``u``.
    """
    steps, modes = out.shape
    lead = past.shape[0] - steps
    for start in range(0, modes, _WIDE):
        stop = min(modes, start + _WIDE)
        v, lam = u[start:stop], symbol[start:stop]
        for i in range(steps):
            own = lead + i
            shift = weights[i, own] / sigma
            total = far[i, start:stop]
            for k in range(own):
                w = weights[i, k]
                line = past[k, start:stop]
                for m in range(stop - start):
                    total[m] += w * line[m]
            if known.shape[0]:
                row = known[min(i, known.shape[0] - 1), start:stop]
                for m in range(stop - start):
                    total[m] -= row[m]
            new, shown = past[own, start:stop], out[i, start:stop]
            for m in range(stop - start):
                # (shift u - total) / (shift - lam) - u
                change = (lam[m] * v[m] - total[m]) / ((shift - lam[m]) * sigma)
                new[m] = change
                v[m] += change
                shown[m] = v[m]


def update(states: Array, decay: Array, p: Array, q: Array | None, g: Array, x: Array, y: Array | None) -> Array:
    """``states <- decay states + p x + q y``; returns ``g . states``. Reads and writes each state once."""
    found = np.empty(states.shape[1])
    _update(states, decay, p, np.zeros_like(p) if q is None else q, g, x, x if y is None else y, found)
    return found


@njit(cache=True, fastmath={"contract"}, nogil=True)
def _update(states: Array, decay: Array, p: Array, q: Array, g: Array, x: Array, y: Array, found: Array) -> None:
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

"""Linear equations in their eigenfunctions: many steps of L1 or L2-1sigma at a time, a few modes at a time.

Each mode is an independent equation, so the states of a few modes stay in the L1 cache over many steps.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

__all__ = ["march_block", "weight_rows"]

Array = np.ndarray[Any, Any]

#: Modes processed together: their rows for all steps of a block fit the nearer caches.
_WIDE = 512
#: Ratio of half length to distance below which an interval's integrals are summed as a series, and its terms.
_FAR = 0.25
_TERMS = 14
_FOUR_TERMS = 0.01


@njit(cache=True, nogil=True)
def _series(alpha: float) -> Array:
    """Coefficients of the integrals of ``(1 + q y)^-alpha`` over [-1, 1], alone and times y, in powers of q^2."""
    found = np.empty((2, _TERMS))
    term = 1.0
    for place in range(_TERMS):
        j = 2 * place
        found[0, place] = term / (j + 1.0)
        term *= (alpha + j) / (j + 1.0)
        found[1, place] = term / (j + 3.0)
        term *= (alpha + j + 1.0) / (j + 2.0)
    return found


@njit(cache=True, nogil=True)
def _integrals(
    alpha: float, scale: float, series: Array, near: float, length: float, power: float, parabola: bool
) -> tuple[float, float]:
    """The mean of the kernel over an interval, and its moment; see ``history/intervals.py``.

    ``power`` is that of the distance of its midpoint, multiplied by the scale.
    """
    middle = near + 0.5 * length
    q = 0.5 * length / middle
    if q < _FAR:
        square = q * q
        # As many terms as the distance requires: q^(2 terms) is below rounding.
        terms = 4 if q < _FOUR_TERMS else 7 if q < 0.07 else _TERMS
        even, odd = series[0, terms - 1], series[1, terms - 1]
        for place in range(terms - 2, -1, -1):
            even = even * square + series[0, place]
            if parabola:
                odd = odd * square + series[1, place]
        return even * power, 0.5 * odd * q * power
    far = near + length
    one, two = 1.0 - alpha, 2.0 - alpha
    outer = math.exp(one * math.log(far))
    inner = math.exp(one * math.log(near)) if near > 0.0 else 0.0
    area = (outer - inner) / one
    if not parabola:
        return area * scale / length, 0.0
    lever = (outer * far - inner * near) / two
    return area * scale / length, (middle * area - lever) * scale / (length * length)


@njit(cache=True, nogil=True, fastmath={"contract"})
def _add_far(
    found: Array, powers: Array, series: Array, c: float, mesh: Array, n: int, newest: float, begin: int
) -> int:
    """Add the means over distant intervals, which come first, by four terms; returns where they end.

    The loop has no branch, so that the compiler can vectorise it.
    """
    low, high = begin, n - 1
    while low < high:  # the ratio of length to distance increases from interval to interval
        k = (low + high) // 2
        half = 0.5 * (mesh[k + 1] - mesh[k])
        if half < _FOUR_TERMS * ((mesh[n - 1] - mesh[k + 1]) + newest + half):
            low = k + 1
        else:
            high = k
    one, two, three, four = series[0, 0], series[0, 1], series[0, 2], series[0, 3]
    end = mesh[n - 1] + newest
    for k in range(begin, low):
        # The midpoint may lose a digit here, but q is small and enters as its square.
        q = 0.5 * (mesh[k + 1] - mesh[k]) / (end - 0.5 * (mesh[k + 1] + mesh[k]))
        square = q * q
        found[k - begin] += c * powers[k - begin] * (one + square * (two + square * (three + square * four)))
    return low


@njit(cache=True, nogil=True)
def weight_rows(
    coefficients: Array,
    alphas: Array,
    scales: Array,
    mesh: Array,
    sigma: float,
    parabola: bool,
    following: Array,
    pieces: bool,
    first: int,
    stop: int,
    begin: int,
    powers: Array,
) -> Array:
    """``A[n, k]`` as in :meth:`IntervalWeights.rows`, for the intervals from index ``begin`` on only.

    The columns are k - 1 = begin, begin + 1, ..., stop - 2. ``powers``, of shape (orders, rows, columns), are those of
    the distances of the midpoints: NumPy computes them ten times as fast as a compiled loop. ``following`` is that of
    :class:`IntervalWeights`. With ``pieces`` the lengths of the intervals do not increase throughout.
    """
    found = np.zeros((stop - first, stop - 1 - begin))
    for term in range(len(alphas)):
        alpha, c, scale = alphas[term], coefficients[term], scales[term]
        series = _series(alpha)
        for row in range(stop - first):
            n = first + row
            newest = mesh[n] - mesh[n - 1]
            if alpha == 1.0:
                found[row, n - 1 - begin] += c / newest
                continue
            mean, moment = _integrals(alpha, scale, series, 0.0, sigma * newest, 0.0, False)
            found[row, n - 1 - begin] += c * sigma * mean
            close = begin
            if not parabola and not pieces:
                close = _add_far(found[row], powers[term, row], series, c, mesh, n, sigma * newest, begin)
            for k in range(close, n - 1):
                tau = mesh[k + 1] - mesh[k]
                near = (mesh[n - 1] - mesh[k + 1]) + sigma * newest
                mean, moment = _integrals(alpha, scale, series, near, tau, powers[term, row, k - begin], parabola)
                found[row, k - begin] += c * mean
                if parabola:
                    b = c * moment * 2.0 * tau / (tau + following[k])
                    found[row, k - begin] -= b
                    found[row, k + 1 - begin] += b * tau / following[k]
    return found


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

"""Sine series of many rows at once, by one complex Fourier transform per pair of rows.

SciPy's sine transform extends a row to twice its length. Here two rows share a transform of the single length, of
``sin(pi k / n) (c_k + c_(n-k)) + (c_k - c_(n-k)) / 2``: the imaginary part gives the values at even points, the real
part the differences between neighbouring odd points. These are accumulated from a few odd points whose values are
summed directly, so that rounding errors do not grow with the length.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import scipy.fft
from numba import njit

__all__ = ["sine_values"]

Array = np.ndarray[Any, Any]


#: Number of odd points between two that are summed directly.
_APART = 64


def sine_values(c: Array, out: Array) -> None:
    """``out[i, j] = sum_k c[i, k] sin(pi (j + 1) (k + 1) / n) / n`` with n = points + 1, as SciPy's ``idst``.

    Parameters
    ----------
    c : numpy.ndarray
        Coefficients of shape (rows, points), float64.
    out : numpy.ndarray
        Output array of the same shape; rows need not be contiguous.
    """
    rows, points = c.shape
    n = points + 1
    sines, places, table = _tables(n)
    packed = np.empty(((rows + 1) // 2, n), np.complex128)
    _pack(c, sines, packed)
    _unpack(scipy.fft.fft(packed, axis=-1, overwrite_x=True), places, c @ table, out)


@functools.lru_cache(maxsize=8)
def _tables(n: int) -> tuple[Array, Array, Array]:
    """The factors of the sums, the odd points whose values are summed directly, and their sines."""
    count = n // 2
    pieces = -(-count // _APART)
    places = (2 * np.arange(pieces) + 1) * count // (2 * pieces)
    period = np.sin(np.pi / n * np.arange(2 * n)) / n  # reducing the angle of a large product would lose digits
    return period[:n].copy(), places, period[np.outer(np.arange(1, n), 2 * places + 1) % (2 * n)]


@njit(cache=True, nogil=True, fastmath={"contract"})
def _pack(c: Array, sines: Array, packed: Array) -> None:
    """The sequence of each row, with two rows packed into a complex one."""
    rows, points = c.shape
    n = points + 1
    half = 0.5 / n
    for pair in range(packed.shape[0]):
        one = c[2 * pair]
        two = c[min(2 * pair + 1, rows - 1)]
        row = packed[pair]
        row[0] = 0.0
        for k in range(1, n // 2 + 1):  # together with its mirror image, itself in the middle
            a, b = one[k - 1], one[n - k - 1]
            p, q = two[k - 1], two[n - k - 1]
            w = sines[k]
            even, odd = w * (a + b), half * (a - b)
            also, less = w * (p + q), half * (p - q)
            row[k] = complex(even + odd, also + less)
            row[n - k] = complex(even - odd, also - less)


@njit(cache=True, nogil=True, fastmath={"contract"})
def _unpack(found: Array, places: Array, values: Array, out: Array) -> None:
    """Values at even points directly; at the odd points 2 m + 1 from the nearest ``m`` in ``places``."""
    rows, points = out.shape
    n = points + 1
    count = n // 2
    for pair in range(found.shape[0]):
        z = found[pair]
        last = min(2 * pair + 1, rows - 1)
        one, two = out[2 * pair], out[last]
        for piece in range(len(places)):
            place = places[piece]
            low = 0 if piece == 0 else (places[piece - 1] + place) // 2 + 1
            high = count - 1 if piece + 1 == len(places) else (place + places[piece + 1]) // 2
            # S_2m directly; S_(2m+1) = S_(2m-1) + R_m, upwards and downwards.
            p, q = values[2 * pair, piece], values[last, piece]
            two[2 * place], one[2 * place] = q, p
            for m in range(place + 1, high + 1):
                x, y = z[m], z[n - m]
                p += 0.5 * (x.real + y.real)
                q += 0.5 * (x.imag + y.imag)
                two[2 * m - 1], one[2 * m - 1] = 0.5 * (x.real - y.real), 0.5 * (y.imag - x.imag)
                two[2 * m], one[2 * m] = q, p
            p, q = values[2 * pair, piece], values[last, piece]
            for m in range(place, max(low, 1) - 1, -1):
                x, y = z[m], z[n - m]
                p -= 0.5 * (x.real + y.real)
                q -= 0.5 * (x.imag + y.imag)
                two[2 * m - 1], one[2 * m - 1] = 0.5 * (x.real - y.real), 0.5 * (y.imag - x.imag)
                if m > low:
                    two[2 * m - 2], one[2 * m - 2] = q, p
        if n % 2:  # the last point is an even one
            x, y = z[count], z[n - count]
            two[points - 1], one[points - 1] = 0.5 * (x.real - y.real), 0.5 * (y.imag - x.imag)

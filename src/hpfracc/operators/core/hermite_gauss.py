"""Discrete Hermite-Gauss vectors: the common eigenvectors of the Fourier matrix and of an almost tridiagonal matrix.

C. Candan, M. A. Kutay, H. M. Ozaktas, IEEE Trans. Signal Process. 48 (2000) 1329-1337. The second difference plus its
own Fourier transform commutes with the Fourier matrix. Even and odd vectors are two problems of half the size, each
tridiagonal without zeros next to the diagonal, so that its eigenvalues are distinct.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import linalg

from hpfracc.engine.execution.prepared import PreparedOperands
from hpfracc.errors import InvalidInputError

__all__ = ["MAX_POINTS", "HermiteGauss", "hermite_gauss", "kept_vectors"]

#: Longest signal: its two matrices take a quarter of a gigabyte, so that the cache has room for them.
MAX_POINTS = 1 << 13
#: Cache of vectors, limited in bytes: those for 8,192 points and some shorter ones fit.
kept_vectors = PreparedOperands(384 * 2**20)


class HermiteGauss(NamedTuple):
    """Vectors as columns, on the folded axis, and the number of zeros of each.

    ``even`` acts on ``[x_0, (x_j + x_-j)/sqrt(2), ..., x_{N/2} if N is even]``, ``odd`` on ``(x_j - x_-j)/sqrt(2)``.
    """

    even: np.ndarray[Any, Any]
    odd: np.ndarray[Any, Any]
    even_index: np.ndarray[Any, Any]
    odd_index: np.ndarray[Any, Any]


def hermite_gauss(n: int) -> HermiteGauss:
    """The vectors for ``n`` points; cached and read-only."""
    if n > MAX_POINTS:
        raise InvalidInputError(
            f"method='eigen' with {n:,} points needs matrices of {4 * n * n / 2**30:.1f} GiB; use method='chirp', or "
            f"at most {MAX_POINTS:,} points"
        )
    found: HermiteGauss = kept_vectors.get(n, lambda: _make(n))
    return found


def _make(n: int) -> HermiteGauss:
    half = n // 2
    cosines = 2.0 * np.cos(2.0 * np.pi * np.arange(half + 1) / n)
    if n % 2:
        even, odd = cosines.copy(), cosines[1:].copy()
        if half:  # the last point is adjacent to its own mirror image
            even[-1] += 1.0
            odd[-1] -= 1.0
    else:
        even, odd = cosines.copy(), cosines[1:half].copy()
    beside = np.ones(max(0, even.size - 1))
    beside[:1] *= np.sqrt(2.0)
    if n % 2 == 0:
        beside[-1:] *= np.sqrt(2.0)
    # Sorted by number of zeros, i.e. by decreasing eigenvalue; for even N the Fourier matrix has no vector N - 1.
    found = HermiteGauss(
        _vectors(even, beside),
        _vectors(odd, np.ones(max(0, odd.size - 1))),
        2.0 * np.arange(even.size),
        2.0 * np.arange(odd.size) + 1.0,
    )
    for array in found:
        array.setflags(write=False)
    return found


def _vectors(diagonal: np.ndarray[Any, Any], beside: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if diagonal.size == 0:
        return np.zeros((0, 0))
    return np.ascontiguousarray(linalg.eigh_tridiagonal(diagonal, beside)[1][:, ::-1])

"""The transforms of a spectral multiplication as they are defined, in extended precision."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["along", "inverse_matrix", "transform_matrix", "whole_symbol"]


def whole_symbol(half: np.ndarray[Any, Any], n: int, turns: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """All frequencies from those that are not negative along the last of ``turns``, by Hermitian symmetry."""
    axis = turns[-1]
    tail = np.conj(np.take(half, range(n - n // 2 - 1, 0, -1), axis=axis))
    for other in turns[:-1]:
        if half.ndim >= -other:
            tail = np.roll(np.flip(tail, other), 1, other)
    return np.concatenate([half, tail], axis=axis)


def along(x: np.ndarray[Any, Any], axis: int, matrix: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.moveaxis(np.matmul(np.moveaxis(x, axis, -1), matrix.T), -1, axis)


def transform_matrix(kind: str, n: int) -> np.ndarray[Any, Any]:
    """``M[k, j]`` of the transform."""
    pi = np.arccos(np.longdouble(-1))
    j = np.arange(n, dtype=np.longdouble)
    k = j[:, None]
    if kind == "fft":
        return np.asarray(np.exp(-2j * pi * ((k * j) % max(n, 1)) / max(n, 1)))
    if kind == "dct1":
        ends = np.where((j == 0) | (j == n - 1), 1, 2)
        return np.asarray(ends * np.cos(pi * k * j / max(n - 1, 1)))
    if kind == "dct2":
        return np.asarray(2 * np.cos(pi * k * (j + 0.5) / max(n, 1)))
    if kind == "dst1":
        return np.asarray(2 * np.sin(pi * (k + 1) * (j + 1) / (n + 1)))
    return np.asarray(2 * np.sin(pi * (k + 1) * (j + 0.5) / max(n, 1)))


def inverse_matrix(kind: str, n: int) -> np.ndarray[Any, Any]:
    """``M[j, k]`` of the way back: the transposed, by the lengths of its columns."""
    forward = transform_matrix(kind, n)
    if kind == "fft":
        return forward.conj().T / max(n, 1)
    if kind == "dct1":
        return forward / (2 * max(n - 1, 1))
    # Rows of a cosine or sine matrix are orthogonal.
    return np.asarray(forward.T / (forward * forward).sum(axis=1))

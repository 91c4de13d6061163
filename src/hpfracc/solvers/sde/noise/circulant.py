"""Stationary Gaussian sequences by circulant embedding, and Toeplitz products by the same transforms.

The covariance matrix of n steps of a stationary sequence is a block of a circulant matrix of size 2 m, m >= n. Its
eigenvalues are the Fourier transform of its first row: the autocovariance up to lag m, mirrored. If none is negative,
the sequence is drawn exactly, by one FFT of independent normal numbers [1].

References
----------
1. R. B. Davies, D. S. Harte, "Tests for Hurst effect", Biometrika 74, 1987; A. T. A. Wood, G. Chan, "Simulation of
   stationary Gaussian processes in [0, 1]^d", J. Comput. Graph. Statist. 3, 1994.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import fft

from hpfracc._arrays import is_tracer, library_of, tracks_gradient
from hpfracc._xp import NUMPY, Namespace, array_namespace, namespace_of
from hpfracc.errors import InvalidInputError
from hpfracc.solvers.sde.noise.source import RandomSource

__all__ = [
    "autocovariance",
    "eigenvalues",
    "kept_weights",
    "multiply",
    "noise_weights",
    "refuse_negative",
    "sample",
    "solve",
    "to_weights",
    "transform",
]

#: Maximum number of conjugate gradient iterations; with the preconditioner 10 to 30 are enough.
_MAX_STEPS = 200
_FLOAT32, _COMPLEX64, _COMPLEX128 = np.dtype(np.float32), np.dtype(np.complex64), np.dtype(np.complex128)
#: Points of a row that one GPU program sums.
_LONGEST_ROW = 8192


def eigenvalues(covariance: Any) -> Any:
    """The m + 1 distinct eigenvalues of the circulant matrix with lags 0 to m of ``covariance``."""
    xp = namespace_of(covariance)
    return xp.fft.rfft(xp.concatenate([covariance, xp.flip(covariance[1:-1])])).real


def refuse_negative(values: Any, words: str) -> None:
    """Raise an error if an eigenvalue is negative, so that there is no embedding. Nothing is clipped."""
    if is_tracer(values):
        return
    least = float(array_namespace(values).stop_gradient(values).min())
    if not least >= 0:
        raise InvalidInputError(
            f"the circulant embedding for {words} has the eigenvalue {least:.3g}; use method='cholesky' (up to 4,096 "
            "points), or fewer points"
        )


def to_weights(values: Any) -> Any:
    """Standard deviations of the interleaved real and imaginary parts of the transform of a real sequence.

    The first and the last frequency are real.
    """
    size = 2 * (values.shape[0] - 1)
    xp = namespace_of(values)
    factors = np.ones((values.shape[0], 2))
    factors[[0, -1]] = math.sqrt(2.0), 0.0
    return (xp.sqrt(values * (0.5 * size))[:, None] * xp.asarray(factors, like=values)).reshape(-1)


def sample(source: RandomSource, weights: Any, n: int, count: int, *, stream: int = 0, sums: bool = False) -> Any:
    """``n`` steps for each of ``count`` paths, or their sums from 0 on (``n + 1`` points).

    ``weights`` are those of :func:`to_weights`, in double precision; tensors and JAX arrays may have a gradient.
    """
    if source.library == "numpy":
        return _sample_numpy(source, np.asarray(weights), n, count, stream, sums)
    own = weights if library_of(weights) == source.library else source.array(weights)
    xp = array_namespace(own)
    # The scale is applied to the weights, which saves a pass over the sequences.
    own = xp.astype(own, source.dtype) / (weights.shape[0] - 2)
    if source.library == "torch" and not tracks_gradient(own):
        return _sample_torch(source, own, n, count, stream, sums)
    parts = [
        _steps(xp, own, source.numbers(low, high - low, weights.shape[0], stream=stream), n, sums)
        for low, high in source.chunks(count, 2 * weights.shape[0])
    ]
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return _steps(xp, own, source.numbers(0, 0, weights.shape[0], stream=stream), n, sums)
    return xp.concatenate(parts)


def _sample_torch(source: RandomSource, weights: Any, n: int, count: int, stream: int, sums: bool) -> Any:
    """Without derivatives: in place, into one result; by fused kernels in single precision on a GPU."""
    xp = array_namespace(weights)
    torch, size = xp.module, weights.shape[0]
    kernels = _fused_kernels() if weights.is_cuda and source.dtype == "float32" else None
    result = weights.new_empty((count, n + 1)) if kernels and sums else weights.new_zeros((count, n + sums))
    key = source.key_words(stream) if kernels else None
    for low, high in source.chunks(count, 2 * size):
        if kernels is None:
            normals = source.numbers(low, high - low, size, stream=stream).mul_(weights)
        else:
            first = source.first + low
            paths = torch.arange(first, first + high - low, device=weights.device)
            normals = kernels.scaled_normals(paths, key, weights)
        steps = torch.fft.irfft(xp.from_pairs(normals), n=size - 2, norm="forward")
        if sums and kernels is not None and n <= _LONGEST_ROW:
            kernels.sums_into(steps, n, result[low:high])
        elif sums:
            result[low:high, 0] = 0.0
            torch.cumsum(steps[:, :n], -1, out=result[low:high, 1:])
        else:
            result[low:high] = steps[:, :n]
    return result


def _fused_kernels() -> Any:
    """The kernels for single precision on a GPU, or None without Triton."""
    from hpfracc.engine.backends.registry import library_functions

    fused = library_functions("torch", "fused")
    return fused if fused.is_available() else None


def _steps(xp: Namespace, weights: Any, normals: Any, n: int, sums: bool) -> Any:
    steps = xp.fft.irfft(xp.from_pairs(normals * weights), n=normals.shape[1] - 2, norm="forward")[:, :n]
    if not sums:
        return steps + 0.0  # not a view of the longer sequence
    total = xp.cumsum(steps, -1)
    return xp.concatenate([xp.zeros_like(total[:, :1]), total], -1)


def _sample_numpy(source: RandomSource, weights: np.ndarray, n: int, count: int, stream: int, sums: bool) -> np.ndarray:
    own = weights.astype(np.float32) if source.dtype == "float32" else weights
    result = np.empty((count, n + sums), source.dtype)
    for low, high in source.chunks(count, weights.size):
        normals = source.numbers(low, high - low, weights.size, stream=stream)
        transform(normals, own, n, sums, result[low:high])
    return result


def transform(normals: np.ndarray, weights: np.ndarray, n: int, sums: bool, out: np.ndarray) -> None:
    """One or several rows of normal numbers into ``n`` steps each, or their sums from 0 on; overwrites its input."""
    normals *= weights
    # The default length is right; passing it explicitly takes 3 us.
    steps = fft.irfft(normals.view(_COMPLEX64 if normals.dtype == _FLOAT32 else _COMPLEX128), overwrite_x=True)
    if out.ndim == 1:  # one path: indexing with an ellipsis takes longer
        if sums:
            out[0] = 0.0
            np.add.accumulate(steps[:n], 0, None, out[1:])
        else:
            out[:] = steps[:n]
    elif sums:
        out[..., 0] = 0.0
        np.add.accumulate(steps[..., :n], -1, None, out[..., 1:])
    else:
        out[...] = steps[..., :n]


def multiply(values: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Multiply the rows of ``x`` by the Toeplitz matrix whose embedding has these eigenvalues."""
    n = x.shape[-1]
    size = 2 * (values.size - 1)
    product: np.ndarray = fft.irfft(fft.rfft(x, size, axis=-1) * values, size, axis=-1)[..., :n]
    return product


def solve(covariance: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Solve for the rows of ``x`` with the symmetric Toeplitz matrix that has this first row.

    Conjugate gradients, preconditioned by the nearest circulant matrix (T. Chan, 1988), which is positive definite if
    the Toeplitz matrix is.
    """
    n = covariance.size
    lags = np.arange(n)
    nearest = fft.rfft(((n - lags) * covariance + lags * np.roll(covariance[::-1], 1)) / n).real
    values = eigenvalues(np.append(covariance, covariance[-1]))

    def precondition(r: np.ndarray) -> np.ndarray:
        found: np.ndarray = fft.irfft(fft.rfft(r, axis=-1) / nearest, n, axis=-1)
        return found

    solution = np.zeros_like(x)
    residual = x.copy()
    direction = z = precondition(residual)
    rho = np.sum(residual * z, -1, keepdims=True)
    goal = 1e-30 * np.sum(x * x, -1, keepdims=True)
    for _ in range(min(_MAX_STEPS, 2 * n)):
        if np.all(np.sum(residual * residual, -1, keepdims=True) <= goal):
            break
        image = multiply(values, direction)
        scale = rho / np.maximum(np.sum(direction * image, -1, keepdims=True), np.finfo(float).tiny)
        solution = solution + scale * direction
        residual = residual - scale * image
        z = precondition(residual)
        rho, before = np.sum(residual * z, -1, keepdims=True), rho
        direction = z + rho / np.maximum(before, np.finfo(float).tiny) * direction
    return solution


#: From this lag on the series in 1/k^2 is used. The difference of powers loses digits like k^2: at n = 1e6 and H = 0.99
#: it would give 140,636 negative eigenvalues.
_FIRST = 4
_TERMS = 14


def autocovariance(hurst: Any, n: int, xp: Namespace = NUMPY) -> Any:
    r"""Lags 0 to n of fractional Gaussian noise with unit steps.

    .. math:: \gamma(k) = \tfrac12 \left(|k+1|^{2H} - 2 |k|^{2H} + |k-1|^{2H}\right)
        = k^{2H} \sum_{j \ge 1} \binom{2H}{2j} k^{-2j}.

    The relative error is at most 6e-14.
    """
    twice = 2.0 * hurst
    # In terms of powers minus 1, whose sums vanish at H = 1/2 without cancellation.
    two, three, four = (xp.expm1((twice - 1.0) * xp.array(np.log(base))) for base in (2.0, 3.0, 4.0))
    head = [1.0 + 0.0 * twice, two, 1.5 * three - 2.0 * two, 2.0 * four - 3.0 * three + two]
    head = [xp.array(value) if xp.library == "numpy" else value for value in head]
    near = xp.stack(head[: n + 1])
    if n < _FIRST:
        return near
    lags = np.arange(_FIRST, n + 1, dtype=np.float64)
    coefficients = [twice * (twice - 1.0) / 2.0]
    for j in range(1, _TERMS):
        factor = (twice - 2.0 * j) * (twice - (2.0 * j + 1.0)) / ((2.0 * j + 1.0) * (2.0 * j + 2.0))
        coefficients.append(coefficients[-1] * factor)
    inverse = xp.array(lags**-2.0)
    total = coefficients[-1] * inverse
    for coefficient in coefficients[-2:0:-1]:
        total = (total + coefficient) * inverse
    far = xp.power(lags, twice - 2.0) * (total + coefficients[0])
    return xp.concatenate([near, far])


def noise_weights(xp: Namespace, hurst: Any, n: int) -> Any:
    """Weights of :func:`sample` for ``n`` steps of fractional Gaussian noise."""
    values = eigenvalues(autocovariance(hurst, n, xp))
    refuse_negative(values, f"fractional Gaussian noise with n={n:,} steps and H={hurst}")
    return to_weights(values)


@lru_cache(maxsize=8)
def kept_weights(hurst: float, n: int, step: float) -> np.ndarray:
    """The weights for plain numbers and steps of length ``step``, cached."""
    weights: np.ndarray = noise_weights(NUMPY, hurst, n) * step**hurst
    weights.flags.writeable = False
    return weights

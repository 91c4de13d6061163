"""Stationary Gaussian sequences by circulant embedding or step by step, and Toeplitz products by the same transforms.

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
from typing import Any, final

import numpy as np
from scipy import fft

from hpfracc import _reading
from hpfracc._arrays import is_tracer, library_of, tracks_gradient
from hpfracc._xp import NUMPY, Namespace, array_namespace, namespace_of
from hpfracc.errors import InvalidInputError
from hpfracc.solvers.sde.noise.source import RandomSource

#: Maximum number of conjugate gradient iterations; with the preconditioner 10 to 30 are enough.
_MAX_STEPS = 200
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

    The first and the last frequency are real. The inverse transform is not scaled.
    """
    size = 2 * (values.shape[0] - 1)
    xp = namespace_of(values)
    factors = np.ones((values.shape[0], 2))
    factors[[0, -1]] = math.sqrt(2.0), 0.0
    return (xp.sqrt(values * (0.5 / size))[:, None] * xp.asarray(factors, like=values)).reshape(-1)


def sample(source: RandomSource, weights: Any, n: int, count: int, *, stream: int = 0, sums: bool = False) -> Any:
    """``n`` steps for each of ``count`` paths, or their sums from 0 on (``n + 1`` points).

    ``weights`` are those of :func:`to_weights`, in double precision; tensors and JAX arrays may have a gradient.
    """
    own = weights if library_of(weights) == source.library else source.array(weights)
    xp, size = array_namespace(own), weights.shape[0]
    own = xp.astype(own, source.dtype)
    if source.library == "torch" and own.is_cuda and source.dtype == "float32" and not tracks_gradient(own):
        kernels = _fused_kernels()
        if kernels is not None:
            return _by_kernels(kernels, source, own, n, count, stream, sums)

    def draw(part: RandomSource, rows: int) -> Any:
        return to_steps(xp, own, part.numbers(0, rows, size, stream=stream), n, sums)

    return source.in_chunks(count, size if source.library == "numpy" else 2 * size, draw)


def to_steps(xp: Namespace, weights: Any, normals: Any, n: int, sums: bool) -> Any:
    """Normal numbers along the last axis to ``n`` steps, or their sums from 0 on; overwrites its input."""
    normals *= weights
    steps = xp.fft.irfft(xp.from_pairs(normals), norm="forward")[..., :n]
    if not sums:
        return steps + 0.0  # not a view of the longer sequence
    if xp.library != "numpy":
        return xp.concatenate([xp.zeros_like(steps[..., :1]), xp.cumsum(steps, -1)], -1)
    total = np.zeros((*steps.shape[:-1], n + 1), steps.dtype)
    np.add.accumulate(steps, -1, None, total[..., 1:])
    return total


def _fused_kernels() -> Any:
    """The kernels for single precision on a GPU, or None without Triton."""
    from hpfracc.engine.backends.registry import library_functions

    fused = library_functions("torch", "fused")
    return fused if fused.is_available() else None


def _by_kernels(kernels: Any, source: RandomSource, weights: Any, n: int, count: int, stream: int, sums: bool) -> Any:
    """The same by fused kernels, into one result."""
    torch, size = source.xp.module, weights.shape[0]
    result, key, rows = weights.new_empty((count, n + sums)), source.key_words(stream), source.rows(2 * size)
    for low in range(0, count, rows):
        part = result[low : low + rows]
        first = source.first + low
        paths = torch.arange(first, first + part.shape[0], device=weights.device)
        steps = torch.fft.irfft(source.xp.from_pairs(kernels.scaled_normals(paths, key, weights)), norm="forward")
        if sums and n <= _LONGEST_ROW:
            kernels.sums_into(steps, n, part)
        elif sums:
            part[:, 0] = 0.0
            torch.cumsum(steps[:, :n], -1, out=part[:, 1:])
        else:
            part[:] = steps[:, :n]
    return result


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

    The relative error is at most 6e-14 for H from 0.02 on; below, the absolute one is at most 1e-15.
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


#: Streams of the normal numbers, one for each block of steps.
_STREAM, _BLOCK = 1 << 56, 64


@final
class HoskingStream:
    r"""Paths of fractional Brownian motion that can be continued at any time, exactly (Hosking's method [1]).

    Created by :meth:`~hpfracc.noise.FractionalBrownian.stream`. Given the earlier steps, the n-th step is normal,

    .. math:: x_n = \sum_{j=1}^{n} \varphi_{n,j}\,x_{n-j} + \sqrt{v_n}\,z_n,

    with the coefficients of the Durbin-Levinson recursion. The cost is O(n) per step: if the number of steps is known,
    :func:`hpfracc.fbm` is much faster.

    Attributes
    ----------
    time : float
        Time of the last value drawn, initially 0.
    steps : int
        Number of steps drawn.

    References
    ----------
    1. J. R. M. Hosking, "Modeling persistence in hydrological time series using fractional differencing", Water Resour.
       Res. 20, 1984.
    """

    def __init__(self, H: float, step: float, shape: tuple[int, ...], source: RandomSource) -> None:
        self._hurst, self._step, self._shape, self._source = H, step, shape, source
        self._count = math.prod(shape)
        self._last = np.zeros(self._count)
        self._past = np.empty((self._count, _BLOCK))
        self._coefficients = np.empty(0)
        self._variance = 1.0
        self._lags = autocovariance(H, _BLOCK)
        self._normals = np.empty((self._count, 0))
        self.steps = 0

    @property
    def time(self) -> float:
        """Time of the last value."""
        return self.steps * self._step

    def draw(self, count: int = 1) -> np.ndarray:
        r"""The next ``count`` values, shape ``(\*size, count)``; without the value at time 0, which is 0."""
        number = _reading.count("count", count, least=0)
        result = np.empty((self._count, number))
        for column in range(number):
            block, place = divmod(self.steps, _BLOCK)
            if place == 0:
                self._normals = self._source.numbers(0, self._count, _BLOCK, stream=_STREAM + block)
            self._last = self._last + self._step**self._hurst * self._next(self._normals[:, place])
            result[:, column] = self._last
        return result.reshape(*self._shape, number)

    def _next(self, normal: np.ndarray) -> np.ndarray:
        """The next step of size 1, from a normal number for each path."""
        n = self.steps
        if n >= self._past.shape[1]:
            self._past = np.concatenate([self._past, np.empty_like(self._past)], axis=1)
            self._lags = autocovariance(self._hurst, self._past.shape[1])
        if n:
            known = self._coefficients
            ahead = (self._lags[n] - known @ self._lags[n - 1 : 0 : -1]) / self._variance
            self._coefficients = np.append(known - ahead * known[::-1], ahead)
            self._variance *= (1.0 - ahead) * (1.0 + ahead)
        # The newest step comes first; a product and a sum for each path, in the same order for any batch.
        mean = np.sum(self._past[:, :n] * self._coefficients[::-1], axis=1)
        self._past[:, n] = step = mean + math.sqrt(self._variance) * normal
        self.steps = n + 1
        return np.asarray(step)

    def __repr__(self) -> str:
        return f"HoskingStream(H={self._hurst:g}, step={self._step:g}, size={self._shape}, steps={self.steps:,})"

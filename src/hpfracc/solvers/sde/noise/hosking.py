"""Fractional Brownian motion as a stream: the next values given all earlier ones, without a known end."""

from __future__ import annotations

import math
from typing import final

import numpy as np

from hpfracc import _reading
from hpfracc.solvers.sde.noise.circulant import autocovariance
from hpfracc.solvers.sde.noise.source import RandomSource

__all__ = ["HoskingStream"]

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

    def __init__(self, hurst: float, step: float, shape: tuple[int, ...], source: RandomSource) -> None:
        self._hurst, self._step, self._shape, self._source = hurst, step, shape, source
        self._count = math.prod(shape)
        self._last = np.zeros(self._count)
        self._past = np.empty((self._count, _BLOCK))
        self._coefficients = np.empty(0)
        self._variance = 1.0
        self._lags = autocovariance(hurst, _BLOCK)
        self._normals = np.empty((self._count, 0))
        self.steps = 0

    @property
    def time(self) -> float:
        """Time of the last value."""
        return self.steps * self._step

    def draw(self, count: int = 1) -> np.ndarray:
        r"""The next ``count`` values, shape ``(\*size, count)``; without the value at time 0, which is 0."""
        number = _reading.whole("count", count, least=0)
        result = np.empty((self._count, number))
        for column in range(number):
            self._last = self._last + self._step**self._hurst * self._next(self._normal())
            result[:, column] = self._last
        return result.reshape(*self._shape, number)

    def _normal(self) -> np.ndarray:
        block, place = divmod(self.steps, _BLOCK)
        if place == 0 or not self._normals.size:
            self._normals = self._source.numbers(0, self._count, _BLOCK, stream=_STREAM + block)
        return np.asarray(self._normals[:, place])

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
        step = mean + math.sqrt(self._variance) * normal
        self._past[:, n] = step
        self.steps = n + 1
        return np.asarray(step)

    def __repr__(self) -> str:
        return f"HoskingStream(H={self._hurst:g}, step={self._step:g}, size={self._shape}, steps={self.steps:,})"

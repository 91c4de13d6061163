"""The stationary fractional Ornstein-Uhlenbeck process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, final

import numpy as np
from scipy import special

from hpfracc.errors import InvalidInputError
from hpfracc.solvers.sde.noise import circulant
from hpfracc.solvers.sde.noise.process import MAX_POINTS, GaussianNoise, TimeGrid, plain_number, read_fields, read_hurst
from hpfracc.solvers.sde.noise.source import RandomSource

#: From this lag (in units of 1/theta) on the asymptotic series is used: its 12th term is below 1e-16 there.
_FAR = 30.0
_TERMS = 12
#: Number of points up to which a covariance matrix is cheaper than a larger embedding.
_FEW = 512
#: Maximum number of points of an embedding.
_MAX_EMBEDDED = 1 << 23


@final
@dataclass(frozen=True)
class FractionalOU(GaussianNoise):
    r"""The stationary solution of :math:`dX = -\theta X\,dt + \sigma\,dB^H`.

    .. math:: E\,X_s X_{s+u} = \frac{\sigma^2 H}{2 \theta^{2H}} \left[ v^{2H-1} \left({}_1F_1(1; 2H; -v) - 1\right)
        + e^{v}\,\Gamma(2H, v) + e^{-v}\,\Gamma(2H) \right], \qquad v = \theta u,

    which decays like :math:`v^{2H-2}` [1]: the process has long memory for H > 1/2.

    Parameters
    ----------
    H : float
        Hurst index, between 0 and 1.
    theta : float
        Rate of mean reversion.
    sigma : float
        Size of the noise.

    Notes
    -----
    On uniform grids from 0 on it is drawn exactly, by a circulant embedding of its covariance that is extended
    [2] until no eigenvalue is negative; on other grids by a factor of the covariance matrix.

    References
    ----------
    1. P. Cheridito, H. Kawaguchi, M. Maejima, "Fractional Ornstein-Uhlenbeck processes", Electron. J. Probab. 8,
       2003.
    2. T. Gneiting, H. Sevcikova, D. B. Percival, M. Schlather, Y. Jiang, "Fast and exact simulation of large
       Gaussian lattice systems in R^2", J. Comput. Graph. Statist. 15, 2006.

    Examples
    --------
    >>> from hpfracc import noise
    >>> process = noise.FractionalOU(0.7, theta=1.0, sigma=1.0)
    >>> round(float(process.covariance(0.0, 0.0)), 10)
    0.6210846723
    """

    H: Any
    theta: float = 1.0
    sigma: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "H", plain_number(read_hurst(self.H)))
        read_fields(self, "theta", "sigma")

    def covariance(self, s: Any, t: Any) -> np.ndarray:
        """``E X_s X_t``, for arrays that broadcast."""
        lags = self.theta * np.abs(np.asarray(t, float) - np.asarray(s, float))
        return np.asarray(self.sigma**2 * self.theta ** (-2.0 * self.H) * _parts(self.H, lags)[0])

    def _sample(self, source: RandomSource, grid: TimeGrid, count: int) -> Any:
        if grid.step is None:
            return self._by_cholesky(source, grid, count)
        points = grid.steps + 1
        weights = _embedding_weights(self.H, self.theta * grid.step, points)
        if weights is None or (points <= _FEW and weights.size > 2 * _FEW):
            if points > MAX_POINTS:
                raise InvalidInputError(
                    f"no circulant embedding of up to {_MAX_EMBEDDED:,} points without negative eigenvalues was found "
                    f"for {points:,} points of {self!r}; use at most {MAX_POINTS:,} points"
                )
            return self._by_cholesky(source, grid, count)
        return circulant.sample(source, weights * (self.sigma * self.theta**-self.H), points, count)


def _parts(hurst: float, lags: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The covariance with theta = sigma = 1, and its derivative at lags other than 0."""
    twice = 2.0 * hurst
    far = lags > _FAR
    v = np.where(far, 1.0, lags)
    # v^(2H-1) (1F1(1; 2H; -v) - 1), without the difference.
    kummer = -(v**twice) / twice * special.hyp1f1(1.0, twice + 1.0, -v)
    ahead = special.gamma(twice) * np.exp(v) * special.gammaincc(twice, v)
    behind = special.gamma(twice) * np.exp(-v)
    near = 0.5 * hurst * (kummer + ahead + behind)
    with np.errstate(divide="ignore"):
        near_slope = 0.5 * hurst * (ahead - 2.0 * v ** (twice - 1.0) - kummer - behind)
    w = np.where(far, lags, _FAR)
    total, slope, coefficient = np.zeros_like(w), np.zeros_like(w), 0.5
    for j in range(1, _TERMS + 1):
        coefficient *= (twice - (2 * j - 2)) * (twice - (2 * j - 1))
        term = coefficient * w ** (twice - 2.0 * j)
        total, slope = total + term, slope + (twice - 2.0 * j) * term / w
    return np.where(far, total, near), np.where(far, slope, near_slope)


@lru_cache(maxsize=8)
def _embedding_weights(hurst: float, step: float, points: int) -> np.ndarray | None:
    """Weights of the smallest embedding without negative eigenvalues, or None."""
    size = max(2, points)
    while size <= max(_MAX_EMBEDDED, points):
        for row in _rows(hurst, step, size):
            values = circulant.eigenvalues(row)
            if values.min() >= 0.0:
                weights: np.ndarray = circulant.to_weights(values)
                weights.flags.writeable = False
                return weights
        size *= 2
    return None


def _rows(hurst: float, step: float, size: int) -> Iterator[np.ndarray]:
    """First halves of circulant matrices with the covariance up to lag ``size``.

    The mirrored covariance has a kink at its end, which causes negative eigenvalues if the paths are smooth. A parabola
    that extends it with its slope and curvature avoids the kink.
    """
    lags = step * np.arange(size + 1.0)
    row = _parts(hurst, lags)[0]
    yield row
    end = lags[-1:]
    value, slope = (float(part[0]) for part in _parts(hurst, end))
    curvature = value - hurst * (2.0 * hurst - 1.0) * float(end[0]) ** (2.0 * hurst - 2.0)
    length = -slope / curvature if curvature else 0.0
    if 0.0 < length <= 4.0 * end[0]:
        more = max(1, round(length / step))
        rest = step * np.arange(more - 1.0, -1.0, -1.0)
        bend = -slope / (2.0 * more * step)
        yield np.concatenate([row, value + bend * (rest**2 - (more * step) ** 2)])

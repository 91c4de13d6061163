"""A process subordinated to an inverse stable subordinator: subdiffusion."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from scipy import special

from hpfracc.errors import InvalidInputError
from hpfracc.solvers.sde.noise.fractional_brownian import FractionalBrownian
from hpfracc.solvers.sde.noise.process import (
    MAX_POINTS,
    GaussianNoise,
    LevyNoise,
    Noise,
    TimeGrid,
    ordered_times,
    plain_number,
    read_fields,
)
from hpfracc.solvers.sde.noise.source import RandomSource
from hpfracc.solvers.sde.noise.stable import kanter


@final
@dataclass(frozen=True)
class Subordinated(Noise):
    r"""The process :math:`X_{E_t}`, with the inverse stable subordinator E of index ``alpha``, independent of X.

    With Brownian motion it is subdiffusion: the density of :math:`\sqrt{2} W_{E_t}` solves
    :math:`D_t^\alpha p = \partial_x^2 p`.

    Parameters
    ----------
    process : Noise
        A Levy process, or a Gaussian one (which needs a matrix for each path).
    alpha : float
        Index of the clock, between 0 and 1.

    References
    ----------
    1. M. M. Meerschaert, H.-P. Scheffler, "Limit theorems for continuous-time random walks with infinite mean
       waiting times", J. Appl. Probab. 41, 2004.

    Examples
    --------
    >>> import numpy as np
    >>> from hpfracc import noise
    >>> slow = noise.Subordinated(noise.Brownian(), 0.6)
    >>> slow.sample(np.linspace(0, 1, 11), size=4, rng=1).shape
    (4, 11)
    """

    _no_bridge: ClassVar[str | None] = (
        "its clock cannot be inferred from the path, and without it points depend on more than their neighbours"
    )

    process: LevyNoise | GaussianNoise
    alpha: float

    def __post_init__(self) -> None:
        if not isinstance(self.process, LevyNoise | GaussianNoise):
            raise InvalidInputError(
                f"process={self.process!r}: give a Levy process or a Gaussian one, such as Brownian()"
            )
        object.__setattr__(self, "alpha", InverseSubordinator(self.alpha).alpha)

    def covariance(self, s: Any, t: Any) -> np.ndarray:
        r"""Covariance of :math:`X_{E_s}` and :math:`X_{E_t}`, for arrays that broadcast.

        For a Levy process with mean m and variance v at time 1 it is :math:`v\,E\,E_{\min(s,t)} +
        m^2\,\mathrm{Cov}(E_s, E_t)`, for fractional Brownian motion
        :math:`\tfrac12 E (E_s^{2H} + E_t^{2H} - |E_t - E_s|^{2H})`.
        """
        if isinstance(self.process, LevyNoise):
            mean, variance = self.process._finite_moments(self)
            earlier = increment_moment(self.alpha, 1.0, 0.0, ordered_times(s, t)[0])
            # Avoids 0 times a value that may overflow.
            driven = mean**2 * InverseSubordinator(self.alpha).covariance(s, t) if mean else 0.0
            return np.asarray(variance * earlier + driven)
        if isinstance(self.process, FractionalBrownian) and self.process.kind == "fbm":
            power = 2.0 * plain_number(self.process.H)
            whole = [increment_moment(self.alpha, power, 0.0, time) for time in (s, t)]
            return np.asarray(0.5 * (whole[0] + whole[1] - increment_moment(self.alpha, power, s, t)))
        return super().covariance(s, t)

    def _sample(self, source: RandomSource, grid: TimeGrid, count: int) -> Any:
        def draw(part: RandomSource, rows: int) -> Any:
            clock = InverseSubordinator(self.alpha)._sample(part, grid, rows)
            if isinstance(self.process, GaussianNoise) and not isinstance(self.process, LevyNoise):
                return _gaussian(self.process, part, clock)
            return self.process._increments(part, np.diff(clock, prepend=0.0), rows).cumsum(-1)

        return source.array(source.on_host().in_chunks(count, 8 * grid.times.size, draw))


def _gaussian(process: GaussianNoise, source: RandomSource, clock: np.ndarray) -> np.ndarray:
    """Values at each path's own times; equal times have equal values."""
    normals = source.numbers(0, clock.shape[0], clock.shape[1])
    result = np.zeros(clock.shape)
    if clock.shape[1] > MAX_POINTS:
        raise InvalidInputError(
            f"{clock.shape[1]:,} times: {process!r} needs a matrix of that size for each path; use at most "
            f"{MAX_POINTS:,}"
        )
    for row, times, numbers in zip(result, clock, normals, strict=True):
        different, places = np.unique(times, return_inverse=True)
        random = process.covariance(different, different) > 0
        values = np.zeros(different.size)
        values[random] = process._factor(different[random]) @ numbers[: np.count_nonzero(random)]
        row[:] = values[places]
    return result


#: Attempts whose numbers are drawn together; each succeeds with a probability of 0.63 or more.
_ATTEMPTS = 12
#: Streams of passages, apart from those of the processes that the clock drives.
_STREAM = 1 << 40


@final
@dataclass(frozen=True)
class InverseSubordinator(Noise):
    r"""First passage times of a stable subordinator, :math:`E_t = \inf\{u : D_u > t\}`.

    The subordinator has :math:`E\,e^{-s D_u} = e^{-u s^\alpha}`. At one time :math:`E_t = (t/S)^\alpha` in law,
    with moments :math:`E\,E_t^k = k!\,t^{k\alpha}/\Gamma(1 + k\alpha)`.

    Parameters
    ----------
    alpha : float
        Between 0 and 1.

    Notes
    -----
    The joint law at all times is exact. Given the current value of the subordinator, its value before it passes the
    next time has a generalised arcsine law, the passage time given that value is a power of a tilted stable number [1],
    and the jump has a Pareto law; then the subordinator starts again.

    References
    ----------
    1. L. Devroye, "Random variate generation for exponentially and polynomially tilted stable distributions", ACM
       Trans. Model. Comput. Simul. 19, 2009; M. M. Meerschaert, H.-P. Scheffler, J. Appl. Probab. 41, 2004.
    2. M. Veillette, M. S. Taqqu, "Using differential equations to obtain joint moments of first-passage times of
       increasing Levy processes", Statist. Probab. Lett. 80, 2010.

    Examples
    --------
    >>> import numpy as np
    >>> from hpfracc import noise
    >>> clock = noise.InverseSubordinator(0.7).sample(np.linspace(0, 1, 11), rng=1)
    >>> bool(clock[0] == 0 and np.all(np.diff(clock) >= 0))
    True
    """

    _no_bridge: ClassVar[str | None] = "its path does not determine the value of the subordinator"

    alpha: float

    def __post_init__(self) -> None:
        read_fields(self, "alpha", below=1)

    def covariance(self, s: Any, t: Any) -> np.ndarray:
        r"""Covariance of :math:`E_s` and :math:`E_t`, for arrays that broadcast.

        For :math:`s \le t` it is [2]

        .. math:: \frac{s^{2\alpha}\,B(\alpha, \alpha+1) + t^{2\alpha}\,B_{s/t}(\alpha, \alpha+1)}
            {\Gamma(\alpha)\,\Gamma(\alpha+1)} - \frac{(s t)^\alpha}{\Gamma(\alpha+1)^2}.
        """
        alpha = self.alpha
        _, high, ratio = ordered_times(s, t)
        # B(a, a + 1) / (Gamma(a) Gamma(a + 1)) = 1 / Gamma(2 a + 1); its share is the regularised incomplete function.
        share = ratio ** (2.0 * alpha) + special.betainc(alpha, alpha + 1.0, ratio)
        less = ratio**alpha * special.rgamma(alpha + 1.0) ** 2
        return np.asarray(high ** (2.0 * alpha) * (special.rgamma(2.0 * alpha + 1.0) * share - less))

    def _sample(self, source: RandomSource, grid: TimeGrid, count: int) -> Any:
        def draw(part: RandomSource, rows: int) -> np.ndarray:
            place, clock, result = np.zeros(rows), np.zeros(rows), np.empty((rows, grid.times.size))
            for index, time in enumerate(grid.times.tolist()):
                due = np.flatnonzero(place < time)
                if due.size:
                    waited, moved = self._pass(part, due, time - place[due], _STREAM + index)
                    clock[due] += waited
                    place[due] += moved
                result[:, index] = clock
            return result

        return source.array(source.on_host().in_chunks(count, 16, draw))

    def _pass(self, host: RandomSource, paths: np.ndarray, distance: np.ndarray, stream: int) -> tuple[Any, Any]:
        """Time until each path passes its distance, and its value then."""
        alpha = self.alpha
        uniform = host.numbers_of(paths, 3 + 2 * _ATTEMPTS, kind="uniform", stream=stream)
        share = special.betaincinv(alpha, 1.0 - alpha, uniform[:, 0])
        # Towards 0 the share is a power that underflows, though its root does not.
        root = np.where(share > 1e-250, share**alpha, uniform[:, 0] * (math.pi * alpha / math.sin(math.pi * alpha)))
        left = distance * special.betaincinv(1.0 - alpha, alpha, 1.0 - uniform[:, 0])
        with np.errstate(over="ignore"):  # beyond all times
            jump = left * uniform[:, 1] ** (-1.0 / alpha)
        wait = special.gammaincinv(2.0 - alpha, uniform[:, 2])
        tilted = self._angles(host, paths, uniform[:, 3:], stream)
        return distance**alpha * root * wait ** (1.0 - alpha) / tilted, distance * share + jump

    def _angles(self, host: RandomSource, paths: np.ndarray, uniform: np.ndarray, stream: int) -> np.ndarray:
        """:func:`kanter` of u with the density proportional to its inverse, by rejection."""
        alpha = self.alpha
        least = (1.0 - alpha) ** (1.0 - alpha) * alpha**alpha
        found = np.empty(paths.size)
        waiting = np.arange(paths.size)
        further = 0
        while True:
            for k in range(0, uniform.shape[-1], 2):
                value = kanter(alpha, uniform[:, k])
                kept = uniform[:, k + 1] * value <= least
                found[waiting[kept]] = value[kept]
                waiting, uniform = waiting[~kept], uniform[~kept]
                if not waiting.size:
                    return found
            further += 1
            stream_of_more = stream + (further << 32)
            uniform = host.numbers_of(paths[waiting], 2 * _ATTEMPTS, kind="uniform", stream=stream_of_more)


def increment_moment(alpha: float, power: float, s: Any, t: Any) -> np.ndarray:
    r"""``E |E_t - E_s|^power`` of the inverse subordinator, for arrays that broadcast.

    After passing s the subordinator is at :math:`s + x` with the density :math:`\frac{\sin \pi\alpha}{\pi}
    \frac{s^\alpha}{x^\alpha (s+x)}` (Dynkin, Lamperti) and starts again, so the moment is an integral of those of
    :math:`E_{t-s-x}`, which is a hypergeometric function of :math:`1 - s/t`.
    """
    low, high, _ = ordered_times(s, t)
    gap, order = (high - low) / np.where(high > 0.0, high, 1.0), 1.0 - alpha + power * alpha
    moment = special.gamma(1.0 + power) * special.rgamma(1.0 + power * alpha)
    factor = np.sin(np.pi * alpha) / np.pi * special.beta(1.0 - alpha, 1.0 + power * alpha)
    # 2F1(order, 1 - alpha; order + 1; gap) is finite at gap = 1, where the factor is its inverse.
    found = factor * gap**order * special.hyp2f1(order, 1.0 - alpha, order + 1.0, gap)
    return np.asarray(moment * high ** (power * alpha) * found)

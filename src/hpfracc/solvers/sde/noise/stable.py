r"""Stable Levy motion, its law between two known values, and tempered stable motion.

If a step is divided, the first part y of an increment r has a density proportional to :math:`f_a(y) f_b(r-y)`,
with the stable densities of both parts. It is drawn by rejection: y or r - y is proposed from its own law, and accepted
with probability :math:`f_a f_b / (M (f_a + f_b))`, where M is the maximum of the smaller of the two densities. It
decays with r like the density of r itself, so a few attempts are enough for any r.

The density of the standard law is tabulated to a relative accuracy of about 1e-10: by its Fourier integral
:math:`\pi f(x) = \int_0^\infty \cos(xu)\,e^{-u^\alpha} du` above index 1, by the same integral on the imaginary axis
below, and by its series at infinity.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, final

import numpy as np
from scipy import interpolate, special

from hpfracc.errors import InvalidInputError
from hpfracc.solvers.sde.noise.process import LevyNoise, TimeGrid, read_fields
from hpfracc.solvers.sde.noise.source import RandomSource


@final
@dataclass(frozen=True)
class StableLevy(LevyNoise):
    r"""Stable Levy motion, in the parameterisation S1 of Samorodnitsky and Taqqu (``scipy.stats.levy_stable``'s own).

    .. math:: \log E\,e^{i u X_t} = -t\,|\sigma u|^\alpha \left(1 - i \beta\,\mathrm{sign}(u)
        \tan\tfrac{\pi\alpha}{2}\right), \qquad \alpha \ne 1,

    and :math:`-t \sigma |u| (1 + i \beta \frac{2}{\pi} \mathrm{sign}(u) \log|u|)` for :math:`\alpha = 1`.

    Parameters
    ----------
    alpha : float
        Stable index, above 0 and at most 2. At 2 it is Brownian motion with variance :math:`2 \sigma^2 t`.
    beta : float
        Skewness, from -1 to 1.
    scale : float
        The scale :math:`\sigma` at time 1.

    Notes
    -----
    Increments are drawn exactly, by the transform of Chambers, Mallows and Stuck [1], on any grid.

    References
    ----------
    1. J. M. Chambers, C. L. Mallows, B. W. Stuck, "A method for simulating stable random variables", J. Amer.
       Statist. Assoc. 71, 1976; R. Weron, Statist. Probab. Lett. 28, 1996.

    Examples
    --------
    >>> import numpy as np
    >>> from hpfracc import noise
    >>> noise.StableLevy(1.5).sample(np.linspace(0, 1, 11), size=3, rng=1).shape
    (3, 11)
    """

    alpha: float
    beta: float = 0.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        read_fields(self, "alpha", most=2)
        read_fields(self, "beta", above=None, least=-1, most=1)
        read_fields(self, "scale")

    def _moments(self) -> tuple[float, float] | None:
        return (0.0, 2.0 * self.scale**2) if self.alpha == 2.0 else None

    def _increments(self, source: RandomSource, steps: np.ndarray, count: int, stream: int = 0) -> Any:
        xp, steps = source.xp.module, source.array(steps)
        uniform = source.numbers(0, count, 2 * steps.shape[-1], kind="uniform", stream=stream)
        angle, wait = uniform[:, ::2], -xp.log(uniform[:, 1::2])
        return self.from_uniforms(xp, self.scale * steps ** (1.0 / self.alpha), angle, wait)

    def from_uniforms(self, xp: Any, sizes: Any, angle: Any, wait: Any) -> Any:
        """Increments of the given scales, from uniform and exponential numbers."""
        standard = standard_stable(xp, self.alpha, self.beta, angle, wait)
        if self.alpha != 1.0 or self.beta == 0.0:
            return sizes * standard
        safe = xp.where(sizes > 0, sizes, xp.ones_like(sizes))
        return sizes * (standard + (2.0 / math.pi) * self.beta * xp.log(safe))

    @property
    def _no_bridge(self) -> str | None:  # type: ignore[override]
        if self.beta:
            return f"only symmetric motion has one, and beta={self.beta:g}: densities of skewed laws are not tabulated"
        if self.alpha < MIN_INDEX:
            return f"with alpha={self.alpha:g}, below {MIN_INDEX}, densities span too many magnitudes to be divided"
        return None

    def _refine(self, source: RandomSource, rows: np.ndarray, grid: TimeGrid, fine: TimeGrid, parts: int) -> np.ndarray:
        if parts > _MAX_PARTS:
            raise InvalidInputError(f"factor={parts}: use at most {_MAX_PARTS}, and refine twice")
        left, sizes = np.diff(rows), np.diff(grid.times) / parts
        divided = np.empty((*left.shape, parts))
        for part in range(parts - 1):
            first, rest = (
                np.broadcast_to(self.scale * (count * sizes) ** (1.0 / self.alpha), left.shape)
                for count in (1, parts - part - 1)
            )
            stream = _STREAM + ((fine.times.size * _MAX_PARTS + part) * _MAX_ATTEMPTS)
            divided[:, :, part] = _divide(source, self.alpha, left, first, rest, stream)
            left -= divided[:, :, part]
        divided[:, :, -1] = left
        result = np.empty((rows.shape[0], fine.times.size))
        # Relative to each given point, so that rounding errors do not accumulate.
        inside = rows[:, :-1, None] + np.cumsum(divided, -1)
        result[:, 0] = rows[:, 0]
        result[:, 1:] = inside.reshape(rows.shape[0], -1)
        return result


#: Below this index the density spans more magnitudes than the table covers.
MIN_INDEX = 0.3
#: End of the table, which starts at 0 (the series is used beyond), and its number of nodes.
_FAR, _NODES = 60.0, 3000
_TERMS = 20
#: Streams: one for each number of points, part of a step, and attempt.
_STREAM, _MAX_PARTS, _MAX_ATTEMPTS = 1 << 61, 1 << 10, 1 << 12


def standard_density(alpha: float, x: np.ndarray) -> np.ndarray:
    """Density of the symmetric stable law with scale 1."""
    size = np.abs(x)
    if alpha == 1.0:
        return np.asarray(1.0 / (math.pi * (1.0 + size * size)))
    if alpha == 2.0:
        return np.asarray(np.exp(-0.25 * size * size) / math.sqrt(4.0 * math.pi))
    near = size < _FAR
    result = np.empty(size.shape)
    result[near] = np.exp(_table(alpha)(np.arcsinh(size[near] / _width(alpha))))
    result[~near] = _series(alpha, size[~near])
    return result


def _width(alpha: float) -> float:
    """The width at 0, from the second derivative."""
    return math.exp(0.5 * (math.lgamma(1.0 / alpha) - math.lgamma(3.0 / alpha)))


@lru_cache(maxsize=8)
def _table(alpha: float) -> interpolate.CubicSpline:
    """Logarithm of the density over asinh(x / w), w its width at 0."""
    width = _width(alpha)
    places = np.linspace(0.0, math.asinh(_FAR / width), _NODES)
    x = width * np.sinh(places)
    values = _by_decay(alpha, x) if alpha < 1.0 else _by_waves(alpha, x)
    return interpolate.CubicSpline(places, np.log(values), bc_type=((1, 0.0), "not-a-knot"))


def _series(alpha: float, x: np.ndarray) -> np.ndarray:
    """The series at infinity; terms are added while they decrease."""
    total, least = np.zeros(x.shape), math.inf
    for k in range(1, _TERMS):
        factor = math.exp(math.lgamma(alpha * k + 1.0) - math.lgamma(k + 1.0))
        if factor * _FAR ** (-alpha * k) > least:
            break
        least = factor * _FAR ** (-alpha * k)
        sign = (-1.0) ** (k + 1) * math.sin(0.5 * math.pi * k * alpha) / math.pi
        total += sign * factor * x ** (-alpha * k - 1.0)
    return total


def _by_decay(alpha: float, x: np.ndarray) -> np.ndarray:
    """For index below 1: on the imaginary axis, by the trapezoidal rule in the logarithm."""
    logs = np.linspace(-45.0 / alpha, 5.0 / alpha + 5.0, 4001)
    t = np.exp(logs)
    power = t**alpha
    weight = np.exp(-power * math.cos(0.5 * math.pi * alpha)) * np.sin(power * math.sin(0.5 * math.pi * alpha)) * t
    weight *= (logs[1] - logs[0]) / math.pi
    return np.array([np.exp(-t * place) @ weight for place in x])


def _by_waves(alpha: float, x: np.ndarray) -> np.ndarray:
    """For index above 1: Gauss quadrature on pieces that get shorter towards 0, where the integrand is not smooth."""
    end = 42.0 ** (1.0 / alpha)
    edges = np.concatenate([[0.0], np.geomspace(1e-12, 0.5, 41), np.linspace(0.5, end, int(_FAR * end / 8.0))[1:]])
    node, weight = special.roots_legendre(16)
    half = 0.5 * np.diff(edges)
    u = (edges[:-1, None] + half[:, None] * (node + 1.0)).ravel()
    weights = (half[:, None] * weight).ravel() * np.exp(-(u**alpha)) / math.pi
    return np.array([np.cos(place * u) @ weights for place in x])


def _divide(
    source: RandomSource, alpha: float, total: np.ndarray, first: np.ndarray, rest: np.ndarray, stream: int
) -> np.ndarray:
    """The first parts, of scale ``first``, of increments whose other parts have the scale ``rest``."""
    bound, n = _largest_smaller(alpha, np.abs(total), first, rest), total.shape[1]

    def propose(rows: np.ndarray, uniform: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        drawn = standard_stable(np, alpha, 0.0, uniform[:, :n], -np.log(uniform[:, n : 2 * n]))
        a, b, whole = first[rows], rest[rows], total[rows]
        y = np.where(uniform[:, 2 * n : 3 * n] < 0.5, a * drawn, whole - b * drawn)
        one, two = standard_density(alpha, y / a) / a, standard_density(alpha, (whole - y) / b) / b
        with np.errstate(invalid="ignore"):  # both vanish for extreme numbers, which are rejected
            return y, uniform[:, 3 * n :] * bound[rows] * (one + two) < one * two

    streams = range(stream, stream + _MAX_ATTEMPTS)
    return _by_rejection(source, np.arange(len(total)), (n, 4), streams, propose)


def _by_rejection(
    source: RandomSource, paths: np.ndarray, size: tuple[int, int], streams: Iterable[int], propose: Any
) -> np.ndarray:
    """``size[0]`` numbers for each path, each of which is proposed until it is accepted.

    ``propose(rows, uniform)``, with ``size[1]`` uniform numbers for each number of the paths ``rows``, returns numbers
    and whether they are accepted; the attempts have the given streams.
    """
    found, waiting = np.empty((paths.size, size[0])), np.ones((paths.size, size[0]), bool)
    for stream in streams:
        rows = np.flatnonzero(waiting.any(-1))
        if not rows.size:
            return found
        uniform = source.numbers_of(paths[rows], size[0] * size[1], kind="uniform", stream=stream)
        proposed, accepted = propose(rows, uniform)
        take = waiting[rows] & accepted
        found[rows] = np.where(take, proposed, found[rows])
        waiting[rows] &= ~take
    raise InvalidInputError("an increment could not be divided: it lies beyond the magnitudes of double precision")


def _largest_smaller(alpha: float, total: np.ndarray, first: np.ndarray, rest: np.ndarray) -> np.ndarray:
    """The maximum of the smaller of two densities, centred at 0 and at ``total``: where they cross."""

    def densities(place: np.ndarray) -> np.ndarray:
        parts = (place, first), (total - place, rest)
        return np.stack([standard_density(alpha, distance / scale) / scale for distance, scale in parts])

    low, high = np.zeros(total.shape), total.copy()
    for _ in range(60):
        middle = 0.5 * (low + high)
        one, two = densities(middle)
        low, high = np.where(one > two, middle, low), np.where(one > two, high, middle)
    # Both ends enclose the crossing; the bound must not be too small.
    return np.asarray(np.maximum(densities(low), densities(high)).min(0) * (1.0 + 1e-9))


def standard_stable(xp: Any, alpha: float, beta: float, uniform: Any, wait: Any) -> Any:
    """S1 with scale 1, from uniform numbers in (0, 1) and exponential ones.

    Angles are counted from the nearer end of the interval, where a difference from pi / 2 would have no digits.
    """
    one, upper = xp.ones_like(uniform), uniform >= 0.5
    side, w = xp.where(upper, one, -one), math.pi * xp.where(upper, 1.0 - uniform, uniform)
    sine = xp.sin(w)
    if alpha == 1.0:
        slope = xp.cos(w) / sine * side
        if beta == 0.0:
            return slope
        half = xp.where(upper, 0.5 * math.pi * (1.0 + beta) - beta * w, 0.5 * math.pi * (1.0 - beta) + beta * w)
        return (2.0 / math.pi) * (half * slope - beta * xp.log(0.5 * math.pi * wait * sine / half))
    # Sine and cosine of pi / 2 times the index, or times its distance from 2, where that is above 1.
    far, near = (math.sin(0.5 * math.pi * size) for size in (min(alpha, 2.0 - alpha), abs(1.0 - alpha)))

    def end(skewness: float) -> tuple[float, float]:
        """The angle at an end, or what it lacks to pi if that is less, and the direction in which it grows."""
        across = near * near - skewness * far * far
        return math.atan2((1.0 + skewness) * far * near, abs(across)), math.copysign(1.0, across)

    angle, turn = (xp.where(upper, high * one, low * one) for high, low in zip(end(beta), end(-beta), strict=True))
    size = math.hypot(1.0, beta * far / near) ** (1.0 / alpha)
    base = (xp.sin(angle + turn * abs(1.0 - alpha) * w) / wait) ** (1.0 - alpha) / sine
    return size * side * xp.sin(angle + turn * math.copysign(alpha, alpha - 1.0) * w) * base ** (1.0 / alpha)


def one_sided(alpha: float, uniform: np.ndarray, wait: np.ndarray, time: Any = 1.0) -> np.ndarray:
    """Positive stable numbers with ``E exp(-s S) = exp(-time s^alpha)``, 0 < alpha < 1 (Kanter, 1975)."""
    return np.asarray((time * kanter(alpha, uniform) * wait ** (alpha - 1.0)) ** (1.0 / alpha))


def kanter(alpha: float, uniform: np.ndarray) -> np.ndarray:
    """``sin(a u)^a sin((1-a) u)^(1-a) / sin u`` at u = pi times the uniform numbers."""
    u, w = math.pi * uniform, math.pi * np.where(uniform < 0.5, uniform, 1.0 - uniform)
    first = np.sin(np.where(uniform < 0.5, alpha * u, w + (1.0 - alpha) * u))
    return np.asarray(first**alpha * np.sin((1.0 - alpha) * u) ** (1.0 - alpha) / np.sin(w))


#: Maximum tempering of a piece, ``rate * scale * step^(1/alpha)``, for alpha below and above 1. The acceptance
#: probability is at least 1/e below alpha = 1, and about a third above.
_MAX_TEMPERED = {False: 1.0, True: 0.15}
#: Maximum number of pieces of all steps of a path.
_MAX_PIECES = 1 << 22
#: Logarithm of the neglected probability for alpha > 1.
_LEFT_OUT = 38.0


@final
@dataclass(frozen=True)
class TemperedStable(LevyNoise):
    r"""Tempered stable motion with positive jumps of density :math:`\propto x^{-1-\alpha} e^{-\lambda x}`.

    Below :math:`\alpha = 1` it is increasing; above, it is compensated to mean 0:

    .. math:: E\,e^{-s X_t} = e^{-t \sigma^\alpha ((s+\lambda)^\alpha - \lambda^\alpha)} \;(\alpha < 1), \qquad
        E\,e^{-s X_t} = e^{t \sigma^\alpha ((s+\lambda)^\alpha - \lambda^\alpha - s \alpha \lambda^{\alpha-1})}
        \;(\alpha > 1).

    Parameters
    ----------
    alpha : float
        Stable index, between 0 and 2, not 1.
    rate : float
        The tempering :math:`\lambda`.
    scale : float
        The scale :math:`\sigma`.

    Notes
    -----
    The variance is :math:`t\,\sigma^\alpha \alpha\,|\alpha - 1|\,\lambda^{\alpha-2}`, the mean below
    :math:`\alpha = 1` is :math:`t\,\sigma^\alpha \alpha\,\lambda^{\alpha-1}`.

    Below 1, stable increments are accepted with probability :math:`e^{-\lambda x}`, which is exact. Above 1 increments
    may be negative; they are accepted with probability :math:`e^{-\lambda (x + b)}` [1], where b is so large that
    values below -b have a probability of less than 1e-16. Steps with strong tempering are split into several pieces.

    References
    ----------
    1. B. Baeumer, M. M. Meerschaert, "Tempered stable Levy motion and transient super-diffusion", J. Comput. Appl.
       Math. 233, 2010.

    Examples
    --------
    >>> import numpy as np
    >>> from hpfracc import noise
    >>> path = noise.TemperedStable(0.7, rate=2.0).sample(np.linspace(0, 1, 11), rng=1)
    >>> bool(np.all(np.diff(path) > 0))
    True
    """

    _no_bridge: ClassVar[str | None] = "the densities of skewed laws are not tabulated here"

    alpha: float
    rate: float
    scale: float = 1.0

    def __post_init__(self) -> None:
        read_fields(self, "alpha", below=2)
        read_fields(self, "rate", "scale")
        if self.alpha == 1.0:
            raise InvalidInputError("alpha=1: tempered stable motion has an index between 0 and 2, not 1")

    def _moments(self) -> tuple[float, float]:
        power = self.scale**self.alpha * self.alpha * self.rate ** (self.alpha - 1.0)
        return 0.0 if self.alpha > 1.0 else power, power * abs(self.alpha - 1.0) / self.rate

    def _increments(self, source: RandomSource, steps: np.ndarray, count: int, stream: int = 0) -> Any:
        return source.array(self.increments_of(source.on_host(), steps, np.arange(count), stream))

    def increments_of(
        self, host: RandomSource, steps: np.ndarray, paths: np.ndarray, stream: int, stride: int = 1
    ) -> np.ndarray:
        """Increments of the given paths over steps of shape ``(n,)``, or one row for each path.

        Rejected attempts are repeated in the streams ``stream + stride``, ``stream + 2 stride``, ...
        """
        above = self.alpha > 1.0
        tempering = float(np.max(steps, initial=0.0)) * (self.scale * self.rate) ** self.alpha
        parts = max(1, math.ceil(tempering / _MAX_TEMPERED[above] ** self.alpha))
        if parts * steps.shape[-1] > _MAX_PIECES:
            raise InvalidInputError(
                f"steps of up to {np.max(steps):.3g} with rate={self.rate} take {parts:,} pieces each; the process is "
                "close to a Gaussian one there: use a smaller interval, or fewer steps"
            )
        times = np.repeat(self.scale**self.alpha * steps / parts, parts, axis=-1)
        times = np.broadcast_to(times, (paths.size, times.shape[-1]))
        alpha = self.alpha
        if above:
            # E exp(-s S) = exp(s^alpha) has the scale |cos(pi alpha / 2)|^(1/alpha) in S1.
            unit = math.sin(0.5 * math.pi * (alpha - 1.0)) ** (1.0 / alpha)
            shift = alpha * (_LEFT_OUT / (alpha - 1.0)) ** ((alpha - 1.0) / alpha)

        def propose(rows: np.ndarray, uniform: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            angle, wait, chance = uniform[:, ::3], -np.log(uniform[:, 1::3]), uniform[:, 2::3]
            if above:
                sizes = times[rows] ** (1.0 / alpha)
                drawn = sizes * (unit * standard_stable(np, alpha, 1.0, angle, wait))
                return drawn, chance <= np.exp(-self.rate * np.maximum(drawn + sizes * shift, 0.0))
            with np.errstate(over="ignore"):  # such numbers are rejected
                drawn = one_sided(alpha, angle, wait, times[rows])
            return drawn, chance <= np.exp(-self.rate * drawn)

        values = _by_rejection(host, paths, (times.shape[-1], 3), itertools.count(stream, stride), propose)
        total = values.reshape(paths.size, -1, parts).sum(-1)
        if above:
            total += steps * (self.scale**alpha * alpha * self.rate ** (alpha - 1.0))
        return np.asarray(total)

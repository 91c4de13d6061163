"""Waiting times between the jumps of a random walk, and the jumps."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from scipy import special

from hpfracc.errors import InvalidInputError
from hpfracc.solvers.sde.noise.process import read_fields
from hpfracc.solvers.sde.noise.source import RandomSource
from hpfracc.solvers.sde.noise.stable import StableLevy, TemperedStable, one_sided


@dataclass(frozen=True, slots=True)
class Draw:
    """A request for ``count`` numbers for each of the given paths, from one stream of a source on the host."""

    source: RandomSource
    paths: np.ndarray
    count: int
    stream: int

    def uniforms(self, several: int) -> list[np.ndarray]:
        """Uniform numbers, ``several`` arrays of shape ``(paths.size, count)``."""
        found = self.source.numbers_of(self.paths, several * self.count, kind="uniform", stream=self.stream)
        return np.split(found, several, axis=1)

    def normals(self, components: tuple[int, ...], apart: int = 0) -> np.ndarray:
        """Normal numbers of shape ``(paths.size, count, *components)``, from a stream ``apart`` from this one."""
        number = self.count * math.prod(components)
        found = self.source.numbers_of(self.paths, number, stream=self.stream + apart)
        return found.reshape(self.paths.size, self.count, *components)


class Law:
    """Parameters that are finite numbers, and positive unless ``_limits`` says otherwise."""

    _limits: ClassVar[dict[str, dict[str, Any]]] = {}

    def __post_init__(self) -> None:
        for name in tuple(vars(self)):
            read_fields(self, name, **self._limits.get(name, {}))


class WaitingTimes(Law, ABC):
    """A law of positive times, drawn independently for every jump."""

    @abstractmethod
    def _draw(self, draw: Draw) -> np.ndarray:
        """Waiting times, shape ``(paths, count)``."""

    def _arrivals(self, draw: Draw, time: np.ndarray, before: int) -> np.ndarray:
        """Times of the next jumps, after ``before`` of them, the last of which was at ``time``."""
        waits = self._draw(draw)
        waits[:, 0] += time
        return np.cumsum(waits, -1, out=waits)

    @property
    def infinite_mean(self) -> bool:
        """Whether the mean waiting time is infinite."""
        return False

    def mean_jumps(self, t: Any) -> np.ndarray:
        """Mean number of jumps until the time t, if it has a closed form."""
        raise InvalidInputError(
            f"the mean number of jumps with {self!r} has no closed form; use ExponentialWaiting, MittagLefflerWaiting "
            "or FixedWaiting, or average over samples"
        )


@final
@dataclass(frozen=True)
class ExponentialWaiting(WaitingTimes):
    """Exponential waiting times: jumps of a Poisson process, which give normal diffusion.

    Parameters
    ----------
    mean : float
        Mean waiting time.
    """

    mean: float = 1.0

    def _draw(self, draw: Draw) -> np.ndarray:
        return np.asarray(-self.mean * np.log(draw.uniforms(1)[0]))

    def mean_jumps(self, t: Any) -> np.ndarray:
        """``t / mean``."""
        return np.asarray(np.asarray(t, float) / self.mean)


@final
@dataclass(frozen=True)
class FixedWaiting(WaitingTimes):
    """Jumps at multiples of a fixed step: with stable jumps, a Levy flight in discrete time.

    Parameters
    ----------
    step : float
        Time between jumps.
    """

    step: float = 1.0

    def _draw(self, draw: Draw) -> np.ndarray:
        return np.full((draw.paths.size, draw.count), self.step)

    def _arrivals(self, draw: Draw, time: np.ndarray, before: int) -> np.ndarray:
        # Multiples, not sums, which would accumulate rounding errors.
        return np.tile(self.step * np.arange(before + 1.0, before + draw.count + 1.0), (draw.paths.size, 1))

    def mean_jumps(self, t: Any) -> np.ndarray:
        """Number of full steps in t."""
        return np.asarray(np.floor(np.asarray(t, float) / self.step * (1.0 + 1e-12)))


@final
@dataclass(frozen=True)
class ParetoWaiting(WaitingTimes):
    r"""The Pareto law, :math:`P(T > t) = (t / \tau)^{-\alpha}` for :math:`t \ge \tau`.

    With :math:`\alpha < 1` its mean is infinite, and the mean number of jumps grows like
    :math:`t^\alpha / (\tau^\alpha\,\Gamma(1-\alpha)\,\Gamma(1+\alpha))`.

    Parameters
    ----------
    alpha : float
        Exponent of the tail, positive.
    scale : float
        The shortest waiting time :math:`\tau`.
    """

    alpha: float
    scale: float = 1.0

    def _draw(self, draw: Draw) -> np.ndarray:
        with np.errstate(over="ignore"):  # an effectively infinite waiting time
            return np.asarray(self.scale * draw.uniforms(1)[0] ** (-1.0 / self.alpha))

    @property
    def infinite_mean(self) -> bool:
        """At ``alpha = 1`` and below."""
        return self.alpha <= 1.0


@final
@dataclass(frozen=True)
class MittagLefflerWaiting(WaitingTimes):
    r"""The Mittag-Leffler law, :math:`P(T > t) = E_\alpha(-(t / \tau)^\alpha)`.

    Its jumps are those of the fractional Poisson process. The mean number of jumps is
    :math:`t^\alpha / (\tau^\alpha\,\Gamma(1+\alpha))` at all times, not only late ones. At :math:`\alpha = 1` it is the
    exponential law.

    Parameters
    ----------
    alpha : float
        Index, above 0 and at most 1.
    scale : float
        Time scale :math:`\tau`.

    References
    ----------
    1. T. J. Kozubowski, S. T. Rachev, "Univariate geometric stable laws", J. Comput. Anal. Appl. 1, 1999; R. Hilfer,
       L. Anton, "Fractional master equations and fractal time random walks", Phys. Rev. E 51, 1995.
    """

    alpha: float
    scale: float = 1.0

    _limits: ClassVar[dict[str, dict[str, Any]]] = {"alpha": {"most": 1}}

    def _draw(self, draw: Draw) -> np.ndarray:
        first, second = draw.uniforms(2)
        wait = -self.scale * np.log(first)
        if self.alpha == 1.0:
            return np.asarray(wait)
        angle = (math.pi * self.alpha) * second
        with np.errstate(over="ignore"):
            ratio = np.sin(math.pi * self.alpha - angle) / np.sin(angle)
            return np.asarray(wait * ratio ** (1.0 / self.alpha))

    @property
    def infinite_mean(self) -> bool:
        """Below ``alpha = 1``."""
        return self.alpha < 1.0

    def mean_jumps(self, t: Any) -> np.ndarray:
        """``(t / scale)^alpha / Gamma(1 + alpha)``."""
        return np.asarray((np.asarray(t, float) / self.scale) ** self.alpha / special.gamma(1.0 + self.alpha))


@final
@dataclass(frozen=True)
class StableWaiting(WaitingTimes):
    r"""One-sided stable waiting times, :math:`E\,e^{-s T} = e^{-(\tau s)^\alpha}`.

    The sum of n of them has the law of :math:`n^{1/\alpha}` times one: the walk is a process on the clock of an inverse
    stable subordinator, observed in steps of :math:`\tau^\alpha` of that clock.

    Parameters
    ----------
    alpha : float
        Index, between 0 and 1.
    scale : float
        Time scale :math:`\tau`.
    """

    alpha: float
    scale: float = 1.0

    _limits: ClassVar[dict[str, dict[str, Any]]] = {"alpha": {"below": 1}}

    def _draw(self, draw: Draw) -> np.ndarray:
        angle, wait = draw.uniforms(2)
        with np.errstate(over="ignore"):
            return np.asarray(self.scale * one_sided(self.alpha, angle, -np.log(wait)))

    infinite_mean = True


#: Distance to the stream of the normal numbers of a stable jump in several dimensions.
_APART = 1 << 45


class Jumps(Law, ABC):
    """A law of jumps, drawn independently of each other and of the waiting times."""

    @abstractmethod
    def _draw(self, draw: Draw, components: tuple[int, ...] = ()) -> np.ndarray:
        """Jumps, shape ``(paths, count, *components)``; isotropic."""

    @property
    @abstractmethod
    def variance(self) -> float:
        """Variance of a jump; infinite for stable laws with an index below 2."""

    @property
    def mean(self) -> float:
        """Mean of a jump; nan if it has none."""
        return 0.0

    @property
    def symmetric(self) -> bool:
        """Whether jumps to both sides have the same law."""
        return True


@final
@dataclass(frozen=True)
class GaussianJumps(Jumps):
    """Normal jumps with mean 0.

    Parameters
    ----------
    scale : float
        Standard deviation.
    """

    scale: float = 1.0

    def _draw(self, draw: Draw, components: tuple[int, ...] = ()) -> np.ndarray:
        return self.scale * draw.normals(components)

    @property
    def variance(self) -> float:
        """``scale^2``."""
        return self.scale**2


class _LevyJumps(Jumps):
    """Jumps with the law of a Levy process of the same parameters, at time 1."""

    _process: ClassVar[type[Any]]

    def __post_init__(self) -> None:
        for name, value in vars(self._law).items():
            object.__setattr__(self, name, value)

    @property
    def _law(self) -> Any:
        return self._process(*vars(self).values())

    @property
    def variance(self) -> float:
        """That of the process at time 1; infinite for stable laws with an index below 2."""
        moments = self._law._moments()
        return math.inf if moments is None else float(moments[1])


@final
@dataclass(frozen=True)
class StableJumps(_LevyJumps):
    r"""Stable jumps, in the parameterisation of :class:`~hpfracc.noise.StableLevy`: those of a Levy flight.

    Parameters
    ----------
    alpha : float
        Stable index, above 0 and at most 2. At 2 jumps are normal with variance :math:`2 \sigma^2`.
    beta : float
        Skewness, from -1 to 1; 0 is the symmetric law.
    scale : float
        The scale :math:`\sigma`.
    """

    _process = StableLevy

    alpha: float
    beta: float = 0.0
    scale: float = 1.0

    def _draw(self, draw: Draw, components: tuple[int, ...] = ()) -> np.ndarray:
        if self.alpha == 2.0:
            return (math.sqrt(2.0) * self.scale) * draw.normals(components)
        angle, wait = draw.uniforms(2)
        if components:
            if self.beta:
                raise InvalidInputError(f"beta={self.beta:g}: jumps in several dimensions are isotropic; use beta=0")
            # A normal vector with a stable variance has the characteristic function exp(-|scale u|^alpha).
            with np.errstate(over="ignore"):
                variance = 2.0 * one_sided(0.5 * self.alpha, angle, -np.log(wait))
            normals = draw.normals(components, _APART)
            return np.asarray(self.scale * np.sqrt(variance)[..., None] * normals)
        with np.errstate(over="ignore", divide="ignore"):
            return np.asarray(self._law.from_uniforms(np, np.asarray(self.scale), angle, -np.log(wait)))

    @property
    def mean(self) -> float:
        """0 above ``alpha = 1``, and nan up to it."""
        return 0.0 if self.alpha > 1.0 else math.nan

    @property
    def symmetric(self) -> bool:
        """With ``beta = 0``."""
        return not self.beta


@final
@dataclass(frozen=True)
class TemperedJumps(_LevyJumps):
    r"""Jumps with the law of :class:`~hpfracc.noise.TemperedStable` at time 1: long ones are exponentially rare.

    They are positive for an index below 1; above it they have mean 0.

    Parameters
    ----------
    alpha : float
        Stable index, between 0 and 2, not 1.
    rate : float
        The tempering :math:`\lambda`.
    scale : float
        The scale :math:`\sigma`.
    """

    _process = TemperedStable
    symmetric = False

    alpha: float
    rate: float
    scale: float = 1.0

    def _draw(self, draw: Draw, components: tuple[int, ...] = ()) -> np.ndarray:
        if components:
            raise InvalidInputError("tempered jumps are one-sided, not isotropic; use GaussianJumps or StableJumps")
        # Blocks of jumps use consecutive streams; further attempts use distant ones.
        return np.asarray(self._law.increments_of(draw.source, np.ones(draw.count), draw.paths, draw.stream, 1 << 32))

    @property
    def mean(self) -> float:
        """``alpha scale^alpha rate^(alpha - 1)`` for an index below 1, 0 above."""
        return float(self._law._moments()[0])

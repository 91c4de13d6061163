"""Jumps of a random walk."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import numpy as np

from hpfracc.errors import InvalidInputError
from hpfracc.solvers.sde.noise.process import check_positive
from hpfracc.solvers.sde.noise.source import RandomSource
from hpfracc.solvers.sde.noise.stable import StableLevy
from hpfracc.solvers.sde.noise.stable_bridge import one_sided, standard_stable
from hpfracc.solvers.sde.noise.tempered import TemperedStable

#: Distance to the stream of the normal numbers of a stable jump in several dimensions.
_APART = 1 << 45

__all__ = ["GaussianJumps", "Jumps", "StableJumps", "TemperedJumps"]


class Jumps(ABC):
    """A law of jumps, drawn independently of each other and of the waiting times."""

    @abstractmethod
    def _draw(
        self, source: RandomSource, paths: np.ndarray, count: int, stream: int, components: tuple[int, ...] = ()
    ) -> np.ndarray:
        """``count`` jumps for each of the given paths, shape ``(paths.size, count, *components)``; isotropic."""

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

    def __post_init__(self) -> None:
        check_positive(self, "scale")

    def _draw(
        self, source: RandomSource, paths: np.ndarray, count: int, stream: int, components: tuple[int, ...] = ()
    ) -> np.ndarray:
        return self.scale * _normals(source, paths, count, stream, components)

    @property
    def variance(self) -> float:
        """``scale^2``."""
        return self.scale**2


@final
@dataclass(frozen=True)
class StableJumps(Jumps):
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

    alpha: float
    beta: float = 0.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        law = StableLevy(self.alpha, self.beta, self.scale)
        for name in ("alpha", "beta", "scale"):
            object.__setattr__(self, name, getattr(law, name))

    def _draw(
        self, source: RandomSource, paths: np.ndarray, count: int, stream: int, components: tuple[int, ...] = ()
    ) -> np.ndarray:
        if self.alpha == 2.0:
            return (math.sqrt(2.0) * self.scale) * _normals(source, paths, count, stream, components)
        uniform = source.numbers_of(paths, 2 * count, kind="uniform", stream=stream)
        if components:
            if self.beta:
                raise InvalidInputError(f"beta={self.beta:g}: jumps in several dimensions are isotropic; use beta=0")
            # A normal vector with a stable variance has the characteristic function exp(-|scale u|^alpha).
            with np.errstate(over="ignore"):
                variance = 2.0 * one_sided(0.5 * self.alpha, uniform[:, :count], -np.log(uniform[:, count:]))
            normals = _normals(source, paths, count, stream + _APART, components)
            return np.asarray(self.scale * np.sqrt(variance)[..., None] * normals)
        with np.errstate(over="ignore"):
            jumps = standard_stable(np, self.alpha, self.beta, uniform[:, :count], -np.log(uniform[:, count:]))
        if self.alpha == 1.0 and self.beta:
            jumps = jumps + (2.0 / math.pi) * self.beta * math.log(self.scale)
        return np.asarray(self.scale * jumps)

    @property
    def variance(self) -> float:
        """Infinite below ``alpha = 2``."""
        return 2.0 * self.scale**2 if self.alpha == 2.0 else math.inf

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
class TemperedJumps(Jumps):
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

    alpha: float
    rate: float
    scale: float = 1.0

    def __post_init__(self) -> None:
        for name in ("alpha", "rate", "scale"):
            object.__setattr__(self, name, getattr(self._law, name))

    @property
    def _law(self) -> TemperedStable:
        return TemperedStable(self.alpha, self.rate, self.scale)

    def _draw(
        self, source: RandomSource, paths: np.ndarray, count: int, stream: int, components: tuple[int, ...] = ()
    ) -> np.ndarray:
        if components:
            raise InvalidInputError("tempered jumps are one-sided, not isotropic; use GaussianJumps or StableJumps")
        # Blocks of jumps use consecutive streams; further attempts use distant ones.
        return self._law.increments_of(source, np.ones(count), paths, stream, 1 << 32)

    @property
    def variance(self) -> float:
        """``alpha |1 - alpha| scale^alpha rate^(alpha - 2)``."""
        return self._law._moments()[1]

    @property
    def mean(self) -> float:
        """``alpha scale^alpha rate^(alpha - 1)`` for an index below 1, 0 above."""
        return self._law._moments()[0]

    @property
    def symmetric(self) -> bool:
        """Never."""
        return False


def _normals(
    source: RandomSource, paths: np.ndarray, count: int, stream: int, components: tuple[int, ...]
) -> np.ndarray:
    found = source.numbers_of(paths, count * math.prod(components), stream=stream)
    return found.reshape(paths.size, count, *components)


def check_law(name: str, law: object, kind: type) -> None:
    """Raise an error unless ``law`` is a law of that kind."""
    if not isinstance(law, kind):
        raise InvalidInputError(f"{name}={law!r}: give a law of hpfracc.transport, such as {name}={_EXAMPLES[name]}")


_EXAMPLES = {"waiting": "ParetoWaiting(0.7)", "jumps": "GaussianJumps()"}

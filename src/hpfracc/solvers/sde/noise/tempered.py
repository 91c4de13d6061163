"""Tempered stable motion: stable jumps, of which large ones are exponentially rare."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from hpfracc.errors import InvalidInputError
from hpfracc.solvers.sde.noise.process import LevyNoise, read_fields
from hpfracc.solvers.sde.noise.source import RandomSource
from hpfracc.solvers.sde.noise.stable import one_sided, standard_stable

__all__ = ["TemperedStable"]

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

    def _increments(self, source: RandomSource, steps: np.ndarray, low: int, high: int, stream: int) -> Any:
        return source.array(self.increments_of(source.on_host(), steps, np.arange(low, high), stream))

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
        sizes = np.repeat(self.scale * (steps / parts) ** (1.0 / self.alpha), parts, axis=-1)
        sizes = np.broadcast_to(sizes, (paths.size, sizes.shape[-1]))
        draw = self._above if above else self._below
        values = np.empty(sizes.shape)
        rejected = np.ones(sizes.shape, dtype=bool)
        attempt = 0
        while np.any(rejected):
            rows = np.flatnonzero(rejected.any(-1))
            uniform = host.numbers_of(
                paths[rows], 3 * sizes.shape[-1], kind="uniform", stream=stream + attempt * stride
            )
            angle, wait, chance = uniform[:, ::3], -np.log(uniform[:, 1::3]), uniform[:, 2::3]
            found, kept = draw(sizes[rows], angle, wait, chance)
            take = rejected[rows] & kept
            values[rows] = np.where(take, found, values[rows])
            rejected[rows] &= ~take
            attempt += 1
        total = values.reshape(paths.size, -1, parts).sum(-1)
        if above:
            total += steps * (self.scale**self.alpha * self.alpha * self.rate ** (self.alpha - 1.0))
        return np.asarray(total)

    def _below(
        self, sizes: np.ndarray, angle: np.ndarray, wait: np.ndarray, chance: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        found = sizes * one_sided(self.alpha, angle, wait)
        return found, chance <= np.exp(-self.rate * found)

    def _above(
        self, sizes: np.ndarray, angle: np.ndarray, wait: np.ndarray, chance: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        alpha = self.alpha
        # E exp(-s S) = exp(s^alpha) has the scale |cos(pi alpha / 2)|^(1/alpha) in S1.
        unit = abs(math.cos(0.5 * math.pi * alpha)) ** (1.0 / alpha)
        found = sizes * unit * np.asarray(standard_stable(np, alpha, 1.0, angle, wait))
        below = sizes * alpha * (_LEFT_OUT / (alpha - 1.0)) ** ((alpha - 1.0) / alpha)
        return found, chance <= np.exp(-self.rate * np.maximum(found + below, 0.0))

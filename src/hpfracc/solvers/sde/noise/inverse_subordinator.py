"""The inverse of a stable subordinator: the clock of subdiffusion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from scipy import special

from hpfracc.errors import InvalidInputError
from hpfracc.solvers.sde.noise.process import Noise, TimeGrid, read_positive
from hpfracc.solvers.sde.noise.source import RandomSource
from hpfracc.solvers.sde.noise.stable import kanter

__all__ = ["InverseSubordinator"]

#: Attempts whose numbers are drawn together; each succeeds with a probability of 0.63 or more.
_ATTEMPTS = 12
#: Streams of passages, apart from those of the processes that the clock drives.
_STREAM = 1 << 40
#: Paths that are carried along together.
_TOGETHER = 1 << 13


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
    Paths are exact at all times together. Given where the subordinator stands, the place before it passes the next time
    has a generalised arcsine law, the passage time given that place is a power of a tilted stable number [1], and the
    jump across has a Pareto law; after it the subordinator begins anew.

    References
    ----------
    1. L. Devroye, "Random variate generation for exponentially and polynomially tilted stable distributions", ACM
       Trans. Model. Comput. Simul. 19, 2009; M. M. Meerschaert, H.-P. Scheffler, J. Appl. Probab. 41, 2004.

    Examples
    --------
    >>> import numpy as np
    >>> from hpfracc import noise
    >>> clock = noise.InverseSubordinator(0.7).sample(np.linspace(0, 1, 11), rng=1)
    >>> bool(clock[0] == 0 and np.all(np.diff(clock) >= 0))
    True
    """

    alpha: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha", read_positive("alpha", self.alpha))
        if self.alpha >= 1.0:
            raise InvalidInputError(f"alpha={self.alpha}: an inverse stable subordinator has 0 < alpha < 1")

    def _sample(self, source: RandomSource, grid: TimeGrid, count: int) -> Any:
        host = source.on_host()
        result = np.empty((count, grid.times.size))
        for low in range(0, count, _TOGETHER):
            high = min(count, low + _TOGETHER)
            place, clock = np.zeros(high - low), np.zeros(high - low)
            for index, time in enumerate(grid.times.tolist()):
                due = np.flatnonzero(place < time)
                if due.size:
                    waited, moved = self._pass(host, low + due, time - place[due], _STREAM + index)
                    clock[due] += waited
                    place[due] += moved
                result[low:high, index] = clock
        return source.array(result)

    def _pass(self, host: RandomSource, paths: np.ndarray, distance: np.ndarray, stream: int) -> tuple[Any, Any]:
        """Time until each path passes its distance, and how far it is then."""
        alpha = self.alpha
        uniform = host.numbers_of(paths, 3 + 2 * _ATTEMPTS, kind="uniform", stream=stream)
        before = distance * special.betaincinv(alpha, 1.0 - alpha, uniform[:, 0])
        left = distance * special.betaincinv(1.0 - alpha, alpha, 1.0 - uniform[:, 0])
        jump = left * uniform[:, 1] ** (-1.0 / alpha)
        wait = special.gammaincinv(2.0 - alpha, uniform[:, 2])
        tilted = self._angles(host, paths, uniform[:, 3:], stream)
        stable = (tilted / wait) ** ((1.0 - alpha) / alpha)
        return (before / stable) ** alpha, before + jump

    def _angles(self, host: RandomSource, paths: np.ndarray, uniform: np.ndarray, stream: int) -> np.ndarray:
        """``A(u)`` with u of density proportional to ``A^-(1-alpha)``, by rejection."""
        alpha = self.alpha
        least = (1.0 - alpha) * alpha ** (alpha / (1.0 - alpha))
        found = np.empty(paths.size)
        waiting = np.arange(paths.size)
        further = 0
        while True:
            for k in range(0, uniform.shape[-1], 2):
                value = kanter(alpha, uniform[:, k])
                kept = uniform[:, k + 1] <= (least / value) ** (1.0 - alpha)
                found[waiting[kept]] = value[kept]
                waiting, uniform = waiting[~kept], uniform[~kept]
                if not waiting.size:
                    return found
            further += 1
            stream_of_more = stream + (further << 32)
            uniform = host.numbers_of(paths[waiting], 2 * _ATTEMPTS, kind="uniform", stream=stream_of_more)

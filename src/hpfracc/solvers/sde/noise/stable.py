"""Stable Levy motion."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from hpfracc import _reading
from hpfracc.errors import InvalidInputError
from hpfracc.solvers.sde.noise.process import LevyNoise, TimeGrid, check_positive, refined
from hpfracc.solvers.sde.noise.source import RandomSource
from hpfracc.solvers.sde.noise.stable_bridge import MIN_INDEX, bridge, standard_stable

__all__ = ["StableLevy"]


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
        check_positive(self, "alpha")
        if self.alpha > 2.0:
            raise InvalidInputError(f"alpha={self.alpha}: a stable index is above 0 and at most 2")
        object.__setattr__(self, "beta", _reading.number("beta", self.beta, least=-1, most=1))
        check_positive(self, "scale")

    def _moments(self) -> tuple[float, float] | None:
        return (0.0, 2.0 * self.scale**2) if self.alpha == 2.0 else None

    def _increments(self, source: RandomSource, steps: np.ndarray, low: int, high: int, stream: int) -> Any:
        xp, steps = source.module, source.array(steps)
        uniform = source.numbers(low, high - low, 2 * steps.shape[-1], kind="uniform", stream=stream)
        angle, wait = uniform[:, ::2], -xp.log(uniform[:, 1::2])
        standard = standard_stable(xp, self.alpha, self.beta, angle, wait)
        sizes = self.scale * steps ** (1.0 / self.alpha)
        if self.alpha != 1.0 or self.beta == 0.0:
            return sizes * standard
        safe = xp.where(sizes > 0, sizes, xp.ones_like(sizes))
        return sizes * (standard + (2.0 / math.pi) * self.beta * xp.log(safe))

    def refine(self, path: Any, t: Any, factor: int = 2, rng: Any = None, *, first_path: int = 0) -> Any:
        """Points between those of a path, from the law of the process given the path.

        For symmetric motion with an index of at least 0.3. Increments are divided by rejection sampling from products
        of stable densities, which are computed to a relative accuracy of about 1e-8. A jump remains a jump: it falls
        into one of the parts.

        Parameters
        ----------
        path : array_like, shape (..., n)
            Values at the times ``t``; points are drawn on the host.
        t : array_like, shape (n,)
            Increasing times.
        factor : int
            Number of parts of each step.
        rng, first_path
            As in :meth:`sample`. The random numbers differ from those of :meth:`sample` with the same seed.

        Returns
        -------
        times : ndarray, shape (factor * (n - 1) + 1,)
        path : array, shape (..., factor * (n - 1) + 1)
            In the library and on the device of the given path, and equal to it at every ``factor``-th point.
        """
        if self.beta:
            raise InvalidInputError(
                f"there is a bridge for symmetric stable motion only, and beta={self.beta:g}: the densities of skewed "
                "laws are not tabulated here; sample on the fine grid and take a subset"
            )
        if self.alpha < MIN_INDEX:
            raise InvalidInputError(
                f"alpha={self.alpha:g}: below {MIN_INDEX} stable densities span too many magnitudes to be divided; "
                "sample on the fine grid and thin that"
            )
        return refined(self._refine, path, t, factor, rng, first_path)

    def _refine(self, source: RandomSource, rows: np.ndarray, grid: TimeGrid, fine: TimeGrid, parts: int) -> np.ndarray:
        steps = np.diff(grid.times)
        divided = bridge(source, self.alpha, self.scale, np.diff(rows), steps, parts, fine.times.size)
        result = np.empty((rows.shape[0], fine.times.size))
        # Relative to each given point, so that rounding errors do not accumulate.
        inside = rows[:, :-1, None] + np.cumsum(divided, -1)
        result[:, 0] = rows[:, 0]
        result[:, 1:] = inside.reshape(rows.shape[0], -1)
        return result

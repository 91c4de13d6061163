"""``sol(t)`` of an adaptive solve."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpfracc.solvers.ode.adaptive.system import OrdinarySystem
from hpfracc.solvers.ode.fixed.grid import initial_part, times_within
from hpfracc.solvers.stepping.solution import PieceStore

Array = np.ndarray[Any, Any]


class AdaptiveSolution(PieceStore):
    r"""The solution at any time, of shape (..., d) + t.shape.

    The right-hand side is a polynomial on each step; its fractional integral is exact over the steps before t
    and uses the sum of exponentials for older ones. So it behaves like :math:`t^\alpha` at the start, and agrees with
    the steps. Memory is O(steps).
    """

    _system: OrdinarySystem

    def __init__(self, system: OrdinarySystem) -> None:
        super().__init__(system)
        self.t_min = system.problem.t0
        #: The time of a terminal event.
        self.end: float | None = None

    @property
    def t_max(self) -> float:
        """The last time."""
        if self.end is not None:
            return self.end
        return float(self._system.time(self.rights[-1])) if self.rights else self.t_min

    def __call__(self, t: Any) -> Array:
        """The solution at ``t``."""
        times = times_within(t, self.t_min, self.t_max)
        flat = self.flat(np.clip(times.reshape(-1) - self.t_min, 0.0, None))
        return flat.T.reshape(*self._system.shape, *times.shape)

    def flat(self, elapsed: Array) -> Array:
        """Flat states, shape (len(elapsed), n), at times after t0."""
        tau = elapsed - self._system.offset
        result = np.empty((tau.size, self._system.size), self._system.dtype)
        early = tau < 0.0  # only the initial part
        if early.any():
            result[early] = initial_part(self._system.problem, elapsed[early]).T
        tau = np.minimum(tau, self.rights[-1] if self.rights else 0.0)
        indices = np.searchsorted(self.rights, tau)
        for index in np.unique(indices[~early]):
            which = (indices == index) & ~early
            result[which] = self.continuation(int(index))(tau[which]) if self.rights else self._system.start(0.0)
        return result

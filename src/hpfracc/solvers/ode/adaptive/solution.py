"""``sol(t)`` of an adaptive solve: the method's integral, from states stored at some steps."""

from __future__ import annotations

import bisect
from typing import Any

import numpy as np

from hpfracc.errors import InvalidInputError
from hpfracc.history.states import Snapshot
from hpfracc.solvers.ode.adaptive.continuation import Continuation, Piece
from hpfracc.solvers.ode.adaptive.system import FlatSystem, SteppedSystem
from hpfracc.solvers.ode.fixed.grid import initial_part

__all__ = ["AdaptiveSolution", "PieceStore"]

Array = np.ndarray[Any, Any]

#: The states are stored before every n-th step; between these the stored polynomials are integrated.
_EVERY = 12


class PieceStore:
    """The steps of a solve, from which its state at any time is integrated.

    Parameters
    ----------
    system : SteppedSystem
        The equation.
    """

    def __init__(self, system: SteppedSystem) -> None:
        self._system = system
        self._pieces: list[Piece] = []
        self.rights: list[float] = []
        self._kept: list[list[Snapshot]] = []

    def add(self, piece: Piece, before: list[Snapshot]) -> None:
        """Add a step and the states before it."""
        if len(self._pieces) % _EVERY == 0:
            self._kept.append(before)
        self._pieces.append(piece)
        self.rights.append(piece.right)

    def state(self, tau: float) -> Array:
        """The flat state at one time."""
        if not self._pieces or tau == 0.0:
            return self._system.start(0.0).astype(self._system.dtype)
        index = min(bisect.bisect_left(self.rights, tau), len(self._pieces) - 1)
        return np.asarray(self.continuation(index)(np.array([tau]))[0])

    def continuation(self, index: int) -> Continuation:
        """The solution over a step."""
        # At least one full step between the states and the time, unless they are the initial states.
        block = max(index - 1, 0) // _EVERY
        first = block * _EVERY
        pieces = self._pieces[first : index + 1]
        return Continuation(self._system.groups, self._kept[block], pieces[0].left, pieces, self._system.start)


class AdaptiveSolution:
    r"""The solution at any time, of shape (..., d) + t.shape.

    The right-hand side is a polynomial on each step; its fractional integral is exact over the steps before t
    and uses the sum of exponentials for older ones. So it behaves like :math:`t^\alpha` at the start, and agrees with
    the steps. Memory is O(steps).
    """

    def __init__(self, system: FlatSystem) -> None:
        self._system = system
        self._store = PieceStore(system)
        self.t_min = system.problem.t0
        self.t_max = system.problem.t0

    def add(self, piece: Piece, before: list[Snapshot]) -> None:
        """Add a step and the states before it."""
        self._store.add(piece, before)
        self.t_max = self._system.time(piece.right)

    def end_at(self, t: float) -> None:
        """End the solution at a terminal event."""
        self.t_max = t

    def __call__(self, t: Any) -> Array:
        """The solution at ``t``."""
        times = np.asarray(t, dtype=np.float64)
        tau = times.reshape(-1) - self.t_min
        slack = 1e-12 * max(abs(self.t_min), abs(self.t_max))
        if tau.size and not (tau.min() >= -slack and self.t_min + tau.max() <= self.t_max + slack):
            raise InvalidInputError(
                f"the solution is known from {self.t_min:g} to {self.t_max:g}, not at {float(times.min()):g} to "
                f"{float(times.max()):g}; give times in that range"
            )
        flat = self.flat(np.clip(tau, 0.0, None))
        return flat.T.reshape(*self._system.shape, *times.shape)

    def flat(self, elapsed: Array) -> Array:
        """Flat states, shape (len(elapsed), n), at times after t0."""
        tau = elapsed - self._system.offset
        result = np.empty((tau.size, self._system.size), self._system.dtype)
        early = tau < 0.0  # only the initial part
        if early.any():
            result[early] = initial_part(self._system.problem, elapsed[early]).T
        rights = self._store.rights
        tau = np.minimum(tau, rights[-1] if rights else 0.0)
        indices = np.searchsorted(rights, tau)
        for index in np.unique(indices[~early]):
            which = (indices == index) & ~early
            if not rights:
                result[which] = self._system.start(0.0)
            else:
                result[which] = self._store.continuation(int(index))(tau[which])
        return result

    def state(self, tau: float) -> Array:
        """The flat state at one time."""
        return self._store.state(tau)

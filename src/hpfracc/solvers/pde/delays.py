"""Delayed states of a reaction, while the solution is stepped."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hpfracc import _reading
from hpfracc.errors import ShapeError
from hpfracc.solvers.pde.space.base import Semidiscretisation

Array = np.ndarray[Any, Any]

#: Sums of delays at which a mesh is graded anew.
_KINKS = 4


class DelayedFrames:
    """``(u(t - delay_1), ...)`` on the whole grid: of the history before t0, linear between the steps behind it.

    Parameters
    ----------
    delays : sequence of float
        Each above 0.
    history : callable
        ``history(t)`` on the whole grid for t before t0.
    space : Semidiscretisation
        Of the equation.
    t0 : float
        The start.
    start, u0 : array
        The state at t0 on the whole grid, and at the unknown points.
    """

    def __init__(self, delays: Any, history: Any, space: Semidiscretisation, t0: float, start: Any, u0: Any) -> None:
        given = _reading.listed("delays", delays, "numbers above 0")
        self.delays = tuple(_reading.number("delays", one, above=0.0) for one in given)
        self.history: Callable[[float], Any] = history
        self.space, self.t0, self.shape = space, t0, start.shape
        self.times, self.states = [t0], [u0]
        for delay in self.delays:
            self._before(t0 - delay)
        #: Whether the solution jumps at t0, so that the reaction jumps behind each delay.
        self.jumps = not np.allclose(self._before(t0), start, rtol=1e-9, atol=1e-12)

    def kinks(self, t1: float) -> tuple[float, ...]:
        """The first times behind t0 at which the solution is not smooth, because it was not at t0."""
        sums = {self.t0 + k * one for one in self.delays for k in range(1, _KINKS + 1)}
        return tuple(sorted(t for t in sums if t < t1)[:_KINKS])

    def recorded(self, steps: Iterator[Any], mesh: Array) -> Iterator[Any]:
        """The steps of a run, each of which is known to the next ones."""
        del self.times[1:], self.states[1:]
        for t, u in zip(mesh[1:].tolist(), steps, strict=False):
            self.times.append(t)
            self.states.append(u)
            yield u

    def __call__(self, t: float, u: Any) -> tuple[Any, ...]:
        """The delayed states of the state u at t."""
        return tuple(self._at(t - delay, t, u) for delay in self.delays)

    def _at(self, then: float, t: float, u: Any) -> Any:
        if then < self.t0:
            return self._before(then)
        place = bisect.bisect_right(self.times, then)
        ahead = (self.times[place], self.states[place]) if place < len(self.times) else (t, u)
        share = (then - self.times[place - 1]) / (ahead[0] - self.times[place - 1])
        return self.space.embed((1.0 - share) * self.states[place - 1] + share * ahead[1], then)

    def _before(self, t: float) -> Any:
        found = np.asarray(self.history(t), dtype=self.states[0].dtype)
        if not _reading.broadcasts(found.shape, self.shape) or not np.isfinite(found).all():
            raise ShapeError(
                f"history({t:g}) of shape {found.shape}; give finite numbers that broadcast to the shape {self.shape} "
                "of u0"
            )
        return np.broadcast_to(found, self.shape)

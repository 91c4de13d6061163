"""Random walks in continuous time, and diffusion in a force field on the clock of their limit."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final, get_args

import numpy as np

from hpfracc import _reading
from hpfracc.errors import InvalidInputError, ShapeError, SolveError
from hpfracc.solvers.sde.noise.process import Noise, TimeGrid, read_fields
from hpfracc.solvers.sde.noise.source import RandomSource
from hpfracc.solvers.sde.noise.subordinated import InverseSubordinator
from hpfracc.solvers.sde.transport.domains import Boundary, Domain, land, read_domain, read_start
from hpfracc.solvers.sde.transport.laws import Draw, Jumps, WaitingTimes

#: Streams of waiting times and of jumps; a block of jumps has its own.
_WAITING, _JUMPS = 1 << 50, 1 << 51
#: Jumps that are drawn together for each path: few at first, for short walks. The block sizes are fixed, so that a path
#: does not depend on anything else.
_FIRST_BLOCK, _BLOCK = 8, 64
#: Tolerance for a jump at a multiple of a step, which counts at that time in spite of rounding.
ROUNDING = 1.0 + 1e-12


@final
@dataclass(frozen=True)
class ContinuousTimeRandomWalk(Noise):
    r"""A random walk in continuous time: the walker waits, then jumps.

    Waiting times and jumps are independent. With waiting times of infinite mean it is subdiffusive, with jumps of
    infinite variance it is a Levy flight; in the long-time limit it satisfies the fractional diffusion equation
    :math:`D_t^\alpha p = -K (-\Delta)^{\mu/2} p` [1].

    Parameters
    ----------
    waiting : WaitingTimes
        Law of the waiting times; the first one starts at time 0.
    jumps : Jumps
        Law of the jumps.
    start : float or sequence of float
        Initial position. With several components the walk is in as many dimensions, with isotropic jumps; paths then
        have the shape ``(*size, d, n)``, as :func:`~hpfracc.transport.msd` takes them.
    domain : tuple of float, optional
        Ends of the interval in which the walk stays; one of them may be infinite.
    boundary : {"absorb", "mirror", "stop", "reject"}
        What happens to a jump that would leave the domain. ``"absorb"``: the walk ends, and its values are nan from
        then on. ``"mirror"``: the end of the jump is reflected at the walls, repeatedly if necessary. ``"stop"``: the
        jump ends at the wall. ``"reject"``: the jump is cancelled, and the walker waits again. For jumps of infinite
        variance these give different laws, also in the limit of small jumps [2].

    Notes
    -----
    Paths are exact: every jump is drawn. The cost is proportional to the number of jumps until the last time. A path
    depends on the seed and its number, not on the output times.

    With ``MittagLefflerWaiting(alpha, tau)`` and jumps of variance :math:`\sigma^2` the mean squared displacement is
    :math:`\sigma^2 t^\alpha / (\tau^\alpha\,\Gamma(1+\alpha))` at all times.

    References
    ----------
    1. R. Metzler, J. Klafter, "The random walk's guide to anomalous diffusion", Phys. Rep. 339, 2000.
    2. B. Dybiec, E. Gudowska-Nowak, E. Barkai, A. A. Dubkov, "Levy flights versus Levy walks in bounded domains", Phys.
       Rev. E 95, 2017.

    Examples
    --------
    >>> import numpy as np
    >>> from hpfracc import transport
    >>> walk = transport.ContinuousTimeRandomWalk(transport.ParetoWaiting(0.7), transport.GaussianJumps())
    >>> walk.sample(np.linspace(0, 100, 11), size=5, rng=1).shape
    (5, 11)
    """

    waiting: WaitingTimes
    jumps: Jumps
    start: Any = 0.0
    domain: tuple[float, float] | None = None
    boundary: Boundary | None = None

    def __post_init__(self) -> None:
        _reading.instance("waiting", self.waiting, WaitingTimes, "ParetoWaiting(0.7)")
        _reading.instance("jumps", self.jumps, Jumps, "GaussianJumps()")
        if (self.domain is None) != (self.boundary is None):
            raise InvalidInputError("domain= and boundary= belong together; give both, or neither")
        if self.domain is not None:
            object.__setattr__(self, "domain", read_domain(self.domain))
            _reading.choice("boundary", self.boundary, get_args(Boundary))
        if not hasattr(self.start, "__len__"):
            object.__setattr__(self, "start", read_start(self.start, self._domain))
            return
        object.__setattr__(self, "start", tuple(_reading.numbers("start", self.start, ndim=1).tolist()))
        if self.domain is not None:
            raise InvalidInputError(
                "a domain is an interval, and the walk has several components; give one start, or no domain"
            )

    @property
    def _components(self) -> tuple[int, ...]:
        return (len(self.start),) if isinstance(self.start, tuple) else ()

    @property
    def _domain(self) -> Domain | None:
        return None if self.domain is None else Domain(*self.domain)

    def covariance(self, s: Any, t: Any) -> np.ndarray:
        """Covariance of (a component of) the displacements at two times, if the mean number of jumps is known."""
        if self.domain is not None:
            raise InvalidInputError("the covariance of a walk between walls has no closed form; average over samples")
        if self.jumps.mean > 0.0:
            raise InvalidInputError(
                f"{self.jumps!r} has a mean, and the walk no closed covariance; average over samples"
            )
        earlier = np.minimum(np.asarray(s, float), np.asarray(t, float))
        return np.asarray(self.jumps.variance * self.waiting.mean_jumps(earlier))

    def _sample(self, source: RandomSource, grid: TimeGrid, count: int) -> Any:
        times = grid.times * ROUNDING
        numbers = max(_BLOCK, times.size * math.prod(self._components) // 8)
        host = source.on_host()
        return source.array(host.in_chunks(count, numbers, lambda part, rows: self._positions(part, rows, times)))

    def _positions(self, host: RandomSource, count: int, times: np.ndarray) -> np.ndarray:
        """Positions at the times, shape ``(count, *components, times)``."""
        n = times.size
        values = np.zeros((count, n, *self._components))
        known = np.zeros((count, n), bool)
        values[:, 0], known[:, 0] = self.start, True
        going, time, place = np.arange(count), np.zeros(count), values[:, 0].copy()
        block = before = 0
        while going.size:
            arrivals, places = self._events(host, going, block, before, time, place)
            # The first output time after a jump; of several jumps between two times the last one counts.
            columns = np.searchsorted(times, arrivals)
            seen = columns < n
            seen[:, :-1] &= columns[:, :-1] != columns[:, 1:]
            rows, events = np.nonzero(seen)
            where = going[rows], columns[rows, events]
            values[where], known[where] = places[rows, events], True
            on = (columns[:, -1] < n) & ~np.isnan(places[:, -1].reshape(going.size, -1)[:, 0])
            going, time, place = going[on], arrivals[on, -1], places[on, -1]
            block, before = block + 1, before + arrivals.shape[1]
        latest = np.maximum.accumulate(np.where(known, np.arange(n), 0), axis=1)
        values = np.take_along_axis(values, latest.reshape(latest.shape + (1,) * len(self._components)), 1)
        return np.moveaxis(values, 1, -1)

    def _events(
        self, host: RandomSource, paths: np.ndarray, block: int, before: int, time: np.ndarray, place: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Times of the next jumps, and the positions after them, of shape ``(paths, jumps, *components)``."""
        count = min(_BLOCK, _FIRST_BLOCK << min(block, 16))
        arrivals = self.waiting._arrivals(Draw(host, paths, count, _WAITING + block), time, before)
        moves = self.jumps._draw(Draw(host, paths, count, _JUMPS + block), self._components)
        if self.boundary in (None, "absorb"):
            moves[:, 0] += place
            places = np.cumsum(moves, 1, out=moves)
            if self._domain is not None:
                places[np.logical_or.accumulate(self._domain.outside(places), axis=1)] = np.nan
            return arrivals, places
        assert self._domain is not None
        assert self.boundary is not None
        turned = np.ascontiguousarray(moves.T)
        for row in turned:
            row[:] = place = land(self._domain, self.boundary, place, row)
        return arrivals, np.ascontiguousarray(turned.T)


def walk_until(
    walk: ContinuousTimeRandomWalk, host: RandomSource, domain: Domain, until: float, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Times at which paths leave the domain, and where they land; inf and nan for those that are still inside."""
    times, ends = np.full(count, np.inf), np.full(count, np.nan)
    going, time, place = np.arange(count), np.zeros(count), np.full(count, walk.start)
    block = before = 0
    while going.size:
        arrivals, places = walk._events(host, going, block, before, time, place)
        left = domain.outside(places)
        # The first jump out of the domain, or the last one of the block.
        event = np.where(left.any(-1), left.argmax(-1), arrivals.shape[1] - 1)
        rows = np.arange(going.size)
        time, place = arrivals[rows, event], places[rows, event]
        in_time = time <= until * ROUNDING
        gone = left[rows, event] & in_time
        times[going[gone]], ends[going[gone]] = time[gone], place[gone]
        on = in_time & ~gone
        going, time, place = going[on], time[on], place[on]
        block, before = block + 1, before + arrivals.shape[1]
    return times, ends


#: Streams of the normal numbers: one for each time and block of steps.
_NORMALS, _PER_TIME = 1 << 54, 1 << 24
#: Steps whose numbers are drawn together.
_TOGETHER = 16


@final
@dataclass(frozen=True)
class SubordinatedDiffusion(Noise):
    r"""A diffusion :math:`dX_u = f(X_u)\,du + g(X_u)\,dW_u` (Ito) at the inverse stable time :math:`E_t`.

    Its density solves the fractional Fokker-Planck equation [1]

    .. math:: D_t^\alpha p = -\partial_x (f p) + \tfrac12 \partial_x^2 (g^2 p)

    with the Caputo derivative. With :math:`f(x) = -V'(x)` it is subdiffusion in the potential V.

    Parameters
    ----------
    drift : callable
        ``f(x)`` of an array of positions, one for each path; returns an array of that shape, or a number.
    diffusion : float or callable
        ``g(x)``.
    alpha : float
        Index of the clock, between 0 and 1.
    step : float
        Longest step of the Euler-Maruyama method, in the time u of the clock. The weak error is of first order in it.
    start : float
        Initial position.

    Notes
    -----
    The joint law of the clock at all times is exact. Between two of its values the diffusion takes equal steps of at
    most ``step``, so it is known exactly at the values of the clock. For diffusion without a force use
    :class:`~hpfracc.noise.Subordinated`, which is exact.

    References
    ----------
    1. M. Magdziarz, A. Weron, K. Weron, "Fractional Fokker-Planck dynamics: stochastic representation and computer
       simulation", Phys. Rev. E 75, 2007.

    Examples
    --------
    >>> import numpy as np
    >>> from hpfracc import transport
    >>> trapped = transport.SubordinatedDiffusion(lambda x: -x, 1.0, 0.7, step=0.01, start=1.0)
    >>> trapped.sample(np.linspace(0, 1, 5), size=3, rng=1).shape
    (3, 5)
    """

    drift: Callable[[np.ndarray], Any]
    diffusion: float | Callable[[np.ndarray], Any]
    alpha: float
    step: float
    start: float = 0.0

    def __post_init__(self) -> None:
        _reading.function("drift", self.drift, "the position x")
        if not callable(self.diffusion):
            read_fields(self, "diffusion")
        object.__setattr__(self, "alpha", InverseSubordinator(self.alpha).alpha)
        read_fields(self, "step")
        object.__setattr__(self, "start", read_start(self.start, None))

    def _sample(self, source: RandomSource, grid: TimeGrid, count: int) -> Any:
        def draw(part: RandomSource, rows: int) -> np.ndarray:
            spans = np.diff(InverseSubordinator(self.alpha)._sample(part, grid, rows), prepend=0.0)
            place, result = np.full(rows, self.start), np.empty(spans.shape)
            for index in range(grid.times.size):
                self._move(part, place, spans[:, index], index)
                result[:, index] = place
            return result

        return source.array(source.on_host().in_chunks(count, 32, draw))

    def _move(self, host: RandomSource, place: np.ndarray, spans: np.ndarray, index: int) -> None:
        """Steps over spans of the clock, one span for each path."""
        steps = np.ceil(spans / self.step).astype(np.int64)
        most = int(steps.max(initial=0))
        if most > _TOGETHER * _PER_TIME:
            raise InvalidInputError(
                f"the clock advances by {spans.max():.3g} between two times: {most:,} steps of {self.step:g}; use a "
                "larger step, or more times"
            )
        width = spans / np.maximum(steps, 1)
        for taken in range(0, most, _TOGETHER):
            going = np.flatnonzero(steps > taken)
            stream = _NORMALS + index * _PER_TIME + taken // _TOGETHER
            normals = host.numbers_of(going, min(_TOGETHER, most - taken), stream=stream)
            for k in range(normals.shape[1]):
                on = steps[going] > taken + k
                where = going[on]
                x, h = place[where], width[where]
                drift, diffusion = (self._value(name, x) for name in ("drift", "diffusion"))
                place[where] = x + drift * h + diffusion * np.sqrt(h) * normals[on, k]
        if not np.all(np.isfinite(place)):
            raise SolveError(f"paths are not finite after time number {index}; use a smaller step than {self.step:g}")

    def _value(self, name: str, x: np.ndarray) -> np.ndarray:
        given = getattr(self, name)
        value = np.asarray(given(x) if callable(given) else given, dtype=np.float64)
        if value.shape not in ((), x.shape):
            raise ShapeError(f"{name} returned shape {value.shape} for positions of shape {x.shape}; return that shape")
        return value

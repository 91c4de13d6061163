"""A partial differential equation, read and checked, ready for time stepping, and the unknowns of its steps."""

from __future__ import annotations

import bisect
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np

from hpfracc import _reading
from hpfracc._arrays import is_array, is_tracer, to_host, tracks_gradient
from hpfracc._xp import Namespace
from hpfracc.errors import ShapeError
from hpfracc.history.blocks import DirectHistory, steps_together
from hpfracc.history.interval_states import ExponentialHistory
from hpfracc.history.intervals import order_value
from hpfracc.operators._distributed_order import DistributedOrder
from hpfracc.solvers.pde.orders import VaryingOrder
from hpfracc.solvers.pde.space.base import Semidiscretisation
from hpfracc.solvers.pde.space.krylov import RTOL
from hpfracc.solvers.stepping.jumps import negative_powers, sample_near_start
from hpfracc.solvers.stepping.walk import find_stops

Array = np.ndarray[Any, Any]

#: What the rest may be of the source and still be rounding; the times, in halvings of the interval, between which it
#: must not grow, and by which factor.
_ROUNDING, _HALVINGS, _GROWS = 1e-12, (20, 40), 1.5


@dataclass(frozen=True, slots=True)
class SingularSource:
    """A power of time at t0 = 0, and the rest of the source.

    Attributes
    ----------
    power : float
        The power p, between -1 and 0.
    start : float
        The power q with which the solution starts, if it is below 1.
    size : numpy.ndarray
        c, at the unknown points.
    rest : callable
        ``rest(t)``, bounded at t0.
    """

    power: float
    start: float
    size: Array
    rest: Callable[[float], Any]

    def on_mesh(self, mesh: Array, past: DirectHistory | ExponentialHistory) -> Callable[[float], Array]:
        """The derivatives of w by the weights of ``past``, at times within the steps."""
        scale = math.gamma(self.power + 1.0) / math.gamma(self.start + 1.0)
        w = np.diff(scale * mesh**self.start)
        found = []
        for n, change in enumerate(w, 1):
            own, history = past.begin(n)
            found.append(float(own) * change + (0.0 if history is None else float(history[0])))
            past.remember(np.full(1, change))
        ends, last = mesh[1:] * (1.0 + 1e-12), len(found) - 1
        return lambda t: self.size * found[min(int(np.searchsorted(ends, t)), last)]


def read_singular(source: Callable[[float], Any], length: float, rise: float) -> SingularSource | None:
    """The power with which a source is infinite at t0 = 0; None if it is not, or not like one power.

    ``rise`` is by what the power in the solution is higher.
    """
    near = sample_near_start(source, length)
    if near is None:
        return None
    times, values = near
    powers, steady = negative_powers(np.abs(values).reshape(-1, 3), times)
    power = float(powers.min(initial=0.0))
    if not (steady and -1.0 < power < -1e-3):
        return None
    size = values[..., 0] * float(times[0]) ** -power

    def rest(t: float) -> Any:
        t = max(t, float(times[0]))
        whole = source(t)
        left = whole - size * t**power
        return np.where(np.abs(left) <= _ROUNDING * np.abs(whole), 0.0, left)

    before, after = (float(np.abs(rest(length * 2.0**-k)).max()) for k in _HALVINGS)
    if after > _GROWS * before:
        return None
    return SingularSource(power, power + rise, size, rest)


#: Sums of delays at which a mesh is graded anew.
_KINKS = 4


class Feature(StrEnum):
    """What only some methods take, in words."""

    OUTSIDE = "sources and reactions outside the memory (form='fokker_planck')"
    SEVERAL = "an order for each component"
    VARIABLE = "orders that vary in space or time"
    INTEGRALS = "integrals in terms"
    DELAYS = "delays"
    JUMPING_DELAYS = "delays with a history that does not end with u0"


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
        self.jumps = not np.allclose(self._before(t0), start, rtol=1e-9, atol=1e-9 * float(np.abs(start).max()))

    def kinks(self, t1: float) -> tuple[float, ...]:
        """The first times behind t0 at which the solution is not smooth, because it was not at t0."""
        sums = find_stops((), self.delays, t1 - self.t0)[:-1]
        return tuple(self.t0 + each for each in sums[:_KINKS])

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


@dataclass(slots=True, eq=False)
class EvolutionProblem:
    """``sum_i c_i D^alpha_i u = A u + b(t) + source(t) + reaction(t, u)`` on the unknown points of a grid.

    Attributes
    ----------
    space : Semidiscretisation
        The operator A, the boundary data b, and the grid.
    orders : tuple of (coefficient, order)
        The derivatives on the left-hand side, leading one first, with coefficient 1. An order may be a traced scalar.
    t0, t1 : float
        The interval.
    u0, du0 : array, array or None
        The state at t0 at the unknown points, and its derivative where the leading order is above 1.
    components : int or None
        Length of the first axis of the state; None if the state has no axis of components.
    reaction : callable or None
        ``reaction(t, u)``, with u and the result at the unknown points.
    source : callable or None
        ``source(t)`` at the unknown points.
    jacobian : callable or None
        ``jacobian(t, u)``: the derivative of the reaction, as a function of the change of u.
    frozen : callable or None
        ``frozen(t, u)``: the discretisation with a diffusion coefficient that depends on u, at this u; the reaction
        contains what it adds to ``space``.
    steady_source : bool
        Whether the source is constant in time.
    rtol, atol : float
        The tolerance; the nonlinear equations of a step are solved to a fraction of it.
    backend : str
        Passed to the engine; ``"numba"`` or ``"numpy"`` also sets how loops over steps run.
    compile : bool or "auto"
        Whether loops over steps are compiled.
    compatible : bool
        Whether u0 satisfies the boundary conditions.
    periodic : tuple of bool
        Whether each axis is periodic.
    breaks : tuple of float
        Times within the interval at which the data jump: steps end there.
    start_power : float or None
        The power of time with which the solution starts, where singular data make it lower than alpha.
    integrated : float, scalar array or None
        The order of a fractional integral in time that is applied to source and reaction; None if there is none.
    singular : SingularSource or None
        The power of time with which the source starts from infinity.
    added : callable or None
        ``added(t)``: what is added to source and boundary data.
    varying : VaryingOrder or None
        Orders that differ between components, or vary; ``orders`` then has the largest one.
    distribution : DistributedOrder or None
        The distribution of which ``orders`` are the quadrature rule.
    delayed : DelayedFrames or None
        The delayed states that the reaction looks up, where it has delays.
    on_grid : callable or None
        ``on_grid(grid)``: the same equation with its data on another grid, for error estimates; None if its
        discretisation has a grid of its own.
    names : tuple of str
        The names of the components, if they have any.
    stats : dict
        Counters that methods add to: ``reactions``, ``solves``, ``newton_iterations``, ...
    notes : list of str
        Remarks on the run for the user.
    """

    space: Semidiscretisation
    orders: tuple[tuple[Any, Any], ...]
    t0: float
    t1: float
    u0: Any
    du0: Any = None
    components: int | None = None
    reaction: Callable[[float, Any], Any] | None = None
    source: Callable[[float], Any] | None = None
    jacobian: Callable[[float, Any], Callable[[Any], Any]] | None = None
    frozen: Callable[[float, Any], Semidiscretisation] | None = None
    steady_source: bool = False
    rtol: float = 1e-6
    atol: float = 1e-9
    backend: str = "auto"
    compile: bool | str = "auto"
    compatible: bool = True
    periodic: tuple[bool, ...] = ()
    breaks: tuple[float, ...] = ()
    start_power: float | None = None
    integrated: Any = None
    singular: SingularSource | None = None
    added: Callable[[float], Any] | None = None
    varying: VaryingOrder | None = None
    distribution: DistributedOrder | None = None
    delayed: DelayedFrames | None = None
    on_grid: Callable[[tuple[Array, ...]], EvolutionProblem] | None = None
    names: tuple[str, ...] = ()
    stats: defaultdict[str, Any] = field(default_factory=lambda: defaultdict(int))
    notes: list[str] = field(default_factory=list)
    #: The array namespace of its library.
    xp: Namespace = field(init=False)
    #: The largest absolute value of a state.
    largest: Callable[[Any], float] = field(init=False)

    def __post_init__(self) -> None:
        self.xp, self.largest = self.space.xp, self.space.largest

    @property
    def alpha(self) -> Any:
        """The leading order."""
        return self.orders[0][1]

    @property
    def alpha_value(self) -> float:
        """The leading order as a number, on which choices are based; for a traced order its value."""
        return order_value(self.alpha)

    @property
    def state_shape(self) -> tuple[int, ...]:
        """Shape of the unknowns, components first."""
        return self.space.shape if self.components is None else (self.components, *self.space.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of an element of the state."""
        return 16 if self.xp.is_complex(self.u0) else 8

    @property
    def linear(self) -> bool:
        """Whether there is no reaction."""
        return self.reaction is None

    @property
    def forced(self) -> bool:
        """Whether there is a source or boundary data."""
        return self.source is not None or self.space.forced

    @property
    def varies(self) -> bool:
        """Whether the source or the boundary data change in time."""
        return (self.source is not None and not self.steady_source) or self.space.forcing_varies

    @property
    def integrals(self) -> tuple[tuple[Any, Any], ...]:
        """Those of the orders that are negative, the fractional integrals."""
        return tuple((c, order) for c, order in self.orders if order_value(order) < 0.0)

    @property
    def features(self) -> tuple[Feature, ...]:
        """What only some methods take."""
        several = self.varying is not None and self.varying.kind == "components"
        present = {
            Feature.OUTSIDE: self.integrated is not None,
            Feature.INTEGRALS: self.integrals,
            Feature.SEVERAL: several,
            Feature.VARIABLE: self.varying is not None and not several,
            Feature.DELAYS: self.delayed is not None,
            Feature.JUMPING_DELAYS: self.delayed is not None and self.delayed.jumps,
        }
        return tuple(feature for feature, there in present.items() if there)

    def known(self, t: float, *, whole: bool = False) -> Any:
        """``b(t) + source(t)``; None if there is neither. A source that is integrated only if ``whole``."""
        with np.errstate(invalid="ignore"):  # data may be infinite at t0
            total = self.space.forcing(t)
            if self.source is not None and (whole or self.integrated is None):
                own = self.source(t)
                total = own if total is None else total + own
        if self.added is not None:
            more = self.added(t)
            total = more if total is None else total + more
        return total

    def largest_each(self, u: Any) -> Array:
        """The largest absolute value of each component of a state, of shape () or (components,)."""
        sizes = np.abs(np.asarray(to_host(self.xp.stop_gradient(u))))
        return np.asarray(sizes.max(axis=tuple(range(sizes.ndim))[self.components is not None :]))


@dataclass(frozen=True, slots=True)
class FrameBlock:
    """A few consecutive steps, whose values are computed on demand.

    Attributes
    ----------
    count : int
        Number of steps.
    make : callable
        Returns the values at the unknown points, of shape (count, *state). It must be called before the next step.
    """

    count: int
    make: Callable[[], Any]


class StepForm:
    """The unknowns of a step: coefficients of the eigenfunctions if the equation is linear and diagonal, else values.

    In coefficients a linear equation becomes one scalar equation for each.
    """

    def __init__(self, problem: EvolutionProblem) -> None:
        self.problem, self.symbol = problem, problem.space.symbol if problem.linear else None
        self.modal = self.symbol is not None
        #: Whether there are source or boundary data.
        sourced = problem.source is not None and problem.integrated is None
        self.forced = sourced or problem.space.forced or problem.added is not None
        self._constant: Any = None

    def encode(self, u: Any) -> Any:
        """The unknowns of these values."""
        return self.problem.space.forward(u) if self.modal else u

    def decode(self, c: Any) -> Any:
        """The values."""
        return self.problem.space.backward(c) if self.modal else c

    def known(self, t: Any) -> Any:
        """Source and boundary data; coefficients that are constant in time are cached."""
        if self._constant is not None or not self.forced:
            return self._constant
        values = self.problem.known(t)
        if values is None or not self.modal:
            return values
        found = self.encode(values + self.problem.xp.zeros(self.problem.state_shape, "float64"))
        if not self.problem.varies:
            self._constant = found
        return found

    def outside(self, t: Any, u: Any) -> Any:
        """Source and reaction at values u, for those that are integrated."""
        problem = self.problem
        total = self.source(t)
        return total if problem.reaction is None else total + problem.reaction(t, u)

    def source(self, t: Any) -> Any:
        """The source alone; zero if there is none."""
        values = 0.0 if self.problem.source is None else self.problem.source(t)
        return self.encode(values + self.problem.xp.zeros(self.problem.state_shape, "float64"))

    def apply(self, c: Any) -> Any:
        """``A c``."""
        return self.symbol * c if self.modal else self.problem.space.apply(c)

    def solve(self, shift: Any, rhs: Any, guess: Any = None, rtol: float = RTOL) -> Any:
        """``(shift - A)^-1 rhs``."""
        if self.modal:
            return rhs / (shift - self.symbol)
        self.problem.stats["solves"] += 1
        return self.problem.space.solve(shift, rhs, guess, rtol)


def in_blocks(form: StepForm, states: Iterator[Any], steps: int) -> Iterator[Any]:
    """States as they are if they are values; coefficients in blocks, whose values are computed together."""
    if not form.modal:
        yield from states
        return
    problem = form.problem
    together = steps_together(problem.itemsize * math.prod(problem.state_shape), steps)
    while block := list(itertools.islice(states, together)):
        yield FrameBlock(len(block), lambda block=block: form.decode(problem.xp.stack(block)))  # type: ignore[misc]


def plain_order(order: Any) -> Any:
    """An order in space as a number; one that carries a gradient or is traced stays a scalar array."""
    if is_array(order) and (is_tracer(order) or tracks_gradient(order)):
        return order.reshape(())
    return order_value(order)

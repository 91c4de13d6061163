"""The choice of adaptive steps by a tolerance, without derivatives, for arrays of every library.

The few numbers of a step are NumPy's where steps are run in Python, and traced where JAX compiles the whole. An output
time ends no step: the polynomial of the step that it lies in is integrated up to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from hpfracc.history.states import combined, moments, remembered
from hpfracc.solvers.ode.fixed.grid import initial_polynomial
from hpfracc.solvers.ode.tensors import adams
from hpfracc.solvers.ode.tensors.adams import AdaptiveEquation, Mesh, first_past
from hpfracc.solvers.stepping.walk import HOPELESS, MAX_PASSES, smaller_share


class Tolerance(NamedTuple):
    """The tolerance and limits of adaptive steps."""

    rtol: float
    atol: Any
    first_step: float | None
    max_step: float
    shortest: float
    rounding: float
    globally: bool


class _Search(NamedTuple):
    """The mesh so far, what a step needs, and the last step: its states before, coefficients and length."""

    mesh: Mesh
    past: adams.Past
    error: tuple[Any, Any]
    largest: Any
    window: Any
    degree: Any
    previous: Any
    failed: Any
    before: Any
    coefficients: Any


def choose_mesh(
    equation: AdaptiveEquation,
    stops: Any,
    outputs: Any,
    tolerance: Tolerance,
    most: int,
    told: Callable[[float, Any], None] = lambda tau, y: None,
) -> tuple[Mesh, int, bool]:
    """Steps that meet the tolerance, at most ``most``; the number of passes, and whether the user interrupted it.

    Parameters
    ----------
    stops, outputs : arrays
        Increasing times after t0: those at which steps end, the last of them the end, and those of the output.
    told : callable
        ``told(tau, y)`` after each step, where steps are run in Python.
    """
    search = _SearchPass(equation, stops, outputs, tolerance, most, told)
    passes = MAX_PASSES if tolerance.globally else 1
    np_ = search.np

    def refine(carried: tuple[Any, Any, Mesh]) -> tuple[Any, Any, Mesh]:
        share, number, _ = carried
        mesh = search.run(share, np_.where(number + 1 >= passes, math.inf, HOPELESS))
        return smaller_share(share, search.number(mesh.ratio), np_), number + 1, mesh

    def too_large(carried: tuple[Any, Any, Mesh]) -> Any:
        _, number, mesh = carried
        stopped = (mesh.stop < stops.shape[0]) & (mesh.seen <= HOPELESS)
        return (number < passes) & (search.number(mesh.ratio) > 1.0) & ~(stopped | search.interrupted)

    share = np_.ones((), search.kind)
    nothing = search.begin(0.0).mesh
    nothing = nothing._replace(ratio=nothing.ratio + math.inf, seen=nothing.seen + math.inf)
    _, number, mesh = equation.xp.repeat_while(too_large, refine, (share, np_.zeros((), np_.int32), nothing))
    return mesh, number, search.interrupted


class _SearchPass:
    """Passes over the interval."""

    def __init__(self, equation: AdaptiveEquation, stops: Any, outputs: Any, *rest: Any) -> None:
        self.equation, self.stops, self.outputs, self.interrupted = equation, stops, outputs, False
        self.tolerance, self.most, self.told = rest
        self.m, self.np = equation.xp.module, equation.small.module
        self.traced = equation.xp.library == "jax"
        self.number: Callable[[Any], Any] = (lambda value: value) if self.traced else float
        self.kind = equation.memory.rates.dtype if self.traced else np.float64
        self.f0 = equation.fun(0.0, equation.initial[0])

    def run(self, share: Any, most_ratio: Any) -> Mesh:
        """One pass, stopped where the error is above ``most_ratio`` times the tolerance."""

        def go_on(search: _Search) -> Any:
            mesh = search.mesh
            room = (mesh.count + (0 if self.traced else mesh.rejected) < self.most) & (mesh.rejected < self.most)
            under_way = (mesh.stop < self.stops.shape[0]) & room & (mesh.seen <= most_ratio)
            return (under_way | self._due(mesh)) & ~search.failed

        def turn(search: _Search) -> _Search:
            if not self.outputs.shape[0]:
                return self._attempt(share, search)
            due = self._due(search.mesh)
            found: _Search = self.equation.xp.branch(due, self._emit, lambda each: self._attempt(share, each), search)
            return found

        first, share = self.tolerance.first_step, self.number(share)
        search = self.begin(self._first_step(share) if first is None else first)
        if self.traced:
            search = self.equation.xp.repeat_while(go_on, turn, search)
        else:
            try:
                while go_on(search):
                    search = turn(search)
            except KeyboardInterrupt:
                if not search.mesh.count:
                    raise
                self.interrupted = True
        return search.mesh

    def _due(self, mesh: Mesh) -> Any:
        """Whether the next output lies within the last step."""
        count = self.outputs.shape[0]
        if not count:
            return False if not self.traced else self.np.asarray(False)
        return (mesh.out < count) & (self.outputs[self.np.minimum(mesh.out, count - 1)] <= mesh.tau)

    def _scale(self, y: Any, other: Any, share: Any) -> Any:
        return share * (self.tolerance.atol + self.tolerance.rtol * self.m.maximum(abs(y), abs(other)))

    def begin(self, step: Any) -> _Search:
        """Before the first step, of this length."""
        np_, equation, y0, count = self.np, self.equation, self.equation.initial[0], self.outputs.shape[0]
        kind, whole = self.kind, np_.int32
        none = np_.zeros((), whole)
        nothing, past = equation.xp.zeros((), equation.memory.rates.dtype, like=y0.real), first_past(equation, self.f0)
        mesh = Mesh(
            np_.zeros(self.most, kind), np_.zeros(self.most, whole), np_.zeros(self.most + 1, kind), none, none,
            none, nothing, nothing, np_.zeros((), kind), np_.zeros((), kind), np_.asarray(step, kind), none, none,
            equation.xp.zeros((count, *y0.shape), self.f0.dtype, like=self.f0),
        )  # fmt: skip
        square = np_.zeros((1, adams.NODES, adams.NODES), kind)
        return _Search(
            mesh, past, (past.states, 0.0 * self.f0), abs(past.y), np_.zeros(adams.NODES - 2, kind),
            np_.ones((), whole), np_.ones((), kind), np_.asarray(False), past.states, square,
        )  # fmt: skip

    def _first_step(self, share: Any) -> Any:
        """A step whose first term is about the tolerance, as in ``Stepper``."""
        np_, equation, tolerance = self.np, self.equation, self.tolerance
        y0, f0, order = equation.initial[0], self.f0, equation.order
        least, longest, bound = np_.min(order), 1e-3 * self.stops[-1], self._scale(y0, y0, share)

        def size(change: Any) -> Any:
            return self.number(adams.sizes(self.m, change[None], bound)[0])

        begin = size(f0)
        guess = (1e-2 / (share * tolerance.rtol * np_.where(begin > 0.0, begin, 1.0))) ** (1.0 / least)
        step = np_.clip(np_.where(begin > 0.0, guess, longest), tolerance.shortest, longest)

        def better(carried: Any) -> Any:
            step, _, count = carried
            rise = equation.large(np_.exp(order * np_.log(step)) * equation.rgamma / order)
            end = initial_polynomial(self.number(step), equation.initial) + f0 * rise
            change = size(equation.fun(self.number(step), end) - f0)
            error = change * step**least / np_.exp(equation.small.lgamma(least + 2.0))
            done = ((error >= 0.05) & (error <= 1.0)) | ((error < 0.05) & (step >= longest))
            other = np_.clip(step * (0.3 / np_.maximum(error, 1e-12)) ** (0.5 / least), tolerance.shortest, longest)
            other = np_.where(np_.isfinite(error), other, np_.maximum(1e-3 * step, tolerance.shortest))
            return np_.where(done, step, other), done, count + 1

        start = (step, np_.asarray(False), 0)
        return equation.xp.repeat_while(lambda carried: (carried[2] < 4) & ~carried[1], better, start)[0]

    def _emit(self, search: _Search) -> _Search:
        """The next output, within the last step."""
        np_, mesh, equation = self.np, search.mesh, self.equation
        tau, step = self.outputs[mesh.out], search.window[0]
        distance = tau - (mesh.tau - step)
        coefficients = adams.inside(np_, search.coefficients, (distance / step)[None])
        weights = adams.weigh(np_, coefficients, distance[None], equation.order, equation.rgamma)[0]
        known = remembered(self.m, equation.memory, search.before, self.number(distance))
        y = initial_polynomial(self.number(tau), equation.initial) + known
        y = y + combined(self.m, equation.large(weights[:-1]), search.past.values)
        return search._replace(mesh=mesh._replace(answers=equation.xp.put(mesh.answers, mesh.out, y), out=mesh.out + 1))

    def _attempt(self, share: Any, search: _Search) -> _Search:
        """A step that is accepted or not."""
        np_, m, mesh, past, equation = self.np, self.m, search.mesh, search.past, self.equation
        tolerance, memory, number = self.tolerance, equation.memory, self.number
        stop = self.stops[mesh.stop]
        left = stop - mesh.tau
        step = np_.minimum(mesh.step, tolerance.max_step)
        whole = step >= left * (1.0 - (4.0 * tolerance.rounding if self.traced else 1e-12))
        clipped = step >= 0.5 * left
        taken = np_.where(whole, left, np_.where(clipped, 0.5 * left, step))
        end = np_.where(whole, stop, mesh.tau + taken)
        known = np_.minimum(mesh.count + 1, adams.NODES - 1)
        degree = np_.minimum(search.degree, known)
        rule = adams.make_rule(np_, equation.order, equation.rgamma, search.window, taken, known, degree)
        small = adams.StepArrays._make([*map(equation.large, rule[:-1]), rule.row])
        start = initial_polynomial(number(end), equation.initial)
        h, t = number(taken), number(end)
        y, f, change = adams.correct(m, equation.fun, memory, past, small, h, t, start)
        differences, terms = adams.terms_of(m, small, past, f)
        felt = adams.sizes(m, m.concatenate([terms, change[None]]), self._scale(past.y, y, share))
        seen = mesh.ratio
        if not self.traced:  # the only synchronisation with the device in a step
            felt = np.array(m.cat([felt, mesh.ratio[None]]).tolist())
            felt, seen = felt[:-1], felt[-1]
        highest, least = np_.max(equation.order), np_.min(equation.order)
        factor = np_.where(highest > 1.0, (end / taken) ** np_.maximum(highest - 1.0, 0.0), 1.0)
        accepted, growth, next_degree, previous = adams.judge(
            np_, factor * felt[:-1], felt[-1], degree, known, search.previous, least
        )
        short = (taken < 8.0 * tolerance.rounding * mesh.tau) | (step < 0.5 * tolerance.shortest)

        def accept(search: _Search) -> _Search:
            integrals, row, put = moments(m, memory, h), rule.row, equation.xp.put
            newest = adams.NewStep(h, t, y, f, integrals, differences[row], terms[row])
            error, kept = adams.propagate(m, equation.fun, memory, search.error, small, newest)
            largest = m.maximum(abs(y), search.largest * number(mesh.tau / end))
            bound = tolerance.atol + tolerance.rtol * largest
            new = mesh._replace(
                lengths=put(mesh.lengths, mesh.count, taken), degrees=put(mesh.degrees, mesh.count, degree),
                taus=put(mesh.taus, mesh.count + 1, end), count=mesh.count + 1, seen=seen, tau=end,
                ratio=m.maximum(mesh.ratio, (abs(error) / bound).max()),
                error=m.maximum(mesh.error, abs(error).max()),
                step=np_.maximum(taken * growth, np_.where(clipped, step, 0.0)), stop=mesh.stop + whole,
            )  # fmt: skip
            window = np_.concatenate([taken[None], search.window[:-1]])
            moved = adams.push(m, memory, past, small, h, y, f, integrals)
            if not self.traced:
                self.told(float(end), y)
            return _Search(
                new, moved, kept, largest, window, next_degree, previous, search.failed, past.states,
                rule.coefficients[None],
            )  # fmt: skip

        def refuse(search: _Search) -> _Search:
            lost = np_.where(growth <= 0.5, 1, 0)
            new = mesh._replace(
                step=taken * growth, rejected=mesh.rejected + 1, unsettled=mesh.unsettled + lost, seen=seen
            )
            return search._replace(mesh=new, degree=next_degree, failed=short)

        found: _Search = equation.xp.branch(accepted & ~short, accept, refuse, search)
        return found

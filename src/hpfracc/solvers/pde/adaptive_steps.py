r"""Adaptive steps in time: the steps of :mod:`hpfracc.solvers.ode.adaptive` for all unknowns of a grid together.

The right-hand side :math:`f = A u + b(t) + s(t) + R(t, u)` is a polynomial on each step, and its past a sum of
exponentials. The equation of a step, :math:`u = \text{known} + w f(t, u)`, is solved by the discretisation:
:math:`(1/w - A) u = \text{known}/w + b + s + R(t, u)`. Linear equations with a diagonal form are stepped in the
coefficients of their eigenfunctions, and errors are measured in the values: the largest over the grid.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpfracc.history.states import ExponentialMemory, TrackedMemory
from hpfracc.solvers.ode.adaptive.corrector import Solved
from hpfracc.solvers.ode.adaptive.solution import PieceStore
from hpfracc.solvers.ode.adaptive.stepper import Stepper, stable_degrees
from hpfracc.solvers.ode.problem import NotFiniteError
from hpfracc.solvers.pde.driver import StepProgress
from hpfracc.solvers.pde.method import Question
from hpfracc.solvers.pde.nonlinear import ROUGH, ReactionSolver
from hpfracc.solvers.pde.problem import EvolutionProblem, StepFailedError, StepForm
from hpfracc.solvers.pde.recording import Run
from hpfracc.solvers.pde.time_data import TimeData, breaks_of, just_before, note_jumps

Array = np.ndarray[Any, Any]

#: Largest number of passes; the multiple of the tolerance at which a pass is abandoned, and that which is tolerated
#: after the last one, because the estimate is rough.
_MAX_PASSES, _HOPELESS, _TOLERATED = 6, 4.0, 10.0
#: Share of the tolerance for a step in the first pass.
_SHARE = 0.5
#: An estimate below this fraction of what a step may err is a cancellation of terms that are not known so well.
_RESOLVED = 0.05
#: Product of the newest weight and the largest eigenvalue below which the right-hand side is evaluated after a step.
_SHORT = 1e-3
#: Ends of steps through which data are interpolated, to be compared with the data between them.
_POINTS = 6
#: Unknowns up to which solution and error have one memory.
_FEW = 128
#: Steps that are added to the memory together: 255 x 255 points take 6.5 ms a step for it instead of 11.
_TOGETHER = 4
#: Growth of the largest value that counts as a blow-up where steps can be no shorter.
_GROWS = 2.0
#: Above order 1, the largest product of the newest weight and an eigenvalue for which steps are stable: at order 2 the
#: rule is that of Newmark with 1/6.
_STABLE = 2.0


class _EvolutionSystem:
    """The equation on flat states, for the stepper."""

    offset = 0.0

    def __init__(self, problem: EvolutionProblem, breaks: tuple[float, ...], first: float) -> None:
        self.problem, self.breaks = problem, breaks
        self.ends = (max(problem.t0, first), *breaks, problem.t1)
        self.form = StepForm(problem)
        given = [problem.u0] if problem.du0 is None else [problem.u0, problem.du0]
        coefficients = [np.asarray(self.form.encode(each)) for each in given]
        self.form_shape = coefficients[0].shape
        self.dtype = np.result_type(*coefficients)
        self.initial = [each.reshape(-1) for each in coefficients]
        self.size = self.initial[0].size
        self.shape = (self.size,)
        self.groups: list[tuple[float, Any]] = [(float(problem.alpha), slice(None))]
        if problem.varying is not None:
            orders = np.broadcast_to(problem.varying.at(problem.t0), self.form_shape).reshape(-1)
            self.groups = [(float(one), np.flatnonzero(orders == one)) for one in np.unique(orders)]
        self.enter(0)
        self._sizes: list[tuple[Array, float]] = []  # of the newest states, which are asked for several times

    def time(self, tau: float) -> float:
        """The time, on the side of a jump on which the steps are."""
        return min(max(self.problem.t0 + tau, self.segment[0]), self.segment[1])

    def enter(self, number: int) -> None:
        """Evaluate the data between two breakpoints, counted from 0."""
        low, high = self.ends[number : number + 2]
        self.segment = low, high if number == len(self.breaks) else math.nextafter(high, -math.inf)

    def start(self, tau: float) -> Array:
        """The polynomial of the initial values."""
        return self.initial[0] if len(self.initial) == 1 else self.initial[0] + tau * self.initial[1]

    def __call__(self, tau: float, y: Array, *, shifted: bool = False) -> Array:
        """The right-hand side."""
        u = self.shaped(y)
        return self.finite(self.form.apply(u) + self.data(tau) + self.reaction(tau, u), tau)

    def first(self, y: Array) -> Array:
        """The right-hand side at the start."""
        return self(0.0, y)

    def data(self, tau: float) -> Any:
        """Source and boundary data."""
        known = self.form.known(self.time(tau))
        return 0.0 if known is None else known

    def reaction(self, tau: float, u: Array) -> Any:
        """The reaction."""
        if self.problem.reaction is None:
            return 0.0
        self.problem.count("reactions")
        return self.problem.reaction(self.time(tau), u)

    def finite(self, u: Any, tau: float) -> Array:
        """A flat state; raises an error if it is not finite."""
        flat = np.asarray(u, self.dtype).reshape(-1)
        if not np.isfinite(flat.sum()) and not np.isfinite(flat).all():
            raise NotFiniteError(f"The right-hand side is not finite at t = {self.time(tau):.6g}")
        return flat

    def shaped(self, y: Array) -> Array:
        """The state in the form of a step."""
        return y.reshape(self.form_shape)

    def values(self, y: Array) -> Any:
        """Values at the unknown points."""
        return self.form.decode(self.shaped(y))

    def frame(self, tau: float, y: Array) -> Any:
        """Values on the whole grid."""
        return self.problem.space.embed(self.values(y), self.time(tau))

    def largest(self, ys: Array) -> list[float]:
        """The largest value of each of several states."""
        if self.form.modal:
            ys = self.form.decode(ys.reshape(len(ys), *self.form_shape))
        return np.abs(ys).reshape(len(ys), -1).max(axis=1).tolist()  # type: ignore[no-any-return]

    def largest_of(self, y: Array) -> float:
        """The largest value of one state."""
        for known, size in self._sizes:
            if known is y:
                return size
        self._sizes = [(y, self.largest(y[None])[0]), *self._sizes[:3]]
        return self._sizes[0][1]

    def magnitude(self, y: Array) -> Array:
        """The largest value over the grid, which the relative tolerance refers to."""
        return np.full(1, self.largest_of(y))

    def norm(self, scale: Array) -> _LargestNorm:
        """The largest value, in units of the tolerance."""
        return _LargestNorm(self, float(scale[0]))

    def ratio(self, error: Array, tolerance: Array) -> float:
        """The largest value, in units of the tolerance."""
        return self.largest_of(error) / float(tolerance[0])


@dataclass(frozen=True, slots=True)
class _LargestNorm:
    system: _EvolutionSystem
    scale: float

    def __call__(self, change: Array) -> float:
        return self.system.largest(change[None])[0] / self.scale

    def rows(self, changes: Array) -> list[float]:
        return [size / self.scale for size in self.system.largest(changes)]


class _EvolutionCorrector:
    """Solves the equation of a step with the discretisation; stiff throughout."""

    stiff, switches, solves_to_damp, iterates = True, 0, True, False

    def __init__(self, system: _EvolutionSystem, share: float) -> None:
        self.system, self.contraction = system, math.inf
        #: Why the newest step was not solved.
        self.failure = ""
        problem = system.problem
        self._reactions = None if problem.linear else ReactionSolver(problem, share)
        symbol = problem.space.symbol
        self.radius = math.inf if symbol is None else float(np.abs(symbol).max())
        #: The eigenvalue of each element, if they are independent.
        self._rates: Array | None = None
        if system.form.modal and len(system.groups) == 1:
            self._rates = np.abs(np.broadcast_to(symbol, system.form_shape)).reshape(-1)
        self._newest, self._time, self._state = 0.0, 0.0, system.initial[0]
        #: The estimated error of the newest step.
        self.error = np.zeros_like(system.initial[0])
        self._weight: Any = 1.0

    def solve(self, tau: float, known: Array, weight: Any, guess: Array, norm: Any, steps: int) -> Solved:
        """One linear or nonlinear solve; None if the step is too long for it."""
        system, shift = self.system, self._shift(weight)
        rhs = system.shaped(known) * shift + system.data(tau)
        try:
            if self._reactions is None:
                found = system.form.solve(shift, rhs, system.shaped(guess))
            else:
                found = self._reactions.solve(system.time(tau), shift, rhs, system.shaped(guess))
        except StepFailedError as error:
            self.failure = f" The newest one failed: {error}."
            return None
        self.failure = ""
        self._weight, self._time, self._state = weight, tau, system.finite(found, tau)
        slope = (self._state - known) / weight
        short = weight * self.radius < _SHORT  # that difference is rounding
        if np.any(short):
            slope = np.where(short, system(tau, self._state), slope)
        return self._state, slope

    def damped(self, change: Array, weight: Any = None) -> Array:
        """The effect of a change of ``known`` on the solution, without the reaction; of several in coefficients."""
        system, shift = self.system, self._shift(self._weight if weight is None else weight)
        system.problem.count("error_solves", change.size // system.size)
        rhs = change.reshape(*change.shape[:-1], *system.form_shape) * shift
        if self._reactions is None:
            found = system.form.solve(shift, rhs, None, ROUGH)
        else:
            found = self._reactions.damped(shift, rhs)
        return np.asarray(found, system.dtype).reshape(change.shape)

    def damped_rows(self, changes: Array) -> Any:
        """The effect of several changes."""
        return self.damped(changes) if self.system.form.modal else [self.damped(change) for change in changes]

    def propagate(
        self, known: Array, weight: Any, guess: Array, change: Callable[[Array], Array]
    ) -> tuple[Array, Array]:
        """The estimated error, with one linear solve; with a reaction, from its change by the error before."""
        system = self.system
        if self._reactions is None:
            error = self.damped(known, weight)
        else:
            system.problem.count("error_solves")
            shift, t = self._shift(weight), system.time(self._time)
            found = self._reactions.perturbed(t, shift, system.shaped(known) * shift, system.shaped(self.error))
            error = np.asarray(found, system.dtype).reshape(-1)
        self.error = error
        return error, (error - known) / weight

    def degrees(self) -> Array | None:
        """The stable degree of each mode: fast modes have a lower one than slow modes."""
        return None if self._rates is None else stable_degrees(self._newest * self._rates, self.system.groups[0][0])

    def accepted(self, weight: Any, scale: Array) -> None:
        """Record how stiff the step was."""
        self._newest = float(np.max(weight))
        self.contraction = self._newest * self.radius if self._rates is None else 0.0

    def _shift(self, weight: Any) -> Any:
        """``1 / weight``, a number or one for each element."""
        return self.system.shaped(1.0 / weight) if np.ndim(weight) else 1.0 / float(weight)


class _EvolutionPass:
    """One pass over the interval, with a fixed share of the tolerance for each step."""

    def __init__(self, question: Question, breaks: tuple[float, ...], first: float, share: float) -> None:
        self.question, self.breaks, self.share = question, breaks, share
        self.problem, _, self.options, *_ = question
        self.system = _EvolutionSystem(self.problem, breaks, first)
        self.stepper: Stepper | None = None
        self.error, self.errors = 0.0, list[tuple[float, Any]]()
        self.times = [self.problem.t0]
        self.pieces: PieceStore | None = None

    def run(self, progress: StepProgress, most_ratio: float) -> Run:
        """Step until the end, a terminal event or a failure."""
        run = Run(self.question, None, at=self._between)
        report = progress.of_times(run)
        if self.options.dense_output:
            self.pieces = PieceStore(self.system)
            run.frame = self._stored
        try:
            with run.guarded():
                for t in self._steps(run, most_ratio):
                    self.times.append(t)
                    u = self.system.values(self.newest.y)
                    if not run.take(np.array([t]), u[None], last=t == self.problem.t1):
                        break
                    report(t, lambda: self.problem.space.embed(*reversed(run.newest)))
        except NotFiniteError as error:
            run.fail(f"{error}: check the data and the initial values.")
        return run

    @property
    def newest(self) -> Stepper:
        """The stepper, once it is there."""
        assert self.stepper is not None
        return self.stepper

    def _steps(self, run: Run, most_ratio: float) -> Iterator[float]:
        """Yield the time of each step."""
        problem, options, system = self.problem, self.options, self.system
        length = problem.t1 - problem.t0
        corrector = _EvolutionCorrector(system, self.share)
        between = options.t_eval is not None or bool(options.events) or options.dense_output
        many = functools.partial(TrackedMemory, together=1 if between else _TOGETHER)
        memory = many if system.size > _FEW else ExponentialMemory
        stepper = self.stepper = Stepper(
            system, length, options, self.share, between=between, corrector=corrector, memory=memory
        )
        for alpha, _ in system.groups:
            if alpha > 1.0 and math.isfinite(corrector.radius) and corrector.radius > 0.0:
                stable = (_STABLE * math.gamma(alpha + 2.0) / corrector.radius) ** (1.0 / alpha)
                stepper.most_step = min(stepper.most_step, stable)
        for number, end in enumerate((*self.breaks, problem.t1)):
            stop = end - problem.t0
            system.enter(number)
            if number:
                stepper.restart()
            while stepper.tau < stop:
                if stepper.accepted >= options.max_steps:
                    run.fail(
                        f"max_steps={options.max_steps:,} steps reach t = {system.time(stepper.tau):g} of "
                        f"{problem.t1:g}: give more, or a larger tolerance than rtol={options.rtol:g}.",
                    )
                    return
                stopped = stepper.advance(stop)
                if stopped is not None:
                    run.fail(self._blow_up() or stopped + corrector.failure)
                    return
                if not between:  # fewer points are less work, and these degrees are not stable
                    stepper.values = stepper.values[: max(3, stepper.highest_degree() + 2)]
                self._note()
                t = end if stepper.tau >= stop else problem.t0 + stepper.tau
                if t > self.times[-1]:  # steps behind a jump may be shorter than times can tell
                    yield t
                if stepper.ratio > most_ratio and stepper.jumped is None:
                    return

    def _blow_up(self) -> str | None:
        """The message if the solution has grown without bound where steps can be no shorter."""
        stepper, system = self.newest, self.system
        before, now = system.largest(np.stack([system.initial[0], stepper.y]))
        if not now > _GROWS * before:
            return None
        return (
            f"The solution blows up near t = {system.time(stepper.tau):.6g}: its largest value grows from {before:.3g} "
            f"to {now:.3g} and more. This is the solution up to there."
        )

    def _note(self) -> None:
        stepper = self.newest
        resolved = _RESOLVED * self.share * float((stepper.atol[0] + stepper.rtol * stepper.largest).max())
        here = max(self.system.largest_of(stepper.error), resolved)
        self.error = max(self.error, here)
        each: Any = here
        if self.problem.components is not None:
            each = np.maximum(self.problem.largest_each(self.system.values(stepper.error)), resolved)
        self.errors.append((self.problem.t0 + stepper.tau, each))
        if self.pieces is not None:
            self.pieces.add(stepper.pieces[-1], stepper.snapshots[-1])

    def _between(self, t: float) -> Any:
        """The frame at a time within the newest step."""
        last = self.newest.pieces[-1]
        tau = min(max(t - self.problem.t0, last.left), last.right)
        return self.system.frame(tau, self.newest.continuation()(np.array([tau]))[0])

    def _stored(self, t: float) -> Any:
        """The frame at any time up to the end of the solve."""
        assert self.pieces is not None
        tau = t - self.problem.t0
        return self.system.frame(tau, self.pieces.state(tau))


def can_step(problem: EvolutionProblem, data: TimeData) -> bool:
    """Whether the right-hand side is finite at t0, where the first step starts."""
    xp, known = problem.xp, problem.known(problem.t0)
    acts = None if problem.reaction is None else problem.reaction(problem.t0, problem.u0)
    return data.power >= 0.0 and all(xp.isfinite(xp.abs(each)).all() for each in (known, acts) if each is not None)


def run_steps(question: Question, data: TimeData, progress: StepProgress) -> tuple[Run, float, float]:
    """Take adaptive steps, repeatedly until the estimated global error is within the tolerance.

    Steps end at ``options.breakpoints`` and at the jumps that a scan of the data finds, and start anew behind. Returns
    the run, its estimated error, and the ratio of the error to the tolerance.
    """
    problem, _, options, *_ = question
    problem.breaks = breaks = breaks_of(data, problem, options.breakpoints)
    note_jumps(data, problem)
    share, unseen, missed, spent = _SHARE, 0.0, 0.0, 0
    for number in range(1, _MAX_PASSES + 1):
        last = number == _MAX_PASSES
        problem.breaks = breaks
        current = _EvolutionPass(question, breaks, data.first, share)
        run = current.run(progress, math.inf if last else _HOPELESS)
        # As meshes have them, for what the data do between the steps and for the error in space.
        problem.breaks = tuple(just_before(t, problem) for t in breaks)
        stepper = current.stepper
        if stepper is None:
            return run, math.nan, math.nan
        spent += stepper.accepted + stepper.rejected
        if not run.success or stepper.jumped is not None:
            break
        if stepper.ratio > 1.0:
            problem.notes.append(f"pass {number}: the global error was {stepper.ratio:.2g} times the tolerance")
            share *= min(max(0.5 / stepper.ratio, 0.02), 0.7)
            continue
        mesh = np.array([just_before(t, problem) if t in breaks else t for t in current.times])
        unseen = data.defect(problem, mesh, _POINTS)
        missed = unseen / float(options.atol + options.rtol * stepper.largest.max())
        if missed <= 1.0:
            break
        longest = (problem.t1 - problem.t0) / len(data.looks)
        problem.notes.append(
            f"pass {number}: the data change between the steps, which are now at most {longest:.2g} long"
        )
        options = dataclasses.replace(options, max_step=min(options.max_step, longest))
        question = question._replace(options=options)
    assert stepper is not None
    current.error = max(current.error, unseen)
    run.errors = [(t, np.maximum(each, unseen)) for t, each in current.errors]
    problem.stats |= {
        "steps_in_all": spent,
        "rejected": stepper.rejected,
        "passes": number,
        "exponentials": stepper.memories[0].states.shape[1],
    }
    ratio = max(stepper.ratio, missed)
    if run.success and ratio > _TOLERATED:
        run.success = False
        cause = f"the equation amplifies errors, or rtol={options.rtol:g} is too small; loosen it"
        if missed > stepper.ratio:
            cause = "the data change between the steps; give a shorter max_step, or breakpoints=[...] where they jump"
        elif stepper.jumped is not None:
            cause = f"the data jump near t = {current.system.time(stepper.jumped):g}; give breakpoints=[...]"
        run.message = f"The end was reached, but the error may be {ratio:.2g} times the tolerance: {cause}."
    return run, current.error, ratio

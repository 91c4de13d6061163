r"""Adaptive steps in time: those of :mod:`hpfracc.solvers.stepping.step` for all unknowns of a grid together.

The right-hand side :math:`f = A u + b(t) + s(t) + R(t, u)` is a polynomial on each step, and its past a sum of
exponentials. The equation of a step, :math:`u = \text{known} + w f(t, u)`, is solved by the discretisation:
:math:`(1/w - A) u = \text{known}/w + b + s + R(t, u)`. Linear equations with a diagonal form are stepped in the
coefficients of their eigenfunctions, and errors are measured in the values: the largest over the grid.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, final

import numpy as np

from hpfracc.history.states import ExponentialMemory, TrackedMemory
from hpfracc.solvers.pde.driver import StepProgress
from hpfracc.solvers.pde.method import Question
from hpfracc.solvers.pde.nonlinear import ROUGH, ReactionSolver
from hpfracc.solvers.pde.problem import EvolutionProblem, StepFailedError, StepForm
from hpfracc.solvers.pde.recording import Run
from hpfracc.solvers.pde.time_data import TimeData, breaks_of, just_before, note_jumps
from hpfracc.solvers.stepping.rules import stable_degrees
from hpfracc.solvers.stepping.solution import PieceStore
from hpfracc.solvers.stepping.step import RESOLVED, AdaptiveStep
from hpfracc.solvers.stepping.system import FlatSystem, NotFiniteError, Solved
from hpfracc.solvers.stepping.walk import HOPELESS, MAX_PASSES, TOLERATED, AdaptiveWalk, smaller_share

Array = np.ndarray[Any, Any]

#: Share of the tolerance for a step in the first pass.
_SHARE = 0.5
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


@final
class _EvolutionSystem(FlatSystem):
    """The equation on flat states; the discretisation solves the equations of the steps. Stiff throughout."""

    stiff, solves_to_damp, contraction = True, True, math.inf

    def __init__(self, problem: EvolutionProblem, breaks: tuple[float, ...], first: float, share: float) -> None:
        self.problem, self.breaks = problem, breaks
        self.ends = (max(problem.t0, first), *breaks, problem.t1)
        self.form = form = StepForm(problem)
        given = [problem.u0] if problem.du0 is None else [problem.u0, problem.du0]
        coefficients = [np.asarray(form.encode(each)) for each in given]
        self.form_shape = coefficients[0].shape
        self.dtype = np.result_type(*coefficients)
        self.initial = [each.reshape(-1) for each in coefficients]
        self.shape = (self.size,)
        self.groups = [(float(problem.alpha), slice(None))]
        if problem.varying is not None:
            orders = np.broadcast_to(problem.varying.at(problem.t0), self.form_shape).reshape(-1)
            self.groups = [(float(one), np.flatnonzero(orders == one)) for one in np.unique(orders)]
        self.enter(0)
        self._sizes: list[tuple[Array, float]] = []  # of the newest states, which are asked for several times
        #: Why the newest step was not solved.
        self.failure = ""
        self._reactions = None if problem.linear else ReactionSolver(problem, share)
        symbol = problem.space.symbol
        self.radius = math.inf if symbol is None else float(np.abs(symbol).max())
        #: The eigenvalue of each element, if they are independent.
        self._rates: Array | None = None
        if form.modal and len(self.groups) == 1:
            self._rates = np.abs(np.broadcast_to(symbol, self.form_shape)).reshape(-1)
        self._newest, self._weight = 0.0, 1.0
        #: The estimated error of the newest step.
        self._error = np.zeros_like(self.initial[0])

    # -- the right-hand side ------------------------------------------------------------------------------------------

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
        u, problem = y.reshape(self.form_shape), self.problem
        value = self.form.apply(u) + self.data(tau)
        if problem.reaction is not None:
            problem.count("reactions")
            value = value + problem.reaction(self.time(tau), u)
        return self.finite(value, tau)

    def data(self, tau: float) -> Any:
        """Source and boundary data."""
        known = self.form.known(self.time(tau))
        return 0.0 if known is None else known

    def finite(self, u: Any, tau: float) -> Array:
        """A flat state; raises an error if it is not finite."""
        flat = np.asarray(u, self.dtype).reshape(-1)
        if not np.isfinite(flat.sum()) and not np.isfinite(flat).all():
            raise NotFiniteError(f"The right-hand side is not finite at t = {self.time(tau):.6g}")
        return flat

    # -- sizes: the largest value over the grid -----------------------------------------------------------------------

    def values(self, y: Array) -> Any:
        """Values at the unknown points."""
        return self.form.decode(y.reshape(self.form_shape))

    def frame(self, tau: float, y: Array) -> Any:
        """Values on the whole grid."""
        return self.problem.space.embed(self.values(y), self.time(tau))

    def largest(self, ys: Array) -> Array:
        """The largest value of each of several states."""
        if self.form.modal:
            ys = self.form.decode(ys.reshape(len(ys), *self.form_shape))
        return np.asarray(np.abs(ys).reshape(len(ys), -1).max(axis=1))

    def largest_of(self, y: Array) -> float:
        """The largest value of one state."""
        for known, size in self._sizes:
            if known is y:
                return size
        self._sizes = [(y, float(self.largest(y[None])[0])), *self._sizes[:3]]
        return self._sizes[0][1]

    def magnitude(self, y: Array) -> Array:
        """The largest value."""
        return np.full(1, self.largest_of(y))

    def norm(self, change: Array, scale: Array) -> float:
        """The largest value, in units of the tolerance."""
        return self.norms(change[None], scale)[0]

    def norms(self, changes: Array, scale: Array) -> list[float]:
        """The same for several changes."""
        return (self.largest(changes) / scale[0]).tolist()  # type: ignore[no-any-return]

    def measure(self, error: Array, tolerance: Array, resolved: float) -> tuple[float, float]:
        """The largest value, in units of the tolerance and as it is."""
        size = self.largest_of(error)
        return size / float(tolerance[0]), max(size, resolved * float(tolerance[0]))

    # -- the equation of a step ---------------------------------------------------------------------------------------

    def solve(self, tau: float, known: Array, weight: Any, guess: Array, tolerance: Any, attempts: int) -> Solved:
        """One linear or nonlinear solve; None if the step is too long for it."""
        shift, shape = self._shift(weight), self.form_shape
        rhs = known.reshape(shape) * shift + self.data(tau)
        try:
            if self._reactions is None:
                found = self.form.solve(shift, rhs, guess.reshape(shape))
            else:
                found = self._reactions.solve(self.time(tau), shift, rhs, guess.reshape(shape))
        except StepFailedError as error:
            self.failure = f" The newest one failed: {error}."
            return None
        self.failure, self._weight, y = "", weight, self.finite(found, tau)
        slope = (y - known) / weight
        short = weight * self.radius < _SHORT  # that difference is rounding
        if np.any(short):
            slope = np.where(short, self(tau, y), slope)
        return y, slope

    def damp(self, changes: Array) -> Array:
        """Without the reaction; of several together in coefficients."""
        if changes.ndim > 1 and not self.form.modal:
            return np.stack([self._damped(each, self._weight) for each in changes])
        return self._damped(changes, self._weight)

    def _damped(self, change: Array, weight: Any) -> Array:
        shift = self._shift(weight)
        self.problem.count("error_solves", change.size // self.size)
        rhs = change.reshape(*change.shape[:-1], *self.form_shape) * shift
        found = (
            self.form.solve(shift, rhs, None, ROUGH) if self._reactions is None else self._reactions.damped(shift, rhs)
        )
        return np.asarray(found, self.dtype).reshape(change.shape)

    def propagate(self, tau: float, y: Array, f: Array, known: Array, weight: Any, guess: Array) -> tuple[Array, Array]:
        """With one linear solve; with a reaction, from its change by the error before."""
        if self._reactions is None:
            error = self._damped(known, weight)
        else:
            self.problem.count("error_solves")
            shift, shape = self._shift(weight), self.form_shape
            found = self._reactions.perturbed(
                self.time(tau), shift, known.reshape(shape) * shift, self._error.reshape(shape)
            )
            error = np.asarray(found, self.dtype).reshape(-1)
        self._error = error
        return error, (error - known) / weight

    def degrees(self) -> Array | None:
        """The stable degree of each mode: fast modes have a lower one than slow modes."""
        return None if self._rates is None else stable_degrees(self._newest * self._rates, self.groups[0][0])

    def accepted(self, weight: Any, scale: Array) -> None:
        """Record how stiff the step was."""
        self._newest = float(np.max(weight))
        self.contraction = self._newest * self.radius if self._rates is None else 0.0

    def _shift(self, weight: Any) -> Any:
        """``1 / weight``, a number or one for each element."""
        return (1.0 / weight).reshape(self.form_shape) if np.ndim(weight) else 1.0 / float(weight)


class _EvolutionPass(AdaptiveWalk):
    """One pass over the interval, with a fixed share of the tolerance for each step."""

    system: _EvolutionSystem

    def __init__(
        self, question: Question, breaks: tuple[float, ...], first: float, share: float, progress: StepProgress
    ) -> None:
        self.problem, _, options, *_ = question
        super().__init__(_EvolutionSystem(self.problem, breaks, first, share), options, self.problem.t1)
        self.breaks, self.share = breaks, share
        self.between = options.t_eval is not None or bool(options.events) or options.dense_output
        self.error, self.errors = 0.0, list[tuple[float, Any]]()
        self.times = [self.problem.t0]
        self.pieces = PieceStore(self.system) if options.dense_output else None
        self.recorded = Run(question, None, at=self._between)
        self._report = progress.of_times(self.recorded)
        if self.pieces is not None:
            self.recorded.frame = self._stored

    def run(self, most_ratio: float) -> None:
        """Step, and tell how it ended."""
        with self.recorded.guarded():
            super().run(most_ratio)
        if not self.success:
            self.recorded.fail(self.message)

    def begin(self) -> AdaptiveStep:
        """Make the steps, as long as they are stable."""
        system, length = self.system, self.problem.t1 - self.problem.t0
        many = functools.partial(TrackedMemory, together=1 if self.between else _TOGETHER)
        memory = many if system.size > _FEW else ExponentialMemory
        step = AdaptiveStep(system, length, self.options, self.share, between=self.between, memory=memory)
        for alpha, _ in system.groups:
            if alpha > 1.0 and math.isfinite(system.radius) and system.radius > 0.0:
                stable = (_STABLE * math.gamma(alpha + 2.0) / system.radius) ** (1.0 / alpha)
                step.most_step = min(step.most_step, stable)
        return step

    def stops(self) -> list[float]:
        """Breakpoints and the end."""
        return [end - self.problem.t0 for end in self.system.ends[1:]]

    def enter(self, number: int, stop: float) -> None:
        """Evaluate the data between two breakpoints."""
        self.system.enter(number)
        self._stop, self._stop_time = stop, self.system.ends[number + 1]

    def note(self, step: AdaptiveStep) -> bool:
        """Record the newest step; returns whether to go on."""
        if not self.between:  # fewer points are less work, and these degrees are not stable
            step.values = step.values[: max(3, step.highest_degree() + 2)]
        each: Any = step.size
        self.error = max(self.error, step.size)
        if self.problem.components is not None:
            tolerance = step.atol + step.rtol * step.largest
            resolved = RESOLVED * self.share * float(tolerance.max())
            each = np.maximum(self.problem.largest_each(self.system.values(step.error)), resolved)
        self.errors.append((self.problem.t0 + step.tau, each))
        if self.pieces is not None:
            self.pieces.add(step.pieces[-1], step.snapshots[-1])
        t, run = self._stop_time if step.tau >= self._stop else self.problem.t0 + step.tau, self.recorded
        if t <= self.times[-1]:  # steps behind a jump may be shorter than times can tell
            return True
        self.times.append(t)
        if not run.take(np.array([t]), self.system.values(step.y)[None], last=t == self.problem.t1):
            return False
        self._report(t, lambda: self.problem.space.embed(*reversed(run.newest)))
        return True

    def explain(self, failure: str) -> str:
        """The solution may have grown without bound where steps can be no shorter."""
        step, system = self.step, self.system
        assert step is not None
        before, now = system.largest(np.stack([system.initial[0], step.y])).tolist()
        if not now > _GROWS * before:
            return failure + system.failure
        return (
            f"The solution blows up near t = {system.time(step.tau):.6g}: its largest value grows from {before:.3g} "
            f"to {now:.3g} and more. This is the solution up to there."
        )

    def _between(self, t: float) -> Any:
        """The frame at a time within the newest step."""
        assert self.step is not None
        last = self.step.pieces[-1]
        tau = min(max(t - self.problem.t0, last.left), last.right)
        return self.system.frame(tau, self.step.continuation()(np.array([tau]))[0])

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
    for number in range(1, MAX_PASSES + 1):
        last = number == MAX_PASSES
        problem.breaks = breaks
        current = _EvolutionPass(question, breaks, data.first, share, progress)
        current.run(math.inf if last else HOPELESS)
        # As meshes have them, for what the data do between the steps and for the error in space.
        problem.breaks = tuple(just_before(t, problem) for t in breaks)
        run, stepper = current.recorded, current.step
        if stepper is None:
            return run, math.nan, math.nan
        spent += stepper.accepted + stepper.rejected
        if not run.success or stepper.jumped is not None:
            break
        if stepper.ratio > 1.0:
            problem.notes.append(f"pass {number}: the global error was {stepper.ratio:.2g} times the tolerance")
            share = smaller_share(share, stepper.ratio)
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
    if run.success and ratio > TOLERATED:
        run.success = False
        cause = f"the equation amplifies errors, or rtol={options.rtol:g} is too small; loosen it"
        if missed > stepper.ratio:
            cause = "the data change between the steps; give a shorter max_step, or breakpoints=[...] where they jump"
        elif stepper.jumped is not None:
            cause = f"the data jump near t = {current.system.time(stepper.jumped):g}; give breakpoints=[...]"
        run.message = f"The end was reached, but the error may be {ratio:.2g} times the tolerance: {cause}."
    return run, current.error, ratio

r"""Adaptive steps in time: those of :mod:`hpfracc.solvers.stepping.step` for all unknowns of a grid together.

The right-hand side :math:`f = A u + b(t) + s(t) + R(t, u)` is a polynomial on each step, and its past a sum of
exponentials. The equation of a step, :math:`u = \text{known} + w f(t, u)`, is solved by the discretisation:
:math:`(1/w - A) u = \text{known}/w + b + s + R(t, u)`. Linear equations with a diagonal form are stepped in the
coefficients of their eigenfunctions, and errors are measured in the values: the largest over the grid.
"""

from __future__ import annotations

import cmath
import dataclasses
import functools
import math
from typing import Any, final

import numpy as np

from hpfracc.history.states import ExponentialMemory, TrackedMemory
from hpfracc.solvers.pde.changes import TimeData, breaks_of, just_before, note_jumps
from hpfracc.solvers.pde.driver import StepProgress
from hpfracc.solvers.pde.method import Question
from hpfracc.solvers.pde.nonlinear import ROUGH, ReactionSolver
from hpfracc.solvers.pde.problem import EvolutionProblem, StepForm
from hpfracc.solvers.pde.recording import Run
from hpfracc.solvers.stepping.rules import CONTRACTIONS, stable_degrees
from hpfracc.solvers.stepping.solution import PieceStore
from hpfracc.solvers.stepping.step import RESOLVED, AdaptiveStep
from hpfracc.solvers.stepping.system import FlatSystem, NotFiniteError, Solved, StepFailedError
from hpfracc.solvers.stepping.walk import TOLERATED, AdaptiveWalk, inaccurate, run_passes

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
        self.steady = len(given) == 1
        self.shape = (self.size,)
        self.groups = [(float(problem.alpha), slice(None))]
        if problem.varying is not None:
            orders = np.broadcast_to(problem.varying.at(problem.t0), self.form_shape).reshape(-1)
            self.groups = [(float(one), np.flatnonzero(orders == one)) for one in np.unique(orders)]
        self.enter(0)
        #: Why the newest step was not solved.
        self.failure = ""
        self._reactions = None if problem.linear else ReactionSolver(problem, share)
        symbol = problem.space.symbol
        self.radius = math.inf if symbol is None else float(np.abs(symbol).max())
        #: The eigenvalue of each element, if they are independent.
        self._rates: Array | None = None
        if form.modal and len(self.groups) == 1:
            self._rates = np.abs(np.broadcast_to(symbol, self.form_shape)).reshape(-1)
            self._stable = np.array(stable_degrees(self.groups[0][0]))
        #: The newest weight, and the shift of the newest step.
        self._newest = 0.0
        self._shift: Any = 1.0
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
        return self.initial[0] if self.steady else self.initial[0] + tau * self.initial[1]

    def __call__(self, tau: float, y: Array, *, shifted: bool = False) -> Array:
        """The right-hand side."""
        u, problem, t = y.reshape(self.form_shape), self.problem, self.time(tau)
        value = self.form.apply(u)
        if self.form.forced:
            value = value + self.form.known(t)
        if problem.reaction is not None:
            value = value + problem.reaction(t, u)
        return self.finite(value, tau)

    def finite(self, u: Any, tau: float) -> Array:
        """A flat state; raises an error if it is not finite."""
        flat = np.asarray(u, self.dtype).reshape(-1)
        if not cmath.isfinite(flat.dot(flat)) and not np.isfinite(flat).all():
            raise NotFiniteError(f"The right-hand side is not finite at t = {self.time(tau):.6g}")
        return flat

    # -- sizes: the largest value over the grid -----------------------------------------------------------------------

    def values(self, y: Array) -> Any:
        """Values at the unknown points."""
        c = y.reshape(self.form_shape)
        return self.form.decode(c) if self.form.modal else c

    def frame(self, tau: float, y: Array) -> Any:
        """Values on the whole grid."""
        return self.problem.space.embed(self.values(y), self.time(tau))

    def largest(self, ys: Array) -> Array:
        """The largest value of each of several states."""
        if self.form.modal:
            ys = self.form.decode(ys.reshape(len(ys), *self.form_shape)).reshape(len(ys), -1)
        return np.asarray(np.maximum.reduce(np.abs(ys), 1))

    def _largest_of(self, y: Array) -> float:
        """The largest value of one state."""
        sizes = np.abs(self.values(y)) if self.form.modal else np.abs(y)
        return float(sizes.item(sizes.argmax()))

    def magnitude(self, y: Array) -> Array:
        """The largest value."""
        return np.array([self._largest_of(y)])

    def norm(self, change: Array, scale: Array) -> float:
        """The largest value, in units of the tolerance."""
        return self.norms(change[None], scale)[0]

    def norms(self, changes: Array, scale: Array) -> list[float]:
        """The same for several changes."""
        return (self.largest(changes) / scale).tolist()  # type: ignore[no-any-return]

    def measure(self, error: Array, tolerance: Array, resolved: float) -> tuple[float, float]:
        """The largest value, in units of the tolerance and as it is."""
        size, unit = self._largest_of(error), float(tolerance[0])
        return size / unit, max(size, resolved * unit)

    # -- the equation of a step ---------------------------------------------------------------------------------------

    def solve(self, tau: float, known: Array, weight: Any, guess: Array, tolerance: Any, attempts: int) -> Solved:
        """One linear or nonlinear solve; None if the step is too long for it."""
        t, shape = self.time(tau), self.form_shape
        shift = 1.0 / float(weight) if isinstance(weight, float) else (1.0 / weight).reshape(shape)
        rhs = known.reshape(shape) * shift
        if self.form.forced:
            rhs = rhs + self.form.known(t)
        try:
            if self._reactions is None:
                found = self.form.solve(shift, rhs, guess.reshape(shape))
            else:
                found = self._reactions.solve(t, shift, rhs, guess.reshape(shape))
        except StepFailedError as error:
            self.failure = f" The newest one failed: {error}."
            return None
        self.failure, self._shift, y = "", shift, self.finite(found, tau)
        slope = (y - known) / weight
        short = weight * self.radius < _SHORT  # that difference is rounding
        if short if isinstance(short, bool) else short.any():
            slope = np.where(short, self(tau, y), slope)
        return y, slope

    def damp(self, changes: Array) -> Array:
        """Without the reaction but for its mean slope; of several together in coefficients."""
        reactions, stats, shift = self._reactions, self.problem.stats, self._shift
        rows: Any = changes.reshape(-1, *self.form_shape)
        stats["error_solves"] += len(rows)
        if self.form.modal:
            found = rows * shift / (shift - self.form.symbol)
            return np.asarray(found, self.dtype).reshape(changes.shape)
        stats["solves"] += len(rows)
        space, shifted = self.problem.space, shift
        if reactions is not None:
            space, shifted = reactions.space, shift - reactions.slope
        if space.symbol is not None:
            found = space.solve(shifted, rows * shift)
        else:
            found = np.stack([space.solve(shifted, row * shift, None, ROUGH) for row in rows])
        return np.asarray(found, self.dtype).reshape(changes.shape)

    def propagate(self, tau: float, y: Array, f: Array, known: Array, weight: Any, moved: Array) -> tuple[Array, Array]:
        """With one linear solve; with a reaction, from its change by the error before."""
        shape = self.form_shape
        shift = 1.0 / float(weight) if isinstance(weight, float) else (1.0 / weight).reshape(shape)
        rhs = known.reshape(shape) * shift
        self.problem.stats["error_solves"] += 1
        if self._reactions is None:
            found = self.form.solve(shift, rhs, None, ROUGH)
        else:
            found = self._reactions.perturbed(self.time(tau), shift, rhs, self._error.reshape(shape))
        self._error = error = np.asarray(found, self.dtype).reshape(-1)
        return error, (error - known) / weight

    def degrees(self) -> Array | None:
        """The stable degree of each mode: fast modes have a lower one than slow modes."""
        return None if self._rates is None else self._stable[np.searchsorted(CONTRACTIONS, self._newest * self._rates)]

    def accepted(self, weight: Any, scale: Array) -> None:
        """Record how stiff the step was."""
        self._newest = float(weight if isinstance(weight, float) else weight.max())
        self.contraction = self._newest * self.radius if self._rates is None else 0.0


class _EvolutionPass(AdaptiveWalk, Run):
    """One pass over the interval, with a fixed share of the tolerance for each step."""

    def __init__(
        self, question: Question, breaks: tuple[float, ...], first: float, share: float, progress: StepProgress
    ) -> None:
        options = question.options
        self.system = _EvolutionSystem(question.problem, breaks, first, share)
        Run.__init__(self, question, None, at=self._within)
        self.share = share
        self.stores = options.t_eval is not None or bool(options.events) or options.dense_output
        self.error, self.walked = 0.0, [self.problem.t0]
        self.stops = [end - self.problem.t0 for end in self.system.ends[1:]]
        self.pieces = PieceStore(self.system) if options.dense_output else None
        self._report = progress.of_times(self)
        if self.pieces is not None:
            self.frame = self._stored

    def begin(self) -> AdaptiveStep:
        """Make the steps, as long as they are stable."""
        system, length = self.system, self.problem.t1 - self.problem.t0
        many = functools.partial(TrackedMemory, together=1 if self.stores else _TOGETHER)
        memory = many if system.size > _FEW else ExponentialMemory
        step = AdaptiveStep(system, length, self.options, self.share, between=self.stores, memory=memory)
        for alpha, _ in system.groups:
            if alpha > 1.0 and math.isfinite(system.radius) and system.radius > 0.0:
                stable = (_STABLE * math.gamma(alpha + 2.0) / system.radius) ** (1.0 / alpha)
                step.most_step = min(step.most_step, stable)
        return step

    def enter(self, number: int, stop: float) -> None:
        """Evaluate the data between two breakpoints."""
        self.system.enter(number)
        self._stop, self._stop_time = stop, self.system.ends[number + 1]

    def note(self, step: AdaptiveStep) -> bool:
        """Record the newest step; returns whether to go on."""
        if not self.stores:  # fewer points are less work, and these degrees are not stable
            step.values = step.values[: max(3, step.highest + 2)]
        each: Any = step.size
        self.error = max(self.error, step.size)
        if self.problem.components is not None:
            tolerance = step.atol + step.rtol * step.largest
            resolved = RESOLVED * self.share * float(tolerance.max())
            each = np.maximum(self.problem.largest_each(self.system.values(step.error)), resolved)
        self.errors.append((self.problem.t0 + step.tau, each))
        if self.pieces is not None:
            self.pieces.add(step.pieces[-1], step.snapshots[-1])
        t = self._stop_time if step.tau >= self._stop else self.problem.t0 + step.tau
        if t <= self.walked[-1]:  # steps behind a jump may be shorter than times can tell
            return True
        self.walked.append(t)
        if not self.take(np.array([t]), self.system.values(step.y)[None], last=t == self.problem.t1, finite=True):
            return False
        if self.options.progress:
            self._report(t, lambda: self.problem.space.embed(*reversed(self.newest)))
        return True

    def _first_bad(self, states: Any) -> int | None:
        """None: the system refuses states that are not finite."""
        return None

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

    def _within(self, t: float) -> Any:
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
    unseen, missed, spent = 0.0, 0.0, 0

    def attempt(share: float, most_ratio: float) -> _EvolutionPass:
        nonlocal question, options, unseen, missed, spent
        problem.breaks = breaks
        current = _EvolutionPass(question, breaks, data.first, share, progress)
        current.run(most_ratio)
        # As meshes have them, for what the data do between the steps and for the error in space.
        problem.breaks = tuple(just_before(t, problem) for t in breaks)
        step = current.step
        spent += 0 if step is None else step.accepted + step.rejected
        if not current.success or step is None or step.ratio > 1.0 or step.jumped is not None:
            return current
        mesh = np.array([just_before(t, problem) if t in breaks else t for t in current.walked])
        unseen = data.defect(problem, mesh, _POINTS)
        missed = unseen / float(options.atol + options.rtol * step.largest.max())
        if missed > 1.0:
            longest = (problem.t1 - problem.t0) / len(data.looks)
            current.repeats = f"the data change between the steps, which are now at most {longest:.2g} long"
            options = dataclasses.replace(options, max_step=min(options.max_step, longest))
            question = question._replace(options=options)
        return current

    current, number = run_passes(attempt, problem.notes, _SHARE)
    step = current.step
    if step is None:
        return current, math.nan, math.nan
    current.error = max(current.error, unseen)
    current.errors = [(t, np.maximum(each, unseen)) for t, each in current.errors]
    problem.stats |= {
        "steps_in_all": spent,
        "rejected": step.rejected,
        "passes": number,
        "exponentials": step.memories[0].states.shape[1],
    }
    ratio = max(step.ratio, missed)
    if current.success and ratio > TOLERATED:
        cause = f"the equation amplifies errors, or rtol={options.rtol:g} is too small; loosen it."
        if missed > step.ratio:
            cause = "the data change between the steps; give a shorter max_step, or breakpoints=[...] where they jump."
        elif step.jumped is not None:
            cause = f"the data jump near t = {current.system.time(step.jumped):g}; give breakpoints=[...]."
        current.fail(inaccurate(ratio, options.rtol, cause=cause))
    return current, current.error, ratio

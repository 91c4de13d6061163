"""One adaptive step after another: the local error controls steps and degrees; the global error is estimated."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from hpfracc.history.states import ExponentialMemory, Snapshot
from hpfracc.solvers.stepping.jumps import JUMP_ORDERS, find_jump, jump_bound, length_across
from hpfracc.solvers.stepping.options import Options
from hpfracc.solvers.stepping.rules import CONTRACTIONS, HIGHEST, StepRules, make_rules, stable_degrees
from hpfracc.solvers.stepping.solution import Continuation, Piece, interpolate
from hpfracc.solvers.stepping.system import FlatSystem, NotFiniteError

Array = np.ndarray[Any, Any]

_MAX_TRIES = 60
_SHORTEST, _EPS = 1e-290, math.ulp(1.0)
#: Jumps are passed without a word if they can add at most this share of the tolerance.
_NEGLIGIBLE = 0.01
#: An estimate below this fraction of what a step may err is a cancellation of terms that are not known so well.
RESOLVED = 0.05
#: Step sizes form a geometric sequence with this number per factor of 2, so that their tables can be cached.
LEVELS_PER_OCTAVE = 4
_SAFETY = 0.85
_MAX_GROWTH = 2.0
_MIN = 0.1
#: Estimated errors below this count as this.
_LEAST_ERROR = 1e-10
#: Added to the places of points and subtracted, so that those of equal steps are equal, and their rules can be cached.
_COARSE = 512.0


class Trial(NamedTuple):
    """A step whose equation was solved, with the data for its error estimate.

    Attributes
    ----------
    step, end, degree : float, float, int
        Its length, its end, and the degree of its polynomial.
    y : array, shape (n,)
        State at the end of the step.
    values : array, shape (R, n)
        Right-hand side at the end of the step and at the points before.
    points, rules : tuple of float, StepRules
        Where the values are, and their rules for the first order.
    differences, terms : arrays, shape (R, n)
        The divided differences of the values, and their contributions to the integral over the step.
    changes : array, shape (3, n)
        How far the newest value is from the one before, and at most, by each of the two changes before.
    errors : list of float
        The sizes of the terms in units of the tolerance, damped as by the equation.
    scale, magnitude : arrays, shape (n,)
        The tolerance of the step, and the sizes of the state at its end.
    inherited : array, shape (n,)
        Contribution of the history to the global error.
    newest : float or array, shape (n,)
        The weight of the newest value in the integral over the step, of the highest degree.
    linear : pair of these
        The weights of the newest two for degree 1.
    each : array of int, shape (n,), or None
        The degree of each element, if they differ.
    """

    step: float
    end: float
    degree: int
    y: Array
    values: Array
    points: tuple[float, ...]
    rules: StepRules
    differences: Array
    changes: Array
    terms: Array
    errors: list[float]
    scale: Array
    magnitude: Array
    inherited: Array
    newest: Any
    linear: tuple[Any, Any]
    each: Array | None


class AdaptiveStep:
    """Takes the steps of one pass, and owns their numbers.

    Parameters
    ----------
    system : FlatSystem
        The equation.
    length : float
        Length of the interval.
    options : Options
        The tolerance, and the longest and the first step.
    share : float
        Fraction of the tolerance for one step.
    between : bool
        Whether the solution is also needed between the steps.
    memory : callable
        The class of the memories, or one like it.
    """

    def __init__(
        self,
        system: FlatSystem,
        length: float,
        options: Options,
        share: float,
        *,
        between: bool = True,
        memory: Callable[..., Any] = ExponentialMemory,
    ) -> None:
        self.between, self.most_step = between, min(options.max_step, length)
        self.system, self.length, self.rtol, self.share = system, length, options.rtol, share
        self.atol: Any = options.atol
        if np.ndim(options.atol):
            self.atol = np.array(np.broadcast_to(options.atol, system.shape), dtype=float).reshape(-1)
        self._atol, self._rtol = share * self.atol, share * self.rtol  # of one step
        orders = [alpha for alpha, _ in system.groups]
        self.least, self.most = min(orders), max(orders)
        self._stable = stable_degrees(self.most)
        self.highest = self._stable[-1]  # degree that is stable
        eps = min(max(1e-5 * self.rtol, 1e-14), 1e-8)
        self.memories = [
            memory(alpha, 2 * system.initial[0][which].size, length, eps, system.dtype)
            for alpha, which in system.groups
        ]
        #: The newest time, and what it is the sum of: the last time at which the right-hand side was not smooth, and
        #: the time since then, which resolves far shorter steps.
        self.tau = self.origin = self.since = 0.0
        self.y = system.start(0.0).astype(system.dtype)
        self.values = system.first(self.y)[np.newaxis]  # of the right-hand side, the newest first, shape (count, n)
        self.states = [self.y]
        self.steps: list[float] = []  # lengths, the newest first
        self.degree = 1
        self.errors: list[float] = []  # sizes of the terms of the newest step
        self.error, self.moved = np.zeros_like(self.y), np.zeros_like(self.y)
        self.inside: Any = 0.0  # the error within the newest step, beyond that at its end
        #: Of the estimated error: the largest in units of the tolerance, and the size of the newest.
        self.ratio = self.size = 0.0
        self.magnitude = self.largest = system.magnitude(self.y)
        self.accepted = self.rejected = 0
        self.pieces: list[Piece] = []  # the last two
        self.snapshots: list[list[Snapshot]] = []  # before each of them
        self.jumped: float | None = None  # where a jump was passed
        #: The step size of level 0, the level of the next step, and the error of the newest one.
        self.unit = min(options.first_step or self._first_step(), self._longest())
        self._level, self._previous = 0, 1.0

    # -- interface ----------------------------------------------------------------------------------------------------

    def advance(self, stop: float) -> str | None:
        """Take one step, not beyond ``stop``; returns None, or the reason why it failed, with a remedy."""
        spoiled: NotFiniteError | None = None
        for tries in range(1, _MAX_TRIES + 1):
            step, end = self._propose(stop)
            if step < 8.0 * _EPS * self.since or step < _SHORTEST:
                if self._pass_jump():
                    return None
                break
            spoiled = None
            try:
                trial = self._attempt(step, end, min(self.degree, len(self.values)))
                if trial is None:
                    self._reject(0.25)
                elif self._judge(trial):
                    return None
            except NotFiniteError as error:
                self._reject(0.25)
                spoiled = error
            if tries >= 3:
                self.degree = 1
        if spoiled is not None:
            return f"{spoiled}, and shorter steps did not help: check the right-hand side there."
        return (
            f"The tolerance cannot be reached beyond t = {self.system.time(self.tau):.6g}: steps of {step:.1e} "
            f"would be needed there. Loosen rtol={self.rtol:g} or atol, or check whether the solution ends there."
        )

    def restart(self) -> None:
        """Restart the polynomials where the right-hand side is not smooth. The history is kept."""
        self.origin, self.since = self.tau, 0.0
        self.values = self.system(self.tau, self.y)[np.newaxis]
        self.states, self.steps, self.degree, self.errors = [self.y], [], 1, []
        self._level, self._previous = min(self._level, 0), 1.0
        resolved = 32.0 * _EPS * self.tau
        if self._next_step() < resolved:
            self._start_with(resolved)

    def continuation(self) -> Continuation:
        """The solution over the newest step."""
        return Continuation(
            self.system.groups, self.snapshots[0], self.pieces[0].left, tuple(self.pieces), self.system.start
        )

    # -- lengths ------------------------------------------------------------------------------------------------------

    def _next_step(self) -> float:
        return float(self.unit * 2.0 ** (self._level / LEVELS_PER_OCTAVE))

    def _start_with(self, step: float) -> None:
        """Try this length next."""
        self._level = math.floor(LEVELS_PER_OCTAVE * math.log2(step / self.unit))

    def _longest(self) -> float:
        """The longest step allowed: by the options, and after an infinite start by the elapsed time."""
        offset = self.system.offset
        return min(self.most_step, 0.5 * (self.tau + offset)) if offset else self.most_step

    def _propose(self, stop: float) -> tuple[float, float]:
        """Length of the next step, and its end."""
        longest = self._longest() if self.system.offset else self.most_step
        highest = LEVELS_PER_OCTAVE * (math.log2(longest) - math.log2(self.unit)) + 1e-9
        self._level = min(self._level, math.floor(highest))
        step, left = self.unit * 2.0 ** (self._level / LEVELS_PER_OCTAVE), (stop - self.origin) - self.since
        if step >= left * (1.0 - 1e-12):
            return left, stop
        if step > 0.5 * left:  # two equal steps instead of a long and a tiny one
            step = 0.5 * left
        return step, self.origin + (self.since + step)

    def _growth(self, error: float, degree: float) -> float:
        """Factor by which a step with this error could be longer: the error behaves like ``step^(degree + least)``."""
        return float(_SAFETY * max(error, _LEAST_ERROR) ** (-1.0 / (degree + self.least)))

    def _reject(self, factor: float) -> bool:
        """Try a step that is shorter by about this factor."""
        self.rejected += 1
        self._level += min(math.floor(LEVELS_PER_OCTAVE * math.log2(min(max(factor, _MIN), 0.8))), -1)
        return False

    # -- one step -----------------------------------------------------------------------------------------------------

    def _attempt(self, step: float, end: float, degree: int) -> Trial | None:
        """Solve the equation of a step; None if that fails."""
        system, past, n = self.system, self.values, self.y.size
        count = len(past)
        nodes, distance = [0.0, 1.0], 0.0
        for length in self.steps[: count - 1]:
            distance += length
            nodes.append((1.0 + distance / step + _COARSE) - _COARSE)
        points, start = tuple(nodes), system.initial[0] if system.steady else system.start(end)
        if len(self.memories) == 1:
            (memory,) = self.memories
            tables, history = memory.tables(step), memory.history(step)
            size, rules = tables.size, make_rules(points, tables.profile)
            known, inherited, shares = start + history[:n], history[n:], size * rules.shares
            linear = size * rules.newest[1], size * float(rules.sums[1, 1])
            limits = system.degrees() if system.stiff else None
            if limits is None or limits.min() >= degree:
                each, weight = None, size * rules.newest[degree]
                sums = size * (rules.ahead[degree] @ past)
                known += sums[0]
                guess = known + sums[1]
            else:
                each = np.minimum(limits, degree)
                weight, elements = size * rules.sums[each, 0], np.arange(n)
                known += size * (rules.sums[:, 1:] @ past)[each, elements]
                guess = known + weight * (rules.ahead[degree, 1] @ past) / rules.newest[degree]
            newest = size * rules.newest[degree]
        else:
            limits = each = None
            known, guess, inherited, weight, linear, shares, rules = self._gather(step, start, points, degree)
            newest = weight
        tolerance = self._atol, self._rtol, self.magnitude
        solved = system.solve(end, known, weight, guess, tolerance, self.accepted + self.rejected)
        if solved is None:
            return None
        y, f = solved
        values = np.empty((count + 1, n), system.dtype)
        values[0], values[1:] = f, past
        seen = rules.seen @ values
        differences = seen[: count + 1]
        terms = shares * differences
        magnitude = system.magnitude(y)
        scale = self._atol + self._rtol * np.maximum(self.magnitude, magnitude)
        if limits is not None and limits.min() < count - 1:  # where a degree is limited, its omitted term
            rows = np.minimum(np.arange(count + 1)[:, np.newaxis], limits + 1)  # stands for all higher ones
            terms = terms[rows, np.arange(limits.size)]
        felt, unseen = terms, 0
        if system.stiff:  # only the terms that this degree and degrees near it are judged by
            judged = slice(degree, degree + 3)
            if system.solves_to_damp:  # and that are stable
                judged = slice(min(max(degree, 2), count), min(degree + 1, max(self.highest, degree)) + 2)
            unseen = min(judged.start, 2)  # rows before are for nothing to be judged by
            felt = terms[unseen:].copy()
            felt[judged.start - unseen : judged.stop - unseen] = system.damp(terms[judged])
        if self.most > 1.0:
            felt = self._distance_factor(step, end) * felt
        errors = [math.inf] * unseen + system.norms(felt, scale)
        changes = np.abs(seen[count + 1 :])
        return Trial(
            step, end, degree, y, values, points, rules, differences, changes, terms, errors, scale, magnitude,
            inherited, newest, linear, each,
        )  # fmt: skip

    def _judge(self, trial: Trial) -> bool:
        """Accept a step, or choose a shorter one."""
        degree, errors, system = trial.degree, trial.errors, self.system
        # If the equation is stiff, the error is the first omitted term. Otherwise the last included term is used, an
        # overestimate, because the errors of the steps accumulate.
        ahead, last = int(system.stiff), len(errors) - 1
        error = errors[min(degree + ahead, last)]
        change, one, other = trial.changes
        beyond = change > np.maximum(one, other)
        # Terms of low degrees are not that small.
        before, low, grown = self.errors, JUMP_ORDERS - 1, False
        if (
            last > JUMP_ORDERS <= degree + 1 and len(before) > JUMP_ORDERS
        ):  # by more than the length of the step explains
            ratio = trial.step / self.steps[0]
            usual = 1.5 * ratio ** (low + min(self.least, 1.0))
            grown = errors[low] > usual * before[low] and errors[low + 1] > usual * ratio * before[low + 1]
        jump = None
        if grown or (last > 1 and beyond[beyond.argmax()]):
            jump = find_jump(self, trial, grown)
        size = 0.0 if jump is None else system.norm(jump, trial.scale)
        if size < _NEGLIGIBLE:  # such as rounding of terms that cancel
            jump = None
        elif error <= 1.0 < size:
            return self._reject(self._growth(size, 0.0))
        if not error <= 1.0:
            self.degree = degree - 1 if degree > 1 and errors[degree - 1 + ahead] <= error else degree
            return self._reject(self._growth(error, degree + ahead))
        through, most = None, math.inf
        if self.between:
            tolerance = trial.scale / self.share
            through, inside, order = interpolate(self, trial, tolerance)
            wrong = system.measure(inside, tolerance, 0.0)[0]
            if not wrong <= 1.0:
                return self._reject(self._growth(wrong, order - self.least))
            most, self.inside = self._growth(wrong, order - self.least), inside
        if jump is not None:
            trial.terms[min(degree + 1, last)] += jump
        self._accept(trial, through)
        self._choose(errors, degree, ahead, most)
        if jump is not None:
            self.restart()
            self._start_with(trial.step)  # not the first step: the bound of a jump allows this one
        return True

    def _accept(self, trial: Trial, through: Array | None) -> None:
        """Update the estimated global error, the history and the newest points."""
        step, end, degree, y, values, _, rules = trial[:7]
        system, n, moved = self.system, y.size, self.moved
        inherited = trial.inherited
        if self.accepted == 1 and len(values) > 2:  # the value at the start is known
            inherited, moved = self._orient_first_error(trial)
        defect = min(degree + 1, len(values) - 1)
        weight, before = trial.linear  # the rule of degree 1, for the right-hand side of the error equation
        known = inherited + trial.terms[defect] + before * moved
        try:
            self.error, self.moved = system.propagate(end, y, values[0], known, weight, moved)
        except NotFiniteError:
            self.error, self.moved = known, moved
        # The polynomials of the right-hand side, and of what they omit.
        parts = np.zeros((defect + 3, 2 * n), system.dtype)
        parts[0, n:], parts[1, n:] = self.moved, moved
        if trial.each is None:
            parts[2 : degree + 3, :n] = trial.differences[: degree + 1]
            parts[defect + 2, n:] = trial.differences[defect]
        else:
            rows, omitted = np.arange(defect + 1)[:, np.newaxis], np.minimum(trial.each + 1, len(values) - 1)
            parts[2:, :n] = np.where(rows <= trial.each, trial.differences[: defect + 1], 0.0)
            parts[2:, n:] = np.where(rows == omitted, trial.differences[: defect + 1], 0.0)
        both = rules.powers[: defect + 1, : defect + 3] @ parts
        if self.between:
            self.snapshots = [*self.snapshots[-1:], [memory.snapshot() for memory in self.memories]]
            self.pieces = [*self.pieces[-1:], Piece(self.tau, step, end, both[: degree + 1, :n], through)]
        if len(self.memories) == 1:
            self.memories[0].advance(step, both)
        else:
            pairs = both.reshape(defect + 1, 2, n)
            for (_, which), memory in zip(system.groups, self.memories, strict=True):
                memory.advance(step, pairs[..., which].reshape(defect + 1, -1))
        self.magnitude = trial.magnitude
        self.largest = np.maximum(trial.magnitude, self.largest * (self.tau / end))
        tolerance = self.atol + self.rtol * self.largest
        ratio, self.size = system.measure(self.error, tolerance, RESOLVED * self.share)
        self.ratio = max(self.ratio, ratio)
        self.tau, self.y, self.errors = end, y, trial.errors
        self.since += step
        self.values = values[: HIGHEST + 2]
        self.steps = [step, *self.steps[: HIGHEST + 1]]
        self.accepted += 1
        if self.between:
            self.states = [y, *self.states[: HIGHEST + 1]]
        if system.stiff:
            system.accepted(trial.newest, trial.scale)
        self.highest = self._stable[bisect_left(CONTRACTIONS, system.contraction)] if system.stiff else HIGHEST

    def _choose(self, errors: list[float], degree: int, ahead: int, most: float) -> None:
        """The next degree and step; ``most`` bounds its growth."""
        last = len(errors) - 1
        highest = min(self.highest, last)
        usual, best, possible = min(degree, highest), 0, 0.0
        for other in (usual, usual - 1, usual + 1):
            if not (1 <= other <= highest and (other == usual or other + ahead <= last)):
                continue
            error = max(errors[min(other + ahead, last)], _LEAST_ERROR)
            found = error ** (-1.0 / (other + ahead + self.least))
            # Prefer the current degree slightly, because frequent changes disturb the estimates.
            if not best or found > 1.1 * possible:
                best, possible = other, found
        self.degree = best
        # A proportional-integral controller over a ladder of step sizes.
        error = max(errors[min(best + ahead, last)], _LEAST_ERROR)
        power = 1.0 / (best + ahead + self.least)
        factor = _SAFETY * error ** (-0.7 * power) * self._previous ** (0.4 * power)
        factor = min(max(min(factor, most), _MIN), _MAX_GROWTH)
        self._previous = max(error, 1e-4)
        self._level += math.floor(LEVELS_PER_OCTAVE * math.log2(factor) + 0.25)

    def _gather(self, step: float, start: Array, points: tuple[float, ...], degree: int) -> tuple[Any, ...]:
        """What the polynomials and the memories of several orders contribute to the equation of a step."""
        past, n = self.values, self.y.size
        known, inherited, guess = start.astype(self.system.dtype), np.empty_like(self.y), np.empty_like(self.y)
        newest, linear, shares = np.empty(n), np.empty((2, n)), np.empty((len(past) + 1, n))
        for (_, which), memory in zip(self.system.groups, self.memories, strict=True):
            tables, history = memory.tables(step), memory.history(step).reshape(2, -1)
            rules, size = make_rules(points, tables.profile), tables.size
            sums = size * (rules.ahead[degree] @ past[:, which])
            known[which] += history[0] + sums[0]
            inherited[which], guess[which] = history[1], sums[1]
            newest[which], shares[:, which] = size * rules.newest[degree], size * rules.shares
            linear[:, which] = size * rules.sums[1, :2, np.newaxis]
        return known, known + guess, inherited, newest, tuple(linear), shares, rules

    def _orient_first_error(self, trial: Trial) -> tuple[Array, Array]:
        """Give the estimated error of the first step its sign, which the curvature over two steps tells.

        The term that stands for it, the last included one, has the right size at most. With the other sign it would
        cancel the errors of the next steps; above order 1 none of them fades.
        """
        newest, end, start = trial.values[:3]
        bulge = (end - start) * (trial.step / self.steps[0]) - (newest - end)  # above the straight line, if positive
        signs = np.where(np.real((start - end) * np.conj(bulge)) < 0.0, -1.0, 1.0)
        for (_, which), memory in zip(self.system.groups, self.memories, strict=True):
            memory.multiply(np.concatenate([np.ones_like(signs[which]), signs[which]]))
        return signs * trial.inherited, signs * self.moved

    # -- jumps --------------------------------------------------------------------------------------------------------

    def _pass_jump(self) -> bool:
        """Step over a jump of the right-hand side that is closer than times can be, and restart behind it."""
        step = length_across(self)
        if step is None:
            return False
        self.jumped = self.tau
        end = self.tau + step
        trial = self._attempt(step, end, 1) if end < self.length else None
        if trial is None:
            return False
        trial.terms[...] = 0.0
        trial.terms[min(2, len(trial.terms) - 1)] = jump_bound(self, np.abs(trial.values[0] - trial.values[1]), step)
        self._accept(trial, None)
        self.restart()
        return True

    # -- the start, and orders above 1 --------------------------------------------------------------------------------

    def _distance_factor(self, step: float, end: float) -> Any:
        """Factor by which an error of this step grows until ``end``: above 1 for orders above 1 alone."""
        factors = np.empty(self.y.size)
        for alpha, which in self.system.groups:
            factors[which] = (end / step) ** max(alpha - 1.0, 0.0)
        return factors

    def _first_step(self) -> float:
        """A step whose first term is about the tolerance: very small, because y behaves like t^alpha."""
        f, system = self.values[0], self.system
        scale = self.share * (self.atol + self.rtol * self.magnitude)
        size = system.norm(f, scale)
        step = self.length * 1e-3
        if size > 0.0:
            step = min(step, _power(1e-2 / self.share / self.rtol / size, 1.0 / self.least))
        for _ in range(4):
            end = system.start(step).astype(system.dtype)
            for (_, which), memory in zip(system.groups, self.memories, strict=True):
                end[which] += f[which] * memory.kernel.integrals(step, 1)[0]
            try:
                change = system.norm(system(step, end) - f, scale)
            except NotFiniteError:
                step *= 1e-3
                continue
            error = change * step**self.least / math.gamma(self.least + 2.0)
            if 0.05 <= error <= 1.0 or (error < 0.05 and step >= self.length * 1e-3):
                break
            step = min(step * _power(0.3 / max(error, 1e-12), 0.5 / self.least), self.length * 1e-3)
        return max(step, 1e3 * _SHORTEST)


def _power(base: float, exponent: float) -> float:
    """``base**exponent`` without overflow: small orders make large exponents."""
    return math.exp(min(max(exponent * math.log(base), -690.0), 690.0))

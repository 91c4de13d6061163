"""One adaptive pass over the interval: the local error controls steps and degrees; the global error is estimated."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpfracc.history.states import ExponentialMemory, Snapshot
from hpfracc.solvers.ode.adaptive.arithmetic import JUMP, NumpyArithmetic, Trial, interpolate, usual_change
from hpfracc.solvers.ode.adaptive.corrector import Corrector
from hpfracc.solvers.ode.adaptive.solution import Continuation, Piece
from hpfracc.solvers.ode.options import Options
from hpfracc.solvers.ode.problem import NotFiniteError

Array = np.ndarray[Any, Any]

#: Highest degree of the polynomials.
HIGHEST = 5
#: Contractions up to which a degree is stable, and these degrees for orders of which others always are.
_CONTRACTIONS = np.array([0.5, 0.9, 2.0])
_DEGREES = {few: np.maximum([HIGHEST, 3, 2, 1], few) for few in (1, 2, 3)}
_MAX_TRIES = 60
_SHORTEST, _EPS = 1e-290, math.ulp(1.0)
#: The highest order of divided differences in which a jump of the size of other changes shows; also the one below.
_JUMP_ORDERS = 4
#: Jumps are passed without a word if they can add at most this share of the tolerance.
_NEGLIGIBLE = 0.01
#: Step sizes form a geometric sequence with this number per factor of 2, so that their tables can be cached.
LEVELS_PER_OCTAVE = 4
_SAFETY = 0.85
_MAX_GROWTH = 2.0
_MIN = 0.1


@dataclass(slots=True)
class Controller:
    """A proportional-integral controller over a ladder of step sizes.

    The error of a step of degree k behaves like ``step^(k + alpha)``.

    Attributes
    ----------
    unit : float
        The step size of level 0.
    alpha : float
        The smallest order.
    level : int
        Level of the next step.
    """

    unit: float
    alpha: float
    level: int = 0
    _previous: float = 1.0

    @property
    def step(self) -> float:
        """The next step."""
        return float(self.unit * 2.0 ** (self.level / LEVELS_PER_OCTAVE))

    def limit(self, longest: float) -> None:
        """Limit the next step to this length."""
        highest = LEVELS_PER_OCTAVE * (math.log2(longest) - math.log2(self.unit)) + 1e-9
        self.level = min(self.level, math.floor(highest))

    def growth(self, error: float, degree: float) -> float:
        """Factor by which the step could have been longer with this degree."""
        return float(_SAFETY * max(error, 1e-10) ** (-1.0 / (degree + self.alpha)))

    def accept(self, error: float, degree: int, most: float = math.inf) -> None:
        """Choose the next step after one with this error, in units of the tolerance; ``most`` bounds its growth."""
        power = 1.0 / (degree + self.alpha)
        error = max(error, 1e-10)
        factor = _SAFETY * error ** (-0.7 * power) * self._previous ** (0.4 * power)
        factor = min(max(min(factor, most), _MIN), _MAX_GROWTH)
        self._previous = max(error, 1e-4)
        self.level += math.floor(LEVELS_PER_OCTAVE * math.log2(factor) + 0.25)

    def reject(self, error: float, degree: float) -> None:
        """Choose a shorter step after a rejected one."""
        factor = min(max(self.growth(error, degree), _MIN), 0.8)
        self.level += min(math.floor(LEVELS_PER_OCTAVE * math.log2(factor)), -1)

    def shrink(self) -> None:
        """Choose a quarter of the step because the equation of a step could not be solved."""
        self.level -= 2 * LEVELS_PER_OCTAVE

    def restart(self) -> None:
        """Restart with the length of the first step."""
        self.level = min(self.level, 0)
        self._previous = 1.0

    def start_with(self, step: float) -> None:
        """Try this length next."""
        self.level = math.floor(LEVELS_PER_OCTAVE * math.log2(step / self.unit))


class Stepper:
    """Takes the steps of one pass.

    Parameters
    ----------
    system : FlatSystem
        The equation, or one like it.
    length : float
        Length of the interval.
    options : Options
        The tolerance, and the longest and the first step.
    share : float
        Fraction of the tolerance for one step.
    between : bool
        Whether the solution is also needed between the steps.
    corrector : Corrector, optional
        Solves the equations of the steps, or one like it; by default by iteration and Newton's method.
    memory : callable
        The class of the memories, or one like it.
    """

    def __init__(
        self,
        system: Any,
        length: float,
        options: Options,
        share: float,
        *,
        between: bool = True,
        corrector: Any = None,
        memory: Callable[..., Any] = ExponentialMemory,
    ) -> None:
        self.between, self.most_step = between, options.max_step
        self.system, self.length, self.rtol, self.share = system, length, options.rtol, share
        self.atol = np.array(np.broadcast_to(options.atol, system.shape), dtype=float).reshape(-1)
        self.least = min(alpha for alpha, _ in system.groups)
        self.most = max(alpha for alpha, _ in system.groups)
        eps = min(max(1e-5 * self.rtol, 1e-14), 1e-8)
        self.memories = [
            memory(alpha, 2 * system.initial[0][which].size, length, eps, system.dtype)
            for alpha, which in system.groups
        ]
        self.corrector = Corrector(system) if corrector is None else corrector
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
        self.ratio = self.size = 0.0  # of the error: the largest in units of the tolerance, and that of the newest step
        self.largest = system.magnitude(self.y)
        self.accepted = self.rejected = 0
        self.pieces: list[Piece] = []  # the last two
        self.snapshots: list[list[Snapshot]] = []  # before each of them
        self.arithmetic: Any = NumpyArithmetic()  # or CompiledArithmetic
        first = min(options.first_step or self._first_step(), self._longest())
        self.controller = Controller(first, self.least)
        self.jumped: float | None = None  # where a jump was passed

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
            try:
                if self._attempt(step, end):
                    return None
                spoiled = None
            except NotFiniteError as error:
                self._shrink()
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
        self.controller.restart()
        resolved = 32.0 * _EPS * self.tau
        if self.controller.step < resolved:
            self.controller.start_with(resolved)

    def _pass_jump(self) -> bool:
        """Step over a jump of the right-hand side that is closer than times can be, and restart behind it."""
        step = 32.0 * _EPS * max(abs(self.tau), abs(self.system.time(self.tau)))
        before = self.system(max(self.tau - step, 0.0), self.y)
        for _ in range(12):
            behind, later = (self.system(self.tau + k * step, self.y) for k in (1.0, 2.0))
            change = np.abs(behind - before)
            if np.any((change > 10.0 * np.abs(later - behind)) & (change > 1e-6 * np.abs(behind))):
                break
            step *= 2.0
        else:
            return False
        self.jumped = self.tau
        end = self.tau + step
        trial = self.arithmetic.attempt(self, step, end, 1) if end < self.length else None
        if trial is None:
            return False
        trial.terms[...] = 0.0
        trial.terms[min(2, len(trial.terms) - 1)] = self._jump_bound(np.abs(trial.values[0] - trial.values[1]), step)
        self._take(trial, step, end, 1, None)
        self.restart()
        return True

    def _propose(self, stop: float) -> tuple[float, float]:
        """Length of the next step, and its end."""
        self.controller.limit(self._longest())
        step, left = self.controller.step, (stop - self.origin) - self.since
        if step >= left * (1.0 - 1e-12):
            return left, stop
        if step > 0.5 * left:  # two equal steps instead of a long and a tiny one
            step = 0.5 * left
        return step, self.origin + (self.since + step)

    def _longest(self) -> float:
        """The longest step allowed: by the options, and after an infinite start by the elapsed time."""
        least = 0.5 * (self.tau + self.system.offset) if self.system.offset else math.inf
        return min(self.most_step, self.length, least)

    def continuation(self) -> Continuation:
        """The solution over the newest step."""
        return Continuation(
            self.system.groups, self.snapshots[0], self.pieces[0].left, tuple(self.pieces), self.system.start
        )

    # -- one attempt --------------------------------------------------------------------------------------------------

    def _attempt(self, step: float, end: float) -> bool:
        degree = min(self.degree, len(self.values))
        trial = self.arithmetic.attempt(self, step, end, degree)
        if trial is None:
            return self._shrink()
        errors = trial.errors
        # If the equation is stiff, the error is the first omitted term. Otherwise the last included term is used, an
        # overestimate, because the errors of the steps accumulate.
        ahead = int(self.corrector.stiff)
        error = errors[min(degree + ahead, len(errors) - 1)]
        jump = self._find_jump(trial, step, degree)
        size = 0.0 if jump is None else self.system.norm(trial.scale)(jump)
        if size < _NEGLIGIBLE:  # such as rounding of terms that cancel
            jump = None
        if jump is not None and error <= 1.0 < size:
            return self._reject(size, 0.0)
        if not error <= 1.0:
            self.degree = degree - 1 if degree > 1 and errors[degree - 1 + ahead] <= error else degree
            return self._reject(error, degree + ahead)
        through, most = None, math.inf
        if self.between:
            tolerance = trial.scale / self.share
            through, inside, order = interpolate(self, trial, step, degree, lambda x: self.system.ratio(x, tolerance))
            wrong = self.system.ratio(inside, tolerance)
            if not wrong <= 1.0:
                return self._reject(wrong, order - self.least)
            most, self.inside = self.controller.growth(wrong, order - self.least), inside
        if jump is not None:
            trial.terms[min(degree + 1, len(trial.terms) - 1)] += jump
        self._take(trial, step, end, degree, through)
        self._choose_degree(errors, degree, most)
        if jump is not None:
            self.restart()
            self.controller.start_with(step)  # not the first step: the bound of a jump allows this one
        return True

    def _shrink(self) -> bool:
        """Reject a step whose equation could not be solved."""
        self.rejected += 1
        self.controller.shrink()
        return False

    def _reject(self, error: float, degree: float) -> bool:
        """Reject a step with this error, in units of the tolerance."""
        self.rejected += 1
        self.controller.reject(error, degree)
        return False

    def _find_jump(self, trial: Trial, step: float, degree: int) -> Array | None:
        """Bound of the error if the right-hand side jumps within this step, at its end or at the last time; or None.

        The terms of a polynomial across a jump underestimate it, because their weights fall with the degree. It jumps
        if its change is many times the earlier ones, or, for a jump of the size of its changes, if its divided
        differences of two higher orders are: extrapolations of any degree then miss the newest value by the jump.
        """
        values = trial.values
        # Terms of low degrees are not that small.
        grown = len(values) - 2 >= _JUMP_ORDERS <= degree + 1 and self._terms_grow(trial.errors, step)
        if not (trial.sudden or grown):
            return None
        change, rounding = np.abs(values[0] - values[1]), 1e-13 * np.abs(values).max(axis=0)
        jump = np.where(change > usual_change(values, self.steps, step) + rounding, change, 0.0)
        if grown:
            jump = np.maximum(jump, self._find_small_jump(values, step, rounding))
        return self._jump_bound(jump, step) if jump.any() else None

    def _terms_grow(self, errors: list[float], step: float) -> bool:
        """Whether the terms of higher orders grow by more than the length of the step explains."""
        before, low, high = self.errors, _JUMP_ORDERS - 1, _JUMP_ORDERS
        if len(before) <= high:
            return False
        ratio = step / self.steps[0]
        usual = 1.5 * ratio ** (low + min(self.least, 1.0))
        return bool(errors[low] > usual * before[low] and errors[high] > usual * ratio * before[high])

    def _find_small_jump(self, values: Array, step: float, rounding: Array) -> Array:
        """By how much extrapolations of two degrees miss the newest value, if both do so suddenly."""
        lengths = np.array([1.0, *(each / step for each in self.steps[: len(values) - 2])])  # in units of this step
        differences, gaps, reach = values, np.zeros(lengths.size + 1), 1.0
        smallest = np.full(values.shape[1], math.inf)
        for order in range(1, _JUMP_ORDERS + 1):
            gaps = gaps[:-1] + lengths[order - 1 :]
            differences = (differences[:-1] - differences[1:]) / gaps[:, np.newaxis]
            reach *= float(gaps[0])
            if order >= _JUMP_ORDERS - 1:
                sizes = np.abs(differences[:3])
                limit = JUMP * sizes[1:].max(axis=0) + rounding * (2.0 ** (order - 1) / reach)
                smallest = np.where(sizes[0] > limit, np.minimum(smallest, reach * sizes[0]), 0.0)
        return smallest

    def _jump_bound(self, jump: Array, step: float) -> Array:
        """How far the integral of the right-hand side may be off if it jumps by this within a step."""
        bound = 0.5 * jump
        for (alpha, which), memory in zip(self.system.groups, self.memories, strict=True):
            far = (self.length / step) ** (alpha - 1.0) * alpha if alpha > 1.0 else 0.0
            bound[which] *= memory.kernel.integrals(step, 1)[0] * max(1.0, far)
        return self.corrector.damped(bound) if self.corrector.stiff else bound

    def _take(self, trial: Trial, step: float, end: float, degree: int, through: Array | None) -> None:
        """Accept a step: update the estimated global error, the history and the newest points."""
        if self.accepted == 1 and len(trial.values) > 2:  # the value at the start is known
            self._orient_first_error(trial, step)
        before = [memory.snapshot() for memory in self.memories]
        taken = self.arithmetic.take(self, trial, step, end, degree)
        self.error, self.moved, coefficients, self.largest, ratio, self.size = taken
        self.snapshots = [*self.snapshots[-1:], before]
        self.states = [trial.y, *self.states[: HIGHEST + 1]]
        self.pieces = [*self.pieces[-1:], Piece(self.tau, step, end, coefficients, through)]
        self.ratio = max(self.ratio, ratio)
        self.tau, self.y, self.errors = end, trial.y, trial.errors
        self.since += step
        self.values = trial.values[: HIGHEST + 2]
        self.steps = [step, *self.steps[: HIGHEST + 1]]
        self.accepted += 1
        self.corrector.accepted(trial.newest, trial.scale)

    def _orient_first_error(self, trial: Trial, step: float) -> None:
        """Give the estimated error of the first step its sign, which the curvature over two steps tells.

        The term that stands for it, the last included one, has the right size at most. With the other sign it would
        cancel the errors of the next steps; above order 1 none of them fades.
        """
        newest, end, start = trial.values[:3]
        bulge = (end - start) * (step / self.steps[0]) - (newest - end)  # above the straight line, if positive
        signs = np.where(np.real((start - end) * np.conj(bulge)) < 0.0, -1.0, 1.0)
        self.moved = signs * self.moved
        trial.inherited[...] = signs * trial.inherited
        for (_, which), memory in zip(self.system.groups, self.memories, strict=True):
            memory.multiply(np.concatenate([np.ones_like(signs[which]), signs[which]]))

    def _choose_degree(self, errors: list[float], degree: int, most: float) -> None:
        """The next degree and step; ``most`` bounds its growth."""
        ahead = int(self.corrector.stiff)
        highest = min(self.highest_degree(), len(errors) - 1)

        def growth(candidate: int) -> float:
            return self.controller.growth(errors[min(candidate + ahead, len(errors) - 1)], candidate + ahead)

        best = min(degree, highest)
        possible = growth(best)
        for other in (best - 1, best + 1):
            # Prefer the current degree slightly, because frequent changes disturb the estimates.
            if 1 <= other <= highest and other + ahead < len(errors) and (found := growth(other)) > 1.1 * possible:
                best, possible = other, found
        self.degree = best
        self.controller.accept(errors[min(best + ahead, len(errors) - 1)], best + ahead, most)

    def highest_degree(self) -> int:
        """The highest degree that is stable."""
        return int(stable_degrees(self.corrector.contraction, self.most)) if self.corrector.stiff else HIGHEST

    # -- helpers ------------------------------------------------------------------------------------------------------

    def scale(self, y: Array) -> Array:
        """The tolerance of a step that ends with ``y``."""
        sizes = np.maximum(self.system.magnitude(self.y), self.system.magnitude(y))
        return np.asarray(self.atol + self.rtol * sizes) * self.share

    def distance_factor(self, step: float, end: float) -> Any:
        """Factor by which an error of this step grows until ``end``, of each element if orders differ.

        Above 1 for orders above 1 alone.
        """
        factors = [(end / step) ** max(alpha - 1.0, 0.0) for alpha, _ in self.system.groups]
        if len(factors) == 1:
            return float(factors[0])
        found = np.empty(self.y.size)
        for factor, (_, which) in zip(factors, self.system.groups, strict=True):
            found[which] = factor
        return found

    def _first_step(self) -> float:
        """A step whose first term is about the tolerance: very small, because y behaves like t^alpha."""
        f, norm = self.values[0], self.system.norm(self.scale(self.y))
        size = norm(f)
        step = self.length * 1e-3
        if size > 0.0:
            step = min(step, _power(1e-2 / self.share / self.rtol / size, 1.0 / self.least))
        for _ in range(4):
            end = self.system.start(step).astype(self.system.dtype)
            for (_, which), memory in zip(self.system.groups, self.memories, strict=True):
                end[which] += f[which] * memory.kernel.integrals(step, 1)[0]
            try:
                change = norm(self.system(step, end) - f)
            except NotFiniteError:
                step *= 1e-3
                continue
            error = change * step**self.least / math.gamma(self.least + 2.0)
            if 0.05 <= error <= 1.0 or (error < 0.05 and step >= self.length * 1e-3):
                break
            step = min(step * _power(0.3 / max(error, 1e-12), 0.5 / self.least), self.length * 1e-3)
        return max(step, 1e3 * _SHORTEST)


def stable_degrees(contraction: Array | float, alpha: float) -> Array:
    """The highest degrees that are stable for ``D^alpha y = -z y``, ``contraction`` being z times the newest weight.

    Measured with constant steps: degrees 1, 2, 3 are stable for all z up to the orders 1, 1/2 and 0.3; for higher
    orders up to a limit.
    """
    few = 3 if alpha <= 0.3 else 2 if alpha <= 0.5 else 1
    return np.asarray(_DEGREES[few][_CONTRACTIONS.searchsorted(contraction)])


def _power(base: float, exponent: float) -> float:
    """``base**exponent`` without overflow: small orders make large exponents."""
    return math.exp(min(max(exponent * math.log(base), -690.0), 690.0))

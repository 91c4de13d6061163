"""One adaptive pass over the interval: steps and degrees by the local error, the global error carried along."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpfracc.solvers.ode._options import Options
from hpfracc.solvers.ode.adaptive.between import Between, interpolate_states
from hpfracc.solvers.ode.adaptive.continuation import Continuation, Piece
from hpfracc.solvers.ode.adaptive.controller import Controller
from hpfracc.solvers.ode.adaptive.corrector import Corrector
from hpfracc.solvers.ode.adaptive.memory import ExponentialMemory, Snapshot
from hpfracc.solvers.ode.adaptive.stencil import Stencil, make_stencil
from hpfracc.solvers.ode.adaptive.system import FlatSystem, NotFiniteError

__all__ = ["Stepper", "Stopped"]

Array = np.ndarray[Any, Any]

#: Highest degree of the polynomials.
HIGHEST = 5
_KEPT_STENCILS = 128
_MOST_TRIES = 60
_SHORTEST = 1e-290


@dataclass(frozen=True, slots=True)
class Stopped:
    """Why no further step can be taken, in words that say what to do."""

    message: str


class Stepper:
    """Takes the steps of one pass.

    Parameters
    ----------
    system : FlatSystem
        The equation.
    length : float
        Of the interval.
    options : Options
        The tolerance, and the longest and the first step.
    share : float
        The part of it that a step may spend.
    between : bool
        Whether the solution is wanted between the steps too.
    """

    def __init__(
        self, system: FlatSystem, length: float, options: Options, share: float, *, between: bool = True
    ) -> None:
        self.between, self.most_step = between, options.max_step
        self.system, self.length, self.rtol, self.share = system, length, options.rtol, share
        self.atol = np.broadcast_to(np.asarray(options.atol, dtype=float), system.shape).reshape(-1)
        self.least = min(alpha for alpha, _ in system.groups)
        self.most = max(alpha for alpha, _ in system.groups)
        eps = min(max(1e-5 * self.rtol, 1e-14), 1e-8)
        self.memories = [
            ExponentialMemory(alpha, 2 * system.initial[0][which].size, length, eps, system.dtype)
            for alpha, which in system.groups
        ]
        self.corrector = Corrector(system)
        self.tau = 0.0
        self.y = system.start(0.0).astype(system.dtype)
        self.values = [system(0.0, self.y)]  # of the right-hand side, the newest first
        self.states = [self.y]
        self.steps: list[float] = []  # lengths, the newest first
        self._levels: list[int | None] = []
        self.degree = 1
        self.error = np.zeros_like(self.y)
        self.moved = np.zeros_like(self.y)
        self.ratio = 0.0
        self._largest = np.abs(self.y)
        self.accepted = self.rejected = 0
        self.pieces: list[Piece] = []  # the last two
        self.snapshots: list[list[Snapshot]] = []  # before each of them
        self._stencils: dict[tuple[int, ...], tuple[Stencil, list[Array]]] = {}
        self.controller = Controller(min(options.first_step or self._first_step(), self._longest()), self.least)

    # -- what is asked of it ------------------------------------------------------------------------------------------

    def advance(self, until: float | None = None) -> Stopped | None:
        """Take one step, not beyond ``until``; None, or why it could not be taken."""
        stop = self.length if until is None else until
        spoiled: NotFiniteError | None = None
        for tries in range(1, _MOST_TRIES + 1):
            step, level, end = self._propose(stop)
            if step < 8.0 * np.finfo(float).eps * self.tau or step < _SHORTEST:
                break
            try:
                if self._attempt(step, level, end):
                    return None
                spoiled = None
            except NotFiniteError as error:
                self.rejected += 1
                self.controller.shrink()
                spoiled = error
            if tries >= 3:
                self.degree = 1
        if spoiled is not None:
            return Stopped(f"{spoiled}, and shorter steps did not help: check the right-hand side there.")
        return Stopped(
            f"The tolerance cannot be reached beyond t = {self.system.time(self.tau):.6g}: steps of {step:.1e} "
            f"would be needed there. Loosen rtol={self.rtol:g} or atol, or look whether the solution ends there."
        )

    def restart(self) -> None:
        """Forget the polynomials, not the past: the right-hand side is not smooth here."""
        self.values = [self.system(self.tau, self.y)]
        self.states, self.steps, self._levels, self.degree = [self.y], [], [], 1
        self.controller.restart()

    def _propose(self, stop: float) -> tuple[float, int | None, float]:
        """Length of the next step, its level where it is on the ladder, and its end."""
        self.controller.limit(self._longest())
        step, left = self.controller.step, stop - self.tau
        if step >= left * (1.0 - 1e-12):
            return left, None, stop
        if step > 0.5 * left:  # two like steps rather than a long and a tiny one
            return 0.5 * left, None, self.tau + 0.5 * left
        return step, self.controller.level, self.tau + step

    def _longest(self) -> float:
        """As told; and after a start at infinity the solution changes with t, and what it is at a step's end counts."""
        return min(self.most_step, 0.5 * (self.tau + self.system.offset) if self.system.offset else math.inf)

    def continuation(self) -> Continuation:
        """The solution over the newest step."""
        return Continuation(
            self.system.groups, self.snapshots[0], self.pieces[0].left, tuple(self.pieces), self.system.start
        )

    # -- one attempt --------------------------------------------------------------------------------------------------

    def _attempt(self, step: float, level: int | None, end: float) -> bool:
        system = self.system
        count = min(len(self.values), HIGHEST + 2)
        degree = min(self.degree, count)
        stencil, parts = self._stencil(step, level, count)
        past = np.stack(self.values[:count])
        histories = [memory.history(step) for memory in self.memories]
        start = system.start(end)
        known = start.astype(system.dtype, copy=True)
        inherited = np.zeros_like(known)  # the past's part of the global error
        for (_, which), history in zip(system.groups, histories, strict=True):
            half = history.size // 2
            known[which] += history[:half]
            inherited[which] = history[half:]
        weights = self._weights(parts, step)
        rule = weights[: degree + 1].sum(axis=0)  # (R,) or (R, n)
        known = known + _combine(rule[1:], past)
        row = stencil.differences[min(degree + 1, count)]
        guess = known + rule[0] * (-(row[1:] @ past) / row[0])

        scale = self._scale(guess)
        solved = self.corrector.solve(
            end, known, rule[0], guess, lambda change: self._norm(change, scale), self.accepted + self.rejected
        )
        if solved is None:
            self.rejected += 1
            self.controller.shrink()
            return False
        values = np.concatenate([solved.f[np.newaxis], past])
        terms = _combine_rows(weights, values)
        scale = self._scale(solved.y)
        felt = np.stack([self.corrector.damped(term) for term in terms]) if self.corrector.stiff else terms
        errors = self._norms(felt, scale)
        if self.most > 1.0:
            errors = [error * (end / step) ** (self.most - 1.0) for error in errors]
        # Where the equation is stiff, the term after the last is the error; elsewhere the last is taken for it, which
        # is more than the error: the steps' errors add up there.
        ahead = int(self.corrector.stiff)
        error = errors[min(degree + ahead, len(errors) - 1)]
        if not error <= 1.0:
            self.rejected += 1
            lower = degree - 1 if degree > 1 and errors[degree - 1 + ahead] <= error else degree
            self.controller.reject(error, degree + ahead)
            self.degree = lower
            return False
        between: Between | None = None
        if self.between and self.corrector.stiff:
            tolerance = scale / self.share
            defect = min(degree + 1, len(terms) - 1)
            own = float((np.abs(terms[defect]) / tolerance).max()), defect + self.least
            between = interpolate_states(stencil, np.stack([solved.y, *self.states]), tolerance, own)
            if not between.error <= 1.0:
                self.rejected += 1
                self.controller.reject(between.error, between.order - self.least)
                return False
        self._take(step, level, end, degree, solved.y, values, stencil, weights, terms, inherited, between)
        self._choose_degree(errors, degree, between)
        return True

    def _take(
        self,
        step: float,
        level: int | None,
        end: float,
        degree: int,
        y: Array,
        values: Array,
        stencil: Stencil,
        weights: Array,
        terms: Array,
        inherited: Array,
        between: Between | None,
    ) -> None:
        """Accept a step: the estimated global error, the memory, the newest points."""
        system = self.system
        defect = min(degree + 1, len(values) - 1)
        linear = weights[:2].sum(axis=0)  # the rule of degree 1, for the error's own right-hand side
        known = inherited + terms[defect] + linear[1] * self.moved

        def change(error: Array) -> Array:
            return np.asarray(system(end, y + error, shifted=True) - values[0])

        try:
            error, moved = self.corrector.propagate(known, linear[0], known + linear[0] * self.moved, change)
        except NotFiniteError:
            error, moved = known, self.moved
        coefficients = np.zeros((defect + 1, y.size), system.dtype)
        coefficients[: degree + 1] = stencil.coefficients(degree) @ values
        wrong = np.outer(stencil.polynomials[defect, : defect + 1], stencil.differences[defect] @ values)
        wrong[0] += moved
        wrong[1] += self.moved - moved
        self.snapshots = [*self.snapshots[-1:], [memory.snapshot() for memory in self.memories]]
        for (_, which), memory in zip(system.groups, self.memories, strict=True):
            memory.advance(step, np.concatenate([coefficients[:, which], wrong[:, which]], axis=1))
        self.states = [y, *self.states[: HIGHEST + 1]]
        through = None if between is None else between.coefficients
        self.pieces = [*self.pieces[-1:], Piece(self.tau, step, end, coefficients[: degree + 1], through)]
        self.error, self.moved = error, moved
        faded = self._largest * (self.tau / end)
        self._largest = np.maximum(np.abs(y), faded)
        # Of every component: in a mean over many the error of one would be lost.
        self.ratio = max(self.ratio, float((np.abs(error) / (self.atol + self.rtol * self._largest)).max()))
        self.tau, self.y = end, y
        self.values = list(values[: HIGHEST + 2])
        self.steps = [step, *self.steps[: HIGHEST + 1]]
        self._levels = [level, *self._levels[: HIGHEST + 1]]
        self.accepted += 1
        self.corrector.accepted(weights[: degree + 1].sum(axis=0)[0])

    def _choose_degree(self, errors: list[float], degree: int, between: Between | None) -> None:
        ahead = int(self.corrector.stiff)
        highest = min(self._highest(), len(errors) - 1)

        def growth(candidate: int) -> float:
            return self.controller.growth(errors[min(candidate + ahead, len(errors) - 1)], candidate + ahead)

        best = min(degree, highest)
        possible = growth(best)
        for other in (best - 1, best + 1):
            # A little in favour of what is: degrees that jump about disturb the estimates.
            if 1 <= other <= highest and other + ahead < len(errors) and growth(other) > 1.1 * possible:
                best, possible = other, growth(other)
        self.degree = best
        most = math.inf if between is None else self.controller.growth(between.error, between.order - self.least)
        self.controller.accept(errors[min(best + ahead, len(errors) - 1)], best + ahead, most)

    def _highest(self) -> int:
        """The highest degree whose steps stay stable where the equation is stiff.

        Measured for ``D^alpha y = -z y`` with constant steps: degrees 1, 2, 3 are stable for all z up to the orders 1,
        1/2 and 0.3; beyond, up to a z that makes the weight of the newest value times z the numbers below.
        """
        contraction = self.corrector.contraction if self.corrector.stiff else 0.0
        if contraction <= 0.5:
            return HIGHEST
        if contraction <= 0.9 or self.most <= 0.3:
            return 3
        return 2 if contraction <= 2.0 or self.most <= 0.5 else 1

    # -- pieces of it -------------------------------------------------------------------------------------------------

    def _stencil(self, step: float, level: int | None, count: int) -> tuple[Stencil, list[Array]]:
        levels = self._levels[: count - 1]
        key: tuple[int, ...] | None = None
        if level is not None and None not in levels:
            key = tuple(level - other for other in levels if other is not None)
            found = self._stencils.get(key)
            if found is not None:
                return found
        nodes = np.concatenate([[0.0, 1.0], 1.0 + np.cumsum(self.steps[: count - 1]) / step])
        stencil = make_stencil(nodes)
        made = stencil, [stencil.contributions(alpha) / math.gamma(alpha) for alpha, _ in self.system.groups]
        if key is not None:
            if len(self._stencils) >= _KEPT_STENCILS:
                self._stencils.clear()
            self._stencils[key] = made
        return made

    def _weights(self, parts: list[Array], step: float) -> Array:
        """Shape (R, R) where all components share an order, else (R, R, n)."""
        if len(parts) == 1:
            return np.asarray(parts[0] * step ** self.system.groups[0][0])
        weights = np.empty((*parts[0].shape, self.system.size))
        for part, (alpha, which) in zip(parts, self.system.groups, strict=True):
            weights[..., which] = (part * step**alpha)[..., np.newaxis]
        return weights

    def _scale(self, y: Array) -> Array:
        return np.asarray(self.atol + self.rtol * np.maximum(np.abs(self.y), np.abs(y))) * self.share

    def _norm(self, value: Array, scale: Array) -> float:
        """Root mean square over the components, the largest over the batch."""
        return self._norms(value[np.newaxis], scale)[0]

    def _norms(self, values: Array, scale: Array) -> list[float]:
        """Those of several rows."""
        ratios = (np.abs(values) / scale).reshape(len(values), -1, self.system.components)
        squares = np.einsum("rbd,rbd->rb", ratios, ratios).max(axis=1) / self.system.components
        return [math.sqrt(square) for square in squares.tolist()]

    def _first_step(self) -> float:
        """A step whose first term is about the tolerance: tiny, since y behaves like t^alpha."""
        f, scale = self.values[0], self._scale(self.y)
        size = self._norm(f, scale)
        step = self.length * 1e-3
        if size > 0.0:
            step = min(step, _power(1e-2 / self.share / self.rtol / size, 1.0 / self.least))
        for _ in range(4):
            end = self.system.start(step).astype(self.system.dtype)
            for alpha, which in self.system.groups:
                end[which] += f[which] * step**alpha / math.gamma(alpha + 1.0)
            try:
                change = self._norm(self.system(step, end) - f, scale)
            except NotFiniteError:
                step *= 1e-3
                continue
            error = change * step**self.least / math.gamma(self.least + 2.0)
            if 0.05 <= error <= 1.0 or (error < 0.05 and step >= self.length * 1e-3):
                break
            step = min(step * _power(0.3 / max(error, 1e-12), 0.5 / self.least), self.length * 1e-3)
        return max(step, 1e3 * _SHORTEST)


def _power(base: float, exponent: float) -> float:
    """``base**exponent``, with an end: small orders make large exponents."""
    return math.exp(min(max(exponent * math.log(base), -690.0), 690.0))


def _combine(rule: Array, values: Array) -> Array:
    return np.asarray(rule @ values if rule.ndim == 1 else (rule * values).sum(axis=0))


def _combine_rows(weights: Array, values: Array) -> Array:
    return np.asarray(weights @ values if weights.ndim == 2 else np.einsum("rpn,pn->rn", weights, values))

"""One adaptive step in NumPy, for all equations, until compiled steps pay off."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from hpfracc.history.states import ExponentialMemory
from hpfracc.solvers.ode.adaptive.stencil import Stencil, make_stencil
from hpfracc.solvers.ode.adaptive.system import NotFiniteError, SteppedSystem

__all__ = ["Arithmetic", "NumpyArithmetic", "StepState", "Taken", "Trial"]

Array = np.ndarray[Any, Any]

_KEPT_STENCILS = 128


class StepState(Protocol):
    """The state of a pass that the next step depends on; see ``Stepper``."""

    system: SteppedSystem
    memories: list[ExponentialMemory]
    corrector: Any  # a StepCorrector; compiled steps need the whole Corrector
    values: Array
    steps: list[float]
    levels: list[int | None]
    tau: float
    y: Array
    atol: Array
    rtol: float
    share: float
    moved: Array
    largest: Array
    accepted: int
    rejected: int

    def scale(self, y: Array) -> Array:
        """The tolerance of a step that ends with ``y``."""

    def distance_factor(self, step: float, end: float) -> float:
        """Amplification of an error of this step until the end."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A step whose equation was solved, with the data for its error estimate.

    Attributes
    ----------
    y : array, shape (n,)
        State at the end of the step.
    values : array, shape (R, n)
        Right-hand side at the end of the step and at the points before.
    stencil : Stencil
        Stencil of these points.
    weights : array, shape (R, R) or (R, R, n)
        Row r maps the values to the contribution of degree r to the integral over the step.
    terms : array, shape (R, n)
        These contributions.
    errors : list of float
        Their sizes in units of the tolerance, damped as by the equation.
    scale : array, shape (n,)
        The tolerance of the step.
    inherited : array, shape (n,)
        Contribution of the history to the global error.
    each : array of int, shape (n,), or None
        The degree of each element, if they differ.
    """

    y: Array
    values: Array
    stencil: Stencil
    weights: Array
    terms: Array
    errors: list[float]
    scale: Array
    inherited: Array
    each: Array | None = None


@dataclass(frozen=True, slots=True)
class Taken:
    """Results of an accepted step: the estimated global error, the response of f to it, and the polynomial of f."""

    error: Array
    moved: Array
    coefficients: Array
    largest: Array
    ratio: float


class Arithmetic(Protocol):
    """Solves the equation of a step, and accepts it."""

    def attempt(self, stepper: StepState, step: float, level: int | None, end: float, degree: int) -> Trial | None:
        """Solve the equation of a step; None if that fails."""

    def take(self, stepper: StepState, trial: Trial, step: float, end: float, degree: int) -> Taken:
        """Add the step to the history."""


class NumpyArithmetic:
    """Steps for any number of orders, with delays, and for batches of any size."""

    def __init__(self) -> None:
        self._stencils: dict[tuple[int, ...], tuple[Stencil, list[Array]]] = {}

    def attempt(self, stepper: StepState, step: float, level: int | None, end: float, degree: int) -> Trial | None:
        """Solve the equation of a step."""
        system, corrector, past = stepper.system, stepper.corrector, stepper.values
        count = len(past)
        stencil, parts = self._stencil(stepper, step, level, count)
        histories = [memory.history(step) for memory in stepper.memories]
        known = system.start(end).astype(system.dtype, copy=True)
        inherited = np.zeros_like(known)
        for (_, which), history in zip(system.groups, histories, strict=True):
            half = history.size // 2
            known[which] += history[:half]
            inherited[which] = history[half:]
        weights = self._weights(stepper, parts, step)
        limits = corrector.degrees()
        each = None if limits is None or limits.min() >= degree else np.minimum(limits, degree)
        rule = _rule(weights, degree, each)
        known = known + _combine(rule[1:], past)
        row = stencil.differences[min(degree + 1, count)]
        guess = known + rule[0] * (-(row[1:] @ past) / row[0])
        norm = system.norm(stepper.scale(guess))
        solved = corrector.solve(end, known, rule[0], guess, norm, stepper.accepted + stepper.rejected)
        if solved is None:
            return None
        values = np.concatenate([solved.f[np.newaxis], past])
        terms = _combine_rows(weights, values)
        scale = stepper.scale(solved.y)
        if limits is not None:  # where a degree is limited, its omitted term stands for all higher ones
            terms = np.take_along_axis(terms, np.minimum(np.arange(count + 1)[:, np.newaxis], limits + 1), 0)
        felt = terms
        if corrector.stiff:  # only the terms that degrees near this one are judged by
            felt = terms.copy()
            felt[degree : degree + 3] = [corrector.damped(term) for term in terms[degree : degree + 3]]
        factor = stepper.distance_factor(step, end)
        errors = [factor * error for error in system.norm(scale).rows(felt)]
        return Trial(solved.y, values, stencil, weights, terms, errors, scale, inherited, each)

    def take(self, stepper: StepState, trial: Trial, step: float, end: float, degree: int) -> Taken:
        """Propagate the error, and add the step to the history."""
        system, y, values, stencil = stepper.system, trial.y, trial.values, trial.stencil
        defect = min(degree + 1, len(values) - 1)
        linear = trial.weights[:2].sum(axis=0)  # the rule of degree 1, for the right-hand side of the error equation
        known = trial.inherited + trial.terms[defect] + linear[1] * stepper.moved

        def change(error: Array) -> Array:
            return np.asarray(system(end, y + error, shifted=True) - values[0])

        try:
            error, moved = stepper.corrector.propagate(known, linear[0], known + linear[0] * stepper.moved, change)
        except NotFiniteError:
            error, moved = known, stepper.moved
        coefficients = np.zeros((defect + 1, y.size), system.dtype)
        wrong = np.zeros_like(coefficients)
        for own, which in _by_degree(degree, trial.each):
            omitted = min(own + 1, len(values) - 1)
            coefficients[: own + 1, which] = stencil.coefficients(own) @ values[:, which]
            polynomial, difference = stencil.polynomials[omitted], stencil.differences[omitted] @ values[:, which]
            wrong[: omitted + 1, which] = np.outer(polynomial[: omitted + 1], difference)
        wrong[0] += moved
        wrong[1] += stepper.moved - moved
        for (_, which), memory in zip(system.groups, stepper.memories, strict=True):
            memory.advance(step, np.concatenate([coefficients[:, which], wrong[:, which]], axis=1))
        largest = np.maximum(system.magnitude(y), stepper.largest * (stepper.tau / end))
        ratio = system.ratio(error, stepper.atol + stepper.rtol * largest)
        return Taken(error, moved, coefficients[: degree + 1], largest, ratio)

    def _stencil(self, stepper: StepState, step: float, level: int | None, count: int) -> tuple[Stencil, list[Array]]:
        levels = stepper.levels[: count - 1]
        key: tuple[int, ...] | None = None
        if level is not None and None not in levels:
            key = tuple(level - other for other in levels if other is not None)
            found = self._stencils.get(key)
            if found is not None:
                return found
        nodes = np.concatenate([[0.0, 1.0], 1.0 + np.cumsum(stepper.steps[: count - 1]) / step])
        stencil = make_stencil(nodes)
        made = stencil, [stencil.contributions(alpha) / math.gamma(alpha) for alpha, _ in stepper.system.groups]
        if key is not None:
            if len(self._stencils) >= _KEPT_STENCILS:
                self._stencils.clear()
            self._stencils[key] = made
        return made

    def _weights(self, stepper: StepState, parts: list[Array], step: float) -> Array:
        """Weights of shape (R, R) if all components share an order, otherwise (R, R, n)."""
        groups = stepper.system.groups
        if len(parts) == 1:
            return np.asarray(parts[0] * step ** groups[0][0])
        weights = np.empty((*parts[0].shape, stepper.system.size))
        for part, (alpha, which) in zip(parts, groups, strict=True):
            weights[..., which] = (part * step**alpha)[..., np.newaxis]
        return weights


def _by_degree(degree: int, each: Array | None) -> list[tuple[int, Any]]:
    """Degrees, and the elements that have them."""
    if each is None:
        return [(degree, slice(None))]
    return [(int(own), np.flatnonzero(each == own)) for own in np.unique(each)]


def _rule(weights: Array, degree: int, each: Array | None) -> Array:
    """Weights of the values in the integral over the step, shape (R,), or (R, n) if elements differ."""
    if each is None:
        return np.asarray(weights[: degree + 1].sum(axis=0))
    return np.asarray(np.cumsum(weights, axis=0)[each].T)


def _combine(rule: Array, values: Array) -> Array:
    return np.asarray(rule @ values if rule.ndim == 1 else (rule * values).sum(axis=0))


def _combine_rows(weights: Array, values: Array) -> Array:
    return np.asarray(weights @ values if weights.ndim == 2 else np.einsum("rpn,pn->rn", weights, values))

"""One adaptive step in NumPy, and the polynomials through the newest points that all of them use."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpfracc.solvers.ode.adaptive.system import NotFiniteError

__all__ = [
    "Between",
    "NumpyArithmetic",
    "Stencil",
    "Taken",
    "Trial",
    "interpolate_states",
    "make_stencil",
    "write_contributions",
    "write_stencil",
]

Array = np.ndarray[Any, Any]

_KEPT_STENCILS = 128
#: Points within a step at which interpolation errors are evaluated.
_INSIDE = np.linspace(0.1, 0.9, 5)


@dataclass(frozen=True, slots=True)
class Stencil:
    r"""Newton's form of the polynomials through 1, 2, ... of the newest points.

    Times are counted backwards from the newest point in units of the newest step, :math:`x = (t_{n+1} - t)/h`: the
    points lie at :math:`x_0 = 0, x_1 = 1, x_2, \dots`

    Attributes
    ----------
    differences : numpy.ndarray, shape (R, R)
        Row r maps the values at the points to the divided difference :math:`F[x_0, \dots, x_r]`.
    polynomials : numpy.ndarray, shape (R, R)
        Row r holds the coefficients of :math:`\prod_{i<r} (x - x_i)` in powers of x.
    """

    differences: Array
    polynomials: Array

    @property
    def points(self) -> int:
        """Number of points."""
        return int(self.differences.shape[0])

    def coefficients(self, degree: int) -> Array:
        """Matrix from values at the points to the coefficients, in powers of x, of the polynomial of that degree."""
        rows = slice(0, degree + 1)
        return np.asarray(self.polynomials[rows, rows].T @ self.differences[rows])

    def contributions(self, alpha: float) -> Array:
        r"""Contribution of each divided difference to the integral over the newest step.

        Shape (R, R): row r maps the values to :math:`\int_0^1 x^{\alpha-1} F[x_0..x_r] \prod_{i<r}(x - x_i) dx`.
        """
        weights = np.empty_like(self.differences)
        write_contributions(alpha, self.differences, self.polynomials, weights)
        return weights


def make_stencil(nodes: Array) -> Stencil:
    """The stencil of points at ``nodes``, which start with 0, 1."""
    differences, polynomials = np.empty((2, len(nodes), len(nodes)))
    write_stencil(nodes, differences, polynomials)
    return Stencil(differences, polynomials)


def write_stencil(nodes: Array, differences: Array, polynomials: Array) -> None:
    """The arrays of a :class:`Stencil`. Also compiled by Numba."""
    differences[:], polynomials[:] = 0.0, 0.0
    differences[0, 0] = polynomials[0, 0] = 1.0
    for r in range(1, len(nodes)):
        for q in range(r, -1, -1):
            polynomials[r, q] = (polynomials[r - 1, q - 1] if q else 0.0) - nodes[r - 1] * polynomials[r - 1, q]
        for i in range(r + 1):
            product = 1.0
            for j in range(r + 1):
                if j != i:
                    product *= nodes[i] - nodes[j]
            differences[r, i] = 1.0 / product


def write_contributions(alpha: float, differences: Array, polynomials: Array, weights: Array) -> None:
    """See :meth:`Stencil.contributions`. Also compiled by Numba."""
    integrals = polynomials @ (1.0 / (alpha + np.arange(len(polynomials))))
    for r in range(len(weights)):
        weights[r] = integrals[r] * differences[r]


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


class NumpyArithmetic:
    """Steps for any number of orders, with delays, and for batches of any size; ``stepper`` is a ``Stepper``."""

    def __init__(self) -> None:
        self._stencils: dict[tuple[int, ...], tuple[Stencil, list[Array]]] = {}

    def attempt(self, stepper: Any, step: float, level: int | None, end: float, degree: int) -> Trial | None:
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

    def take(self, stepper: Any, trial: Trial, step: float, end: float, degree: int) -> Taken:
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

    def _stencil(self, stepper: Any, step: float, level: int | None, count: int) -> tuple[Stencil, list[Array]]:
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

    def _weights(self, stepper: Any, parts: list[Array], step: float) -> Array:
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


@dataclass(frozen=True, slots=True)
class Between:
    """The solution over the newest step.

    Attributes
    ----------
    coefficients : array or None
        Coefficients of the polynomial through the newest states, in powers of x; None if the method's integral is more
        accurate.
    error : float
        Its estimated error, in units of the tolerance.
    order : float
        Power of the step with which the error decreases.
    """

    coefficients: Array | None
    error: float
    order: float


def interpolate_states(
    stencil: Stencil, states: Array, ratio: Callable[[Array], float], own: tuple[float, float]
) -> Between:
    """The more accurate of the method's integral, with error and order ``own``, and a polynomial through ``states``.

    At the steps of a stiff equation an error of the right-hand side is damped by the implicit solve; in the integral
    between them it is not. The states are smooth there: of the polynomials through the newest 2, 3, ... states, the one
    with the smallest next term is used; ``ratio`` is the size of a term in units of the tolerance.
    """
    best = Between(None, *own)
    for points in range(2, min(stencil.points, len(states))):
        difference = stencil.differences[points, : points + 1] @ states[: points + 1]
        shape = float(
            np.abs(_INSIDE[:, None] ** np.arange(points + 1) @ stencil.polynomials[points, : points + 1]).max()
        )
        error = shape * ratio(difference)
        if error < best.error:
            coefficients = stencil.coefficients(points - 1)[:, :points] @ states[:points]
            best = Between(coefficients, error, float(points))
    return best

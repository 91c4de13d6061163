"""One adaptive step in NumPy, and the polynomials through the newest points that all of them use."""

from __future__ import annotations

import functools
from collections.abc import Callable
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from hpfracc.history.states import WITHIN
from hpfracc.solvers.ode.problem import NotFiniteError

Array = np.ndarray[Any, Any]

#: The right-hand side jumps if it changes by this multiple of its previous changes.
JUMP = 4.0
#: An estimate below this fraction of what a step may err is a cancellation of terms that are not known so well.
RESOLVED = 0.05


class Stencil(NamedTuple):
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

    def coefficients(self, degree: int) -> Array:
        """Matrix from values at the points to the coefficients, in powers of x, of the polynomial of that degree."""
        rows = slice(0, degree + 1)
        return np.asarray(self.polynomials[rows, rows].T @ self.differences[rows])


def divided_differences(nodes: Array) -> tuple[Array, Array]:
    """The arrays of the :class:`Stencil` of points at ``nodes``, which start with 0, 1. Also compiled by Numba."""
    differences = np.zeros((len(nodes), len(nodes)))
    polynomials = np.zeros_like(differences)
    differences[0, 0] = polynomials[0, 0] = 1.0
    for r in range(1, len(nodes)):
        polynomials[r, 1:] = polynomials[r - 1, :-1]
        polynomials[r] -= nodes[r - 1] * polynomials[r - 1]
        gaps = nodes[r] - nodes[:r]
        differences[r, :r] = -differences[r - 1, :r] / gaps
        differences[r, r] = 1.0 / np.prod(gaps)
    return differences, polynomials


def contributions(integrals: Array, differences: Array, polynomials: Array) -> Array:
    r"""Contribution of each divided difference to the integral over the newest step. Also compiled by Numba.

    Shape (R, R): row r maps the values to :math:`\int K(x) F[x_0..x_r] \prod_{i<r}(x - x_i) dx`, where ``integrals``
    are those of the kernel K times the powers of x.
    """
    weights: Array = (polynomials @ integrals).reshape(-1, 1) * differences
    return weights


def usual_change(values: Array, lengths: Any, step: float) -> Array:
    """How far the newest of three or more values may be from the next without a jump. Also compiled by Numba."""
    limit: Array = np.abs(values[1] - values[2]) * (JUMP * step / lengths[0])
    if len(values) > 3:
        limit = np.maximum(limit, np.abs(values[2] - values[3]) * (JUMP * step / lengths[1]))
    return limit


@functools.lru_cache(maxsize=128)
def _make_stencil(nodes: tuple[float, ...]) -> Stencil:
    return Stencil(*divided_differences(np.array(nodes)))


class Trial(NamedTuple):
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
    newest : float or array, shape (n,)
        The weight of the newest value in the integral over the step, of the highest degree.
    sudden : bool
        Whether an element changes by more than the :func:`usual_change`.
    each : array of int, shape (n,), or None
        The degree of each element, if they differ.
    differences : array, shape (R, n), or None
        The divided differences of the values, where they are used again.
    """

    y: Array
    values: Array
    stencil: Stencil
    weights: Array
    terms: Array
    errors: list[float]
    scale: Array
    inherited: Array
    newest: Any
    sudden: bool
    each: Array | None = None
    differences: Array | None = None


class NumpyArithmetic:
    """Steps for any number of orders, with delays, and for batches of any size; ``stepper`` is a ``Stepper``."""

    def attempt(self, stepper: Any, step: float, end: float, degree: int) -> Trial | None:
        """Solve the equation of a step."""
        system, corrector, past = stepper.system, stepper.corrector, stepper.values
        count, single = len(past), len(system.groups) == 1
        stencil = _make_stencil((0.0, 1.0, *(1.0 + each / step for each in accumulate(stepper.steps[: count - 1]))))
        known = system.start(end).astype(system.dtype, copy=True)
        inherited, shares = np.empty_like(known), np.empty((count + 1, 1 if single else system.size))
        for (_, which), memory in zip(system.groups, stepper.memories, strict=True):
            history = memory.history(step).reshape(2, -1)
            known[which] += history[0]
            inherited[which] = history[1]
            shares[:, which] = (stencil.polynomials @ memory.tables(step).integrals[: count + 1])[:, np.newaxis]
        # Shape (R, R), or (R, R, n) if orders differ: row r maps the values to the contribution of degree r.
        weights = (
            stencil.differences * shares if single else stencil.differences[:, :, np.newaxis] * shares[:, np.newaxis]
        )
        limits = corrector.degrees()
        each = None if limits is None or limits.min() >= degree else np.minimum(limits, degree)
        # The weight of the newest value in the integral over the step, and the contribution of the others.
        if each is None:
            rule = weights[: degree + 1].sum(axis=0)
            highest = newest = rule[0]
            known += rule[1:] @ past if rule.ndim == 1 else (rule[1:] * past).sum(axis=0)
        else:  # one order for all
            rule = np.cumsum(weights[: degree + 1], axis=0)
            highest, newest = rule[degree, 0], rule[each, 0]
            known += (rule[:, 1:] @ past)[each, np.arange(each.size)]
        row = stencil.differences[min(degree + 1, count)]
        guess = known + newest * (-(row[1:] @ past) / row[0])
        norm = system.norm(stepper.scale(guess)) if corrector.iterates else None
        solved = corrector.solve(end, known, newest, guess, norm, stepper.accepted + stepper.rejected)
        if solved is None:
            return None
        y, f = solved
        values = np.concatenate([f[np.newaxis], past])
        differences = stencil.differences @ values
        terms = shares * differences
        scale = stepper.scale(y)
        if limits is not None and limits.min() < count - 1:  # where a degree is limited, its omitted term
            rows = np.minimum(np.arange(count + 1)[:, np.newaxis], limits + 1)  # stands for all higher ones
            terms = terms[rows, np.arange(limits.size)]
        felt, unseen = terms, 0
        if corrector.stiff:  # only the terms that this degree and degrees near it are judged by
            judged = slice(degree, degree + 3)
            if corrector.solves_to_damp:  # and that are stable
                judged = slice(min(max(degree, 2), count), min(degree + 1, max(stepper.highest_degree(), degree)) + 2)
            unseen = min(judged.start, 2)  # rows before are for nothing to be judged by
            felt = terms[unseen:].copy()
            felt[judged.start - unseen : judged.stop - unseen] = corrector.damped_rows(terms[judged])
        factor = stepper.distance_factor(step, end)
        if np.ndim(factor):
            felt, factor = factor * felt, 1.0
        errors = [np.inf] * unseen + [factor * error for error in system.norm(scale).rows(felt)]
        sudden = count > 1 and bool((np.abs(f - past[0]) > usual_change(values, stepper.steps, step)).any())
        return Trial(y, values, stencil, weights, terms, errors, scale, inherited, highest, sudden, each, differences)

    def take(
        self, stepper: Any, trial: Trial, step: float, end: float, degree: int
    ) -> tuple[Array, Array, Array, Array, float, float]:
        """Propagate the error, and add the step to the history.

        Returns the estimated global error, the response of f to it, the polynomial of f, the largest values so far,
        the ratio of the error to the tolerance, and the size of the error as far as it is known.
        """
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
        # The polynomials of the right-hand side, and of what they omit.
        both, differences = np.empty((defect + 1, 2, y.size), system.dtype), trial.differences
        assert differences is not None
        coefficients, wrong = both[:, 0], both[:, 1]
        if trial.each is None:
            part = slice(0, degree + 1)
            np.matmul(stencil.polynomials[part, part].T, differences[part], out=coefficients[part])
            coefficients[degree + 1 :] = 0.0
            np.multiply.outer(stencil.polynomials[defect, : defect + 1], differences[defect], out=wrong)
        else:
            powers, rows = stencil.polynomials[: defect + 1, : defect + 1].T, np.arange(defect + 1)[:, np.newaxis]
            omitted = np.minimum(trial.each + 1, len(values) - 1)
            coefficients[...] = powers @ np.where(rows <= trial.each, differences[: defect + 1], 0.0)
            wrong[...] = powers @ np.where(rows == omitted, differences[: defect + 1], 0.0)
        wrong[0] += moved
        wrong[1] += stepper.moved - moved
        for (_, which), memory in zip(system.groups, stepper.memories, strict=True):
            memory.advance(step, both[..., which].reshape(defect + 1, -1))
        largest = np.maximum(system.magnitude(y), stepper.largest * (stepper.tau / end))
        tolerance = stepper.atol + stepper.rtol * largest
        size = float(np.maximum(np.abs(error), RESOLVED * stepper.share * tolerance * (error != 0.0)).max())
        return error, moved, coefficients[: degree + 1], largest, system.ratio(error, tolerance), size


def interpolate(
    stepper: Any, trial: Trial, step: float, degree: int, ratio: Callable[[Array], float]
) -> tuple[Array | None, Array, float]:
    """The solution over a step: the method's integral, or a polynomial through the states if that is more accurate.

    What the polynomial of the right-hand side omits is 0 at the steps, so that its integral up to a time between them
    is larger than up to the end: many times so for small orders. If the equation is stiff, the implicit solve damps
    the error at the end as well, and the states are smooth: of the polynomials through the newest 2, 3, ... of them
    the one with the smallest next term is used.

    Returns the coefficients in powers of x, None for the integral; the error between the steps beyond that at the end;
    and the power of the step with which it decreases. ``ratio`` is the size of an error in units of the tolerance.
    """
    stencil, rows, stiff = trial.stencil, len(trial.terms), stepper.corrector.stiff
    defect = min(degree + 1, rows - 1)
    omitted = np.broadcast_to(defect if trial.each is None else np.minimum(trial.each + 1, rows - 1), trial.y.shape)
    own = np.empty(trial.y.shape)
    for (_, which), memory in zip(stepper.system.groups, stepper.memories, strict=True):
        tables = memory.tables(step)
        inside, end = (np.abs(each[..., :rows] @ stencil.polynomials.T) for each in (tables.between, tables.integrals))
        own[which] = (np.maximum(inside.max(axis=0) / end, 1.0) - (not stiff))[omitted[which]]
    own *= np.abs(trial.terms[defect])
    best: tuple[Array | None, Array, float] = (None, own, defect + stepper.least)
    states = np.stack([trial.y, *stepper.states])
    for points in range(2, min(rows, len(states)) if stiff else 0):
        difference = stencil.differences[points, : points + 1] @ states[: points + 1]
        shape = np.abs(WITHIN[:, None] ** np.arange(points + 1) @ stencil.polynomials[points, : points + 1]).max()
        error = shape * np.abs(difference)
        if ratio(error) < ratio(best[1]):
            best = stencil.coefficients(points - 1)[:, :points] @ states[:points], error, float(points)
    return best

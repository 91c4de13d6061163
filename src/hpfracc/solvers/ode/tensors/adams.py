"""One adaptive step for arrays of any library: the right-hand side as a polynomial through its newest values.

The formulae are those of :mod:`hpfracc.solvers.ode.adaptive`, written so that steps and degrees may be traced: all
arrays have a fixed size, and missing entries are masked. ``xp`` is ``jax.numpy``, or NumPy for the small arrays of
a step and ``torch`` for the state.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from hpfracc._xp import NUMPY, Namespace
from hpfracc.history.exponentials import product
from hpfracc.history.states import Memory, combined, moments, remember, remembered
from hpfracc.solvers.ode.fixed.grid import initial_polynomial
from hpfracc.solvers.tensors.loops import Loop, walk

#: Highest degree of the polynomials, and number of points of a step: its end and those before.
HIGHEST = 5
NODES = HIGHEST + 2
#: Number of evaluations to solve the equation of a step.
_CORRECTIONS = 2
#: A step is rejected if the last evaluation changes it by more than this fraction of the tolerance.
_SETTLED = 0.1
_SAFETY, _MAX_GROWTH, _MIN = 0.85, 2.0, 0.1

Function = Callable[[Any, Any], Any]


class Past(NamedTuple):
    """What a step needs from the previous steps.

    Attributes
    ----------
    y : array, shape (..., d)
        The newest state.
    values : array, shape (NODES - 1, ..., d)
        Values of the right-hand side, the newest first; padded with zeros.
    states : array, shape (m + 1, E, ..., d)
        States of the exponentials.
    """

    y: Any
    values: Any
    states: Any


class StepArrays(NamedTuple):
    """The small arrays of a step.

    Attributes
    ----------
    weights : array, shape (NODES, ...)
        Weights of the values in the integral over the step, that at its end first; followed by the shape of the order.
    ahead : array, shape (NODES - 1,)
        The weights of the past values in an extrapolation to the end.
    coefficients : array, shape (NODES, NODES)
        Matrix from values to the coefficients of their polynomial.
    differences : array, shape (NODES, NODES)
        Matrix from values to divided differences.
    integrals : array, shape (NODES, ...)
        Weight of each divided difference in the integral.
    defect : array, shape (NODES,)
        Coefficients of the polynomial of the first omitted difference, and its row.
    """

    weights: Any
    ahead: Any
    coefficients: Any
    differences: Any
    integrals: Any
    defect: Any
    row: Any


class AdaptiveEquation(NamedTuple):
    """What is solved.

    Attributes
    ----------
    xp : Namespace
        Of the state.
    fun : callable
        ``fun(tau, y)``, the right-hand side at a time after t0.
    initial : sequence of arrays
        The initial values.
    order, rgamma : array
        The order and ``1/Gamma`` of it: NumPy's for tensors.
    memory : Memory
        The kernel.
    """

    xp: Namespace
    fun: Callable[[Any, Any], Any]
    initial: Any
    order: Any
    rgamma: Any
    memory: Memory

    @property
    def small(self) -> Namespace:
        """The namespace of the few numbers of a step."""
        return self.xp if self.xp.library == "jax" else NUMPY

    def large(self, array: Any) -> Any:
        """Small arrays beside the state."""
        if self.xp.library == "jax":
            return array
        rates = self.memory.rates
        return self.xp.module.as_tensor(array, dtype=rates.dtype, device=rates.device)


class Mesh(NamedTuple):
    """A pass over the interval, also while it is under way.

    Attributes
    ----------
    lengths, degrees, taus : arrays of a fixed size
        The length and degree of each step, and the time after each; the first ``count`` steps are valid.
    count, rejected, unsettled : int
        Steps, rejected steps, and those whose equation was not solved.
    ratio, error : number
        The largest estimated global error, relative to the tolerance and absolute.
    seen : number
        ``ratio`` as known on the host.
    tau, step : float
        The time reached, and the length to try next.
    stop, out : int
        How many of the times at which steps end, and how many of the outputs were reached.
    answers : array, shape (M, ...)
        The solution at the outputs.
    """

    lengths: Any
    degrees: Any
    taus: Any
    count: Any
    rejected: Any
    unsettled: Any
    ratio: Any
    error: Any
    seen: Any
    tau: Any
    step: Any
    stop: Any
    out: Any
    answers: Any


def first_past(equation: AdaptiveEquation, f0: Any) -> Past:
    """At the start."""
    xp, y0, count = equation.xp, equation.initial[0], equation.memory.rates.shape[0]
    states = xp.zeros((len(equation.initial), count, *y0.shape), f0.dtype, like=f0)
    values = xp.concatenate([f0[None], xp.zeros((NODES - 2, *y0.shape), f0.dtype, like=f0)])
    return Past(xp.astype(y0, f0.dtype), values, states)


def make_rule(xp: Any, order: Any, rgamma: Any, lengths: Any, step: Any, count: Any, degree: Any) -> StepArrays:
    """The rule of a step.

    Parameters
    ----------
    order, rgamma : array
        The order alpha, and ``1/Gamma(alpha)``.
    lengths : array, shape (NODES - 2,)
        Lengths of the previous steps, the newest first.
    count : int
        Number of known values.
    degree : int
        Degree of the polynomial, at most ``count``.
    """
    index = xp.arange(NODES)
    lengths = xp.where(index[: NODES - 2] < count - 1, lengths, step)
    zero = 0.0 * lengths[:1]
    nodes = xp.concatenate([zero, zero + 1.0, 1.0 + xp.cumsum(lengths, 0) / step])
    apart = nodes[:, None] - nodes[None, :] + xp.eye(NODES, dtype=nodes.dtype)
    below = index[:, None] >= index[None, :]
    differences = xp.where(below, 1.0 / xp.cumprod(apart, 1).T, 0.0)
    rows = [xp.where(index == 0, 1.0, 0.0 * nodes)]
    for r in range(1, NODES):
        before = rows[-1]
        rows.append(xp.concatenate([zero, before[:-1]]) - nodes[r - 1] * before)
    polynomials = xp.stack(rows)
    taken = xp.where(index[:, None] <= degree, polynomials, 0.0)
    coefficients = (taken[:, :, None] * differences[:, None, :]).sum(0)
    weights, integrals = weigh(xp, xp.stack([coefficients, polynomials.T]), step[None], order, rgamma)
    row = xp.minimum(degree + 1, count)
    chosen = differences[row]
    return StepArrays(weights, -chosen[1:] / chosen[0], coefficients, differences, integrals, polynomials[row], row)


def inside(xp: Any, coefficients: Any, share: Any) -> Any:
    """Coefficients of the polynomials of steps for points within them, as if the steps ended there.

    Parameters
    ----------
    coefficients : array, shape (M, NODES, NODES)
        Those of the whole steps.
    share : array, shape (M,)
        Fraction of its step that lies before each point.
    """
    column = share[:, None]
    rest = 1.0 - column
    rows = []
    for k in range(HIGHEST + 1):
        total = coefficients[:, k]
        for q in range(k + 1, HIGHEST + 1):
            total = total + math.comb(q, k) * rest ** (q - k) * coefficients[:, q]
        rows.append(column**k * total if k else total)
    return xp.stack([*rows, 0.0 * rows[0]], 1)


def weigh(xp: Any, coefficients: Any, lengths: Any, order: Any, rgamma: Any) -> Any:
    """Weights of the values in the integrals over steps, (M, NODES, ...), from the coefficients (M, NODES, NODES)."""
    powers = xp.stack([order + q for q in range(NODES)])
    columns = coefficients.swapaxes(1, 2).reshape(*coefficients.shape, *(1,) * order.ndim)
    scale = xp.exp(order * xp.log(lengths).reshape(-1, *(1,) * order.ndim)) * rgamma
    return (columns / powers).sum(2) * scale[:, None]


def correct(
    xp: Any, fun: Function, memory: Memory, past: Past, rule: StepArrays, step: Any, end: Any, start: Any
) -> Any:
    """The state at the end of a step, f there, and the change by the last correction.

    ``start`` is the polynomial of the initial values at ``end``.
    """
    known = start + remembered(xp, memory, past.states, step) + combined(xp, rule.weights[1:], past.values)
    y = known + rule.weights[0] * combined(xp, rule.ahead, past.values)
    before = y
    for _ in range(_CORRECTIONS):
        f, before = fun(end, y), y
        y = known + rule.weights[0] * f
    return y, f, y - before


def push(
    xp: Any, memory: Memory, past: Past, rule: StepArrays, step: Any, y: Any, f: Any, integrals: Any = None
) -> Past:
    """The :class:`Past` after the step."""
    values = xp.concatenate([f[None], past.values])
    coefficients = product(xp, rule.coefficients[: HIGHEST + 1], values)
    integrals = moments(xp, memory, step) if integrals is None else integrals
    return Past(y, values[:-1], remember(xp, memory, past.states, step, integrals, coefficients))


def sizes(xp: Any, changes: Any, scale: Any) -> Any:
    """Norms of changes in units of ``scale``: root mean square over a member, maximum over the batch."""
    ratios = abs(changes) / scale
    return xp.amax(xp.sqrt(xp.mean(ratios * ratios, -1)).reshape(changes.shape[0], -1), 1)


def terms_of(xp: Any, rule: StepArrays, past: Past, f: Any) -> tuple[Any, Any]:
    """The divided differences of the values, and their contributions to the integral over the step."""
    differences = product(xp, rule.differences, xp.concatenate([f[None], past.values]))
    missing = differences.ndim - rule.integrals.ndim
    factor = rule.integrals.reshape(NODES, *(1,) * missing, *rule.integrals.shape[1:])
    return differences, factor * differences


class NewStep(NamedTuple):
    """An accepted step: its length, end, state and slope, its moments, and the first neglected difference and term."""

    step: Any
    end: Any
    y: Any
    f: Any
    integrals: Any
    difference: Any
    term: Any


def propagate(
    xp: Any, fun: Function, memory: Memory, error: tuple[Any, Any], rule: StepArrays, new: NewStep
) -> tuple[Any, tuple[Any, Any]]:
    """The estimated global error after a step, from its defect, the earlier errors, and the response of f to them.

    ``error`` holds the states of its history, and the response of f to it at the newest step.
    """
    (states, last), (step, end, y, f, integrals, difference, term) = error, new
    newest, before = rule.integrals[0] - rule.integrals[1], rule.integrals[1]
    known = remembered(xp, memory, states, step) + term + before * last
    moved = fun(end, y + known + newest * last) - f
    moved = xp.where(xp.isfinite(moved), moved, last)
    wrong = rule.defect.reshape(-1, *(1,) * y.ndim) * difference[None]
    wrong = wrong + xp.stack([moved, last - moved, *[0.0 * moved] * (NODES - 2)])
    return known + newest * moved, (remember(xp, memory, states, step, integrals, wrong), moved)


def judge(xp: Any, errors: Any, change: Any, degree: Any, count: Any, previous: Any, order: Any) -> tuple[Any, ...]:
    """A proportional-integral controller, and the degree that would allow the longest step, as in ``Stepper``.

    Returns whether a step is accepted, the growth and degree of the next one, and the state of the controller.

    Parameters
    ----------
    errors : array, shape (NODES,)
        Size of the contribution of each divided difference, in units of the tolerance.
    change : number
        Size of the last correction.
    order : number
        The smallest order: the error of degree k behaves like ``step^(k + order)``.
    """

    def growth(k: Any) -> Any:
        return _SAFETY * xp.maximum(errors[k], 1e-10) ** (-1.0 / (k + order))

    error = errors[degree]
    settled = change <= _SETTLED
    accept = (error <= 1.0) & settled
    shorter = xp.clip(xp.where(xp.isfinite(error), growth(degree), _MIN), _MIN, 0.8)
    shorter = xp.where(settled, shorter, xp.minimum(shorter, 0.5))
    lower = xp.where((degree > 1) & (errors[degree - 1] <= error), degree - 1, degree)
    highest = xp.minimum(count, HIGHEST)
    best = xp.minimum(degree, highest)
    possible = growth(best)
    # Prefer the current degree slightly, because frequent changes disturb the estimates.
    down = (best > 1) & (growth(xp.maximum(best - 1, 1)) > 1.1 * possible)
    new = xp.where(down, best - 1, best)
    possible = xp.where(down, growth(xp.maximum(best - 1, 1)), possible)
    above = xp.minimum(best + 1, highest)
    new = xp.where((above > best) & (growth(above) > 1.1 * possible), above, new)
    power = 1.0 / (new + order)
    error = xp.maximum(errors[new], 1e-10)
    longer = xp.clip(_SAFETY * error ** (-0.7 * power) * previous ** (0.4 * power), _MIN, _MAX_GROWTH)
    factor, degree = xp.where(accept, longer, shorter), xp.where(accept, new, lower)
    return accept, factor, degree, xp.where(accept, xp.maximum(error, 1e-4), previous)


# -- the steps of a given mesh, with derivatives ----------------------------------------------------------------------


class _ReplayRows(NamedTuple):
    """Steps and outputs in the order of time: an output comes after the step that it lies in.

    Attributes
    ----------
    output, active : flags
        Whether it is an output, and whether it is a step or an output at all.
    end, length : numbers
        The time, and its distance from the beginning of the step.
    weights, ahead, coefficients : arrays
        As in :class:`StepArrays`; the first weight of an output is 0.
    """

    output: Any
    active: Any
    end: Any
    length: Any
    weights: Any
    ahead: Any
    coefficients: Any


def repeat_steps(
    equation: AdaptiveEquation, weights_of: Callable[..., Any], mesh: Mesh, outputs: Any, moving: Any, loop: Loop
) -> tuple[Any, Any]:
    """The states (N + 1, ...) after each valid step, and those (M, ...) at the outputs, with derivatives.

    Parameters
    ----------
    weights_of : callable
        ``weights_of(coefficients, lengths)``, as :func:`weigh`, differentiable in the order.
    moving : array or None
        The outputs with their gradient.
    """
    xp, np_, traced = equation.xp, equation.small.module, equation.xp.library == "jax"
    steps, count = mesh.lengths.shape[0], outputs.shape[0]
    total = steps + count
    known = np_.arange(steps) < mesh.count  # later times and lengths are 0
    within = np_.searchsorted(np_.where(known, mesh.taus[1 : steps + 1], math.inf), outputs)
    within = np_.clip(within, 0, steps - 1)
    valid = np_.arange(count) < mesh.out
    place = np_.where(valid, within + 1 + np_.arange(count), total)
    is_output = np_.isin(np_.arange(total), place)
    before = np_.cumsum(is_output) - is_output
    number = np_.clip(np_.arange(total) - before, 0, max(steps - 1, 0))
    active = is_output | (np_.arange(total) - before < mesh.count)
    pick = np_.where(is_output, steps + np_.clip(before, 0, max(count - 1, 0)), number)
    times = outputs if moving is None else moving
    own = np_ if moving is None or traced else xp.module

    def as_own(array: Any) -> Any:
        return array if own is np_ else own.as_tensor(array, dtype=times.dtype, device=times.device)

    # Steps that are not valid must have finite weights, or their zero gradients would be NaN.
    lengths = np_.where(known, mesh.lengths, 1.0)
    ahead, coefficients = _rules(equation, mesh.degrees, lengths)
    distances = times - as_own(mesh.taus[:steps][within])
    inner = inside(own, as_own(coefficients[within]), distances / as_own(lengths[within]))
    weights = weights_of(coefficients, lengths)
    if count:
        at_outputs = weights_of(inner, distances)
        at_outputs = xp.concatenate([0.0 * at_outputs[:, :1], at_outputs[:, :-1]], 1)
        weights = xp.concatenate([weights, at_outputs])
    ends = own.concatenate([as_own(mesh.taus[1 : steps + 1]), times])[pick]
    spans = own.concatenate([as_own(lengths), distances])[pick]
    weights = weights[xp.asarray(pick, like=weights)]
    small = [each.tolist() if isinstance(each, np.ndarray) else each for each in (is_output, active, ends, spans)]
    rows = _ReplayRows._make([*small, weights, equation.large(ahead[number]), equation.large(coefficients[number])])

    def advance(held: Any) -> Any:
        (past, _), row = held
        rule = StepArrays(row.weights, row.ahead, row.coefficients, None, None, None, None)
        fun = equation.fun
        if traced:
            # Under vmap both branches are evaluated: where there is no step, f is evaluated at an existing state.
            live = row.active & ~row.output

            def fun(tau: Any, y: Any) -> Any:
                return equation.fun(np_.where(live, tau, 0.0), np_.where(live, y, past.y))

        start = initial_polynomial(row.end, equation.initial)
        y, f, _ = correct(xp.module, fun, equation.memory, past, rule, row.length, row.end, start)
        return (push(xp.module, equation.memory, past, rule, row.length, y, f), past.states), y

    def emit(held: Any) -> Any:
        (past, states), row = held
        y = initial_polynomial(row.end, equation.initial)
        y = y + remembered(xp.module, equation.memory, states, row.length)
        return (past, states), y + combined(xp.module, row.weights[1:], past.values)

    def step(carry: Any, row: _ReplayRows) -> Any:
        def go(held: Any) -> Any:
            return xp.branch(row.output, emit, advance, held)

        return xp.branch(row.active, go, lambda held: (held[0], held[0][0].y), (carry, row))

    past = first_past(equation, equation.fun(0.0, equation.initial[0]))
    _, found = walk(xp, step, (past, past.states), rows, loop)
    positions = np_.arange(steps) + np_.searchsorted(within, np_.arange(steps)) if count else np_.arange(steps)
    states = xp.concatenate([past.y[None], found[xp.asarray(positions, like=found)]])
    answers = found[xp.asarray(np_.minimum(place, total - 1), like=found)]
    if traced:
        answers = np_.where(valid.reshape(-1, *(1,) * past.y.ndim), answers, math.nan)
    return states, answers


def _rules(equation: AdaptiveEquation, degrees: Any, lengths: Any) -> Any:
    """The extrapolations and the coefficients of all steps."""
    np_, steps = equation.small.module, lengths.shape[0]
    padded = np_.concatenate([np_.zeros(NODES - 2, lengths.dtype), lengths])
    windows = np_.stack([padded[NODES - 3 - k : NODES - 3 - k + steps] for k in range(NODES - 2)], 1)
    known = np_.minimum(np_.arange(steps) + 1, NODES - 1)

    def one(window: Any, length: Any, count: Any, degree: Any) -> tuple[Any, Any]:
        degree = np_.minimum(degree, count)
        rule = make_rule(np_, equation.order, equation.rgamma, window, length, count, degree)
        return rule.ahead, rule.coefficients

    given = (windows, lengths, known, degrees)
    if equation.xp.library == "jax":
        return sys.modules["jax"].vmap(one)(*given)
    return [np_.stack(each) for each in zip(*map(one, *given), strict=True)]

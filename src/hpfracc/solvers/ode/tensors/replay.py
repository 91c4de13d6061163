"""Steps over a given mesh with derivatives, for arrays of every library: of L1 and L2-1sigma, and of a chosen mesh."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from hpfracc._interrupts import raise_if_nested
from hpfracc._xp import Namespace
from hpfracc.history.states import Memory, combined, remembered
from hpfracc.solvers.ode.differences import DifferenceTables, step_l1, step_l2_sigma
from hpfracc.solvers.ode.tensors import adams
from hpfracc.solvers.ode.tensors.blocks import Loop, TensorFunctions
from hpfracc.solvers.ode.tensors.newton import solve_step
from hpfracc.solvers.ode.tensors.search import AdaptiveEquation, Mesh, first_past

__all__ = ["march_differences", "repeat_steps", "walk"]

#: Number of steps that are recomputed together in the backward pass.
_GROUP = 16

#: ``step(carry, row)`` gives the carry and what is kept.
Step = Callable[[Any, Any], tuple[Any, Any]]


def walk(xp: Namespace, step: Step, carry: Any, rows: Any, loop: Loop, group: int = _GROUP) -> tuple[Any, Any]:
    """The last carry, and what is kept of all steps, (count, ...), or fewer after an interrupt.

    Groups of steps are recorded together. ``rows`` is a tuple of arrays, lists of numbers, and None.
    """
    count = next(len(each) for each in rows if each is not None)
    if xp.library == "jax":
        jax, whole = sys.modules["jax"], count - count % group
        first = jax.tree.map(lambda each: each[:whole].reshape(whole // group, group, *each.shape[1:]), rows)
        several = jax.checkpoint(partial(jax.lax.scan, step))
        carry, found = jax.lax.scan(several, carry, first)
        carry, last = several(carry, jax.tree.map(lambda each: each[whole:], rows))
        return carry, xp.concatenate([found.reshape(whole, *found.shape[2:]), last])
    # Unbound at once: the backward pass of indexing one row creates an array of all rows at every step.
    columns = [[None] * count if each is None else list(each) for each in rows]
    single = [getattr(type(rows), "_make", tuple)(each) for each in zip(*columns, strict=True)]

    def run(begin: int, carry: Any) -> Any:
        kept = []
        for row in single[begin : begin + group]:
            carry, found = step(carry, row)
            kept.append(found)
        return carry, xp.stack(kept)

    parts: list[Any] = []
    for begin in range(0, count, group):
        try:
            carry, found = loop.record(partial(run, begin), carry)
        except KeyboardInterrupt:
            raise_if_nested()
            break
        parts.append(found)
        loop.report(min(begin + group, count), (found,))
    return carry, xp.concatenate(parts) if parts else None


def march_differences(
    xp: Namespace,
    name: str,
    functions: TensorFunctions,
    start: Any,
    memory: Memory,
    tables: DifferenceTables,
    loop: Loop,
) -> Any:
    """All states of L1 or L2-1sigma, shape (N + 1, ..., d); ``tables.at`` holds times, as numbers if they are known."""
    fun, jacobian = functions
    one = step_l1 if name == "l1" else step_l2_sigma

    def solve(t: Any, known: Any, weight: Any, guess: Any) -> Any:
        slopes = None if jacobian is None else partial(jacobian, t)
        return solve_step(partial(fun, t), slopes, known, weight, guess, loop.graph, loop.wrapped)

    def step(carry: Any, row: DifferenceTables) -> Any:
        carry = one(xp.module, memory, solve, carry, row)
        return carry, carry[0]

    states = xp.zeros((1, memory.rates.shape[0], *start.shape), start.dtype, like=start)
    _, found = walk(xp, step, (start, xp.zeros_like(start), states), tables, loop)
    return start[None] if found is None else xp.concatenate([start[None], found])


class _ReplayRows(NamedTuple):
    """Steps and outputs in the order of time: an output comes after the step that it lies in.

    Attributes
    ----------
    output, active : flags
        Whether it is an output, and whether it is a step or an output at all.
    end, length : numbers
        The time, and its distance from the beginning of the step.
    weights, ahead, coefficients : arrays
        As in :class:`adams.StepArrays`; the first weight of an output is 0.
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
        ``weights_of(coefficients, lengths)``, as :func:`adams.weigh`, differentiable in the order.
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
    inner = adams.inside(own, as_own(coefficients[within]), distances / as_own(lengths[within]))
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
        rule = adams.StepArrays(row.weights, row.ahead, row.coefficients, None, None, None, None)
        fun = equation.fun
        if traced:
            # Under vmap both branches are evaluated: where there is no step, f is evaluated at an existing state.
            live = row.active & ~row.output

            def fun(tau: Any, y: Any) -> Any:
                return equation.fun(np_.where(live, tau, 0.0), np_.where(live, y, past.y))

        start = adams.initial_polynomial(row.end, equation.initial)
        y, f, _ = adams.correct(xp.module, fun, equation.memory, past, rule, row.length, row.end, start)
        return (adams.push(xp.module, equation.memory, past, rule, row.length, y, f), past.states), y

    def emit(held: Any) -> Any:
        (past, states), row = held
        y = adams.initial_polynomial(row.end, equation.initial)
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
    padded = np_.concatenate([np_.zeros(adams.NODES - 2, lengths.dtype), lengths])
    windows = np_.stack([padded[adams.NODES - 3 - k : adams.NODES - 3 - k + steps] for k in range(adams.NODES - 2)], 1)
    known = np_.minimum(np_.arange(steps) + 1, adams.NODES - 1)

    def one(window: Any, length: Any, count: Any, degree: Any) -> tuple[Any, Any]:
        degree = np_.minimum(degree, count)
        rule = adams.make_rule(np_, equation.order, equation.rgamma, window, length, count, degree)
        return rule.ahead, rule.coefficients

    given = (windows, lengths, known, degrees)
    if equation.xp.library == "jax":
        return sys.modules["jax"].vmap(one)(*given)
    return [np_.stack(each) for each in zip(*map(one, *given), strict=True)]

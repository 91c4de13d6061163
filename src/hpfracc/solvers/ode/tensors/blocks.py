"""Steps with a history, block after block, for arrays of every library: the loop that methods and gradients share.

Within a block each step sums over the previous ones. Between blocks there is one sum for all: a segment of blocks, as
many as the largest power of two that divides the number of finished ones, is summed for as many later blocks.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from hpfracc._xp import Namespace, array_namespace
from hpfracc.history.states import Memory
from hpfracc.solvers.ode.differences import DifferenceTables, step_l1, step_l2_sigma
from hpfracc.solvers.ode.fixed.grid import initial_polynomial
from hpfracc.solvers.ode.tensors.sums import (
    HistoryWeights,
    Sums,
    Window,
    correlations,
    segment_matrix,
    segment_sums,
    sum_to,
    turned,
    weighted,
)
from hpfracc.solvers.tensors.loops import PLAIN, REPEATED, Loop, walk
from hpfracc.solvers.tensors.newton import solve_step, solve_transposed

#: Steps of a block of a loop in Python.
BLOCK = 64
#: A loop of JAX has blocks, each of which takes time to compile: four of them, or more where these would be longer than
#: this, up to sixteen. Within a block there are groups of groups of steps, each a scan; the backward pass stores the
#: values once per group.
_LONGEST_BLOCK, _FEW_BLOCKS, _MAX_BLOCKS = 1024, 4, 16
_GROUP, _GROUPS = 16, 4

#: ``step(index, sums, carry)`` gives the carry, the V values to be summed, and what is kept of a step.
HistoryStep = Callable[[Any, Any, Any], tuple[Any, tuple[Any, ...], tuple[Any, ...]]]
#: ``f(t, y)`` and its derivative in y, or None.
TensorFunctions = tuple[Callable[..., Any], Callable[..., Any] | None]


class StepGrid(NamedTuple):
    """The start, the step and the number of steps."""

    t0: Any
    step: Any
    steps: int

    def time(self, n: Any, like: Any) -> Any:
        """Of step n: a number, or in JAX an array of the real dtype of ``like``."""
        if array_namespace(like).library != "jax":
            return self.t0 + n * self.step
        jnp, real = sys.modules["jax"].numpy, like.real.dtype
        return jnp.asarray(self.t0, real) + jnp.asarray(n, real) * jnp.asarray(self.step, real)


def march_blocks(
    xp: Namespace,
    make_step: Callable[[Any], HistoryStep],
    weights: HistoryWeights,
    count: int,
    given: Callable[[int, int], Any],
    carry: Any,
    more: Any = (),
    loop: Loop = PLAIN,
    around: Callable[[int, int], Any] | None = None,
) -> tuple[Any, list[Any], list[tuple[Any, ...]]]:
    """Run ``count`` steps; the last carry, and the values (length, V, ...) and all that was kept, of each block.

    Parameters
    ----------
    make_step : callable
        Makes the step from ``more``, the arrays that it uses and that may have derivatives.
    given : callable
        ``given(begin, length)``, the part of the sums of a block that is known from the beginning, (length, S, ...).
    around : callable, optional
        ``around(begin, length)`` prepares a block, and gives what is called after it.
    """
    # With a graph, each step has a node for each value before it in its block.
    block = REPEATED if xp.library == "torch" and loop.graph and xp.module.is_grad_enabled() else BLOCK
    if xp.library == "jax":
        block = max(BLOCK, min(-(-count // _FEW_BLOCKS), _LONGEST_BLOCK), -(-count // _MAX_BLOCKS))
        unit = _GROUP
        while unit * _GROUPS < block:
            unit *= _GROUPS
        block = unit * -(-block // unit)
    pending: dict[int, Any] = {}
    values: list[Any] = []
    kept: list[tuple[Any, ...]] = []
    blocks = -(-count // block)
    for number in range(blocks):
        begin, length = number * block, min(block, count - number * block)
        known, later = given(begin, length), pending.pop(number, None)
        known = known if later is None else known + later
        try:
            finish = None if around is None else around(begin, length)
            run = partial(_run_block, xp, make_step, begin, loop)
            carry, found, each = loop.record(run, (known, carry, weights, more))
            if finish is not None:
                finish()
        except KeyboardInterrupt:
            if not (loop.keeps and values):
                raise
            break
        values.append(found)
        kept.append(each)
        loop.report(begin + length, each)
        done = number + 1
        if done == blocks:
            break
        width = done & -done
        reach = min(width * block, count - done * block)
        added = loop.record(partial(_run_segment, xp, reach), (weights, tuple(values[done - width : done])))
        for place in range(done, done + -(-reach // block)):
            piece = added[(place - done) * block : (place - done + 1) * block]
            if place not in pending:
                pending[place] = piece
            elif xp.library == "torch" and not xp.module.is_grad_enabled():
                pending[place].add_(piece)  # sums are as large as the solution
            else:
                pending[place] = pending[place] + piece
        del added
    return carry, values, list(zip(*kept, strict=True))


def _run_segment(xp: Namespace, reach: int, arrays: Any) -> Any:
    weights, segment = arrays
    return segment_sums(xp, weights, reach, xp.concatenate(segment) if len(segment) > 1 else segment[0])


def _run_block(xp: Namespace, make_step: Callable[[Any], HistoryStep], begin: int, loop: Loop, arrays: Any) -> Any:
    known, carry, weights, more = arrays
    step = make_step(more)
    graph = loop.graph and (loop.wrapped or xp.library == "jax" or xp.module.is_grad_enabled())
    if xp.library == "jax":
        return _scan_block(xp, step, begin, graph, known, carry, weights)
    length = known.shape[0]
    window, rows = Window(xp, weights, length, known.dtype), list(known)
    kinds = len(weights[0])
    watched: list[Any] = []
    buffer = None if graph else xp.zeros((length, kinds, *known.shape[2:]), known.dtype, like=known)
    found = []
    for index in range(length):
        sums = rows[index]
        if index:
            sums = window.add(sums, index, xp.stack(watched) if buffer is None else buffer[:index])
        carry, values, kept = step(begin + index, sums, carry)
        if buffer is None:
            watched.append(xp.stack(values))
        else:
            for kind in range(kinds):
                buffer[index, kind] = values[kind]
        found.append(kept)
    whole = tuple(xp.stack(each) for each in zip(*found, strict=True))
    return carry, xp.stack(watched) if buffer is None else buffer, whole


def _scan_block(
    xp: Namespace, step: HistoryStep, begin: int, graph: bool, known: Any, carry: Any, weights: HistoryWeights
) -> Any:
    """Scans within scans: over groups of 256 steps, of 64, of 16, and over single steps.

    So the program does not grow with the number of steps. A group begins with its sums over the groups before it.
    """
    jax, jnp = sys.modules["jax"], xp.module
    window = Window(xp, weights, min(_GROUP, known.shape[0]), known.dtype)
    shape = (len(weights[0]), *known.shape[2:])

    def one(carried: Any, inputs: Any) -> Any:
        recent, carry = carried
        index, n, at = inputs
        carry, values, kept = step(n, window.add(at, index, recent), carry)
        stacked = jnp.stack(values)
        return (recent.at[index].set(stacked), carry), (stacked, kept)

    def run(first: Any, known: Any, carry: Any) -> Any:
        """The carry, and the values and what is kept of the steps from ``first`` on."""
        count = known.shape[0]
        if count <= window.length:
            recent, index = jnp.zeros((window.length, *shape), known.dtype), jnp.arange(count)
            (_, carry), found = jax.lax.scan(one, (recent, carry), (index, first + index, known))
            return carry, found
        part = window.length
        while part * _GROUPS < count:
            part *= _GROUPS

        whole, past = count - count % part, jnp.zeros(((count - 1) // part * part, *shape), known.dtype)
        matrix = segment_matrix(xp, weights, part, past)

        def group(carried: Any, inputs: Any) -> Any:
            past, carry = carried  # the newest values are the last ones
            start, at = inputs
            carry, found = run(first + start, at + segment_sums(xp, weights, at.shape[0], past, matrix), carry)
            return (jnp.concatenate([past, found[0]])[at.shape[0] :], carry), found

        rows = (part * jnp.arange(whole // part), known[:whole].reshape(-1, part, *known.shape[1:]))
        stored = graph or part > window.length  # of the shortest groups only the beginnings are
        (past, carry), found = jax.lax.scan(group if stored else jax.checkpoint(group), (past, carry), rows)
        found = jax.tree.map(lambda each: each.reshape(whole, *each.shape[2:]), found)
        if whole < count:
            (_, carry), last = group((past, carry), (whole, known[whole:]))
            found = jax.tree.map(lambda *each: jnp.concatenate(each), found, last)
        return carry, found

    carry, (values, kept) = run(begin, known, carry)
    return carry, values, kept


class System(NamedTuple):
    """What is solved: the rule of the steps, the grid, the initial values and the weights."""

    xp: Namespace
    rule: Any
    grid: StepGrid
    initial: Sequence[Any]
    sums: Sums


class Trajectory(NamedTuple):
    """The states (N + 1, ...), and the points (N, ...) at which the corrections of a step were evaluated."""

    states: Any
    points: tuple[Any, ...]


def solve_forward(
    system: System, functions: TensorFunctions, f0: Any, keep: bool = False, tracked: bool = False, loop: Loop = PLAIN
) -> Trajectory:
    """All states, or fewer after an interrupt; with ``keep`` also the points.

    ``f0`` is the right-hand side at the start, and ``tracked`` says whether a derivative is needed.
    """
    xp, rule, grid, initial, sums = system
    fun, jacobian = functions

    def make_step(newest: Any) -> HistoryStep:
        watched = tracked and (xp.library == "jax" or loop.wrapped or xp.module.is_grad_enabled())

        def step(index: Any, known: Any, carry: Any) -> Any:
            t, y = grid.time(index + 1, f0), known[0]
            points = []
            if rule.implicit:
                slopes = None if jacobian is None else partial(jacobian, t)
                y = solve_step(partial(fun, t), slopes, y, newest, carry, watched, loop.wrapped)
                carry = xp.stop_gradient(y)
            elif newest is not None:
                for _ in range(rule.corrections):
                    points.append(y)
                    y = _plus_product(xp, known[-1], newest, fun(t, y))
            return carry, (fun(t, y),), (y, *(points if keep else ()))

        return step

    start = xp.astype(initial[0], f0.dtype)

    def given(begin: int, length: int) -> Any:
        base = start
        if len(initial) > 1:
            tau = xp.arange(begin + 1, begin + length + 1, f0.real.dtype, like=f0) * grid.step
            base = initial_polynomial(tau.reshape(-1, *(1,) * f0.ndim), (start, *initial[1:]))[:, None]
        if rule.starts_blind:
            return xp.module.broadcast_to(base, (length, len(sums.sequences), *f0.shape))
        part = slice(begin + 1, begin + length + 1)
        rows = [each[part] for each in sums.sequences]
        if sums.first is not None:
            rows[-1] = rows[-1] + sums.first[part]
        own = xp.stack(rows, 1)
        return base + own.reshape(*own.shape[:2], *(1,) * (f0.ndim + 2 - own.ndim), *own.shape[2:]) * f0

    weights = tuple((each,) for each in sums.sequences)
    guess = xp.stop_gradient(start) if rule.implicit else ()
    kept = march_blocks(xp, make_step, weights, grid.steps, given, guess, sums.newest, loop)[2]
    return Trajectory(xp.concatenate([start[None], *kept[0]]), tuple(xp.concatenate(each) for each in kept[1:]))


def _plus_product(xp: Namespace, known: Any, weight: Any, value: Any) -> Any:
    if xp.library == "torch":
        return xp.module.addcmul(known, weight.to(value.dtype), value)
    return known + weight * value


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


#: ``pull(kind, n, t, y, bar, totals)`` gives f at a point, ``f_y^T bar``, and ``totals`` with the gradients of all else
#: that f depends on. Point 0 of step n is its state, and the others are those of its corrections.
Pull = Callable[[int, Any, Any, Any, Any, Any], tuple[Any, Any, Any]]
#: ``prepare(first, last)`` before the steps from ``last`` down to ``first``; what it gives is called after them.
Prepare = Callable[[int, int], Callable[[], None] | None]


def transpose(
    system: System, functions: TensorFunctions, pull: Pull, found: Trajectory, grad: Any, totals: Any, wanted: bool,
    prepare: Prepare | None = None,
) -> tuple[list[Any], Sums | None, Any]:  # fmt: skip
    r"""Gradients from ``grad``, that of the states.

    In the initial values, in the weights if they are ``wanted``, and in all else that f depends on.

    For PECE the steps are :math:`p_n = T_n + \sum_{j<n} b_{n-j} f_j` and :math:`y_n = T_n + c_n f_0 + \sum_{j<n}
    a_{n-j} f_j + a_0 f(p_n)`. With g the gradient in the solution, backwards in n,

    .. math::
        \bar f_n &= \sum_{m>n} (a_{m-n} \bar y_m + b_{m-n} \bar p_m), \\
        \bar y_n &= g_n + f_y(y_n)^T \bar f_n, \quad \bar p_n = a_0 f_y(p_n)^T \bar y_n,

    history sums in reversed time. Other rules have fewer or other terms.
    """
    xp, rule, grid, initial, sums = system
    fun, jacobian = functions
    states, points, count, newest = found.states, found.points, grid.steps, sums.newest
    kinds, shape = len(sums.sequences), states.shape[1:]
    order = sums.sequences[0].shape[1:]

    def noted(newest_bar: Any, product: Any) -> Any:
        return newest_bar + sum_to(product, order) if wanted else newest_bar

    def make_step(_: Any) -> HistoryStep:
        def step(r: Any, later: Any, carry: Any) -> Any:
            totals, newest_bar = carry
            n = count - r
            t, y, value_bar = grid.time(n, states), states[n], later[0]
            if rule.implicit:
                slopes = None if jacobian is None else partial(jacobian, t)
                bar = solve_transposed(partial(fun, t), slopes, y, newest, value_bar, grad[n])
                value, _, totals = pull(0, n, t, y, value_bar + newest * bar, totals)
                return (totals, noted(newest_bar, bar * value)), (bar,), (value,) if wanted else ()
            value, back, totals = pull(0, n, t, y, value_bar, totals)
            bar = grad[n] + back
            total = None
            for i in range(len(points) - 1, -1, -1):
                total = bar if total is None else total + bar
                there, back, totals = pull(1 + i, n, t, points[i][n - 1], newest * bar, totals)
                newest_bar = noted(newest_bar, bar * there)
                bar = back
            return (totals, newest_bar), (bar,) if total is None else (bar, total), (value,) if wanted else ()

        return step

    def given(begin: int, length: int) -> Any:
        return xp.zeros((length, 1, *shape), states.dtype, like=states)

    def around(begin: int, length: int) -> Any:
        return None if prepare is None else prepare(count - begin - length + 1, count - begin)

    carry = (totals, None if newest is None else 0.0 * newest)
    (totals, newest_bar), parts, kept = march_blocks(
        xp, make_step, (tuple(sums.sequences),), count, given, carry, around=around
    )
    bars = xp.concatenate(parts)
    del parts
    # By r = N - n, for steps N .. 1: it is the weights that are turned.
    start_bar, value = grad[0] + bars.sum((0, 1)), 0.0 * states[0]
    first_bar = None if sums.first is None else 0.0 * sums.first
    if not rule.starts_blind:
        value_bar = 0.0 * start_bar
        for each, bar in zip((*sums.sequences, sums.first), (*xp.moveaxis(bars, 1, 0), bars[:, -1]), strict=True):
            if each is not None:
                value_bar = value_bar + weighted(xp, turned(xp, each[1 : count + 1]), bar)
        value, back, totals = pull(0, 0, grid.time(0, states), initial[0], value_bar, totals)
        start_bar = start_bar + back
        if wanted and sums.first is not None:
            first_bar = xp.concatenate([0.0 * sums.first[:1], turned(xp, sum_to(bars[:, -1] * value, order, 1))])
    tau = grid.step * turned(xp, xp.arange(1, count + 1, states.dtype, like=states))
    factors = [tau**number / math.factorial(number) for number in range(1, len(initial))]
    initial_bar = [start_bar, *(weighted(xp, each, bars).sum(0) for each in factors)]
    if not wanted:
        return initial_bar, None, totals
    values = xp.concatenate([value[None], turned(xp, xp.concatenate(kept[0])[1:])])
    own = correlations(xp, bars, values, order)
    return initial_bar, Sums(tuple(own[kind] for kind in range(kinds)), first_bar, newest_bar), totals

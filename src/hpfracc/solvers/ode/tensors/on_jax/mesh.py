"""Steps over a mesh on JAX arrays, with derivatives, and the choice of a mesh without them, all traceable."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from hpfracc.history.states import Memory, moments
from hpfracc.solvers.ode.differences import DifferenceTables, step_l1, step_l2_sigma
from hpfracc.solvers.ode.tensors import adams
from hpfracc.solvers.ode.tensors.on_jax.newton import solve_step
from hpfracc.solvers.ode.tensors.on_jax.programs import run_program
from hpfracc.solvers.ode.tensors.tolerance import MAX_PASSES, Tolerance

__all__ = ["choose_mesh", "solve_differences", "solve_on_mesh"]

Function = Callable[..., Any]

#: Number of steps that are recomputed together in the backward pass.
GROUP = 16


def solve_differences(
    name: str,
    fun: Function,
    jacobian: Function | None,
    t0: float,
    y0: Any,
    memory: Memory,
    tables: DifferenceTables,
    args: tuple[Any, ...],
) -> Any:
    """All states of L1 or L2-1sigma, shape (N + 1, ..., d)."""
    return run_program(_differences, (fun, jacobian), (name,), (t0, y0, memory, tables, args))


def _differences(
    functions: tuple[Function, Function | None],
    name: str,
    t0: Any,
    y0: Any,
    memory: Memory,
    tables: DifferenceTables,
    args: tuple[Any, ...],
) -> Any:
    fun, jacobian = functions

    def solve(t: Any, known: Any, weight: Any, guess: Any) -> Any:
        slopes = None if jacobian is None else lambda y: jacobian(t0 + t, y, *args)
        return solve_step(lambda y: fun(t0 + t, y, *args), slopes, known, weight, guess)

    one = step_l1 if name == "l1" else step_l2_sigma

    def step(carried: Any, row: DifferenceTables) -> tuple[Any, Any]:
        carried = one(jnp, memory, solve, carried, row)
        return carried, carried[0]

    states = jnp.zeros((1, memory.rates.shape[0], *y0.shape), y0.dtype)
    found = _scan(step, (y0, jnp.zeros_like(y0), states), tables)
    return jnp.concatenate([y0[None], found])


def _scan(step: Callable[..., Any], carried: Any, rows: Any) -> Any:
    """A scan whose groups of steps are recomputed in the backward pass."""
    count = jax.tree_util.tree_leaves(rows)[0].shape[0]
    whole = count - count % GROUP
    first = jax.tree_util.tree_map(lambda each: each[:whole].reshape(whole // GROUP, GROUP, *each.shape[1:]), rows)
    rest = jax.tree_util.tree_map(lambda each: each[whole:], rows)

    group = jax.checkpoint(partial(jax.lax.scan, step))
    carried, found = jax.lax.scan(group, carried, first)
    _, last = group(carried, rest)
    return jnp.concatenate([found.reshape(whole, *found.shape[2:]), last])


class Mesh(NamedTuple):
    """A mesh as arrays of a fixed size: the first ``count`` steps are valid, and stop i is after step ``landed[i]``.

    ``answers`` are the states at the stops, without derivatives.
    """

    lengths: Any
    degrees: Any
    taus: Any
    landed: Any
    count: Any
    ratio: Any
    error: Any
    rejected: Any
    unsettled: Any
    tau: Any
    step: Any
    stop: Any
    answers: Any


class _Search(NamedTuple):
    """State of a pass."""

    mesh: Mesh
    past: adams.Past
    error: adams.Error
    largest: Any
    window: Any
    degree: Any
    previous: Any
    failed: Any


def choose_mesh(
    fun: Function,
    t0: float,
    initial: tuple[Any, ...],
    order: Any,
    rgamma: Any,
    memory: Memory,
    stops: Any,
    tolerance: Tolerance,
    most: int,
    args: tuple[Any, ...],
) -> Mesh:
    """Steps that meet the tolerance and end at each of ``stops``, at most ``most``; not differentiated."""
    static = (
        tolerance.rtol, tolerance.first_step, tolerance.max_step, tolerance.shortest, tolerance.rounding,
        tolerance.globally, most,
    )  # fmt: skip
    given = (t0, initial, order, rgamma, memory, stops, tolerance.atol, args)
    found: Mesh = run_program(_choose, (fun, None), (static,), given)
    return found


def _choose(
    functions: tuple[Function, None],
    static: tuple[Any, ...],
    t0: Any,
    initial: tuple[Any, ...],
    order: Any,
    rgamma: Any,
    memory: Memory,
    stops: Any,
    atol: Any,
    args: tuple[Any, ...],
) -> Mesh:
    # A loop of unknown length has no reverse-mode derivative. None is needed here: captured values are passed as
    # arguments, and all arguments enter without a derivative.
    real = memory.rates.dtype
    bare, captured = jax.closure_convert(
        lambda t, y, *args: functions[0](t, y, *args), jnp.zeros((), real), initial[0], *args
    )
    given = (t0, initial, order, rgamma, memory, stops, atol, args, tuple(captured))
    t0, initial, order, rgamma, memory, stops, atol, args, captured = jax.lax.stop_gradient(given)

    def fun(tau: Any, y: Any) -> Any:
        return bare(jnp.asarray(t0 + tau, real), y, *args, *captured)

    rtol, first_step, max_step, shortest, rounding, globally, most = static
    length = stops[-1]
    least, highest = jnp.min(order), jnp.max(order)
    y0 = initial[0]
    f0 = fun(0.0, y0)

    def scale(y: Any, other: Any, share: Any) -> Any:
        return share * (atol + rtol * jnp.maximum(jnp.abs(y), jnp.abs(other)))

    def size(change: Any, bound: Any) -> Any:
        return adams.sizes(jnp, change[None], bound)[0]

    def first(share: Any) -> Any:
        if first_step is not None:
            return jnp.asarray(first_step, real)
        bound, longest = scale(y0, y0, share), 1e-3 * length
        begin = size(f0, bound)
        guess = (1e-2 / (share * rtol * jnp.where(begin > 0.0, begin, 1.0))) ** (1.0 / least)
        step = jnp.clip(jnp.where(begin > 0.0, guess, longest), shortest, longest)

        def better(_: Any, carried: tuple[Any, Any]) -> tuple[Any, Any]:
            step, done = carried
            end = adams.initial_polynomial(step, initial) + f0 * (jnp.exp(order * jnp.log(step)) * rgamma / order)
            change = size(fun(step, end) - f0, bound)
            error = change * step**least / jnp.exp(jax.lax.lgamma(least + 2.0))
            done = done | ((error >= 0.05) & (error <= 1.0)) | ((error < 0.05) & (step >= longest))
            other = jnp.clip(step * (0.3 / jnp.maximum(error, 1e-12)) ** (0.5 / least), shortest, longest)
            other = jnp.where(jnp.isfinite(error), other, jnp.maximum(1e-3 * step, shortest))
            return jnp.where(done, step, other), done

        return jax.lax.fori_loop(0, 4, better, (step, jnp.asarray(False)))[0]

    def begin(share: Any) -> _Search:
        nothing = jnp.zeros((), real)
        none = jnp.zeros((), jnp.int32)
        mesh = Mesh(
            jnp.zeros(most, real), jnp.zeros(most, jnp.int32), jnp.zeros(most + 1, real),
            jnp.full(stops.shape[0], most + 1, jnp.int32), none, nothing, nothing, none, none, nothing,
            jnp.asarray(first(share), real), none, jnp.zeros((stops.shape[0], *y0.shape), f0.dtype),
        )  # fmt: skip
        states = jnp.zeros((len(initial), memory.rates.shape[0], *y0.shape), f0.dtype)
        values = jnp.concatenate([f0[None], jnp.zeros((adams.NODES - 2, *y0.shape), f0.dtype)])
        past = adams.Past(y0.astype(f0.dtype), values, states)
        error = adams.Error(states, jnp.zeros_like(f0))
        window = jnp.zeros(adams.NODES - 2, real)
        return _Search(
            mesh, past, error, jnp.abs(y0), window, jnp.ones((), jnp.int32), jnp.ones((), real), jnp.asarray(False)
        )

    def one(share: Any, search: _Search) -> _Search:
        mesh, past = search.mesh, search.past
        stop = stops[mesh.stop]
        left = stop - mesh.tau
        step = jnp.minimum(mesh.step, max_step)
        whole = step >= left * (1.0 - 4.0 * rounding)
        clipped = step >= 0.5 * left
        taken = jnp.where(whole, left, jnp.where(clipped, 0.5 * left, step))
        end = jnp.where(whole, stop, mesh.tau + taken)
        known = jnp.minimum(mesh.count + 1, adams.NODES - 1)
        degree = jnp.minimum(search.degree, known)
        rule = adams.make_rule(jnp, order, rgamma, search.window, taken, known, degree)
        start = adams.initial_polynomial(end, initial)
        y, f, change = adams.correct(jnp, fun, memory, past, rule, taken, end, start)
        differences, terms = adams.terms_of(jnp, rule, past, f)
        bound = scale(past.y, y, share)
        factor = jnp.where(highest > 1.0, (end / taken) ** jnp.maximum(highest - 1.0, 0.0), 1.0)
        errors = factor * adams.sizes(jnp, terms, bound)
        judged = adams.judge(jnp, errors, size(change, bound), degree, known, search.previous, least)
        short = (taken < 8.0 * rounding * mesh.tau) | (step < 0.5 * shortest)

        def accept(search: _Search) -> _Search:
            integrals = moments(jnp, memory, taken)
            error, kept = adams.propagate(
                jnp,
                fun,
                memory,
                search.error,
                rule,
                taken,
                end,
                y,
                f,
                differences[rule.row],
                terms[rule.row],
                integrals,
            )
            largest = jnp.maximum(jnp.abs(y), search.largest * (mesh.tau / end))
            new = mesh._replace(
                lengths=mesh.lengths.at[mesh.count].set(taken),
                degrees=mesh.degrees.at[mesh.count].set(degree),
                taus=mesh.taus.at[mesh.count + 1].set(end),
                landed=jnp.where(whole, mesh.landed.at[mesh.stop].set(mesh.count + 1), mesh.landed),
                count=mesh.count + 1,
                ratio=jnp.maximum(mesh.ratio, jnp.max(jnp.abs(error) / (atol + rtol * largest))),
                error=jnp.maximum(mesh.error, jnp.max(jnp.abs(error))),
                tau=end,
                step=jnp.maximum(taken * judged.factor, jnp.where(clipped, step, 0.0)),
                stop=mesh.stop + whole,
                answers=mesh.answers.at[mesh.stop].set(y),  # the last write is the one at the stop
            )
            window = jnp.concatenate([taken[None], search.window[:-1]])
            moved = adams.push(jnp, memory, past, rule, taken, y, f, integrals)
            return _Search(new, moved, kept, largest, window, judged.degree, judged.previous, search.failed)

        def refuse(search: _Search) -> _Search:
            lost = (judged.factor <= 0.5).astype(jnp.int32)
            new = mesh._replace(step=taken * judged.factor, rejected=mesh.rejected + 1, unsettled=mesh.unsettled + lost)
            return search._replace(mesh=new, degree=judged.degree, failed=short)

        after: _Search = jax.lax.cond(judged.accept & ~short, accept, refuse, search)
        return after

    def pass_over(share: Any, most_ratio: Any) -> Mesh:
        def go_on(search: _Search) -> Any:
            mesh = search.mesh
            room = (mesh.count < most) & (mesh.rejected < most)
            return (mesh.stop < stops.shape[0]) & room & ~search.failed & (mesh.ratio <= most_ratio)

        last: _Search = jax.lax.while_loop(go_on, partial(one, share), begin(share))
        return last.mesh

    whole = jnp.asarray(1.0, real)
    if not globally:
        return pass_over(whole, jnp.inf)

    def refine(carried: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        share, number, _ = carried
        mesh = pass_over(share, jnp.where(number + 1 >= MAX_PASSES, jnp.inf, 4.0))
        return share * jnp.clip(0.5 / mesh.ratio, 0.02, 0.7), number + 1, mesh

    def too_large(carried: tuple[Any, Any, Any]) -> Any:
        _, number, mesh = carried
        return (number == 0) | ((number < MAX_PASSES) & (mesh.ratio > 1.0))

    # Starts from an empty mesh, so that all passes are one program.
    shapes = jax.eval_shape(pass_over, whole, whole)
    nothing = jax.tree_util.tree_map(lambda each: jnp.zeros(each.shape, each.dtype), shapes)
    found: Mesh = jax.lax.while_loop(too_large, refine, (whole, jnp.zeros((), jnp.int32), nothing))[2]
    return found


def solve_on_mesh(
    fun: Function,
    t0: float,
    initial: tuple[Any, ...],
    order: Any,
    rgamma: Any,
    memory: Memory,
    mesh: Mesh,
    args: tuple[Any, ...],
) -> Any:
    """The states after each valid step, shape (N + 2, ..., d), with derivatives; NaN after them."""
    given = (t0, initial, order, rgamma, memory, mesh.lengths, mesh.degrees, mesh.taus, mesh.count, args)
    return run_program(_solve_on_mesh, (fun, None), (), given)


def _solve_on_mesh(
    functions: tuple[Function, None],
    t0: Any,
    initial: tuple[Any, ...],
    order: Any,
    rgamma: Any,
    memory: Memory,
    lengths: Any,
    degrees: Any,
    taus: Any,
    count: Any,
    args: tuple[Any, ...],
) -> Any:
    real = memory.rates.dtype
    lengths, degrees, taus, count = jax.lax.stop_gradient((lengths, degrees, taus, count))

    def fun(tau: Any, y: Any) -> Any:
        return functions[0](jnp.asarray(t0 + tau, real), y, *args)

    y0 = initial[0]
    f0 = fun(0.0, y0)
    y0 = y0.astype(f0.dtype)

    def step(carried: Any, row: Any) -> tuple[Any, Any]:
        n, taken, degree, end = row
        active = n < count

        def advance(carried: Any) -> Any:
            past, window = carried
            safe = jnp.where(active, taken, 1.0)
            known = jnp.minimum(n + 1, adams.NODES - 1)
            rule = adams.make_rule(jnp, order, rgamma, window, safe, known, jnp.minimum(degree, known))
            last = jnp.where(active, end, 0.0)

            def held(tau: Any, y: Any) -> Any:
                # Under vmap both branches are evaluated: invalid steps use an existing state.
                return fun(tau, jnp.where(active, y, past.y))

            start = adams.initial_polynomial(last, initial)
            y, f, _ = adams.correct(jnp, held, memory, past, rule, safe, last, start)
            new = adams.push(jnp, memory, past, rule, safe, y, f)
            return new, jnp.concatenate([safe[None], window[:-1]])

        carried = jax.lax.cond(active, advance, lambda carried: carried, carried)
        return carried, carried[0].y

    states = jnp.zeros((len(initial), memory.rates.shape[0], *y0.shape), f0.dtype)
    values = jnp.concatenate([f0[None], jnp.zeros((adams.NODES - 2, *y0.shape), f0.dtype)])
    past = adams.Past(y0, values, states)
    window = jnp.zeros(adams.NODES - 2, real)
    rows = (jnp.arange(lengths.shape[0]), lengths, degrees, taus[1:])
    found = jnp.concatenate([y0[None], _scan(step, (past, window), rows), y0[None]])
    behind = (jnp.arange(found.shape[0]) > count).reshape(-1, *(1,) * y0.ndim)
    return jnp.where(behind, math.nan, found)

"""Solves of tensors and JAX arrays on non-uniform meshes: graded, or adapted to a tolerance."""

from __future__ import annotations

import dataclasses
import math
import sys
import time
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np

from hpfracc._arrays import is_tracer, library_of, tracks_gradient
from hpfracc._xp import array_namespace, namespace_of
from hpfracc.errors import InvalidInputError
from hpfracc.history.states import make_memory
from hpfracc.solvers.ode.differences import make_difference_tables
from hpfracc.solvers.ode.fixed.grid import make_grid
from hpfracc.solvers.ode.options import Options
from hpfracc.solvers.ode.problem import Problem
from hpfracc.solvers.ode.progress import progress_report
from hpfracc.solvers.ode.result import FODEResult, SolveDecision
from hpfracc.solvers.ode.tensors import adams
from hpfracc.solvers.ode.tensors.between import interpolated
from hpfracc.solvers.ode.tensors.rule import convert_like
from hpfracc.solvers.ode.tensors.solve import (
    NO_ESTIMATE,
    REACHED,
    bad_start,
    check_jax_functions,
    first_bad,
    order_of,
    refuse_tensors,
    time_last,
    torch_functions,
)
from hpfracc.solvers.ode.tensors.tolerance import Chosen, Tolerance

__all__ = [
    "refuse_adaptive_tensors",
    "refuse_graded_tensors",
    "solve_adaptive_tensors",
    "solve_graded_tensors",
]

Array = np.ndarray[Any, Any]

#: Capacity of a traced program in steps, in addition to two for each requested time.
_TRACED_STEPS = 2048
#: Multiple of the tolerance that counts as success, because error estimates are rough.
_TOLERATED = 10.0
#: The grading of a mesh whose order is traced.
_TRACED_GRADING = 4.0


def _is_wide(like: Any) -> bool:
    """Whether an array has double precision."""
    return str(like.dtype).rpartition(".")[2] in ("float64", "complex128")


def refuse_graded_tensors(problem: Problem, options: Options, name: str) -> str | None:
    """Requires a single equation in the Caputo derivative, with orders below 1."""
    refusal = refuse_tensors(problem, options, name)
    if refusal is not None:
        return refusal
    known = problem.orders.known
    if problem.orders.ceiling > 1 or (known is not None and np.any(known >= 1.0)):
        shown = "" if known is None else f", and alpha reaches {float(known.max()):g}"
        return f"method={name!r} takes orders below 1{shown}"
    value = problem.orders.value
    several = int(np.prod(value.shape)) != 1 if library_of(value) in ("torch", "jax") else problem.orders.single is None
    if name == "l2_1sigma" and several:
        return f"method={name!r} takes one order for all components; use method='l1'"
    return None


def solve_graded_tensors(problem: Problem, options: Options, name: str, grading: float | None) -> FODEResult:
    """L1 or L2-1sigma on the mesh ``t_j = t0 + T (j/N)^r``, with derivatives.

    If ``grading`` is None and the order is traced, r is 4.
    """
    started = time.perf_counter()
    assert options.step is not None
    steps, length = make_grid(problem.t0, problem.t1, options.step).steps, problem.t1 - problem.t0
    wide, order = _is_wide(problem.y0), order_of(problem)
    if name == "l2_1sigma" and problem.orders.single is not None and library_of(order) == "numpy":
        order = np.asarray(problem.orders.single)
    notes: list[str] = []
    if grading is None:
        grading = _TRACED_GRADING
        notes.append(f"the order is traced: the mesh is graded by {grading:g}; give grading= for another")
    # The first step must not underflow in single precision.
    grading = grading if wide else min(grading, 28.0 / max(math.log10(steps), 1.0))
    notes.insert(0, f"steps grow like those of t_j = T (j/{steps})^{grading:.4g}")
    decision = SolveDecision(name, "asked for", "exponentials", problem.library == "jax", tuple(notes))
    if steps > options.max_steps:
        message = f"{steps} steps exceed max_steps={options.max_steps}: raise it, or take a larger step."
        return FODEResult(
            np.array([problem.t0]), problem.y0[..., None], False, message, 0, stats={"steps": 0}, decision=decision
        )
    mesh = length * (np.arange(steps + 1) / steps) ** grading
    shortest, eps, count = float(np.diff(mesh).min()), 1e-14 if wide else 1e-8, 1 if name == "l1" else 2
    memory = make_memory(1.0 - order, 0, shortest, length, eps, problem.y0, count)
    tables = make_difference_tables(name, order, mesh, problem.y0)
    calls = [0]
    with progress_report(options.progress, problem.t0, problem.t1, name) as report:
        if problem.library == "torch":
            from hpfracc.solvers.ode.tensors.on_torch.buffers import Buffers
            from hpfracc.solvers.ode.tensors.on_torch.mesh import solve_differences as on_torch

            fun, jacobian = torch_functions(problem, calls)
            times = None
            if not (library_of(order) == "torch" and tracks_gradient(order)):
                at = mesh[1:] if name == "l1" else mesh[:-1] + (1.0 - 0.5 * float(order)) * np.diff(mesh)
                times = (problem.t0 + at).tolist()

            def told(share: float, newest: Any) -> None:
                report(problem.t0 + float(mesh[round(share * steps)]), newest)

            buffers = Buffers(problem.fun, problem.jac, problem.args)
            states = on_torch(name, fun, jacobian, problem.t0, times, problem.y0, memory, tables, told, buffers)
        else:
            from hpfracc.solvers.ode.tensors.on_jax.mesh import solve_differences as on_jax

            check_jax_functions(problem)
            states = on_jax(name, problem.fun, problem.jac, problem.t0, problem.y0, memory, tables, problem.args)
    known = states.shape[0] - 1
    success, message = True, REACHED + NO_ESTIMATE * (options.estimate is not False)
    if known < steps:
        success = False
        message = f"Interrupted at t = {problem.t0 + mesh[known]:g}: here is the solution up to then."
    bad = first_bad(states)
    if bad is not None:
        success = False
        message = (bad_start(problem) if bad <= 1 else None) or (
            f"The solution is not finite at t = {problem.t0 + mesh[bad]:g}, or Newton's method did not converge there: "
            "take a smaller step, or check whether the solution ends there."
        )
    times_out = problem.t0 + mesh[: known + 1]
    if known == steps:
        times_out[-1] = problem.t1
    if options.t_eval is not None:
        place = steps * ((options.t_eval - problem.t0) / length) ** (1.0 / grading)
        times_out = options.t_eval[place <= known + 1e-9]
        there: Any = place[: times_out.size]
        if options.moving is not None:
            xp, part = array_namespace(options.moving), (options.moving[: times_out.size] - problem.t0) / length
            safe = xp.where(part > 0.0, part, 1.0 + 0.0 * part)
            there = xp.where(part > 0.0, steps * xp.exp(xp.log(safe) / grading), 0.0 * part)
        states = _interpolated(states, place[: times_out.size], there)
    return FODEResult(
        t=times_out, y=time_last(states), success=success, message=message, nfev=calls[0] or None,
        stats={
            "steps": known, "step": float(np.diff(mesh).max()), "seconds": time.perf_counter() - started,
            "interrupted": known < steps,
        },
        decision=decision,
    )  # fmt: skip


def _interpolated(states: Any, place: Array, there: Any) -> Any:
    """The cubic in the step index through the four nearest steps, at these positions; ``there`` with a gradient."""
    known = states.shape[0]
    width = min(4, known)
    first = np.clip(np.floor(place).astype(np.int64) - 1, 0, known - width)
    total: Any = None
    for j in range(width):
        factor = 1.0 + 0.0 * there
        for i in range(width):
            if i != j:
                factor = factor * (there - convert_like(first + float(i), there)) / (j - i)
        column = convert_like(factor, states).reshape(-1, *(1,) * (states.ndim - 1))
        part = column * states[first + j]
        total = part if total is None else total + part
    return total


def refuse_adaptive_tensors(problem: Problem, options: Options, name: str) -> str | None:
    """Requires constant orders and the Caputo derivative, and output times if traced."""
    refusal = refuse_tensors(problem, options, name)
    if refusal is not None:
        return refusal
    if options.step is not None:
        return f"method={name!r} chooses its steps, and step={options.step:g} was given; omit step"
    if np.any(np.asarray(options.atol) <= 0.0):
        return f"method={name!r} needs atol above 0: a solution that vanishes has no relative error"
    if options.breakpoints:
        return f"method={name!r} takes no breakpoints for arrays of {problem.library}; leave them out"
    if problem.jac is not None:
        return f"method={name!r} takes no jac for arrays of {problem.library}; omit it, or use method='l1'"
    return None


def solve_adaptive_tensors(problem: Problem, options: Options, name: str, reason: str, *, globally: bool) -> FODEResult:
    """Choose steps without derivatives, then repeat the same steps with derivatives.

    The derivatives are those of the discrete solution on a fixed mesh: the dependence of the mesh on the inputs is
    ignored. Their error is of the size of the error of the solution.
    """
    started = time.perf_counter()
    length, y0 = problem.t1 - problem.t0, problem.y0
    if 0 in problem.shape:
        return _of_no_member(problem, options, name, reason)
    rounding = 2.3e-16 if _is_wide(y0) else 1.2e-7
    rtol = max(options.rtol, 32.0 * rounding)
    known = problem.orders.known
    shortest = adams.shortest_step(length, rtol, None if known is None else float(known.min()), _is_wide(y0))
    tolerance = Tolerance(
        rtol, options.atol, options.first_step, min(options.max_step, length), options.max_steps, shortest, rounding,
        globally,
    )  # fmt: skip
    order, power = order_of(problem), problem.orders.ceiling - 1
    eps = min(max(1e-5 * rtol, 1e-14), 1e-8)
    memory = make_memory(order, power, 0.5 * shortest, length, eps, y0, adams.NODES + power)
    traced = options.moving is not None and options.t_eval is None
    if traced:  # the first of them is the start, and the last the end
        asked, stops = np.arange(options.moving.shape[0]), sys.modules["jax"].lax.stop_gradient(options.moving[1:])
    else:
        asked = np.array([length]) if options.t_eval is None else options.t_eval - problem.t0
        stops = np.unique(np.append(asked[asked > 0.0], length))
    solve = _adapt_torch if problem.library == "torch" else _adapt_jax
    with progress_report(options.progress, problem.t0, problem.t1, name) as report:
        found = solve(problem, options, tolerance, order, memory, stops, report)
    if options.t_eval is None and not traced:
        times, states = problem.t0 + found.taus, found.states
        if found.message is None:
            times[-1] = problem.t1
    else:
        which = asked - 1 if traced else np.where(asked > 0.0, np.searchsorted(stops, asked), -1)
        which = which[which < found.reached]
        times = which if options.t_eval is None else options.t_eval[: len(which)]
        at = _places(found.landed, which)
        if options.moving is None:
            states = found.states[at]
        else:
            place = options.moving[: len(which)] - problem.t0
            states = _between_steps(place, at, found, order, problem.dy0)
    success, message = found.message is None, found.message or REACHED
    if found.stats.get("steps") == 0:
        message = bad_start(problem) or message
    if success and globally and found.ratio > _TOLERATED:
        success = False
        message = (
            f"The end was reached, but the error may be {found.ratio:.2g} times the tolerance: the equation amplifies "
            f"errors, or rtol={options.rtol:g} is too small. Loosen it, shorten the interval, or, for a chaotic "
            "solution that no method can follow, use method='adaptive_local'."
        )
    notes = [] if rtol == options.rtol else [f"rtol={options.rtol:g} is below single precision: {rtol:.2g} was used"]
    return FODEResult(
        t=times,
        y=time_last(states),
        success=success,
        message=message,
        nfev=found.calls,
        stats={**found.stats, "seconds": time.perf_counter() - started},
        error_estimate=found.error,
        decision=SolveDecision(name, reason, "exponentials", problem.library == "jax", tuple(notes)),
    )


def _of_no_member(problem: Problem, options: Options, name: str, reason: str) -> FODEResult:
    """A batch without members needs no steps."""
    times = np.array([problem.t0, problem.t1]) if options.t_eval is None else options.t_eval
    states = array_namespace(problem.y0).stack([problem.y0] * len(times))
    decision = SolveDecision(name, reason, "exponentials", problem.library == "jax", ("the batch has no members",))
    return FODEResult(times, time_last(states), True, REACHED, 0, stats={"steps": 0}, decision=decision)


#: Steps that determine the derivative of an adaptive solution in time.
_WIDTH = 6


def _between_steps(place: Any, at: Any, found: _Found, order: Any, further: tuple[Any, ...]) -> Any:
    """The polynomial through the steps nearest to ``at``, at each ``place``; with the gradient of ``place``."""
    if library_of(at) == "jax":
        jnp = sys.modules["jax"].numpy
        width, first = _WIDTH, jnp.clip(at - _WIDTH // 2, 0, jnp.maximum(found.landed[-1] - _WIDTH + 1, 0))
    else:
        width = min(_WIDTH, len(found.taus))
        first = np.clip(at - width // 2, 0, len(found.taus) - width)
    indices = [first + j for j in range(width)]
    nodes = [found.taus[index] for index in indices]
    return interpolated(place, nodes, indices, 1.0, found.states, order, further)


def _places(landed: Any, which: Array) -> Any:
    """Index of the step at which each stop was reached; 0 for t0, which is stored as -1."""
    if library_of(landed) == "jax":
        return sys.modules["jax"].numpy.where(which < 0, 0, landed[np.maximum(which, 0)])
    return np.where(which < 0, 0, np.append(landed, 0)[which])


class _Found(NamedTuple):
    """The solution on the chosen mesh; ``landed`` is the step at which each stop was reached."""

    taus: Any
    states: Any
    landed: Any
    reached: int
    ratio: Any
    error: Any
    message: str | None
    calls: int | None
    stats: dict[str, Any]


def _adapt_torch(
    problem: Problem, options: Options, tolerance: Tolerance, order: Any, memory: Any, stops: Array, report: Any
) -> _Found:
    from hpfracc.solvers.ode.tensors.on_torch.buffers import Buffers
    from hpfracc.solvers.ode.tensors.on_torch.mesh import choose_mesh, solve_on_mesh

    torch = sys.modules["torch"]
    calls = [0]
    fun, _ = torch_functions(problem, calls)
    initial = [problem.y0, *problem.dy0]
    buffers = Buffers(problem.fun, problem.args)
    with buffers.unchanged():
        seen = [fun(problem.t0, problem.y0), *initial, memory.weights]
    replayed = any(map(tracks_gradient, seen))
    try:
        for each in seen:
            each.detach().reshape(-1)[0].tolist()
        numbers = np.asarray(order.detach().tolist() if library_of(order) == "torch" else order)
    except RuntimeError:  # no single value under vmap
        raise InvalidInputError(
            "adaptive steps cannot be chosen under torch.func.vmap: give y0 a leading axis instead, or a step with "
            "method='l1', 'l2_1sigma' or 'pece'"
        ) from None
    # Where the steps are repeated with derivatives, those change the buffers of modules, not the search.
    with torch.no_grad(), buffers.unchanged() if replayed else nullcontext():
        detached = memory._replace(weights=memory.weights.detach())
        chosen, states, rules = choose_mesh(
            fun, problem.t0, [each.detach() for each in initial], numbers, detached, stops, tolerance,
            lambda tau, newest: report(problem.t0 + tau, newest),
        )  # fmt: skip
    if rules and replayed:
        weights = _rule_weights(order, chosen, problem.y0)
        states = solve_on_mesh(fun, problem.t0, initial, memory, weights, chosen, lambda share, newest: None, buffers)
    stats = {
        "steps": len(chosen.degrees), "rejected": chosen.rejected, "passes": chosen.passes,
        "exponentials": int(memory.rates.shape[0]), "error_over_tolerance": chosen.ratio,
        "interrupted": chosen.interrupted,
    }  # fmt: skip
    landed = np.searchsorted(chosen.taus, stops[stops <= chosen.taus[-1]])
    return _Found(chosen.taus, states, landed, landed.size, chosen.ratio, chosen.error, chosen.message, calls[0], stats)


def _rule_weights(order: Any, chosen: Chosen, like: Any) -> Any:
    """The weights of the values in each step, shape (N, NODES, ...), differentiable in the order."""
    xp = namespace_of(order)
    with xp.scope():
        alpha = xp.array(order)
        powers = xp.array(np.arange(adams.NODES).reshape(-1, *(1,) * alpha.ndim))
        inverse = 1.0 / (alpha + powers)
        shapes = xp.array(np.stack([rule.coefficients.T for rule in chosen.rules]))
        logs = xp.array(np.log(np.diff(chosen.taus)).reshape(-1, 1, *(1,) * alpha.ndim))
        flat = xp.matmul(shapes, inverse.reshape(adams.NODES, -1)).reshape(*shapes.shape[:2], *alpha.shape)
        return convert_like(flat * xp.exp(alpha * logs) * xp.rgamma(alpha), like)


def _adapt_jax(
    problem: Problem, options: Options, tolerance: Tolerance, order: Any, memory: Any, stops: Array, report: Any
) -> _Found:
    from hpfracc.solvers.ode.tensors.on_jax.mesh import choose_mesh, solve_on_mesh

    check_jax_functions(problem)
    jnp = sys.modules["jax"].numpy
    initial = (problem.y0, *problem.dy0)
    xp = namespace_of(order)
    with xp.scope():
        alpha = xp.array(order)
        orders, rgamma = convert_like(alpha, problem.y0), convert_like(xp.rgamma(alpha), problem.y0)
    real = memory.rates.dtype
    tolerance = dataclasses.replace(tolerance, atol=jnp.asarray(tolerance.atol, real))
    ends = jnp.asarray(stops, real)
    seen = (initial, order, problem.args, problem.fun(problem.t0, problem.y0, *problem.args))
    traced = any(map(is_tracer, sys.modules["jax"].tree_util.tree_leaves(seen)))
    if traced and options.t_eval is None and options.moving is None:
        raise InvalidInputError("traced adaptive steps have no fixed shape: give t_eval, the output times")
    most = min(options.max_steps, _TRACED_STEPS + 2 * len(stops))
    while True:
        mesh = choose_mesh(
            problem.fun, problem.t0, initial, orders, rgamma, memory, ends, tolerance, most, problem.args
        )
        full = not is_tracer(mesh.count) and bool((mesh.stop < len(stops)) & (mesh.count >= most))
        if not full or most == options.max_steps:
            break
        most = min(8 * most, options.max_steps)
    stats: dict[str, Any] = {"exponentials": int(memory.rates.shape[0]), "interrupted": False}
    if is_tracer(mesh.count):
        states = solve_on_mesh(problem.fun, problem.t0, initial, orders, rgamma, memory, mesh, problem.args)
        landed = mesh.landed
        if tolerance.globally:  # failure can only be reported as NaN
            landed = jnp.where(mesh.ratio <= _TOLERATED, landed, most + 1)
        return _Found(mesh.taus, states, landed, len(stops), 0.0, mesh.error, None, None, stats)
    count, reached = int(mesh.count), int(mesh.stop)
    message = None
    t = problem.t0 + float(mesh.tau)
    unsettled, rejected = int(mesh.unsettled), int(mesh.rejected)
    if reached < len(stops):
        if count >= most or rejected >= most:
            message = tolerance.too_many(t, unsettled > 0.25 * count)
        else:
            message = tolerance.too_short(t, float(mesh.step), unsettled > 0.5 * rejected)
    stats |= {"steps": count, "rejected": rejected, "error_over_tolerance": float(mesh.ratio)}
    if options.t_eval is not None and not traced:
        states = jnp.concatenate([problem.y0[None].astype(mesh.answers.dtype), mesh.answers])
        landed = np.arange(1, len(stops) + 1)
        return _Found(None, states, landed, reached, float(mesh.ratio), float(mesh.error), message, None, stats)
    # Rounded up to a few lengths, because each length is a separate program.
    room = min(most, 1 << max(6, (count - 1).bit_length()))
    kept = mesh._replace(lengths=mesh.lengths[:room], degrees=mesh.degrees[:room], taus=mesh.taus[: room + 1])
    states = solve_on_mesh(problem.fun, problem.t0, initial, orders, rgamma, memory, kept, problem.args)
    taus = np.array(mesh.taus[: count + 1], dtype=np.float64)
    if message is None:
        taus[np.asarray(mesh.landed)] = stops  # they were rounded to single precision
    return _Found(
        taus, states[: count + 1], np.asarray(mesh.landed), reached, float(mesh.ratio), float(mesh.error), message,
        None, stats,
    )  # fmt: skip

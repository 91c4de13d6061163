"""Solves of tensors and JAX arrays on non-uniform meshes: graded, or adapted to a tolerance."""

from __future__ import annotations

import math
import sys
import time
from typing import Any

import numpy as np

from hpfracc._arrays import library_of, tracks_gradient
from hpfracc._xp import array_namespace
from hpfracc.history.states import make_memory
from hpfracc.solvers.ode.differences import make_difference_tables
from hpfracc.solvers.ode.fixed.grid import make_grid
from hpfracc.solvers.ode.options import Options
from hpfracc.solvers.ode.problem import Problem
from hpfracc.solvers.ode.progress import progress_report
from hpfracc.solvers.ode.result import FODEResult, SolveDecision
from hpfracc.solvers.ode.tensors import adams
from hpfracc.solvers.ode.tensors.between import interpolated
from hpfracc.solvers.ode.tensors.search import TOLERATED, AdaptiveTask
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
from hpfracc.solvers.ode.tensors.tolerance import Tolerance

__all__ = [
    "refuse_adaptive_tensors",
    "solve_adaptive_tensors",
    "solve_graded_tensors",
]

Array = np.ndarray[Any, Any]

#: The grading of a mesh whose order is traced.
_TRACED_GRADING = 4.0


def _is_wide(like: Any) -> bool:
    """Whether an array has double precision."""
    return str(like.dtype).rpartition(".")[2] in ("float64", "complex128")


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
            from hpfracc.solvers.ode.tensors.on_torch.mesh import solve_differences_tensors

            times = None
            if not (library_of(order) == "torch" and tracks_gradient(order)):
                at = mesh[1:] if name == "l1" else mesh[:-1] + (1.0 - 0.5 * float(order)) * np.diff(mesh)
                times = (problem.t0 + at).tolist()

            def told(done: int, kept: Any) -> None:
                newest = kept[0][-1].detach()
                report(problem.t0 + float(mesh[done]), lambda: newest)

            buffers = Buffers(problem.fun, problem.jac, problem.args)
            states = solve_differences_tensors(
                name, torch_functions(problem, calls), problem.t0, times, problem.y0, memory, tables, told, buffers
            )
        else:
            from hpfracc.solvers.ode.tensors.on_jax.mesh import solve_differences_program

            check_jax_functions(problem)
            states = solve_differences_program(
                name, (problem.fun, problem.jac), problem.t0, problem.y0, memory, tables, problem.args
            )
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
        width = min(4, states.shape[0])
        first = np.clip(np.floor(place[: times_out.size]).astype(np.int64) - 1, 0, states.shape[0] - width)
        nodes = [first + j for j in range(width)]  # the cubic in the index of the step
        floats = [each.astype(np.float64) for each in nodes]
        states = interpolated(there, floats, nodes, 1.0, states, np.asarray(1.0), ())
    return FODEResult(
        t=times_out, y=time_last(states), success=success, message=message, nfev=calls[0] or None,
        stats={
            "steps": known, "step": float(np.diff(mesh).max()), "seconds": time.perf_counter() - started,
            "interrupted": known < steps,
        },
        decision=decision,
    )  # fmt: skip


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
    moving, traced = options.moving, options.moving is not None and options.t_eval is None
    if traced:  # the first of them is the start, and the last the end
        outputs = stops = sys.modules["jax"].lax.stop_gradient(moving[1:])
        moving, which = moving[1:], np.arange(moving.shape[0])
    else:
        asked = np.array([]) if options.t_eval is None else options.t_eval - problem.t0
        outputs, which = asked[asked > 0.0], np.cumsum(asked > 0.0)
        # The gradient in a time is that of the step that ends there.
        stops = np.array([length]) if moving is None else np.unique(np.append(outputs, length))
        moving = None if moving is None else moving[asked.size - outputs.size :] - problem.t0
    with progress_report(options.progress, problem.t0, problem.t1, name) as report:
        task = AdaptiveTask(problem, options, tolerance, order, memory, stops, outputs, moving, report)
        if problem.library == "torch":
            from hpfracc.solvers.ode.tensors.on_torch.mesh import adapt_tensors

            found = adapt_tensors(task)
        else:
            from hpfracc.solvers.ode.tensors.on_jax.mesh import adapt_arrays

            check_jax_functions(problem)
            found = adapt_arrays(task)
    states = found.states
    if options.t_eval is None and not traced:
        times = problem.t0 + found.taus
        if found.message is None:
            times[-1] = problem.t1
    else:
        which = which[which <= found.reached]
        times = which if options.t_eval is None else options.t_eval[: len(which)]
        xp = array_namespace(states)
        states = xp.concatenate([xp.astype(y0, states.dtype)[None], states])[xp.asarray(which, like=states)]
    success, message = found.message is None, found.message or REACHED
    if found.stats.get("steps") == 0:
        message = bad_start(problem) or message
    if success and globally and found.ratio > TOLERATED:
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

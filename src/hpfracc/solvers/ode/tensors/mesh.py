"""Solves of tensors and JAX arrays on non-uniform meshes: graded, or adapted to a tolerance."""

from __future__ import annotations

import dataclasses
import math
import sys
import time
from typing import Any

import numpy as np

from hpfracc._arrays import is_tracer
from hpfracc._xp import array_namespace
from hpfracc.history.states import make_memory
from hpfracc.solvers.ode.differences import make_difference_tables
from hpfracc.solvers.ode.fixed.grid import make_grid
from hpfracc.solvers.ode.problem import Problem
from hpfracc.solvers.ode.result import FODEResult, SolveDecision
from hpfracc.solvers.ode.tensors import adams, solve
from hpfracc.solvers.ode.tensors.search import Tolerance
from hpfracc.solvers.stepping.events import progress_report
from hpfracc.solvers.stepping.options import Options
from hpfracc.solvers.stepping.walk import REACHED, TOLERATED, inaccurate, interrupted_at

Array = np.ndarray[Any, Any]

#: The grading of a mesh whose order is traced.
_TRACED_GRADING = 4.0
_STIFF = "; the equation seems stiff: use method='l1', 'l2_1sigma' or 'implicit_trapezoid' with a step."


def solve_graded_tensors(problem: Problem, options: Options, name: str, grading: float | None) -> FODEResult:
    """L1 or L2-1sigma on the mesh ``t_j = t0 + T (j/N)^r``, with derivatives.

    If ``grading`` is None and the order is traced, r is 4.
    """
    assert options.step is not None
    grid = make_grid(problem.t0, problem.t1, options.step)
    wide, order = solve.is_wide(problem.y0), solve.order_of(problem)
    notes = [] if grading is not None else ["the order is traced: the mesh is graded by 4; give grading= for another"]
    r = _TRACED_GRADING if grading is None else grading
    # The first step must not underflow in single precision.
    r = r if wide else min(r, 28.0 / max(math.log10(grid.steps), 1.0))
    grid = dataclasses.replace(grid, grading=r)
    notes.insert(0, f"steps grow like those of t_j = T (j/{grid.steps})^{r:.4g}")
    decision = SolveDecision(name, "asked for", "exponentials", problem.library == "jax", tuple(notes))

    def run(calls: list[int], told: solve.Told) -> Any:
        mesh = grid.elapsed()
        shortest, eps, count = float(np.diff(mesh).min()), 1e-14 if wide else 1e-8, 1 if name == "l1" else 2
        memory = make_memory(1.0 - order, 0, shortest, grid.t1 - grid.t0, eps, problem.y0, count)
        tables = make_difference_tables(name, order, mesh, problem.y0)
        return solve.library_solves(problem).solve_differences(problem, name, memory, tables, calls, told)

    return solve.solve_tensor_mesh(problem, options, decision, grid, run)


def refuse_adaptive_tensors(problem: Problem, options: Options, name: str) -> str | None:
    """Requires constant orders and the Caputo derivative, and output times if traced."""
    refusal = solve.refuse_tensors(problem, options, name)
    if refusal is not None:
        return refusal
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
    rounding = 2.3e-16 if solve.is_wide(y0) else 1.2e-7
    rtol = max(options.rtol, 32.0 * rounding)
    # For the first step, step^(2 alpha) is about the tolerance; unless the order is traced.
    known, least = problem.orders.known, 1e-80 if solve.is_wide(y0) else 1e-24
    first = 1e-30 if known is None else math.exp(0.5 / float(known.min()) * math.log(1e-3 * rtol))
    shortest = length * max(min(first, 1e-9), least)
    longest = min(options.max_step, length)
    tolerance = Tolerance(rtol, options.atol, options.first_step, longest, shortest, rounding, globally)
    order, power = solve.order_of(problem), problem.orders.ceiling - 1
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
        adapt = solve.library_solves(problem).adapt
        found = adapt(problem, options, tolerance, order, memory, stops, outputs, moving, report)
    mesh, states, calls, passes, interrupted = found
    stats: dict[str, Any] = {"exponentials": int(memory.rates.shape[0]), "interrupted": interrupted}
    message, reached, ratio, error = REACHED, len(outputs), 0.0, mesh.error
    success = True
    if not is_tracer(mesh.count):
        count, reached, ratio, error = int(mesh.count), int(mesh.out), float(mesh.ratio), float(error)
        stats |= {"steps": count, "rejected": int(mesh.rejected), "passes": int(passes), "error_over_tolerance": ratio}
        stopped = _why_stopped(problem, options, rtol, stops, mesh)
        success, message = not (stopped or interrupted), stopped or message
        if interrupted:
            message = interrupted_at(problem.t0 + float(mesh.tau))
        if not count:
            message = solve.bad_start(problem) or message
    if options.t_eval is None and not traced:
        times = problem.t0 + np.array(mesh.taus[: count + 1], dtype=np.float64)
        if success:
            times[-1] = problem.t1
    else:
        which = which[which <= reached]
        times = which if options.t_eval is None else options.t_eval[: len(which)]
        xp = array_namespace(states)
        states = xp.concatenate([xp.astype(y0, states.dtype)[None], states])[xp.asarray(which, like=states)]
    if success and globally and ratio > TOLERATED:
        success = False
        message = inaccurate(ratio, options.rtol)
    notes = [] if rtol == options.rtol else [f"rtol={options.rtol:g} is below single precision: {rtol:.2g} was used"]
    decision = SolveDecision(name, reason, "exponentials", problem.library == "jax", tuple(notes))
    stats["seconds"], y = time.perf_counter() - started, solve.time_last(states)
    return FODEResult(times, y, success, message, calls, stats=stats, error_estimate=error, decision=decision)


def _why_stopped(problem: Problem, options: Options, rtol: float, stops: Any, mesh: adams.Mesh) -> str | None:
    """Why the end was not reached."""
    count, rejected, unsettled = int(mesh.count), int(mesh.rejected), int(mesh.unsettled)
    t, most = problem.t0 + float(mesh.tau), options.max_steps
    if int(mesh.stop) >= len(stops):
        return None
    if max(count, rejected) >= most or (problem.library != "jax" and count + rejected >= most):
        stiff = _STIFF if unsettled > 0.25 * count else "."
        reached = f"max_steps={most} steps reach t = {t:g}"
        return f"{reached}: raise max_steps, or loosen rtol={rtol:g}{stiff}"
    stiff = _STIFF if unsettled > 0.5 * rejected else "."
    return (
        f"The tolerance cannot be reached beyond t = {t:.6g}: steps of {float(mesh.step):.1e} would be needed there. "
        f"Loosen rtol={rtol:g} or atol, or check whether the solution ends there{stiff}"
    )


def _of_no_member(problem: Problem, options: Options, name: str, reason: str) -> FODEResult:
    """A batch without members needs no steps."""
    times = np.array([problem.t0, problem.t1]) if options.t_eval is None else options.t_eval
    states = array_namespace(problem.y0).stack([problem.y0] * len(times))
    decision = SolveDecision(name, reason, "exponentials", problem.library == "jax", ("the batch has no members",))
    return FODEResult(times, solve.time_last(states), True, REACHED, 0, stats={"steps": 0}, decision=decision)

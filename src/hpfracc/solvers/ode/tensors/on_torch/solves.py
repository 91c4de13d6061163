"""Solves on tensors: which derivatives are needed, and how they are kept."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.utils.checkpoint import checkpoint

from hpfracc._arrays import is_transformed, library_of, tracks_gradient
from hpfracc._torch_transforms import is_wrapped
from hpfracc._xp import array_namespace, convert_like, namespace_of
from hpfracc.errors import InvalidInputError
from hpfracc.history.states import Memory
from hpfracc.solvers.ode.differences import DifferenceTables
from hpfracc.solvers.ode.problem import Problem
from hpfracc.solvers.ode.tensors import adams
from hpfracc.solvers.ode.tensors.adams import AdaptiveEquation, Mesh
from hpfracc.solvers.ode.tensors.blocks import System, march_differences, solve_forward
from hpfracc.solvers.ode.tensors.on_torch.gradients import Leaves, solve_stored, tensors_in, with_tensors
from hpfracc.solvers.ode.tensors.search import Tolerance, choose_mesh
from hpfracc.solvers.ode.tensors.solve import Told, torch_functions
from hpfracc.solvers.stepping.events import Report
from hpfracc.solvers.stepping.options import Options
from hpfracc.solvers.tensors.loops import PLAIN, Loop, run_plainly
from hpfracc.solvers.tensors.on_torch.buffers import Buffers, check_members


def _checkpointed(buffers: Buffers, function: Callable[[Any], Any], arrays: Any) -> Any:
    """``function(arrays)``, run again in the backward pass by PyTorch, with the nodes of its graph kept."""
    return checkpoint(function, arrays, use_reentrant=False, context_fn=lambda: (nullcontext(), buffers.replayed()))


def _loop(seen: list[torch.Tensor], buffers: Buffers, told: Told) -> Loop:
    """Blocks of steps are run again in the backward pass where autograd records."""
    wrapped = any(map(is_wrapped, seen))
    tracked = torch.is_grad_enabled() and not wrapped and any(each.requires_grad for each in seen)
    record = partial(_checkpointed, buffers) if tracked else run_plainly
    return Loop(record, any(map(tracks_gradient, seen)), wrapped, told, keeps=True)


def solve_fixed(problem: Problem, system: System, calls: list[int], told: Told) -> torch.Tensor:
    """All states, shape (steps + 1, ..., d), or fewer after an interrupt.

    Only the evaluations of the steps change the buffers of modules.
    """
    _, rule, grid, initial, sums = system
    buffers, known = Buffers(problem.fun, problem.jac, problem.args), tensors_in(problem.args)

    def bind(tensors: list[torch.Tensor]) -> Any:
        return torch_functions(problem, calls, with_tensors(problem.args, iter(tensors)))

    fun, jacobian = bind(known)
    first = grid.t0 + grid.step if rule.starts_blind else grid.t0
    # The function may return the same tensor each time.
    f0 = torch.zeros_like(initial[0]) if rule.starts_blind else fun(grid.t0, initial[0]).clone()
    seen = [f0, *initial, *sums.sequences]
    if rule.starts_blind:  # its dependencies, which f0 would have shown
        with buffers.unchanged():
            seen.append(fun(first, initial[0]))
    buffers.leave_out_constants()
    loop, adjoint = _loop(seen, buffers, told), rule.adjoint
    tracked = loop.record is not run_plainly
    if tracked and rule.implicit:
        with buffers.unchanged():
            check_members(partial(fun, grid.t0 + grid.step), initial[0])
    if tracked and adjoint in ("auto", "stored"):
        with buffers.unchanged():
            leaves = Leaves(bind, known, first, initial[0], grid.time(grid.steps, f0))
        apart = leaves.random or initial[0].is_complex() or any(map(is_transformed, seen))
        if adjoint == "stored" or not (apart or leaves.outside is not None):
            return solve_stored(system, f0, leaves, buffers, loop._replace(record=run_plainly))
    if adjoint == "direct":
        loop = loop._replace(record=run_plainly)
    return solve_forward(system, (fun, jacobian), f0, tracked=loop.graph, loop=loop).states


def solve_differences(
    problem: Problem, name: str, memory: Memory, tables: DifferenceTables, calls: list[int], told: Told
) -> torch.Tensor:
    """All states of L1 or L2-1sigma, shape (N + 1, ..., d), or fewer after an interrupt."""
    functions, t0, y0 = torch_functions(problem, calls), problem.t0, problem.y0
    buffers = Buffers(problem.fun, problem.jac, problem.args)
    with buffers.unchanged():
        f0 = functions[0](t0, y0)
    buffers.leave_out_constants()
    loop = _loop([f0, y0, memory.weights, tables.weight], buffers, told)
    if loop.record is not run_plainly:
        with buffers.unchanged():
            check_members(partial(functions[0], t0), y0)
    at = t0 + tables.at
    tables = tables._replace(at=at if tracks_gradient(at) else at.tolist())
    start = y0.to(torch.promote_types(y0.dtype, f0.dtype))
    found: torch.Tensor = march_differences(array_namespace(y0), name, functions, start, memory, tables, loop)
    return found


def adapt(
    problem: Problem, options: Options, tolerance: Tolerance, order: Any, memory: Memory, stops: Any, outputs: Any,
    moving: Any, report: Report,
) -> tuple[Mesh, Any, int | None, Any, bool]:  # fmt: skip
    """Choose steps without derivatives; where derivatives are asked for, repeat the same steps with them.

    Gives the mesh, the states after its steps or at the outputs, the number of evaluations if it is known, of passes,
    and whether the user interrupted it.

    Parameters
    ----------
    stops, outputs : arrays
        Increasing times after t0: those at which steps end, the last of them the end, and those of the output.
    moving : array or None
        The outputs with their gradient.
    """
    t0, y0, calls = problem.t0, problem.y0, [0]
    fun, _ = torch_functions(problem, calls)
    initial, buffers = [y0, *problem.dy0], Buffers(problem.fun, problem.args)
    with buffers.unchanged():
        seen = [fun(t0, y0), *initial, memory.weights, *([] if moving is None else [moving])]
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
    real, xp = y0.real.dtype, array_namespace(y0)
    found: list[Any] = []

    def after(tau: Any, y: torch.Tensor) -> torch.Tensor:
        return fun(t0 + tau if isinstance(tau, float) else (t0 + tau).to(real), y)

    def noted(tau: float, y: torch.Tensor) -> None:
        if not outputs.size:
            found.append(y)
        report(t0 + tau, lambda: y)

    rgamma = namespace_of(numbers).rgamma(numbers)
    # Where the steps are repeated with derivatives, those change the buffers of modules, not the search.
    with torch.no_grad(), buffers.unchanged() if replayed else nullcontext():
        detached = memory._replace(weights=memory.weights.detach())
        starts = [each.detach() for each in initial]
        equation = AdaptiveEquation(xp, after, starts, numbers, rgamma, detached)
        bound = tolerance._replace(atol=equation.large(tolerance.atol))
        mesh, passes, interrupted = choose_mesh(equation, stops, outputs, bound, options.max_steps, noted)
    count, reached = int(mesh.count), int(mesh.out)
    mesh = mesh._replace(lengths=mesh.lengths[:count], degrees=mesh.degrees[:count], taus=mesh.taus[: count + 1])
    states = torch.stack([y0.detach(), *found[-count:]]) if count and not outputs.size else y0.detach()[None]
    answers = mesh.answers[:reached]

    def weights_of(coefficients: Any, lengths: Any) -> Any:
        own = array_namespace(coefficients) if library_of(coefficients) == "torch" else namespace_of(order)
        with own.scope():
            alpha = own.array(order)
            made = adams.weigh(own, own.array(coefficients), own.array(lengths), alpha, own.rgamma(alpha))
            return convert_like(made, y0)

    if replayed and count:
        buffers.leave_out_constants()
        loop = _loop(seen, buffers, PLAIN.report)._replace(keeps=False)
        equation = equation._replace(initial=initial, memory=memory)
        moving = None if moving is None else moving[:reached]
        states, answers = adams.repeat_steps(equation, weights_of, mesh, outputs[:reached], moving, loop)
    return mesh, states if options.t_eval is None else answers, calls[0], passes, interrupted

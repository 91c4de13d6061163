"""Steps over a mesh on tensors: which derivatives are needed, and how they are kept."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
import torch

from hpfracc._arrays import library_of, tracks_gradient
from hpfracc._torch_transforms import is_wrapped
from hpfracc._xp import array_namespace, namespace_of
from hpfracc.errors import InvalidInputError
from hpfracc.solvers.ode.tensors import adams
from hpfracc.solvers.ode.tensors.blocks import Loop, plain
from hpfracc.solvers.ode.tensors.differences import DifferenceTables
from hpfracc.solvers.ode.tensors.exponentials import Memory
from hpfracc.solvers.ode.tensors.on_torch.buffers import Buffers
from hpfracc.solvers.ode.tensors.on_torch.once import check_members
from hpfracc.solvers.ode.tensors.on_torch.recomputation import checkpointed
from hpfracc.solvers.ode.tensors.replay import repeat_steps, solve_differences
from hpfracc.solvers.ode.tensors.rule import convert_like
from hpfracc.solvers.ode.tensors.search import Equation, Mesh, choose_mesh
from hpfracc.solvers.ode.tensors.tolerance import Tolerance

__all__ = ["adapt_tensors", "solve_differences_tensors"]

Function = Callable[[Any, torch.Tensor], torch.Tensor]


def _loop(seen: list[torch.Tensor], buffers: Buffers, report: Callable[[int, Any], None]) -> Loop:
    """Groups of steps are checkpointed where autograd records."""
    wrapped = any(map(is_wrapped, seen))
    tracked = torch.is_grad_enabled() and not wrapped and any(each.requires_grad for each in seen)
    record = partial(checkpointed, buffers) if tracked else plain
    return Loop(record, any(map(tracks_gradient, seen)), wrapped, report)


def solve_differences_tensors(
    name: str,
    functions: tuple[Function, Function | None],
    t0: float,
    times: list[float] | None,
    y0: torch.Tensor,
    memory: Memory,
    tables: DifferenceTables,
    report: Callable[[int, Any], None],
    buffers: Buffers,
) -> torch.Tensor:
    """All states of L1 or L2-1sigma, shape (N + 1, ..., d), or fewer after an interrupt."""
    with buffers.unchanged():
        f0 = functions[0](t0, y0)
    buffers.leave_out_constants()
    loop = _loop([f0, y0, memory.weights, tables.weight], buffers, report)
    if loop.record is not plain:
        with buffers.unchanged():
            check_members(partial(functions[0], t0), y0)
    start = y0.to(torch.promote_types(y0.dtype, f0.dtype))
    found: torch.Tensor = solve_differences(
        array_namespace(y0), name, functions, t0, times, start, memory, tables, loop.graph, loop
    )
    return found


def adapt_tensors(
    fun: Function,
    t0: float,
    initial: list[torch.Tensor],
    order: Any,
    memory: Memory,
    stops: np.ndarray,
    outputs: np.ndarray,
    moving: Any,
    tolerance: Tolerance,
    told: Callable[[float, Any], None],
    buffers: Buffers,
) -> tuple[Mesh, Any, Any, int, bool]:
    """The mesh, the states after its steps and at the outputs, the number of passes, and whether it was interrupted.

    Steps are chosen without derivatives. Where derivatives are asked for, the same steps are repeated with them.
    """
    y0 = initial[0]
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
        told(tau, y)

    rgamma = namespace_of(numbers).rgamma(numbers)
    # Where the steps are repeated with derivatives, those change the buffers of modules, not the search.
    with torch.no_grad(), buffers.unchanged() if replayed else nullcontext():
        detached = memory._replace(weights=memory.weights.detach())
        starts = [each.detach() for each in initial]
        equation = Equation(xp, after, starts, numbers, rgamma, detached)
        bound = dataclasses.replace(tolerance, atol=equation.large(tolerance.atol))
        mesh, passes, interrupted = choose_mesh(equation, stops, outputs, bound, tolerance.max_steps, noted)
    count, reached = int(mesh.count), int(mesh.out)
    mesh = mesh._replace(
        lengths=mesh.lengths[:count], degrees=mesh.degrees[:count], taus=mesh.taus[: count + 1],
        ratio=float(mesh.ratio), error=float(mesh.error),
    )  # fmt: skip
    if not replayed or not count:
        states = torch.stack([y0.detach(), *found[-count:]]) if count and not outputs.size else y0.detach()[None]
        return mesh, states, mesh.answers[:reached], passes, interrupted

    def weights_of(coefficients: Any, lengths: Any) -> Any:
        own = array_namespace(coefficients) if library_of(coefficients) == "torch" else namespace_of(order)
        with own.scope():
            alpha = own.array(order)
            made = adams.weigh(own, own.array(coefficients), own.array(lengths), alpha, own.rgamma(alpha))
            return convert_like(made, y0)

    buffers.leave_out_constants()
    loop = _loop(seen, buffers, lambda done, kept: None)
    equation = equation._replace(initial=initial, memory=memory)
    moving = None if moving is None else moving[:reached]
    states, answers = repeat_steps(equation, weights_of, mesh, outputs[:reached], moving, loop)
    return mesh, states, answers, passes, interrupted

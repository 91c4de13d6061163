"""Fixed steps on tensors: which derivatives are needed, and how they are kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from hpfracc._arrays import is_transformed, tracks_gradient
from hpfracc._torch_transforms import is_wrapped
from hpfracc.errors import InvalidInputError
from hpfracc.solvers.ode.tensors.blocks import PLAIN, Loop, System, Trajectory, run_plainly, solve_forward
from hpfracc.solvers.ode.tensors.on_torch.buffers import Buffers
from hpfracc.solvers.ode.tensors.on_torch.leaves import Bind, Leaves
from hpfracc.solvers.ode.tensors.on_torch.once import check_members
from hpfracc.solvers.ode.tensors.on_torch.pulls import CoupledMembersError, TensorPulls
from hpfracc.solvers.ode.tensors.on_torch.recomputation import (
    checkpointed,
    graphed_gradients,
    tensors_in,
    with_tensors,
)
from hpfracc.solvers.ode.tensors.transpose import transpose

__all__ = ["solve_fixed_tensors"]


def solve_fixed_tensors(
    system: System, bind: Bind, known: list[torch.Tensor], report: Callable[[int, Any], None], buffers: Buffers
) -> torch.Tensor:
    """All states, shape (steps + 1, ..., d), or fewer after an interrupt.

    ``known`` are the tensors of ``args``, and ``bind`` gives the right-hand side and its Jacobian with those or others.
    ``buffers`` are those of its modules; only the evaluations of the steps change them.
    """
    _, rule, grid, initial, sums = system
    fun, jacobian = bind(known)
    first = grid.t0 + grid.step if rule.starts_blind else grid.t0
    # The function may return the same tensor each time.
    f0 = torch.zeros_like(initial[0]) if rule.starts_blind else fun(grid.t0, initial[0]).clone()
    seen = [f0, *initial, *sums.sequences]
    if rule.starts_blind:  # its dependencies, which f0 would have shown
        with buffers.unchanged():
            seen.append(fun(first, initial[0]))
    buffers.leave_out_constants()
    wrapped = any(map(is_wrapped, seen))
    tracked = torch.is_grad_enabled() and not wrapped and any(each.requires_grad for each in seen)
    loop = Loop(run_plainly, any(map(tracks_gradient, seen)), wrapped, report)
    if tracked and rule.implicit:
        with buffers.unchanged():
            check_members(partial(fun, grid.t0 + grid.step), initial[0])
    adjoint = rule.adjoint
    if not tracked or adjoint == "direct":
        return solve_forward(system, (fun, jacobian), f0, tracked=loop.graph, loop=loop).states
    if adjoint != "recomputed":
        with buffers.unchanged():
            leaves = Leaves(bind, known, first, initial[0], grid.time(grid.steps, f0))
        apart = leaves.random or initial[0].is_complex() or any(map(is_transformed, seen))
        if adjoint == "stored" or not (apart or leaves.outside is not None):
            return _solve_stored(system, f0, leaves, buffers, loop)
    loop = loop._replace(record=partial(checkpointed, buffers))
    return solve_forward(system, (fun, jacobian), f0, tracked=True, loop=loop).states


def _solve_stored(system: System, f0: torch.Tensor, leaves: Leaves, buffers: Buffers, loop: Loop) -> torch.Tensor:
    """The states and points are kept, and the steps transposed in the backward pass."""
    _, rule, grid, initial, sums = system
    if initial[0].is_complex():
        raise InvalidInputError("adjoint='stored' takes real states; use adjoint='recomputed' for complex ones")
    leaves.check_stored()
    with torch.no_grad():
        found = solve_forward(system, (leaves.fun, leaves.jacobian), f0, keep=True, loop=loop)
    leaves.check_stored()  # of all steps now
    system = system._replace(grid=grid._replace(steps=found.states.shape[0] - 1))

    def rerun(tensors: Sequence[torch.Tensor], functions: Any) -> torch.Tensor:
        """The whole with a graph, for a gradient that is differentiated again."""
        own = _with(system, tensors)
        f0 = torch.zeros_like(own.initial[0]) if rule.starts_blind else functions[0](grid.t0, own.initial[0])
        return solve_forward(own, functions, f0, tracked=True, loop=loop._replace(report=PLAIN.report)).states

    def gradients(given: Sequence[torch.Tensor], found: Trajectory, grad: torch.Tensor, wanted: bool) -> list[Any]:
        own = _with(system, given)
        for matrices in (not rule.implicit, False):
            pulls = TensorPulls(leaves.own, leaves.seen, system.grid, found, matrices)
            try:
                made = transpose(own, (leaves.own, leaves.jacobian), pulls, found, grad, None, wanted)
            except CoupledMembersError:
                continue
            break
        weights = [None] * len(tensors_in(sums)) if made.sums is None else tensors_in(made.sums)
        return [*made.initial, *weights, *pulls.totals]

    tensors = tensors_in((initial, sums))
    states: torch.Tensor = _Stored.apply(
        gradients, rerun, leaves, buffers, len(initial), len(tensors), found, *tensors, *leaves.given
    )
    return states


def _with(system: System, tensors: Sequence[torch.Tensor]) -> System:
    """The same with other tensors as initial values and weights."""
    initial, sums = with_tensors((tuple(system.initial), system.sums), iter(tensors))
    return system._replace(initial=initial, sums=sums)


class _Stored(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(
        ctx: Any, gradients: Any, rerun: Any, leaves: Leaves, buffers: Buffers, starts: int, count: int,
        found: Trajectory, *given: torch.Tensor,
    ) -> torch.Tensor:  # fmt: skip
        ctx.gradients, ctx.rerun, ctx.leaves, ctx.buffers = gradients, rerun, leaves, buffers
        ctx.starts, ctx.count = starts, count
        ctx.save_for_backward(found.states, *found.points, *given)
        return found.states

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
        needed = ctx.needs_input_grad[7:]
        saved, own = ctx.saved_tensors[: -len(needed)], ctx.saved_tensors[-len(needed) :]
        with ctx.buffers.unchanged():
            if torch.is_grad_enabled():
                found = graphed_gradients(ctx.rerun, own[: ctx.count], ctx.leaves, own[ctx.count :], needed, grad)
            else:
                wanted = any(needed[ctx.starts : ctx.count])
                found = ctx.gradients(own[: ctx.count], Trajectory(saved[0], saved[1:]), grad, wanted)
        return (None,) * 7 + tuple(found)

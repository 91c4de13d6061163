"""Fixed steps on tensors: which derivatives are needed, and how they are kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from hpfracc._arrays import is_transformed, tracks_gradient
from hpfracc._torch_transforms import is_wrapped
from hpfracc._xp import array_namespace
from hpfracc.errors import InvalidInputError
from hpfracc.solvers.ode.tensors.blocks import Grid, Loop, Trajectory, plain, solve_forward
from hpfracc.solvers.ode.tensors.on_torch.buffers import Buffers
from hpfracc.solvers.ode.tensors.on_torch.leaves import Bind, Leaves
from hpfracc.solvers.ode.tensors.on_torch.once import check_members
from hpfracc.solvers.ode.tensors.on_torch.pulls import CoupledMembersError, TensorPulls
from hpfracc.solvers.ode.tensors.on_torch.recomputation import (
    checkpointed,
    gradients_again,
    tensors_in,
    with_tensors,
)
from hpfracc.solvers.ode.tensors.rule import Sums, TensorRule
from hpfracc.solvers.ode.tensors.transpose import transpose

__all__ = ["solve_fixed_tensors"]


def solve_fixed_tensors(
    bind: Bind,
    rule: TensorRule,
    grid: Grid,
    initial: list[torch.Tensor],
    sums: Sums,
    report: Callable[[int, Any], None],
    known: list[torch.Tensor],
    buffers: Buffers,
) -> torch.Tensor:
    """All states, shape (steps + 1, ..., d), or fewer after an interrupt.

    ``known`` are the tensors of ``args``, and ``bind`` gives the right-hand side and its Jacobian with those or others.
    ``buffers`` are those of its modules; only the evaluations of the steps change them.
    """
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
    solve = partial(solve_forward, array_namespace(f0), rule=rule, grid=grid)
    loop = Loop(plain, any(map(tracks_gradient, seen)), wrapped, report)
    if tracked and rule.implicit:
        with buffers.unchanged():
            check_members(partial(fun, grid.t0 + grid.step), initial[0])
    adjoint = rule.adjoint
    if not tracked or adjoint == "direct":
        return solve((fun, jacobian), initial=initial, f0=f0, sums=sums, tracked=loop.graph, loop=loop).states
    if adjoint != "recomputed":
        with buffers.unchanged():
            leaves = Leaves(bind, known, first, initial[0], grid.time(grid.steps, f0))
        apart = leaves.random or initial[0].is_complex() or any(map(is_transformed, seen))
        if adjoint == "stored" or not (apart or leaves.outside is not None):
            return _solve_stored(solve, rule, grid, initial, f0, sums, leaves, buffers, loop)
    loop = loop._replace(record=partial(checkpointed, buffers))
    return solve((fun, jacobian), initial=initial, f0=f0, sums=sums, tracked=True, loop=loop).states


def _solve_stored(
    solve: Callable[..., Trajectory],
    rule: TensorRule,
    grid: Grid,
    initial: list[torch.Tensor],
    f0: torch.Tensor,
    sums: Sums,
    leaves: Leaves,
    buffers: Buffers,
    loop: Loop,
) -> torch.Tensor:
    """The states and points are kept, and the steps transposed in the backward pass."""
    if initial[0].is_complex():
        raise InvalidInputError("adjoint='stored' takes real states; use adjoint='recomputed' for complex ones")
    leaves.check_stored()
    with torch.no_grad():
        found = solve((leaves.fun, leaves.jacobian), initial=initial, f0=f0, sums=sums, keep=True, loop=loop)
    leaves.check_stored()  # of all steps now
    grid = grid._replace(steps=found.states.shape[0] - 1)
    arrays = (tuple(initial), sums)

    def again(tensors: Sequence[torch.Tensor], functions: Any) -> torch.Tensor:
        """The whole with a graph, for a gradient that is differentiated again."""
        initial, sums = with_tensors(arrays, iter(tensors))
        f0 = torch.zeros_like(initial[0]) if rule.starts_blind else functions[0](grid.t0, initial[0])
        quiet = loop._replace(report=lambda steps, newest: None)
        return solve(functions, initial=initial, f0=f0, sums=sums, tracked=True, loop=quiet, grid=grid).states

    def gradients(given: Sequence[torch.Tensor], found: Trajectory, grad: torch.Tensor, wanted: bool) -> list[Any]:
        initial, sums = with_tensors(arrays, iter(given))
        for matrices in (not rule.implicit, False):
            pulls = TensorPulls(leaves.own, leaves.seen, grid, found, matrices)
            try:
                made = transpose(
                    array_namespace(grad), (leaves.own, leaves.jacobian), pulls, rule, grid, initial, sums, found, grad,
                    None, wanted,
                )  # fmt: skip
            except CoupledMembersError:
                continue
            break
        weights = [None] * len(tensors_in(sums)) if made.sums is None else tensors_in(made.sums)
        return [*made.initial, *weights, *pulls.totals]

    tensors = tensors_in(arrays)
    states: torch.Tensor = _Stored.apply(
        gradients, again, leaves, buffers, len(initial), len(tensors), found, *tensors, *leaves.given
    )
    return states


class _Stored(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(
        ctx: Any, gradients: Any, again: Any, leaves: Leaves, buffers: Buffers, starts: int, count: int,
        found: Trajectory, *given: torch.Tensor,
    ) -> torch.Tensor:  # fmt: skip
        ctx.gradients, ctx.again, ctx.leaves, ctx.buffers = gradients, again, leaves, buffers
        ctx.starts, ctx.count = starts, count
        ctx.save_for_backward(found.states, *found.points, *given)
        return found.states

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
        needed = ctx.needs_input_grad[7:]
        saved, own = ctx.saved_tensors[: -len(needed)], ctx.saved_tensors[-len(needed) :]
        with ctx.buffers.unchanged():
            if torch.is_grad_enabled():
                found = gradients_again(ctx.again, own[: ctx.count], ctx.leaves, own[ctx.count :], needed, grad)
            else:
                wanted = any(needed[ctx.starts : ctx.count])
                found = ctx.gradients(own[: ctx.count], Trajectory(saved[0], saved[1:]), grad, wanted)
        return (None,) * 7 + tuple(found)

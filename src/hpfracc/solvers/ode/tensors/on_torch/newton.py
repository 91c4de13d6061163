"""The equation of an implicit step on tensors, all members of a batch at once, with its derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from hpfracc.errors import InvalidInputError
from hpfracc.solvers.ode.tensors.on_torch.once import differentiable_once

__all__ = ["TWICE_IMPLICIT", "check_members", "slopes_of", "solve_step", "solve_transposed"]

#: Maximum number of iterations; members that have not converged become NaN.
MAX = 25
#: What to do for a second derivative.
TWICE_IMPLICIT = "use torch.func, or an explicit method with adjoint='recomputed'"

Function = Callable[[torch.Tensor], torch.Tensor]


def check_members(fun: Function, y: torch.Tensor) -> None:
    """Refuse functions that mix the members of a batch: gradients are those of one matrix for each member.

    Raises
    ------
    InvalidInputError
        If the value of the first member depends on another member of ``y``, of shape (..., d).
    """
    if y[..., 0].numel() < 2:
        return
    with torch.random.fork_rng(devices=[y.device] if y.is_cuda else []), torch.enable_grad():
        place = y.detach().requires_grad_()
        value = fun(place)
        if not value.requires_grad:
            return
        first = value.reshape(-1, value.shape[-1])[0]
        (slope,) = torch.autograd.grad(first, place, torch.rand_like(first), allow_unused=True)
    if slope is not None and bool((slope.reshape(-1, y.shape[-1])[1:] != 0).any()):
        raise InvalidInputError(
            "func mixes the members of the batch (BatchNorm?), and gradients of implicit methods are those of separate "
            "members; use func.eval(), an explicit method such as 'pece', or one state of all members"
        )


def solve_step(
    fun: Function,
    jacobian: Function | None,
    known: torch.Tensor,
    weight: torch.Tensor,
    guess: torch.Tensor,
    tracked: bool,
    wrapped: bool,
) -> torch.Tensor:
    """``y = known + weight f(y)``, y of shape (..., d), from ``guess``; NaN for members that do not converge.

    ``tracked`` is whether a derivative is needed, ``wrapped`` whether by ``torch.func``.

    The solution is computed without derivatives. Derivatives are those of the equation: autograd records the right-hand
    side once, at the solution, and uses the transposed matrix of the last iteration. This gives the first derivative;
    differentiating it again raises an error. Under ``torch.func`` two further Newton steps are taken, including the
    Jacobian. Each doubles the number of correct terms of the expansion about the solution, so derivatives up to the
    third are exact.
    """
    slopes = slopes_of(fun, jacobian, wrapped)
    with torch.no_grad():
        y = _iterate(fun, slopes, known.detach(), weight.detach(), guess.detach(), wrapped)
    if not tracked:
        return y
    if wrapped:
        for _ in range(2):
            y = y - _solved(_matrix(weight, slopes(y)), y - known - weight * fun(y))
        return y
    image: torch.Tensor = _OfTheEquation.apply(known + weight * fun(y), y, _matrix(weight.detach(), slopes(y)))
    return image


def solve_transposed(
    fun: Function,
    jacobian: Function | None,
    y: torch.Tensor,
    weight: torch.Tensor,
    value_bar: torch.Tensor,
    state_bar: torch.Tensor,
) -> torch.Tensor:
    """The gradient with respect to ``known`` of ``y = known + weight f(y)``, from those of ``f(y)`` and y."""
    slopes = slopes_of(fun, jacobian, False)(y)
    whole = state_bar + (slopes.mH @ value_bar[..., None])[..., 0]
    return _solved(_matrix(weight, slopes).mH, whole)


class _OfTheEquation(torch.autograd.Function):  # type: ignore[misc]
    """Returns ``y``; its derivative is that of ``z``, with ``y = z``, through ``(1 - weight df/dy) dy = dz``."""

    @staticmethod
    def forward(ctx: Any, z: torch.Tensor, y: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(z, matrix)
        return y.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, None, None]:
        z, matrix = ctx.saved_tensors
        (found,) = differentiable_once(lambda: [_solved(matrix.mH, grad)], [z, grad], TWICE_IMPLICIT)
        return found, None, None


def _iterate(
    fun: Function, slopes: Function, known: torch.Tensor, weight: torch.Tensor, y: torch.Tensor, wrapped: bool
) -> torch.Tensor:
    """Newton's method without derivatives."""
    settled = torch.zeros_like(y[..., 0].real, dtype=torch.bool)
    tolerance = torch.finfo(y.dtype).eps ** 0.7  # the next correction would be below rounding
    for _ in range(MAX):
        change = _solved(_matrix(weight, slopes(y)), y - known - weight * fun(y))
        y = torch.where(settled[..., None], y, y - change)
        size = change.abs().amax(-1)
        settled = settled | (size <= tolerance * y.abs().amax(-1)) | (size == 0.0)
        # Under torch.func.vmap there is no value for all members together.
        if not wrapped and bool((settled | ~torch.isfinite(size)).all()):
            break
    return torch.where(settled[..., None], y, torch.nan).detach()


def _matrix(weight: torch.Tensor, slopes: torch.Tensor) -> torch.Tensor:
    identity = torch.eye(slopes.shape[-1], dtype=slopes.dtype, device=slopes.device)
    return identity - weight.expand(slopes.shape[:-1])[..., None] * slopes


def _solved(matrix: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """The solution for each member; NaN if the matrix is not finite or is singular."""
    bad = ~torch.isfinite(matrix).all(-1).all(-1)  # LAPACK does not accept non-finite matrices
    identity = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    found = torch.linalg.solve_ex(torch.where(bad[..., None, None], identity, matrix), right[..., None])[0][..., 0]
    return torch.where(bad[..., None], torch.nan, found)


def slopes_of(fun: Function, jacobian: Function | None, wrapped: bool) -> Function:
    """``df/dy`` of each member, of shape (..., d, d): members are independent."""
    if jacobian is not None:
        return jacobian

    def under_func(y: torch.Tensor) -> torch.Tensor:
        value, back = torch.func.vjp(fun, y)
        return torch.stack([back(each)[0].conj() for each in _units(value)], -2)

    def under_autograd(y: torch.Tensor) -> torch.Tensor:
        # Checkpointing would recompute the whole block for these rows, which are not differentiated.
        with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(lambda each: each, lambda each: each):
            point = y.detach().requires_grad_()
            value = fun(point)
            if not value.requires_grad:  # does not depend on y
                return value.new_zeros((*value.shape, value.shape[-1]))
            rows = [
                torch.autograd.grad(value, point, each, retain_graph=True, allow_unused=True)[0]
                for each in _units(value)
            ]
        return torch.stack([torch.zeros_like(y) if row is None else row.conj() for row in rows], -2)

    return under_func if wrapped else under_autograd


def _units(value: torch.Tensor) -> list[torch.Tensor]:
    """The unit vectors of all components."""
    places = torch.arange(value.shape[-1], device=value.device)
    return [(places == index).to(value.dtype).expand(value.shape) for index in range(value.shape[-1])]

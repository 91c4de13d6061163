"""Gradients that raise an error if they are differentiated again, among them those of implicit steps.

``torch.autograd.function.once_differentiable`` raises one only if the incoming gradient requires a gradient. That of a
plain sum does not, and a second derivative would silently lack a term.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from hpfracc.errors import InvalidInputError, SolveError

Gradients = Sequence[torch.Tensor | None]
#: ``solve(matrix, right)`` for each member of a batch.
Solve = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def differentiable_once(
    gradients: Callable[[], Gradients], depends_on: Sequence[torch.Tensor | None], remedy: str
) -> list[torch.Tensor | None]:
    """The result of ``gradients()`` in a backward pass; differentiating it again raises an error.

    Parameters
    ----------
    gradients : callable
        Computes the gradients; called once, without recording.
    depends_on : sequence of tensors or None
        The tensors that the gradients depend on.
    remedy : str
        What to do for a second derivative.
    """
    graphed = torch.is_grad_enabled()
    with torch.no_grad():
        found = list(gradients())
    there = [place for place, each in enumerate(found) if each is not None]
    tensors = [each for each in depends_on if each is not None and each.requires_grad]
    if graphed and there and tensors:
        closed = _Once.apply(remedy, len(there), *(found[place] for place in there), *tensors)
        for place, each in zip(there, closed, strict=True):
            found[place] = each
    return found


class _Once(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, remedy: str, count: int, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.remedy = remedy
        return tuple(each.detach() for each in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *bars: torch.Tensor) -> Any:
        raise SolveError(f"this gradient cannot be differentiated twice: {ctx.remedy}")


def of_the_equation(z: torch.Tensor, y: torch.Tensor, matrix: torch.Tensor, solve: Solve) -> torch.Tensor:
    """``y``; its derivative is that of ``z``, with ``y = z``, through ``(1 - weight df/dy) dy = dz``."""
    found: torch.Tensor = _OfTheEquation.apply(z, y, matrix, solve)
    return found


class _OfTheEquation(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, z: torch.Tensor, y: torch.Tensor, matrix: torch.Tensor, solve: Solve) -> torch.Tensor:
        ctx.save_for_backward(z, matrix)
        ctx.solve = solve
        return y.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, None, None, None]:
        z, matrix = ctx.saved_tensors
        remedy = "use torch.func, or an explicit method"
        (found,) = differentiable_once(lambda: [ctx.solve(matrix.mH, grad)], [z, grad], remedy)
        return found, None, None, None


def check_members(fun: Callable[[torch.Tensor], torch.Tensor], y: torch.Tensor) -> None:
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

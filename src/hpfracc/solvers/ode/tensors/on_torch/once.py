"""Gradients that raise an error if they are differentiated again.

``torch.autograd.function.once_differentiable`` raises one only if the incoming gradient requires a gradient. That of a
plain sum does not, and a second derivative would silently lack a term.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from hpfracc.errors import SolveError

__all__ = ["differentiable_once"]

Gradients = Sequence[torch.Tensor | None]


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

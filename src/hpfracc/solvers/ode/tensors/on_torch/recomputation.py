"""Computations that are run again in the backward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from hpfracc.solvers.ode.tensors.on_torch.buffers import Buffers
from hpfracc.solvers.ode.tensors.on_torch.leaves import Leaves

__all__ = ["checkpointed", "graphed_gradients", "tensors_in", "with_tensors"]


def tensors_in(values: Any) -> list[torch.Tensor]:
    """Tensors in nested tuples, lists and dictionaries."""
    if isinstance(values, torch.Tensor):
        return [values]
    if isinstance(values, dict):
        values = tuple(values.values())
    return [one for each in values for one in tensors_in(each)] if isinstance(values, list | tuple) else []


def with_tensors(values: Any, tensors: Iterator[torch.Tensor]) -> Any:
    """The same nested values with other tensors, in the order of :func:`tensors_in`."""
    if isinstance(values, torch.Tensor):
        return next(tensors)
    if isinstance(values, dict):
        return type(values)((key, with_tensors(each, tensors)) for key, each in values.items())
    if isinstance(values, list | tuple):
        found = [with_tensors(each, tensors) for each in values]
        return type(values)(*found) if hasattr(values, "_fields") else type(values)(found)
    return values


def checkpointed(buffers: Buffers, function: Callable[[Any], Any], arrays: Any) -> Any:
    """``function(arrays)``, run again in the backward pass by PyTorch, with the nodes of its graph kept."""
    return checkpoint(function, arrays, use_reentrant=False, context_fn=lambda: (nullcontext(), buffers.replayed()))


def graphed_gradients(
    part: Callable[[Sequence[torch.Tensor], Any], torch.Tensor],
    given: Sequence[torch.Tensor],
    leaves: Leaves,
    outer: Sequence[torch.Tensor],
    needed: Sequence[bool],
    bar: torch.Tensor,
) -> list[torch.Tensor | None]:
    """Gradients of ``part(given, functions)`` in ``given`` and ``outer``, those of ``leaves``, as functions of them."""
    with torch.enable_grad():
        # Views begin a graph of their own, so that two tensors may depend on each other.
        copies = [each.view_as(each) if each.requires_grad else each for each in (*given, *outer[: leaves.arguments])]
        sources = [*copies, *outer[leaves.arguments :]]  # the last are captured by the function itself
        result = part(copies[: len(given)], leaves.rebound(copies[len(given) :]))
    places = [place for place, asked in enumerate(needed) if asked]
    found = torch.autograd.grad(result, [sources[place] for place in places], bar, create_graph=True, allow_unused=True)
    whole: list[torch.Tensor | None] = [None] * len(needed)
    for place, each in zip(places, found, strict=True):
        whole[place] = each
    return whole

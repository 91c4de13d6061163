"""What tracks a tensor: autograd, ``torch.func`` transforms, forward mode, compilation.

This determines whether results may be written into buffers, whether a value may be read, and what can be cached.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.nn import functional

from hpfracc._torch_transforms import find_probes, is_dual, is_symbolic, outside_transforms

P = ParamSpec("P")
T = TypeVar("T")


def is_eager(*tensors: Tensor) -> bool:
    """Whether nothing tracks these tensors, so that results may be written into buffers."""
    return is_only_recorded(*tensors) and not (torch.is_grad_enabled() and any(map(_wants_gradient, tensors)))


def is_only_recorded(*tensors: Tensor) -> bool:
    """Whether only autograd tracks these tensors: no transform, no forward mode, no compilation.

    While a transform of ``torch.func`` is active, other tensors count as transformed too: PyTorch then refuses autograd
    functions that have no rules for it.
    """
    if torch.compiler.is_compiling() or _innermost() is not None or any(map(is_symbolic, tensors)):
        return False
    return _level() < 0 or not any(map(is_dual, tensors))


_is_wrapped, _innermost, _level, _ = find_probes()
_wants_gradient = operator.attrgetter("requires_grad")


def is_readable(signal: Tensor) -> bool:
    """Whether a value can be read now, without waiting for a device."""
    return signal.is_cpu and not (_is_wrapped(signal) or is_symbolic(signal) or torch.compiler.is_compiling())


def multiply_over(product: Tensor, factor: Tensor) -> Tensor:
    """``product * factor``, written over ``product`` if it fits and nothing tracks it."""
    if (
        (product.is_complex() or not factor.is_complex())
        and is_eager(product, factor)
        and torch.broadcast_shapes(product.shape, factor.shape) == product.shape
    ):
        return product.mul_(factor)
    return product * factor


def untracked(prepare: Callable[P, T]) -> Callable[P, T]:
    """``prepare`` run outside of inference mode, autograd recording and ``torch.func`` transforms.

    A tensor created in inference mode cannot be saved for a later derivative, and one created inside a transform is
    wrapped at a level that no longer exists afterwards. The operand is a plain tensor; others are never cached.
    """

    @functools.wraps(prepare)
    def outside(*args: P.args, **kwargs: P.kwargs) -> T:
        with torch.inference_mode(False), torch.no_grad(), outside_transforms():
            return prepare(*args, **kwargs)

    return outside


# Rows from their values at even and at odd places, as one step of autograd: recorded operation by operation, slices,
# zeros and a stack for each row take two dozen steps, whose gradients are as many buffers of full length.


def interleaved(parts: Tensor, evens: int, n: int) -> tuple[Tensor, Tensor]:
    """Rows of ``n`` values, the first one and the others, from their values at even and at odd places.

    Parameters
    ----------
    parts : Tensor
        Shape ``(evens + rows, (n + 1) // 2)``: the values of the first ``evens`` rows at even places, where the others
        are 0, and those of all rows at odd places. If n is odd, the last ones of the latter are not used.
    evens : int
        At least 1.
    n : int
        Length of the rows.
    """
    if is_only_recorded(parts):
        first, others = _Interleaved.apply(parts, evens, n)
        return first, others
    rows = parts.shape[0] - evens
    even = functional.pad(parts[:evens], (0, 0, 0, rows - evens))
    whole = torch.stack([even, parts[evens:]], -1).reshape(rows, -1)[:, :n]
    return whole[0], whole[1:]


class _Interleaved(torch.autograd.Function):
    """The rows, as autograd records them."""

    @staticmethod
    def forward(ctx: Any, parts: Tensor, evens: int, n: int) -> tuple[Tensor, Tensor]:
        ctx.evens, half = evens, n // 2
        whole = parts.new_empty((parts.shape[0] - evens, n))
        whole[:evens, 0::2] = parts[:evens]
        whole[evens:, 0::2] = 0.0
        whole[:, 1::2] = parts[evens:, :half]
        return whole[0], whole[1:]

    @staticmethod
    def backward(ctx: Any, first: Tensor, others: Tensor) -> tuple[Tensor, None, None]:
        # Operations that autograd can record in turn.
        row, evens = first.unsqueeze(0), ctx.evens
        odd = [row[:, 1::2], others[:, 1::2]]
        if first.shape[-1] % 2:
            odd = [functional.pad(torch.cat(odd), (0, 1))]
        return torch.cat([row[:, 0::2], others[: evens - 1, 0::2], *odd]), None, None

"""Rows from their values at even and at odd places, as one step of autograd.

Recorded operation by operation, slices, zeros and a stack for each row take two dozen steps, whose gradients are as
many buffers of full length.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from hpfracc.engine.backends.torch.tracking import is_only_recorded

__all__ = ["interleaved"]


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

"""Differences of samples, and starting weights added to a result, in PyTorch.

Written as slices, a difference and a join, the derivative of a million differences fills half a dozen buffers; it is a
difference itself, and takes one.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from hpfracc.engine.backends.torch.tracking import is_eager, is_only_recorded

__all__ = ["add_starts", "differences"]


def differences(signal: Tensor) -> Tensor:
    """``signal[n] - signal[n-1]`` along the last axis, 0 at the first point."""
    if is_eager(signal):
        return _differences(signal)
    if is_only_recorded(signal):
        result: Tensor = _Differences.apply(signal)
        return result
    return torch.cat([signal[..., :1] - signal[..., :1], signal[..., 1:] - signal[..., :-1]], -1)


def add_starts(result: Tensor, signal: Tensor, starts: Tensor, first: int) -> Tensor:
    """``result`` with ``starts[j] * signal[..., first + j]`` added from that point on, in place where that may be."""
    eager = is_eager(result, signal, starts)
    for j in range(first, first + starts.shape[0]):
        sample, row = signal[..., j : j + 1], starts[j - first, j:]
        if eager:
            result[..., j:].addcmul_(sample, row)
        else:
            result = result + functional.pad(sample * row, (j, 0))
    return result


def _differences(signal: Tensor) -> Tensor:
    result = signal.new_empty(signal.shape)
    torch.sub(signal[..., 1:], signal[..., :-1], out=result[..., 1:])
    # Not 0 by decree: the difference of a bad sample with itself is bad.
    result[..., :1] = signal[..., :1] - signal[..., :1]
    return result


def _adjoint(slope: Tensor) -> Tensor:
    result = slope.new_empty(slope.shape)
    torch.sub(slope[..., :-1], slope[..., 1:], out=result[..., :-1])
    result[..., -1:] = slope[..., -1:]
    result[..., :1] -= slope[..., :1]
    return result


class _Differences(torch.autograd.Function):
    """Differences, as autograd records them."""

    @staticmethod
    def forward(ctx: Any, signal: Tensor) -> Tensor:
        return _differences(signal.detach())

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:
        result: Tensor = _Adjoint.apply(slope)
        return result


class _Adjoint(torch.autograd.Function):
    """Their derivative, and so the other way round."""

    @staticmethod
    def forward(ctx: Any, slope: Tensor) -> Tensor:
        return _adjoint(slope.detach())

    @staticmethod
    def backward(ctx: Any, change: Tensor) -> Tensor:
        result: Tensor = _Differences.apply(change)
        return result

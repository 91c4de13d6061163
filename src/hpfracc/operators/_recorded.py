"""First differences of tensors that autograd records, with a derivative of their own.

Written as slices, a difference and a join, the derivative of a million differences fills half a dozen buffers; it is a
difference itself, and takes one.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

__all__ = ["differences", "recorded_differences"]


def recorded_differences(x: Any) -> tuple[Any, Any]:
    """``x[j] - x[j-1]`` along the last axis of a tensor, 0 at the first point; and a copy of the second point's.

    Some rules need that one by itself, and taking it out of the row would cost its derivative a row of zeros.
    """
    found: tuple[Any, Any] = _functions()[0].apply(x)
    return found


def differences(x: Any) -> Any:
    """The same, unrecorded, of the row alone: into one buffer."""
    result = x.new_empty(x.shape)
    sys.modules["torch"].sub(x[..., 1:], x[..., :-1], out=result[..., 1:])
    # Not 0 by decree: the difference of a bad sample with itself is bad.
    result[..., :1] = x[..., :1] - x[..., :1]
    return result


def _adjoint(slope: Any, second: Any) -> Any:
    result = slope.new_empty(slope.shape)
    sys.modules["torch"].sub(slope[..., :-1], slope[..., 1:], out=result[..., :-1])
    result[..., -1:] = slope[..., -1:]
    result[..., :1] -= slope[..., :1]
    if slope.shape[-1] > 1:
        result[..., 1:2] += second
        result[..., :1] -= second
    return result


@functools.cache
def _functions() -> tuple[Any, Any]:
    """The two autograd functions, each the other's derivative; made once PyTorch is there."""
    torch = sys.modules["torch"]

    def forward(ctx: Any, x: Any) -> tuple[Any, Any]:
        row = differences(x.detach())
        return row, row[..., 1:2].clone()

    def backward(ctx: Any, slope: Any, second: Any) -> Any:
        return adjoint.apply(slope, second)

    def forward_adjoint(ctx: Any, slope: Any, second: Any) -> Any:
        return _adjoint(slope.detach(), second.detach())

    def backward_adjoint(ctx: Any, change: Any) -> Any:
        return difference.apply(change)

    difference: Any = type(
        "Differences",
        (torch.autograd.Function,),
        {"forward": staticmethod(forward), "backward": staticmethod(backward)},
    )
    adjoint: Any = type(
        "DifferencesAdjoint",
        (torch.autograd.Function,),
        {"forward": staticmethod(forward_adjoint), "backward": staticmethod(backward_adjoint)},
    )
    return difference, adjoint

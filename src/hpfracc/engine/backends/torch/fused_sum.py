"""The causal sum of long real rows on a GPU with a cached transform of the weights, fused with copies around it.

For the derivative only the positions of non-finite samples are stored, one number per block, not the signal.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from hpfracc._arrays import dtype_name
from hpfracc._torch_transforms import is_batched
from hpfracc.engine.backends.generic.causal_convolution import PreparedWeights
from hpfracc.engine.backends.torch import fused
from hpfracc.engine.backends.torch.tracking import is_eager, is_only_recorded

__all__ = ["SumOptions", "convolve_back_composed", "convolve_fused", "fits_fused"]


def spectral_product(signal: Tensor, prepared: PreparedWeights, eager: bool) -> Tensor:
    """The cyclic convolution of real rows, all points of it; ``eager`` if nothing tracks the tensors."""
    transform, size = prepared.operator, prepared.layout.size
    # A row that already has this length is not checked twice.
    product = torch.fft.rfft(signal) if signal.shape[-1] == size else torch.fft.rfft(signal, n=size)
    product = product.mul_(transform) if eager else product * transform
    return torch.fft.irfft(product, n=size, norm="forward")


class SumOptions(NamedTuple):
    """The options of the primitive around the sum."""

    differences: bool = False
    starts: Tensor | None = None
    first: int = 0


_PLAIN = SumOptions()


def fits_fused(prepared: PreparedWeights, signal: Tensor, starts: Tensor | None = None) -> bool:
    """Whether the fused kernels apply: real rows on a GPU, where each non-finite sample affects the rest of its row.

    One row of weights for all rows, so that a row of the product is a row of the signal; no more rows than the second
    axis of a launch allows; and nothing tracks the weights or transforms the signal.
    """
    (transform, layout), shape = prepared, signal.shape
    return (
        signal.is_cuda
        and signal.numel() > 0
        and dtype_name(signal) == layout.dtype
        and not signal.is_complex()
        and layout.taps >= shape[-1]
        and math.prod(layout.rows) == 1
        and transform.ndim <= len(shape)
        and signal.numel() // shape[-1] <= 65_535
        and fused.is_available()
        and not transform.requires_grad
        and is_only_recorded(signal, transform, *(() if starts is None else (starts,)))
        and (starts is None or not (starts.requires_grad and torch.is_grad_enabled()))
    )


def convolve_fused(signal: Tensor, prepared: PreparedWeights, options: SumOptions = _PLAIN) -> Tensor:
    """The sum, recorded by autograd if the signal is."""
    if options.starts is not None and not options.starts.is_contiguous():
        options = options._replace(starts=options.starts.contiguous())
    if is_eager(signal):
        return _convolve(signal, prepared, options)[0]
    result: Tensor = _FusedSum.apply(signal, prepared, options)
    return result


def _convolve(signal: Tensor, prepared: PreparedWeights, options: SumOptions) -> tuple[Tensor, Tensor]:
    """The sum, and records of non-finite samples."""
    signal = signal.contiguous()
    padded, bad, _ = fused.pad_and_clean(signal, prepared.layout.size, differences=options.differences)
    result = fused.cut_and_taint(
        spectral_product(padded, prepared, True),
        bad,
        signal.shape[-1],
        differences=options.differences,
        signal=signal,
        starts=options.starts,
        first=options.first,
    )
    return result, bad


def _convolve_back(slope: Tensor, bad: Tensor, prepared: PreparedWeights, options: SumOptions) -> Tensor:
    """The derivative of the sum: the reversed sum, over the points that do not depend on a non-finite sample."""
    slope = slope.contiguous()
    # The contributions of the starting weights are summed during padding, and added during truncation.
    padded, worse, sums = fused.pad_and_clean(
        slope, prepared.layout.size, limit=bad, backwards=True, starts=options.starts, first=options.first
    )
    return fused.cut_and_taint(
        spectral_product(padded, prepared, True),
        worse,
        slope.shape[-1],
        backwards=True,
        differences=options.differences,
        starts=options.starts,
        first=options.first,
        sums=sums,
    )


def convolve_back_composed(slope: Tensor, first_bad: Tensor, prepared: PreparedWeights, options: SumOptions) -> Tensor:
    """The same by PyTorch operations, for many slopes at once; ``first_bad`` has one point per row.

    A non-finite slope makes the whole row non-finite, because PyTorch's older vmap cannot check for it.
    """
    n = slope.shape[-1]
    point = torch.arange(n, device=slope.device)
    slope = torch.where(point < first_bad, slope, torch.zeros((), dtype=slope.dtype, device=slope.device))
    result = spectral_product(slope.flip(-1), prepared, False)[..., :n].flip(-1)
    of_first = None
    if options.starts is not None:
        for j, row in enumerate(options.starts, options.first):
            change = (slope * torch.where(point < j, torch.zeros_like(row), row)).sum(-1, keepdim=True)
            if j:
                result = torch.where(point == j, result + change, result)
            else:
                of_first = change
    if options.differences:
        # The first difference is 0 for any sample.
        result = result * (point > 0)
        result = result - functional.pad(result[..., 1:], (0, 1))
    return result if of_first is None else torch.where(point == 0, result + of_first, result)


class _FusedSum(torch.autograd.Function):
    """The sum, as autograd records it."""

    @staticmethod
    def forward(ctx: Any, signal: Tensor, prepared: PreparedWeights, options: SumOptions) -> Tensor:
        result, bad = _convolve(signal.detach(), prepared, options)
        # Neither operand nor result, so it may be stored directly.
        ctx.bad, ctx.plan, ctx.shape = bad, (prepared, options), tuple(signal.shape)
        return result

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None, None]:
        bad = ctx.bad
        if not is_only_recorded(slope) or is_batched(slope):
            return convolve_back_composed(slope, fused.first_bad(bad, ctx.shape), *ctx.plan), None, None
        if torch.is_grad_enabled():
            return _Slope.apply(slope, bad, *ctx.plan), None, None
        # Usually no second derivative is needed, and recording one would take as long as the work.
        return _convolve_back(slope, bad, *ctx.plan), None, None


class _Slope(torch.autograd.Function):
    """The derivative of :class:`_FusedSum`, as autograd records it."""

    @staticmethod
    def forward(ctx: Any, slope: Tensor, bad: Tensor, prepared: PreparedWeights, options: SumOptions) -> Tensor:
        ctx.plan = prepared, options
        ctx.save_for_backward(bad)
        return _convolve_back(slope.detach(), bad, prepared, options)

    @staticmethod
    def backward(ctx: Any, change: Tensor) -> tuple[Tensor, None, None, None]:
        (bad,) = ctx.saved_tensors
        prepared, options = ctx.plan
        result = convolve_fused(change, prepared, options)
        seen = torch.arange(result.shape[-1], device=result.device) < fused.first_bad(bad, tuple(result.shape))
        return torch.where(seen, result, torch.zeros((), dtype=result.dtype, device=result.device)), None, None, None

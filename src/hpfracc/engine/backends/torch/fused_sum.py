"""Causal convolution of long real rows on a card, by the fused kernels, with a derivative that takes as little.

What is kept for the derivative is where bad samples are, one number a block: no copy of the signal.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from hpfracc.engine.backends.torch import fused
from hpfracc.engine.backends.torch.nonfinite import is_eager, is_only_recorded
from hpfracc.engine.backends.torch.spectrum import Spectrum, spectral_product

__all__ = ["Options", "convolve_fused", "fits_fused"]


class Options(NamedTuple):
    """What surrounds the sum: the options of the primitive."""

    differences: bool = False
    starts: Tensor | None = None
    first: int = 0


_PLAIN = Options()


def fits_fused(prepared: Spectrum, signal: Tensor, starts: Tensor | None = None) -> bool:
    """Whether the fused kernels serve: real rows on a card, each bad sample reaching to the row's end.

    One row of weights for all rows, so that a row of the product is a row of the signal; no more rows than the second
    axis of a launch has places; and nothing that tracks weights, or transforms the signal.
    """
    return (
        signal.is_cuda
        and not signal.is_complex()
        and prepared.taps >= signal.shape[-1]
        and prepared.transform.numel() == prepared.transform.shape[-1]
        and prepared.transform.ndim <= signal.ndim
        and signal.numel() // signal.shape[-1] <= 65_535
        and fused.is_available()
        and not prepared.transform.requires_grad
        and is_only_recorded(signal, prepared.transform)
        and (starts is None or is_eager(starts))
    )


def convolve_fused(signal: Tensor, prepared: Spectrum, options: Options = _PLAIN) -> Tensor:
    """The sum, recorded where the signal is."""
    if options.starts is not None and not options.starts.is_contiguous():
        options = options._replace(starts=options.starts.contiguous())
    if is_eager(signal):
        return _convolve(signal, prepared, options)[0]
    result: Tensor = _Sum.apply(signal, prepared, options)[0]
    return result


def _convolve(signal: Tensor, prepared: Spectrum, options: Options) -> tuple[Tensor, Tensor]:
    signal = signal.contiguous()
    padded, bad = fused.pad_and_clean(signal, prepared.size, differences=options.differences)
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


class _Sum(torch.autograd.Function):
    """The sum, as autograd records it."""

    @staticmethod
    def forward(ctx: Any, signal: Tensor, prepared: Spectrum, options: Options) -> tuple[Tensor, Tensor]:
        result, bad = _convolve(signal.detach(), prepared, options)
        ctx.plan = prepared, options
        ctx.mark_non_differentiable(bad)
        ctx.save_for_backward(bad)
        return result, bad

    @staticmethod
    def backward(ctx: Any, slope: Tensor, _: Any) -> tuple[Tensor, None, None]:
        (bad,) = ctx.saved_tensors
        return _Slope.apply(slope, bad, *ctx.plan), None, None


class _Slope(torch.autograd.Function):
    """The derivative of :class:`_Sum`: the sum run backwards, over the points that no bad sample reaches."""

    @staticmethod
    def forward(ctx: Any, slope: Tensor, bad: Tensor, prepared: Spectrum, options: Options) -> Tensor:
        slope = slope.detach().contiguous()
        points = slope.shape[-1]
        padded, worse = fused.pad_and_clean(slope, prepared.size, limit=bad, backwards=True)
        result = fused.cut_and_taint(
            spectral_product(padded, prepared, True),
            worse,
            points,
            backwards=True,
            differences=options.differences,
        )
        if options.starts is not None:
            for j, row in enumerate(options.starts, options.first):
                # The slopes stand backwards in the padded rows, cleaned and limited.
                change = (padded[..., : points - j] * row[j:].flip(-1)).sum(-1)
                if not options.differences or j:
                    result[..., j] += change
                if options.differences and j:
                    result[..., j - 1] -= change
        ctx.plan = prepared, options
        ctx.save_for_backward(bad)
        return result

    @staticmethod
    def backward(ctx: Any, change: Tensor) -> tuple[Tensor, None, None, None]:
        (bad,) = ctx.saved_tensors
        prepared, options = ctx.plan
        result = convolve_fused(change, prepared, options)
        seen = torch.arange(result.shape[-1], device=result.device) < fused.first_bad(bad, tuple(result.shape))
        return torch.where(seen, result, torch.zeros((), dtype=result.dtype, device=result.device)), None, None, None

"""The causal sum by FFT with differentiable weights, as one node of autograd.

Recorded operation by operation, the transforms of signal and weights are differentiated as complex transforms of full
length, and each pass over the points stores a buffer. As one node it needs six real transforms, three forward and three
backward: the reversed incoming gradient is transformed once, and its products with the two stored transforms give the
gradients of the signal and of the weights. Second derivatives and gradients mapped by ``vmap`` use the composition of
PyTorch operations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from hpfracc._torch_transforms import is_batched
from hpfracc._xp import namespace
from hpfracc.engine.backends.generic.causal_convolution import differences as _differences
from hpfracc.engine.backends.torch import fused
from hpfracc.engine.backends.torch.tracking import is_only_recorded
from hpfracc.engine.numerics.lengths import fast_length

__all__ = ["convolve_tracked", "fits_tracked"]

Composition = Callable[..., Tensor]


def fits_tracked(weights: Tensor, signal: Tensor, *starts: Tensor) -> bool:
    """Whether the sum can be one node: one row of real weights that autograd records, outside of ``torch.func``."""
    return (
        weights.requires_grad
        and torch.is_grad_enabled()
        and weights.ndim == 1
        and not weights.is_complex()
        and signal.is_floating_point()
        and signal.numel() > 0
        and weights.shape[-1] >= signal.shape[-1]
        and signal.numel() // signal.shape[-1] <= 65_535
        and (not starts or starts[0].is_floating_point())
        and is_only_recorded(weights, signal, *starts)
    )


def convolve_tracked(
    weights: Tensor,
    signal: Tensor,
    starts: Tensor | None,
    *,
    composed: Composition,
    differences: bool = False,
    starts_from: int = 0,
) -> Tensor:
    """The sum with the options of the primitive; ``composed`` computes the same by PyTorch operations."""
    if weights.shape[-1] > signal.shape[-1]:
        weights = weights[: signal.shape[-1]]
    weights = weights.to(signal.dtype)
    starts = None if starts is None else starts.to(signal.dtype)
    result: Tensor = _TrackedSum.apply(weights, signal, starts, bool(differences), int(starts_from), composed)
    return result


def _back(transform: Tensor, size: int, norm: str = "forward") -> Tensor:
    return torch.fft.irfft(transform, n=size, norm=norm)


class _TrackedSum(torch.autograd.Function):
    """The sum of weights, signal and starting weights, all of which may have gradients."""

    @staticmethod
    def forward(
        ctx: Any,
        weights: Tensor,
        signal: Tensor,
        starts: Tensor | None,
        differences: bool,
        first: int,
        composed: Composition,
    ) -> Tensor:
        n = signal.shape[-1]
        ctx.save_for_backward(weights, signal, starts)
        ctx.options = differences, first, composed
        size = fast_length(2 * n - 1)
        bare = signal.detach().contiguous()
        begun = None if starts is None else starts.detach().contiguous()
        if bare.is_cuda and fused.is_available():
            of_weights = torch.fft.rfft(weights.detach(), n=size)
            padded, ctx.bad, _ = fused.pad_and_clean(bare, size, differences=differences)
            transform = torch.fft.rfft(padded)
            result = fused.cut_and_taint(
                _back(transform * of_weights, size),
                ctx.bad,
                n,
                differences=differences,
                signal=bare,
                starts=begun,
                first=first,
                scaled=True,
            )
        else:
            of_weights = torch.fft.rfft(weights.detach(), n=size) / size
            result, transform, ctx.bad = _sum_in_passes(bare, of_weights, size, differences, begun, first)
        ctx.of_weights, ctx.transform, ctx.size = of_weights, transform, size
        return result

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Any, ...]:
        weights, signal, starts = ctx.saved_tensors
        differences, first, composed = ctx.options
        if torch.is_grad_enabled() or is_batched(slope):
            return _back_composed(weights, signal, starts, slope, differences, first, composed)
        wanted = ctx.needs_input_grad
        of_weights, size, n = ctx.of_weights, ctx.size, signal.shape[-1]
        begun = None if starts is None else starts.detach().contiguous()
        slope = slope.contiguous()
        by_signal = by_weights = by_starts = worse = None
        if signal.is_cuda and fused.is_available():
            padded, worse, sums = fused.pad_and_clean(
                slope, size, limit=ctx.bad, backwards=True, starts=begun, first=first
            )
            turned = torch.fft.rfft(padded)
            if wanted[1]:
                by_signal = fused.cut_and_taint(
                    _back(turned * of_weights, size),
                    worse,
                    n,
                    backwards=True,
                    differences=differences,
                    starts=begun,
                    first=first,
                    sums=sums,
                    scaled=True,
                )
        else:
            if ctx.bad is not None:
                slope = slope.masked_fill(ctx.bad, 0.0)
            padded = slope.flip(-1)
            turned = torch.fft.rfft(padded, n=size)
            if wanted[1]:
                by_signal = _back(turned * of_weights, size)[..., :n].flip(-1)
                by_first = None
                for j in range(0 if begun is None else begun.shape[0]):
                    assert begun is not None
                    place = first + j
                    change = (slope[..., place:] * begun[j, place:]).sum(-1)
                    if place:
                        by_signal[..., place] += change
                    else:
                        by_first = change
                by_signal = _adjoint(by_signal) if differences else by_signal
                if by_first is not None:
                    by_signal[..., 0] += by_first
        if wanted[0]:
            product = turned * ctx.transform
            product = product.sum(tuple(range(product.ndim - 1))) if product.ndim > 1 else product
            if worse is None:
                by_weights = _back(product, size, "backward")[:n].flip(-1)
            else:
                # Non-finite gradients were set to 0 for the transform.
                by_weights = fused.cut_and_taint(
                    _back(product, size), worse, n, backwards=True, scaled=True, whole=True
                )
        if wanted[2] and worse is not None and starts.shape[-1] == n:
            by_starts = fused.start_slopes(
                padded, signal.detach().contiguous(), starts.shape[0], differences=differences, first=first
            )
        elif wanted[2]:
            by_starts = _slope_of_starts(padded, signal.detach(), starts, differences, first)
        return by_weights, by_signal, by_starts, None, None, None


def _adjoint(slope: Tensor) -> Tensor:
    """The transpose of differences, whose first is 0."""
    slope = functional.pad(slope[..., 1:], (1, 1))
    return slope[..., :-1] - slope[..., 1:]


def _sum_in_passes(
    signal: Tensor, of_weights: Tensor, size: int, differences: bool, starts: Tensor | None, first: int
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The sum by PyTorch operations, the transform of its summands, and the points affected by non-finite samples."""
    n = signal.shape[-1]
    summands = _differences(namespace("torch"), signal) if differences else signal
    transform = torch.fft.rfft(summands, n=size)
    # Copied: a view would keep the padded product alive, and PyTorch refuses to write to it.
    result = _back(transform * of_weights, size)[..., :n].clone()
    bad = None
    # On the host a non-finite sample shows in the first output of its row; elsewhere reading would synchronise.
    if not signal.is_cpu or not bool(torch.isfinite(result[..., 0]).all()):
        transform = torch.fft.rfft(_clean(summands), n=size)
        bad = torch.cumsum(~torch.isfinite(summands), -1) > 0
        result = _back(transform * of_weights, size)[..., :n].masked_fill(bad, torch.nan)
    for j in range(0 if starts is None else starts.shape[0]):
        assert starts is not None
        place = first + j
        sample = summands[..., place : place + 1] if place else signal[..., :1]  # the first sample has no difference
        result[..., place:].addcmul_(sample, starts[j, place:])
    return result, transform, bad


def _clean(signal: Tensor) -> Tensor:
    """``signal`` with 0 for non-finite samples."""
    return torch.nan_to_num(signal, nan=0.0, posinf=0.0, neginf=0.0)


def _slope_of_starts(backwards: Tensor, signal: Tensor, starts: Tensor, differences: bool, first: int) -> Tensor:
    """The gradient of the starting weights, from reversed gradients that are 0 after non-finite samples."""
    n = signal.shape[-1]
    rows = []
    for j in range(starts.shape[0]):
        place = first + j
        sample = signal[..., place : place + 1]
        if differences and place:
            sample = sample - signal[..., place - 1 : place]
        products = backwards[..., : n - place] * _clean(sample)
        row = products.sum(tuple(range(products.ndim - 1))) if products.ndim > 1 else products
        rows.append(functional.pad(row.flip(-1), (starts.shape[-1] - row.shape[-1], 0)))
    return torch.stack(rows) if len(rows) > 1 else rows[0].unsqueeze(0)


def _back_composed(
    weights: Tensor,
    signal: Tensor,
    starts: Tensor | None,
    slope: Tensor,
    differences: bool,
    first: int,
    composed: Composition,
) -> tuple[Any, ...]:
    """The gradients by differentiating the composition, which supports further derivatives."""
    create = torch.is_grad_enabled()
    with torch.enable_grad():
        after = () if starts is None else (starts,)
        result = composed(weights, signal, *after, differences=differences, starts_from=first)
        wanted = [tensor for tensor in (weights, signal, starts) if tensor is not None and tensor.requires_grad]
        found = iter(torch.autograd.grad(result, wanted, slope, create_graph=create))
    given = (weights, signal, starts)
    slopes = [next(found) if one is not None and one.requires_grad else None for one in given]
    return (*slopes, None, None, None)

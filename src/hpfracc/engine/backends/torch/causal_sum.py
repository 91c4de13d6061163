"""The causal sum by FFT as one node of autograd: with differentiable weights, or on a GPU with their cached transform.

Recorded operation by operation, the transforms of signal and weights are differentiated as complex transforms of full
length, and each pass over the points stores a buffer. As one node it needs six real transforms, three forward and three
backward: the reversed incoming gradient is transformed once, and its products with the two stored transforms give the
gradients of the signal and of the weights. With a cached transform of the weights only the positions of non-finite
samples are stored for the derivative, not the signal. Second derivatives and gradients mapped by ``vmap`` use the
composition of PyTorch operations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from hpfracc._arrays import dtype_name
from hpfracc._torch_transforms import is_batched
from hpfracc.engine.backends.generic.causal_convolution import PreparedWeights
from hpfracc.engine.backends.torch import fused
from hpfracc.engine.backends.torch.tracking import is_eager, is_only_recorded
from hpfracc.engine.numerics.lengths import fast_length

#: ``composed(weights, signal, *starts)``: the same sum by PyTorch operations.
Composition = Callable[..., Tensor]


class _Options(NamedTuple):
    """The options of the primitive, the composition, and the cached transform of the weights over its length."""

    differences: bool
    first: int
    composed: Composition
    size: int
    transform: Tensor | None = None


def _fits(signal: Tensor, *others: Tensor) -> bool:
    """Whether rows are real, not more than the second axis of a launch allows, and recorded by autograd alone."""
    return (
        signal.is_floating_point()
        and signal.numel() > 0
        and signal.numel() // signal.shape[-1] <= 65_535
        and is_only_recorded(signal, *others)
    )


def fits_tracked(weights: Tensor, signal: Tensor, *starts: Tensor) -> bool:
    """Whether there is one row of real weights, as long as the signal, that autograd records."""
    return (
        weights.requires_grad
        and torch.is_grad_enabled()
        and weights.ndim == 1
        and not weights.is_complex()
        and weights.shape[-1] >= signal.shape[-1]
        and (not starts or starts[0].is_floating_point())
        and _fits(signal, weights, *starts)
    )


def fits_prepared(prepared: PreparedWeights, signal: Tensor, *starts: Tensor) -> bool:
    """Whether the fused kernels of a GPU apply, and nothing tracks the weights.

    One row of weights for all rows, so that a row of the product is a row of the signal, and each non-finite sample
    affects the rest of its row.
    """
    transform, layout = prepared
    return (
        signal.is_cuda
        and dtype_name(signal) == layout.dtype
        and layout.taps >= signal.shape[-1]
        and math.prod(layout.rows) == 1
        and transform.ndim <= signal.ndim
        and fused.is_available()
        and not transform.requires_grad
        and not (starts and starts[0].requires_grad and torch.is_grad_enabled())
        and _fits(signal, transform, *starts)
    )


def convolve_tracked(
    weights: Tensor, signal: Tensor, *starts: Tensor, composed: Composition, differences: bool, starts_from: int
) -> Tensor:
    """The sum with weights that autograd records."""
    n = signal.shape[-1]
    options = _Options(differences, starts_from, composed, fast_length(2 * n - 1))
    begun = starts[0].to(signal.dtype) if starts else None
    used = weights[:n] if weights.shape[-1] > n else weights  # each step is recorded
    return _CausalSum.apply(used.to(signal.dtype), signal, begun, options)


def convolve_prepared(
    prepared: PreparedWeights,
    signal: Tensor,
    *starts: Tensor,
    composed: Composition,
    differences: bool,
    starts_from: int,
) -> Tensor:
    """The sum with a cached transform of the weights, recorded if the signal is; ``composed`` gets None for them."""
    options = _Options(differences, starts_from, composed, prepared.layout.size, prepared.operator)
    begun = starts[0] if starts else None
    if is_eager(signal):
        return _sum(prepared.operator, signal, begun, options, False)[0]
    return _CausalSum.apply(None, signal, begun, options)


def _sum(
    of_weights: Tensor, signal: Tensor, starts: Tensor | None, options: _Options, keep: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The sum, the transform of its summands if it is to be kept, and records of non-finite samples."""
    signal = signal.contiguous()
    padded, bad, _ = fused.pad_and_clean(signal, options.size, differences=options.differences)
    transform = torch.fft.rfft(padded, n=options.size)
    product = torch.fft.irfft(
        transform * of_weights if keep else transform.mul_(of_weights), n=options.size, norm="forward"
    )
    result = fused.cut_and_taint(
        product,
        bad,
        signal.shape[-1],
        differences=options.differences,
        signal=signal,
        starts=None if starts is None else starts.contiguous(),
        first=options.first,
    )
    return result, transform, bad


class _CausalSum(torch.autograd.Function):
    """The sum of weights, signal and starting weights, all of which may have gradients."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor | None, signal: Tensor, starts: Tensor | None, options: _Options) -> Tensor:
        of_weights = options.transform
        if weights is not None:
            of_weights = torch.fft.rfft(weights.detach(), n=options.size) / options.size
        assert of_weights is not None
        begun = None if starts is None else starts.detach()
        keep = weights is not None and weights.requires_grad
        result, transform, ctx.bad = _sum(of_weights, signal.detach(), begun, options, keep)
        ctx.save_for_backward(weights, None if weights is None else signal, starts)
        # Neither operands nor results, so they may be stored directly.
        ctx.options, ctx.of_weights, ctx.transform = options, of_weights, transform if keep else None
        ctx.shape = signal.shape
        return result

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled() or is_batched(slope) or not is_only_recorded(slope):
            return _slopes_composed(ctx, slope)
        _, signal, starts = ctx.saved_tensors
        differences, first, _, size, _ = ctx.options
        n, wanted = slope.shape[-1], ctx.needs_input_grad
        begun = None if starts is None or not wanted[1] else starts.detach().contiguous()
        # The contributions of the starting weights are summed during padding, and added during truncation.
        padded, bad, sums = fused.pad_and_clean(
            slope.contiguous(), size, limit=ctx.bad, backwards=True, starts=begun, first=first
        )
        turned = torch.fft.rfft(padded, n=size)
        by_weights = by_signal = by_starts = None
        if wanted[0]:
            product = (turned * ctx.transform).reshape(-1, turned.shape[-1]).sum(0)
            by_weights = torch.fft.irfft(product, n=size)[:n].flip(-1)
            if bad is not None:  # non-finite gradients were set to 0 for the transform
                by_weights = torch.where(fused.affected(bad, slope.shape).any(), torch.nan, by_weights)
        if wanted[1]:
            by_signal = fused.cut_and_taint(
                torch.fft.irfft(turned.mul_(ctx.of_weights), n=size, norm="forward"),
                bad,
                n,
                backwards=True,
                differences=differences,
                starts=begun,
                first=first,
                sums=sums,
            )
        if wanted[2]:
            by_starts = _slope_of_starts(padded[..., :n], signal.detach(), starts.shape[0], differences, first)
        return by_weights, by_signal, by_starts, None


def _slope_of_starts(backwards: Tensor, signal: Tensor, count: int, differences: bool, first: int) -> Tensor:
    """The gradient of the starting weights, from reversed gradients that are 0 after non-finite samples."""
    n = signal.shape[-1]
    samples = signal[..., first : first + count]
    if differences:  # the first sample has none
        before = signal[..., max(first - 1, 0) : first + count - 1]
        samples = samples - (before if first else functional.pad(before, (1, 0)))
    samples = torch.nan_to_num(samples, nan=0.0, posinf=0.0, neginf=0.0).reshape(-1, count)
    rows = backwards.reshape(-1, n)
    # Not a matrix product, which would lose digits if TF32 is allowed.
    slopes = torch.stack([(rows * samples[:, j : j + 1]).sum(0) for j in range(count)]).flip(-1)
    # Row j has weights from point ``first + j`` on.
    return slopes.triu(first)


def _slopes_composed(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
    """The gradients by differentiating the composition, which supports further derivatives."""
    weights, signal, starts = ctx.saved_tensors
    create = torch.is_grad_enabled()
    if signal is None:
        # The sum is linear in the signal: only the places after non-finite samples matter.
        like = ctx.of_weights.real
        signal = torch.zeros(ctx.shape, dtype=like.dtype, device=like.device, requires_grad=True)
    with torch.enable_grad():
        given = weights, signal, starts
        samples = signal
        if weights is None and ctx.bad is not None:
            samples = signal.masked_fill(fused.affected(ctx.bad, ctx.shape), torch.nan)
        result = ctx.options.composed(weights, samples, *(() if starts is None else (starts,)))
        wanted = [tensor for tensor in given if tensor is not None and tensor.requires_grad]
        found = iter(torch.autograd.grad(result, wanted, slope, create_graph=create))
    return (*(next(found) if one is not None and one.requires_grad else None for one in given), None)

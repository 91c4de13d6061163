"""Causal convolution in PyTorch: a Toeplitz product, one padded FFT, or FFTs of blocks.

Compositions of PyTorch operations, which support autograd (also twice), ``torch.func`` and complex numbers, in the
weights too; buffers are written in place only if nothing tracks them. Non-finite samples: ``nonfinite.py``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.generic.causal_convolution import with_starts
from hpfracc.engine.backends.torch.fused_sum import (
    PaddedSpectrum,
    SumOptions,
    convolve_fused,
    fits_fused,
    make_spectrum,
    spectral_product,
)
from hpfracc.engine.backends.torch.nonfinite import apply_causally, mark_reached
from hpfracc.engine.backends.torch.tracked_sum import convolve_tracked, fits_tracked
from hpfracc.engine.backends.torch.tracking import is_eager, is_only_recorded, untracked
from hpfracc.engine.numerics.lengths import block_length, fast_length
from hpfracc.engine.primitives.base import Call

__all__ = ["KERNELS"]

#: Maximum number of products that are summed one by one on an accelerator, 32 MiB in float64; above, a matrix product
#: is used.
_MAX_PRODUCTS = 2**22


class Matrix(NamedTuple):
    """The weights as a matrix, ``y = x @ matrix``, and the dtype of the result.

    ``outside`` marks, on an accelerator, elements without a weight: above the diagonal, and beyond the taps.
    """

    matrix: Tensor
    outside: Tensor | None
    taps: int
    dtype: torch.dtype


def _operands(weights: Tensor, signal: Tensor) -> tuple[Tensor, Tensor]:
    """Both in the dtype of the result, with no more weights than points."""
    inexact = signal.is_floating_point() or signal.is_complex()
    if weights.dtype != signal.dtype or not inexact:
        dtype = signal.dtype if inexact else torch.float64
        if weights.is_complex():
            dtype = dtype.to_complex()
        weights, signal = weights.to(dtype), signal.to(dtype)
    return _cut(weights, signal.shape[-1]), signal


def _cut(tensor: Tensor, n: int) -> Tensor:
    return tensor if tensor.shape[-1] <= n else tensor[..., :n]


def _weights_for(weights: Tensor, call: Call) -> Tensor:
    return _cut(weights.to(getattr(torch, call.dtype)), call.length)


def _sum_of_nothing(batch: torch.Size, signal: Tensor, taps: int) -> Tensor | None:
    """The result if there are no points, rows or weights; otherwise None."""
    if taps and signal.numel() and 0 not in batch:
        return None
    return signal.new_zeros(torch.broadcast_shapes((*batch, 1), signal.shape))


# Direct: multiply with the Toeplitz matrix of the weights.


def _hankel(weights: Tensor, n: int) -> Tensor:
    """``H[a, b] = weights[a + b - (n - 1)]``, 0 outside: with it ``flip(x) @ H`` is the convolution."""
    padded = functional.pad(_widen(weights), (n - 1, n + 1 - weights.shape[-1]))
    if is_eager(weights):
        return padded.unfold(-1, n, 1)[..., :n, :]
    # The view above has no batched derivative. Rows of 2n + 1 out of repeated rows of 2n begin one further each.
    skewed = padded.unsqueeze(-2).expand(*padded.shape[:-1], n + 1, 2 * n).flatten(-2)
    return skewed[..., : n * (2 * n + 1)].unflatten(-1, (n, 2 * n + 1))[..., :n]


def _multiply(signal: Tensor, matrix: Tensor, dtype: torch.dtype) -> Tensor:
    signal = _widen(signal)
    if matrix.ndim == 2:
        return torch.matmul(signal, matrix).to(dtype)
    if matrix.shape[-3] == 1 and signal.ndim > 1:
        # One matrix for many rows: a matrix product, because batching would copy the matrix for each row.
        return torch.matmul(signal, matrix.squeeze(-3)).to(dtype)
    return torch.matmul(signal.unsqueeze(-2), matrix).squeeze(-2).to(dtype)


def _widen(tensor: Tensor) -> Tensor:
    """Single precision as double on a GPU, because the user may have enabled TF32 for matrix products."""
    if tensor.is_cpu:
        return tensor
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def convolve_direct(weights: Tensor, signal: Tensor) -> Tensor:
    """The sum as a product with an n x n matrix: the fastest for short signals, and only for those."""
    weights, signal = _operands(weights, signal)
    n, taps = signal.shape[-1], weights.shape[-1]
    nothing = _sum_of_nothing(weights.shape[:-1], signal, taps)
    if nothing is not None:
        return nothing
    matrix = _hankel(weights, n)
    return apply_causally(lambda x: _multiply(x.flip(-1), matrix, signal.dtype), signal, taps)


@untracked
def prepare_direct(weights: Tensor, call: Call) -> Matrix:
    """The matrix, in the order of the signal."""
    weights = _weights_for(weights, call)
    n, taps = call.length, weights.shape[-1]
    if not n:
        return Matrix(weights.unsqueeze(-1), None, taps, weights.dtype)
    outside = None
    if not weights.is_cpu:
        points = torch.arange(n, device=weights.device)
        lag = points - points.unsqueeze(-1)
        outside = (lag < 0) | (lag >= taps)
    return Matrix(_hankel(weights, n).flip(-2), outside, taps, weights.dtype)


def apply_direct(prepared: Matrix, signal: Tensor) -> Tensor:
    """Multiply with a cached matrix."""
    if signal.dtype != prepared.dtype:
        signal = signal.to(prepared.dtype)
    nothing = _sum_of_nothing(prepared.matrix.shape[:-2], signal, prepared.taps)
    if nothing is not None:
        return nothing
    products = signal.numel() * prepared.matrix.numel() // signal.shape[-1]
    if prepared.outside is not None and products <= _MAX_PRODUCTS and is_eager(signal, prepared.matrix):
        # Three launches; elements outside a sum are masked, so a non-finite sample needs no repair.
        terms = _widen(signal).unsqueeze(-1) * prepared.matrix
        return terms.masked_fill_(prepared.outside, 0).sum(-2).to(prepared.dtype)
    return apply_causally(lambda x: _multiply(x, prepared.matrix, prepared.dtype), signal, prepared.taps)


# FFT: one transform of everything, padded so that the cyclic product does not wrap into the first n points.


def convolve_fft(weights: Tensor, signal: Tensor) -> Tensor:
    """Transform, multiply, transform back."""
    weights, signal = _operands(weights, signal)
    nothing = _sum_of_nothing(weights.shape[:-1], signal, weights.shape[-1])
    if nothing is not None:
        return nothing
    return apply_fft(make_spectrum(weights, fast_length(signal.shape[-1] + weights.shape[-1] - 1)), signal)


@untracked
def prepare_fft(weights: Tensor, call: Call) -> PaddedSpectrum:
    """The transform of the weights, for signals of ``call.length`` points."""
    weights = _weights_for(weights, call)
    return make_spectrum(weights, fast_length(max(1, call.length + weights.shape[-1] - 1)))


def apply_fft(prepared: PaddedSpectrum, signal: Tensor) -> Tensor:
    """Convolve with weights whose transform is cached: two transforms instead of three."""
    if signal.dtype != prepared.dtype:
        signal = signal.to(prepared.dtype)
    nothing = _sum_of_nothing(prepared.transform.shape[:-1], signal, prepared.taps)
    if nothing is not None:
        return nothing
    if fits_fused(prepared, signal):
        return convolve_fused(signal, prepared)
    n = signal.shape[-1]
    eager = is_eager(signal, prepared.transform)
    if eager and not signal.is_cpu and not signal.is_complex():
        # Cleaned while copied into the padded buffer, marked while copied out of it; both copies are needed anyway.
        padded = torch.empty((*signal.shape[:-1], prepared.size), dtype=signal.dtype, device=signal.device)
        padded[..., n:].zero_()
        torch.nan_to_num(signal, nan=0.0, posinf=0.0, neginf=0.0, out=padded[..., :n])
        return mark_reached(_cut(spectral_product(padded, prepared, eager), n), signal, prepared.taps)
    return apply_causally(lambda x: _cut(spectral_product(x, prepared, eager), n), signal, prepared.taps)


# Blocked: the signal in blocks a few times as long as the weights; what hangs over is added to the next block.


def convolve_blocked(weights: Tensor, signal: Tensor) -> Tensor:
    """Overlap-add: the work is ``n log(taps)`` instead of ``n log(n)``, and each block stays in cache."""
    weights, signal = _operands(weights, signal)
    nothing = _sum_of_nothing(weights.shape[:-1], signal, weights.shape[-1])
    if nothing is not None:
        return nothing
    return apply_blocked(make_spectrum(weights, block_length(weights.shape[-1])), signal)


@untracked
def prepare_blocked(weights: Tensor, call: Call) -> PaddedSpectrum:
    """The transform of the weights, as long as a block."""
    weights = _weights_for(weights, call)
    return make_spectrum(weights, block_length(weights.shape[-1]))


def apply_blocked(prepared: PaddedSpectrum, signal: Tensor) -> Tensor:
    """Convolve block by block with weights whose transform is cached."""
    if signal.dtype != prepared.dtype:
        signal = signal.to(prepared.dtype)
    nothing = _sum_of_nothing(prepared.transform.shape[:-1], signal, prepared.taps)
    if nothing is not None:
        return nothing
    n, overlap = signal.shape[-1], prepared.taps - 1
    step = prepared.size - overlap
    blocks = -(-n // step)
    spectrum = prepared._replace(transform=prepared.transform.unsqueeze(-2))
    eager = is_eager(signal, prepared.transform)

    def product(x: Tensor) -> Tensor:
        rows = functional.pad(x, (0, blocks * step - n)).unflatten(-1, (blocks, step))
        pieces = spectral_product(rows, spectrum, eager)
        result = pieces[..., :step]
        if overlap and blocks > 1:
            hanging = pieces[..., :-1, step:]
            if eager:
                result[..., 1:, :overlap] += hanging
            else:
                result = result + functional.pad(hanging, (0, step - overlap, 1, 0))
        return _cut(result.flatten(-2), n)

    # A non-finite sample affects the first point of its own block only.
    return apply_causally(product, signal, prepared.taps, lambda result: result[..., ::step])


# Differences and starting weights. As slices, a difference and a concatenation, the derivative of a million
# differences would fill half a dozen buffers; it is itself a difference, and needs one.


def differences(signal: Tensor) -> Tensor:
    """``signal[n] - signal[n-1]`` along the last axis, 0 at the first point."""
    if is_eager(signal):
        return _differences(signal)
    if is_only_recorded(signal):
        result: Tensor = _Differences.apply(signal)
        return result
    return torch.cat([signal[..., :1] - signal[..., :1], signal[..., 1:] - signal[..., :-1]], -1)


def add_starts(result: Tensor, signal: Tensor, summands: Tensor, starts: Tensor, first: int) -> Tensor:
    """``result`` with ``starts[j] * summands[..., first + j]`` added from that point on, in place if possible.

    The first sample has no difference: it is multiplied itself.
    """
    eager = is_eager(result, summands, starts)
    for j in range(first, first + starts.shape[0]):
        sample, row = (summands if j else signal)[..., j : j + 1], starts[j - first, j:]
        if eager:
            result[..., j:].addcmul_(sample, row)
        else:
            result = result + functional.pad(sample * row, (j, 0))
    return result


def _differences(signal: Tensor) -> Tensor:
    result = signal.new_empty(signal.shape)
    torch.sub(signal[..., 1:], signal[..., :-1], out=result[..., 1:])
    # Computed, not set to 0: it is nan if the first sample is not finite.
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
    """The derivative of :class:`_Differences`, whose own derivative is :class:`_Differences`."""

    @staticmethod
    def forward(ctx: Any, slope: Tensor) -> Tensor:
        return _adjoint(slope.detach())

    @staticmethod
    def backward(ctx: Any, change: Tensor) -> Tensor:
        result: Tensor = _Differences.apply(change)
        return result


_PLAIN: dict[str, Kernel] = {
    "direct": Kernel(convolve_direct, prepare_direct, apply_direct),
    "fft": Kernel(convolve_fft, prepare_fft, apply_fft),
    "blocked": Kernel(convolve_blocked, prepare_blocked, apply_blocked),
}
KERNELS: dict[str, Kernel] = {name: with_starts(kernel, differences, add_starts) for name, kernel in _PLAIN.items()}
_COMPOSED = KERNELS["fft"].apply


def _apply_fft_with_starts(
    prepared: PaddedSpectrum, signal: Tensor, *starts: Tensor, differences: bool = False, starts_from: int = 0
) -> Tensor:
    """:func:`apply_fft` with the options of the primitive: fused with the copies around the transforms, if possible."""
    if signal.dtype == prepared.dtype and signal.numel() and fits_fused(prepared, signal, *starts):
        return convolve_fused(signal, prepared, SumOptions(differences, starts[0] if starts else None, starts_from))
    assert _COMPOSED is not None
    result: Tensor = _COMPOSED(prepared, signal, *starts, differences=differences, starts_from=starts_from)
    return result


_RUN_COMPOSED = KERNELS["fft"].run


def _run_fft_with_starts(
    weights: Tensor, signal: Tensor, *starts: Tensor, differences: bool = False, starts_from: int = 0
) -> Tensor:
    """:func:`convolve_fft` with the options of the primitive: one step of autograd if the weights are recorded."""
    if fits_tracked(weights, signal, *starts):
        given = starts[0] if starts else None
        both = _differences, _adjoint
        return convolve_tracked(weights, signal, given, bool(differences), int(starts_from), _RUN_COMPOSED, both)
    result: Tensor = _RUN_COMPOSED(weights, signal, *starts, differences=differences, starts_from=starts_from)
    return result


def _run_fft(weights: Tensor, signal: Tensor) -> Tensor:
    return _run_fft_with_starts(weights, signal)


KERNELS["fft"] = replace(
    KERNELS["fft"],
    run=_run_fft_with_starts,
    apply=_apply_fft_with_starts,
    plain=replace(_PLAIN["fft"], run=_run_fft),
)

"""Symmetric Toeplitz products in PyTorch: with the matrix, or by one padded FFT.

Compositions of PyTorch operations, which support autograd (also twice), ``torch.func`` and complex numbers, in the
weights too. A non-finite sample affects only its own outputs, as in ``nonfinite.py``: checked on the host, always
repaired elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.torch.nonfinite import clean
from hpfracc.engine.backends.torch.tracking import is_eager, is_readable, untracked
from hpfracc.engine.primitives.base import Call
from hpfracc.engine.primitives.toeplitz_apply import ToeplitzApply, padded_sizes, read_axes

__all__ = ["KERNELS"]

_CONTRACT = ToeplitzApply()


class Prepared(NamedTuple):
    """The cached form of the weights: their matrix along the last axis, or their transform padded to ``sizes``.

    ``used`` are the taps along each axis, ``rows`` the shape of the weights without them.
    """

    operator: Tensor
    sizes: tuple[int, ...]
    used: tuple[int, ...]
    rows: tuple[int, ...]


def _nothing(prepared: Prepared, signal: Tensor) -> Tensor | None:
    """The result if there are no points, rows or weights; otherwise None."""
    if prepared.operator.numel() and signal.numel():
        return None
    return signal.new_zeros(torch.broadcast_shapes(prepared.rows, signal.shape))


def _kept_apart(product: Callable[[Tensor], Tensor], signal: Tensor, axes: tuple[int, ...], used: Any) -> Tensor:
    """``product(signal)``, with nan at exactly the outputs that depend on a non-finite sample."""
    if all(taps >= signal.shape[axis] for axis, taps in zip(axes, used, strict=True)):
        return product(signal)  # all outputs of its transform, as in the product
    if is_readable(signal):
        result = product(signal)
        seen = result
        for axis in axes:
            seen = seen.narrow(axis, 0, 1)
        if torch.isfinite(seen.detach()).all():
            return result
    result = product(clean(signal))
    bad = ~torch.isfinite(signal.detach())
    for axis, taps in zip(axes, used, strict=True):
        bad = _reach(bad.movedim(axis, -1), taps).movedim(-1, axis)
    return torch.where(bad, torch.full((), torch.nan, dtype=result.dtype, device=result.device), result)


def _reach(bad: Tensor, taps: int) -> Tensor:
    """Whether a sample within ``taps``, along the last axis, is non-finite, by doubling windows."""
    width = 1
    while width < taps:
        shift = min(width, taps - width, bad.shape[-1])
        later, earlier = bad[..., shift:], bad[..., : bad.shape[-1] - shift]
        bad = bad | functional.pad(earlier, (shift, 0)) | functional.pad(later, (0, shift))
        width += shift
    return bad


# Direct: multiply with the Toeplitz matrix of the weights.


def apply_direct(weights: Tensor, signal: Tensor, axes: Any = -1) -> Tensor:
    """The sum as a product with an n x n matrix, for short signals."""
    call = _CONTRACT.describe(weights, signal, axes=axes)
    return _multiply(_matrix(weights, call), signal, call.facts["axes"])


@untracked
def prepare_direct(weights: Tensor, call: Call) -> Prepared:
    """The matrix."""
    return _matrix(weights.to(getattr(torch, call.dtype)), call)


def apply_matrix(prepared: Prepared, signal: Tensor, axes: Any = -1) -> Tensor:
    """Multiply with a cached matrix."""
    return _multiply(prepared, signal, read_axes(axes, signal.ndim))


def _matrix(weights: Tensor, call: Call) -> Prepared:
    (axis,), (n,), (taps,) = call.facts["axes"], call.facts["points"], call.facts["used"]
    weights = _widen(weights.movedim(axis, -1)[..., :taps])
    if weights.numel() and n:
        points = torch.arange(n, device=weights.device)
        lags = (points - points.unsqueeze(-1)).abs()
        weights = functional.pad(weights, (0, n - taps))[..., lags]
    return Prepared(weights, (n,), (taps,), call.facts["rows"])


def _multiply(prepared: Prepared, signal: Tensor, axes: tuple[int, ...]) -> Tensor:
    nothing = _nothing(prepared, signal)
    if nothing is not None:
        return nothing

    def product(x: Tensor) -> Tensor:
        rows = _widen(x.movedim(axes[0], -1))
        if prepared.operator.ndim == 2:
            made = torch.matmul(rows, prepared.operator)
        elif prepared.operator.shape[-3] == 1 and rows.ndim > 1:
            # One matrix for many rows: a matrix product, because batching would copy the matrix for each row.
            made = torch.matmul(rows, prepared.operator.squeeze(-3))
        else:
            made = torch.matmul(rows.unsqueeze(-2), prepared.operator).squeeze(-2)
        return made.to(x.dtype).movedim(-1, axes[0])

    return _kept_apart(product, signal, axes, prepared.used)


def _widen(tensor: Tensor) -> Tensor:
    """Single precision as double on a GPU, because the user may have enabled TF32 for matrix products."""
    if tensor.is_cpu:
        return tensor
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


# FFT: padded, so that the cyclic sum does not wrap into the signal's own points.


def apply_fft(weights: Tensor, signal: Tensor, axes: Any = -1) -> Tensor:
    """Transform, multiply, transform back."""
    call = _CONTRACT.describe(weights, signal, axes=axes)
    return _transform_and_back(_spectrum(weights, call), signal, call.facts["axes"])


@untracked
def prepare_fft(weights: Tensor, call: Call) -> Prepared:
    """The transform of the weights for signals of that length."""
    return _spectrum(weights.to(getattr(torch, call.dtype)), call)


def apply_spectrum(prepared: Prepared, signal: Tensor, axes: Any = -1) -> Tensor:
    """Apply weights whose transform is cached: two transforms instead of three."""
    return _transform_and_back(prepared, signal, read_axes(axes, signal.ndim))


def _spectrum(weights: Tensor, call: Call) -> Prepared:
    axes, used = call.facts["axes"], call.facts["used"]
    sizes = padded_sizes(call.facts["points"], used)
    if not weights.numel() or not call.facts["taps"]:
        return Prepared(weights[..., :0], sizes, used, call.facts["rows"])
    for axis, taps, size in zip(axes, used, sizes, strict=True):
        half = weights.movedim(axis, -1)[..., :taps]
        whole = torch.cat([functional.pad(half, (0, size - 2 * taps + 1)), half[..., 1:].flip(-1)], -1)
        weights = whole.movedim(-1, axis)
    if weights.is_complex():
        return Prepared(torch.fft.fftn(weights, dim=axes), sizes, used, call.facts["rows"])
    # Even in every axis, so that its transform is real.
    transform = torch.fft.rfftn(weights, dim=axes).real.contiguous()
    return Prepared(transform, sizes, used, call.facts["rows"])


def _transform_and_back(prepared: Prepared, signal: Tensor, axes: tuple[int, ...]) -> Tensor:
    nothing = _nothing(prepared, signal)
    if nothing is not None:
        return nothing
    forward, back = (torch.fft.fftn, torch.fft.ifftn) if signal.is_complex() else (torch.fft.rfftn, torch.fft.irfftn)
    points = [signal.shape[axis] for axis in axes]
    eager = is_eager(signal, prepared.operator)

    def product(x: Tensor) -> Tensor:
        spectrum = forward(x, s=prepared.sizes, dim=axes)
        fits = eager and torch.broadcast_shapes(spectrum.shape, prepared.operator.shape) == spectrum.shape
        spectrum = spectrum.mul_(prepared.operator) if fits else spectrum * prepared.operator
        full = back(spectrum, s=prepared.sizes, dim=axes)
        for axis, n in zip(axes, points, strict=True):
            full = full.narrow(axis, 0, n)
        return full

    return _kept_apart(product, signal, axes, prepared.used)


KERNELS: dict[str, Kernel] = {
    "direct": Kernel(apply_direct, prepare_direct, apply_matrix),
    "fft": Kernel(apply_fft, prepare_fft, apply_spectrum),
}

"""Spectral multiplication in PyTorch: Fourier transforms of its own, cosines and sines composed of those.

Compositions of PyTorch's own operations, so that autograd (also twice) and ``torch.func`` go through, in the symbol
too. Nothing is sent from the host: phases are made where the signal is.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.torch.kept import kept
from hpfracc.engine.backends.torch.nonfinite import is_eager
from hpfracc.engine.numerics.trigonometric import Functions, backward, forward
from hpfracc.engine.primitives.base import Call
from hpfracc.engine.primitives.spectral_multiply import SpectralMultiply, is_half, plan_axes

__all__ = ["KERNELS"]

_CONTRACT = SpectralMultiply()


def _phases(count: int, n: int, like: Tensor) -> Tensor:
    angles = torch.arange(count, dtype=torch.float64, device=like.device) * (-math.pi / (2 * n))
    return torch.polar(torch.ones_like(angles), angles).to(like.dtype.to_complex())


_FUNCTIONS = Functions(
    rfft=torch.fft.rfft,
    irfft=lambda x, n: torch.fft.irfft(x, n),
    join=lambda parts: torch.cat(list(parts), -1),
    flip=lambda x: x.flip(-1),
    stack=lambda a, b: torch.stack((a, b)),
    interleave=lambda a, b: torch.stack((a, b), -1).flatten(-2),
    complex=torch.complex,
    phases=_phases,
    zeros=lambda x: torch.zeros_like(x[..., :1]),
    is_complex=torch.is_complex,
)


def multiply(symbol: Tensor, signal: Tensor, axes: Any = -1, kinds: Any = "fft", real: bool | None = None) -> Tensor:
    """Transform, multiply, transform back; cosines and sines innermost, while the numbers are real."""
    plan = plan_axes(axes, kinds, signal.ndim)
    as_real = not signal.is_complex() and (not symbol.is_complex() if real is None else real)
    if not signal.is_floating_point() and not signal.is_complex():
        signal = signal.to(torch.float64)
    symbol = _in_precision(symbol, signal.dtype)
    if not signal.numel() or not symbol.numel():
        call = _CONTRACT.describe(symbol, signal, axes=axes, kinds=kinds, real=real)
        return signal.new_zeros(call.shape, dtype=getattr(torch, call.dtype))
    n = signal.shape
    spectrum = signal
    for axis, kind in plan.waves:
        spectrum = forward(_FUNCTIONS, kind, spectrum.movedim(axis, -1)).movedim(-1, axis)
    if plan.turns:
        if as_real:
            spectrum, symbol = torch.fft.rfftn(spectrum, dim=plan.turns), _cut_symbol(symbol, plan.turns[-1], n)
        else:
            spectrum = torch.fft.fftn(spectrum, dim=plan.turns)
    elif not as_real and not spectrum.is_complex() and not symbol.is_complex():
        symbol = torch.complex(symbol, torch.zeros_like(symbol))
    spectrum = _product(spectrum, symbol, own=spectrum is not signal)
    if plan.turns:
        back = torch.fft.irfftn if as_real else torch.fft.ifftn
        spectrum = back(spectrum, s=[n[axis] for axis in plan.turns], dim=plan.turns)
    for axis, kind in reversed(plan.waves):
        spectrum = backward(_FUNCTIONS, kind, spectrum.movedim(axis, -1)).movedim(-1, axis)
    return spectrum


def _product(spectrum: Tensor, symbol: Tensor, own: bool) -> Tensor:
    """Written over the spectrum where it fits there and nothing tracks it."""
    fits = own and (spectrum.is_complex() or not symbol.is_complex())
    if fits and is_eager(spectrum, symbol) and torch.broadcast_shapes(spectrum.shape, symbol.shape) == spectrum.shape:
        return spectrum.mul_(symbol)
    return spectrum * symbol


def _cut_symbol(symbol: Tensor, axis: int, points: tuple[int, ...]) -> Tensor:
    """The frequencies from 0 up along the halved axis."""
    if symbol.ndim < -axis or symbol.shape[axis] == 1 or is_half(points[axis], symbol.shape[axis]):
        return symbol
    return symbol.narrow(axis, 0, points[axis] // 2 + 1)


def _in_precision(symbol: Tensor, dtype: torch.dtype) -> Tensor:
    return symbol.to(dtype.to_complex() if symbol.is_complex() else dtype.to_real())


@kept
def prepare(symbol: Tensor, call: Call) -> Tensor:
    """A copy in the precision of the work: what is kept must not change with the caller's tensor."""
    return _in_precision(symbol, getattr(torch, call.dtype)).clone(memory_format=torch.contiguous_format)


KERNELS: dict[str, Kernel] = {"fft": Kernel(multiply, prepare, multiply)}

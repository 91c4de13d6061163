"""The chirp transform in PyTorch: three transforms by MKL, pocketfft or cuFFT; autograd goes through all of it.

Phases are reduced outside of autograd and the derivative of the unreduced ones is put back, so that it is right too.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.torch.nonfinite import is_eager
from hpfracc.engine.numerics.chirp import Tools, chirps
from hpfracc.engine.primitives import PRIMITIVES
from hpfracc.engine.primitives.base import Call
from hpfracc.engine.primitives.chirp_transform import transform_length

__all__ = ["KERNELS"]


class Chirps(NamedTuple):
    """The chirp before, the transform of the one between, the one after, and the length of the transforms."""

    before: Tensor
    between: Tensor
    after: Tensor
    size: int


def _unit(t: Tensor) -> Tensor:
    angle = (2 * math.pi) * t
    return torch.complex(torch.cos(angle), torch.sin(angle))


def _tools(device: torch.device) -> Tools:
    return Tools(
        range=lambda start, stop: torch.arange(start, stop, dtype=torch.int64, device=device),
        float=lambda x: x.to(torch.float64),
        round=torch.round,
        hold=lambda x: x.detach(),
        unit=_unit,
        join=lambda parts: torch.cat(parts, -1),
        zeros=lambda like, count: like.new_zeros((*like.shape[:-1], count)),
    )


def prepare(rates: Tensor, call: Call) -> Chirps:
    """Chirps for ``call``, and the transform of the one that is convolved with, in the precision of the result."""
    given, points = call.length, call.facts["points"]
    size = transform_length(given, points)
    dtype = getattr(torch, call.facts["result"])
    rates = rates.to(torch.float64)
    if not given or not points or not rates.numel():
        nothing = rates.new_zeros((*rates.shape[:-1], 0), dtype=dtype)
        return Chirps(nothing, nothing, nothing, size)
    parts = chirps(_tools(rates.device), rates, given, points, call.facts["offsets"], size)
    return Chirps(parts[0].to(dtype), torch.fft.fft(parts[1]).to(dtype), parts[2].to(dtype), size)


def apply(prepared: Chirps, x: Tensor, **params: Any) -> Tensor:
    """Multiply, convolve, multiply, with chirps that were kept."""
    points = params.get("points")
    points = x.shape[-1] if points is None else points
    batch = torch.broadcast_shapes(x.shape[:-1], prepared.before.shape[:-1])
    if not x.shape[-1] or not points or 0 in batch:
        return prepared.before.new_zeros((*batch, points))
    eager = is_eager(x, *prepared[:3])
    spectrum = torch.fft.fft((x * prepared.before).to(prepared.before.dtype), n=prepared.size)
    # Where nothing tracks them, what is not needed any more makes room for what comes.
    spectrum = spectrum.mul_(prepared.between) if eager else spectrum * prepared.between
    spectrum = torch.fft.ifft(spectrum)
    return spectrum[..., :points] * prepared.after


def transform(x: Tensor, rates: Tensor, **params: Any) -> Tensor:
    """The chirp transform along the last axis."""
    call = PRIMITIVES["chirp_transform"].describe(x, rates, **params)
    return apply(prepare(rates, call), x, **params)


KERNELS: dict[str, Kernel] = {"fft": Kernel(transform, prepare, apply)}

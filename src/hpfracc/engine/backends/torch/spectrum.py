"""The transform of weights that is kept, and the product with it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Spectrum", "make_spectrum", "spectral_product"]


class Spectrum(NamedTuple):
    """The transform of the weights over ``size``, zero-padded to that many points, and the dtype of the result.

    The inverse transform is then taken without its factor: that would be a pass over all points.
    """

    transform: Tensor
    size: int
    taps: int
    dtype: torch.dtype


def make_spectrum(weights: Tensor, size: int) -> Spectrum:
    """Transform weights."""
    return Spectrum(_forward(weights, size) / size, size, weights.shape[-1], weights.dtype)


def spectral_product(signal: Tensor, spectrum: Spectrum, eager: bool) -> Tensor:
    """The cyclic convolution along the last axis, ``size`` points of it; ``eager`` if nothing tracks the tensors."""
    transform = _forward(signal, spectrum.size)
    # In place where the weights are one row, as they mostly are: then the product has the shape of the signal's.
    fits = spectrum.transform.numel() == spectrum.transform.shape[-1] and spectrum.transform.ndim <= transform.ndim
    product = transform.mul_(spectrum.transform) if eager and fits else transform * spectrum.transform
    if signal.is_complex():
        return torch.fft.ifft(product, norm="forward")
    return torch.fft.irfft(product, n=spectrum.size, norm="forward")


def _forward(tensor: Tensor, size: int) -> Tensor:
    if tensor.is_complex():
        return torch.fft.fft(tensor, n=size)
    # A row that is as long already is not looked at twice.
    return torch.fft.rfft(tensor) if tensor.shape[-1] == size else torch.fft.rfft(tensor, n=size)

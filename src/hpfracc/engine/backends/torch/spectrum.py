"""The transform of weights that is kept, and the product with it."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Spectrum", "make_spectrum", "spectral_product"]


class Spectrum(NamedTuple):
    """The transform of the weights over ``size``, zero-padded to that many points, and the dtype of the result.

    The inverse transform is then taken without its factor: that would be a pass over all points. Of ``rows`` there is
    one where the weights are the same for every row of a signal.
    """

    transform: Tensor
    size: int
    taps: int
    dtype: torch.dtype
    rows: int


def make_spectrum(weights: Tensor, size: int) -> Spectrum:
    """Transform weights."""
    rows = math.prod(weights.shape[:-1])
    return Spectrum(_forward(weights, size) / size, size, weights.shape[-1], weights.dtype, rows)


def spectral_product(signal: Tensor, spectrum: Spectrum, eager: bool) -> Tensor:
    """The cyclic convolution along the last axis, ``size`` points of it; ``eager`` if nothing tracks the tensors."""
    transform = _forward(signal, spectrum.size)
    # In place where the weights are one row, as they mostly are: then the product has the shape of the signal's.
    fits = eager and spectrum.rows == 1 and spectrum.transform.ndim <= transform.ndim
    product = transform.mul_(spectrum.transform) if fits else transform * spectrum.transform
    if signal.is_complex():
        return torch.fft.ifft(product, norm="forward")
    return torch.fft.irfft(product, n=spectrum.size, norm="forward")


def _forward(tensor: Tensor, size: int) -> Tensor:
    if tensor.is_complex():
        return torch.fft.fft(tensor, n=size)
    # A row that is as long already is not looked at twice.
    return torch.fft.rfft(tensor) if tensor.shape[-1] == size else torch.fft.rfft(tensor, n=size)

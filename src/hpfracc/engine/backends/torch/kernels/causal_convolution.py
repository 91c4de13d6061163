"""Causal convolution in PyTorch: the generic kernels; sums by FFT as one node of autograd (``causal_sum.py``)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.generic.causal_convolution import PreparedWeights, make_kernels
from hpfracc.engine.backends.torch.causal_sum import convolve_prepared, convolve_tracked, fits_prepared, fits_tracked
from hpfracc.engine.backends.torch.library import LIBRARY

KERNELS: dict[str, Kernel] = make_kernels(LIBRARY)
_GENERIC = KERNELS["fft"]


def apply_fft(
    prepared: PreparedWeights, signal: Tensor, *starts: Tensor, differences: bool = False, starts_from: int = 0
) -> Tensor:
    """With weights whose transform is cached; fused with the copies around the transforms if possible."""
    options: dict[str, Any] = {"differences": differences, "starts_from": starts_from}

    def composed(weights: Any, signal: Tensor, *starts: Tensor) -> Tensor:
        assert _GENERIC.apply is not None
        return _GENERIC.apply(prepared, signal, *starts, **options)

    if fits_prepared(prepared, signal, *starts):
        return convolve_prepared(prepared, signal, *starts, composed=composed, **options)
    return composed(None, signal, *starts)


def convolve_fft(
    weights: Tensor, signal: Tensor, *starts: Tensor, differences: bool = False, starts_from: int = 0
) -> Tensor:
    """Transform, multiply, transform back."""
    options: dict[str, Any] = {"differences": differences, "starts_from": starts_from}
    if fits_tracked(weights, signal, *starts):
        return convolve_tracked(weights, signal, *starts, composed=partial(_GENERIC.run, **options), **options)
    return _GENERIC.run(weights, signal, *starts, **options)


KERNELS["fft"] = replace(_GENERIC, run=convolve_fft, apply=apply_fft)

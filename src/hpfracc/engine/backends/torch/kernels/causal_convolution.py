"""Causal convolution in PyTorch: the generic kernels, fused on a GPU (``fused_sum.py``).

If the weights are tracked, the sum is one step of autograd (``tracked_sum.py``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.generic.causal_convolution import PreparedWeights, make_kernels
from hpfracc.engine.backends.torch.fused_sum import SumOptions, convolve_fused, fits_fused
from hpfracc.engine.backends.torch.library import LIBRARY
from hpfracc.engine.backends.torch.tracked_sum import convolve_tracked, fits_tracked

__all__ = ["KERNELS"]

KERNELS: dict[str, Kernel] = make_kernels(LIBRARY)
_GENERIC = KERNELS["fft"]


def apply_fft(
    prepared: PreparedWeights, signal: Tensor, *starts: Tensor, differences: bool = False, starts_from: int = 0
) -> Tensor:
    """With weights whose transform is cached; fused with the copies around the transforms if possible."""
    if fits_fused(prepared, signal, *starts):
        return convolve_fused(signal, prepared, SumOptions(differences, starts[0] if starts else None, starts_from))
    assert _GENERIC.apply is not None
    result: Tensor = _GENERIC.apply(prepared, signal, *starts, differences=differences, starts_from=starts_from)
    return result


def convolve_fft(weights: Tensor, signal: Tensor, *starts: Tensor, **options: Any) -> Tensor:
    """Transform, multiply, transform back: one step of autograd if the weights are recorded."""
    if fits_tracked(weights, signal, *starts):
        return convolve_tracked(weights, signal, starts[0] if starts else None, composed=_GENERIC.run, **options)
    result: Tensor = _GENERIC.run(weights, signal, *starts, **options)
    return result


KERNELS["fft"] = replace(_GENERIC, run=convolve_fft, apply=apply_fft)

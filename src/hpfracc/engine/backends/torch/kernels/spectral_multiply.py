"""Spectral multiplication in PyTorch: the generic kernels, with products in place where nothing tracks them."""

from __future__ import annotations

from dataclasses import replace

from hpfracc._xp import namespace
from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.generic.spectral_multiply import make_kernels
from hpfracc.engine.backends.torch.tracking import multiply_over, untracked

__all__ = ["KERNELS"]

_GENERIC = make_kernels(namespace("torch"), multiply_over)["fft"]
assert _GENERIC.prepare is not None

KERNELS: dict[str, Kernel] = {"fft": replace(_GENERIC, prepare=untracked(_GENERIC.prepare))}

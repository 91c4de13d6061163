"""The chirp transform in PyTorch: the generic kernels, with products in place where nothing tracks them."""

from __future__ import annotations

from torch import Tensor

from hpfracc._xp import namespace
from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.generic.chirp_transform import make_kernels
from hpfracc.engine.backends.torch.tracking import is_eager

__all__ = ["KERNELS"]


def _multiply(spectrum: Tensor, factor: Tensor) -> Tensor:
    return spectrum.mul_(factor) if is_eager(spectrum, factor) else spectrum * factor


KERNELS: dict[str, Kernel] = make_kernels(namespace("torch"), _multiply)

"""Exclusive or of integers and truth values, in PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor

from hpfracc.engine.backends.base import Kernel

__all__ = ["KERNELS"]

#: Unsigned integers wider than a byte are new to PyTorch and not complete; their bits are those of the signed ones.
_SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}


def xor(a: Tensor, b: Tensor) -> Tensor:
    """``a ^ b`` over broadcast arrays of one dtype."""
    signed = _SIGNED.get(a.dtype) if a.dtype == b.dtype else None
    if signed is None:
        return torch.bitwise_xor(a, b)
    return torch.bitwise_xor(a.view(signed), b.view(signed)).view(a.dtype)


KERNELS: dict[str, Kernel] = {"default": Kernel(xor)}

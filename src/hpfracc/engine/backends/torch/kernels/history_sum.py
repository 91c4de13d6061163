"""History sum in PyTorch: blocks of weights, each computed, used and freed.

Compositions of PyTorch operations, differentiable in times, signal and parameters. For autograd the weights of a block
are recomputed in the backward pass and not stored.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from hpfracc._torch_transforms import is_wrapped
from hpfracc._xp import namespace
from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.torch.nonfinite import clean
from hpfracc.engine.numerics.history_weights import block_of_weights, output_blocks

__all__ = ["KERNELS", "sum_direct"]

#: Weights of a block on the host, where they should stay in cache, and on a GPU (also in the adapter); and its outputs.
_HISTORY_BLOCK, _HISTORY_ROWS = {True: 1 << 17, False: 1 << 24}, 2048


_XP = namespace("torch")


def sum_direct(
    times: Tensor, signal: Tensor, *parameters: Tensor, kernel: str = "power", scaled: bool = False
) -> Tensor:
    """The sum, a block of outputs at a time."""
    n = signal.shape[-1]
    inexact = signal.is_floating_point() or signal.is_complex()
    kind = signal.dtype if inexact else torch.float64
    x = signal.to(torch.complex128 if kind.is_complex else torch.float64)
    if not x.numel():
        return (x * 0).to(kind)
    times = times.to(torch.float64)
    options = tuple(parameter.to(torch.float64) for parameter in parameters)
    if kernel != "tabulated":
        options = tuple(option.reshape(()) for option in options)
        x = torch.cat([torch.zeros_like(x[..., :1]), x[..., 1:]], -1)
    operand = clean(x)
    tensors = (times, operand, *options)
    mapped = any(map(is_wrapped, tensors))
    keeps = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors) and not mapped
    parts = []
    for low, high in output_blocks(n, _HISTORY_BLOCK[x.is_cpu], _HISTORY_ROWS):
        inputs = (kernel, scaled, times, operand, low, high, *options)
        recomputed = keeps and n > 256
        parts.append(checkpoint(_block, *inputs, use_reentrant=False) if recomputed else _block(*inputs))
    seen = torch.cumsum(~torch.isfinite(x.detach()), -1) > 0
    return torch.where(seen, math.nan, torch.cat(parts, -1)).to(kind)


def _block(kernel: str, scaled: bool, times: Tensor, x: Tensor, low: int, high: int, *options: Tensor) -> Tensor:
    weights, first = block_of_weights(_XP, kernel, times, options, (low, high), scaled)
    return x[..., first:high] @ weights.T.to(x.dtype)


KERNELS: dict[str, Kernel] = {"direct": Kernel(sum_direct)}

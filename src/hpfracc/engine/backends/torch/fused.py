"""Two small kernels for long signals on a card: what repairing non-finite samples costs is hidden in copies.

The transform needs a zero-padded copy of the signal anyway: the kernel that makes it also sets bad samples to 0 and
notes the first one of each row. The result must be cut out of a longer one anyway: the kernel that does so writes nan
from the first bad sample on. Both can run a row from its end, which makes them serve the derivative as well: that of a
causal sum is the same sum run backwards. Written in Triton, which PyTorch's CUDA builds bring along; without it, or
inside transforms, the composition in ``nonfinite.py`` does the same in more passes.
"""

from __future__ import annotations

import functools
import importlib.util

import torch
from torch import Tensor

__all__ = ["cut_and_taint", "is_available", "pad_and_clean"]

_BLOCK = 1024


@functools.cache
def is_available() -> bool:
    """Whether Triton is there; finding out does not import it."""
    return importlib.util.find_spec("triton") is not None


def pad_and_clean(
    signal: Tensor, size: int, *, limit: Tensor | None = None, backwards: bool = False
) -> tuple[Tensor, Tensor]:
    """The signal's rows, 0 where they are not finite and from their end to ``size``; and each row's first bad sample.

    Rows without a bad sample have their length there. The signal is real and on a card. Samples from ``limit`` on, one
    for each row, count as 0; ``backwards`` takes each row from its end.
    """
    points = signal.shape[-1]
    rows = signal.numel() // points
    signal = signal.contiguous()
    padded = torch.empty((*signal.shape[:-1], size), dtype=signal.dtype, device=signal.device)
    first = torch.full((rows,), points, dtype=torch.int64, device=signal.device)
    from hpfracc.engine.backends.torch import fused_kernels

    with torch.cuda.device(signal.device):
        fused_kernels.pad[(-(-size // _BLOCK), rows)](
            signal,
            padded,
            first,
            first if limit is None else limit,
            points,
            size,
            LIMITED=limit is not None,
            REVERSED=backwards,
            BLOCK=_BLOCK,
        )
    return padded, first


def cut_and_taint(product: Tensor, first: Tensor, points: int, *, backwards: bool = False) -> Tensor:
    """The first ``points`` of each row of ``product``, nan from ``first`` of the row on; ``backwards`` turns them."""
    size = product.shape[-1]
    rows = product.numel() // size
    product = product.contiguous()
    result = torch.empty((*product.shape[:-1], points), dtype=product.dtype, device=product.device)
    from hpfracc.engine.backends.torch import fused_kernels

    with torch.cuda.device(product.device):
        fused_kernels.cut[(-(-points // _BLOCK), rows)](
            product, result, first, points, size, REVERSED=backwards, BLOCK=_BLOCK
        )
    return result

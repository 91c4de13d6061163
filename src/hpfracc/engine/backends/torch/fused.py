"""Two small kernels for long signals on a card: all that surrounds the transforms is hidden in copies.

The transform needs a zero-padded copy of the signal anyway: the kernel that makes it also takes differences, sets bad
samples to 0 and notes the first one of each block. The result must be cut out of a longer one anyway: the kernel that
does so adds what starting weights give, and writes nan from the first bad sample on. Both can run a row from its end,
which makes them serve the derivative as well: that of a causal sum is the same sum run backwards. Written in Triton,
which PyTorch's CUDA builds bring along; without it, or inside transforms, compositions do the same in more passes.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
from typing import Any

import torch
from torch import Tensor

__all__ = ["cut_and_taint", "first_bad", "is_available", "pad_and_clean"]

#: Notes that are read together.
_CHUNK = 1024


@functools.cache
def is_available() -> bool:
    """Whether Triton is there; finding out does not import it."""
    return importlib.util.find_spec("triton") is not None


def _block(points: int) -> int:
    """Points that one program takes: more of long rows, whose programs read the notes of all before them."""
    return 1024 if points <= 2**18 else 4096


def _on(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Triton launches on the current device, which is mostly the right one: looking is quicker than setting it."""
    return contextlib.nullcontext() if device.index == torch.cuda.current_device() else torch.cuda.device(device)


def pad_and_clean(
    signal: Tensor, size: int, *, limit: Tensor | None = None, backwards: bool = False, differences: bool = False
) -> tuple[Tensor, Tensor]:
    """The signal's rows, 0 where they are not finite and from their end to ``size``; and notes of bad samples.

    The signal is real, contiguous and on a card. ``limit``, notes of another such call, counts samples from the first
    bad one there on as 0; ``backwards`` takes each row from its end; ``differences`` what each sample is more than the
    one before.
    """
    from hpfracc.engine.backends.torch import fused_kernels

    points = signal.shape[-1]
    rows, block = signal.numel() // points, _block(points)
    blocks = -(-points // block)
    padded = torch.empty((*signal.shape[:-1], size), dtype=signal.dtype, device=signal.device)
    bad = torch.empty((rows, blocks), dtype=torch.int64, device=signal.device)
    with _on(signal.device):
        fused_kernels.pad[(-(-size // block), rows)](
            signal,
            padded,
            bad,
            bad if limit is None else limit,
            points,
            size,
            blocks,
            LIMITED=limit is not None,
            REVERSED=backwards,
            DIFFERENCES=differences,
            BLOCK=block,
            CHUNK=_CHUNK,
        )
    return padded, bad


def cut_and_taint(
    product: Tensor,
    bad: Tensor,
    points: int,
    *,
    backwards: bool = False,
    differences: bool = False,
    signal: Tensor | None = None,
    starts: Tensor | None = None,
    first: int = 0,
) -> Tensor:
    """The first ``points`` of each row of ``product``, nan from the first bad sample of the row on.

    With ``starts`` (contiguous) ``starts[j] * signal[..., first + j]`` is added from that point on, or the differences
    there; ``backwards`` turns each row, and takes with ``differences`` what each value is more than the next.
    """
    from hpfracc.engine.backends.torch import fused_kernels

    size, block = product.shape[-1], _block(points)
    result = torch.empty((*product.shape[:-1], points), dtype=product.dtype, device=product.device)
    with _on(product.device):
        fused_kernels.cut[(-(-points // block), product.numel() // size)](
            product,
            result,
            bad,
            product if signal is None else signal,
            product if starts is None else starts,
            points,
            size,
            bad.shape[-1],
            first,
            REVERSED=backwards,
            DIFFERENCES=differences,
            STARTS=0 if starts is None else starts.shape[0],
            BLOCK=block,
            CHUNK=_CHUNK,
        )
    return result


def first_bad(bad: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The first bad sample of each row, or its length, from the notes; with the axes of a signal of that shape."""
    return bad.amin(-1).reshape(*shape[:-1], 1)

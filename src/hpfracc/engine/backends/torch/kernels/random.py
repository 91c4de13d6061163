"""Counter-based random numbers in PyTorch: signed integers that wrap, block by block; on a GPU one Triton kernel."""

from __future__ import annotations

import torch
from torch import Tensor

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.torch import fused
from hpfracc.engine.numerics.counter_random import MASK32, join_key, philox, write_numbers

#: Numbers that are drawn together: few enough for the cache of the host, enough to fill a GPU.
_TOGETHER, _TOGETHER_ON_GPU = 1 << 15, 1 << 20


def random_arithmetic(
    paths: Tensor, key: Tensor, *, n: int, kind: str = "normal", stream: int = 0, dtype: str = "float64"
) -> Tensor:
    """The words of many paths at once."""
    precision: torch.dtype = getattr(torch, dtype)
    numbers = paths.reshape(-1).to(torch.int64)
    pair = join_key(key.to(torch.int64) & MASK32)
    result = torch.empty((numbers.numel(), n), dtype=precision, device=paths.device)
    if result.is_cuda and fused.is_available() and result.numel():
        words = torch.stack([*pair, torch.full_like(pair[0], stream)])
        fused.fill_random(numbers.contiguous(), words, kind, result)
        return result.reshape(*paths.shape, n)
    together = _TOGETHER_ON_GPU if result.is_cuda else _TOGETHER
    rows = max(1, together // max(1, n))
    streams = torch.full((1, 1), stream, dtype=torch.int64, device=paths.device)
    for top in range(0, numbers.numel(), rows):
        for low in range(0, n, together):
            high = min(n, low + together)
            counters = torch.arange(low // 4 + 1, -(-high // 4) + 1, device=paths.device)
            blocks = philox(counters[None, :], numbers[top : top + rows, None], streams, pair, signed=True)
            words = torch.stack(blocks, -1).flatten(1)[:, : high - low + (high - low) % 2]
            out = result[top : top + rows, low:high]
            write_numbers(torch, words, kind, precision == torch.float32, lambda words: words.to(torch.float64), out)
    return result.reshape(*paths.shape, n)


KERNELS: dict[str, Kernel] = {"arithmetic": Kernel(random_arithmetic)}

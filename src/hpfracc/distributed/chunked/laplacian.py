r"""Periodic fractional Laplacian of a field that is chunked along its own axes: slab by slab.

.. math:: (-\Delta)^{\alpha/2} f = \mathcal{F}^{-1} |\kappa|^\alpha \mathcal{F} f

Each axis is transformed while it is one chunk, and the array is rechunked in between, so no task holds more than a
slab.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from hpfracc.distributed.chunked.blocks import blocks
from hpfracc.distributed.chunked.planning import COPIES, ChunkedWay, Resources, block_bytes, rechunk_method
from hpfracc.engine.execution.api import fft

__all__ = ["periodic_slabs", "slabs_way"]


def slabs_way(f: Any, along: Sequence[int], resources: Resources) -> ChunkedWay:
    """Tasks and bytes of transforms along one axis after another."""
    longest = max(f.shape[axis] for axis in along) * 16
    block = max(longest, block_bytes(resources))
    refusal = ""
    if resources.memory is not None and COPIES * longest > resources.memory:
        refusal = (
            f"a line of {longest:,} bytes takes about {COPIES * longest:,} in a task, and a worker has "
            f"{resources.memory:,}"
        )
    moved = 2 * len(along) * 16 * math.prod(f.shape)
    tasks = 4 * len(along) * max(math.prod(f.numblocks), math.ceil(16 * math.prod(f.shape) / block))
    return ChunkedWay("slabs", "a few eps of the largest term", tasks, moved, COPIES * block, refusal)


def periodic_slabs(
    f: Any, along: Sequence[int], steps: Sequence[float], alpha: float, backend: Any, resources: Resources
) -> Any:
    """Build the graph: transforms along each axis, multiplication by the symbol, and transforms back."""
    dtype = f.dtype if f.dtype.kind in "fc" else np.dtype(np.float64)
    wide = np.result_type(dtype, np.complex64)
    x = f.astype(wide)
    for kind in ("fft", "ifft"):
        for axis in along:
            x = _whole(x, axis, resources)
            x = blocks(kind, functools.partial(_transform, kind, axis, backend), x, dtype=wide)
        if kind == "fft":
            symbol = functools.partial(_times_symbol, tuple(along), f.shape, tuple(steps), alpha)
            x = blocks("symbol", symbol, x, dtype=wide, where=True)
    if dtype.kind == "f":
        x = x.real
    return x.astype(dtype).rechunk(f.chunks, method=rechunk_method(resources))


def _whole(x: Any, axis: int, resources: Resources) -> Any:
    if x.numblocks[axis] == 1:
        return x
    lines = max(1, block_bytes(resources) // (x.shape[axis] * x.dtype.itemsize))
    chunks: dict[int, Any] = {axis: -1}
    for other in reversed([each for each in range(x.ndim) if each != axis]):
        chunks[other] = max(1, min(x.shape[other], lines))
        lines = max(1, lines // x.shape[other])
    return x.rechunk(chunks, method=rechunk_method(resources))


def _transform(kind: str, axis: int, backend: Any, block: Any) -> Any:
    return fft(block, kind=kind, axis=axis, backend=backend)


def _times_symbol(
    along: tuple[int, ...], shape: tuple[int, ...], steps: tuple[float, ...], alpha: float, place: Any, block: Any
) -> Any:
    squares = np.zeros((1,) * block.ndim)
    for axis, step in zip(along, steps, strict=True):
        begin, end = place[axis]
        waves = np.round(np.fft.fftfreq(shape[axis]) * shape[axis])[begin:end] * (2.0 * math.pi / (shape[axis] * step))
        squares = squares + (waves**2).reshape([-1 if each == axis else 1 for each in range(block.ndim)])
    if alpha == 0.0:
        return block
    powers = np.where(squares > 0.0, np.where(squares > 0.0, squares, 1.0) ** (0.5 * alpha), 0.0)
    return (block * powers).astype(block.dtype, copy=False)

"""Shortest distances on a lattice in CuPy: by tiles, or by rounds over the whole array for more than three axes.

A block of threads updates the 1,024 points of a tile until nothing in them changes (``tiles.py``). Counters stay on the
device: the host enqueues rounds and checks only from time to time whether the search is done.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import cupy
import numpy as np

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.cupy.library import LIBRARY
from hpfracc.engine.backends.cupy.tiles import THREADS, plan_tiles, relax_by_tiles, tile_source
from hpfracc.engine.backends.generic.stencil_relax import make_kernels
from hpfracc.engine.primitives.stencil_relax import read_periodic

#: Blocks for each processor of the GPU; more tiles are processed in strides.
_BLOCKS = 8


def _most_blocks() -> int:
    return _BLOCKS * int(cupy.cuda.Device().attributes["MultiProcessorCount"])


@lru_cache(maxsize=32)
def _tile_kernel(dtype: str, ndim: int, neighbourhood: str, edges: bool) -> Any:
    return cupy.RawKernel(tile_source(dtype, ndim, neighbourhood, edges), "relax_tiles")


def by_tiles(
    costs: Any, start: Any, *, neighbourhood: str = "von_neumann", periodic: Any = False, edges: bool = False
) -> Any:
    """Process the tiles in which a point can be improved until there are none; for up to three axes."""
    found = cupy.where(cupy.isfinite(start), start, np.inf).astype(start.dtype, order="C")
    if not start.size:
        return found
    shape = costs.shape[1:] if edges else costs.shape
    kernel = _tile_kernel(str(start.dtype), len(shape), neighbourhood, bool(edges))
    most = _most_blocks()

    def launch(tiles: int, arguments: tuple[Any, ...]) -> None:
        kernel((min(tiles, most),), (THREADS,), arguments)

    maps = found.reshape(-1, *shape)
    relax_by_tiles(
        cupy, launch, cupy.ascontiguousarray(costs), maps, plan_tiles(shape), read_periodic(periodic, len(shape))
    )
    return found


KERNELS: dict[str, Kernel] = {"tiles": Kernel(by_tiles), **make_kernels(LIBRARY)}

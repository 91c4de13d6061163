"""Shortest distances on a lattice in PyTorch: rounds over the whole array, until nothing changes."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.primitives._stencils import relax
from hpfracc.engine.primitives.stencil_relax import read_periodic

__all__ = ["KERNELS"]

#: Rounds between two looks on a device: a look waits for it, a round that changes nothing costs some passes of memory.
_ROUNDS = 32


def by_rounds(
    costs: Tensor, start: Tensor, *, neighbourhood: str = "von_neumann", periodic: Any = False, edges: bool = False
) -> Tensor:
    """All points at once."""
    if not start.numel():
        return torch.empty_like(start)
    wraps = read_periodic(periodic, costs.ndim - edges)
    with torch.no_grad():
        found: Tensor = relax(
            torch,
            lambda shape: torch.full(shape, math.inf, dtype=start.dtype, device=start.device),
            costs,
            start,
            neighbourhood=neighbourhood,
            periodic=wraps,
            edges=edges,
            every=1 if start.is_cpu else _ROUNDS,
        )
    return found


KERNELS: dict[str, Kernel] = {"relax": Kernel(by_rounds)}

"""Shortest distances on a lattice: rounds over the whole array, in libraries whose arrays can be written to."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.generic.library import Library
from hpfracc.engine.numerics.stencils import relax
from hpfracc.engine.primitives.stencil_relax import read_periodic

__all__ = ["make_kernels"]


def make_kernels(library: Library) -> dict[str, Kernel]:
    """All points at once, until nothing changes."""
    xp = library.xp

    def by_rounds(
        costs: Any, start: Any, *, neighbourhood: str = "von_neumann", periodic: Any = False, edges: bool = False
    ) -> Any:
        if 0 in start.shape:
            return xp.zeros_like(start)
        costs, start = xp.stop_gradient(costs), xp.stop_gradient(start)
        return relax(
            xp.module,
            lambda shape: xp.zeros(shape, start.dtype, start) + np.inf,
            costs,
            start,
            neighbourhood=neighbourhood,
            periodic=read_periodic(periodic, costs.ndim - edges),
            edges=edges,
            every=library.rounds,
        )

    return {"relax": Kernel(library.finished(by_rounds))}

"""Shortest distances on a lattice: rounds over the whole array until nothing changes."""

from __future__ import annotations

import math
from typing import Any

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.generic.library import Library
from hpfracc.engine.numerics.stencils import forward_offsets
from hpfracc.engine.primitives.stencil_relax import read_periodic


def make_kernels(library: Library) -> dict[str, Kernel]:
    """All points at once; in JAX one compiled loop."""
    xp = library.xp

    def with_ghosts(array: Any, wraps: tuple[bool, ...]) -> Any:
        """A layer around the last axes: the opposite face, or infinity."""
        for axis, wrap in enumerate(wraps, array.ndim - len(wraps)):
            ends = [array[(slice(None),) * axis + (end,)] for end in (slice(-1, None), slice(0, 1))]
            before, after = ends if wrap else [xp.full_like(end, math.inf) for end in ends]
            array = xp.concatenate([before, array, after], axis)
        return array

    def moved(padded: Any, offset: tuple[int, ...], shape: tuple[int, ...]) -> Any:
        """The neighbours of all points in one direction, from an array with ghosts."""
        return padded[(..., *(slice(1 + step, 1 + step + size) for step, size in zip(offset, shape, strict=True)))]

    def relax(costs: Any, start: Any, neighbourhood: str, wraps: tuple[bool, ...], edges: bool) -> Any:
        shape = tuple(costs.shape[1:] if edges else costs.shape)
        costs = xp.where(costs >= 0, costs, math.inf)
        start = xp.where(xp.isfinite(start), start, math.inf)
        moves = []
        for place, offset in enumerate(forward_offsets(len(shape), neighbourhood)):
            back = tuple(-step for step in offset)
            arriving = moved(with_ghosts(costs[place], wraps), back, shape) if edges else 0.0
            moves += [(offset, costs[place] if edges else 0.0), (back, arriving)]

        def lowered(found: Any) -> Any:
            padded, best = with_ghosts(found, wraps), None
            for offset, cost in moves:
                trial = moved(padded, offset, shape)
                trial = trial + cost if edges else trial
                best = trial if best is None else xp.minimum(best, trial)
            return xp.minimum(found, best if edges else best + costs)

        def turn(state: tuple[Any, Any]) -> tuple[Any, Any]:
            found = state[0]
            for _ in range(library.rounds):  # only the last one is checked for changes
                before, found = found, lowered(found)
            return found, (found < before).any()

        # The first turn gives the condition of the loop its type, also under vmap.
        return xp.repeat_while(lambda state: state[1], turn, turn((start, None)))[0]

    compiled = xp.jit(relax, static=("neighbourhood", "wraps", "edges"))

    def by_rounds(
        costs: Any, start: Any, *, neighbourhood: str = "von_neumann", periodic: Any = False, edges: bool = False
    ) -> Any:
        if 0 in start.shape:
            return xp.zeros_like(start)
        costs, start = xp.stop_gradient(costs), xp.stop_gradient(start)
        wraps = read_periodic(periodic, costs.ndim - edges)
        return compiled(costs, start, neighbourhood=neighbourhood, wraps=wraps, edges=bool(edges))

    return {"relax": Kernel(library.finished(by_rounds))}

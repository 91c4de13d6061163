"""Shortest distances on a lattice in JAX: rounds over the whole array inside one compiled loop."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.numerics.stencils import forward_offsets, padded_views
from hpfracc.engine.primitives.stencil_relax import read_periodic

__all__ = ["KERNELS"]


def by_rounds(
    costs: jax.Array,
    start: jax.Array,
    *,
    neighbourhood: str = "von_neumann",
    periodic: Any = False,
    edges: bool = False,
) -> jax.Array:
    """All points at once, until nothing changes."""
    if not start.size:
        return jnp.empty(start.shape, start.dtype)
    return _rounds(costs, start, neighbourhood, read_periodic(periodic, costs.ndim - edges), bool(edges))


def _with_ghosts(array: jax.Array, wraps: tuple[bool, ...]) -> jax.Array:
    """A layer around the last axes: the opposite face, or infinity."""
    lead = array.ndim - len(wraps)
    for axis, wrap in enumerate(wraps):
        pads = [(0, 0)] * array.ndim
        pads[lead + axis] = (1, 1)
        array = jnp.pad(array, pads, mode="wrap") if wrap else jnp.pad(array, pads, constant_values=math.inf)
    return array


@partial(jax.jit, static_argnames=("neighbourhood", "wraps", "edges"))
def _rounds(costs: jax.Array, start: jax.Array, neighbourhood: str, wraps: tuple[bool, ...], edges: bool) -> jax.Array:
    shape = costs.shape[1:] if edges else costs.shape
    steps = forward_offsets(len(shape), neighbourhood)
    back = tuple(tuple(-step for step in offset) for offset in steps)
    costs = jnp.where(costs >= 0, costs, math.inf)
    start = jnp.where(jnp.isfinite(start), start, math.inf)
    if edges:
        ghosted = _with_ghosts(costs, wraps)
        arriving = [padded_views(ghosted[place], (offset,), shape)[0] for place, offset in enumerate(back)]

    def lowered(found: jax.Array) -> jax.Array:
        padded = _with_ghosts(found, wraps)
        ahead, behind = padded_views(padded, steps, shape), padded_views(padded, back, shape)
        if edges:
            trials = [ahead[place] + costs[place] for place in range(len(steps))]
            trials += [behind[place] + arriving[place] for place in range(len(steps))]
            return jnp.minimum(found, jnp.min(jnp.stack(trials), 0))
        best = ahead[0]
        for view in (*ahead[1:], *behind):
            best = jnp.minimum(best, view)
        return jnp.minimum(found, best + costs)

    def go_on(state: tuple[jax.Array, jax.Array]) -> jax.Array:
        return state[1]

    def round_(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        found = lowered(state[0])
        return found, jnp.any(found < state[0])

    # The loop's first condition needs the type of the later ones, also under vmap.
    first = lowered(start)
    return lax.while_loop(go_on, round_, (first, jnp.any(first < start)))[0]


KERNELS: dict[str, Kernel] = {"relax": Kernel(by_rounds)}

"""Shortest distances on a lattice in PyTorch: rounds over the whole array, or over the tiles that can change."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.generic.stencil_relax import make_kernels
from hpfracc.engine.backends.torch.library import LIBRARY
from hpfracc.engine.numerics.stencils import forward_offsets, padded_views, refresh_ghosts
from hpfracc.engine.primitives.stencil_relax import read_periodic

__all__ = ["KERNELS"]

#: Side of a tile by the number of axes: enough points to fill a GPU with a few tiles, and few steps across; and that
#: for more axes.
_SIDES, _SMALLEST_SIDE = {1: 4096, 2: 64, 3: 16}, 8
#: Tiles that are processed together: enough to fill a GPU, and a fraction of many that a wave usually has.
_MIN_TILES, _SHARE_OF_TILES = 256, 8


def by_tiles(
    costs: Tensor, start: Tensor, *, neighbourhood: str = "von_neumann", periodic: Any = False, edges: bool = False
) -> Tensor:
    """The tiles that changed and their neighbours, each crossed by a wave in one round, until none changes.

    Tiles of a round are processed in groups, so that memory does not depend on the data.
    """
    if not start.numel():
        return torch.empty_like(start)
    shape = tuple(costs.shape[1:] if edges else costs.shape)
    wraps = read_periodic(periodic, len(shape))
    side = _SIDES.get(len(shape), _SMALLEST_SIDE)
    sides = tuple(min(side, length) for length in shape)
    full = tuple(-(-length // tile) * tile for length, tile in zip(shape, sides, strict=True))
    lattice = tuple(slice(0, length) for length in shape)
    steps = forward_offsets(len(shape), neighbourhood)
    with torch.no_grad():
        prices = _windows(_step_costs(costs, shape, full, steps, wraps, edges), sides, 0)
        maps = start.reshape(-1, *shape)
        padded = start.new_full((len(maps), *(length + 2 for length in full)), math.inf)
        core = padded[(slice(None), *(slice(1, -1) for _ in shape))]
        core[(slice(None), *lattice)] = torch.where(torch.isfinite(maps), maps, math.inf)
        cells, own = _windows(padded, sides, 2), _windows(core, sides, 0)
        active = _beside(torch.isfinite(own).flatten(-len(shape)).any(-1), wraps, neighbourhood)
        together = max(_MIN_TILES, active.numel() // _SHARE_OF_TILES)
        while True:
            found = active.nonzero(as_tuple=True)
            if not len(found[0]):
                inside = core[(slice(None), *lattice)]
                return inside.clone(memory_format=torch.contiguous_format).reshape(start.shape)
            refresh_ghosts(padded, shape, wraps)
            changed = torch.zeros_like(active)
            for index in zip(*(axis.split(together) for axis in found), strict=True):
                lowered = _lower(cells[index], prices[(slice(None), *index[1:])], steps, sides, edges)
                changed[index] = (lowered < own[index]).flatten(1).any(1)
                own[index] = lowered
                del lowered
            active = _beside(changed, wraps, neighbourhood)


def _windows(array: Tensor, sides: tuple[int, ...], around: int) -> Tensor:
    """Views of the tiles along the last axes, each with a layer ``around`` it: (..., tiles, points of a tile)."""
    first = array.ndim - len(sides)
    for axis, side in enumerate(sides):
        array = array.unfold(first + axis, side + around, side)
    return array


def _step_costs(
    costs: Tensor,
    shape: tuple[int, ...],
    full: tuple[int, ...],
    steps: tuple[tuple[int, ...], ...],
    wraps: tuple[bool, ...],
    edges: bool,
) -> Tensor:
    """Cost of entering each point: one entry, or one for each step that leads to it; closed outside the lattice."""
    costs = torch.where(costs >= 0, costs, math.inf)
    entries = [costs]
    if edges:
        ghosted = costs.new_full((len(steps), *(length + 2 for length in shape)), math.inf)
        ghosted[(slice(None), *(slice(1, 1 + length) for length in shape))] = costs
        refresh_ghosts(ghosted, shape, wraps)
        back = (tuple(-step for step in offset) for offset in steps)
        entries = [
            costs,
            torch.stack([padded_views(one, (o,), shape)[0] for one, o in zip(ghosted, back, strict=True)]),
        ]
    closed = costs.new_full((len(entries) * (len(steps) if edges else 1), *full), math.inf)
    lattice = tuple(slice(0, length) for length in shape)
    closed[(slice(None), *lattice)] = torch.cat(entries) if edges else costs
    return closed


def _lower(
    blocks: Tensor, prices: Tensor, steps: tuple[tuple[int, ...], ...], sides: tuple[int, ...], edges: bool
) -> Tensor:
    """The points of tiles (given with a ghost layer) after as many rounds as the side of a tile."""
    inside = blocks[(slice(None), *(slice(1, -1) for _ in sides))]
    moves = (*steps, *(tuple(-step for step in offset) for offset in steps))
    views = padded_views(blocks, moves, sides)
    best, trial = torch.empty_like(prices[0]), torch.empty_like(prices[0])
    for _ in range(max(sides)):
        if edges:
            torch.add(views[0], prices[0], out=best)
            for view, price in zip(views[1:], prices[1:], strict=True):
                torch.minimum(best, torch.add(view, price, out=trial), out=best)
        else:
            torch.minimum(views[0], views[1], out=best)
            for view in views[2:]:
                torch.minimum(best, view, out=best)
            best.add_(prices[0])
        torch.minimum(inside, best, out=best)
        inside.copy_(best)
    return best


def _beside(tiles: Tensor, wraps: tuple[bool, ...], neighbourhood: str) -> Tensor:
    """Marked tiles and their neighbours: along one axis, or for Moore along any number of them."""
    found = tiles.clone()
    for axis, wrap in enumerate(wraps, 1):
        source = found.clone() if neighbourhood == "moore" else tiles
        if wrap:
            found |= source.roll(1, axis) | source.roll(-1, axis)
        else:
            last = tiles.shape[axis] - 1
            found.narrow(axis, 1, last).logical_or_(source.narrow(axis, 0, last))
            found.narrow(axis, 0, last).logical_or_(source.narrow(axis, 1, last))
    return found


KERNELS: dict[str, Kernel] = {"tiles": Kernel(by_tiles), **make_kernels(LIBRARY)}

"""Other machines that might have been: a table bent and shaken, to see that nothing was tuned to the stored ones."""

from __future__ import annotations

import math
import random
from dataclasses import replace

from .tables import Cell, Group, Table


def perturbed(table: Table, seed: int, strength: float = 0.35) -> Table:
    """Every arm's curve bent smoothly by some ``strength`` (natural log), its noise drawn again."""
    return Table(f"{table.name}~{seed}", table.meta, tuple(_bent(group, seed, strength) for group in table.groups))


def _bent(group: Group, seed: int, strength: float) -> Group:
    first, last = min(group.sizes), max(group.sizes)
    cells: dict[int, dict[str, Cell]] = {n: {} for n in group.sizes}
    for arm in group.arms:
        rng = random.Random(f"{seed}/{group.name}/{arm}")
        shift, tilt, wave = (rng.gauss(0.0, strength * share) for share in (1.0, 0.6, 0.6))
        phase = rng.uniform(0.0, 2.0 * math.pi)
        compiling = math.exp(rng.gauss(0.0, strength))
        for n in group.sizes:
            cell = group.cells[n].get(arm)
            if cell is None:
                continue
            place = math.log(n / first) / (math.log(last / first) or 1.0)
            factor = math.exp(shift + tilt * (place - 0.5) + wave * math.sin(2.0 * math.pi * place + phase))
            samples = [rng.choice(cell.samples) * factor * math.exp(rng.gauss(0.0, 0.03)) for _ in cell.samples]
            cells[n][arm] = replace(cell, samples=tuple(samples), compile=cell.compile * compiling)
    return replace(group, cells=cells)

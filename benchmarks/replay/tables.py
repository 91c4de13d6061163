"""Measured tables: what each arm took at each size, and what its first call took."""

from __future__ import annotations

import json
import math
import random
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: How an arm compiles, by how its name begins: once per operation, or once per size. Everything else has a first call
#: of its own at each size too (plans, lazily loaded modules), only a cheap one.
ONCE_PER_OPERATION = ("numba",)
COMPILED_PER_SIZE = ("jax",)


@dataclass(frozen=True, slots=True)
class Cell:
    """One arm at one size: run times, and what its first call took beyond them."""

    arm: str
    n: int
    samples: tuple[float, ...]
    compile: float
    compile_key: tuple[Any, ...]

    @property
    def mean(self) -> float:
        return statistics.fmean(self.samples)

    def quantile(self, share: float) -> float:
        ordered = sorted(self.samples)
        place = (len(ordered) - 1) * share
        below = int(place)
        above = min(below + 1, len(ordered) - 1)
        return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


@dataclass(frozen=True)
class Group:
    """All arms of one operation whose operands start at one place; no arm need be there at every size."""

    op: str
    start: str
    cells: Mapping[int, Mapping[str, Cell]]
    #: Whether ``n`` is the side of a square matrix (of a matrix product) rather than a number of elements.
    side: bool = False

    def work(self, arm: str, n: int) -> float:
        """Elementary steps, as the primitives' own work models count them."""
        if self.op == "matmul":
            return float(n) ** 3 if self.side else float(n) ** 1.5
        return float(n) ** 2 if arm.endswith("direct") else float(n)

    @property
    def name(self) -> str:
        return f"{self.op}/{self.start}"

    @property
    def sizes(self) -> list[int]:
        return sorted(self.cells)

    @property
    def arms(self) -> list[str]:
        """Every arm's name, the plainest first, as the engine offers them."""
        names = {arm: None for n in self.sizes for arm in self.cells[n]}
        return sorted(names, key=lambda arm: (not arm.startswith("numpy"), not arm.startswith("scipy")))

    def plain(self, n: int) -> str | None:
        """The arm that stands for plain NumPy at this size (SciPy where NumPy has none), or None."""
        for prefix in ("numpy", "scipy"):
            for arm in self.arms:
                if arm.startswith(prefix) and arm in self.cells[n]:
                    return arm
        return None


@dataclass(frozen=True)
class Table:
    """A measured table; ``groups`` in the order of the file."""

    name: str
    meta: Mapping[str, Any]
    groups: tuple[Group, ...]


def read_table(path: Path) -> Table:
    """Read a file of the form ``{"meta": {...}, "rows": [{op, arm, start, n, first, samples}, ...]}``."""
    content = json.loads(path.read_text())
    return make_table(path.stem, content.get("meta", {}), content["rows"])


def make_table(name: str, meta: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> Table:
    """A table from its rows; rows without a usable time are left out."""
    kept: dict[tuple[str, str, str, int], tuple[tuple[float, ...], float]] = {}
    for row in rows:
        samples = tuple(float(t) for t in row["samples"] if t is not None and math.isfinite(t) and t > 0)
        if samples:
            first = row.get("first")
            first = float(first) if first is not None and math.isfinite(first) else 0.0
            kept[str(row["op"]), str(row.get("start", "host")), str(row["arm"]), int(row["n"])] = (samples, first)
    cells: dict[tuple[str, str], dict[int, dict[str, Cell]]] = {}
    for (op, start, arm, n), (samples, _) in kept.items():
        seconds, key = _compile(kept, op, start, arm, n)
        cells.setdefault((op, start), {}).setdefault(n, {})[arm] = Cell(arm, n, samples, seconds, key)
    side = "matmul n = side" in str(meta.get("note", ""))
    groups = tuple(Group(op, start, found, side) for (op, start), found in cells.items())
    return Table(name, dict(meta), groups)


def _compile(kept: Mapping[Any, Any], op: str, start: str, arm: str, n: int) -> tuple[float, tuple[Any, ...]]:
    """What compiling takes, beyond a typical run, and what names the compilation."""

    def beyond(where: str, size: int) -> float:
        found = kept.get((op, where, arm, size))
        return 0.0 if found is None else max(0.0, found[1] - statistics.median(found[0]))

    if arm.startswith(ONCE_PER_OPERATION):
        # Only the first size that was measured shows it.
        sizes = {key[3] for key in kept if key[:3] == (op, start, arm)}
        return max(beyond(start, size) for size in sizes), (op, start, arm)
    if arm.startswith(COMPILED_PER_SIZE):
        # Measured after the device rows, host rows show a warm first call: the device row's is the true one.
        return max(beyond(where, n) for where in {key[1] for key in kept}), (op, start, arm, n)
    return beyond(start, n), (op, start, arm, n)


def perturbed(table: Table, seed: int, strength: float = 0.35) -> Table:
    """The same machine seen differently: every arm's curve bent smoothly, its noise drawn again."""
    groups = []
    for group in table.groups:
        cells: dict[int, dict[str, Cell]] = {n: {} for n in group.sizes}
        for arm in group.arms:
            rng = random.Random(f"{seed}/{group.name}/{arm}")
            shift, tilt, wave = (rng.gauss(0.0, strength * share) for share in (1.0, 0.6, 0.6))
            phase = rng.uniform(0.0, 2.0 * math.pi)
            compiling = math.exp(rng.gauss(0.0, strength))
            span = math.log(max(group.sizes) / min(group.sizes)) or 1.0
            for n in group.sizes:
                cell = group.cells[n].get(arm)
                if cell is None:
                    continue
                place = math.log(n / min(group.sizes)) / span
                factor = math.exp(shift + tilt * (place - 0.5) + wave * math.sin(2.0 * math.pi * place + phase))
                samples = tuple(
                    rng.choice(cell.samples) * factor * math.exp(rng.gauss(0.0, 0.03)) for _ in cell.samples
                )
                cells[n][arm] = Cell(arm, n, samples, cell.compile * compiling, cell.compile_key)
        groups.append(Group(group.op, group.start, cells, group.side))
    return Table(f"{table.name}~{seed}", table.meta, tuple(groups))

"""Measured tables: what each arm took at each size, and what its first call took."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

#: How arms compile, by how their names begin: once per operation, or once per size. All others have first calls too
#: (plans, lazily loaded modules): once per size, only cheaper ones.
ONCE_PER_OPERATION = ("numba",)
ONCE_PER_SIZE = ("jax",)

#: Arms that compile nothing. Their first calls are charged as measured, but are no reason to choose or to shun them.
PLAIN = ("numpy", "scipy")

CompileKey = tuple[str | int, ...]


@dataclass(frozen=True)
class Cell:
    """One arm at one size: run times, and what its first call took beyond them."""

    arm: str
    n: int
    samples: tuple[float, ...]
    compile: float
    compile_key: CompileKey

    @cached_property
    def mean(self) -> float:
        return statistics.fmean(self.samples)

    @cached_property
    def error(self) -> float:
        """Standard error of the mean; unbounded for a single sample."""
        count = len(self.samples)
        return statistics.stdev(self.samples) / math.sqrt(count) if count > 1 else math.inf

    @cached_property
    def quartiles(self) -> tuple[float, float, float]:
        if len(self.samples) == 1:
            return (self.samples[0],) * 3
        low, middle, high = statistics.quantiles(self.samples, n=4, method="inclusive")
        return low, middle, high

    def clearly_slower_than(self, other: Cell, factor: float) -> bool:
        """Whether it is slower by more than ``factor``, beyond the samples' spread.

        Either typically (the median is, and the central halves of the samples do not overlap), or on the whole (the
        mean is, by more than two standard errors).
        """
        if self.quartiles[1] > factor * other.quartiles[1] and self.quartiles[0] > other.quartiles[2]:
            return True
        apart = 2.0 * math.hypot(self.error, other.error)
        return self.mean > factor * other.mean and self.mean - other.mean > apart


@dataclass(frozen=True)
class Group:
    """All arms of one operation whose operands start at one place; no arm need be there at every size.

    ``side`` tells that ``n`` is the side of a square matrix (of a matrix product) rather than a number of elements.
    """

    op: str
    start: str
    cells: Mapping[int, Mapping[str, Cell]]
    side: bool = False

    @property
    def name(self) -> str:
        return f"{self.op}/{self.start}"

    @cached_property
    def sizes(self) -> list[int]:
        return sorted(self.cells)

    @cached_property
    def arms(self) -> list[str]:
        """Every arm's name, the plainest first, as the engine offers them."""
        names = dict.fromkeys(arm for n in self.sizes for arm in self.cells[n])
        return sorted(names, key=lambda arm: (not arm.startswith("numpy"), not arm.startswith("scipy")))

    def plain(self, n: int) -> str | None:
        """The arm that stands for plain NumPy at this size (SciPy where NumPy has none), or None."""
        plain = (arm for arm in self.arms if arm.startswith(PLAIN) and arm in self.cells[n])
        return next(plain, None)

    def work(self, arm: str, n: int) -> float:
        """Elementary steps, as the primitives' own work models count them."""
        if self.op == "matmul":
            return float(n) ** 3 if self.side else float(n) ** 1.5
        return float(n) ** 2 if "direct" in arm else float(n)


@dataclass(frozen=True)
class Table:
    """A measured table; ``groups`` in the order of the file."""

    name: str
    meta: Mapping[str, Any]
    groups: tuple[Group, ...]

    @property
    def sizes(self) -> list[int]:
        return sorted({n for group in self.groups for n in group.sizes})


def read_table(path: Path) -> Table:
    """Read a file ``{"meta": {...}, "rows": [{op, arm, start, n, first, samples}, ...]}``, or one of the rows alone."""
    content = json.loads(path.read_text(encoding="utf-8"))
    if isinstance(content, list):
        content = {"rows": content}
    return make_table(path.stem, content.get("meta", {}), content["rows"])


def make_table(name: str, meta: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> Table:
    """A table from its rows; rows without a usable time are left out, a missing first call costs nothing extra."""
    firsts: dict[tuple[str, str, str, int], float] = {}
    times: dict[tuple[str, str, str, int], tuple[float, ...]] = {}
    for row in rows:
        samples = tuple(float(t) for t in row["samples"] if t is not None and 0.0 < t < math.inf)
        if samples:
            where = str(row["op"]), str(row.get("start", "host")), str(row["arm"]), int(row["n"])
            first = row.get("first")
            firsts[where] = 0.0 if first is None else max(0.0, float(first) - statistics.median(samples))
            times[where] = samples
    if not times:
        raise ValueError(f"table {name!r} has no row with a usable time; each row needs op, arm, n and samples")
    cells: dict[tuple[str, str], dict[int, dict[str, Cell]]] = {}
    for (op, start, arm, n), samples in times.items():
        seconds, key = _compile(firsts, op, start, arm, n)
        cells.setdefault((op, start), {}).setdefault(n, {})[arm] = Cell(arm, n, samples, seconds, key)
    side = "matmul n = side" in str(meta.get("note", ""))
    groups = tuple(Group(op, start, found, side) for (op, start), found in cells.items())
    return Table(name, dict(meta), groups)


def _compile(
    firsts: Mapping[tuple[str, str, str, int], float], op: str, start: str, arm: str, n: int
) -> tuple[float, CompileKey]:
    """What compiling takes, beyond a typical run, and what names the compilation."""
    if arm.startswith(ONCE_PER_OPERATION):
        # Only the size that was measured first shows it.
        return max(first for key, first in firsts.items() if key[:3] == (op, start, arm)), (op, start, arm)
    if arm.startswith(ONCE_PER_SIZE):
        # Measured after the device rows, host rows show a warm first call: the device row's is the true one.
        return max(first for key, first in firsts.items() if (key[0], *key[2:]) == (op, arm, n)), (op, start, arm, n)
    return firsts[op, start, arm, n], (op, start, arm, n)

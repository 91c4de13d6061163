"""The report of a calibration: the fastest arms by size, compile times, and skipped measurements with reasons."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hpfracc._reading import format_bytes, format_seconds
from hpfracc.engine.execution.calibration.trial import ArmPower, Series, Timing
from hpfracc.profiling.formats import make_table

#: The fastest arm at a smaller size counts as fastest unless another one is faster by this fraction.
_THRESHOLD = 0.1
#: First calls below this are not shown.
_SHOWN_SECONDS = 0.01


class Crossover(NamedTuple):
    """From ``shape`` on, ``arm`` is fastest; it took ``seconds`` at ``shape``."""

    shape: tuple[int, ...]
    arm: str
    seconds: float


class Skipped(NamedTuple):
    """A skipped measurement, and the reason."""

    series: Series
    shape: tuple[int, ...]
    arm: str
    why: str
    kind: str


@dataclass
class CalibrationReport:
    """The outcome of :func:`~hpfracc.engine.execution.calibration.calibrate`.

    Attributes
    ----------
    budget, spent : float
        Seconds of the time limit, and those used.
    imports : dict of str to float
        Seconds of importing each library, outside the limit.
    timings : dict
        Maps series to shapes to arm names to :class:`Timing`.
    transfers : list of (route, bytes, seconds)
        Copies that were timed.
    skipped : list of Skipped
        Skipped measurements.
    absent : dict of str to str
        Backends that were not measured, and why.
    powers : list of ArmPower
        Watts of arms, if energy was measured.
    kept : int
        Records in the wisdom afterwards.
    """

    budget: float
    thorough: bool
    spent: float = 0.0
    compiling: float = 0.0
    imports: dict[str, float] = field(default_factory=dict)
    timings: dict[Series, dict[tuple[int, ...], dict[str, Timing]]] = field(default_factory=dict)
    transfers: list[tuple[str, int, float]] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)
    powers: list[ArmPower] = field(default_factory=list)
    kept: int = 0

    def add(self, series: Series, shape: tuple[int, ...], timing: Timing) -> None:
        """Add a timing; of two, the faster one is kept, with the first call of the earlier one."""
        row = self.timings.setdefault(series, {}).setdefault(shape, {})
        known = row.get(timing.arm)
        if known is None or timing.seconds < known.seconds:
            row[timing.arm] = timing if known is None else timing._replace(first=known.first)

    def crossovers(self, series: Series) -> list[Crossover]:
        """The fastest arms, from the smallest size up, with the sizes at which they change."""
        found: list[Crossover] = []
        for shape, row in sorted(self.timings.get(series, {}).items(), key=lambda item: math.prod(item[0])):
            best = min(row.values(), key=lambda timing: timing.seconds)
            holder = row.get(found[-1].arm) if found else None
            if holder is None or best.seconds < (1.0 - _THRESHOLD) * holder.seconds:
                found.append(Crossover(shape, best.arm, best.seconds))
        return found

    def compiles(self) -> Iterator[tuple[Series, tuple[int, ...], Timing]]:
        """Every first call that was timed."""
        yield from (entry for entry in self._entries() if entry[2].first is not None)

    def _entries(self) -> Iterator[tuple[Series, tuple[int, ...], Timing]]:
        for series, sizes in self.timings.items():
            for shape, row in sizes.items():
                for timing in row.values():
                    yield series, shape, timing

    @property
    def measurements(self) -> int:
        """Number of timings."""
        return sum(1 for _ in self._entries())

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        operations = {
            series: {
                **_where(series),
                "crossovers": [
                    {"from": list(step.shape), "arm": step.arm, "seconds": step.seconds}
                    for step in self.crossovers(series)
                ],
                "timings": [],
            }
            for series in self.timings
        }
        for series, shape, timing in self._entries():
            facts = {"shape": list(shape), "arm": timing.arm, "seconds": timing.seconds, "work": timing.x}
            operations[series]["timings"].append(facts)
        return {
            "budget_seconds": self.budget,
            "spent_seconds": self.spent,
            "thorough": self.thorough,
            "measurements": self.measurements,
            "import_seconds": dict(self.imports),
            "compile_seconds": self.compiling,
            "compiles": [
                {**_where(series), "shape": list(shape), "arm": timing.arm, "seconds": timing.first}
                for series, shape, timing in self.compiles()
            ],
            "operations": list(operations.values()),
            "transfers": [{"route": r, "bytes": size, "seconds": seconds} for r, size, seconds in self.transfers],
            "skipped": [
                {**_where(skip.series), "shape": list(skip.shape), "arm": skip.arm, "why": skip.why}
                for skip in self.skipped
            ],
            "absent": dict(self.absent),
            "powers": [{"operation": each.operation, "arm": each.arm, "watts": each.watts} for each in self.powers],
            "records_kept": self.kept,
        }

    def __rich__(self) -> Any:
        from rich.console import Group
        from rich.text import Text

        return Group(*(table for table in _tables(self) if table.rows), *map(Text, _summary(self)))


def show_shape(shape: tuple[int, ...]) -> str:
    """A shape such as ``"1,024 x 1,024"``."""
    return " x ".join(f"{size:,}" for size in shape)


def _where(series: Series) -> dict[str, Any]:
    return {
        "operation": series.operation,
        "variant": series.variant or None,
        "dtype": series.dtype,
        "start": series.placement.start,
        "library": series.placement.library,
        "device": series.placement.device,
    }


def _tables(report: CalibrationReport) -> Iterator[Any]:
    names = {"operation": "text", "operands": "text", "from": "number", "arm": "word", "time there": "number"}
    table = make_table("Fastest arm, from each size on", **names)
    for series in report.timings:
        head = series.name, f"{series.dtype} {series.where}"
        for step in report.crossovers(series):
            table.add_row(*head, show_shape(step.shape), step.arm, format_seconds(step.seconds))
            head = "", ""
        table.add_section()
    yield table

    first: dict[tuple[str, str], list[float]] = defaultdict(list)
    for series, _, timing in report.compiles():
        first[series.operation, timing.arm].append(timing.first or 0.0)
    numbers = dict.fromkeys(("compilations", "longest", "in all"), "number")
    table = make_table("First calls, outside the time limit", operation="text", arm="word", **numbers)
    for key, found in sorted(first.items(), key=lambda item: -sum(item[1])):
        if max(found) >= _SHOWN_SECONDS:
            table.add_row(*key, str(len(found)), format_seconds(max(found)), format_seconds(sum(found)))
    yield table

    table = make_table("Copies", route="word", **dict.fromkeys(("size", "time", "a second"), "number"))
    for route, size, seconds in report.transfers:
        rate = f"{format_bytes(size / seconds)}/s" if seconds > 0 else "-"
        table.add_row(route, format_bytes(size), format_seconds(seconds), rate)
    yield table

    table = make_table("Power", operation="text", arm="word", watts="number")
    for each in report.powers:
        table.add_row(each.operation, each.arm, f"{each.watts:.1f}")
    yield table


def _summary(report: CalibrationReport) -> Iterator[str]:
    imports = ", ".join(f"{name} {format_seconds(seconds)}" for name, seconds in report.imports.items())
    yield (
        f"{report.measurements} timings in {report.spent:.1f} s of {report.budget:g} s, without "
        f"{report.compiling:.1f} s of first calls" + (f" and imports: {imports}" if imports else "")
    )
    reasons = Counter(skip.kind for skip in report.skipped)
    if reasons:
        yield "Left out: " + ", ".join(f"{count} {kind}" for kind, count in reasons.most_common())
    if report.absent:
        yield "Took no part: " + ", ".join(f"{name} ({why})" for name, why in report.absent.items())
    yield f"{report.kept} records are kept"

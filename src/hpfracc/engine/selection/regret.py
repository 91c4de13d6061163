"""Regret: the time, or energy, that choices cost over the best arms, as far as measured times tell."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hpfracc.engine.selection.decision import as_text, plain_values
from hpfracc.engine.selection.policy import Chooser, Incumbent
from hpfracc.profiling.formats import format_seconds

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["OperationRegret", "RegretReport", "regret_report"]

#: A call counts as slow if its arm is slower than the best by more than this.
_SLOW = 1.1


@dataclass(frozen=True, slots=True)
class OperationRegret:
    """The regret of one operation.

    Attributes
    ----------
    operation : str
        Its name.
    calls : int
        Calls so far.
    seconds, compiling : float
        Their total time, and the part of it spent compiling.
    best : float
        The time of the best arm of each call, without compiling, by all that is known now; with
        ``objective="energy"`` its joules.
    regret : float
        Typical time of the arms that ran over that of the best ones, less 1, without compiling. Both are predictions of
        the cost model, so that noise does not count as a wrong choice. ``nan`` before the first call. With
        ``objective="energy"`` the same of joules: time by the power of each arm's device.
    exploring : float
        Fraction of ``seconds`` spent on trying alternatives.
    slow : float
        Share of the calls whose arm is more than 10 % slower than the best, or needs 10 % more energy.
    objective : str
        What the calls were chosen for: ``"time"`` or ``"energy"``. A total of both is ``"both"``, without ``best`` and
        ``regret``, which have no common unit.
    """

    operation: str
    calls: int
    seconds: float
    compiling: float
    best: float
    regret: float
    exploring: float
    slow: float
    objective: str = "time"

    def to_dict(self) -> dict[str, Any]:
        """Convert to plain values, with None for unknown numbers."""
        return plain_values(self)


@dataclass(slots=True)
class _RegretTotals:
    """The sum of several lines."""

    calls: int = 0
    seconds: float = 0.0
    compiling: float = 0.0
    exploring: float = 0.0
    ran: float = 0.0
    best: float = 0.0
    slow: int = 0
    objectives: set[str] = field(default_factory=set)

    def add(self, line: Incumbent, predicted: dict[str, float], objective: str) -> None:
        """Add a line; ``predicted`` maps its arms to typical times, or joules."""
        self.objectives.add(objective)
        self.calls += sum(line.ran_calls.values())
        self.seconds += line.seconds + line.compiling
        self.compiling += line.compiling
        self.exploring += line.exploring
        if not predicted:
            return
        least = min(predicted.values())
        for arm, calls in line.ran_calls.items():
            if arm in predicted:
                self.ran += predicted[arm] * calls
                self.best += least * calls
                self.slow += calls if predicted[arm] > _SLOW * least else 0

    def regret(self, operation: str) -> OperationRegret:
        """The sum as a row of the report."""
        mixed = len(self.objectives) > 1
        return OperationRegret(
            operation,
            self.calls,
            self.seconds,
            self.compiling,
            math.nan if mixed else self.best,
            math.nan if mixed else _share(self.ran - self.best, self.best),
            _share(self.exploring, self.seconds),
            _share(self.slow, self.calls),
            "both" if mixed else "".join(self.objectives) or "time",
        )


@dataclass(frozen=True, repr=False)
class RegretReport:
    """The regret of the engine's choices, per operation and in total. Print it, or use :meth:`to_dict`."""

    operations: tuple[OperationRegret, ...]
    total: OperationRegret

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {"operations": [row.to_dict() for row in self.operations], "total": self.total.to_dict()}

    def __rich__(self) -> RenderableType:
        from rich import box
        from rich.table import Table

        table = Table(title="What choosing cost", title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
        table.add_column("operation")
        for name in ("calls", "time", "of it compiling", "best arms", "regret", "exploring", "calls >10 % worse"):
            table.add_column(name, justify="right")
        for row in self.operations:
            table.add_row(*_cells(row))
        table.add_section()
        table.add_row(*_cells(self.total), style="bold")
        return table

    def __str__(self) -> str:
        return as_text(self)

    def __repr__(self) -> str:
        return str(self)


def regret_report(chooser: Chooser) -> RegretReport:
    """The regret of choices so far by all that is known now, per operation: a slot, or the first part of a tuple."""
    sums: dict[tuple[str, str], _RegretTotals] = {}
    whole = _RegretTotals()
    for (slot, bucket, objective), line in list(chooser.incumbents.items()):
        operation = str(slot[0] if isinstance(slot, tuple) and slot else slot)
        predicted = {}
        for arm, option in line.options.items():
            estimate = chooser.costs.estimate(option.key, bucket, option.x, option.extra)
            if estimate.source != "none":
                predicted[arm] = estimate.seconds * (1.0 if option.watts is None else option.watts)
        for found in (sums.setdefault((operation, objective), _RegretTotals()), whole):
            found.add(line, predicted, objective)
    rows = tuple(found.regret(operation) for (operation, _), found in sorted(sums.items()))
    return RegretReport(rows, whole.regret("all"))


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0.0 else math.nan


def _cells(row: OperationRegret) -> tuple[str, ...]:
    times = [format_seconds(row.seconds), format_seconds(row.compiling)]
    best = format_seconds(row.best) if row.objective == "time" else _joules(row.best)
    return row.operation, f"{row.calls:,}", *times, best, *map(_percent, (row.regret, row.exploring, row.slow))


def _joules(energy: float) -> str:
    return "-" if math.isnan(energy) else f"{energy:.3g} J"


def _percent(share: float) -> str:
    return "-" if math.isnan(share) else f"{100.0 * share:.1f} %"

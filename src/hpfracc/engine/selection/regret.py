"""Regret: the time, or energy, that choices cost over the best arms, as far as measured times tell."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hpfracc.engine.selection.costs import CostModel, Option
from hpfracc.engine.selection.decision import as_text
from hpfracc.profiling.formats import format_seconds

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["Ledger", "OperationRegret", "RegretReport"]

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
        found = {name: getattr(self, name) for name in self.__slots__}
        return {
            name: None if isinstance(value, float) and math.isnan(value) else value for name, value in found.items()
        }


@dataclass(slots=True)
class _Line:
    """The calls of one slot and bucket, per arm, and an option of each arm for predictions."""

    options: dict[str, Option] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    compiling: float = 0.0
    exploring: float = 0.0


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

    def add(self, line: _Line, predicted: dict[str, float], objective: str) -> None:
        """Add a line; ``predicted`` maps its arms to typical times, or joules."""
        self.objectives.add(objective)
        self.calls += sum(line.calls.values())
        self.seconds += line.seconds + line.compiling
        self.compiling += line.compiling
        self.exploring += line.exploring
        if not predicted:
            return
        least = min(predicted.values())
        for arm, calls in line.calls.items():
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


class RegretReport:
    """The regret of the engine's choices, per operation and in total. Print it, or use :meth:`to_dict`."""

    def __init__(self, operations: Sequence[OperationRegret], total: OperationRegret) -> None:
        self.operations = tuple(operations)
        self.total = total

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


class Ledger:
    """A chooser's record of calls, for the regret. Not thread-safe: the owner locks.

    Parameters
    ----------
    costs : CostModel
        Predicts typical times for the report.
    """

    def __init__(self, costs: CostModel) -> None:
        self._costs = costs
        self._lines: dict[tuple[Hashable, Hashable, str], _Line] = {}

    def offered(self, slot: Hashable, bucket: Hashable, options: Sequence[Option]) -> None:
        """Note the options of a choice."""
        known = self._line(slot, bucket, _objective(options[0])).options
        if len(known) < len(options):
            for option in options:
                known.setdefault(option.arm, option)

    def ran(
        self, slot: Hashable, bucket: Hashable, option: Option, seconds: float, calls: int, compiling: float = 0.0
    ) -> None:
        """Note ``calls`` calls of ``seconds`` each, the first of which took ``compiling`` more."""
        line = self._line(slot, bucket, _objective(option))
        line.options.setdefault(option.arm, option)
        line.calls[option.arm] = line.calls.get(option.arm, 0) + calls
        line.seconds += seconds * calls
        line.compiling += compiling

    def explored(self, slot: Hashable, bucket: Hashable, option: Option, seconds: float) -> None:
        """Note time spent on trying an alternative."""
        self._line(slot, bucket, _objective(option)).exploring += seconds

    def report(self) -> RegretReport:
        """The report so far, per operation: the slot itself, or the first part of a tuple."""
        sums: dict[tuple[str, str], _RegretTotals] = {}
        whole = _RegretTotals()
        for (slot, bucket, objective), line in list(self._lines.items()):
            operation = str(slot[0] if isinstance(slot, tuple) and slot else slot)
            predicted = self._predicted(bucket, line)
            sums.setdefault((operation, objective), _RegretTotals()).add(line, predicted, objective)
            whole.add(line, predicted, objective)
        rows = [found.regret(operation) for (operation, _), found in sorted(sums.items())]
        return RegretReport(rows, whole.regret("all"))

    def _line(self, slot: Hashable, bucket: Hashable, objective: str) -> _Line:
        key = slot, bucket, objective
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _Line()
        return line

    def _predicted(self, bucket: Hashable, line: _Line) -> dict[str, float]:
        found = {}
        for arm, option in line.options.items():
            estimate = self._costs.estimate(option.key, bucket, option.x, option.extra)
            if estimate.source != "none":
                found[arm] = estimate.seconds if option.watts is None else estimate.seconds * option.watts
        return found


def _objective(option: Option) -> str:
    """What an option is chosen for: options have a power only where energy decides."""
    return "time" if option.watts is None else "energy"


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0.0 else math.nan


def _cells(row: OperationRegret) -> tuple[str, ...]:
    return (
        row.operation,
        f"{row.calls:,}",
        format_seconds(row.seconds),
        format_seconds(row.compiling),
        format_seconds(row.best) if row.objective == "time" else _joules(row.best),
        _percent(row.regret),
        _percent(row.exploring),
        _percent(row.slow),
    )


def _joules(energy: float) -> str:
    return "-" if math.isnan(energy) else f"{energy:.3g} J"


def _percent(share: float) -> str:
    return "-" if math.isnan(share) else f"{100.0 * share:.1f} %"

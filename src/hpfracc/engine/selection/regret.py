"""Regret: the time, or energy, that choices cost over the best arms, as far as measured times tell."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from hpfracc._reading import format_seconds
from hpfracc.engine.selection.decision import as_text, plain_values
from hpfracc.engine.selection.policy import Chooser, Incumbent

#: A call counts as slow if its arm is slower than the best by more than this.
_SLOW = 1.1
#: What ran in one slot and bucket, and the typical time, or energy, of each of its arms.
_Line = tuple[Incumbent, dict[str, float]]


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


@dataclass(frozen=True, repr=False)
class RegretReport:
    """The regret of the engine's choices, per operation and in total. Print it, or use :meth:`to_dict`."""

    operations: tuple[OperationRegret, ...]
    total: OperationRegret

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {"operations": [row.to_dict() for row in self.operations], "total": self.total.to_dict()}

    def __rich__(self) -> Any:
        from hpfracc.profiling.formats import make_table

        names = ("calls", "time", "of it compiling", "best arms", "regret", "exploring", "calls >10 % worse")
        table = make_table("What choosing cost", operation="text", **dict.fromkeys(names, "number"))
        for row in self.operations:
            table.add_row(*_cells(row))
        table.add_section()
        table.add_row(*_cells(self.total), style="bold")
        return table

    def __str__(self) -> str:
        return as_text(self)

    __repr__ = __str__


def regret_report(chooser: Chooser) -> RegretReport:
    """The regret of choices so far by all that is known now, per operation: a slot, or the first part of a tuple."""
    groups: dict[tuple[str, str], list[_Line]] = defaultdict(list)
    for (slot, bucket, objective), line in list(chooser.incumbents.items()):
        operation = str(slot[0] if isinstance(slot, tuple) and slot else slot)
        predicted = {}
        for arm, option in line.options.items():
            estimate = chooser.costs.estimate(option.key, bucket, option.x, option.extra)
            if estimate.source != "none":
                predicted[arm] = estimate.seconds * (1.0 if option.watts is None else option.watts)
        groups[operation, objective].append((line, predicted))
    rows = tuple(_sum_up(operation, objective, lines) for (operation, objective), lines in sorted(groups.items()))
    objectives = sorted({objective for _, objective in groups})
    together = "both" if len(objectives) > 1 else "".join(objectives) or "time"
    return RegretReport(rows, _sum_up("all", together, [line for lines in groups.values() for line in lines]))


def _sum_up(operation: str, objective: str, lines: list[_Line]) -> OperationRegret:
    calls = sum(sum(line.ran_calls.values()) for line, _ in lines)
    compiling = sum(line.compiling for line, _ in lines)
    seconds = sum(line.seconds for line, _ in lines) + compiling
    exploring = sum(line.exploring for line, _ in lines)
    ran = best = 0.0
    slow = 0
    for line, predicted in lines:
        least = min(predicted.values(), default=math.nan)
        for arm, count in line.ran_calls.items():
            if arm in predicted:
                ran += predicted[arm] * count
                best += least * count
                slow += count if predicted[arm] > _SLOW * least else 0
    if objective == "both":
        ran = best = math.nan
    shares = _share(ran - best, best), _share(exploring, seconds), _share(slow, calls)
    return OperationRegret(operation, calls, seconds, compiling, best, *shares, objective)


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0.0 else math.nan


def _cells(row: OperationRegret) -> tuple[str, ...]:
    best = format_seconds(row.best) if row.objective == "time" else f"{row.best:.3g} J"
    shares = ("-" if math.isnan(share) else f"{100.0 * share:.1f} %" for share in (row.regret, row.exploring, row.slow))
    times = format_seconds(row.seconds), format_seconds(row.compiling), "-" if math.isnan(row.best) else best
    return row.operation, f"{row.calls:,}", *times, *shares

"""Measures the engine's choices on this machine against the fastest arms."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from hpfracc._reading import format_seconds
from hpfracc.engine.execution.calibration.report import show_shape
from hpfracc.engine.execution.calibration.trial import (
    DEFAULT_OPERATIONS,
    ArmTrial,
    Series,
    TimeBox,
    TimeGrowth,
    Timing,
    repeat,
    typical_operands,
)
from hpfracc.engine.execution.operation import get_operation
from hpfracc.engine.selection.costs import lower_quartile
from hpfracc.errors import InvalidInputError
from hpfracc.profiling.formats import make_table

#: Base-2 logarithms of the numbers of elements, for every operation. Calibration starts with other sizes.
_EXPONENTS = (5, 9, 11, 13, 15, 17, 19)
#: Arms predicted to be this many times slower than the best are not timed.
_MAX_SLOWDOWN = 20.0
#: Targets: time regret, fraction of slow sizes, and the slowdown allowed against NumPy.
_MAX_REGRET, _MAX_SLOW_FRACTION = 0.03, 0.05
_NUMPY_FRACTION, _NUMPY_SECONDS = 0.05, 3e-6
#: A choice this many times slower than the best counts as slow.
_SLOW_RATIO = 1.1
_WARMUP_CALLS, _WARMUP_SECONDS = 50, 0.3


@dataclass(frozen=True, slots=True)
class BenchRow:
    """One operation at one size.

    ``seconds`` is the time of the chosen arm, ``call_seconds`` that of the call including the engine, ``best_seconds``
    that of the best arm, whose median is ``spread`` times as long, and ``numpy_seconds`` that of NumPy's best arm.
    """

    operation: str
    shape: tuple[int, ...]
    chosen: str
    seconds: float
    call_seconds: float
    best: str
    best_seconds: float
    spread: float
    numpy_seconds: float

    @property
    def ratio(self) -> float:
        """Time of the chosen arm over that of the best."""
        return self.seconds / self.best_seconds

    @property
    def is_slow(self) -> bool:
        """Whether the choice is more than 10 % slower than the best, beyond the spread of the samples."""
        return self.ratio > max(_SLOW_RATIO, self.spread)


@dataclass
class BenchOutcome:
    """All rows."""

    rows: list[BenchRow] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    spent: float = 0.0

    def metrics(self) -> list[tuple[str, str, str, bool]]:
        """Rows of (metric, value, target, whether the target is met)."""
        if not self.rows:
            return []
        regret = sum(row.seconds for row in self.rows) / sum(row.best_seconds for row in self.rows) - 1.0
        slow = sum(row.is_slow for row in self.rows) / len(self.rows)
        typical = math.exp(statistics.fmean(math.log(row.ratio) for row in self.rows)) - 1.0
        allowed = ((1 + _NUMPY_FRACTION) * row.numpy_seconds + _NUMPY_SECONDS for row in self.rows)
        worse = sum(row.call_seconds > most for row, most in zip(self.rows, allowed, strict=True))
        most, few = f"<= {_MAX_REGRET:.0%}", f"<= {_MAX_SLOW_FRACTION:.0%}"
        return [
            ("time lost against the best arm, in total", f"{regret:.1%}", most, regret <= _MAX_REGRET),
            ("time lost against the best arm, mean over sizes", f"{typical:.1%}", "", True),
            ("sizes more than 10 % slower than the best arm", f"{slow:.1%}", few, slow <= _MAX_SLOW_FRACTION),
            ("sizes slower than NumPy by more than 5 % + 3 us", str(worse), "0", not worse),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "rows": [asdict(row) | {"ratio": row.ratio, "slow": row.is_slow} for row in self.rows],
            "metrics": [
                {"metric": what, "found": value, "bar": target or None, "met": met}
                for what, value, target, met in self.metrics()
            ],
            "skipped": list(self.skipped),
            "spent_seconds": self.spent,
        }

    def __rich__(self) -> Any:
        from rich.console import Group
        from rich.text import Text

        words, numbers = dict.fromkeys(("operation", "chosen arm", "best arm"), "word"), ("its time", "whole call")
        kinds = {**words, **dict.fromkeys(("size", *numbers, "best time", "ratio"), "number")}
        order = ("operation", "size", "chosen arm", *numbers, "best arm", "best time", "ratio")
        table = make_table("The engine's choice and the best arm", **{name: kinds[name] for name in order})
        last = ""
        for row in self.rows:
            if last and row.operation != last:
                table.add_section()
            style = "red" if row.is_slow else "green" if row.ratio <= _SLOW_RATIO else ""
            chosen = row.chosen, format_seconds(row.seconds), format_seconds(row.call_seconds)
            best = row.best, format_seconds(row.best_seconds), Text(f"{row.ratio:.2f}", style=style)
            table.add_row(row.operation if row.operation != last else "", show_shape(row.shape), *chosen, *best)
            last = row.operation
        metrics = make_table("Summary", metric="text", value="number", target="number", met="word")
        for what, value, target, met in self.metrics():
            mark = Text("") if not target else Text("met", style="green") if met else Text("missed", style="red")
            metrics.add_row(what, value, target, mark)
        notes = [Text(f"skipped: {text}", style="dim") for text in self.skipped]
        return Group(table, metrics, *notes)


def measure(operations: Sequence[str] | None, budget: float, report: Callable[[float, str], None]) -> BenchOutcome:
    """Time every arm, and then the engine's own choice, at sizes that calibration does not start with.

    Parameters
    ----------
    operations : sequence of str, optional
        Names of operations; the built-in ones by default.
    budget : float
        Maximum seconds, not counting first calls.
    report : callable
        Called with the fraction done and a description of the current step.
    """
    if not 0.0 < budget < math.inf:
        raise InvalidInputError(f"budget={budget!r} is not a time; use a number of seconds above 0")
    names = [get_operation(name).name for name in operations or DEFAULT_OPERATIONS]
    box = TimeBox(budget)
    outcome = BenchOutcome()
    effort = min(max(0.3 * budget / (len(names) * len(_EXPONENTS) * 12), 1e-3), 20e-3)
    growth: dict[tuple[str, str], TimeGrowth] = {}
    for exponent in _EXPONENTS:
        for name in names:
            series = Series(name, "int64" if name == "bitwise_xor" else "float64")
            report(box.spent / budget, f"{name} {show_shape(series.shape(exponent))}")
            row = _row(series, exponent, box, effort, growth)
            if row is None:
                outcome.skipped.append(f"{name} {show_shape(series.shape(exponent))}: the time budget is used up")
            else:
                outcome.rows.append(row)
    outcome.rows.sort(key=lambda row: names.index(row.operation))
    outcome.spent = box.spent
    return outcome


def _row(
    series: Series, exponent: int, box: TimeBox, effort: float, growth: dict[tuple[str, str], TimeGrowth]
) -> BenchRow | None:
    specs, params = series.operands(exponent)
    if not box.left:
        return None
    trial = ArmTrial(series.operation, typical_operands(series.operation, specs), params)
    arms = [arm for arm, refused in trial.arms() if refused is None]
    known = {arm.name: growth.setdefault((series.operation, arm.name), TimeGrowth()) for arm in arms}
    arms.sort(key=lambda arm: known[arm.name].expected(trial.work(arm))[1])
    times: dict[str, Timing] = {}
    for arm in arms:
        quickest = min((timing.seconds for timing in times.values()), default=math.inf)
        least, _, most = known[arm.name].expected(trial.work(arm))
        if least > _MAX_SLOWDOWN * quickest:
            continue
        if box.left < 2.0 * most:
            return None
        timing = trial.time(arm, box, effort=effort, learn=False)
        known[arm.name].add(timing.x, timing.seconds)
        times[arm.name] = timing
    call = trial.operation
    warmup = TimeBox(_WARMUP_SECONDS)
    for _ in range(_WARMUP_CALLS):
        call(*trial.arrays, **params)
        if not warmup.left:
            break
    whole = lower_quartile(repeat(partial(call, *trial.arrays, **params), effort=effort, limit=max(box.left, 0.1)))
    chosen = call.decide(*trial.arrays, **params).arm
    # Timed again one after the other, so that a disturbance affects both; the shorter time counts.
    for arm in arms:
        if arm.name in (chosen, min(times.values(), key=lambda timing: timing.seconds).arm):
            second = trial.time(arm, box, effort=effort, learn=False)
            known_time = times.get(arm.name, second)
            times[arm.name] = min(known_time, second, key=lambda timing: timing.seconds)
    best = min(times.values(), key=lambda timing: timing.seconds)
    numpy = min((timing.seconds for arm, timing in times.items() if arm.startswith("numpy:")), default=math.inf)
    spread = statistics.median(best.samples) / best.seconds
    took = times[chosen].seconds
    return BenchRow(
        series.operation, series.shape(exponent), chosen, took, whole, best.arm, best.seconds, spread, numpy
    )

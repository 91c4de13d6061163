"""The replay of a whole table: every workload, the bars of selection.md, and the baselines."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from .judge import Pair, Verdict, judge
from .knots import Knots
from .oracle import oracle
from .policies import BASELINES
from .simulation import Times, Workload, simulate
from .tables import Group, Table
from .workloads import drifting, hammered, mixed, sweep

WORKLOADS = ("mixed", "sweep", "hammered", "drift")


@dataclass(frozen=True)
class Bar:
    """One bar of selection.md and how it was met."""

    workload: str
    metric: str
    value: float
    most: float
    unit: str = "%"

    def show(self, value: float) -> str:
        """``value`` in the bar's unit."""
        if math.isnan(value):
            return "-"
        return f"{100.0 * value:.1f} %" if self.unit == "%" else f"{value:.0f}"

    @property
    def passed(self) -> bool:
        return not self.value > self.most  # nan: there was nothing to judge

    def to_dict(self) -> dict[str, Any]:
        value = None if math.isnan(self.value) else self.value
        return {
            "workload": self.workload,
            "metric": self.metric,
            "value": value,
            "bar": self.most,
            "passed": self.passed,
        }


@dataclass
class Replay:
    """What came of replaying one table."""

    table: Table
    knots: dict[str, list[int]]
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    baselines: dict[str, Pair] = field(default_factory=dict)

    @property
    def held_out(self) -> dict[str, list[int]]:
        return {group.name: [n for n in group.sizes if n not in self.knots[group.name]] for group in self.table.groups}

    @property
    def bars(self) -> list[Bar]:
        """selection.md's bars, for every workload they speak of."""
        found = []
        for name, verdict in self.verdicts.items():
            found.append(Bar(name, "regret, first 1,000 calls", verdict.first.regret, 0.10))
            if name != "drift":
                # An oracle that knows of the change beforehand is no measure for those who have to notice it.
                found.append(Bar(name, "regret, settled", verdict.settled.regret, 0.03))
                found.append(Bar(name, "sizes settled slower than NumPy", len(verdict.slower_than_numpy), 0, ""))
            if name in ("mixed", "sweep"):
                # A single cheap size cannot pay for trying arms within 1 % of its own time: shown, without a bar.
                found.append(Bar(name, "calls >10 % slower than the oracle", verdict.wrong_share, 0.05))
            found.append(Bar(name, "replays over twice NumPy's total", len(verdict.over_twice_numpy), 0, ""))
        return found

    @property
    def passed(self) -> bool:
        return all(bar.passed for bar in self.bars)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "table": self.table.name,
            "machine": self.table.meta.get("machine"),
            "knots": self.knots,
            "held_out": self.held_out,
            "workloads": {name: verdict.to_dict() for name, verdict in self.verdicts.items()},
            "baselines": {name: pair.regret for name, pair in self.baselines.items()},
            "bars": [bar.to_dict() for bar in self.bars],
            "passed": self.passed,
        }


def replay(
    table: Table,
    knots: str = "every-other",
    *,
    calls: int = 2000,
    repeats: int = 5,
    workloads: tuple[str, ...] = WORKLOADS,
    baselines: bool = True,
    first_seed: int = 0,
) -> Replay:
    """Replay ``table``, ``repeats`` times with other noise, order of calls and calibration, and pool the results."""
    picked = Knots(table, knots)
    result = Replay(table, {group.name: sorted(picked.of(group, first_seed)) for group in table.groups})
    for seed in range(first_seed, first_seed + repeats):
        for group in table.groups:
            chosen = picked.of(group, seed)
            for name in workloads:
                verdict = result.verdicts.setdefault(name, Verdict())
                for workload in _make(name, group, calls, seed):
                    judge(group, workload, chosen, seed, verdict)
            if baselines:
                _add_baselines(group, calls, seed, result)
    return result


def _make(name: str, group: Group, calls: int, seed: int) -> Iterator[Workload]:
    makers: dict[str, Callable[[], Iterator[Workload]]] = {
        "mixed": lambda: iter([mixed(group, calls, seed)]),
        "sweep": lambda: iter([sweep(group, calls)]),
        "hammered": lambda: (hammered(calls, n) for n in _turn(group, seed)),
        "drift": lambda: iter([drifting(group, calls, seed)]),
    }
    return makers[name]()


def _turn(group: Group, seed: int) -> list[int]:
    """The sizes to hammer in one repeat: a fifth of them, so that five repeats cover all."""
    return group.sizes[seed % 5 :: 5]


def _add_baselines(group: Group, calls: int, seed: int, result: Replay) -> None:
    times = Times(group, mixed(group, calls, seed), seed)
    best = oracle(times).seconds()
    for name, make in BASELINES.items():
        pair = result.baselines.setdefault(name, Pair())
        pair.add(simulate(times, make(times, seed)).seconds(), best)

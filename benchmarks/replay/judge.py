"""One replay judged: the policy against the oracle and against plain NumPy, summed up so that replays can be pooled."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from .oracle import best_plan, oracle
from .policies import Engine, Fixed
from .simulation import Run, Times, Workload, follow, simulate
from .tables import Group

#: The calls that count as first; the rest are settled.
FIRST = 1000
#: Calls of one size after which its choices must be right.
LEARNED = 50
#: How much slower than the oracle's an arm may be to count as right.
RIGHT = 1.1
#: Against plain NumPy, settled: at most this much slower, and this many seconds.
NUMPY_FACTOR, NUMPY_SLACK = 1.05, 3e-6
#: Against plain NumPy, in total.
TWICE = 2.0


@dataclass
class Pair:
    """Seconds of the policy and of the oracle."""

    ours: float = 0.0
    best: float = 0.0

    def add(self, ours: float, best: float) -> None:
        self.ours += ours
        self.best += best

    @property
    def regret(self) -> float:
        return self.ours / self.best - 1.0 if self.best > 0.0 else math.nan


@dataclass
class Verdict:
    """Sums over replays. ``held_out`` is the settled regret at sizes that were not calibrated."""

    first: Pair = field(default_factory=Pair)
    settled: Pair = field(default_factory=Pair)
    total: Pair = field(default_factory=Pair)
    held_out: Pair = field(default_factory=Pair)
    late: int = 0
    wrong: int = 0
    late_held_out: int = 0
    wrong_held_out: int = 0
    calls: int = 0
    decisions: int = 0
    exploring: float = 0.0
    #: The worst ratio of one replay's total to that of plain NumPy, and the replays where it is clearly above two.
    worst_total: float = 0.0
    over_twice_numpy: list[str] = field(default_factory=list)
    #: Sizes at which settled calls are clearly slower than plain NumPy's.
    slower_than_numpy: list[str] = field(default_factory=list)
    groups: dict[str, Pair] = field(default_factory=dict)

    @property
    def wrong_share(self) -> float:
        return self.wrong / self.late if self.late else math.nan

    @property
    def wrong_share_held_out(self) -> float:
        return self.wrong_held_out / self.late_held_out if self.late_held_out else math.nan

    @property
    def exploring_share(self) -> float:
        return self.exploring / self.total.ours if self.total.ours else math.nan

    def to_dict(self) -> dict[str, Any]:
        """Plain values, with None where a number is not known."""
        found = {
            "regret_first": self.first.regret,
            "regret_settled": self.settled.regret,
            "regret_total": self.total.regret,
            "regret_held_out": self.held_out.regret,
            "wrong_calls": self.wrong_share,
            "wrong_calls_held_out": self.wrong_share_held_out,
            "exploring": self.exploring_share,
            "full_decisions_per_call": self.decisions / self.calls if self.calls else math.nan,
            "worst_total_over_numpy": self.worst_total,
        }
        plain: dict[str, Any] = {name: None if math.isnan(value) else value for name, value in found.items()}
        plain["over_twice_numpy"] = list(self.over_twice_numpy)
        plain["settled_slower_than_numpy"] = list(self.slower_than_numpy)
        plain["regret_by_group"] = {name: pair.regret for name, pair in self.groups.items()}
        return plain


def judge(group: Group, workload: Workload, knots: Collection[int], seed: int, into: Verdict) -> None:
    """Replay one workload with the engine's rule and add what came of it to ``into``."""
    times = Times(group, workload, seed)
    engine = Engine(group, knots, seed)
    run = simulate(times, engine)
    best = oracle(times)
    calls = len(workload.sizes)
    begun = min(FIRST, calls // 2)
    best_first = best if workload.changed_at else follow(times, [(0, _padded(times, best_plan(times, 0, begun)))])
    into.first.add(run.seconds(0, begun), best_first.seconds(0, begun))
    into.settled.add(run.seconds(begun), best.seconds(begun))
    into.total.add(run.seconds(), best.seconds())
    into.groups.setdefault(group.name, Pair()).add(run.seconds(), best.seconds())
    into.calls += calls
    into.decisions += engine.decisions
    into.exploring += engine.exploring * run.seconds()
    _judge_calls(times, run, best, knots, begun, into)
    if any(group.plain(n) for n in group.sizes):
        plain = simulate(times, Fixed(group))
        _compare_totals(times, run, plain, into)
        if not workload.changed_at:
            into.slower_than_numpy += _slower(times, run, plain, begun)


def _padded(times: Times, plan: dict[int, str]) -> dict[int, str]:
    """The plan with any arm at all for sizes that come later."""
    return {n: next(iter(cells)) for n, cells in times.group.cells.items()} | plan


def _judge_calls(times: Times, run: Run, best: Run, knots: Collection[int], begun: int, into: Verdict) -> None:
    sizes, cells = times.workload.sizes, times.group.cells
    for index, n in enumerate(sizes):
        held_out = n not in knots
        if held_out and index >= begun:
            into.held_out.add(run.runs[index] + run.compiles[index], best.runs[index] + best.compiles[index])
        # The table's cells say nothing about calls after a change.
        if times.ranks[index] < LEARNED or times.workload.changed_at:
            continue
        ours, right = run.arms[index], best.arms[index]
        wrong = ours != right and cells[n][ours].clearly_slower_than(cells[n][right], RIGHT)
        into.late += 1
        into.wrong += wrong
        into.late_held_out += held_out
        into.wrong_held_out += held_out and wrong


def _compare_totals(times: Times, run: Run, plain: Run, into: Verdict) -> None:
    ratio = run.seconds() / plain.seconds()
    into.worst_total = max(into.worst_total, ratio)
    if ratio <= TWICE:
        return
    over = run.seconds() - TWICE * plain.seconds()
    excess = [ours - TWICE * theirs for ours, theirs in zip(run.runs, plain.runs, strict=True)]
    if over > 2.0 * _error(excess, _distinct(times, range(len(excess)))) * len(excess):
        name = f"{times.group.name}, sizes from {min(times.workload.sizes)} to {max(times.workload.sizes)}"
        into.over_twice_numpy.append(f"{name}: {ratio:.2f} times")


def _slower(times: Times, run: Run, plain: Run, begun: int) -> list[str]:
    """Sizes whose settled calls took more than plain NumPy's, allowance included, beyond the samples' spread."""
    group, found = times.group, []
    for n in group.sizes:
        where = [
            index
            for index, size in enumerate(times.workload.sizes)
            if size == n and index >= begun and times.ranks[index] >= LEARNED
        ]
        if group.plain(n) is None or len(where) < 2:
            continue
        excess = [run.runs[index] - NUMPY_FACTOR * plain.runs[index] - NUMPY_SLACK for index in where]
        if statistics.fmean(excess) > 2.0 * _error(excess, _distinct(times, where)):
            found.append(f"{group.name} n={n}: {statistics.fmean(excess) * 1e6:.3g} us over")
    return found


def _distinct(times: Times, where: Collection[int]) -> int:
    """How many independent times there are in these calls: the samples come round again."""
    cells = times.group.cells
    sizes = {times.workload.sizes[index] for index in where}
    return min(len(where), sum(min(len(cell.samples) for cell in cells[n].values()) for n in sizes))


def _error(values: list[float], distinct: int) -> float:
    """Standard error of the mean of values of which ``distinct`` are independent."""
    return statistics.stdev(values) / math.sqrt(distinct) if len(values) > 1 else math.inf

"""A simulated process: calls, what each arm would take at each of them, and what is compiled already."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from benchmarks.replay.tables import Group


@dataclass(frozen=True)
class Workload:
    """A sequence of calls of one group by size; ``slowdown(arm, index)`` multiplies that arm's times at that call."""

    name: str
    sizes: Sequence[int]
    slowdown: Callable[[str, int], float] = lambda arm, index: 1.0
    #: Index of the first call after which the times changed, 0 if they never do.
    changed_at: int = 0


@dataclass(slots=True)
class Run:
    """What happened, call by call."""

    arms: list[str] = field(default_factory=list)
    runs: list[float] = field(default_factory=list)
    compiles: list[float] = field(default_factory=list)
    explored: list[bool] = field(default_factory=list)
    decisions: int = 0

    def seconds(self, begin: int = 0, end: int | None = None) -> float:
        return sum(self.runs[begin:end]) + sum(self.compiles[begin:end])


class Policy(Protocol):
    """Picks an arm for a call of size ``n``, and is told what it took."""

    def pick(self, n: int) -> str: ...

    def told(self, n: int, arm: str, seconds: float, first: bool) -> None: ...


class Times:
    """The time of any arm at any call: samples in shuffled order, each once before any comes again.

    The k-th call of a size takes the k-th time of the arm at that size, whoever asks: all policies and the oracle
    live through the same noise.
    """

    def __init__(self, group: Group, workload: Workload, seed: int) -> None:
        self.group = group
        self.workload = workload
        self._seed = seed
        self._orders: dict[tuple[str, int], tuple[random.Random, list[float]]] = {}
        self._rank: list[int] = []
        seen: dict[int, int] = {}
        for n in workload.sizes:
            self._rank.append(seen.get(n, 0))
            seen[n] = seen.get(n, 0) + 1

    def at(self, index: int, arm: str) -> float:
        n, rank = self.workload.sizes[index], self._rank[index]
        known = self._orders.get((arm, n))
        if known is None:
            known = random.Random(f"{self._seed}/{self.group.name}/{arm}/{n}"), []
            self._orders[arm, n] = known
        rng, order = known
        while len(order) <= rank:
            more = list(self.group.cells[n][arm].samples)
            rng.shuffle(more)
            order += more
        return order[rank] * self.workload.slowdown(arm, index)

    def rank(self, index: int) -> int:
        """How many calls of the same size came before."""
        return self._rank[index]


def simulate(times: Times, policy: Policy) -> Run:
    """Let ``policy`` live through the workload."""
    run = Run()
    compiled = set()
    for index, n in enumerate(times.workload.sizes):
        arm = policy.pick(n)
        cell = times.group.cells[n][arm]
        first = cell.compile_key not in compiled
        compiled.add(cell.compile_key)
        seconds, waiting = times.at(index, arm), cell.compile if first else 0.0
        policy.told(n, arm, seconds + waiting, first)
        run.arms.append(arm)
        run.runs.append(seconds)
        run.compiles.append(waiting)
        run.explored.append(getattr(policy, "exploring", False))
    run.decisions = getattr(policy, "decisions", 0)
    return run

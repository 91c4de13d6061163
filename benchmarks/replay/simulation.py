"""A simulated process: calls, what each arm would take at each of them, and what is compiled already."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from .tables import CompileKey, Group


@dataclass(frozen=True)
class Workload:
    """A sequence of calls of one group, by size.

    From call ``changed_at`` on, the times of each arm are multiplied by its factor in ``factors``.
    """

    name: str
    sizes: Sequence[int]
    changed_at: int = 0
    factors: dict[str, float] = field(default_factory=dict)


@dataclass
class Run:
    """What happened, call by call."""

    arms: list[str] = field(default_factory=list)
    runs: list[float] = field(default_factory=list)
    compiles: list[float] = field(default_factory=list)

    def note(self, arm: str, seconds: float, compiling: float) -> None:
        self.arms.append(arm)
        self.runs.append(seconds)
        self.compiles.append(compiling)

    def seconds(self, begin: int = 0, end: int | None = None) -> float:
        return sum(self.runs[begin:end]) + sum(self.compiles[begin:end])


class Policy(Protocol):
    """Picks an arm for a call of size ``n``, and is told what it took."""

    def pick(self, n: int) -> str: ...

    def told(self, n: int, arm: str, seconds: float, first: bool) -> None: ...


class Times:
    """The time of any arm at any call: samples in shuffled order, each once before any comes again.

    The k-th call of a size takes the k-th time of the arm at that size for every policy: all policies and the oracle
    see the same noise.
    """

    def __init__(self, group: Group, workload: Workload, seed: int) -> None:
        self.group = group
        self.workload = workload
        self._seed = seed
        self._orders: dict[tuple[str, int], tuple[random.Random, list[float]]] = {}
        #: How many calls of the same size came before each call.
        self.ranks: list[int] = []
        seen: dict[int, int] = {}
        for n in workload.sizes:
            self.ranks.append(seen.get(n, 0))
            seen[n] = seen.get(n, 0) + 1

    def at(self, index: int, arm: str) -> float:
        """Seconds that ``arm`` takes, or would take, in call ``index``."""
        workload, rank = self.workload, self.ranks[index]
        n = workload.sizes[index]
        known = self._orders.get((arm, n))
        if known is None:
            known = random.Random(f"{self._seed}/{self.group.name}/{arm}/{n}"), []
            self._orders[arm, n] = known
        rng, order = known
        while len(order) <= rank:
            more = list(self.group.cells[n][arm].samples)
            rng.shuffle(more)
            order += more
        factor = workload.factors.get(arm, 1.0) if workload.factors and index >= workload.changed_at else 1.0
        return order[rank] * factor


def simulate(times: Times, policy: Policy) -> Run:
    """Let ``policy`` live through the workload; the first call of each compile key pays for compiling."""
    return _live(times, policy.pick, policy.told)


def follow(times: Times, plans: Sequence[tuple[int, dict[int, str]]]) -> Run:
    """What the plans (an arm per size, each from its first call on) take."""
    steps = list(plans)
    current: dict[int, str] = {}
    calls = 0

    def pick(n: int) -> str:
        nonlocal current, calls
        while steps and steps[0][0] <= calls:
            current = steps.pop(0)[1]
        calls += 1
        return current[n]

    return _live(times, pick, lambda n, arm, seconds, first: None)


def _live(times: Times, pick: Callable[[int], str], told: Callable[[int, str, float, bool], None]) -> Run:
    run = Run()
    compiled: set[CompileKey] = set()
    for index, n in enumerate(times.workload.sizes):
        arm = pick(n)
        cell = times.group.cells[n][arm]
        first = cell.compile_key not in compiled
        compiled.add(cell.compile_key)
        seconds, compiling = times.at(index, arm), cell.compile if first else 0.0
        told(n, arm, seconds + compiling, first)
        run.note(arm, seconds, compiling)
    return run

"""The sequences of calls that are replayed."""

from __future__ import annotations

import random

from .oracle import best_plan
from .simulation import Times, Workload
from .tables import Group

#: By how much an arm becomes slower half-way through the drifting workload.
DRIFT = 3.0


def mixed(group: Group, calls: int, seed: int) -> Workload:
    """Sizes in random order, all equally often."""
    rng = random.Random(f"mixed/{seed}/{group.name}")
    return Workload("mixed", [rng.choice(group.sizes) for _ in range(calls)])


def sweep(group: Group, calls: int) -> Workload:
    """All sizes in ascending order, repeatedly."""
    return Workload("sweep", [group.sizes[index % len(group.sizes)] for index in range(calls)])


def hammered(calls: int, n: int) -> Workload:
    """One size, repeatedly."""
    return Workload("hammered", [n] * calls)


def drifting(group: Group, calls: int, seed: int) -> Workload:
    """Mixed sizes; half-way the arm on which the oracle spends most of its time becomes slower."""
    plain = mixed(group, calls, seed)
    times = Times(group, plain, seed)
    plan = best_plan(times, 0, calls)
    spent: dict[str, float] = {}
    for index, n in enumerate(plain.sizes):
        spent[plan[n]] = spent.get(plan[n], 0.0) + times.at(index, plan[n])
    arm = max(spent, key=spent.__getitem__)
    return Workload("drift", plain.sizes, calls // 2, {arm: DRIFT})

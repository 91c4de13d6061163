"""The sequences of calls that are replayed."""

from __future__ import annotations

import random

from benchmarks.replay.simulation import Workload
from benchmarks.replay.tables import Group


def mixed(group: Group, calls: int, seed: int) -> Workload:
    """Sizes in random order, all equally often."""
    rng = random.Random(f"mixed/{seed}/{group.name}")
    return Workload("mixed", [rng.choice(group.sizes) for _ in range(calls)])


def hammered(group: Group, calls: int, n: int) -> Workload:
    """One size, over and over."""
    return Workload(f"hammered {n}", [n] * calls)


def sweep(group: Group, calls: int) -> Workload:
    """All sizes in ascending order, again and again."""
    sizes = group.sizes
    return Workload("sweep", [sizes[index % len(sizes)] for index in range(calls)])


def drifting(group: Group, calls: int, seed: int, arm: str, factor: float = 3.0) -> Workload:
    """Mixed sizes; half-way one arm becomes ``factor`` times slower."""
    half = calls // 2
    sizes = mixed(group, calls, seed).sizes
    return Workload(
        f"drift of {arm}", sizes, lambda name, index: factor if name == arm and index >= half else 1.0, changed_at=half
    )

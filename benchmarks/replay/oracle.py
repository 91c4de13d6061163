"""The best that could have been done: one arm per size, chosen with all times known, compiling paid for."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from benchmarks.replay.simulation import Run, Times


def best_plan(times: Times, begin: int, end: int, paid: frozenset[tuple[object, ...]] = frozenset()) -> dict[int, str]:
    """The arm per size that makes calls ``begin`` to ``end`` cheapest in all; ``paid`` compilations are free."""
    group = times.group
    sizes = times.workload.sizes
    totals: dict[int, dict[str, float]] = {}
    for index in range(begin, end):
        row = totals.setdefault(sizes[index], dict.fromkeys(group.cells[sizes[index]], 0.0))
        for arm in row:
            row[arm] += times.at(index, arm)
    # A compilation that serves several sizes is opened or not; given which are open, each size decides for itself.
    served: dict[tuple[object, ...], set[int]] = {}
    price: dict[tuple[object, ...], float] = {}
    for n in totals:
        for cell in group.cells[n].values():
            served.setdefault(cell.compile_key, set()).add(n)
            price[cell.compile_key] = 0.0 if cell.compile_key in paid else cell.compile
    shared = [key for key, where in served.items() if len(where) > 1]
    best: tuple[float, dict[int, str]] | None = None
    for count in range(len(shared) + 1):
        for opened in combinations(shared, count):
            found = _plan_with(times, totals, price, opened, shared)
            if found is not None and (best is None or found[0] < best[0]):
                best = found
    assert best is not None, "every size has an arm"
    return best[1]


def _plan_with(
    times: Times,
    totals: dict[int, dict[str, float]],
    price: dict[tuple[object, ...], float],
    opened: Sequence[tuple[object, ...]],
    shared: Sequence[tuple[object, ...]],
) -> tuple[float, dict[int, str]] | None:
    whole, plan = sum(price[key] for key in opened), {}
    for n, row in totals.items():
        costs = {}
        for arm, seconds in row.items():
            key = times.group.cells[n][arm].compile_key
            if key in opened:
                costs[arm] = seconds
            elif key not in shared:
                costs[arm] = seconds + price[key]
        if not costs:
            return None
        plan[n] = min(costs, key=costs.__getitem__)
        whole += costs[plan[n]]
    return whole, plan


def follow(times: Times, plans: Sequence[tuple[int, dict[int, str]]]) -> Run:
    """What the plans take, each from its first call on."""
    run = Run()
    compiled = set()
    steps = list(plans)
    current: dict[int, str] = {}
    for index, n in enumerate(times.workload.sizes):
        while steps and steps[0][0] <= index:
            current = steps.pop(0)[1]
        arm = current[n]
        cell = times.group.cells[n][arm]
        run.arms.append(arm)
        run.runs.append(times.at(index, arm))
        run.compiles.append(0.0 if cell.compile_key in compiled else cell.compile)
        run.explored.append(False)
        compiled.add(cell.compile_key)
    return run

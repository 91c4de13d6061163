"""The best that could have been done: one arm per size, chosen with all times known, compiling paid for."""

from __future__ import annotations

from collections.abc import Collection
from itertools import combinations

from .simulation import Run, Times, follow
from .tables import CompileKey

Plan = dict[int, str]


def best_plan(times: Times, begin: int, end: int, paid: Collection[CompileKey] = ()) -> Plan:
    """The arm per size that makes calls ``begin`` to ``end`` cheapest in all; ``paid`` compilations are free."""
    group, sizes = times.group, times.workload.sizes
    totals: dict[int, dict[str, float]] = {}
    for index in range(begin, end):
        row = totals.setdefault(sizes[index], dict.fromkeys(group.cells[sizes[index]], 0.0))
        for arm in row:
            row[arm] += times.at(index, arm)
    served: dict[CompileKey, set[int]] = {}
    price: dict[CompileKey, float] = {}
    for n in totals:
        for cell in group.cells[n].values():
            served.setdefault(cell.compile_key, set()).add(n)
            price[cell.compile_key] = 0.0 if cell.compile_key in paid else cell.compile
    # A compilation that serves several sizes is made or not; once that is settled, each size decides for itself.
    shared = [key for key, where in served.items() if len(where) > 1]
    found = [
        _plan_with(times, totals, price, made, shared)
        for count in range(len(shared) + 1)
        for made in combinations(shared, count)
    ]
    return min((plan for plan in found if plan is not None), key=lambda plan: plan[0])[1]


def _plan_with(
    times: Times,
    totals: dict[int, dict[str, float]],
    price: dict[CompileKey, float],
    made: Collection[CompileKey],
    shared: Collection[CompileKey],
) -> tuple[float, Plan] | None:
    whole, plan = sum(price[key] for key in made), {}
    for n, row in totals.items():
        costs = {}
        for arm, seconds in row.items():
            key = times.group.cells[n][arm].compile_key
            if key in made:
                costs[arm] = seconds
            elif key not in shared:
                costs[arm] = seconds + price[key]
        if not costs:
            return None
        plan[n] = min(costs, key=costs.__getitem__)
        whole += costs[plan[n]]
    return whole, plan


def oracle(times: Times) -> Run:
    """What the best plan takes; where the workload changes, the best one before and the best one after."""
    workload = times.workload
    calls = len(workload.sizes)
    if not workload.changed_at:
        return follow(times, [(0, best_plan(times, 0, calls))])
    before = best_plan(times, 0, workload.changed_at)
    paid = {times.group.cells[n][arm].compile_key for n, arm in before.items()}
    after = best_plan(times, workload.changed_at, calls, paid)
    return follow(times, [(0, before), (workload.changed_at, before | after)])

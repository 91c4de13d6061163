"""A table of the stored form, measured here and now from things that can be called."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from .tables import Table, make_table


class Contestant(NamedTuple):
    """One arm of an operation: ``prepare(n)`` gives something that does the work of size ``n`` each time it is called.

    The call returns when the work is done: a device is synchronised in it. ``prepare`` may raise
    ``NotImplementedError`` for a size that the arm does not take.
    """

    op: str
    start: str
    arm: str
    prepare: Callable[[int], Callable[[], Any]]


def measure_table(
    name: str,
    meta: Mapping[str, Any],
    contestants: Iterable[Contestant],
    sizes: Iterable[int],
    *,
    samples: int = 12,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[Table, list[dict[str, Any]]]:
    """Time the first call and ``samples`` more of each contestant at each size; the table, and its rows for a file."""
    rows = []
    everyone = list(contestants)
    for n in sizes:
        for op, start, arm, prepare in everyone:
            try:
                run = prepare(n)
            except NotImplementedError:
                continue
            first, *others = [_timed(run, clock) for _ in range(samples + 1)]
            rows.append({"op": op, "arm": arm, "start": start, "n": n, "first": first, "samples": others})
    return make_table(name, meta, rows), rows


def _timed(run: Callable[[], Any], clock: Callable[[], float]) -> float:
    begin = clock()
    run()
    return clock() - begin

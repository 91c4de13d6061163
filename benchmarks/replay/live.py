"""A table of the stored form, measured here and now from things that can be called."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from .tables import Table, make_table

#: A shorter call is repeated before it is timed, because another arm left cold caches.
WARMED = 0.01


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
    samples: int = 24,
    seconds: float = 0.3,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[Table, list[dict[str, Any]]]:
    """Time the first call and ``samples`` more of each contestant at each size; the table, and its rows for a file.

    The contestants of an operation take turns, so that a disturbance meets all of them; after ``seconds`` each has at
    least three samples and no more are taken. Something that fails is reported and left out.
    """
    rows: list[dict[str, Any]] = []
    everyone = list(contestants)
    for n in sizes:
        for where in dict.fromkeys((one.op, one.start) for one in everyone):
            racing: list[tuple[dict[str, Any], Callable[[], Any]]] = []
            for op, start, arm, prepare in everyone:
                if (op, start) != where:
                    continue
                try:
                    run = prepare(n)
                    first = _timed(run, clock)
                except NotImplementedError:
                    continue
                except Exception as error:  # of any library: this arm has no time here
                    print(f"{op} n={n} {start}: {arm}: {error}", file=sys.stderr)
                    continue
                racing.append(({"op": op, "arm": arm, "start": start, "n": n, "first": first, "samples": []}, run))
            for row, run in racing * samples:
                if len(row["samples"]) < 3 or sum(row["samples"]) < seconds:
                    if row["samples"] and row["samples"][-1] < WARMED:
                        run()
                    row["samples"].append(_timed(run, clock))
            rows += [row for row, _ in racing]
    return make_table(name, meta, rows), rows


def _timed(run: Callable[[], Any], clock: Callable[[], float]) -> float:
    begin = clock()
    run()
    return clock() - begin

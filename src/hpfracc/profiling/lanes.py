"""Lanes of a time line: one a thread, and as many for its tasks as ran at the same time."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from hpfracc.profiling.spans import Span

__all__ = ["pack_lanes"]


def pack_lanes(
    spans: Sequence[Span], known: Sequence[tuple[str, int | None]]
) -> tuple[list[dict[str, object]], list[int]]:
    """Lanes to show, and the one that each recorded lane goes to.

    A server makes a task a request: tasks of one thread that do not overlap in time share a lane, which is named after
    the thread alone then.
    """
    extents: dict[int, tuple[int, int]] = {}
    for span in spans:
        begin, end = extents.get(span.lane, (span.start, span.end))
        extents[span.lane] = min(begin, span.start), max(end, span.end)
    shown: list[dict[str, object]] = []
    goes_to = [0] * len(known)
    names: list[set[str]] = []
    for lane, (name, thread) in enumerate(known):
        if thread is None and lane in extents:
            goes_to[lane] = len(shown)
            shown.append({"id": len(shown), "thread": name, "task": None})
            names.append({name})
    free: dict[int, list[tuple[int, int]]] = {}
    tasks = [lane for lane in extents if known[lane][1] is not None]
    for lane in sorted(tasks, key=lambda lane: extents[lane]):
        name, thread = known[lane]
        assert thread is not None
        rows = free.setdefault(thread, [])
        begin, end = extents[lane]
        if rows and rows[0][0] <= begin:
            row = heapq.heapreplace(rows, (end, rows[0][1]))[1]
            names[row].add(name)
        else:
            row = len(shown)
            shown.append({"id": row, "thread": known[thread][0], "task": name})
            names.append({name})
            heapq.heappush(rows, (end, row))
        goes_to[lane] = row
    for row, found in enumerate(names):
        if shown[row]["task"] is not None and len(found) > 1:
            shown[row]["task"] = f"{len(found):,} tasks"
    return shown, goes_to

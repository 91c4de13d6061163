"""Lanes of a time line: one a thread, and as many for its tasks as ran at the same time."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from hpfracc.profiling.session import Lane
from hpfracc.profiling.spans import Span

__all__ = ["pack_lanes"]


def pack_lanes(spans: Sequence[Span], known: Sequence[Lane]) -> tuple[list[dict[str, object]], list[int]]:
    """Lanes to show, and the one that each recorded lane goes to.

    A server makes a task a request: lanes of one thread's tasks that do not overlap in time are shown as one.
    """
    extents: dict[int, tuple[int, int]] = {}
    for span in spans:
        begin, end = extents.get(span.lane, (span.start, span.end))
        extents[span.lane] = min(begin, span.start), max(end, span.end)
    shown: list[dict[str, object]] = []
    users: list[int] = []
    goes_to = [0] * len(known)
    for place, lane in enumerate(known):
        if lane.thread is None and place in extents:
            goes_to[place] = len(shown)
            shown.append({"id": len(shown), "thread": _named(lane.name, lane.users, "threads"), "task": None})
            users.append(lane.users)
    free: dict[int, list[tuple[int, int]]] = {}
    tasks = [place for place in extents if known[place].thread is not None]
    for place in sorted(tasks, key=lambda place: extents[place]):
        lane = known[place]
        assert lane.thread is not None
        rows = free.setdefault(lane.thread, [])
        begin, end = extents[place]
        if rows and rows[0][0] <= begin:
            row = heapq.heapreplace(rows, (end, rows[0][1]))[1]
            users[row] += lane.users
        else:
            row = len(shown)
            shown.append({"id": row, "thread": known[lane.thread].name, "task": lane.name})
            users.append(lane.users)
            heapq.heappush(rows, (end, row))
        goes_to[place] = row
    for row, count in enumerate(users):
        if shown[row]["task"] is not None:
            shown[row]["task"] = _named(str(shown[row]["task"]), count, "tasks")
    return shown, goes_to


def _named(name: str, users: int, many: str) -> str:
    return name if users == 1 else f"{users:,} {many}"

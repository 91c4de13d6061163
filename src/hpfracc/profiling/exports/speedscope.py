"""The format of speedscope: one evented profile for each lane."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from hpfracc.profiling.document import Document

__all__ = ["speedscope"]


def speedscope(document: Document) -> Iterator[str]:
    """The profile as JSON, in pieces."""
    header = document.header()
    frames: dict[str, int] = {}
    lanes: dict[int, list[tuple[int, int, int]]] = {lane["id"]: [] for lane in header["lanes"]}
    for span in document.rows():
        frame = frames.setdefault(span["name"], len(frames))
        lanes[span["lane"]].append((span["start_ns"], span["start_ns"] + span["duration_ns"], frame))
    dropped = header["dropped"]
    remark = f", {dropped:,} spans dropped" if dropped else ""
    head: dict[str, Any] = {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "name": f"hpfracc{remark}",
        "exporter": f"hpfracc {header['hpfracc']}",
        "hpfracc": {"dropped": dropped, "open": header["open"]},
        "shared": {"frames": [{"name": name} for name in frames]},
    }
    yield json.dumps(head)[:-1] + ', "profiles": ['
    first = True
    for lane in header["lanes"]:
        found = lanes[lane["id"]]
        if found:
            name = lane["thread"] if lane["task"] is None else f"{lane['thread']}: {lane['task']}"
            yield ("\n" if first else ",\n") + json.dumps(_profile(name, found))
            first = False
    yield "\n]}\n"


def _profile(name: str, spans: list[tuple[int, int, int]]) -> dict[str, Any]:
    """Opened and closed in order. What outlives the span around it is cut there: the format knows only nesting."""
    spans.sort(key=lambda span: (span[0], -span[1]))
    events: list[dict[str, Any]] = []
    stack: list[tuple[int, int]] = []

    def close(until: int | None) -> None:
        while stack and (until is None or stack[-1][0] <= until):
            end, frame = stack.pop()
            events.append({"type": "C", "at": end, "frame": frame})

    for start, end, frame in spans:
        close(start)
        stack.append((min(end, stack[-1][0]) if stack else end, frame))
        events.append({"type": "O", "at": start, "frame": frame})
    close(None)
    return {
        "type": "evented",
        "name": name,
        "unit": "nanoseconds",
        "startValue": spans[0][0],
        "endValue": max(event["at"] for event in events),
        "events": events,
    }

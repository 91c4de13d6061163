"""Profiles in the formats of other viewers: Chrome's trace events (Perfetto), and speedscope."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from hpfracc.profiling.document import Document

__all__ = ["chrome_trace", "speedscope"]


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
    """Open and close events in order. A span that outlives its parent is truncated: the format only nests."""
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


def chrome_trace(document: Document) -> Iterator[str]:
    """The trace as JSON, in pieces: one row per lane and per timed device."""
    header = document.header()
    pid = header["process"]["pid"]
    devices = {name: len(header["lanes"]) + place for place, name in enumerate(header["devices"])}
    yield '{"displayTimeUnit": "ns", "otherData": '
    yield json.dumps({key: header[key] for key in ("format", "version", "created", "hpfracc", "dropped", "open")})
    yield ', "traceEvents": [\n'
    yield json.dumps(_name(pid, 0, "process_name", f"hpfracc {header['hpfracc']}"))
    for lane in header["lanes"]:
        name = lane["thread"] if lane["task"] is None else f"{lane['thread']}: {lane['task']}"
        yield ",\n" + json.dumps(_name(pid, lane["id"], "thread_name", name))
    for device, row in devices.items():
        yield ",\n" + json.dumps(_name(pid, row, "thread_name", device))
    for span in document.rows():
        for event in _events(pid, span, devices):
            yield ",\n" + json.dumps(event, allow_nan=False)
    yield "\n]}\n"


def _name(pid: int, row: int, what: str, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": pid, "tid": row, "name": what, "args": {"name": name}}


def _events(pid: int, span: dict[str, Any], devices: dict[str, int]) -> Iterator[dict[str, Any]]:
    told = {key: span[key] for key in ("bytes", "error", "timing", "memory") if key in span}
    yield {
        "ph": "X",
        "pid": pid,
        "tid": span["lane"],
        "name": span["name"],
        "cat": span["kind"],
        "ts": span["start_ns"] / 1e3,
        "dur": span["duration_ns"] / 1e3,
        "args": told | span.get("metadata", {}),
    }
    if span["device_ns"] is not None and span["device_start_ns"] is not None:
        yield {
            "ph": "X",
            "pid": pid,
            "tid": devices[span["device"]],
            "name": span["name"],
            "cat": "device",
            "ts": span["device_start_ns"] / 1e3,
            "dur": span["device_ns"] / 1e3,
            "args": {},
        }

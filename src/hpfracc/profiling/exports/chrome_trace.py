"""Chrome's trace events, which Perfetto and chrome://tracing open."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from hpfracc.profiling.document import Document

__all__ = ["chrome_trace"]


def chrome_trace(document: Document) -> Iterator[str]:
    """The trace as JSON, in pieces: one row for each lane, and one for each device that was timed."""
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

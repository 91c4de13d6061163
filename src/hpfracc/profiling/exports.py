"""Profiles in the formats of viewers: Chrome's trace events (Perfetto), speedscope, our page, tables for a terminal.

The page is a single HTML file that works offline; its parts are in ``dashboard/``.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterator
from importlib import resources
from typing import Any

from hpfracc._reading import format_bytes, format_seconds, format_share, shown
from hpfracc.profiling.document import Document, require_profile
from hpfracc.profiling.formats import make_table

#: Rows of a summary shown by default.
_MAX_ROWS = 30


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
    used = [lane for lane in header["lanes"] if lanes[lane["id"]]]
    for number, lane in enumerate(used):
        yield (",\n" if number else "\n") + json.dumps(_profile(_lane_name(lane), lanes[lane["id"]]))
    yield "\n]}\n"


def _lane_name(lane: dict[str, Any]) -> str:
    return str(lane["thread"] if lane["task"] is None else f"{lane['thread']}: {lane['task']}")


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
        yield ",\n" + json.dumps(_name(pid, lane["id"], "thread_name", _lane_name(lane)))
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
    host = {"tid": span["lane"], "cat": span["kind"], "args": told | span.get("metadata", {})}
    found = [(host, span["start_ns"], span["duration_ns"])]
    if span["device_ns"] is not None and span["device_start_ns"] is not None:
        device = {"tid": devices[span["device"]], "cat": "device", "args": {}}
        found.append((device, span["device_start_ns"], span["device_ns"]))
    for event, start, duration in found:
        yield {"ph": "X", "pid": pid, "name": span["name"], "ts": start / 1e3, "dur": duration / 1e3, **event}


# The page.

#: The page's scripts, in order.
_SCRIPTS = ("format", "model", "ranks", "lanes", "chart", "panels", "table", "compare", "main")


def render_page(document: dict[str, Any] | None, title: str = "") -> str:
    """The page as HTML.

    Parameters
    ----------
    document : dict or None
        From :func:`hpfracc.profiling.load_profile`. Without one, a file can be dropped on the page.
    title : str
        Title; by default the command.
    """
    if document is not None:
        require_profile(document, shown(document))
    style = _read("page.css")
    script = "(() => {\n'use strict';\n" + "\n".join(_read(f"{name}.js") for name in _SCRIPTS) + "\n})();"
    policy = (
        f"default-src 'none'; script-src 'sha256-{_digest(script)}'; style-src 'sha256-{_digest(style)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    parts = {
        "policy": html.escape(policy, quote=True).replace("&#x27;", "'"),
        "title": html.escape(title or _title(document)),
        "style": style,
        "data": _as_data(document and document | {"spans": [_without_defaults(row) for row in document["spans"]]}),
        "script": script,
    }
    return re.sub(r"\{\{(.*?)\}\}", lambda slot: parts[slot[1].strip()], _read("page.html"))


def _without_defaults(span: dict[str, Any]) -> dict[str, Any]:
    """A span less what the page assumes: nothing is null, and all of its time is its own."""
    usual = {"self_ns": span["duration_ns"]}
    return {key: value for key, value in span.items() if value is not None and usual.get(key) != value}


def _title(document: dict[str, Any] | None) -> str:
    if document is None:
        return "hpfracc profile"
    command = document.get("process", {}).get("command") or []
    return " ".join(str(part) for part in command).strip() or "hpfracc profile"


def _read(name: str) -> str:
    return resources.files("hpfracc.profiling").joinpath("dashboard", name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _as_data(value: Any) -> str:
    """JSON in which no name can close the enclosing HTML element."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


# Tables for a terminal.


def summary_table(document: Document, rows: int = _MAX_ROWS) -> Any:
    """The names with the largest self time, and a breakdown of the whole run."""
    from rich.console import Group
    from rich.text import Text

    numbers = ("calls", "total", "self", "mean", "p50", "p95", "device", "peak")
    table = make_table(span="text", **dict.fromkeys(numbers, "number"))
    items = list(document.summary.items())
    for name, row in items[:rows]:
        device = format_seconds(row["device"])
        if row["device"] is None and row["device_at_most"] is not None:
            device = f"<{format_seconds(row['device_at_most'])}"
        table.add_row(
            Text(name),
            f"{row['count']:,}",
            *(format_seconds(row[key]) for key in ("total", "self", "mean", "p50", "p95")),
            device,
            format_bytes(row["memory_peak"]),
        )
    parts: list[Any] = [table]
    if len(items) > rows:
        parts.append(Text(f"  and {len(items) - rows:,} more names", style="dim"))
    return Group(*parts, Text(_whole(document)))


def _whole(document: Document) -> str:
    whole = document.breakdown
    wall = whole["wall_ns"]
    names = {"host": "host", "transfer": "transfers", "compile": "compilation", "idle": "idle", "overhead": "profiler"}
    shares = {name: whole[f"{key}_ns"] for key, name in names.items()}
    parts = [f"{name} {format_share(value / wall)}" for name, value in shares.items() if value]
    parts += [f"{device} busy {format_share(each['utilisation'])}" for device, each in whole["devices"].items()]
    text = f"  {format_seconds(wall / 1e9)} in total: {', '.join(parts) or 'nothing recorded'}"
    if document.dropped:
        text += f"\n  {document.dropped:,} older spans were dropped; increase the capacity to keep them"
    return text


def bottleneck_table(document: Document, top: int) -> Any:
    """The names with the largest self time, with advice; then advice on the whole run."""
    from rich.console import Group
    from rich.text import Text

    numbers = dict.fromkeys(("self", "share", "calls"), "number")
    table = make_table("Bottlenecks", rank="number", span="text", **numbers, advice="text")
    told: set[str] = set()
    for number, row in enumerate(document.bottlenecks(top), start=1):
        told.update(row["advice"])
        figures = format_seconds(row["self"]), format_share(row["share"]), f"{row['count']:,}"
        table.add_row(str(number), Text(row["name"]), *figures, Text("\n".join(row["advice"]) or "-"))
    rest = [Text(f"  {remark['text']}") for remark in document.advice if remark["text"] not in told]
    return Group(table, *rest)

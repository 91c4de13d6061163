"""The page: a single HTML file that works offline."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from importlib import resources
from typing import Any

__all__ = ["pack", "render_page"]

#: Sparse fields, stored by the index of the span.
_RARE = ("bytes", "error", "metadata", "decision", "transfer_ns", "compile_ns", "device_busy_ns", "device_idle_ns")


def pack(document: dict[str, Any]) -> dict[str, Any]:
    """The document with its spans as columns.

    ``parent`` is the index of the parent, -1 for none. Names are stored once in ``names``. Device times, memory and
    sparse fields are stored separately, with the indices of their spans.
    """
    names: dict[str, int] = {}
    places = {span["id"]: place for place, span in enumerate(document["spans"])}
    columns: dict[str, list[Any]] = {key: [] for key in ("name", "kind", "parent", "lane", "start", "duration", "own")}
    devices: list[list[Any]] = []
    memory: list[list[Any]] = []
    rare: dict[int, dict[str, Any]] = {}
    for place, span in enumerate(document["spans"]):
        columns["name"].append(names.setdefault(span["name"], len(names)))
        columns["kind"].append(span["kind"])
        columns["parent"].append(places.get(span["parent"], -1))
        columns["lane"].append(span["lane"])
        columns["start"].append(span["start_ns"])
        columns["duration"].append(span["duration_ns"])
        columns["own"].append(span["self_ns"])
        if span["device"] is not None:
            told = (span.get(key) for key in ("timing", "device_start_ns", "device_ns", "device_at_most_ns"))
            devices.append([place, span["device"], *told])
        read = span.get("memory")
        if read is not None:
            memory.append([place, read["of"], read["before"], read["after"], read["peak"]])
        more = {key: span[key] for key in _RARE if key in span}
        if more:
            rare[place] = more
    kinds = {kind: number for number, kind in enumerate(dict.fromkeys(columns["kind"]))}
    columns["kind"] = [kinds[kind] for kind in columns["kind"]]
    return {
        "head": {key: value for key, value in document.items() if key != "spans"},
        "names": list(names),
        "kinds": list(kinds),
        "columns": columns,
        "devices": devices,
        "memory": memory,
        "rare": rare,
    }


#: The page's scripts, in order.
_SCRIPTS = (
    "format.js",
    "model.js",
    "ranks.js",
    "lanes.js",
    "chart.js",
    "panels.js",
    "table.js",
    "compare.js",
    "main.js",
)


def render_page(document: dict[str, Any] | None, title: str = "") -> str:
    """The page as HTML.

    Parameters
    ----------
    document : dict or None
        From :func:`hpfracc.profiling.load_profile`. Without one, a file can be dropped on the page.
    title : str
        Title; by default the command.
    """
    name = title or _title(document)
    style = _read("page.css")
    script = "(() => {\n'use strict';\n" + "\n".join(_read(file) for file in _SCRIPTS) + "\n})();"
    policy = (
        f"default-src 'none'; script-src 'sha256-{_digest(script)}'; style-src 'sha256-{_digest(style)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    parts = {
        "policy": html.escape(policy, quote=True).replace("&#x27;", "'"),
        "title": html.escape(name),
        "style": style,
        "data": _as_data(None if document is None else pack(document)),
        "script": script,
    }
    page = _read("page.html")
    pieces = []
    for part in page.split("{{"):
        slot, closing, rest = part.partition("}}")
        pieces.append(parts[slot.strip()] + rest if closing else part)
    return "".join(pieces)


def _title(document: dict[str, Any] | None) -> str:
    if document is None:
        return "hpfracc profile"
    command = document.get("process", {}).get("command") or []
    return " ".join(str(part) for part in command).strip() or "hpfracc profile"


def _read(name: str) -> str:
    return resources.files("hpfracc.profiling.dashboard").joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _as_data(value: Any) -> str:
    """JSON in which no name can close the enclosing HTML element."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")

"""A profile as a versioned document of plain values, described by ``schema.json`` in this folder."""

from __future__ import annotations

import datetime
import heapq
import json
import math
import os
import platform
import sys
from collections.abc import Hashable, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from hpfracc import _reading
from hpfracc._files import parse_json, read_plain, write_whole
from hpfracc.errors import InvalidInputError
from hpfracc.profiling.analysis import Analysis, advise, break_down, length, rank, summarise
from hpfracc.profiling.recorder import Recorder
from hpfracc.profiling.session import ThreadLane
from hpfracc.profiling.spans import Span, SpanDecision

#: Number of threads up to which each has a row of its own.
_DISTINCT = 64


def pack_lanes(spans: Sequence[Span]) -> tuple[list[dict[str, object]], dict[ThreadLane, int]]:
    """The lanes to show, and the index of the one that shows each recorded lane.

    Tasks of one thread that do not overlap in time share one, because a server may create a task per request; so do
    threads, once there are many.
    """
    extents: dict[ThreadLane, tuple[int, int]] = {}
    for span in spans:
        begin, end = extents.get(span.lane, (span.start, span.end))
        extents[span.lane] = min(begin, span.start), max(end, span.end)
    users: list[list[ThreadLane]] = []
    goes_to: dict[ThreadLane, int] = {}
    #: When each shared lane is free again, by the thread of its tasks, or None for threads.
    free: dict[ThreadLane | None, list[tuple[int, int]]] = {}
    for lane in sorted(extents, key=lambda lane: (lane.thread is not None, extents[lane])):
        begin, end = extents[lane]
        waiting = free.setdefault(lane.thread, [])
        if waiting and waiting[0][0] <= begin and (lane.thread or len(waiting) >= _DISTINCT):
            row = heapq.heapreplace(waiting, (end, waiting[0][1]))[1]
            users[row].append(lane)
        else:
            row = len(users)
            users.append([lane])
            heapq.heappush(waiting, (end, row))
        goes_to[lane] = row
    shown: list[dict[str, object]] = []
    for row, lanes in enumerate(users):
        thread = lanes[0].thread
        what = "threads" if thread is None else "tasks"
        name = lanes[0].name if len(lanes) == 1 else f"{len(lanes):,} {what}"
        shown.append({"id": row, "thread": name if thread is None else thread.name, "task": name if thread else None})
    return shown, goes_to


FORMAT = "hpfracc-profile"
VERSION = 1

#: Number of bottlenecks in a document.
_TOP = 10

#: Maximum size of a profile file.
_MAX_BYTES = 1 << 30
#: Required fields of a span, and their types.
_FIELDS: dict[str, Any] = {
    **dict.fromkeys(("id", "lane", "start_ns", "duration_ns", "self_ns"), int),
    **dict.fromkeys(("name", "kind"), str),
    "parent": int | None,
    "device": str | None,
}
_READINGS = ("of", "before", "after", "peak")
_WIDEST = 2**63


class Document:
    """Everything recorded so far, analysed once; waits for devices that are still working.

    Parameters
    ----------
    recorder : Recorder
        The recorder of the spans.
    """

    def __init__(self, recorder: Recorder) -> None:
        session = recorder.session
        session.settle()
        kept, self.dropped, self.open = session.snapshot()
        self._session = session
        self._capacity = recorder.capacity
        self._energy = recorder.energy
        self.analysis = Analysis(kept)
        self.breakdown = break_down(self.analysis)
        self.summary = summarise(self.analysis)
        self.lanes, self._goes_to = pack_lanes(kept)
        self.decisions, self.decided = _decisions(self.analysis.spans)
        self.advice = advise(self.analysis, self.breakdown["wall_ns"])

    def bottlenecks(self, top: int = _TOP) -> list[dict[str, Any]]:
        """The names with the largest self time."""
        return rank(self.summary, self.advice, top)

    def header(self) -> dict[str, Any]:
        """Everything but the spans."""
        session = self._session
        created = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        return {
            "format": FORMAT,
            "version": VERSION,
            "created": created,
            "hpfracc": sys.modules["hpfracc"].__version__,
            "process": {
                "pid": os.getpid(),
                "command": plain([Path(part).name if at == 0 else part for at, part in enumerate(sys.argv)]),
                "python": platform.python_version(),
                "system": platform.system(),
                "machine": platform.machine(),
            },
            "begun_unix_ns": round(session.begun_unix * 1e9),
            "capacity": self._capacity,
            "recorded": len(self.analysis.spans),
            "dropped": self.dropped,
            "open": self.open,
            "breakdown": self.breakdown,
            "lanes": self.lanes,
            "devices": sorted({span.device.device for span in self.analysis.spans if span.device is not None}),
            "summary": self.summary,
            "bottlenecks": self.bottlenecks(),
            "advice": self.advice,
            "decisions": self.decisions,
        }

    def rows(self) -> Iterator[dict[str, Any]]:
        """The spans, in the order of their start."""
        return map(self._row, range(len(self.analysis.spans)))

    def _row(self, place: int) -> dict[str, Any]:
        analysis, begun = self.analysis, self._session.begun_ns
        span = analysis.spans[place]
        parent = analysis.parents[place]
        part = span.device
        row: dict[str, Any] = {
            "id": span.id,
            "parent": None if parent < 0 else analysis.spans[parent].id,
            "name": str(plain(span.name)),
            "kind": span.kind,
            "lane": self._goes_to[span.lane],
            "start_ns": span.start - begun,
            "duration_ns": span.end - span.start,
            "self_ns": analysis.own[place],
            "device": None if part is None else part.device,
            "device_ns": None if part is None else part.duration,
        }
        if part is not None:
            row["timing"] = part.timing
            row["device_start_ns"] = None if part.start is None else part.start - begun
            row["device_at_most_ns"] = part.at_most
        if place in analysis.devices:
            found = analysis.devices[place]
            row["device_busy_ns"] = busy = length(found)
            row["device_idle_ns"] = found[-1][1] - found[0][0] - busy
        sparse = {
            "transfer_ns": analysis.transfers[place] or None,
            "compile_ns": analysis.compiles[place] or None,
            "bytes": span.size,
            "decision": self.decided.get(place),
            "error": span.error,
            "metadata": plain(span.metadata) if span.metadata else None,
        }
        row |= {name: value for name, value in sparse.items() if value is not None}
        if span.memory is not None and span.memory[2] is not None:
            row["memory"] = dict(zip(_READINGS, span.memory, strict=True))
        if self._energy is not None:
            row["joules"] = self._energy.between(span.start, span.end)
        return row

    def to_dict(self) -> dict[str, Any]:
        """The whole document."""
        return self.header() | {"spans": list(self.rows())}

    def text(self) -> Iterator[str]:
        """The document as JSON, in pieces: one line per span."""
        head = json.dumps(self.header(), allow_nan=False)
        yield head[:-1] + ', "spans": ['
        for number, row in enumerate(self.rows()):
            yield (",\n" if number else "\n") + json.dumps(row, allow_nan=False, separators=(",", ":"))
        yield "\n]}\n"


def _decisions(spans: list[Span]) -> tuple[list[dict[str, Any]], dict[int, int]]:
    """The distinct decisions of the spans, and the decision of each span."""
    numbers: dict[Hashable, int] = {}
    latest: list[SpanDecision] = []  # the last one for each key
    decided: dict[int, int] = {}
    for place, span in enumerate(spans):
        told = span.decision
        if told is not None:
            decided[place] = number = numbers.setdefault(told.key, len(latest))
            latest[number : number + 1] = [told]
    return [plain(told.tell()) for told in latest], decided


def read_schema() -> dict[str, Any]:
    """The JSON schema of documents of this version."""
    text = resources.files("hpfracc.profiling").joinpath("schema.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def load_profile(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a document that :meth:`Profiler.export_json` wrote.

    Parameters
    ----------
    path : str or path
        The file.

    Returns
    -------
    dict
        The document: ``"spans"``, ``"process"``, ``"begun_unix_ns"`` and the other fields of the schema.

    Raises
    ------
    InvalidInputError
        If the file is missing, is not a profile, is incomplete, or is of a later version.
    """
    path = _reading.path("path", path)
    try:
        found = parse_json(read_plain(path, _MAX_BYTES))
    except OSError as error:
        raise InvalidInputError(f"profile {str(path)!r} cannot be read ({error.strerror or error})") from None
    except ValueError as error:
        raise InvalidInputError(f"{str(path)!r} is not JSON ({error}); name a file of profiler.export_json") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise InvalidInputError(f"{str(path)!r} is JSON but not a profile; name a file of profiler.export_json")
    if found.get("version") != VERSION:
        raise InvalidInputError(
            f"{str(path)!r} is a profile of version {_reading.shown(found.get('version'))}, and this library reads "
            f"{VERSION}; record it again, or use the version of hpfracc that wrote it"
        )
    return require_profile(found, repr(str(path)))


def require_profile(document: Any, where: str) -> dict[str, Any]:
    """A document that can be shown and compared; raises an error for any other. ``where`` says where it is from."""
    if not isinstance(document, dict) or not {"begun_unix_ns", "process", "spans"} <= document.keys():
        raise InvalidInputError(f"{where} is not a profile; give a file of profiler.export_json")
    wrong = _find_fault(document)
    if wrong is not None:
        raise InvalidInputError(f"{where} is a damaged profile: {wrong}; record it again")
    return document


def _find_fault(document: dict[str, Any]) -> str | None:
    """Reason why a document cannot be shown or compared, or None."""
    begun, process, spans = (document[name] for name in ("begun_unix_ns", "process", "spans"))
    if not _has_type(begun, int) or not isinstance(process, dict) or not isinstance(spans, list):
        told = (f"{name}={_reading.shown(document[name])}" for name in ("begun_unix_ns", "process", "spans"))
        return ", ".join(told)
    if not isinstance(process.get("command"), list | None):
        return f"command={_reading.shown(process['command'])}"
    for place, span in enumerate(document["spans"]):
        if not isinstance(span, dict):
            return f"spans[{place}] is {_reading.shown(span)}"
        for name, kind in _FIELDS.items():
            value = span.get(name, ...)
            if not _has_type(value, kind) or (name == "duration_ns" and value < 0):
                return f"spans[{place}] has " + (f"no {name}" if value is ... else f"{name}={_reading.shown(value)}")
        memory = span.get("memory")
        if memory is not None and not (isinstance(memory, dict) and memory.keys() >= set(_READINGS)):
            return f"spans[{place}] has memory={_reading.shown(memory)}"
    return None


def _has_type(value: Any, kind: Any) -> bool:
    """Whether a value of a file has a type; integers have at most 63 bits."""
    return isinstance(value, kind) and type(value) is not bool and not (type(value) is int and abs(value) >= _WIDEST)


def write_text(path: str | os.PathLike[str], pieces: Iterator[str]) -> Path:
    """Write a file atomically by :func:`hpfracc._files.write_whole`; raises an error if that fails."""
    try:
        write_whole(path, (piece.encode("utf-8", "backslashreplace") for piece in pieces))
    except OSError as error:
        raise InvalidInputError(
            f"{str(path)!r} cannot be written ({error.strerror or error}); name another file"
        ) from None
    return Path(path)


# Values that users attach to spans, as JSON.

_MAX_TEXT, _MAX_ITEMS, _DEEPEST = 2000, 200, 6


def plain(value: Any, depth: int = 0) -> Any:
    """``value`` as JSON values.

    Non-finite numbers become None, NumPy scalars plain numbers, arrays a text with shape and dtype, anything else its
    ``repr``. Long texts and lists are truncated, with a note.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _cut(str(value))
    if isinstance(value, int):  # Python does not convert integers with thousands of digits
        return int(value) if value.bit_length() <= _MAX_TEXT else f"an integer of {value.bit_length():,} bits"
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if isinstance(shape, tuple) and dtype is not None:
        if shape == () and callable(getattr(value, "item", None)) and depth < _DEEPEST:
            return _scalar(value, depth)
        return f"{type(value).__name__} {'x'.join(map(str, shape)) or 'scalar'} {dtype}"
    if depth >= _DEEPEST:
        return _said(value)
    if isinstance(value, Mapping):
        items = list(value.items())
        names = [_cut(key) if isinstance(key, str) else _said(key) for key, _ in items[:_MAX_ITEMS]]
        kept = {name: plain(item, depth + 1) for name, (_, item) in zip(names, items, strict=False)}
        return kept | ({"...": f"{len(items) - _MAX_ITEMS} more"} if len(items) > _MAX_ITEMS else {})
    if isinstance(value, list | tuple | set | frozenset):
        many = list(value) if isinstance(value, list | tuple) else sorted(value, key=repr)
        rest = [f"... {len(many) - _MAX_ITEMS} more"] if len(many) > _MAX_ITEMS else []
        return [plain(item, depth + 1) for item in many[:_MAX_ITEMS]] + rest
    return _said(value)


def _scalar(value: Any, depth: int) -> Any:
    try:
        item = value.item()
    except Exception:  # a tracer, or a device that is gone
        return _said(value)
    return _said(item) if getattr(item, "dtype", None) is not None else plain(item, depth + 1)


def _said(value: Any) -> str:
    try:
        return _cut(repr(value))
    except Exception:  # a user's object must not break the profile
        return f"<{type(value).__name__}>"


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}... ({len(text):,} characters)"

"""Analysis of spans: parents, self times, device times, a summary for each name, where the time went, and advice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np

from hpfracc._reading import format_bytes, format_seconds, format_share
from hpfracc.profiling.recorder import Recorder
from hpfracc.profiling.session import ThreadLane
from hpfracc.profiling.spans import Span

Interval = tuple[int, int]
#: Kinds whose self time does not count as host time.
_APART = ("transfer", "compile")


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The union of intervals, as disjoint intervals in order."""
    joined: list[Interval] = []
    for begin, end in sorted(intervals):
        if joined and begin <= joined[-1][1]:
            if end > joined[-1][1]:
                joined[-1] = joined[-1][0], end
        else:
            joined.append((begin, end))
    return joined


def length(intervals: Iterable[Interval]) -> int:
    """The total length of disjoint intervals."""
    return sum(end - begin for begin, end in intervals)


def _thread_of(span: Span) -> ThreadLane:
    return span.lane.thread or span.lane


class Analysis:
    """Quantities derived from a set of spans.

    Parameters
    ----------
    spans : sequence of Span
        Ended spans, in any order.

    Attributes
    ----------
    spans : list of Span
        In the order of their start.
    parents : list of int
        Index of the parent in ``spans``; -1 without one, or if it was dropped.
    own : list of int
        Nanoseconds on the host, without children on the same thread.
    transfers, compiles : list of int
        Nanoseconds of copies and of compilations within each span, itself included.
    devices : dict of int to list of Interval
        Intervals in which a device worked for a span or one inside it, by index of the span.
    """

    def __init__(self, spans: Sequence[Span]) -> None:
        self.spans = sorted(spans, key=lambda span: (span.start, span.id))
        places = {span.id: place for place, span in enumerate(self.spans)}
        self.parents = [places.get(span.parent, -1) for span in self.spans]
        self.own = self._own_times()
        self.transfers = self._within("transfer")
        self.compiles = self._within("compile")
        self.devices = self._device_intervals()

    def _own_times(self) -> list[int]:
        own = [span.end - span.start for span in self.spans]
        covered = [0] * len(own)  # end of the part of a span that its children cover
        for place, span in enumerate(self.spans):
            parent = self.parents[place]
            if parent < 0 or _thread_of(span) is not _thread_of(self.spans[parent]):
                continue
            begin = max(span.start, covered[parent])
            end = min(span.end, self.spans[parent].end)  # a task may outlive the span that started it
            if end > begin:
                own[parent] -= end - begin
                covered[parent] = end
        return own

    def _within(self, kind: str) -> list[int]:
        found = [span.end - span.start if span.kind == kind else 0 for span in self.spans]
        for place in range(len(self.spans) - 1, -1, -1):  # children start after their parents
            if self.parents[place] >= 0:
                found[self.parents[place]] += found[place]
        return found

    def _device_intervals(self) -> dict[int, list[Interval]]:
        """Device intervals of the innermost spans: a span around two kernels also includes the pause between them."""
        found: dict[int, list[Interval]] = {}
        for place in range(len(self.spans) - 1, -1, -1):
            part = self.spans[place].device
            if place in found:
                found[place] = union(found[place])
            elif part is not None and part.start is not None and part.duration is not None:
                found[place] = [(part.start, part.start + part.duration)]
            if place in found and self.parents[place] >= 0:
                found.setdefault(self.parents[place], []).extend(found[place])
        return found

    def busy(self) -> dict[str, list[Interval]]:
        """Intervals in which each device was busy."""
        intervals: dict[str, list[Interval]] = {}
        inside = {self.parents[place] for place in self.devices}
        for place in self.devices:
            part = self.spans[place].device
            if place not in inside and part is not None:
                intervals.setdefault(part.device, []).extend(self.devices[place])
        return {device: union(found) for device, found in sorted(intervals.items())}

    def is_outermost(self, place: int) -> bool:
        """Whether no enclosing span has the same name. Only the outermost span of a recursion counts for the total."""
        name = self.spans[place].name
        parent = self.parents[place]
        while parent >= 0:
            if self.spans[parent].name == name:
                return False
            parent = self.parents[parent]
        return True


def summarise(analysis: Analysis) -> dict[str, dict[str, Any]]:
    """For each name: counts, times in seconds, and bytes. Values that were not measured are None.

    ``total`` counts a recursion once. ``self`` is the time outside inner spans. ``device`` is the union of the
    intervals in which devices worked for spans of this name, and ``device_idle`` the pauses between them within one
    span.
    """
    groups: dict[str, list[int]] = {}
    for place, span in enumerate(analysis.spans):
        groups.setdefault(span.name, []).append(place)
    found = {name: _one(analysis, places) for name, places in groups.items()}
    return dict(sorted(found.items(), key=lambda item: -item[1]["self"]))


def _one(analysis: Analysis, places: list[int]) -> dict[str, Any]:
    spans = [analysis.spans[place] for place in places]
    durations = sorted(span.end - span.start for span in spans)
    outermost = [place for place in places if analysis.is_outermost(place)]
    intervals = [analysis.devices[place] for place in outermost if place in analysis.devices]
    pauses = [found[-1][1] - found[0][0] - length(found) for found in intervals]
    at_most = [span.device.at_most for span in spans if span.device is not None and span.device.at_most is not None]
    sizes = [span.size for span in spans if span.size is not None]
    readings = [span.memory for span in spans if span.memory is not None]
    grown = [after - before for _, before, after, _ in readings if after is not None]
    peaks = [peak for _, _, after, peak in readings if after is not None and peak is not None]

    def total(values: list[int]) -> float:
        return sum(values[place] for place in outermost) / 1e9

    return {
        "kind": spans[0].kind,
        "count": len(places),
        "total": sum(analysis.spans[place].end - analysis.spans[place].start for place in outermost) / 1e9,
        "self": sum(analysis.own[place] for place in places) / 1e9,
        "mean": sum(durations) / len(durations) / 1e9,
        "p50": float(np.quantile(durations, 0.50)) / 1e9,
        "p95": float(np.quantile(durations, 0.95)) / 1e9,
        "min": durations[0] / 1e9,
        "max": durations[-1] / 1e9,
        "device": length(union(each for found in intervals for each in found)) / 1e9 if intervals else None,
        "device_at_most": sum(at_most) / 1e9 if at_most else None,
        "device_idle": sum(pauses) / 1e9 if intervals else None,
        "transfer": total(analysis.transfers),
        "compile": total(analysis.compiles),
        "bytes": sum(sizes) if sizes else None,
        "memory_growth": max(grown) if grown else None,
        "memory_peak": max(peaks) if peaks else None,
        "errors": sum(span.error is not None for span in spans),
    }


@cache
def calibrate(device: str | None = None) -> tuple[float, float]:
    """The cost of a span in nanoseconds: inside its own duration, and around it.

    The 25th percentile over rounds of empty spans; measured once per process.
    """
    rounds, spans = 25, 40
    recorder = Recorder(capacity=spans)
    recorder.enable()
    inside, around = [], []
    for _ in range(rounds):
        recorder.reset()
        with recorder.span("calibration"):
            for _ in range(spans):
                with recorder.span("empty", "span", device):
                    pass
        recorder.session.settle()
        outer = recorder.session.spans[-1]
        kept = list(recorder.session.spans)[:-1]
        within = sum(span.end - span.start for span in kept)
        inside.append(within / len(kept))
        around.append((outer.end - outer.start - within) / spans)
    return sorted(inside)[rounds // 4], sorted(around)[rounds // 4]


def break_down(analysis: Analysis) -> dict[str, Any]:
    """The nanoseconds of a run.

    ``wall_ns`` is the time from the first start to the last end, devices included. ``host_ns``, ``transfer_ns``,
    ``compile_ns`` and ``overhead_ns`` are sums of the spans' self times on all threads. ``idle_ns`` is the time in
    which no span was open and no device worked. With one thread, and no device that works after the last span, the five
    add up to the wall time.
    """
    spans = analysis.spans
    inside, around = calibrate()
    busy = analysis.busy()
    nested = sum(parent >= 0 for parent in analysis.parents)
    covered = union([*((span.start, span.end) for span in spans), *(each for found in busy.values() for each in found)])
    wall = covered[-1][1] - covered[0][0] if covered else 0
    sums = dict.fromkeys(("host", *_APART), 0)
    for place, span in enumerate(spans):
        sums[span.kind if span.kind in _APART else "host"] += analysis.own[place]
    # The cost around a nested span is part of the parent's self time; around a top-level span, of no span.
    overhead = min(sums["host"], round(len(spans) * inside + nested * around))
    worked = {device: length(found) for device, found in busy.items()}
    return {
        "wall_ns": wall,
        "host_ns": sums["host"] - overhead,
        "transfer_ns": sums["transfer"],
        "compile_ns": sums["compile"],
        "overhead_ns": overhead,
        "idle_ns": wall - length(covered),
        "moved_bytes": sum(span.size or 0 for span in spans if span.kind == "transfer"),
        "devices": {
            device: {"busy_ns": took, "idle_ns": wall - took, "utilisation": took / wall if wall else 0.0}
            for device, took in worked.items()
        },
        "overhead_per_span_ns": round(inside + around, 1),
    }


#: Minimum fraction of the run for a remark.
_NOTABLE = 0.10
#: Launches shorter than this cost the host about as much as the device: a launch takes 5 to 10 us.
_SHORT_NS, _MANY = 20_000, 50
#: Number of compilations of one operation above which there is a remark.
_COMPILED_OFTEN = 3


def rank(summary: dict[str, dict[str, Any]], advice: list[dict[str, Any]], top: int) -> list[dict[str, Any]]:
    """The names with the largest self time, each with its remarks."""
    whole = sum(row["self"] for row in summary.values())
    rows = sorted(summary.items(), key=lambda item: -item[1]["self"])[:top]
    return [
        {"name": name, "share": row["self"] / whole if whole else 0.0}
        | {key: row[key] for key in ("kind", "count", "self", "total", "mean", "device")}
        | {"advice": [remark["text"] for remark in advice if name in remark["names"]]}
        for name, row in rows
    ]


def advise(analysis: Analysis, wall: int) -> list[dict[str, Any]]:
    """Remarks derived from the data: ``{"kind", "text", "names", "seconds"}``, the most costly first.

    Parameters
    ----------
    analysis : Analysis
        The run.
    wall : int
        Its duration in nanoseconds.
    """
    notable = *_transfers(analysis, wall), *_compilations(analysis, wall)
    found = [*notable, *_launches(analysis), *_pauses(analysis), *_fallbacks(analysis)]
    return sorted(found, key=lambda remark: -remark["seconds"])


def _remark(kind: str, text: str, names: list[str], nanoseconds: float) -> dict[str, Any]:
    return {"kind": kind, "text": text, "names": names, "seconds": nanoseconds / 1e9}


def _around(analysis: Analysis, kind: str) -> Iterator[tuple[str, list[Span], list[str], int]]:
    """The spans of one kind by the name of the enclosing call or span, with all their names, and nanoseconds."""
    found: dict[str, list[Span]] = {}
    for place, span in enumerate(analysis.spans):
        if span.kind == kind:
            parent = analysis.parents[place]
            while parent >= 0 and analysis.spans[parent].kind not in ("call", "span"):
                parent = analysis.parents[parent]
            found.setdefault(analysis.spans[parent].name if parent >= 0 else span.name, []).append(span)
    for name, spans in found.items():
        yield name, spans, [name, *{span.name for span in spans}], _spent(spans)


def _spent(spans: list[Span]) -> int:
    return sum(span.end - span.start for span in spans)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _transfers(analysis: Analysis, wall: int) -> Iterator[dict[str, Any]]:
    for name, spans, names, spent in _around(analysis, "transfer"):
        if wall and spent >= _NOTABLE * wall:
            moved = format_bytes(sum(span.size or 0 for span in spans))
            text = (
                f"{name}: {format_share(spent / wall)} of the run went into {len(spans):,} copies between host and "
                f"device ({moved}); keep the arrays on the device between calls, or work on the host"
            )
            yield _remark("transfers", text, names, spent)


def _launches(analysis: Analysis) -> Iterator[dict[str, Any]]:
    short: dict[str, list[Span]] = {}
    for span in analysis.spans:
        part = span.device
        took = None if part is None else part.at_most if part.duration is None else part.duration
        if took is not None and took < _SHORT_NS:
            short.setdefault(span.name, []).append(span)
    for name, spans in short.items():
        if len(spans) >= _MANY:
            text = (
                f"{name}: {len(spans):,} launches whose work took the device less than "
                f"{format_seconds(_SHORT_NS / 1e9)} each, and the host {format_seconds(_spent(spans) / 1e9)} in total; "
                "combine several into one call (a batch axis), or run such small work on the host"
            )
            yield _remark("launches", text, [name], _spent(spans))


def _compilations(analysis: Analysis, wall: int) -> Iterator[dict[str, Any]]:
    for name, spans, names, spent in _around(analysis, "compile"):
        often = len(spans) > _COMPILED_OFTEN
        if often or (wall and spent >= _NOTABLE * wall):
            cure = "only first calls compile: repeat the run to see the time without compilation"
            if often:
                cure = (
                    "its operands change in shape or dtype: pad them to a few sizes, or exclude the backend "
                    "that compiles with config(never=...)"
                )
            text = f"{name}: compiled {_times(len(spans))}, {format_seconds(spent / 1e9)} in all; {cure}"
            yield _remark("compilation", text, names, spent)


def _pauses(analysis: Analysis) -> Iterator[dict[str, Any]]:
    for device, intervals in analysis.busy().items():
        window = intervals[-1][1] - intervals[0][0]
        pause = window - length(intervals)
        if len(intervals) > 1 and pause >= 0.3 * window:
            text = (
                f"{device} had nothing to do for {format_share(pause / window)} of the {format_seconds(window / 1e9)} "
                "between its first and its last work; let the host enqueue more before it waits (no synchronisation or "
                "copy to the host inside the loop)"
            )
            yield _remark("pauses", text, [], pause)


def _fallbacks(analysis: Analysis) -> Iterator[dict[str, Any]]:
    for name, spans, names, spent in _around(analysis, "fallback"):
        why = Counter(span.error or "" for span in spans).most_common(1)[0][0]
        failed = ", ".join(sorted({str((span.metadata or {}).get("failed", span.name)) for span in spans}))
        text = (
            f"{name}: fell back {_times(len(spans))} because {failed} failed ({why}); fix that, or exclude it with "
            "config(never=...)"
        )
        yield _remark("fallback", text, names, spent)

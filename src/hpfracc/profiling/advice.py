"""Bottlenecks, and advice derived from the data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from hpfracc._reading import format_bytes, format_seconds, format_share
from hpfracc.profiling.analysis import Analysis, length
from hpfracc.profiling.spans import Span

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

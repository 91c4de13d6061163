"""Spans of one name taken together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hpfracc.profiling.analysis import Analysis, length, union

__all__ = ["percentile", "summarise"]


def percentile(ordered: Sequence[int], share: float) -> float:
    """The value below which ``share`` of an ordered sequence lies, interpolated."""
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def summarise(analysis: Analysis) -> dict[str, dict[str, Any]]:
    """For each name: counts, times in seconds, bytes. What was not measured is None.

    ``total`` counts a recursion once; ``self`` is what no span inside accounts for; ``device`` is the union of the
    stretches in which devices worked for spans of this name; ``device_idle`` the pauses between the first and the last
    of those within one span.
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
    stretches = [analysis.devices[place] for place in outermost if place in analysis.devices]
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
        "p50": percentile(durations, 0.50) / 1e9,
        "p95": percentile(durations, 0.95) / 1e9,
        "min": durations[0] / 1e9,
        "max": durations[-1] / 1e9,
        "device": length(union(each for found in stretches for each in found)) / 1e9 if stretches else None,
        "device_at_most": sum(at_most) / 1e9 if at_most else None,
        "device_idle": sum(found[-1][1] - found[0][0] - length(found) for found in stretches) / 1e9
        if stretches
        else None,
        "transfer": total(analysis.transfers),
        "compile": total(analysis.compiles),
        "bytes": sum(sizes) if sizes else None,
        "memory_growth": max(grown) if grown else None,
        "memory_peak": max(peaks) if peaks else None,
        "errors": sum(span.error is not None for span in spans),
    }

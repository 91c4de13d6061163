"""What is compared: each top-level span is one repeat, and what happened in it is taken together by path."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["Path", "blocks", "collect"]

#: Names from the top-level span inwards.
Path = tuple[str, ...]
#: When a repeat began (nanoseconds since 1970), and how long the spans of one path took in it, all together.
Sample = tuple[int, float]


def collect(documents: Iterable[dict[str, Any]]) -> dict[Path, list[Sample]]:
    """The repeats of every path in some profiles.

    Several spans of one path in a repeat count as their number times their 25th percentile: those that the system held
    up do not stand for the others. A path that a repeat does not have counts as no repeat of it, rather than as one of
    no time.
    """
    found: dict[Path, list[Sample]] = {}
    for document in documents:
        begun = int(document["begun_unix_ns"])
        paths: dict[int, tuple[Path, int]] = {}
        calls: dict[tuple[int, Path], list[int]] = {}
        starts: dict[int, int] = {}
        for span in sorted(document["spans"], key=lambda span: (span["start_ns"], span["id"])):
            parent = span["parent"]
            outer = paths.get(parent) if parent is not None else None
            if outer is None:
                root = span["id"]
                path: Path = (span["name"],)
                starts[root] = begun + span["start_ns"]
            else:
                path, root = outer[0], outer[1]
                if span["name"] not in path:  # of a recursion the outermost counts
                    path = (*path, span["name"])
            paths[span["id"]] = path, root
            if outer is None or path is not outer[0]:
                calls.setdefault((root, path), []).append(span["duration_ns"])
        for (root, path), durations in calls.items():
            found.setdefault(path, []).append((starts[root], len(durations) * _typical(durations)))
    return found


def _typical(durations: list[int]) -> int:
    """The 25th percentile: what undisturbed calls take on a machine that others use too."""
    return sorted(durations)[len(durations) // 4]


def blocks(first: Sequence[Sample], second: Sequence[Sample]) -> tuple[list[float], list[float]]:
    """The repeats of both in the order of time, those that follow each other without change taken together.

    Repeats of one side in a row share whatever else the machine did at that time: they count as one, their mean. Two
    sides that took turns keep all of theirs; two runs one after the other are left with one value each.
    """
    marked = sorted([(*sample, 0) for sample in first] + [(*sample, 1) for sample in second])
    sides: tuple[list[float], list[float]] = ([], [])
    row: list[float] = []
    for place, (_, total, side) in enumerate(marked):
        row.append(total)
        if place + 1 == len(marked) or marked[place + 1][2] != side:
            sides[side].append(sum(row) / len(row))
            row = []
    return sides

"""Comparing profiles: which spans became faster or slower, beyond what noise explains.

Each top-level span is one repeat. Repeats of both sides that alternate in time are compared by the Mann-Whitney rank
test, with Holm's correction for the number of spans.
"""

from __future__ import annotations

import itertools
import math
import os
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hpfracc import _reading
from hpfracc._reading import format_seconds
from hpfracc.errors import InvalidInputError
from hpfracc.profiling.document import load_profile, require_profile
from hpfracc.profiling.formats import make_table

ComparisonVerdict = Literal["faster", "slower", "inconclusive"]
_VERDICTS: tuple[ComparisonVerdict, ...] = ("faster", "slower", "inconclusive")
_STYLES = {"slower": "bold red", "faster": "bold green", "inconclusive": "dim"}


@dataclass(frozen=True, slots=True)
class Rules:
    """The conditions for a verdict. Unless all hold, it is ``inconclusive``.

    Attributes
    ----------
    ratio : float
        Minimum ratio of the medians.
    p : float
        Maximum p of the rank test after correction for the number of spans.
    repeats : int
        Minimum number of interleaved repeats on either side.
    floor : float
        Minimum difference of the medians in seconds per repeat.
    quickest : float
        Minimum ratio of the fastest repeats of both sides, in the same direction. The rank test assumes independent
        repeats; on a busy machine time slices may hit one side systematically, but they only add time.
    """

    ratio: float = 1.1
    p: float = 0.002
    repeats: int = 7
    floor: float = 20e-6
    quickest: float = 1.05


@dataclass(frozen=True, slots=True)
class SpanComparison:
    """One path of spans in both profiles; seconds are medians over interleaved repeats."""

    path: tuple[str, ...]
    before: float | None
    after: float | None
    repeats: tuple[int, int]
    p: float | None
    verdict: ComparisonVerdict
    reason: str

    @property
    def ratio(self) -> float | None:
        """After over before."""
        return None if not self.before or self.after is None else self.after / self.before

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self) | {"path": list(self.path), "ratio": self.ratio, "repeats": list(self.repeats)}


class Comparison:
    """The outcome: ``rows``, those that take most time first."""

    def __init__(self, rows: Iterable[SpanComparison], rules: Rules) -> None:
        self.rows = sorted(rows, key=lambda row: -max(row.before or 0.0, row.after or 0.0))
        self.rules = rules

    def of(self, verdict: ComparisonVerdict) -> list[SpanComparison]:
        """The rows with one verdict."""
        return [row for row in self.rows if row.verdict == verdict]

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "rules": asdict(self.rules),
            "verdicts": {verdict: len(self.of(verdict)) for verdict in _VERDICTS},
            "rows": [row.to_dict() for row in self.rows],
        }

    def __rich__(self) -> Any:
        """Every path with its verdict, as a table."""
        from rich.console import Group
        from rich.text import Text

        numbers = dict.fromkeys(("before", "after", "ratio", "repeats"), "number")
        table = make_table(span="text", **numbers, verdict="word", why="text")
        for row in self.rows:
            table.add_row(
                Text(" > ".join(row.path)),
                format_seconds(row.before),
                format_seconds(row.after),
                "-" if row.ratio is None else f"{row.ratio:.2f}x",
                "+".join(map(str, row.repeats)),
                Text(row.verdict, style=_STYLES[row.verdict]),
                Text(row.reason),
            )
        counted = ", ".join(f"{len(self.of(verdict))} {verdict}" for verdict in _VERDICTS)
        return Group(table, Text(f"  {counted}"))


def compare_profiles(
    before: str | os.PathLike[str] | dict[str, Any] | Iterable[Any],
    after: str | os.PathLike[str] | dict[str, Any] | Iterable[Any],
    rules: Rules | None = None,
) -> Comparison:
    """Compare two profiles, or two sets of them.

    Parameters
    ----------
    before, after
        A file, a folder of files, a loaded document, or several of those. Every top-level span in them is a repeat.
        Repeats of the two sides must alternate in time, because the state of a machine changes.
    rules : Rules, optional
        The conditions for a verdict.
    """
    rules = Rules() if rules is None else rules
    sides = collect(_documents(before)), collect(_documents(after))
    both = [path for path in sides[0] if path in sides[1]]
    found = {path: blocks(sides[0][path], sides[1][path]) for path in both}
    # Paths that are too short or too rare are not tested, and do not count as tests.
    tested = [path for path in both if _untested(*found[path], rules) is None]
    raw = [rank_test(*found[path]) for path in tested]
    corrected = dict(zip(tested, holm(raw), strict=True))
    rows = [_judge(path, *found[path], corrected.get(path), len(tested), rules) for path in both]
    rows += [_alone(path, sides) for path in {**sides[0], **sides[1]} if path not in found]
    return Comparison(rows, rules)


def _untested(before: list[float], after: list[float], rules: Rules) -> str | None:
    fewest = min(len(before), len(after))
    if fewest < rules.repeats:
        had = "no" if fewest < 2 else f"only {fewest}"
        return f"{had} interleaved repeats of the required {rules.repeats}: run both sides in turns"
    if max(statistics.median(before), statistics.median(after)) < rules.floor * 1e9:
        return f"below {format_seconds(rules.floor)} per repeat"
    return None


def _judge(
    path: tuple[str, ...], before: list[float], after: list[float], p: float | None, tests: int, rules: Rules
) -> SpanComparison:
    medians = statistics.median(before), statistics.median(after)
    low, high = sorted(medians)
    verdict: ComparisonVerdict = "slower" if medians[1] > medians[0] else "faster"
    quick, slow = (min(before), min(after)) if verdict == "slower" else (min(after), min(before))
    if p is None:
        reason = _untested(before, after, rules) or ""
    elif high < rules.ratio * low:
        reason = f"the medians differ by less than {rules.ratio:g}x"
    elif high - low < rules.floor * 1e9:
        reason = f"the medians differ by less than {format_seconds(rules.floor)}"
    elif not p < rules.p:
        few = tests * smallest_p(len(before), len(after)) >= rules.p
        reason = f"too few repeats for a verdict on {tests} spans at once" if few else f"it may be chance (p = {p:.2g})"
    elif slow < rules.quickest * quick:
        reason = f"{verdict}, but not in its fastest repeats: the machine may have been busy"
    else:
        return _row(path, before, after, p, verdict, f"p = {p:.2g}")
    return _row(path, before, after, p, "inconclusive", reason)


def _row(
    path: tuple[str, ...], before: list[float], after: list[float], p: float | None, verdict: ComparisonVerdict,
    reason: str,
) -> SpanComparison:  # fmt: skip
    medians = [statistics.median(totals) / 1e9 if totals else None for totals in (before, after)]
    return SpanComparison(path, medians[0], medians[1], (len(before), len(after)), p, verdict, reason)


def _alone(path: tuple[str, ...], sides: tuple[dict[Any, Any], dict[Any, Any]]) -> SpanComparison:
    before, after = ([total for _, total in side.get(path, ())] for side in sides)
    return _row(path, before, after, None, "inconclusive", f"only in the profile {'before' if before else 'after'}")


def _documents(given: Any) -> Iterator[dict[str, Any]]:
    if isinstance(given, dict):
        yield require_profile(given, _reading.shown(given))
    elif isinstance(given, str | os.PathLike):
        path = Path(given)
        files = sorted(path.glob("*.json")) if path.is_dir() else [path]
        if not files:
            raise InvalidInputError(f"folder {str(path)!r} contains no profile; name a file of profiler.export_json")
        for file in files:
            yield load_profile(file)
    else:
        for each in _reading.listed("profile", given, "files of profiler.export_json"):
            yield from _documents(each)


#: Names from the top-level span inwards.
SpanPath = tuple[str, ...]
#: Start of a repeat (nanoseconds since 1970), and total time of the spans of one path in it.
Sample = tuple[int, float]


def collect(documents: Iterable[dict[str, Any]]) -> dict[SpanPath, list[Sample]]:
    """The repeats of every path in the given profiles.

    Several spans of one path in a repeat count as their number times their 25th percentile, so that delayed spans do
    not affect the result. A path that is missing in a repeat has no repeat there, not one of zero time.
    """
    found: dict[SpanPath, list[Sample]] = {}
    for document in documents:
        begun = int(document["begun_unix_ns"])
        paths: dict[int, tuple[SpanPath, int]] = {}
        calls: dict[tuple[int, SpanPath], list[int]] = {}
        starts: dict[int, int] = {}
        for span in sorted(document["spans"], key=lambda span: (span["start_ns"], span["id"])):
            parent = span["parent"]
            outer = paths.get(parent) if parent is not None else None
            if outer is None:
                root = span["id"]
                path: SpanPath = (span["name"],)
                starts[root] = begun + span["start_ns"]
            else:
                path, root = outer[0], outer[1]
                if span["name"] not in path:  # only the outermost span of a recursion counts
                    path = (*path, span["name"])
            paths[span["id"]] = path, root
            if outer is None or path is not outer[0]:
                calls.setdefault((root, path), []).append(span["duration_ns"])
        for (root, path), durations in calls.items():
            typical = sorted(durations)[len(durations) // 4]  # of undisturbed calls on a shared machine
            found.setdefault(path, []).append((starts[root], len(durations) * typical))
    return found


def blocks(first: Sequence[Sample], second: Sequence[Sample]) -> tuple[list[float], list[float]]:
    """The repeats of both sides in the order of time, with consecutive ones of one side averaged.

    Consecutive repeats of one side share the other load of the machine, so they count as one. Alternating sides keep
    all their repeats; two consecutive runs have one value each.
    """
    marked = sorted([(*sample, 0) for sample in first] + [(*sample, 1) for sample in second])
    sides: tuple[list[float], list[float]] = ([], [])
    for side, run in itertools.groupby(marked, key=lambda each: each[2]):
        sides[side].append(statistics.fmean(total for _, total, _ in run))
    return sides


#: Maximum product of sample sizes for exact p values.
_MAX_EXACT = 2500


def rank_test(first: Sequence[float], second: Sequence[float]) -> float:
    """Two-sided p value of the Mann-Whitney rank test."""
    from scipy.stats import mannwhitneyu

    if not first or not second or len({*first, *second}) == 1:
        return 1.0
    distinct = len({*first, *second}) == len(first) + len(second)
    exact = distinct and len(first) * len(second) <= _MAX_EXACT
    return float(mannwhitneyu(first, second, method="exact" if exact else "asymptotic").pvalue)


def smallest_p(m: int, n: int) -> float:
    """The smallest possible p of samples of these sizes: that of samples that do not overlap."""
    return min(1.0, 2.0 / math.comb(m + n, n))


def holm(values: Sequence[float]) -> list[float]:
    """Correct p values for their number (Holm 1979), which bounds the probability of any false alarm."""
    order = np.argsort(values)
    scaled = np.minimum(1.0, np.arange(len(values), 0, -1) * np.asarray(values, float)[order])
    corrected = np.empty(len(values))
    corrected[order] = np.maximum.accumulate(scaled)
    return corrected.tolist()

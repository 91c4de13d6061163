"""Two profiles compared, span by span: faster, slower, or inconclusive."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hpfracc.errors import InvalidInputError
from hpfracc.profiling.comparison.rank_test import holm, rank_test, smallest_p
from hpfracc.profiling.comparison.repeats import blocks, collect
from hpfracc.profiling.document import load_profile
from hpfracc.profiling.formats import format_seconds

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["Comparison", "Rules", "SpanComparison", "compare_profiles"]

Verdict = Literal["faster", "slower", "inconclusive"]


@dataclass(frozen=True, slots=True)
class Rules:
    """What it takes to call a difference one. All of it together, or the verdict is ``inconclusive``.

    Attributes
    ----------
    ratio : float
        The medians differ at least by this factor.
    p : float
        The rank test's p after correction for the number of spans is below this.
    repeats : int
        Interleaved repeats on either side.
    floor : float
        Seconds a repeat by which the medians differ at least.
    quickest : float
        The quickest repeats of either side differ at least by this factor, the same way. The rank test takes repeats to
        be independent; on a busy machine the system's time slices may hit one side in step, but they only add time.
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
    verdict: Verdict
    reason: str

    @property
    def ratio(self) -> float | None:
        """After over before."""
        return None if not self.before or self.after is None else self.after / self.before

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "path": list(self.path),
            "before": self.before,
            "after": self.after,
            "ratio": self.ratio,
            "repeats": list(self.repeats),
            "p": self.p,
            "verdict": self.verdict,
            "reason": self.reason,
        }


class Comparison:
    """The outcome: ``rows`` in the order of the time they take, and what they come to."""

    def __init__(self, rows: Iterable[SpanComparison], rules: Rules) -> None:
        self.rows = sorted(rows, key=lambda row: -max(row.before or 0.0, row.after or 0.0))
        self.rules = rules

    def of(self, verdict: Verdict) -> list[SpanComparison]:
        """The rows with one verdict."""
        return [row for row in self.rows if row.verdict == verdict]

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        names: tuple[Verdict, ...] = ("faster", "slower", "inconclusive")
        return {
            "rules": {name: getattr(self.rules, name) for name in ("ratio", "p", "repeats", "floor", "quickest")},
            "verdicts": {verdict: len(self.of(verdict)) for verdict in names},
            "rows": [row.to_dict() for row in self.rows],
        }

    def __rich__(self) -> RenderableType:
        from hpfracc.profiling.comparison.view import comparison_table

        return comparison_table(self.to_dict())


def compare_profiles(
    before: str | os.PathLike[str] | dict[str, Any] | Iterable[Any],
    after: str | os.PathLike[str] | dict[str, Any] | Iterable[Any],
    rules: Rules | None = None,
) -> Comparison:
    """Compare two profiles, or two sets of them.

    Parameters
    ----------
    before, after
        A file, a folder of files, a document that was loaded, or several of those. Every top-level span in them is a
        repeat; repeats of the two sides have to alternate in time, because a machine is never the same an hour later.
    rules : Rules, optional
        What it takes to call a difference one.
    """
    rules = Rules() if rules is None else rules
    sides = collect(_documents(before)), collect(_documents(after))
    both = [path for path in sides[0] if path in sides[1]]
    found = {path: blocks(sides[0][path], sides[1][path]) for path in both}
    # Paths too short to be called different, or seen too seldom, are not tested, and so do not count as tests.
    tested = [path for path in both if _untested(*found[path], rules) is None]
    raw = [rank_test(*found[path]) for path in tested]
    corrected = dict(zip(tested, holm(raw), strict=True))
    rows = [_judge(path, *found[path], corrected.get(path), len(tested), rules) for path in both]
    rows += [_alone(path, sides, rules) for path in {**sides[0], **sides[1]} if path not in found]
    return Comparison(rows, rules)


def _untested(before: list[float], after: list[float], rules: Rules) -> str | None:
    fewest = min(len(before), len(after))
    if fewest < rules.repeats:
        had = "no" if fewest < 2 else f"only {fewest}"
        return f"{had} interleaved repeats, and it takes {rules.repeats}: run both in turns"
    if max(statistics.median(before), statistics.median(after)) < rules.floor * 1e9:
        return f"below {format_seconds(rules.floor)} a repeat"
    return None


def _judge(
    path: tuple[str, ...], before: list[float], after: list[float], p: float | None, tests: int, rules: Rules
) -> SpanComparison:
    medians = statistics.median(before), statistics.median(after)
    verdict, reason = _verdict(medians, before, after, p, tests, rules)
    return SpanComparison(path, medians[0] / 1e9, medians[1] / 1e9, (len(before), len(after)), p, verdict, reason)


def _verdict(
    medians: tuple[float, float], before: list[float], after: list[float], p: float | None, tests: int, rules: Rules
) -> tuple[Verdict, str]:
    why = _untested(before, after, rules)
    if why is not None or p is None:
        return "inconclusive", why or ""
    low, high = min(medians), max(medians)
    if high < rules.ratio * low:
        return "inconclusive", f"the medians differ by less than {rules.ratio:g}x"
    if high - low < rules.floor * 1e9:
        return "inconclusive", f"the medians differ by less than {format_seconds(rules.floor)}"
    if not p < rules.p:
        if tests * smallest_p(len(before), len(after)) >= rules.p:
            return "inconclusive", f"too few repeats for a verdict on {tests} spans at once"
        return "inconclusive", f"it may be chance (p = {p:.2g})"
    verdict: Verdict = "slower" if medians[1] > medians[0] else "faster"
    first, second = min(before), min(after)
    if not (second >= rules.quickest * first if verdict == "slower" else first >= rules.quickest * second):
        return "inconclusive", f"{verdict}, but not where it was quickest: others may have been using the machine"
    return verdict, f"p = {p:.2g}"


def _alone(path: tuple[str, ...], sides: tuple[dict[Any, Any], dict[Any, Any]], rules: Rules) -> SpanComparison:
    first = path in sides[0]
    totals = [total for _, total in (sides[0] if first else sides[1])[path]]
    median = statistics.median(totals) / 1e9
    where = "before" if first else "after"
    return SpanComparison(
        path,
        median if first else None,
        None if first else median,
        (len(totals), 0) if first else (0, len(totals)),
        None,
        "inconclusive",
        f"only in the profile {where}",
    )


def _documents(given: Any) -> Iterator[dict[str, Any]]:
    if isinstance(given, dict):
        yield given
    elif isinstance(given, str | os.PathLike):
        path = Path(given)
        files = sorted(path.glob("*.json")) if path.is_dir() else [path]
        if not files:
            raise InvalidInputError(f"folder {str(path)!r} holds no profile; name a file of profiler.export_json")
        for file in files:
            yield load_profile(file)
    else:
        for each in given:
            yield from _documents(each)

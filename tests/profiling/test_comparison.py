"""Two profiles compared: the statistics are right, noise raises no alarm, and a true slowdown is found."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hpfracc.errors import HpfraccError, InvalidInputError
from hpfracc.profiling import Profiler, compare_profiles
from hpfracc.profiling.comparison import Rules, collect, rank_test
from hpfracc.profiling.exports import render_page

NOISE = json.loads((Path(__file__).parent / "data" / "noise.json").read_text(encoding="utf-8"))["microseconds"]


def document(runs: list[tuple[int, dict[str, list[float]]]]) -> dict[str, Any]:
    """A profile with one top-level span for each run: (when, {child: microseconds of each call})."""
    ids = itertools.count(1)
    spans: list[dict[str, Any]] = []
    for when, children in runs:
        root = next(ids)
        start = when
        spans.append(
            {
                "id": root,
                "parent": None,
                "name": "run",
                "start_ns": when,
                "duration_ns": int(sum(map(sum, children.values())) * 1e3),
            }
        )
        for name, calls in children.items():
            for microseconds in calls:
                length = int(microseconds * 1e3)
                spans.append({"id": next(ids), "parent": root, "name": name, "start_ns": start, "duration_ns": length})
                start += length
    rest = {"kind": "span", "lane": 0, "self_ns": 0, "device": None}
    return {"begun_unix_ns": 0, "process": {}, "spans": [span | rest for span in spans]}


def noisy(
    offset: int, repeats: int, spans: int, calls: int = 1, slowdown: float = 1.0
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Two profiles in turns, from a segment of measured noise; one span of the second is slower."""
    values = iter(NOISE[offset:])
    sides: tuple[list[Any], list[Any]] = ([], [])
    for number in range(2 * repeats):
        side = number % 2
        children = {f"part {part}": [float(next(values)) for _ in range(calls)] for part in range(spans)}
        if side:
            children["part 0"] = [slowdown * value for value in children["part 0"]]
        sides[side].append((number * 10**9, children))
    return document(sides[0]), document(sides[1])


def test_rank_test_is_exact_without_ties():
    """The share of all orders of the values that are at least as uneven."""
    first, second = [0.3, 1.1, 2.0, 2.2, 5.0], [1.5, 2.1, 3.0, 6.0, 7.0, 8.0]
    both = sorted([*first, *second])

    def unevenness(ranks: Iterable[int]) -> float:
        return abs(sum(ranks) - len(first) * (len(both) + 1) / 2)

    given = unevenness(both.index(value) + 1 for value in first)
    orders = list(itertools.combinations(range(1, len(both) + 1), len(first)))
    expected = sum(unevenness(ranks) >= given for ranks in orders) / len(orders)
    assert rank_test(first, second) == pytest.approx(expected, rel=1e-9)


def test_rank_test_with_ties():
    """The normal approximation, corrected for ties and for continuity."""
    first, second = [1.0, 2.0, 2.0, 3.0] * 5, [2.0, 3.0, 3.0, 4.0] * 5
    above, size, counts = 75.0, 40, (5, 15, 15, 5)  # of 400 pairs; ties count half
    variance = 400 / 12 * (size + 1 - sum(count**3 - count for count in counts) / (size * (size - 1)))
    z = (200 - above - 0.5) / math.sqrt(variance)
    assert rank_test(first, second) == pytest.approx(math.erfc(z / math.sqrt(2)), rel=1e-9)


def test_repeats_are_added_up_by_path():
    """Calls of one name count together, a recursion counts once, and missing ones are no zeros."""
    profiler = Profiler()
    for number in range(2):
        with profiler.profile("step"):
            with profiler.profile("a"), profiler.profile("a"):
                pass
            if number:
                with profiler.profile("b"):
                    pass
    found = collect([profiler.document().to_dict()])
    assert {path: len(samples) for path, samples in found.items()} == {("step",): 2, ("step", "a"): 2, ("step", "b"): 1}
    outer = next(span for span in profiler.get_entries() if span.name == "a")
    assert found["step", "a"][0][1] == outer.end - outer.start


def test_noise_raises_no_alarm():
    """At most 2 false alarms in 200 self-comparisons, on noise that was measured on a busy machine."""
    random = np.random.default_rng(7)
    alarms = 0
    for _ in range(200):
        repeats, spans, calls = (int(random.integers(*ends)) for ends in ((7, 20), (1, 9), (1, 9)))
        offset = int(random.integers(0, len(NOISE) - 2 * repeats * spans * calls))
        found = compare_profiles(*noisy(offset, repeats, spans, calls))
        alarms += any(row.verdict != "inconclusive" for row in found.rows)
    assert alarms <= 2


def test_a_true_slowdown_is_found():
    """A span 20 % slower is called so in six of seven comparisons of 20 repeats, on that noise; no other span is."""
    random = np.random.default_rng(8)
    hits, wrong = 0, 0
    for _ in range(40):
        offset = int(random.integers(0, len(NOISE) - 2 * 20 * 3 * 15))
        found = compare_profiles(*noisy(offset, 20, 3, 15, slowdown=1.2))
        slower = {row.path for row in found.of("slower")}
        hits += ("run", "part 0") in slower
        wrong += bool(slower - {("run",), ("run", "part 0")}) or bool(found.of("faster"))
    assert hits >= 34
    assert wrong <= 1


def steady(repeats: int, factor: float, names: int = 1, scale: float = 1000.0) -> tuple[dict[str, Any], dict[str, Any]]:
    def side(which: int, times: float) -> dict[str, Any]:
        return document(
            [
                (2 * number + which, {f"p{part}": [times * scale * (1 + 0.001 * number)] for part in range(names)})
                for number in range(repeats)
            ]
        )

    return side(0, 1.0), side(1, factor)


@pytest.mark.parametrize(
    ("given", "verdict", "words"),
    [
        (steady(7, 1.2), "slower", "p = "),
        (steady(7, 0.8), "faster", "p = "),
        (steady(7, 1.08), "inconclusive", "differ by less than 1.1x"),
        (steady(6, 2.0), "inconclusive", "only 6 interleaved repeats"),
        (steady(7, 2.0, scale=15.0), "inconclusive", "differ by less than 20 us"),
        (steady(7, 1.2, scale=8.0), "inconclusive", "below 20 us per repeat"),
        (steady(7, 1.2, names=9), "inconclusive", "too few repeats for a verdict on 10 spans"),
    ],
)
def test_verdicts(given: Any, verdict: str, words: str):
    """Each condition, where it alone fails, makes the verdict inconclusive and is named."""
    found = compare_profiles(*given)
    row = next(row for row in found.rows if row.path == ("run", "p0"))
    assert row.verdict == verdict
    assert words in row.reason


def test_time_slices_in_step_are_no_slowdown():
    """A side that the system interrupts at every repeat but one is not called slower: its quickest is as quick."""
    first = document([(2 * number, {"p": [1000.0 + number]}) for number in range(12)])
    second = document([(2 * number + 1, {"p": [1000.5 if number == 7 else 1800.0 + number]}) for number in range(12)])
    rows = compare_profiles(first, second).rows
    assert {row.path for row in rows} == {("run",), ("run", "p")}
    for row in rows:
        assert row.verdict == "inconclusive"
        assert "not in its fastest repeats" in row.reason


def test_runs_one_after_the_other_are_inconclusive():
    """However different: the machine may have changed between them."""
    first, _ = steady(9, 1.0)
    second, _ = steady(9, 1.0)
    second["begun_unix_ns"] = 10**12
    for span in second["spans"]:
        span["duration_ns"] *= 3
    (row,) = [row for row in compare_profiles(first, second).rows if row.path == ("run",)]
    assert (row.verdict, row.ratio) == ("inconclusive", pytest.approx(3.0))
    assert "run both sides in turns" in row.reason


def test_a_span_in_one_profile_alone():
    """It is listed, and there is nothing to compare."""
    first, second = steady(8, 1.0)
    for span in second["spans"]:
        if span["name"] == "p0":
            span["name"] = "renamed"
    rows = {row.path[-1]: row for row in compare_profiles(first, second).rows}
    assert (rows["p0"].after, rows["p0"].reason) == (None, "only in the profile before")
    assert (rows["renamed"].before, rows["renamed"].reason) == (None, "only in the profile after")


def test_folders_and_own_rules(tmp_path: Path):
    """A folder of runs is one side; rules can be changed; an empty folder is refused."""
    for side, pause in (("a", 0.0), ("b", 0.0)):
        (tmp_path / side).mkdir()
        for number in range(3):
            profiler = Profiler()
            with profiler.profile("run"):
                sum(range(1000 + int(pause)))
            profiler.export_json(tmp_path / side / f"{number}.json")
    found = compare_profiles(tmp_path / "a", tmp_path / "b", Rules(repeats=1, ratio=1.0, p=1.1, floor=0.0))
    assert sum(found.to_dict()["verdicts"].values()) == 1
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidInputError, match="contains no profile"):
        compare_profiles(tmp_path / "empty", tmp_path / "a")


def replaced(value: Any, at: tuple[Any, ...], by: Any) -> Any:
    """A copy of nested data with another value at one place."""
    if not at:
        return by
    copied = value.copy()
    copied[at[0]] = replaced(value[at[0]], at[1:], by)
    return copied


@pytest.mark.parametrize("wrong", [None, True, -1, 2**200, 1.5, "", [], {}, [[1]], {"a": 1}], ids=repr)
def test_hostile_documents_are_refused_or_shown(wrong: Any):
    """Any other value at any place of a profile: a typed error, or none."""
    right = steady(2, 1.0)[0] | {"process": {"command": ["run"]}}
    places: list[tuple[Any, ...]] = [(), *((name,) for name in right), ("process", "command")]
    places += [("spans", 0), *(("spans", 1, name) for name in right["spans"][1])]
    for at in places:
        hostile = replaced(right, at, wrong)
        for show in (render_page, lambda hostile: compare_profiles(hostile, right)):
            with contextlib.suppress(HpfraccError):
                show(hostile)

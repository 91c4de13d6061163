"""The bars of the selection rule hold on the stored tables, replayed with the real rule on a simulated clock."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def replaying() -> Any:
    """The replay's modules, found as the script finds them."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        from replay import report, tables
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))
    return report, tables


@pytest.mark.parametrize("table", ["timings-cpu", "timings-h200"])
@pytest.mark.parametrize("knots", ["every-other", "half"])
def test_regret_stays_under_the_bars(replaying: Any, table: str, knots: str) -> None:
    """At most 10 % in the first 1,000 calls and 3 % after, compiling charged; few clearly wrong calls."""
    report, tables = replaying
    found = report.replay(
        tables.read_table(ROOT / "benchmarks" / "data" / f"{table}.json"),
        knots,
        calls=2000,
        repeats=2,
        workloads=("mixed", "sweep"),
    )
    for verdict in found.verdicts.values():
        assert verdict.first.regret <= 0.10
        assert verdict.settled.regret <= 0.03
        assert verdict.wrong_share <= 0.05
        assert verdict.worst_total <= 2.0


def test_the_baselines_are_far_worse(replaying: Any) -> None:
    """Always NumPy and round-robin cost many times what the rule does, or the table would prove nothing."""
    report, tables = replaying
    found = report.replay(
        tables.read_table(ROOT / "benchmarks" / "data" / "timings-h200.json"),
        "every-other",
        calls=2000,
        repeats=1,
        workloads=("mixed",),
    )
    ours = found.verdicts["mixed"].total.regret
    assert all(pair.regret > ours for pair in found.baselines.values())
    assert max(pair.regret for pair in found.baselines.values()) > 5.0


def test_a_table_with_arms_missing_and_unknown_operations(replaying: Any, tmp_path: Path) -> None:
    """Any table of that form can be replayed, also with sizes that only some arms have."""
    import json

    report, tables = replaying
    rows = [
        {
            "op": "mine",
            "arm": arm,
            "start": "host",
            "n": n,
            "first": 1e-3,
            "samples": [t * (1 + 0.01 * k) for k in range(9)],
        }
        for arm, sizes, scale in (("numpy", (10, 100, 1000, 10_000), 1e-6), ("own", (10, 100), 2e-7))
        for n in sizes
        for t in [scale * n]
    ]
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"meta": {"machine": "none"}, "rows": rows}))
    found = report.replay(tables.read_table(path), "every-other", calls=500, repeats=1, workloads=("mixed",))
    assert found.verdicts["mixed"].settled.regret < 0.03

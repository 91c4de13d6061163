"""The bars of the selection rule hold on the stored tables, replayed with the real rule on a simulated clock."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.replay.judge import Verdict
from benchmarks.replay.perturbation import perturbed
from benchmarks.replay.report import Replay, replay
from benchmarks.replay.tables import Table, read_table
from tests.helpers.thinned import thinned

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "benchmarks" / "data"
STORED = ("timings-cpu", "timings-h200")


def stored(name: str) -> Table:
    return read_table(DATA / f"{name}.json")


def row(arm: str, n: int, seconds: float, **more: Any) -> dict[str, Any]:
    samples = [seconds * (1 + 0.01 * k) for k in range(9)]
    return {"op": "mine", "arm": arm, "start": "host", "n": n, "first": seconds, "samples": samples} | more


def missed(result: Replay) -> list[str]:
    return [f"{bar.workload}: {bar.metric}: {bar.show(bar.value)}" for bar in result.bars if not bar.passed]


@pytest.mark.parametrize("table", STORED)
@pytest.mark.parametrize("knots", ["every-other", "half", "all"])
@thinned(lambda table, knots: knots == "half" and table == "timings-cpu")
def test_the_bars_hold(table: str, knots: str):
    """At most 10 % regret in the first 1,000 calls and 3 % after, compiling charged; few clearly wrong calls; NumPy."""
    result = replay(stored(table), knots, repeats=2, workloads=("mixed", "sweep"), baselines=False)
    assert missed(result) == []


@pytest.mark.parametrize("table", STORED)
@thinned(lambda table: table == "timings-cpu")
def test_one_size_over_and_over(table: str):
    """Hammered, every size in turn: it settles quickly, and never costs over twice what plain NumPy does."""
    result = replay(stored(table), repeats=5, calls=1000, workloads=("hammered",), baselines=False)
    assert missed(result) == []


@pytest.mark.parametrize("table", STORED)
@thinned(lambda table: table == "timings-cpu")
def test_a_change_half_way_is_followed(table: str):
    """The oracle's favourite arm becomes three times slower; in all the regret stays below 12 %."""
    verdict = replay(stored(table), repeats=1, workloads=("drift",), baselines=False).verdicts["drift"]
    assert verdict.total.regret < 0.12
    assert verdict.worst_total < 2.0


@pytest.mark.parametrize("table", STORED)
@thinned(lambda table: table == "timings-cpu")
def test_other_machines_fare_no_worse(table: str):
    """Curves are bent and noise is redrawn: nothing was tuned to the two stored tables."""
    verdict = Verdict()
    for seed in (101, 102, 103):
        found = replay(
            perturbed(stored(table), seed), repeats=1, workloads=("mixed",), baselines=False, first_seed=seed
        ).verdicts["mixed"]
        verdict.first.add(found.first.ours, found.first.best)
        verdict.settled.add(found.settled.ours, found.settled.best)
        verdict.late += found.late
        verdict.wrong += found.wrong
    assert verdict.first.regret <= 0.10
    assert verdict.settled.regret <= 0.04
    assert verdict.wrong_share <= 0.06


def test_the_baselines_are_far_worse():
    """Always NumPy, round-robin, Thompson sampling and the best fixed arm all cost more on the table with a GPU."""
    result = replay(stored("timings-h200"), repeats=1, workloads=("mixed",))
    ours = result.verdicts["mixed"].total.regret
    assert set(result.baselines) == {"always NumPy", "best fixed arm per op", "round-robin", "Thompson sampling"}
    assert all(pair.regret > ours for pair in result.baselines.values())
    assert result.baselines["always NumPy"].regret > 5.0


def test_replays_are_repeatable():
    """The same table and seed give the same figures, to the last digit."""
    first, second = (
        replay(stored("timings-cpu"), repeats=1, calls=300, workloads=("mixed",)).to_dict() for _ in range(2)
    )
    assert first == second


def test_device_rows_are_served_by_device_arms_only():
    """What starts on the device has no other options."""
    table = stored("timings-h200")
    group = next(group for group in table.groups if group.start == "device")
    assert all(arm in ("torch-cuda", "jax-gpu", "cupy") for arm in group.arms)
    assert group.plain(group.sizes[0]) is None


def run_script(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "selection.py"), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


def test_the_script_prints_json_and_fails_on_a_missed_bar(tmp_path: Path):
    """Knots and held-out sizes are told; ``--check`` turns a missed bar into exit status 1."""
    path = tmp_path / "mine.json"
    path.write_text(json.dumps([row(arm, n, s * n) for arm, s in (("numpy", 1e-6), ("own", 2e-7)) for n in (10, 100)]))
    short = ("--table", str(path), "--calls", "300", "--repeats", "1", "--workloads", "mixed", "--json", "--check")
    done = run_script(*short, "--knots", "100")
    assert done.returncode == 0, done.stderr
    (table,) = json.loads(done.stdout)["tables"]
    assert (table["knots"], table["held_out"]) == ({"mine/host": [100]}, {"mine/host": [10]})
    assert {bar["passed"] for bar in table["bars"]} == {True}

    # A first call of half a minute that no calibration told of cannot be avoided, and is more than the bars allow.
    path.write_text(json.dumps([row("numpy", 10, 1e-4), row("own", 10, 1e-6, first=30.0)]))
    assert run_script(*short, "--knots", "none").returncode == 1
    refused = run_script(*short, "--knots", "77")
    assert refused.returncode == 2
    assert "size 77 is not in mine" in refused.stderr

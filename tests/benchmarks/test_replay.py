"""The bars of the selection rule hold on the stored tables, replayed with the real rule on a simulated clock."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.replay.judge import Verdict
from benchmarks.replay.knots import Knots
from benchmarks.replay.live import Contestant, measure_table
from benchmarks.replay.oracle import best_plan, oracle
from benchmarks.replay.perturbation import perturbed
from benchmarks.replay.policies import Engine, Fixed
from benchmarks.replay.report import Replay, replay
from benchmarks.replay.simulation import Times, follow, simulate
from benchmarks.replay.tables import Table, make_table, read_table
from benchmarks.replay.workloads import drifting, hammered, mixed, sweep
from hpfracc.engine.selection.regret import regret_report
from tests.helpers.thinned import thinned

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "benchmarks" / "data"
STORED = ("timings-cpu", "timings-h200")


def stored(name: str) -> Table:
    return read_table(DATA / f"{name}.json")


def row(arm: str, n: int, seconds: float, **more: Any) -> dict[str, Any]:
    samples = [seconds * (1 + 0.01 * k) for k in range(9)]
    return {"op": "mine", "arm": arm, "start": "host", "n": n, "first": seconds, "samples": samples} | more


def small_table(*rows: dict[str, Any]) -> Table:
    return make_table("small", {}, rows)


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


def test_a_table_with_arms_missing_and_unknown_operations():
    """Any table of that form can be replayed, also with sizes that only some arms have, and without NumPy."""
    rows = [row("own", n, 2e-7 * n) for n in (10, 100)] + [row("other", n, 1e-6 * n) for n in (10, 100, 1000, 10_000)]
    result = replay(small_table(*rows), calls=400, repeats=1)
    assert result.verdicts["mixed"].settled.regret < 0.05
    assert result.held_out == {"mine/host": [100, 10_000]}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("every-other", {10, 1000}),
        ("all", {10, 100, 1000, 10_000}),
        ("none", set()),
        ("100,1000", {100, 1000}),
    ],
)
def test_knots_are_what_was_asked_for(spec: str, expected: set[int]):
    """And the rest is held out."""
    table = small_table(*(row("numpy", n, 1e-6) for n in (10, 100, 1000, 10_000)))
    assert Knots(table, spec).of(table.groups[0]) == expected


def test_bad_knots_are_refused():
    """Sizes that are not there, and words that mean nothing; a random half is another for each seed."""
    table = small_table(*(row("numpy", n, 1e-6) for n in range(1, 20)))
    with pytest.raises(ValueError, match="size 99 is not in small"):
        Knots(table, "1,99")
    with pytest.raises(ValueError, match="neither a list of sizes"):
        Knots(table, "most")
    halves = [Knots(table, "half").of(table.groups[0], seed) for seed in range(4)]
    assert all(len(half) == 10 for half in halves)
    assert len(set(map(frozenset, halves))) > 1


def test_first_calls_are_charged_as_the_tables_mean_them():
    """Numba once per operation; JAX at every size, the device row's where the host's was warm; others as measured."""
    table = small_table(
        row("numba", 10, 1e-3, first=1.001),
        row("numba", 100, 2e-3, first=0.002),
        row("jax-gpu", 10, 1e-3, first=1e-3),
        row("jax-gpu", 10, 1e-3, first=0.101, start="device"),
        row("torch", 10, 1e-3, first=0.051),
        {"op": "mine", "arm": "numpy", "n": 10, "samples": [1e-3, None, float("nan")]},
    )
    host = next(group for group in table.groups if group.start == "host")
    cells = host.cells[10]
    assert cells["numba"].compile == pytest.approx(1.0, rel=0.01)
    assert host.cells[100]["numba"].compile_key == cells["numba"].compile_key
    assert cells["jax-gpu"].compile == pytest.approx(0.1, rel=0.01)
    assert cells["torch"].compile == pytest.approx(0.05, rel=0.01)
    assert (cells["numpy"].compile, cells["numpy"].samples) == (0.0, (1e-3,))
    with pytest.raises(ValueError, match="no row with a usable time"):
        small_table({"op": "mine", "arm": "numpy", "n": 1, "samples": []})


def test_device_rows_are_served_by_device_arms_only():
    """What starts on the device has no other options."""
    table = stored("timings-h200")
    group = next(group for group in table.groups if group.start == "device")
    assert all(arm in ("torch-cuda", "jax-gpu", "cupy") for arm in group.arms)
    assert group.plain(group.sizes[0]) is None


def test_the_oracle_is_the_best_plan_there_is():
    """No other assignment of arms to sizes is cheaper, a shared compilation included."""
    table = small_table(
        *(row("numpy", n, t) for n, t in ((10, 1e-3), (20, 2e-3), (30, 3e-3))),
        *(row("numba", n, t, first=t + 0.05) for n, t in ((10, 0.9e-3), (20, 1e-3), (30, 1e-3))),
        *(row("jax", n, t, first=t + 0.03) for n, t in ((10, 0.2e-3), (20, 0.2e-3), (30, 0.2e-3))),
    )
    group = table.groups[0]
    times = Times(group, mixed(group, 120, 0), 0)
    best = follow(times, [(0, best_plan(times, 0, 120))]).seconds()
    plans = itertools.product(*(group.cells[n] for n in group.sizes))
    every = [follow(times, [(0, dict(zip(group.sizes, plan, strict=True)))]).seconds() for plan in plans]
    assert best == pytest.approx(min(every))
    assert oracle(times).seconds() == pytest.approx(best)


def test_everyone_lives_through_the_same_noise():
    """The k-th call of a size takes the k-th time of its arm for every policy; each sample comes once in each round."""
    table = stored("timings-cpu")
    group = table.groups[0]
    n = group.sizes[0]
    times = Times(group, hammered(48, n), 7)
    arm = group.plain(n)
    assert arm is not None
    seen = simulate(times, Fixed(group)).runs
    assert seen == [times.at(index, arm) for index in range(48)]
    assert sorted(seen[:24]) == sorted(group.cells[n][arm].samples) == sorted(seen[24:])


def test_workloads_are_what_their_names_say():
    """All sizes at random, in order, or one arm slower from half-way on."""
    group = stored("timings-cpu").groups[0]
    assert set(mixed(group, 500, 0).sizes) == set(group.sizes)
    assert list(sweep(group, len(group.sizes) + 1).sizes) == [*group.sizes, group.sizes[0]]
    workload = drifting(group, 100, 0)
    ((arm, factor),) = workload.factors.items()
    times, steady = Times(group, workload, 0), Times(group, mixed(group, 100, 0), 0)
    assert [times.at(index, arm) / steady.at(index, arm) for index in (49, 50)] == pytest.approx([1.0, factor])


def test_answers_are_reused_as_the_engine_does():
    """A settled size is rarely reviewed, but every call is accounted for."""
    table = small_table(*(row(arm, 10, seconds) for arm, seconds in (("numpy", 1e-5), ("torch", 5e-5))))
    group = table.groups[0]
    engine = Engine(group, {10})
    simulate(Times(group, hammered(5000, 10), 0), engine)
    assert engine.decisions < 120
    assert 4700 < regret_report(engine.chooser).total.calls <= 5000


@pytest.mark.parametrize(
    ("ours", "other", "slower"),
    [
        ([1.3] * 9, [1.0] * 9, True),
        ([1.05] * 9, [1.0] * 9, False),
        ([1.0] * 8 + [90.0], [1.0] * 9, False),  # one hiccup in nine proves nothing
        ([1.0, 90.0] * 12, [1.0] * 24, True),  # every other call does
        ([0.8, 1.2, 1.3, 2.0] * 2, [0.9, 1.0, 1.25, 1.6] * 2, False),
    ],
)
def test_ties_within_the_spread_are_right(ours: list[float], other: list[float], slower: bool):
    """Slower is what is so beyond the samples' own spread."""
    table = small_table(
        {"op": "mine", "arm": "a", "n": 1, "samples": ours}, {"op": "mine", "arm": "b", "n": 1, "samples": other}
    )
    cells = table.groups[0].cells[1]
    assert cells["a"].clearly_slower_than(cells["b"], 1.1) is slower


def test_a_table_can_be_measured_from_things_that_run():
    """First calls and samples by the clock given; what an arm does not take is left out."""
    now = 0.0

    def contestant(arm: str, cost: float, most: int) -> Contestant:
        def prepare(n: int) -> Any:
            if n > most:
                raise NotImplementedError
            runs = itertools.count()

            def run() -> None:
                nonlocal now
                now += cost * n + (1.0 if next(runs) == 0 else 0.0)

            return run

        return Contestant("mine", "host", arm, prepare)

    table, rows = measure_table(
        "here", {}, [contestant("numpy", 1e-6, 10**9), contestant("jax", 1e-7, 100)], (10, 1000), clock=lambda: now
    )
    cells = table.groups[0].cells
    assert {n: set(arms) for n, arms in cells.items()} == {10: {"numpy", "jax"}, 1000: {"numpy"}}
    assert cells[10]["jax"].compile == pytest.approx(1.0)
    assert cells[10]["jax"].mean == pytest.approx(1e-6)
    assert make_table("again", {}, json.loads(json.dumps(rows))) == Table("again", {}, table.groups)


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

"""The regret report: what ran, and what would have been best."""

from __future__ import annotations

import json

import pytest
from rich.console import Console

from hpfracc.engine.selection.costs import CostModel, Option
from hpfracc.engine.selection.policy import Chooser
from hpfracc.engine.selection.regret import regret_report

FAST, SLOW = Option("fast", "fast", 1000.0), Option("slow", "slow", 1000.0, compile_key="code")


@pytest.fixture
def chooser() -> Chooser:
    costs = CostModel()
    costs.add_knot("fast", 1000.0, 1e-3)
    costs.add_knot("slow", 1000.0, 2e-3)
    return Chooser(costs)


def test_regret_is_the_extra_time_of_slower_arms(chooser: Chooser):
    """One call in four on an arm that takes twice as long: 25 % regret, a quarter of the calls slow."""
    chooser.choose(("op", "float64"), 10, [FAST, SLOW])
    for _ in range(30):
        chooser.observe(("op", "float64"), 10, FAST, 1e-3)
    for _ in range(10):
        chooser.observe(("op", "float64"), 10, SLOW, 2e-3)
    row = regret_report(chooser).total
    assert row.calls == 40
    assert row.seconds == pytest.approx(0.05)
    assert row.best == pytest.approx(0.04, rel=0.01)
    assert row.regret == pytest.approx(0.25, rel=0.01)
    assert row.slow == pytest.approx(0.25)


def test_compiling_and_untimed_calls_are_counted(chooser: Chooser):
    """First calls are compile time beyond their run; a timed call stands for several; others count as predicted."""
    chooser.observe("op", 10, SLOW, 0.502, first=True)
    chooser.observe("op", 10, SLOW, 2e-3, calls=9)
    chooser.tally("op", 10, SLOW, 10)
    row = regret_report(chooser).total
    assert row.calls == 20
    assert row.compiling == pytest.approx(0.5)
    assert row.seconds == pytest.approx(0.5 + 20 * 2e-3, rel=0.01)


def test_the_report_can_be_read_and_kept(chooser: Chooser):
    """As a table for people and as JSON for programs, with null where nothing is known."""
    empty = regret_report(chooser)
    assert json.loads(json.dumps(empty.to_dict(), allow_nan=False))["total"]["regret"] is None
    chooser.observe("op", 10, FAST, 1e-3)
    report = regret_report(chooser)
    assert json.loads(json.dumps(report.to_dict(), allow_nan=False))["operations"][0]["operation"] == "op"
    assert "op" in str(report) and "regret" in str(report)
    console = Console(width=140, color_system=None)
    with console.capture() as capture:
        console.print(report)
    assert "0.0 %" in capture.get()

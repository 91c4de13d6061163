"""The names of the contract's Observing section, as written there."""

from __future__ import annotations

import inspect
import json
import math
from pathlib import Path

import pytest


def test_analytics():
    """``start_timing`` and ``end_timing`` give seconds; statistics are floats, nan where nothing was timed."""
    from hpfracc.analytics import PerformanceMonitor, UsageTracker

    monitor = PerformanceMonitor()
    monitor.start_timing("x")
    assert isinstance(monitor.end_timing("x"), float)
    tracker = UsageTracker()
    tracker.record_usage("x", data_size=1000)
    found = tracker.get_statistics()
    assert found["total_ops"] == 1.0
    assert math.isnan(found["avg_time"])


def test_profiler(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Every method that is listed, with the arguments that are listed."""
    from hpfracc.profiling import get_profiler

    assert inspect.signature(get_profiler).parameters["enabled"].default is True
    p = get_profiler(enabled=True)
    with p.profile("name", device="gpu", batch=3):
        pass

    @p.profile_function(operation="name of a function")
    def work() -> int:
        return 7

    assert work() == 7
    assert [entry.name for entry in p.get_entries()] == ["name", "name of a function"]
    assert set(p.get_summary()) == {"name", "name of a function"}
    assert {"count", "total", "self", "mean", "p50", "p95", "min", "max", "device"} <= set(p.get_summary()["name"])
    assert len(p.get_bottlenecks(top_n=5)) == 2
    p.print_summary()
    p.print_bottlenecks()
    assert "name of a function" in capsys.readouterr().out
    p.export_json(tmp_path / "run.json")
    assert json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))["recorded"] == 2
    p.reset()
    assert p.get_entries() == []
    p.disable()
    work()
    assert p.get_entries() == []
    p.enable()
    work()
    assert len(p.get_entries()) == 1

"""Timings and usage statistics: correct values, nan where nothing was timed, saved only if a path is given."""

from __future__ import annotations

import json
import math
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from hpfracc.analytics import PerformanceMonitor, UsageTracker
from hpfracc.errors import InvalidInputError


def test_a_monitor_gives_seconds():
    """Seconds from start to end, for nested and repeated timings."""
    monitor = PerformanceMonitor()
    monitor.start_timing("outer")
    monitor.start_timing("inner")
    time.sleep(0.002)
    inner = monitor.end_timing("inner")
    outer = monitor.end_timing("outer")
    assert outer >= inner >= 0.002
    assert monitor.get_timings() == {"inner": [pytest.approx(inner)], "outer": [pytest.approx(outer)]}
    assert list(monitor.get_timings("inner")) == ["inner"]
    monitor.reset()
    assert monitor.get_timings() == {}


def test_ending_a_timing_that_was_not_started():
    """Raises an error, even if another thread started one of that name."""
    monitor = PerformanceMonitor()
    thread = threading.Thread(target=monitor.start_timing, args=("x",))
    thread.start()
    thread.join()
    with pytest.raises(InvalidInputError, match="'x' is not being timed in this thread"):
        monitor.end_timing("x")


def test_statistics_of_usage():
    """Statistics are floats; nan where nothing was timed."""
    tracker = UsageTracker()
    empty = tracker.get_statistics()
    assert empty["total_ops"] == 0.0 and math.isnan(empty["avg_time"]) and math.isnan(empty["avg_data_size"])
    tracker.record_usage("caputo", data_size=100)
    tracker.record_usage("caputo", data_size=300, execution_time=0.5)
    tracker.record_usage("fft", data_size=8)
    found = tracker.get_statistics()
    assert (found["total_ops"], found["timed_ops"], found["avg_time"], found["total_data_size"]) == (
        3.0,
        1.0,
        0.5,
        408.0,
    )
    assert found["by_name"]["caputo"]["avg_data_size"] == 200.0
    assert math.isnan(found["by_name"]["fft"]["avg_time"])
    assert tracker.get_statistics("fft")["total_ops"] == 1.0
    assert tracker.get_statistics("nothing")["total_ops"] == 0.0
    assert all(isinstance(value, float) for key, value in found.items() if key != "by_name")


def test_monitor_and_tracker_with_one_recorder():
    """The monitor's timings are the execution times in the tracker's statistics."""
    monitor = PerformanceMonitor()
    tracker = UsageTracker(recorder=monitor.recorder)
    monitor.start_timing("step")
    seconds = monitor.end_timing("step")
    tracker.record_usage("step", data_size=10)
    found = tracker.get_statistics("step")
    assert found["total_ops"] == 1.0
    assert found["avg_time"] == pytest.approx(seconds)


@pytest.mark.parametrize(
    "wrong", [{"data_size": -1}, {"data_size": math.nan}, {"execution_time": -1.0}, {"execution_time": math.inf}]
)
def test_invalid_sizes_and_times(wrong: dict[str, Any]):
    """The error names the parameter."""
    with pytest.raises(InvalidInputError, match=next(iter(wrong))):
        UsageTracker().record_usage("x", **wrong)


def test_nothing_is_written_without_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Without a path, ``save`` does nothing."""
    monkeypatch.chdir(tmp_path)
    with UsageTracker() as tracker:
        tracker.record_usage("x")
        assert tracker.save() is None
    assert list(tmp_path.iterdir()) == []


def test_totals_are_kept_where_a_path_is_given(tmp_path: Path):
    """The next tracker continues from the saved totals."""
    path = tmp_path / "usage.json"
    for _ in range(3):
        with UsageTracker(path) as tracker:
            tracker.record_usage("x", data_size=2, execution_time=0.25)
    found = UsageTracker(path).get_statistics()
    assert (found["total_ops"], found["total_time"], found["total_data_size"]) == (3.0, 0.75, 6.0)
    assert json.loads(path.read_text(encoding="utf-8"))["totals"]["x"]["ops"] == 3


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"format": "other", "version": 1}', '{"format": "hpfracc-usage", "version": 1}']
)
def test_a_damaged_file_is_refused(text: str, tmp_path: Path):
    """The error names the file and says what to do; the file stays."""
    path = tmp_path / "usage.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInputError, match=r"usage\.json' is damaged .*move it away"):
        UsageTracker(path)
    assert path.read_text(encoding="utf-8") == text

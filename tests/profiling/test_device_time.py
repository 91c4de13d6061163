"""What a device did: by its own clock, placed on the host's time line, and never claimed where it was not measured."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hpfracc.profiling import Profiler
from hpfracc.profiling.analysis import calibrate
from tests.helpers.simulated_device import SimulatedClock, Time

Plug = Callable[..., SimulatedClock]


def test_asynchronous_work_is_the_devices_time(plug: Plug):
    """The host's span is short, the device's time is its work, and it lies where the device worked."""
    clock, profiler = plug(), Profiler()
    with profiler.profile("warm", device="gpu"):
        pass
    with profiler.profile("kernel", device="gpu"):
        clock.work(0.03)
    with profiler.profile("host"):
        pass
    _, kernel, host = profiler.get_entries()
    assert kernel.duration < 0.01 and host.duration < 0.01
    assert kernel.device_duration == pytest.approx(0.03, rel=1e-3)
    assert kernel.device.timing == "device" and kernel.device.device == "sim:0"
    assert kernel.device.start == pytest.approx(kernel.start, abs=2e3)
    breakdown = profiler.get_breakdown()
    assert breakdown["devices"]["sim:0"]["busy_ns"] == kernel.device.duration
    assert breakdown["devices"]["sim:0"]["utilisation"] == pytest.approx(
        kernel.device.duration / breakdown["wall_ns"], rel=1e-9
    )


def test_a_sleep_reports_no_device_time(plug: Plug, time: Time):
    """On the host there is none; in a span on a device that did nothing it is an upper bound, and not claimed."""
    plug()
    profiler = Profiler()
    with profiler.profile("sleep"):
        time.sleep(0.005)
    with profiler.profile("cpu", device="cpu"):
        time.sleep(0.001)
    with profiler.profile("gpu", device="gpu"):
        time.sleep(0.005)
    summary = profiler.get_summary()
    assert summary["sleep"]["device"] is None and summary["cpu"]["device"] is None
    assert summary["gpu"]["device"] is None and summary["gpu"]["device_at_most"] >= 0.005
    assert profiler.get_breakdown()["devices"] == {}
    assert profiler.get_entries()[2].device.timing == "at most"


def test_waiting_inside_the_span_ends_the_devices_part_before_the_wait(plug: Plug, time: Time):
    """``synchronize`` sets the mark first: host duration contains the work, and the device's time is exact."""
    clock, profiler = plug(), Profiler()
    with profiler.profile("step", device="gpu") as span:
        clock.work(0.02)
        assert span.synchronize("array") == "array"
        time.sleep(0.01)
    (entry,) = profiler.get_entries()
    assert entry.device_duration == pytest.approx(0.02, rel=1e-3)
    assert entry.duration >= 0.03


def test_a_library_without_marks_says_enqueued(plug: Plug):
    """Unless the span waits for its work, in which case the host's duration is the truth."""
    clock, profiler = plug(marks=False), Profiler()
    with profiler.profile("asked", device="gpu"):
        clock.work(0.005)
    with profiler.profile("waited", device="gpu") as span:
        clock.work(0.005)
        span.synchronize()
    asked, waited = profiler.get_entries()
    assert (asked.device.timing, asked.device_duration) == ("enqueued", None)
    assert (waited.device.timing, waited.device_duration) == ("synchronised", None)
    assert waited.duration >= 0.005
    assert clock.waits == 1  # no time line is made for it


def test_an_unknown_device_has_no_clock():
    """The name is kept, and nothing is measured."""
    profiler = Profiler()
    with profiler.profile("x", device="quantum:7"):
        pass
    row = next(profiler.document().rows())
    assert (row["device"], row["timing"], row["device_ns"]) == ("quantum:7", "no clock", None)


def test_marks_are_pooled_and_read_without_waiting(plug: Plug):
    """Marks are used again once thousands wait to be read, and no span waits for the device."""
    clock, profiler = plug(), Profiler()
    for _ in range(12_000):
        with profiler.profile("x", device="gpu"):
            clock.work(1e-6)
    assert clock.waits == 1  # the time line's own
    assert clock.made < 17_000
    profiler.get_summary()
    assert clock.waits > 1


def test_overlapping_work_counts_once(plug: Plug, time: Time):
    """Device busy is a union, and of nested spans the innermost count: a pause between two kernels is not work."""
    clock, profiler = plug(), Profiler()
    with profiler.profile("outer", device="gpu"):
        with profiler.profile("a", device="gpu"):
            clock.work(0.01)
        time.sleep(0.03)
        with profiler.profile("b", device="gpu"):
            clock.work(0.01)
    document = profiler.document()
    busy = document.breakdown["devices"]["sim:0"]["busy_ns"]
    assert busy == pytest.approx(0.02e9, rel=1e-3)
    outer = document.summary["outer"]
    assert outer["device"] == pytest.approx(0.02, rel=1e-3)
    assert outer["device_idle"] == pytest.approx(0.02, rel=0.01)


def test_clocks_that_drift_apart_are_brought_together(plug: Plug, time: Time):
    """A device whose clock runs a thousandth fast: places follow the host's clock, lengths stay the device's own."""
    clock, profiler = plug(rate=1.001), Profiler()
    for _ in range(10):
        with profiler.profile("x", device="gpu"):
            clock.work(0.1)
        time.sleep(1.0)
    spans = profiler.get_entries()
    assert len(spans) == 10
    for span in spans:
        assert span.device.start == pytest.approx(span.start, abs=1e5)  # without it the last would be 10 ms late
        assert span.device.duration == pytest.approx(0.1001e9, rel=1e-5)


def test_memory_of_the_device(plug: Plug):
    """Before, after, and a peak where the span set a new record; the allocator's own peak is left alone."""
    clock, profiler = plug(), Profiler(memory="device")
    with profiler.profile("grow", device="gpu"):
        clock.allocate(1000)
        clock.allocate(-400)
    with profiler.profile("below", device="gpu"):
        clock.allocate(100)
    with profiler.profile("host"):
        pass
    grow, below, host = profiler.get_entries()
    assert grow.memory == ("sim:0", 0, 600, 1000)
    assert below.memory == ("sim:0", 600, 700, None)
    assert host.memory is None


def test_overhead_is_calibrated():
    """A span costs something, and far less than a tenth of a millisecond."""
    inside, around = calibrate()
    assert 0 < inside < inside + around < 100_000

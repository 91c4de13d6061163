from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from importlib import resources
from typing import Any

import pytest

from hpfracc.profiling import analysis, clocks, device_time, session, spans
from tests.helpers.simulated_device import SimulatedClock, Time


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    """Time that passes when it is told to, for spans and devices alike."""
    analysis.calibrate()  # by the real clock, and kept
    made = Time()
    monkeypatch.setattr(spans, "_now", made.perf_counter_ns)
    monkeypatch.setattr(device_time, "perf_counter_ns", made.perf_counter_ns)
    monkeypatch.setattr(session, "perf_counter_ns", made.perf_counter_ns)
    return made


@pytest.fixture
def plug(time: Time) -> Iterator[Callable[..., SimulatedClock]]:
    """Plug in the clock of a simulated device for the length of a test."""
    before = list(clocks.extra_clocks)

    def plug_in(*args: Any, **kwargs: Any) -> SimulatedClock:
        clock = SimulatedClock(time, *args, **kwargs)
        clocks.extra_clocks.append(clock)
        return clock

    yield plug_in
    clocks.extra_clocks[:] = before


@pytest.fixture
def schema() -> Any:
    """Validates a document against the packaged schema."""
    jsonschema = pytest.importorskip("jsonschema")
    text = resources.files("hpfracc.profiling").joinpath("schema.json").read_text(encoding="utf-8")
    return jsonschema.Draft202012Validator(json.loads(text))

"""What is written: valid against its schema, complete but for what it says was dropped, whatever spans are called."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hpfracc.errors import InvalidInputError
from hpfracc.profiling import Profiler, load_profile
from tests.helpers.simulated_device import SimulatedClock

EVIL = "</script><script>alert(1)</script> & \u2028 \ud800 'quotes\" \x00"


def strictly(text: str) -> Any:
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def evil_profile() -> Profiler:
    profiler = Profiler(capacity=50)
    for number in range(60):
        with profiler.profile("filler", number=number):
            pass
    with profiler.profile(
        EVIL, scalar=np.float32(1.5), array=np.zeros((3, 4)), bad=math.nan, worse=np.inf, flag=np.True_
    ):
        with profiler.profile("numbers", **{"</script>": {1: {2, 3}}, "big": 10**30, "long": "x" * 9999}):
            pass
        with pytest.raises(RuntimeError), profiler.profile("failing"):
            raise RuntimeError("in the </script> middle")
    return profiler


def test_json_keeps_to_its_schema(schema: Any, tmp_path: Path):
    """NumPy's values, numbers that are not finite, and any text come out as valid JSON that the schema accepts."""
    profiler = evil_profile()
    path = profiler.export_json(tmp_path / "run.json")
    document = strictly(path.read_text(encoding="utf-8"))
    schema.validate(document)
    assert (document["recorded"], document["dropped"], document["open"]) == (50, 13, 0)
    evil = next(span for span in document["spans"] if span["name"] == EVIL)
    assert evil["metadata"] == {
        "scalar": 1.5,
        "array": "ndarray 3x4 float64",
        "bad": None,
        "worse": None,
        "flag": True,
    }
    failing = next(span for span in document["spans"] if span["name"] == "failing")
    assert failing["error"] == "RuntimeError: in the </script> middle"
    assert failing["parent"] == evil["id"]
    assert load_profile(path)["spans"] == document["spans"]


def test_device_spans_keep_to_the_schema(schema: Any, plug: Callable[..., SimulatedClock]):
    """With device times, upper bounds, memory, and devices without a clock."""
    clock, profiler = plug(), Profiler(memory=True)
    for device in ("gpu", "gpu", "cpu", "nowhere"):
        with profiler.profile("x", device=device):
            clock.work(0.001)
    document = profiler.document().to_dict()
    schema.validate(strictly(json.dumps(document)))
    assert document["devices"] == ["nowhere", "sim:0"]
    assert document["spans"][0]["device_ns"] == pytest.approx(1e6, rel=1e-2)
    assert document["spans"][2]["device"] is None


def test_the_schema_notices_what_is_wrong(schema: Any):
    """A missing field, a negative duration and an unknown key are refused."""
    profiler = Profiler()
    with profiler.profile("x"):
        pass
    for change in ({"duration_ns": -1}, {"colour": "red"}, {"name": None}, {"kind": "other"}):
        document = profiler.document().to_dict()
        document["spans"][0] |= change
        assert not schema.is_valid(document)
    assert not schema.is_valid({})


def test_chrome_trace(plug: Callable[..., SimulatedClock], tmp_path: Path):
    """Complete events on one row for each lane and device, with names and the count of what was dropped."""
    clock, profiler = plug(), evil_profile()
    with profiler.profile("kernel", device="gpu"):
        clock.work(0.002)
    trace = strictly(profiler.export_chrome_trace(tmp_path / "trace.json").read_text(encoding="utf-8"))
    events = trace["traceEvents"]
    complete = [event for event in events if event["ph"] == "X"]
    assert trace["otherData"]["dropped"] == 14
    assert len(complete) == 50 + 1
    rows = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert rows == {0: "MainThread", 1: "sim:0"}
    kernel = [event for event in complete if event["name"] == "kernel"]
    assert {event["tid"] for event in kernel} == {0, 1}
    assert kernel[1]["dur"] == pytest.approx(2000, rel=1e-2)
    assert all(event["dur"] >= 0 for event in complete)


def test_speedscope(tmp_path: Path):
    """Frames open and close in order and nest, each at a time that does not run backwards."""
    document = strictly(evil_profile().export_speedscope(tmp_path / "run.speedscope.json").read_text(encoding="utf-8"))
    assert document["hpfracc"]["dropped"] == 13
    assert "13 spans dropped" in document["name"]
    (profile,) = document["profiles"]
    stack: list[int] = []
    last = profile["startValue"]
    for event in profile["events"]:
        assert event["at"] >= last
        last = event["at"]
        if event["type"] == "O":
            stack.append(event["frame"])
        else:
            assert stack.pop() == event["frame"]
    assert stack == []
    assert last == profile["endValue"]
    assert len(profile["events"]) == 2 * 50


@pytest.mark.slow
def test_a_million_spans_kept(tmp_path: Path):
    """With room for all of them nothing is dropped, in JSON, in the trace or in the page."""
    profiler = Profiler(capacity=1_000_000)
    for _ in range(1_000_000):
        with profiler.profile("x"):
            pass
    assert load_profile(profiler.export_json(tmp_path / "run.json"))["recorded"] == 1_000_000
    assert profiler.report(tmp_path / "run.html").stat().st_size < 100e6


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not JSON"),
        ("[]", "is JSON but not a profile"),
        ('{"format": "hpfracc-profile", "version": 99, "spans": []}', "version 99"),
    ],
)
def test_a_file_that_is_no_profile(text: str, words: str, tmp_path: Path):
    """Each is refused in words, with the file's name."""
    path = tmp_path / "run.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInputError, match=words):
        load_profile(path)
    with pytest.raises(InvalidInputError, match="cannot be read"):
        load_profile(tmp_path / "missing.json")
    with pytest.raises(InvalidInputError, match="cannot be written"):
        Profiler().export_json(tmp_path / "missing" / "run.json")


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Nothing is half written: the earlier file stays, and no other is left behind."""
    path = Profiler().export_json(tmp_path / "run.json")
    before = path.read_text(encoding="utf-8")
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(InvalidInputError, match="No space left"):
        Profiler().export_json(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.json"]
    assert path.read_text(encoding="utf-8") == before

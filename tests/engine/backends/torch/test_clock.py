"""The profiler's clock on a GPU that is played by the host: which stream is marked, and that events are reused."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from hpfracc.engine.backends.torch.adapter import TorchAdapter  # noqa: E402


class Stream:
    def __init__(self, idle: bool) -> None:
        self.idle = idle

    def query(self) -> bool:
        return self.idle


class Event:
    def __init__(self, *, enable_timing: bool) -> None:
        self.timed = enable_timing
        self.recorded: list[Stream] = []

    def record(self, stream: Stream) -> None:
        self.recorded.append(stream)


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> dict[int, Stream]:
    """The current stream of each device."""
    current = {0: Stream(True), 1: Stream(False)}

    def current_stream(device: Any) -> Stream:
        return current[device]

    monkeypatch.setattr(torch.cuda, "current_stream", current_stream)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    return current


def test_marks_are_recorded_on_the_current_stream_of_their_device(streams: dict[int, Stream]):
    """Also after the user has changed the stream."""
    clock = TorchAdapter()
    first = clock.mark("cuda:0")
    assert first.timed and first.recorded == [streams[0]]
    assert clock.mark("cuda:1").recorded == [streams[1]]
    streams[0] = Stream(True)
    assert clock.mark("cuda:0").recorded == [streams[0]]


def test_the_end_mark_tells_whether_the_stream_was_idle(streams: dict[int, Stream]):
    """The stream is asked, and the same stream is marked."""
    clock = TorchAdapter()
    for index, idle in ((0, True), (1, False)):
        found, mark = clock.mark_end(f"cuda:{index}")
        assert found is idle
        assert mark.recorded == [streams[index]]


def test_released_events_are_used_again(streams: dict[int, Stream]):
    """On their own device only."""
    clock = TorchAdapter()
    mark = clock.mark("cuda:0")
    clock.release("cuda:0", mark)
    assert clock.mark("cuda:1") is not mark
    assert clock.mark("cuda:0") is mark
    assert mark.recorded == [streams[0], streams[0]]
    assert clock.mark("cuda:0") is not mark

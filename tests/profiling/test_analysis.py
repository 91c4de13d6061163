"""Self times, breakdown, summary and advice, from spans whose times are written down by hand."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console

from hpfracc.errors import InvalidInputError
from hpfracc.profiling import Profiler
from hpfracc.profiling.analysis import Analysis, advise, break_down, length, summarise, union
from hpfracc.profiling.device_time import DeviceTime
from hpfracc.profiling.exports import bottleneck_table, summary_table
from hpfracc.profiling.recorder import Recorder
from hpfracc.profiling.session import ThreadLane
from hpfracc.profiling.spans import Span
from tests.helpers.simulated_device import Time

MS = 1_000_000
LANE = ThreadLane("main")


class Written:
    """Spans with given times, in milliseconds."""

    def __init__(self) -> None:
        self.recorder = Recorder()
        self.spans: list[Span] = []

    def add(self, name: str, start: float, end: float, parent: int = 0, kind: str = "span", **more: Any) -> int:
        span = Span(self.recorder, name, kind)
        span.id, span.parent = len(self.spans) + 1, parent
        span.start, span.end = round(start * MS), round(end * MS)
        span.lane = more.pop("lane", LANE)
        device = more.pop("device", None)
        if device is not None:
            span.device = part = DeviceTime("cuda:0", None, None, "no clock")
            part.timing, part.start, part.duration = "device", round(device[0] * MS), round(device[1] * MS)
        for key, value in more.items():
            setattr(span, key, value)
        self.spans.append(span)
        return span.id

    def analysis(self) -> Analysis:
        return Analysis(self.spans)

    def advice(self) -> Any:
        analysis = self.analysis()
        return advise(analysis, break_down(analysis)["wall_ns"])


def test_union_and_length():
    """Overlapping, touching and contained intervals are joined."""
    assert union([(5, 7), (0, 2), (2, 3), (6, 9), (6, 7)]) == [(0, 3), (5, 9)]
    assert length(union([(5, 7), (0, 2), (2, 3), (6, 9)])) == 7
    assert union([]) == []


def test_self_time_is_what_children_on_the_same_thread_leave():
    """Overlapping children count once, other threads' not at all, and a late one only up to its parent's end."""
    written = Written()
    parent = written.add("parent", 0, 100)
    written.add("one", 10, 30, parent)
    written.add("two", 20, 50, parent)
    written.add("elsewhere", 0, 90, parent, lane=ThreadLane("other"))
    written.add("late", 90, 150, parent)
    assert written.analysis().own[0] == (100 - 40 - 10) * MS


def test_one_thread_adds_up_to_the_wall_time():
    """Host, copies, compilation, overhead and idle make up the run."""
    written = Written()
    call = written.add("call", 0, 40)
    written.add("host->cuda:0", 5, 15, call, "transfer", size=4096)
    written.add("first call of x", 15, 35, call, "compile")
    written.add("call", 60, 100)
    whole = break_down(written.analysis())
    assert whole["wall_ns"] == 100 * MS
    assert (whole["transfer_ns"], whole["compile_ns"], whole["idle_ns"]) == (10 * MS, 20 * MS, 20 * MS)
    assert sum(whole[f"{part}_ns"] for part in ("host", "transfer", "compile", "overhead", "idle")) == whole["wall_ns"]
    assert whole["moved_bytes"] == 4096
    assert 0 < whole["overhead_ns"] < MS


def test_a_device_that_works_on_extends_the_run():
    """Wall time goes to the end of the device's work, which is not idle."""
    written = Written()
    written.add("launch", 0, 1, device=(0.5, 9.5))
    whole = break_down(written.analysis())
    assert (whole["wall_ns"], whole["idle_ns"]) == (10 * MS, 0)
    assert whole["devices"]["cuda:0"]["utilisation"] == pytest.approx(0.95)


def test_summary_of_a_name():
    """Counts, percentiles and inclusive copies; a recursion counts once in the total."""
    written = Written()
    for number in range(1, 21):
        written.add("step", 100 * number, 100 * number + number)
    outer = written.add("recursive", 5000, 5100)
    inner = written.add("recursive", 5010, 5060, outer, error="ValueError: x")
    written.add("host->cuda:0", 5020, 5030, inner, "transfer", size=10)
    found = summarise(written.analysis())
    step = found["step"]
    assert (step["count"], step["min"], step["max"]) == (20, 0.001, 0.020)
    assert step["p50"] == pytest.approx(0.0105)
    assert step["p95"] == pytest.approx(0.01905)
    assert step["total"] == pytest.approx(0.210)
    assert found["recursive"]["total"] == pytest.approx(0.1)
    assert found["recursive"]["self"] == pytest.approx(0.09)
    assert found["recursive"]["transfer"] == pytest.approx(0.01)
    assert found["recursive"]["errors"] == 1
    assert found["host->cuda:0"]["bytes"] == 10
    assert next(iter(found)) == "step"


def transfers(written: Written) -> None:
    call = written.add("matmul", 0, 100, kind="call")
    written.add("host->cuda:0", 10, 60, call, "transfer", size=3 * 2**20)


def launches(written: Written) -> None:
    for number in range(60):
        written.add("tiny", number, number + 0.5, device=(number, 0.01))


def compilations(written: Written) -> None:
    for number in range(5):
        call = written.add("fft", 10 * number, 10 * number + 9, kind="call")
        written.add("first call of jax:default@cpu", 10 * number + 1, 10 * number + 8, call, "compile")


def pauses(written: Written) -> None:
    written.add("a", 0, 1, device=(0, 10))
    written.add("b", 50, 51, device=(50, 10))


def fallbacks(written: Written) -> None:
    call = written.add("fft", 0, 9, kind="call")
    written.add("torch failed", 1, 1, call, "fallback", error="RuntimeError: gone", metadata={"failed": "torch:x@cpu"})


@pytest.mark.parametrize(
    ("write", "kind", "words", "about"),
    [
        (transfers, "transfers", "50% of the run went into 1 copies between host and device (3 MiB)", "matmul"),
        (launches, "launches", "60 launches", "tiny"),
        (compilations, "compilation", "compiled 5 times, 35 ms in all", "fft"),
        (pauses, "pauses", "cuda:0 had nothing to do for 67%", None),
        (fallbacks, "fallback", "fell back once because torch:x@cpu failed (RuntimeError: gone)", "fft"),
    ],
)
def test_advice_is_drawn_from_the_data(write: Callable[[Written], None], kind: str, words: str, about: str | None):
    """Each habit that costs time is named with its figures, and with the span it concerns."""
    written = Written()
    write(written)
    (remark,) = [remark for remark in written.advice() if remark["kind"] == kind]
    assert words in remark["text"]
    assert (about in remark["names"]) if about else remark["names"] == []


def test_nothing_to_advise_is_said_by_silence():
    """A plain run has no remark."""
    written = Written()
    written.add("work", 0, 10)
    assert written.advice() == []


def test_bottlenecks_are_ranked_by_self_time(time: Time):
    """The parent of slow work does not come before it."""
    profiler = Profiler()
    with profiler.profile("outer"), profiler.profile("inner"):
        time.sleep(0.1)
    first, second = profiler.get_bottlenecks(top_n=5)
    assert (first["name"], second["name"]) == ("inner", "outer")
    assert first["share"] + second["share"] == pytest.approx(1.0)
    assert len(profiler.get_bottlenecks(top_n=1)) == 1
    with pytest.raises(InvalidInputError, match="top_n=0"):
        profiler.get_bottlenecks(top_n=0)


def test_nothing_recorded_is_no_error(capsys: pytest.CaptureFixture[str]):
    """Every way to read an empty profile works."""
    profiler = Profiler()
    assert profiler.get_entries() == [] and profiler.get_summary() == {} and profiler.get_bottlenecks() == []
    profiler.print_summary()
    profiler.print_bottlenecks()
    assert "nothing recorded" in capsys.readouterr().out


@pytest.mark.parametrize("width", [80, 120])
def test_tables_show_names_and_figures(width: int):
    """A name with brackets stays as it is, and figures are not cut."""
    profiler = Profiler(capacity=5)
    for _ in range(7):
        with profiler.profile("load [bold]x[/bold]"):
            pass
    out = io.StringIO()
    console = Console(file=out, width=width)
    console.print(summary_table(profiler.document()), bottleneck_table(profiler.document(), 3))
    text = out.getvalue()
    assert "load [bold]x" in text
    assert "2 older spans were dropped" in text
    assert "…" not in text

"""Spans: nested, per thread and task, bounded, and nothing at all while profiling is off."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time

import pytest

from hpfracc.errors import InvalidInputError
from hpfracc.profiling import Profiler, get_profiler
from hpfracc.profiling.recorder import NULL_SPAN
from tests.helpers.forked import run_in_child


def test_spans_nest_and_tell_their_time():
    """A span's parent is the one around it, and its duration contains that of what is inside."""
    profiler = Profiler()
    with profiler.profile("outer", rows=3), profiler.profile("inner"):
        time.sleep(0.002)
    outer, inner = profiler.get_entries()
    assert (outer.name, inner.name) == ("outer", "inner")
    assert outer.parent == 0 and inner.parent == outer.id
    assert outer.metadata == {"rows": 3}
    assert outer.duration >= inner.duration >= 0.002
    assert outer.device_duration is None and outer.device is None


def test_off_is_one_shared_object():
    """While profiling is off every span is the same object, which does nothing and keeps nothing."""
    profiler = Profiler(enabled=False)
    span = profiler.profile("x", device="gpu", rows=1)
    assert span is NULL_SPAN is profiler.profile("y")
    with span as entered:
        assert entered.annotate(a=1) is span
        assert entered.synchronize("value") == "value"
    assert span(len) is len
    assert profiler.get_entries() == []


def test_an_exception_is_recorded_and_raised_on():
    """The error goes through unchanged, and the spans it went through say so."""
    profiler = Profiler()
    with pytest.raises(KeyError) as caught, profiler.profile("outer"), profiler.profile("inner"):
        raise KeyError("lost")
    assert caught.value.args == ("lost",)
    assert [span.error for span in profiler.get_entries()] == ["KeyError: 'lost'"] * 2
    with profiler.profile("after"):
        pass
    assert profiler.get_entries()[-1].parent == 0


def test_an_error_that_cannot_say_what_it_is():
    """Its name is kept; the failure of its ``__str__`` does not take its place."""

    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("mute")

    profiler = Profiler()
    with pytest.raises(MuteError), profiler.profile("x"):
        raise MuteError
    assert profiler.get_entries()[0].error == "MuteError"


def test_a_decorator_follows_the_switch():
    """A decorated function is a span only while profiling is on, whichever way it was decorated."""
    profiler = Profiler(enabled=False)

    @profiler.profile_function(operation="square", kind_of="test")
    def square(x: int) -> int:
        """Words."""
        return x * x

    @profiler.profile_function
    def cube(x: int) -> int:
        return x**3

    assert square(3) == 9 and square.__doc__ == "Words."
    assert profiler.get_entries() == []
    profiler.enable()
    assert (square(4), cube(2)) == (16, 8)
    profiler.disable()
    square(5)
    first, second = profiler.get_entries()
    assert (first.name, first.metadata) == ("square", {"kind_of": "test"})
    assert second.name.endswith("cube")
    profiler.enable()
    by_span = profiler.profile("by span")(lambda: 7)
    assert by_span() == 7
    assert profiler.get_entries()[-1].name == "by span"


def test_a_decorated_coroutine_is_timed_to_its_end():
    """The span covers what the coroutine awaits."""
    profiler = Profiler()

    @profiler.profile_function(operation="wait")
    async def wait() -> int:
        await asyncio.sleep(0.005)
        return 3

    assert asyncio.run(wait()) == 3
    assert profiler.get_entries()[0].duration >= 0.005


def test_generators_are_refused():
    """A generator's body runs in pieces, in other people's spans: decorating it is refused with what to do."""

    def numbers():
        yield 1

    with pytest.raises(InvalidInputError, match="put a span into its body"):
        Profiler().profile_function(numbers)


def test_a_span_is_entered_once():
    """Using one twice would overwrite what it recorded."""
    profiler = Profiler()
    span = profiler.profile("x")
    with span:
        pass
    with pytest.raises(InvalidInputError, match="already entered"):
        span.__enter__()


def test_the_ring_drops_the_oldest_and_counts_them():
    """Beyond the capacity the newest stay, and what went is counted exactly."""
    profiler = Profiler(capacity=10)
    for number in range(25):
        with profiler.profile(f"n{number}"):
            pass
    document = profiler.document()
    assert [span.name for span in document.analysis.spans] == [f"n{number}" for number in range(15, 25)]
    assert (document.dropped, document.open) == (15, 0)
    profiler.configure(capacity=100)
    with profiler.profile("open"):
        inside = profiler.document()
    assert (inside.dropped, inside.open, profiler.document().open) == (0, 1, 0)


def test_reset_leaves_open_spans_behind():
    """What was open at a reset is not kept, nor becomes a parent of what comes after."""
    profiler = Profiler()
    with profiler.profile("old"):
        profiler.reset()
        with profiler.profile("new"):
            pass
    assert [(span.name, span.parent) for span in profiler.get_entries()] == [("new", 0)]


def test_threads_and_tasks_at_once():
    """Two threads and several tasks at the same time: every span has the parent it was made in, none is lost."""
    profiler = Profiler()
    start = threading.Barrier(3)

    def work(name: str) -> None:
        start.wait()
        for number in range(200):
            with profiler.profile(name, number=number), profiler.profile(f"{name} inside"):
                pass

    async def task(name: str) -> None:
        for _ in range(20):
            with profiler.profile(name):
                await asyncio.sleep(0)
                with profiler.profile(f"{name} inside"):
                    await asyncio.sleep(0)

    async def together() -> None:
        start.wait()
        with profiler.profile("all tasks"):
            await asyncio.gather(task("one"), task("two"))

    threads = [threading.Thread(target=work, args=(name,), name=name) for name in ("left", "right")]
    for thread in threads:
        thread.start()
    asyncio.run(together())
    for thread in threads:
        thread.join()
    spans = {span.id: span for span in profiler.get_entries()}
    assert len(spans) == 2 * 200 * 2 + 2 * 20 * 2 + 1
    for span in spans.values():
        if span.name.endswith("inside"):
            assert spans[span.parent].name == span.name.removesuffix(" inside")
            assert spans[span.parent].lane == span.lane
        elif span.name in ("one", "two"):
            assert spans[span.parent].name == "all tasks"
        else:
            assert span.parent == 0
    lanes = profiler.document().lanes
    assert {lane["thread"] for lane in lanes} == {"left", "right", "MainThread"}
    assert sum(lane["task"] is not None for lane in lanes) == 3  # the main one and the two it began


def test_a_program_without_asyncio_does_not_import_it():
    """Profiling is on, and spans are recorded; importing asyncio would take longer than they do."""
    script = (
        "import sys\n"
        "from hpfracc.profiling import Profiler\n"
        "profiler = Profiler()\n"
        "with profiler.profile('work'):\n"
        "    pass\n"
        "assert [span.name for span in profiler.get_entries()] == ['work']\n"
        "assert 'asyncio' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


def test_a_forked_child_begins_with_nothing(tmp_path):
    """The child records its own spans alone, with no parent from before the fork; the parent's stay whole."""
    profiler = get_profiler()
    with profiler.profile("before"):
        pass

    def child() -> None:
        with profiler.profile("in child"):
            pass
        assert [(span.name, span.parent) for span in profiler.get_entries()] == [("in child", 0)]
        assert profiler.document().dropped == 0

    with profiler.profile("around"):
        run_in_child(child)
    assert [span.name for span in profiler.get_entries()] == ["before", "around"]


def test_the_shared_profiler_is_one():
    """``get_profiler`` hands out the same object and sets the switch."""
    profiler = get_profiler()
    assert profiler.enabled
    assert get_profiler(enabled=False) is profiler
    assert not profiler.enabled


def test_memory_where_it_is_asked_for():
    """Resident memory before and after; a peak only where the span set a new record; nothing unless asked."""
    profiler = Profiler(memory=True)
    with profiler.profile("allocate"):
        block = bytearray(64 * 2**20)
        block[::4096] = b"x" * len(block[::4096])
    with profiler.profile("idle"):
        pass
    first, second = profiler.get_entries()
    assert first.memory is not None and first.memory[0] == "resident"
    assert first.memory[2] - first.memory[1] >= 60 * 2**20
    assert second.memory is not None
    plain = Profiler()
    with plain.profile("x"):
        pass
    assert plain.get_entries()[0].memory is None
    with pytest.raises(InvalidInputError, match="memory='much'"):
        Profiler(memory="much")


def test_tracemalloc_is_read_while_it_traces():
    """Its count and its peak take the place of what is resident."""
    import tracemalloc

    profiler = Profiler(memory=True)
    tracemalloc.start()
    try:
        with profiler.profile("allocate"):
            data = bytearray(3 * 2**20)
            del data
    finally:
        tracemalloc.stop()
    memory = profiler.get_entries()[0].memory
    assert memory is not None
    assert memory[0] == "tracemalloc"
    assert memory[3] is not None and memory[3] >= 3 * 2**20

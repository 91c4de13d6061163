"""Cost of a span compared with other tools, and the false positives of the comparison of profiles.

Spans off and on, viztracer, PyTorch's record_function, cProfile and OpenTelemetry are measured in one run. Run with
``python benchmarks/profiler.py``; ``--device cuda`` adds spans with CUDA events, ``--comparisons 200`` compares a
workload 200 times with itself and with one that is 20 % slower. Tools that are not installed are skipped.
"""

from __future__ import annotations

import argparse
import contextlib
import cProfile
import time
from collections.abc import Callable, Iterator
from typing import Any

from _common import heading, print_table, quarter, write_json

from hpfracc.profiling import Profiler, compare_profiles
from hpfracc.profiling.analysis import calibrate

ROUNDS, SPANS = 120, 200
#: Repeats of either side in a comparison of a workload with itself; twice as many to find a slowdown.
REPEATS = 12
#: Maximum nanoseconds per span.
BARS = {"hpfracc, off": 500, "hpfracc, on": 2500, "hpfracc, decorator off": 500, "hpfracc, on, CUDA events": 12_000}

Loop = Callable[[int], None]


def spans_of(make: Callable[[], Any]) -> Loop:
    """A loop of empty ``with`` blocks."""

    def loop(count: int) -> None:
        for _ in range(count):
            with make():
                pass

    return loop


def nothing() -> None:
    """An empty function, for cProfile and viztracer."""


def calls(count: int) -> None:
    """A loop of empty calls."""
    for _ in range(count):
        nothing()


@contextlib.contextmanager
def switched(begin: Callable[[], Any], end: Callable[[], Any]) -> Iterator[None]:
    """Context manager that keeps a tool active."""
    begin()
    try:
        yield
    finally:
        end()


def contestants(device: str) -> dict[str, tuple[Loop, Callable[[], Any]]]:
    """Each tool with its loop and the context manager that activates it."""
    plain = contextlib.nullcontext
    off, on, memory = Profiler(enabled=False), Profiler(), Profiler(memory=True)
    decorated = off.profile_function(operation="x")(nothing)

    def decorated_calls(count: int) -> None:
        for _ in range(count):
            decorated()

    found: dict[str, tuple[Loop, Callable[[], Any]]] = {
        "an empty call": (calls, plain),
        "hpfracc, off": (spans_of(lambda: off.profile("x")), plain),
        "hpfracc, decorator off": (decorated_calls, plain),
        "hpfracc, on": (spans_of(lambda: on.profile("x")), plain),
        "hpfracc, on, metadata": (spans_of(lambda: on.profile("x", rows=3)), plain),
        "hpfracc, on, host memory": (spans_of(lambda: memory.profile("x")), plain),
    }
    profile = cProfile.Profile()
    found["cProfile"] = calls, lambda: switched(profile.enable, profile.disable)
    with contextlib.suppress(ImportError):
        import torch

        found["torch record_function, off"] = spans_of(lambda: torch.profiler.record_function("x")), plain
        found["torch record_function, on"] = (
            spans_of(lambda: torch.profiler.record_function("x")),
            lambda: torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]),
        )
        if device == "cuda":
            torch.zeros(1, device="cuda")
            events, counted = Profiler(), Profiler(memory="device")
            # Events are read with the profile; that cost is on a line of its own.
            found["hpfracc, on, CUDA events"] = (
                spans_of(lambda: events.profile("x", device="gpu")),
                lambda: switched(events.reset, events.get_summary),
            )
            found["... and device memory"] = (
                spans_of(lambda: counted.profile("x", device="gpu")),
                lambda: switched(counted.reset, counted.get_summary),
            )
    with contextlib.suppress(ImportError):
        from viztracer import VizTracer

        tracer = VizTracer(verbose=0, tracer_entries=100_000)
        found["viztracer, calls"] = calls, lambda: switched(tracer.start, tracer.stop)
        found["viztracer, log_event"] = (
            spans_of(lambda: tracer.log_event("x")),
            lambda: switched(tracer.start, tracer.stop),
        )
    with contextlib.suppress(ImportError):
        from opentelemetry.sdk.trace import TracerProvider

        telemetry = TracerProvider().get_tracer("bench")
        found["OpenTelemetry, no exporter"] = spans_of(lambda: telemetry.start_as_current_span("x")), plain
    return found


def measure(device: str) -> dict[str, float]:
    """Nanoseconds per span in alternating rounds, minus the empty loop."""
    racing = contestants(device)
    taken: dict[str, list[float]] = {name: [] for name in racing}
    empty: list[float] = []
    for _ in range(ROUNDS):
        begin = time.perf_counter_ns()
        for _ in range(SPANS):
            pass
        empty.append((time.perf_counter_ns() - begin) / SPANS)
        for name, (loop, around) in racing.items():
            slow = name == "torch record_function, on"  # starting its profiler takes milliseconds
            if slow and len(taken[name]) >= 8:
                continue
            with around():
                loop(20)
                begin = time.perf_counter_ns()
                loop(SPANS)
                taken[name].append((time.perf_counter_ns() - begin) / SPANS)
    return {name: quarter(values) - quarter(empty) for name, values in taken.items()}


def reading() -> float:
    """Nanoseconds per span for reading its CUDA events and computing the summary."""
    profiler, plain = Profiler(), Profiler()
    taken = []
    for one, device in ((profiler, "gpu"), (plain, None)) * 5:
        one.reset()
        for _ in range(SPANS):
            with one.profile("x", device=device) if device else one.profile("x"):
                pass
        begin = time.perf_counter_ns()
        one.get_summary()
        taken.append((time.perf_counter_ns() - begin) / SPANS)
    return min(taken[0::2]) - min(taken[1::2])


def workload(slower: float) -> None:
    """Some work in a few spans, one of which may be slower."""
    for size in (3000, 3000 * slower, 6000):
        total = 0
        for number in range(int(size)):
            total += number * number


def compare_once(repeats: int, slower: float) -> Any:
    """Compare two profiles recorded in turns."""
    sides = Profiler(), Profiler()
    for _ in range(repeats):
        for profiler, factor in zip(sides, (1.0, slower), strict=True):
            with profiler.profile("run"):
                for _ in range(7):
                    with profiler.profile("work"):
                        workload(1.0)
                    with profiler.profile("changed"):
                        for number in range(int(4000 * factor)):
                            number * number
    return compare_profiles(*(profiler.document().to_dict() for profiler in sides))


def judge(comparisons: int) -> dict[str, Any]:
    """How often noise was reported as a change, and how often a slowdown of 20 % was detected."""
    alarms = sum(
        any(row.verdict != "inconclusive" for row in compare_once(REPEATS, 1.0).rows) for _ in range(comparisons)
    )
    tries = max(10, comparisons // 10)
    hits = sum(
        ("run", "changed") in {row.path for row in compare_once(2 * REPEATS, 1.2).of("slower")} for _ in range(tries)
    )
    return {"comparisons": comparisons, "false_alarms": alarms, "slowdowns": tries, "found": hits}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--comparisons", type=int, default=200, help="number of self-comparisons; 0 for none")
    arguments = parser.parse_args()
    print(heading("Cost of a span, in nanoseconds"))
    found = measure(arguments.device)
    rows = [
        (
            name,
            f"{value:,.0f}",
            f"below {BARS[name]:,}: {'yes' if value < BARS[name] else 'NO'}" if name in BARS else "",
        )
        for name, value in sorted(found.items(), key=lambda item: item[1])
    ]
    print_table(("what", "ns a span", "bar"), rows)
    cost = calibrate()
    print(f"\ncalibrated by the library itself: {cost.total:,.0f} ns, {cost.inside:,.0f} of it in the span's own time")
    figures: dict[str, Any] = {"nanoseconds": found, "calibrated": cost.total}
    if arguments.device == "cuda":
        figures["reading"] = reading()
        print(f"reading a span's CUDA events, when the profile is read: {figures['reading']:,.0f} ns")
    if arguments.comparisons:
        verdicts = judge(arguments.comparisons)
        figures["comparison"] = verdicts
        print(
            f"{verdicts['comparisons']} self-comparisons of {REPEATS} repeats: {verdicts['false_alarms']} false alarms "
            f"(bar 2); 20 % slower, {2 * REPEATS} repeats: found in {verdicts['found']} of {verdicts['slowdowns']}"
        )
    write_json("profiler" if arguments.device == "cpu" else "profiler-cuda", figures)


if __name__ == "__main__":
    main()

"""Where the time went: host, copies, compilation, devices, idle time, and the profiler itself."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from hpfracc.profiling.analysis import Analysis, length, union
from hpfracc.profiling.recorder import Recorder

__all__ = ["Breakdown", "Overhead", "break_down", "calibrate"]

#: Kinds whose self time does not count as host time.
_APART = ("transfer", "compile")


@dataclass(frozen=True, slots=True)
class Overhead:
    """The cost of a span in nanoseconds, measured with empty ones: inside its own duration, and around it."""

    inside: float
    around: float

    @property
    def total(self) -> float:
        """Total overhead per span."""
        return self.inside + self.around


@cache
def calibrate(device: str | None = None, rounds: int = 25, spans: int = 40) -> Overhead:
    """The cost of a span, the 25th percentile over ``rounds`` of empty ones; measured once per process."""
    recorder = Recorder(capacity=spans)
    recorder.enable()
    inside, around = [], []
    for _ in range(rounds):
        recorder.reset()
        with recorder.span("calibration"):
            for _ in range(spans):
                with recorder.span("empty", "span", device):
                    pass
        recorder.session.settle()
        outer = recorder.session.spans[-1]
        kept = list(recorder.session.spans)[:-1]
        within = sum(span.end - span.start for span in kept)
        inside.append(within / len(kept))
        around.append((outer.end - outer.start - within) / spans)
    return Overhead(sorted(inside)[rounds // 4], sorted(around)[rounds // 4])


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Nanoseconds of a run.

    ``wall`` is the time from the first start to the last end, devices included. ``host``, ``transfer``, ``compile`` and
    ``overhead`` are sums of the spans' self times on all threads. ``idle`` is the time in which no span was open and no
    device worked. With one thread, and no device that works after the last span, the five add up to the wall time.
    """

    wall: int
    host: int
    transfer: int
    compile: int
    overhead: int
    idle: int
    moved_bytes: int
    device_busy: dict[str, int]
    span_overhead: Overhead

    def utilisation(self) -> dict[str, float]:
        """Fraction of the wall time in which each device was busy."""
        return {name: busy / self.wall if self.wall else 0.0 for name, busy in self.device_busy.items()}

    def to_dict(self) -> dict[str, Any]:
        """Convert to plain values."""
        utilisation = self.utilisation()
        return {
            "wall_ns": self.wall,
            "host_ns": self.host,
            "transfer_ns": self.transfer,
            "compile_ns": self.compile,
            "overhead_ns": self.overhead,
            "idle_ns": self.idle,
            "moved_bytes": self.moved_bytes,
            "devices": {
                name: {"busy_ns": busy, "idle_ns": self.wall - busy, "utilisation": utilisation[name]}
                for name, busy in self.device_busy.items()
            },
            "overhead_per_span_ns": round(self.span_overhead.total, 1),
        }


def break_down(analysis: Analysis) -> Breakdown:
    """The breakdown of a run."""
    spans = analysis.spans
    cost = calibrate()
    busy = analysis.busy()
    roots = [(span.start, span.end) for place, span in enumerate(spans) if analysis.parents[place] < 0]
    covered = union([*((span.start, span.end) for span in spans), *(each for found in busy.values() for each in found)])
    wall = covered[-1][1] - covered[0][0] if covered else 0
    sums = dict.fromkeys(("host", *_APART), 0)
    for place, span in enumerate(spans):
        sums[span.kind if span.kind in _APART else "host"] += analysis.own[place]
    # The cost around a nested span is part of the parent's self time; around a top-level span, of no span.
    nested = len(spans) - len(roots)
    overhead = min(sums["host"], round(len(spans) * cost.inside + nested * cost.around))
    return Breakdown(
        wall=wall,
        host=sums["host"] - overhead,
        transfer=sums["transfer"],
        compile=sums["compile"],
        overhead=overhead,
        idle=wall - length(covered),
        moved_bytes=sum(span.size or 0 for span in spans if span.kind == "transfer"),
        device_busy={name: length(found) for name, found in busy.items()},
        span_overhead=cost,
    )

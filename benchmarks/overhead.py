"""Overhead of the engine: a cached decision and a whole call at 16 points, and a warm derivative of samples.

Run with ``python benchmarks/overhead.py``. The derivative is ``hf.caputo(samples, t, 0.5)``, compared with the minimum
for any FFT method, the bare SciPy pair: rfft of the samples padded to a fast length of 2n, multiplication by the cached
transform, irfft, and truncation.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from _common import heading, print_table, quarter, ratio_in_rounds, show, write_json
from scipy import fft

import hpfracc as hf
from hpfracc._config import current_context
from hpfracc.engine.backends import registry

ROUNDS, CALLS = 400, 500
#: The most that a settled derivative may take, in times of the bare pair, by number of points.
BARS = {1_000: 1.5, 10_000: 1.15, 100_000: 1.05}
#: Before operators kept their plans for points (commit 3ae9514; benchmarks/results/house.txt): times of the bare pair,
#: and Python calls and files at 1,000 points.
BEFORE = {1_000: 4.74, 10_000: 2.05, 100_000: 0.90}
BEFORE_CALLS, BEFORE_FILES = 163, 22
MAX_CALLS, MAX_FILES = 40, 10


def settled_derivative() -> list[dict[str, Any]]:
    """``hf.caputo(samples, t, 0.5)`` beside the bare pair, in neighbouring turns."""
    rows = []
    for n, bar in BARS.items():
        t = np.linspace(0.0, 1.0, n)
        samples = np.sin(3.0 * t)
        size = fft.next_fast_len(2 * n - 1, real=True)
        kept = fft.rfft(np.ones(n), size)

        def bare(samples: Any = samples, size: int = size, kept: Any = kept, n: int = n) -> Any:
            return fft.irfft(fft.rfft(samples, size) * kept, size)[:n]

        def call(samples: Any = samples, t: Any = t) -> Any:
            return hf.caputo(samples, t, 0.5)

        for _ in range(3000 if n < 100_000 else 400):
            call()
        ours, theirs, ratio = ratio_in_rounds(call, bare, 4.0)
        calls, files = count_calls(call)
        rows.append({"n": n, "ours": ours, "bare": theirs, "ratio": ratio, "bar": bar, "calls": calls, "files": files})
    print("\na settled hf.caputo(samples, t, 0.5) beside the bare SciPy pair")
    print_table(
        (
            "points",
            "ours",
            "bare pair",
            "ratio",
            "bar",
            "before",
            "Python calls",
            "NumPy's",
            "files of hpfracc",
        ),
        [
            (
                f"{row['n']:,}",
                show(row["ours"]),
                show(row["bare"]),
                f"{row['ratio']:.2f}",
                f"{row['bar']:.2f}",
                f"{BEFORE[row['n']]:.2f}",
                row["calls"][0],
                row["calls"][1],
                row["files"],
            )
            for row in rows
        ],
    )
    print(f"calls: bar {MAX_CALLS}, before {BEFORE_CALLS}; files: bar {MAX_FILES}, before {BEFORE_FILES}")
    return rows


def count_calls(call: Callable[[], Any]) -> tuple[tuple[int, int], int]:
    """Python functions that a settled call passes, how many of them are NumPy's, and the files of hpfracc's.

    Now and then a call is timed and passes more: the shortest of several counts.
    """
    return min(_count_once(call) for _ in range(20))


def _count_once(call: Callable[[], Any]) -> tuple[tuple[int, int], int]:
    seen: list[str] = []

    def count(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            seen.append(frame.f_code.co_filename)

    sys.setprofile(count)
    try:
        call()
    finally:
        sys.setprofile(None)
    seen = seen[1:]  # without the function that was handed in
    package = str(Path(hf.__file__).parent)
    files = {name for name in seen if name.startswith(package)}
    return (len(seen), sum("site-packages" in name for name in seen)), len(files)


def main() -> None:
    """Measure in interleaved rounds and print nanoseconds and ratios."""
    print(heading("Overhead of the engine at n = 16 (causal convolution, float64)"))
    weights, signal = np.ones(16), np.arange(16.0)
    operation = hf.causal_convolution
    for _ in range(3000):
        operation(weights, signal)
    decision = hf.last_decision()
    kernel = registry.kernel("causal_convolution", decision.backend, decision.algorithm).run
    plans = operation._plans

    def decide() -> None:
        key = (
            weights.shape,
            weights.dtype,
            signal.shape,
            signal.dtype,
            True,
            current_context(),
        )
        plans.get(key)

    selector = hf.IntelligentBackendSelector()
    workload = hf.WorkloadCharacteristics("matmul", 10_000, (100, 100))
    large = np.ones(300_000)
    with hf.use_backend("numpy"):
        hf.fft(large, kind="rfft")
    guard = next(plan.guard for plan in hf.fft._plans.values())
    contestants = {
        "nothing (the loop itself)": lambda: None,
        "cached decision": decide,
        "memory guard of a large call": guard,
        "bare kernel": lambda: kernel(weights, signal),
        "whole call": lambda: operation(weights, signal),
        "numpy.convolve": lambda: np.convolve(weights, signal),
        "selector.select_backend": lambda: selector.select_backend(workload),
    }
    found: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(ROUNDS):
        for name, run in contestants.items():
            begin = time.perf_counter()
            for _ in range(CALLS):
                run()
            found[name].append((time.perf_counter() - begin) / CALLS)
    empty = quarter(found["nothing (the loop itself)"])
    rows = []
    figures = {}
    for name, values in found.items():
        values = sorted(value - empty for value in values)
        median, late = values[len(values) // 2], values[int(0.99 * len(values))]
        figures[name] = {"median_ns": median * 1e9, "p99_ns": late * 1e9}
        rows.append((name, f"{median * 1e9:,.0f}", f"{late * 1e9:,.0f}"))
    print_table(("what", "median ns", "p99 ns"), rows)
    call, bare = figures["whole call"]["median_ns"], figures["bare kernel"]["median_ns"]
    print(f"\nwhole call / bare kernel ({decision.arm}): {call / bare:.2f}, {call - bare:,.0f} ns more")
    print(f"memory guard: median {figures['memory guard of a large call']['median_ns']:,.0f} ns (bar 1,000)")
    print(f"cached decision: median {figures['cached decision']['median_ns']:,.0f} ns (bar 600), p99 (bar 2,000)")
    rows = settled_derivative()
    write_json("overhead", {"arm": decision.arm, "figures": figures, "settled_derivative": rows})


if __name__ == "__main__":
    main()

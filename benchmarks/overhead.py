"""Overhead of the engine at 16 points: a cached decision, and a whole call compared with the bare kernel.

Run with ``python benchmarks/overhead.py``.
"""

from __future__ import annotations

import time

import numpy as np
from _common import heading, print_table, quarter, write_json

import hpfracc as hf
from hpfracc._config import current_context
from hpfracc.engine.backends import registry

ROUNDS, CALLS = 400, 500


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
    write_json("overhead", {"arm": decision.arm, "figures": figures})


if __name__ == "__main__":
    main()

"""Causal convolution from 16 to 1e7 points: the engine's choice, and the ratio of its time to the best arm's.

Measures host arrays, arrays resident on the GPU if there is one, and the bare library call. An arm is called as a user
would call it with a fixed choice: through the same operation, with a fixed plan. The ratio is the median over pairs of
adjacent turns. The column "kernel" and ``benchmarks/overhead.py`` show what the operation adds to a bare kernel.
Run with ``python benchmarks/convolution.py [--largest 10000000] [--seconds 1.0]``.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from _common import heading, print_table, ratio_in_rounds, show, timed_in_rounds, write_json

import hpfracc as hf
from hpfracc.engine.backends import registry
from hpfracc.engine.execution.bind import BoundArm
from hpfracc.engine.execution.calibration import calibrate
from hpfracc.engine.execution.operation import Operation
from hpfracc.engine.execution.plan import make_request, plan_key
from hpfracc.engine.selection.decide import masked
from hpfracc.engine.selection.knowledge import knowledge_for

SIZES = (16, 64, 256, 1000, 4000, 10_000, 100_000, 1_000_000, 10_000_000)
#: Arms with this many times the minimum work are skipped: they would take minutes and cannot be the best.
HOPELESS = 100.0
#: Calls and seconds after which the engine's choice counts as settled: alternatives are tried again after 256 calls and
#: may take 1 % of the elapsed time. The maximum of seconds applies unless there were very few calls by then.
SETTLED, AT_LEAST, AT_MOST, FEWEST = 600, 1.0, 4.0, 150


def contestants(weights: Any, signal: Any, key: str) -> tuple[dict[str, Callable[[], Any]], dict[str, Any]]:
    """Every allowed arm that is not hopeless, warmed up: as a call with a fixed arm, and as a bare kernel."""
    operation = hf.causal_convolution
    request = make_request(operation.primitive, (weights, signal), {}, prepared=True)
    knowledge = knowledge_for(request.settings)
    allowed = [arm for arm, refused, _ in masked(request, knowledge.breaker) if refused is None]
    work = {arm: operation.primitive.work(request.call, arm.algorithm) for arm in allowed}
    least = min(work.values())
    fixed: dict[str, Callable[[], Any]] = {}
    kernels: dict[str, Any] = {}
    for arm in allowed:
        if work[arm] <= HOPELESS * least:
            bound = BoundArm(
                operation.primitive, request.call, arm, request.placement, (weights, signal), keyed=True, plain=True
            )
            kernels[arm.name] = lambda run=bound.run: run(weights, signal, weights_key=key)
            alone = Operation(operation.primitive)
            plan = alone._new_plan(plan_key((weights, signal), None, key, {}), (weights, signal), None, key, {})
            plan.adopt(bound, plan.decision, plan.option)
            plan.review_at = math.inf
            fixed[arm.name] = lambda call=alone: call(weights, signal, weights_key=key)
            fixed[arm.name]()
    return fixed, kernels


def measure(weights: Any, signal: Any, seconds: float, synchronize: Callable[[], None] | None) -> dict[str, Any]:
    """Let the engine's choice settle, then time it and every arm in turns."""
    key = f"benchmark-{signal.shape}-{type(signal).__name__}"
    arms, kernels = contestants(weights, signal, key)
    calls, begin, spent = 0, time.perf_counter(), 0.0
    while calls < FEWEST or (spent < AT_MOST and (calls < SETTLED or spent < AT_LEAST)):
        hf.causal_convolution(weights, signal, weights_key=key)
        if synchronize is not None:
            synchronize()
        calls += 1
        spent = time.perf_counter() - begin

    def auto() -> Any:
        return hf.causal_convolution(weights, signal, weights_key=key)

    times = timed_in_rounds({"auto": auto, **arms}, seconds, synchronize)
    auto()
    chosen = hf.last_decision()
    best = min(arms, key=lambda name: times[name])
    taken, least, ratio = ratio_in_rounds(auto, arms[best], seconds, synchronize)
    bare = timed_in_rounds({"best": arms[best], "kernel": kernels[best]}, seconds / 2, synchronize)
    return {
        "n": signal.shape[-1],
        "chosen": chosen.arm,
        "auto": taken,
        "best": best,
        "best_seconds": least,
        "ratio": ratio,
        "kernel_seconds": least * bare["kernel"] / bare["best"],
        "arms": {name: times[name] for name in arms},
    }


def bare_pair(weights: Any, signal: Any) -> Callable[[], Any]:
    """The minimal PyTorch code: two transforms, with the transform of the weights cached."""
    import torch

    n = signal.shape[-1]
    size = 2 * n
    kept = torch.fft.rfft(weights, n=size)
    return lambda: torch.fft.irfft(torch.fft.rfft(signal, n=size) * kept, n=size)[:n]


def report(title: str, rows: list[dict[str, Any]]) -> None:
    """Print one line per size."""
    print(f"\n{title}")
    print_table(
        ("points", "auto chose", "auto", "best arm", "best", "auto/best", "kernel", "worst arm tried"),
        [
            (
                f"{row['n']:,}",
                row["chosen"],
                show(row["auto"]),
                row["best"],
                show(row["best_seconds"]),
                f"{row['ratio']:.2f}",
                show(row["kernel_seconds"]),
                f"{max(row['arms'], key=row['arms'].get)} {show(max(row['arms'].values()))}",
            )
            for row in rows
        ],
    )


def main() -> None:
    """Print both tables and the targets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--largest", type=int, default=10_000_000)
    parser.add_argument("--seconds", type=float, default=1.0, help="time for each size")
    options = parser.parse_args()
    print(heading("Causal convolution, float64, transform of the weights kept"))
    found = calibrate(["causal_convolution"])
    print(f"# calibrated in {found.seconds:.1f} s")
    rng = np.random.default_rng(0)
    sizes = [n for n in SIZES if n <= options.largest]
    host = [measure(rng.standard_normal(n), rng.standard_normal(n), options.seconds, None) for n in sizes]
    report("host arrays (NumPy in, NumPy out)", host)
    data: dict[str, Any] = {"host": host}
    if registry.unavailable("torch") is None and any(d != "cpu" for d in registry.adapter("torch").devices()):
        import torch

        resident = []
        for n in sizes:
            weights = torch.randn(n, dtype=torch.float64, device="cuda")
            signal = torch.randn(n, dtype=torch.float64, device="cuda")
            row = measure(weights, signal, options.seconds, torch.cuda.synchronize)
            bare = bare_pair(weights, signal)
            again = {
                "auto": lambda w=weights, s=signal: hf.causal_convolution(
                    w, s, weights_key=f"benchmark-{s.shape}-Tensor"
                ),
                "bare": bare,
            }
            pair = timed_in_rounds(again, options.seconds, torch.cuda.synchronize)
            row["bare"] = pair["bare"]
            row["over_bare"] = pair["auto"] / pair["bare"]
            resident.append(row)
        report("arrays resident on the GPU (torch)", resident)
        print("\nover the bare rfft, multiply, irfft of PyTorch (transform of the weights kept in both)")
        print_table(
            ("points", "bare", "auto / bare"),
            [(f"{r['n']:,}", show(r["bare"]), f"{r['over_bare']:.2f}") for r in resident],
        )
        data["resident"] = resident
    worst = max(data["host"] + data.get("resident", []), key=lambda row: row["ratio"])
    print(f"\nworst auto / best arm: {worst['ratio']:.2f} at {worst['n']:,} points (bar 1.1)")
    write_json("convolution", data)


if __name__ == "__main__":
    main()

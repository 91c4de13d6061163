"""Memory: predictions and peaks, cost of the memory check, a process limited to less memory than its data, a GPU.

Run with ``python benchmarks/memory.py`` for the tables of this host; ``--showcase full`` convolves 4 GiB of samples
under a limit of 2 GiB; ``--device cuda`` runs the parts that need a GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from _common import heading, print_table, quarter, show, write_json
from _memory_predictions import SETS, predictions, status

MIB = 2**20
#: Name: limit of private memory in MiB (0: relative to the memory at the start), samples, weights.
SHOWCASES = {"small": (48, 2**23, 2**14), "full": (2048, 2**29, 2**20)}


# A process that is limited to less memory than its data.


def showcase(name: str, folder: Path, keep: bool = True) -> None:
    """Start the limited process, with its own files."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        command = [sys.executable, __file__, "--limited", name, "--folder", place]
        command += [] if keep else ["--no-json"]
        done = subprocess.run(command, env={**os.environ, "HPFRACC_WISDOM": "off"})
    if done.returncode:
        raise SystemExit(done.returncode)


def limited(name: str, folder: Path, keep: bool) -> None:
    """Convolve a mapped file; then compare sampled outputs with sums in extended precision."""
    import resource

    mib, points, taps = SHOWCASES[name]
    import hpfracc as hf
    from hpfracc import batch

    with hf.use_backend("numpy"):  # what it takes to begin: imports, and the threads of BLAS
        hf.causal_convolution(np.ones(4096), np.ones(4096))
    bound = mib * MIB + (status("VmData") if name == "small" else 0)
    resource.setrlimit(resource.RLIMIT_DATA, (bound, bound))
    random = np.random.default_rng(1)
    signal = np.memmap(folder / "signal", np.float64, "w+", shape=(points,))
    for begin in range(0, points, 2**20):
        end = min(points, begin + 2**20)
        signal[begin:end] = random.standard_normal(end - begin)
    signal.flush()
    del signal
    signal = np.memmap(folder / "signal", np.float64, "r")
    result = np.memmap(folder / "result", np.float64, "w+", shape=(points,))
    weights = 1.0 / np.sqrt(np.arange(1.0, taps + 1))
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # reset the high-water mark
    most = 0

    def watch(done: int, total: int) -> None:
        nonlocal most
        most = max(most, status("VmData"))

    begin_time = time.perf_counter()
    batch.causal_convolution(weights, signal, out=result, progress=watch)
    seconds = time.perf_counter() - begin_time
    resident = status("VmHWM")
    decision = hf.last_decision()
    error = worst_error(weights, signal, result, random)
    rows = [
        ("samples", f"{points * 8 / MIB:,.0f} MiB"),
        ("weights", f"{taps:,}"),
        ("limit (RLIMIT_DATA)", f"{bound / MIB:,.0f} MiB"),
        ("peak private memory, between blocks", f"{most / MIB:,.0f} MiB"),
        ("peak resident memory, files included", f"{resident / MIB:,.0f} MiB"),
        ("time", f"{seconds:.1f} s"),
        ("rate", f"{points / seconds / 1e6:.1f} million samples a second"),
        ("blocks", f"{decision.chunks} on {decision.arm}"),
        ("worst error of sampled outputs", f"{error:.1e} of the largest"),
    ]
    print_table(("what", "figure"), rows)
    print(f"under the limit: {'yes' if max(most, resident) <= bound else 'no'}")
    print(f"right to 1e-12: {'yes' if error <= 1e-12 else 'no'}")
    if keep:
        write_json(f"memory_{name}", dict(rows))


def worst_error(weights: np.ndarray, signal: np.ndarray, result: np.ndarray, random: Any) -> float:
    """Compare sampled outputs, including those at block edges, with sums in extended precision."""
    points, taps = signal.size, weights.size
    chosen = {0, 1, taps - 1, taps, points - 1, *random.integers(0, points, 12).tolist()}
    scale = float(np.max(np.abs(result[:: max(1, points // 4096)])))
    worst = 0.0
    for n in sorted(index for index in chosen if index < points):
        used = min(taps, n + 1)
        exact = np.longdouble(0)
        for begin in range(0, used, 2**16):
            end = min(used, begin + 2**16)
            samples = signal[n - end + 1 : n - begin + 1][::-1].astype(np.longdouble)
            exact += np.dot(weights[begin:end].astype(np.longdouble), samples)
        worst = max(worst, abs(float(exact) - float(result[n])) / scale)
    return worst


# The guard, the pool, batches.


def guard() -> None:
    """Cost of the memory check of a large call."""
    import hpfracc as hf

    x = np.ones(300_000)
    with hf.use_backend("numpy"):
        hf.elementwise("x + 1", x=x)
    operation = hf.engine.execution.operation.get_operation("elementwise")
    plan = next(plan for plan in operation._plans.values() if plan.guard is not None)
    rounds = []
    for _ in range(400):
        begin = time.perf_counter()
        for _ in range(500):
            plan.guard()
        rounds.append((time.perf_counter() - begin) / 500)
    median, late = sorted(rounds)[200], sorted(rounds)[396]
    print_table(("what", "median", "p99", "bar"), [("memory guard of a call", show(median), show(late), "1 us")])
    write_json("memory_guard", {"median": median, "p99": late})


def batches(device: str) -> None:
    """4096 convolutions of 1024 points: a Python loop, a batch, one call."""
    import hpfracc as hf
    from hpfracc import batch

    random = np.random.default_rng(0)
    w, x = random.standard_normal(1024), random.standard_normal((4096, 1024))
    backend = None if device == "cpu" else "torch"
    synchronize = (lambda: None) if device == "cpu" else __import__("torch").cuda.synchronize
    if device == "cpu":
        weights, rows = w, list(x)
        whole: Any = x
    else:
        import torch

        weights = torch.from_numpy(w).to(device)
        whole = torch.from_numpy(x).to(device)
        rows = list(whole)
    host_rows = list(x)
    contestants: dict[str, Callable[[], Any]] = {
        "Python loop": lambda: [hf.causal_convolution(weights, row, backend=backend) for row in rows],
        "batch.run": lambda: batch.run(hf.causal_convolution, [(weights, row) for row in rows], backend=backend),
        "batch.run of one array": lambda: batch.run(hf.causal_convolution, whole, common=(weights,), backend=backend),
        "one call": lambda: hf.causal_convolution(weights, whole, backend=backend),
    }
    if device != "cpu":
        contestants["batch.run of host arrays"] = lambda: batch.run(
            hf.causal_convolution, [(w, row) for row in host_rows], backend=backend
        )
    found = {}
    for name, run in contestants.items():
        times = []
        for _ in range(3 if name == "Python loop" else 7):
            synchronize()
            begin = time.perf_counter()
            run()
            synchronize()
            times.append(time.perf_counter() - begin)
        found[name] = quarter(times)
    one = found["one call"]
    print_table(("4096 x 1024", "time", "of one call"), [(n, show(t), f"{t / one:.2f}") for n, t in found.items()])
    write_json(f"memory_batches_{device.partition(':')[0]}", found)


# On a GPU.


def on_gpu(device: str) -> None:
    """A job ten times its budget, a thousand random jobs, and a GPU that another process has filled."""
    import hpfracc as hf
    from hpfracc import memory

    random = np.random.default_rng(0)
    weights = random.standard_normal(2**20)
    signal = np.empty((2560, 2**20))
    signal[:] = random.standard_normal(2**20)
    signal *= np.arange(1.0, 2561.0)[:, None]
    whole = hf.causal_convolution(weights, signal[0], backend="numpy")
    with memory.limit(device, "2GiB"):
        begin = time.perf_counter()
        result = hf.causal_convolution(weights, signal, backend="torch")
        seconds = time.perf_counter() - begin
    error = max(float(np.abs(result[row] / (row + 1) - whole).max() / np.abs(whole).max()) for row in (0, 1279, 2559))
    decision = hf.last_decision()
    print_table(
        ("20 GiB job, 2 GiB of the GPU", ""),
        [("time", f"{seconds:.1f} s"), ("pieces", decision.chunks), ("arm", decision.arm), ("error", f"{error:.1e}")],
    )
    del signal, result
    thousand(device)
    filled(device)


def thousand(device: str) -> None:
    """Jobs of random kinds and sizes up to three times the budget; counts the errors that reach the caller."""
    import hpfracc as hf
    from hpfracc import memory

    random = np.random.default_rng(2)
    budget, errors, cut = 96 * MIB, [], 0
    backends = [name for name in ("torch", "cupy") if hf.engine.backends.registry.unavailable(name) is None]
    with memory.limit(device, budget):
        begin = time.perf_counter()
        for number in range(1000):
            size = int(10 ** random.uniform(4, np.log10(3 * budget / 8)))
            rows = max(1, int(size // 2 ** random.integers(5, 16)))
            x = np.ones((rows, max(1, size // rows)))
            jobs: list[Callable[[], Any]] = [
                lambda x=x, b=number: hf.causal_convolution(x[0], x, backend=backends[b % len(backends)]),
                lambda x=x, b=number: hf.fft(x, backend=backends[b % len(backends)]),
                lambda x=x: hf.elementwise("x*x + sin(x)", x=x),
                lambda x=x, b=number: hf.reduction(x, kind="norm", axis=0, backend=backends[b % len(backends)]),
            ]
            try:
                jobs[number % 4]()
                cut += hf.last_decision().chunks > 1
            except Exception as error:
                errors.append(f"{number}: {x.shape}: {type(error).__name__}: {str(error)[:200]}")
        seconds = time.perf_counter() - begin
    print_table(("1,000 random jobs", ""), [("errors", len(errors)), ("cut", cut), ("time", f"{seconds:.0f} s")])
    print("\n".join(errors[:5]))


FILLER = """
import sys, time, torch
free, total = torch.cuda.mem_get_info()
kept = torch.empty(int(free - 0.05 * total), dtype=torch.uint8, device="cuda")
torch.cuda.synchronize()
print("filled", flush=True)
sys.stdin.read()
"""


def filled(device: str) -> None:
    """Run a call while another process holds 95 % of the GPU, and show the decision."""
    import hpfracc as hf

    rows, n = 64, 2**22
    x = np.ones((rows, n))
    filler = subprocess.Popen([sys.executable, "-c", FILLER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert filler.stdout is not None
        assert filler.stdout.readline().strip() == "filled"
        hf.engine.memory.budget.get_budget().invalidate()
        begin = time.perf_counter()
        result = hf.causal_convolution(np.ones(n), x)
        seconds = time.perf_counter() - begin
        decision = hf.last_decision()
        refused = [row.refused for row in decision.candidates if row.refused and device in row.refused]
        right = bool(np.allclose(result[-1, :: n // 64], np.arange(1.0, n + 1)[:: n // 64], rtol=1e-9))
        rows = [("right", right), ("arm", decision.arm), ("pieces", decision.chunks), ("time", f"{seconds:.1f} s")]
        print_table(("GPU 95 % full, a job of 25 GiB", ""), [*rows, ("why", (refused or [decision.reason])[0][:90])])
    finally:
        filler.communicate("")


def main() -> None:
    """Run the requested parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--showcase", choices=SHOWCASES)
    parser.add_argument("--limited", choices=SHOWCASES, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--bytes", type=float, default=1e8, help="bytes of the operands, for the predictions")
    parser.add_argument("--predictions", choices=SETS, help="only this table")
    parser.add_argument("--only", default="", help="rows of the predictions whose kernel and call contain this text")
    parser.add_argument("--sample", type=int, default=0, metavar="N", help="only N rows of the predictions")
    parser.add_argument("--no-json", action="store_true", help="do not write the figures of a showcase")
    options = parser.parse_args()
    if options.limited:
        return limited(options.limited, options.folder, not options.no_json)
    if options.showcase:
        print(heading("A process limited to less memory than its data"), flush=True)
        return showcase(options.showcase, options.folder, not options.no_json)
    print(heading("Memory: predictions, guard, batches"), flush=True)
    device = "cuda:0" if options.device == "cuda" else options.device
    if options.sample:
        return predictions(device, int(options.bytes), sample=options.sample)
    if options.predictions:
        return predictions(device, int(options.bytes), options.predictions, options.only)
    guard()
    print()
    for which in SETS:
        predictions(device, int(options.bytes), which)
        print()
    batches(device)
    if device != "cpu":
        print()
        on_gpu(device)
    else:
        print(flush=True)
        showcase("small", options.folder)
    return None


if __name__ == "__main__":
    main()

"""Stochastic equations: throughput of each library, and the memory of many paths with a functional.

Run with ``python benchmarks/sde_equations.py [--paths 20000] [--steps 256] [--many 10000000] [--device cuda]``. A row
is one equation and library; the time is the best of up to three calls after the first. Each library is measured in a
process of its own, which is ended after ``--limit`` seconds; rows are printed as they come. ``--many`` simulates that
many paths with ``keep="moments"``, and prints the peak of resident memory beside that of ten times fewer; 0 leaves it
out. ``--quick`` has few steps, no memory, and ends within 25 seconds.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _common import heading, write_json

import hpfracc as hf
from hpfracc import noise

#: The most telling first: a process that runs out of time has measured those.
EQUATIONS: dict[str, dict[str, Any]] = {
    "second_order, fBm 0.3": {"noise": noise.FractionalBrownian(0.3), "method": "second_order"},
    "euler, Caputo 0.7": {"alpha": 0.7, "interpretation": "ito"},
    "euler, additive fBm 0.3": {"noise": noise.FractionalBrownian(0.3), "diffusion": 0.5},
    "euler, Caputo 0.7, additive fBm 0.7": {"alpha": 0.7, "noise": noise.FractionalBrownian(0.7), "diffusion": 0.5},
    "second_order, Ito": {"interpretation": "ito"},
    "implicit_euler, Ito": {"interpretation": "ito", "method": "implicit_euler"},
    "doss_sussmann, fBm 0.2": {"noise": noise.FractionalBrownian(0.2)},
}
WIDTHS = {"library": 8, "equation": 37, "seconds": 10, "path steps a second": 20}
MEMORY_WIDTHS = {"paths": 12, "peak MiB": 10, "seconds": 10, "mean": 12, "standard error": 15}
#: Most seconds that the calls after the first take for one row.
ROW_SECONDS = 4.0


def seconds_of(call: Callable[[], Any], wait: Callable[[], None]) -> float:
    """The best of up to three calls after the first."""
    call()
    wait()
    best, end = float("inf"), time.perf_counter() + ROW_SECONDS
    for _ in range(3):
        begun = time.perf_counter()
        call()
        wait()
        now = time.perf_counter()
        best = min(best, now - begun)
        if now > end:
            break
    return best


def start_of(library: str, device: str) -> tuple[Any, Callable[[], None]]:
    """An initial value, and how to wait for the device."""
    if library == "torch":
        import torch

        wait = torch.cuda.synchronize if device == "cuda" else lambda: None
        return torch.ones(1, dtype=torch.float64, device=device), wait
    if library == "jax":
        import jax

        jax.config.update("jax_enable_x64", True)
        return jax.numpy.ones(1), lambda: None
    return [1.0], lambda: None


def drift(t: Any, y: Any) -> Any:
    return -y


def diffusion(t: Any, y: Any) -> Any:
    return 0.5 * y


def throughput(library: str, paths: int, steps: int, device: str) -> None:
    """Print path steps a second of one library, a row of JSON for each equation."""
    y0, wait = start_of(library, device)
    for name, given in EQUATIONS.items():
        options: dict[str, Any] = {"step": 1 / steps, "paths": paths, "rng": 1, "save": "last", **given}
        strength = options.pop("diffusion", diffusion)

        def call(strength: Any = strength, options: Any = options) -> Any:
            found = hf.solve_fsde(drift, strength, (0, 1), y0, **options)
            return float(found.mean()[0])

        seconds = seconds_of(call, wait)
        row = {"library": library, "equation": name, "seconds": seconds}
        print(json.dumps({**row, "path steps a second": paths * steps / seconds}), flush=True)


def peak_of(paths: int) -> None:
    """Simulate, and print the peak of resident memory in MiB, and the seconds."""
    begun = time.perf_counter()
    # By one backend, so that no library is loaded on the way, whose own memory would count.
    with hf.use_backend("numba" if importlib.util.find_spec("numba") else "numpy"):
        found = hf.solve_fsde(
            drift, 0.5, (0, 1), 1.0, step=0.1, paths=paths, rng=1, save=lambda t, y: y[:, 0].max(-1), keep="moments"
        )
    # Of this program alone: ru_maxrss would begin with that of the process it was started from.
    status = Path("/proc/self/status").read_text()
    row = {
        "paths": paths,
        "peak MiB": int(status.partition("VmHWM:")[2].split()[0]) / 1024,
        "seconds": time.perf_counter() - begun,
        "mean": float(found.mean()),
        "standard error": float(found.standard_error),
    }
    print(json.dumps(row), flush=True)


def run_part(arguments: list[str], limit: float, widths: dict[str, int]) -> list[dict[str, Any]]:
    """The rows that a process of its own prints within some seconds; each is shown as it comes."""
    command = [sys.executable, __file__, *arguments]
    rows = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        timer = threading.Timer(limit, child.kill)
        timer.start()
        for line in child.stdout:
            if line.startswith("{"):
                rows.append(json.loads(line))
                shown = [f"{value:.4g}" if isinstance(value, float) else str(value) for value in rows[-1].values()]
                print(
                    "".join(f"{text:>{width}}" for text, width in zip(shown, widths.values(), strict=True)), flush=True
                )
        code = child.wait()
        late = not timer.is_alive()
        timer.cancel()
        if late:
            print(f"# {' '.join(arguments[:2])}: ended after {limit:g} s; the rest was not measured", flush=True)
        elif code:
            assert child.stderr is not None
            print(f"# {' '.join(arguments[:2])}: failed, {child.stderr.read().strip().splitlines()[-1:]}", flush=True)
    return rows


def header(widths: dict[str, int]) -> None:
    """Print the names of the columns."""
    print("".join(f"{name:>{width}}" for name, width in widths.items()), flush=True)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--paths", type=int, default=20_000)
    parser.add_argument("--steps", type=int, default=256)
    parser.add_argument("--many", type=int, default=10_000_000)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument(
        "--limit", type=float, default=60.0, help="seconds for each library, and for each row of memory"
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--peak", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--library", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.peak:
        peak_of(given.peak)
        return
    if given.quick:
        given.steps, given.many, given.limit = min(given.steps, 64), 0, 7.0 if given.device == "cpu" else 11.0
        given.paths = min(given.paths, 4_000) if given.device == "cpu" else given.paths
    if given.library:
        throughput(given.library, given.paths, given.steps, given.device)
        return
    print(heading("stochastic equations"))
    print(f"# {given.paths:,} paths of {given.steps:,} steps, {given.device}", flush=True)
    header(WIDTHS)
    rows = []
    shape = ["--paths", str(given.paths), "--steps", str(given.steps), "--device", given.device]
    for library in ("numpy", "torch", "jax") if given.device == "cpu" else ("torch", "jax"):
        rows += run_part(["--library", library, *shape], given.limit, WIDTHS)
    held = []
    if given.many:
        header(MEMORY_WIDTHS)
        for paths in (given.many // 10, given.many):
            held += run_part(["--peak", str(paths)], given.limit, MEMORY_WIDTHS)
    if not given.quick:
        name = "sde_equations" if given.device == "cpu" else "sde_equations-gpu"
        write_json(name, {"paths": given.paths, "steps": given.steps, "throughput": rows, "memory": held})


if __name__ == "__main__":
    main()

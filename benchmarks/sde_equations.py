"""Stochastic equations: throughput of each library, and the memory of many paths with a functional.

Run with ``python benchmarks/sde_equations.py [--paths 20000] [--steps 256] [--many 10000000] [--device cuda]``. A row
is one equation and library; the time is the best of three calls after the first. ``--many`` simulates that many paths
with ``keep="moments"`` in a process of its own, and prints the peak of its resident memory beside that of a hundred
times fewer.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _common import heading, print_table, write_json

import hpfracc as hf
from hpfracc import noise

EQUATIONS: dict[str, dict[str, Any]] = {
    "euler, additive fBm 0.3": {"noise": noise.FractionalBrownian(0.3), "diffusion": 0.5},
    "second_order, fBm 0.3": {"noise": noise.FractionalBrownian(0.3)},
    "second_order, Ito": {"interpretation": "ito"},
    "doss_sussmann, fBm 0.2": {"noise": noise.FractionalBrownian(0.2)},
    "implicit_euler, Ito": {"interpretation": "ito", "method": "implicit_euler"},
    "euler, Caputo 0.7": {"alpha": 0.7, "interpretation": "ito"},
}


def seconds_of(call: Callable[[], Any], wait: Callable[[], None]) -> float:
    """The best of three calls after the first."""
    call()
    wait()
    best = float("inf")
    for _ in range(3):
        begun = time.perf_counter()
        call()
        wait()
        best = min(best, time.perf_counter() - begun)
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


def throughput(paths: int, steps: int, device: str) -> list[dict[str, Any]]:
    """Path steps a second."""
    rows = []
    for library in ("numpy", "torch", "jax") if device == "cpu" else ("torch", "jax"):
        y0, wait = start_of(library, device)
        for name, given in EQUATIONS.items():
            options: dict[str, Any] = {"step": 1 / steps, "paths": paths, "rng": 1, "save": "last", **given}
            strength = options.pop("diffusion", diffusion)

            def call(y0: Any = y0, strength: Any = strength, options: Any = options) -> Any:
                found = hf.solve_fsde(drift, strength, (0, 1), y0, **options)
                return float(found.mean()[0])

            seconds = seconds_of(call, wait)
            rate = paths * steps / seconds
            rows.append({"library": library, "equation": name, "seconds": seconds, "path steps a second": rate})
    return rows


def peak_of(paths: int) -> None:
    """Simulate, and print the peak of resident memory in MiB, and the seconds."""
    begun = time.perf_counter()
    found = hf.solve_fsde(
        drift, 0.5, (0, 1), 1.0, step=0.1, paths=paths, rng=1, save=lambda t, y: y[:, 0].max(-1), keep="moments"
    )
    # Of this program alone: ru_maxrss would begin with that of the process it was started from.
    status = Path("/proc/self/status").read_text()
    peak = int(status.partition("VmHWM:")[2].split()[0]) / 1024
    print(f"{peak:.1f} {time.perf_counter() - begun:.2f} {float(found.mean()):.6f} {float(found.standard_error):.2e}")


def memory(many: int) -> list[dict[str, Any]]:
    """Peaks of two processes."""
    rows = []
    for paths in (many // 100, many):
        command = [sys.executable, __file__, "--peak", str(paths)]
        peak, seconds, mean, error = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        rows.append(
            {"paths": paths, "peak MiB": float(peak), "seconds": float(seconds), "mean": mean, "standard error": error}
        )
    return rows


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--paths", type=int, default=20_000)
    parser.add_argument("--steps", type=int, default=256)
    parser.add_argument("--many", type=int, default=10_000_000)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--peak", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.peak:
        peak_of(given.peak)
        return
    print(heading("stochastic equations"))
    rows = throughput(given.paths, given.steps, given.device)
    show(rows)
    held = memory(given.many) if given.many else []
    show(held)
    name = "sde_equations" if given.device == "cpu" else "sde_equations-gpu"
    write_json(name, {"paths": given.paths, "steps": given.steps, "throughput": rows, "memory": held})


def show(rows: list[dict[str, Any]]) -> None:
    """As a table."""
    if rows:
        shown = [[f"{value:.4g}" if isinstance(value, float) else str(value) for value in row.values()] for row in rows]
        print_table(tuple(rows[0]), shown)


if __name__ == "__main__":
    main()

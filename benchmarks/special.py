"""Mittag-Leffler function: points per second on one core (or on a GPU), and errors against a table by mpmath.

Run with ``python benchmarks/special.py [--points 200000] [--device cuda]``. The targets are 1e6 real points per second
on one core, and a relative error of 1e-13 max(1, kappa/100), kappa = abs(z E'(z)/E(z)), at every point of the table.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import time
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from _common import heading, print_table, write_json

from hpfracc.engine.backends import registry

TABLE = Path(__file__).parent.parent / "tests" / "special" / "data" / "mittag_leffler.json"
#: Parameters, and the interval (for complex points the annulus) of z.
SETTINGS = [
    (0.3, 1.0, -100.0, 2.0),
    (0.5, 1.0, -100.0, 5.0),
    (0.8, 1.0, -10.0, 5.0),
    (0.9, 0.9, -1e4, 5.0),
    (0.99, 1.0, -50.0, 5.0),
    (1.5, 1.0, -100.0, 5.0),
    (1.9, 2.0, -1e3, 5.0),
]
BAR = 1e6


def kernel(backend: str, device: str) -> tuple[Callable[..., Any], Callable[[np.ndarray], Any], Callable[[], None]]:
    """The kernel, a function that moves points to its device, and a function that waits for it."""
    run = registry.kernel("mittag_leffler", backend, "contour").run
    adapter = registry.adapter(backend)
    return run, lambda array: adapter.from_host(array, device), lambda: adapter.synchronize(device)


@contextlib.contextmanager
def one_core(backends: list[str]) -> Iterator[None]:
    """Limit PyTorch to one thread, because rates are per core."""
    if "torch" not in backends:
        yield
        return
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def rate(backend: str, device: str, z: np.ndarray, alpha: float, beta: float) -> float:
    """Points per second; on the host of CPU time, which a busy machine affects little."""
    run, place, wait = kernel(backend, device)
    placed = place(z)
    clock = time.thread_time if device == "cpu" else time.perf_counter
    best = math.inf
    for _ in range(4):
        begin = clock()
        run(placed, alpha=alpha, beta=beta)
        wait()
        best = min(best, clock() - begin)
    return z.size / best


def worst(backend: str, device: str, as_complex: bool) -> dict[str, Any]:
    """The largest error relative to its target, the median error, and the location of the largest."""
    run, place, _ = kernel(backend, device)
    adapter = registry.adapter(backend)
    errors, ratios, places = [], [], []
    for (alpha, beta), group in groupby(json.loads(TABLE.read_text(encoding="utf-8")), key=lambda row: tuple(row[:2])):
        rows = [row for row in group if as_complex or row[3] == 0]
        if not rows:
            continue
        z = np.array([complex(row[2], row[3]) for row in rows])
        right = np.array([complex(float(row[4]), float(row[5])) for row in rows])
        value = adapter.to_host(run(place(z if as_complex else z.real.copy()), alpha=alpha, beta=beta))
        error = np.abs(value - right) / np.abs(right)
        errors += error.tolist()
        ratios += (error / (1e-13 * np.maximum(1, np.array([row[6] for row in rows]) / 100))).tolist()
        places += [f"E_{{{alpha},{beta}}}({point:.6g})" for point in (z if as_complex else z.real)]
    at = int(np.argmax(ratios))
    return {"points": len(errors), "median": float(np.median(errors)), "ratio": ratios[at], "where": places[at]}


def main() -> None:
    """Print both tables and the targets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=200_000)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    options = parser.parse_args()
    names = ("numpy", "numba", "torch") if options.device == "cpu" else ("torch", "cupy")
    backends = [name for name in names if registry.unavailable(name) is None]
    device = "cpu" if options.device == "cpu" else "cuda:0"
    where = "one core" if device == "cpu" else "one GPU"
    points = options.points if device == "cpu" else 10 * options.points
    print(heading(f"Mittag-Leffler function, double precision, {where}"))
    rng = np.random.default_rng(0)
    speeds: list[dict[str, Any]] = []
    with one_core(backends):
        for alpha, beta, low, high in SETTINGS:
            real = rng.uniform(low, high, points)
            ring = np.abs(real[: points // 4]) * np.exp(1j * rng.uniform(-np.pi, np.pi, points // 4))
            row: dict[str, Any] = {"alpha": alpha, "beta": beta, "low": low, "high": high}
            for backend in backends:
                row[f"{backend} real"] = rate(backend, device, real, alpha, beta)
                row[f"{backend} complex"] = rate(backend, device, ring, alpha, beta)
            speeds.append(row)
    print(f"\nmillions of points a second on {where}, {points:,} real ones and {points // 4:,} complex ones")
    print_table(
        ("alpha", "beta", "z from", "to", *(f"{name} {kind}" for name in backends for kind in ("real", "complex"))),
        [
            (
                row["alpha"],
                row["beta"],
                f"{row['low']:g}",
                f"{row['high']:g}",
                *(f"{row[f'{name} {kind}'] / 1e6:.2f}" for name in backends for kind in ("real", "complex")),
            )
            for row in speeds
        ],
    )
    accuracy = {
        f"{name}, {kind} z": worst(name, device, kind == "complex") for name in backends for kind in ("real", "complex")
    }
    print("\nagainst mpmath")
    print_table(
        ("kernel", "points", "median error", "largest error / bar", "at"),
        [
            (name, f"{found['points']:,}", f"{found['median']:.1e}", f"{found['ratio']:.3f}", found["where"])
            for name, found in accuracy.items()
        ],
    )
    fastest = {index: max(row[f"{name} real"] for name in backends) for index, row in enumerate(speeds)}
    slowest = min(fastest, key=lambda index: fastest[index])
    print(
        f"\nslowest of the fastest kernel: {fastest[slowest] / 1e6:.2f} million real points a second at "
        f"alpha={speeds[slowest]['alpha']} (bar {BAR / 1e6:g}); largest error / bar: "
        f"{max(found['ratio'] for found in accuracy.values()):.3f} (bar 1)"
    )
    write_json("special" if device == "cpu" else "special-cuda", {"speed": speeds, "accuracy": accuracy})


if __name__ == "__main__":
    main()

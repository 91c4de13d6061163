"""Non-uniform grids: time and error of the direct sum and of the fast method, and how time scales with points.

The half-derivative of sqrt(t) on graded grids, on which every point has the order of smooth samples, from 1e3 to 1e6
points; then a stream of the same operator, in chunks. Slopes are those of ``log(time)`` over ``log(points)`` from 1e4
points on: 2 for the direct sum, slightly above 1 for the fast method, whose number of terms grows logarithmically.
Run with ``python benchmarks/nonuniform.py [--largest 1000000] [--direct 20000] [--backend numba] [--device cuda]``.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from _common import heading, print_table, show, write_json

import hpfracc as hf

SIZES = (1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000)
ALPHA, GRADING = 0.5, 2.0


def best_time(run: Callable[[], Any], synchronize: Callable[[], None], rounds: int) -> tuple[float, Any]:
    """The shortest time of some calls after a warm-up call, and the result."""
    run()
    found, value = math.inf, None
    for _ in range(rounds):
        synchronize()
        begin = time.perf_counter()
        value = run()
        synchronize()
        found = min(found, time.perf_counter() - begin)
    return found, value


def to_numpy(value: Any) -> np.ndarray:
    return value.detach().cpu().numpy() if hasattr(value, "detach") else np.asarray(value)


def slope(rows: list[dict[str, Any]], method: str) -> float:
    """Exponent of the time as a function of the number of points, from 1e4 on."""
    long = [(row["n"], row["seconds"]) for row in rows if row["method"] == method and row["n"] >= 10_000]
    if len(long) < 2:
        return math.nan
    return float(np.polyfit(np.log([n for n, _ in long]), np.log([seconds for _, seconds in long]), 1)[0])


def main() -> None:
    """Measure, print the tables and write their JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", type=int, default=1_000_000)
    parser.add_argument("--direct", type=int, default=20_000, help="maximum points for the direct sum")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--backend", default=None, help="use one backend for all sizes, for a meaningful slope")
    parser.add_argument("--device", default="cpu", help="cpu for NumPy arrays, cuda for tensors on the GPU")
    arguments = parser.parse_args()
    place, synchronize = (lambda array: array), (lambda: None)
    if arguments.device != "cpu":
        import torch

        place = lambda array: torch.as_tensor(array, device=arguments.device)  # noqa: E731
        synchronize = torch.cuda.synchronize
    print(heading(f"Half-derivative of sqrt(t) on graded grids, r = {GRADING:g}, device {arguments.device}"))
    rows: list[dict[str, Any]] = []
    for n in (size for size in SIZES if size <= arguments.largest):
        t = hf.graded_grid(1.0, n - 1, GRADING)
        f = place(np.sqrt(t))
        for method in ("l1", "fast"):
            if method == "l1" and n > arguments.direct:
                continue
            run = partial(hf.caputo, f, t, ALPHA, method=method, backend=arguments.backend)
            seconds, value = best_time(run, synchronize, arguments.rounds)
            error = float(np.abs(to_numpy(value)[n // 2 :] - math.gamma(1.5)).max())
            rows.append({"n": n, "method": method, "seconds": seconds, "error": error, "per_point": seconds / n})
    print_table(
        ("points", "method", "time", "a point", "error"),
        [
            (f"{row['n']:,}", row["method"], show(row["seconds"]), show(row["per_point"]), f"{row['error']:.2e}")
            for row in rows
        ],
    )
    slopes = {method: slope(rows, method) for method in ("l1", "fast")}
    print("slopes from 1e4 points on: " + ", ".join(f"{method} {value:.2f}" for method, value in slopes.items()))
    streams = stream_rows(place, synchronize, arguments.largest)
    print_table(
        ("streamed points", "chunk", "time", "a point", "distance from the whole"),
        [
            (
                f"{row['n']:,}",
                f"{row['chunk']:,}",
                show(row["seconds"]),
                show(row["per_point"]),
                f"{row['distance']:.1e}",
            )
            for row in streams
        ],
    )
    name = "nonuniform" if arguments.device == "cpu" else "nonuniform-cuda"
    known = {method: value if math.isfinite(value) else None for method, value in slopes.items()}
    write_json(name, {"rows": rows, "slopes": known, "streams": streams})


def stream_rows(place: Callable[[Any], Any], synchronize: Callable[[], None], largest: int) -> list[dict[str, Any]]:
    """A stream of the Caputo derivative, in chunks of several sizes."""
    step = 1e-3
    x = np.sin(step * np.arange(largest)) + np.cos(37.0 * step * np.arange(largest))
    f = place(x)
    whole = to_numpy(hf.caputo(f, step=step, alpha=ALPHA))
    rows = []
    for chunk in (1000, 30_000, largest):
        stream = hf.Caputo(ALPHA).stream(step)
        stream.push(f[:chunk])
        stream.reset()
        synchronize()
        begin = time.perf_counter()
        parts = [stream.push(f[first : first + chunk]) for first in range(0, largest, chunk)]
        synchronize()
        seconds = time.perf_counter() - begin
        distance = np.abs(np.concatenate([to_numpy(part) for part in parts]) - whole).max() / np.abs(whole).max()
        rows.append(
            {"n": largest, "chunk": chunk, "seconds": seconds, "per_point": seconds / largest, "distance": distance}
        )
    return rows


if __name__ == "__main__":
    main()

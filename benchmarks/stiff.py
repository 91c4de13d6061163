"""Stiff problems with fixed and adaptive steps, compared with a plain Newton iteration without safeguards.

The reference is the implicit product trapezoid with an undamped Newton iteration, a new Jacobian by differences for
each iterate, and up to 50 iterates. Counts do not depend on the machine; seconds do.

    python benchmarks/stiff.py [--write]
"""

from __future__ import annotations

import argparse
import datetime
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import gamma

import hpfracc as hf

UNKNOWNS = 200


def robertson(t: float, y: Any) -> Any:
    fast, slow = 3e7 * y[1] ** 2, 1e4 * y[1] * y[2]
    return np.array([-0.04 * y[0] + slow, 0.04 * y[0] - slow - fast, fast])


def van_der_pol(t: float, y: Any) -> Any:
    return np.array([y[1], 1000.0 * (1.0 - y[0] ** 2) * y[1] - y[0]])


def oregonator(t: float, y: Any) -> Any:
    x, z, w = y
    return np.array([77.27 * (z + x * (1.0 - 8.375e-6 * x - z)), (w - (1.0 + x) * z) / 77.27, 0.161 * (x - w)])


def subdiffusion(t: float, y: Any) -> Any:
    padded = np.pad(y, 1)
    return (UNKNOWNS + 1) ** 2 * (padded[2:] - 2.0 * y + padded[:-2])


PROBLEMS: dict[str, tuple[Any, float, list[float], float, tuple[float, ...], dict[str, Any]]] = {
    "Robertson": (robertson, 1.0, [1.0, 0.0, 0.0], 0.9, (0.05, 0.01), {}),
    "van der Pol": (van_der_pol, 800.0, [2.0, 0.0], 0.95, (4.0, 1.0), {}),
    "Oregonator": (oregonator, 40.0, [1.0, 2.0, 3.0], 0.95, (1.0, 0.1), {}),
    "subdiffusion": (
        subdiffusion,
        1.0,
        np.sin(np.pi * np.arange(1, UNKNOWNS + 1) / (UNKNOWNS + 1)).tolist(),
        0.5,
        (0.01,),
        {"jac_sparsity": (1, 1)},
    ),
}
METHODS = ("implicit_rectangle", "implicit_trapezoid", "bdf2", "l1", "auto")


def full_newton(fun: Any, end: float, y0: list[float], alpha: float, steps: int) -> dict[str, Any]:
    """The implicit product trapezoid with a plain Newton iteration."""
    h, counts = end / steps, {"nfev": 0, "njev": 0}

    def f(t: float, y: Any) -> Any:
        counts["nfev"] += 1
        return np.asarray(fun(t, y))

    y, values, start = [np.array(y0)], [f(0.0, np.array(y0))], np.array(y0)
    scale = h**alpha / gamma(alpha + 2.0)
    for n in range(1, steps + 1):
        j = np.arange(1, n)
        weights = (n - j + 1.0) ** (alpha + 1.0) + (n - j - 1.0) ** (alpha + 1.0) - 2.0 * (n - j) ** (alpha + 1.0)
        first = (n - 1.0) ** (alpha + 1.0) - (n - 1.0 - alpha) * n**alpha
        known = start + scale * (first * values[0] + weights @ np.array(values[1:]).reshape(n - 1, start.size))
        new = y[-1].copy()
        for _ in range(50):
            value = f(n * h, new)
            counts["njev"] += 1
            slopes = np.empty((new.size, new.size))
            for i in range(new.size):
                width = 1.5e-8 * max(abs(new[i]), 1e-3 * float(np.abs(new).max()))
                moved = new.copy()
                moved[i] += width
                slopes[:, i] = (f(n * h, moved) - value) / (moved[i] - new[i])
            change = np.linalg.solve(np.eye(new.size) - scale * slopes, new - known - scale * value)
            new = new - change
            if not np.isfinite(new).all() or np.abs(change).max() <= 1e-12 * np.abs(new).max():
                break
        else:
            return {"success": False, "t": n * h, **counts}
        if not np.isfinite(new).all():
            return {"success": False, "t": n * h, **counts}
        y.append(new)
        values.append(f(n * h, new))
    return {"success": True, "y": y[-1], **counts}


def row(name: str, step: Any, method: str, good: bool, nfev: int, njev: int, seconds: float, end: Any) -> str:
    shown = f"{float(np.max(np.abs(end))):.6g}" if good else f"stopped at t = {end:g}"
    return f"{name:13} {step!s:9} {method:20} {'yes' if good else 'NO':4} {nfev:8d} {njev:6d} {seconds:8.2f}  {shown}"


def main() -> None:
    """Print the table, and write it with ``--write``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write benchmarks/results/stiff.txt")
    arguments = parser.parse_args()
    lines = [
        f"Stiff problems, {datetime.date.today()}, 2-core host (other work on it at the same time).",
        f"{'problem':13} {'step':9} {'method':20} {'end':4} {'nfev':>8} {'njev':>6} {'seconds':>8}  max |y| at the end",
    ]
    print(*lines, sep="\n", flush=True)
    with np.errstate(all="ignore"):
        for name, (fun, end, y0, alpha, steps, more) in PROBLEMS.items():
            for step in (*steps, None):
                if step is not None:
                    started = time.process_time()
                    found = full_newton(fun, end, y0, alpha, round(end / step))
                    good = found["success"]
                    last = found["y"] if good else found["t"]
                    counts = found["nfev"], found["njev"]
                    lines.append(
                        row(name, step, "plain full Newton", good, *counts, time.process_time() - started, last)
                    )
                    print(lines[-1], flush=True)
                for method in METHODS if step is not None else ("adaptive",):
                    started = time.process_time()
                    result = hf.solve_fode(
                        fun, (0.0, end), y0, alpha, method=method, step=step, backend="numpy", **more
                    )
                    last = result.y[..., -1] if result.success else float(result.t[-1])
                    counts = result.nfev, result.njev
                    lines.append(row(name, step, method, result.success, *counts, time.process_time() - started, last))
                    print(lines[-1], flush=True)
    if arguments.write:
        (Path(__file__).parent / "results" / "stiff.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

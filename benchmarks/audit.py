"""Does ``hf.audit`` judge rightly? Random problems with known truth, and spoiled solutions.

    python benchmarks/audit.py [--trials 500] [--spoiled 100]

``holds``: share of bounds that are at least the true error. ``within 10``: share of bounds at most ten times the true
error (or 1e-9 of the largest value). ``found``: spoiled solutions that are refused. ``alarms``: right ones that are.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy import special

sys.path.insert(0, str(Path(__file__).parent.parent))  # run as a script, this folder is there instead

import hpfracc as hf
from benchmarks._common import heading

Array = np.ndarray[Any, Any]


def problem(rng: np.random.Generator) -> tuple[Any, Any, float, float]:
    """A right-hand side, its exact solution y(t), the order and the end: a sum of three powers."""
    alpha, end = float(rng.uniform(0.2, 1.0)), float(rng.choice([1.0, 5.0]))
    powers = np.array([alpha, rng.uniform(1.0, 2.0), rng.uniform(2.0, 4.0)])
    sizes = rng.normal(size=3) / end**powers
    slopes = special.gamma(powers + 1.0) / special.gamma(powers + 1.0 - alpha)
    rate, cubic = float(rng.uniform(-1.0, 5.0)), float(rng.choice([0.0, 1.0]))

    def exact(t: Any) -> Array:
        return np.asarray(1.0 + np.power.outer(np.asarray(t, dtype=float), powers) @ sizes)

    def fun(t: float, y: Array) -> Array:
        z = exact(t)
        return np.asarray((slopes * sizes) @ t ** (powers - alpha) - rate * (y - z) - cubic * (y**3 - z**3))

    return fun, exact, alpha, end


def relaxing(rng: np.random.Generator) -> tuple[Any, Any, float, float]:
    """A relaxation or a growth, solved by a Mittag-Leffler function."""
    alpha, rate, end = float(rng.uniform(0.2, 1.0)), float(rng.uniform(-1.0, 5.0)), 2.0
    return lambda t, y: -rate * y, lambda t: np.asarray(hf.mittag_leffler(-rate * t**alpha, alpha)), alpha, end


def solved(rng: np.random.Generator) -> tuple[Any, Any, Any, float, Array]:
    """A problem and a solution of it, of varying quality: by steps of either kind, or exact values with noise."""
    fun, exact, alpha, end = (problem if rng.random() < 0.6 else relaxing)(rng)
    kind = rng.integers(3)
    if kind == 0:
        found = hf.solve_fode(
            fun, (0.0, end), [1.0], alpha, rtol=10.0 ** -rng.uniform(3, 8), atol=1e-10, dense_output=True
        )
        return fun, exact, found, alpha, np.unique(np.concatenate([found.t, np.linspace(0.0, end, 500)]))
    t = np.linspace(0.0, end, int(rng.integers(60, 300)))
    if kind == 1:
        found = hf.solve_fode(fun, (0.0, end), [1.0], alpha, step=t[1], method="implicit_trapezoid", estimate=False)
        return fun, exact, (found.t, found.y), alpha, found.t
    return fun, exact, (t, exact(t)[None] + 10.0 ** -rng.uniform(4, 9) * np.sin(9.0 * t / end)), alpha, t


def truth(trials: int) -> None:
    """Bounds of solutions with known error."""
    holds = near = 0
    started, worst = time.process_time(), []
    for seed in range(trials):
        fun, exact, solution, alpha, t = solved(np.random.default_rng(seed))
        found = hf.audit(fun, solution, alpha=alpha, rtol=1e-6)
        y = solution.sol(t) if hasattr(solution, "sol") else solution[1]
        error, size = float(np.abs(y[0] - exact(t)).max()), float(np.abs(exact(t)).max())
        holds += found.error >= error - 1e-12 * size
        near += found.error <= max(10.0 * error, 1e-9 * size)
        if not found.error >= error - 1e-12 * size:
            worst.append((seed, error, found.error))
    seconds = (time.process_time() - started) / trials
    print(f"{trials} solutions: holds {holds / trials:.1%}, within 10 {near / trials:.1%}, {seconds:.2f} s each")
    print(f"  bounds that do not hold (seed, error, bound): {worst[:8]}", flush=True)


def spoil(rng: np.random.Generator, how: str) -> tuple[bool, str]:
    """Whether a spoiled solution is refused, and the message."""
    fun, exact, alpha, end = (problem if rng.random() < 0.6 else relaxing)(rng)
    t = np.linspace(0.0, end, 201)
    y, k = exact(t), int(rng.integers(20, 180))
    if how == "a step lost":
        t, y = t[:-1], np.delete(y, k)
    elif how == "a value changed":
        y[k] += 1e-4 * np.abs(y).max()
    elif how == "a wrong order":
        found = hf.audit(fun, (t, y[None]), alpha=alpha + (1e-3 if alpha < 0.99 else -1e-3))
        return not found.ok, found.message
    else:  # a pulse of height 1 over 1 % of the interval, of which the solution knows nothing
        start = t[k] + 0.3 * t[1]
        found = hf.audit(lambda x, z: fun(x, z) + (start < x < start + 0.01 * end), (t, y[None]), alpha=alpha)
        return not found.ok, found.message
    found = hf.audit(fun, (t, y[None]), alpha=alpha)
    return not found.ok, found.message


def alarms(trials: int) -> None:
    """Exact values that are refused."""
    refused = []
    for seed in range(trials):
        rng = np.random.default_rng(10_000 + seed)
        fun, exact, alpha, end = (problem if rng.random() < 0.6 else relaxing)(rng)
        t = np.linspace(0.0, end, int(rng.integers(60, 300)))
        if not hf.audit(fun, (t, exact(t)[None]), alpha=alpha).ok:
            refused.append(seed)
    print(f"{trials} exact solutions: {len(refused)} false alarms {refused}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--spoiled", type=int, default=100)
    options = parser.parse_args()
    print(heading("hf.audit against known truth"), flush=True)
    for how in ("a step lost", "a value changed", "a wrong order", "a pulse"):
        found = [spoil(np.random.default_rng(seed), how)[0] for seed in range(options.spoiled // 4)]
        print(f"{how}: found {sum(found)} of {len(found)}", flush=True)
    truth(options.trials)
    alarms(options.trials)


if __name__ == "__main__":
    main()

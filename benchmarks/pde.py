"""Time of partial equations over their floors, in one run: ``python benchmarks/pde.py``.

Floors: the same sums as bare compiled loops, and a pair of sine transforms. All are processor times of one core, the
best of some repeats, taken in turns.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.fft
from numba import njit

import hpfracc as hf
from hpfracc.pde import Diffusion, DiffusionL1
from hpfracc.solvers.pde.compiled.exponentials import update


@njit(cache=True)
def direct_floor(weights: Any, eigenvalues: Any, u: Any, out: Any) -> None:
    """L1 on a uniform mesh, all modes, every step summed over all before."""
    steps, modes = out.shape
    change, total = np.zeros((steps, modes)), np.empty(modes)
    for n in range(steps):
        total[:] = 0.0
        for k in range(n):
            w = weights[n - k]
            for m in range(modes):
                total[m] += w * change[k, m]
        for m in range(modes):
            v = (weights[0] * u[m] - total[m]) / (weights[0] - eigenvalues[m])
            change[n, m] = v - u[m]
            u[m] = v
            out[n, m] = v


@njit(cache=True)
def exponential_floor(decay: Any, p: Any, g: Any, own: float, eigenvalues: Any, u: Any, out: Any) -> None:
    """The same with the past in exponentials, one pass over the states a step."""
    steps, modes = out.shape
    states, total = np.zeros((decay.size, modes)), np.zeros(modes)
    change = np.empty(modes)
    for n in range(steps):
        for m in range(modes):
            v = (own * u[m] - total[m]) / (own - eigenvalues[m])
            change[m] = v - u[m]
            u[m] = v
            out[n, m] = v
            total[m] = 0.0
        for j in range(decay.size):
            a, b, c = decay[j], p[j], g[j]
            for m in range(modes):
                s = a * states[j, m] + b * change[m]
                states[j, m] = s
                total[m] += c * s


@njit(cache=True)
def thomas_floor(decay: Any, p: Any, g: Any, own: float, side: float, u: Any, out: Any) -> None:
    """The same in values: second differences, and Thomas's algorithm with factors that are kept, in place of modes."""
    steps, points = out.shape
    states, total, change = np.zeros((decay.size, points)), np.zeros(points), np.empty(points)
    upper, scale = np.empty(points), np.empty(points)
    last = 0.0
    for m in range(points):
        scale[m] = 1.0 / (own + 2.0 * side + side * last)
        last = upper[m] = -side * scale[m]
    for n in range(steps):
        before = 0.0
        for m in range(points):
            before = change[m] = (own * u[m] - total[m] + side * before) * scale[m]
        after = 0.0
        for m in range(points - 1, -1, -1):
            after = change[m] - upper[m] * after
            out[n, m] = after
            change[m] = after - u[m]
            u[m] = after
            total[m] = 0.0
        for j in range(decay.size):
            a, b, c = decay[j], p[j], g[j]
            for m in range(points):
                s = a * states[j, m] + b * change[m]
                states[j, m] = s
                total[m] += c * s


def best(repeats: int, *functions: Callable[[], Any]) -> list[float]:
    """The least processor time of each, in turns."""
    found = [math.inf] * len(functions)
    for number in range(repeats + 1):
        for place, function in enumerate(functions):
            started = time.process_time()
            function()
            if number:  # the first one compiles
                found[place] = min(found[place], time.process_time() - started)
    return found


def row(name: str, ours: float, floor: float, bar: float) -> None:
    """One line of the table."""
    print(f"{name:68s} {ours * 1e3:10.2f} ms {floor * 1e3:10.2f} ms {ours / floor:7.2f} {bar:6.2f}")


def line(points: int, steps: int, method: DiffusionL1, compile: bool, **more: Any) -> Any:
    """Subdiffusion in one dimension."""
    x = np.linspace(0.0, np.pi, points + 2)
    given = {"x": x, "space": Diffusion(1.0), "boundary": "dirichlet", "alpha": 0.5, "compile": compile}
    return hf.solve_fpde(None, (0.0, 1.0), x * (np.pi - x), method=method, step=1.0 / steps, **given, **more)


def main() -> None:
    """Print the table."""
    print(f"{'':68s} {'ours':>13s} {'floor':>13s} {'ratio':>7s} {'bar':>6s}")
    points = steps = 400
    eigenvalues = -(np.arange(1.0, points + 1) ** 2)
    weights = np.diff(np.sqrt(np.arange(steps + 1.0))) * math.sqrt(steps) / math.gamma(1.5)
    out = np.empty((steps, points))
    uniform, graded = DiffusionL1(grading=1.0, memory="direct"), DiffusionL1(memory="direct")
    ours = best(
        7,
        lambda: direct_floor(weights, eigenvalues, np.ones(points), out),
        lambda: line(points, steps, uniform, True),
        lambda: line(points, steps, graded, True),
        lambda: line(points, steps, uniform, False),
    )
    row("400 x 400, direct, uniform mesh, compiled", ours[1], ours[0], 2.0)
    row("400 x 400, direct, graded mesh, compiled", ours[2], ours[0], 2.0)
    row("400 x 400, direct, uniform mesh, NumPy alone", ours[3], ours[0], math.nan)
    per_step = []
    for steps, repeats in ((1000, 3), (10_000, 2)):
        fast = DiffusionL1(grading=1.0, memory="exponentials")
        terms = line(1000, steps, fast, True).stats["exponentials"]
        rates = np.geomspace(1e-2, 1e5, terms)
        states = np.empty((steps, 1000)), -(np.arange(1.0, 1001.0) ** 2)
        tables = np.exp(-rates / steps), np.ones(terms), np.full(terms, 1e-3)
        floor, thomas, taken, marched = best(
            repeats,
            lambda tables=tables, states=states: exponential_floor(*tables, 30.0, states[1], np.ones(1000), states[0]),
            lambda tables=tables, states=states: thomas_floor(*tables, 30.0, 1e5, np.ones(1000), states[0]),
            lambda steps=steps, fast=fast: line(1000, steps, fast, True),
            lambda steps=steps, fast=fast: line(1000, steps, fast, True, save="last"),
        )
        per_step.append(taken / steps)
        name = f"1000 x {steps:,}, {terms} exponentials"
        row(f"{name}, all frames, over values with Thomas", taken, thomas, 1.3)
        row(f"{name}, all frames, over modes alone", taken, floor, 1.3)
        row(f"{name}, last frame, over modes alone", marched, floor, 1.3)
    print(f"{'time a step, 10,000 steps over 1,000':68s} {per_step[1] / per_step[0]:43.2f} {1.15:6.2f}")
    states, x = np.zeros((60, 65_536)), np.ones(65_536)
    table = np.full(60, 0.9)
    copied = np.empty_like(states)
    copy, moved = best(9, lambda: np.copyto(copied, states), lambda: update(states, table, table, None, table, x, None))
    row("update of 60 exponentials x 65,536, over a copy", moved, copy, 1.2)
    count = 20
    for n in (255, 511):
        grid = np.linspace(0.0, np.pi, n + 2)
        start = np.outer(np.sin(grid), np.sin(grid))
        signal = start[1:-1, 1:-1].copy()
        method = DiffusionL1(grading=1.0, memory="exponentials", reaction="imex")

        def plane(start: Any = start, grid: Any = grid, method: DiffusionL1 = method) -> Any:
            given = {"x": (grid, grid), "space": Diffusion(1.0), "boundary": "dirichlet", "alpha": 0.5, "save": "last"}
            return hf.solve_fpde(
                lambda t, u: -u, (0.0, 1.0), start, method=method, step=1.0 / count, compile=True, **given
            )

        terms = plane().stats["exponentials"]
        held, wide = np.zeros((terms, n * n)), np.ones(n * n)
        decay = np.full(terms, 0.9)
        pair, moved, taken = best(
            3,
            lambda signal=signal: scipy.fft.idstn(scipy.fft.dstn(signal, 1), 1),
            lambda held=held, decay=decay, wide=wide: update(held, decay, decay, None, decay, wide, None),
            plane,
        )
        row(f"a step of {n}^2 with a reaction, {terms} exponentials", taken / count, pair + moved, 1.5)


if __name__ == "__main__":
    main()

"""Time of partial equations over their floors, in one run: ``python benchmarks/pde.py``.

Floors: the same sums as bare compiled loops, and a pair of sine transforms. All are processor times of one core, the
best of some repeats, taken in turns. Beside them the method of lines with ``solve_fode``, and py-pde at alpha = 1 where
it can be imported (which needs tqdm): its errors are those of second differences.
"""

from __future__ import annotations

import importlib
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.fft
from numba import njit

import hpfracc as hf
from hpfracc.pde import Diffusion, DiffusionL1, problems
from hpfracc.solvers.pde.compiled.marching import update


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
    print(f"{name:78s} {ours * 1e3:10.2f} ms {floor * 1e3:10.2f} ms {ours / floor:7.2f} {bar:6.2f}")


def line(points: int, steps: int, method: DiffusionL1, compile: bool, **more: Any) -> Any:
    """Subdiffusion in one dimension."""
    x = np.linspace(0.0, np.pi, points + 2)
    given = {"x": x, "space": Diffusion(1.0), "boundary": "dirichlet", "alpha": 0.5, "compile": compile}
    given["estimate"] = False
    return hf.solve_fpde(None, (0.0, 1.0), x * (np.pi - x), method=method, step=1.0 / steps, **given, **more)


def compared(name: str, runs: dict[str, tuple[Callable[[], Any], float]], repeats: int) -> None:
    """Times and errors of some ways to solve the same equation, over those of the first."""
    taken = best(repeats, *(run for run, _ in runs.values()))
    print(f"\n{name:60s} {'time':>13s} {'ratio':>8s} {'error':>10s}")
    for (label, (_, error)), seconds in zip(runs.items(), taken, strict=True):
        print(f"{label:60s} {seconds * 1e3:10.2f} ms {seconds / taken[0]:8.1f} {error:10.1e}")


def method_of_lines(points: int, steps: int) -> None:
    """Subdiffusion of a sine: ours, and ``solve_fode`` on the second differences."""
    x = np.linspace(0.0, np.pi, points + 2)
    h = x[1] - x[0]
    matrix = (np.eye(points, k=1) - 2.0 * np.eye(points) + np.eye(points, k=-1)) / h**2
    exact = float(hf.mittag_leffler(-1.0, 0.5)) * np.sin(x)[1:-1]
    given = {"x": x, "space": Diffusion(1.0), "boundary": "dirichlet", "alpha": 0.5, "step": 1.0 / steps}

    def ours(method: Any) -> Any:
        return hf.solve_fpde(None, (0.0, 1.0), np.sin(x), method=method, save="last", **given).u[-1, 1:-1]

    def lines(method: str) -> Any:
        options = {"step": 1.0 / steps, "jac": lambda t, y: matrix, "estimate": False, "method": method}
        return hf.solve_fode(lambda t, y: matrix @ y, (0.0, 1.0), np.sin(x)[1:-1], 0.5, **options).y[:, -1]

    found = {}
    for label, run in {
        "solve_fpde, l2_1sigma": lambda: ours("l2_1sigma"),
        "solve_fpde, l1": lambda: ours("l1"),
        "solve_fode, implicit_trapezoid": lambda: lines("implicit_trapezoid"),
        "solve_fode, implicit_rectangle": lambda: lines("implicit_rectangle"),
    }.items():
        found[label] = (run, float(np.abs(run() - exact).max()))
    compared(f"method of lines, {points} points x {steps} steps, alpha 0.5", found, 2)


def py_pde() -> None:
    """Allen and Cahn's equation with alpha = 1, beside the explicit steps of py-pde, where that can be imported."""
    # This file has the name of that package.
    here = Path(__file__).resolve().parent
    kept = sys.path[:]
    sys.path[:] = [place for place in sys.path if Path(place or ".").resolve() != here]
    sys.modules.pop("pde", None)  # Numba's cache may have imported this file by that name
    try:
        peer = importlib.import_module("pde")
    except ImportError as error:
        print(f"\npy-pde cannot be imported: {error}")
        return
    finally:
        sys.path[:] = kept
    equation = problems.allen_cahn(2.0, points=256, thickness=0.1, t_end=2.0)
    reference = equation.solve(rtol=1e-10, save="last").u[-1]
    start = peer.ScalarField(peer.CartesianGrid([(0.0, 2.0 * math.pi)], 256, periodic=True), equation.u0)
    theirs = peer.PDE({"u": "0.01 * laplace(u) + u - u**3"})
    found: dict[str, tuple[Callable[[], Any], float]] = {}
    runs: dict[str, Callable[[], Any]] = {
        "solve_fpde, etdrk4, step 0.1": lambda: equation.solve(step=0.1, save="last", estimate=False).u[-1]
    }
    for step in (1e-2, 1e-3):
        runs[f"py-pde {peer.__version__}, explicit, with its setup, step {step:g}"] = lambda step=step: (
            theirs.solve(start, t_range=2.0, dt=step, tracker=None, backend="numba").data
        )
    for label, run in runs.items():
        found[label] = (run, float(np.abs(run() - reference).max()))
    compared("Allen and Cahn, alpha 1, 256 points, t = 2", found, 1)


def main() -> None:
    """Print the tables."""
    print(f"{'':78s} {'ours':>13s} {'floor':>13s} {'ratio':>7s} {'bar':>6s}")
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
    # 1,000 unknowns are 1,001 intervals, 7 x 11 x 13, and 999 are 1,000: transforms tell them apart.
    for steps, unknowns in ((1000, 1000), (10_000, 1000), (10_000, 999)):
        fast = DiffusionL1(grading=1.0, memory="exponentials")
        terms = line(unknowns, steps, fast, True).stats["exponentials"]
        rates = np.geomspace(1e-2, 1e5, terms)
        tables = np.exp(-rates / steps), np.ones(terms), np.full(terms, 1e-3)
        eigenvalues, ones = -(np.arange(1.0, unknowns + 1.0) ** 2), np.ones((32, unknowns))
        kept, values = np.empty((steps, unknowns)), np.empty((32, unknowns))

        def modes(tables: Any = tables, eigenvalues: Any = eigenvalues, kept: Any = kept) -> None:
            exponential_floor(*tables, 30.0, eigenvalues, np.ones(eigenvalues.size), kept)

        def thomas_alone(tables: Any = tables, shape: Any = kept.shape) -> None:
            thomas_floor(*tables, 30.0, 1e5, np.ones(shape[1]), np.empty(shape))  # every solution has its own frames

        def sines(steps: int = steps, ones: Any = ones, values: Any = values) -> None:
            for _ in range(0, steps, 32):
                values[...] = scipy.fft.idst(ones, 1)

        floor, thomas, frames, taken, marched = best(
            4,
            modes,
            thomas_alone,
            sines,
            lambda n=unknowns, steps=steps, fast=fast: line(n, steps, fast, True),
            lambda n=unknowns, steps=steps, fast=fast: line(n, steps, fast, True, save="last"),
        )
        per_step.append(taken / steps)
        name = f"{unknowns} x {steps:,}, {terms} exponentials"
        row(f"{name}, all frames, over values with Thomas", taken, thomas, 1.3)
        row(f"{name}, all frames, over modes alone", taken, floor, math.nan)
        row(f"{name}, all frames, over modes and sines of all frames", taken, floor + frames, 1.3)
        row(f"{name}, last frame, over modes alone", marched, floor, 1.3)
    print(f"{'time a step, 10,000 steps over 1,000':78s} {per_step[1] / per_step[0]:43.2f} {1.15:6.2f}")
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
            given["estimate"] = False
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
    method_of_lines(100, 100)
    py_pde()


if __name__ == "__main__":
    main()

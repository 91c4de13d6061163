"""Fixed-step solvers compared with other libraries: error, time and slope.

Run with ``python benchmarks/ode.py``; ``--peers PYTHON`` names an interpreter that has pycaputo, numfracpy, FDEint and
fodeint, which are then run in separate processes. Times are CPU times, so that a busy machine affects them little.
``--adaptive`` measures the cost of an adaptive step, ``--tuning`` the constants of the blockwise history, and
``--stability`` the stability limit of explicit steps.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from _common import heading, print_table, show, write_json
from scipy.special import gamma

import hpfracc as hf
from hpfracc.engine.execution.prepared import prepared_operands
from hpfracc.special import mittag_leffler

END = 10.0
PEERS = Path(__file__).parent / "_ode_peers.py"
METHODS = ("pece", "implicit_trapezoid", "multistep_trapezoid")


def relaxation(t: float, y: Any) -> Any:
    return -y


def brusselator(t: float, y: Any) -> Any:
    return np.array([1.0 - 4.0 * y[0] + y[0] ** 2 * y[1], 3.0 * y[0] - y[0] ** 2 * y[1]])


PROBLEMS: dict[str, tuple[Callable[..., Any], float, list[float]]] = {
    "relaxation": (relaxation, 0.6, [1.0]),
    "brusselator": (brusselator, 0.8, [1.2, 2.8]),
}


def solve(problem: str, steps: int, method: str = "pece", **options: Any) -> Any:
    fun, alpha, y0 = PROBLEMS[problem]
    return hf.solve_fode(fun, (0.0, END), y0, alpha, method=method, step=END / steps, **{"compile": True, **options})


def timed(problem: str, steps: int, method: str = "pece", *, rounds: int = 3, **options: Any) -> tuple[float, Any]:
    """The fastest of a few rounds, with weights recomputed in each."""
    best, result = math.inf, None
    for _ in range(rounds):
        prepared_operands.clear()
        begin = time.process_time()
        result = solve(problem, steps, method, **options)
        best = min(best, time.process_time() - begin)
        assert result.success, result.message
    return best, result


def reference(problem: str) -> np.ndarray[Any, Any]:
    """Final state of the solution: exact, or extrapolated from two fine solutions of second order."""
    if problem == "relaxation":
        return np.array([float(mittag_leffler(-(END**0.6), 0.6))])
    coarse, fine = (solve(problem, steps, "newton_gregory").y[:, -1] for steps in (100_000, 200_000))
    return np.asarray(fine + (fine - coarse) / 3.0)


def ask_peer(python: str, library: str, problem: str, steps: int, patience: float) -> dict[str, Any] | None:
    """Seconds and final state of a peer's solution; None if it took too long, and empty if it is not installed."""
    command = [python, str(PEERS), library, problem, str(steps)]
    try:
        child = subprocess.run(command, capture_output=True, text=True, timeout=patience, check=False)
    except subprocess.TimeoutExpired:
        return None
    if "ModuleNotFoundError" in child.stderr:
        return {}
    child.check_returncode()
    answer: dict[str, Any] = json.loads(child.stdout)
    return answer


def compare(arguments: argparse.Namespace) -> None:
    print(
        heading(f"D^alpha y = f(t, y) on [0, {END:g}]; processor time; weights made in each solve, compilation before")
    )
    figures: dict[str, Any] = {}
    for problem in [arguments.problem] if arguments.problem else PROBLEMS:
        print(f"\n## {problem}, alpha = {PROBLEMS[problem][1]}\n")
        end = reference(problem)
        rows: list[list[str]] = []
        found: dict[str, dict[int, tuple[float, float]]] = {}

        def note(
            who: str, steps: int, seconds: float, value: Any, rows: Any = rows, found: Any = found, end: Any = end
        ) -> None:
            error = float(np.max(np.abs(np.asarray(value) - end)))
            before = found.setdefault(who, {}).get(steps // 10)
            slope = f"{math.log10(seconds / before[0]):.2f}" if before else "-"
            found[who][steps] = (seconds, error)
            rows.append([who, f"{steps:,}", show(seconds), f"{error:.2e}", slope])

        for method in METHODS:
            solve(problem, 1000, method)
            for steps in (10**k for k in range(3, int(math.log10(arguments.most)) + 1)):
                seconds, result = timed(problem, steps, method, rounds=3 if steps < 10**6 else 1)
                note(f"hpfracc {method}", steps, seconds, result.y[:, -1])
        if arguments.peers:
            for library in ("pycaputo", "FDEint", "fodeint", "numfracpy"):
                last = 0.0
                for steps in (1_000, 10_000, 100_000)[: 3 if arguments.long else 2]:
                    if 100.0 * last > arguments.patience:
                        rows.append(
                            [library, f"{steps:,}", f"about {100 * last:.0f} s by its slope; not run", "-", "-"]
                        )
                        break
                    answer = ask_peer(arguments.peers, library, problem, steps, arguments.patience)
                    if answer is None:
                        rows.append([library, f"{steps:,}", f"more than {arguments.patience:g} s", "-", "-"])
                        break
                    if not answer:
                        rows.append([library, f"{steps:,}", "not installed", "-", "-"])
                        break
                    last = answer["seconds"]
                    note(library, steps, last, answer["end"])
        print_table(("who", "steps", "time", "error at the end", "slope"), rows)
        beside_peers(problem, found, end)
        figures[problem] = {who: {str(n): pair for n, pair in table.items()} for who, table in found.items()}
        figures[f"{problem}, Python"] = python_side(problem)
    if not arguments.problem:
        print()
        figures["adaptive"] = adaptive()
        write_json("ode", figures)


def beside_peers(problem: str, found: dict[str, dict[int, tuple[float, float]]], end: Any) -> None:
    """For each solve of a peer, our fastest solve that is at least as accurate, with any method and steps."""
    ours = [
        (*pair, f"{who.removeprefix('hpfracc ')}, {steps:,} steps")
        for who, table in found.items()
        if who.startswith("hpfracc")
        for steps, pair in table.items()
    ]
    for method in METHODS:
        for steps in (50, 100, 200, 300, 400, 700, 2000, 4000):
            seconds, result = timed(problem, steps, method, rounds=15)
            ours.append((seconds, float(np.max(np.abs(result.y[:, -1] - end))), f"{method}, {steps:,} steps"))
    rows = []
    for who, table in found.items():
        for steps, (seconds, error) in table.items():
            if not who.startswith("hpfracc"):
                quickest = min((row for row in ours if row[1] <= error), default=None)
                if quickest is not None:
                    times = f"{seconds / quickest[0]:,.0f}"
                    rows.append([who, f"{steps:,}", f"{error:.1e}", quickest[2], f"{quickest[1]:.1e}", times])
    if rows:
        print("\nat equal error or better")
        print_table(("peer", "steps", "error", "our quickest at least as exact", "error", "times as fast"), rows)


def python_side(problem: str, steps: int = 10_000, rounds: int = 15) -> dict[str, float]:
    """Overhead of a right-hand side in Python beyond its evaluations and the compiled solver.

    The three take turns, and each round makes a ratio of its own, of which the median is told: a machine that is busy
    for a while slows numerator and denominator alike.
    """
    fun, _, y0 = PROBLEMS[problem]
    point = np.array(y0)
    solve(problem, steps)
    solve(problem, steps, compile=False, backend="numba")
    times: dict[str, list[float]] = {"bare": [], "compiled": [], "python": []}
    for _ in range(rounds):
        begin = time.process_time()
        for n in range(2 * steps):
            fun(n * 1e-3, point)
        times["bare"].append(time.process_time() - begin)
        times["compiled"].append(timed(problem, steps, rounds=1)[0])
        times["python"].append(timed(problem, steps, rounds=1, compile=False, backend="numba")[0])
    ratios = [python / (bare + own) for bare, own, python in zip(*times.values(), strict=True)]
    middle = {name: float(np.median(values)) for name, values in times.items()}
    middle["ratio"] = float(np.median(ratios))
    print(
        f"\nright-hand side in Python, {steps:,} steps of PECE: {show(middle['python'])}; its bare evaluations "
        f"{show(middle['bare'])} and the compiled solver {show(middle['compiled'])}: ratio {middle['ratio']:.2f}, from "
        f"{min(ratios):.2f} to {max(ratios):.2f} in {rounds} rounds (bar 1.5)"
    )
    return middle


def stiff(t: float, y: Any) -> Any:
    return np.array([-1000.0 * y[0] + y[1], y[0] - y[1]])


ADAPTIVE = {**PROBLEMS, "stiff": (stiff, 0.6, [1.0, 1.0])}
WAYS: dict[str, dict[str, Any]] = {
    "NumPy": {"backend": "numpy"},
    "fun compiled": {"backend": "numba", "compile": True},
}


def adaptive(rounds: int = 5) -> dict[str, Any]:
    """Microseconds per adaptive step, accepted or rejected: the median of alternating rounds."""
    print(heading("Adaptive steps, rtol = 1e-6: microseconds a step"))
    rows, figures = [], {}
    for problem, (fun, alpha, y0) in ADAPTIVE.items():
        found: dict[str, list[float]] = {way: [] for way in WAYS}
        for turn in range(rounds + 1):  # the first compiles
            for way, options in WAYS.items():
                begin = time.process_time()
                result = hf.solve_fode(fun, (0.0, END), y0, alpha, method="adaptive_local", **options)
                steps = result.stats["steps"] + result.stats["rejected"]
                if turn:
                    found[way].append(1e6 * (time.process_time() - begin) / steps)
        figures[problem] = {way: float(np.median(values)) for way, values in found.items()}
        rows.append([problem, f"{steps}", *(f"{value:.0f}" for value in figures[problem].values())])
    print_table(("problem", "steps", *WAYS), rows)
    return figures


def tuning() -> None:
    """Times with other block lengths, and the number of steps from which FFT beats the direct sum."""
    from hpfracc.solvers.ode.fixed import solve as fixed_solve

    print(heading("Blockwise history: block length, and the number of steps from which it pays off (PECE, relaxation)"))
    block, below = fixed_solve.BLOCK, fixed_solve.DIRECT_BELOW
    rows = []
    for length in (64, 128, 256, 512, 1024):
        fixed_solve.BLOCK, fixed_solve.DIRECT_BELOW = length, length
        for compiled in (True, False):
            options: dict[str, Any] = {} if compiled else {"compile": False, "backend": "numpy"}
            seconds, _ = timed("relaxation", 20_000, rounds=5, **options)
            rows.append((length, "compiled" if compiled else "NumPy", show(seconds)))
    print_table(("block", "stepping", "20,000 steps"), rows)
    print()
    rows = []
    fixed_solve.BLOCK = block
    for steps in (400, 600, 800, 1200, 1600, 2400, 3200):
        row = [steps]
        for options in ({}, {"compile": False, "backend": "numpy"}):
            for limit in (0, 10**6):
                fixed_solve.DIRECT_BELOW = limit
                row.append(show(timed("relaxation", steps, rounds=9, **options)[0]))
        rows.append(row)
    fixed_solve.DIRECT_BELOW = below
    print_table(("steps", "fft, compiled", "direct, compiled", "fft, NumPy", "direct, NumPy"), rows)


def stability() -> None:
    """The largest ``h^alpha lambda / Gamma(alpha+2)`` for which PECE damps ``D^alpha y = -lambda y``, by bisection."""
    print(heading("Where PECE stops being stable"))
    rows = []
    for alpha in (0.1, 0.3, 0.5, 0.7, 0.9, 1.0, 1.2, 1.5):
        low, high = 0.1, 10.0
        for _ in range(12):
            middle = math.sqrt(low * high)
            with np.errstate(all="ignore"):
                result = hf.solve_fode(
                    lambda t, y, rate: -rate * y,
                    (0.0, 700.0),
                    [1.0],
                    alpha,
                    dy0=[[0.0]] if alpha > 1.0 else None,
                    args=(middle,),
                    method="pece",
                    step=1.0,
                    compile=False,
                )
            stable = result.success and float(np.abs(result.y).max()) < 2.0
            low, high = (middle, high) if stable else (low, middle)
        rows.append((alpha, f"{low:.3f}", f"{low / gamma(alpha + 2.0):.3f}"))
    print_table(("alpha", "h^alpha lambda", "over Gamma(alpha+2)"), rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--peers", metavar="PYTHON", help="an interpreter that has pycaputo, numfracpy, FDEint, fodeint"
    )
    parser.add_argument("--long", action="store_true", help="run the peers with 100,000 steps too")
    parser.add_argument(
        "--patience", type=float, default=60.0, metavar="SECONDS", help="time limit for one solve of a peer"
    )
    parser.add_argument("--most", type=int, default=10**6, metavar="STEPS", help="maximum steps of our own solves")
    parser.add_argument("--problem", choices=PROBLEMS, help="only this problem; writes no figures")
    parser.add_argument("--adaptive", action="store_true", help="only the cost of an adaptive step")
    parser.add_argument("--tuning", action="store_true")
    parser.add_argument("--stability", action="store_true")
    arguments = parser.parse_args()
    if arguments.tuning:
        tuning()
    elif arguments.adaptive:
        adaptive()
    elif arguments.stability:
        stability()
    else:
        compare(arguments)


if __name__ == "__main__":
    main()

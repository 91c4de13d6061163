"""Ensembles with a GPU thread for each trajectory (``backend="numba-cuda"``) against PyTorch and JAX.

``python benchmarks/ensemble_kernel.py --verify --trajectories 100000 --limit 90`` on a machine with a GPU

1. compares the kernel with the host, for both methods, both kinds of memory, both precisions and chunks, and with a
   Mittag-Leffler function; the first failure ends the run with status 1;
2. prints trajectories a second, the first call (with compilation), device memory, and the largest distance between the
   ends, for Brusselators of order 0.8 on [0, 10] with 200 steps of the explicit rectangle rule. Numba's arm takes and
   gives host arrays, with all transfers counted; the others keep theirs on the device up to the end;
3. prints the time of the kernel for both kinds of memory over the number of steps: where they cross is what
   ``_STEPS_PER_TERM`` in ``solvers/ode/compiled/on_cuda/kernels.py`` should say.

Package ``numba-cuda``. Beside NumPy 2.5 it needs ``--row-stack``, which puts ``numpy.row_stack`` back for this process
alone. Without a GPU, ``NUMBA_ENABLE_CUDASIM=1`` with ``--trajectories 3 --steps 120`` runs the kernel in Numba's
simulator, which only shows that the numbers agree.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import os
import platform
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import erfcx

import hpfracc as hf

ALPHA, END = 0.8, 10.0
A = 1.0
SIMULATED = os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"


def brusselator(t: Any, y: Any, b: Any) -> Any:
    u, v = y[..., 0], y[..., 1]
    square = u * u * v
    return np.stack([A - (b + 1.0) * u + square, b * u - square], -1)


def in_library(b: Any, stack: Callable[..., Any]) -> Callable[..., Any]:
    """The same with tensors or JAX arrays."""

    def right(t: Any, y: Any) -> Any:
        u, v = y[..., 0], y[..., 1]
        square = u * u * v
        return stack([A - (b + 1.0) * u + square, b * u - square], -1)

    return right


def ensemble(count: int) -> tuple[np.ndarray, np.ndarray]:
    return np.linspace(1.5, 3.5, count), np.tile([1.2, 2.8], (count, 1))


# -- 1. is it right? --------------------------------------------------------------------------------------------------


def choose_memory(exponentials: bool) -> None:
    """Sums of exponentials always, or never."""
    from hpfracc.solvers.ode.compiled.on_cuda import kernels as tables

    tables._STEPS_PER_TERM = 0 if exponentials else 10**9


def verify(count: int, steps: int) -> bool:
    """Print each difference and its bound; whether all hold."""
    from hpfracc.engine.memory.budget import get_budget

    good = True

    def report(what: str, difference: float, bound: float) -> None:
        nonlocal good
        passed = difference <= bound
        good &= passed
        print(f"{'ok' if passed else 'WRONG':6} {what:58} {difference:9.1e} (at most {bound:.0e})", flush=True)

    b, y0 = ensemble(count)
    some = np.unique(np.linspace(0, count - 1, min(count, 32)).astype(int))
    for method in ("explicit_rectangle", "pece"):
        options: dict[str, Any] = {"step": END / steps, "method": method, "t_eval": [0.1337 * END, END]}
        host = hf.solve_fode(brusselator, (0.0, END), y0[some], ALPHA, args=(b[some],), backend="numpy", **options).y
        for exponentials in (False, True):
            choose_memory(exponentials)
            name = f"{method}, {'exponentials' if exponentials else 'direct'}"
            solve = lambda start, options=options: hf.solve_fode(  # noqa: E731
                brusselator, (0.0, END), start, ALPHA, args=(b,), backend="numba-cuda", **options
            )
            whole = solve(y0)
            assert whole.success, whole.message
            report(f"{name}, float64, against the host", float(np.abs(whole.y[some] - host).max()), 1e-11)
            report(f"{name}, float32", float(np.abs(solve(y0.astype(np.float32)).y[some] - host).max()), 1e-3)
            before = get_budget().cap("cuda:0", 64 << 20 if not SIMULATED else None)
            parts = solve(y0)
            get_budget().cap("cuda:0", before)
            name = f"{name}, {parts.stats['chunks']} chunks against {whole.stats['chunks']}"
            report(name, float(np.abs(parts.y - whole.y).max()), 0.0)
    rates = np.linspace(0.5, 2.0, count)
    for exponentials in (False, True):
        choose_memory(exponentials)
        errors = [
            np.abs(
                hf.solve_fode(
                    lambda t, y, rate: -rate * y, (0.0, 1.0), np.ones((count, 1)), 0.5,
                    step=1.0 / n, args=(rates[:, None],), t_eval=[1.0], backend="numba-cuda",
                ).y[:, 0, 0] - erfcx(rates)
            ).max()
            for n in (steps, 2 * steps)
        ]  # fmt: skip
        report(f"relaxation of order 0.5, {2 * steps} steps of PECE, error", float(errors[1]), 2.0 / steps**1.5)
        report("  its order falls short of 1.5 by", max(0.0, 1.5 - math.log2(errors[0] / errors[1])), 0.2)
    return good


# -- 2. how fast is it? -----------------------------------------------------------------------------------------------


def run_numba(b: np.ndarray, y0: np.ndarray, step: float) -> Callable[[], np.ndarray]:
    def call() -> np.ndarray:
        found = hf.solve_fode(
            brusselator, (0.0, END), y0, ALPHA, step=step, method="explicit_rectangle", args=(b,), t_eval=[END],
            backend="numba-cuda",
        )  # fmt: skip
        return np.asarray(found.y[..., 0])

    return call


def run_torch(b: np.ndarray, y0: np.ndarray, step: float) -> Callable[[], np.ndarray]:
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    rates, start = torch.as_tensor(b, device=device), torch.as_tensor(y0, device=device)
    right = in_library(rates, torch.stack)

    def call() -> np.ndarray:
        found = hf.solve_fode(right, (0.0, END), start, ALPHA, step=step, method="explicit_rectangle").y[..., -1]
        return np.asarray(found.cpu().numpy())

    return call


def run_jax(b: np.ndarray, y0: np.ndarray, step: float) -> Callable[[], np.ndarray]:
    import jax

    jax.config.update("jax_enable_x64", True)
    rates, start = jax.numpy.asarray(b), jax.numpy.asarray(y0)
    right = in_library(rates, jax.numpy.stack)
    solve = jax.jit(
        lambda y: hf.solve_fode(right, (0.0, END), y, ALPHA, step=step, method="explicit_rectangle").y[..., -1]
    )
    return lambda: np.asarray(solve(start))


def used_memory() -> float:
    """GiB in use on the first GPU, by all processes; nan without one."""
    from hpfracc.engine.hardware import driver_memory

    try:
        found = driver_memory("cuda:0")
        return (found.total - found.free) / 2**30 if found is not None else math.nan
    except Exception:  # no driver
        return math.nan


def race(count: int, steps: int, names: list[str], limit: float) -> None:
    b, y0 = ensemble(count)
    arms = {"numba": run_numba, "torch": run_torch, "jax": run_jax}
    begun, right = time.perf_counter(), None
    for name in names:
        if importlib.util.find_spec(name) is None or time.perf_counter() - begun > limit:
            print(f"{name:6} left out")
            continue
        try:
            call = arms[name](b, y0, END / steps)
            begin = time.perf_counter()
            ends = call()
            first = time.perf_counter() - begin
            times = []
            while len(times) < 7 and time.perf_counter() - begun < limit:
                begin = time.perf_counter()
                call()
                times.append(time.perf_counter() - begin)
        except Exception as error:
            print(f"{name:6} failed: {type(error).__name__}: {str(error)[:300]}")
            continue
        right = ends if right is None else right
        seconds = min(times, default=first)
        print(
            f"{name:6} {count / seconds:12,.0f} trajectories/s, first call {first:6.2f} s, {used_memory():6.1f} GiB in "
            f"use, ends differ by {np.abs(ends - right).max():.1e}",
            flush=True,
        )


# -- 3. which memory? -------------------------------------------------------------------------------------------------


def cross(count: int) -> None:
    """Kernel times of both kinds of memory."""
    b, y0 = ensemble(count)
    print(f"{'steps':>6} {'terms':>6} {'direct':>10} {'exponentials':>13} (ms of the kernel, {count:,} trajectories)")
    for steps in (50, 100, 200, 400, 800, 1600):
        row, terms = [], 0
        for exponentials in (False, True):
            choose_memory(exponentials)
            call = lambda steps=steps: hf.solve_fode(  # noqa: E731
                brusselator, (0.0, END), y0, ALPHA, step=END / steps, method="explicit_rectangle", args=(b,),
                t_eval=[END], backend="numba-cuda",
            )  # fmt: skip
            call()
            found = [call() for _ in range(3)]
            row.append(1e3 * min(each.stats["kernel_seconds"] for each in found))
            terms = found[0].stats["memory_terms"]
        print(f"{steps:6} {terms:6} {row[0]:10.2f} {row[1]:13.2f}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trajectories", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--limit", type=float, default=40.0, help="seconds of the race; no further arm starts after it")
    parser.add_argument("--arms", default="numba,torch" if SIMULATED else "numba,torch,jax")
    parser.add_argument("--verify", action="store_true", help="compare with the host first")
    parser.add_argument("--row-stack", action="store_true", help="put numpy.row_stack back for numba-cuda")
    given = parser.parse_args()
    print(time.strftime("%Y-%m-%d"), platform.platform(), f"Python {platform.python_version()}, NumPy {np.__version__}")
    if given.row_stack and not hasattr(np, "row_stack"):
        np.row_stack = np.vstack  # type: ignore[attr-defined]
        print("numpy.row_stack was put back for numba-cuda")
    from hpfracc.solvers.ode.compiled.on_cuda import kernels as tables

    if SIMULATED:  # every thread is one of Python
        from hpfracc.solvers.ode.compiled.on_cuda import solve as of_ensembles

        of_ensembles._MIN_BLOCKS = 1
    usual = tables._STEPS_PER_TERM
    if given.verify and not verify(given.trajectories, given.steps):
        return 1
    tables._STEPS_PER_TERM = usual
    race(given.trajectories, given.steps, given.arms.split(","), given.limit)
    if not SIMULATED:
        cross(given.trajectories)
    return 0


if __name__ == "__main__":
    sys.exit(main())

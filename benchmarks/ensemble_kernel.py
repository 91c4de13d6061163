"""A right-hand side inside one kernel of Numba-CUDA, a thread for each trajectory, against PyTorch and JAX ensembles.

``python benchmarks/ensemble_kernel.py --trajectories 100000 --limit 40`` solves Brusselators of order 0.8 on [0, 10]
with 200 steps: the explicit rectangle rule with the memory as a sum of exponentials, all states of a trajectory in the
registers and local memory of its thread. Printed are trajectories a second, the first call (with compilation), device
memory, and the largest distance between the ends. The arm is worth keeping if it is at least twice as fast as JAX, or
as fast without JAX's first call and memory. Package ``numba-cuda``; without it (or without a GPU) the kernel runs in
Numba's simulator with ``NUMBA_ENABLE_CUDASIM=1`` and few trajectories, which only shows that the numbers agree.
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

import hpfracc as hf
from hpfracc.operators.core.exponentials import exponential_sum

ALPHA, END, STEPS = 0.8, 10.0, 200
STEP = END / STEPS
A = 1.0
TERMS = 64


def memory_terms(rtol: float = 1e-8) -> tuple[np.ndarray, np.ndarray]:
    """Rates and weights of ``t**(alpha - 1)`` on the steps, for the history beyond the last step."""
    found = exponential_sum(1.0 - ALPHA, STEP, END, rtol)
    assert len(found.rates) <= TERMS, len(found.rates)
    return found.rates, found.weights


def make_kernel(terms: int) -> Any:
    """One thread, one trajectory: ``y_n = y_0 + h^a / Gamma(a+1) f_{n-1} + sum_j w_j s_j``."""
    global cuda  # the simulator exchanges the module where a kernel finds it by this name
    if not hasattr(np, "row_stack"):  # gone from NumPy, and still asked for by the CUDA target of Numba 0.68
        np.row_stack = np.vstack  # type: ignore[attr-defined]
    from numba import cuda

    @cuda.jit
    def solve(b: Any, y0: Any, decay: Any, gain: Any, local: float, ends: Any) -> None:
        i = cuda.grid(1)
        if i < b.shape[0]:
            states = cuda.local.array((terms, 2), np.float64)
            for j in range(decay.shape[0]):
                states[j, 0] = 0.0
                states[j, 1] = 0.0
            u, v = y0[i, 0], y0[i, 1]
            fu, fv = 0.0, 0.0
            for step in range(STEPS):
                # What was the newest interval is now part of the history.
                hu, hv = 0.0, 0.0
                if step > 0:
                    for j in range(decay.shape[0]):
                        states[j, 0] = decay[j] * states[j, 0] + gain[j] * fu
                        states[j, 1] = decay[j] * states[j, 1] + gain[j] * fv
                        hu += states[j, 0]
                        hv += states[j, 1]
                square = u * u * v
                fu = A - (b[i] + 1.0) * u + square
                fv = b[i] * u - square
                u = y0[i, 0] + local * fu + hu
                v = y0[i, 1] + local * fv + hv
            ends[i, 0], ends[i, 1] = u, v

    return solve


def factors() -> tuple[np.ndarray, np.ndarray, float]:
    """Decay over a step, gain of an interval that ends one step ago, and the weight of the newest interval."""
    rates, weights = memory_terms()
    decay = np.exp(-rates * STEP)
    # Integral of w exp(-r s) over the interval [h, 2h], all divided by Gamma(alpha).
    safe = np.where(rates > 0.0, rates, 1.0)
    share = np.where(rates > 0.0, (np.exp(-rates * STEP) - np.exp(-2.0 * rates * STEP)) / safe, STEP)
    return decay, weights * share / math.gamma(ALPHA), STEP**ALPHA / math.gamma(ALPHA + 1.0)


def brusselator(b: Any, stack: Callable[..., Any]) -> Callable[..., Any]:
    def right(t: Any, y: Any) -> Any:
        u, v = y[..., 0], y[..., 1]
        square = u * u * v
        return stack([A - (b + 1.0) * u + square, b * u - square], -1)

    return right


def run_numba(b: np.ndarray, y0: np.ndarray) -> Callable[[], np.ndarray]:
    decay, gain, local = factors()
    kernel = make_kernel(TERMS)
    given = [cuda.to_device(each) for each in (b, y0, decay, gain)]
    ends = cuda.device_array((len(b), 2))
    threads = 64

    def call() -> np.ndarray:
        kernel[(len(b) + threads - 1) // threads, threads](*given, local, ends)
        cuda.synchronize()
        return ends.copy_to_host()

    return call


def run_torch(b: np.ndarray, y0: np.ndarray) -> Callable[[], np.ndarray]:
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    rates, start = torch.as_tensor(b, device=device), torch.as_tensor(y0, device=device)
    right = brusselator(rates, torch.stack)

    def call() -> np.ndarray:
        found = hf.solve_fode(right, (0.0, END), start, ALPHA, step=STEP, method="explicit_rectangle").y[..., -1]
        return found.cpu().numpy()

    return call


def run_jax(b: np.ndarray, y0: np.ndarray) -> Callable[[], np.ndarray]:
    import jax

    jax.config.update("jax_enable_x64", True)
    rates, start = jax.numpy.asarray(b), jax.numpy.asarray(y0)
    right = brusselator(rates, jax.numpy.stack)
    solve = jax.jit(
        lambda y: hf.solve_fode(right, (0.0, END), y, ALPHA, step=STEP, method="explicit_rectangle").y[..., -1]
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trajectories", type=int, default=100_000)
    parser.add_argument("--limit", type=float, default=40.0, help="seconds in all; no further arm is started after it")
    parser.add_argument("--arms", default="numba,torch,jax")
    given = parser.parse_args()
    print(time.strftime("%Y-%m-%d"), platform.platform(), f"Python {platform.python_version()}")
    count = given.trajectories
    b = np.linspace(1.5, 3.5, count)
    y0 = np.tile([1.2, 2.8], (count, 1))
    arms = {"numba": run_numba, "torch": run_torch, "jax": run_jax}
    begun, right = time.perf_counter(), None
    for name in given.arms.split(","):
        if importlib.util.find_spec(name) is None or time.perf_counter() - begun > given.limit:
            print(f"{name:6} left out")
            continue
        try:
            call = arms[name](b, y0)
            begin = time.perf_counter()
            ends = call()
            first = time.perf_counter() - begin
            times = []
            while len(times) < 5 and time.perf_counter() - begun < given.limit:
                begin = time.perf_counter()
                call()
                times.append(time.perf_counter() - begin)
        except Exception as error:
            print(f"{name:6} failed: {type(error).__name__}: {str(error)[:200]}")
            continue
        right = ends if right is None else right
        seconds = min(times, default=first)
        print(
            f"{name:6} {count / seconds:12,.0f} trajectories/s, first call {first:6.2f} s, {used_memory():6.1f} GiB in "
            f"use, ends differ by {np.abs(ends - right).max():.1e}",
            flush=True,
        )


if __name__ == "__main__":
    if os.environ.get("NUMBA_ENABLE_CUDASIM") == "1":
        sys.argv += ["--arms", "numba,torch"] if "--arms" not in " ".join(sys.argv) else []
    main()

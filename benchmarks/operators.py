"""Caputo derivatives: compared with other libraries and with the bare FFT pair, and on a GPU.

``python benchmarks/operators.py [--peers PYTHON] [--device cuda [--only-device] [--only-resident]]``. ``PYTHON`` is an
interpreter whose environment has differint, pycaputo and numfracpy; without it their columns are omitted. The bare pair
is the minimum for any FFT method: one transform of the samples and one inverse, with a cached transform of the weights
(SciPy on the host, the library's own transforms on a GPU).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from _common import heading, print_table, quarter, show, timed_in_rounds, write_json
from scipy import fft

import hpfracc as hf
from hpfracc.engine.backends import registry
from hpfracc.engine.execution.operation import get_operation

ALPHA = 0.5
SIZES = (100, 1000, 10_000, 100_000, 1_000_000)
#: Sizes up to which a contestant finishes within a minute.
REACH = {
    "pycaputo L1": 10_000,
    "differint GL": 100_000,
    "differint RL": 1000,
    "numfracpy L1": 1000,
}


def ours(n: int, method: str) -> dict[str, Any]:
    """Error and time of one method, and the time of the bare pair."""
    t = np.linspace(0.0, 1.0, n)
    samples = t**3
    exact = math.gamma(4.0) / math.gamma(4.0 - ALPHA) * t ** (3.0 - ALPHA)
    operator = hf.Caputo(ALPHA, method)
    step = 1.0 / (n - 1)
    size = fft.next_fast_len(2 * n - 1, real=True)
    kept = fft.rfft(np.ones(n), size)

    def bare() -> Any:
        return fft.irfft(fft.rfft(samples, size) * kept, size)[:n]

    def call() -> Any:
        return operator(samples, step=step)

    def call_with_points() -> Any:
        return operator(samples, t)

    for _ in range(400 if n < 10**6 else 100):
        value = call()
    error = float(np.max(np.abs(value - exact)) / np.max(np.abs(exact)))
    times = timed_in_rounds({"auto": call, "t": call_with_points, "bare": bare}, 1.5)
    return {"n": n, "method": method, "seconds": times["auto"], "t": times["t"], "bare": times["bare"], "error": error}


def peers(python: str) -> list[dict[str, Any]]:
    """Results of the other libraries, from their own environment."""
    jobs = [(name, n, ALPHA) for name, reach in REACH.items() for n in SIZES if n <= reach]
    script = Path(__file__).parent / "peers" / "derivatives.py"
    found = subprocess.run([python, str(script), json.dumps(jobs)], capture_output=True, text=True, check=True)
    return [json.loads(line) for line in found.stdout.splitlines()]


def host(python: str | None) -> dict[str, Any]:
    """Print the tables of the CPU."""
    rows = [ours(n, method) for n in SIZES for method in ("l1-2", "l1")]
    print(f"\nCaputo derivative of order {ALPHA} of t^3 on [0, 1], NumPy in and out; error over the largest value")
    print_table(
        ("points", "method", "error", "step=", "t=", "bare FFT pair", "step= / bare", "t= / bare"),
        [
            (
                f"{row['n']:,}",
                row["method"],
                f"{row['error']:.1e}",
                show(row["seconds"]),
                show(row["t"]),
                show(row["bare"]),
                f"{row['seconds'] / row['bare']:.2f}",
                f"{row['t'] / row['bare']:.2f}",
            )
            for row in rows
        ],
    )
    data: dict[str, Any] = {"ours": rows}
    if python:
        others = peers(python)
        table = []
        for other in others:
            if "failure" in other:
                table.append((f"{other['n']:,}", other["name"], other["failure"][:60], "", "", ""))
                continue
            # The fastest of our methods that are at least as accurate with the same samples.
            same = [row for row in rows if row["n"] == other["n"] and row["error"] <= 1.02 * other["error"]]
            best = min(same, key=lambda row: row["seconds"], default=None)
            table.append(
                (
                    f"{other['n']:,}",
                    other["name"],
                    f"{other['error']:.1e}",
                    show(other["seconds"]),
                    "none as exact" if best is None else f"{best['method']} {show(best['seconds'])}",
                    "" if best is None else f"{other['seconds'] / best['seconds']:,.0f}x",
                )
            )
        print("\nother libraries, same samples; compared with our fastest method that is at least as accurate")
        print_table(("points", "peer", "error", "peer takes", "ours", "ours is faster by"), table)
        data["peers"] = others
    return data


def gpu(device: str) -> dict[str, Any]:
    """Resident tensors: forward, and forward with backward, compared with the bare pair with autograd."""
    import torch

    rows = []
    for shape in ((10_000_000,), (4096, 1024), (1_000_000,)):
        for dtype in (torch.float64, torch.float32):
            x = torch.randn(shape, dtype=dtype, device=device)
            tracked = x.clone().requires_grad_()
            n = shape[-1]
            operator, step = hf.Caputo(ALPHA), 1.0 / (n - 1)
            size = 2 * n
            kept = torch.fft.rfft(torch.randn(n, dtype=dtype, device=device), n=size)
            slope = torch.randn_like(x)

            def bare(v: Any, size: int = size, kept: Any = kept, n: int = n) -> Any:
                return torch.fft.irfft(torch.fft.rfft(v, n=size) * kept, n=size)[..., :n]

            def call(v: Any, operator: Any = operator, step: float = step) -> Any:
                return operator(v, step=step)

            def trained(f: Callable[[Any], Any], v: Any = tracked, slope: Any = slope) -> Any:
                return torch.autograd.grad(f(v), v, slope)

            for _ in range(60):
                call(x)
                trained(call)
                torch.cuda.synchronize()
            contest = {
                "auto": lambda call=call, x=x: call(x),
                "bare": lambda bare=bare, x=x: bare(x),
                "auto+": lambda trained=trained, call=call: trained(call),
                "bare+": lambda trained=trained, bare=bare: trained(bare),
            }
            rows.append({"shape": shape, "dtype": str(dtype), **timed_in_rounds(contest, 2.0, torch.cuda.synchronize)})
    print(f"\nCaputo derivative of order {ALPHA} (l1-2), tensors resident on the GPU")
    print_table(
        ("shape", "dtype", "forward", "bare", "ratio", "forward + backward", "bare", "ratio"),
        [
            (
                " x ".join(f"{n:,}" for n in row["shape"]),
                row["dtype"].removeprefix("torch."),
                show(row["auto"]),
                show(row["bare"]),
                f"{row['auto'] / row['bare']:.2f}",
                show(row["auto+"]),
                show(row["bare+"]),
                f"{row['auto+'] / row['bare+']:.2f}",
            )
            for row in rows
        ],
    )
    return {"gpu": rows}


#: Points of the resident arrays that are compared in all three libraries.
RESIDENT = (100_000, 1_000_000)


def resident() -> list[dict[str, Any]]:
    """One row of samples resident on a GPU, in each library, beside the bare rfft-multiply-irfft of that library."""
    makers = {"torch": _torch_parts, "cupy": _cupy_parts, "jax": _jax_parts}
    rows = []
    for library, make in makers.items():
        for n in RESIDENT:
            try:
                parts, synchronize = make(n)
            except ImportError as error:
                print(f"{library}: left out, {error}")
                break
            for _ in range(300):
                for run in parts.values():
                    run()
            synchronize()
            host = {name: _host_seconds(run, synchronize) for name, run in parts.items()}
            total = timed_in_rounds(parts, 2.0, synchronize)
            rows.append({"library": library, "n": n, "total": total, "host": host})
    print(f"\nCaputo derivative of order {ALPHA} (l1-2), one row of float64 resident on the GPU; bar: 1.30 x bare")
    print("host: time until the call returns; total: time a call, many in a row, synchronised at the end")
    head = ("library", "points", "what", "host", "total", "total / bare")
    print_table(
        head,
        [
            (
                row["library"],
                f"{row['n']:,}",
                name,
                show(row["host"][name]),
                show(seconds),
                f"{seconds / row['total']['bare']:.2f}",
            )
            for row in rows
            for name, seconds in row["total"].items()
        ],
    )
    return rows


def _host_seconds(run: Callable[[], Any], synchronize: Callable[[], None]) -> float:
    """Seconds until a call returns, while the queue of the device is short."""
    found = []
    for _ in range(40):
        synchronize()
        begin = time.perf_counter()
        for _ in range(5):
            run()
        found.append((time.perf_counter() - begin) / 5)
    synchronize()
    return quarter(found)


def _parts(library: str, x: Any, weights: Any, starts: Any, bare: Callable[[], Any]) -> dict[str, Callable[[], Any]]:
    """The operator (``auto``), its engine call, the kernel of that call, and the bare pair."""
    n = x.shape[-1]
    t, step, operator = np.linspace(0.0, 1.0, n), 1.0 / (n - 1), hf.Caputo(ALPHA)
    options = {"differences": True, "starts_from": 1}
    kernel = registry.kernel("causal_convolution", library, "fft")
    primitive = get_operation("causal_convolution").primitive
    prepared = kernel.prepare(weights, primitive.describe(weights, x, starts, **options))
    return {
        "auto": lambda: operator(x, step=step),
        "with t on the host": lambda: operator(x, t),
        "engine call": lambda: hf.causal_convolution(weights, x, starts, weights_key=("bench", n), **options),
        "kernel": lambda: kernel.apply(prepared, x, starts, **options),
        "kernel, no options": lambda: kernel.apply(prepared, x),
        "bare": bare,
    }


def _torch_parts(n: int) -> tuple[dict[str, Callable[[], Any]], Callable[[], None]]:
    import torch

    x, weights = (torch.randn(n, dtype=torch.float64, device="cuda") for _ in range(2))
    kept = torch.fft.rfft(weights, n=2 * n)

    def bare() -> Any:
        return torch.fft.irfft(torch.fft.rfft(x, n=2 * n) * kept, n=2 * n)[:n]

    return _parts("torch", x, weights, torch.ones_like(x)[None], bare), torch.cuda.synchronize


def _cupy_parts(n: int) -> tuple[dict[str, Callable[[], Any]], Callable[[], None]]:
    import cupy
    from cupyx.scipy import fft as cufft

    x, weights = (cupy.random.standard_normal(n) for _ in range(2))
    kept = cufft.rfft(weights, 2 * n)

    def bare() -> Any:
        return cufft.irfft(cufft.rfft(x, 2 * n) * kept, 2 * n)[:n]

    return _parts("cupy", x, weights, cupy.ones((1, n)), bare), cupy.cuda.Device().synchronize


def _jax_parts(n: int) -> tuple[dict[str, Callable[[], Any]], Callable[[], None]]:
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    random = np.random.default_rng(1)
    x, weights = (jnp.asarray(random.standard_normal(n)) for _ in range(2))
    kept = jnp.fft.rfft(weights, 2 * n)

    @jax.jit
    def pair(v: Any, kept: Any) -> Any:
        return jnp.fft.irfft(jnp.fft.rfft(v, 2 * n) * kept, 2 * n)[:n]

    # The device works through its queue in order: the last call is done after all others.
    last: list[Any] = [x]

    def noted(run: Callable[[], Any]) -> Callable[[], Any]:
        def call() -> None:
            last[0] = run()

        return call

    parts = _parts("jax", x, weights, jnp.ones((1, n)), lambda: pair(x, kept))
    return {name: noted(run) for name, run in parts.items()}, lambda: last[0].block_until_ready()


def main() -> None:
    """Print the requested tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", help="an interpreter that has differint, pycaputo and numfracpy")
    parser.add_argument("--device", help="also measure tensors resident there, such as cuda")
    parser.add_argument("--only-device", action="store_true", help="omit the tables of the host")
    parser.add_argument("--only-resident", action="store_true", help="of the device only 1e5 and 1e6 resident points")
    options = parser.parse_args()
    print(heading("Caputo derivatives"))
    data = {} if options.only_device else host(options.peers)
    if options.device:
        data["resident"] = resident()
    if options.device and not options.only_resident:
        data |= gpu(options.device)
    write_json("operators", data)


if __name__ == "__main__":
    main()

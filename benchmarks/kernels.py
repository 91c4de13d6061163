"""Every kernel without the engine, compared with the bare library call. Operands are already on the kernel's device.

Run with ``python benchmarks/kernels.py [--operation causal_convolution] [--backend numba] [--seconds 0.5]``.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
from _common import heading, print_table, show, timed_in_rounds, write_json

from hpfracc.engine.backends import registry
from hpfracc.engine.backends.base import Arm
from hpfracc.engine.primitives import PRIMITIVES
from hpfracc.engine.primitives.base import Call

SIZES = (16, 64, 256, 1024, 4096, 65536)
SIDES = (2, 4, 16, 64, 256)

#: Operands, parameters and the plain NumPy call of each operation at a size.
Setting = tuple[tuple[np.ndarray, ...], dict[str, Any], Callable[[], Any]]


def setting(operation: str, n: int) -> Setting:
    """A typical call of ``n`` points (matmul: matrices of side ``n``)."""
    generator = np.random.default_rng(0)
    x, y = generator.random(n), generator.random(n)
    if operation == "causal_convolution":
        return (x, y), {}, lambda: np.convolve(x, y)[:n]
    if operation == "matmul":
        a, b = generator.random((n, n)), generator.random((n, n))
        return (a, b), {}, lambda: a @ b
    if operation == "fft":
        return (x,), {"kind": "rfft"}, lambda: np.fft.rfft(x)
    if operation == "elementwise":
        return (x, y), {"expression": "x*y + sin(x)", "names": ("x", "y")}, lambda: x * y + np.sin(x)
    if operation == "reduction":
        return (x,), {"kind": "sum"}, lambda: np.sum(x)
    words, key = generator.integers(0, 1 << 60, n), generator.integers(0, 1 << 60, n)
    return (words, key), {}, lambda: words ^ key


def runner(arm: Arm, call: Call, arrays: tuple[np.ndarray, ...], params: dict[str, Any]) -> Callable[[], Any]:
    """The kernel on operands that are on its device; waits for the result if the library is asynchronous."""
    adapter = registry.adapter(arm.backend)
    kernel = registry.kernel(call.operation, arm.backend, arm.algorithm).run
    placed = tuple(adapter.cast(adapter.from_host(array, arm.device), call.dtype) for array in arrays)
    options = {"workers": arm.workers} if arm.spec.threads else {}

    def run() -> None:
        with adapter.scope(call) or contextlib.nullcontext():
            kernel(*placed, **params, **options)
        if adapter.is_asynchronous(arm.device):
            adapter.synchronize(arm.device)

    return run


def measure(operation: str, n: int, seconds: float, backends: list[str]) -> dict[str, float]:
    """Seconds of the plain call and of every arm that supports it."""
    arrays, params, plain = setting(operation, n)
    call = PRIMITIVES[operation].describe(*arrays, **params)
    contestants: dict[str, Callable[[], Any]] = {"plain NumPy": plain}
    for arm in registry.arms(operation):
        refused = arm.spec.refuses and arm.spec.refuses(call)
        if arm.backend in backends and call.dtype in arm.spec.dtypes and not refused:
            contestants[arm.name] = runner(arm, call, arrays, params)
    if operation == "causal_convolution" and n > 10_000:
        # Skipped: NumPy's direct sum of 65,536 points takes 16 s.
        contestants = {
            name: run for name, run in contestants.items() if name not in ("plain NumPy", "numpy:direct@cpu")
        }
    return timed_in_rounds(contestants, seconds)


def main() -> None:
    """Print one table per operation and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    operations = ["causal_convolution", "matmul", "fft", "elementwise", "reduction", "bitwise_xor"]
    parser.add_argument("--operation", action="append", choices=operations, help="only this one (may be repeated)")
    parser.add_argument("--backend", action="append", help="only this one (may be repeated)")
    parser.add_argument("--seconds", type=float, default=0.5, help="time for one row of a table")
    options = parser.parse_args()
    backends = options.backend or ["numpy", "numba", "torch", "jax", "cupy"]
    print(heading("Kernels by themselves (float64, 25th percentile of runs taking turns)"))
    figures: dict[str, dict[str, dict[str, float]]] = {}
    for operation in options.operation or operations:
        sizes = SIDES if operation == "matmul" else SIZES
        figures[operation] = {str(n): measure(operation, n, options.seconds, backends) for n in sizes}
        names = list(dict.fromkeys(name for row in figures[operation].values() for name in row))
        print(f"\n{operation}")
        rows = [[name, *(show(figures[operation][str(n)].get(name, float("nan"))) for n in sizes)] for name in names]
        print_table(["n", *map(str, sizes)], rows)
    write_json("kernels", {"heading": heading("kernels"), "seconds": figures})


if __name__ == "__main__":
    main()

"""Launches of the fused Triton kernels: through the cache of ``torch/launch.py``, and by Triton's own launcher.

The whole call is timed, ``hf.caputo`` of a tensor that lies on the GPU, both ways in turn in one process. The cache
goes through Triton's internals and stays only as long as the call gains 10 % by it. Run with
``python benchmarks/launch.py`` on a machine with a GPU; figures of an H200 are in ``results/launch-h200.txt``.
"""

from __future__ import annotations

import statistics
import time

import torch
from _common import heading, print_table

import hpfracc as hf
from hpfracc.engine.backends.torch import fused_kernels

SIZES = (1_000, 10_000, 100_000, 1_000_000)
ROUNDS, WARM, CALLS = 12, 30, 200


def seconds_a_call(x: torch.Tensor, step: float) -> float:
    """Seconds of one call, over many that are not waited for one by one."""
    for _ in range(WARM):
        hf.caputo(x, step=step, alpha=0.5)
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(CALLS):
        hf.caputo(x, step=step, alpha=0.5)
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / CALLS


def main() -> None:
    """A row for each size."""
    cached = fused_kernels.pad, fused_kernels.cut
    ways = {"cached": cached, "ordinary": tuple(launcher.launch_ordinarily for launcher in cached)}
    print(heading("Launches of Triton kernels, whole calls of caputo"))
    rows = []
    for n in SIZES:
        x = torch.sin(5 * torch.linspace(0, 1, n, dtype=torch.float64, device="cuda"))
        times: dict[str, list[float]] = {name: [] for name in ways}
        with hf.use_backend("torch"):
            for _ in range(ROUNDS):
                for name, (fused_kernels.pad, fused_kernels.cut) in ways.items():
                    times[name].append(seconds_a_call(x, 1 / (n - 1)))
        fused_kernels.pad, fused_kernels.cut = cached
        a, b = (statistics.median(times[name]) * 1e6 for name in ways)
        rows.append((str(n), f"{a:.1f} us", f"{b:.1f} us", f"{b / a:.3f}"))
    print_table(("points", "cached", "ordinary", "ordinary/cached"), rows)


if __name__ == "__main__":
    main()

"""Partial equations on an accelerator: time a step over its transforms, and over those plus the bytes it has to move.

``python benchmarks/pde_accelerator.py`` takes a GPU where PyTorch sees one; ``--small`` is for a try on the host. Gray
and Scott's equations with ETDRK4 take four pairs of real transforms of both components a step, and move at least 11
products of coefficients (two read, one written, a factor of half the size) and 4 reactions (two states). Subdiffusion
in sines takes no transforms between its frames: its floor is the sum over the past, each increment read once a block of
32 steps and, on average, 16 times within one.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import hpfracc as hf
from hpfracc.pde import Diffusion, DiffusionL1, problems


def seconds(function: Callable[[], Any], device: Any, repeats: int) -> float:
    """The least of some repeats, after one that warms up."""
    found = []
    for _ in range(repeats + 1):
        started = time.perf_counter()
        function()
        if device.type == "cuda":
            torch.cuda.synchronize()
        found.append(time.perf_counter() - started)
    return min(found[1:])


def bandwidth(device: Any, size: int) -> float:
    """Bytes a second of a copy, read and written."""
    one = torch.zeros(size, dtype=torch.float64, device=device)
    two = torch.empty_like(one)
    return 16.0 * size / seconds(lambda: two.copy_(one), device, 5)


def row(name: str, ours: float, transforms: float, floor: float) -> None:
    """One line of the table."""
    over = f"{ours / transforms:6.2f}" if transforms else "      "
    print(
        f"{name:44s} {ours * 1e3:9.3f} ms {transforms * 1e3:9.3f} ms {over} {floor * 1e3:9.3f} ms {ours / floor:6.2f}"
    )


def gray_scott(points: int, dimensions: int, steps: int, device: Any) -> None:
    """ETDRK4 with four pairs of transforms of both components."""
    equation = problems.gray_scott(points=points, dimensions=dimensions)
    start = torch.as_tensor(equation.u0, device=device)
    axes = tuple(range(-dimensions, 0))
    sizes = (points,) * dimensions

    def run(count: int) -> Any:
        return hf.solve_fpde(
            equation.reaction,
            (0.0, float(count)),
            start,
            x=equation.x,
            space=equation.space,
            boundary="periodic",
            method="etdrk4",
            step=1.0,
            save="last",
        )

    # Of two lengths, so that what is done once a solve is left out.
    few, many = seconds(lambda: run(1), device, 2), seconds(lambda: run(1 + steps), device, 2)
    pair = seconds(lambda: torch.fft.irfftn(torch.fft.rfftn(start, dim=axes), s=sizes, dim=axes), device, 5)
    size = start.numel() * 8
    moved = (11 * 3.5 + 4 * 2 + 1) * size / bandwidth(device, start.numel())
    row(f"Gray-Scott {points}^{dimensions}, {steps} steps", (many - few) / steps, 4 * pair, 4 * pair + moved)


def subdiffusion(points: int, steps: int, device: Any, memory: str) -> None:
    """L1 in sines, with the past summed directly or in exponentials."""
    axis = np.linspace(0.0, np.pi, points + 2)
    start = torch.as_tensor(np.outer(np.sin(axis), np.sin(axis)), device=device)

    def run() -> Any:
        return hf.solve_fpde(
            None,
            (0.0, 1.0),
            start,
            x=(axis, axis),
            space=Diffusion(1.0),
            boundary="dirichlet",
            alpha=0.5,
            method=DiffusionL1(memory=memory),
            step=1.0 / steps,
            save="last",
        )

    terms = run().stats.get("exponentials", 0)
    taken = seconds(run, device, 2) / steps
    size = points**2 * 8
    passes = 2 * terms + 6 if terms else 0.5 * steps / 32 + 16 + 6
    floor = passes * size / bandwidth(device, points**2)
    row(f"subdiffusion {points}^2, {steps} steps, {memory}", taken, 0.0, floor)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true")
    small = parser.parse_args().small
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    where = torch.cuda.get_device_name() if device.type == "cuda" else "host"
    print(f"# PyTorch {torch.__version__}, {where}, float64")
    print(f"{'':44s} {'a step':>12s} {'transforms':>12s} {'ratio':>6s} {'and bytes':>12s} {'ratio':>6s}")
    for points, dimensions, steps in ((32, 2, 4), (16, 3, 4)) if small else ((256, 2, 50), (128, 3, 20), (256, 3, 10)):
        gray_scott(points, dimensions, steps, device)
    for memory in ("direct", "exponentials"):
        subdiffusion(31 if small else 1023, 40 if small else 500, device, memory)


if __name__ == "__main__":
    main()

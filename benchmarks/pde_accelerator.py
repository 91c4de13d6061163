"""Partial equations on an accelerator: time a step over its transforms, and over those plus the bytes it has to move.

``python benchmarks/pde_accelerator.py`` takes a GPU where PyTorch (or JAX, by ``--library jax``) sees one; ``--small``
is for a try on the host, and ``--profile`` prints what the GPU does in a step of PyTorch. Gray and Scott's equations
with ETDRK4 take four pairs of real transforms of both components a step, and move at least 11 products of coefficients
(two read, one written, a factor of half the size) and 4 reactions (two states). ``compile=True`` compiles the sums and
the reaction with PyTorch, and a whole step with JAX. Subdiffusion in sines takes no transforms between its frames: its
floor is the sum over the past, each increment read once a block of 32 steps and, on average, 16 times within one.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import numpy as np

import hpfracc as hf
from hpfracc.pde import Diffusion, DiffusionL1, problems


class Torch:
    """Arrays of PyTorch, on a GPU where there is one."""

    def __init__(self) -> None:
        import torch

        self.module = torch
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        where = torch.cuda.get_device_name() if self.device.type == "cuda" else "host"
        self.name = f"PyTorch {torch.__version__}, {where}"

    def array(self, values: Any) -> Any:
        """On the device."""
        return self.module.as_tensor(values, device=self.device)

    def finish(self, found: Any) -> None:
        """Wait for the device."""
        if self.device.type == "cuda":
            self.module.cuda.synchronize()

    def pair(self, start: Any, axes: tuple[int, ...], sizes: tuple[int, ...]) -> Callable[[], Any]:
        """A transform and back."""
        fft = self.module.fft
        return lambda: fft.irfftn(fft.rfftn(start, dim=axes), s=sizes, dim=axes)

    def copy(self, size: int) -> Callable[[], Any]:
        """A copy of ``size`` numbers."""
        one = self.module.zeros(size, dtype=self.module.float64, device=self.device)
        two = self.module.empty_like(one)
        return lambda: two.copy_(one)


class Jax:
    """Arrays of JAX, on its default device."""

    def __init__(self) -> None:
        import jax

        jax.config.update("jax_enable_x64", True)
        self.module = jax
        self.name = f"JAX {jax.__version__}, {jax.devices()[0].device_kind}"

    def array(self, values: Any) -> Any:
        """On the device."""
        return self.module.numpy.asarray(values)

    def finish(self, found: Any) -> None:
        """Wait for the device."""
        self.module.block_until_ready(found.u if hasattr(found, "u") else found)

    def pair(self, start: Any, axes: tuple[int, ...], sizes: tuple[int, ...]) -> Callable[[], Any]:
        """A transform and back."""
        fft = self.module.numpy.fft
        made = self.module.jit(lambda u: fft.irfftn(fft.rfftn(u, axes=axes), s=sizes, axes=axes))
        return lambda: made(start)

    def copy(self, size: int) -> Callable[[], Any]:
        """A copy of ``size`` numbers."""
        one = self.module.numpy.zeros(size)
        made = self.module.jit(lambda x: x + 1.0)
        return lambda: made(one)


def seconds(function: Callable[[], Any], library: Any, repeats: int) -> float:
    """The least of some repeats, after one that warms up."""
    found = []
    for _ in range(repeats + 1):
        started = time.perf_counter()
        library.finish(function())
        found.append(time.perf_counter() - started)
    return min(found[1:])


def bandwidth(library: Any, size: int) -> float:
    """Bytes a second of a copy, read and written."""
    return 16.0 * size / seconds(library.copy(size), library, 5)


def row(name: str, ours: float, transforms: float, floor: float) -> None:
    """One line of the table."""
    over = f"{ours / transforms:6.2f}" if transforms else "      "
    print(
        f"{name:52s} {ours * 1e3:9.3f} ms {transforms * 1e3:9.3f} ms {over} {floor * 1e3:9.3f} ms {ours / floor:6.2f}"
    )


def gray_scott(points: int, dimensions: int, steps: int, library: Any, compile: bool | str, profile: bool) -> None:
    """ETDRK4 with four pairs of transforms of both components."""
    equation = problems.gray_scott(points=points, dimensions=dimensions)
    start = library.array(equation.u0)
    axes = tuple(range(-dimensions, 0))
    sizes = (points,) * dimensions

    stamps: list[float] = []

    def stamped(t: float, u: Any) -> float:
        library.finish(u)
        stamps.append(time.perf_counter())
        return 0.0

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
            save=stamped,
            compile=compile,
        )

    # The median over the steps, without the first ones: what is done once a solve, compiling too, is left out.
    run(3 + steps)
    taken = float(np.median(np.diff(stamps[3:])))
    pair = seconds(library.pair(start, axes, sizes), library, 5)
    count = equation.u0.size
    moved = (11 * 3.5 + 4 * 2 + 1) * 8 * count / bandwidth(library, count)
    how = ", compile=True" if compile is True else ""
    row(f"Gray-Scott {points}^{dimensions}, {steps} steps{how}", taken, 4 * pair, 4 * pair + moved)
    if profile and isinstance(library, Torch):
        profiler = library.module.profiler
        with profiler.profile(activities=list(profiler.supported_activities())) as seen:
            library.finish(run(4))
        key = "self_cuda_time_total" if library.device.type == "cuda" else "self_cpu_time_total"
        print(seen.key_averages().table(sort_by=key, row_limit=18, max_name_column_width=60))


def subdiffusion(points: int, steps: int, library: Any, memory: str) -> None:
    """L1 in sines, with the past summed directly or in exponentials."""
    axis = np.linspace(0.0, np.pi, points + 2)
    start = library.array(np.outer(np.sin(axis), np.sin(axis)))

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
    taken = seconds(run, library, 2) / steps
    size = points**2 * 8
    passes = 2 * terms + 6 if terms else 0.5 * steps / 32 + 16 + 6
    floor = passes * size / bandwidth(library, points**2)
    row(f"subdiffusion {points}^2, {steps} steps, {memory}", taken, 0.0, floor)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--library", choices=["torch", "jax"], default="torch")
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    library = Torch() if given.library == "torch" else Jax()
    print(f"# {library.name}, float64; hpfracc {hf.__version__}, Python {sys.version.split()[0]}")
    print(f"{'':52s} {'a step':>12s} {'transforms':>12s} {'ratio':>6s} {'and bytes':>12s} {'ratio':>6s}")
    sizes = ((32, 2, 4), (16, 3, 4)) if given.small else ((256, 2, 200), (128, 3, 50), (256, 3, 20))
    for points, dimensions, steps in sizes:
        for compile in ("auto", True):
            gray_scott(points, dimensions, steps, library, compile, given.profile)
    for memory in ("direct", "exponentials"):
        subdiffusion(31 if given.small else 1023, 40 if given.small else 500, library, memory)


if __name__ == "__main__":
    main()

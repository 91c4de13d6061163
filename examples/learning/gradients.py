"""Gradient of a fractional solve: error, time and memory, compared with other packages.

Run with ``python examples/learning/gradients.py [--quick] [--steps 64 1024 65536]``.

For D^0.6 y = -theta y with y(0) = theta = 1, the exact dy(1)/dtheta is -0.285170472307. A Caputo adjoint equation that
starts at the gradient with respect to y(1) gives -0.31 to -0.34. If ``torchfde`` (by autograd, and by its adjoint) and
``FDEint`` are installed, they are included. Their work grows with the square of the number of steps, so they are
skipped above 1,024 and 4,096 steps (the graph of ``torchfde`` takes 1 GB at 1,024 steps). Each row runs in its own
process; its memory is the peak of the process minus its memory before the solve.
"""

from __future__ import annotations

import argparse
import importlib.util
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

EXACT = -0.285170472307
#: Maximum number of steps for methods whose work or graph grows with its square.
MAX = {"direct": 256, "torchfde": 1024, "FDEint": 4096}


class Decay(torch.nn.Module):
    """The right-hand side -theta y."""

    def __init__(self) -> None:
        super().__init__()
        self.theta = torch.nn.Parameter(torch.tensor(1.0, dtype=torch.float64))

    def forward(self, t: Any, y: Any) -> Any:
        """The right-hand side."""
        return -self.theta * y


def by_hpfracc(adjoint: str) -> Callable[[Decay, int], Any]:
    """y(1) of ``NeuralFODE``."""

    def solve(decay: Decay, steps: int) -> Any:
        from hpfracc.ml.torch.neural_fode import NeuralFODE

        model = NeuralFODE(decay, 0.6, step=1.0 / steps, adjoint=adjoint)
        return model(torch.ones(1, dtype=torch.float64), [0.0, 1.0])[-1]

    return solve


def by_torchfde(adjoint: bool) -> Callable[[Decay, int], Any]:
    """y(1) of its L1 scheme, differentiated by autograd or by its own adjoint."""

    def solve(decay: Decay, steps: int) -> Any:
        import torchfde

        one = torch.ones(1, dtype=torch.float64)
        order = torch.tensor(0.6, dtype=torch.float64)
        call = torchfde.fdeint_adjoint if adjoint else torchfde.fdeint
        return call(decay, one, order, t=1.0, step_size=1.0 / steps, method="l1-f" if adjoint else "l1")

    return solve


def by_fdeint(decay: Decay, steps: int) -> Any:
    """y(1) of its predictor-corrector."""
    from FDEint import FDEint

    times = torch.linspace(0.0, 1.0, steps + 1, dtype=torch.float64)
    return FDEint(decay, times, torch.ones(1, dtype=torch.float64), 0.6, dtype=torch.float64)[:, -1]


WAYS: dict[str, Callable[[Decay, int], Any]] = {
    "stored": by_hpfracc("stored"),
    "recomputed": by_hpfracc("recomputed"),
    "direct": by_hpfracc("direct"),
    "torchfde": by_torchfde(adjoint=False),
    "torchfde, adjoint": by_torchfde(adjoint=True),
    "FDEint": by_fdeint,
}


def slope(way: str, steps: int) -> tuple[float, float, float]:
    """dy(1)/dtheta, processor seconds, and MiB beyond what a solve of few steps needs."""
    torch.set_num_threads(1)
    WAYS[way](Decay(), 8).sum().backward()  # imports and tables
    decay = Decay()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.process_time()
    WAYS[way](decay, steps).sum().backward()
    seconds = time.process_time() - begin
    unit = 2**20 if sys.platform == "darwin" else 2**10
    assert decay.theta.grad is not None
    return float(decay.theta.grad), seconds, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / unit


def ways_for(steps: int) -> list[str]:
    """Methods that are installed and feasible for this number of steps."""
    found = []
    for way in WAYS:
        package = way.split(",")[0]
        if package in ("torchfde", "FDEint") and importlib.util.find_spec(package) is None:
            continue
        if steps <= MAX.get(package, steps):
            found.append(way)
    return found


def main() -> None:
    """Print the error of each method for decreasing steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few steps, in this process")
    parser.add_argument("--steps", type=int, nargs="+", default=[64, 256, 1024, 4096])
    options = parser.parse_args()
    print(f"{'steps':>6} {'method':<18} {'dy(1)/dtheta':>16} {'error':>10} {'seconds':>9} {'MiB':>8}")
    for steps in [32, 64] if options.quick else options.steps:
        for way in ways_for(steps):
            if options.quick:
                found, seconds, memory = slope(way, steps)
            else:
                with multiprocessing.get_context("spawn").Pool(1) as pool:
                    found, seconds, memory = pool.apply(slope, (way, steps))
            error = abs(found - EXACT)
            print(f"{steps:>6} {way:<18} {found:>16.12f} {error:>10.2e} {seconds:>9.3f} {memory:>8.1f}", flush=True)
    print(f"{'exact':>6} {'':<18} {EXACT:>16.12f}")


if __name__ == "__main__":
    main()

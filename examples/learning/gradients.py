"""The gradient of a fractional solve: its limit for small steps, its time and its memory, beside other packages.

Run with ``python examples/learning/gradients.py [--quick] [--steps 64 1024 65536]``. D^0.6 y = -theta y, y(0) = theta =
1: dy(1)/dtheta is -0.285170472307. An adjoint equation of Caputo's kind that starts at the gradient in y(1) gives -0.31
to -0.34. Packages that are installed are shown beside: ``torchfde`` (by autograd, and by its adjoint) and ``FDEint``;
their work grows like the square of the steps, so they are left out above 1,024 and 4,096 of them (1,024 steps of
``torchfde`` leave 1 GB of graph). Each row is a process of its own; its memory is what the process needed at most
beyond what it had before the solve.
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
#: The most steps of a way whose work, or whose graph, grows like their square.
MOST = {"direct": 256, "torchfde": 1024, "FDEint": 4096}


class Decay(torch.nn.Module):
    """The right-hand side -theta y."""

    def __init__(self) -> None:
        super().__init__()
        self.theta = torch.nn.Parameter(torch.tensor(1.0, dtype=torch.float64))

    def forward(self, t: Any, y: Any) -> Any:
        """At any time."""
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
    """Those that are installed and that so many steps are within reach of."""
    found = []
    for way in WAYS:
        package = way.split(",")[0]
        if package in ("torchfde", "FDEint") and importlib.util.find_spec(package) is None:
            continue
        if steps <= MOST.get(package, steps):
            found.append(way)
    return found


def main() -> None:
    """Print the error of each way for smaller and smaller steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few steps, in this process")
    parser.add_argument("--steps", type=int, nargs="+", default=[64, 256, 1024, 4096])
    options = parser.parse_args()
    print(f"{'steps':>6} {'adjoint':<18} {'dy(1)/dtheta':>16} {'error':>10} {'seconds':>9} {'MiB':>8}")
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

"""Neural stochastic equations: paths and their gradients against the bare evaluations of the networks.

Run with ``python benchmarks/neural_fsde.py [--device cuda] [--steps 100 400] [--paths 256]``. Two MLPs 8-64-64-8 with
tanh are drift and diffusion (diagonal noise), float32. The bare evaluations are the n calls of both networks without
gradients, and with the gradients of Euler's method on given noise; everything is divided by the first or the second.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
from _common import heading, print_table, show

from hpfracc.ml import LearnableOrder
from hpfracc.ml.torch.neural_fsde import NeuralFSDE

MODELS: dict[str, dict[str, Any]] = {
    "volterra": {"alpha": 0.7},
    "fbm": {"H": 0.7},
    "markov": {"H": 0.7},
}


def measured(runs: dict[str, Callable[[], Any]], device: str, repeats: int) -> dict[str, float]:
    """Seconds of the quickest of a few runs of each, in turns, after one that is not counted."""
    clock = time.perf_counter if device == "cuda" else time.process_time
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats + 1):
        for name, run in runs.items():
            begin = clock()
            run()
            if device == "cuda":
                torch.cuda.synchronize()
            taken[name].append(clock() - begin)
    return {name: min(values[1:]) for name, values in taken.items()}


def network(device: str) -> torch.nn.Module:
    """An MLP."""
    layers = [torch.nn.Linear(8, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 8)]
    return torch.nn.Sequential(*layers).to(device)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--steps", type=int, nargs="+", default=[100, 400])
    parser.add_argument("--paths", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=8)
    arguments = parser.parse_args()
    device = arguments.device
    print(heading(f"neural stochastic equations: two MLPs 8-64-64-8, {arguments.paths} paths, {device}"))
    torch.manual_seed(0)
    drift, diffusion = network(device), network(device)
    parameters = [*drift.parameters(), *diffusion.parameters()]
    y0 = torch.randn(arguments.paths, 8, device=device)
    rows = []
    for steps in arguments.steps:
        noise = torch.randn(steps, arguments.paths, 8, device=device) * steps**-0.5

        def euler(steps: int = steps, noise: torch.Tensor = noise) -> torch.Tensor:
            y = y0
            for each in noise:
                y = y + drift(y) / steps + diffusion(y) * each
            return y

        def without(make: Callable[[], torch.Tensor]) -> Callable[[], Any]:
            return torch.no_grad()(make)

        def slopes(make: Callable[[], torch.Tensor], more: tuple[Any, ...] = ()) -> Callable[[], Any]:
            return lambda: torch.autograd.grad(make().square().mean(), [*parameters, *more])

        runs: dict[str, Callable[[], Any]] = {"bare, forward": without(euler), "bare, gradient": slopes(euler)}
        for name, order in MODELS.items():
            for kind in ("fixed", "learned", "stored"):
                (key, value) = next(iter(order.items()))
                made = LearnableOrder(value, bounds=(0.5, 1.0)).to(device) if kind == "learned" else value
                adjoint = "stored" if kind == "stored" else "direct"
                model = NeuralFSDE(
                    lambda t, y: drift(y),
                    lambda t, y: diffusion(y),
                    name,
                    step=1.0 / steps,
                    adjoint=adjoint,
                    **{key: made},
                )

                def paths(model: Any = model) -> torch.Tensor:
                    return model(y0, [0.0, 1.0])[-1]

                if kind != "stored":
                    runs[f"{name}, {kind}, forward"] = without(paths)
                runs[f"{name}, {kind}, gradient"] = slopes(paths, tuple(model.order.parameters()))
        found = measured(runs, device, arguments.repeats)
        for name, seconds in found.items():
            against = found["bare, forward" if name.endswith("forward") else "bare, gradient"]
            rows.append([steps, name, show(seconds), f"{seconds / against:.2f}"])
    print_table(["steps", "what", "seconds", "of bare"], rows)


if __name__ == "__main__":
    main()

"""Optimisers with fractional memory: time and state against Adam of PyTorch.

Run with ``python benchmarks/optimizers.py [--device cuda]``. One step on a million parameters in eight
tensors. The bars: 3 times the time and 3.5 times the state of Adam.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import torch
from _common import heading, print_table, show, timed_in_rounds, write_json

from hpfracc.ml.optimized_optimizers import FractionalGradientFlow, FractionalSGD, OptimizedFractionalAdam


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--seconds", type=float, default=2.0)
    arguments = parser.parse_args()
    print(heading(f"optimisers, {arguments.device}"))
    shapes = [(500, 500), (500,)] * 4
    makers: dict[str, Callable[[Any], Any]] = {
        "torch.optim.Adam": torch.optim.Adam,
        "OptimizedFractionalAdam": OptimizedFractionalAdam,
        "FractionalSGD": FractionalSGD,
        "FractionalGradientFlow": FractionalGradientFlow,
    }
    steps, kept = {}, {}
    for name, make in makers.items():
        parameters = [torch.randn(shape, device=arguments.device, requires_grad=True) for shape in shapes]
        for each in parameters:
            each.grad = torch.randn_like(each)
        optimizer = make(parameters)
        optimizer.step()
        steps[name] = optimizer.step
        tensors = [each for state in optimizer.state.values() for each in state.values() if torch.is_tensor(each)]
        kept[name] = sum(each.numel() for each in tensors if each.numel() > 1)
    synchronize = torch.cuda.synchronize if arguments.device == "cuda" else None
    taken = timed_in_rounds(steps, arguments.seconds, synchronize)
    adam = "torch.optim.Adam"
    rows = [
        {"optimiser": name, "seconds": taken[name], "time": taken[name] / taken[adam], "state": kept[name] / kept[adam]}
        for name in makers
    ]
    shown = [[row["optimiser"], show(row["seconds"]), f"{row['time']:.2f}", f"{row['state']:.2f}"] for row in rows]
    print_table(("optimiser", "a step", "of Adam", "state of Adam"), shown)
    write_json(f"optimizers-{arguments.device}", {"rows": rows})


if __name__ == "__main__":
    main()

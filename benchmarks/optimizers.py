"""Optimisers with fractional memory: time and state against Adam of PyTorch.

Run with ``python benchmarks/optimizers.py [--device cuda]``. One step on a million parameters in eight
tensors. The bars: 3 times the time and 3.5 times the state of Adam. The second table has a step on 10 and on 100
tensors with and without ``foreach``, whose kernels update all tensors of a group together.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

import torch
from _common import heading, print_table, ratio_in_rounds, show, timed_in_rounds, write_json

from hpfracc.ml.optimized_optimizers import FractionalGradientFlow, FractionalSGD, OptimizedFractionalAdam

MAKERS: dict[str, Callable[..., Any]] = {
    "torch.optim.Adam": torch.optim.Adam,
    "OptimizedFractionalAdam": OptimizedFractionalAdam,
    "FractionalSGD": FractionalSGD,
    "FractionalGradientFlow": FractionalGradientFlow,
}
#: Number of tensors, and parameters of each.
TENSORS = ((10, 1_000), (10, 100_000), (100, 1_000), (100, 10_000))


def begun(make: Callable[..., Any], shapes: Sequence[tuple[int, ...]], device: str, **options: Any) -> Any:
    """An optimiser of tensors of these shapes, after its first step."""
    parameters = [torch.randn(shape, device=device, requires_grad=True) for shape in shapes]
    for each in parameters:
        each.grad = torch.randn_like(each)
    optimizer = make(parameters, **options)
    optimizer.step()
    return optimizer


def compare_foreach(device: str, seconds: float, synchronize: Callable[[], None] | None) -> list[dict[str, Any]]:
    """Seconds of a step with ``foreach`` and without, and the median of their ratio over adjacent turns."""
    rows = []
    for name, make in MAKERS.items():
        for count, size in TENSORS:
            together, each = (begun(make, [(size,)] * count, device, foreach=wish).step for wish in (True, False))
            one, other, ratio = ratio_in_rounds(each, together, seconds, synchronize)
            rows.append(
                {
                    "optimiser": name,
                    "tensors": count,
                    "size": size,
                    "seconds": one,
                    "foreach": other,
                    "gain": ratio,
                }
            )
    return rows


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--seconds", type=float, default=2.0)
    arguments = parser.parse_args()
    print(heading(f"optimisers, {arguments.device}"))
    shapes = [(500, 500), (500,)] * 4
    steps, kept = {}, {}
    for name, make in MAKERS.items():
        optimizer = begun(make, shapes, arguments.device)
        steps[name] = optimizer.step
        tensors = [each for state in optimizer.state.values() for each in state.values() if torch.is_tensor(each)]
        kept[name] = sum(each.numel() for each in tensors if each.numel() > 1)
    synchronize = torch.cuda.synchronize if arguments.device == "cuda" else None
    taken = timed_in_rounds(steps, arguments.seconds, synchronize)
    adam = "torch.optim.Adam"
    rows = [
        {"optimiser": name, "seconds": taken[name], "time": taken[name] / taken[adam], "state": kept[name] / kept[adam]}
        for name in MAKERS
    ]
    shown = [[row["optimiser"], show(row["seconds"]), f"{row['time']:.2f}", f"{row['state']:.2f}"] for row in rows]
    print_table(("optimiser", "a step", "of Adam", "state of Adam"), shown)
    print("\nforeach\n")
    found = compare_foreach(arguments.device, arguments.seconds, synchronize)
    shown = [
        [
            row["optimiser"], row["tensors"], f"{row['size']:,}", show(row["seconds"]), show(row["foreach"]),
            f"{row['gain']:.2f}",
        ]
        for row in found
    ]  # fmt: skip
    print_table(("optimiser", "tensors", "of size", "one by one", "foreach", "times as fast"), shown)
    write_json(f"optimizers-{arguments.device}", {"rows": rows, "foreach": found})


if __name__ == "__main__":
    main()

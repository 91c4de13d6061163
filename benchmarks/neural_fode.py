"""Neural fractional equations: the solve and its gradient against the bare evaluations of the network.

Run with ``python benchmarks/neural_fode.py [--device cuda] [--steps 256 1024 4096] [--batch 256]``. An MLP 8-64-64-8
with tanh, PECE, float32. The bare evaluations are the 2 n calls of the network that PECE makes, without gradients.
The bars: forward 1.5 times, the gradient of the stored adjoint 4.5 times the bare evaluations; peak 8 solutions.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
from _common import heading, print_table, show, write_json

from hpfracc.ml.torch.neural_fode import NeuralFODE


def measured(run: Callable[[], Any], device: str, repeats: int) -> float:
    """Seconds of the quickest of a few runs, after one that is not counted."""
    taken = []
    for _ in range(repeats + 1):
        begin = time.perf_counter() if device == "cuda" else time.process_time()
        run()
        if device == "cuda":
            torch.cuda.synchronize()
        taken.append((time.perf_counter() if device == "cuda" else time.process_time()) - begin)
    return min(taken[1:])


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--steps", type=int, nargs="+", default=[256, 1024, 4096])
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--adjoints", nargs="+", default=["stored", "recomputed"])
    arguments = parser.parse_args()
    print(heading(f"neural fractional equations: MLP 8-64-64-8, batch {arguments.batch}, PECE, {arguments.device}"))
    torch.manual_seed(0)
    layers = [torch.nn.Linear(8, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 8)]
    net = torch.nn.Sequential(*layers).to(arguments.device)
    y0 = torch.randn(arguments.batch, 8, device=arguments.device)
    order = torch.nn.Parameter(torch.tensor(0.7, device=arguments.device))
    rows = []
    for steps in arguments.steps:
        times = torch.linspace(0.0, 1.0, 5)

        def bare(steps: int = steps) -> Any:
            with torch.no_grad():
                for _ in range(2 * steps):
                    net(y0)

        row: dict[str, Any] = {"steps": steps, "bare": measured(bare, arguments.device, arguments.repeats)}

        def model_of(adjoint: str, steps: int = steps) -> Any:
            return NeuralFODE(lambda t, y: net(y), order, step=1.0 / steps, adjoint=adjoint)

        def forward(steps: int = steps, times: Any = times) -> Any:
            with torch.no_grad():
                return model_of("stored", steps)(y0, times)

        row["forward"] = measured(forward, arguments.device, arguments.repeats)
        for adjoint in arguments.adjoints:

            def gradient(adjoint: str = adjoint, steps: int = steps, times: Any = times) -> Any:
                loss = model_of(adjoint, steps)(y0, times).square().mean()
                return torch.autograd.grad(loss, [order, *net.parameters()])

            if arguments.device == "cuda":
                torch.cuda.reset_peak_memory_stats()
            row[adjoint] = measured(gradient, arguments.device, arguments.repeats)
            if arguments.device == "cuda":
                solution = 4 * 8 * arguments.batch * (steps + 1)
                row[f"{adjoint}, solutions"] = torch.cuda.max_memory_allocated() / solution
        rows.append(row)
    columns = ["steps", "bare", "forward", "of bare"]
    for adjoint in arguments.adjoints:
        columns += [adjoint, "of bare", "peak, solutions"]
    shown = []
    for row in rows:
        line = [row["steps"], show(row["bare"]), show(row["forward"]), f"{row['forward'] / row['bare']:.2f}"]
        for adjoint in arguments.adjoints:
            peak = row.get(f"{adjoint}, solutions")
            line += [show(row[adjoint]), f"{row[adjoint] / row['bare']:.2f}", "-" if peak is None else f"{peak:.1f}"]
        shown.append(line)
    print_table(columns, shown)
    write_json(f"neural_fode-{arguments.device}", {"batch": arguments.batch, "rows": rows})


if __name__ == "__main__":
    main()

"""Neural fractional equations: the solve and its gradient against the bare evaluations of the network.

Run with ``python benchmarks/neural_fode.py [--device cuda] [--steps 256 1024 4096] [--batch 256]``. An MLP 8-64-64-8
with tanh, PECE, float32. The bare evaluations are the 2 n calls of the network that PECE makes, without gradients.
The bars: forward 1.5 times, the gradient of the stored adjoint 4.5 times the bare evaluations; peak 8 solutions.
``--memory 65536`` measures that peak alone, for one gradient: on the host by the high-water mark of the process, above
what it had after a short solve.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from functools import partial
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


def make_network(device: str) -> Any:
    """MLP 8-64-64-8."""
    torch.manual_seed(0)
    layers = [torch.nn.Linear(8, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 8)]
    return torch.nn.Sequential(*layers).to(device)


def measure(steps: int, batch: int, device: str, adjoints: list[str], repeats: int) -> dict[str, Any]:
    """Seconds of the bare evaluations, of a solve, and of its gradients; on a GPU their peaks in solutions."""
    net = make_network(device)
    y0 = torch.randn(batch, 8, device=device)
    order = torch.nn.Parameter(torch.tensor(0.7, device=device))
    times = torch.linspace(0.0, 1.0, 5)

    def bare() -> None:
        with torch.no_grad():
            for _ in range(2 * steps):
                net(y0)

    def model_of(adjoint: str) -> Any:
        return NeuralFODE(lambda t, y: net(y), order, step=1.0 / steps, adjoint=adjoint)

    def forward() -> Any:
        with torch.no_grad():
            return model_of("stored")(y0, times)

    def gradient(adjoint: str) -> Any:
        loss = model_of(adjoint)(y0, times).square().mean()
        return torch.autograd.grad(loss, [order, *net.parameters()])

    row: dict[str, Any] = {"steps": steps, "bare": measured(bare, device, repeats)}
    row["forward"] = measured(forward, device, repeats)
    for adjoint in adjoints:
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        row[adjoint] = measured(partial(gradient, adjoint), device, repeats)
        if device == "cuda":
            solution = 4 * 8 * batch * (steps + 1)
            row[f"{adjoint}, solutions"] = torch.cuda.max_memory_allocated() / solution
    return row


def peak_of(steps: int, batch: int, device: str, adjoint: str) -> tuple[float, float]:
    """The peak of one gradient in solutions, and the bytes of a solution."""
    net = make_network(device)
    y0 = torch.randn(batch, 8, device=device)
    order = torch.nn.Parameter(torch.tensor(0.7, device=device))

    def gradient(steps: int) -> None:
        model = NeuralFODE(lambda t, y: net(y), order, step=1.0 / steps, adjoint=adjoint)
        loss = model(y0, torch.linspace(0.0, 1.0, 5)).square().mean()
        torch.autograd.grad(loss, [order, *net.parameters()])

    gradient(256)  # what libraries and activations take
    solution = 4.0 * y0.numel() * (steps + 1)
    if device == "cuda":
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        gradient(steps)
        return (torch.cuda.max_memory_allocated() - before) / solution, solution
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    gradient(steps)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024.0 / solution, solution


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--steps", type=int, nargs="+", default=[256, 1024, 4096])
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--adjoints", nargs="+", default=["stored", "recomputed"])
    parser.add_argument("--memory", type=int, help="steps of one gradient whose peak is measured, and nothing else")
    arguments = parser.parse_args()
    print(heading(f"neural fractional equations: MLP 8-64-64-8, batch {arguments.batch}, PECE, {arguments.device}"))
    if arguments.memory is not None:
        shown = []
        for adjoint in arguments.adjoints:
            found, solution = peak_of(arguments.memory, arguments.batch, arguments.device, adjoint)
            shown.append([arguments.memory, adjoint, f"{solution / 2**20:.1f} MiB", f"{found:.2f}"])
        print_table(["steps", "adjoint", "solution", "peak, solutions"], shown)
        return
    rows = [
        measure(steps, arguments.batch, arguments.device, arguments.adjoints, arguments.repeats)
        for steps in arguments.steps
    ]
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

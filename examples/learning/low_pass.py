"""A low-pass filter with memory, D^0.8 y = -y/2, learned on [0, 1.5] and tested on [0, 10].

Run with ``python examples/learning/low_pass.py [--quick] [--seeds 5]``. The training data are y on [0, 1.5] with 1 %
noise; the test data have no noise. All models use Adam with the same learning rate and number of steps. The LSTM has
about as many parameters as the network. It is trained to predict the next value, and tested by iterating its own
predictions from y(0).
"""

from __future__ import annotations

import argparse

import numpy as np
import torch

import hpfracc as hf
from hpfracc.ml.torch.neural_fode import NeuralFODE

RATE, ORDER, STEP = 0.5, 0.8, 0.1


class Network(torch.nn.Module):
    """A small MLP as the right-hand side."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(1, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)).double()

    def forward(self, t: object, y: torch.Tensor) -> torch.Tensor:
        """The right-hand side."""
        return self.layers(y)


class Order(torch.nn.Module):
    """A learnable order between 0 and 1, or the fixed order 1."""

    def __init__(self, fixed: bool) -> None:
        super().__init__()
        self.fixed = fixed
        self.raw = torch.nn.Parameter(torch.tensor(0.0, dtype=torch.float64))

    def forward(self) -> torch.Tensor:
        """The order."""
        return torch.ones((), dtype=torch.float64) if self.fixed else torch.sigmoid(self.raw)


class Rate(torch.nn.Module):
    """The right-hand side -k y, with which the order is identifiable."""

    def __init__(self) -> None:
        super().__init__()
        self.k = torch.nn.Parameter(torch.tensor(1.0, dtype=torch.float64))

    def forward(self, t: object, y: torch.Tensor) -> torch.Tensor:
        """The right-hand side."""
        return -self.k * y


class Recurrent(torch.nn.Module):
    """An LSTM that predicts the next value."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.out = torch.nn.LSTMCell(1, 3).double(), torch.nn.Linear(3, 1).double()

    def forward(self, y: torch.Tensor, steps: int) -> torch.Tensor:
        """Predictions after the values ``y``, shape (n, 1); beyond them each is made from the previous prediction."""
        found: list[torch.Tensor] = []
        state = None
        for step in range(steps):
            seen = y[step : step + 1] if step < len(y) else found[-1]
            state = self.cell(seen, state)
            found.append(seen + self.out(state[0]))
        return torch.cat(found)


def run_recurrent(data: np.ndarray, far: np.ndarray, iterations: int) -> tuple[float, float]:
    """The error of the LSTM, and nan for the order."""
    model = Recurrent()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    goal = torch.as_tensor(data)[:, None]
    for _ in range(iterations):
        optimizer.zero_grad()
        (model(goal[:-1], len(goal) - 1) - goal[1:]).square().mean().backward()
        optimizer.step()
    with torch.no_grad():
        found = model(torch.ones(1, 1, dtype=torch.float64), far.size - 1)[:, 0].numpy()
    return float(np.abs(found - exact(far[1:])).max()), float("nan")


def exact(t: np.ndarray) -> np.ndarray:
    """The Mittag-Leffler function."""
    return np.asarray(hf.mittag_leffler(-RATE * t**ORDER, ORDER))


def run(name: str, seed: int, iterations: int) -> tuple[float, float]:
    """The error on [0, 10], relative to the largest value, and the estimated order."""
    torch.manual_seed(seed)
    t = np.arange(0.0, 1.5 + 1e-9, STEP)
    data = exact(t) + 0.01 * np.random.default_rng(seed).standard_normal(t.size)
    far = np.arange(0.0, 10.0 + 1e-9, STEP)
    if name == "fit_fode, two parameters":
        fit = hf.fit_fode(lambda t, y, k: -k * y, t, data, parameters={"k": 1.0}, y0=[1.0], step=STEP / 2, halve=False)
        found = hf.mittag_leffler(-fit.parameters["k"] * far**fit.alpha, fit.alpha)
        return float(np.abs(found - exact(far)).max()), float(fit.alpha)
    if name == "LSTM":
        return run_recurrent(data, far, iterations)
    func = Rate() if name.endswith("rate") else Network()
    order = Order("ordinary" in name)
    model = NeuralFODE(func, order, step=STEP)

    def solve(times: np.ndarray) -> torch.Tensor:
        return model(torch.ones(1, dtype=torch.float64), times)

    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    goal = torch.as_tensor(data)[:, None]
    for _ in range(iterations):
        optimizer.zero_grad()
        (solve(t) - goal).square().mean().backward()
        optimizer.step()
    with torch.no_grad():
        found = solve(far)[:, 0].numpy()
        return float(np.abs(found - exact(far)).max()), float(order())


def main() -> None:
    """Train all models and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one seed and few iterations")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=300)
    arguments = parser.parse_args()
    seeds, iterations = (1, 3) if arguments.quick else (arguments.seeds, arguments.iterations)
    print(f"D^{ORDER} y = -{RATE} y, fitted on [0, 1.5], tested on [0, 10]; {seeds} seeds, {iterations} iterations")
    print(f"{'model':<28} {'error to t = 10':>24} {'order':>16}")
    networks = [f"{kind}, {func}" for func in ("rate", "network") for kind in ("fractional", "ordinary")]
    for name in ("fit_fode, two parameters", *networks, "LSTM"):
        found = np.array([run(name, seed, iterations) for seed in range(seeds)])
        mean, spread = found.mean(0), found.std(0)
        order = f"{mean[1]:>8.3f} +- {spread[1]:.3f}" if np.isfinite(mean[1]) else f"{'-':>8}"
        print(f"{name:<28} {mean[0]:>12.4f} +- {spread[0]:<8.4f} {order}")
    print(
        "If the form of the equation is known, the two-parameter fit is as good. A network does not recover the order."
    )


if __name__ == "__main__":
    main()

"""One-step forecasts of ARFIMA(0, 0.4, 0), a sequence with long memory: (1 - L)^0.4 x_t = e_t.

Run with ``python examples/learning/arfima_forecast.py [--quick] [--seeds 5]``. Models are trained on 1,500 values,
select their learning rate on the next 500, and are tested on 2,000 more. The optimal forecast has a mean square error
of 1, the variance of e. All models trained by gradients use the same number of Adam iterations and the same candidate
learning rates.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from scipy import optimize

from hpfracc.ml import FractionalFilter, FractionalRNN, LearnableOrder

ORDER = 0.4
TRAIN, VALID, TEST = 1500, 500, 2000
RATES = (0.003, 0.01, 0.03)


def generate(seed: int, past: int = 20_000) -> np.ndarray:
    """The sequence, without its first ``past`` values."""
    n = past + TRAIN + VALID + TEST
    noise = np.random.default_rng(seed).standard_normal(n)
    lags = np.arange(1, n)
    weights = np.append(1.0, np.cumprod((lags - 1 + ORDER) / lags))
    size = 2 * n
    return np.fft.irfft(np.fft.rfft(weights, size) * np.fft.rfft(noise, size), size)[past:n]


class Filter(torch.nn.Module):
    """A model with one parameter: the difference of order d is the forecast error."""

    def __init__(self, d: float | None = None) -> None:
        super().__init__()
        self.filter = FractionalFilter(LearnableOrder(0.2, bounds=(0.0, 0.5)) if d is None else d)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Forecast errors."""
        return self.filter(x)


class Recurrent(torch.nn.Module):
    """A recurrent layer and a linear map to the next value."""

    def __init__(self, layer: torch.nn.Module, hidden: int) -> None:
        super().__init__()
        self.layer, self.out = layer, torch.nn.Linear(hidden, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Forecast errors; the forecast of the first value is 0."""
        guess = self.out(self.layer(x)[0][:, :-1])
        return torch.cat([x[:, :1], x[:, 1:] - guess], 1)


def make(name: str) -> torch.nn.Module:
    """A model with initial parameters."""
    if name == "fractional filter":
        return Filter().double()
    if name == "FractionalRNN":
        return Recurrent(FractionalRNN(1, 8), 8).double()
    return Recurrent(torch.nn.LSTM(1, 8, batch_first=True), 8).double()


def trained(name: str, x: np.ndarray, seed: int, iterations: int) -> tuple[float, float, int]:
    """Mean square error on the test values, the order (or nan), and the number of parameters."""
    whole = torch.as_tensor(x)[None, :, None]
    windows = whole[0, :TRAIN].reshape(-1, 250, 1)
    best: tuple[float, float, float] | None = None
    for rate in RATES:
        torch.manual_seed(seed)
        model = make(name)
        optimiser = torch.optim.Adam(model.parameters(), lr=rate)
        for _ in range(iterations):
            optimiser.zero_grad()
            model(windows).square().mean().backward()
            optimiser.step()
        with torch.no_grad():
            errors = model(whole)[0, :, 0].square()
        order = float(model.filter.derivative.order().detach()) if name == "fractional filter" else float("nan")
        found = (errors[TRAIN : TRAIN + VALID].mean().item(), errors[TRAIN + VALID :].mean().item(), order)
        best = found if best is None or found[0] < best[0] else best
    assert best is not None
    return best[1], best[2], sum(each.numel() for each in model.parameters())


def filtered(d: float, x: np.ndarray) -> tuple[float, float, int]:
    """The forecast by the difference of a known order."""
    with torch.no_grad():
        errors = Filter(d)(torch.as_tensor(x)[None, :, None])[0, :, 0].square()
    return errors[TRAIN + VALID :].mean().item(), d, 1


def whittle(x: np.ndarray) -> float:
    """The order that maximises Whittle's likelihood of the values before the test."""
    seen = x[: TRAIN + VALID]
    waves = 2 * np.pi * np.arange(1, (seen.size - 1) // 2 + 1) / seen.size
    power = np.abs(np.fft.rfft(seen)[1 : waves.size + 1]) ** 2
    log = np.log(2 * np.sin(waves / 2))
    found = optimize.minimize_scalar(
        lambda d: np.log(np.mean(power * np.exp(2 * d * log))) - 2 * d * log.mean(), bounds=(0.0, 0.5), method="bounded"
    )
    return float(found.x)


def autoregression(x: np.ndarray, lags: int = 100) -> tuple[float, float, int]:
    """Least squares on the values before the test."""
    rows = np.lib.stride_tricks.sliding_window_view(x, lags + 1)
    seen, rest = rows[: TRAIN + VALID - lags], rows[TRAIN + VALID - lags :]
    weights = np.linalg.lstsq(seen[:, :-1], seen[:, -1], rcond=None)[0]
    return float(np.mean((rest[:, -1] - rest[:, :-1] @ weights) ** 2)), float("nan"), lags


def main() -> None:
    """Fit all models and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one seed and few iterations")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=150)
    arguments = parser.parse_args()
    seeds, iterations = (1, 2) if arguments.quick else (arguments.seeds, arguments.iterations)
    names = ("true order", "Whittle's fit", "fractional filter", "AR(100)", "FractionalRNN", "LSTM")
    rows: dict[str, list[tuple[float, float, int]]] = {name: [] for name in names}
    for seed in range(seeds):
        x = generate(seed)
        rows["true order"].append(filtered(ORDER, x))
        rows["Whittle's fit"].append(filtered(whittle(x), x))
        rows["AR(100)"].append(autoregression(x))
        for name in ("fractional filter", "FractionalRNN", "LSTM"):
            rows[name].append(trained(name, x, seed, iterations))
    print(f"ARFIMA(0, {ORDER}, 0), one step ahead; {seeds} seeds, {iterations} iterations, 3 learning rates each")
    print(f"{'model':<20} {'parameters':>10} {'mean square error':>20} {'vs. the true order':>24} {'d':>18}")
    ideal = np.array([row[0] for row in rows["true order"]])
    for name in names:
        found = np.array([row[:2] for row in rows[name]])
        ratio = found[:, 0] / ideal - 1
        order = f"{found[:, 1].mean():8.3f} +- {found[:, 1].std():.3f}" if np.isfinite(found).all() else "-"
        error = f"{found[:, 0].mean():.4f} +- {found[:, 0].std():.4f}"
        against = f"{ratio.mean():+.2%} +- {ratio.std():.2%}"
        print(f"{name:<20} {rows[name][0][2]:>10} {error:>20} {against:>24} {order:>18}")
    print("Whittle's estimate needs no training and is as accurate. If the model is known, estimate its parameters.")


if __name__ == "__main__":
    main()

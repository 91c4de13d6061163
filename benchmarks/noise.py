"""``smooth_derivative`` and its stream: how often the band of two standard errors holds the derivative.

Run with ``python benchmarks/noise.py [--draws 1000] [--methods spline kalman] [--ends]``. 120 samples at random times
of [0, 2], and for streams 300 at equal steps of [0, 5], of which the first 150 determine the noise; normal noise with a
standard deviation of 0.02. The share of points within the band, on average over points and draws, the share that 19 of
20 draws exceed, and the root mean square of the error over that of the standard error. ``--ends``: curves that are
livelier at one end, and autoregressive noise: 250 samples at equal steps, noise 0.05; the share of the draws with less
than half of the points, and the shares at 5 %, 50 % and 95 % of the interval too.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from typing import Any

import numpy as np
from _common import heading, print_table
from scipy import signal

import hpfracc as hf

Array = np.ndarray[Any, Any]
CURVES = {"1 + sin 3t": lambda t: 1.0 + np.sin(3.0 * t), "exp(-2t)": lambda t: np.exp(-2.0 * t)}
CASES: list[tuple[str, float, Any]] = [("1 + sin 3t", alpha, "estimate") for alpha in (0.5, 1.0, 1.5, 2.0, 2.6, 3.0)]
CASES += [
    ("exp(-2t)", 0.5, "estimate"),
    ("exp(-2t)", 1.5, "estimate"),
    ("1 + sin 3t", 0.5, 0.02),
    ("exp(-2t)", 1.5, 0.02),
]
NOISE, WARMUP = 0.02, 150


#: Curve, end of the interval, correlation of the noise, what is said of it.
ENDS: list[tuple[str, float, float, Any]] = [
    *(("exp(-2t)", end, 0.0, "estimate") for end in (2.0, 5.0, 10.0)),
    ("exp(2t - 10)", 5.0, 0.0, "estimate"),
    ("1/(1 + 2t)", 5.0, 0.0, "estimate"),
    ("1 + sin 3t", 2.0, 0.7, "estimate"),
    *(("1 + sin 3t", 2.0, rho, "ar(1)") for rho in (0.0, 0.7, 0.95)),
]
CURVES |= {"exp(2t - 10)": lambda t: np.exp(2.0 * t - 10.0), "1/(1 + 2t)": lambda t: 1.0 / (1.0 + 2.0 * t)}


def ends(curve: str, end: float, rho: float, noise: Any, alpha: float, draws: int) -> list[str]:
    """One row of the table of ``--ends``."""
    random, t = np.random.default_rng(7), np.linspace(0.0, end, 250)
    clean, truth, inside = CURVES[curve](t), hf.caputo(CURVES[curve], t, alpha), []
    for _ in range(draws):
        errors = random.standard_normal(t.size)
        errors[1:] *= math.sqrt(1.0 - rho**2)
        errors = signal.lfilter([1.0], [1.0, -rho], errors)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", hf.AccuracyWarning)
            found = hf.smooth_derivative(clean + 0.05 * errors, t, alpha, noise=noise)
        inside.append(np.abs(found.value - truth) <= 2.0 * found.standard_error)
    shares, at = np.mean(inside, axis=1), np.mean(inside, axis=0)[[12, 125, 237]]
    numbers = (shares.mean(), np.mean(shares < 0.5), *at)
    return [curve, f"{end:g}", f"{alpha:g}", f"{rho:g}", noise, *(f"{each:.3f}" for each in numbers)]


def streamed(samples: Array, step: float, alpha: float, noise: Any) -> tuple[Array, Array]:
    """Values and standard errors after the first samples."""
    stream = hf.SmoothDerivativeStream(alpha, step, noise=noise, warmup=WARMUP)
    found = np.array([stream.push(each) for each in samples])[WARMUP:]
    return found[:, 0], found[:, 1]


def measure(method: str, curve: str, alpha: float, noise: Any, draws: int) -> list[str]:
    """One row of the table."""
    random = np.random.default_rng(7)
    t = np.linspace(0.0, 5.0, 300) if method == "stream" else np.sort(random.uniform(0.0, 2.0, 120))
    t -= t[0]
    clean, truth = CURVES[curve](t), hf.caputo(CURVES[curve], t, alpha)
    inside, errors, claimed = [], [], []
    begin = time.process_time()
    for _ in range(draws):
        samples = clean + NOISE * random.standard_normal(t.size)
        if method == "stream":
            value, error = streamed(samples, t[1], alpha, noise)
            apart = value - truth[WARMUP:]
        else:
            found = hf.smooth_derivative(samples, t, alpha, noise=noise, method=method)
            apart, error = found.value - truth, found.standard_error
        inside.append(np.mean(np.abs(apart) <= 2.0 * error))
        errors.append(np.mean(apart**2))
        claimed.append(np.mean(error**2))
    took = (time.process_time() - begin) / draws
    ratio = float(np.sqrt(np.mean(errors) / np.mean(claimed)))
    low = float(np.quantile(inside, 0.05))
    shown = "given" if noise == NOISE else "estimated"
    return [
        method,
        curve,
        f"{alpha:g}",
        shown,
        f"{np.mean(inside):.3f}",
        f"{low:.2f}",
        f"{ratio:.2f}",
        f"{1e3 * took:.0f}",
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--methods", nargs="*", default=["tikhonov", "spline", "kalman", "stream"])
    parser.add_argument("--ends", action="store_true")
    given = parser.parse_args()
    if given.ends:
        print(heading(f"smooth_derivative: {given.draws} draws, 250 samples, noise 0.05"))
        rows = [ends(*case, alpha, given.draws) for case in ENDS for alpha in (0.5, 1.5, 2.5)]
        head = ["curve", "end", "alpha", "correlation", "noise=", "within 2", "below half", "at 5 %", "50 %", "95 %"]
        print_table(head, rows)
        return
    print(heading(f"smooth_derivative: {given.draws} draws, noise {NOISE:g}; processor time"))
    head = ["method", "curve", "alpha", "noise", "within 2", "1 in 20", "error/claimed", "ms a draw"]
    rows = [
        measure(method, curve, alpha, noise, given.draws) for method in given.methods for curve, alpha, noise in CASES
    ]
    print_table(head, rows)


if __name__ == "__main__":
    main()

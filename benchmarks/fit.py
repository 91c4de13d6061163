"""``fit_fode``: how often two standard errors hold the true value, for data with 1 % noise.

Run with ``python benchmarks/fit.py [--seeds 100] [--step 0.025]``. Relaxation ``D^0.7 y = -1.5 y`` and absorption of a
dose at 26 times on [0, 5], order, rates and initial value unknown; data from closed forms. ``--linear 20000`` fits
nothing: it takes the closed form of relaxation, linearised at the truth, for as many seeds, and compares how often two
standard errors hold with Student's distribution.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
from _common import heading, print_table, write_json
from scipy import stats

import hpfracc as hf

T = np.linspace(0.0, 5.0, 26)
Array = np.ndarray[Any, Any]


def relaxation(seed: int, options: dict[str, Any]) -> tuple[hf.FODEFit, Array]:
    """Rate, order and initial value."""
    exact = 2.0 * hf.mittag_leffler(-1.5 * T**0.7, 0.7)
    data = exact + 0.02 * np.random.default_rng(seed).standard_normal(T.size)
    fit = hf.fit_fode(lambda t, y, rate: -rate * y, T, data, parameters={"rate": 1.0}, **options)
    return fit, np.array([1.5, 0.7, 2.0])


def pharmacokinetics(seed: int, options: dict[str, Any]) -> tuple[hf.FODEFit, Array]:
    """Two rates, order and dose, from the amounts in gut and blood."""
    gut, blood = (hf.mittag_leffler(-k * T**0.8, 0.8) for k in (1.2, 0.4))
    exact = 10.0 * np.stack([gut, 1.2 / (0.4 - 1.2) * (gut - blood)])
    size = 0.01 * exact.max(axis=1, keepdims=True)
    data = exact + size * np.random.default_rng(seed).standard_normal(exact.shape)

    def absorption(t: float, y: Array, ka: float, ke: float) -> Array:
        return np.array([-ka * y[0], ka * y[0] - ke * y[1]])

    arguments: dict[str, Any] = {"parameters": {"ka": 1.0, "ke": 0.5}, "y0": ["free", 0.0]}
    fit = hf.fit_fode(absorption, T, data, sigma=size, **arguments, **options)
    return fit, np.array([1.2, 0.4, 0.8, 10.0])


def linear(seeds: int) -> None:
    """What chance alone gives: least squares of the linearised closed form, which has no solver and no search."""
    truth = np.array([1.5, 0.7, 2.0])

    def curve(rate: float, alpha: float, start: float) -> Array:
        return np.asarray(start * hf.mittag_leffler(-rate * T**alpha, alpha))

    shifts = 1e-4 * np.diag(truth)
    slopes = np.stack([(curve(*(truth + d)) - curve(*(truth - d))) / (2.0 * d.sum()) for d in shifts], axis=1)
    errors = np.array([0.02 * np.random.default_rng(seed).standard_normal(T.size) for seed in range(seeds)])
    moved = errors @ np.linalg.pinv(slopes).T
    left = errors - moved @ slopes.T
    free = T.size - 3
    spread = np.sqrt(np.sum(left**2, axis=1) / free)
    inside = np.abs(moved) <= 2.0 * spread[:, None] * np.sqrt(np.diag(np.linalg.inv(slopes.T @ slopes)))
    student = 1.0 - 2.0 * stats.t.sf(2.0, free)
    hundreds = inside[: seeds // 100 * 100, 1].reshape(-1, 100).sum(axis=1)
    print(heading(f"relaxation, linearised: how often two standard errors hold; Student's distribution: {student:.4f}"))
    rows = [
        [str(count), *(f"{each:.4f}" for each in inside[:count].mean(axis=0))]
        for count in sorted({min(100, seeds), min(500, seeds), seeds})
    ]
    print_table(["seeds", "rate", "alpha", "y0"], rows)
    chance = stats.binom.cdf(89, 100, student)
    print(
        f"alpha in fewer than 90 of a hundred: {np.sum(hundreds < 90)} of {hundreds.size} hundreds; chance {chance:.3f}"
    )


def main() -> None:
    """Fit, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--step", type=float, help="a fixed step; by default steps adapt to rtol=1e-5")
    parser.add_argument("--linear", type=int, help="seeds of the linearised closed form, in place of fits")
    arguments = parser.parse_args()
    if arguments.linear is not None:
        linear(arguments.linear)
        return
    seeds, step = arguments.seeds, arguments.step
    options = {"rtol": 1e-5} if step is None else {"step": step, "halve": False}
    print(heading(f"fit_fode: {seeds} seeds, 1 % noise, {options}; processor seconds"))
    rows = []
    for case in (relaxation, pharmacokinetics):
        started = time.process_time()
        fits = [case(seed, options) for seed in range(seeds)]
        seconds = (time.process_time() - started) / seeds
        truth = fits[0][1]
        estimates = np.array([fit.estimates for fit, _ in fits])
        errors = np.array([fit.standard_errors for fit, _ in fits])
        inside = (np.abs(estimates - truth) <= 2.0 * errors).mean(axis=0)
        for k, name in enumerate(fits[0][0].names):
            rows.append(
                {
                    "case": case.__name__,
                    "unknown": name,
                    "true": float(truth[k]),
                    "mean": float(estimates[:, k].mean()),
                    "spread": float(estimates[:, k].std(ddof=1)),
                    "mean std. error": float(errors[:, k].mean()),
                    "within 2": float(inside[k]),
                    "s a fit": seconds,
                }
            )
    print_table(
        tuple(rows[0]), [[each if isinstance(each, str) else f"{each:.4g}" for each in row.values()] for row in rows]
    )
    write_json("fit", {"seeds": seeds, "rows": rows})


if __name__ == "__main__":
    main()

"""Estimate the order of subdiffusion, D_t^alpha u = u_xx on [0, pi], from snapshots at two points by ``fit_fode``.

Run with ``python examples/learning/subdiffusion_order.py [--quick] [--seeds 5]``. The data are the closed form sum_k
c_k E_alpha(-k^2 t^alpha) sin(k x) with 1 % noise. The model is a method of lines with unknown order and diffusivity.
The baseline fits the same two parameters to the leading mode alone.
"""

from __future__ import annotations

import argparse

import numpy as np

import hpfracc as hf

ORDER, DIFFUSIVITY = 0.6, 1.0
MODES = (1, 3)
WEIGHTS = (1.0, 0.5)


def exact(t: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The solution, shape (len(x), len(t))."""
    parts = [
        w * np.sin(k * x)[:, None] * np.asarray(hf.mittag_leffler(-DIFFUSIVITY * k**2 * t**ORDER, ORDER))
        for k, w in zip(MODES, WEIGHTS, strict=True)
    ]
    return np.sum(parts, axis=0)


def main() -> None:
    """Fit for several seeds and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one seed and a coarse grid")
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    seeds, points, step = (1, 12, 0.1) if arguments.quick else (arguments.seeds, 40, 0.02)
    x = np.pi * np.arange(1, points) / points
    width = np.pi / points
    t = np.linspace(0.0, 2.0, 21)
    places = [points // 4, points // 2]
    start = sum(w * np.sin(k * x) for k, w in zip(MODES, WEIGHTS, strict=True))

    def lines(t: float, u: np.ndarray, diffusivity: float) -> np.ndarray:
        bent = np.diff(u, 2, prepend=0.0, append=0.0)
        return diffusivity * bent / width**2

    second = np.diff(np.eye(points - 1), 2, axis=0, prepend=0.0, append=0.0) / width**2

    def slopes(t: float, u: np.ndarray, diffusivity: float) -> np.ndarray:
        return diffusivity * second

    def by_diffusivity(t: float, u: np.ndarray, diffusivity: float) -> np.ndarray:
        return (second @ u)[:, None]

    def leading(t: float, u: np.ndarray, diffusivity: float) -> np.ndarray:
        return -diffusivity * u

    rows: dict[str, list[list[float]]] = {"method of lines": [], "leading mode alone": []}
    for seed in range(seeds):
        clean = exact(t, x[places])
        data = clean + 0.01 * np.abs(clean).max() * np.random.default_rng(seed).standard_normal(clean.shape)
        options = {"parameters": {"diffusivity": 0.7}, "step": step, "halve": False}
        fit = hf.fit_fode(
            lines, t, data, y0=start, observe=places, method="implicit_trapezoid", jac=slopes,
            jac_parameters=by_diffusivity, **options,
        )  # fmt: skip
        rows["method of lines"].append([fit.alpha, fit.parameters["diffusivity"]])
        alone = hf.fit_fode(leading, t, data[1], y0="free", **options)
        rows["leading mode alone"].append([alone.alpha, alone.parameters["diffusivity"]])
    print(f"alpha = {ORDER}, diffusivity = {DIFFUSIVITY}, 1 % noise, {seeds} seeds")
    print(f"{'model':<20} {'alpha':>18} {'diffusivity':>18}")
    for name, found in rows.items():
        mean, spread = np.mean(found, axis=0), np.std(found, axis=0)
        print(f"{name:<20} {mean[0]:>9.4f} +- {spread[0]:.4f} {mean[1]:>9.4f} +- {spread[1]:.4f}")
    print(
        "The fit of the leading mode is biased by the other mode. It would be accurate if only that mode were present."
    )


if __name__ == "__main__":
    main()

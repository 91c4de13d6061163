"""Uses an installed hpfracc as a visitor would: one call of each kind, with what is installed beside it."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np

import hpfracc as hf


def main() -> None:
    """Compare one result of each subject with its exact value, and run the command line."""
    t = np.linspace(0.0, 1.0, 401)
    close(hf.caputo(t**2, t, 0.5)[-1], 2.0 / math.gamma(2.5), 1e-5)
    close(hf.caputo(np.sin, 1.0, 0.5), (1j * hf.mittag_leffler(1j, 1.0, 1.5)).imag, 1e-12)
    close(hf.mittag_leffler(-1.0, 0.5), math.exp(1.0) * math.erfc(1.0), 1e-13)
    solution = hf.solve_fode(lambda t, y: -y, (0.0, 5.0), [1.0], alpha=0.6)
    close(solution.y[0, -1], hf.mittag_leffler(-(5.0**0.6), 0.6), 1e-6)
    x = np.linspace(0.0, 1.0, 33)
    start, space = np.sin(np.pi * x), hf.pde.Diffusion(1.0)
    heat = hf.solve_fpde(None, (0.0, 0.1), start, x=x, space=space, boundary="dirichlet", alpha=0.7)
    close(heat.u[-1].max(), hf.mittag_leffler(-(np.pi**2) * 0.1**0.7, 0.7), 1e-2)
    paths = hf.fbm(1_000, 0.3, size=500, rng=1)
    close(np.mean(paths[:, -1] ** 2), 1.0, 0.25)
    s = hf.control.s
    close(abs((1.0 / (s**0.5 + 1.0))(1j)), 1.0 / abs(np.exp(0.25j * np.pi) + 1.0), 1e-12)
    for command in (["info"], ["--version"], ["explain", "--op", "caputo", "--shape", "10000"]):
        subprocess.run([sys.executable, "-m", "hpfracc", *command], check=True, stdout=subprocess.DEVNULL)
    print(f"hpfracc {hf.__version__} with NumPy {np.__version__}: every result is right")


def close(value: complex, exact: complex, tolerance: float) -> None:
    """Raise an error unless the value is within the tolerance."""
    if not abs(value - exact) <= tolerance:
        raise SystemExit(f"{value} is not within {tolerance} of {exact}")


if __name__ == "__main__":
    main()

"""Draws the picture of the README: ``python docs/pictures/make_relaxation.py`` (needs Matplotlib)."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot

import hpfracc as hf

HERE = Path(__file__).parent
ORDERS = (0.3, 0.5, 0.7, 0.9, 1.0)


def main() -> None:
    """Solutions of ``D^alpha y = -y`` as dots on the exact ones, and their errors below."""
    mpl.rcParams["svg.hashsalt"] = "hpfracc"  # the same file every time
    figure, (above, below) = pyplot.subplots(
        2, sharex=True, figsize=(7.5, 4.6), height_ratios=[3, 1.3], layout="constrained"
    )
    colours = mpl.colormaps["viridis"](np.linspace(0.0, 0.85, len(ORDERS)))
    for alpha, colour in zip(ORDERS, colours, strict=True):
        t = np.linspace(0.0, 10.0, 400)
        exact = hf.mittag_leffler(-(t**alpha), alpha)
        above.plot(t, exact, color=colour, label=rf"exact, $\alpha$ = {alpha:g}")
        solution = hf.solve_fode(lambda t, y: -y, (0.0, 10.0), [1.0], alpha, t_eval=t)
        above.plot(t[::20], solution.y[0, ::20], "o", color=colour, markersize=3.5)
        below.semilogy(t[1:], np.abs(solution.y[0] - exact)[1:], color=colour, linewidth=1.0)
    above.set(ylabel="y", title="$D^{\\alpha} y = -y$, y(0) = 1: solve_fode (dots) on the exact solution")
    above.legend(frameon=False, fontsize=8)
    below.set(xlabel="t", ylabel="error", ylim=(1e-11, 1e-5))
    below.axhline(1e-6, color="grey", linestyle=":", linewidth=1.0)
    below.text(10.0, 1.3e-6, "rtol", color="grey", ha="right", fontsize=8)
    for axes in (above, below):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(HERE / "relaxation.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()

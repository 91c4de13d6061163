"""Noise with memory and anomalous transport: paths, laws against closed forms, and first passage."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import special

from hpfracc.cli.demo.blocks import Block, Cell, Chapter, Code, Figures, Heading, TableBlock, Words
from hpfracc.cli.demo.chapters import DemoContext
from hpfracc.cli.demo.chart import Chart, ChartLine
from hpfracc.profiling.formats import format_seconds
from hpfracc.solvers.sde.noise import Brownian, StableLevy, Subordinated
from hpfracc.solvers.sde.noise.estimation import hurst
from hpfracc.solvers.sde.noise.fractional_brownian import fbm
from hpfracc.solvers.sde.transport import (
    ContinuousTimeRandomWalk,
    GaussianJumps,
    MittagLefflerWaiting,
    first_passage,
    msd,
)

__all__ = ["build"]

Array = np.ndarray[Any, Any]

_POINTS, _QUICK_POINTS = 1_000_000, 100_000
_PATHS, _QUICK_PATHS = 100_000, 10_000
_WALKS, _QUICK_WALKS = 5_000, 1_000
#: Hurst indices of the paths that are drawn, and orders of the walks.
_INDICES = (0.2, 0.5, 0.8)
_ORDERS = (0.4, 0.7, 1.0)
_KINDS = ("order8", "order4", "order0")
_DRAWN = 400
#: u(1, 1) of the half-line: D^(1/2) u = u_xx, u = 0 at first, u(0, t) = 1.
_HALF_LINE = 0.4214253280337984


def build(context: DemoContext) -> Chapter:
    """Draw paths, compare laws with closed forms, and time them."""
    points = _QUICK_POINTS if context.quick else _POINTS
    paths = _QUICK_PATHS if context.quick else _PATHS
    context.report(0.0, "noise: fractional Brownian motion")
    motion = _motion(points)
    context.report(0.3, "noise: random walks")
    walks = _walks(_QUICK_WALKS if context.quick else _WALKS)
    context.report(0.7, "noise: first passage")
    checks = _checks(paths)
    worst = max(abs(row["off"]) for row in checks)
    low, high = motion["interval"]
    blocks: list[Block] = [
        Words(
            (
                "The increments of fractional Brownian motion are correlated over all times. Paths are sampled from "
                "the exact distribution with Fourier transforms. A path depends only on the seed and its number; the "
                "batch size, the threads and the machine change it by rounding at most.",
            )
        ),
        Figures(
            (
                (format_seconds(motion["seconds"]), f"for one path of {points:,} points"),
                (f"{motion['H']:.4f}", f"estimate of H = 0.3; 95 % interval {low:.4f} to {high:.4f}"),
                (
                    f"{worst:.1f}",
                    f"standard errors: largest deviation from the closed forms below, with {paths:,} paths each",
                ),
            )
        ),
        Code(f"path = hf.fbm({points}, 0.3, rng=1)\nhf.hurst(path[:4097]).interval"),
        Heading("Hurst index", "Increments are negatively correlated below H = 1/2 and positively correlated above."),
        _paths_chart(),
        Heading(
            "Continuous-time random walks",
            "Waiting times with infinite mean make a walk spread more slowly. With Mittag-Leffler waiting times the "
            "mean squared displacement is 2 t^alpha / Gamma(1 + alpha).",
        ),
        _spread_chart(walks),
        TableBlock(
            "Exponents of the mean squared displacement",
            (">alpha", ">estimate", ">95 % interval", ">largest error of the displacement"),
            [
                [
                    Cell(f"{order:g}"),
                    Cell(f"{found.exponent:.3f}"),
                    Cell(f"{found.interval[0]:.3f} to {found.interval[1]:.3f}"),
                    Cell(f"{np.abs(found.value / _spread(found.lags, order) - 1.0).max():.1%}"),
                ]
                for order, found in walks
            ],
        ),
        Heading("First passage", "Probability that a path from 1 has not reached 0: Brownian motion and subdiffusion."),
        _survival_chart(paths),
        TableBlock(
            "Simulated and exact",
            ("quantity", ">simulated", ">standard error", ">exact", ">deviation / error"),
            [
                [
                    Cell(row["what"]),
                    Cell(f"{row['value']:.4f}"),
                    Cell(f"{row['error']:.4f}"),
                    Cell(f"{row['exact']:.4f}"),
                    Cell(f"{row['off']:+.1f}"),
                ]
                for row in checks
            ],
        ),
    ]
    data = {"motion": motion, "checks": checks, "exponents": {str(each[0]): each[1].exponent for each in walks}}
    return Chapter("noise", "Fractional Brownian motion and random walks", blocks, data)


def _motion(points: int) -> dict[str, Any]:
    path = fbm(points, 0.3, rng=1)
    seconds = math.inf
    for seed in range(3):
        begin = time.perf_counter()
        fbm(points, 0.3, rng=seed)
        seconds = min(seconds, time.perf_counter() - begin)
    found = hurst(path[:4097])
    return {
        "points": points,
        "seconds": seconds,
        "H": float(found.H),
        "interval": [float(end) for end in found.interval],
    }


def _walks(count: int) -> list[tuple[float, Any]]:
    times = np.append(0.0, np.geomspace(0.1, 100.0, 13))
    found = []
    for order in _ORDERS:
        walk = ContinuousTimeRandomWalk(MittagLefflerWaiting(order), GaussianJumps(math.sqrt(2.0)))
        found.append((order, msd(walk.sample(times, count, rng=1), times)))
    return found


def _spread(times: Array, order: float) -> Array:
    return np.asarray(2.0 * times**order / math.gamma(1.0 + order))


def _checks(paths: int) -> list[dict[str, Any]]:
    """First passages against their closed forms."""
    interval = (-1.0, 1.0)
    flight = first_passage(StableLevy(1.5), interval, start=0.5, paths=paths, rng=1)
    slow = first_passage(Subordinated(StableLevy(2.0), 0.5), (0.0, math.inf), start=1.0, paths=paths, rng=2)
    plain = first_passage(Brownian(), interval, start=0.5, paths=paths, rng=3)
    rows = [
        ("Lévy flight, alpha = 1.5, mean exit time", flight.mean(), 0.75**0.75 / math.gamma(2.5)),
        (
            "Lévy flight, alpha = 1.5, exit on the right",
            flight.exit_probability(),
            float(special.betainc(0.75, 0.75, 0.75)),
        ),
        ("Subdiffusion, survival on the half-line", slow.survival(1.0), 1.0 - _HALF_LINE),
        ("Brownian motion, mean exit time", plain.mean(), 0.75),
    ]
    return [
        {
            "what": what,
            "value": float(found.value),
            "error": float(found.standard_error),
            "exact": exact,
            "off": float((found.value - exact) / found.standard_error),
        }
        for what, found, exact in rows
    ]


def _line(name: str, kind: str, xs: Array, ys: Array) -> ChartLine:
    return ChartLine(name, kind, [(float(x), float(y), "") for x, y in zip(xs, ys, strict=True)])


def _powers(low: int, high: int) -> Sequence[tuple[float, str]]:
    return [(10.0**k, f"{10.0**k:g}") for k in range(low, high + 1)]


def _paths_chart() -> Chart:
    times = np.linspace(0.0, 1.0, _DRAWN + 1)
    lines = [
        _line(f"H = {index:g}", kind, times, fbm(_DRAWN, index, rng=8))
        for index, kind in zip(_INDICES, _KINDS, strict=True)
    ]
    values = [y for line in lines for _, y, _ in line.points]
    low, high = math.floor(2.0 * min(values)), math.ceil(2.0 * max(values))
    return Chart(
        title="Fractional Brownian motion with H = 0.2, 0.5 and 0.8",
        description="From the same random numbers: the smaller H, the rougher the path.",
        x_name="t",
        y_name="value",
        lines=lines,
        x_ticks=[(0.25 * k, f"{0.25 * k:g}") for k in range(5)],
        y_ticks=[(0.5 * k, f"{0.5 * k:g}") for k in range(low, high + 1)],
        linear=True,
        dots=False,
    )


def _spread_chart(walks: list[tuple[float, Any]]) -> Chart:
    lines = []
    for (order, found), kind in zip(walks, _KINDS, strict=True):
        exact = _spread(found.lags, order)
        points = [
            (float(t), float(value), f"t = {t:.3g}: {value:.3g} simulated, {known:.3g} exact")
            for t, value, known in zip(found.lags, found.value, exact, strict=True)
        ]
        lines.append(ChartLine(f"alpha = {order:g}", kind, points))
    return Chart(
        title="Mean squared displacement of walks with alpha = 0.4, 0.7 and 1",
        description="Straight lines of slope alpha on logarithmic axes.",
        x_name="t",
        y_name="mean squared displacement",
        lines=lines,
        x_ticks=_powers(-1, 2),
        y_ticks=_powers(-1, 3),
    )


def _survival_chart(paths: int) -> Chart:
    times = np.geomspace(0.1, 1e4, 60)
    lines = []
    for name, kind, process in (
        ("Brownian", "order0", StableLevy(2.0)),
        ("alpha = 0.7", "order4", Subordinated(StableLevy(2.0), 0.7)),
        ("alpha = 0.4", "order8", Subordinated(StableLevy(2.0), 0.4)),
    ):
        found = first_passage(process, (0.0, math.inf), start=1.0, paths=paths, rng=5)
        lines.append(_line(name, kind, times, np.asarray(found.survival(times).value)))
    return Chart(
        title="Probability of not having reached the boundary",
        description="Power laws: t^(-1/2) for Brownian motion, t^(-alpha/2) for subdiffusion.",
        x_name="t",
        y_name="survival probability",
        lines=lines,
        x_ticks=_powers(-1, 4),
        y_ticks=_powers(-3, 0),
        dots=False,
    )

"""Partial equations I: plumes that wait and plumes that jump, against exact solutions."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from hpfracc.cli.demo.blocks import Block, Chapter, Code, Figures, Heading, Words
from hpfracc.cli.demo.chapters import DemoContext
from hpfracc.cli.demo.chart import Chart, ChartLine
from hpfracc.cli.demo.picture import Picture, coloured, png
from hpfracc.profiling.formats import format_seconds
from hpfracc.solvers.pde.problems import breakthrough, column, plume
from hpfracc.solvers.pde.solve import solve_fpde
from hpfracc.solvers.pde.terms import Advection, Diffusion

__all__ = ["build"]

Array = np.ndarray[Any, Any]

_ORDER, _VELOCITY, _DISPERSION, _WIDTH, _START = 1.6, 1.0, 0.1, 0.3, 3.0
_DETECTOR, _END = 9.0, 10.0
_TIMES = (1.0, 3.0, 5.0, 8.0)
#: Points and steps.
_SIZE, _QUICK_SIZE = (1601, 1000), (401, 200)


def build(context: DemoContext) -> Chapter:
    """Solve a column with jumps and a line with waiting times, and compare with exact solutions."""
    points, steps = _QUICK_SIZE if context.quick else _SIZE
    context.report(0.1, "plumes: a column")
    found = _column(points, steps)
    context.report(0.6, "plumes: waiting particles")
    waiting = _waiting(96 if context.quick else 192)
    blocks: list[Block] = [
        Words(
            (
                "A tracer in a river or in sediment does not spread like ink in still water. Some particles are swept "
                "far ahead: a derivative of order 1.6 in space, which sums over everything upstream. Others are held "
                "back: a derivative of order 0.5 in time, which sums over the whole past. Both are one call.",
            )
        ),
        Figures(
            (
                (f"{found['error']:.0e}", f"is the largest error of the column on {points:,} points"),
                (f"{waiting['error']:.0e}", "is the largest error of the line, which is solved by its waves"),
                (format_seconds(found["seconds"]), f"is the time of {steps:,} steps with all jumps"),
            )
        ),
        Code(
            "from hpfracc.pde import Advection, OneSided\n"
            f"space = OneSided({_ORDER:g}, 'left', {_DISPERSION:g}) + Advection({_VELOCITY:g})\n"
            "result = hf.solve_fpde(None, (0, 10), pulse, x=x, space=space, boundary='dirichlet', step=0.01)"
        ),
        Heading("Particles that jump", "The plume has a long leading edge, which falls like a power."),
        _profiles(found),
        Heading(
            "Breakthrough", f"What a detector at x = {_DETECTOR:g} sees: with jumps the first particles are early."
        ),
        _curves(found),
        Heading(
            "Particles that wait",
            "Time runs down; the pulse spreads like a cloud of ink on the left, and hardly "
            "leaves its place on the right.",
        ),
        waiting["picture"],
    ]
    data = {key: found[key] for key in ("error", "seconds", "points", "steps")}
    return Chapter("plumes", "Plumes that remember", blocks, {"column": data, "waiting": {"error": waiting["error"]}})


def _column(points: int, steps: int) -> dict[str, Any]:
    equation = column(_ORDER, _VELOCITY, _DISPERSION, points=points, width=_WIDTH, start=_START, t_end=_END)
    begin = time.perf_counter()
    jumps = equation.solve(step=_END / steps)
    seconds = time.perf_counter() - begin
    classical = solve_fpde(
        None,
        (0.0, _END),
        equation.u0,
        x=equation.x,
        space=Diffusion(_DISPERSION) + Advection(_VELOCITY),
        boundary="dirichlet",
        step=_END / steps,
    )
    inside = equation.x < 14.0
    places = [int(np.argmin(np.abs(jumps.t - t))) for t in _TIMES]
    errors = [float(np.abs(jumps.u[place] - equation.exact(float(jumps.t[place])))[inside].max()) for place in places]
    return {
        "x": equation.x,
        "t": np.asarray(jumps.t),
        "profiles": {t: np.asarray(jumps.u[place]) for t, place in zip(_TIMES, places, strict=True)},
        "curves": {
            "1.6": breakthrough(equation.x, jumps.u, _DETECTOR),
            "2": breakthrough(equation.x, classical.u, _DETECTOR),
        },
        "exact": plume(np.asarray(jumps.t), _DETECTOR - _START, _ORDER, _VELOCITY, _DISPERSION, _WIDTH),
        "error": max(errors),
        "seconds": seconds,
        "points": points,
        "steps": steps,
    }


def _line(name: str, kind: str, xs: Array, ys: Array) -> ChartLine:
    every = max(1, len(xs) // 300)
    pairs = zip(xs[::every].tolist(), ys[::every].tolist(), strict=True)
    return ChartLine(name, kind, [(x, y, "") for x, y in pairs])


def _profiles(found: dict[str, Any]) -> Chart:
    lines = [
        _line(f"t = {t:g}", f"order{2 * number}", found["x"], profile)
        for number, (t, profile) in enumerate(found["profiles"].items())
    ]
    return Chart(
        title="Concentration along the column at four times",
        description="The pulse moves to the right and spreads, with a long tail ahead of it.",
        x_name="x",
        y_name="concentration",
        lines=lines,
        x_ticks=[(5.0 * k, f"{5 * k}") for k in range(5)],
        y_ticks=[(0.25 * k, f"{0.25 * k:g}") for k in range(5)],
        linear=True,
        dots=False,
    )


def _curves(found: dict[str, Any]) -> Chart:
    t = found["t"]
    lines = [
        _line("order 2", "order0", t, found["curves"]["2"]),
        _line("order 1.6", "order8", t, found["curves"]["1.6"]),
    ]
    top = max(float(curve.max()) for curve in found["curves"].values())
    return Chart(
        title="Breakthrough curves of order 1.6 and 2",
        description="The curve of order 1.6 begins to rise earlier, and its peak is later and narrower.",
        x_name="t",
        y_name="concentration at the detector",
        lines=lines,
        x_ticks=[(2.0 * k, f"{2 * k}") for k in range(6)],
        y_ticks=[(0.1 * k, f"{0.1 * k:.1f}") for k in range(int(top / 0.1) + 2)],
        linear=True,
        dots=False,
    )


def _waiting(points: int) -> dict[str, Any]:
    """A pulse on a circle of length 20, of order 1 and 0.5 in time: rows are times, columns positions."""
    x = 20.0 / points * np.arange(points)
    pulse = np.exp(-((x - 10.0) ** 2) / 0.5)
    times = np.linspace(0.0, 4.0, 97)
    panels, error = [], 0.0
    for alpha in (1.0, 0.5):
        result = solve_fpde(
            None, (0.0, 4.0), pulse, x=x, space=Diffusion(1.0), boundary="periodic", alpha=alpha, t_eval=times[1:]
        )
        rows = np.concatenate([pulse[None], np.asarray(result.u)[-96:]])
        panels += [rows, np.full((97, 6), np.nan)]
        if alpha == 1.0:
            exact = np.exp(-((x - 10.0) ** 2) / (0.5 + 16.0)) * np.sqrt(0.5 / (0.5 + 16.0))
            for image in (-20.0, 20.0):
                exact = exact + np.exp(-((x - 10.0 - image) ** 2) / (0.5 + 16.0)) * np.sqrt(0.5 / 16.5)
            error = float(np.abs(rows[-1] - exact).max())
    both = np.sqrt(np.clip(np.concatenate(panels[:-1], axis=1), 0.0, None))  # so that low values can be seen
    drawn = coloured(both, np.zeros(both.shape, bool))
    picture = Picture(png(drawn, 3 if points < 128 else 2), "Diffusion of order 1 (left) and 0.5 (right) in time.")
    return {"picture": picture, "error": error}

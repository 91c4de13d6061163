"""Fractional differential equations: errors against exact solutions, and the time of many steps."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from hpfracc.cli.demo.blocks import Block, Cell, Chapter, Code, Figures, Heading, TableBlock, Words
from hpfracc.cli.demo.chapters import DemoContext
from hpfracc.cli.demo.chart import Chart, ChartLine
from hpfracc.profiling.formats import format_seconds
from hpfracc.solvers.ode import solve_fode
from hpfracc.special import mittag_leffler

__all__ = ["build", "relaxation_chart"]

Array = np.ndarray[Any, Any]

_ALPHA, _END = 0.6, 10.0
_ORDERS = (0.3, 0.5, 0.7, 0.9, 1.0)
_TOLERANCES = (1e-3, 1e-6, 1e-9)
_STEPS = (1_000, 10_000, 100_000, 1_000_000)
_QUICK_STEPS = (1_000, 10_000)
#: Orders of the Brusselator. The eigenvalues at its equilibrium have argument pi/3, so it is stable below order 2/3
#: (Matignon 1996).
_CYCLES = (0.6, 0.8, 1.0)
_LAST = 30.0


def build(context: DemoContext) -> Chapter:
    """Solve equations, compare with exact solutions, and time many steps."""
    context.report(0.0, "equations: tolerances")
    tolerances = [_to_tolerance(rtol) for rtol in _TOLERANCES]
    context.report(0.3, "equations: the Brusselator")
    cycles = _cycles()
    counts = _QUICK_STEPS if context.quick else _STEPS
    steps = []
    for number, count in enumerate(counts):
        context.report(0.5 + 0.5 * number / len(counts), f"equations: {count:,} steps")
        steps.append(_many_steps(count))
    middle, longest = tolerances[1], steps[-1]
    blocks: list[Block] = [
        Words(
            (
                "In y' = -y the rate of change depends only on the present value. In D^alpha y = -y, with an order "
                "alpha below 1, it depends on the whole past. With y(0) = 1 the exact solution is a Mittag-Leffler "
                "function, and the errors below are differences from it.",
            )
        ),
        Figures(
            (
                (f"{middle['error']:.0e}", f"largest error at rtol = {middle['rtol']:g}"),
                (f"{middle['estimate']:.0e}", "error estimate of the solver"),
                (format_seconds(longest["seconds"]), f"for {longest['steps']:,} steps with full memory"),
            )
        ),
        Code(
            f"solution = hf.solve_fode(lambda t, y: -y, (0, {_END:g}), [1.0], alpha={_ALPHA:g})\n"
            f"exact = hf.mittag_leffler(-(solution.t**{_ALPHA:g}), {_ALPHA:g})"
        ),
        Heading("Relaxation", "Fast at first, then slow: the lower the order, the slower the decay at late times."),
        relaxation_chart(),
        TableBlock(
            f"D^{_ALPHA:g} y = -y on [0, {_END:g}]: error and tolerance",
            (">rtol", ">largest error", ">estimate", ">steps", ">evaluations", ">time"),
            [
                [
                    Cell(f"{row['rtol']:.0e}"),
                    Cell(f"{row['error']:.1e}"),
                    Cell(f"{row['estimate']:.1e}"),
                    Cell(f"{row['steps']:,}"),
                    Cell(f"{row['evaluations']:,}"),
                    Cell(format_seconds(row["seconds"])),
                ]
                for row in tolerances
            ],
        ),
        Heading(
            "The Brusselator",
            "A chemical oscillator. It oscillates at orders above 2/3 and approaches equilibrium at lower orders.",
        ),
        _clock(cycles),
        Heading("Many steps", "Each step depends on all earlier ones. With sums by FFT, n steps cost O(n log² n)."),
        TableBlock(
            "The Brusselator of order 0.8 by the predictor-corrector method, including compilation",
            (">steps", ">time", ">per step"),
            [
                [
                    Cell(f"{row['steps']:,}"),
                    Cell(format_seconds(row["seconds"])),
                    Cell(format_seconds(row["seconds"] / row["steps"])),
                ]
                for row in steps
            ],
        ),
    ]
    data = {"alpha": _ALPHA, "tolerances": tolerances, "steps": steps, "orders_of_the_clock": list(_CYCLES)}
    return Chapter("equations", "Fractional differential equations", blocks, data)


def _decay(t: float, y: Array) -> Array:
    return -y


def _brusselator(t: float, y: Array) -> Array:
    return np.array([1.0 - 4.0 * y[0] + y[0] ** 2 * y[1], 3.0 * y[0] - y[0] ** 2 * y[1]])


def _exact(t: Array, alpha: float) -> Array:
    return np.asarray(mittag_leffler(-(t**alpha), alpha))


def _to_tolerance(rtol: float) -> dict[str, Any]:
    begin = time.perf_counter()
    solution = solve_fode(_decay, (0.0, _END), [1.0], _ALPHA, rtol=rtol, atol=1e-3 * rtol)
    seconds = time.perf_counter() - begin
    error = float(np.abs(solution.y[0] - _exact(solution.t, _ALPHA)).max())
    estimate = float(np.max(solution.error_estimate))
    return {
        "rtol": rtol,
        "error": error,
        "estimate": estimate,
        "steps": len(solution.t) - 1,
        "evaluations": int(solution.nfev),
        "seconds": seconds,
    }


def _many_steps(count: int) -> dict[str, Any]:
    begin = time.perf_counter()
    solution = solve_fode(_brusselator, (0.0, 50.0), [1.2, 2.8], 0.8, step=50.0 / count, method="pece")
    return {"steps": count, "seconds": time.perf_counter() - begin, "success": bool(solution.success)}


def _cycles() -> dict[float, Array]:
    times = np.linspace(0.0, _LAST, 400)
    return {
        alpha: np.asarray(solve_fode(_brusselator, (0.0, _LAST), [1.2, 2.8], alpha, rtol=1e-5, t_eval=times).y[0])
        for alpha in _CYCLES
    }


def _curve(name: str, kind: str, xs: Array, ys: Array) -> ChartLine:
    return ChartLine(name, kind, [(float(x), float(y), "") for x, y in zip(xs, ys, strict=True)])


def _ticks(low: float, high: float, step: float) -> Sequence[tuple[float, str]]:
    return [(step * k, f"{step * k:g}") for k in range(math.floor(low / step), math.ceil(high / step) + 1)]


def relaxation_chart() -> Chart:
    """Solutions of ``D^alpha y = -y`` for several orders."""
    times = np.linspace(0.0, _END, 200)
    lines = []
    for number, alpha in enumerate(_ORDERS):
        solution = solve_fode(_decay, (0.0, _END), [1.0], alpha, t_eval=times)
        lines.append(_curve(f"{alpha:g}", f"order{2 * number}", times, solution.y[0]))
    return Chart(
        title="Relaxation of order 0.3 to 1",
        description="All start at 1. The lower the order, the steeper the start and the higher the end.",
        x_name="t",
        y_name="y(t), labelled by alpha",
        lines=lines,
        x_ticks=_ticks(0.0, _END, 2.0),
        y_ticks=_ticks(0.0, 1.0, 0.25),
        linear=True,
        dots=False,
    )


def _clock(cycles: dict[float, Array]) -> Chart:
    times = np.linspace(0.0, _LAST, 400)
    lines = [
        _curve(f"{alpha:g}", kind, times, values)
        for (alpha, values), kind in zip(cycles.items(), ("order0", "order4", "order8"), strict=True)
    ]
    return Chart(
        title="The Brusselator at orders 0.6, 0.8 and 1",
        description="Order 1 has the largest amplitude, order 0.8 a smaller one; order 0.6 approaches equilibrium.",
        x_name="t",
        y_name="first concentration, labelled by alpha",
        lines=lines,
        x_ticks=_ticks(0.0, _LAST, 5.0),
        y_ticks=_ticks(0.0, max(float(values.max()) for values in cycles.values()), 1.0),
        linear=True,
        dots=False,
    )

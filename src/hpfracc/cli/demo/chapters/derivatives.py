"""Half-derivatives of a signal, their errors against the exact result, and derivatives of orders 0 to 2."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

from hpfracc.cli.demo.blocks import Block, Cell, Chapter, Code, Figures, Heading, TableBlock, Words
from hpfracc.cli.demo.chapters import DemoContext
from hpfracc.cli.demo.chart import Chart, ChartLine
from hpfracc.operators._caputo import caputo
from hpfracc.operators._grunwald_letnikov import grunwald_letnikov
from hpfracc.profiling.formats import format_seconds
from hpfracc.special import mittag_leffler

__all__ = ["build"]

Array = np.ndarray[Any, Any]

#: The signal is a damped oscillation, such as the strain of a struck beam: ``Im exp(_RATE t)`` on [0, _END].
_RATE = complex(-0.35, 3.0)
_END = 8.0
_ALPHA = 0.5
_SIZES = (50, 100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600)
_QUICK_SIZES = (50, 200, 800, 3_200, 12_800)
#: Name, method, CSS class of the line, and theoretical order of accuracy.
_METHODS = (
    ("Grünwald-Letnikov", "gl", "plain", 1.0),
    ("Caputo L1", "l1", "numba", 2.0 - _ALPHA),
    ("Caputo L1-2", "l1-2", "auto", 3.0 - _ALPHA),
)
_ORDERS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0)
_SHAPE_POINTS = 240


def build(context: DemoContext) -> Chapter:
    """Differentiate a signal, compare with the exact result, and draw."""
    sizes = _QUICK_SIZES if context.quick else _SIZES
    rows: list[dict[str, Any]] = []
    for number, n in enumerate(sizes):
        context.report(number / (len(sizes) + 1), f"{n:,} points")
        rows.append({"points": n, **{name: _one(n, method) for name, method, _, _ in _METHODS}})
    context.report(len(sizes) / (len(sizes) + 1), "a callable")
    callable_error, evaluations, seconds = _from_callable()
    finest = rows[-1]
    observed = {name: _slope(rows, name) for name, *_ in _METHODS}
    blocks: list[Block] = [
        Words(
            (
                "Two half-derivatives make one derivative. The signal is a damped oscillation. Its half-derivative is "
                "a Mittag-Leffler function of a complex argument, so the errors below are exact, not estimates.",
                f"`hf.caputo(samples, t, {_ALPHA})` takes and returns samples, in the time of a few fast Fourier "
                "transforms.",
            )
        ),
        Figures(
            (
                (
                    f"{finest['Caputo L1-2']['error']:.0e}",
                    f"largest error of the default method at {finest['points']:,} samples, relative to the maximum",
                ),
                (
                    format_seconds(finest["Caputo L1-2"]["seconds"]),
                    f"for all {finest['points']:,} values",
                ),
                (f"{callable_error:.0e}", f"error for a callable instead of samples: {evaluations}"),
            )
        ),
        Heading("A signal and its half-derivative"),
        _shape(),
        Heading(
            "Error against the number of samples",
            "Both axes are logarithmic; a method of order p is a straight line of slope -p.",
        ),
        _errors(rows),
        TableBlock(
            "Largest error relative to the largest value, and the observed order at the finest grids",
            ("samples", *(f">{name}" for name, *_ in _METHODS)),
            [
                [Cell(f"{row['points']:,}"), *(Cell(f"{row[name]['error']:.1e}") for name, *_ in _METHODS)]
                for row in rows
            ],
            [
                Cell("observed order"),
                *(Cell(f"{observed[name]:.2f}", f"theory: {theory:g}") for name, _, _, theory in _METHODS),
            ],
        ),
        Heading(
            "Intermediate orders",
            "Caputo derivatives of orders 0, 1/4, ..., 2. As the order decreases to 1, the derivative tends to "
            "f'(t) - f'(0), not to f'(t), so the curve of order 1.25 is far from that of order 1.",
        ),
        _family(),
        Code("for alpha in np.linspace(0, 2, 9):\n    plt.plot(t, hf.caputo(signal, t, alpha))"),
    ]
    data = {
        "signal": "exp(-0.35 t) sin(3 t)",
        "alpha": _ALPHA,
        "rows": rows,
        "orders": observed,
        "callable": {"error": callable_error, "seconds": seconds},
    }
    return Chapter("derivatives", "Derivatives of any order", blocks, data)


def _signal(t: Array) -> Array:
    return np.asarray(np.exp(_RATE.real * t) * np.sin(_RATE.imag * t))


def _exact(t: Array, alpha: float = _ALPHA) -> Array:
    """Caputo derivative ``Im [ rate^n t^(n-alpha) E_{1, n+1-alpha}(rate t) ]`` with n = ceil(alpha)."""
    n = math.ceil(alpha)
    values = _RATE**n * t ** (n - alpha) * mittag_leffler(_RATE * t, 1.0, n + 1.0 - alpha)
    return np.asarray(values).imag


def _one(n: int, method: str) -> dict[str, float]:
    """Error and time of a method with n samples, without the first tenth of the interval."""
    t = np.linspace(0.0, _END, n)
    samples, exact = _signal(t), _exact(t)

    def run() -> Array:
        found = grunwald_letnikov(samples, t, _ALPHA) if method == "gl" else caputo(samples, t, _ALPHA, method=method)
        return np.asarray(found)

    value = run()
    took = []
    for _ in range(5):
        begin = time.perf_counter()
        value = run()
        took.append(time.perf_counter() - begin)
    # Orders of accuracy hold at a fixed time after the start.
    late = slice(n // 10, None)
    error = float(np.max(np.abs(value[late] - exact[late])) / np.max(np.abs(exact)))
    return {"error": error, "seconds": min(took)}


def _slope(rows: list[dict[str, Any]], name: str) -> float:
    """Observed order from the last rows."""
    first, last = rows[-3], rows[-1]
    return math.log(first[name]["error"] / last[name]["error"]) / math.log(last["points"] / first["points"])


def _from_callable() -> tuple[float, str, float]:
    calls = []

    def f(t: Array) -> Array:
        calls.append(t.size)
        return _signal(t)

    t = np.linspace(0.0, _END, 200)
    begin = time.perf_counter()
    found = caputo(f, t, _ALPHA)
    seconds = time.perf_counter() - begin
    exact = _exact(t)
    error = float(np.max(np.abs(found - exact)) / np.max(np.abs(exact)))
    return error, f"{sum(calls):,} evaluations, {format_seconds(seconds)}", seconds


def _curve(name: str, kind: str, t: Array, values: Array) -> ChartLine:
    return ChartLine(name, kind, [(float(x), float(y), "") for x, y in zip(t, values, strict=True)])


def _chart(title: str, description: str, lines: list[ChartLine], low: float, high: float) -> Chart:
    step = 1.0 if high - low <= 6.0 else 2.0
    levels = [step * k for k in range(math.floor(low / step), math.ceil(high / step) + 1)]
    return Chart(
        title=title,
        description=description,
        x_name="time",
        y_name="value",
        lines=lines,
        x_ticks=[(float(x), f"{x:g}") for x in np.arange(0.0, _END + 1.0, 2.0)],
        y_ticks=[(y, f"{y:g}") for y in levels],
        linear=True,
        dots=False,
    )


def _shape() -> Chart:
    t = np.linspace(0.0, _END, _SHAPE_POINTS)
    signal, half, whole = _signal(t), caputo(_signal(t), t, _ALPHA), caputo(_signal(t), t, 1.0)
    lines = [
        _curve("signal", "numpy", t, signal),
        _curve("derivative", "plain", t, np.asarray(whole)),
        _curve("half", "auto", t, np.asarray(half)),
    ]
    return _chart(
        "A damped oscillation, its half-derivative and its derivative",
        "The half-derivative leads the signal by an eighth of a period and lies between it and the derivative.",
        lines,
        min(float(np.min(half)), float(np.min(whole))),
        max(float(np.max(half)), float(np.max(whole))),
    )


def _errors(rows: list[dict[str, Any]]) -> Chart:
    lines = []
    for name, _, kind, _ in _METHODS:
        points = [
            (float(row["points"]), row[name]["error"], f"{name}, {row['points']:,} samples: {row[name]['error']:.1e}")
            for row in rows
        ]
        lines.append(ChartLine(name.replace("Caputo ", "").replace("Grünwald-Letnikov", "GL"), kind, points))
    errors = [y for line in lines for _, y, _ in line.points]
    low, high = math.floor(math.log10(min(errors))), math.ceil(math.log10(max(errors)))
    step = 1 + (high - low) // 9
    low = high - step * math.ceil((high - low) / step)
    return Chart(
        title="Error of a half-derivative against the number of samples",
        description=" ".join(f"{name}: {rows[-1][name]['error']:.1e} at most samples." for name, *_ in _METHODS),
        x_name="samples",
        y_name="largest relative error",
        lines=lines,
        x_ticks=[(10.0, "10"), (100.0, "100"), (1e3, "1k"), (1e4, "10k"), (1e5, "100k")],
        y_ticks=[(10.0**power, f"1e{power}") for power in range(low, high + 1, step)],
    )


def _family() -> Chart:
    t = np.linspace(0.0, _END, _SHAPE_POINTS)
    lines, values = [], []
    for number, alpha in enumerate(_ORDERS):
        row = np.asarray(caputo(_signal, t, alpha)) if alpha else _signal(t)
        lines.append(_curve(f"{alpha:g}", f"order{number}", t, row))
        values.append(row)
    return _chart(
        "Derivatives of order 0 to 2 of a damped oscillation",
        "From the signal (order 0) to its derivative (order 1) and second derivative (order 2), in steps of 1/4.",
        lines,
        float(np.min(values)),
        float(np.max(values)),
    )

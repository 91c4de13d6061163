"""Fitting an equation to data: order, rates and dose of a fractional model, with their uncertainty."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from hpfracc.cli.demo.blocks import Block, Cell, Chapter, Code, Figures, Heading, TableBlock, Words
from hpfracc.cli.demo.chapters import DemoContext
from hpfracc.cli.demo.chart import Chart, ChartLine
from hpfracc.profiling.formats import format_seconds
from hpfracc.solvers.ode.fitting.fit import fit_fode
from hpfracc.solvers.ode.fitting.result import FODEFit
from hpfracc.special import mittag_leffler

__all__ = ["build"]

Array = np.ndarray[Any, Any]

#: ka, ke, order and dose that the data were made with.
_TRUTH = (1.2, 0.4, 0.8, 10.0)
_STEP, _QUICK_STEP = 0.02, 0.1


def build(context: DemoContext) -> Chapter:
    """Fit noisy data of a dose that passes from the gut into the blood."""
    context.report(0.0, "fitting: order, rates and dose")
    t = np.linspace(0.0, 6.0, 31)
    exact = _amounts(t)
    size = 0.01 * exact.max(axis=1, keepdims=True)
    data = exact + size * np.random.default_rng(1).standard_normal(exact.shape)
    begin = time.perf_counter()
    fit = fit_fode(
        _absorption, t, data, parameters={"ka": 1.0, "ke": 0.5}, y0=["free", 0.0], sigma=size,
        step=_QUICK_STEP if context.quick else _STEP, halve=False,
    )  # fmt: skip
    seconds = time.perf_counter() - begin
    context.report(0.8, "fitting: order 1, for comparison")
    whole = fit_fode(
        _absorption, t, data, parameters={"ka": 1.0, "ke": 0.5}, alpha=1.0, y0=["free", 0.0], sigma=size,
        step=_QUICK_STEP if context.quick else _STEP, halve=False,
    )  # fmt: skip
    order = fit.names.index("alpha")
    blocks: list[Block] = [
        Words(
            (
                "A model of drug absorption: a dose passes from the gut into the blood and is eliminated. The order, "
                "both rates and the dose are estimated together from simulated data at 31 times, with 1 % noise.",
            )
        ),
        Figures(
            (
                (
                    f"{fit.alpha:.3f}",
                    f"estimated order, ± {fit.standard_errors[order]:.3f}; the true order is {_TRUTH[2]:g}",
                ),
                (f"{fit.spread:.2f}", f"residuals in units of the noise; {whole.spread:.1f} with order 1"),
                (format_seconds(seconds), f"for {fit.evaluations} evaluations with derivatives"),
            )
        ),
        Code(
            'fit = hf.fit_fode(absorption, t, data, parameters={"ka": 1.0, "ke": 0.5},\n'
            '                  alpha="free", y0=["free", 0.0], sigma=size)\nprint(fit)\nfit.plot()'
        ),
        Heading("Data and fit", "Amounts in gut and blood. Dots are data, lines are the fitted equation."),
        _chart(fit),
        TableBlock(
            "Estimates",
            ("unknown", ">true", ">estimate", ">standard error", ">95 % interval"),
            [_row(fit, number) for number in range(len(fit.names))],
        ),
    ]
    data_out = {
        "names": list(fit.names),
        "true": list(_TRUTH),
        "estimates": fit.estimates.tolist(),
        "standard_errors": fit.standard_errors.tolist(),
        "spread": fit.spread,
        "spread_of_order_one": whole.spread,
        "seconds": seconds,
    }
    return Chapter("fitting", "Fitting an equation to data", blocks, data_out)


def _absorption(t: float, y: Array, ka: float, ke: float) -> Array:
    return np.array([-ka * y[0], ka * y[0] - ke * y[1]])


def _amounts(t: Array) -> Array:
    """In closed form: the matrix of the equation is triangular."""
    ka, ke, alpha, dose = _TRUTH
    gut, blood = (mittag_leffler(-rate * t**alpha, alpha) for rate in (ka, ke))
    return np.asarray(dose * np.stack([gut, ka / (ke - ka) * (gut - blood)]))


def _row(fit: FODEFit, number: int) -> list[Cell]:
    low, high = fit.confidence_intervals()[fit.names[number]]
    return [
        Cell(fit.names[number]),
        Cell(f"{_TRUTH[number]:g}"),
        Cell(f"{fit.estimates[number]:.4f}"),
        Cell(f"{fit.standard_errors[number]:.4f}"),
        Cell(f"{low:.3f} to {high:.3f}"),
    ]


def _chart(fit: FODEFit) -> Chart:
    found = fit.sets[0]
    lines = []
    for row, name, kind in ((0, "gut", "order8"), (1, "blood", "order4")):
        measured, fitted = (
            zip(found.t.tolist(), each[row].tolist(), strict=True) for each in (found.data, found.fitted)
        )
        points = [(x, y, f"{name}: {y:.3f} at t = {x:g}") for x, y in measured]
        curve = [(x, y, f"{name}, fit: {y:.3f} at t = {x:g}") for x, y in fitted]
        lines += [
            ChartLine(f"{name}, data", f"{kind} points", points),
            ChartLine(f"{name}, fit", f"{kind} curve", curve),
        ]
    return Chart(
        title="Data and fit",
        description="The measured amounts in gut and blood lie on the lines of the fitted equation.",
        x_name="t",
        y_name="amount",
        lines=lines,
        x_ticks=[(float(k), f"{k}") for k in range(7)],
        y_ticks=[(2.0 * k, f"{2 * k}") for k in range(6)],
        linear=True,
    )

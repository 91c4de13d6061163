"""Causal convolutions, the sums behind fractional derivatives, from 16 to 1,000,000 points."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from hpfracc.cli.demo.blocks import Block, Cell, Chapter, Figures, Heading, TableBlock, Words
from hpfracc.cli.demo.chapters import DemoContext
from hpfracc.cli.demo.chart import Chart, ChartLine, Mark
from hpfracc.cli.demo.decision import DecisionBlock
from hpfracc.cli.demo.survey import Survey, SurveyRow, survey
from hpfracc.profiling.formats import format_seconds

__all__ = ["build"]

_OPERATION = "causal_convolution"
_SIZES = (16, 40, 100, 250, 630, 1_600, 4_000, 10_000, 25_000, 63_000, 160_000, 400_000, 1_000_000)
_QUICK_SIZES = (16, 250, 4_000, 63_000, 1_000_000)
#: Order of the derivative whose weights are used.
_ORDER = 0.5
#: The naive implementation, drawn in addition to the best arm of each backend.
_PLAIN = "numpy:direct@cpu"
_NAMES = {"numpy": "NumPy", "numba": "Numba", "torch": "PyTorch", "jax": "JAX", "cupy": "CuPy"}


def build(context: DemoContext) -> Chapter:
    """Time every arm and the engine's choice, and show the result."""
    found = survey(
        _OPERATION,
        _QUICK_SIZES if context.quick else _SIZES,
        _operands,
        effort=0.006 if context.quick else 0.015,
        patience=0.3 if context.quick else 1.0,
        report=context.report,
    )
    blocks: list[Block] = [
        Words(_introduction(found)),
        Figures(_figures(found)),
        Heading("Time of one call", "Lower is better; both axes are logarithmic. Hover over a dot to see its arm."),
        _chart(found),
        Heading("Choices and times"),
        _table(found),
        *_explained(found),
        Heading(
            "First calls",
            "Importing a library and compiling a kernel happen once in a process. The times above do not include them. "
            "The engine takes them into account: it uses an arm only once the time saved would have paid for them.",
        ),
        _first_calls(found),
    ]
    return Chapter("convolution", "Causal convolution: choosing an algorithm", blocks, _data(found))


def _operands(size: int) -> tuple[np.ndarray[Any, Any], ...]:
    """Grünwald-Letnikov weights of a half-derivative, and a signal."""
    k = np.arange(1.0, size)
    weights = np.concatenate([[1.0], np.cumprod(1.0 - (_ORDER + 1.0) / k)])
    t = np.linspace(0.0, 10.0, size)
    return weights, np.sin(t) * np.exp(-0.1 * t)


def _introduction(found: Survey) -> Sequence[str]:
    names = [_NAMES[name] for name in found.backends]
    return (
        "A fractional derivative has memory: each value is a sum over all earlier samples, "
        "`y[n] = w[0] x[n] + w[1] x[n-1] + ... + w[n] x[0]`. The sum can be computed directly or by fast Fourier "
        f"transforms, on one core or several, with {_listed(names)}. Which is fastest depends on the number of points "
        "and on the machine.",
        "All of them were timed here. Then the engine chose in calls of "
        "`hpfracc.causal_convolution(weights, signal)`. The thick line shows the times of these calls.",
    )


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def _figures(found: Survey) -> Sequence[tuple[str, str]]:
    rows = found.rows
    worst_arm = max(
        ((timing.seconds / row.seconds, timing.arm, row.size) for row in rows for timing in row.timings.values()),
        key=lambda entry: entry[0],
    )
    worst_backend = max(
        (
            (max(timing.seconds / row.seconds for row in rows if (timing := row.of_backend(name))), name)
            for name in found.backends
        ),
        key=lambda entry: entry[0],
    )
    ratios = sorted(row.seconds / row.best.seconds for row in rows)
    chosen = {row.decision.arm for row in rows if row.decision is not None}
    return (
        (
            f"{_factor(worst_arm[0])}",
            f"the time of the engine's choice: the worst arm, `{worst_arm[1]}` at {worst_arm[2]:,} points",
        ),
        (
            f"{_factor(worst_backend[0])}",
            f"the time of the engine's choice: {_NAMES[worst_backend[1]]} with its best algorithm, at its worst size",
        ),
        (
            f"{_factor(ratios[len(ratios) // 2])}",
            f"the time of the fastest arm: the engine's choice, median of {len(rows)} sizes",
        ),
        (f"{len(chosen)}", f"different {'arms were' if len(chosen) > 1 else 'arm was'} chosen over all sizes"),
    )


def _factor(ratio: float) -> str:
    return f"{ratio:,.0f}x" if ratio >= 20 else f"{ratio:.1f}x" if ratio >= 2 else f"{ratio:.2f}x"


def _chart(found: Survey) -> Chart:
    rows = found.rows
    lines = []
    plain = [row for row in rows if _PLAIN in row.timings]
    if len(plain) > 1:
        points = [
            (row.size, row.timings[_PLAIN].seconds, _tooltip(row, row.timings[_PLAIN].seconds, _PLAIN)) for row in plain
        ]
        lines.append(ChartLine("direct sum", "plain", points))
    for name in found.backends:
        own = [(row, timing) for row in rows if (timing := row.of_backend(name)) is not None]
        points = [(row.size, timing.seconds, _tooltip(row, timing.seconds, timing.arm)) for row, timing in own]
        lines.append(ChartLine(_NAMES[name], name, points))
    points = [(row.size, row.seconds, _tooltip(row, row.seconds, f"chosen: {_chosen(row)}")) for row in rows]
    lines.append(ChartLine("hpfracc", "auto", points))
    times = [y for line in lines for _, y, _ in line.points]
    # Up to twice the largest time, because names stand above the ends of lines.
    low, high = math.floor(math.log10(min(times))), math.ceil(math.log10(2.0 * max(times)))
    x_ticks = [
        (10.0**power, label) for power, label in enumerate(("1", "10", "100", "1k", "10k", "100k", "1M")) if power
    ]
    return Chart(
        title="Time of one causal convolution against the number of points",
        description=" ".join(
            f"At {row.size:,} points {_chosen(row)} was chosen: {format_seconds(row.seconds)}." for row in rows
        ),
        x_name="points",
        y_name="time of one call",
        lines=lines,
        x_ticks=x_ticks,
        y_ticks=[(10.0**power, format_seconds(10.0**power * 1.0000001)) for power in range(low, high + 1)],
        marks=_changes(rows),
    )


def _tooltip(row: SurveyRow, seconds: float, arm: str) -> str:
    return f"{row.size:,} points, {arm}: {format_seconds(seconds)} ({_factor(seconds / row.best.seconds)} the best)"


def _chosen(row: SurveyRow) -> str:
    return row.decision.arm if row.decision is not None else "nothing"


def _changes(rows: Sequence[SurveyRow]) -> list[Mark]:
    """Marks between the sizes at which the choice changes."""
    marks = []
    for before, after in pairwise(rows):
        if _chosen(before) != _chosen(after):
            marks.append(Mark(math.sqrt(before.size * after.size), _short(_chosen(after))))
    return marks


def _short(arm: str) -> str:
    """Name of an arm, without its device if that is the CPU."""
    return arm.replace("@cpu", " ").replace(" x", " x").strip()


def _table(found: Survey) -> TableBlock:
    backends = found.backends
    rows = []
    for row in found.rows:
        cells = [
            Cell(f"{row.size:,}"),
            Cell(_chosen(row), kind=f"arm {row.decision.backend if row.decision else ''}", style="bold green"),
            Cell(format_seconds(row.seconds), _factor(row.seconds / row.best.seconds), "auto", "bold green"),
        ]
        for name in backends:
            timing = row.of_backend(name)
            if timing is None:
                cells.append(Cell("skipped", "", "none", "dim"))
            else:
                ratio = timing.seconds / row.best.seconds
                cells.append(Cell(format_seconds(timing.seconds), _factor(ratio), _heat(ratio), _style(ratio)))
        rows.append(cells)
    worst = [
        Cell("worst"),
        Cell(""),
        Cell(_factor(max(row.seconds / row.best.seconds for row in found.rows))),
    ]
    for name in backends:
        ratio = max(timing.seconds / row.best.seconds for row in found.rows if (timing := row.of_backend(name)))
        worst.append(Cell(_factor(ratio), "", _heat(ratio), _style(ratio)))
    notes = [
        *_overhead(found),
        *_skipped(found),
        *(f"{_NAMES[name]} is not available: {why}" for name, why in found.absent.items()),
    ]
    return TableBlock(
        "Time of one call, and its ratio to the fastest arm",
        ("points", "chosen", ">hpfracc", *(f">{_NAMES[name]}" for name in backends)),
        rows,
        worst,
        notes,
    )


def _overhead(found: Survey) -> list[str]:
    """Note on the engine's overhead at the smallest size."""
    row = found.rows[0]
    timing = row.timings.get(_chosen(row))
    if timing is None or row.seconds <= timing.seconds:
        return []
    beyond = format_seconds(row.seconds - timing.seconds)
    return [f"The engine adds {beyond} to the kernel at {row.size:,} points, which is visible only at small sizes"]


def _skipped(found: Survey) -> list[str]:
    """Notes on backends that were skipped at some sizes, one for each reason."""
    sizes: dict[tuple[str, str], list[int]] = {}
    for row in found.rows:
        for name in found.backends:
            if row.of_backend(name) is None:
                sizes.setdefault((name, row.why_not(name)), []).append(row.size)
    return [f"{_NAMES[name]} at {_range(at)} points: {why}" for (name, why), at in sizes.items()]


def _range(sizes: list[int]) -> str:
    return f"{min(sizes):,} to {max(sizes):,}" if len(sizes) > 1 else f"{sizes[0]:,}"


def _heat(ratio: float) -> str:
    return next(
        kind for limit, kind in ((1.1, "heat0"), (2.0, "heat1"), (10.0, "heat2"), (math.inf, "heat3")) if ratio < limit
    )


def _style(ratio: float) -> str:
    return next(
        style for limit, style in ((1.1, "green"), (2.0, ""), (10.0, "yellow"), (math.inf, "red")) if ratio < limit
    )


def _explained(found: Survey) -> list[Block]:
    """The decision at the first size where the choice changes."""
    decided = [row for row in found.rows if row.decision is not None and len(row.timings) > 1]
    if not decided:
        return []

    changes = [after for before, after in pairwise(decided) if _chosen(before) != _chosen(after)]
    row = (changes or decided)[0]
    assert row.decision is not None
    return [
        Heading(
            "Explanation of a decision",
            "The output of `hpfracc explain --op causal_convolution` at the first size where the choice changes. "
            "It does not run the operation.",
        ),
        DecisionBlock(row.decision, row.guess),
    ]


def _first_calls(found: Survey) -> TableBlock:
    longest: dict[str, tuple[int, float, float, int]] = {}
    for arm, size, seconds in found.first_calls():
        count, maximum, total, where = longest.get(arm, (0, 0.0, 0.0, size))
        longest[arm] = (count + 1, max(maximum, seconds), total + seconds, where if maximum >= seconds else size)
    rows = [
        [Cell(f"import {name}"), Cell("1"), Cell(format_seconds(seconds)), Cell(format_seconds(seconds))]
        for name, seconds in found.imports.items()
    ]
    rows += [
        [Cell(arm), Cell(str(count)), Cell(format_seconds(maximum)), Cell(format_seconds(total))]
        for arm, (count, maximum, total, _) in sorted(longest.items(), key=lambda item: -item[1][2])
    ]
    return TableBlock("Extra time of first calls", ("what", ">count", ">longest", ">total"), rows)


def _data(found: Survey) -> dict[str, Any]:
    return {
        "operation": _OPERATION,
        "rows": [
            {
                "points": row.size,
                "chosen": _chosen(row),
                "seconds": row.seconds,
                "over_best": row.seconds / row.best.seconds,
                "best": {"arm": row.best.arm, "seconds": row.best.seconds},
                "guess": row.guess,
                "backends": {
                    name: None
                    if (timing := row.of_backend(name)) is None
                    else {"arm": timing.arm, "seconds": timing.seconds}
                    for name in found.backends
                },
                "arms": {arm: timing.seconds for arm, timing in row.timings.items()},
                "skipped": dict(row.skipped),
            }
            for row in found.rows
        ],
        "first_calls": [{"arm": arm, "points": size, "seconds": s} for arm, size, s in found.first_calls()],
        "import_seconds": dict(found.imports),
        "absent": dict(found.absent),
    }

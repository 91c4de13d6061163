"""A small pipeline under the profiler."""

from __future__ import annotations

import time

import numpy as np

from hpfracc.cli.demo.blocks import Block, Cell, Chapter, Code, Figures, Heading, TableBlock, Words
from hpfracc.cli.demo.chapters import DemoContext
from hpfracc.profiling.document import Document
from hpfracc.profiling.formats import format_seconds, format_share
from hpfracc.profiling.profiler import Profiler, get_profiler

__all__ = ["build"]

_STEPS, _QUICK_STEPS = 60, 15
_ORDER = 0.5
#: Rows of the table.
_ROWS = 8


def build(context: DemoContext) -> Chapter:
    """Run the pipeline under the profiler and show the result."""
    profiler = get_profiler(enabled=True)
    profiler.reset()
    try:
        seconds = _work(profiler, _QUICK_STEPS if context.quick else _STEPS, context)
    finally:
        profiler.disable()
    document = profiler.document()
    blocks: list[Block] = [
        Words(_introduction(document)),
        Figures(_figures(document, seconds)),
        Heading("Time by span", "`self` is the time of a span without the spans inside it."),
        _table(document),
        *_advice(document),
        Heading("Profile a script of your own", "The page is one self-contained HTML file."),
        Code("hpfracc profile script.py        # runs the script and writes script.html"),
    ]
    data = {"breakdown": document.breakdown.to_dict(), "summary": document.summary, "advice": document.advice}
    profiler.reset()
    return Chapter("profiling", "Profiling", blocks, data)


def _work(profiler: Profiler, steps: int, context: DemoContext) -> float:
    """A small pipeline of engine calls: smooth, transform, multiply."""
    from hpfracc.engine.execution.api import causal_convolution, fft, matmul

    random = np.random.default_rng(0)
    signal, matrix = random.standard_normal(4_000), random.standard_normal((64, 64))
    weights = np.concatenate([[1.0], np.cumprod(1.0 - (_ORDER + 1.0) / np.arange(1.0, signal.size))])
    begin = time.perf_counter()
    for step in range(steps):
        with profiler.profile("step", number=step):
            with profiler.profile("half derivative"):
                smooth = causal_convolution(weights, signal)
            with profiler.profile("spectrum"):
                fft(smooth, kind="rfft")
            with profiler.profile("mix"):
                matmul(matrix, matrix)
        context.report((step + 1) / (steps + 1), "profiling a run")
    return time.perf_counter() - begin


def _introduction(document: Document) -> tuple[str, ...]:
    calls = sum(row["count"] for row in document.summary.values() if row["kind"] == "call")
    return (
        f"The profiler recorded {calls:,} engine calls of a small pipeline, each as a span with its decision. "
        "While the profiler is off, a call only checks a flag.",
    )


def _figures(document: Document, seconds: float) -> tuple[tuple[str, str], ...]:
    whole = document.breakdown
    slowest = next(iter(document.bottlenecks(1)), None)
    found = [
        (f"{len(document.analysis.spans):,}", f"spans in {format_seconds(seconds)}; {document.dropped:,} dropped"),
        (format_share(whole.overhead / whole.wall if whole.wall else 0.0), "overhead of the profiler"),
        (format_seconds(whole.compile / 1e9), "compilation in first calls"),
    ]
    if slowest is not None:
        found.append((format_share(slowest["share"]), f"of the time was spent in `{slowest['name']}` itself"))
    return tuple(found)


def _table(document: Document) -> TableBlock:
    rows = [
        [
            Cell(name),
            Cell(f"{row['count']:,}"),
            *(Cell(format_seconds(row[key])) for key in ("total", "self", "p50", "p95")),
            Cell(format_seconds(row["device"])),
        ]
        for name, row in list(document.summary.items())[:_ROWS]
    ]
    columns = ("span", ">calls", ">total", ">self", ">p50", ">p95", ">device")
    more = len(document.summary) - len(rows)
    notes = (f"and {more:,} more {'name' if more == 1 else 'names'}",) if more > 0 else ()
    return TableBlock("Spans by name, largest self time first", columns, rows, (), notes)


def _advice(document: Document) -> list[Block]:
    if not document.advice:
        return []
    return [Heading("Advice"), Words([remark["text"] for remark in document.advice])]

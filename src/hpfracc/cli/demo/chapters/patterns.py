"""Partial equations II: patterns of reaction-diffusion equations of fractional order in space."""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np

from hpfracc.cli.demo.blocks import Block, Cell, Chapter, Code, Figures, Heading, TableBlock, Words
from hpfracc.cli.demo.chapters import DemoContext
from hpfracc.cli.demo.picture import Picture, coloured, png
from hpfracc.errors import AccuracyWarning
from hpfracc.profiling.formats import format_seconds
from hpfracc.solvers.pde.problems import ModelEquation, fitzhugh_nagumo, gray_scott, schroedinger

__all__ = ["build"]

Array = np.ndarray[Any, Any]

_ORDERS = (2.0, 1.5)
#: Points along an axis, and the ends of the reaction and of the wave.
_SIZE, _QUICK_SIZE = (96, 3000.0, 600.0), (48, 600.0, 120.0)


def build(context: DemoContext) -> Chapter:
    """Solve reaction-diffusion equations of two orders, a spiral wave, and a wave packet of constant norm."""
    points, end, wave_end = _QUICK_SIZE if context.quick else _SIZE
    runs = []
    for number, order in enumerate(_ORDERS):
        context.report(0.05 + 0.3 * number, f"patterns: order {order:g}")
        runs.append(_run(gray_scott(order, points=points, t_end=end), 3.0))
    context.report(0.65, "patterns: a spiral")
    spiral = _run(fitzhugh_nagumo(1.7, points=points, t_end=wave_end), 1.0)
    context.report(0.9, "patterns: a wave packet")
    packet = _packet()
    blocks: list[Block] = [
        Words(
            (
                "Solutions of reaction-diffusion equations form stripes and spots. A fractional Laplacian models "
                "diffusion with long jumps and changes the patterns. Each picture is one call of `solve_fpde` "
                "with exponential time differencing, which is exact for the diffusion and of order 4 in time for the "
                "reaction.",
            )
        ),
        Figures(
            (
                (format_seconds(runs[0]["seconds"] / runs[0]["steps"]), f"for a step on {points}² points"),
                (
                    f"{packet['norm']:.0e}",
                    "relative change of the norm of a wave packet (Schrödinger equation) over 1,000 steps",
                ),
            )
        ),
        Code(
            "from hpfracc.pde import problems\n"
            "result = problems.gray_scott(order=1.5, points=96).solve(step=3.0, save='last')"
        ),
        Heading("Gray-Scott model", "Order 2 in space (left) and 1.5 (right)."),
        _frames([run["frame"][1] for run in runs], "Concentration of the second chemical.", points),
        Heading(
            "FitzHugh-Nagumo model",
            "Excitable tissue with diffusion of order 1.7. A broken wave front "
            f"{'starts to curl.' if context.quick else 'curls into a spiral.'}",
        ),
        _frames([spiral["frame"][0]], "Membrane voltage.", points),
        TableBlock(
            "Time of each run",
            ("equation", ">points", ">steps", ">time", ">per step"),
            [
                [
                    Cell(run["name"]),
                    Cell(f"{points}²"),
                    Cell(f"{run['steps']:,}"),
                    Cell(format_seconds(run["seconds"])),
                    Cell(format_seconds(run["seconds"] / run["steps"])),
                ]
                for run in (*runs, spiral)
            ],
        ),
    ]
    data = {
        "runs": [{key: run[key] for key in ("name", "steps", "seconds")} for run in (*runs, spiral)],
        "norm": packet["norm"],
    }
    return Chapter("patterns", "Partial differential equations: patterns", blocks, data)


def _run(equation: ModelEquation, step: float) -> dict[str, Any]:
    begin = time.perf_counter()
    with warnings.catch_warnings():
        # A coarse grid is enough for a picture, and the time of a step excludes the runs of an error estimate.
        warnings.simplefilter("ignore", AccuracyWarning)
        result = equation.solve(step=step, save="last", estimate=False)
    seconds = time.perf_counter() - begin
    order = equation.parameters["order"]
    return {
        "name": f"{equation.name.replace('_', '-')}, order {order:g}",
        "frame": np.asarray(result.u[-1]),
        "seconds": seconds,
        "steps": round((equation.t_span[1] - equation.t_span[0]) / step),
    }


def _packet() -> dict[str, float]:
    equation = schroedinger(1.5, cubic=1.0)
    result = equation.solve(step=0.005, save="last")
    before, after = (float(np.linalg.norm(state)) for state in (equation.u0, result.u[-1]))
    return {"norm": abs(after / before - 1.0)}


def _frames(fields: list[Array], description: str, points: int) -> Picture:
    parts: list[Array] = []
    for field in fields:
        parts += [field - field.min(), np.full((len(field), max(2, points // 16)), np.nan)]
    whole = np.concatenate(parts[:-1], axis=1)
    image = coloured(whole, np.zeros(whole.shape, bool))
    return Picture(png(image, 3 if points > 64 else 5), description)

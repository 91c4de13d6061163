"""Lattices: closed forms, a maze, and Lévy flights."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.sparse import csgraph

from hpfracc._config import use_backend
from hpfracc.cli.demo.blocks import Block, Cell, Chapter, Code, Figures, Heading, TableBlock, Words
from hpfracc.cli.demo.chapters import DemoContext
from hpfracc.cli.demo.picture import Picture, coloured, png, trail_svg
from hpfracc.errors import BackendUnavailableError
from hpfracc.lattice import Lattice
from hpfracc.profiling.formats import format_seconds

__all__ = ["build"]

#: Sides of the maze that is timed, and of the one that is drawn.
_SIDE, _QUICK_SIDE, _DRAWN = 1024, 256, 96
_PAIRS, _QUICK_PAIRS = 1_000_000, 100_000
_STEPS = 600


def build(context: DemoContext) -> Chapter:
    """Time closed forms and a maze, and draw a maze and walks."""
    side = _QUICK_SIDE if context.quick else _SIDE
    pairs = _QUICK_PAIRS if context.quick else _PAIRS
    context.report(0.1, "lattices: closed forms")
    closed = _closed_forms(pairs)
    context.report(0.4, "lattices: a maze")
    maze = _maze(side)
    context.report(0.8, "lattices: walks")
    blocks: list[Block] = [
        Words(
            [
                "On a grid without weights and obstacles, the distance between two points, a shortest path, the number "
                "of shortest paths, the diameter and the spectrum are closed forms. No search is needed, and no edge "
                "is stored. With weights or obstacles, the engine's `stencil_relax` computes whole maps of distances."
            ]
        ),
        Figures(
            [
                (format_seconds(closed["path"]), "for one shortest path across 10 x 10 x 10 x 10 points"),
                (format_seconds(closed["pairs"]), f"for shortest paths of {pairs:,} pairs of points"),
                (
                    format_seconds(closed["analysis"]),
                    "for edges, diameter, mean distance and clustering of 1,000,000,000 points",
                ),
            ]
        ),
        Code("from hpfracc.lattice import Lattice\nLattice((1000, 1000, 1000)).analyze_structure()"),
        Heading("A maze", "30 % of the points are obstacles; entering one of the others costs 1 to 10."),
        _table(side, maze),
        _drawn_maze(),
        Heading(
            "Lévy flights",
            "The rows of the fractional Laplacian give the step probabilities of a Lévy flight: most steps are short, "
            "a few are long.",
        ),
        _flights(),
    ]
    return Chapter(
        "lattice", "Lattices: shortest paths and Lévy flights", blocks, {"closed_forms": closed, "maze": maze}
    )


def _timed(run: Callable[[], Any], repeats: int = 5) -> float:
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return min(times)


def _closed_forms(count: int) -> dict[str, float]:
    lattice = Lattice((10,) * 4)
    starts, ends = np.random.default_rng(0).integers(0, lattice.size, (2, count))
    return {
        "path": _timed(lambda: lattice.shortest_path(0, lattice.size - 1), 50),
        "pairs": _timed(lambda: lattice.shortest_paths(starts, ends), 2),
        "analysis": _timed(Lattice((1000,) * 3).analyze_structure),
    }


def _make_maze(side: int) -> tuple[Lattice, np.ndarray[Any, Any]]:
    generator = np.random.default_rng(7)
    closed = generator.random((side, side)) < 0.3
    closed[0, :] = closed[:, 0] = closed[-1, :] = False  # so that a path between the corners exists
    return Lattice((side, side), weights=generator.uniform(1, 10, (side, side)), obstacles=closed), closed


def _maze(side: int) -> dict[str, float]:
    lattice, _ = _make_maze(side)
    matrix = lattice.to_csr()
    found: dict[str, float] = {
        "SciPy's Dijkstra, with a matrix that exists": _timed(lambda: csgraph.dijkstra(matrix, indices=0), 2)
    }
    found["SciPy's Dijkstra and building its matrix"] = _timed(lambda: csgraph.dijkstra(lattice.to_csr(), indices=0), 2)
    lattice.distance_map(0)
    found["distance_map, the engine's choice for a few calls"] = _timed(lambda: lattice.distance_map(0), 3)
    # The engine switches to Numba after enough calls to pay for compilation. Skipped if Numba is not available.
    with contextlib.suppress(BackendUnavailableError), use_backend("numba"):
        lattice.distance_map(0)
        found["distance_map, compiled by Numba"] = _timed(lambda: lattice.distance_map(0), 5)
    return found


def _table(side: int, times: dict[str, float]) -> TableBlock:
    rows = [[Cell(name), Cell(format_seconds(seconds))] for name, seconds in times.items()]
    return TableBlock(f"Distances from a corner to all {side**2:,} points", ("method", ">time"), rows)


def _drawn_maze() -> Picture:
    lattice, closed = _make_maze(_DRAWN)
    path = lattice.shortest_path((0, 0), (_DRAWN - 1, _DRAWN - 1))
    image = coloured(np.asarray(lattice.distance_map((0, 0))), closed, path)
    return Picture(
        png(image, 4),
        "Distance from the upper left corner, from dark to light. Obstacles are grey, unreachable points are white, "
        "the cheapest path is red.",
    )


def _flights() -> Picture:
    lattice = Lattice((128, 128), periodic=True)
    trails = []
    for name, alpha in (("Lévy flight, alpha = 1.2", 1.2), ("ordinary walk, alpha = 2", 2.0)):
        walk = lattice.fractional(alpha).sample((64, 64), _STEPS, rng=3)[0]
        trails.append((name, lattice.index_to_coordinates(walk)))
    words = f"{_STEPS} steps of two walkers on a periodic lattice of 128 x 128 points."
    return Picture(trail_svg(trails, 128, words), words)

"""Lattices compared with igraph, rustworkx, networkx and SciPy, in results and times, with targets.

    python benchmarks/lattice.py                  build, paths, pairs, analysis, mazes; about two minutes
    python benchmarks/lattice.py --device cuda    the distance map of an 8192 x 8192 maze and the fractional Laplacian
                                                  on 512^3 points, on the GPU and on the host

Every library gets the graph in its preferred form, built before the timing starts; building has a row of its own.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from _common import heading, print_table, show, write_json
from scipy.sparse import csgraph

import hpfracc as hf
from hpfracc.lattice import Lattice
from hpfracc.lattice import search as path_search

Rows = list[list[str]]


def best(run: Callable[[], Any], seconds: float = 1.0, most: int = 50) -> tuple[float, Any]:
    """The shortest of several times, and the last result."""
    times: list[float] = []
    deadline = time.perf_counter() + seconds
    while not times or (time.perf_counter() < deadline and len(times) < most):
        begin = time.perf_counter()
        answer = run()
        times.append(time.perf_counter() - begin)
    return min(times), answer


class Table:
    """Times of tasks by library, and whether each target is met."""

    def __init__(self) -> None:
        self.rows: Rows = []
        self.bars: Rows = []
        self.data: dict[str, dict[str, float]] = {}

    def task(
        self, name: str, ours: tuple[float, Any], others: dict[str, tuple[float, Any]], same: Callable[..., bool]
    ) -> None:
        """Add a row; ``same(our result, another's)`` must hold for all libraries."""
        for library, (_, answer) in others.items():
            if not same(ours[1], answer):
                sys.exit(f"{name}: {library} has a different result")
        self.data[name] = {"hpfracc": ours[0], **{library: seconds for library, (seconds, _) in others.items()}}
        quickest = min(others, key=lambda library: others[library][0])
        ratio = others[quickest][0] / ours[0]
        cells = [show(others[library][0]) if library in others else "-" for library in LIBRARIES]
        self.rows.append([name, show(ours[0]), *cells, f"{ratio:,.1f} x {quickest}"])
        self.bar(f"{name}: not slower than the fastest of the four", ratio >= 1.0, f"{ratio:,.1f} times as fast")

    def bar(self, what: str, met: bool, figure: str) -> None:
        self.bars.append([what, figure, "met" if met else "MISSED"])


LIBRARIES = ("igraph", "rustworkx", "networkx", "scipy")


def plain_lattice(table: Table) -> None:
    """Four dimensions of ten points."""
    import igraph
    import networkx
    import rustworkx

    shape = (10,) * 4
    lattice = Lattice(shape)
    graph, csr = igraph.Graph.Lattice(list(shape), circular=False), lattice.to_csr()
    rx, nx = lattice.to_rustworkx(), lattice.to_networkx()
    last = lattice.size - 1
    table.task(
        "build 4-D x 10",
        best(lambda: Lattice(shape), 0.2),
        {
            "igraph": best(lambda: igraph.Graph.Lattice(list(shape), circular=False)),
            "rustworkx": best(lattice.to_rustworkx),
            "networkx": best(lambda: networkx.grid_graph(shape), 1.0, 3),
            "scipy": best(lattice.to_csr),
        },
        lambda ours, other: ours.size == lattice.size,
    )

    def by_scipy(a: int, b: int) -> list[int]:
        _, before = csgraph.breadth_first_order(csr, a)
        way = [b]
        while way[-1] != a:
            way.append(int(before[way[-1]]))
        return way[::-1]

    finders: dict[str, Callable[[int, int], Any]] = {
        "igraph": lambda a, b: graph.get_shortest_path(a, b),
        "rustworkx": lambda a, b: rustworkx.dijkstra_shortest_paths(rx, a, b)[b] if a != b else [a],
        "networkx": lambda a, b: networkx.shortest_path(nx, a, b),
        "scipy": by_scipy,
    }
    corner = {name: best(lambda find=find: find(0, last), 0.5) for name, find in finders.items()}
    ours = best(lambda: lattice.shortest_path(0, last), 0.2, 1000)
    table.task("path corner to corner", ours, corner, lambda x, y: len(x) == len(y))
    ratio = corner["igraph"][0] / ours[0]
    table.bar("path of a free lattice at least 20 times as fast as igraph", ratio >= 20, f"{ratio:,.0f} times")

    pairs = np.random.default_rng(0).integers(0, lattice.size, (1000, 2))
    table.task(
        "1,000 random pairs",
        best(lambda: lattice.shortest_paths(pairs[:, 0], pairs[:, 1]).lengths, 0.3),
        {
            name: best(lambda find=find: [len(find(a, b)) - 1 for a, b in pairs.tolist()], 0.0)
            for name, find in finders.items()
        },
        lambda x, y: list(x) == list(y),
    )
    many = np.random.default_rng(1).integers(0, lattice.size, (2, 1_000_000))
    seconds, lengths = best(lambda: lattice.distance(*many), 1.0, 5)
    table.bar("distances of 1e6 pairs in less than 1 s", seconds < 1, show(seconds))
    seconds, found = best(lambda: lattice.shortest_paths(*many), 2.0, 3)
    assert (found.lengths == lengths).all()
    table.bar("paths of 1e6 pairs in less than 1 s", seconds < 1, show(seconds))

    def analysed() -> tuple[float, ...]:
        numbers = lattice.analyze_structure()
        return tuple(numbers[name] for name in ("edges", "density", "diameter", "mean_distance", "clustering"))

    table.task(
        "analysis",
        best(analysed, 0.2),
        {
            "igraph": best(
                lambda: (
                    graph.ecount(),
                    graph.density(),
                    graph.diameter(),
                    graph.average_path_length(),
                    graph.transitivity_avglocal_undirected(mode="zero"),
                ),
                0.0,
            )
        },
        lambda x, y: np.allclose(x, y),
    )


def maze(side: int, least: float = 1.0, most: float = 10.0) -> tuple[Lattice, int]:
    """Maze with 30 % obstacles and random weights, and an open point near the middle that is connected."""
    generator = np.random.default_rng(0)
    closed = generator.random((side, side)) < 0.3
    lattice = Lattice((side, side), weights=generator.uniform(least, most, (side, side)), obstacles=closed)
    for source in np.flatnonzero(~closed.reshape(-1))[closed.size // 3 :]:
        hops = Lattice((side, side), obstacles=closed).distance_map(int(source), backend="numba")
        if np.isfinite(hops).sum() > closed.size // 2:
            return lattice, int(source)
    raise AssertionError("no maze")


def mazes(table: Table) -> None:
    """Whole distance maps with weights."""
    import networkx
    import rustworkx

    lattice, source = maze(512)
    graph, rx, nx, csr = lattice.to_igraph(), lattice.to_rustworkx(), lattice.to_networkx(), lattice.to_csr()

    def spread(lengths: Any) -> np.ndarray:
        found = np.full(lattice.size, np.inf)
        found[source] = 0.0
        for place, length in lengths.items():
            found[place] = length
        return found

    def ours() -> np.ndarray:
        return np.asarray(lattice.distance_map(source, backend="numba")).reshape(-1)

    table.task(
        "map of a 512 x 512 maze",
        best(ours, 1.0),
        {
            "igraph": best(lambda: np.array(graph.distances(source, weights="weight")[0]), 0.0),
            "rustworkx": best(lambda: spread(rustworkx.dijkstra_shortest_path_lengths(rx, source, float)), 0.0),
            "networkx": best(lambda: spread(networkx.single_source_dijkstra_path_length(nx, source)), 0.0),
            "scipy": best(lambda: csgraph.dijkstra(csr, indices=source), 1.0),
        },
        np.allclose,
    )


def large_maze(table: Table, name: str, least: float, most: float) -> None:
    """Distance maps of 2048 x 2048 points, alternating with SciPy so that a disturbance affects both."""
    lattice, source = maze(2048, least, most)
    csr, graph = lattice.to_csr(), lattice.to_igraph()

    def ours() -> np.ndarray:
        return np.asarray(lattice.distance_map(source, backend="numba")).reshape(-1)

    def scipy() -> np.ndarray:
        return np.asarray(csgraph.dijkstra(csr, indices=source))

    ours()
    times = [(best(ours, 0.0)[0], best(scipy, 0.0)[0]) for _ in range(5)]
    quick, slow = (min(column) for column in zip(*times, strict=True))
    task = f"map of a 2048 x 2048 maze, weights {name}"
    others = {"scipy": (slow, scipy())}
    if least:
        others["igraph"] = best(lambda: np.array(graph.distances(source, weights="weight")[0]), 0.0)
    table.task(task, (quick, ours()), others, np.allclose)
    table.bar(f"{task}: twice as fast as SciPy's Dijkstra", slow >= 2 * quick, f"{slow / quick:.2f} times")


def pairs(table: Table, side: int = 1024) -> Rows:
    """One pair by A* and by bidirectional search, on lattices with good and poor bounds; both results must be equal.

    From a point at a quarter of each side to one at three quarters, or from corner to corner.
    """
    generator = np.random.default_rng(0)
    shape = (side, side)
    walls = generator.random(shape) < 0.3
    for place in (0, side // 4, 3 * side // 4, side - 8):
        walls[place : place + 8, place : place + 8] = False  # no end is walled in
    rare = np.zeros(shape, bool)
    rare[0, -1] = True
    space = (100, 100, 100)
    lattices = {
        "open, all 1": Lattice(shape, obstacles=rare),
        "open, 1 to 2": Lattice(shape, weights=generator.uniform(1, 2, shape)),
        "open, 1 to 10": Lattice(shape, weights=generator.uniform(1, 10, shape)),
        "open, 0 to 1": Lattice(shape, weights=generator.uniform(0, 1, shape)),
        "open, half of them 0": Lattice(shape, weights=generator.uniform(-1, 1, shape).clip(0)),
        "maze 30 %, all 1": Lattice(shape, obstacles=walls),
        "maze 30 %, 1 to 10": Lattice(shape, weights=generator.uniform(1, 10, shape), obstacles=walls),
        "100^3, 1 to 10": Lattice(space, weights=generator.uniform(1, 10, space)),
    }
    rows: Rows = []
    for name, lattice in lattices.items():
        chosen = (
            "astar" if lattice._costs.minimum >= path_search.MIN_ASTAR_RATIO * lattice._costs.mean else "bidirectional"
        )
        quarter, last = tuple(n // 4 for n in lattice.shape), tuple(n - 1 for n in lattice.shape)
        ends = {"corners": ((0,) * lattice.ndim, last), "quarters": (quarter, tuple(3 * n for n in quarter))}
        for what, (start, end) in ends.items():
            a, b = lattice.geometry.index(start), lattice.geometry.index(end)

            def search(method: str, lattice: Lattice = lattice, a: int = a, b: int = b) -> float:
                return path_search.search_path(lattice.geometry, lattice._costs, a, b, method)[1]

            times = {method: best(lambda method=method: search(method), 0.5, 10) for method in path_search.METHODS}
            assert np.isclose(times["astar"][1], times["bidirectional"][1])
            shown = [show(times[method][0]) for method in path_search.METHODS]
            rows.append([name, what, *shown, chosen])
            table.data[f"pair, {name}, {what}"] = {method: seconds for method, (seconds, _) in times.items()}
    return rows


def on_the_gpu() -> Rows:
    """Time on the GPU, on the host, and their ratio."""
    import torch

    rows: Rows = []
    lattice, source = maze(8192)
    weights, start = lattice._costs.host, np.full(lattice.shape, np.inf)
    start.reshape(-1)[source] = 0.0
    hf.stencil_relax(weights[:64, :64], start[:64, :64], backend="numba")
    seconds, truth = best(lambda: hf.stencil_relax(weights, start, backend="numba"), 0.0)
    rows.append(["map of an 8192 x 8192 maze, float64", "host, numba", show(seconds), "1"])
    try:
        import cupy
    except ImportError:
        cupy = None
    if cupy is not None:
        from hpfracc.engine.backends.cupy.kernels.stencil_relax import KERNELS

        small = tuple(cupy.asarray(array[:64, :64]) for array in (weights, start))
        held = tuple(cupy.asarray(array) for array in (weights, start))

        def resident(run: Callable[..., Any]) -> Any:
            found = run(*held)
            cupy.cuda.Device().synchronize()
            return found

        arms = {f"cupy by {name}": kernel.run for name, kernel in KERNELS.items()} | {"chosen": hf.stencil_relax}
        for name, run in arms.items():
            run(*small)
            gpu, found = best(lambda run=run: resident(run), 5.0, 3)
            assert np.allclose(cupy.asnumpy(found), truth)
            rows.append(["", f"{name}, arrays on the GPU", show(gpu), f"{seconds / gpu:.1f}"])
        there, found = best(lambda: hf.stencil_relax(weights, start, backend="cupy"), 5.0, 3)
        rows.append(["", "cupy, there and back", show(there), f"{seconds / there:.1f}"])
        del held, found
        cupy.get_default_memory_pool().free_all_blocks()
    side = 2048
    lattice, source = maze(side)
    start = np.full(lattice.shape, np.inf)
    start.reshape(-1)[source] = 0.0
    seconds, truth = best(lambda: hf.stencil_relax(lattice._costs.host, start, backend="numba"), 1.0)
    rows.append([f"map of a {side} x {side} maze, float64", "host, numba", show(seconds), "1"])
    tensors = tuple(torch.as_tensor(array, device="cuda") for array in (lattice._costs.host, start))
    gpu, found = best(lambda: by_torch(tensors), 0.0)
    assert np.allclose(found.cpu().numpy(), truth)
    rows.append(["", "torch, rounds over all points", show(gpu), f"{seconds / gpu:.2f}"])

    return rows + cube(True, "periodic") + cube(False, "bounded")


def by_torch(tensors: tuple[Any, ...]) -> Any:
    """The PyTorch kernel, synchronised."""
    import torch

    from hpfracc.engine.backends.registry import kernel

    found = kernel("stencil_relax", "torch", "relax").run(*tensors)
    torch.cuda.synchronize()
    return found


def cube(periodic: bool, kind: str) -> Rows:
    """The fractional Laplacian on 512^3 points."""
    import torch

    fractional = Lattice((512,) * 3, periodic).fractional(1.5)
    field = np.random.default_rng(0).standard_normal((512,) * 3, dtype=np.float32)
    # Once, as on the GPU, so that both times include computing the symbol.
    with hf.config(never={"spectral_multiply": ["torch", "jax", "cupy"]}):
        seconds, truth = best(lambda: fractional.apply(field), 0.0)
    where = hf.last_decision().arm
    tensor = torch.as_tensor(field, device="cuda")
    fractional.apply(tensor)

    def on_gpu() -> Any:
        found = fractional.apply(tensor)
        torch.cuda.synchronize()
        return found

    gpu, found = best(on_gpu, 3.0, 20)
    assert np.allclose(found.cpu().numpy(), truth, atol=1e-3)
    torch.cuda.empty_cache()
    return [
        [f"fractional Laplacian, 512^3 {kind}, float32", f"host, {where}", show(seconds), "1"],
        ["", "torch, tensor on the GPU", show(gpu), f"{seconds / gpu:.0f}"],
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    arguments = parser.parse_args()
    if arguments.device == "cuda":
        print(heading("Lattices on the GPU"))
        rows = on_the_gpu()
        print_table(["task", "where", "time", "times as fast as the host"], rows)
        write_json("lattice-cuda", {"rows": rows})
        return
    print(heading("Lattices"))
    table = Table()
    plain_lattice(table)
    mazes(table)
    large_maze(table, "1 to 10", 1.0, 10.0)
    large_maze(table, "0 to 1", 0.0, 1.0)
    print_table(["task", "hpfracc", *LIBRARIES, "ratio to the fastest"], table.rows)
    print()
    print_table(["bar", "measured", ""], table.bars)
    print()
    print_table(["one pair on 1024 x 1024", "between", "A*", "from both ends", "chosen"], pairs(table))
    write_json("lattice", {"seconds": table.data, "bars": table.bars})


if __name__ == "__main__":
    main()

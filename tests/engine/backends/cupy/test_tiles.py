"""Relaxation by tiles, without a GPU: the kernel's own source on the host, in rounds as they are queued on one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hpfracc.engine.backends.cupy.tiles import THREADS, plan_tiles, relax_by_tiles, tile_source
from hpfracc.engine.backends.numpy.kernels.stencil_relax import by_csgraph
from hpfracc.engine.primitives import PRIMITIVES
from hpfracc.engine.primitives.stencil_relax import read_periodic
from tests.helpers.contracts import cases, reference
from tests.helpers.cuda_on_host import COMPILER, compile_kernels
from tests.helpers.thinned import thinned
from tests.helpers.tolerance import bound, disagreement

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")

PARAMETERS = (
    "const REAL*, REAL*, const long long*, long long*, unsigned long long*, int*, int, long long, long long, "
    "const long long*, const unsigned char*"
)
#: Blocks of a launch, fewer than there may be tiles: some take several.
BLOCKS = 3
Kernels = dict[str, Callable[..., None]]


def name_of(dtype: str, ndim: int, neighbourhood: str, edges: bool) -> str:
    return f"{dtype}_{ndim}_{neighbourhood}_{'edges' if edges else 'points'}"


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Kernels:
    """Every kernel for double precision, and one for single."""
    kinds = [("float64", n, name, edges) for n in (1, 2, 3) for name in ("von_neumann", "moore") for edges in (0, 1)]
    kinds += [("float32", 2, "von_neumann", 0)]
    sources = {name_of(*kind): tile_source(*kind) for kind in kinds}
    return compile_kernels(sources, "relax_tiles", PARAMETERS, tmp_path_factory.mktemp("tiles"))


def by_tiles(
    kernels: Kernels,
    costs: np.ndarray,
    start: np.ndarray,
    *,
    neighbourhood: str = "von_neumann",
    periodic: Any = False,
    edges: bool = False,
) -> tuple[np.ndarray, int]:
    """What the GPU would answer, and how many tiles it would have worked on."""
    shape = costs.shape[1:] if edges else costs.shape
    run = kernels[name_of(str(start.dtype), len(shape), neighbourhood, edges)]
    found = np.where(np.isfinite(start), start, np.inf).astype(start.dtype).reshape(-1, *shape)
    visits = 0

    def launch(tiles: int, arguments: tuple[Any, ...]) -> None:
        nonlocal visits
        counts, turn = arguments[4], int(arguments[6])
        visits += int(counts[turn % 3])
        run(min(tiles, BLOCKS), THREADS, *arguments)

    wraps = read_periodic(periodic, len(shape))
    relax_by_tiles(np, launch, np.ascontiguousarray(costs), found, plan_tiles(shape), wraps)
    return found.reshape(start.shape), visits


CASES = [
    (dtype, case)
    for dtype in ("float64", "float32")
    for case in cases(PRIMITIVES["stencil_relax"], dtype)
    if case.arrays[1].size and (dtype == "float64" or case.name in ("plain", "several sources", "free steps"))
]


@pytest.mark.parametrize(("dtype", "case"), CASES, ids=[f"{case.name}-{dtype}" for dtype, case in CASES])
@thinned(lambda dtype: dtype == "float64")
def test_cases_of_the_contract(kernels: Kernels, dtype: str, case: Any) -> None:
    """The reference's answer in every case that all kernels are held to."""
    primitive = PRIMITIVES["stencil_relax"]
    call = primitive.describe(*case.arrays, **case.params)
    costs, start = (np.asarray(array).astype(call.dtype) for array in case.arrays)
    found, _ = by_tiles(kernels, costs, start, **case.params)
    answer = reference(primitive, *case.arrays, **case.params)
    assert disagreement(found, answer, bound(call, case.arrays, case.params, answer)) is None


#: Sides that are one tile and a bit, several tiles, less than one, and 1 to 3 where both ways round may coincide.
SHAPES = [(2500,), (33, 70), (64, 31), (1, 100), (2, 40), (3, 65), (9, 1, 40), (17, 9, 3), (2, 2, 33)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("edges", [False, True], ids=["points", "edges"])
@pytest.mark.parametrize(
    ("neighbourhood", "periodic"), [("von_neumann", False), ("von_neumann", True), ("moore", True)]
)
@thinned(one_in=3)
def test_lattices_of_several_tiles(kernels: Kernels, shape: Any, edges: bool, neighbourhood: str, periodic: bool):
    """SciPy's Dijkstra, with obstacles, free steps and two sources, across and around tiles."""
    generator = np.random.default_rng(math.prod(shape) + edges)
    directions = len(shape) if neighbourhood == "von_neumann" else (3 ** len(shape) - 1) // 2
    costs = generator.uniform(0.0, 3.0, (directions, *shape) if edges else shape).round(1)
    costs[generator.random(costs.shape) < 0.2] = np.inf
    start = np.full((2, *shape), np.inf)
    start.reshape(2, -1)[[0, 0, 1], [0, start[0].size // 2, -1]] = 0.0, 1.5, 0.0
    options = {"neighbourhood": neighbourhood, "periodic": periodic, "edges": edges}
    found, _ = by_tiles(kernels, costs, start, **options)
    np.testing.assert_allclose(found, by_csgraph(costs, start, **options), rtol=1e-12)


def test_only_tiles_that_can_change_are_worked_on(kernels: Kernels) -> None:
    """On an open plain a tile is worked on when the wave enters it, and hardly again; a walled-in source wakes none."""
    costs = np.ones((160, 160))
    start = np.full(costs.shape, np.inf)
    start[0, 0] = 0.0
    found, visits = by_tiles(kernels, costs, start)
    np.testing.assert_array_equal(found, np.add.outer(np.arange(160), np.arange(160)))
    assert visits <= 2 * 25
    costs[:40, :40] = np.inf
    start[:] = np.inf
    start[10, 10] = 0.0
    found, visits = by_tiles(kernels, costs, start)
    assert visits == 1
    assert np.isfinite(found).sum() == 1

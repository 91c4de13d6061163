"""Relaxation by tiles in PyTorch, on lattices of many of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.helpers.thinned import thinned

torch = pytest.importorskip("torch")

from hpfracc.engine.backends.numpy.kernels.stencil_relax import by_csgraph  # noqa: E402
from hpfracc.engine.backends.torch.kernels import stencil_relax  # noqa: E402
from hpfracc.engine.numerics.stencils import forward_offsets  # noqa: E402


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few points each, so that small lattices have many."""
    monkeypatch.setattr(stencil_relax, "_SIDES", {1: 16, 2: 8, 3: 4})
    monkeypatch.setattr(stencil_relax, "_SMALLEST_SIDE", 2)
    monkeypatch.setattr(stencil_relax, "_MIN_TILES", 5)


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("shape", [(50,), (17, 23), (8, 8), (1, 30), (2, 19), (9, 1, 14), (5, 9, 7), (2, 3, 4, 5)])
@pytest.mark.parametrize("edges", [False, True], ids=["points", "edges"])
@pytest.mark.parametrize("neighbourhood", ["von_neumann", "moore"])
@pytest.mark.parametrize("periodic", ["none", "all", "every other"])
@thinned(one_in=4)
def test_tiles_are_scipy_s_dijkstra(shape: Any, edges: bool, neighbourhood: str, periodic: str):
    """Obstacles, free steps, costs that are none, two maps of one and two sources: across tiles and around."""
    wraps = tuple(periodic == "all" or (periodic == "every other" and axis % 2 == 0) for axis in range(len(shape)))
    generator = np.random.default_rng(math.prod(shape) + edges)
    directions = len(forward_offsets(len(shape), neighbourhood))
    costs = generator.uniform(0.0, 3.0, (directions, *shape) if edges else shape).round(1)
    costs[generator.random(costs.shape) < 0.2] = np.inf
    costs[generator.random(costs.shape) < 0.05] = np.nan
    start = np.full((2, *shape), np.inf)
    start.reshape(2, -1)[[0, 0, 1], [0, start[0].size // 2, -1]] = 0.0, 1.5, 0.0
    options = {"neighbourhood": neighbourhood, "periodic": wraps, "edges": edges}
    found = stencil_relax.by_tiles(torch.from_numpy(costs), torch.from_numpy(start), **options)
    np.testing.assert_allclose(found.numpy(), by_csgraph(costs, start, **options), rtol=1e-12)


@pytest.mark.usefixtures("small_tiles")
def test_only_tiles_that_can_change_are_worked_on(monkeypatch: pytest.MonkeyPatch):
    """A wave over an open plain works on each tile and those beside it, not on all of them in every round."""
    worked: list[int] = []
    lower = stencil_relax._lower
    monkeypatch.setattr(
        stencil_relax, "_lower", lambda blocks, *rest: worked.append(len(blocks)) or lower(blocks, *rest)
    )
    start = torch.full((80, 80), math.inf)
    start[0, 0] = 0.0
    found = stencil_relax.by_tiles(torch.ones(80, 80), start)
    np.testing.assert_array_equal(found.numpy(), np.add.outer(np.arange(80), np.arange(80)))
    assert sum(worked) < 6 * 100 < len(worked) * 100 / 2

"""The history sum by a tree: the direct sum's digits on every grid, with few kernels evaluated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hpfracc.engine.backends.numpy.kernels.history_sum import KERNELS as ALGORITHMS
from hpfracc.engine.numerics import history_sums
from hpfracc.engine.numerics.history_sums import LEAF, NODES, HistoryTree
from tests.helpers.thinned import thinned

sum_by_tree, sum_direct = ALGORITHMS["tree"].run, ALGORITHMS["direct"].run
RNG = np.random.default_rng(7)
N = 900
GRIDS = {
    "even": 1.0 + 0.1 * np.arange(N),
    "random": 1.0 + np.cumsum(RNG.random(N) + 0.01),
    "graded": np.linspace(0.05, 1.0, N) ** 8,
    "seconds since 1970": 1.7e9 + np.cumsum(0.5 + RNG.random(N)),
    "two clusters": 1.0 + np.concatenate([1e-3 * np.arange(N // 2), 50.0 + 1e-3 * np.arange(N - N // 2)]),
}
KERNELS: list[tuple[str, tuple[float, ...], bool]] = [
    ("power", (-0.5,), False),
    ("power", (-0.97,), True),
    ("power", (-1.0,), True),
    ("power", (3.3,), False),
    ("tempered", (-0.5, 0.7), False),
    ("logarithmic", (-0.4,), False),
]


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize(("kind", "parameters", "scaled"), KERNELS, ids=str)
@thinned(one_in=2)
def test_agrees_with_the_direct_sum_to_rounding(grid, kind, parameters, scaled):
    """Every output, within a few units of rounding of the sum of all sizes; rows, complex numbers, nan included."""
    times = GRIDS[grid]
    signal = RNG.standard_normal((2, N)) + 1j * RNG.standard_normal((2, N))
    signal[1, 700] = np.nan
    options: dict[str, Any] = {"kernel": kind, "scaled": scaled}
    arrays = tuple(map(np.array, parameters))
    found, right = (each(times, signal, *arrays, **options) for each in (sum_by_tree, sum_direct))
    size = sum_direct(times, np.abs(np.nan_to_num(signal)), *arrays, **options)
    assert np.isnan(found[1, 700:]).all() and not np.isnan(found[1, :700]).any()
    seen = np.isfinite(right)
    assert np.all(np.abs(found - right)[seen] <= 24 * np.finfo(float).eps * size[seen])


def test_few_kernels_are_evaluated(monkeypatch):
    """Some hundred for each of 20,000 outputs, where the direct sum takes 10,000 on average."""
    counts = []
    true = history_sums.mean_power
    monkeypatch.setattr(history_sums, "mean_power", lambda xp, a, *rest: counts.append(a.size) or true(xp, a, *rest))
    n = 20_000
    tree = HistoryTree("power", np.linspace(0.0, 1.0, n) ** 2, np.ones(n), (-0.5,))
    for block in range(0, tree.blocks, 10):
        far, _ = tree._split(block)
        counts.append(LEAF * NODES * len(far))
        tree.sum_block(block)
    assert sum(counts) / (n / 10) < 600


@pytest.mark.parametrize("n", [2, LEAF, LEAF + 1, LEAF + 2, 2 * LEAF + 1])
def test_short_signals(n):
    """A tree with no leaf, one, or two is the direct sum."""
    times, signal = np.linspace(0.0, 1.0, n) ** 2, RNG.standard_normal(n)
    half = np.array(-0.5)
    np.testing.assert_allclose(sum_by_tree(times, signal, half), sum_direct(times, signal, half), rtol=1e-12)

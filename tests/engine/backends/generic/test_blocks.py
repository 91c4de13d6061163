"""Generic kernels that work in blocks: neither the size of blocks nor a check for finite samples changes the result."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hpfracc._xp import NUMPY
from hpfracc.engine.backends.generic import exponential_recurrence, history_sum
from hpfracc.engine.backends.generic.toeplitz_apply import affected
from hpfracc.engine.backends.numpy.library import NumPyLibrary

random = np.random.default_rng(11)
N = 200
TIMES = np.cumsum(0.1 + random.random(N))


def samples(dtype: str, bad: bool) -> np.ndarray[Any, Any]:
    x = (10 * random.standard_normal((3, N))).astype(dtype)
    if bad:
        x[1, 50], x[2, 120] = np.nan, np.inf
    return x


class InBlocks(NumPyLibrary):
    """Blocks of a given size, with or without a check for finite samples."""

    def __init__(self, block: int, rows: int, together: int = 1, checks: bool = True) -> None:
        super().__init__("numpy")
        self.history_block, self.history_rows, self.together, self.checks = block, rows, together, checks

    def all_finite(self, array: Any) -> bool:
        return self.checks and super().all_finite(array)

    def segments(self, n: int, states: int, array: Any) -> int:
        return self.together


@pytest.mark.parametrize("bad", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
@pytest.mark.parametrize("checks", [True, False])
def test_history_sum_in_blocks(dtype: str, bad: bool, checks: bool) -> None:
    """As one matrix product; nan from the first non-finite sample on."""
    x = samples(dtype, bad)
    whole = history_sum.make_kernels(InBlocks(N * N, N))["direct"].run(TIMES, x, np.array(0.5))
    for workers in (1, 3):
        run = history_sum.make_kernels(InBlocks(500, 7, checks=checks))["direct"].run
        found = run(TIMES, x, np.array(0.5), workers=workers)
        assert found.dtype == x.dtype
        np.testing.assert_allclose(found, whole, rtol=1e-5 if dtype == "float32" else 1e-12)
    first = [50 if bad else N, 120 if bad else N]
    assert [int(np.isfinite(row).sum()) for row in whole[1:]] == first and np.isfinite(whole[0]).all()


@pytest.mark.parametrize("bad", [False, True])
@pytest.mark.parametrize("steps", [np.array([0.1]), np.diff(TIMES, prepend=0.0)])
@pytest.mark.parametrize("checks", [True, False])
def test_recurrence_in_segments(steps: np.ndarray[Any, Any], bad: bool, checks: bool) -> None:
    """The number of segments changes the order of rounding only."""
    x, rates, weights = samples("float64", bad), np.array([0.5, 2.0]), np.array([1.0, 0.25])
    results = [
        exponential_recurrence.make_kernels(InBlocks(1, 1, together, checks))["blocked"].run(
            rates, weights, steps, x, np.zeros((3, 2)), degree=1, final=True
        )
        for together in (1, 9)
    ]
    assert results[0].shape == (3, N + 2)
    np.testing.assert_allclose(*results, rtol=1e-10, atol=1e-12)
    assert np.isfinite(results[0][0]).all() and np.isfinite(results[0][1]).all() != bad


def test_non_finite_samples_spread_to_their_neighbours() -> None:
    """As far as the weights reach along each axis."""
    bad = np.zeros((6, 9), bool)
    bad[2, 4] = True
    expected = np.zeros_like(bad)
    expected[1:4, 2:7] = True
    np.testing.assert_array_equal(affected(NUMPY, bad, (-2, -1), (2, 3)), expected)

"""Numba's loops where their own blocking shows: long sums, parts of rows."""

from __future__ import annotations

import numpy as np
import pytest

from hpfracc._optional import is_installed

if not is_installed("numba"):
    pytest.skip("needs Numba", allow_module_level=True)

from hpfracc.engine.backends.numba.kernels.causal_convolution import _equal_work, convolve_direct


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_long_convolutions_keep_their_digits(dtype: str) -> None:
    """20,000 weights of 0.1: all roundings go the same way, and still only a few units are lost."""
    n = 20_000
    weights = np.full(n, 0.1, dtype)
    result = convolve_direct(weights, np.ones(n, dtype))
    exact = np.arange(1, n + 1) * float(weights[0])
    assert np.abs(result - exact).max() <= 8 * np.finfo(dtype).eps * exact[-1]


@pytest.mark.parametrize(("n", "taps"), [(1000, 1000), (1000, 10), (1000, 1), (7, 7), (1, 1), (3, 0), (0, 0)])
@pytest.mark.parametrize("workers", [1, 2, 5])
def test_shares_of_a_row_are_equal_and_cover_it(n: int, taps: int, workers: int) -> None:
    """Every output once, in order; no share of a long row takes twice the steps of another."""
    shares = _equal_work(n, taps, workers)
    assert [i for low, high in shares for i in range(low, high)] == list(range(n))
    steps = [sum(min(i + 1, taps) for i in range(low, high)) for low, high in shares]
    if n == 1000:
        assert len(shares) == workers
        assert max(steps) <= 1.2 * min(steps)


def test_layouts_and_read_only_arrays_do_not_recompile() -> None:
    """Strided, reversed and read-only arrays are served by the code that was compiled for plain ones."""
    from hpfracc.engine.backends.numba.kernels.causal_convolution import _convolve, _convolve_row

    x = np.arange(12.0)
    convolve_direct(x, x)
    convolve_direct(x, np.stack([x, x]))
    compiled = len(_convolve.signatures), len(_convolve_row.signatures)
    frozen = x.copy()
    frozen.flags.writeable = False
    for signal in (x[::2], x[::-1], frozen, np.broadcast_to(x, (3, 12)), np.asfortranarray(np.stack([x, x]))):
        convolve_direct(frozen, signal)
    assert (len(_convolve.signatures), len(_convolve_row.signatures)) == compiled

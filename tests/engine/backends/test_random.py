"""Counter-based numbers: NumPy's own words, the same bits from every host kernel, independent streams."""

from __future__ import annotations

import numpy as np
import pytest

from hpfracc._optional import is_installed
from hpfracc.engine.backends.numpy.kernels.random import KERNELS
from hpfracc.engine.execution.operation import get_operation
from hpfracc.engine.primitives import PRIMITIVES
from tests.helpers.contracts import cases

random = get_operation("random")
KEY = np.array([1, 2, 3, 4], np.uint32)


def test_words_are_those_of_numpys_generator() -> None:
    """Path 7 of stream 5 is what ``numpy.random.Philox`` gives with that counter."""
    key = np.array([1 | 2 << 32, 3 | 4 << 32], np.uint64)
    words = np.random.Philox(key=key, counter=np.array([0, 7, 5, 0], np.uint64)).random_raw(9)
    expected = ((words >> np.uint64(12)) + 0.5) * 2.0**-52
    for kernel in KERNELS.values():
        found = kernel.run(np.array([7]), KEY, n=9, kind="uniform", stream=5)
        np.testing.assert_array_equal(found[0], expected)


@pytest.mark.skipif(not is_installed("numba"), reason="needs Numba")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_host_kernels_agree_to_the_bit(dtype: str) -> None:
    """NumPy's way and the compiled one, in one thread and in several."""
    from hpfracc.engine.backends.numba.kernels.random import random_compiled

    for case in cases(PRIMITIVES["random"], dtype):
        (first,) = (kernel.run(*case.arrays, **case.params) for kernel in KERNELS.values())
        for workers in (1, 3):
            np.testing.assert_array_equal(random_compiled(*case.arrays, **case.params, workers=workers), first)


def test_numbers_do_not_depend_on_what_is_asked_beside_them() -> None:
    """A path alone, among others, in another order, or with more numbers after it."""
    many = random(np.arange(40), KEY, n=30, backend="numpy")
    np.testing.assert_array_equal(random(np.array([39, 3]), KEY, n=30, backend="numpy"), many[[39, 3]])
    np.testing.assert_array_equal(random(np.arange(40), KEY, n=7, backend="numpy"), many[:, :7])


def test_normal_numbers_are_normal_and_independent() -> None:
    """Moments, neighbours in a path, neighbouring paths, streams and keys, each within 4 standard errors."""
    x = random(np.arange(200), KEY, n=1000, backend="numpy")
    size = x.size
    moments = [(1, 0.0, 1.0), (2, 1.0, 2.0), (3, 0.0, 15.0), (4, 3.0, 96.0)]
    for power, mean, variance in moments:
        assert abs(np.mean(x**power) - mean) < 4 * np.sqrt(variance / size)
    other = random(np.arange(200), KEY, n=1000, stream=1, backend="numpy")
    beside = random(np.arange(200), KEY + np.uint32(1), n=1000, backend="numpy")
    for one, two in [(x[:, ::2], x[:, 1::2]), (x[:, :-2], x[:, 2:]), (x[::2], x[1::2]), (x, other), (x, beside)]:
        assert abs(np.mean(one * two)) < 4 / np.sqrt(one.size)


def test_numbers_for_numpy_arrays_come_from_kernels_that_agree() -> None:
    """Other libraries, whose last digits differ, are taken only where they are asked for."""
    decision = random.decide(np.arange(100_000), KEY, n=1000)
    refused = {row.backend: row.refused or "" for row in decision.candidates if row.backend in ("torch", "jax")}
    assert decision.backend in ("numpy", "numba")
    for backend, reason in refused.items():
        assert "last digits" in reason or not is_installed(backend)

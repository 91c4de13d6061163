"""Lengths of Fourier transforms."""

from __future__ import annotations

import numpy as np
import pytest

from hpfracc.engine.numerics.lengths import fast_length, power_of_two, row_scratch, transformed_shape

PRIMES = (2, 3, 5, 7)


def is_fast(length: int) -> bool:
    if length % 2:
        return False
    for prime in PRIMES:
        while length % prime == 0:
            length //= prime
    return length == 1


def test_is_the_smallest_even_product_of_small_primes():
    """Every length up to 5,000 is lifted to the next even number whose primes are at most 7."""
    fast = [length for length in range(2, 10_000) if is_fast(length)]
    for least in range(5_001):
        assert fast_length(least) == next(length for length in fast if length >= least)


@pytest.mark.parametrize("least", [10**6 - 1, 2 * 10**7 - 1, 2**27 + 1, 10**9 + 7])
def test_large_lengths_grow_by_little(least: int):
    """Lengths of real use are fast and at most one percent longer than asked for."""
    length = fast_length(least)
    assert is_fast(length)
    assert least <= length <= 1.01 * least


@pytest.mark.parametrize(("least", "power"), [(0, 1), (1, 1), (2, 2), (3, 4), (4, 4), (1025, 2048)])
def test_power_of_two(least: int, power: int):
    """The smallest power of two that is large enough."""
    assert power_of_two(least) == power


@pytest.mark.parametrize("kind", ["fft", "ifft", "rfft", "irfft"])
@pytest.mark.parametrize("n", [None, 1, 5, 8])
@pytest.mark.parametrize("axis", [0, 1, -1, -2])
def test_transformed_shape_is_numpys(kind: str, n: int | None, axis: int):
    """The shape foretold is the one NumPy's transform has."""
    x = np.ones((4, 6))
    assert transformed_shape(x.shape, kind, n, axis) == getattr(np.fft, kind)(x, n, axis).shape


@pytest.mark.parametrize("kind", ["fft", "ifft", "rfft", "irfft"])
def test_nothing_stays_nothing(kind: str):
    """An axis without points is transformed into one without points, unless points are asked for."""
    assert transformed_shape((3, 0), kind, None, -1) == (3, 0)
    assert transformed_shape((3, 0), kind, 4, -1) == (3, 3 if kind == "rfft" else 4)


@pytest.mark.parametrize(
    ("points", "rough"), [(4096, False), (15_015, False), (17, False), (101, True), (1_000_003, True)]
)
def test_lengths_with_large_primes_take_more(points: int, rough: bool) -> None:
    """Bluestein's transform takes at least twice the points; otherwise the scratch is one row."""
    assert row_scratch(points, "float64") == ((fast_length(2 * points - 1) + points) * 16 if rough else points * 8)
    assert row_scratch(points, "complex64") * 2 == row_scratch(points, "complex128")

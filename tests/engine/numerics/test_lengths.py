"""Lengths of Fourier transforms."""

from __future__ import annotations

import pytest

from hpfracc.engine.numerics.lengths import fast_length, row_scratch

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


@pytest.mark.parametrize(
    ("points", "rough"), [(4096, False), (15_015, False), (17, False), (101, True), (1_000_003, True)]
)
def test_lengths_with_large_primes_take_more(points: int, rough: bool) -> None:
    """Bluestein's transform takes at least twice the points; otherwise the scratch is one row."""
    assert row_scratch(points, "float64") == ((fast_length(2 * points - 1) + points) * 16 if rough else points * 8)
    assert row_scratch(points, "complex64") * 2 == row_scratch(points, "complex128")

"""Lengths of Fourier transforms: fast sizes, and the sizes of the results."""

from __future__ import annotations

from functools import lru_cache

#: Shortest transform of a block: 2,048 doubles stay in a first-level cache.
MIN_BLOCK = 2048


@lru_cache(maxsize=1024)
def fast_length(least: int) -> int:
    """The smallest even ``2^a 3^b 5^c 7^d`` of at least ``least``.

    cuFFT, MKL, DUCC and pocketfft have special passes for these primes. Even, because a real transform of even length
    is a complex one of half that length.
    """
    best = power_of_two(max(least, 2))
    seven = 1
    while seven < best:
        five = seven
        while five < best:
            three = five
            while three < best:
                # The power of two that raises this product to `least`, and at least one factor of two.
                size = three * power_of_two(max(2, -(-least // three)))
                best = min(best, size)
                three *= 3
            five *= 5
        seven *= 7
    return best


def power_of_two(least: int) -> int:
    """The smallest power of two of at least ``least``."""
    return 1 << max(0, least - 1).bit_length()


def transformed_shape(shape: tuple[int, ...], kind: str, n: int | None, axis: int) -> tuple[int, ...]:
    """The shape of the transform of ``kind`` along ``axis``; an empty axis stays empty unless ``n`` is larger."""
    given = shape[axis]
    points = n if n is not None else 2 * (given - 1) if kind == "irfft" and given else given
    axis %= len(shape)
    return (*shape[:axis], points // 2 + 1 if kind == "rfft" and points else points, *shape[axis + 1 :])


def largest_factor(number: int) -> int:
    """The largest prime factor; 1 for 1."""
    largest, factor = 1, 2
    while factor * factor <= number:
        if number % factor:
            factor += 1
        else:
            largest, number = factor, number // factor
    return max(largest, number)


@lru_cache(maxsize=1024)
def row_scratch(points: int, dtype: str) -> int:
    """Bytes of scratch memory that a host library needs to transform one row of ``points``.

    The transform alternates between the data and a buffer. With a prime factor larger than the square root it becomes a
    convolution of at least twice the length (Bluestein).
    """
    single = dtype in ("float32", "complex64")
    if points < 50 or largest_factor(points) ** 2 <= points:
        return points * (4 if single else 8) * (2 if dtype.startswith("complex") else 1)
    return (fast_length(2 * points - 1) + points) * (8 if single else 16)


def block_length(taps: int) -> int:
    """Length of one block's transform: a power of two, of which the weights fill at most a quarter."""
    return power_of_two(max(MIN_BLOCK, 4 * taps))

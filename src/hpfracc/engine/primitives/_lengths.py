"""Lengths of Fourier transforms: those they are quick at, and those that come out."""

from __future__ import annotations

from functools import lru_cache

__all__ = ["fast_length", "power_of_two", "row_scratch", "transformed_shape"]


@lru_cache(maxsize=1024)
def fast_length(least: int) -> int:
    """The smallest even ``2^a 3^b 5^c 7^d`` of at least ``least``.

    cuFFT, MKL, DUCC and pocketfft all have their own passes for these primes; even, because a real transform of even
    length is a complex one of half that length.
    """
    best = power_of_two(max(least, 2))
    seven = 1
    while seven < best:
        five = seven
        while five < best:
            three = five
            while three < best:
                # The power of two that lifts this product to `least`, and at least one factor of two.
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
    """The shape of the transform of ``kind`` along ``axis``; an axis without points stays so unless ``n`` says more."""
    given = shape[axis]
    points = n if n is not None else 2 * (given - 1) if kind == "irfft" and given else given
    axis %= len(shape)
    return (*shape[:axis], points // 2 + 1 if kind == "rfft" and points else points, *shape[axis + 1 :])


@lru_cache(maxsize=1024)
def row_scratch(points: int, dtype: str) -> int:
    """Bytes that a row of so many points takes of its own while a library of the host transforms it.

    It goes to and fro between its place and a buffer. With a large prime factor it becomes a convolution of at least
    twice as many points, by Bluestein.
    """
    rest = max(1, points)
    for factor in (2, 3, 5, 7, 11, 13):
        while rest % factor == 0:
            rest //= factor
    single = dtype in ("float32", "complex64")
    if rest == 1:
        return points * (4 if single else 8) * (2 if dtype.startswith("complex") else 1)
    return (fast_length(2 * points - 1) + points) * (8 if single else 16)

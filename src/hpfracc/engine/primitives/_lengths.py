"""Lengths of Fourier transforms: those they are quick at, and those that come out."""

from __future__ import annotations

from functools import lru_cache

__all__ = ["fast_length", "power_of_two", "transformed_shape"]


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

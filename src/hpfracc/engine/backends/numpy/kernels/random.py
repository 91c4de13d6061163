"""Counter-based random numbers in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.numerics.counter_random import normal_pairs, uniforms

__all__ = ["KERNELS"]

Array = np.ndarray[Any, Any]

#: Words that are transformed together: with their results they stay in the cache.
_TOGETHER = 1 << 14


def _to_float(words: Array) -> Array:
    return words.astype(np.float64)


def _numbers(words: Array, kind: str, dtype: str, out: Array) -> None:
    """Convert rows of an even number of words to numbers in ``out``, which may be one shorter."""
    n = out.shape[-1]
    if kind == "normal":
        first, second = normal_pairs(np, words[:, ::2], words[:, 1::2], _to_float)
        out[:, ::2] = first
        out[:, 1::2] = second[:, : n // 2]
    elif dtype == "float64":
        out[...] = uniforms(words[:, :n], _to_float)
    else:
        out[...] = ((words[:, :n] >> np.uint64(41)).astype(np.float32) + np.float32(0.5)) * np.float32(2.0**-23)


def _fill(paths: Array, n: int, kind: str, dtype: str, words_of: Callable[[slice, int, int], Array]) -> Array:
    """All numbers, block by block; ``words_of(rows, low, high)`` returns words, called in order along each row."""
    result = np.empty((paths.size, n), dtype)
    rows = max(1, _TOGETHER // max(1, n))
    for top in range(0, paths.size, rows):
        block = slice(top, min(top + rows, paths.size))
        for low in range(0, n, _TOGETHER):
            high = min(n, low + _TOGETHER)
            _numbers(words_of(block, low, high + high % 2), kind, dtype, result[block, low:high])
    return result.reshape(*paths.shape, n)


def _pair(key: Array) -> tuple[int, int]:
    words = [int(word) & 0xFFFFFFFF for word in key]
    return words[0] | words[1] << 32, words[2] | words[3] << 32


def random_streams(
    paths: Array, key: Array, *, n: int, kind: str = "normal", stream: int = 0, dtype: str = "float64"
) -> Array:
    """NumPy's generator, moved to each path in turn."""
    numbers = paths.ravel()
    pair = np.array(_pair(key), np.uint64)
    generator, place = np.random.Philox(key=pair, counter=np.array([0, 0, stream, 0], np.uint64)), 0

    def words_of(rows: slice, low: int, high: int) -> Array:
        nonlocal generator, place  # the position is the low half of the generator's counter
        block = numbers[rows].tolist()
        words = np.empty((len(block), high - low), np.uint64)
        for row, path in zip(words, block, strict=True):
            if low == 0:
                target = path * 2**64
                if target >= place:
                    generator.advance(target - place)
                else:  # back: it would carry into the stream
                    generator = np.random.Philox(key=pair, counter=np.array([0, path, stream, 0], np.uint64))
                place = target
            row[:] = generator.random_raw(high - low)
            # Half a block stays in the generator's buffer until it is moved.
            place += -(-(high - low) // 4)
        return words

    return _fill(paths, n, kind, dtype, words_of)


KERNELS: dict[str, Kernel] = {"streams": Kernel(random_streams)}

"""Counter-based random numbers in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.numerics.counter_random import MASK32, join_key, write_numbers

Array = np.ndarray[Any, Any]

#: Words that are transformed together: with their results they stay in the cache.
_TOGETHER = 1 << 14


def random_streams(
    paths: Array, key: Array, *, n: int, kind: str = "normal", stream: int = 0, dtype: str = "float64"
) -> Array:
    """NumPy's generator, moved to each path in turn; numbers are transformed block by block."""
    numbers = paths.ravel()
    pair = np.array(join_key([int(word) & MASK32 for word in key]), np.uint64)
    generator, place = np.random.Philox(key=pair, counter=np.array([0, 0, stream, 0], np.uint64)), 0
    result = np.empty((numbers.size, n), dtype)
    rows = max(1, _TOGETHER // max(1, n))
    for top in range(0, numbers.size, rows):
        block = numbers[top : top + rows].tolist()
        for low in range(0, n, _TOGETHER):
            high = min(n, low + _TOGETHER)
            count = high - low + high % 2
            words = np.empty((len(block), count), np.uint64)
            for row, path in zip(words, block, strict=True):
                if low == 0:
                    target = path * 2**64  # the position is the low half of the generator's counter
                    if target >= place:
                        generator.advance(target - place)
                    else:  # back: it would carry into the stream
                        generator = np.random.Philox(key=pair, counter=np.array([0, path, stream, 0], np.uint64))
                    place = target
                row[:] = generator.random_raw(count)
                place += -(-count // 4)  # half a block stays in the generator's buffer until it is moved
            out = result[top : top + rows, low:high]
            write_numbers(np, words, kind, dtype == "float32", lambda words: words.astype(np.float64), out)
    return result.reshape(*paths.shape, n)


KERNELS: dict[str, Kernel] = {"streams": Kernel(random_streams)}

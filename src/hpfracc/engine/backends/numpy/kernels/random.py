"""Counter-based random numbers in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.numerics import counter_random as rule
from hpfracc.engine.numerics.counter_random import MASK32, join_key, uniforms

Array = np.ndarray[Any, Any]

#: Words that are transformed together: with their results they stay in the cache.
_TOGETHER = 1 << 14
_ROOT_HALF = int(np.float64(rule.ROOT_HALF).view(np.int64))
#: Signs of the cosine and the sine after each number of quarters, with which the two are also exchanged.
_SIGNS = np.array([[1.0, -1.0, -1.0, 1.0, 1.0], [1.0, 1.0, -1.0, -1.0, 1.0]])


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
            if kind == "normal":
                _write_normals(words, out)
            else:
                out[...] = uniforms(words[:, : high - low], lambda words: words.astype(np.float64), dtype == "float32")
    return result.reshape(*paths.shape, n)


def _write_normals(words: Array, out: Array) -> None:
    """As ``normal_pairs``, operation by operation, so with the same bits; with few arrays, in half the time."""
    whole = (words >> 11).view(np.int64)
    mantissa = (whole[:, ::2] + 1).astype(np.float64)
    # mantissa 2**exponent with the mantissa from sqrt(1/2) to sqrt(2), by the bits of the number.
    bits = mantissa.view(np.int64)
    exponent = bits - _ROOT_HALF
    exponent >>= 52
    bits -= exponent << 52
    s = mantissa - 1.0
    s /= np.add(mantissa, 1.0, out=mantissa)
    square = np.multiply(s, s, out=mantissa)
    log = _series(rule.ATANH, square)
    log *= square
    log *= s
    power = (exponent - 53).astype(np.float64)
    log += power * rule.LN2_LOW
    s += s
    log += s
    power *= rule.LN2_HIGH
    log += power
    log *= -2.0
    radius = np.sqrt(log, out=log)
    x = whole[:, 1::2] * 2.0**-53
    quarter = np.floor(4.0 * x + 0.5)
    x -= 0.25 * quarter
    x *= rule.TURN
    square = np.multiply(x, x, out=s)
    sine, cosine = _series(rule.SINE, square), _series(rule.COSINE, square)
    sine *= square
    sine *= x
    sine += x
    cosine *= square
    cosine += 1.0
    place = quarter.astype(np.intp)
    odd = (place & 1).astype(bool)
    first, second = np.where(odd, sine, cosine), np.where(odd, cosine, sine)
    first *= _SIGNS[0][place]
    second *= _SIGNS[1][place]
    out[:, ::2] = np.multiply(first, radius, out=first)
    out[:, 1::2] = np.multiply(second, radius, out=second)[:, : out.shape[-1] // 2]


def _series(coefficients: tuple[float, ...], square: Array) -> Array:
    """``c[0] + c[1] square + c[2] square**2 + ...``."""
    total = square * coefficients[-1]
    for coefficient in coefficients[-2:0:-1]:
        total += coefficient
        total *= square
    total += coefficients[0]
    return total


KERNELS: dict[str, Kernel] = {"streams": Kernel(random_streams)}

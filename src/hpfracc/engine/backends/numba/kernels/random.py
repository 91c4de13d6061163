"""Counter-based random numbers in Numba: the same bits as in NumPy, paths divided among threads."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.numba.arrays import Array
from hpfracc.engine.numerics.counter_random import (
    ATANH,
    COSINE,
    LN2_HIGH,
    LN2_LOW,
    MASK32,
    MULTIPLIERS,
    ROOT_HALF,
    ROUNDS,
    SINE,
    TURN,
    WEYL,
)
from hpfracc.engine.workers import even_blocks, run_blocks

#: Words that are generated before they are transformed, so that the transform is one vectorised loop.
_TOGETHER = 512
#: Dtype objects: comparing with a class or reading a name takes half a microsecond.
_UINT32, _UINT64, _INT64 = np.dtype(np.uint32), np.dtype(np.uint64), np.dtype(np.int64)
_FLOATS: dict[str, Any] = {"float64": np.dtype(np.float64), "float32": np.dtype(np.float32)}
_ZERO, _LITTLE = np.uint64(0), sys.byteorder == "little"
#: Minimum number of numbers per thread.
_MIN = 1 << 14

_M0, _M1 = (np.uint64(value) for value in MULTIPLIERS)
_W0, _W1 = (np.uint64(value) for value in WEYL)


@intrinsic
def _product(typing_context: Any, a: Any, b: Any) -> Any:
    """The upper and the lower 64 bits of a product of two 64-bit integers: one instruction for both."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide, word = ir.IntType(128), ir.IntType(64)
        one, two = (builder.zext(argument, wide) for argument in arguments)
        whole = builder.mul(one, two)
        parts = builder.trunc(builder.lshr(whole, ir.Constant(wide, 64)), word), builder.trunc(whole, word)
        return context.make_tuple(builder, signature.return_type, parts)

    return types.UniTuple(types.uint64, 2)(types.uint64, types.uint64), codegen


@njit(nogil=True, cache=True)
def _words(words, count, counter, path, stream, k0, k1):  # type: ignore[no-untyped-def]
    # Two blocks at a time, because the multiplications of one depend on each other.
    for pair in range((count + 1) // 2):
        a, b, c, d = counter + np.uint64(2 * pair), path, stream, np.uint64(0)
        e, f, g, h = counter + np.uint64(2 * pair + 1), path, stream, np.uint64(0)
        x, y = k0, k1
        for _ in range(ROUNDS):
            high_a, low_a = _product(_M0, a)
            high_e, low_e = _product(_M0, e)
            high_c, low_c = _product(_M1, c)
            high_g, low_g = _product(_M1, g)
            a, b, c, d = high_c ^ b ^ x, low_c, high_a ^ d ^ y, low_a
            e, f, g, h = high_g ^ f ^ x, low_g, high_e ^ h ^ y, low_e
            x, y = x + _W0, y + _W1
        words[0, 4 * pair], words[1, 4 * pair] = a, b
        words[0, 4 * pair + 1], words[1, 4 * pair + 1] = c, d
        words[0, 4 * pair + 2], words[1, 4 * pair + 2] = e, f
        words[0, 4 * pair + 3], words[1, 4 * pair + 3] = g, h


@njit(nogil=True, cache=True, error_model="numpy")
def _normals(words, floats, bits, first, second, pairs):  # type: ignore[no-untyped-def]
    """The operations of ``normal_pairs`` in its order; ``bits`` is the memory of ``floats``."""
    # Separate loops, each over one kind of memory; otherwise they are not vectorised.
    for i in range(pairs):
        floats[i] = np.float64(np.int64((words[0, i] >> np.uint64(11)) + np.uint64(1)))
    for i in range(pairs):
        first[i] = np.float64((bits[i] >> 52) - 1022)
        bits[i] = (bits[i] & 0xFFFFFFFFFFFFF) | 0x3FE0000000000000
    for i in range(pairs):
        mantissa = floats[i]
        below = mantissa < ROOT_HALF
        mantissa = mantissa + mantissa if below else mantissa
        power = first[i] - (54.0 if below else 53.0)
        s = (mantissa - 1.0) / (mantissa + 1.0)
        square = s * s
        total = ATANH[-1] * square
        for k in range(len(ATANH) - 2, 0, -1):
            total = (total + ATANH[k]) * square
        total = (total + ATANH[0]) * square * s
        log = power * LN2_HIGH + (s + s + (total + power * LN2_LOW))
        floats[i] = np.sqrt(-2.0 * log)
    for i in range(pairs):
        turns = np.float64(np.int64(words[1, i] >> np.uint64(11))) * 2.0**-53
        quarter = np.floor(4.0 * turns + 0.5)
        x = (turns - 0.25 * quarter) * TURN
        square = x * x
        sine, cosine = SINE[-1] * square, COSINE[-1] * square
        for k in range(len(SINE) - 2, 0, -1):
            sine, cosine = (sine + SINE[k]) * square, (cosine + COSINE[k]) * square
        sine = x + (sine + SINE[0]) * square * x
        cosine = 1.0 + (cosine + COSINE[0]) * square
        odd = (quarter == 1.0) | (quarter == 3.0)
        one = sine if odd else cosine
        two = cosine if odd else sine
        radius = floats[i]
        first[i] = radius * (-one if (quarter == 1.0) | (quarter == 2.0) else one)
        second[i] = radius * (-two if (quarter == 2.0) | (quarter == 3.0) else two)


@njit(nogil=True, cache=True, error_model="numpy")
def _rows(paths, key, stream, normal, narrow, result, begin, stop):  # type: ignore[no-untyped-def]
    half = _TOGETHER // 2
    words = np.empty((2, half), np.uint64)
    floats = np.empty(half, np.float64)
    bits = floats.view(np.int64)
    first, second = np.empty(half, np.float64), np.empty(half, np.float64)
    n = result.shape[1]
    k0, k1 = key[0], key[1]
    for row in range(begin, stop):
        for low in range(0, n, _TOGETHER):
            count = min(_TOGETHER, n - low)
            pairs = (count + 1) // 2
            counter = np.uint64(low // 4 + 1)
            _words(words, (count + 3) // 4, counter, np.uint64(paths[row]), stream, k0, k1)
            if normal:
                _normals(words, floats, bits, first, second, pairs)
            elif narrow:
                for i in range(pairs):
                    first[i] = (np.float64(np.int64(words[0, i] >> np.uint64(41))) + 0.5) * 2.0**-23
                    second[i] = (np.float64(np.int64(words[1, i] >> np.uint64(41))) + 0.5) * 2.0**-23
            else:
                for i in range(pairs):
                    first[i] = (np.float64(np.int64(words[0, i] >> np.uint64(12))) + 0.5) * 2.0**-52
                    second[i] = (np.float64(np.int64(words[1, i] >> np.uint64(12))) + 0.5) * 2.0**-52
            for i in range(count // 2):
                result[row, low + 2 * i] = first[i]
                result[row, low + 2 * i + 1] = second[i]
            if count % 2:
                result[row, low + count - 1] = first[pairs - 1]


def random_compiled(
    paths: Array, key: Array, *, n: int, kind: str = "normal", stream: int = 0, dtype: str = "float64", workers: int = 1
) -> Array:
    """Number by number; paths are divided among threads."""
    # Views if possible: a conversion takes as long as drawing fifty numbers.
    if key.dtype == _UINT32 and key.strides == (4,) and _LITTLE:
        pair = key.view(_UINT64)
    else:
        a, b, c, d = (word & MASK32 for word in key.tolist())
        pair = np.array([a | b << 32, c | d << 32], np.uint64)
    numbers = paths if paths.ndim == 1 and paths.dtype == _INT64 else paths.ravel().astype(np.int64)
    count = numbers.size
    result: Array = np.empty((count, n), _FLOATS[dtype])
    options = np.uint64(stream) if stream else _ZERO, kind == "normal", dtype == "float32"
    if workers <= 1 or count == 1:  # paths are divided among threads, not numbers
        _rows(numbers, pair, *options, result, 0, count)
    else:

        def run(block: tuple[int, int]) -> None:
            _rows(numbers, pair, *options, result, *block)

        run_blocks(run, even_blocks(count, workers, max(1, _MIN // max(1, n))), workers)
    return result if paths.ndim == 1 else result.reshape(*paths.shape, n)


KERNELS: dict[str, Kernel] = {"compiled": Kernel(random_compiled)}

"""Counter-based random numbers in CuPy: one thread computes a block of four."""

from __future__ import annotations

from functools import cache
from typing import Any

import cupy
import numpy as np

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.numerics.counter_random import (
    ATANH,
    COSINE,
    LN2_HIGH,
    LN2_LOW,
    MULTIPLIERS,
    ROOT_HALF,
    ROUNDS,
    SINE,
    TURN,
    WEYL,
)

THREADS = 256

_SOURCE = r"""
typedef unsigned long long word;

// One pair of normal numbers; the operations are those of normal_pairs, in its order.
__device__ __forceinline__ void normals(word w, word v, double* first, double* second) {
    int exponent;
    double mantissa = frexp((double)((w >> 11) + 1), &exponent);
    const bool below = mantissa < ROOT_HALF;
    mantissa = below ? mantissa + mantissa : mantissa;
    const double power = (double)exponent - (below ? 54.0 : 53.0);
    const double s = (mantissa - 1.0) / (mantissa + 1.0);
    double square = s * s;
    const double atanh_[] = {ATANH};
    const double sine_[] = {SINE};
    const double cosine_[] = {COSINE};
    double total = atanh_[ATANH_TERMS - 1] * square;
#pragma unroll
    for (int k = ATANH_TERMS - 2; k > 0; --k) total = (total + atanh_[k]) * square;
    total = (total + atanh_[0]) * square * s;
    const double log_ = power * LN2_HIGH + (s + s + (total + power * LN2_LOW));
    const double radius = sqrt(-2.0 * log_);
    const double turns = (double)(v >> 11) * 0x1p-53;
    const double quarter = floor(4.0 * turns + 0.5);
    const double x = (turns - 0.25 * quarter) * TURN;
    square = x * x;
    double sine = sine_[TERMS - 1] * square, cosine = cosine_[TERMS - 1] * square;
#pragma unroll
    for (int k = TERMS - 2; k > 0; --k) {
        sine = (sine + sine_[k]) * square;
        cosine = (cosine + cosine_[k]) * square;
    }
    sine = x + (sine + sine_[0]) * square * x;
    cosine = 1.0 + (cosine + cosine_[0]) * square;
    const bool odd = quarter == 1.0 || quarter == 3.0;
    const double one = odd ? sine : cosine, two = odd ? cosine : sine;
    *first = radius * (quarter == 1.0 || quarter == 2.0 ? -one : one);
    *second = radius * (quarter == 2.0 || quarter == 3.0 ? -two : two);
}

extern "C" __global__ void fill(
    const word* paths, const word* key, const word stream, const long long rows, const long long n, REAL* result)
{
    const long long blocks = (n + 3) / 4;
    const long long stride = (long long)gridDim.x * blockDim.x;
    const word mask = 0xFFFFFFFFull;
    const word k0 = (key[0] & mask) | key[1] << 32, k1 = (key[2] & mask) | key[3] << 32;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < rows * blocks; i += stride) {
        const long long row = i / blocks, block = i - row * blocks;
        word a = block + 1, b = paths[row], c = stream, d = 0, x = k0, y = k1;
#pragma unroll
        for (int number = 0; number < ROUNDS; ++number) {
            const word high_a = __umul64hi(M0, a), low_a = M0 * a, high_c = __umul64hi(M1, c), low_c = M1 * c;
            a = high_c ^ b ^ x;
            b = low_c;
            c = high_a ^ d ^ y;
            d = low_a;
            x += W0;
            y += W1;
        }
        double values[4];
        VALUES
        REAL* out = result + row * n + 4 * block;
#pragma unroll
        for (int j = 0; j < 4; ++j)
            if (4 * block + j < n) out[j] = (REAL)values[j];
    }
}
"""

_NORMAL = "normals(a, b, values, values + 1); normals(c, d, values + 2, values + 3);"


def _uniform(bits: int) -> str:
    words = zip(range(4), "abcd", strict=True)
    return " ".join(f"values[{j}] = ((double)({w} >> {64 - bits}) + 0.5) * 0x1p-{bits};" for j, w in words)


def random_source(kind: str, dtype: str) -> str:
    """The source of the kernel ``fill`` for one kind of numbers and one precision."""
    defined = {
        "REAL": "double" if dtype == "float64" else "float",
        "VALUES": _NORMAL if kind == "normal" else _uniform(52 if dtype == "float64" else 23),
        "ROUNDS": ROUNDS,
        "M0": f"{MULTIPLIERS[0]:#x}ull",
        "M1": f"{MULTIPLIERS[1]:#x}ull",
        "W0": f"{WEYL[0]:#x}ull",
        "W1": f"{WEYL[1]:#x}ull",
        "ATANH": ", ".join(map(repr, ATANH)),
        "SINE": ", ".join(map(repr, SINE)),
        "COSINE": ", ".join(map(repr, COSINE)),
        "ATANH_TERMS": len(ATANH),
        "TERMS": len(SINE),
        "ROOT_HALF": repr(ROOT_HALF),
        "LN2_HIGH": repr(LN2_HIGH),
        "LN2_LOW": repr(LN2_LOW),
        "TURN": repr(TURN),
    }
    return "\n".join(f"#define {name} {value}" for name, value in defined.items()) + _SOURCE


#: Blocks of threads along a grid's first axis.
_MAX_BLOCKS = 2**31 - 1


@cache
def _kernel(kind: str, dtype: str) -> Any:
    return cupy.RawKernel(random_source(kind, dtype), "fill", options=("--fmad=false",))


def random_fused(
    paths: cupy.ndarray, key: cupy.ndarray, *, n: int, kind: str = "normal", stream: int = 0, dtype: str = "float64"
) -> cupy.ndarray:
    """Number by number, in one pass."""
    numbers = cupy.ravel(paths).astype(np.uint64)
    result = cupy.empty((numbers.size, n), dtype)
    if result.size:
        blocks = numbers.size * -(-n // 4)
        grid = min(-(-blocks // THREADS), _MAX_BLOCKS)
        arguments = (numbers, key.astype(np.uint64), np.uint64(stream), np.int64(numbers.size), np.int64(n), result)
        _kernel(kind, dtype)((grid,), (THREADS,), arguments)
    return result.reshape(*paths.shape, n)


KERNELS: dict[str, Kernel] = {"fused": Kernel(random_fused)}

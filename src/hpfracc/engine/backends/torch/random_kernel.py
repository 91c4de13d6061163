"""Counter-based random numbers in Triton's own language. Importing this module imports Triton."""

# ruff: noqa: N803  (Triton's constants are written in capitals)
from __future__ import annotations

import triton
import triton.language as tl

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

__all__ = ["fill"]

_M0, _M1 = (tl.constexpr(value) for value in MULTIPLIERS)
_W0, _W1 = (tl.constexpr(value) for value in WEYL)
_ROUNDS = tl.constexpr(ROUNDS)
_ROOT_HALF, _LN2_HIGH, _LN2_LOW, _TURN = (tl.constexpr(value) for value in (ROOT_HALF, LN2_HIGH, LN2_LOW, TURN))
_ATANH, _SINE, _COSINE = tl.constexpr(ATANH), tl.constexpr(SINE), tl.constexpr(COSINE)
_ATANH_LAST, _LAST = tl.constexpr(len(ATANH) - 1), tl.constexpr(len(SINE) - 1)


@triton.jit
def _normals(radii, angles):
    """A pair of normal numbers, by the formulae of ``normal_pairs``."""
    number = ((radii >> 11) + 1).to(tl.float64)
    bits = number.to(tl.int64, bitcast=True)
    exponent = (bits >> 52) - 1022
    mantissa = ((bits & 0xFFFFFFFFFFFFF) | 0x3FE0000000000000).to(tl.float64, bitcast=True)
    below = mantissa < _ROOT_HALF
    mantissa = tl.where(below, mantissa + mantissa, mantissa)
    power = exponent.to(tl.float64) - tl.where(below, 54.0, 53.0)
    s = (mantissa - 1.0) / (mantissa + 1.0)
    square = s * s
    total = square * _ATANH[_ATANH_LAST]
    for k in tl.static_range(_ATANH_LAST - 1):
        total = (total + _ATANH[_ATANH_LAST - 1 - k]) * square
    total = (total + _ATANH[0]) * square * s
    log = power * _LN2_HIGH + (s + s + (total + power * _LN2_LOW))
    radius = tl.sqrt(-2.0 * log)
    turns = (angles >> 11).to(tl.float64) * 1.1102230246251565e-16
    quarter = tl.floor(4.0 * turns + 0.5)
    x = (turns - 0.25 * quarter) * _TURN
    square = x * x
    sine = square * _SINE[_LAST]
    cosine = square * _COSINE[_LAST]
    for k in tl.static_range(_LAST - 1):
        sine = (sine + _SINE[_LAST - 1 - k]) * square
        cosine = (cosine + _COSINE[_LAST - 1 - k]) * square
    sine = x + (sine + _SINE[0]) * square * x
    cosine = 1.0 + (cosine + _COSINE[0]) * square
    odd = (quarter == 1.0) | (quarter == 3.0)
    one = tl.where(odd, sine, cosine)
    two = tl.where(odd, cosine, sine)
    first = radius * tl.where((quarter == 1.0) | (quarter == 2.0), -one, one)
    second = radius * tl.where((quarter == 2.0) | (quarter == 3.0), -two, two)
    return first, second


@triton.jit
def _uniforms(words, BITS: tl.constexpr):
    return ((words >> (64 - BITS)).to(tl.float64) + 0.5) * (1.0 / (1 << BITS))


@triton.jit
def _fill(paths, key, result, n, NORMAL: tl.constexpr, BITS: tl.constexpr, BLOCK: tl.constexpr):
    """Blocks of four numbers of a row."""
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    a = (block + 1).to(tl.uint64)
    b = tl.zeros_like(a) + tl.load(paths + row).to(tl.uint64)
    c = tl.zeros_like(a) + tl.load(key + 2).to(tl.uint64)
    d = tl.zeros_like(a)
    x = tl.load(key).to(tl.uint64)
    y = tl.load(key + 1).to(tl.uint64)
    m0 = tl.full((BLOCK,), _M0, tl.uint64)
    m1 = tl.full((BLOCK,), _M1, tl.uint64)
    w0 = tl.full((), _W0, tl.uint64)
    w1 = tl.full((), _W1, tl.uint64)
    for _ in tl.static_range(_ROUNDS):
        high_a = tl.umulhi(m0, a)
        low_a = m0 * a
        high_c = tl.umulhi(m1, c)
        low_c = m1 * c
        a = high_c ^ b ^ x
        b = low_c
        c = high_a ^ d ^ y
        d = low_a
        x = x + w0
        y = y + w1
    if NORMAL:
        one, two = _normals(a, b)
        three, four = _normals(c, d)
    else:
        one = _uniforms(a, BITS)
        two = _uniforms(b, BITS)
        three = _uniforms(c, BITS)
        four = _uniforms(d, BITS)
    # Neighbours side by side, so that a program writes its memory without gaps.
    values = tl.interleave(tl.interleave(one, three), tl.interleave(two, four))
    column = tl.program_id(1).to(tl.int64) * (4 * BLOCK) + tl.arange(0, 4 * BLOCK)
    tl.store(result + row * n + column, values.to(result.dtype.element_ty), mask=column < n)


#: Triton's own way to launch: numbers differ from call to call, and one launch makes many.
fill = _fill

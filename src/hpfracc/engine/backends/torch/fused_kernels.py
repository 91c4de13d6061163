"""The kernels of ``fused.py``, in Triton's own language. Importing this module imports Triton."""

# ruff: noqa: N803  (Triton's constants are written in capitals)
from __future__ import annotations

import triton
import triton.language as tl

# ruff: noqa: N803  (Triton's constants are written in capitals)
# ruff: noqa: N803  (Triton's constants are written in capitals)
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


@triton.jit
def _first_bad(bad, row, blocks, upto, points, CHUNK: tl.constexpr):
    """The minimum of the row's records up to block ``upto``: the first non-finite sample, or ``points``."""
    least = tl.zeros((), tl.int64) + points
    for begin in range(0, upto + 1, CHUNK):
        block = begin + tl.arange(0, CHUNK)
        noted = tl.load(bad + row * blocks + block, mask=block <= upto, other=points)
        least = tl.minimum(least, tl.min(noted, axis=0))
    return least


@triton.jit
def _total(sums, row, blocks, j, STARTS: tl.constexpr, CHUNK: tl.constexpr):
    """The sum of the row's block sums for starting weights ``j``."""
    block = tl.arange(0, CHUNK)
    total = tl.sum(tl.load(sums + (row * blocks + block) * STARTS + j, mask=block < blocks, other=0.0), axis=0)
    for begin in range(CHUNK, blocks, CHUNK):
        block = begin + tl.arange(0, CHUNK)
        total += tl.sum(tl.load(sums + (row * blocks + block) * STARTS + j, mask=block < blocks, other=0.0), axis=0)
    return total


@triton.jit
def pad(
    signal,
    padded,
    bad,
    limit,
    starts,
    sums,
    points,
    size,
    blocks,
    first,
    LIMITED: tl.constexpr,
    REVERSED: tl.constexpr,
    DIFFERENCES: tl.constexpr,
    STARTS: tl.constexpr,
    BLOCK: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """Copy a block of a row, with 0 for non-finite samples and padding; record the block's first non-finite sample.

    REVERSED reverses the row, LIMITED sets samples from the first non-finite one of another row on to 0, DIFFERENCES
    takes differences of neighbours. With STARTS the block's sums with each row of them are recorded too.
    """
    row = tl.program_id(1).to(tl.int64)
    block = tl.program_id(0).to(tl.int64)
    column = block * BLOCK + tl.arange(0, BLOCK)
    source = points - 1 - column if REVERSED else column
    inside = column < points
    if LIMITED:
        inside = inside & (source < _first_bad(limit, row, blocks, blocks - 1, points, CHUNK))
    value = tl.load(signal + row * points + source, mask=inside, other=0.0)
    if DIFFERENCES:
        before = tl.maximum(source - 1, 0)
        value = value - tl.load(signal + row * points + before, mask=inside, other=0.0)
    good = value - value == 0.0  # false for nan and for inf
    value = tl.where(good, value, 0.0)
    tl.store(padded + row * size + column, value, mask=column < size)
    if block < blocks:
        tl.store(bad + row * blocks + block, tl.min(tl.where(good, points, column), axis=0))
        for j in tl.static_range(STARTS):
            own = tl.load(starts + j * points + source, mask=inside & (source >= first + j), other=0.0)
            tl.store(sums + (row * blocks + block) * STARTS + j, tl.sum(value * own, axis=0))


@triton.jit
def cut(
    product,
    result,
    bad,
    signal,
    starts,
    sums,
    points,
    size,
    blocks,
    first,
    REVERSED: tl.constexpr,
    DIFFERENCES: tl.constexpr,
    STARTS: tl.constexpr,
    BLOCK: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """Copy a block of a row's first ``points``, nan from its first non-finite sample on, with starting weights added.

    REVERSED reverses the row; then DIFFERENCES takes differences from the next value, and STARTS adds the recorded sums
    at the points of the starting weights: the derivative.
    """
    row = tl.program_id(1).to(tl.int64)
    block = tl.program_id(0).to(tl.int64)
    column = block * BLOCK + tl.arange(0, BLOCK)
    inside = column < points
    value = tl.load(product + row * size + column, mask=inside, other=0.0)
    target = points - 1 - column if REVERSED else column
    if REVERSED and DIFFERENCES:
        value = tl.where(target > 0, value, 0.0)
        value = value - tl.load(product + row * size + column - 1, mask=inside & (column > 0), other=0.0)
    for j in tl.static_range(STARTS):
        place = first + j
        if REVERSED:
            change = _total(sums, row, blocks, j, STARTS, CHUNK)
            value = value + tl.where(target == place, change, 0.0)
            if DIFFERENCES:
                # The first sample has no difference; no target is -1.
                value = value - tl.where(target == place - 1, change, 0.0)
        else:
            sample = tl.load(signal + row * points + place)
            if DIFFERENCES:
                before = tl.load(signal + row * points + tl.maximum(place - 1, 0))
                sample = sample - tl.where(place > 0, before, 0.0)
            sample = tl.where(sample - sample == 0.0, sample, 0.0)
            own = tl.load(starts + j * points + column, mask=inside & (column >= place), other=0.0)
            value = value + own * sample
    value = tl.where(column < _first_bad(bad, row, blocks, block, points, CHUNK), value, float("nan"))
    tl.store(result + row * points + target, value, mask=inside)


@triton.jit
def _evaluate(place, inside, total, order, scale, series, fall, zeros, SLOPE: tl.constexpr, COEFFICIENTS: tl.constexpr):
    """The weights at some positions of the table, or their slopes in the order; nan outside the limits of the order."""
    alpha, middle = tl.load(order), tl.load(scale + 2)
    low, high = alpha - (middle - 0.5), (middle + 0.5) - alpha
    alpha = tl.where((low > tl.load(scale + 3)) & (high > tl.load(scale + 4)), alpha, float("nan"))
    y = alpha - middle
    value = tl.load(series + (COEFFICIENTS - 1) * total + place, mask=inside, other=0.0)
    slope = tl.zeros_like(value)
    for k in tl.static_range(1, COEFFICIENTS):
        slope = slope * y + value
        value = value * y + tl.load(series + (COEFFICIENTS - 1 - k) * total + place, mask=inside, other=0.0)
    # Ends at which the weight is 0: 1 for the lower one, 2 for the upper one, 3 for both.
    kind = tl.load(zeros + place, mask=inside, other=0)
    from_low = tl.where(kind % 2 == 1, low, 1.0)
    from_high = tl.where(kind >= 2, high, 1.0)
    rise = tl.load(scale) - tl.load(fall + place, mask=inside, other=0.0)
    size = tl.exp(rise * alpha + tl.load(scale + 1))
    if SLOPE:
        turn = tl.where(kind % 2 == 1, from_high, 0.0) - tl.where(kind >= 2, from_low, 0.0)
        value = (slope + rise * value) * from_low * from_high + value * turn
    else:
        value = value * from_low * from_high
    return value * size


@triton.jit
def _finish(made, values, row, points, column, SLOPE: tl.constexpr):
    """Store a chunk of weights, or return the sum of the chunk of ``values`` times slopes."""
    inside = column < points
    place = values + row * points + column
    if SLOPE:
        wanted = tl.load(place, mask=inside, other=0.0).to(tl.float64)
        result = tl.sum(tl.where(inside, wanted * made, 0.0), axis=0)
    else:
        tl.store(place, made.to(values.dtype.element_ty), mask=inside)
        result = tl.zeros((), tl.float64)
    return result


@triton.jit
def table(
    values,
    sums,
    order,
    scale,
    series,
    fall,
    zeros,
    bases,
    points,
    lags,
    total,
    above,
    SLOPE: tl.constexpr,
    NODES: tl.constexpr,
    WIDTH: tl.constexpr,
    HEAD: tl.constexpr,
    NEAR: tl.constexpr,
    SECOND: tl.constexpr,
    FAR: tl.constexpr,
    COEFFICIENTS: tl.constexpr,
    CHUNK: tl.constexpr,
    CHUNKS: tl.constexpr,
):
    """Write part of a row of weights to ``values``; with SLOPE the sum of ``values`` times slopes to ``sums``.

    Rows are those of the table from ``above`` on. With NODES the lags from HEAD on are not in the table: blocks of NEAR
    lags, and of FAR lags from SECOND on, are polynomials through as many nodes, whose values at the lags of a block are
    ``bases``. WIDTH is the power of 2 next above NODES. A program computes CHUNK weights, and CHUNKS times as many from
    SECOND on, where blocks are long.
    """
    row = tl.program_id(1).to(tl.int64)
    number = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, CHUNK)
    here = (above + row) * lags
    begin = number * CHUNK
    beyond = begin >= SECOND
    if beyond:
        begin = SECOND + (number - SECOND // CHUNK) * CHUNK * CHUNKS
    if (NODES == 0) or (begin < HEAD):
        column = begin + columns
        made = _evaluate(here + column, column < points, total, order, scale, series, fall, zeros, SLOPE, COEFFICIENTS)
        found = _finish(made, values, row, points, column, SLOPE)
    else:
        block = tl.where(beyond, FAR, NEAR)
        away = begin - tl.where(beyond, SECOND, HEAD)
        before = HEAD + tl.where(beyond, NODES * ((SECOND - HEAD) // NEAR), 0)
        node = tl.arange(0, WIDTH)
        known = node < NODES
        at = _evaluate(
            here + before + away // block * NODES + node,
            known, total, order, scale, series, fall, zeros, SLOPE, COEFFICIENTS,
        )  # fmt: skip
        basis = bases + tl.where(beyond, NODES * NEAR, 0) + away % block + node[:, None] * block
        found = tl.zeros((), tl.float64)
        for chunk in range(0, tl.where(beyond, CHUNKS, 1)):
            column = chunk * CHUNK + columns
            polynomials = tl.load(basis + column[None, :], mask=known[:, None], other=0.0)
            made = tl.sum(at[:, None] * polynomials, axis=0)
            found += _finish(made, values, row, points, begin + column, SLOPE)
    if SLOPE:
        tl.store(sums + (above + row) * tl.num_programs(0) + number, found)


_M0, _M1 = (tl.constexpr(value) for value in MULTIPLIERS)
_W0, _W1 = (tl.constexpr(value) for value in WEYL)
_ROUNDS = tl.constexpr(ROUNDS)
_ROOT_HALF, _LN2_HIGH, _LN2_LOW, _TURN = (tl.constexpr(value) for value in (ROOT_HALF, LN2_HIGH, LN2_LOW, TURN))
_UNIT = tl.constexpr(2.0**-53)
_A0, _A1, _A2, _A3, _A4, _A5, _A6, _A7, _A8, _A9 = (tl.constexpr(value) for value in ATANH)
_S0, _S1, _S2, _S3, _S4, _S5, _S6, _S7, _S8 = (tl.constexpr(value) for value in SINE)
_C0, _C1, _C2, _C3, _C4, _C5, _C6, _C7, _C8 = (tl.constexpr(value) for value in COSINE)


@triton.jit
def _constant(value: tl.constexpr):
    """A number in double precision; a plain one would be rounded to single precision first."""
    return tl.full((), value, tl.float64)


@triton.jit
def _philox(a, b, key, BLOCK: tl.constexpr):
    """The four words of blocks with counters ``a`` of paths ``b``; ``key`` has two words and the stream."""
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
    return a, b, c, d


@triton.jit
def _normals(radii, angles):
    """A pair of normal numbers, by the formulae of ``normal_pairs``."""
    number = ((radii >> 11) + 1).to(tl.float64)
    bits = number.to(tl.int64, bitcast=True)
    exponent = ((bits >> 52) - 1022).to(tl.float64)
    mantissa = ((bits & 0xFFFFFFFFFFFFF) | 0x3FE0000000000000).to(tl.float64, bitcast=True)
    below = mantissa < _constant(_ROOT_HALF)
    power = tl.where(below, exponent - 54.0, exponent - 53.0)
    mantissa = tl.where(below, mantissa + mantissa, mantissa)
    s = (mantissa - 1.0) / (mantissa + 1.0)
    square = s * s
    total = square * _constant(_A9)
    total = (total + _constant(_A8)) * square
    total = (total + _constant(_A7)) * square
    total = (total + _constant(_A6)) * square
    total = (total + _constant(_A5)) * square
    total = (total + _constant(_A4)) * square
    total = (total + _constant(_A3)) * square
    total = (total + _constant(_A2)) * square
    total = (total + _constant(_A1)) * square
    total = (total + _constant(_A0)) * square * s
    log = power * _constant(_LN2_HIGH) + (s + s + (total + power * _constant(_LN2_LOW)))
    radius = tl.sqrt(log * -2.0)
    turns = (angles >> 11).to(tl.float64) * _constant(_UNIT)
    quarter = tl.floor(turns * 4.0 + 0.5)
    x = (turns - quarter * 0.25) * _constant(_TURN)
    square = x * x
    sine = square * _constant(_S8)
    sine = (sine + _constant(_S7)) * square
    sine = (sine + _constant(_S6)) * square
    sine = (sine + _constant(_S5)) * square
    sine = (sine + _constant(_S4)) * square
    sine = (sine + _constant(_S3)) * square
    sine = (sine + _constant(_S2)) * square
    sine = (sine + _constant(_S1)) * square
    sine = x + (sine + _constant(_S0)) * square * x
    cosine = square * _constant(_C8)
    cosine = (cosine + _constant(_C7)) * square
    cosine = (cosine + _constant(_C6)) * square
    cosine = (cosine + _constant(_C5)) * square
    cosine = (cosine + _constant(_C4)) * square
    cosine = (cosine + _constant(_C3)) * square
    cosine = (cosine + _constant(_C2)) * square
    cosine = (cosine + _constant(_C1)) * square
    cosine = (cosine + _constant(_C0)) * square + 1.0
    odd = (quarter == 1.0) | (quarter == 3.0)
    one = tl.where(odd, sine, cosine)
    two = tl.where(odd, cosine, sine)
    first = radius * tl.where((quarter == 1.0) | (quarter == 2.0), -one, one)
    second = radius * tl.where((quarter == 2.0) | (quarter == 3.0), -two, two)
    return first, second


@triton.jit
def _single_normals(radii, angles):
    """A pair of normal numbers in single precision throughout, to 3e-7 of their size.

    The logarithm of numbers near 1 uses their difference from 1, and the angle is reduced in integers, so that rounding
    loses no digits.
    """
    k = ((radii >> 11) + 1).to(tl.int64)
    bits = k.to(tl.float32).to(tl.int32, bitcast=True)
    exponent = (bits >> 23) - 126
    mantissa = ((bits & 0x7FFFFF) | 0x3F000000).to(tl.float32, bitcast=True)
    below = mantissa < 0.70710678
    power = tl.where(below, exponent - 54, exponent - 53)
    mantissa = tl.where(below, mantissa + mantissa, mantissa)
    lack = (9007199254740992 - k).to(tl.float32) * 1.1102230246251565e-16
    top = tl.where(power == 0, -lack, mantissa - 1.0)
    s = top / (top + 2.0)
    square = s * s
    total = square * 0.2222222222222222
    total = (total + 0.2857142857142857) * square
    total = (total + 0.4) * square
    total = (total + 0.6666666666666666) * square * s
    radius = tl.sqrt((power.to(tl.float32) * 0.6931471805599453 + (s + s + total)) * -2.0)
    t = (angles >> 11).to(tl.int64)
    quarter = (t + 1125899906842624) >> 51
    x = (t - (quarter << 51)).to(tl.float32) * 6.975736996017264e-16
    square = x * x
    sine = square * 2.7557319223985893e-06
    sine = (sine - 0.0001984126984126984) * square
    sine = (sine + 0.008333333333333333) * square
    sine = x + (sine - 0.16666666666666666) * square * x
    cosine = square * -2.755731922398589e-07
    cosine = (cosine + 2.48015873015873e-05) * square
    cosine = (cosine - 0.001388888888888889) * square
    cosine = (cosine + 0.041666666666666664) * square
    cosine = (cosine - 0.5) * square + 1.0
    odd = (quarter & 1) == 1
    one = tl.where(odd, sine, cosine)
    two = tl.where(odd, cosine, sine)
    first = radius * tl.where((quarter == 1) | (quarter == 2), -one, one)
    second = radius * tl.where((quarter == 2) | (quarter == 3), -two, two)
    return first, second


@triton.jit
def fill_scaled(paths, key, weights, result, rows, n, per_row, BLOCK: tl.constexpr):
    """Normal numbers times the weight of their column; a program processes blocks of four from any rows."""
    program = tl.program_id(0)
    index = program * BLOCK + tl.arange(0, BLOCK)
    row = index // per_row
    a = (index - row * per_row + 1).to(tl.uint64)
    b = tl.load(paths + row, mask=row < rows, other=0).to(tl.uint64)
    a, b, c, d = _philox(a, b, key, BLOCK)
    one, two = _single_normals(a, b)
    three, four = _single_normals(c, d)
    values = tl.interleave(tl.interleave(one, three), tl.interleave(two, four))
    flat = program * (4 * BLOCK) + tl.arange(0, 4 * BLOCK)
    line = flat // (4 * per_row)
    column = flat - line * (4 * per_row)
    mask = (column < n) & (line < rows)
    weight = tl.load(weights + column, mask=mask, other=0.0)
    tl.store(result + line.to(tl.int64) * n + column, values * weight, mask=mask)


@triton.jit
def sum_rows(steps, result, n, stride, BLOCK: tl.constexpr):
    """Sums from 0 on of the first ``n`` values of a row."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    values = tl.load(steps + row * stride + column, mask=column < n, other=0.0)
    start = result + row * (n + 1)
    tl.store(start, 0.0)
    tl.store(start + 1 + column, tl.cumsum(values, axis=0), mask=column < n)


@triton.jit
def _uniforms(words, BITS: tl.constexpr):
    return ((words >> (64 - BITS)).to(tl.float64) + 0.5) * _constant(1.0 / (1 << BITS))


@triton.jit
def fill(paths, key, result, n, NORMAL: tl.constexpr, BITS: tl.constexpr, BLOCK: tl.constexpr):
    """Blocks of four numbers of a row."""
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    a = (block + 1).to(tl.uint64)
    b = tl.zeros_like(a) + tl.load(paths + row).to(tl.uint64)
    a, b, c, d = _philox(a, b, key, BLOCK)
    if NORMAL:
        one, two = _normals(a, b)
        three, four = _normals(c, d)
    else:
        one = _uniforms(a, BITS)
        two = _uniforms(b, BITS)
        three = _uniforms(c, BITS)
        four = _uniforms(d, BITS)
    # Adjacent elements together, so that a program writes contiguous memory.
    values = tl.interleave(tl.interleave(one, three), tl.interleave(two, four))
    column = tl.program_id(1).to(tl.int64) * (4 * BLOCK) + tl.arange(0, 4 * BLOCK)
    tl.store(result + row * n + column, values.to(result.dtype.element_ty), mask=column < n)

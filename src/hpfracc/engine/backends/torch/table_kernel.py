"""Weights from a table of polynomials in the order, as one Triton kernel. Importing this module imports Triton.

The table is that of ``operators/core/order_tables.py``. PyTorch operations need about twenty launches to compute
weights from it and a dozen for the backward pass, which take longer than the transforms of a million points.
"""

# ruff: noqa: N803  (Triton's constants are written in capitals)
from __future__ import annotations

import triton
import triton.language as tl


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

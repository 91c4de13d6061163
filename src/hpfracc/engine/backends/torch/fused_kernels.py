"""The kernels of ``fused.py``, in Triton's own language. Importing this module imports Triton."""

# ruff: noqa: N803  (Triton's constants are written in capitals)
from __future__ import annotations

import triton
import triton.language as tl


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

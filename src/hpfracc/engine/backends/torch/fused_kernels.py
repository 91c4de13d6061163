"""The kernels of ``fused.py``, in Triton's own language. Importing this module imports Triton."""

# ruff: noqa: N803  (Triton's constants are written in capitals)
from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["cut", "pad"]


@triton.jit
def pad(signal, padded, first, limit, points, size, LIMITED: tl.constexpr, REVERSED: tl.constexpr, BLOCK: tl.constexpr):
    """Copy a block of a row, bad samples and everything past the row's end as 0; note the first bad sample.

    REVERSED takes the row from its end; LIMITED takes the samples from the row's ``limit`` on as 0.
    """
    row = tl.program_id(1).to(tl.int64)
    column = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    source = points - 1 - column if REVERSED else column
    inside = column < points
    if LIMITED:
        inside = inside & (source < tl.load(limit + row))
    value = tl.load(signal + row * points + source, mask=inside, other=0.0)
    good = value - value == 0.0  # false for nan and for inf
    tl.store(padded + row * size + column, tl.where(good, value, 0.0), mask=column < size)
    least = tl.min(tl.where(good, points, column), axis=0)
    if least < points:
        tl.atomic_min(first + row, least)


@triton.jit
def cut(product, result, first, points, size, REVERSED: tl.constexpr, BLOCK: tl.constexpr):
    """Copy a block of a row's first ``points``, nan from its first bad sample on; REVERSED writes it backwards."""
    row = tl.program_id(1).to(tl.int64)
    column = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = column < points
    value = tl.load(product + row * size + column, mask=inside, other=0.0)
    value = tl.where(column < tl.load(first + row), value, float("nan"))
    target = points - 1 - column if REVERSED else column
    tl.store(result + row * points + target, value, mask=inside)

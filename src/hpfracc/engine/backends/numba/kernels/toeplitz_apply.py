"""Symmetric Toeplitz products in Numba: the direct sum, four distances at a time over tiles that stay in cache."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, uintp

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.numba.arrays import Array, flat, spread
from hpfracc.engine.primitives.toeplitz_apply import ToeplitzApply
from hpfracc.engine.workers import even_blocks, run_blocks

__all__ = ["KERNELS"]

#: Outputs of a tile.
_TILE = 1024
_CONTRACT = ToeplitzApply()
#: Products summed plainly before their sum is added to the output, which keeps rounding errors small.
_TAPS = 64

# "reassoc" and "contract" do not assume that numbers are finite. Indices are unsigned, or nothing is vectorised.
_OPTIONS: dict[str, Any] = {"nogil": True, "cache": True, "fastmath": {"contract", "reassoc"}}


@njit(**_OPTIONS)
def _sum(w, w0, x, out, o0, scratch, taps, begin, stop):  # type: ignore[no-untyped-def]
    """Outputs ``begin`` to ``stop`` of one row, whose samples start at ``taps - 1`` in ``x``."""
    tile, many, hang = uintp(_TILE), uintp(_TAPS), taps - uintp(1)
    low = begin
    while low < stop:
        high = min(low + tile, stop)
        first = w[w0]
        for i in range(low, high):
            out[o0 + i] = first * x[hang + i]
        k = uintp(1)
        while k < taps:
            last = min(k + many, taps)
            for i in range(high - low):
                scratch[i] = 0
            while k + uintp(4) <= last:
                p = w0 + k
                a, b, c, d = w[p], w[p + uintp(1)], w[p + uintp(2)], w[p + uintp(3)]
                left, right = hang + low - k, hang + low + k
                for i in range(high - low):
                    scratch[i] += (
                        a * (x[left + i] + x[right + i]) + b * (x[left + i - uintp(1)] + x[right + i + uintp(1)])
                    ) + (
                        c * (x[left + i - uintp(2)] + x[right + i + uintp(2)])
                        + d * (x[left + i - uintp(3)] + x[right + i + uintp(3)])
                    )
                k += uintp(4)
            while k < last:
                a = w[w0 + k]
                left, right = hang + low - k, hang + low + k
                for i in range(high - low):
                    scratch[i] += a * (x[left + i] + x[right + i])
                k += uintp(1)
            for i in range(high - low):
                out[o0 + low + i] += scratch[i]
        low = high


@njit(nogil=True, cache=True)
def _rows(w, x, out, padded, scratch, n, taps, stride, first_row, last_row, begin, stop):  # type: ignore[no-untyped-def]
    """Outputs ``begin`` to ``stop`` of some rows; row r has its points at ``r n`` and its weights at ``r stride``."""
    hang = taps - 1
    for row in range(first_row, last_row):
        padded[:hang] = 0
        padded[hang + n :] = 0
        for i in range(n):
            padded[hang + i] = x[row * n + i]
        _sum(w, uintp(row * stride), padded, out, uintp(row * n), scratch, uintp(taps), uintp(begin), uintp(stop))


def apply_direct(weights: Array, signal: Array, *, axes: Any = -1, workers: int = 1) -> Array:
    """The sum; rows, or outputs if there are fewer rows than threads, are divided among threads."""
    call = _CONTRACT.describe(weights, signal, axes=axes)
    (axis,), (taps,), (n,) = call.facts["axes"], call.facts["used"], call.facts["points"]
    if 0 in call.shape or not taps:
        return np.zeros(call.shape, signal.dtype)
    # Empty memory is not allocated until it is written: for the last axis it never is.
    result = np.empty(call.shape, signal.dtype)
    along = np.moveaxis(result, axis, -1)
    batch = along.shape[:-1]
    weights = np.moveaxis(weights, axis, -1)[..., :taps]
    # One row of weights applies to all rows; several are laid out like the signal.
    stride = 0 if weights.size == taps else taps
    w = flat(np.broadcast_to(weights, (*batch, taps)) if stride else weights)
    x = flat(spread(np.moveaxis(signal, axis, -1), along.shape))
    made = np.empty(along.shape, signal.dtype)
    out = made.reshape(-1)
    rows = math.prod(batch)

    def work(block: tuple[int, int, int, int]) -> None:
        padded, scratch = np.empty(n + 2 * taps - 2, out.dtype), np.empty(_TILE, out.dtype)
        _rows(w, x, out, padded, scratch, n, taps, stride, *block)

    if rows >= workers:
        blocks = [(first, last, 0, n) for first, last in even_blocks(rows, workers)]
    else:
        blocks = [(0, rows, begin, stop) for begin, stop in even_blocks(n, workers)]
    run_blocks(work, blocks, workers)
    if axis == -1:
        return made
    along[...] = made
    return result


KERNELS: dict[str, Kernel] = {"direct": Kernel(apply_direct)}

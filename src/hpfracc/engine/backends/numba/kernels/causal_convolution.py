"""Causal convolution in Numba: the direct sum, eight taps at a time over tiles of outputs that stay in cache."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from numba import njit, uintp

from hpfracc._xp import NUMPY
from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.generic.causal_convolution import differences as differences_of
from hpfracc.engine.backends.numba.arrays import Array, behaved, flat, spread
from hpfracc.engine.workers import even_blocks, run_blocks

#: Outputs of a tile: with its two rows of scratch it fills half of a first-level cache.
_TILE = 1024
#: Taps that are summed plainly; these sums are added with compensation for rounding. With 20,000 equal weights, the
#: worst case, the error is then 5 units of rounding instead of 43 (with 512 taps, compensated or not: 16 to 43), for 10
#: % more time.
_TAPS = 64

# "reassoc" lets eight products be added in any order, "contract" fuses multiply and add; neither assumes that numbers
# are finite. Indices are unsigned: Numba tests signed ones for being negative, and then nothing is vectorised.
_OPTIONS: dict[str, Any] = {"nogil": True, "cache": True, "fastmath": {"contract", "reassoc"}}


@njit(**_OPTIONS)
def _add_taps(w, w0, x, x0, acc, shift, begin, stop, k, last):  # type: ignore[no-untyped-def]
    """``acc[i + shift] += sum w[k] x[i - k]`` over taps ``k`` to ``last``, outputs ``begin`` to ``stop``."""
    while k + uintp(8) <= last:
        p = w0 + k
        a, b, c, d = w[p], w[p + uintp(1)], w[p + uintp(2)], w[p + uintp(3)]
        e, f, g, h = w[p + uintp(4)], w[p + uintp(5)], w[p + uintp(6)], w[p + uintp(7)]
        whole = min(max(begin, k + uintp(7)), stop)
        for i in range(max(begin, k), whole):  # outputs that depend on fewer than eight taps
            total = acc[i + shift]
            for j in range(k, i + uintp(1)):
                total += w[w0 + j] * x[x0 + i - j]
            acc[i + shift] = total
        for i in range(whole, stop):
            q = x0 + i - k
            acc[i + shift] += ((a * x[q] + b * x[q - uintp(1)]) + (c * x[q - uintp(2)] + d * x[q - uintp(3)])) + (
                (e * x[q - uintp(4)] + f * x[q - uintp(5)]) + (g * x[q - uintp(6)] + h * x[q - uintp(7)])
            )
        k += uintp(8)
    while k < last:
        a = w[w0 + k]
        for i in range(max(begin, k), stop):
            acc[i + shift] += a * x[x0 + i - k]
        k += uintp(1)


@njit(nogil=True, cache=True)
def _carry(out, x0, part, low, first, high):  # type: ignore[no-untyped-def]
    """``out += part`` for a tile from ``low``; rounding errors are collected in ``part``'s second half (two-sum)."""
    for i in range(first, high):
        old, new = out[x0 + i], part[i - low]
        total = old + new
        back = total - old
        part[i - low + uintp(_TILE)] += (old - (total - back)) + (new - back)
        out[x0 + i] = total


@njit(nogil=True, cache=True)
def _settle(out, x0, part, low, high):  # type: ignore[no-untyped-def]
    """Add the collected errors, except where they are nan: there the sum is not finite, and correct."""
    for i in range(low, high):
        lost = part[i - low + uintp(_TILE)]
        if lost == lost:
            out[x0 + i] += lost


@njit(**_OPTIONS)
def _convolve(w, x, out, scratch, n, taps, stride, first_row, last_row, begin, stop):  # type: ignore[no-untyped-def]
    """Outputs ``begin`` to ``stop`` of some rows; row r has its points at ``r n`` and its weights at ``r stride``.

    ``scratch`` has the size of two tiles; it is used if there are more taps than are summed plainly.
    """
    n, taps, tile, many = uintp(n), uintp(taps), uintp(_TILE), uintp(_TAPS)
    for row in range(uintp(first_row), uintp(last_row)):
        x0, w0 = row * n, row * uintp(stride)
        low = uintp(begin)
        while low < uintp(stop):
            high = min(low + tile, uintp(stop))
            reach = min(taps, high)
            for i in range(low, high):
                out[x0 + i] = 0
            if reach <= many:
                _add_taps(w, w0, x, x0, out, x0, low, high, uintp(0), reach)
            else:
                scratch[_TILE:] = 0
                k = uintp(0)
                while k < reach:
                    upto = min(k + many, reach)
                    # Taps from k on affect outputs from k on; earlier ones need no sum.
                    first = max(low, k)
                    for i in range(first - low, high - low):
                        scratch[i] = 0
                    _add_taps(w, w0, x, x0, scratch, uintp(0) - low, first, high, k, upto)
                    _carry(out, x0, scratch, low, first, high)
                    k = upto
                _settle(out, x0, scratch, low, high)
            low = high


@njit(nogil=True, cache=True)
def _convolve_row(w, x, out, scratch):  # type: ignore[no-untyped-def]
    """One row: four arguments to unpack instead of eleven."""
    _convolve(w, x, out, scratch, x.size, min(w.size, x.size), 0, 0, 1, 0, x.size)


def convolve_direct(weights: Array, signal: Array, *, workers: int = 1) -> Array:
    """The sum; rows, or outputs if there are fewer rows than threads, are divided among threads."""
    n, taps = signal.shape[-1], weights.shape[-1]
    if workers <= 1 and weights.ndim == 1 and signal.ndim == 1:
        # The shortest path, because at 16 points call overhead dominates.
        if not (weights.flags.carray and signal.flags.carray):
            weights, signal = behaved(weights), behaved(signal)
        result = np.empty(n, signal.dtype)
        _convolve_row(weights, signal, result, np.empty(2 * _TILE, result.dtype) if taps > _TAPS else result)
        return result
    batch = np.broadcast_shapes(weights.shape[:-1], signal.shape[:-1])
    # One row of weights applies to all rows; several are laid out like the signal.
    stride = 0 if weights.size == taps else taps
    w = flat(spread(weights, (*batch, taps)) if stride else weights)
    result = np.empty((*batch, n), signal.dtype)
    x, out = flat(spread(signal, result.shape)), result.reshape(-1)
    rows, taps = math.prod(batch), min(taps, n)

    def work(block: tuple[int, int, int, int]) -> None:
        scratch = np.empty(2 * _TILE if taps > _TAPS else 0, out.dtype)
        _convolve(w, x, out, scratch, n, taps, stride, *block)

    if rows >= workers:
        blocks = [(first, last, 0, n) for first, last in even_blocks(rows, workers)]
    else:
        blocks = [(0, rows, begin, stop) for begin, stop in _equal_work(n, taps, workers)]
    run_blocks(work, blocks, workers)
    return result


def _equal_work(n: int, taps: int, workers: int) -> list[tuple[int, int]]:
    """Ranges of outputs that take equally long: output i costs ``min(i, taps)`` steps."""
    ramp = taps * taps / 2
    total = ramp + (n - taps) * taps
    edges = [0]
    for part in range(1, workers):
        steps = total * part / workers
        edges.append(round(math.sqrt(2 * steps) if steps <= ramp else taps + (steps - ramp) / max(1, taps)))
    edges.append(n)
    return [(low, high) for low, high in itertools.pairwise(edges) if high > low]


def convolve_with_options(
    weights: Array, signal: Array, *starts: Array, differences: bool = False, starts_from: int = 0, workers: int = 1
) -> Array:
    """:func:`convolve_direct` with the options of the primitive."""
    if not (differences or starts):
        return convolve_direct(weights, signal, workers=workers)
    with np.errstate(all="ignore"):
        summands = differences_of(NUMPY, signal) if differences else signal
        result = convolve_direct(weights, summands, workers=workers)
        for j, row in enumerate(starts[0] if starts else (), starts_from):
            result[..., j:] += (summands if j else signal)[..., j : j + 1] * row[j:]
    return result


KERNELS: dict[str, Kernel] = {"direct": Kernel(convolve_with_options)}

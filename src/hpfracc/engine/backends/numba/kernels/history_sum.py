"""History sum in Numba: each weight computed where it is used, with one power per weight away from the diagonal."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from numba import njit

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.numba.arrays import Array, behaved, flat
from hpfracc.engine.workers import run_blocks

__all__ = ["KERNELS", "sum_direct"]

_OPTIONS: dict[str, Any] = {"nogil": True, "cache": True, "fastmath": {"contract", "reassoc"}}
_POWER, _TEMPERED, _LOGARITHMIC, _TABULATED = range(4)
_CODES = {"power": _POWER, "tempered": _TEMPERED, "logarithmic": _LOGARITHMIC, "tabulated": _TABULATED}


@njit(nogil=True, cache=True)
def _mean_power(a, width, p, scaled):  # type: ignore[no-untyped-def]
    """The mean of ``r**p`` from ``a`` to ``a + width``, times ``p + 1`` if ``scaled``."""
    if a <= 0.0:
        return width**p if scaled else width**p / (p + 1.0)
    if width < 0.05 * a:
        # About the middle, v^2 below 6e-4: the next term is 1e-17.
        c = a + 0.5 * width
        v = 0.5 * width / c
        v *= v
        t1 = p * (p - 1.0) / 2.0 * v
        t2 = t1 * (p - 2.0) * (p - 3.0) / 12.0 * v
        t3 = t2 * (p - 4.0) * (p - 5.0) / 30.0 * v
        t4 = t3 * (p - 6.0) * (p - 7.0) / 56.0 * v
        return (
            (p + 1.0 if scaled else 1.0)
            * math.exp(p * math.log(c))
            * (1.0 + (t1 / 3.0 + (t2 / 5.0 + (t3 / 7.0 + t4 / 9.0))))
        )
    q, ratio = p + 1.0, width / a
    mean = a**p * math.expm1(q * math.log1p(ratio)) / ratio
    return mean if scaled else mean / q


@njit(nogil=True, cache=True)
def _interpolate(at, knots, table):  # type: ignore[no-untyped-def]
    low, high = 0, knots.size - 1
    if at <= knots[0]:
        return table[0]
    if at >= knots[high]:
        return table[high]
    while high - low > 1:
        middle = (low + high) // 2
        if knots[middle] <= at:
            low = middle
        else:
            high = middle
    share = (at - knots[low]) / (knots[high] - knots[low])
    return table[low] * (1.0 - share) + table[high] * share


@njit(**_OPTIONS)
def _sum(times, widths, x, out, code, scaled, one, two, begin, stop):  # type: ignore[no-untyped-def]
    """Outputs ``begin`` to ``stop`` of all rows; each weight is used for every row."""
    rows = x.shape[0]
    p = one[0]
    for i in range(begin, stop):
        for row in range(rows):
            out[row, i] = 0.0
        for k in range(0 if code == _TABULATED else 1, i + 1):
            gap = times[i] - times[k]
            if code == _TABULATED:
                weight = _interpolate(gap, one, two)
            elif code == _LOGARITHMIC:
                weight = _mean_power(math.log1p(gap / times[k]), widths[k], p, scaled)
            else:
                weight = _mean_power(gap, widths[k], p, scaled)
                if code == _TEMPERED:
                    weight *= math.exp(-two[0] * gap)
            for row in range(rows):
                out[row, i] += weight * x[row, k]


def sum_direct(
    times: Array, signal: Array, *parameters: Array, kernel: str = "power", scaled: bool = False, workers: int = 1
) -> Array:
    """The sum; outputs are divided among threads."""
    n = signal.shape[-1]
    kind = signal.dtype if signal.dtype.kind in "fc" else np.dtype(np.float64)
    rows = signal.size // n if n else 0
    x = np.array(signal, np.complex128 if kind.kind == "c" else np.float64, order="C").reshape(rows, n)
    if not x.size:
        return np.zeros(signal.shape, kind)
    times = behaved(np.array(times, np.float64))
    code = _CODES[kernel]
    one, two = (flat(np.array(parameters[min(i, len(parameters) - 1)], np.float64)) for i in (0, 1))
    widths = np.empty_like(times)
    gaps = np.diff(times)
    with np.errstate(all="ignore"):
        widths[1:] = np.log1p(gaps / times[:-1]) if code == _LOGARITHMIC else gaps
    widths[0] = 1.0
    if code != _TABULATED:
        x[:, 0] = 0.0
    out = np.empty_like(x)
    # Output i costs i steps; the ranges take equal time.
    edges = [round(n * math.sqrt(part / workers)) for part in range(workers + 1)]
    blocks = [(low, high) for low, high in itertools.pairwise(edges) if high > low]
    run_blocks(lambda block: _sum(times, widths, x, out, code, scaled, one, two, *block), blocks, workers)
    bad = ~np.isfinite(x)
    if bad.any():
        out[np.logical_or.accumulate(bad, -1)] = np.nan
    return out.astype(kind, copy=False).reshape(signal.shape)


KERNELS: dict[str, Kernel] = {"direct": Kernel(sum_direct)}

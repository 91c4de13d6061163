"""Repairs convolutions by FFT of non-finite operands: a non-finite sample affects only the outputs that involve it.

The convolution is computed with 0 in place of every non-finite value. The IEEE results of the omitted products are then
added. Convolutions of ones and zeros determine which outputs have such products, so the cost is a few transforms for
any number of non-finite samples.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["repaired", "rescaled"]

Array = np.ndarray[Any, Any]
Convolve = Callable[[Array, Array], Array]


@np.errstate(all="ignore")
def rescaled(convolve: Convolve, weights: Array, signal: Array, result: Array) -> Array:
    """The convolution of finite operands, which is ``result`` unless their transforms may have overflowed."""
    limit = np.finfo(result.dtype).maxexp // 2 - 8
    shifts = [max(0, _largest_exponent(array) + array.shape[-1].bit_length() - limit) for array in (weights, signal)]
    if not any(shifts):
        return result
    found = convolve(*(array * 2.0**-shift for array, shift in zip((weights, signal), shifts, strict=True)))
    for shift in shifts:
        found *= 2.0**shift
    return found


def _largest_exponent(array: Array) -> int:
    parts = (array.real, array.imag) if array.dtype.kind == "c" else (array,)
    return max(int(np.frexp(np.abs(part).max(initial=0.0))[1]) for part in parts)


@np.errstate(all="ignore")
def repaired(convolve: Convolve, weights: Array, signal: Array) -> Array:
    """``convolve(weights, signal)`` with the result of the direct sum for any operands.

    For complex numbers an output that involves a non-finite sample is nan in both parts.
    """
    clean = convolve(_cleaned(weights), _cleaned(signal))
    if np.iscomplexobj(clean):
        bad = _count(convolve, [(~np.isfinite(weights), _ones(signal)), (_ones(weights), ~np.isfinite(signal))])
        clean[np.broadcast_to(bad, clean.shape)] = complex(np.nan, np.nan)
        return clean
    inf = np.inf
    rising, falling, undefined = (
        _count(convolve, pairs)
        for pairs in (
            [
                (weights > 0, signal == inf),
                (weights < 0, signal == -inf),
                (weights == inf, signal > 0),
                (weights == -inf, signal < 0),
            ],
            [
                (weights < 0, signal == inf),
                (weights > 0, signal == -inf),
                (weights == -inf, signal > 0),
                (weights == inf, signal < 0),
            ],
            [
                (_ones(weights), np.isnan(signal)),
                (np.isnan(weights), _ones(signal)),
                (weights == 0, np.isinf(signal)),
                (np.isinf(weights), signal == 0),
            ],
        )
    )
    clean += np.where(rising, inf, 0)
    clean += np.where(falling, -inf, 0)
    clean += np.where(undefined, np.nan, 0)
    return clean


def _cleaned(array: Array) -> Array:
    return np.where(np.isfinite(array), array, array.dtype.type(0))


def _ones(array: Array) -> Array:
    return np.ones(array.shape, bool)


def _count(convolve: Convolve, pairs: list[tuple[Array, Array]]) -> Array:
    """Whether at least one pair of ones coincides. Counts are integers below 2^52, so rounding is safe."""
    met: Array = np.zeros((), bool)
    for left, right in pairs:
        if left.any() and right.any():
            met = met | (convolve(left.astype(np.float64), right.astype(np.float64)) > 0.5)
    return met

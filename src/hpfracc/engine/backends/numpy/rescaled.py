"""Convolutions by FFT of finite operands whose transforms might overflow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["rescaled"]

Array = np.ndarray[Any, Any]


def rescaled(convolve: Callable[[Array, Array], Array], weights: Array, signal: Array) -> Array:
    """``convolve(weights, signal)`` of finite operands, scaled by powers of two if their transforms might overflow."""
    limit = np.finfo(signal.dtype).maxexp // 2 - 8
    shifts = [max(0, _largest_exponent(array) + array.shape[-1].bit_length() - limit) for array in (weights, signal)]
    found = convolve(*(array * 2.0**-shift for array, shift in zip((weights, signal), shifts, strict=True)))
    for shift in shifts:
        found *= 2.0**shift
    return found


def _largest_exponent(array: Array) -> int:
    parts = (array.real, array.imag) if array.dtype.kind == "c" else (array,)
    return max(int(np.frexp(np.abs(part).max(initial=0.0))[1]) for part in parts)

"""The weights of the intervals of a grid at later points, in any array namespace.

On an interval the mean of the kernel is used, ``(b^q - a^q) / (q (b - a))`` with ``q = p + 1`` for the power ``r^p``
between the distances a and b. Neighbouring powers, which would cancel, are subtracted by ``expm1`` and ``log1p``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hpfracc._xp import Namespace

__all__ = ["KINDS", "block_of_weights", "distances", "mean_power", "output_blocks"]

#: The kernels, with the parameters that follow times and signal.
KINDS: dict[str, tuple[str, ...]] = {
    "power": ("exponent",),
    "tempered": ("exponent", "tempering"),
    "logarithmic": ("exponent",),
    "tabulated": ("knots", "table"),
}


def output_blocks(n: int, block: int, most: int) -> list[tuple[int, int]]:
    """Ranges of outputs that are computed together: about ``block`` weights, and at most ``most`` outputs."""
    blocks, low = [], 0
    while low < n:
        high = min(n, low + _rows_from(low, block, most))
        blocks.append((low, high))
        low = high
    return blocks


def _rows_from(low: int, block: int, most: int) -> int:
    """The maximum number of rows r from ``low`` on for which ``r (low + r)`` weights fit into a block."""
    return max(1, min(most, (math.isqrt(low * low + 4 * block) - low) // 2))


def mean_power(xp: Namespace, a: Any, width: Any, p: Any, scaled: bool = False) -> Any:
    """The mean of ``r**p`` from ``a`` to ``a + width``; ``a`` may be 0, ``p`` exceeds -1.

    If ``scaled``, times ``p + 1``: then ``p`` may be -1, where only an interval that touches 0 contributes.
    """
    q = p + 1.0
    touches = a <= 0.0
    near = xp.where(touches, width, a)
    ratio = width / near
    away = near**p * xp.expm1(q * xp.log1p(ratio)) / ratio
    mean = xp.where(touches, width**p, away)
    return mean if scaled else mean / q


def distances(xp: Namespace, kind: str, late: Any, early: Any) -> Any:
    """Distance of ``early`` before ``late``: their difference, or that of their logarithms."""
    gap = late - early
    return xp.log1p(gap / early) if kind == "logarithmic" else gap


def block_of_weights(
    xp: Namespace, kind: str, times: Any, parameters: tuple[Any, ...], late: Any, places: Any, scaled: bool = False
) -> tuple[Any, int]:
    """Weights of the outputs at ``places``, whose times are ``late``, for inputs at ``times``; and the first of those.

    Shape ``(outputs, inputs)``, zero for inputs later than the output. For kernels of intervals the inputs start with
    the second point, which ends the first interval.
    """
    late = late[:, None]
    first = 0 if kind == "tabulated" else 1
    causal = xp.asarray(np.arange(first, times.shape[0])[None, :] <= places[:, None], times)
    early = xp.where(causal, times[None, first:], late)
    if kind == "tabulated":
        return xp.where(causal, _interpolate(xp, late - early, *parameters), 0.0), first
    gap = distances(xp, kind, late, early)
    width = distances(xp, kind, times[1:], times[:-1])[None, :]
    weights = mean_power(xp, gap, width, parameters[0], scaled)
    if kind == "tempered":
        weights = weights * xp.exp(-parameters[1] * gap)
    return xp.where(causal, weights, 0.0), first


def _interpolate(xp: Namespace, at: Any, knots: Any, table: Any) -> Any:
    """Linear interpolation between the knots; the first or last value beyond them."""
    index = xp.searchsorted(knots, at.reshape(-1)).reshape(at.shape)
    index = xp.clip(index, 1, knots.shape[0] - 1)
    left, right = knots[index - 1], knots[index]
    share = xp.clip((at - left) / (right - left), 0.0, 1.0)
    return table[index - 1] * (1.0 - share) + table[index] * share

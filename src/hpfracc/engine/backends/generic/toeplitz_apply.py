"""Toeplitz products of non-finite samples: the outputs that such a sample affects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hpfracc._xp import Namespace

__all__ = ["affected"]


def affected(xp: Namespace, bad: Any, axes: Sequence[int], used: Sequence[int]) -> Any:
    """Whether a sample within ``used[i]`` points along ``axes[i]`` is ``bad``."""
    for axis, taps in zip(axes, used, strict=True):
        bad = xp.moveaxis(_reach(xp, xp.moveaxis(bad, axis, -1), taps), -1, axis)
    return bad


def _reach(xp: Namespace, bad: Any, taps: int) -> Any:
    count = xp.cumsum(bad, axis=-1, dtype="int32")
    n = bad.shape[-1]
    places = xp.arange(0, n, "int64")
    before = places - taps
    earlier = xp.where(before >= 0, count[..., xp.maximum(before, 0)], 0)
    return count[..., xp.minimum(places + taps - 1, n - 1)] - earlier > 0

"""The lags at which a sequence of weights is computed: all up to a length, or a few from which the others follow.

Beyond its head a sequence of weights is a smooth function of the lag: on a block sixteen times shorter than its
distance from 0 it is a polynomial of degree 9 up to rounding. So a long sequence is computed only at the Chebyshev
points of such blocks, and one matrix product gives the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from hpfracc._xp import Namespace

__all__ = ["BLOCKS", "HEAD", "NODES", "Lags", "cardinals", "count_of", "few_lags", "long_run", "previous"]

#: Lags below this are all computed.
HEAD = 4096
#: Start and length of the blocks: the length is at most a sixteenth of the distance from 0.
BLOCKS = ((HEAD, 256), (32 * HEAD, 8192))
#: Points of a block at which weights are computed. The nearest singularity, at lag 0, is 33 half-blocks away, so that
#: the interpolation error decreases like 66^-j.
NODES = 10
#: Numbers up to this count are computed on the host; more are computed where they are used.
_FEW = 4096


@dataclass(frozen=True)
class Lags:
    """Lags 0, 1, ..., ``near - 1`` and those in ``far``, which need not be integers."""

    near: int
    far: np.ndarray[Any, Any]


def count_of(n: int | Lags) -> int:
    """Number of lags."""
    return n if isinstance(n, int) else n.near + len(n.far)


def previous(n: int | Lags) -> int | Lags:
    """The lag before each of them, except for the first."""
    return n - 1 if isinstance(n, int) else Lags(n.near - 1, n.far - 1.0)


def long_run(xp: Namespace, first: int, n: int | Lags) -> Any:
    """Lags from ``first`` on: a NumPy array if they are few, else one of ``xp`` on its device."""
    if not isinstance(n, int):
        return np.concatenate([np.arange(first, n.near, dtype=np.float64), n.far])
    if xp.library in ("numpy", "cupy") or n - first <= _FEW:
        return np.arange(first, n, dtype=np.float64)
    return xp.arange(first, n, "float64")


@cache
def few_lags(n: int) -> Lags:
    """The lags from which :func:`cardinals` interpolate the weights at 0 .. n-1."""
    at = 0.5 * (1.0 + _nodes())
    far = [
        (first + block * np.arange(_blocks(first, last, block))[:, None] + (block - 1) * at).ravel()
        for (first, block), last in zip(BLOCKS, _ends(n), strict=True)
    ]
    return Lags(min(n, HEAD), np.concatenate(far))


def _ends(n: int) -> tuple[int, ...]:
    return (*(min(n, first) for first, _ in BLOCKS[1:]), n)


def _blocks(first: int, last: int, block: int) -> int:
    return max(0, -(-(last - first) // block))


def _nodes() -> np.ndarray[Any, Any]:
    return np.cos(np.pi * (np.arange(NODES) + 0.5) / NODES)[::-1]


@cache
def cardinals(block: int) -> np.ndarray[Any, Any]:
    """Row i, column j: the polynomial that is 1 at node i and 0 at the others, at the j-th lag of a block."""
    degree = np.arange(NODES)
    points = np.linspace(-1.0, 1.0, block)
    waves = np.cos(degree[:, None] * np.arccos(points))
    factors = np.cos(np.arccos(_nodes())[:, None] * degree) * np.where(degree, 2.0, 1.0) / NODES
    return np.asarray(factors @ waves)

"""Paths of price and variance."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hpfracc.errors import InvalidInputError

__all__ = ["RoughPaths", "join_chunks", "read_times"]


class RoughPaths(NamedTuple):
    """Paths of a rough volatility model.

    Attributes
    ----------
    t : ndarray, shape (n,)
        Times.
    S, V : ndarray, shape size + (n,)
        Price and variance.
    bias : float
        For :class:`~hpfracc.rough.Heston`: the largest error of implied volatilities that the steps cause, at the money
        and one standard deviation away, at the first and the last time. It is computed from the characteristic
        functions of scheme and model, so it has no statistical error. nan for :class:`~hpfracc.rough.Bergomi`, whose
        exact prices are unknown: repeat with more times.
    """

    t: np.ndarray[Any, Any]
    S: np.ndarray[Any, Any]
    V: np.ndarray[Any, Any]
    bias: float


def read_times(t: Any, *, uniform: bool) -> np.ndarray[Any, Any]:
    """Increasing times from 0 on as float64; equidistant if required."""
    try:
        times = np.asarray(t, dtype=float)
    except (TypeError, ValueError):
        raise InvalidInputError(f"t={t!r} is not numeric; give numbers") from None
    if times.ndim != 1 or times.size < 2 or times[0] != 0.0 or not (np.diff(times) > 0.0).all():
        raise InvalidInputError(
            "t has to be a list of at least two increasing times from 0 on, such as linspace(0, 1, 253)"
        )
    if not np.isfinite(times[-1]):
        raise InvalidInputError(f"t ends at {times[-1]}; use finite times")
    if uniform and not np.allclose(times, np.linspace(0.0, times[-1], times.size), rtol=0.0, atol=1e-9 * times[-1]):
        raise InvalidInputError("t is not equidistant; sample on linspace(0, T, n) and keep the times you need")
    return times


def join_chunks(
    t: np.ndarray[Any, Any],
    shape: tuple[int, ...],
    chunks: list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]],
    bias: float,
) -> RoughPaths:
    """Join chunks of paths into one array of the requested shape."""
    if not chunks:
        empty = np.empty((*shape, t.size))
        return RoughPaths(t, empty, empty.copy(), bias)
    price, variance = (np.concatenate(parts).reshape(*shape, t.size) for parts in zip(*chunks, strict=True))
    return RoughPaths(t, price, variance, bias)

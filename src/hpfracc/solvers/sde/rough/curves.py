"""Forward variance curves: numbers, functions of time, or tables; and integrals over them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from hpfracc import _reading
from hpfracc.errors import InvalidInputError, ShapeError

__all__ = ["VarianceTable", "curve_values", "integral_rule", "read_curve"]

#: Nodes of the double exponential rule on each piece, and where it ends; algebraic singularities at the ends of a piece
#: cost no digits. 241 nodes integrate products with Chebyshev polynomials of degree 122 to 1e-13.
_NODES, _END = 241, 3.3


@final
@dataclass(frozen=True, eq=False)
class VarianceTable:
    """A forward variance that is linear between times, and constant before the first and after the last."""

    times: np.ndarray
    values: np.ndarray

    def __call__(self, t: Any) -> Any:
        """The forward variance at ``t``."""
        return np.interp(t, self.times, self.values)


def read_curve(name: str, curve: Any) -> float | Callable[[Any], Any]:
    """A forward variance: a positive number, a function of an array of times, or a pair ``(times, values)``."""
    if callable(curve):
        found: Callable[[Any], Any] = curve
        return found
    if not isinstance(curve, tuple | list):
        return _reading.number(name, curve, above=0)
    if len(curve) != 2:
        raise ShapeError(f"{name} has {len(curve)} entries; give a number, a function, or a pair (times, values)")
    times, values = (_reading.numbers(f"{name}[{k}]", part, ndim=1, least=0) for k, part in enumerate(curve))
    if times.shape != values.shape or not times.size or not np.all(np.diff(times) > 0.0) or not np.all(values > 0.0):
        raise InvalidInputError(f"{name}: give as many positive variances as increasing times")
    return VarianceTable(times, values)


def curve_values(name: str, curve: Any, t: np.ndarray) -> np.ndarray:
    """The forward variance at the times ``t``, checked to be finite and positive."""
    found = np.broadcast_to(np.asarray(curve(t) if callable(curve) else curve, dtype=float), t.shape)
    if not (np.isfinite(found) & (found > 0.0)).all():
        last = float(np.max(t, initial=0.0))
        raise InvalidInputError(f"{name}(t) is not finite and positive up to t={last:g}; give a positive variance")
    return found


def integral_rule(curve: Any, T: float) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of integrals over ``[0, T]``, exact at the kinks of a table."""
    kinks = curve.times if isinstance(curve, VarianceTable) else np.empty(0)
    edges = np.concatenate([[0.0], kinks[(kinks > 0.0) & (kinks < T)], [T]])
    y = np.linspace(-_END, _END, _NODES)
    inner = 0.5 * np.pi * np.sinh(y)
    share = 1.0 / (1.0 + np.exp(-2.0 * inner))
    weight = (y[1] - y[0]) * 0.25 * np.pi * np.cosh(y) / np.cosh(inner) ** 2
    width = np.diff(edges)[:, None]
    return (edges[:-1, None] + width * share).ravel(), (width * weight).ravel()

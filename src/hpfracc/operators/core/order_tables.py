r"""Weights for a learned order, from a table: few operations, on the device of the order, with slopes.

Between consecutive integer orders each weight is :math:`(k+1)^{-\sigma\alpha}` times a polynomial in the order, up to
rounding, because the weights of every rule here are entire functions of it. The polynomials are computed once, on the
host, from the weights of twenty plain orders (Chebyshev points). Then the weights of any order in the interval are the
product of a matrix with its powers, and so are their slopes. A factor is split off if a weight is 0 at an end of the
interval, as most are at integer orders, so that it keeps its digits there. Of a long sequence only the lags of
:func:`few_lags` are tabulated. If twenty coefficients do not reach rounding there is no table, and the weights are
computed by their formulas.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from functools import cache
from typing import Any

import numpy as np

from hpfracc._torch_transforms import is_inactive, is_wrapped
from hpfracc._xp import NUMPY, Namespace
from hpfracc.operators.core.lags import HEAD, Lags, few_lags
from hpfracc.operators.core.order import Order
from hpfracc.operators.core.order_programs import Scale, Table, composed_weights, kept_tables, recorded_weights

__all__ = ["WHOLE_TABLE", "tabulated_weights"]

#: Number of coefficients: unless the last three are below rounding, there is no table.
_COEFFICIENTS = 20
_ROUNDING = 4e-15
#: Longest sequence that is tabulated at every lag: a table for 16,384 points takes 2.6 MB.
WHOLE_TABLE = 16_384
#: Largest number of weights in a table: 2 MB of them, 21 MB with their polynomials.
_MAX = 2**17
Maker = Callable[[Namespace, Any, Any], tuple[Any, ...]]


def tabulated_weights(
    scheme: Hashable,
    make: Maker,
    order: Order,
    n: int,
    few: bool = False,
    *,
    rate: float = 0.0,
    shift: float = 0.0,
    strict: bool = False,
    dtype: str = "float64",
) -> tuple[Any, ...] | None:
    """``make(xp, alpha, n)`` times ``exp(rate alpha + shift)`` for a PyTorch order, from a table.

    None if there is no table.

    Parameters
    ----------
    scheme : hashable
        Identifies ``make``.
    make : callable
        Returns a tuple of arrays whose last axis is the lag; with ``few`` it also accepts :class:`Lags`, and then every
        array has that many lags.
    order : Order
        Read from a tensor; its value may be unknown if its interval is known.
    n : int
        Number of lags.
    strict : bool
        Whether an unknown order at the lower end of its interval gives nan, like one outside.
    dtype : str
        Dtype of the result; the weights are computed in float64.
    """
    xp = order.xp
    if xp.library != "torch" or not n > 0 or (n > WHOLE_TABLE and not few):
        return None
    if order.known is None and is_wrapped(order.value):
        # Mapped orders may lie in any interval.
        return None
    if order.known == order.ceiling <= 0:
        # An integral has no such interval.
        return None
    key = (scheme, order.ceiling, n)
    host = kept_tables.get(key, lambda: _tabulate(make, order.ceiling, n, few) or False)
    if not host:
        return None
    scale = Scale(rate, shift, strict, order.known is None)
    value = order.value
    if _is_recorded(value):
        return recorded_weights(value, host, key, scale, xp, dtype)
    return tuple(xp.astype(array, dtype) for array in composed_weights(value, host, key, scale, xp))


def _is_recorded(value: Any) -> bool:
    """Whether an order is only recorded by autograd, without other transforms."""
    return not sys.modules["torch"].compiler.is_compiling() and is_inactive()


def _tabulate(make: Maker, ceiling: int, n: int, few: bool) -> Table | None:
    """The table as NumPy arrays."""
    nodes = few and n > HEAD
    lags: int | Lags = few_lags(n) if nodes else n
    angle = np.pi * (np.arange(_COEFFICIENTS) + 0.5) / _COEFFICIENTS
    orders = ceiling - 0.5 + 0.5 * np.cos(angle)
    with np.errstate(all="ignore"):
        made = [make(NUMPY, float(orders[0]), lags)]
        if any(np.iscomplexobj(array) for array in made[0]) or sum(array.size for array in made[0]) > _MAX:
            return None
        made += [make(NUMPY, float(alpha), lags) for alpha in orders[1:]]
    shapes = tuple(tuple(array.shape) for array in made[0])
    values = np.stack([np.concatenate([np.ravel(array) for array in arrays]) for arrays in made], axis=1)
    fall = np.concatenate(_falls(made[0], made[-1], orders[0] - orders[-1], lags))
    values *= np.exp(fall[:, None] * orders)
    zeros = tuple(_vanishing(make, float(end), lags, values) for end in (ceiling - 1, ceiling))
    values /= np.where(zeros[0][:, None], orders - (ceiling - 1), 1.0)
    values /= np.where(zeros[1][:, None], ceiling - orders, 1.0)
    degree = np.arange(_COEFFICIENTS)
    waves = np.cos(angle[:, None] * degree) * np.where(degree, 2.0, 1.0) / _COEFFICIENTS
    series = values @ waves
    size = np.abs(values).max(axis=1, initial=0.0)
    if not np.isfinite(size).all() or (np.abs(series[:, -3:]) > _ROUNDING * size[:, None]).any():
        return None
    return Table(series @ _monomials(), fall, (zeros[0], zeros[1]), shapes, ceiling - 0.5, n, nodes)


def _vanishing(make: Maker, end: float, lags: int | Lags, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Whether each weight is 0 at an end of the interval, and not within."""
    with np.errstate(all="ignore"):
        made = np.concatenate([np.ravel(array) for array in make(NUMPY, np.float64(end), lags)])
    found: np.ndarray[Any, Any] = (made == 0.0) & (values != 0.0).all(axis=1)
    return found


def _falls(high: tuple[Any, ...], low: tuple[Any, ...], apart: float, lags: int | Lags) -> list[np.ndarray[Any, Any]]:
    """``sigma log(k + 1)`` for each array: sigma (-1, 0 or 1) is the decay of its last weight with the order."""
    found = []
    for top, bottom in zip(high, low, strict=True):
        count = top.shape[-1]
        whole = np.arange(count, dtype=np.float64)
        log = np.log1p(whole if isinstance(lags, int) else np.concatenate([whole[: lags.near], lags.far]))
        ends = np.stack([top.reshape(-1, count)[:, -1], bottom.reshape(-1, count)[:, -1]])
        rates = np.zeros(ends.shape[1])
        if log[-1] > 0.0:
            with np.errstate(all="ignore"):
                quotient = np.log(np.abs(ends[1] / ends[0])) / (apart * log[-1])
            rates = np.clip(np.round(np.nan_to_num(quotient, nan=0.0, posinf=0.0, neginf=0.0)), -1.0, 1.0)
        found.append((rates[:, None] * log).ravel())
    return found


@cache
def _monomials() -> np.ndarray[Any, Any]:
    """Row j: the coefficients of ``T_j(2 y)`` in powers of y, all of them integers."""
    rows = np.zeros((_COEFFICIENTS, _COEFFICIENTS))
    rows[0, 0], rows[1, 1] = 1.0, 2.0
    for j in range(2, _COEFFICIENTS):
        rows[j, 1:] = 4.0 * rows[j - 1, :-1]
        rows[j] -= rows[j - 2]
    return rows

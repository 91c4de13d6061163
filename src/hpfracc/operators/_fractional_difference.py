"""Fractional differencing of time series: whole or fixed memory, and its exact inverse."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from hpfracc._arrays import is_chunked
from hpfracc._clusters import cluster_support
from hpfracc._frames import has_labels, open_samples
from hpfracc._xp import Namespace, of_variables
from hpfracc.engine.execution.api import causal_convolution, composite
from hpfracc.errors import InvalidInputError
from hpfracc.operators.core.applying import order_beside
from hpfracc.operators.core.grids import read_grid
from hpfracc.operators.core.order import Order, read_order
from hpfracc.operators.core.sequences import binomials, difference_width
from hpfracc.operators.core.values import Samples, as_values, check_axis, move_axis
from hpfracc.operators.core.weights import weights_of
from hpfracc.operators.rules.grunwald import Grunwald
from hpfracc.profiling.recorder import watched

__all__ = ["fractional_difference"]

_WHOLE_MEMORY = Grunwald()
#: Above d = 1 a window leaves the sum of the weights below zero, and what undoes the difference grows exponentially.
_MOST_GROWTH = 1e4


@watched
def fractional_difference(
    x: Any,
    d: Any,
    window: int | None = None,
    threshold: float | None = None,
    axis: int | None = None,
    *,
    dim: Any = None,
    inverse: bool = False,
    backend: Any = None,
) -> Any:
    r"""Fractional difference of a time series, :math:`(1 - B)^d x` with B the step back in time.

    .. math:: y_n = \sum_{k=0}^{\min(n, K-1)} w_k x_{n-k}, \qquad w_k = (-1)^k \binom{d}{k}.

    Parameters
    ----------
    x : array_like, shape (..., N)
        Equally spaced observations, oldest first; before the first they count as zero. A pandas ``Series`` or
        ``DataFrame`` or an xarray ``DataArray`` gives one with the same labels; the rows are what is counted, so that
        an index of business days is as good as any that does not go back.
    d : float or scalar array
        Any real number: 1 gives ordinary differences, 0 the series itself, negative d sums. A tensor or JAX array
        carries its derivative.
    window : int, optional
        K, how many observations a value looks back on, itself included; all of them by default (the *expanding*
        window).
    threshold : float, optional
        Instead of ``window``: leave out the weights after the last one that is this large (the *fixed-width* window of
        Lopez de Prado). :class:`hpfracc.FractionalDifferencer` tells K, as its ``width_``.
    axis : int, optional
        The axis along which time runs: the last one by default, the index of a frame.
    dim : hashable, optional
        The name of that axis, for a ``DataArray``; needed where it has several.
    inverse : bool
        Undo a difference with the same ``d`` and window: also with a window, where ``-d`` would not.
    backend : str, optional
        Where the engine is to do the work.

    Returns
    -------
    array, shape (..., N)
        As long as ``x``. With a window the first K - 1 values have looked back on fewer observations than the others:
        leave them out where that matters, ``y[..., K - 1:]``.

    Notes
    -----
    O(N log N) for the whole memory, O(N log K) with a window. ``fractional_difference(y, -d)`` undoes
    ``y = fractional_difference(x, d)`` to rounding, as do both with the same window and ``inverse=True``; the rounding
    is that of the summed series, which above d = 1 grows with its length. With a window and d above 1 there may be no
    inverse that keeps any digits: then it is an error. Not divided by a time step: that
    is :func:`hpfracc.grunwald_letnikov`.

    References
    ----------
    J. R. M. Hosking, Biometrika 68 (1981) 165-176; M. Lopez de Prado, *Advances in Financial Machine Learning*, 2018,
    chapter 5.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> hf.fractional_difference(np.array([1.0, 1.0, 1.0, 1.0]), 0.5)
    array([1.    , 0.5   , 0.375 , 0.3125])
    >>> hf.fractional_difference(np.array([1.0, 3.0, 6.0, 10.0]), 1)
    array([1., 2., 3., 4.])
    """
    if is_chunked(x) and dim is None:
        options = {"window": window, "threshold": threshold, "axis": axis, "inverse": inverse, "backend": backend}
        call = functools.partial(_call_block, d, options)
        return cluster_support().apply_function("fractional_difference", call, x, axis)
    if dim is not None or has_labels(x):
        opened = open_samples(x, axis=axis, dim=dim, by_row=True, chunked=True)
        found = fractional_difference(
            opened.values, d, window, threshold, opened.axis, inverse=inverse, backend=backend
        )
        return opened.close(found, attributes=True)
    order = read_order(d, name="d")
    values = as_values(x, order.value)
    order = order_beside(order, values)
    axis = check_axis(-1 if axis is None else axis, values.ndim)
    values = move_axis(values, axis, -1)
    n = values.shape[-1]
    taps = _taps(order, n, window, threshold)
    with composite():
        if taps == 0:
            result = values * 1.0
        elif taps is None or (inverse and _is_whole(order, taps, n)):
            turned = order.negated() if inverse else order
            samples = Samples(values, read_grid(None, 1.0, None, n), backend)
            with np.errstate(invalid="ignore"):
                result = _WHOLE_MEMORY.apply(samples, turned)
        else:
            (weights,) = weights_of("difference", _make_weights, order, taps)
            if inverse and order.plain:
                weights = _reciprocal(weights, order, n)
            elif inverse:
                with order.xp.scope():
                    weights = of_variables(
                        order.xp, lambda d: _reciprocal(_make_weights(order.xp, d, taps)[0], order, n)
                    )(order.value)
            result = causal_convolution(weights, values, backend=backend)
    return result if axis == -1 else move_axis(result, -1, axis)


def _call_block(d: Any, options: dict[str, Any], block: Any) -> Any:
    return fractional_difference(block, d, **options)


def _taps(order: Order, n: int, window: Any, threshold: Any) -> int | None:
    """How many weights are used: None for all of them, 0 where there is nothing to do."""
    if window is not None and threshold is not None:
        raise InvalidInputError(f"window={window!r} and threshold={threshold!r} both say how far back; give one")
    taps: int | None = None
    if window is not None:
        if isinstance(window, bool) or not isinstance(window, int | np.integer) or window < 1:
            raise InvalidInputError(f"window={window!r} observations to look back on; use a whole number from 1 on")
        taps = int(window)
    elif threshold is not None:
        taps = difference_width(order.value if order.known is None else order.known, threshold, max(1, n))
    if not n:
        return 0
    if order.is_integer and order.value >= 0:
        # Later weights are zero, and a bad observation must not be multiplied with them.
        taps = min(int(order.value) + 1, n if taps is None else taps)
    return taps if taps is None else min(taps, n)


def _is_whole(order: Order, taps: int, n: int) -> bool:
    """Whether nothing that counts was left out, so that ``-d`` is the inverse."""
    return taps == n or (order.is_integer and 0 <= order.value < taps)


def _make_weights(xp: Namespace, d: Any, taps: int) -> tuple[Any, ...]:
    return (binomials(xp, d, taps),)


def _reciprocal(weights: Any, order: Order, n: int) -> Any:
    """The first n coefficients of ``1 / W(z)`` by Newton's method: each round doubles those that are right."""
    xp = order.xp
    with xp.scope():
        known = xp.array([1.0])
        length = 1
        while length < n:
            length = min(2 * length, n)
            padded = xp.concatenate([known, xp.array(np.zeros(length - known.shape[-1]))])
            product = causal_convolution(weights[:length], padded)
            known = 2.0 * padded - causal_convolution(padded, product)
        growth = abs(known).max()
        if not order.plain:
            return xp.where(growth < _MOST_GROWTH, known, math.nan)
    if not growth < _MOST_GROWTH:
        raise InvalidInputError(
            f"a difference with d={order.value} and a window of {weights.shape[-1]} cannot be undone over {n:,} "
            f"points: rounding would grow {growth:.0e}-fold; take d below 1 with a window and whole differences without"
        )
    return known

"""Fractional differencing of time series: with full or fixed memory, and its exact inverse."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from hpfracc._reading import flag, whole
from hpfracc._xp import Namespace, of_variables
from hpfracc.engine.execution.api import causal_convolution, composite
from hpfracc.errors import InvalidInputError
from hpfracc.operators.core.applying import order_beside
from hpfracc.operators.core.grids import read_grid
from hpfracc.operators.core.order import Order, read_order
from hpfracc.operators.core.sequences import binomials, difference_width
from hpfracc.operators.core.values import Samples, apply_over_points, weights_of
from hpfracc.operators.rules.quadrature import Grunwald
from hpfracc.profiling.recorder import watched

_WHOLE_MEMORY = Grunwald()
#: Largest coefficient of an inverse. Above d = 1 the weights within a window sum to less than zero, and the inverse
#: grows exponentially.
_MAX_GROWTH = 1e4


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
    r"""Fractional difference of a time series, :math:`(1 - B)^d x` with B the backshift operator.

    .. math:: y_n = \sum_{k=0}^{\min(n, K-1)} w_k x_{n-k}, \qquad w_k = (-1)^k \binom{d}{k}.

    Parameters
    ----------
    x : array_like, shape (..., N)
        Equally spaced observations, oldest first; earlier ones count as zero. A pandas ``Series`` or ``DataFrame`` or
        an xarray ``DataArray`` gives a result with the same labels. Only the order of the rows matters, so any sorted
        index will do, such as business days.
    d : float or scalar array
        Any real number: 1 gives ordinary differences, 0 the series itself, negative d sums. Differentiable if it is a
        tensor or JAX array.
    window : int, optional
        K, the number of observations that a value depends on, including its own; all of them by default (the
        *expanding* window).
    threshold : float, optional
        Instead of ``window``: drop the weights after the last one of at least this size (the *fixed-width* window of
        Lopez de Prado). :class:`hpfracc.FractionalDifferencer` has K as ``width_``.
    axis : int, optional
        The time axis: by default the last one, or the index of a frame.
    dim : hashable, optional
        The name of that axis, for a ``DataArray``; required if it has several.
    inverse : bool
        Whether to invert a difference with the same ``d`` and window. With a window, ``-d`` is not the inverse.
    backend : str, optional
        Backend to run on; by default the engine selects it.

    Returns
    -------
    array, shape (..., N)
        The same shape as ``x``. With a window, the first K - 1 values depend on fewer observations than the others;
        drop them with ``y[..., K - 1:]`` if that matters.

    See Also
    --------
    FractionalDifferencer, grunwald_letnikov, fgn

    Notes
    -----
    O(N log N) with full memory, O(N log K) with a window. ``fractional_difference(y, -d)`` inverts
    ``y = fractional_difference(x, d)`` up to rounding, as does ``inverse=True`` with the same window. The rounding
    error is that of the summed series, which grows with its length above d = 1. With a window and d above 1 the inverse
    may lose all digits; then an error is raised. The result is not divided by a time step; see
    :func:`hpfracc.grunwald_letnikov` for that.

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
    inverse = flag("inverse", inverse)
    options = {"window": window, "threshold": threshold, "inverse": inverse, "backend": backend}
    call = functools.partial(_fractional_difference, d=d, **options)
    return apply_over_points(call, x, axis, dim, like=d, attributes=True)


def _fractional_difference(values: Any, d: Any, window: Any, threshold: Any, inverse: bool, backend: Any) -> Any:
    order = order_beside(read_order(d, name="d"), values)
    n = values.shape[-1]
    taps = _taps(order, n, window, threshold)
    with composite():
        if taps == 0:
            return values * 1.0
        if taps is None or (inverse and (taps == n or (order.is_integer and 0 <= order.value < taps))):
            turned = order.negated() if inverse else order
            samples = Samples(values, read_grid(None, 1.0, None, n), backend)
            with np.errstate(invalid="ignore"):
                return _WHOLE_MEMORY.apply(samples, turned)
        (weights,) = weights_of("difference", _make_weights, order, taps)
        if inverse and order.plain:
            weights = _reciprocal(weights, order, n)
        elif inverse:
            with order.xp.scope():
                weights = of_variables(order.xp, lambda d: _reciprocal(_make_weights(order.xp, d, taps)[0], order, n))(
                    order.value
                )
        return causal_convolution(weights, values, backend=backend)


def _taps(order: Order, n: int, window: Any, threshold: Any) -> int | None:
    """Number of weights: None for all of them, 0 if there are no samples."""
    if window is not None and threshold is not None:
        raise InvalidInputError(f"window={window!r} and threshold={threshold!r} both set the memory; give one of them")
    taps: int | None = None
    if window is not None:
        taps = whole("window", window, least=1)
    elif threshold is not None:
        taps = difference_width(order.value if order.known is None else order.known, threshold, max(1, n))
    if not n:
        return 0
    if order.is_integer and order.value >= 0:
        # Later weights are zero. A non-finite observation must not be multiplied by them.
        taps = min(int(order.value) + 1, n if taps is None else taps)
    return taps if taps is None else min(taps, n)


def _make_weights(xp: Namespace, d: Any, taps: int) -> tuple[Any, ...]:
    return (binomials(xp, d, taps),)


def _reciprocal(weights: Any, order: Order, n: int) -> Any:
    """The first n coefficients of ``1 / W(z)`` by Newton's method, which doubles their number in each iteration."""
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
            return xp.where(growth < _MAX_GROWTH, known, math.nan)
    if not growth < _MAX_GROWTH:
        raise InvalidInputError(
            f"a difference with d={order.value} and a window of {weights.shape[-1]} cannot be undone over {n:,} "
            f"points: rounding would grow {growth:.0e}-fold; use d below 1 with a window, or no window"
        )
    return known

"""Generalised binomial coefficients and Grünwald-Letnikov weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import special

from hpfracc import _reading
from hpfracc._arrays import refuse_masked
from hpfracc._plugs import over_chunks
from hpfracc._xp import NUMPY, namespace_of
from hpfracc.errors import InvalidInputError, ShapeError

__all__ = ["generalized_binomial", "grunwald_weights"]

#: Maximum length of the table for integer k.
_MAX_ENTRIES = 1 << 22


@over_chunks
def generalized_binomial(alpha: Any, k: Any) -> Any:
    r"""The binomial coefficient :math:`\binom{\alpha}{k} = \frac{\Gamma(\alpha+1)}{\Gamma(k+1)\Gamma(\alpha-k+1)}`.

    Parameters
    ----------
    alpha : float or array_like
        Any real numbers.
    k : array_like
        Integers use the recurrence, with an error of about ``sqrt(k)`` units in the last place, and give 0 if negative;
        other values use SciPy's quotient of Gamma functions.

    Returns
    -------
    numpy.ndarray or scalar
        In the shape to which ``alpha`` and ``k`` broadcast.

    See Also
    --------
    gamma, hpfracc.special.grunwald_weights

    Examples
    --------
    >>> import hpfracc.special as special
    >>> special.generalized_binomial(0.5, [0, 1, 2]).tolist()
    [1.0, 0.5, -0.125]
    """
    alpha, k = _reading.numbers("alpha", alpha), _reading.numbers("k", k)
    try:
        alpha, k = np.broadcast_arrays(alpha, k)
    except ValueError:
        raise ShapeError(f"alpha has shape {np.shape(alpha)} and k {np.shape(k)}; give shapes that broadcast") from None
    if (k != np.floor(k)).any():
        return np.asarray(special.binom(alpha, k))[()]
    values = np.empty(k.shape)
    for order in np.unique(alpha):
        where = alpha == order
        whole = k[where].astype(np.int64)
        longest = int(whole.max(initial=0))
        if longest >= _MAX_ENTRIES:
            raise InvalidInputError(f"k={longest} is too large for a binomial coefficient; use k below {_MAX_ENTRIES}")
        table = grunwald_weights(float(order), longest + 1)
        values[where] = np.where(whole < 0, 0.0, table[np.maximum(whole, 0)] * np.where(whole % 2, -1.0, 1.0))
    return values[()]


def grunwald_weights(alpha: Any, n: int) -> Any:
    r"""The first ``n`` coefficients of :math:`(1-x)^\alpha`, :math:`w_k = (-1)^k \binom{\alpha}{k}`.

    Computed by the recurrence :math:`w_k = (k - 1 - \alpha)/k\, w_{k-1}`.

    Parameters
    ----------
    alpha : float, tensor or JAX array
        The order, a scalar. For a tensor or a JAX array, traced or not, the weights are of the same library and
        differentiable.
    n : int
        Number of weights, at least 0.

    Returns
    -------
    array, shape (n,)
        float64, or the dtype and library of ``alpha``.

    Examples
    --------
    >>> import hpfracc.special as special
    >>> special.grunwald_weights(0.5, 4).tolist()
    [1.0, -0.5, -0.125, -0.0625]
    """
    n = _reading.count("n", n, least=0)
    refuse_masked(alpha, "alpha")
    xp = namespace_of(alpha)
    order = np.asarray(_reading.number("alpha", alpha)) if xp is NUMPY else alpha.reshape(())
    k = xp.arange(1, max(n, 1), order.dtype, like=order)
    return xp.cumprod(xp.concatenate([xp.ones_like(order)[None], (k - 1 - order) / k]))[:n]

"""Autocovariance of fractional Gaussian noise, accurate to rounding at every lag and smooth in H."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from hpfracc._xp import NUMPY, Namespace
from hpfracc.solvers.sde.noise.circulant import eigenvalues, refuse_negative, to_weights

__all__ = ["autocovariance", "kept_weights", "noise_weights"]

#: From this lag on the series in 1/k^2 is used. The difference of powers loses digits like k^2: at n = 1e6 and H = 0.99
#: it would give 140,636 negative eigenvalues.
_FIRST = 4
_TERMS = 14


def autocovariance(hurst: Any, n: int, xp: Namespace = NUMPY) -> Any:
    r"""Lags 0 to n of fractional Gaussian noise with unit steps.

    .. math:: \gamma(k) = \tfrac12 \left(|k+1|^{2H} - 2 |k|^{2H} + |k-1|^{2H}\right)
        = k^{2H} \sum_{j \ge 1} \binom{2H}{2j} k^{-2j}.

    The relative error is at most 6e-14.
    """
    twice = 2.0 * hurst
    # In terms of powers minus 1, whose sums vanish at H = 1/2 without cancellation.
    two, three, four = (xp.expm1((twice - 1.0) * xp.array(np.log(base))) for base in (2.0, 3.0, 4.0))
    head = [1.0 + 0.0 * twice, two, 1.5 * three - 2.0 * two, 2.0 * four - 3.0 * three + two]
    head = [xp.array(value) if xp.library == "numpy" else value for value in head]
    near = xp.stack(head[: n + 1])
    if n < _FIRST:
        return near
    lags = np.arange(_FIRST, n + 1, dtype=np.float64)
    coefficients = [twice * (twice - 1.0) / 2.0]
    for j in range(1, _TERMS):
        factor = (twice - 2.0 * j) * (twice - (2.0 * j + 1.0)) / ((2.0 * j + 1.0) * (2.0 * j + 2.0))
        coefficients.append(coefficients[-1] * factor)
    inverse = xp.array(lags**-2.0)
    total = coefficients[-1] * inverse
    for coefficient in coefficients[-2:0:-1]:
        total = (total + coefficient) * inverse
    far = xp.power(lags, twice - 2.0) * (total + coefficients[0])
    return xp.concatenate([near, far])


@lru_cache(maxsize=8)
def kept_weights(hurst: float, n: int, step: float) -> np.ndarray:
    """Weights of :func:`~hpfracc.solvers.sde.noise.circulant.sample` for ``n`` steps of length ``step``."""
    values = eigenvalues(autocovariance(hurst, n))
    refuse_negative(values, f"fractional Gaussian noise with n={n:,} steps and H={hurst}")
    weights: np.ndarray = to_weights(values)
    weights *= step**hurst
    weights.flags.writeable = False
    return weights


def noise_weights(hurst: Any, n: int, xp: Namespace = NUMPY, step: float = 1.0) -> Any:
    """Weights of :func:`~hpfracc.solvers.sde.noise.circulant.sample` for ``n`` steps; cached for plain numbers.

    Steps other than 1 are supported for plain numbers only.
    """
    if xp.library == "numpy":
        return kept_weights(float(hurst), n, step)
    values = eigenvalues(autocovariance(hurst, n, xp))
    refuse_negative(values, f"fractional Gaussian noise with n={n:,} steps and H={hurst}")
    return to_weights(values)

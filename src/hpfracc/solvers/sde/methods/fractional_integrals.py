r"""The joint law of fractional noise and its integrals against the kernel of the Caputo equation.

For :math:`S_t = \frac{1}{\Gamma(\alpha)} \int_0^t (t-s)^{\alpha-1} dB_s`, with :math:`p = \alpha + 2H - 1`, a shift of
both times changes the covariance only by a term at time 0:

.. math:: (\partial_s + \partial_t)\,E\,S_s S_t = \frac{H\,\Gamma(2H)}{\Gamma(\alpha)\,\Gamma(p)}
    \left(s^{\alpha-1} t^{p-1} + t^{\alpha-1} s^{p-1}\right),

so that covariances at times of a uniform grid are sums of integrals over steps, of
:math:`x^{a-1} (x+j)^{b-1}` with integers j. For covariances of S and B, alpha is 1 in one of the factors.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from scipy import special

from hpfracc._xp import NUMPY, Namespace
from hpfracc.solvers.sde.noise.fractional_gaussian import autocovariance

__all__ = ["MAX_STEPS", "joint_weights", "kept_joint_weights"]

#: Maximum number of steps with the exact law; a path takes twice its square of multiplications.
MAX_STEPS = 256
#: Gauss points per step. The nearest singularity is a step away, so each point reduces the error by 5.8^2.
_NODES = 16
#: Rounding error of the remaining variances, relative to those of the integrals.
_ROUNDING = 1e-12

_POINTS, _GAUSS = special.roots_sh_legendre(_NODES)
_DEGREES = np.arange(_NODES)
#: Weight of each point times shifted Legendre polynomials there, times their norms: shape (points, degrees).
_PROJECT = _GAUSS[:, None] * (2 * _DEGREES + 1) * special.eval_sh_legendre(_DEGREES, _POINTS[:, None])


@lru_cache(maxsize=8)
def kept_joint_weights(alpha: float, hurst: float, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Cached :func:`joint_weights` for plain numbers."""
    own, other = joint_weights(NUMPY, alpha, hurst, steps)
    own.flags.writeable = other.flags.writeable = False
    return own, other


def joint_weights(xp: Namespace, alpha: Any, hurst: Any, steps: int) -> tuple[Any, Any]:
    """The integrals without the means of the kernel over older steps, for steps of length 1.

    Returns
    -------
    own : array, shape (steps, steps)
        Factors of the increments of the noise, including later ones, which are correlated with earlier ones.
    other : array, shape (steps, steps)
        Factors of independent normal numbers; lower triangular.
    """
    linalg = xp.module.linalg
    place = np.arange(steps)
    early, gap = np.minimum(place[:, None], place), np.abs(place[:, None] - place)
    older = place[:, None] > place
    power, twice = alpha + 2.0 * hurst - 1.0, 2.0 * hurst
    gamma, beyond = xp.rgamma(xp.array(alpha)), xp.rgamma(xp.array(power))
    scale = hurst / xp.rgamma(xp.array(twice))
    table = _table(xp, alpha, power, steps) + _table(xp, power, alpha, steps)
    integrals = (scale * gamma * beyond * table)[early, gap]
    # With B at times 1 to n: S at the earlier time, and at the later one.
    before, after = _table(xp, alpha, twice, steps)[early, gap], _table(xp, twice, alpha, steps)[early, gap]
    risen = xp.power(np.arange(1.0, steps + 1.0), power)
    fallen = xp.concatenate([0.0 * risen[:1], risen])[np.where(older, gap, 0)]
    mixed = (before + xp.array(older.astype(float)) * (after - before)) * gamma * xp.rgamma(xp.array(twice))
    mixed = scale * (mixed + (risen[:, None] - fallen) * (beyond / power))
    with_noise = xp.concatenate([mixed[:, :1], mixed[:, 1:] - mixed[:, :-1]], 1)
    noise = autocovariance(hurst, steps, xp)[gap]
    gain = linalg.solve(noise, with_noise.T).T
    left = integrals - xp.matmul(gain, with_noise.T)
    left = 0.5 * (left + left.T) + xp.array(np.eye(steps)) * (_ROUNDING * integrals)
    later = xp.power(np.arange(1.0, steps + 1.0), alpha) * xp.rgamma(xp.array(alpha + 1.0))
    means = xp.concatenate([later[:1], later[1:] - later[:-1]])
    return gain - xp.array(older.astype(float)) * means[gap], linalg.cholesky(left)


def _table(xp: Namespace, a: Any, b: Any, steps: int) -> Any:
    """Integrals of ``x^(a-1) (x+j)^(b-1)`` from 0 to i, for i from 1 and j from 0 on: shape ``(steps, steps)``."""
    cells = np.arange(steps)
    near = xp.power((cells[:, None] + _POINTS), a - 1.0) * xp.array(_GAUSS)
    near = xp.concatenate([_first_cell(xp, a)[None, :], near[1:]])
    far = xp.power((np.arange(2 * steps)[:, None] + _POINTS), b - 1.0)
    found = (near[:, None, :] * far[cells[:, None] + cells]).sum(-1).cumsum(0)
    whole = xp.power(np.arange(1.0, steps + 1.0), a + b - 1.0) / (a + b - 1.0)
    return xp.concatenate([whole[:, None], found[:, 1:]], 1)


def _first_cell(xp: Namespace, a: Any) -> Any:
    """Weights of the points for integrals from 0 to 1 with ``x^(a-1)``: exact for polynomials."""
    moments = [1.0 / (xp.array(a) + 0.0)]
    for k in range(1, _NODES):
        moments.append(moments[-1] * (a - k) / (a + k))
    return (xp.array(_PROJECT) * xp.stack(moments)).sum(-1)

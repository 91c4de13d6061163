r"""Euler methods for the Caputo equation with additive noise that is not white.

.. math:: X_t = X_0 + \frac{1}{\Gamma(\alpha)} \int_0^t (t-s)^{\alpha-1} \left(f\,ds + g\,dZ_s\right),

where Z is fractional Brownian motion or a Levy process, and g is constant. The integrand of the noise is a
known function. For fractional Brownian motion the integral exists if :math:`\alpha + H > 1`, with variance [1]

.. math:: \frac{g^2\,H\,\Gamma(2H)\,t^{2(\alpha+H-1)}}{(\alpha+H-1)\,\Gamma(\alpha)\,\Gamma(\alpha+2H-1)};

for noise with jumps of stable index p it exists if the kernel to the power p is integrable,
:math:`\alpha > 1 - 1/p` [2].

On each step the kernel is replaced by its mean. Up to 256 steps, the remainder for fractional Brownian motion is drawn
from its law given all increments, so noise and solution have exactly their joint law if there is no drift. With more
steps it is drawn as an independent number at each step, with its asymptotic variance, because nearly all of it comes
from the newest step. The law at a fixed time is then accurate to about 1e-3 of the remainder, and correlations of
neighbouring times to 0.01 (0.02 at the first steps). The same holds for stable motion with p > 1 and any number of
steps; for other noise the remainder is neglected. Strong order :math:`\alpha + H - 1`, with 1/p in place of H for
jumps.

The joint law: for :math:`S_t = \frac{1}{\Gamma(\alpha)} \int_0^t (t-s)^{\alpha-1} dB_s`, with
:math:`p = \alpha + 2H - 1`, a shift of both times changes the covariance only by a term at time 0:

.. math:: (\partial_s + \partial_t)\,E\,S_s S_t = \frac{H\,\Gamma(2H)}{\Gamma(\alpha)\,\Gamma(p)}
    \left(s^{\alpha-1} t^{p-1} + t^{\alpha-1} s^{p-1}\right),

so that covariances at times of a uniform grid are sums of integrals over steps, of
:math:`x^{a-1} (x+j)^{b-1}` with integers j. For covariances of S and B, alpha is 1 in one of the factors.

References
----------
1. V. Pipiras, M. S. Taqqu, "Integration questions related to fractional Brownian motion", Probab. Theory Related Fields
   118, 2000.
2. B. S. Rajput, J. Rosinski, "Spectral representations of infinitely divisible processes", Probab. Theory Related
   Fields 82, 1989.
"""

from __future__ import annotations

import math
from typing import Any, final

import numpy as np
from scipy import special

from hpfracc._xp import Namespace
from hpfracc.solvers.sde.methods.caputo_euler import CaputoEuler, kernel_weights
from hpfracc.solvers.sde.methods.method import Weights, computed
from hpfracc.solvers.sde.noise.circulant import autocovariance
from hpfracc.solvers.sde.problem import NoisyProblem, Traits

#: Number of steps after which the remainder counts as stationary; the error is 1e-4.
_STEPS = 128
_LAGS = np.abs(np.arange(_STEPS)[:, None] - np.arange(_STEPS))


@final
class AdditiveCaputoEuler(CaputoEuler):
    """Means of the kernel over all steps, and the remainder."""

    order = "alpha + H - 1, with 1 / (stable index) for H where the noise jumps"

    def refuses(self, traits: Traits) -> str | None:
        """Does not support noise whose strength depends on the state."""
        if traits.additive:
            return None
        kind = "noise with jumps" if traits.jumps else "fractional Brownian motion"
        return (
            f"below order 1, multiplicative {kind} has a singular kernel under its integral, for which no scheme here "
            "is known to converge; give the diffusion as a number or an array (additive noise), use noise.Brownian(), "
            "or alpha=1"
        )

    def sets(self, traits: Traits) -> int:
        """A second set for the remainder, if its law is known."""
        return 1 if traits.jumps and math.isnan(traits.index) else 2

    def weights(self, traits: Traits, alpha: Any, steps: int, h: float, hurst: Any = None) -> Weights:
        """Weights of the exponentials, and factors of the increments and of other numbers in the newest integrals.

        The last two are numbers, for the same step, or matrices, for all steps.
        """
        decay, kernel, drift, cross, _ = kernel_weights(alpha, steps, h)
        index = traits.hurst if hurst is None else hurst
        if not traits.jumps and steps <= MAX_STEPS:
            return decay, kernel, drift, *computed(joint_weights, (alpha, index), steps, h)
        if traits.jumps:
            size = 0.0 if math.isnan(traits.index) else computed(_jumps, (alpha, traits.index), h)
        else:
            size = computed(_fractional, (alpha, index), h)
        return decay, kernel, drift, cross, size

    def increments(self, problem: NoisyProblem, weights: Weights, h: float, dz: Any) -> Any:
        """The increments, and their integrals against the kernel over their own step."""
        _, _, _, cross, size = weights
        dw, other = dz[..., : problem.traits.noises], dz[..., problem.traits.noises :]
        if getattr(cross, "ndim", 0) == 2:
            newest = _products(problem.xp, cross, dw) + _products(problem.xp, size, other)
        else:
            newest = cross * dw + size * other if other.shape[-1] else cross * dw
        return problem.xp.concatenate([dw, newest], -1)


def _products(xp: Namespace, matrix: Any, numbers: Any) -> Any:
    """Products of a matrix with the first axis."""
    return xp.matmul(matrix, numbers.reshape(numbers.shape[0], -1)).reshape(numbers.shape)


def _fractional(xp: Namespace, alpha: Any, hurst: Any, h: float) -> Any:
    """Standard deviation of the remainder, for normal numbers; 0 if there is none."""
    power = alpha + hurst - 1.0
    whole = hurst * xp.rgamma(xp.array(alpha)) * xp.rgamma(xp.array(alpha + 2.0 * hurst - 1.0))
    whole = whole / (power * xp.rgamma(xp.array(2.0 * hurst))) * xp.exp(2.0 * power * math.log(_STEPS))
    means = _means(xp, alpha, _STEPS)
    covariance = autocovariance(hurst, _STEPS, xp)[_LAGS]
    left = whole - (means * (covariance * means).sum(-1)).sum()
    return _root(xp, left, 2.0) * xp.exp(power * math.log(h))


def _jumps(xp: Namespace, alpha: Any, index: Any, h: float) -> Any:
    """Factor by which an independent copy of the increments has the law of the remainder."""
    power = 1.0 - (1.0 - alpha) * index
    whole = xp.exp(power * math.log(_STEPS)) / power * xp.rgamma(xp.array(alpha)) ** index
    left = whole - (_means(xp, alpha, _STEPS) ** index).sum()
    return _root(xp, left, index) * xp.exp((alpha - 1.0) * math.log(h))


def _root(xp: Namespace, value: Any, index: Any) -> Any:
    """A root, 0 with derivative 0 if rounding has made the value negative."""
    positive = value > 0.0
    return xp.where(positive, xp.where(positive, value, 1.0) ** (1.0 / index), 0.0)


def _means(xp: Namespace, alpha: Any, steps: int) -> Any:
    """Means of the kernel over steps of length 1, the newest first."""
    later = xp.power(np.arange(1.0, steps + 1.0), alpha) * xp.rgamma(xp.array(alpha + 1.0))
    return xp.concatenate([later[:1], later[1:] - later[:-1]])


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


def joint_weights(xp: Namespace, alpha: Any, hurst: Any, steps: int, h: float) -> tuple[Any, Any]:
    """The integrals without the means of the kernel over older steps.

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
    own = gain - xp.array(older.astype(float)) * _means(xp, alpha, steps)[gap]
    log = math.log(h)
    return own * xp.exp((alpha - 1.0) * log), linalg.cholesky(left) * xp.exp((alpha + hurst - 1.0) * log)


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

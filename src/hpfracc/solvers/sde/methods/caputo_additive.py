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

References
----------
1. V. Pipiras, M. S. Taqqu, "Integration questions related to fractional Brownian motion", Probab. Theory Related Fields
   118, 2000.
2. B. S. Rajput, J. Rosinski, "Spectral representations of infinitely divisible processes", Probab. Theory Related
   Fields 82, 1989.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, final

import numpy as np

from hpfracc._arrays import is_tracer, tracks_gradient
from hpfracc._xp import NUMPY, Namespace, namespace_of, of_variables
from hpfracc.solvers.sde.methods.caputo_euler import CaputoEuler, CaputoMethod
from hpfracc.solvers.sde.methods.exponentials import kernel_weights
from hpfracc.solvers.sde.methods.fractional_integrals import MAX_STEPS, joint_weights, kept_joint_weights
from hpfracc.solvers.sde.methods.implicit_euler import CaputoImplicitEuler
from hpfracc.solvers.sde.methods.method import Carry, Weights
from hpfracc.solvers.sde.noise.fractional_gaussian import autocovariance
from hpfracc.solvers.sde.problem import NoisyProblem, Traits

__all__ = ["AdditiveCaputoEuler", "AdditiveCaputoImplicitEuler"]

_EXPLICIT, _IMPLICIT = CaputoEuler(), CaputoImplicitEuler()
#: Number of steps after which the remainder counts as stationary; the error is 1e-4.
_STEPS = 128
_LAGS = np.abs(np.arange(_STEPS)[:, None] - np.arange(_STEPS))


class AdditiveCaputoMethod(CaputoMethod):
    """Common part of both methods: means of the kernel over all steps, and the remainder."""

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
        if traits.jumps:
            size = 0.0 if math.isnan(traits.index) else _left_out(_jumps, h, alpha, traits.index)
        else:
            index = traits.hurst if hurst is None else hurst
            if steps <= MAX_STEPS:
                return decay, kernel, drift, *_by_joint_law(alpha, index, steps, h)
            size = _left_out(_fractional, h, alpha, index)
        return decay, kernel, drift, cross, size

    def increments(self, problem: NoisyProblem, weights: Weights, h: float, dz: Any) -> Any:
        """The increments, and their integrals against the kernel over their own step."""
        _, _, _, cross, size = weights
        noises = problem.traits.noises
        dw = dz[..., :noises]
        if getattr(cross, "ndim", 0) == 2:
            newest = _products(problem.xp, cross, dw) + _products(problem.xp, size, dz[..., noises:])
            return problem.xp.concatenate([dw, newest], -1)
        newest = cross * dw
        if dz.shape[-1] > noises:
            newest = newest + size * dz[..., noises:]
        return problem.xp.concatenate([dw, newest], -1)


@final
class AdditiveCaputoEuler(AdditiveCaputoMethod):
    """Explicit in the drift."""

    name = "euler"
    order = "alpha + H - 1, with 1 / (stable index) for H where the noise jumps"

    def advance(self, problem: NoisyProblem, weights: Weights, t: Any, h: Any, carry: Carry, dz: Any) -> Carry:
        """One step."""
        return _EXPLICIT.advance(problem, weights, t, h, carry, dz)


@final
class AdditiveCaputoImplicitEuler(AdditiveCaputoMethod):
    """Implicit in the drift."""

    name = "implicit_euler"
    order = "alpha + H - 1, with 1 / (stable index) for H where the noise jumps; for stiff drifts"

    def advance(self, problem: NoisyProblem, weights: Weights, t: Any, h: Any, carry: Carry, dz: Any) -> Carry:
        """One step."""
        return _IMPLICIT.advance(problem, weights, t, h, carry, dz)


def _products(xp: Namespace, matrix: Any, numbers: Any) -> Any:
    """Products of a matrix with the first axis."""
    return xp.matmul(matrix, numbers.reshape(numbers.shape[0], -1)).reshape(numbers.shape)


def _by_joint_law(alpha: Any, hurst: Any, steps: int, h: float) -> tuple[Any, Any]:
    """Matrices for increments and normal numbers; see :func:`joint_weights`."""
    xp = namespace_of(hurst)
    xp = namespace_of(alpha) if xp.library == "numpy" else xp

    def scaled(own: Any, other: Any, order: Any, index: Any) -> tuple[Any, Any]:
        log = math.log(h)
        return own * xp.exp((order - 1.0) * log), other * xp.exp((order + index - 1.0) * log)

    if not any(is_tracer(value) or tracks_gradient(value) for value in (alpha, hurst)):
        xp, order, index = NUMPY, float(alpha), float(hurst)
        return scaled(*kept_joint_weights(order, index, steps), order, index)
    with xp.scope():
        made = of_variables(xp, lambda order, index: scaled(*joint_weights(xp, order, index, steps), order, index))
        found: tuple[Any, Any] = made(xp.array(alpha), xp.array(hurst))
        return found


def _left_out(make: Callable[..., Any], h: float, alpha: Any, index: Any) -> Any:
    """The size of the remainder, from the order and H or the stable index, which may be tensors."""
    xp = namespace_of(index)
    xp = namespace_of(alpha) if xp.library == "numpy" else xp
    if xp.library == "numpy":
        return _kept(make, h, float(alpha), float(index))
    with xp.scope():
        return of_variables(xp, lambda *variables: make(xp, *variables, h))(xp.array(alpha), xp.array(index))


@lru_cache(maxsize=16)
def _kept(make: Callable[..., Any], h: float, alpha: float, index: float) -> float:
    return float(make(NUMPY, alpha, index, h))


def _fractional(xp: Namespace, alpha: Any, hurst: Any, h: float) -> Any:
    """Standard deviation of the remainder, for normal numbers; 0 if there is none."""
    power = alpha + hurst - 1.0
    whole = hurst * xp.rgamma(xp.array(alpha)) * xp.rgamma(xp.array(alpha + 2.0 * hurst - 1.0))
    whole = whole / (power * xp.rgamma(xp.array(2.0 * hurst))) * xp.exp(2.0 * power * math.log(_STEPS))
    means = _means(xp, alpha)
    covariance = autocovariance(hurst, _STEPS, xp)[_LAGS]
    left = whole - (means * (covariance * means).sum(-1)).sum()
    positive = left > 0.0
    return xp.where(positive, xp.sqrt(xp.where(positive, left, 1.0)), 0.0) * xp.exp(power * math.log(h))


def _jumps(xp: Namespace, alpha: Any, index: Any, h: float) -> Any:
    """Factor by which an independent copy of the increments has the law of the remainder."""
    power = 1.0 - (1.0 - alpha) * index
    whole = xp.exp(power * math.log(_STEPS)) / power * xp.rgamma(xp.array(alpha)) ** index
    left = whole - (_means(xp, alpha) ** index).sum()
    positive = left > 0.0
    safe = xp.where(positive, left, 1.0)
    return xp.where(positive, safe ** (1.0 / index), 0.0) * xp.exp((alpha - 1.0) * math.log(h))


def _means(xp: Namespace, alpha: Any) -> Any:
    """Means of the kernel over steps of length 1, the newest last."""
    later = xp.power(np.arange(1.0, _STEPS + 1.0), alpha)
    means = xp.concatenate([later[:1], later[1:] - later[:-1]])
    return xp.flip(means) * xp.rgamma(xp.array(alpha + 1.0))

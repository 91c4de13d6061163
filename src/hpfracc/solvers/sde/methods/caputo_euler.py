r"""Euler and Maruyama's method for the Caputo equation, with fast memory.

.. math:: D^\alpha X = f(t, X) + g(t, X)\,\dot W, \qquad X_t = X_0 + \frac{1}{\Gamma(\alpha)} \int_0^t (t-s)^{\alpha-1}
    \left(f\,ds + g\,dW_s\right), \qquad \tfrac12 < \alpha < 1,

in Ito's sense. Over older steps the kernel is replaced by its mean, a sum of exponentials to 8 digits, so that a step
costs the same however long the past is; over the newest step the integral of the noise is drawn exactly, together with
the increment. Strong order :math:`\alpha - 1/2` [1].

References
----------
1. M. Li, C. Huang, Y. Hu, "Numerical methods for stochastic Volterra integral equations with weakly singular
   kernels", IMA J. Numer. Anal. 42, 2022.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy import special

from hpfracc.errors import InvalidInputError
from hpfracc.solvers.sde.problem import NoisyProblem

__all__ = ["integrate_caputo", "newest_integrals", "read_order", "refuses"]

#: Step of the trapezoidal rule in the logarithm of the rates: its error is exp(-pi^2 / step), 3e-9.
_SPACING = 0.5
#: Rates times the step, and times the interval, between which nodes are needed.
_FASTEST, _SLOWEST = 40.0, 1e-9


def read_order(alpha: float) -> float:
    """Check the order of the derivative; 1 is an ordinary equation."""
    try:
        order = float(alpha)
    except (TypeError, ValueError):
        raise InvalidInputError(f"alpha={alpha!r}: give the order of the derivative, a number") from None
    if not 0.5 < order <= 1.0:
        raise InvalidInputError(
            f"alpha={order}: with white noise the order must be above 1/2, for the kernel to be square integrable, and "
            "at most 1"
        )
    return order


def refuses(problem: NoisyProblem) -> str | None:
    """Why an equation of order below 1 cannot be taken, or None."""
    if problem.hurst != 0.5 or math.isnan(problem.hurst):
        return "equations of order below 1 are driven by noise.Brownian() here"
    if problem.interpretation not in (None, "ito"):
        return "equations of order below 1 are taken in Ito's sense; give interpretation='ito'"
    return None


@lru_cache(maxsize=16)
def _memory(alpha: float, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Decay over a step and weights of exponentials: means of t^(alpha-1)/Gamma(alpha) over steps of length 1.

    The mean over ``[j, j + 1]``, j >= 1, is ``sum_l weights_l decay_l^(j - 1)``.
    """
    power = 1.0 - alpha
    logs = np.arange(math.log(_SLOWEST / steps), math.log(_FASTEST), _SPACING)
    rates = np.exp(logs)
    scale = _SPACING / (special.gamma(power) * special.gamma(alpha))
    weights = scale * rates**power * np.exp(-rates) * -np.expm1(-rates) / rates
    # Slower ones do not decay at all: their sum is that of a geometric series.
    rest = scale * math.exp(power * (logs[0] - _SPACING)) / -math.expm1(-power * _SPACING)
    return np.append(np.exp(-rates), 1.0), np.append(weights, rest)


def newest_integrals(alpha: float, h: float, increments: np.ndarray, normals: np.ndarray) -> np.ndarray:
    """``1/Gamma(alpha) int (t_{n+1} - s)^(alpha-1) dW`` over each step, from its increment and one more number."""
    cross = h ** (alpha - 1.0) / special.gamma(alpha + 1.0)
    variance = h ** (2.0 * alpha - 1.0) / ((2.0 * alpha - 1.0) * special.gamma(alpha) ** 2)
    return np.asarray(cross * increments + math.sqrt(max(0.0, variance - cross * cross * h)) * normals)


def integrate_caputo(
    problem: NoisyProblem, alpha: float, t: np.ndarray, h: float, start: np.ndarray, dw: np.ndarray, newest: np.ndarray
) -> np.ndarray:
    """Paths of shape ``(paths, d, n)`` from increments and newest integrals of shape ``(paths, m, n - 1)``."""
    decay, weights = _memory(alpha, t.size)
    # Means of the kernel over a step of length h, in units of 1/h.
    weights = weights * h ** (alpha - 1.0)
    newest_drift = h**alpha / special.gamma(alpha + 1.0)
    result = np.empty((start.shape[0], start.shape[1], t.size))
    first = np.array(start, dtype=np.float64)
    y = first
    result[:, :, 0] = y
    states = np.zeros((decay.size, *start.shape))
    for index in range(t.size - 1):
        time = float(t[index])
        slope, strength = np.asarray(problem.drift(time, y)), np.asarray(problem.diffusion(time, y))
        past = np.tensordot(weights, states, 1)
        y = first + past + newest_drift * slope + problem.apply(strength, newest[:, :, index])
        states *= decay[:, None, None]
        states += h * slope + problem.apply(strength, dw[:, :, index])
        result[:, :, index + 1] = y
    return result

"""Product trapezoid: piecewise linear interpolation under the Riemann-Liouville integral."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, final

from hpfracc._xp import Namespace
from hpfracc.operators.core.order import Order
from hpfracc.operators.core.rule import Rule
from hpfracc.operators.core.sequences import Lags, second_differences, tangent_defects
from hpfracc.operators.core.values import Samples, constant
from hpfracc.operators.core.weights import scaled_weights

__all__ = ["Trapezoid", "convolve_from_start"]


@final
class Trapezoid(Rule):
    r"""Riemann-Liouville integral of the piecewise linear interpolant.

    .. math::
        I^\mu f(t_k) \approx \frac{h^\mu}{\Gamma(\mu+2)} \Big[ u_k f_0 + \sum_{j=1}^{k} w_{k-j} f_j \Big], \quad
        w_0 = 1,\; w_l = (l+1)^{\mu+1} - 2 l^{\mu+1} + (l-1)^{\mu+1},\;
        u_k = (k-1)^{\mu+1} - (k-1-\mu) k^\mu .

    Order 2 for f with two continuous derivatives, at every point; exact on straight lines.

    References
    ----------
    K. Diethelm, N. J. Ford, A. D. Freed, Numer. Algorithms 36 (2004) 31-52.
    """

    usual_accuracy = 2.0
    least = 2
    name = "trapezoid"
    one_call = True

    def apply(self, samples: Samples, order: Order) -> Any:
        """One causal convolution of the samples; the first one has additional weights."""
        (weights, starts), key, factor = scaled_weights(self.name, _make_weights, order, samples, 1, few=True)
        return convolve_from_start(samples, order, weights, starts, key, factor)


def convolve_from_start(samples: Samples, order: Order, weights: Any, starts: Any, key: Hashable, factor: Any) -> Any:
    """The causal convolution of an integral's weights with the samples, the first of which have additional weights."""
    with order.xp.scope():
        weights = order.guard_integral(weights)
    signal = samples.values if factor is None else samples.values * factor
    starts = constant(starts, samples.values, None if key is None else (key, "starts"))
    return samples.convolve(weights, signal, key, starts)


def _make_weights(xp: Namespace, mu: Any, n: int | Lags) -> tuple[Any, Any]:
    """The weights of the samples, and the correction for the first one."""
    scale = xp.rgamma(mu + 2.0)
    weights = second_differences(xp, mu + 1.0, n)
    # u_k - w_k = (mu + 1) k^mu - ((k+1)^(mu+1) - k^(mu+1))
    excess = -tangent_defects(xp, mu + 1.0, n)
    return weights * scale, (xp.concatenate([xp.array([-1.0]), excess[1:]]) * scale).reshape(1, -1)

"""Product trapezoid: piecewise linear interpolation under the Riemann-Liouville integral."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any, final

from hpfracc._xp import Namespace, array_namespace
from hpfracc.engine.execution.api import exponential_recurrence, history_sum
from hpfracc.errors import InvalidInputError
from hpfracc.operators.core.fast_memory import fading_terms, power, reach_of, steps_of, times_of
from hpfracc.operators.core.order import Order
from hpfracc.operators.core.rule import Rule
from hpfracc.operators.core.sequences import Lags, second_differences, tangent_defects
from hpfracc.operators.core.values import Samples, constant, join, scalar
from hpfracc.operators.core.weights import scaled_weights

__all__ = ["AnyGridTrapezoid", "FastTrapezoid", "Trapezoid", "convolve_from_start", "make_weights"]


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
        (weights, starts), key, factor = scaled_weights(self.name, make_weights, order, samples, 1, few=True)
        return convolve_from_start(samples, order, weights, starts, key, factor)


def convolve_from_start(samples: Samples, order: Order, weights: Any, starts: Any, key: Hashable, factor: Any) -> Any:
    """The causal convolution of an integral's weights with the samples, the first of which have additional weights."""
    with order.xp.scope():
        weights = order.guard_integral(weights)
    signal = samples.values if factor is None else samples.values * factor
    starts = constant(starts, samples.values, None if key is None else (key, "starts"))
    return samples.convolve(weights, signal, key, starts)


def make_weights(xp: Namespace, mu: Any, n: int | Lags) -> tuple[Any, Any]:
    """The weights of the samples, and the correction for the first one."""
    scale = xp.rgamma(mu + 2.0)
    weights = second_differences(xp, mu + 1.0, n)
    # u_k - w_k = (mu + 1) k^mu - ((k+1)^(mu+1) - k^(mu+1))
    excess = -tangent_defects(xp, mu + 1.0, n)
    return weights * scale, (xp.concatenate([xp.array([-1.0]), excess[1:]]) * scale).reshape(1, -1)


#: Maximum number of ordinary integrals that the fast rule takes first. More would need polynomials of higher degree.
_MAX_WHOLE = 3


@final
class AnyGridTrapezoid(Rule):
    r"""Riemann-Liouville integral of the piecewise linear interpolant, on any increasing grid.

    .. math::
        I^\mu f(t_i) \approx \frac{1}{\Gamma(\mu+1)} \Big[ (t_i - t_0)^\mu f_0 + \sum_{k=1}^{i}
        \frac{f_k - f_{k-1}}{t_k - t_{k-1}} \int_{t_{k-1}}^{t_k} (t_i - s)^\mu ds \Big],

    the product trapezoid summed by parts. Order 2 in the largest step for f with two continuous derivatives, at every
    point; exact on straight lines. The cost is one weight per pair of points.
    """

    usual_accuracy = 2.0
    least = 2
    name = "trapezoid"
    cost = "O(n^2)"
    any_grid = True

    def apply(self, samples: Samples, order: Order) -> Any:
        """One history sum of the increments."""
        x = samples.values
        increments = join([x[..., :1] - x[..., :1], x[..., 1:] - x[..., :-1]])
        with order.xp.scope():
            factor = order.guard_integral(order.xp.rgamma(order.value + 1.0))
            reach = power(reach_of(samples, 1), order.value, order)
        past = history_sum(times_of(samples), increments, order.value, kernel="power", backend=samples.backend)
        start = x[..., :1] * constant(reach, x)
        return join([past[..., :1], past[..., 1:] + start]) * scalar(factor, x)


@final
class FastTrapezoid(Rule):
    r"""The same rule with the kernel as a sum of exponentials, except on the newest interval.

    The integer part m of :math:`\mu` is integrated first, exactly, interval by interval. The kernel
    :math:`r^{\mu-m-1}` is then applied to the resulting piecewise polynomial. Its relative error is ``rtol``, 1e-10 by
    default.
    """

    usual_accuracy = 2.0
    least = 2
    name = "fast"
    cost = "O(n log n)"
    any_grid = True

    def apply(self, samples: Samples, order: Order) -> Any:
        """Integrals of integer order, then one recurrence for each power of the piecewise polynomial."""
        whole = 0 if order.known is None else math.floor(order.known)
        if whole > _MAX_WHOLE:
            raise InvalidInputError(
                f"alpha={order.known:g}: the fast integral supports orders below {_MAX_WHOLE + 1}; "
                "use method='trapezoid', or integrate twice"
            )
        x = samples.values
        steps, widths = steps_of(samples)
        tau = constant(widths, x)
        rise = x[..., 1:] - x[..., :-1]
        integrals = [x]
        for r in range(1, whole + 1):
            gain = rise * tau**r / math.factorial(r + 1)
            for d in range(1, r + 1):
                gain = gain + integrals[r - d][..., :-1] * tau**d / math.factorial(d)
            integrals.append(join([x[..., :1] * 0, array_namespace(gain).cumsum(gain, -1)]))
        if order.known == whole:
            if not order.plain:
                raise InvalidInputError(
                    f"alpha={order.known:g} is differentiable, but the fast integral of integer order is not; "
                    "use method='trapezoid', or give a number"
                )
            return integrals[whole]
        # On each interval sum_d c_d u^d, u from 0 to 1.
        powers = [integrals[whole - d][..., :-1] * tau**d / math.factorial(d) for d in range(whole + 1)]
        powers.append(rise * tau**whole / math.factorial(whole + 1))
        nu = order.value - float(whole)
        xp = order.xp
        with xp.scope():
            rates, weights = fading_terms(samples, order, 1.0 - nu)
            factor = order.guard_integral(xp.rgamma(nu))
            newest = power(widths, nu, order)
            shares = [math.factorial(d) * xp.rgamma(nu + d + 1.0) / xp.rgamma(nu) for d in range(whole + 2)]
        total: Any = 0.0
        for d, part in enumerate(powers):
            past = exponential_recurrence(
                rates, weights, steps, part * tau, degree=d, lagged=True, backend=samples.backend
            )
            with xp.scope():
                share = newest * shares[d]
            total = total + past + part * constant(share, x)
        return join([x[..., :1] * 0, total * scalar(factor, x)])

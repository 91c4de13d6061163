"""Product trapezoid: piecewise linear interpolation under the Riemann-Liouville integral."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any, final

from hpfracc._xp import NUMPY, Namespace, array_namespace, namespace_of
from hpfracc.engine.execution.api import exponential_recurrence, history_sum
from hpfracc.errors import InvalidInputError
from hpfracc.operators.core.fast_memory import fading_terms, power, reach_of, steps_of, times_of
from hpfracc.operators.core.order import Order
from hpfracc.operators.core.rule import Rule
from hpfracc.operators.core.sequences import Lags, second_differences, tangent_defects
from hpfracc.operators.core.values import Samples, constant, join, namespace_among, scalar, zeros
from hpfracc.operators.core.weights import scaled_weights
from hpfracc.operators.rules.increments import infinite_at_origin

__all__ = ["FastTrapezoid", "PiecewiseLinear", "Trapezoid", "convolve_from_start", "make_weights"]


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
class PiecewiseLinear(Rule):
    r"""An operator of the piecewise linear interpolant of :math:`e^{\lambda t} f`, on any increasing grid.

    .. math::
        D^{\alpha,\lambda} f(t_n) \approx \frac{1}{\Gamma(1-\alpha)} \Big[ \sum_{k=1}^{n} e^{-\lambda(t_n-t_k)}
        \big(f_k - e^{-\lambda h_k} f_{k-1}\big) \frac{1}{h_k} \int_{t_{k-1}}^{t_k} (t_n-s)^{-\alpha}\,ds
        + e^{-\lambda(t_n-t_0)} (t_n-t_0)^{-\alpha} f_0 \Big],

    without the last term in the Caputo sense; with :math:`-\mu` in place of :math:`\alpha` it is the integral, the
    product trapezoid summed by parts. Order 2 - alpha in the longest step for derivatives of order up to 1, 2 for
    integrals, for f smooth on the scale of 1/rate; a grid graded towards the origin keeps it for f that starts like a
    power. The cost is one weight per pair of points.

    References
    ----------
    F. Sabzikar, M. M. Meerschaert, J. Chen, J. Comput. Phys. 293 (2015) 14-28.
    """

    least = 2
    cost = "O(n^2)"
    any_grid = True

    def __init__(self, rate: Any = 0.0, *, integral: bool = False, initial_term: bool = False) -> None:
        self.rate = rate
        self.integral = integral
        self.initial_term = initial_term

    @property
    def name(self) -> str:  # type: ignore[override]
        """``"l1"``, or ``"trapezoid"`` for the integral."""
        return "trapezoid" if self.integral else "l1"

    def at_rate(self, rate: Any) -> PiecewiseLinear:
        """The same with this rate of decay."""
        return PiecewiseLinear(rate, integral=self.integral, initial_term=self.initial_term)

    def accuracy(self, alpha: float) -> float:
        """``2 - alpha``, or 2 for the integral."""
        return 2.0 if self.integral else 2.0 - alpha

    def check(self, samples: Samples, order: Order, who: str) -> None:
        """Raise an error for derivatives of order above 1 too."""
        super().check(samples, order, who)
        if not self.integral and order.ceiling > 1:
            raise InvalidInputError(
                f"{who} of order {order.known if order.known is not None else 'above 1'} needs a uniform grid; on any "
                "other it takes orders up to 1: interpolate the samples onto np.linspace first"
            )

    def apply(self, samples: Samples, order: Order) -> Any:
        """One history sum over the increments of the interpolant."""
        x, times, reach = samples.values, times_of(samples), reach_of(samples, 1)
        exponent = order.value if self.integral else -order.value
        guard = order.guard_integral if self.integral else order.guard
        with order.xp.scope():
            factor = guard(order.xp.rgamma(2.0 + exponent))
            start = power(reach, exponent, order) * guard(order.xp.rgamma(1.0 + exponent))
        parameters, before = (exponent,), x[..., :-1]
        if namespace_of(self.rate) is not NUMPY or float(self.rate) != 0.0:
            xp = namespace_among(order.value, self.rate, times)
            with xp.scope():
                rate = xp.array(self.rate)
                parameters, start = (xp.array(exponent), rate), xp.array(start) * xp.exp(-rate * xp.array(reach))
                before = constant(xp.exp(-rate * xp.array(times[1:] - times[:-1])), x) * before
        value = history_sum(
            times,
            join([zeros(x, 1), x[..., 1:] - before]),
            *parameters,
            kernel="power" if len(parameters) == 1 else "tempered",
            scaled=True,
            backend=samples.backend,
        ) * scalar(factor, x)
        if not (self.integral or self.initial_term):
            return value
        first = infinite_at_origin(x[..., :1], order, []) if self.initial_term else value[..., :1]
        return join([first, value[..., 1:] + x[..., :1] * constant(start, x)])


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

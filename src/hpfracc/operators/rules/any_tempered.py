"""Tempered operators on any increasing grid, by piecewise linear interpolation."""

from __future__ import annotations

from typing import Any, final

import numpy as np

from hpfracc._arrays import library_of
from hpfracc._xp import namespace_of
from hpfracc.engine.execution.api import history_sum
from hpfracc.errors import InvalidInputError
from hpfracc.operators.core.order import Order
from hpfracc.operators.core.rule import Rule
from hpfracc.operators.core.values import Samples, constant, join, scalar, zeros
from hpfracc.operators.rules.first_points import infinite_at_origin

__all__ = ["AnyGridTempered"]


@final
class AnyGridTempered(Rule):
    r"""A tempered operator of the piecewise linear interpolant of :math:`e^{\lambda t} f`, on any increasing grid.

    .. math::
        D^{\alpha,\lambda} f(t_n) \approx \frac{1}{\Gamma(1-\alpha)} \Big[ \sum_{k=1}^{n} e^{-\lambda(t_n-t_k)}
        \big(f_k - e^{-\lambda h_k} f_{k-1}\big) \frac{1}{h_k} \int_{t_{k-1}}^{t_k} (t_n-s)^{-\alpha}\,ds
        + e^{-\lambda(t_n-t_0)} (t_n-t_0)^{-\alpha} f_0 \Big],

    without the last term in the Caputo sense; with :math:`-\mu` in place of :math:`\alpha` it is the integral. Order 2
    - alpha in the longest step for derivatives of order up to 1, 2 for integrals, for f smooth on the scale of 1/rate;
    a grid graded towards the origin keeps it for f that starts like a power. Cost O(n^2), memory O(n).

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

    def at_rate(self, rate: Any) -> AnyGridTempered:
        """The same with this rate of decay."""
        return AnyGridTempered(rate, integral=self.integral, initial_term=self.initial_term)

    def accuracy(self, alpha: float) -> float:
        """``2 - alpha``, or 2 for the integral."""
        return 2.0 if self.integral else 2.0 - alpha

    def check(self, samples: Samples, order: Order, who: str) -> None:
        """Raise an error for orders above 1 too."""
        super().check(samples, order, who)
        if not self.integral and order.ceiling > 1:
            raise InvalidInputError(
                f"{who} of order {order.known if order.known is not None else 'above 1'} needs a uniform grid; on any "
                "other it takes orders up to 1: interpolate the samples onto np.linspace first"
            )

    def apply(self, samples: Samples, order: Order) -> Any:
        """One history sum over the increments of the interpolant."""
        x, times = samples.values, samples.grid.times()
        xp = order.xp if not order.plain else namespace_of(self.rate)
        power = order.value if self.integral else -order.value
        with xp.scope():
            rate = xp.array(np.float64(self.rate)) if library_of(self.rate) in ("numpy", "python") else self.rate
            fall = constant(xp.exp(-rate * xp.array(np.diff(times))), x)
            scale, factor = xp.rgamma(1.0 + power), xp.rgamma(2.0 + power)
            if not self.integral:
                scale, factor = order.guard(scale), order.guard(factor)
            elapsed = times[1:] - times[0]
            start = xp.exp(-rate * xp.array(elapsed) + power * xp.array(np.log(elapsed))) * scale
            exponent = xp.array(np.float64(power)) if order.plain else power
        steps = join([zeros(x, 1), x[..., 1:] - fall * x[..., :-1]])
        value = history_sum(times, steps, exponent, rate, kernel="tempered", scaled=True, backend=samples.backend)
        value = value * scalar(factor, x)
        if not (self.integral or self.initial_term):
            return value
        rest = value[..., 1:] + x[..., :1] * constant(start, x)
        first = infinite_at_origin(x[..., :1], order, []) if self.initial_term else value[..., :1]
        return join([first, rest])

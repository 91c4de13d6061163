"""The Weyl derivative and integral of periodic functions, and the Marchaud derivative of functions on a line."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Unpack, final

import numpy as np

from hpfracc._arrays import is_array
from hpfracc._choices import CqName, RieszName
from hpfracc._reading import number
from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.operators._riemann_liouville import RiemannLiouville
from hpfracc.operators.core.applying import UNIFORM, pick_rule
from hpfracc.operators.core.base import FractionalOperator, function_of
from hpfracc.operators.core.call_types import MISSING, CeilingOptions, OrderNumber, PeriodOptions
from hpfracc.operators.core.function import Function
from hpfracc.operators.core.grids import Grid
from hpfracc.operators.core.order import Order, read_order
from hpfracc.operators.core.reporting import Outcome
from hpfracc.operators.core.rule import Rule, RuleTable, later
from hpfracc.operators.core.values import Samples
from hpfracc.operators.rules.periodic import WeylWaves, check_period, of_periodic_function


@final
@dataclass(frozen=True, slots=True)
class Weyl(FractionalOperator):
    r"""Weyl derivative of a periodic function, which has no origin.

    .. math:: D^\alpha f(x) = \sum_{k \ne 0} (i\kappa_k)^\alpha\, c_k\, e^{i\kappa_k x}, \quad
        \kappa_k = 2\pi k / L, \quad (i\kappa)^\alpha = |\kappa|^\alpha e^{i\,\mathrm{sgn}(\kappa)\,\pi\alpha/2}.

    Any real order: integers give ordinary derivatives, negative orders Weyl integrals of f minus its mean. It is the
    limit of the derivatives with an origin, far from the origin.

    Parameters
    ----------
    alpha : float or scalar array
        The order; differentiable if it is a tensor or JAX array.
    method : str
        ``"spectral"``, the only one.
    period : float, optional
        The length L. Samples must cover it, as ``np.linspace(0, L, n, endpoint=False)`` does; it is n times their
        spacing by default, and an explicit period is checked against that. Required for a callable, which is sampled
        over one period as finely as needed and evaluated at any points.

    Notes
    -----
    Exact to rounding on waves that the samples resolve; exponentially convergent for analytic periodic functions. A
    function that is not periodic has a jump at the end of the period, and the result includes that jump. A non-finite
    sample makes the whole row nan, because every value depends on every sample.

    References
    ----------
    S. G. Samko, A. A. Kilbas, O. I. Marichev, *Fractional Integrals and Derivatives*, 1993, section 19.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> x = np.linspace(0.0, 2.0 * np.pi, 32, endpoint=False)
    >>> bool(np.allclose(hf.Weyl(0.5)(np.sin(x), x), np.sin(x + np.pi / 4)))
    True
    """

    alpha: OrderNumber
    method: RieszName = "auto"
    period: Any = None

    definition = "weyl"
    short_names = ("W",)
    scales = True
    who = "the Weyl derivative"
    rules = RuleTable({"spectral": later("periodic.WeylWaves")})
    grids = ("uniform",)
    unused = ("origin", "factor")

    def _rule(self, order: Order, grid: Grid, who: str) -> Rule:
        rule = pick_rule(self, self.method, who, grid)
        check_period(grid, self.period, who)
        return rule

    def _of_function(self, function: Function) -> Outcome:
        pick_rule(self, self.method, self.who, UNIFORM)
        return of_periodic_function(function, WeylWaves(), self._order(), self.period, self.who)


@function_of(Weyl, see_also="weyl_integral, marchaud, riesz")
def weyl(f: Any, t: Any = None, alpha: OrderNumber = MISSING, **options: Unpack[PeriodOptions[RieszName]]) -> Any:
    """Weyl derivative of samples over a period, or of a periodic callable.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> x = np.linspace(0.0, 2.0 * np.pi, 32, endpoint=False)
    >>> bool(np.allclose(hf.weyl(np.sin(3 * x), x, 0.5), np.sqrt(3) * np.sin(3 * x + np.pi / 4)))
    True
    >>> float(np.round(hf.weyl(np.sin, 0.0, 0.5, period=2 * np.pi), 12))  # sin(pi / 4)
    0.707106781187
    """


@final
@dataclass(frozen=True, slots=True)
class WeylIntegral(FractionalOperator):
    r"""Weyl integral of a periodic function without mean: the inverse of the Weyl derivative.

    .. math:: I^\alpha f(x) = \sum_{k \ne 0} (i\kappa_k)^{-\alpha}\, c_k\, e^{i\kappa_k x}, \quad
        \kappa_k = 2\pi k / L.

    The integral of a constant over the whole past diverges, so the mean of f is omitted. ``full_output`` reports it.

    Parameters
    ----------
    alpha : float or scalar array
        The order, positive; differentiable if it is a tensor or JAX array.
    method : str
        ``"spectral"``, the only one.
    period : float, optional
        The length L, by default n times the spacing of n samples; required for a callable.

    References
    ----------
    S. G. Samko, A. A. Kilbas, O. I. Marichev, *Fractional Integrals and Derivatives*, 1993, section 19.
    """

    alpha: OrderNumber
    method: RieszName = "auto"
    period: Any = None

    definition = "weyl"
    short_names = ("W",)
    scales = True
    who = "the Weyl integral"
    kind = "integral"
    rules = Weyl.rules
    grids = ("uniform",)
    unused = ("origin", "factor")

    def _derivative(self) -> Weyl:
        order = read_order(self.alpha)
        if order.known is not None and order.known <= 0.0:
            raise InvalidInputError(f"alpha={order.known:g} is not the order of an integral; use weyl for derivatives")
        return Weyl(-self.alpha, self.method, self.period)

    def _of_samples(self, samples: Samples) -> Outcome:
        return _without_mean(self._derivative().applied(samples, self.who))

    def _of_function(self, function: Function) -> Outcome:
        return _without_mean(self._derivative()._of_function(function))


def _without_mean(outcome: Outcome) -> Outcome:
    message = "; ".join(part for part in (outcome.message, "the mean of f is left out") if part)
    return replace(outcome, message=message, reusable=None)


@function_of(WeylIntegral, see_also="weyl, riemann_liouville_integral")
def weyl_integral(
    f: Any, t: Any = None, alpha: OrderNumber = MISSING, **options: Unpack[PeriodOptions[RieszName]]
) -> Any:
    """Weyl integral of samples over a period, or of a periodic callable. The mean is omitted.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> x = np.linspace(0.0, 2.0 * np.pi, 32, endpoint=False)
    >>> bool(np.allclose(hf.weyl_integral(np.cos(x), x, 1.0), np.sin(x)))
    True
    """


@final
@dataclass(frozen=True, slots=True)
class Marchaud(FractionalOperator):
    r"""Marchaud derivative on the whole line, for f that is a known constant c before the origin.

    .. math::
        D^\alpha f(t) = \frac{\alpha}{\Gamma(1-\alpha)} \int_{0}^{\infty} \frac{f(t)-f(t-u)}{u^{1+\alpha}}\,du
        = \frac{f(t)-c}{\Gamma(1-\alpha)\,(t-t_0)^{\alpha}}
        + \frac{\alpha}{\Gamma(1-\alpha)} \int_{t_0}^{t} \frac{f(t)-f(s)}{(t-s)^{1+\alpha}}\,ds,
        \quad f(s) = c \text{ for } s < t_0,

    for 0 < alpha < 1; for larger alpha the same operator is applied to an integer-order derivative. With c = 0
    (``before=0``) it is the Marchaud derivative on an interval, which equals the Riemann-Liouville derivative. With
    c = f(t0) (``before="first"``) it is zero on constants and equals the Caputo derivative for alpha < 1. For any c it
    is the Riemann-Liouville derivative of f - c, and is computed by its rules, with their orders. For a *periodic* f
    use the Weyl derivative.

    Parameters
    ----------
    alpha : float or scalar array
        The order, positive; differentiable if it is a tensor or JAX array. Integer orders are ordinary derivatives.
    before : float, array or "first"
        The value c of f before the origin: a number, an array that broadcasts against f with its points as the last
        axis, or ``"first"`` for the first sample (for a callable, its value at the origin).
    method : str
        As for :class:`RiemannLiouville`: ``"l1-2"`` (order n + 2 - alpha; used by ``"auto"``), ``"l1"``
        (n + 1 - alpha), ``"cq2"`` to ``"cq6"``; on any other grid ``"l1"`` or ``"fast"``; for callables
        ``"spectral"`` or ``"graded"``.
    ceiling : int, optional
        The integer n, needed only if ``alpha`` is traced and above 1.

    References
    ----------
    S. G. Samko, A. A. Kilbas, O. I. Marichev, *Fractional Integrals and Derivatives*, 1993, sections 5.4 and 13.1.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> t = np.linspace(0.0, 1.0, 101)
    >>> value = hf.Marchaud(0.5, before="first")(1.0 + t, t)  # as Caputo's: 2 sqrt(t / pi)
    >>> bool(np.allclose(value, 2.0 * np.sqrt(t / np.pi)))
    True
    """

    alpha: OrderNumber
    before: Any = 0.0
    method: CqName = "auto"
    ceiling: int | None = None

    definition = "marchaud"
    scales = True
    who = "the Marchaud derivative"
    instead = "for an integral use riemann_liouville_integral"
    inner = RiemannLiouville

    def _of_samples(self, samples: Samples) -> Outcome:
        self._order()
        first = self._first(samples.values[..., :1])
        outcome = self._inner().applied(replace(samples, values=samples.values - first), self.who)
        return replace(outcome, reusable=None)

    def _of_function(self, function: Function) -> Outcome:
        self._order()
        if isinstance(self.before, str) and function.factor < 0.0:
            raise InvalidInputError(
                f"before='first' with factor={function.factor:g}: f is infinite at the origin; give before= a number"
            )
        if not isinstance(self.before, str) and not is_array(self.before) and number("before", self.before) == 0.0:
            return self._inner()._of_function(function)
        if function.factor != 0.0:
            raise InvalidInputError(
                f"factor={function.factor:g} with before={self.before!r}: f - c is not a power times a smooth "
                "function; give before=0, or omit the factor"
            )
        first = self._first(function.at(np.array([function.origin])))

        return self._inner()._of_function(function.changed(lambda t, values: values - first))

    def _first(self, first: Any) -> Any:
        """The value c of f before the origin."""
        if isinstance(self.before, str):
            if self.before != "first":
                raise InvalidInputError(f"before={self.before!r} is not known; use a number, an array or 'first'")
            return first
        if not is_array(self.before):
            return number("before", self.before)
        shape, room = tuple(self.before.shape), tuple(first.shape)
        if shape and (
            shape[-1] != 1 or any(a != b and 1 not in (a, b) for a, b in zip(shape[::-1], room[::-1], strict=False))
        ):
            raise ShapeError(
                f"before has shape {shape}, but f without its points {room}; give one number, or an array that "
                "broadcasts against that"
            )
        return self.before


class MarchaudOptions(CeilingOptions[CqName], total=False):
    """The options of :func:`marchaud`."""

    before: Any


@function_of(Marchaud, see_also="caputo, riemann_liouville, weyl")
def marchaud(f: Any, t: Any = None, alpha: OrderNumber = MISSING, **options: Unpack[MarchaudOptions]) -> Any:
    """Marchaud derivative of samples or of a callable, constant before the origin.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> t = np.linspace(0.0, 1.0, 5)
    >>> hf.marchaud(np.ones(5), t, 0.5)[1:].round(4)  # zero before the origin: a jump, 1 / sqrt(pi t)
    array([1.1284, 0.7979, 0.6515, 0.5642])
    >>> bool(hf.marchaud(np.ones(5), t, 0.5, before="first").any())
    False
    """

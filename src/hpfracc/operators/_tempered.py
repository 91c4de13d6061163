"""The tempered derivatives, of Riemann-Liouville's and of Caputo's kind, and the tempered integral."""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Unpack, final

import numpy as np

from hpfracc._arrays import is_array, to_host
from hpfracc._choices import CqName, IntegralName, L1Name
from hpfracc._xp import NUMPY, namespace_of
from hpfracc.errors import InvalidInputError
from hpfracc.operators._riemann_liouville import RepeatedIntegral, RiemannLiouville, RiemannLiouvilleIntegral
from hpfracc.operators.core.applying import apply_beside_whole, derivative_of_whole_order, order_beside
from hpfracc.operators.core.base import FractionalOperator, function_of
from hpfracc.operators.core.call_types import MISSING, CeilingOptions, InitialOptions, MethodOptions, OrderNumber
from hpfracc.operators.core.function import Function
from hpfracc.operators.core.grids import Grid, known_values, read_scalar
from hpfracc.operators.core.order import Order, read_order
from hpfracc.operators.core.reporting import Outcome, combined_outcome, weighted_outcome
from hpfracc.operators.core.rule import Rule, RuleTable, later
from hpfracc.operators.core.spectral import differentiate
from hpfracc.operators.core.values import Samples, constant, join, namespace_among, scalar
from hpfracc.operators.rules.start import FittedStart, read_initial


class TemperedOperator(FractionalOperator, ABC):
    """An operator with a rate of decay."""

    __slots__ = ()

    rate: Any

    def _order_like(self) -> Any:
        return self.alpha if is_array(self.alpha) else self.rate

    def _rule(self, order: Order, grid: Grid, who: str) -> Rule:
        return super()._rule(order, grid, who).changed(rate=read_rate(self.rate))

    def _of_samples(self, samples: Samples) -> Outcome:
        outcome = self.applied(samples, self.who)
        error = outcome.error
        if error is None or not samples.grid.uniform:
            return outcome

        def bounded() -> Any:
            """Steps longer than 1/rate are all wrong alike: a power of the step multiplies f, instead of the rate."""
            alpha, rate, step = self._order().known, _known(self.rate), _known(samples.grid.step)
            if alpha is None or rate is None or step is None or rate * step <= 1.0:
                return error()
            power = alpha if self.kind == "derivative" else -alpha
            return error() + abs(samples.values) * (rate**power + step**-power)

        return replace(outcome, error=bounded)

    def _of_function(self, function: Function) -> Outcome:
        order, rate = self._order(), read_rate(self.rate)
        order = order.negated() if self.kind == "integral" else order
        return tempered_function(function, order, rate, self.method, initial_terms=self.initial_terms)


class TemperedDerivative(TemperedOperator, ABC):
    """Those of integer order are powers of ``d/dt + rate``."""

    __slots__ = ()

    instead = "for an integral use tempered_integral"

    def applied(self, samples: Samples, who: str) -> Outcome:
        """Apply to samples. Errors call the operator ``who``."""
        order = self._order()
        rule = self._rule(order, samples.grid, who)
        n, decay = order.ceiling, scalar(read_rate(self.rate), samples.values)

        def whole(some: Samples) -> Outcome:
            parts = [derivative_of_whole_order(some, p, who) for p in range(n + 1)]
            return weighted_outcome([(part, math.comb(n, p) * decay ** (n - p)) for p, part in enumerate(parts)], "")

        return apply_beside_whole(rule, samples, order, who, whole, at=n)


@final
@dataclass(frozen=True, slots=True)
class TemperedRiemannLiouville(TemperedDerivative):
    r"""Tempered Riemann-Liouville derivative: a power-law kernel with exponential decay (tempered Lévy flights).

    .. math:: D^{\alpha,\lambda} f(t) = e^{-\lambda t}\, D^\alpha\big[e^{\lambda t} f(t)\big], \quad \lambda \ge 0,

    where :math:`D^\alpha` is the Riemann-Liouville derivative. With ``centred=True`` its value on constants on the
    whole line is subtracted,

    .. math:: \partial^{\alpha,\lambda} f = D^{\alpha,\lambda} f - \lambda^\alpha f \quad (0 < \alpha < 1), \qquad
        D^{\alpha,\lambda} f - \lambda^\alpha f - \alpha\lambda^{\alpha-1} f' \quad (1 < \alpha < 2),

    whose symbol :math:`(\lambda+ik)^\alpha - \lambda^\alpha - \dots` vanishes at k = 0. The first maps
    :math:`e^{-\lambda t} t^p` to :math:`\Gamma(p+1)/\Gamma(p+1-\alpha)\, e^{-\lambda t} t^{p-\alpha}`. Neither is zero
    on constants; at the origin both are infinite unless f vanishes there.

    Parameters
    ----------
    alpha : float or scalar array
        The order, positive; differentiable if it is a tensor or JAX array. Integer orders are :math:`(d/dt +
        \lambda)^n`.
    rate : float or scalar array
        The rate :math:`\lambda`, 0 or more; may be differentiable too.
    centred : bool
        Whether to subtract :math:`\lambda^\alpha f`, and above order 1 :math:`\alpha\lambda^{\alpha-1} f'`; for orders
        below 2.
    method : str
        As for :class:`RiemannLiouville`, with the same orders if f is also smooth on the scale of 1/rate: ``"l1-2"``
        (n + 2 - alpha; used by ``"auto"``), ``"l1"`` (n + 1 - alpha), ``"cq2"`` to ``"cq6"``; on any other grid
        ``"l1"`` (orders below 1); for callables ``"spectral"`` or ``"graded"``. Samples much farther apart than 1/rate
        give no correct digit, which the error estimate shows; use a callable.
    ceiling : int, optional
        The integer n, needed only if ``alpha`` is traced and above 1.

    References
    ----------
    F. Sabzikar, M. M. Meerschaert, J. Chen, J. Comput. Phys. 293 (2015) 14-28; B. Baeumer, M. M. Meerschaert, J.
    Comput. Appl. Math. 233 (2010) 2438-2448.
    """

    alpha: OrderNumber
    rate: Any = 1.0
    centred: bool = False
    method: CqName = "auto"
    ceiling: int | None = None

    definition = "tempered"
    short_names = ("tempered_riemann_liouville", "TRL")
    who = "the tempered derivative"
    initial_terms = True
    rules = RiemannLiouville.rules.wrapped("tempered.Tempered", singular=True)
    any_grid_rules = RuleTable({"l1": later("any_grid.PiecewiseLinear", initial_term=True)})

    def _of_samples(self, samples: Samples) -> Outcome:
        def slope() -> Any:
            return derivative_of_whole_order(samples, 1, self.who).value

        return self._centred(TemperedDerivative._of_samples(self, samples), samples.values, slope)

    def _of_function(self, function: Function) -> Outcome:
        def slope() -> Any:
            return differentiate(function, read_order(1.0), "auto", initial_terms=False).value

        outcome = TemperedOperator._of_function(self, function)
        return self._centred(outcome, function.at(function.points), slope) if self.centred else outcome

    def _centred(self, outcome: Outcome, values: Any, slope: Callable[[], Any]) -> Outcome:
        """The outcome without the terms that ``centred`` subtracts."""
        if not self.centred:
            return outcome
        order, rate = order_beside(self._order(), values), read_rate(self.rate)
        less = values * scalar(_power(rate, order, 0), values)
        if order.ceiling == 2:
            less = less + slope() * scalar(_power(rate, order, 1), values)
        return replace(outcome, value=outcome.value - less)

    def _order(self) -> Order:
        order = FractionalOperator._order(self)
        if self.centred and order.ceiling > 2:
            raise InvalidInputError(
                f"alpha={self.alpha}: the centred tempered derivative is defined for 0 < alpha <= 2; use centred=False"
            )
        return order


def _power(rate: Any, order: Order, p: int) -> Any:
    """``binom(alpha, p) rate^(alpha - p)`` for p = 0 or 1."""
    xp = namespace_among(order.value, rate)
    factor = 1.0 if p == 0 else order.value
    if xp is NUMPY:
        return factor * float(rate) ** float(order.value - p)
    with xp.scope():
        return factor * xp.array(rate) ** (order.value - p)


class CentredOptions(CeilingOptions[CqName], total=False):
    """The options of :func:`tempered`."""

    centred: bool


@function_of(TemperedRiemannLiouville, see_also="tempered_caputo, tempered_integral, riemann_liouville")
def tempered(
    f: Any, t: Any = None, alpha: OrderNumber = MISSING, rate: Any = 1.0, **options: Unpack[CentredOptions]
) -> Any:
    """Tempered Riemann-Liouville derivative of samples or of a callable.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> t = np.linspace(0.0, 1000.0, 5)
    >>> bool(np.isfinite(hf.tempered(np.sin(t), t, 0.5, rate=10.0)).all())  # exp(rate t) itself would be infinite
    True
    >>> far = hf.tempered(np.cos, 100.0, 0.5, rate=2.0)  # far from the origin: Re (2 + i)^0.5 exp(100 i)
    >>> bool(np.isclose(far, ((2 + 1j) ** 0.5 * np.exp(100j)).real))
    True
    """


@final
@dataclass(frozen=True, slots=True)
class TemperedCaputo(TemperedDerivative):
    r"""Tempered Caputo derivative: a power-law kernel with exponential decay.

    .. math:: D^{\alpha,\lambda} f(t) = e^{-\lambda t}\, D^\alpha\big[e^{\lambda t} f(t)\big]
        = \frac{1}{\Gamma(n-\alpha)} \int_{t_0}^{t} \frac{e^{-\lambda(t-s)}}{(t-s)^{\alpha-n+1}}
        \Big(\frac{d}{ds} + \lambda\Big)^n f(s)\,ds, \quad n = \lceil\alpha\rceil,\ \lambda \ge 0,

    where :math:`D^\alpha` is the Caputo derivative. It is zero on :math:`e^{-\lambda t}`, not on constants, and maps
    :math:`e^{-\lambda t} t^p` to :math:`\Gamma(p+1)/\Gamma(p+1-\alpha)\, e^{-\lambda t} t^{p-\alpha}`. With rate 0 it
    is the Caputo derivative.

    Parameters
    ----------
    alpha : float or scalar array
        The order, positive; differentiable if it is a tensor or JAX array. Integer orders are :math:`(d/dt +
        \lambda)^n`.
    rate : float or scalar array
        The rate :math:`\lambda`, 0 or more; may be differentiable too.
    method : str
        For samples on a uniform grid ``"l1-2"`` (order n + 2 - alpha; used by ``"auto"``) or ``"l1"`` (order
        n + 1 - alpha), on any other grid ``"l1"`` (orders below 1), if f is also smooth on the scale of 1/rate; for
        callables ``"spectral"`` or ``"graded"``.
    ceiling : int, optional
        The integer n, needed only if ``alpha`` is traced and above 1.
    initial : sequence, optional
        For samples and orders above 1: as for :class:`Caputo`, the derivatives 1 to n - 1 at the origin of
        f itself.

    References
    ----------
    F. Sabzikar, M. M. Meerschaert, J. Chen, J. Comput. Phys. 293 (2015) 14-28; C. Li, W. Deng, L. Zhao, Discrete
    Contin. Dyn. Syst. B 24 (2019) 1989-2015 (in Caputo's sense).
    """

    alpha: OrderNumber
    rate: Any = 1.0
    method: L1Name = "auto"
    ceiling: int | None = None
    initial: Any = None

    definition = "tempered_caputo"
    short_names = ("TC",)
    who = "the tempered Caputo derivative"
    rules = RuleTable(
        {"l1-2": later("tempered.Tempered", later("l1.L12")), "l1": later("tempered.Tempered", later("l1.L1Rule"))}
    )
    any_grid_rules = RuleTable({"l1": later("any_grid.PiecewiseLinear")})

    def _rule(self, order: Order, grid: Grid, who: str) -> Rule:
        rule = TemperedDerivative._rule(self, order, grid, who)
        initial = read_initial(self.initial, order, who)
        return FittedStart(rule, initial) if order.ceiling > 1 and not rule.any_grid else rule


@function_of(TemperedCaputo, see_also="tempered, tempered_integral, caputo")
def tempered_caputo(
    f: Any, t: Any = None, alpha: OrderNumber = MISSING, rate: Any = 1.0, **options: Unpack[InitialOptions[L1Name]]
) -> Any:
    """Tempered Caputo derivative of samples or of a callable.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> t = np.linspace(0.0, 1.0, 101)
    >>> value = hf.tempered_caputo(t * np.exp(-2 * t), t, 0.5, rate=2.0)
    >>> bool(np.allclose(value, 2 * np.sqrt(t / np.pi) * np.exp(-2 * t)))
    True
    """


@final
@dataclass(frozen=True, slots=True)
class TemperedIntegral(TemperedOperator, RepeatedIntegral):
    r"""Tempered Riemann-Liouville integral.

    .. math:: I^{\mu,\lambda} f(t) = e^{-\lambda t}\, I^\mu\big[e^{\lambda t} f(t)\big]
        = \frac{1}{\Gamma(\mu)} \int_{t_0}^{t} (t-s)^{\mu-1} e^{-\lambda(t-s)} f(s)\,ds, \quad \mu > 0,\ \lambda \ge 0.

    Its inverse is :class:`TemperedRiemannLiouville`.

    Parameters
    ----------
    alpha : float or scalar array
        The order, positive (0 gives f itself); differentiable if it is a tensor or JAX array.
    rate : float or scalar array
        The rate :math:`\lambda`, 0 or more; may be differentiable too.
    method : str
        As for :class:`RiemannLiouvilleIntegral`, with the same orders if f is also smooth on the scale of 1/rate:
        ``"simpson"`` (used by ``"auto"`` for three or more samples), ``"trapezoid"``, ``"cq2"`` to ``"cq6"``; on grids
        that are not uniform ``"trapezoid"``; for callables ``"spectral"`` or ``"graded"``.

    References
    ----------
    F. Sabzikar, M. M. Meerschaert, J. Chen, J. Comput. Phys. 293 (2015) 14-28.
    """

    alpha: OrderNumber
    rate: Any = 1.0
    method: IntegralName = "auto"

    definition = "tempered"
    who = "the tempered integral"
    instead = "use tempered for the derivative"
    rules = RiemannLiouvilleIntegral.rules.wrapped("tempered.Tempered", integral=True)
    any_grid_rules = RuleTable({"trapezoid": later("any_grid.PiecewiseLinear", integral=True)})


@function_of(TemperedIntegral, see_also="tempered, tempered_caputo, riemann_liouville_integral")
def tempered_integral(
    f: Any,
    t: Any = None,
    alpha: OrderNumber = MISSING,
    rate: Any = 1.0,
    **options: Unpack[MethodOptions[IntegralName]],
) -> Any:
    """Tempered Riemann-Liouville integral of samples or of a callable.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> t = np.linspace(0.0, 1.0, 101)
    >>> float(np.round(hf.tempered_integral(np.ones(101), t, 1.0, rate=2.0)[-1], 6))  # (1 - exp(-2)) / 2
    0.432332
    """


#: Points within this number of time constants are computed together: their values differ by at most e^4.
_TOGETHER = 4.0
#: Contributions from this number of time constants ago have decayed to 3e-20.
_FADED = 45.0
#: Largest number of groups of points; each needs its own polynomial.
_MAX_GROUPS = 1000


def read_rate(rate: Any) -> Any:
    """The rate of decay: a float, or a scalar of the caller's library that may carry a gradient."""
    return read_scalar("rate", rate, least=0.0)


def _known(rate: Any) -> float | None:
    known = known_values(rate)
    return None if known is None else float(known)


def tempered_function(function: Function, order: Order, rate: Any, method: str, *, initial_terms: bool) -> Outcome:
    """``exp(-rate t) D^alpha [exp(rate t) f]`` of a callable, in groups of points, which avoids overflow."""
    known = _known(rate)
    groups = [slice(0, len(function.points))] if not known else _groups(function.points, known)
    if len(groups) > _MAX_GROUPS:
        raise InvalidInputError(
            f"rate={known:g} on points up to {function.end - function.origin:g} beyond the origin needs {len(groups)} "
            f"polynomials, more than {_MAX_GROUPS}; ask for fewer points, or give samples"
        )
    found = [_of_group(function, order, rate, known, method, group, initial_terms) for group in groups]
    if len(found) == 1:
        return found[0]
    errors = [one.error for one in found if one.error is not None]
    message = f"{len(found)} groups of points; the last: {found[-1].message}"
    return combined_outcome(
        found, join([one.value for one in found]), lambda: max(error() for error in errors), message
    )


def _groups(points: np.ndarray[Any, Any], rate: float) -> list[slice]:
    groups, start = [], 0
    while start < len(points):
        stop = int(np.searchsorted(points, points[start] + _TOGETHER / rate, side="right"))
        groups.append(slice(start, stop))
        start = stop
    return groups


def _of_group(
    function: Function, order: Order, rate: Any, known: float | None, method: str, group: slice, initial_terms: bool
) -> Outcome:
    points = function.points[group]
    origin, power = function.origin, function.factor
    if known and points[0] - _FADED / known > origin:
        origin, power = float(points[0]) - _FADED / known, 0.0
    end = float(points[-1])
    xp = namespace_of(rate)

    def grown(distance: np.ndarray[Any, Any], values: Any) -> Any:
        """``exp(rate distance)``, to be multiplied with ``values``."""
        with xp.scope():
            return constant(xp.exp(xp.array(distance) * rate), values)

    def change(t: Any, values: Any) -> Any:
        return values * grown(to_host(t).astype(np.float64) - end, values)

    part = replace(function.changed(change), points=points, origin=origin, factor=power)
    outcome = differentiate(part, order, method, initial_terms=initial_terms)
    # An infinite value at the origin is kept; 0 there does not become nan.
    value = outcome.value * grown(end - points, outcome.value)
    if known is None:
        return replace(outcome, value=value, error=None, looked=False)
    return outcome.changed(value, math.exp((end - float(points[0])) * known))

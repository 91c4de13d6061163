"""The Prabhakar derivative and integral, and what all operators with a given kernel share."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import astuple, dataclass, replace
from typing import Any, ClassVar, Unpack, final

import numpy as np

from hpfracc._arrays import to_host
from hpfracc._choices import RuleName
from hpfracc._reading import number
from hpfracc.errors import InvalidInputError
from hpfracc.operators._caputo_fabrizio import convolve_function
from hpfracc.operators.core.applying import pick_rule
from hpfracc.operators.core.base import FractionalOperator, function_of
from hpfracc.operators.core.call_types import MISSING, MethodOptions, OrderNumber
from hpfracc.operators.core.function import Function, called_once
from hpfracc.operators.core.grids import Grid, known_values
from hpfracc.operators.core.order import Order, read_order
from hpfracc.operators.core.reporting import Outcome
from hpfracc.operators.core.rule import Rule, by_degree
from hpfracc.operators.core.spectral import differentiate
from hpfracc.operators.core.values import join
from hpfracc.operators.rules.bounded_kernel import DEEP, DEEP_COUNT, double_exponential
from hpfracc.special import mittag_leffler

Array = np.ndarray[Any, Any]
KernelFunction = Callable[[Array], Array]


class KernelOperator(FractionalOperator, ABC):
    """The integral of f' (a derivative) or of f (an integral) against a kernel that is singular at 0."""

    __slots__ = ()

    #: Whether weights can be interpolated between lags: the kernel varies on the scale of the lag.
    smooth: ClassVar[bool] = False
    grids = ("uniform",)
    rules = by_degree("bounded_kernel.KernelMemory")

    @abstractmethod
    def _kernel(self, end: float) -> KernelFunction:
        """The kernel at lags up to ``end``."""

    def _key(self) -> Hashable:
        """The parameters of the kernel."""
        return type(self), astuple(self)  # type: ignore[call-overload]

    def _rule(self, order: Order, grid: Grid, who: str) -> Rule:
        rule = pick_rule(self, self.method, who, grid)
        step = known_values(grid.require_uniform(who))
        kernel = self._kernel(grid.n * float(1.0 if step is None else step))
        return rule.changed(kernel=kernel, key=self._key(), smooth=self.smooth)

    def _of_function(self, function: Function) -> Outcome:
        self._order()
        derivative, length = self.kind == "derivative", function.end - function.origin or 1.0
        if derivative and function.factor < 0.0:
            raise InvalidInputError(f"factor={function.factor:g}: f is infinite at the origin, where f(t0) is needed")
        kernel, errors = self._kernel(length), []
        inner = replace(function, points=function.points[function.points > function.origin])
        if derivative:
            kept, plain = replace(function, f=called_once(function.f)), read_order(1.0)

            def slope(t: Any) -> Any:
                points = to_host(t).astype(np.float64)
                turn = np.argsort(points)
                there = replace(kept, points=np.append(points[turn], function.end))
                found = differentiate(there, plain, "auto", initial_terms=False)
                errors.append(found.error)
                return found.value[..., np.argsort(turn)]

            inner = replace(inner, f=slope, axis=-1)
        outcome = convolve_function(inner, kernel, self.method, width=DEEP)
        if len(inner.points) < len(function.points):
            first = outcome.value[..., :1] * (math.nan if function.factor < 0.0 else 0.0)
            outcome = replace(outcome, value=join([first, outcome.value]))
        own, of_slope = outcome.error, errors[-1] if errors else None
        if own is None or of_slope is None:
            return outcome

        def error() -> Any:
            left, _, weights = double_exponential(DEEP_COUNT, DEEP)
            return own() + of_slope() * length * float(np.abs(kernel(length * left)) @ weights)

        return replace(outcome, error=error)


class PrabhakarOperator(KernelOperator, ABC):
    """An operator whose kernel is a power times the three-parameter Mittag-Leffler function."""

    __slots__ = ()

    rho: float
    gamma: float
    omega: float
    smooth = True

    def __post_init__(self) -> None:
        number("rho", self.rho, above=0.0, most=1.0)
        number("gamma", self.gamma)
        number("omega", self.omega)

    def _order(self) -> Order:
        order, most = read_order(self.alpha), math.inf if self.kind == "integral" else 1.0
        if not order.plain or not 0.0 < order.value < most:
            raise InvalidInputError(
                f"alpha={self.alpha}: {self.who} takes orders above 0{' and below 1' * (most < 2.0)} that carry no "
                "derivative; give a plain number"
            )
        return order

    def _kernel(self, end: float) -> KernelFunction:
        alpha, rho, gamma, omega = self._order().value, self.rho, self.gamma, self.omega
        if self.kind == "derivative":
            alpha, gamma = 1.0 - alpha, -gamma
        return lambda t: t ** (alpha - 1.0) * np.asarray(mittag_leffler(omega * t**rho, rho, alpha, gamma))


@final
@dataclass(frozen=True, slots=True)
class Prabhakar(PrabhakarOperator):
    r"""Prabhakar derivative in Caputo's sense: a kernel with the three-parameter Mittag-Leffler function.

    .. math:: D^\gamma_{\rho,\alpha,\omega} f(t) = \int_{t_0}^{t} (t-s)^{-\alpha}
        E^{-\gamma}_{\rho,1-\alpha}\big(\omega (t-s)^\rho\big) f'(s)\,ds, \quad 0 < \alpha < 1,\ 0 < \rho \le 1.

    Zero on constants. It is the left inverse of :class:`PrabhakarIntegral`, and Caputo's derivative for omega = 0 or
    gamma = 0. It maps :math:`t^p` to :math:`\Gamma(p+1)\,t^{p-\alpha} E^{-\gamma}_{\rho,p+1-\alpha}(\omega t^\rho)`.

    Parameters
    ----------
    alpha : float
        The order, above 0 and below 1; a plain number.
    rho : float
        The exponent in the Mittag-Leffler function, at most 1.
    gamma, omega : float
        Its third parameter, and the factor of its argument; relaxation has a negative omega.
    method : str
        For samples on a uniform grid ``"quadratic"`` (order 3 - alpha; used by ``"auto"``) or ``"linear"`` (order
        2 - alpha); for callables ``"quadrature"``.

    References
    ----------
    T. R. Prabhakar, Yokohama Math. J. 19 (1971) 7-15; R. Garra, R. Gorenflo, F. Polito, Ž. Tomovski, Appl. Math.
    Comput. 242 (2014) 576-589; A. Giusti et al., Fract. Calc. Appl. Anal. 23 (2020) 9-54.
    """

    alpha: OrderNumber
    rho: float = 1.0
    gamma: float = 1.0
    omega: float = -1.0
    method: RuleName = "auto"

    definition = "prabhakar"
    short_names = ("P",)
    who = "the Prabhakar derivative"


@function_of(Prabhakar, see_also="prabhakar_integral, caputo, atangana_baleanu, mittag_leffler")
def prabhakar(
    f: Any,
    t: Any = None,
    alpha: OrderNumber = MISSING,
    rho: float = 1.0,
    gamma: float = 1.0,
    omega: float = -1.0,
    **options: Unpack[MethodOptions],
) -> Any:
    """Prabhakar derivative, in Caputo's sense, of samples or of a callable.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> t = np.linspace(0.0, 1.0, 101)
    >>> value = hf.prabhakar(t, t, 0.5, 0.7, 2.0, -1.0)  # of t: t^0.5 E^-2_{0.7,1.5}(-t^0.7)
    >>> bool(np.allclose(value, t**0.5 * hf.mittag_leffler(-(t**0.7), 0.7, 1.5, -2.0)))
    True
    """


@final
@dataclass(frozen=True, slots=True)
class PrabhakarIntegral(PrabhakarOperator):
    r"""Prabhakar integral: a kernel with the three-parameter Mittag-Leffler function.

    .. math:: E^\gamma_{\rho,\mu,\omega} f(t) = \int_{t_0}^{t} (t-s)^{\mu-1}
        E^{\gamma}_{\rho,\mu}\big(\omega (t-s)^\rho\big) f(s)\,ds, \quad \mu > 0,\ 0 < \rho \le 1.

    It is the Riemann-Liouville integral for omega = 0 or gamma = 0, and maps :math:`t^p` to
    :math:`\Gamma(p+1)\,t^{p+\mu} E^\gamma_{\rho,p+1+\mu}(\omega t^\rho)`. Two of them with the same rho and omega make
    one, in which mu and gamma are added.

    Parameters
    ----------
    alpha : float
        The order mu, positive; a plain number.
    rho, gamma, omega : float
        As for :class:`Prabhakar`.
    method : str
        For samples on a uniform grid ``"quadratic"`` (order 3; used by ``"auto"``) or ``"linear"`` (order 2); for
        callables ``"quadrature"``.

    References
    ----------
    T. R. Prabhakar, Yokohama Math. J. 19 (1971) 7-15; A. A. Kilbas, M. Saigo, R. K. Saxena, Integral Transforms Spec.
    Funct. 15 (2004) 31-49.
    """

    alpha: OrderNumber
    rho: float = 1.0
    gamma: float = 1.0
    omega: float = -1.0
    method: RuleName = "auto"

    definition = "prabhakar"
    short_names = ("P",)
    who = "the Prabhakar integral"
    kind = "integral"
    rules = by_degree("bounded_kernel.KernelMemory", integral=True)


@function_of(PrabhakarIntegral, see_also="prabhakar, riemann_liouville_integral, tempered_integral")
def prabhakar_integral(
    f: Any,
    t: Any = None,
    alpha: OrderNumber = MISSING,
    rho: float = 1.0,
    gamma: float = 1.0,
    omega: float = -1.0,
    **options: Unpack[MethodOptions],
) -> Any:
    """Prabhakar integral of samples or of a callable.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> t = np.linspace(0.0, 1.0, 101)
    >>> value = hf.prabhakar_integral(t, t, 0.5, 0.7, 2.0, -1.0)  # of t: t^1.5 E^2_{0.7,2.5}(-t^0.7)
    >>> bool(np.allclose(value, t**1.5 * hf.mittag_leffler(-(t**0.7), 0.7, 2.5, 2.0)))
    True
    """

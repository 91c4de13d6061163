"""The Prabhakar derivative and integral, and what all operators with a given kernel share."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import astuple, dataclass, replace
from typing import Any, ClassVar, Unpack, final

import numpy as np

from hpfracc._arrays import to_host
from hpfracc._choices import KernelName
from hpfracc._reading import number
from hpfracc.engine.execution.api import unlogged
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
#: About the smallest lag, relative to the largest, at which a kernel is evaluated, and the largest share of its
#: integral that may be wrong because it is taken for a power before.
_SMALLEST, _VARIED = 1e-270, 1e-9


class KernelOperator(FractionalOperator, ABC):
    """The integral of f' (a derivative) or of f (an integral) against a kernel that is singular at 0."""

    __slots__ = ()

    #: Whether weights can be interpolated between lags: the kernel varies on the scale of the lag.
    smooth: ClassVar[bool] = False
    grids = ("uniform",)
    rules = by_degree("bounded_kernel.KernelMemory")

    @abstractmethod
    def _kernel(self, end: float) -> tuple[KernelFunction, float]:
        """The kernel at lags up to ``end``, and p where it starts like the lag to the power p - 1."""

    def _key(self, end: float) -> Hashable:
        """What identifies the kernel up to this lag."""
        return type(self), astuple(self)  # type: ignore[call-overload]

    def _resolved(self, end: float) -> tuple[KernelFunction, float]:
        """The kernel, and the power; refuses one that is not yet a power at lags whose integral counts."""
        kernel, power = self._kernel(end)
        lags = end * np.array([_SMALLEST, 1e10 * _SMALLEST])
        with unlogged():
            near, far = np.asarray(kernel(lags)) * lags ** (1.0 - power)
        if abs(near - far) * _SMALLEST**power > _VARIED * abs(far):
            raise InvalidInputError(
                f"{self.who}: between lags of {lags[0]:.0e} and {lags[1]:.0e} the kernel is not proportional to "
                f"t**{power - 1.0:g}, but its integral up to there counts; give parameters that are farther from 0"
            )
        return kernel, power

    def _rule(self, order: Order, grid: Grid, who: str) -> Rule:
        rule = pick_rule(self, self.method, who, grid)
        step = known_values(grid.require_uniform(who))
        end = grid.n * float(1.0 if step is None else step)
        kernel, power = self._resolved(end)
        return rule.changed(kernel=kernel, power=power, key=self._key(end), smooth=self.smooth)

    def _of_function(self, function: Function) -> Outcome:
        self._order()
        derivative, factor, start = self.kind == "derivative", function.factor, function.origin
        if derivative and factor < 0.0:
            raise InvalidInputError(f"factor={factor:g}: f is infinite at the origin, where f(t0) is needed")
        length = function.end - start or 1e-3
        kernel, power = self._resolved(length)
        lags = function.points[function.points > start] - start
        kept = replace(function, f=called_once(function.f))
        singular = not float(factor).is_integer()
        if singular:
            # Of its distance from the origin, which is known however small it is.
            kept = replace(kept, own_to_user=lambda x: start + x, origin=0.0)
        plain = read_order(1.0 if derivative else 0.0)

        def applied(points: Array) -> Outcome:
            """f', or the smooth part of f times the power that it contains."""
            there = replace(kept, points=np.append(points, kept.origin + length))
            return differentiate(there, plain, "auto", initial_terms=False)

        def inside(t: Any) -> Any:
            points = to_host(t).astype(np.float64)
            turn = np.argsort(points)
            return applied(points[turn]).value[..., np.argsort(turn)]

        inner = replace(kept, points=kept.origin + (lags if len(lags) else np.array([length])))
        if derivative or singular:
            inner = replace(inner, f=inside, axis=-1, own_to_user=None)
        ends = (power, (factor or 1.0) if derivative else 1.0 + factor)
        outcome = convolve_function(inner, kernel, self.method, powers=ends)
        if len(lags) < len(function.points):
            first = outcome.value[..., :1] * (math.nan if factor < 0.0 else 0.0)
            scale = float(np.abs(to_host(outcome.value)).max(initial=0.0)) if outcome.looked else 0.0
            value = join([first, outcome.value])[..., : len(function.points)]
            outcome = replace(outcome, value=value, scale=scale)
        own = outcome.error
        if own is None or inner.f is not inside:
            return outcome

        def error() -> Any:
            of_inside = applied(inner.points).error
            assert of_inside is not None
            left, _, weights = double_exponential(DEEP_COUNT, DEEP, (power, 1.0))
            return own() + of_inside() * length * float(np.abs(kernel(length * left)) @ weights)

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

    def _kernel(self, end: float) -> tuple[KernelFunction, float]:
        alpha, rho, gamma, omega = self._order().value, self.rho, self.gamma, self.omega
        if self.kind == "derivative":
            alpha, gamma = 1.0 - alpha, -gamma
        return lambda t: t ** (alpha - 1.0) * np.asarray(mittag_leffler(omega * t**rho, rho, alpha, gamma)), alpha


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

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> t = np.linspace(0.0, 1.0, 101)
    >>> value = hf.Prabhakar(0.5, 0.7, 2.0, -1.0)(t, t)  # t^0.5 E^-2_{0.7,1.5}(-t^0.7)
    >>> bool(np.allclose(value, t**0.5 * hf.mittag_leffler(-(t**0.7), 0.7, 1.5, -2.0)))
    True
    """

    alpha: OrderNumber
    rho: float = 1.0
    gamma: float = 1.0
    omega: float = -1.0
    method: KernelName = "auto"

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
    **options: Unpack[MethodOptions[KernelName]],
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
    rho : float
        The exponent in the Mittag-Leffler function, at most 1.
    gamma, omega : float
        Its third parameter, and the factor of its argument.
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
    method: KernelName = "auto"

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
    **options: Unpack[MethodOptions[KernelName]],
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

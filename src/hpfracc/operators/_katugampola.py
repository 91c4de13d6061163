"""The operators of Katugampola and of Erdélyi and Kober: those of Riemann-Liouville and Caputo in a power of t."""

from __future__ import annotations

import math
from abc import ABC
from dataclasses import dataclass, replace
from typing import Any, Unpack, final

import numpy as np

from hpfracc._arrays import to_host
from hpfracc._choices import CqName, IntegralName, L1Name
from hpfracc._reading import number
from hpfracc.errors import InvalidInputError
from hpfracc.operators._caputo import Caputo
from hpfracc.operators._psi_caputo import PowerVariable
from hpfracc.operators._riemann_liouville import RiemannLiouville, RiemannLiouvilleIntegral
from hpfracc.operators.core.applying import order_beside
from hpfracc.operators.core.base import FractionalOperator, function_of
from hpfracc.operators.core.call_types import MISSING, CeilingOptions, InitialOptions, MethodOptions, OrderNumber
from hpfracc.operators.core.function import Function
from hpfracc.operators.core.grids import Grid
from hpfracc.operators.core.order import Order
from hpfracc.operators.core.reporting import Outcome
from hpfracc.operators.core.spectral import differentiate
from hpfracc.operators.core.values import Samples, constant, join, scalar


class KatugampolaOperator(PowerVariable, ABC):
    """An operator in t^rho / rho."""

    __slots__ = ()

    grids = ("uniform in t^rho", "any")

    def __post_init__(self) -> None:
        number("rho", self.rho, above=0.0)


@final
@dataclass(frozen=True, slots=True)
class Katugampola(KatugampolaOperator):
    r"""Katugampola derivative: the Riemann-Liouville derivative in t^rho / rho. Not zero on constants.

    .. math:: D^{\alpha,\rho} f(t) = \frac{\rho^{\alpha-n+1}}{\Gamma(n-\alpha)} \Big(t^{1-\rho} \frac{d}{dt}\Big)^n
        \int_{a}^{t} \frac{s^{\rho-1} f(s)}{(t^\rho - s^\rho)^{\alpha-n+1}}\,ds,
        \quad n = \lceil\alpha\rceil,\ a \ge 0,\ \rho > 0.

    With :math:`x = (t^\rho - a^\rho)/\rho` it is the Riemann-Liouville derivative of f in x, and is computed as such.
    It maps :math:`x^p` to :math:`\Gamma(p+1)/\Gamma(p+1-\alpha)\,x^{p-\alpha}`. rho = 1 is Riemann-Liouville's own, and
    the limit rho = 0 is :class:`Hadamard`. It is the inverse of :class:`KatugampolaIntegral`.

    Parameters
    ----------
    alpha : float or scalar array
        The order; differentiable if it is a tensor or JAX array. Integer orders are :math:`(t^{1-\rho} d/dt)^n`.
    rho : float
        The exponent, positive.
    method : str
        As for :class:`RiemannLiouville`, with the same orders in the step of t^rho: on points uniform in t^rho
        ``"l1-2"`` (n + 2 - alpha; used by ``"auto"``), ``"l1"`` (n + 1 - alpha), ``"cq2"`` to ``"cq6"``; on others
        ``"l1"`` or ``"fast"``; for callables ``"spectral"`` or ``"graded"``.
    ceiling : int, optional
        The integer n, needed only if ``alpha`` is traced and above 1.

    Notes
    -----
    The orders hold for f that is smooth in t^rho. ``step=`` is the spacing of t.

    References
    ----------
    U. N. Katugampola, Bull. Math. Anal. Appl. 6 (2014) 1-15.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> float(np.round(hf.Katugampola(0.5, 2.0)(lambda t: t**2 / 2, 1.0), 10))
    0.7978845608
    """

    alpha: OrderNumber
    rho: float = 1.0
    method: CqName = "auto"
    ceiling: int | None = None

    definition = "katugampola"
    who = "the Katugampola derivative"
    inner = RiemannLiouville


@function_of(Katugampola, see_also="caputo_katugampola, katugampola_integral, hadamard, erdelyi_kober")
def katugampola(
    f: Any, t: Any = None, alpha: OrderNumber = MISSING, rho: float = 1.0, **options: Unpack[CeilingOptions[CqName]]
) -> Any:
    """Katugampola derivative of samples or of a callable.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> float(np.round(hf.katugampola(lambda t: t**2 / 2, 1.0, 0.5, 2.0), 10))  # x = t^2 / 2: 2 sqrt(x / pi)
    0.7978845608
    """


@final
@dataclass(frozen=True, slots=True)
class CaputoKatugampola(KatugampolaOperator):
    r"""Caputo-Katugampola derivative: the Caputo derivative in t^rho / rho. Zero on constants.

    .. math:: D^{\alpha,\rho} f(t) = \frac{\rho^{\alpha-n+1}}{\Gamma(n-\alpha)} \int_{a}^{t}
        \frac{s^{\rho-1}}{(t^\rho - s^\rho)^{\alpha-n+1}} \Big(s^{1-\rho} \frac{d}{ds}\Big)^n f(s)\,ds,
        \quad n = \lceil\alpha\rceil,\ a \ge 0,\ \rho > 0.

    Parameters
    ----------
    alpha : float or scalar array
        The order; differentiable if it is a tensor or JAX array. Integer orders are :math:`(t^{1-\rho} d/dt)^n`.
    rho : float
        The exponent, positive.
    method : str
        As for :class:`Caputo`, with the same orders in the step of t^rho: ``"l1-2"`` (n + 2 - alpha) or ``"l1"``
        (n + 1 - alpha) on points uniform in t^rho, ``"l1"`` or ``"fast"`` on others; for callables ``"spectral"`` or
        ``"graded"``.
    ceiling : int, optional
        The integer n, needed only if ``alpha`` is traced and above 1.
    initial : sequence, optional
        For samples and orders above 1: as for :class:`Caputo`, the derivatives 1 to n - 1 at the origin,
        :math:`(t^{1-\rho} d/dt)^k f`.

    References
    ----------
    R. Almeida, A. B. Malinowska, T. Odzijewicz, J. Comput. Nonlinear Dyn. 11 (2016) 061017.
    """

    alpha: OrderNumber
    rho: float = 1.0
    method: L1Name = "auto"
    ceiling: int | None = None
    initial: Any = None

    definition = "caputo_katugampola"
    short_names = ("CK",)
    who = "the Caputo-Katugampola derivative"
    inner = Caputo


@function_of(CaputoKatugampola, see_also="katugampola, psi_caputo, caputo_hadamard")
def caputo_katugampola(
    f: Any, t: Any = None, alpha: OrderNumber = MISSING, rho: float = 1.0, **options: Unpack[InitialOptions[L1Name]]
) -> Any:
    """Caputo-Katugampola derivative of samples or of a callable.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> t = np.sqrt(np.linspace(0.0, 1.0, 101))  # uniform in t^2
    >>> float(np.round(hf.caputo_katugampola(3.0 + t**2 / 2, t, 0.5, 2.0)[-1], 10))  # whatever is added
    0.7978845608
    """


@final
@dataclass(frozen=True, slots=True)
class KatugampolaIntegral(KatugampolaOperator):
    r"""Katugampola integral: the Riemann-Liouville integral in t^rho / rho.

    .. math:: I^{\mu,\rho} f(t) = \frac{\rho^{1-\mu}}{\Gamma(\mu)} \int_{a}^{t}
        \frac{s^{\rho-1} f(s)}{(t^\rho - s^\rho)^{1-\mu}}\,ds, \quad \mu > 0,\ a \ge 0,\ \rho > 0.

    Parameters
    ----------
    alpha : float or scalar array
        The order, positive (0 gives f itself); differentiable if it is a tensor or JAX array.
    rho : float
        The exponent, positive.
    method : str
        As for :class:`RiemannLiouvilleIntegral`, with the same orders in the step of t^rho: ``"simpson"`` (used by
        ``"auto"``), ``"trapezoid"``, ``"cq2"`` to ``"cq6"``; on points not uniform in t^rho ``"trapezoid"`` or
        ``"fast"``; for callables ``"spectral"`` or ``"graded"``.

    References
    ----------
    U. N. Katugampola, Appl. Math. Comput. 218 (2011) 860-865.
    """

    alpha: OrderNumber
    rho: float = 1.0
    method: IntegralName = "auto"

    definition = "katugampola"
    who = "the Katugampola integral"
    inner = RiemannLiouvilleIntegral


@function_of(KatugampolaIntegral, see_also="katugampola, erdelyi_kober_integral, hadamard_integral")
def katugampola_integral(
    f: Any,
    t: Any = None,
    alpha: OrderNumber = MISSING,
    rho: float = 1.0,
    **options: Unpack[MethodOptions[IntegralName]],
) -> Any:
    """Katugampola integral of samples or of a callable.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> t = np.linspace(0.0, 1.0, 5)
    >>> hf.katugampola_integral(np.ones(5), t, 1.0, 2.0)  # t^2 / 2
    array([0.     , 0.03125, 0.125  , 0.28125, 0.5    ])
    """


class ErdelyiKoberOperator(PowerVariable, ABC):
    """An operator in x = t^sigma between two powers of x: it maps powers of t to multiples of themselves."""

    __slots__ = ()

    eta: float
    sigma: float
    grids = ("uniform in t^sigma", "any")

    def __post_init__(self) -> None:
        number("eta", self.eta, above=-1.0)
        number("sigma", self.sigma, above=0.0)

    @property
    def rho(self) -> float:
        """The exponent; x without the factor 1 / sigma gives the same."""
        return self.sigma

    def _order(self) -> Order:
        return self._inner()._order()

    def _own_grid(self, grid: Grid, t: Any) -> Grid:
        found = PowerVariable._own_grid(self, self._from_zero(grid), t)
        if found.traced is not None or (found.uniform and not isinstance(found.step, float)):
            raise InvalidInputError(f"{self.who} is not differentiable in the step or the points; detach them")
        return found

    def _from_zero(self, place: Any) -> Any:
        if place.origin != 0.0:
            raise InvalidInputError(
                f"{self.who} starts at 0, not at origin={place.origin:g}; give samples from t = 0 on, or a callable"
            )
        return place

    def _of_samples(self, samples: Samples) -> Outcome:
        values, order = samples.values, order_beside(self._order(), samples.values)
        x = samples.grid.times()
        before, after, factor = self._scales(x, order, values)
        first = values[..., :1]
        # Without its first value f starts with a higher power of x, and the value at the origin is exact.
        outcome = self._inner().applied(replace(samples, values=(values - first) * before), self.who)
        return outcome.changed(outcome.value * after + first * factor, after)

    def _of_function(self, function: Function) -> Outcome:
        order, power = self._order(), self._from_zero(function).factor
        points = self._image(function.points, 0.0)[0]
        if order.known is None:
            raise InvalidInputError(f"{self.who} of a callable takes an order that is known; give samples, f(t)")
        before = float(self.eta + (0.0 if self.kind == "integral" else order.known))

        def change(t: Any, values: Any) -> Any:
            x = self._image(to_host(t).astype(np.float64), 0.0)[0]
            return values * self._scales(x, order, values)[0]

        changed = replace(
            function.changed(change),
            points=points,
            factor=before + power / self.sigma,
            own_to_user=lambda x: self._original(x, function),
        )
        inner = order.negated() if self.kind == "integral" else order
        outcome = differentiate(changed, inner, self.method, initial_terms=True)
        _, after, factor = self._scales(points, order, outcome.value)
        with np.errstate(invalid="ignore"):  # the inner operator may be infinite at the origin
            value = outcome.value * after
        if points[0] == 0.0:
            first = function.at(np.zeros(1)) * factor if power >= 0.0 else value[..., :1] * math.nan
            value = join([first, value[..., 1:]])
        return outcome.changed(value, after)

    def _scales(self, x: np.ndarray[Any, Any], order: Order, like: Any) -> tuple[Any, Any, Any]:
        """The powers of x before and after the inner operator, 0 at the origin, and its factor for constants."""
        xp, safe = order.xp, np.where(x > 0.0, x, 1.0)
        with xp.scope():
            eta, total = xp.array(self.eta), self.eta + order.value
            before, after, factor = total, -eta, xp.rgamma(eta + 1.0) / xp.rgamma(total + 1.0)
            if self.kind == "integral":
                before, after, factor = eta, -total, 1.0 / factor
            parts = (constant(xp.power(safe, each) * xp.array(x > 0.0), like) for each in (before, after))
            return *parts, scalar(factor, like)


@final
@dataclass(frozen=True, slots=True)
class ErdelyiKober(ErdelyiKoberOperator):
    r"""Erdélyi-Kober derivative: the inverse of the Erdélyi-Kober integral. Powers of t keep their exponent.

    .. math:: D^{\eta,\alpha}_\sigma f(t) = \prod_{j=1}^{n} \Big(\eta + j + \frac{t}{\sigma}\frac{d}{dt}\Big)\,
        I^{\eta+\alpha,\,n-\alpha}_\sigma f(t) = x^{-\eta} D^\alpha_x \big[x^{\eta+\alpha} f\big],
        \quad x = t^\sigma,\ n = \lceil\alpha\rceil,

    where :math:`D^\alpha_x` is the Riemann-Liouville derivative in x from 0 on. It multiplies :math:`t^p` by
    :math:`\Gamma(\eta+\alpha+1+p/\sigma)/\Gamma(\eta+1+p/\sigma)`, and is finite at the origin.

    Parameters
    ----------
    alpha : float or scalar array
        The order; differentiable if it is a tensor or JAX array (for samples).
    eta : float
        The exponent of the weight, above -1.
    sigma : float
        The exponent of the variable, positive.
    method : str
        As for :class:`Caputo`: on points uniform in t^sigma ``"l1-2"`` (used by ``"auto"``) or ``"l1"``, on others
        ``"l1"`` or ``"fast"``; for callables ``"spectral"`` or ``"graded"``.
    ceiling : int, optional
        The integer n, needed only if ``alpha`` is traced and above 1.

    Notes
    -----
    Samples start at t = 0. The order of accuracy in the step of x is that of the rule, at most :math:`2 + \eta +
    \alpha` because of the power of x, for f that is smooth in x.

    References
    ----------
    V. Kiryakova, *Generalized Fractional Calculus and Applications*, 1994, chapter 2; Y. Luchko, Fract. Calc. Appl.
    Anal. 7 (2004) 339-364.
    """

    alpha: OrderNumber
    eta: float = 0.0
    sigma: float = 1.0
    method: L1Name = "auto"
    ceiling: int | None = None

    definition = "erdelyi_kober"
    short_names = ("EK",)
    who = "the Erdélyi-Kober derivative"
    inner = Caputo

    def _inner(self) -> FractionalOperator:
        # All derivatives below n of x^(eta + alpha) (f - f(0)) vanish at the origin, where Caputo needs them.
        plain = Caputo(self.alpha, self.method, self.ceiling)
        order = plain._order()
        known = order.ceiling > 1 and not order.is_integer
        return replace(plain, initial=[0.0] * (order.ceiling - 1)) if known else plain


@function_of(ErdelyiKober, see_also="erdelyi_kober_integral, katugampola, riemann_liouville")
def erdelyi_kober(
    f: Any,
    t: Any = None,
    alpha: OrderNumber = MISSING,
    eta: float = 0.0,
    sigma: float = 1.0,
    **options: Unpack[CeilingOptions[L1Name]],
) -> Any:
    """Erdélyi-Kober derivative of samples or of a callable.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> t = np.linspace(0.0, 1.0, 5)
    >>> hf.erdelyi_kober(np.ones(5), t, 0.5).round(4)  # Gamma(1.5)
    array([0.8862, 0.8862, 0.8862, 0.8862, 0.8862])
    """


@final
@dataclass(frozen=True, slots=True)
class ErdelyiKoberIntegral(ErdelyiKoberOperator):
    r"""Erdélyi-Kober integral: a weighted mean of f over [0, t]. Powers of t keep their exponent.

    .. math:: I^{\eta,\mu}_\sigma f(t) = \frac{\sigma\,t^{-\sigma(\mu+\eta)}}{\Gamma(\mu)} \int_{0}^{t}
        \frac{s^{\sigma\eta+\sigma-1} f(s)}{(t^\sigma - s^\sigma)^{1-\mu}}\,ds
        = x^{-\eta-\mu} I^\mu_x \big[x^{\eta} f\big], \quad x = t^\sigma,\ \mu > 0,\ \eta > -1.

    It multiplies :math:`t^p` by :math:`\Gamma(\eta+1+p/\sigma)/\Gamma(\eta+1+\mu+p/\sigma)`.

    Parameters
    ----------
    alpha : float or scalar array
        The order, positive; differentiable if it is a tensor or JAX array (for samples).
    eta : float
        The exponent of the weight, above -1.
    sigma : float
        The exponent of the variable, positive.
    method : str
        As for :class:`RiemannLiouvilleIntegral`: ``"simpson"`` (used by ``"auto"``), ``"trapezoid"``, ``"cq2"`` to
        ``"cq6"``; on points not uniform in t^sigma ``"trapezoid"`` or ``"fast"``; for callables ``"spectral"`` or
        ``"graded"``.

    Notes
    -----
    Samples start at t = 0. The order of accuracy in the step of x is that of the rule, at most :math:`2 + \eta` because
    of the power of x, for f that is smooth in x.

    References
    ----------
    H. Kober, Q. J. Math. 11 (1940) 193-211; A. Erdélyi, ibid. 293-303.
    """

    alpha: OrderNumber
    eta: float = 0.0
    sigma: float = 1.0
    method: IntegralName = "auto"

    definition = "erdelyi_kober"
    short_names = ("EK",)
    who = "the Erdélyi-Kober integral"
    inner = RiemannLiouvilleIntegral


@function_of(ErdelyiKoberIntegral, see_also="erdelyi_kober, katugampola_integral, riemann_liouville_integral")
def erdelyi_kober_integral(
    f: Any,
    t: Any = None,
    alpha: OrderNumber = MISSING,
    eta: float = 0.0,
    sigma: float = 1.0,
    **options: Unpack[MethodOptions[IntegralName]],
) -> Any:
    """Erdélyi-Kober integral of samples or of a callable.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> t = np.linspace(0.0, 1.0, 5)
    >>> hf.erdelyi_kober_integral(t, t, 1.0)  # the mean of f over [0, t]
    array([0.   , 0.125, 0.25 , 0.375, 0.5  ])
    """

"""The Atangana-Baleanu derivatives, in the senses of Caputo and of Riemann and Liouville, and the integral."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Unpack, final

import numpy as np

from hpfracc._choices import IntegralName, KernelName
from hpfracc.errors import InvalidInputError
from hpfracc.operators._caputo_fabrizio import BoundedKernelDerivative, MeanIntegral, MemoryKernel
from hpfracc.operators.core.applying import order_beside
from hpfracc.operators.core.base import function_of
from hpfracc.operators.core.call_types import MISSING, NormalisedOptions, OrderNumber
from hpfracc.operators.core.order import Order
from hpfracc.operators.core.reporting import Outcome
from hpfracc.operators.core.rule import by_degree
from hpfracc.operators.core.values import Samples, join
from hpfracc.operators.rules.first_points import infinite_at_origin
from hpfracc.operators.rules.mittag_leffler import kernel_at_points
from hpfracc.special import mittag_leffler


class MittagLefflerDerivative(BoundedKernelDerivative):
    """The derivatives with the kernel of Mittag-Leffler."""

    __slots__ = ()

    rules = by_degree("mittag_leffler.MittagLefflerMemory")
    grids = ("uniform",)

    def _kernel(self, order: Order) -> MemoryKernel:
        if not order.plain:
            raise InvalidInputError(
                f"{self.who} of a callable takes a plain order, which carries no derivative; give float(alpha), or "
                "samples, f(t), whose order may carry one"
            )
        alpha = order.value
        c = alpha / (1.0 - alpha)

        def function(beta: float, u: np.ndarray[Any, Any]) -> Any:
            return mittag_leffler(-c * u**alpha, alpha, beta, backend="numpy")

        return MemoryKernel(lambda u: function(1.0, u), lambda u: c * u ** (alpha - 1.0) * function(alpha, u))


@final
@dataclass(frozen=True, slots=True)
class AtanganaBaleanu(MittagLefflerDerivative):
    r"""Atangana-Baleanu derivative in Caputo's sense (ABC): a Mittag-Leffler kernel, without a singularity.

    .. math:: D^\alpha f(t) = \frac{B(\alpha)}{1-\alpha} \int_{t_0}^{t}
        E_\alpha\Big(-\frac{\alpha}{1-\alpha}(t-s)^\alpha\Big) f'(s)\,ds, \quad 0 < \alpha < 1.

    Zero on constants. The kernel decays like a stretched exponential at short times and like the power -alpha at long
    times. At the origin the derivative is 0 for any f'.

    Parameters
    ----------
    alpha : float or scalar array
        The order, between 0 and 1; differentiable if it is a tensor or JAX array (for samples only; a traced order must
        lie between 0.05 and 1, and the result is nan otherwise). 1 is the ordinary derivative, with the one-sided
        derivative in the order.
    method : str
        For samples on a uniform grid ``"quadratic"`` (order 3; used by ``"auto"``) or ``"linear"`` (order 2); for
        callables ``"quadrature"``.
    normalisation : float or callable
        B(alpha), 1 by default: a positive number, or a function of alpha that accepts the type of ``alpha``.

    References
    ----------
    A. Atangana, D. Baleanu, Thermal Science 20 (2016) 763-769.
    """

    alpha: OrderNumber
    method: KernelName = "auto"
    normalisation: Any = 1.0

    definition = "atangana_baleanu"
    short_names = ("AB", "ABC")
    who = "the Atangana-Baleanu derivative"


@function_of(AtanganaBaleanu, see_also="atangana_baleanu_riemann, atangana_baleanu_integral, caputo_fabrizio")
def atangana_baleanu(
    f: Any, t: Any = None, alpha: OrderNumber = MISSING, **options: Unpack[NormalisedOptions[KernelName]]
) -> Any:
    """Atangana-Baleanu derivative, in Caputo's sense, of samples or of a callable.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> from hpfracc.special import mittag_leffler
    >>> t = np.linspace(0.0, 1.0, 101)
    >>> bool(np.allclose(hf.atangana_baleanu(t, t, 0.5), 2 * t * mittag_leffler(-np.sqrt(t), 0.5, 2.0)))
    True
    """


@final
@dataclass(frozen=True, slots=True)
class AtanganaBaleanuRiemann(MittagLefflerDerivative):
    r"""Atangana-Baleanu derivative in the sense of Riemann and Liouville (ABR): not zero on constants.

    .. math:: D^\alpha f(t) = \frac{B(\alpha)}{1-\alpha} \frac{d}{dt} \int_{t_0}^{t}
        E_\alpha\Big(-\frac{\alpha}{1-\alpha}(t-s)^\alpha\Big) f(s)\,ds, \quad 0 < \alpha < 1.

    It is :class:`AtanganaBaleanu` plus the term :math:`\frac{B(\alpha)}{1-\alpha} E_\alpha(-\frac{\alpha}{1-\alpha}
    (t-t_0)^\alpha) f(t_0)`, which is finite at the origin too. It is the inverse of :class:`AtanganaBaleanuIntegral`.

    Parameters
    ----------
    alpha : float or scalar array
        The order, between 0 and 1; differentiable if it is a tensor or JAX array (for samples only; a traced order must
        lie between 0.05 and 1, and the result is nan otherwise). 1 is the ordinary derivative, with the one-sided
        derivative in the order.
    method : str
        For samples on a uniform grid ``"quadratic"`` (order 3; used by ``"auto"``) or ``"linear"`` (order 2); for
        callables ``"quadrature"``.
    normalisation : float or callable
        B(alpha), 1 by default: a positive number, or a function of alpha that accepts the type of ``alpha``.

    References
    ----------
    A. Atangana, D. Baleanu, Thermal Science 20 (2016) 763-769.
    """

    alpha: OrderNumber
    method: KernelName = "auto"
    normalisation: Any = 1.0

    definition = "atangana_baleanu_riemann"
    short_names = ("ABR",)
    who = "the Atangana-Baleanu derivative (Riemann-Liouville)"
    initial_terms = True

    def _completed(self, outcome: Outcome, samples: Samples, order: Order) -> Outcome:
        term = samples.values[..., :1] * kernel_at_points(samples, order_beside(order, samples.values))
        value = outcome.value + term
        if order.known == 1.0:
            # The limit from below of f(t_0) / (1 - alpha), which has no derivative.
            value = join([infinite_at_origin(samples.values[..., :1], order, []), value[..., 1:]])
        return replace(outcome, value=value, reusable=None)


@function_of(AtanganaBaleanuRiemann, see_also="atangana_baleanu, atangana_baleanu_integral")
def atangana_baleanu_riemann(
    f: Any, t: Any = None, alpha: OrderNumber = MISSING, **options: Unpack[NormalisedOptions[KernelName]]
) -> Any:
    """Atangana-Baleanu derivative, in the sense of Riemann and Liouville, of samples or of a callable.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> t = np.linspace(0.0, 1.0, 5)
    >>> hf.atangana_baleanu_riemann(np.ones(5), t, 0.5).round(4)  # of a constant: 2 E_0.5(-sqrt(t))
    array([2.    , 1.2314, 1.0463, 0.9343, 0.8552])
    """


@final
@dataclass(frozen=True, slots=True)
class AtanganaBaleanuIntegral(MeanIntegral):
    r"""Atangana-Baleanu integral: the weighted mean of f and its Riemann-Liouville integral.

    .. math:: I^\alpha f(t) = \frac{1-\alpha}{B(\alpha)} f(t)
        + \frac{\alpha}{B(\alpha)\,\Gamma(\alpha)} \int_{t_0}^{t} (t-s)^{\alpha-1} f(s)\,ds, \quad 0 < \alpha \le 1.

    It is the inverse of :class:`AtanganaBaleanuRiemann`, and of :class:`AtanganaBaleanu` up to the value at the origin.

    Parameters
    ----------
    alpha : float or scalar array
        The order, between 0 and 1; differentiable if it is a tensor or JAX array.
    method : str
        For the Riemann-Liouville integral, as for :class:`RiemannLiouvilleIntegral`: ``"simpson"`` (order 3 + alpha;
        used by ``"auto"``), ``"trapezoid"`` (2), ``"cq2"`` to ``"cq6"``; for callables ``"spectral"`` or ``"graded"``.
    normalisation : float or callable
        B(alpha), 1 by default: a positive number, or a function of alpha that accepts the type of ``alpha``.

    References
    ----------
    A. Atangana, D. Baleanu, Thermal Science 20 (2016) 763-769.
    """

    alpha: OrderNumber
    method: IntegralName = "auto"
    normalisation: Any = 1.0

    definition = "atangana_baleanu"
    short_names = ("AB",)
    who = "the Atangana-Baleanu integral"


@function_of(AtanganaBaleanuIntegral, see_also="atangana_baleanu, atangana_baleanu_riemann")
def atangana_baleanu_integral(
    f: Any, t: Any = None, alpha: OrderNumber = MISSING, **options: Unpack[NormalisedOptions[IntegralName]]
) -> Any:
    """Atangana-Baleanu integral of samples or of a callable.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> t = np.linspace(0.0, 1.0, 5)
    >>> hf.atangana_baleanu_integral(np.ones(5), t, 0.5).round(4)  # 1/2 + sqrt(t / pi)
    array([0.5   , 0.7821, 0.8989, 0.9886, 1.0642])
    """

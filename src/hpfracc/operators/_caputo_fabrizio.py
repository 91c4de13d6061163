"""The Caputo-Fabrizio derivative and integral."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Unpack, final

from hpfracc.operators._riemann_liouville_integral import RiemannLiouvilleIntegral
from hpfracc.operators.core.base import CallOptions, FractionalOperator, function_of
from hpfracc.operators.core.function import Function
from hpfracc.operators.core.memory_kernel import BoundedKernelDerivative, MemoryKernel, normalised, read_memory_order
from hpfracc.operators.core.order import Order, read_order
from hpfracc.operators.core.reporting import Outcome
from hpfracc.operators.core.rule import RuleTable, later
from hpfracc.operators.core.spectral import differentiate
from hpfracc.operators.core.values import Samples, scalar

__all__ = ["CaputoFabrizio", "CaputoFabrizioIntegral", "MeanIntegral", "caputo_fabrizio", "caputo_fabrizio_integral"]


@final
@dataclass(frozen=True, slots=True)
class CaputoFabrizio(BoundedKernelDerivative):
    r"""Caputo-Fabrizio derivative: an exponential kernel, without a singularity.

    .. math:: D^\alpha f(t) = \frac{M(\alpha)}{1-\alpha} \int_{t_0}^{t} e^{-\frac{\alpha}{1-\alpha}(t-s)} f'(s)\,ds,
        \quad 0 < \alpha < 1.

    Zero on constants. It is f' after a low-pass filter with time constant (1 - alpha)/alpha, the solution of a
    first-order equation. It is not the inverse of a power-law integral: do not confuse it with the Caputo derivative.
    At the origin it is 0 for any f'.

    Parameters
    ----------
    alpha : float or scalar array
        The order, between 0 and 1; differentiable if it is a tensor or JAX array. 1 is the ordinary derivative. A
        differentiable order of 1 gives the limit of the rule from below, which is 0 at the origin, and its one-sided
        derivative.
    method : str
        For samples on any increasing grid ``"quadratic"`` (order 3; used by ``"auto"``) or ``"linear"`` (order 2),
        both O(n); for callables ``"quadrature"``.
    normalisation : float or callable
        M(alpha), 1 by default: a positive number, or a function of alpha such as ``lambda a: 2 / (2 - a)``.

    References
    ----------
    M. Caputo, M. Fabrizio, Progr. Fract. Differ. Appl. 1 (2015) 73-85; the normalisation 2/(2 - alpha): J. Losada, J.
    J. Nieto, ibid. 87-92.
    """

    alpha: Any
    method: str = "auto"
    normalisation: Any = 1.0

    definition = "caputo_fabrizio"
    short_names = ("CF",)
    who = "the Caputo-Fabrizio derivative"
    rules = RuleTable(
        {
            "quadratic": later("exponential.ExponentialRule", quadratic=True),
            "linear": later("exponential.ExponentialRule", quadratic=False),
        }
    )

    def _of_function(self, function: Function) -> Outcome:
        order = self._order()
        if order.known == 1.0 and not order.plain:
            return normalised(_near_one(function, order), self.normalisation, order)
        return BoundedKernelDerivative._of_function(self, function)

    def _kernel(self, order: Order) -> MemoryKernel:
        xp = order.xp
        rate = order.guard(order.value / (1.0 - order.value))
        return MemoryKernel(lambda u: xp.exp(-rate * xp.array(u)), lambda u: rate * xp.exp(-rate * xp.array(u)))


def _near_one(function: Function, order: Order) -> Outcome:
    """A differentiable order of 1: f' with its first two one-sided derivatives in alpha, after the origin.

    The operator is ``(1 + (1 - alpha) (d/dt - 1))^-1 f'``.
    """
    first, second, third = (differentiate(function, read_order(k), "auto", initial_terms=False) for k in (1, 2, 3))
    with order.xp.scope():
        room = 1.0 - order.value
        near, far = scalar(-room, first.value), scalar(room * room, first.value)
    bend = third.value - 2.0 * second.value + first.value
    return replace(first, value=first.value + near * (second.value - first.value) + far * bend)


@function_of(CaputoFabrizio)
def caputo_fabrizio(
    f: Any,
    t: Any = None,
    alpha: Any = None,
    *,
    method: str = "auto",
    normalisation: Any = 1.0,
    **options: Unpack[CallOptions],
) -> Any:
    """Caputo-Fabrizio derivative of samples or of a callable.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> t = np.linspace(0.0, 1.0, 101)
    >>> float(np.round(hf.caputo_fabrizio(t, t, 0.5)[-1], 10))  # of t: (1 - exp(-t)) / alpha
    1.2642411177
    """
    return CaputoFabrizio(alpha, method, normalisation)(f, t, **options)


class MeanIntegral(FractionalOperator, ABC):
    """The inverse of a derivative with a bounded kernel: the mean of f and an integral, with weights 1-alpha, alpha."""

    __slots__ = ()

    normalisation: Any
    kind = "integral"
    rules = RiemannLiouvilleIntegral.rules
    any_grid_rules = RiemannLiouvilleIntegral.any_grid_rules

    @abstractmethod
    def _integral(self) -> RiemannLiouvilleIntegral:
        """The integral that is mixed with f."""

    def _of_samples(self, samples: Samples) -> Outcome:
        order = read_memory_order(self.alpha, self.who)
        return self._mixed(self._integral().applied(samples, self.who), samples.values, order)

    def _of_function(self, function: Function) -> Outcome:
        order = read_memory_order(self.alpha, self.who)
        return self._mixed(self._integral()._of_function(function), function.at(function.points), order)

    def _mixed(self, outcome: Outcome, values: Any, order: Order) -> Outcome:
        """``(1 - alpha) f`` and ``alpha`` times its integral, over the normalisation."""
        share, error = scalar(order.value, values), outcome.error
        mean = replace(
            outcome,
            value=(1.0 - share) * values + share * outcome.value,
            error=None if error is None else lambda: share * error(),
            reusable=None,
        )
        return normalised(mean, self.normalisation, order, divide=True)


@final
@dataclass(frozen=True, slots=True)
class CaputoFabrizioIntegral(MeanIntegral):
    r"""Caputo-Fabrizio integral: the weighted mean of f and its integral.

    .. math:: I^\alpha f(t) = \frac{1}{M(\alpha)} \Big[ (1-\alpha) f(t) + \alpha \int_{t_0}^{t} f(s)\,ds \Big],
        \quad 0 < \alpha \le 1.

    It inverts :class:`CaputoFabrizio` up to the value at the origin: I D f = f - f(t0).

    Parameters
    ----------
    alpha : float or scalar array
        The order, between 0 and 1; differentiable if it is a tensor or JAX array.
    method : str
        For the ordinary integral, as for :class:`RiemannLiouvilleIntegral` at order 1: ``"simpson"`` (order 4; used by
        ``"auto"``), ``"trapezoid"``, ``"cq2"`` to ``"cq6"``; for callables ``"spectral"`` or ``"graded"``.
    normalisation : float or callable
        M(alpha), as for :class:`CaputoFabrizio`.

    References
    ----------
    J. Losada, J. J. Nieto, Progr. Fract. Differ. Appl. 1 (2015) 87-92, with M(alpha) = 2/(2 - alpha).
    """

    alpha: Any
    method: str = "auto"
    normalisation: Any = 1.0

    definition = "caputo_fabrizio"
    short_names = ("CF",)
    who = "the Caputo-Fabrizio integral"

    def _integral(self) -> RiemannLiouvilleIntegral:
        return RiemannLiouvilleIntegral(1.0, self.method)


@function_of(CaputoFabrizioIntegral)
def caputo_fabrizio_integral(
    f: Any,
    t: Any = None,
    alpha: Any = None,
    *,
    method: str = "auto",
    normalisation: Any = 1.0,
    **options: Unpack[CallOptions],
) -> Any:
    """Caputo-Fabrizio integral of samples or of a callable.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> t = np.linspace(0.0, 1.0, 5)
    >>> hf.caputo_fabrizio_integral(np.ones(5), t, 0.5).round(3)
    array([0.5  , 0.625, 0.75 , 0.875, 1.   ])
    """
    return CaputoFabrizioIntegral(alpha, method, normalisation)(f, t, **options)

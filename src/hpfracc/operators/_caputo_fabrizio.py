"""The Caputo-Fabrizio derivative."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Unpack, final

from hpfracc._signatures import names_options_of
from hpfracc.operators.core.applying import apply_rule, pick_rule
from hpfracc.operators.core.base import CallOptions, FractionalOperator
from hpfracc.operators.core.function import Function
from hpfracc.operators.core.memory_kernel import MemoryKernel, integrate_function, normalised, read_memory_order
from hpfracc.operators.core.order import Order, read_order
from hpfracc.operators.core.reporting import Outcome
from hpfracc.operators.core.spectral import differentiate
from hpfracc.operators.core.values import Samples, scalar
from hpfracc.operators.rules.any_slopes import differences_on
from hpfracc.operators.rules.exponential import ExponentialRule

__all__ = ["CaputoFabrizio", "caputo_fabrizio"]

_WHO = "the Caputo-Fabrizio derivative"


@final
@dataclass(frozen=True, slots=True)
class CaputoFabrizio(FractionalOperator):
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

    definition: ClassVar[str] = "caputo_fabrizio"
    short_names: ClassVar[tuple[str, ...]] = ("CF",)
    formula: ClassVar[str] = r"\frac{M(\alpha)}{1-\alpha} \int_{t_0}^{t} e^{-\frac{\alpha}{1-\alpha}(t-s)} f'(s)\,ds"
    rules: ClassVar[Any] = {
        "quadratic": ExponentialRule(quadratic=True),
        "linear": ExponentialRule(quadratic=False),
    }
    grids: ClassVar[tuple[str, ...]] = ("uniform", "any")

    def _of_samples(self, samples: Samples) -> Outcome:
        order = read_memory_order(self.alpha, _WHO)
        rule = pick_rule(self, self.method, _WHO, samples.grid)
        if order.is_integer:
            rule = differences_on(samples.grid)
        return normalised(apply_rule(rule, samples, order, _WHO), self.normalisation, order)

    def _of_function(self, function: Function) -> Outcome:
        order = read_memory_order(self.alpha, _WHO)
        if order.is_integer:
            return normalised(differentiate(function, order, "auto", initial_terms=False), self.normalisation, order)
        if order.known == 1.0:
            return normalised(_near_one(function, order), self.normalisation, order)
        outcome = integrate_function(function, order, _kernel(order), self.method, initial_term=False)
        return normalised(outcome, self.normalisation, order)


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


def _kernel(order: Order) -> MemoryKernel:
    xp = order.xp
    rate = order.guard(order.value / (1.0 - order.value))
    return MemoryKernel(lambda u: xp.exp(-rate * xp.array(u)), lambda u: rate * xp.exp(-rate * xp.array(u)))


@names_options_of(FractionalOperator.__call__)
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

    Parameters
    ----------
    f : array_like or callable
        Samples, or a function of an array of points.
    t : array_like, optional
        The points of the samples (or give ``step``), or those at which the result of a callable is wanted.
    alpha, method, normalisation
        As for :class:`CaputoFabrizio`.
    **options
        ``step``, ``axis``, ``dim``, ``time_unit``, ``origin``, ``factor``, ``rtol``, ``backend`` and ``full_output``,
        as for :meth:`FractionalOperator.__call__`.

    Returns
    -------
    array or OperatorResult
        The derivative in the library and shape of the samples (the shape of ``t`` for a callable), or an
        :class:`OperatorResult` with ``full_output=True``.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> t = np.linspace(0.0, 1.0, 101)
    >>> float(np.round(hf.caputo_fabrizio(t, t, 0.5)[-1], 10))  # of t: (1 - exp(-t)) / alpha
    1.2642411177
    """
    return CaputoFabrizio(alpha, method, normalisation)(f, t, **options)

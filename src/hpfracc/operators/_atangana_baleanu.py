"""The Atangana-Baleanu derivative in the sense of Caputo."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Unpack, final

import numpy as np

from hpfracc._signatures import names_options_of
from hpfracc.errors import InvalidInputError
from hpfracc.operators.core.applying import apply_rule, pick_rule
from hpfracc.operators.core.base import CallOptions, FractionalOperator
from hpfracc.operators.core.function import Function
from hpfracc.operators.core.memory_kernel import MemoryKernel, integrate_function, normalised, read_memory_order
from hpfracc.operators.core.order import Order
from hpfracc.operators.core.reporting import Outcome
from hpfracc.operators.core.spectral import differentiate
from hpfracc.operators.core.values import Samples
from hpfracc.operators.rules.differences import Differences
from hpfracc.operators.rules.mittag_leffler import MittagLefflerMemory
from hpfracc.special import mittag_leffler

__all__ = ["AtanganaBaleanu", "atangana_baleanu"]

_WHO = "the Atangana-Baleanu derivative"


@final
@dataclass(frozen=True, slots=True)
class AtanganaBaleanu(FractionalOperator):
    r"""Atangana-Baleanu derivative in Caputo's sense (ABC): a Mittag-Leffler kernel, without a singularity.

    .. math:: D^\alpha f(t) = \frac{B(\alpha)}{1-\alpha} \int_{t_0}^{t}
        E_\alpha\Big(-\frac{\alpha}{1-\alpha}(t-s)^\alpha\Big) f'(s)\,ds, \quad 0 < \alpha < 1.

    Zero on constants. The kernel decays like a stretched exponential at short times and like the power -alpha at long
    times. At the origin the derivative is 0 for any f'.

    Parameters
    ----------
    alpha : float or scalar array
        The order, between 0 and 1; differentiable if it is a tensor or JAX array (for samples only; a traced order must
        lie between 0.05 and 1, and the result is nan otherwise). 1 is the ordinary derivative. A differentiable order
        of 1 gives the limit of the rule from below, which is 0 at the origin, and its one-sided derivative.
    method : str
        For samples on a uniform grid ``"quadratic"`` (order 3; used by ``"auto"``) or ``"linear"`` (order 2); for
        callables ``"quadrature"``.
    normalisation : float or callable
        B(alpha), 1 by default: a positive number, or a function of alpha that accepts the type of ``alpha``.

    References
    ----------
    A. Atangana, D. Baleanu, Thermal Science 20 (2016) 763-769.
    """

    alpha: Any
    method: str = "auto"
    normalisation: Any = 1.0

    definition: ClassVar[str] = "atangana_baleanu"
    short_names: ClassVar[tuple[str, ...]] = ("AB", "ABC")
    formula: ClassVar[str] = (
        r"\frac{B(\alpha)}{1-\alpha} \int_{t_0}^{t} E_\alpha\Big(-\frac{\alpha}{1-\alpha}(t-s)^\alpha\Big) f'(s)\,ds"
    )
    rules: ClassVar[Any] = {
        "quadratic": MittagLefflerMemory(quadratic=True),
        "linear": MittagLefflerMemory(quadratic=False),
    }

    def _of_samples(self, samples: Samples) -> Outcome:
        order = read_memory_order(self.alpha, _WHO)
        rule = pick_rule(self, self.method, _WHO, samples.grid)
        if order.is_integer:
            rule = Differences()
        return normalised(apply_rule(rule, samples, order, _WHO), self.normalisation, order)

    def _of_function(self, function: Function) -> Outcome:
        return of_function(function, self.alpha, self.method, self.normalisation, initial_term=False)


def of_function(function: Function, alpha: Any, method: str, normalisation: Any, *, initial_term: bool) -> Outcome:
    """The derivative of a callable, in either sense."""
    order = read_memory_order(alpha, _WHO)
    if order.is_integer:
        return normalised(differentiate(function, order, "auto", initial_terms=False), normalisation, order)
    outcome = integrate_function(function, order, _kernel(order), method, initial_term=initial_term)
    return normalised(outcome, normalisation, order)


def _kernel(order: Order) -> MemoryKernel:
    if not order.plain:
        raise InvalidInputError(
            f"{_WHO} of a callable takes a plain order, which carries no derivative; give float(alpha), or "
            "samples, f(t), whose order may carry one"
        )
    alpha = order.value
    c = alpha / (1.0 - alpha)

    def function(beta: float, u: np.ndarray[Any, Any]) -> Any:
        return mittag_leffler(-c * u**alpha, alpha, beta, backend="numpy")

    return MemoryKernel(lambda u: function(1.0, u), lambda u: c * u ** (alpha - 1.0) * function(alpha, u))


@names_options_of(FractionalOperator.__call__)
def atangana_baleanu(
    f: Any,
    t: Any = None,
    alpha: Any = None,
    *,
    method: str = "auto",
    normalisation: Any = 1.0,
    **options: Unpack[CallOptions],
) -> Any:
    """Atangana-Baleanu derivative, in Caputo's sense, of samples or of a callable.

    Parameters
    ----------
    f : array_like or callable
        Samples, or a function of an array of points.
    t : array_like, optional
        The points of the samples (or give ``step``), or those at which the result of a callable is wanted.
    alpha, method, normalisation
        As for :class:`AtanganaBaleanu`.
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
    >>> from hpfracc.special import mittag_leffler
    >>> t = np.linspace(0.0, 1.0, 101)
    >>> bool(np.allclose(hf.atangana_baleanu(t, t, 0.5), 2 * t * mittag_leffler(-np.sqrt(t), 0.5, 2.0)))
    True
    """
    return AtanganaBaleanu(alpha, method, normalisation)(f, t, **options)

"""The Atangana-Baleanu derivative in the sense of Riemann and Liouville."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Unpack, final

from hpfracc._signatures import names_options_of
from hpfracc.operators._atangana_baleanu import AtanganaBaleanu, of_function
from hpfracc.operators.core.applying import apply_rule, order_beside, pick_rule
from hpfracc.operators.core.base import CallOptions, FractionalOperator
from hpfracc.operators.core.function import Function
from hpfracc.operators.core.memory_kernel import normalised, read_memory_order
from hpfracc.operators.core.reporting import Outcome
from hpfracc.operators.core.values import Samples, join
from hpfracc.operators.rules.differences import Differences
from hpfracc.operators.rules.first_points import infinite_at_origin
from hpfracc.operators.rules.mittag_leffler import kernel_at_points

__all__ = ["AtanganaBaleanuRiemann", "atangana_baleanu_riemann"]

_WHO = "the Atangana-Baleanu derivative (Riemann-Liouville)"


@final
@dataclass(frozen=True, slots=True)
class AtanganaBaleanuRiemann(FractionalOperator):
    r"""Atangana-Baleanu derivative in the sense of Riemann and Liouville (ABR): not zero on constants.

    .. math:: D^\alpha f(t) = \frac{B(\alpha)}{1-\alpha} \frac{d}{dt} \int_{t_0}^{t}
        E_\alpha\Big(-\frac{\alpha}{1-\alpha}(t-s)^\alpha\Big) f(s)\,ds, \quad 0 < \alpha < 1.

    It is :class:`AtanganaBaleanu` plus the term :math:`\frac{B(\alpha)}{1-\alpha} E_\alpha(-\frac{\alpha}{1-\alpha}
    (t-t_0)^\alpha) f(t_0)`, which is finite at the origin too. It is the inverse of :class:`AtanganaBaleanuIntegral`.

    Parameters
    ----------
    alpha, method, normalisation
        As for :class:`AtanganaBaleanu`, with the same orders of accuracy.

    References
    ----------
    A. Atangana, D. Baleanu, Thermal Science 20 (2016) 763-769.
    """

    alpha: Any
    method: str = "auto"
    normalisation: Any = 1.0

    definition: ClassVar[str] = "atangana_baleanu_riemann"
    short_names: ClassVar[tuple[str, ...]] = ("ABR",)
    formula: ClassVar[str] = (
        r"\frac{B(\alpha)}{1-\alpha} \frac{d}{dt} \int_{t_0}^{t}"
        r" E_\alpha\Big(-\frac{\alpha}{1-\alpha}(t-s)^\alpha\Big) f(s)\,ds"
    )
    rules: ClassVar[Any] = AtanganaBaleanu.rules

    def _of_samples(self, samples: Samples) -> Outcome:
        order = read_memory_order(self.alpha, _WHO)
        rule = pick_rule(self, self.method, _WHO, samples.grid)
        if order.is_integer:
            return normalised(apply_rule(Differences(), samples, order, _WHO), self.normalisation, order)
        outcome = apply_rule(rule, samples, order, _WHO)
        term = samples.values[..., :1] * kernel_at_points(samples, order_beside(order, samples.values))
        value = outcome.value + term
        if order.known == 1.0:
            # The limit from below of f(t_0) / (1 - alpha), which has no derivative.
            value = join([infinite_at_origin(samples.values[..., :1], order, []), value[..., 1:]])
        return normalised(replace(outcome, value=value), self.normalisation, order)

    def _of_function(self, function: Function) -> Outcome:
        return of_function(function, self.alpha, self.method, self.normalisation, initial_term=True)


@names_options_of(FractionalOperator.__call__)
def atangana_baleanu_riemann(
    f: Any,
    t: Any = None,
    alpha: Any = None,
    *,
    method: str = "auto",
    normalisation: Any = 1.0,
    **options: Unpack[CallOptions],
) -> Any:
    """Atangana-Baleanu derivative, in the sense of Riemann and Liouville, of samples or of a callable.

    Parameters
    ----------
    f : array_like or callable
        Samples, or a function of an array of points.
    t : array_like, optional
        The points of the samples (or give ``step``), or those at which the result of a callable is wanted.
    alpha, method, normalisation
        As for :class:`AtanganaBaleanuRiemann`.
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
    >>> t = np.linspace(0.0, 1.0, 5)
    >>> hf.atangana_baleanu_riemann(np.ones(5), t, 0.5).round(4)  # of a constant: 2 E_0.5(-sqrt(t))
    array([2.    , 1.2314, 1.0463, 0.9343, 0.8552])
    """
    return AtanganaBaleanuRiemann(alpha, method, normalisation)(f, t, **options)

"""The Grünwald-Letnikov derivative."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Unpack, final

from hpfracc._signatures import names_options_of
from hpfracc.operators.core.applying import apply_rule, pick_rule, streamed_rule
from hpfracc.operators.core.base import CallOptions, FractionalOperator, operator_of
from hpfracc.operators.core.function import Function
from hpfracc.operators.core.order import Order, read_order
from hpfracc.operators.core.reporting import Outcome
from hpfracc.operators.core.rule import Rule
from hpfracc.operators.core.spectral import differentiate
from hpfracc.operators.core.values import Samples
from hpfracc.operators.rules.grunwald import Grunwald, WeightedGrunwald

__all__ = ["GrunwaldLetnikov", "grunwald_letnikov"]


@final
@dataclass(frozen=True, slots=True)
class GrunwaldLetnikov(FractionalOperator):
    r"""Grünwald-Letnikov derivative: the limit of difference quotients, equal to Riemann-Liouville for smooth f.

    .. math:: D^\alpha f(t) = \lim_{h \to 0} h^{-\alpha} \sum_{j=0}^{(t-t_0)/h} (-1)^j \binom{\alpha}{j} f(t - jh).

    Any order: whole ones are ordinary derivatives, negative ones integrals. Not zero on constants: that is Caputo.

    Parameters
    ----------
    alpha : float or scalar array
        The order; a tensor or JAX array carries its derivative.
    method : str
        For samples on a uniform grid ``"gl"`` (order 1; what ``"auto"`` takes) or ``"wsgl"`` (order 2 where f vanishes
        at the origin, else 1); for callables ``"spectral"`` or ``"graded"``, which give the limit.
    ceiling : int, optional
        For callables with a traced order above 1: the integer next above it.
    side : {"left", "right"}
        From the origin up to t, as above, or from t up to an end b, the last point unless ``origin=`` says otherwise:
        the limit of :math:`h^{-\alpha} \sum_{j=0}^{(b-t)/h} (-1)^j \binom{\alpha}{j} f(t + jh)`. Whole orders n are
        :math:`(-1)^n f^{(n)}`.

    Notes
    -----
    For samples the value is the sum itself, stopped at the step. At a fixed t its error is O(h); at the first points,
    a fixed number of steps from the origin, it is of the size of the value, whatever the step: there use
    :func:`riemann_liouville`, whose rules are right from the first point on.
    """

    alpha: Any
    method: str = "auto"
    ceiling: int | None = None
    side: str = "left"

    definition: ClassVar[str] = "grunwald_letnikov"
    short_names: ClassVar[tuple[str, ...]] = ("GL",)
    formula: ClassVar[str] = r"\lim_{h \to 0} h^{-\alpha} \sum_{j=0}^{(t-t_0)/h} (-1)^j \binom{\alpha}{j} f(t - jh)"
    rules: ClassVar[Any] = {"gl": Grunwald(), "wsgl": WeightedGrunwald()}

    def _of_samples(self, samples: Samples) -> Outcome:
        order = read_order(self.alpha, ceiling=self.ceiling)
        rule = pick_rule(self, self.method, "the Grünwald-Letnikov derivative", samples.grid)
        return apply_rule(rule, samples, order, "the Grünwald-Letnikov derivative")

    def _streamed(self) -> tuple[Rule, Order]:
        order = read_order(self.alpha, ceiling=self.ceiling)
        return streamed_rule(self, self.method, "the Grünwald-Letnikov derivative", order)

    def _of_function(self, function: Function) -> Outcome:
        order = read_order(self.alpha, ceiling=self.ceiling)
        return differentiate(function, order, self.method, initial_terms=True)


@names_options_of(FractionalOperator.__call__)
def grunwald_letnikov(
    f: Any,
    t: Any = None,
    alpha: Any = None,
    *,
    method: str = "auto",
    ceiling: int | None = None,
    side: str = "left",
    **options: Unpack[CallOptions],
) -> Any:
    """Grünwald-Letnikov derivative of samples or of a callable.

    ``alpha``, ``method``, ``ceiling`` and ``side`` are those of :class:`GrunwaldLetnikov`; the ``options`` (``step``,
    ``axis``, ``origin``, ``factor``, ``rtol``, ``backend``, ``full_output``) those of its call.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> hf.grunwald_letnikov(np.array([0.0, 1.0, 4.0, 9.0]), step=1.0, alpha=1.0)  # backward differences
    array([0., 1., 3., 5.])
    """
    return operator_of(GrunwaldLetnikov, alpha, method, ceiling, side)(f, t, **options)

"""The tempered Caputo derivative."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Unpack, final

from hpfracc._arrays import is_array
from hpfracc._signatures import names_options_of
from hpfracc.operators._tempered import read_positive_order, whole_order
from hpfracc.operators.core.applying import apply_rule, pick_rule
from hpfracc.operators.core.base import CallOptions, FractionalOperator
from hpfracc.operators.core.function import Function
from hpfracc.operators.core.reporting import Outcome
from hpfracc.operators.core.tempering import read_rate, tempered_function
from hpfracc.operators.core.values import Samples
from hpfracc.operators.rules.any_tempered import AnyGridTempered
from hpfracc.operators.rules.l1 import L1Rule
from hpfracc.operators.rules.l12 import L12
from hpfracc.operators.rules.start import FittedStart, read_initial, refuse_initial
from hpfracc.operators.rules.tempered import Tempered

__all__ = ["TemperedCaputo", "tempered_caputo"]

_WHO = "the tempered Caputo derivative"


@final
@dataclass(frozen=True, slots=True)
class TemperedCaputo(FractionalOperator):
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

    alpha: Any
    rate: Any = 1.0
    method: str = "auto"
    ceiling: int | None = None
    initial: Any = None

    definition: ClassVar[str] = "tempered_caputo"
    short_names: ClassVar[tuple[str, ...]] = ("TC",)
    formula: ClassVar[str] = r"e^{-\lambda t}\, {}^{C}\!D^\alpha\big[e^{\lambda t} f(t)\big]"
    rules: ClassVar[Any] = {"l1-2": FittedStart(Tempered(L12())), "l1": FittedStart(Tempered(L1Rule()))}
    any_grid_rules: ClassVar[Any] = {"l1": AnyGridTempered()}
    grids: ClassVar[tuple[str, ...]] = ("uniform", "any")

    def _order_like(self) -> Any:
        return self.alpha if is_array(self.alpha) else self.rate

    def _of_samples(self, samples: Samples) -> Outcome:
        order, rate = read_positive_order(self.alpha, self.ceiling, _WHO), read_rate(self.rate)
        rule: Any = pick_rule(self, self.method, _WHO, samples.grid)
        initial = read_initial(self.initial, order, _WHO)
        if order.is_integer:
            return whole_order(samples, order, rate, _WHO)
        rule = rule.at_rate(rate)
        return apply_rule(rule if initial is None else rule.starting_with(initial), samples, order, _WHO)

    def _of_function(self, function: Function) -> Outcome:
        refuse_initial(self.initial, _WHO)
        order, rate = read_positive_order(self.alpha, self.ceiling, _WHO), read_rate(self.rate)
        return tempered_function(function, order, rate, self.method, initial_terms=False)


@names_options_of(FractionalOperator.__call__)
def tempered_caputo(
    f: Any,
    t: Any = None,
    alpha: Any = None,
    rate: Any = 1.0,
    *,
    method: str = "auto",
    ceiling: int | None = None,
    initial: Any = None,
    **options: Unpack[CallOptions],
) -> Any:
    """Tempered Caputo derivative of samples or of a callable.

    Parameters
    ----------
    f : array_like or callable
        Samples, or a function of an array of points.
    t : array_like, optional
        The points of the samples (or give ``step``), or those at which the result of a callable is wanted.
    alpha, rate, method, ceiling, initial
        As for :class:`TemperedCaputo`.
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
    >>> value = hf.tempered_caputo(t * np.exp(-2 * t), t, 0.5, rate=2.0)
    >>> bool(np.allclose(value, 2 * np.sqrt(t / np.pi) * np.exp(-2 * t)))
    True
    """
    return TemperedCaputo(alpha, rate, method, ceiling, initial)(f, t, **options)

"""The Caputo derivative."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Unpack, final

from hpfracc._signatures import names_options_of
from hpfracc.operators._riemann_liouville_integral import RiemannLiouvilleIntegral
from hpfracc.operators.core.applying import FAST, apply_rule, pick_rule, streamed_rule
from hpfracc.operators.core.base import CallOptions, FractionalOperator, operator_of
from hpfracc.operators.core.function import Function
from hpfracc.operators.core.order import Order, read_order
from hpfracc.operators.core.reporting import Outcome
from hpfracc.operators.core.rule import Rule
from hpfracc.operators.core.spectral import differentiate
from hpfracc.operators.core.values import Samples
from hpfracc.operators.rules.any_l1 import AnyGridL1, FastL1
from hpfracc.operators.rules.any_slopes import differences_on
from hpfracc.operators.rules.l1 import L1Rule
from hpfracc.operators.rules.l12 import L12
from hpfracc.operators.rules.start import FittedStart, read_initial, refuse_initial

__all__ = ["Caputo", "caputo"]


@final
@dataclass(frozen=True, slots=True)
class Caputo(FractionalOperator):
    r"""Caputo derivative. Zero on constants, unlike Riemann-Liouville; the usual choice for initial-value problems.

    .. math:: D^\alpha f(t) = \frac{1}{\Gamma(n-\alpha)} \int_{t_0}^{t} (t-s)^{n-\alpha-1} f^{(n)}(s)\,ds,
        \quad n = \lceil\alpha\rceil.

    Any real order: integers give ordinary derivatives, negative orders Riemann-Liouville integrals.

    Parameters
    ----------
    alpha : float or scalar array
        The order; differentiable if it is a tensor or JAX array.
    method : str
        For samples on a uniform grid ``"l1-2"`` (order n + 2 - alpha; used by ``"auto"``) or ``"l1"`` (order
        n + 1 - alpha), on other grids ``"l1"`` (used by ``"auto"``). On every grid ``"fast"`` (or ``"soe"``), which is
        L1 with its kernel approximated by a sum of exponentials. For callables ``"spectral"`` or ``"graded"``;
        ``"auto"`` tries the first and falls back to the second.
    ceiling : int, optional
        The integer n, needed only if ``alpha`` is traced and above 1. It is 1 by default, and the result is nan if that
        is wrong.
    side : {"left", "right"}
        ``"left"`` integrates from the origin to t, as above; ``"right"`` from t to an end b, which is ``origin=`` or
        the last point:

        .. math:: D^\alpha_{b-} f(t) = \frac{(-1)^n}{\Gamma(n-\alpha)} \int_{t}^{b} (s-t)^{n-\alpha-1} f^{(n)}(s)\,ds.

        It is the left-sided derivative of :math:`f(b - x)` at x = b - t; for an integer order n it is :math:`(-1)^n
        f^{(n)}`.
    initial : sequence, optional
        For samples and orders above 1 that are not whole: the derivatives 1 to n - 1 of f at the origin, if they are
        known; each a number, or an array with one value for each row of samples. Without them they are fitted to the
        first n + 9 samples, by a polynomial or, where that describes them significantly better, with powers of
        :math:`t^\alpha`, as solutions of fractional equations start. Their uncertainty is part of the error estimate.

    Notes
    -----
    Called as ``Caputo(0.5)(f, t)``; see :meth:`FractionalOperator.__call__`. If f is not smooth enough for the order of
    the rule (for example f like :math:`t^s` at the origin), the order of accuracy is lower; give such an f as a
    callable with ``factor=s``. A derivative of samples amplifies their rounding errors by ``step**-alpha`` and more: at
    order 2.5 and a step of 1e-4 four digits are left, at order 5 none. The error estimate of ``full_output=True``
    includes this. Callables lose fewer digits.

    References
    ----------
    M. Caputo, Geophys. J. R. Astron. Soc. 13 (1967) 529-539; G. Gao, Z. Sun, H. Zhang, J. Comput. Phys. 259 (2014)
    33-50 (L1-2).
    """

    alpha: Any
    method: str = "auto"
    ceiling: int | None = None
    side: str = "left"
    initial: Any = None

    definition: ClassVar[str] = "caputo"
    short_names: ClassVar[tuple[str, ...]] = ("C",)
    formula: ClassVar[str] = r"\frac{1}{\Gamma(n-\alpha)} \int_{t_0}^{t} (t-s)^{n-\alpha-1} f^{(n)}(s)\,ds"
    rules: ClassVar[Any] = {"l1-2": FittedStart(L12()), "l1": FittedStart(L1Rule())}
    any_grid_rules: ClassVar[Any] = {"l1": FittedStart(AnyGridL1()), "fast": FittedStart(FastL1())}
    grids: ClassVar[tuple[str, ...]] = ("uniform", "any")

    def _of_samples(self, samples: Samples) -> Outcome:
        return self.applied(samples, "the Caputo derivative")

    def applied(self, samples: Samples, who: str) -> Outcome:
        """Apply to samples. Errors call the operator ``who``."""
        order = read_order(self.alpha, ceiling=self.ceiling)
        chosen: Any = pick_rule(self, self.method, who, samples.grid)
        rule: Rule = chosen.starting_with(self._initial(order, who))
        if order.known is not None and order.known < 0.0:
            return RiemannLiouvilleIntegral(-self.alpha, "fast" if self.method in FAST else "auto").applied(
                samples, who
            )
        if order.is_integer:
            rule = differences_on(samples.grid)
        return apply_rule(rule, samples, order, who)

    def _initial(self, order: Order, who: str) -> tuple[Any, ...] | None:
        """The derivatives given at the origin, in the direction in which the operator runs."""
        found = read_initial(self.initial, order, who)
        if found is None or not self._is_right():
            return found
        return tuple(one * (-1.0) ** k for k, one in enumerate(found, 1))

    def _streamed(self) -> tuple[Rule, Order]:
        order = read_order(self.alpha, ceiling=self.ceiling)
        if order.known is not None and order.known < 0.0:
            return RiemannLiouvilleIntegral(-self.alpha)._streamed()
        rule: Any = streamed_rule(self, self.method, "the Caputo derivative", order)[0]
        return rule.starting_with(self._initial(order, "the Caputo derivative")), order

    def _of_function(self, function: Function) -> Outcome:
        refuse_initial(self.initial, "the Caputo derivative")
        order = read_order(self.alpha, ceiling=self.ceiling)
        return differentiate(function, order, self.method, initial_terms=False)


@names_options_of(FractionalOperator.__call__)
def caputo(
    f: Any,
    t: Any = None,
    alpha: Any = None,
    *,
    method: str = "auto",
    ceiling: int | None = None,
    side: str = "left",
    initial: Any = None,
    **options: Unpack[CallOptions],
) -> Any:
    """Caputo derivative of samples or of a callable.

    Parameters
    ----------
    f : array_like or callable
        Samples, or a function of an array of points.
    t : array_like, optional
        The points of the samples (or give ``step``), or those at which the result of a callable is wanted.
    alpha, method, ceiling, side, initial
        As for :class:`Caputo`.
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
    >>> half = hf.caputo(t, t, 0.5)  # of samples: 2 sqrt(t / pi)
    >>> bool(np.allclose(half, 2 * np.sqrt(t / np.pi)))
    True
    >>> float(np.round(hf.caputo(np.exp, 1.0, 0.5), 10))  # of a function: e erf(1)
    2.2906982523
    """
    return operator_of(Caputo, alpha, method, ceiling, side, initial)(f, t, **options)

"""The Caputo derivative of variable order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Unpack, final

from hpfracc._arrays import is_array
from hpfracc.errors import InvalidInputError
from hpfracc.operators._caputo import Caputo
from hpfracc.operators.core.base import CallOptions, FractionalOperator, function_of
from hpfracc.operators.core.function import Function, refuse_initial
from hpfracc.operators.core.reporting import Outcome
from hpfracc.operators.core.values import Samples
from hpfracc.operators.core.varying import Varying, of_function, of_samples

__all__ = ["VariableOrder", "variable_order"]

_PLACES = ("t", "s", "t-s")


@final
@dataclass(frozen=True, slots=True)
class VariableOrder(FractionalOperator):
    r"""Caputo derivative whose order depends on the time t, the past time s, or the lag t - s.

    .. math::
        \texttt{at="t"}:\quad & D f(t) = \frac{1}{\Gamma(n-\alpha(t))}
        \int_{t_0}^{t} (t-s)^{n-1-\alpha(t)} f^{(n)}(s)\,ds, \quad n-1 < \alpha \le n, \\
        \texttt{at="s"}:\quad & D f(t) = \int_{t_0}^{t} \frac{(t-s)^{-\alpha(s)}}{\Gamma(1-\alpha(s))} f'(s)\,ds, \\
        \texttt{at="t-s"}:\quad & D f(t) = \int_{t_0}^{t} \frac{(t-s)^{-\alpha(t-s)}}{\Gamma(1-\alpha(t-s))} f'(s)\,ds,
        \quad 0 < \alpha \le 1.

    The first is, at each t, the constant-order derivative of order alpha(t); it is Coimbra's for f continuous at the
    origin. In the second the order is that of the past time s, in the third that of the lag t - s: the two types of
    Lorenzo and Hartley. All are exactly zero on constants, and equal the Caputo derivative if alpha is constant.
    Otherwise the three differ, and none has an inverse of the same kind.

    Parameters
    ----------
    alpha : callable, array or float
        The order as a function of an array of points t (of lags t - t0 for ``at="t-s"``), or its samples at the points
        of f. A tensor or JAX array is differentiable, point by point. All values must lie in one interval (n-1, n].
    at : {"t", "s", "t-s"}
        What the order depends on.
    method : str
        For samples on a uniform grid and ``at="t"``: ``"l1-2"`` (order n + 2 - alpha(t) at t; used by ``"auto"``)
        or ``"l1"`` (n + 1 - alpha(t)); on any other grid ``"l1"`` or ``"fast"``. For the other two, on uniform grids
        only, ``"l1"``, of order 2 - alpha(t) and 2 - alpha(0): f and the effect of alpha are interpolated linearly. For
        callables ``"spectral"`` or ``"graded"`` (not for ``at="t-s"``, which takes samples).
    ceiling : int, optional
        The integer n, needed only if ``alpha`` is traced and above 1.
    initial : sequence, optional
        For samples and orders above 1: as for :class:`Caputo`, the derivatives 1 to n - 1 at the origin.
        The fit without them has powers of :math:`t^{\alpha(t_0)}`; for traced orders it is a polynomial.

    Notes
    -----
    The cost is O(M n log n) for n samples on a uniform grid, not O(n^2). The derivative is an entire function of its
    order, so it is computed at M = 24 + log n Chebyshev orders of (n-1, n] by the rule of :class:`Caputo` and
    interpolated, to rounding accuracy.

    References
    ----------
    C. F. M. Coimbra, Ann. Phys. 12 (2003) 692-703; C. F. Lorenzo, T. T. Hartley, Nonlinear Dynam. 29 (2002) 57-98.
    """

    alpha: Any
    at: str = "t"
    method: str = "auto"
    ceiling: int | None = None
    initial: Any = None

    definition = "variable_order"
    short_names = ("VO", "coimbra")
    who = "the derivative of variable order"
    formula = (
        r"\frac{1}{\Gamma(n-\alpha(t))} \int_{t_0}^{t} (t-s)^{n-1-\alpha(t)} f^{(n)}(s)\,ds"
        r"\quad\text{(or with } \alpha(s),\ \alpha(t-s) \text{ inside)}"
    )
    rules = Caputo.rules
    any_grid_rules = Caputo.any_grid_rules

    def _order_like(self) -> Any:
        return self.alpha if is_array(self.alpha) else None

    def _varying(self) -> Varying:
        if self.at not in _PLACES:
            raise InvalidInputError(f"at={self.at!r} is not known; the order depends on one of {', '.join(_PLACES)}")
        return Varying(self.alpha, self.ceiling)

    def _of_samples(self, samples: Samples) -> Outcome:
        return of_samples(samples, self._varying(), self.at, self)

    def _of_function(self, function: Function) -> Outcome:
        refuse_initial(self.initial, self.who)
        return of_function(function, self._varying(), self.at, self.method)


@function_of(VariableOrder)
def variable_order(
    f: Any,
    t: Any = None,
    alpha: Callable[[Any], Any] | Any = None,
    *,
    at: str = "t",
    method: str = "auto",
    ceiling: int | None = None,
    initial: Any = None,
    **options: Unpack[CallOptions],
) -> Any:
    """Caputo derivative of variable order, of samples or of a callable.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> t = np.linspace(0.0, 1.0, 101)
    >>> value = hf.variable_order(t, t, lambda t: 0.5 + 0.4 * t)  # at t = 1: order 0.9
    >>> bool(np.isclose(value[-1], hf.caputo(t, t, 0.9)[-1]))
    True
    """
    return VariableOrder(alpha, at, method, ceiling, initial)(f, t, **options)

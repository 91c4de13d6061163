"""The Grünwald-Letnikov derivative."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Unpack, final

from hpfracc._choices import RuleName, SideName
from hpfracc.operators.core.base import FractionalOperator, function_of
from hpfracc.operators.core.call_types import MISSING, OneSidedOptions, OrderNumber
from hpfracc.operators.core.rule import RuleTable, later


@final
@dataclass(frozen=True, slots=True)
class GrunwaldLetnikov(FractionalOperator):
    r"""Grünwald-Letnikov derivative: the limit of difference quotients, equal to Riemann-Liouville for smooth f.

    .. math:: D^\alpha f(t) = \lim_{h \to 0} h^{-\alpha} \sum_{j=0}^{(t-t_0)/h} (-1)^j \binom{\alpha}{j} f(t - jh).

    Any real order: integers give ordinary derivatives, negative orders integrals. Not zero on constants, unlike the
    Caputo derivative.

    Parameters
    ----------
    alpha : float or scalar array
        The order; differentiable if it is a tensor or JAX array.
    method : str
        For samples on a uniform grid ``"gl"`` (order 1; used by ``"auto"``) or ``"wsgl"`` (order 2 if f vanishes at the
        origin, else 1); for callables ``"spectral"`` or ``"graded"``, which compute the limit.
    ceiling : int, optional
        The order rounded up, for callables with a traced order above 1.
    side : {"left", "right"}
        ``"left"`` integrates from the origin to t, as above; ``"right"`` from t to an end b, which is ``origin=`` or
        the last point: the limit of :math:`h^{-\alpha} \sum_{j=0}^{(b-t)/h} (-1)^j \binom{\alpha}{j} f(t + jh)`.
        Integer orders n are :math:`(-1)^n f^{(n)}`.

    Notes
    -----
    For samples the value is the sum itself, with h the step. At a fixed t its error is O(h). At the first points, a
    fixed number of steps from the origin, the error is as large as the value for every step; use
    :func:`riemann_liouville` there, which is accurate from the first point on.

    References
    ----------
    I. Podlubny, *Fractional Differential Equations*, 1999, section 2.2; W. Tian, H. Zhou, W. Deng, Math. Comp. 84
    (2015) 1703-1727 (WSGL).
    """

    alpha: OrderNumber
    method: RuleName = "auto"
    ceiling: int | None = None
    side: SideName = "left"

    definition = "grunwald_letnikov"
    short_names = ("GL",)
    who = "the Grünwald-Letnikov derivative"
    rules = RuleTable({"gl": later("quadrature.Grunwald"), "wsgl": later("quadrature.WeightedGrunwald")})
    grids = ("uniform",)
    streams = True
    scales = True
    initial_terms = True


@function_of(GrunwaldLetnikov, see_also="riemann_liouville, marchaud, fractional_difference")
def grunwald_letnikov(f: Any, t: Any = None, alpha: OrderNumber = MISSING, **options: Unpack[OneSidedOptions]) -> Any:
    """Grünwald-Letnikov derivative of samples or of a callable.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> hf.grunwald_letnikov(np.array([0.0, 1.0, 4.0, 9.0]), step=1.0, alpha=1.0)  # backward differences
    array([0., 1., 3., 5.])
    """

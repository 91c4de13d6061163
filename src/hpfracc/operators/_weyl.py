"""The Weyl derivative of periodic functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Unpack, final

from hpfracc._signatures import names_options_of
from hpfracc.operators.core.applying import UNIFORM, apply_rule, pick_rule
from hpfracc.operators.core.base import CallOptions, FractionalOperator
from hpfracc.operators.core.function import Function
from hpfracc.operators.core.order import read_order
from hpfracc.operators.core.periodic import check_period, first_point, of_periodic_function
from hpfracc.operators.core.reporting import Outcome
from hpfracc.operators.core.values import Samples
from hpfracc.operators.rules.periodic import WeylWaves

__all__ = ["Weyl", "weyl"]

_WHO = "the Weyl derivative"


@final
@dataclass(frozen=True, slots=True)
class Weyl(FractionalOperator):
    r"""Weyl derivative of a periodic function, which has no origin.

    .. math:: D^\alpha f(x) = \sum_{k \ne 0} (i\kappa_k)^\alpha\, c_k\, e^{i\kappa_k x}, \quad
        \kappa_k = 2\pi k / L, \quad (i\kappa)^\alpha = |\kappa|^\alpha e^{i\,\mathrm{sgn}(\kappa)\,\pi\alpha/2}.

    Any real order: integers give ordinary derivatives, negative orders Weyl integrals of f minus its mean. It is the
    limit of the derivatives with an origin, far from the origin.

    Parameters
    ----------
    alpha : float or scalar array
        The order; differentiable if it is a tensor or JAX array.
    method : str
        ``"spectral"``, the only one.
    period : float, optional
        The length L. Samples must cover it, as ``np.linspace(0, L, n, endpoint=False)`` does; it is n times their
        spacing by default, and an explicit period is checked against that. Required for a callable, which is sampled
        over one period as finely as needed and evaluated at any points.

    Notes
    -----
    Exact to rounding on waves that the samples resolve; exponentially convergent for analytic periodic functions. A
    function that is not periodic has a jump at the end of the period, and the result includes that jump. A non-finite
    sample makes the whole row nan, because every value depends on every sample.

    References
    ----------
    S. G. Samko, A. A. Kilbas, O. I. Marichev, *Fractional Integrals and Derivatives*, 1993, section 19.
    """

    alpha: Any
    method: str = "auto"
    period: Any = None

    definition: ClassVar[str] = "weyl"
    short_names: ClassVar[tuple[str, ...]] = ("W",)
    formula: ClassVar[str] = r"\sum_{k \ne 0} (i\kappa_k)^\alpha\, c_k\, e^{i\kappa_k x}"
    rules: ClassVar[Any] = {"spectral": WeylWaves()}

    def _start_of(self, t: Any, origin: Any) -> Any:
        return first_point(t, origin, _WHO)

    def _of_samples(self, samples: Samples) -> Outcome:
        return self.applied(samples, _WHO)

    def applied(self, samples: Samples, who: str) -> Outcome:
        """Apply to samples. Errors call the operator ``who``."""
        rule = pick_rule(self, self.method, who, samples.grid)
        check_period(samples.grid, self.period, who)
        return apply_rule(rule, samples, read_order(self.alpha), who)

    def _of_function(self, function: Function) -> Outcome:
        pick_rule(self, self.method, _WHO, UNIFORM)
        return of_periodic_function(function, WeylWaves(), read_order(self.alpha), self.period, _WHO)


@names_options_of(FractionalOperator.__call__)
def weyl(
    f: Any,
    t: Any = None,
    alpha: Any = None,
    *,
    method: str = "auto",
    period: Any = None,
    **options: Unpack[CallOptions],
) -> Any:
    """Weyl derivative of samples over a period, or of a periodic callable.

    Parameters
    ----------
    f : array_like or callable
        Samples, or a function of an array of points.
    t : array_like, optional
        The points of the samples (or give ``step``), or those at which the result of a callable is wanted.
    alpha, method, period
        As for :class:`Weyl`.
    **options
        ``step``, ``axis``, ``dim``, ``time_unit``, ``rtol``, ``backend`` and ``full_output``, as for
        :meth:`FractionalOperator.__call__`.

    Returns
    -------
    array or OperatorResult
        The derivative in the library and shape of the samples (the shape of ``t`` for a callable), or an
        :class:`OperatorResult` with ``full_output=True``.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> x = np.linspace(0.0, 2.0 * np.pi, 32, endpoint=False)
    >>> bool(np.allclose(hf.weyl(np.sin(3 * x), x, 0.5), np.sqrt(3) * np.sin(3 * x + np.pi / 4)))
    True
    >>> float(np.round(hf.weyl(np.sin, 0.0, 0.5, period=2 * np.pi), 12))  # sin(pi / 4)
    0.707106781187
    """
    return Weyl(alpha, method, period)(f, t, **options)

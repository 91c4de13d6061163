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
    r"""Weyl derivative of a periodic function: each wave keeps its shape; there is no origin.

    .. math:: D^\alpha f(x) = \sum_{k \ne 0} (i\kappa_k)^\alpha\, c_k\, e^{i\kappa_k x}, \quad
        \kappa_k = 2\pi k / L, \quad (i\kappa)^\alpha = |\kappa|^\alpha e^{i\,\mathrm{sgn}(\kappa)\,\pi\alpha/2}.

    Any order: whole ones are ordinary derivatives; negative ones are Weyl integrals, of f without its mean (which a
    derivative leaves out too). It is what the derivatives that start at an origin come to long after it.

    Parameters
    ----------
    alpha : float or scalar array
        The order; a tensor or JAX array carries its derivative.
    method : str
        ``"spectral"``, which ``"auto"`` takes.
    period : float, optional
        The length L. Samples cover it, ``np.linspace(0, L, n, endpoint=False)``: n times their distance is taken for
        it, and a period that is given is compared with that. A callable needs it, and is sampled over one period as
        finely as its waves ask for; the result may then be wanted at any points.

    Notes
    -----
    Exact to rounding on waves that the samples resolve; exponentially convergent for analytic periodic functions. A
    function that is not periodic has a jump where the period ends, and the result is that of the jump. A sample that
    is not finite makes the whole row nan, for every value depends on every sample.
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
        """To samples, for an operator that errors are to call ``who``."""
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

    ``alpha``, ``method`` and ``period`` are those of :class:`Weyl`; the ``options`` (``step``, ``axis``, ``rtol``,
    ``backend``, ``full_output``) those of its call.

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

"""The Caputo-Hadamard derivative."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Unpack, final

from hpfracc._signatures import names_options_of
from hpfracc.operators._caputo import Caputo
from hpfracc.operators._psi_caputo import logarithmic_function, logarithmic_grid
from hpfracc.operators.core.base import CallOptions, FractionalOperator
from hpfracc.operators.core.function import Function
from hpfracc.operators.core.grids import Grid
from hpfracc.operators.core.reporting import Outcome
from hpfracc.operators.core.values import Samples
from hpfracc.operators.rules.start import refuse_initial

__all__ = ["CaputoHadamard", "caputo_hadamard"]

_WHO = "the Caputo-Hadamard derivative"


@final
@dataclass(frozen=True, slots=True)
class CaputoHadamard(FractionalOperator):
    r"""Caputo-Hadamard derivative: the Caputo derivative in log t. Zero on constants, unlike Hadamard's.

    .. math:: D^\alpha f(t) = \frac{1}{\Gamma(n-\alpha)} \int_{a}^{t} \Big(\log\frac{t}{s}\Big)^{n-\alpha-1}
        \Big(s \frac{d}{ds}\Big)^n f(s)\,\frac{ds}{s}, \quad n = \lceil\alpha\rceil,\ a > 0.

    Parameters
    ----------
    alpha : float or scalar array
        The order; differentiable if it is a tensor or JAX array. Negative orders are Hadamard integrals.
    method : str
        As for :class:`Caputo`, with the same orders in the step of log t: ``"l1-2"`` (n + 2 - alpha; used by ``"auto"``
        on points uniform in log t), ``"l1"`` (n + 1 - alpha; used by ``"auto"`` on other points), ``"fast"``; for
        callables ``"spectral"`` or ``"graded"``.
    ceiling : int, optional
        The integer n, needed only if ``alpha`` is traced and above 1.
    initial : sequence, optional
        For samples and orders above 1: as for :class:`Caputo`, the derivatives 1 to n - 1 at the origin, in log t:
        :math:`(t\,d/dt)^k f` at t = a.

    Notes
    -----
    ``origin=`` and ``step=`` are as for :class:`Hadamard`.

    References
    ----------
    F. Jarad, T. Abdeljawad, D. Baleanu, Adv. Difference Equ. 2012:142.
    """

    alpha: Any
    method: str = "auto"
    ceiling: int | None = None
    initial: Any = None

    definition: ClassVar[str] = "caputo_hadamard"
    short_names: ClassVar[tuple[str, ...]] = ("CH",)
    formula: ClassVar[str] = (
        r"\frac{1}{\Gamma(n-\alpha)} \int_{a}^{t} \Big(\log\frac{t}{s}\Big)^{n-\alpha-1}"
        r" \Big(s \frac{d}{ds}\Big)^n f(s)\,\frac{ds}{s}"
    )
    rules: ClassVar[Any] = Caputo.rules
    any_grid_rules: ClassVar[Any] = Caputo.any_grid_rules
    grids: ClassVar[tuple[str, ...]] = ("uniform in log t", "any")
    usual_origin: ClassVar[float | None] = 1.0

    def _own_grid(self, grid: Grid, t: Any) -> Grid:
        return logarithmic_grid(grid, t, _WHO)

    def _of_samples(self, samples: Samples) -> Outcome:
        return Caputo(self.alpha, self.method, self.ceiling, initial=self.initial).applied(samples, _WHO)

    def _of_function(self, function: Function) -> Outcome:
        refuse_initial(self.initial, _WHO)
        inner = Caputo(self.alpha, self.method, self.ceiling)
        return inner._of_function(logarithmic_function(function, _WHO))


@names_options_of(FractionalOperator.__call__)
def caputo_hadamard(
    f: Any,
    t: Any = None,
    alpha: Any = None,
    *,
    method: str = "auto",
    ceiling: int | None = None,
    initial: Any = None,
    **options: Unpack[CallOptions],
) -> Any:
    """Caputo-Hadamard derivative of samples or of a callable.

    Parameters
    ----------
    f : array_like or callable
        Samples, or a function of an array of points.
    t : array_like, optional
        The points of the samples (or give ``step``), or those at which the result of a callable is wanted.
    alpha, method, ceiling, initial
        As for :class:`CaputoHadamard`.
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
    >>> t = np.geomspace(1.0, np.e, 101)
    >>> float(np.round(hf.caputo_hadamard(3.0 + np.log(t), t, 0.5)[-1], 10))  # 1 / Gamma(1.5), whatever is added
    1.1283791671
    """
    return CaputoHadamard(alpha, method, ceiling, initial)(f, t, **options)

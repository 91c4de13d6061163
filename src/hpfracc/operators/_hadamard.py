"""The Hadamard derivative."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Unpack, final

from hpfracc._signatures import names_options_of
from hpfracc.operators._psi_caputo import logarithmic_function, logarithmic_grid
from hpfracc.operators._riemann_liouville import RiemannLiouville
from hpfracc.operators.core.base import CallOptions, FractionalOperator
from hpfracc.operators.core.function import Function
from hpfracc.operators.core.grids import Grid
from hpfracc.operators.core.reporting import Outcome
from hpfracc.operators.core.values import Samples

__all__ = ["Hadamard", "hadamard"]

_WHO = "the Hadamard derivative"


@final
@dataclass(frozen=True, slots=True)
class Hadamard(FractionalOperator):
    r"""Hadamard derivative: the Riemann-Liouville derivative in log t. Not zero on constants.

    .. math:: D^\alpha f(t) = \frac{1}{\Gamma(n-\alpha)} \Big(t \frac{d}{dt}\Big)^n
        \int_{a}^{t} \Big(\log\frac{t}{s}\Big)^{n-\alpha-1} f(s)\,\frac{ds}{s}, \quad n = \lceil\alpha\rceil,\ a > 0.

    It maps :math:`(\log(t/a))^p` to :math:`\Gamma(p+1)/\Gamma(p+1-\alpha)\,(\log(t/a))^{p-\alpha}`. With
    :math:`x = \log(t/a)` it is the Riemann-Liouville derivative of :math:`f(a e^x)` in x, and it is computed as such:
    on points uniform in log t (``np.geomspace``) by the rules of :class:`RiemannLiouville` for uniform grids, with
    their orders in the step of log t, and on other points by those for arbitrary grids. Integer orders are
    :math:`(t\,d/dt)^n`, negative orders Hadamard integrals.

    Parameters
    ----------
    alpha : float or scalar array
        The order; differentiable if it is a tensor or JAX array.
    method : str
        As for :class:`RiemannLiouville`: ``"l1-2"`` (order n + 2 - alpha; used by ``"auto"``), ``"l1"``
        (n + 1 - alpha), ``"cq2"`` to ``"cq6"``; on points not uniform in log t ``"l1"`` or ``"fast"``; for callables
        ``"spectral"`` or ``"graded"``.
    ceiling : int, optional
        The integer n, needed only if ``alpha`` is traced and above 1.

    Notes
    -----
    The origin a is the first point of samples, and ``origin=`` or 1 for callables. ``step=`` is the spacing in log t;
    it may be differentiable.

    References
    ----------
    A. A. Kilbas, H. M. Srivastava, J. J. Trujillo, *Theory and Applications of Fractional Differential Equations*,
    2006, section 2.7.
    """

    alpha: Any
    method: str = "auto"
    ceiling: int | None = None

    definition: ClassVar[str] = "hadamard"
    formula: ClassVar[str] = (
        r"\frac{1}{\Gamma(n-\alpha)} \Big(t \frac{d}{dt}\Big)^n"
        r" \int_{a}^{t} \Big(\log\frac{t}{s}\Big)^{n-\alpha-1} f(s)\,\frac{ds}{s}"
    )
    rules: ClassVar[Any] = RiemannLiouville.rules
    any_grid_rules: ClassVar[Any] = RiemannLiouville.any_grid_rules
    grids: ClassVar[tuple[str, ...]] = ("uniform in log t", "any")
    usual_origin: ClassVar[float | None] = 1.0

    def _own_grid(self, grid: Grid, t: Any) -> Grid:
        return logarithmic_grid(grid, t, _WHO)

    def _of_samples(self, samples: Samples) -> Outcome:
        return RiemannLiouville(self.alpha, self.method, self.ceiling).applied(samples, _WHO)

    def _of_function(self, function: Function) -> Outcome:
        inner = RiemannLiouville(self.alpha, self.method, self.ceiling)
        return inner._of_function(logarithmic_function(function, _WHO))


@names_options_of(FractionalOperator.__call__)
def hadamard(
    f: Any,
    t: Any = None,
    alpha: Any = None,
    *,
    method: str = "auto",
    ceiling: int | None = None,
    **options: Unpack[CallOptions],
) -> Any:
    """Hadamard derivative of samples or of a callable.

    Parameters
    ----------
    f : array_like or callable
        Samples, or a function of an array of points.
    t : array_like, optional
        The points of the samples (or give ``step``), or those at which the result of a callable is wanted.
    alpha, method, ceiling
        As for :class:`Hadamard`.
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
    >>> float(np.round(hf.hadamard(np.log(t), t, 0.5)[-1], 10))  # 1 / Gamma(1.5)
    1.1283791671
    >>> float(np.round(hf.hadamard(np.log, np.e, 0.5), 10))
    1.1283791671
    """
    return Hadamard(alpha, method, ceiling)(f, t, **options)

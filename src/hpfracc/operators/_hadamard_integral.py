"""The Hadamard integral."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Unpack, final

from hpfracc._signatures import names_options_of
from hpfracc.operators._psi_caputo import logarithmic_function, logarithmic_grid
from hpfracc.operators._riemann_liouville_integral import RiemannLiouvilleIntegral
from hpfracc.operators.core.base import CallOptions, FractionalOperator
from hpfracc.operators.core.function import Function
from hpfracc.operators.core.grids import Grid
from hpfracc.operators.core.reporting import Outcome
from hpfracc.operators.core.values import Samples

__all__ = ["HadamardIntegral", "hadamard_integral"]

_WHO = "the Hadamard integral"


@final
@dataclass(frozen=True, slots=True)
class HadamardIntegral(FractionalOperator):
    r"""Hadamard integral: the Riemann-Liouville integral in log t.

    .. math:: I^\mu f(t) = \frac{1}{\Gamma(\mu)} \int_{a}^{t} \Big(\log\frac{t}{s}\Big)^{\mu-1} f(s)\,\frac{ds}{s},
        \quad \mu > 0,\ a > 0.

    Parameters
    ----------
    alpha : float or scalar array
        The order, positive (0 gives f itself); differentiable if it is a tensor or JAX array.
    method : str
        As for :class:`RiemannLiouvilleIntegral`, with the same orders in the step of log t: ``"simpson"`` (used by
        ``"auto"``), ``"trapezoid"``, ``"cq2"`` to ``"cq6"``; on points not uniform in log t ``"trapezoid"`` or
        ``"fast"``; for callables ``"spectral"`` or ``"graded"``.

    Notes
    -----
    ``origin=`` and ``step=`` are as for :class:`Hadamard`.

    References
    ----------
    J. Hadamard, J. Math. Pures Appl. 8 (1892) 101-186; Kilbas, Srivastava, Trujillo 2006, section 2.7.
    """

    alpha: Any
    method: str = "auto"

    definition: ClassVar[str] = "hadamard"
    kind: ClassVar[str] = "integral"
    formula: ClassVar[str] = r"\frac{1}{\Gamma(\mu)} \int_{a}^{t} \Big(\log\frac{t}{s}\Big)^{\mu-1} f(s)\,\frac{ds}{s}"
    rules: ClassVar[Any] = RiemannLiouvilleIntegral.rules
    any_grid_rules: ClassVar[Any] = RiemannLiouvilleIntegral.any_grid_rules
    grids: ClassVar[tuple[str, ...]] = ("uniform in log t", "any")
    usual_origin: ClassVar[float | None] = 1.0

    def _own_grid(self, grid: Grid, t: Any) -> Grid:
        return logarithmic_grid(grid, t, _WHO)

    def _of_samples(self, samples: Samples) -> Outcome:
        return RiemannLiouvilleIntegral(self.alpha, self.method).applied(samples, _WHO)

    def _of_function(self, function: Function) -> Outcome:
        return RiemannLiouvilleIntegral(self.alpha, self.method)._of_function(logarithmic_function(function, _WHO))


@names_options_of(FractionalOperator.__call__)
def hadamard_integral(
    f: Any, t: Any = None, alpha: Any = None, *, method: str = "auto", **options: Unpack[CallOptions]
) -> Any:
    """Hadamard integral of samples or of a callable.

    Parameters
    ----------
    f : array_like or callable
        Samples, or a function of an array of points.
    t : array_like, optional
        The points of the samples (or give ``step``), or those at which the result of a callable is wanted.
    alpha, method
        As for :class:`HadamardIntegral`.
    **options
        ``step``, ``axis``, ``dim``, ``time_unit``, ``origin``, ``factor``, ``rtol``, ``backend`` and ``full_output``,
        as for :meth:`FractionalOperator.__call__`.

    Returns
    -------
    array or OperatorResult
        The integral in the library and shape of the samples (the shape of ``t`` for a callable), or an
        :class:`OperatorResult` with ``full_output=True``.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> t = np.geomspace(1.0, np.e, 101)
    >>> float(np.round(hf.hadamard_integral(np.ones(101), t, 1.0)[-1], 10))  # log t
    1.0
    """
    return HadamardIntegral(alpha, method)(f, t, **options)

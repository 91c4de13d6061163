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
    r"""Hadamard derivative: Riemann-Liouville in log t, for scale invariance; not zero on constants.

    .. math:: D^\alpha f(t) = \frac{1}{\Gamma(n-\alpha)} \Big(t \frac{d}{dt}\Big)^n
        \int_{a}^{t} \Big(\log\frac{t}{s}\Big)^{n-\alpha-1} f(s)\,\frac{ds}{s}, \quad n = \lceil\alpha\rceil,\ a > 0.

    It takes :math:`(\log(t/a))^p` to :math:`\Gamma(p+1)/\Gamma(p+1-\alpha)\,(\log(t/a))^{p-\alpha}`. With
    :math:`x = \log(t/a)` it is the Riemann-Liouville derivative of :math:`f(a e^x)` in x, and that is how it is
    computed: on points uniform in log t (``np.geomspace``) by the rules of :class:`RiemannLiouville` for uniform grids,
    with their orders in the step of log t, on others by those for any grid. Whole orders are
    :math:`(t\,d/dt)^n`, negative ones Hadamard integrals.

    Parameters
    ----------
    alpha : float or scalar array
        The order; a tensor or JAX array carries its derivative.
    method : str
        As for :class:`RiemannLiouville`: ``"l1-2"`` (order n + 2 - alpha; what ``"auto"`` takes), ``"l1"``
        (n + 1 - alpha), ``"cq2"`` to ``"cq6"``; on points not uniform in log t ``"l1"`` or ``"fast"``; for callables
        ``"spectral"`` or ``"graded"``.
    ceiling : int, optional
        The integer n, needed only where ``alpha`` is traced and lies above 1.

    Notes
    -----
    The origin a is the first point of samples, 1 for callables unless ``origin=`` says otherwise. ``step=`` is the
    distance of neighbours in log t; it may carry a derivative.

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

    ``alpha``, ``method`` and ``ceiling`` are those of :class:`Hadamard`; the ``options`` (``step``, ``axis``,
    ``origin``, ``factor``, ``rtol``, ``backend``, ``full_output``) those of its call.

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

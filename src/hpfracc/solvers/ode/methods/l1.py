"""L1 on a graded mesh."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from hpfracc.solvers.ode.graded import GradedMethod
from hpfracc.solvers.ode.method import register_method

__all__ = ["L1"]


@register_method
@final
@dataclass(frozen=True, slots=True)
class L1(GradedMethod):
    r"""The L1 scheme on the mesh :math:`t_j = t_0 + T (j/N)^r`, implicit, with the history as a sum of exponentials.

    .. math:: \frac{1}{\Gamma(1-\alpha)} \sum_{j=1}^{n} \frac{y_j - y_{j-1}}{t_j - t_{j-1}} \int_{t_{j-1}}^{t_j}
        (t_n - s)^{-\alpha} ds = f(t_n, y_n)

    Order :math:`\min(2-\alpha, r\alpha)` in the maximum error over the mesh for solutions that start like
    :math:`t^\alpha`; a uniform mesh (r = 1) has order alpha there. Monotone, and suitable for stiff equations. ``step``
    is the mean step. O(N log N) time. For PyTorch and JAX, on the device of ``y0``, with derivatives of the discrete
    equations with respect to ``y0``, the order, and everything that ``fun`` depends on. The mesh is held fixed: that r
    depends on the order by default is left out of the derivative in the order.

    Parameters
    ----------
    grading : float, optional
        r, at least 1; by default :math:`(2-\alpha)/\alpha` for the smallest order, at most 10; 4 if the order is traced
        by JAX.

    References
    ----------
    M. Stynes, E. O'Riordan, J. L. Gracia, SIAM J. Numer. Anal. 55 (2017) 1057-1079.
    """

    name: ClassVar[str] = "l1"
    aliases: ClassVar[tuple[str, ...]] = ("graded_l1",)
    order: ClassVar[str] = "2 - alpha on the graded mesh, for solutions like t^alpha too"
    takes: ClassVar[frozenset[str]] = frozenset({"several orders"})
    accuracy: ClassVar[tuple[float, float]] = (2.0, 1.0)

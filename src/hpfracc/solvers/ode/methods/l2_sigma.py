"""Alikhanov's L2-1sigma on a graded mesh."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from hpfracc.solvers.ode.graded import GradedMethod
from hpfracc.solvers.ode.method import register_method

__all__ = ["L2Sigma"]


@register_method
@final
@dataclass(frozen=True, slots=True)
class L2Sigma(GradedMethod):
    r"""Alikhanov's L2-1sigma scheme on the mesh :math:`t_j = t_0 + T (j/N)^r`, with a sum of exponentials.

    The equation is collocated at :math:`t_{n-\alpha/2}`, where linear interpolation gains one order: y is quadratic on
    each past interval and linear on the newest. Order :math:`\min(2, r\alpha)` in the maximum error over the mesh for
    solutions that start like :math:`t^\alpha`. Implicit; ``step`` is the mean step, and all components must have the
    same order. O(N log N) time. Like the trapezoidal rule it oscillates if a stiff transient is not resolved; L1 does
    not. PyTorch and JAX as for :class:`L1`.

    Parameters
    ----------
    grading : float, optional
        r, at least 1; by default :math:`2/\alpha`, at most 10; 4 if the order is traced by JAX.

    References
    ----------
    A. A. Alikhanov, J. Comput. Phys. 280 (2015) 424-438; H. Chen, M. Stynes, J. Sci. Comput. 79 (2019) 624-647, for
    graded meshes.
    """

    name: ClassVar[str] = "l2_1sigma"
    aliases: ClassVar[tuple[str, ...]] = ("alikhanov", "graded_l2")
    order: ClassVar[str] = "2 on the graded mesh, for solutions like t^alpha too"
    accuracy: ClassVar[tuple[float, float]] = (2.0, 0.0)

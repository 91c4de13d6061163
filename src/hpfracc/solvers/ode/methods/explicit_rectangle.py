"""Explicit product rectangle: the fractional Euler method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

from hpfracc._xp import Namespace
from hpfracc.solvers.ode.fixed.scheme import delayed, rectangle_weights
from hpfracc.solvers.ode.fixed.solve import StepMethod
from hpfracc.solvers.ode.method import register_method


@register_method
@final
@dataclass(frozen=True, slots=True)
class ExplicitRectangle(StepMethod):
    r"""The right-hand side is constant on each step, with its value at the start of the step.

    .. math:: y_n = T(t_n) + \frac{h^\alpha}{\Gamma(\alpha+1)} \sum_{j=0}^{n-1} [(n-j)^\alpha - (n-j-1)^\alpha] f_j

    Order 1 at a fixed t, for smooth solutions and for those that start like :math:`t^\alpha`; near the origin the
    error of the latter is :math:`O(h^{2\alpha})`. One evaluation per step. Not for stiff equations. For alpha = 1 it is
    Euler's method. PyTorch and JAX as for :class:`PECE`.

    Parameters
    ----------
    adjoint : {"auto", "recomputed", "stored", "direct"}
        As for :class:`PECE`.

    References
    ----------
    K. Diethelm, N. J. Ford, A. D. Freed, Nonlinear Dyn. 29 (2002) 3-22.
    """

    name: ClassVar[str] = "explicit_rectangle"
    aliases: ClassVar[tuple[str, ...]] = ("euler", "forward_euler")
    order: ClassVar[str] = "1"

    def promised_order(self, alpha: float, *, rough: bool = False) -> float:
        """1."""
        return 1.0

    def weights(self, xp: Namespace, alpha: Any, n: int) -> tuple[tuple[Any, ...], Any]:
        """The product rectangle, from the value one step back on."""
        return (delayed(xp, rectangle_weights(alpha, n, xp)),), None

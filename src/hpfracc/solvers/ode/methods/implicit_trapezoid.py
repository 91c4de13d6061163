"""Implicit product trapezoid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

from hpfracc._xp import Namespace
from hpfracc.solvers.ode.fixed.scheme import trapezoid_weights
from hpfracc.solvers.ode.fixed.solve import StepMethod
from hpfracc.solvers.ode.method import register_method


@register_method
@final
@dataclass(frozen=True, slots=True)
class ImplicitTrapezoid(StepMethod):
    r"""The right-hand side is interpolated linearly between the steps.

    .. math:: y_n = T(t_n) + \frac{h^\alpha}{\Gamma(\alpha+2)} \Big[ c_n f_0 + \sum_{j=1}^{n} a_{n-j} f_j \Big],

    solved for :math:`y_n` by Newton's method. Order 2 at a fixed t if f(t, y(t)) is smooth,
    :math:`\min(2, 1+\alpha)` if it starts like :math:`t^\alpha`. For stiff equations; for alpha = 1 it is the
    trapezoidal rule.

    PyTorch and JAX: the equations of a step, one system of d unknowns for each member of an ensemble, are solved with
    batched linear solves. The Jacobian is ``jac(t, y)`` of shape (..., d, d), or computed by automatic differentiation.
    Members must not depend on one another. A member that does not converge becomes NaN from there on, and ``success``
    is False. Derivatives are those of the discrete equations, not of the iteration: the first by autograd, up to the
    third by ``torch.func``, any in JAX.

    Parameters
    ----------
    adjoint : {"auto", "recomputed", "stored", "direct"}
        As for :class:`PECE`.

    References
    ----------
    R. Garrappa, Mathematics 6 (2018) 16; K. Diethelm, N. J. Ford, A. D. Freed, Numer. Algorithms 36 (2004) 31-52.
    """

    name: ClassVar[str] = "implicit_trapezoid"
    aliases: ClassVar[tuple[str, ...]] = ("trapezoid", "trapezoidal")
    order: ClassVar[str] = "2; min(2, 1 + alpha) for solutions like t^alpha"
    implicit: ClassVar[bool] = True

    def promised_order(self, alpha: float, *, rough: bool = False) -> float:
        """2, or that of the interpolation of a rough solution."""
        return min(2.0, 1.0 + alpha) if rough else 2.0

    def weights(self, xp: Namespace, alpha: Any, n: int) -> tuple[tuple[Any, ...], Any]:
        """The product trapezoid."""
        weights, first = trapezoid_weights(alpha, n, xp)
        return (weights,), first

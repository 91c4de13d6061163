"""The implicit product trapezoid for tensors and JAX arrays: stiff ensembles, with derivatives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from hpfracc.solvers.ode._method import register_method
from hpfracc.solvers.ode.tensors.method import TensorMethod

__all__ = ["TensorImplicitTrapezoid"]


@register_method
@final
@dataclass(frozen=True, slots=True)
class TensorImplicitTrapezoid(TensorMethod):
    r"""The method of :class:`ImplicitTrapezoid` for PyTorch and JAX, for stiff equations.

    The equations of a step, one of d unknowns for each member of an ensemble, are solved together by Newton's method
    with batched linear solves; the Jacobian is ``jac(t, y)`` of shape (..., d, d), or comes from the library's own
    differentiation. Members must not depend on one another. One that does not converge becomes NaN from there on, and
    ``success`` False.

    Derivatives are those of the discrete equations, not of the iteration: the first by autograd, up to the third by
    ``torch.func``, any in JAX. Order 2, or :math:`\min(2, 1+\alpha)` where the solution begins like :math:`t^\alpha`.
    """

    name: ClassVar[str] = "implicit_trapezoid"
    aliases: ClassVar[tuple[str, ...]] = ("trapezoid", "trapezoidal")
    order: ClassVar[str] = "2; min(2, 1 + alpha) for solutions like t^alpha"
    implicit: ClassVar[bool] = True

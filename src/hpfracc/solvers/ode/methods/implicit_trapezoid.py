"""Implicit product trapezoid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from hpfracc.solvers.ode.fixed.scheme import Scheme, Tableau, add_first_value, trapezoid_weights
from hpfracc.solvers.ode.fixed.solve import solve_fixed
from hpfracc.solvers.ode.method import Method, register_method
from hpfracc.solvers.ode.options import Options
from hpfracc.solvers.ode.problem import Problem
from hpfracc.solvers.ode.result import FODEResult
from hpfracc.solvers.ode.tensors.rule import TensorRule, check_adjoint
from hpfracc.solvers.ode.tensors.solve import refuse_arrays, solve_tensors

__all__ = ["ImplicitTrapezoid"]

Array = np.ndarray[Any, Any]


@register_method
@final
@dataclass(frozen=True, slots=True)
class ImplicitTrapezoid(Method):
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

    adjoint: str = "auto"

    name: ClassVar[str] = "implicit_trapezoid"
    aliases: ClassVar[tuple[str, ...]] = ("trapezoid", "trapezoidal")
    order: ClassVar[str] = "2; min(2, 1 + alpha) for solutions like t^alpha"
    libraries: ClassVar[frozenset[str]] = frozenset({"numpy", "torch", "jax"})
    implicit: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_adjoint(self.adjoint)

    def refuses(self, problem: Problem, options: Options) -> str | None:
        """Requires a finite start and constant orders."""
        return refuse_arrays(problem, options, self.name, self.adjoint)

    def solve(self, problem: Problem, options: Options) -> FODEResult:
        """One history sum and one system of equations per step."""
        if problem.library != "numpy":
            return solve_tensors(problem, options, TensorRule(self.name, adjoint=self.adjoint))
        return solve_fixed(problem, options, self.scheme, self.name, "asked for")

    @property
    def scheme(self) -> Scheme:
        """The weights."""
        return Scheme("implicit", _weights, _start)


def _weights(alpha: float, n: int) -> tuple[Array]:
    return (trapezoid_weights(alpha, n)[0],)


def _start(table: Tableau, evaluate: Callable[[float, Array], Array]) -> None:
    add_first_value(table, evaluate, 0)

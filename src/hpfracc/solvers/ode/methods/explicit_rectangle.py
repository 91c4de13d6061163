"""Explicit product rectangle: the fractional Euler method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from hpfracc.solvers.ode.fixed.scheme import Scheme, Tableau, evaluate_first, rectangle_weights
from hpfracc.solvers.ode.fixed.solve import solve_fixed
from hpfracc.solvers.ode.method import Method, register_method
from hpfracc.solvers.ode.options import Options
from hpfracc.solvers.ode.problem import Problem
from hpfracc.solvers.ode.result import FODEResult
from hpfracc.solvers.ode.tensors.rule import TensorRule, check_adjoint
from hpfracc.solvers.ode.tensors.solve import refuse_arrays
from hpfracc.solvers.ode.tensors.stability import solve_explicit

__all__ = ["ExplicitRectangle"]

Array = np.ndarray[Any, Any]


@register_method
@final
@dataclass(frozen=True, slots=True)
class ExplicitRectangle(Method):
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

    adjoint: str = "auto"

    name: ClassVar[str] = "explicit_rectangle"
    aliases: ClassVar[tuple[str, ...]] = ("euler", "forward_euler")
    order: ClassVar[str] = "1"
    libraries: ClassVar[frozenset[str]] = frozenset({"numpy", "torch", "jax"})

    def __post_init__(self) -> None:
        check_adjoint(self.adjoint)

    def refuses(self, problem: Problem, options: Options) -> str | None:
        """Requires a finite start and constant orders."""
        return refuse_arrays(problem, options, self.name, self.adjoint)

    def solve(self, problem: Problem, options: Options) -> FODEResult:
        """One history sum per step."""
        if problem.library != "numpy":
            return solve_explicit(problem, options, TensorRule(self.name, adjoint=self.adjoint), self.scheme)
        return solve_fixed(problem, options, self.scheme, self.name, "asked for")

    @property
    def scheme(self) -> Scheme:
        """The weights."""
        return Scheme("explicit", _weights, _start)


def _weights(alpha: float, n: int) -> tuple[Array]:
    return (np.concatenate([[0.0], rectangle_weights(alpha, n)[: n - 1]]),)


def _start(table: Tableau, evaluate: Callable[[float, Array], Array]) -> None:
    evaluate_first(table, evaluate)

"""Implicit product rectangle: the fractional backward Euler method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from hpfracc.solvers.ode.fixed.multistep import refuse_start, solve_multistep
from hpfracc.solvers.ode.fixed.scheme import Scheme, Tableau, rectangle_weights
from hpfracc.solvers.ode.fixed.solve import solve_fixed
from hpfracc.solvers.ode.method import Method, register_method
from hpfracc.solvers.ode.options import Options
from hpfracc.solvers.ode.problem import Problem, starts_infinite
from hpfracc.solvers.ode.result import FODEResult
from hpfracc.solvers.ode.tensors.rule import TensorRule, check_adjoint
from hpfracc.solvers.ode.tensors.solve import refuse_arrays, solve_tensors

__all__ = ["ImplicitRectangle"]

Array = np.ndarray[Any, Any]

#: Powers from here on it takes with order 1 as it is.
_BOUND = 0.0


@register_method
@final
@dataclass(frozen=True, slots=True)
class ImplicitRectangle(Method):
    r"""The right-hand side taken as constant over each step, with its value at the step's end.

    .. math:: y_n = T(t_n) + \frac{h^\alpha}{\Gamma(\alpha+1)} \sum_{j=1}^{n} [(n-j+1)^\alpha - (n-j)^\alpha] f_j,

    solved for :math:`y_n` by Newton's method. Order 1 at a fixed t, for smooth solutions and for those that begin like
    :math:`t^\alpha`. The most damped of the methods: for very stiff equations and rough right-hand sides.

    The value at the origin is never asked for, so a Riemann-Liouville problem may begin at infinity. Its right-hand
    side then begins with negative powers of t - t0, on which the plain rule has order :math:`1+\nu`, the lowest power
    being :math:`\nu` (so 0.3 for alpha = 0.3): starting weights make it exact on all of these, and the order is 1
    again. Which they are is seen from the right-hand side; where they are more than seven, as for orders of 0.13 and
    less, it is refused.

    PyTorch and JAX as for :class:`ImplicitTrapezoid`.

    Parameters
    ----------
    adjoint : {"recomputed", "stored", "direct"}
        As for :class:`PECE`.

    References
    ----------
    R. Garrappa, Mathematics 6 (2018) 16.
    """

    adjoint: str = "recomputed"

    name: ClassVar[str] = "implicit_rectangle"
    aliases: ClassVar[tuple[str, ...]] = ("backward_euler", "implicit_euler")
    order: ClassVar[str] = "1"
    libraries: ClassVar[frozenset[str]] = frozenset({"numpy", "torch", "jax"})
    implicit: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_adjoint(self.adjoint)

    def refuses(self, problem: Problem, options: Options) -> str | None:
        """Needs constant orders, and few enough negative powers of t."""
        refused = refuse_arrays(problem, options, self.name, self.adjoint, infinite=True)
        if refused is None and problem.library == "numpy" and starts_infinite(problem):
            return refuse_start(self.name, problem, options, _BOUND)
        return refused

    def solve(self, problem: Problem, options: Options) -> FODEResult:
        """One sum over the past, and one system of equations, for each step."""
        if problem.library != "numpy":
            return solve_tensors(problem, options, TensorRule(self.name, adjoint=self.adjoint))
        if starts_infinite(problem):
            return solve_multistep(self, problem, options, _BOUND)
        return solve_fixed(problem, options, Scheme("implicit", _weights, _start), self.name, "asked for")

    def weights(self, alpha: float, n: int) -> Array:
        """For step 1."""
        return rectangle_weights(alpha, n)

    def at_one(self, alpha: float, count: int) -> Array | None:
        """Its generating function is a polylogarithm, of two families of powers."""
        return None

    def at_minus_one(self, alpha: float, count: int) -> Array | None:
        """Smooth there."""
        return None


def _weights(alpha: float, n: int) -> tuple[Array]:
    return (rectangle_weights(alpha, n),)


def _start(table: Tableau, evaluate: Callable[[float, Array], Array]) -> None:
    """The first value weighs nothing; it stays zero in the sums."""

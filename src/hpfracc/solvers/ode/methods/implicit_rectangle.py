"""Implicit product rectangle: the fractional backward Euler method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

from hpfracc._xp import Namespace
from hpfracc.solvers.ode.fixed.scheme import Evaluate, Tableau, rectangle_weights
from hpfracc.solvers.ode.fixed.solve import StepMethod
from hpfracc.solvers.ode.fixed.starting import refuse_start, start_together
from hpfracc.solvers.ode.method import register_method
from hpfracc.solvers.ode.problem import Problem, starts_infinite
from hpfracc.solvers.stepping.options import Options

#: From this power on the rule has order 1 without starting weights.
_BOUND = 0.0


@register_method
@final
@dataclass(frozen=True, slots=True)
class ImplicitRectangle(StepMethod):
    r"""The right-hand side is constant on each step, with its value at the end of the step.

    .. math:: y_n = T(t_n) + \frac{h^\alpha}{\Gamma(\alpha+1)} \sum_{j=1}^{n} [(n-j+1)^\alpha - (n-j)^\alpha] f_j,

    solved for :math:`y_n` by Newton's method. Order 1 at a fixed t, for smooth solutions and for those that start like
    :math:`t^\alpha`. The most strongly damped method: for very stiff equations and rough right-hand sides.

    The right-hand side is not evaluated at the origin, so a Riemann-Liouville solution may be infinite there. The
    right-hand side then starts with negative powers of t - t0, on which the plain rule has order :math:`1+\nu`, where
    :math:`\nu` is the lowest power (0.3 for alpha = 0.3). Starting weights make the rule exact on these powers and
    restore order 1. The powers are determined from the right-hand side. More than seven of them, as for orders of 0.13
    and below, raise an error.

    PyTorch and JAX as for :class:`ImplicitTrapezoid`.

    Parameters
    ----------
    adjoint : {"auto", "recomputed", "stored", "direct"}
        As for :class:`PECE`.

    References
    ----------
    R. Garrappa, Mathematics 6 (2018) 16.
    """

    name: ClassVar[str] = "implicit_rectangle"
    aliases: ClassVar[tuple[str, ...]] = ("backward_euler", "implicit_euler")
    order: ClassVar[str] = "1"
    takes: ClassVar[frozenset[str]] = StepMethod.takes | {"infinite"}
    starts_blind: ClassVar[bool] = True
    implicit: ClassVar[bool] = True

    def promised_order(self, alpha: float, *, rough: bool = False) -> float:
        """1."""
        return 1.0

    def refuses(self, problem: Problem, options: Options) -> str | None:
        """Requires constant orders, and few enough negative powers of t."""
        refusal = StepMethod.refuses(self, problem, options)
        if refusal is None and problem.library == "numpy" and starts_infinite(problem):
            return refuse_start(self.name, problem, options, _BOUND)
        return refusal

    def start(self, table: Tableau, evaluate: Evaluate, options: Options) -> None:
        """With starting weights if the solution is infinite at t0."""
        if starts_infinite(table.problem):
            start_together(self, table, evaluate, options, _BOUND)

    def weights(self, xp: Namespace, alpha: Any, n: int) -> tuple[tuple[Any, ...], Any]:
        """The product rectangle, from the newest value on."""
        return (rectangle_weights(alpha, n, xp),), None

    def at_one(self, alpha: float, count: int) -> None:
        """The generating function is a polylogarithm, with two families of powers: sums are computed directly."""

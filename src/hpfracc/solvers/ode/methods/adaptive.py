"""Adaptive steps and degrees on a memory of exponentials."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from hpfracc.solvers.ode.adaptive.driver import beginning, solve_adaptive
from hpfracc.solvers.ode.adaptive.speed import refuse_numba
from hpfracc.solvers.ode.method import Method, register_method
from hpfracc.solvers.ode.options import Options
from hpfracc.solvers.ode.problem import Problem, starts_infinite
from hpfracc.solvers.ode.result import FODEResult
from hpfracc.solvers.ode.singular import GrowthError
from hpfracc.solvers.ode.tensors.mesh import refuse_adaptive_tensors, solve_adaptive_tensors

__all__ = ["Adaptive", "AdaptiveLocal"]

#: Shorter times have no room for the steps before them.
_EARLIEST = 1e-270
#: Steps are no longer than the shortest delay; more of them than this take minutes.
_MOST_DELAYS = 1e5


@register_method
@final
@dataclass(frozen=True, slots=True)
class Adaptive(Method):
    r"""Variable steps and degrees, with the global error estimated and held below the tolerance.

    Each step interpolates the right-hand side by a polynomial of degree 1 to 5 through its newest values and integrates
    it exactly against the kernel, as Adams methods do for alpha = 1; the past is a sum of exponentials
    (:func:`~hpfracc.solvers.ode.adaptive.kernel.exponential_kernel`). So N steps take O(N log N) time and O(log N)
    memory. Steps begin tiny, because :math:`y - y_0 \sim t^\alpha`, and grow.

    Beside the solution its error is integrated, from the defect of the interpolation and the right-hand side's response
    to it. If it exceeds the tolerance at the end, the solve is repeated with smaller steps: ``rtol`` and ``atol`` bound
    the *global* error, as far as the estimate holds. Where the error still exceeds ten times the tolerance, the result
    says ``success=False``.

    The equation of a step is solved by iteration; where that fails, by Newton's method, with degree 1 (A-stable)
    while the equation is stiff. Orders may differ between components; multi-term equations and constant delays are
    taken too. A Riemann-Liouville solution that is infinite at t0 is the part of its initial data and a rest, which is
    integrated from a time on before which it is below the tolerance; steps grow from there with t.

    References
    ----------
    The kernel: W. McLean (2018); steps and degrees as in L. F. Shampine, M. K. Gordon, Computer Solution of Ordinary
    Differential Equations (1975); switching as in L. Petzold, SIAM J. Sci. Stat. Comput. 4 (1983) 136-148.
    """

    name: ClassVar[str] = "adaptive"
    aliases: ClassVar[tuple[str, ...]] = ("soe",)
    order: ClassVar[str] = "2 to 6, chosen from step to step; the error follows rtol and atol"
    libraries: ClassVar[frozenset[str]] = frozenset({"numpy", "torch", "jax"})
    fixed: ClassVar[bool] = False

    def refuses(self, problem: Problem, options: Options) -> str | None:
        """Needs constant orders, and a right-hand side with an integral where the solution starts at infinity."""
        return _refuses(problem, options, self.name)

    def solve(self, problem: Problem, options: Options) -> FODEResult:
        """Pass over the interval until the estimated global error is below the tolerance."""
        if problem.library != "numpy":
            return solve_adaptive_tensors(problem, options, self.name, "asked for", globally=True)
        return solve_adaptive(problem, options, name=self.name, reason="asked for", control="global")


@register_method
@final
@dataclass(frozen=True, slots=True)
class AdaptiveLocal(Method):
    """As ``adaptive``, in one pass: the tolerance bounds the error of each step, and the global one is only reported.

    For chaotic equations, whose solutions no method follows for long, and where a first look is enough.
    """

    name: ClassVar[str] = "adaptive_local"
    order: ClassVar[str] = "2 to 6, chosen from step to step; each step's error follows rtol and atol"
    libraries: ClassVar[frozenset[str]] = frozenset({"numpy", "torch", "jax"})
    fixed: ClassVar[bool] = False

    def refuses(self, problem: Problem, options: Options) -> str | None:
        """Needs constant orders, and a right-hand side with an integral where the solution starts at infinity."""
        return _refuses(problem, options, self.name)

    def solve(self, problem: Problem, options: Options) -> FODEResult:
        """Pass over the interval once."""
        if problem.library != "numpy":
            return solve_adaptive_tensors(problem, options, self.name, "asked for", globally=False)
        return solve_adaptive(problem, options, name=self.name, reason="asked for", control="local")


def _refuses(problem: Problem, options: Options, name: str) -> str | None:
    if problem.library != "numpy":
        return refuse_adaptive_tensors(problem, options, name)
    if problem.orders.function is not None:
        return f"method={name!r} takes constant orders; use method='variable_order'"
    if options.step is not None:
        return f"method={name!r} chooses its steps, and step={options.step:g} was given; leave step out"
    shortest, length = min(problem.delays, default=math.inf), problem.t1 - problem.t0
    if length > _MOST_DELAYS * shortest:
        return (
            f"method={name!r} takes no step longer than the shortest delay, {shortest:g}, and would need more than "
            f"{length / shortest:.2g} of them; give step=, which may be longer than a delay, or leave that delay out"
        )
    if starts_infinite(problem):
        if problem.delays or problem.terms:
            return (
                f"method={name!r} takes no delays and one derivative where a Riemann-Liouville solution is infinite at "
                "t0; give y0 = 0, or write the equation with Caputo's derivative"
            )
        assert problem.orders.known is not None
        if np.any(problem.orders.known > 1.0):
            return (
                f"method={name!r} takes orders up to 1 where a Riemann-Liouville solution is infinite at t0, and alpha "
                f"reaches {float(problem.orders.known.max()):g}: its first tiny steps would weigh more and more; use "
                "method='bdf2' or 'implicit_rectangle'"
            )
        try:
            if beginning(problem, options) < _EARLIEST:
                return (
                    f"method={name!r} would have to begin {_EARLIEST:g} after t0 or before, so slowly does this "
                    f"Riemann-Liouville solution forget its start; loosen rtol={options.rtol:g}"
                )
        except GrowthError as error:
            return f"method={name!r}: {error}"
    if np.any(np.asarray(options.atol) <= 0.0):
        return f"method={name!r} needs atol above 0: a solution that vanishes has no relative error"
    return refuse_numba(problem, options, name)

"""Adaptive steps and degrees, with the history as a sum of exponentials."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from hpfracc.solvers.ode.adaptive.driver import beginning, solve_adaptive
from hpfracc.solvers.ode.compilation import refuse_numba
from hpfracc.solvers.ode.method import Method, register_method
from hpfracc.solvers.ode.problem import Problem, starts_infinite
from hpfracc.solvers.ode.result import FODEResult
from hpfracc.solvers.ode.singular import EARLIEST, GrowthError
from hpfracc.solvers.stepping.options import Options

#: Maximum number of shortest delays in the interval. Steps are no longer than that delay; more would take minutes.
_MAX_DELAYS = 1e5


class _AdaptiveMethod(Method):
    """Adaptive steps; ``control`` says whether the global error or that of each step follows the tolerance."""

    __slots__ = ()
    libraries: ClassVar[frozenset[str]] = frozenset({"numpy", "torch", "jax"})
    fixed: ClassVar[bool] = False
    control: ClassVar[str]

    def refuses(self, problem: Problem, options: Options) -> str | None:
        """Requires constant orders, and an integrable right-hand side if the solution is infinite at t0."""
        name = self.name
        if problem.orders.function is not None:
            return f"method={name!r} takes constant orders; use method='variable_order'"
        if options.step is not None:
            return f"method={name!r} chooses its steps, and step={options.step:g} was given; omit step"
        if np.any(np.asarray(options.atol) <= 0.0):
            return f"method={name!r} needs atol above 0: a solution that vanishes has no relative error"
        if problem.library != "numpy":
            from hpfracc.solvers.ode.tensors.mesh import refuse_adaptive_tensors

            return refuse_adaptive_tensors(problem, options, name)
        shortest, length = min(problem.delays, default=math.inf), problem.t1 - problem.t0
        if length > _MAX_DELAYS * shortest:
            needs = f"needs {length / shortest:.2g} steps, none longer than the shortest delay, {shortest:g}"
            return f"method={name!r} {needs}; give step=, which may be longer than a delay, or omit that delay"
        if starts_infinite(problem):
            if problem.delays or problem.terms:
                return f"method={name!r} takes one derivative and no delays where y is infinite at t0; give y0 = 0"
            assert problem.orders.known is not None
            if np.any(problem.orders.known > 1.0):
                most = f"alpha reaches {float(problem.orders.known.max()):g}"
                return f"method={name!r} takes orders up to 1 where y is infinite at t0, and {most}; use method='bdf2'"
            try:
                if beginning(problem, options) < EARLIEST:
                    start = f"would have to start within {EARLIEST:g} of t0, on which this solution depends for long"
                    return f"method={name!r} {start}; loosen rtol={options.rtol:g}"
            except GrowthError as error:
                return f"method={name!r}: {error}"
        return refuse_numba(problem, options, name)

    def solve(self, problem: Problem, options: Options) -> FODEResult:
        """Solve in one pass, or repeat that until the estimated global error is below the tolerance."""
        if problem.library != "numpy":
            from hpfracc.solvers.ode.tensors.mesh import solve_adaptive_tensors

            return solve_adaptive_tensors(problem, options, self.name, "asked for", globally=self.control == "global")
        return solve_adaptive(problem, options, name=self.name, reason="asked for", control=self.control)


@register_method
@final
@dataclass(frozen=True, slots=True)
class Adaptive(_AdaptiveMethod):
    r"""Variable steps and degrees; the estimated global error is kept below the tolerance.

    Each step interpolates the right-hand side by a polynomial of degree 1 to 5 through its newest values and integrates
    it exactly against the kernel, as Adams methods do for alpha = 1; the history is a sum of exponentials
    (:func:`~hpfracc.history.states.exponential_kernel`). So N steps take O(N log N) time and O(log N)
    memory. Steps start very small, because :math:`y - y_0 \sim t^\alpha`, and grow.

    The error is integrated along with the solution, from the defect of the interpolation and the response of the
    right-hand side to it. If it exceeds the tolerance at the end, the solve is repeated with smaller steps: ``rtol``
    and ``atol`` bound the *global* error, as far as the estimate is valid. If the error still exceeds ten times the
    tolerance, the result has ``success=False``.

    The equation of a step is solved by fixed-point iteration; if that fails, by Newton's method, with degree 1
    (A-stable) while the equation is stiff. Orders may differ between components; multi-term equations and constant
    delays are supported. A Riemann-Liouville solution that is infinite at t0 is split into the part of its initial data
    and a remainder. The remainder is integrated from a time before which it is below the tolerance; steps grow with t
    from there. So is a right-hand side that is infinite or undefined at t0 = 0 and integrable, such as
    :math:`t^{-0.3}`.

    References
    ----------
    The kernel: W. McLean (2018); steps and degrees as in L. F. Shampine, M. K. Gordon, Computer Solution of Ordinary
    Differential Equations (1975); switching as in L. Petzold, SIAM J. Sci. Stat. Comput. 4 (1983) 136-148.
    """

    name: ClassVar[str] = "adaptive"
    aliases: ClassVar[tuple[str, ...]] = ("soe",)
    order: ClassVar[str] = "2 to 6, chosen from step to step; the error follows rtol and atol"
    control: ClassVar[str] = "global"


@register_method
@final
@dataclass(frozen=True, slots=True)
class AdaptiveLocal(_AdaptiveMethod):
    """As ``adaptive``, in one pass: the tolerance bounds the error of each step; the global error is only reported.

    For chaotic equations, whose solutions no method follows for long, and for quick first results.
    """

    name: ClassVar[str] = "adaptive_local"
    order: ClassVar[str] = "2 to 6, chosen from step to step; each step's error follows rtol and atol"
    control: ClassVar[str] = "local"

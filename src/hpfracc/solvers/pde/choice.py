"""The choice of the method in time, and what a method cannot solve."""

from __future__ import annotations

from hpfracc.errors import InvalidInputError
from hpfracc.solvers.ode.options import Options
from hpfracc.solvers.pde.method import EvolutionMethod, find_evolution_method
from hpfracc.solvers.pde.methods.adaptive import AdaptiveSteps
from hpfracc.solvers.pde.methods.convolution_quadrature import CorrectedQuadrature
from hpfracc.solvers.pde.methods.differences import DiffusionL1, DiffusionL2Sigma
from hpfracc.solvers.pde.methods.exact_modes import ExactModes
from hpfracc.solvers.pde.methods.splitting import Yoshida4, conserves_norm
from hpfracc.solvers.pde.problem import EvolutionProblem

#: The reason of a method that the user chose.
ASKED = "it was asked for"
#: Methods for first order in time, in the order in which they are tried.
_FIRST_ORDER = ("etdrk4", "imex_bdf2", "crank_nicolson")
#: Order in time above which, for incompatible initial data, corrected quadrature is chosen instead of L1 (of order 2 -
#: alpha): at 0.5 both take the same time, at 0.7 L1 takes three times as long.
_QUADRATURE_FROM = 0.6


def choose_time_method(
    method: str | EvolutionMethod, problem: EvolutionProblem, options: Options
) -> tuple[EvolutionMethod, str]:
    """The method that was asked for or is chosen, and why."""
    if isinstance(method, str) and method.casefold() == "auto":
        return _choose_method(problem, options)
    found = find_evolution_method(method)
    reason = refusal(found, problem, options)
    if reason is not None:
        raise InvalidInputError(reason)
    return found, ASKED


def _choose_method(problem: EvolutionProblem, options: Options) -> tuple[EvolutionMethod, str]:
    """The method that ``method="auto"`` chooses, and why."""
    candidates: list[EvolutionMethod] = [ExactModes()]
    several = len(problem.orders) > 1
    alpha = problem.alpha_value
    if alpha == 1.0 and not several:
        if conserves_norm(problem):
            candidates.append(Yoshida4())
        candidates += map(find_evolution_method, _FIRST_ORDER)
    if several and problem.linear and alpha <= 1.0:
        candidates.append(CorrectedQuadrature(4))
    if problem.frozen is not None and not several:
        candidates.append(AdaptiveSteps())
    if several or alpha >= 1.0:
        candidates.append(CorrectedQuadrature(2))
    candidates.append(AdaptiveSteps())
    if not problem.compatible:
        if problem.linear and alpha > _QUADRATURE_FROM:
            candidates.append(CorrectedQuadrature(3))
        candidates.append(DiffusionL1())
    candidates += [DiffusionL2Sigma(), DiffusionL1()]
    refusals = []
    for method in candidates:
        reason = refusal(method, problem, options)
        if reason is None:
            words = method.reason(problem)
            if isinstance(method, CorrectedQuadrature) and not several and alpha < 1.0:
                words = "u0 does not have the boundary values, and corrected BDF3 has order 3 for t > t0 all the same"
            if isinstance(method, DiffusionL1) and not several and not problem.compatible:
                words = "u0 does not have the boundary values, and L1 damps the layer that comes of it"
            return method, words
        refusals.append(reason)
    raise InvalidInputError(f"no method takes this equation: {'; '.join(dict.fromkeys(refusals))}")


def refusal(method: EvolutionMethod, problem: EvolutionProblem, options: Options) -> str | None:
    """Why a method cannot solve a problem; None if it can."""
    library = problem.xp.library
    if method.chooses_steps and options.step is not None:
        return f"method={method.name!r} chooses its steps, and step={options.step:g} was given; leave one of them out"
    if options.first_step is not None and not (method.chooses_steps or method.exact):
        return f"method={method.name!r} does not start with first_step={options.first_step:g}; use method='adaptive'"
    if options.breakpoints and not (method.meets_breaks or method.exact):
        return f"steps of method={method.name!r} do not end at breakpoints; use 'adaptive', 'l1' or 'l2_1sigma'"
    if problem.frozen is not None and getattr(method, "reaction", "newton") != "newton":
        return f"method={method.name!r} is explicit in the reaction, and Diffusion depends on t or u; use 'newton'"
    if library not in method.libraries:
        takes = " and ".join(sorted(method.libraries))
        return (
            f"method={method.name!r} takes arrays of {takes}, and not of {library}: give u0 as such an array, or take "
            "'l1', 'l2_1sigma' or 'convolution_quadrature', whose steps serve tensors"
        )
    return method.lacks(problem) or method.refuses(problem)

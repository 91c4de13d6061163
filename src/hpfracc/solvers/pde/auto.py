"""Which method in time ``method="auto"`` takes, and why."""

from __future__ import annotations

from hpfracc.errors import InvalidInputError
from hpfracc.solvers.pde.method import EvolutionMethod, all_evolution_methods, find_evolution_method
from hpfracc.solvers.pde.methods.convolution_quadrature import CorrectedQuadrature
from hpfracc.solvers.pde.methods.exact_modes import ExactModes
from hpfracc.solvers.pde.methods.l1 import DiffusionL1
from hpfracc.solvers.pde.methods.l2_1sigma import DiffusionL2Sigma
from hpfracc.solvers.pde.methods.splitting import Yoshida4, conserves_norm
from hpfracc.solvers.pde.problem import EvolutionProblem

__all__ = ["choose_method"]

#: Methods of first order in time, in the order in which they are asked.
_FIRST_ORDER = ("etdrk4", "imex_bdf2", "crank_nicolson")


def choose_method(problem: EvolutionProblem) -> tuple[EvolutionMethod, str]:
    """The method, and the reason."""
    candidates: list[EvolutionMethod] = [ExactModes()]
    several = len(problem.orders) > 1
    alpha = problem.alpha_value
    if alpha == 1.0 and not several:
        if conserves_norm(problem):
            candidates.append(Yoshida4())
        known = {method.name for method in all_evolution_methods()}
        candidates += [find_evolution_method(name) for name in _FIRST_ORDER if name in known]
    if several and problem.linear and alpha <= 1.0:
        candidates.append(CorrectedQuadrature(4))
    if several or alpha >= 1.0:
        candidates.append(CorrectedQuadrature(2))
    if not problem.compatible:
        candidates.append(DiffusionL1())
    candidates += [DiffusionL2Sigma(), DiffusionL1()]
    refusals = []
    for method in candidates:
        reason = refusal(method, problem)
        if reason is None:
            words = method.reason(problem)
            if isinstance(method, DiffusionL1) and not several and not problem.compatible:
                words = "u0 does not have the boundary values, and L1 damps the layer that comes of it"
            return method, words
        refusals.append(reason)
    raise InvalidInputError(f"no method takes this equation: {'; '.join(dict.fromkeys(refusals))}")


def refusal(method: EvolutionMethod, problem: EvolutionProblem) -> str | None:
    """Why a method cannot advance a problem."""
    library = problem.xp.library
    if library not in method.libraries:
        return f"method={method.name!r} takes arrays of {' and '.join(sorted(method.libraries))}, and not of {library}"
    return method.refuses(problem)

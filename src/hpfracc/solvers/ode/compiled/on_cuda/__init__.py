"""Ensembles on a GPU with Numba: a thread for each trajectory, its right-hand side inside one kernel.

Asked for with ``backend="numba-cuda"``, or chosen where that ends sooner
(:mod:`~hpfracc.solvers.ode.compiled.on_cuda.choice`). This module imports no Numba, so that a question which cannot be
answered is refused without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpfracc.errors import BackendUnavailableError, InvalidInputError

if TYPE_CHECKING:
    from hpfracc.solvers.ode.method import Method
    from hpfracc.solvers.ode.options import Options
    from hpfracc.solvers.ode.problem import Problem

__all__ = ["NAME", "check", "is_asked", "refuse"]

#: What a user writes as ``backend=``.
NAME = "numba-cuda"

_METHODS = ("explicit_rectangle", "pece")


def is_asked(options: Options) -> bool:
    """Whether the user asked for these threads."""
    return options.backend == NAME


def check(problem: Problem, options: Options, method: Method) -> None:
    """Raise the reason why an ensemble cannot be solved by threads, with what to do instead."""
    asked = f"backend={NAME!r}"
    if problem.library != "numpy":
        raise BackendUnavailableError(
            f"{asked} takes arrays of NumPy, and y0 is of {problem.library}, which stays there; convert y0"
        )
    refusal = refuse(problem, options, method.name)
    if refusal is not None:
        raise InvalidInputError(f"{asked} {refusal}")


def refuse(problem: Problem, options: Options, method: str) -> str | None:
    """Why an ensemble of NumPy arrays cannot be solved by threads, with what to do instead; None if it can."""
    orders = problem.orders.known
    if method not in _METHODS:
        return f"steps by method={' or '.join(map(repr, _METHODS))}, and not by {method!r}; use one of these"
    if len(problem.shape) != 2:
        return f"takes an ensemble, y0 of shape (members, d), and y0 has shape {problem.shape}; reshape it"
    if problem.dtype.kind == "c":
        return f"takes real states, and y0 is {problem.dtype}; split it into real and imaginary parts"
    if problem.terms or problem.delays:
        return "takes one derivative and no delays; leave the backend out"
    if orders is None:
        return "takes constant orders; leave the backend out"
    if orders.ndim == 2 and not bool((orders == orders[:1]).all()):
        return "takes orders that all members share, one or one for each component; leave the backend out"
    if problem.derivative != "caputo":
        return f"takes Caputo's derivative, and not derivative={problem.derivative!r}; leave the backend out"
    if options.step is None:
        return "takes steps of one size; give step="
    if options.events:
        return "takes no events; look at the solution, or leave the backend out"
    if options.dense_output:
        return "has no dense_output; give t_eval"
    if options.progress:
        return "reports no progress: an ensemble is one kernel; leave progress out"
    if options.compile is False:
        return "compiles the right-hand side, and compile=False forbids it; leave one of them out"
    if options.estimate is True:
        return "makes no error estimate; compare with a smaller step, or leave the backend out"
    return None

"""Ensembles on a GPU with Numba: a thread for each trajectory, its right-hand side inside one kernel.

Used with ``backend="numba-cuda"``, or automatically if that is expected to be faster
(:mod:`~hpfracc.solvers.ode.compiled.on_cuda.choice`). This module does not import Numba, so unsupported problems are
refused without it.
"""

from __future__ import annotations

from typing import Any

from hpfracc.errors import BackendUnavailableError, InvalidInputError
from hpfracc.solvers.ode.problem import Problem
from hpfracc.solvers.stepping.options import Options

__all__ = ["NAME", "check", "is_asked", "refuse"]

#: The value of ``backend=``.
NAME = "numba-cuda"

_METHODS = ("explicit_rectangle", "pece")


def is_asked(options: Options) -> bool:
    """Whether the user requested this backend."""
    return options.backend == NAME


def check(problem: Problem, options: Options, method: Any) -> None:
    """Raise an error if an ensemble cannot be solved by this backend; the message says why and what to do instead."""
    if problem.library != "numpy":
        kind = f"y0 is an array of {problem.library}"
        raise BackendUnavailableError(f"backend={NAME!r} takes NumPy arrays, and {kind}; convert y0")
    refusal = refuse(problem, options, method.name)
    if refusal is not None:
        raise InvalidInputError(f"backend={NAME!r} {refusal}")


def refuse(problem: Problem, options: Options, method: str) -> str | None:
    """Why an ensemble of NumPy arrays cannot be solved by this backend, and what to do instead; None if it can."""
    orders = problem.orders.known
    if method not in _METHODS:
        return f"supports method={' or '.join(map(repr, _METHODS))}, not {method!r}; use one of these"
    if len(problem.shape) != 2:
        return f"takes an ensemble, y0 of shape (members, d), and y0 has shape {problem.shape}; reshape it"
    if problem.dtype.kind == "c":
        return f"takes real states, and y0 is {problem.dtype}; split it into real and imaginary parts"
    if problem.terms or problem.delays:
        return "takes one derivative and no delays; leave the backend out"
    if orders is None:
        return "takes constant orders; leave the backend out"
    if orders.ndim == 2 and not bool((orders == orders[:1]).all()):
        return "takes the same orders for all members, one or one for each component; leave the backend out"
    if problem.derivative != "caputo":
        return f"takes Caputo's derivative, not derivative={problem.derivative!r}; leave the backend out"
    if options.step is None:
        return "takes steps of equal size; give step="
    if options.events:
        return "takes no events; search the solution for them, or leave the backend out"
    if options.dense_output:
        return "has no dense_output; give t_eval"
    if options.progress:
        return "reports no progress: an ensemble is one kernel; leave progress out"
    if options.compile is False:
        return "compiles the right-hand side, and compile=False forbids it; leave one of them out"
    if options.estimate is True:
        return "makes no error estimate; compare with a smaller step, or leave the backend out"
    return None

"""Compiled loops over exponentials, where Numba is installed and wanted."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any

from hpfracc._optional import is_installed
from hpfracc.errors import BackendUnavailableError
from hpfracc.solvers.pde.problem import EvolutionProblem

__all__ = ["compiled_update", "wants_compiled"]

#: Below this number of unknowns the ordinary way is as quick as a call of the compiled one (benchmarks/pde.py).
_WORTH = 64


def wants_compiled(problem: EvolutionProblem) -> bool:
    """Whether loops of this problem run compiled."""
    if problem.xp.library != "numpy" or problem.compile is False or problem.backend == "numpy":
        return False
    asked = problem.compile is True or problem.backend == "numba"
    if not is_installed("numba"):
        if asked:
            raise BackendUnavailableError(
                "compile=True or backend='numba' needs Numba, which is not installed; pip install hpfracc[numba]"
            )
        return False
    return asked or math.prod(problem.state_shape) >= _WORTH


def compiled_update(problem: EvolutionProblem) -> Callable[..., Any] | None:
    """The update of a sum of exponentials, compiled; None for the ordinary one."""
    if not wants_compiled(problem):
        return None
    module = importlib.import_module("hpfracc.solvers.pde.compiled.exponentials")
    found: Callable[..., Any] = module.update
    return found

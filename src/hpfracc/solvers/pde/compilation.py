"""Compiled loops over exponentials, where Numba is installed and wanted."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Callable
from typing import Any

from hpfracc._optional import is_installed
from hpfracc.errors import BackendUnavailableError
from hpfracc.solvers.pde.problem import EvolutionProblem

__all__ = ["compiled_update", "wants_compiled"]

#: Seconds that the ordinary way takes for an unknown and a step, and that compiling takes where it was not done before
#: (rough figures of one machine): compiled is what takes longer than a fifth of that.
_SECONDS_A_STEP = 2.5e-5
_SECONDS_AN_UNKNOWN = 4e-8
_COMPILING = 2.0


def wants_compiled(problem: EvolutionProblem, steps: int) -> bool:
    """Whether loops of this problem over that number of steps run compiled."""
    if problem.xp.library != "numpy" or problem.compile is False or problem.backend == "numpy":
        return False
    asked = problem.compile is True or problem.backend == "numba"
    if not is_installed("numba"):
        if asked:
            raise BackendUnavailableError(
                "compile=True or backend='numba' needs Numba, which is not installed; pip install hpfracc[numba]"
            )
        return False
    if asked or "hpfracc.solvers.pde.compiled.marching" in sys.modules:
        return True
    estimate = steps * (_SECONDS_A_STEP + _SECONDS_AN_UNKNOWN * math.prod(problem.state_shape))
    return estimate > 0.2 * _COMPILING


def compiled_update(problem: EvolutionProblem, steps: int) -> Callable[..., Any] | None:
    """The update of a sum of exponentials, compiled; None for the ordinary one."""
    if not wants_compiled(problem, steps):
        return None
    module = importlib.import_module("hpfracc.solvers.pde.compiled.exponentials")
    found: Callable[..., Any] = module.update
    return found

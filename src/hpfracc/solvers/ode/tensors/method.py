"""What the methods for tensors and JAX arrays share."""

from __future__ import annotations

import time
from typing import ClassVar

from hpfracc.solvers.ode._method import Method
from hpfracc.solvers.ode._options import Options
from hpfracc.solvers.ode._problem import Problem
from hpfracc.solvers.ode._result import FODEResult
from hpfracc.solvers.ode.tensors.rule import Rule
from hpfracc.solvers.ode.tensors.solve import refuse, solve_tensors

__all__ = ["TensorMethod"]


class TensorMethod(Method):
    """A method that goes in blocks of steps, in the library and on the device of ``y0``, with derivatives."""

    __slots__ = ()

    libraries: ClassVar[frozenset[str]] = frozenset({"torch", "jax"})

    def refuses(self, problem: Problem, options: Options) -> str | None:
        """Needs constant orders, Caputo's derivative, and a step."""
        return refuse(problem, options, self.name)

    def solve(self, problem: Problem, options: Options) -> FODEResult:
        """Blocks of steps in the library of ``y0``."""
        return solve_tensors(problem, options, self._rule(), time.perf_counter())

    def _rule(self) -> Rule:
        """What one step does."""
        return Rule(self.name)

"""The explicit and the implicit product rectangle for tensors and JAX arrays."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import ClassVar, final

from hpfracc.solvers.ode._method import Method, register_method
from hpfracc.solvers.ode._options import Options
from hpfracc.solvers.ode._problem import Problem
from hpfracc.solvers.ode._result import FODEResult
from hpfracc.solvers.ode.tensors.rule import Rule
from hpfracc.solvers.ode.tensors.solve import refuse, solve_tensors

__all__ = ["TensorExplicitRectangle", "TensorImplicitRectangle"]


@register_method
@final
@dataclass(frozen=True, slots=True)
class TensorExplicitRectangle(Method):
    """The method of :class:`ExplicitRectangle` for PyTorch and JAX: order 1, one evaluation a step.

    In blocks, with derivatives, as :class:`TensorPECE`.
    """

    name: ClassVar[str] = "explicit_rectangle"
    aliases: ClassVar[tuple[str, ...]] = ("euler", "forward_euler")
    order: ClassVar[str] = "1"
    libraries: ClassVar[frozenset[str]] = frozenset({"torch", "jax"})

    def refuses(self, problem: Problem, options: Options) -> str | None:
        """Needs constant orders, Caputo's derivative, and a step."""
        return refuse(problem, options, self.name)

    def solve(self, problem: Problem, options: Options) -> FODEResult:
        """Blocks of steps in the library of ``y0``."""
        return solve_tensors(problem, options, Rule(self.name), time.perf_counter())


@register_method
@final
@dataclass(frozen=True, slots=True)
class TensorImplicitRectangle(Method):
    """The method of :class:`ImplicitRectangle` for PyTorch and JAX: order 1, the most damped, for stiff equations.

    The equations of a step, one for each member of an ensemble, are solved together: see
    :class:`TensorImplicitTrapezoid`.
    """

    name: ClassVar[str] = "implicit_rectangle"
    aliases: ClassVar[tuple[str, ...]] = ("backward_euler", "implicit_euler")
    order: ClassVar[str] = "1"
    libraries: ClassVar[frozenset[str]] = frozenset({"torch", "jax"})
    implicit: ClassVar[bool] = True

    def refuses(self, problem: Problem, options: Options) -> str | None:
        """Needs constant orders, Caputo's derivative, and a step."""
        return refuse(problem, options, self.name)

    def solve(self, problem: Problem, options: Options) -> FODEResult:
        """Blocks of steps in the library of ``y0``."""
        return solve_tensors(problem, options, Rule(self.name), time.perf_counter())

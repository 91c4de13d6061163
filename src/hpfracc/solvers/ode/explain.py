"""Explains how ``solve_fode`` would solve a problem, without solving it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hpfracc._optional import is_installed
from hpfracc.solvers.ode.compilation import compile_price, read_backend
from hpfracc.solvers.ode.compiled import on_cuda
from hpfracc.solvers.ode.compiled.on_cuda import choice
from hpfracc.solvers.ode.fixed.grid import make_grid
from hpfracc.solvers.ode.method import Method, noting
from hpfracc.solvers.ode.options import Options
from hpfracc.solvers.ode.problem import Problem
from hpfracc.solvers.ode.progress import only_the_start
from hpfracc.solvers.ode.result import FODEResult, SolveDecision

__all__ = ["SolveExplanation", "explain_solve"]


@dataclass(frozen=True, slots=True)
class SolveExplanation:
    """How an equation would be solved, and why.

    Attributes
    ----------
    method : str
        Name of the method.
    reason : str
        Why this method is used.
    order : str
        Its order of accuracy, and where that holds.
    steps : int or None
        Number of equal steps; None if the steps adapt to the tolerance.
    step : float or None
        Their size.
    stepping : str
        Description of the steps.
    compiling : str
        Whether the right-hand side would be compiled.
    """

    method: str
    reason: str
    order: str
    steps: int | None
    step: float | None
    stepping: str
    compiling: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return dataclasses.asdict(self)

    def __rich__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        return (
            f"solve_fode: method {self.method!r}, because {self.reason}\n  order: {self.order}\n"
            f"  steps: {self.stepping}\n  right-hand side: {self.compiling}"
        )


def explain_solve(solve_fode: Callable[..., FODEResult], *args: Any, **kwargs: Any) -> SolveExplanation:
    """The method that this call of ``solve_fode`` would use, and how.

    The arguments are read and checked as for a solve. With ``method="auto"`` and a step the right-hand side is called a
    few times at t0 and one step ahead, to check for stiffness. No steps are taken.
    """
    noted: list[tuple[Method, Problem, Options]] = []

    def note(method: Method, problem: Problem, options: Options) -> FODEResult:
        noted.append((method, problem, options))
        # Looks like a solve that was interrupted at once, which callers do not continue.
        result = only_the_start(problem, options)
        result.success = True
        result.decision = SolveDecision(method.name, "it was asked for by its name")
        return result

    token = noting.set(note)
    try:
        result = solve_fode(*args, **kwargs)
    finally:
        noting.reset(token)
    method, problem, options = noted[-1]
    assert result.decision is not None
    steps = step = None
    if not method.fixed:
        stepping = f"they adapt to rtol={options.rtol:g}, atol={options.atol}"
    elif kwargs.get("step") is None:
        stepping = f"halved until two solutions agree to rtol={options.rtol:g}, atol={options.atol}"
    else:
        grid = make_grid(problem.t0, problem.t1, float(kwargs["step"]))
        steps, step, stepping = grid.steps, grid.step, f"{grid.steps:,} of {grid.step:.6g}"
    compiling = _compiling(problem, options) + _moving(problem, options, method)
    chosen = result.decision
    return SolveExplanation(chosen.method, chosen.reason, method.order, steps, step, stepping, compiling)


def _compiling(problem: Problem, options: Options) -> str:
    if problem.library != "numpy":
        return f"called with arrays of {problem.library}, as it is given"
    if on_cuda.is_asked(options):
        return "compiled into a kernel with a GPU thread for each member (backend='numba-cuda')"
    if options.compile is True:
        return "compiled with Numba at once (compile=True)"
    if options.compile is False:
        return "called in Python (compile=False)"
    if read_backend(options) == "numpy":
        return "called in Python (the settings ask for NumPy, or rule Numba out)"
    price = compile_price(problem.fun)
    if price is None or not is_installed("numba"):
        return "called in Python (Numba is not installed, or the run is deterministic)"
    left = max(0.0, price.seconds - price.credited())
    return f"called in Python; compiled, if possible, once it has taken {left:.2g} s, the cost of compiling"


def _moving(problem: Problem, options: Options, method: Method) -> str:
    if problem.library != "numpy" or on_cuda.is_asked(options):
        return ""
    if choice.may_move(problem, options, method.name) and choice.has_gpu():
        return "; an ensemble whose members are independent moves to the GPU if it ends sooner there"
    return ""

"""Explains how ``solve_fpde`` would solve an equation, without solving it."""

from __future__ import annotations

import dataclasses
import inspect
import math
from dataclasses import dataclass
from typing import Any

from hpfracc.solvers.pde.driver import FIRST_STEPS, forecast_memory
from hpfracc.solvers.pde.solve import Question, exact_mesh, given_steps, read_question, solve_fpde

__all__ = ["EvolutionExplanation", "explain_evolution"]


_HISTORIES = {"direct": "direct sums", "exponentials": "a sum of exponentials", "fft": "Fourier transforms"}


@dataclass(frozen=True, slots=True)
class EvolutionExplanation:
    """How a partial differential equation would be solved, and why.

    Attributes
    ----------
    method : str
        The method in time.
    reason : str
        Why it was chosen.
    order : str
        Its order of accuracy, and where that holds.
    space : str
        The discretisation in space.
    accuracy : str
        The order of the discretisation in space.
    unknowns : int
        Number of values in a state.
    steps : int or None
        Number of steps; None if it depends on the tolerance.
    stepping : str
        Description of the steps.
    history : str
        How the memory would be summed: ``"direct"``, ``"exponentials"``, ``"fft"``, or ``"none"``.
    compiled : bool
        Whether the loop over the steps would run compiled.
    forecast_bytes : int
        Peak memory including saved frames; for the first mesh if the steps depend on the tolerance.
    notes : tuple of str
        Further remarks.
    """

    method: str
    reason: str
    order: str
    space: str
    accuracy: str
    unknowns: int
    steps: int | None
    stepping: str
    history: str
    compiled: bool
    forecast_bytes: int
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return dataclasses.asdict(self)

    def __rich__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        how = ", compiled" if self.compiled else ""
        past = _HISTORIES.get(self.history)
        return "\n".join(
            (
                f"solve_fpde: method {self.method!r}, because {self.reason}",
                f"  order in time: {self.order}",
                f"  space: {self.space}, {self.unknowns:,} unknowns, {self.accuracy}",
                f"  steps: {self.stepping}{how}" + (f"; the past by {past}" if past else ""),
                f"  memory: about {self.forecast_bytes / 2**20:,.1f} MiB",
                *(f"  note: {note}" for note in self.notes),
            )
        )


def explain_evolution(*args: Any, **kwargs: Any) -> EvolutionExplanation:
    """Explain what this call of ``solve_fpde`` would do.

    The arguments are read and checked as for a solve, which calls the reaction and the source once. No step is made.
    """
    given = inspect.signature(solve_fpde).bind(*args, **kwargs)
    given.apply_defaults()
    question = read_question(*given.args, **given.kwargs)
    problem, method, reason, options, save, _ = question
    with problem.xp.scope():
        steps, stepping = _steps(question)
        count = FIRST_STEPS if steps is None else steps
        forecast, _ = forecast_memory(problem, method, options, save, count)
        return EvolutionExplanation(
            method.name,
            reason,
            method.order,
            problem.space.name,
            problem.space.accuracy,
            math.prod(problem.state_shape),
            steps,
            stepping,
            method.history(problem, count),
            method.compiled(problem, count),
            forecast,
            tuple(problem.notes),
        )


def _steps(question: Question) -> tuple[int | None, str]:
    problem, method, _, options, _, _ = question
    if method.exact:
        count = len(exact_mesh(problem, options)) - 1
        return count, f"none; values at {count:,} times"
    if options.step is None:
        return None, (
            f"{FIRST_STEPS} and finer, until the error in time is within rtol={options.rtol:g}, atol={options.atol:g}"
        )
    count = given_steps(problem, options)
    lengths = method.mesh(problem, count)
    first, last = float(lengths[1] - lengths[0]), float(lengths[-1] - lengths[-2])
    if abs(first - last) > 1e-9 * last:
        return count, f"{count:,} from {first:.3g} to {last:.3g}"
    return count, f"{count:,} of {last:.6g}"

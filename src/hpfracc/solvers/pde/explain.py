"""Explains how ``solve_fpde`` would solve an equation, without solving it."""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass
from typing import Any

from hpfracc._results import PlainData
from hpfracc.solvers.pde.driver import FIRST_STEPS, exact_mesh, forecast_memory, given_steps
from hpfracc.solvers.pde.method import Question
from hpfracc.solvers.pde.methods.exact_contour import ExactContour
from hpfracc.solvers.pde.methods.exact_modes import ExactModes
from hpfracc.solvers.pde.refinement import GRID_SHARE
from hpfracc.solvers.pde.solve import read_question, refusal_of, solve_fpde

#: Relative error in time of the first mesh, from which the number of steps for a tolerance is guessed: methods of order
#: 2 took 4,096 steps at rtol = 1e-6 for smooth sources and reactions.
_FIRST_ERROR = 1.6e-2
#: Adaptive steps for each digit of the tolerance: 150 to 250 steps at rtol = 1e-5 and 1e-6 for smooth sources.
_STEPS_A_DIGIT = 40
_HISTORIES = {"direct": "direct sums", "exponentials": "a sum of exponentials", "fft": "Fourier transforms"}


@dataclass(frozen=True, slots=True)
class EvolutionExplanation(PlainData):
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
        Peak memory including saved frames; for ``likely_steps`` if the steps depend on the tolerance.
    likely_steps : int
        The number of steps for which memory is forecast: ``steps``, or a guess from the tolerance and the order of the
        method, for smooth data. Sources that oscillate or jump take more.
    bytes_per_step : int
        What each further step adds to the peak memory; 0 if only some frames are saved and the method keeps no history.
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
    likely_steps: int
    bytes_per_step: int
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        how = ", compiled" if self.compiled else ""
        past = _HISTORIES.get(self.history)
        return "\n".join(
            (
                f"solve_fpde: method {self.method!r}, because {self.reason}",
                f"  order in time: {self.order}",
                f"  space: {self.space}, {self.unknowns:,} unknowns, {self.accuracy}",
                f"  steps: {self.stepping}{how}" + (f"; the past by {past}" if past else ""),
                f"  memory: about {self.forecast_bytes / 2**20:,.1f} MiB" + self._more_memory(),
                *(f"  note: {note}" for note in self.notes),
            )
        )

    def _more_memory(self) -> str:
        if self.steps is not None:
            return ""
        more = f"{1000 * self.bytes_per_step / 2**20:,.2g} MiB more for each further 1,000"
        return f" for some {self.likely_steps:,} steps, and {more} (save= or t_eval keeps fewer frames)"


def explain_evolution(*args: Any, **kwargs: Any) -> EvolutionExplanation:
    """Explain what this call of ``solve_fpde`` would do.

    The arguments are read and checked as for a solve, which calls the reaction and the source once. No step is made.
    """
    given = inspect.signature(solve_fpde).bind(*args, **kwargs)
    given.apply_defaults()
    question = read_question(**given.arguments)
    problem, method, options, *_, reason = question
    with problem.xp.scope():
        steps, stepping = _steps(question)
        count = _likely_steps(question) if steps is None else steps
        forecast, _ = forecast_memory(question, count)
        more = forecast_memory(question, count + 1000)[0] - forecast
        first = "" if method.exact else "there are errors in time: "
        tried = [] if not problem.linear else [ExactModes()] if method.exact else [ExactModes(), ExactContour()]
        refusals = [] if method.name == "exact_modes" else [refusal_of(one, problem, options) for one in tried]
        notes = [*problem.notes, *(f"{first}{each}" for each in refusals if each is not None)]
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
            count,
            max(0, more) // 1000,
            tuple(notes),
        )


def _likely_steps(question: Question) -> int:
    """A guess at the steps that the tolerance takes."""
    options, order = question.options, question.method.convergence(question.problem)
    if question.method.chooses_steps:
        return int(min(options.max_steps, _STEPS_A_DIGIT * max(1.0, -math.log10(options.rtol))))
    factor = max(1.0, _FIRST_ERROR / max(options.rtol, 1e-14)) ** (1.0 / order)
    return int(min(options.max_steps, FIRST_STEPS * 2 ** math.ceil(math.log2(factor) - 1e-2)))


def _steps(question: Question) -> tuple[int | None, str]:
    problem, method, options, *_ = question
    if method.exact:
        count = len(exact_mesh(problem, options)) - 1
        return count, f"none; values at {count:,} times"
    if method.chooses_steps:
        return None, f"as the error in time needs them, within rtol={options.rtol:g}, atol={options.atol:g}"
    if options.step is None:
        balanced = options.estimate == "auto" and problem.xp.library == "numpy"
        return None, (
            f"{FIRST_STEPS} and finer, until the error in time is within rtol={options.rtol:g}, atol={options.atol:g}"
            + (f", or {GRID_SHARE:g} of the error of the grid (estimate=True: rtol alone)" if balanced else "")
        )
    count = given_steps(problem, options)
    lengths = method.mesh(problem, count)
    first, last = float(lengths[1] - lengths[0]), float(lengths[-1] - lengths[-2])
    if abs(first - last) > 1e-9 * last:
        return count, f"{count:,} from {first:.3g} to {last:.3g}"
    return count, f"{count:,} of {last:.6g}"

"""The common part of solves on a mesh: requested times, events, interrupts, and the result."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hpfracc._interrupts import raise_if_nested
from hpfracc.errors import InvalidInputError
from hpfracc.solvers.ode.events import EventWatch
from hpfracc.solvers.ode.options import Options
from hpfracc.solvers.ode.problem import Problem
from hpfracc.solvers.ode.progress import note_steps, progress_report
from hpfracc.solvers.ode.result import FODEResult, SolveDecision

__all__ = ["MeshSolution", "StepError", "walk_mesh", "without_estimate"]

Array = np.ndarray[Any, Any]

REACHED = "The end of the interval was reached."


def without_estimate(method: str) -> str:
    """Sentence for the message of a solution with a given step and no error estimate."""
    return f" method={method!r} estimates no error with a given step; without step it searches for a sufficient one."


class StepError(Exception):
    """A step could not be taken; the message says where, why, and what to do."""


class MeshSolution:
    r"""``sol(t)`` on a mesh :math:`t_j = t_0 + T (j/N)^r`: the cubic in j through the four nearest steps.

    In j, with :math:`r \alpha \ge 1`, a solution that begins like :math:`t^\alpha` is smooth.

    Parameters
    ----------
    problem : Problem
        The problem that was solved.
    length, steps, grading : float, int, float
        T, N, r.
    y : array, shape (rows, known)
        The solution at the first steps.
    end : float, optional
        The last time at which the solution is available, if that is not the last step.
    beginning : callable, optional
        Takes times after t0 and returns the part of the solution that is not smooth in j at the start, of shape (rows,
        times). The cubic interpolates the rest.
    """

    def __init__(
        self,
        problem: Problem,
        length: float,
        steps: int,
        grading: float,
        y: Array,
        end: float | None = None,
        beginning: Callable[[Array], Array] | None = None,
    ) -> None:
        self.beginning = beginning
        self.problem = problem.without_functions()
        self.length, self.steps, self.grading, self.y = length, steps, grading, y
        self.t_min = problem.t0
        if end is None:  # the last step is exactly t1, which t0 + (t1 - t0) may not be
            known = y.shape[1] - 1
            end = problem.t1 if known == steps else problem.t0 + length * (known / steps) ** grading
        self.t_max = end

    def __call__(self, t: Any) -> Array:
        """The solution at ``t``, of shape (..., d) + t.shape."""
        times = np.asarray(t, dtype=np.float64)
        flat = times.reshape(-1)
        slack = 1e-12 * max(abs(self.t_min), abs(self.t_max))
        if flat.size and not (flat.min() >= self.t_min - slack and flat.max() <= self.t_max + slack):
            raise InvalidInputError(
                f"the solution is known from {self.t_min:g} to {self.t_max:g}, not at {float(flat.min()):g} to "
                f"{float(flat.max()):g}; give times in that range"
            )
        tau = np.clip(flat - self.t_min, 0.0, self.length)
        place = self.steps * (tau / self.length) ** (1.0 / self.grading)
        known = self.y.shape[1]
        width = min(4, known)
        first = np.clip(np.floor(place).astype(np.int64) - 1, 0, known - width)
        x = place - first
        found = np.zeros((self.y.shape[0], flat.size), self.y.dtype)
        nodes, which = np.unique(first[None] + np.arange(width)[:, None], return_inverse=True)
        values = self.y[:, nodes]
        if self.beginning is not None:
            values = values - self.beginning(self.length * (nodes / self.steps) ** self.grading)
            found += self.beginning(tau)
        for j, column in enumerate(which.reshape(width, -1)):
            factors = [(x - i) / (j - i) for i in range(width) if i != j]
            found += values[:, column] * np.prod(np.stack([np.ones_like(x), *factors]), axis=0)
        return found.reshape(*self.problem.shape, *times.shape)


def walk_mesh(
    problem: Problem,
    options: Options,
    steps: int,
    grading: float,
    advance: Callable[[Array], Iterator[Array]],
    decision: SolveDecision,
    counts: Callable[[], tuple[int, int]],
    beginning: Callable[[Array], Array] | None = None,
) -> FODEResult:
    """Take the steps of ``advance(mesh)``, which yields flat states, and return the result.

    Parameters
    ----------
    advance : callable
        Takes the mesh, as times after t0, and returns an iterator over the states at its points after the first.
    counts : callable
        Returns the evaluations of the right-hand side and of the Jacobian so far.
    beginning : callable, optional
        See :class:`MeshSolution`; not called before the first step.
    """
    started = time.perf_counter()
    length = problem.t1 - problem.t0
    # Limited to one step more than is allowed, so that a huge mesh is not allocated.
    mesh = length * (np.arange(min(steps, options.max_steps + 1) + 1) / steps) ** grading
    states = [np.asarray(problem.y0).reshape(-1)]
    success, message, interrupted = True, REACHED, False
    with progress_report(options.progress, problem.t0, problem.t1, decision.method) as report:
        try:
            for state in advance(mesh):
                if not np.all(np.isfinite(state)):
                    if len(states) == 1 and not np.all(np.isfinite(problem.evaluate(problem.t0, np.array(problem.y0)))):
                        raise StepError(
                            f"The right-hand side is not finite at the start, t = {problem.t0:g}: correct it there."
                        )
                    raise StepError(
                        f"The solution is not finite at t = {problem.t0 + mesh[len(states)]:g}: take a smaller step, "
                        "or check whether the solution ends there."
                    )
                states.append(state)
                report(problem.t0 + mesh[len(states) - 1], lambda: states[-1].reshape(problem.shape))
                if len(states) > options.max_steps and len(states) <= steps:
                    raise StepError(
                        f"max_steps={options.max_steps} steps reach t = {problem.t0 + mesh[len(states) - 1]:g} of "
                        f"{problem.t1:g}: raise max_steps, or take a larger step."
                    )
        except StepError as error:
            success, message = False, str(error)
        except KeyboardInterrupt:
            raise_if_nested()
            success, interrupted = False, True
            message = f"Interrupted at t = {problem.t0 + mesh[len(states) - 1]:g}: here is the solution up to then."
    note_steps()
    if success and options.estimate is not False:
        message += without_estimate(decision.method)
    y = np.stack(states, axis=1)
    beginning = beginning if y.shape[1] > 1 else None
    solution = MeshSolution(problem, length, steps, grading, y, beginning=beginning)
    times = problem.t0 + mesh[: y.shape[1]]
    if times.size == steps + 1:
        times[-1] = problem.t1
    watch = EventWatch(options.events, problem.args)
    end = None
    if options.events and y.shape[1] > 1:
        end = watch.watch(times, y.reshape(*problem.shape, -1), solution)
    if end is not None:
        success, message = True, f"A terminal event happened at t = {end:g}."
        at_end = solution(end).reshape(-1, 1)
        kept = int(np.searchsorted(times, end))
        solution = MeshSolution(problem, length, steps, grading, y, end, beginning)
        times, y = np.append(times[:kept], end), np.concatenate([y[:, :kept], at_end], axis=1)
    if options.t_eval is not None:
        times = options.t_eval[options.t_eval <= solution.t_max]
        values = solution(times)
    else:
        values = y.reshape(*problem.shape, -1)
    happened = watch.collected(problem.shape, problem.dtype) if options.events else (None, None)
    nfev, njev = counts()
    return FODEResult(
        t=times,
        y=values,
        success=success,
        message=message,
        nfev=nfev,
        njev=njev,
        sol=solution if options.dense_output else None,
        stats={
            "steps": len(states) - 1,
            "step": float(np.diff(mesh).max()),
            "seconds": time.perf_counter() - started,
            "terminated": end is not None,
            "interrupted": interrupted,
        },
        decision=decision,
        t_events=happened[0],
        y_events=happened[1],
    )

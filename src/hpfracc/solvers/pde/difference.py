"""The stepping that L1 and L2-1sigma share."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from hpfracc.errors import InvalidInputError
from hpfracc.solvers.pde.compilation import compiled_update, wants_compiled
from hpfracc.solvers.pde.forms import FrameBlock, ModalForm, StepForm, choose_form
from hpfracc.solvers.pde.history.direct import DIRECT_BLOCK, DirectHistory
from hpfracc.solvers.pde.history.exponentials import ExponentialHistory, count_exponentials
from hpfracc.solvers.pde.history.weights import IntervalWeights
from hpfracc.solvers.pde.marching import can_march, march
from hpfracc.solvers.pde.nonlinear import ReactionSolver
from hpfracc.solvers.pde.problem import EvolutionProblem

__all__ = ["advance_differences", "check_choices", "chosen_history", "forecast_differences", "graded_mesh"]

Array = np.ndarray[Any, Any]

#: Steps from which on a sum of exponentials is taken; the two cross somewhere between 400 and 1,000.
EXPONENTIALS_FROM = 700
#: Relative tolerance of the kernel.
KERNEL_RTOL = 1e-11
MEMORIES = ("auto", "direct", "exponentials")
REACTIONS = ("newton", "imex")


def graded_mesh(t0: float, t1: float, steps: int, grading: float) -> Array:
    """``t_j = t0 + (t1 - t0) (j / steps)^grading``."""
    return np.asarray(t0 + (t1 - t0) * (np.arange(steps + 1) / steps) ** grading)


def check_choices(name: str, memory: str, reaction: str, stabilisation: float, grading: float | None) -> None:
    """The parameters of both methods."""
    if memory not in MEMORIES:
        raise InvalidInputError(f"{name}: memory={memory!r}; use {', '.join(map(repr, MEMORIES))}")
    if reaction not in REACTIONS:
        raise InvalidInputError(f"{name}: reaction={reaction!r}; use {', '.join(map(repr, REACTIONS))}")
    if not (math.isfinite(stabilisation) and stabilisation >= 0.0):
        raise InvalidInputError(f"{name}: stabilisation={stabilisation!r} has to be 0 or more")
    if stabilisation and reaction != "imex":
        raise InvalidInputError(f"{name}: stabilisation={stabilisation!r} belongs to reaction='imex'")
    if grading is not None and not (math.isfinite(grading) and grading >= 1.0):
        raise InvalidInputError(f"{name}: grading={grading!r} has to be 1 (uniform) or more")


def chosen_history(memory: str, steps: int) -> str:
    """``"direct"`` or ``"exponentials"``."""
    if memory != "auto":
        return memory
    return "direct" if steps < EXPONENTIALS_FROM else "exponentials"


def forecast_differences(problem: EvolutionProblem, memory: str, steps: int, weights: IntervalWeights) -> int:
    """Bytes of the memory and of the arrays of a step."""
    size = problem.itemsize * math.prod(problem.state_shape)
    if chosen_history(memory, steps) == "direct":
        own = DirectHistory.forecast(steps, size)
    else:
        own = ExponentialHistory.forecast(count_exponentials(weights, KERNEL_RTOL), size)
    return own + (DIRECT_BLOCK + 6) * size + problem.space.step_bytes()


def advance_differences(
    problem: EvolutionProblem,
    mesh: Array,
    *,
    sigma: Any,
    parabola: bool,
    memory: str,
    reaction: str,
    stabilisation: float,
) -> Iterator[Any]:
    r"""Steps of :math:`\sum_k A_{n,k} \Delta u_k = A u^* + F(t_n^*, u^*)`.

    With :math:`u^* = (1-\sigma) u_{n-1} + \sigma u_n`, for which it is solved:
    :math:`(A_{n,n}/\sigma - A) u^* = A_{n,n}/\sigma\, u_{n-1} - h_n + F`.
    """
    xp, form = problem.xp, choose_form(problem)
    times = mesh - mesh[0]
    steps = len(times) - 1
    weights = IntervalWeights(problem.orders, times, sigma, parabola=parabola, xp=xp)
    if wants_compiled(problem, steps) and can_march(problem, form):
        assert isinstance(form, ModalForm)
        kept = None
        if chosen_history(memory, steps) == "exponentials":
            kept = ExponentialHistory(weights, form.encode(problem.u0), KERNEL_RTOL)
            problem.stats["exponentials"] = len(kept.rates)
        problem.stats["compiled"] = True
        yield from march(problem, form, weights, mesh, kept)
        return
    u = form.encode(problem.u0)
    past: DirectHistory | ExponentialHistory
    if chosen_history(memory, steps) == "direct":
        past = DirectHistory(weights.rows, steps, u, xp)
    else:
        past = ExponentialHistory(weights, u, KERNEL_RTOL, compiled_update(problem, steps))
        problem.stats["exponentials"] = len(past.rates)
    solver = None if problem.linear else ReactionSolver(problem)
    before: Any = None
    block: list[Any] = []
    whole = parabola or not (isinstance(sigma, float) and sigma == 1.0)
    for n in range(1, steps + 1):
        own, history = past.begin(n)
        t = mesh[0] + weights.place(n)
        shift = own / sigma if whole else own
        rhs = shift * u if history is None else shift * u - history
        known = form.known(t)
        if known is not None:
            rhs = rhs + known
        if solver is None:
            star = form.solve(shift, rhs, u)
        else:
            # Linear extrapolation to the place of the step.
            ahead = (
                0.0 if n == 1 else weights.sigma * float(times[n] - times[n - 1]) / float(times[n - 1] - times[n - 2])
            )
            guess = u if before is None else u + ahead * (u - before)
            if reaction == "newton":
                star = solver.solve(t, shift, rhs, guess)
            else:
                star = _explicit(problem, form, t, shift, rhs, guess, stabilisation, twice=n == 1)
            before = u
        change = (star - u) / sigma if whole else star - u
        u = u + change
        past.remember(change)
        if not form.modal:
            yield u
            continue
        block.append(u)
        if len(block) == DIRECT_BLOCK or n == steps:
            yield _block(form, block)
            block = []


def _explicit(
    problem: EvolutionProblem,
    form: StepForm,
    t: Any,
    shift: Any,
    rhs: Any,
    guess: Any,
    stabilisation: float,
    *,
    twice: bool,
) -> Any:
    """The reaction at the extrapolated state; twice in the first step, which has nothing to extrapolate from."""
    reaction = problem.reaction
    assert reaction is not None
    star = form.solve(shift + stabilisation, rhs + reaction(t, guess) + stabilisation * guess, guess)
    if twice:
        star = form.solve(shift + stabilisation, rhs + reaction(t, star) + stabilisation * star, star)
    return star


def _block(form: StepForm, states: list[Any]) -> FrameBlock:
    xp = form.problem.xp
    return FrameBlock(len(states), lambda: form.decode(xp.stack(states)))

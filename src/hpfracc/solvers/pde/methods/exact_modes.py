"""Linear equations without time steps: each eigenfunction times a Mittag-Leffler function."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from hpfracc._arrays import to_host
from hpfracc.solvers.pde.method import EvolutionMethod, register_evolution_method
from hpfracc.solvers.pde.problem import EvolutionProblem, Feature, FrameBlock, StepForm
from hpfracc.special import mittag_leffler

Array = np.ndarray[Any, Any]

#: Values of the Mittag-Leffler function computed together: some 8 MiB.
_TOGETHER = 1 << 20
#: What exact methods take of data, and what to do about others.
STEADY = (
    "sources and boundary data that do not change in time; give numbers or arrays instead of functions of t, or use "
    "'l2_1sigma'"
)
#: Times at which events are looked for: in each factor e of time, in each period of a mode, and at most.
_A_SCALE, _A_PERIOD, _MOST_TIMES = 64, 64, 1 << 16


@final
@register_evolution_method
@dataclass(frozen=True, slots=True)
class ExactModes(EvolutionMethod):
    r"""Modes times :math:`E_\alpha(\lambda t^\alpha)`: exact in time, for linear equations with steady data.

    .. math:: \hat u(t) = E_\alpha(\lambda t^\alpha)\,\hat u_0 + t E_{\alpha,2}(\lambda t^\alpha)\,\hat u_0'
        + t^\alpha E_{\alpha,\alpha+1}(\lambda t^\alpha)\,\hat f

    with the eigenvalues :math:`\lambda \le 0` of the terms in space (or complex ones), for orders in (0, 2]. The mesh
    only sets where values are computed. Needs constant coefficients on a box, or a matrix that is symmetric up to a
    scale of the unknowns, of at most 2,000 of them; and sources and boundary data that are constant in time. A source
    outside the memory (``form="fokker_planck"``) has the factor :math:`t E_{\alpha,2}`.
    """

    name: ClassVar[str] = "exact_modes"
    order: ClassVar[str] = "exact in time"
    exact: ClassVar[bool] = True
    takes: ClassVar[frozenset[Feature]] = frozenset({Feature.OUTSIDE})

    def refuses(self, problem: EvolutionProblem) -> str | None:
        """Needs a single derivative, a linear equation, steady data and a diagonalised operator."""
        if not problem.linear:
            return "method='exact_modes' takes linear equations without a reaction"
        if len(problem.orders) > 1:
            return "method='exact_modes' takes one derivative in time"
        if problem.varies:
            return f"method='exact_modes' takes {STEADY}"
        accuracy = problem.rtol * (problem.t1 - problem.t0) ** -problem.alpha_value
        why = problem.space.lacks_modes(accuracy)
        return why and (
            f"method='exact_modes' needs an operator that is diagonalised, and {problem.space.name} is not: {why}; use "
            "'auto'"
        )

    def advance(self, problem: EvolutionProblem, mesh: Array) -> Iterator[Any]:
        """Yield blocks of times."""
        at = self.solution(problem)
        size = max(1, int(np.prod(at.problem.space.symbol.shape)))
        together = max(1, _TOGETHER // size)
        for first in range(1, len(mesh), together):
            times = mesh[first : first + together]
            yield FrameBlock(len(times), lambda times=times: at(times))  # type: ignore[misc]

    def solution(self, problem: EvolutionProblem) -> ModeSolution:
        """The unknowns at any times."""
        return ModeSolution(problem)

    def event_times(self, problem: EvolutionProblem, rtol: float) -> Array:
        r"""Geometric times, at most a fraction of a period apart as long as modes oscillate.

        A mode :math:`E_\alpha(\lambda t^\alpha)` changes over the time :math:`|\lambda|^{-1/\alpha}`. It oscillates
        with the imaginary part of :math:`\lambda^{1/\alpha}` until the real part has damped it. Modes below ``rtol``
        times the largest one are left out.
        """
        at = self.solution(problem)
        alpha, length = problem.alpha_value, problem.t1 - problem.t0
        symbol = np.asarray(to_host(problem.xp.stop_gradient(at.problem.space.symbol)), dtype=complex)
        parts = [at.start, at.velocity if at.outside is None else at.outside, at.known]
        hosts = [0.0 if part is None else np.abs(np.asarray(to_host(problem.xp.stop_gradient(part)))) for part in parts]
        # In units of u: velocities act for the time of a mode, and steady data give their equilibrium.
        scales = np.maximum(np.abs(symbol), length**-alpha) ** (-1.0 / alpha)  # at most the length
        sizes = np.broadcast_to(hosts[0] + scales * hosts[1] + scales**alpha * hosts[2], at.start.shape)
        sizes = sizes.reshape(-1, *symbol.shape).max(axis=0).reshape(-1)
        kept = sizes > rtol * sizes.max(initial=0.0)
        if not kept.any():
            return np.array([problem.t0, problem.t1])
        scale, sizes = scales.reshape(-1)[kept], sizes[kept] / sizes.max()
        # The singularities of the Laplace transform: lambda^(1/alpha) on the principal sheet.
        angles = np.angle(symbol.reshape(-1)[kept]) / alpha
        roots = np.where(np.abs(angles) <= math.pi, 1.0, 0.0) * np.exp(1j * angles) / scale
        turns, damping = np.abs(roots.imag), np.maximum(-roots.real, 0.0)
        ends = np.minimum(length, np.log(sizes / rtol) / np.maximum(damping, 1e-300))
        order = np.argsort(-turns)
        found, t = [0.0], float(scale.min()) * rtol ** max(1.0, 1.0 / alpha)
        while t < length:
            found.append(t)
            if len(found) > _MOST_TIMES:
                problem.notes.append(
                    f"events were looked for at {_MOST_TIMES:,} times up to t = {problem.t0 + t:g} and evenly spaced "
                    "times after it, fewer than the oscillations of the modes need"
                )
                found.extend(np.linspace(t, length, _MOST_TIMES)[1:-1])
                break
            turning = next((float(turns[k]) for k in order if ends[k] > t), 0.0)
            t += min(t / _A_SCALE, math.inf if turning == 0.0 else 2.0 * math.pi / (_A_PERIOD * turning))
        return np.asarray(problem.t0 + np.array([*found, length]))

    def forecast(self, problem: EvolutionProblem, steps: int) -> int:
        """Values of a block of times and their transforms, and eigenvectors that are still to be computed."""
        count = int(np.prod(problem.space.shape))
        vectors = 0 if problem.space.symbol is not None else 40 * count**2 * (problem.components or 1)
        size = int(np.prod(problem.state_shape)) * problem.itemsize
        return vectors + 4 * size * max(1, min(steps, _TOGETHER // max(1, count)))

    def reason(self, problem: EvolutionProblem) -> str:
        """There is no error in time."""
        how = "" if problem.space.symbol is not None else " by the eigenvectors of its matrix"
        return (
            f"the equation is linear with steady data, and its operator is diagonalised{how}: there is no error in time"
        )


class ModeSolution:
    """The solution of a linear equation with steady data at any times, as values at the unknown points.

    Parameters
    ----------
    problem : EvolutionProblem
        One that exact modes do not refuse.
    """

    def __init__(self, problem: EvolutionProblem) -> None:
        problem = dataclasses.replace(problem, space=problem.space.with_modes())
        form = StepForm(problem)
        self.start = form.encode(problem.u0)
        self.velocity = None if problem.du0 is None else form.encode(problem.du0)
        self.known = form.known(problem.t0)
        self.outside = None if problem.integrated is None else form.source(problem.t0)
        # Without the user's functions, which may not be picklable.
        self.problem = dataclasses.replace(problem, source=None, on_grid=None, stats=defaultdict(int), notes=[])

    def __call__(self, times: Array) -> Any:
        """Values at the times, of shape (times, *state)."""
        problem = self.problem
        gone = problem.xp.array(np.asarray(times) - problem.t0)
        return problem.space.backward(_modes(problem, gone, self.start, self.velocity, self.known, self.outside))

    def frame(self, t: float) -> Any:
        """The solution on the whole grid."""
        space = self.problem.space
        with self.problem.xp.scope():
            return space.embed(self(np.array([t]))[0] if t > self.problem.t0 else self.problem.u0, t)


def _modes(problem: EvolutionProblem, times: Any, start: Any, velocity: Any, known: Any, outside: Any) -> Any:
    """Coefficients at the times, of shape (times, *state); ``outside`` is a source outside the memory."""
    xp, alpha, symbol = problem.xp, problem.alpha, problem.space.symbol
    axes = symbol.ndim
    t = times.reshape(-1, *(1,) * axes)
    power = t**alpha
    z = symbol * power
    unlike = problem.components is not None and axes == len(problem.space.shape)

    def spread(factor: Any) -> Any:
        """Broadcast over the components if they share their eigenvalues."""
        return factor[:, None] if unlike else factor

    plain = isinstance(alpha, int | float) and alpha == 1
    first = xp.exp(z) if plain else mittag_leffler(z, alpha)
    total = spread(first) * start
    for rising in (velocity, outside):
        if rising is not None:
            total = total + spread(t * mittag_leffler(z, alpha, 2.0)) * rising
    if known is not None:
        total = total + spread(power * mittag_leffler(z, alpha, alpha + 1.0)) * known
    return total

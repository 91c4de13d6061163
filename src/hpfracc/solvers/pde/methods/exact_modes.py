"""Linear equations without time steps: each eigenfunction times a Mittag-Leffler function."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from hpfracc.solvers.pde.forms import FrameBlock, ModalForm
from hpfracc.solvers.pde.method import EvolutionMethod, register_evolution_method
from hpfracc.solvers.pde.problem import EvolutionProblem
from hpfracc.special import mittag_leffler

__all__ = ["ExactModes"]

Array = np.ndarray[Any, Any]

#: Values of the Mittag-Leffler function computed together: some 8 MiB.
_TOGETHER = 1 << 20


@final
@register_evolution_method
@dataclass(frozen=True, slots=True)
class ExactModes(EvolutionMethod):
    r"""Modes times :math:`E_\alpha(\lambda t^\alpha)`: exact in time, for linear equations with steady data.

    .. math:: \hat u(t) = E_\alpha(\lambda t^\alpha)\,\hat u_0 + t E_{\alpha,2}(\lambda t^\alpha)\,\hat u_0'
        + t^\alpha E_{\alpha,\alpha+1}(\lambda t^\alpha)\,\hat f

    with the eigenvalues :math:`\lambda \le 0` of the terms in space (or complex ones), for orders in (0, 2]. The mesh
    only sets where values are computed. Needs constant coefficients on a box, and sources and boundary data that are
    constant in time.
    """

    name: ClassVar[str] = "exact_modes"
    order: ClassVar[str] = "exact in time"
    libraries: ClassVar[frozenset[str]] = frozenset({"numpy", "torch", "jax"})
    exact: ClassVar[bool] = True

    def refuses(self, problem: EvolutionProblem) -> str | None:
        """Needs a single derivative, a linear equation, steady data and a diagonalised operator."""
        if problem.space.symbol is None:
            return "method='exact_modes' needs terms that a transform diagonalises: constant coefficients on a box"
        if not problem.linear:
            return "method='exact_modes' takes linear equations without a reaction"
        if len(problem.orders) > 1:
            return "method='exact_modes' takes one derivative in time"
        if problem.varies:
            return (
                "method='exact_modes' takes sources and boundary data that do not change in time; give numbers or "
                "arrays instead of functions of t, or use 'l2_1sigma'"
            )
        return None

    def advance(self, problem: EvolutionProblem, mesh: Array) -> Iterator[Any]:
        """Yield blocks of times."""
        form, xp = ModalForm(problem), problem.xp
        start = form.encode(problem.u0)
        velocity = None if problem.du0 is None else form.encode(problem.du0)
        known = form.known(problem.t0)
        size = max(1, int(np.prod(problem.space.symbol.shape)))
        together = max(1, _TOGETHER // size)
        for first in range(1, len(mesh), together):
            times = mesh[first : first + together] - problem.t0

            def make(times: Array = times) -> Any:
                return form.decode(_modes(problem, xp.array(times), start, velocity, known))

            yield FrameBlock(len(times), make)

    def forecast(self, problem: EvolutionProblem, steps: int) -> int:
        """Values of a block of times, and their transforms."""
        size = int(np.prod(problem.state_shape)) * problem.itemsize
        return 4 * size * max(1, min(steps, _TOGETHER // max(1, int(np.prod(problem.space.shape)))))

    def reason(self, problem: EvolutionProblem) -> str:
        """There is no error in time."""
        return "the equation is linear with constant coefficients and steady data on a box: there is no error in time"


def _modes(problem: EvolutionProblem, times: Any, start: Any, velocity: Any, known: Any) -> Any:
    """Coefficients at the times, of shape (times, *state)."""
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
    if velocity is not None:
        total = total + spread(t * mittag_leffler(z, alpha, 2.0)) * velocity
    if known is not None:
        total = total + spread(power * mittag_leffler(z, alpha, alpha + 1.0)) * known
    return total

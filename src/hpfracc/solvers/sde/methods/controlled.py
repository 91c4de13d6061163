r"""Euler methods with a control: the driving Brownian motion gets the drift u.

.. math:: dW \to dW + u(t, X)\,dt.

By Girsanov's theorem the relative entropy of the controlled paths to those without is
:math:`\tfrac12 E \int |u|^2 dt`; for a control that is constant over each step, as here, its integral is a sum over
the steps. That sum is stored as the last component of the state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

from hpfracc.errors import ShapeError
from hpfracc.solvers.sde.methods.markov_euler import MarkovEuler
from hpfracc.solvers.sde.methods.method import Carry, PathMethod, Weights
from hpfracc.solvers.sde.problem import NoisyProblem, Traits

__all__ = ["Controlled"]


@final
@dataclass(frozen=True)
class Controlled(PathMethod):
    """Applies another method to a noise with a drift.

    Attributes
    ----------
    method : PathMethod
        Euler's method, or that of the Caputo equation or of Markov factors.
    control : callable
        ``control(t, y, *args)`` with y of shape ``(paths, d)`` returns the drift of each noise, ``(paths, m)``; for
        Markov factors ``control(t, y, factors, *args)``, where they have the shape ``(paths, m, factors)``.
    """

    method: PathMethod
    control: Callable[..., Any]

    name = "controlled"
    order = "that of the method"

    def refuses(self, traits: Traits) -> str | None:
        """The reason of the method."""
        return self.method.refuses(traits)

    def weights(self, traits: Traits, alpha: Any, steps: int, h: float, hurst: Any = None) -> Weights:
        """Those of the method."""
        return self.method.weights(traits, alpha, steps, h, hurst)

    def increments(self, problem: NoisyProblem, weights: Weights, h: float, dz: Any) -> Any:
        """Those of the method."""
        return self.method.increments(problem, weights, h, dz)

    def begin(self, problem: NoisyProblem, weights: Weights, y: Any) -> Carry:
        """``y`` has an additional component: the integral."""
        return y, *self.method.begin(problem, weights, y[:, :-1])[1:]

    def advance(self, problem: NoisyProblem, weights: Weights, t: Any, h: Any, carry: Carry, dz: Any) -> Carry:
        """One step."""
        whole, rest = carry[0], carry[1:]
        y, noises = whole[:, :-1], problem.traits.noises
        seen = (rest[0],) if isinstance(self.method, MarkovEuler) else ()
        control = self.control(t, y, *seen, *problem.args)
        if tuple(control.shape) != (y.shape[0], noises):
            raise ShapeError(
                f"control returned shape {tuple(control.shape)}; return one number for each path and noise, "
                f"{(y.shape[0], noises)}"
            )
        dz = self.method.shifted(problem, weights, h, dz, control)
        moved = self.method.advance(problem, weights, t, h, (y, *rest), dz)
        spent = whole[:, -1:] + 0.5 * h * (control * control).sum(-1)[:, None]
        return problem.xp.concatenate([moved[0], spent], -1), *moved[1:]

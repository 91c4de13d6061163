r"""The Euler-Maruyama method for the Caputo equation, with fast memory.

.. math:: D^\alpha X = f(t, X) + g(t, X)\,\dot W, \qquad X_t = X_0 + \frac{1}{\Gamma(\alpha)} \int_0^t (t-s)^{\alpha-1}
    \left(f\,ds + g\,dW_s\right), \qquad \tfrac12 < \alpha < 1,

in the Ito sense. On older steps the kernel is replaced by its mean, a sum of exponentials with 8 digits, so the cost of
a step does not depend on the length of the history. On the newest step the integral of the noise is drawn exactly,
jointly with the increment. Strong order :math:`\alpha - 1/2` [1]. The implicit method, for stiff drifts, has the newest
value of the drift at the end of the step.

The means of the kernel over older steps are

.. math:: \frac{1}{h} \int_{jh}^{(j+1)h} \frac{s^{\alpha-1}}{\Gamma(\alpha)}\,ds = \sum_l w_l\,d_l^{\,j-1},
    \qquad j \ge 1

(:mod:`hpfracc.history.exponentials`). The rates do not depend on the order, the weights are smooth in it up to
:math:`\alpha = 1`. The history of a path is a sum over about 40 decaying states.

References
----------
1. M. Li, C. Huang, Y. Hu, "Numerical methods for stochastic Volterra integral equations with weakly singular
   kernels", IMA J. Numer. Anal. 42, 2022.
"""

from __future__ import annotations

import math
from typing import Any, final

import numpy as np

from hpfracc._xp import Namespace
from hpfracc.history.exponentials import Nodes, exponential_nodes, node_weights
from hpfracc.solvers.sde.methods.euler import solve_implicit_step
from hpfracc.solvers.sde.methods.method import Carry, KernelMethod, Weights, columns, computed, derivative_along
from hpfracc.solvers.sde.problem import NoisyProblem, Traits
from hpfracc.solvers.tensors.loops import scan


class CaputoMethod(KernelMethod):
    """Common part of methods for the Caputo equation: its weights, and the history."""

    remembers = True

    def refuses(self, traits: Traits) -> str | None:
        """Supports the Ito integral only."""
        if traits.interpretation not in (None, "ito"):
            return "equations of order below 1 are in the Ito sense; give interpretation='ito'"
        return None

    def weights(self, traits: Traits, alpha: Any, steps: int, h: float, hurst: Any = None) -> Weights:
        """Weights of the exponentials."""
        return kernel_weights(alpha, steps, h)

    def begin(self, problem: NoisyProblem, weights: Weights, y: Any) -> Carry:
        """The state, its first value, and an empty history."""
        rates = weights[0].shape[0]
        return y, y, problem.xp.zeros((rates, *y.shape), problem.traits.dtype, like=y)


class CaputoEuler(CaputoMethod):
    """Explicit in the noise; explicit or implicit in the drift."""

    name = "euler"
    order = "alpha - 1/2"

    def advance(self, problem: NoisyProblem, weights: Weights, t: Any, h: Any, carry: Carry, dz: Any) -> Carry:
        """One step."""
        y, first, states = carry
        decay, kernel, newest_drift, _, _ = weights
        noises, xp = problem.traits.noises, problem.xp
        strength = problem.diffusion(t, y)
        known = first + past(xp, kernel, states) + problem.apply(strength, dz[..., noises:])
        if self.implicit:
            y = solve_implicit_step(problem, t + h, newest_drift, known, y)
            slope = (y - known) / newest_drift  # the drift at y, to the accuracy of Newton's method
        else:
            slope = problem.drift(t, y)
            y = known + newest_drift * slope
        states = decayed(xp, decay, states, h * slope + problem.apply(strength, dz[..., :noises]))
        return y, first, states


#: Relative error of the kernel.
_RTOL = 1e-8


def _nodes(steps: int) -> Nodes:
    """Nodes for the steps that ended 1 to ``steps`` steps ago, in units of the step."""
    return exponential_nodes(0.0, 1.0, 1.0, max(steps, 2.0), _RTOL)


def count_rates(steps: int) -> int:
    """Number of decaying states of a component."""
    return _nodes(steps).logs.size + 1


def kernel_weights(alpha: Any, steps: int, h: float) -> tuple[Any, ...]:
    """Decays over a step, weights, and the integrals over the newest step: of the drift, and of the noise.

    Returns
    -------
    decay, weights : array, shape (rates,)
        The mean of the kernel over the step that ended j steps ago, j >= 1, is ``sum(weights * decay**(j - 1))``.
    drift : scalar
        The integral of the kernel over the newest step.
    cross, spread : scalar
        The integral of white noise over the newest step is ``cross dW + spread dV`` with another Brownian motion V,
        for orders above 1/2; ``cross`` is the mean of the kernel.
    """
    return np.exp(-_nodes(steps).rates), *computed(_weights, (alpha,), steps, h)


def _weights(xp: Namespace, alpha: Any, steps: int, h: float) -> tuple[Any, ...]:
    """Weights, without differences or quotients that lose digits near order 1."""
    power, nodes = 1.0 - alpha, _nodes(steps)
    gamma = xp.rgamma(xp.array(alpha))
    fast = nodes.rates[1:]
    means = np.concatenate([[1.0], np.exp(-fast) * -np.expm1(-fast) / fast])
    unit = xp.exp((alpha - 1.0) * math.log(h))
    weights = node_weights(xp, xp.array(power), nodes) * xp.array(means) * (unit * gamma)
    drift = h * unit * gamma / alpha
    cross = unit * gamma / alpha
    excess = 2.0 * alpha - 1.0
    spread = unit * gamma * power / (alpha * xp.sqrt(xp.where(excess > 0.0, excess, 1.0)))
    return weights, drift, cross, spread


def past(xp: Namespace, weights: Any, states: Any) -> Any:
    """``sum(weights * states)`` over the rates, for states of shape ``(rates, paths, d)``."""
    return xp.matmul(weights, states.reshape(states.shape[0], -1)).reshape(states.shape[1:])


def decayed(xp: Namespace, decay: Any, states: Any, change: Any) -> Any:
    """``decay * states + change``, in place in NumPy and in one pass in PyTorch."""
    if xp.library == "torch":
        return xp.module.addcmul(change, decay[:, None, None], states)
    if xp.library != "numpy":
        return decay[:, None, None] * states + change
    rows = states.reshape(states.shape[0], -1)
    rows *= decay[:, None]
    rows += change.ravel()
    return states


@final
class CaputoMilstein(CaputoMethod):
    r"""Milstein's method for the Caputo equation, with fast memory.

    Within a step the diffusion is expanded to first order along the path,

    .. math:: g(X_s) \approx g(X_{t_n}) + g'(X_{t_n})\,(X_s - X_{t_n}), \qquad t_n \le s < t_{n+1},

    instead of being constant. Its integrals against the kernel are iterated integrals of the noise and of the history,
    which have no closed form below order 1; they are sums over substeps, as many per step as there are steps. The
    strong order is :math:`2\alpha - 1` [1], twice that of Euler. Drift, diffusion and its derivative are evaluated once
    per step: the accuracy is that of Euler's method with the square of the step, with a similar number of random
    numbers and far fewer evaluations. Noises need not commute.

    References
    ----------
    1. M. Li, C. Huang, Y. Hu, "Numerical methods for stochastic Volterra integral equations with weakly singular
       kernels", IMA J. Numer. Anal. 42, 2022; A. Richard, X. Tan, F. Yang, "Discrete-time simulation of stochastic
       Volterra equations", Stochastic Process. Appl. 141, 2021.
    """

    name = "milstein"
    order = "2 alpha - 1"

    def parts(self, traits: Traits, steps: int) -> int:
        """Substeps: as many as there are steps, or one if the diffusion is constant."""
        return 1 if traits.additive else steps

    def weights(self, traits: Traits, alpha: Any, steps: int, h: float, hurst: Any = None) -> Weights:
        """Weights of the substeps."""
        parts = self.parts(traits, steps)
        return kernel_weights(alpha, steps * parts, h / parts)

    def increments(self, problem: NoisyProblem, weights: Weights, h: float, dz: Any) -> Any:
        """Shape ``(steps, parts, paths, 2 m)``."""
        total = dz.shape[0]
        steps = total if problem.traits.additive else round(total**0.5)
        parts = total // steps
        return super().increments(problem, weights, h / parts, dz).reshape(steps, parts, *dz.shape[1:])

    def advance(self, problem: NoisyProblem, weights: Weights, t: Any, h: Any, carry: Carry, dz: Any) -> Carry:
        """One step, over its substeps."""
        y, first, states = carry
        decay, kernel, newest_drift, _, _ = weights
        noises, xp = problem.traits.noises, problem.xp
        slope, held = problem.drift(t, y), problem.diffusion(t, y)
        follow = _linear(problem, t, y)
        part_of_drift = h / dz.shape[0] * slope

        def part(carry: Carry, row: tuple[Any, ...]) -> Carry:
            x, states = carry
            strength = held if follow is None else held + follow(x - y)
            moved = problem.apply(strength, row[0][..., noises:])
            x = first + past(xp, kernel, states) + newest_drift * slope + moved
            return x, decayed(xp, decay, states, part_of_drift + problem.apply(strength, row[0][..., :noises]))

        (moved, states), _ = scan(xp, part, (y, states), (dz,), keep=False)
        return moved, first, states


def _linear(problem: NoisyProblem, t: Any, y: Any) -> Any:
    """The change of the diffusion with that of the state, to first order; None if it is constant."""
    traits, xp = problem.traits, problem.xp
    if traits.additive:
        return None

    def diffusion(y: Any) -> Any:
        return problem.diffusion(t, y)

    if not (traits.general or traits.coupled):
        slope = derivative_along(xp, diffusion, y, xp.ones_like(y))
        return lambda change: slope * change
    slopes = columns(xp, diffusion, y)
    each = (..., None) if traits.general else ()

    def follow(change: Any) -> Any:
        return sum(slope * change[:, index : index + 1][each] for index, slope in enumerate(slopes))

    return follow

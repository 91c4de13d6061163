r"""Euler's method along a Markov approximation of fractional Brownian motion: a sum of Ornstein-Uhlenbeck factors.

.. math:: B_t = \sqrt{2H} \int_0^t (t-s)^{H-1/2}\,dW_s, \qquad E B_t^2 = t^{2H},

is the Riemann-Liouville process. On the newest step its integral is drawn exactly, jointly with the increment of W; on
older steps the kernel is replaced by its mean [1], and the means by a sum of exponentials,

.. math:: \frac{\sqrt{2H}}{h} \int_{jh}^{(j+1)h} s^{H-1/2}\,ds \approx \sum_k w_k\,d_k^{\,j-1}, \qquad j \ge 1,

so the history is a sum over a few factors, :math:`S_k \leftarrow d_k S_k + \Delta W`. Their decays do not depend on
H; the weights, from least squares, are smooth in it, and exact at :math:`H = 1/2`, where B is W. With 8 factors the
root mean square error of the sum over 100, 1,000 and 10,000 steps is 4e-5, 8e-4 and 4e-3 of the process at H = 0.1, and
less above.

References
----------
1. M. Bennedsen, A. Lunde, M. S. Pakkanen, "Hybrid scheme for Brownian semistationary processes", Finance Stoch. 21,
   2017.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, final

import numpy as np

from hpfracc._xp import Namespace
from hpfracc.errors import ShapeError
from hpfracc.solvers.sde.methods.method import Carry, KernelMethod, PathMethod, Weights, computed
from hpfracc.solvers.sde.problem import NoisyProblem, Traits

#: Rates of the factors: the slowest times the interval, and the fastest times the step.
_SLOWEST, _FASTEST = 0.5, 2.0
#: Singular values of the least squares below this fraction of the largest are dropped.
_CUTOFF = 1e-11


@final
@dataclass(frozen=True)
class MarkovEuler(KernelMethod):
    """Explicit in drift and noise; the argument ``alpha`` is H.

    Attributes
    ----------
    factors : int
        Number of exponentials, at least 2; the first is constant.
    """

    factors: int = 8

    name = "markov"
    order = "2H - 1 for H > 1/2 and multiplicative noise; additive noise 1, or H + 1/2 below H = 1/2"

    def refuses(self, traits: Traits) -> str | None:
        """Supports only the Brownian motion that drives the factors."""
        return None if traits.hurst == 0.5 else "the factors are driven by noise.Brownian(); use that"

    def weights(self, traits: Traits, alpha: Any, steps: int, h: float, hurst: Any = None) -> Weights:
        """Decays and weights of the factors; for the newest step the part along dW, and the rest."""
        return _projection(steps, self.factors)[0], *computed(_weights, (alpha,), steps, h, self.factors)

    def begin(self, problem: NoisyProblem, weights: Weights, y: Any) -> Carry:
        """The state, the factors of shape ``(paths, noises, factors)``, and the noise so far, all zero."""
        shape, dtype = (y.shape[0], problem.traits.noises), problem.traits.dtype
        return y, problem.xp.zeros((*shape, self.factors), dtype, like=y), problem.xp.zeros(shape, dtype, like=y)

    def advance(self, problem: NoisyProblem, weights: Weights, t: Any, h: Any, carry: Carry, dz: Any) -> Carry:
        """One step."""
        y, factors, level = carry
        decay, kernel, _, _ = weights
        noises = problem.traits.noises
        moved = problem.xp.matmul(factors, kernel) + dz[..., noises:]
        y = y + h * problem.drift(t, y) + problem.apply(problem.diffusion(t, y), moved - level)
        return y, decay * factors + dz[..., :noises, None], moved


@lru_cache(maxsize=16)
def _projection(steps: int, factors: int) -> tuple[np.ndarray, np.ndarray]:
    """Decays over a step, and the matrix of the least squares from means over older steps to weights.

    Errors of the kernel at short times affect more steps, and are weighted accordingly.
    """
    rates = np.append(0.0, np.geomspace(_SLOWEST / steps, _FASTEST, factors - 1))
    lags = np.arange(1.0, steps)
    root = np.sqrt(steps - lags)
    powers = np.exp(-np.outer(lags - 1.0, rates))
    project = np.linalg.pinv(root[:, None] * powers, rcond=_CUTOFF) * root
    decay = np.exp(-rates)
    decay.flags.writeable = project.flags.writeable = False
    return decay, project


def _weights(xp: Namespace, hurst: Any, steps: int, h: float, factors: int) -> tuple[Any, ...]:
    project = _projection(steps, factors)[1]
    power = hurst + 0.5
    scale = xp.sqrt(2.0 * hurst) * xp.exp((hurst - 0.5) * math.log(h)) / power
    ages = np.arange(2.0, steps + 1.0)
    # ages^power - (ages - 1)^power, without cancellation.
    means = -xp.expm1(power * xp.array(np.log1p(-1.0 / ages))) * xp.power(ages, power)
    # The difference from the kernel of W, which the constant factor represents exactly.
    first = np.zeros(project.shape[0])
    first[0] = 1.0
    kernel = xp.array(first) + xp.matmul(xp.array(project), scale * means - 1.0)
    # Given dW, the integral has the variance h^(2H) (1 - 2H / power^2), a square.
    spread = (0.5 - hurst) / power * xp.exp((hurst - 0.5) * math.log(h))
    return kernel, scale, spread


@final
@dataclass(frozen=True)
class Controlled(PathMethod):
    r"""Another method along a noise with a drift: the driving Brownian motion becomes :math:`dW + u(t, X)\,dt`.

    By Girsanov's theorem the relative entropy of the controlled paths to those without is
    :math:`\tfrac12 E \int |u|^2 dt`; for a control that is constant over each step, as here, its integral is a sum over
    the steps. That sum is stored as the last component of the state.

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

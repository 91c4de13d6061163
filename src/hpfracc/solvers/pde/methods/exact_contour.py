"""Linear equations without time steps, from their Laplace transform: one sparse solve for each node of a contour."""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from hpfracc.history.intervals import order_value
from hpfracc.solvers.pde.method import EvolutionMethod, register_evolution_method
from hpfracc.solvers.pde.methods.exact_modes import STEADY
from hpfracc.solvers.pde.problem import EvolutionProblem, Feature, FrameBlock

Array = np.ndarray[Any, Any]

#: The quotient of the times that share a contour, and its nodes above the real axis: the error is 5e-12.
_RATIO, _NODES = 10.0, 26
#: Times of values computed together: some 16 MiB.
_TOGETHER = 1 << 21
#: Times in each factor e of time at which events are looked for, from this share of the interval on.
_A_SCALE, _EARLIEST = 32, 1e-6
#: Parts of the interval at which orders are compared, to see whether they depend on t.
_PROBES = np.array([0.0, 0.31, 0.77, 1.0])


@final
@register_evolution_method
@dataclass(frozen=True, slots=True)
class ExactContour(EvolutionMethod):
    r"""The inverse Laplace transform by a quadrature rule on a hyperbola: exact in time up to 1e-11.

    .. math:: u(t) = \frac{1}{2\pi i} \int e^{zt} (\sigma(z) - A)^{-1} \frac{\sigma(z) u_0 + f}{z}\,dz,
        \qquad \sigma(z) = \sum_i c_i z^{\alpha_i}

    26 sparse factorisations serve all times within a factor of 10. For linear equations of orders up to 1 with steady
    data, a matrix whose eigenvalues are real and not positive, of any size, and coefficients that are not negative:
    then the transform is analytic but for the negative axis. Orders may vary in space, and there may be several terms.

    References
    ----------
    J. A. C. Weideman, L. N. Trefethen, "Parabolic and hyperbolic contours for computing the Bromwich integral", Math.
    Comp. 76, 2007.
    """

    name: ClassVar[str] = "exact_contour"
    order: ClassVar[str] = "exact in time, up to 1e-11"
    libraries: ClassVar[frozenset[str]] = frozenset({"numpy"})
    exact: ClassVar[bool] = True
    takes: ClassVar[frozenset[Feature]] = frozenset({Feature.OUTSIDE, Feature.VARIABLE})

    def refuses(self, problem: EvolutionProblem) -> str | None:
        """Needs a linear equation, steady data, orders up to 1, and a matrix with real eigenvalues."""
        needs = f"method={self.name!r} takes "
        if not problem.linear or problem.components is not None:
            return needs + "one linear equation without a reaction"
        if problem.varies:
            return needs + STEADY
        if max(order_value(order) for _, order in problem.orders) > 1.0:
            return needs + "orders up to 1"
        if np.iscomplexobj(problem.u0):
            return needs + "real states"
        if problem.varying is not None:
            t = problem.t0 + _PROBES * (problem.t1 - problem.t0)
            first, *others = (problem.varying.at(float(each)) for each in t)
            if any(np.any(each != first) for each in others):
                return needs + "orders that do not change in time"
        why = problem.space.lacks_resolvent()
        return why and f"{needs}a matrix with real eigenvalues, in real numbers, and {problem.space.name}: {why}"

    def advance(self, problem: EvolutionProblem, mesh: Array) -> Iterator[Any]:
        """Yield blocks of times."""
        at = self.solution(problem)
        together = max(1, _TOGETHER // math.prod(problem.state_shape))
        for first in range(1, len(mesh), together):
            times = mesh[first : first + together]
            yield FrameBlock(len(times), lambda times=times: at(times))  # type: ignore[misc]

    def solution(self, problem: EvolutionProblem) -> ContourSolution:
        """The unknowns at any times."""
        return ContourSolution(problem)

    def event_times(self, problem: EvolutionProblem, rtol: float) -> Array:
        """Geometric times: solutions of such equations do not oscillate."""
        count = math.ceil(-math.log(_EARLIEST) * _A_SCALE)
        gone = (problem.t1 - problem.t0) * np.append(0.0, np.geomspace(_EARLIEST, 1.0, count))
        return np.asarray(np.append(problem.t0 + gone[:-1], problem.t1))

    def forecast(self, problem: EvolutionProblem, steps: int) -> int:
        """The values at the nodes of some contours, and the factors of a sparse matrix."""
        return 16 * math.prod(problem.state_shape) * (3 * _NODES + 40)

    def reason(self, problem: EvolutionProblem) -> str:
        """There is no error in time."""
        return (
            "the equation is linear with steady data, and its Laplace transform is known by sparse solves: there is no "
            "error in time"
        )


@functools.cache
def _hyperbola() -> tuple[Array, Array]:
    """Nodes times the latest time, and weights over it, of the best angle."""
    phi = np.linspace(0.25 * math.pi, 0.5 * math.pi, 4002)[1:-1]
    arc = np.arccosh(((math.pi - 2.0 * phi) * _RATIO + 4.0 * phi - math.pi) / ((4.0 * phi - math.pi) * np.sin(phi)))
    best = int(((math.pi**2 - 2.0 * math.pi * phi) / arc).argmax())
    angle, length = phi[best], arc[best]
    scale = (4.0 * math.pi * angle - math.pi**2) / length * _NODES
    u = (np.arange(_NODES) + 0.5) * length / _NODES
    z = scale * (1.0 + np.sin(1j * u - angle))
    return z, 1j * scale * np.cos(1j * u - angle) * length / (_NODES * math.pi)


class ContourSolution:
    """The solution of a linear equation with steady data at any times, as values at the unknown points.

    Parameters
    ----------
    problem : EvolutionProblem
        One that the method does not refuse.
    """

    def __init__(self, problem: EvolutionProblem) -> None:
        self._start = np.asarray(problem.u0, dtype=float)
        zero = np.zeros(problem.state_shape)
        known = problem.known(problem.t0)
        self._known = None if known is None else known + zero
        outside = problem.integrated is not None and problem.source is not None
        self._outside = problem.source(problem.t0) + zero if outside and problem.source is not None else None
        self._order = None if problem.varying is None else np.broadcast_to(problem.varying.at(problem.t0), zero.shape)
        self._solve = problem.space.resolvent()
        # Without the user's functions, which may not be picklable.
        space = copy.copy(problem.space)
        if hasattr(space, "setting"):
            space.setting = dataclasses.replace(space.setting, terms=())
        self.problem = dataclasses.replace(
            problem, space=space, source=None, on_grid=None, varying=None, stats=defaultdict(int), notes=[]
        )
        self._contours: dict[int, tuple[Array, Array]] = {}

    def _contour(self, number: int) -> tuple[Array, Array]:
        """Nodes, and the transform there times the weights, for the times in this factor before the end."""
        if number not in self._contours:
            latest = (self.problem.t1 - self.problem.t0) * _RATIO**-number
            z, weights = (part / latest for part in _hyperbola())
            values = np.stack([self._transform(complex(node)) for node in z])
            self._contours[number] = z, weights[:, None] * values.reshape(len(z), -1)
        return self._contours[number]

    def _transform(self, z: complex) -> Array:
        shift: Any = sum(c * z**order for c, order in self.problem.orders) if self._order is None else z**self._order
        right = shift * self._start
        if self._known is not None:
            right = right + self._known
        if self._outside is not None:
            right = right + shift / z * self._outside
        return np.asarray(self._solve(shift, right / z))

    def __call__(self, times: Array) -> Array:
        """Values at the times, of shape (times, *state)."""
        gone, length = np.asarray(times) - self.problem.t0, self.problem.t1 - self.problem.t0
        numbers = np.maximum(np.floor(np.log(length / gone) / math.log(_RATIO) - 1e-9), 0.0).astype(int)
        found = np.empty((gone.size, self._start.size))
        for number in np.unique(numbers):
            here = numbers == number
            z, values = self._contour(int(number))
            factors = np.exp(np.multiply.outer(gone[here], z))
            found[here] = factors.real @ values.imag + factors.imag @ values.real
        return found.reshape(gone.size, *self._start.shape)

    def frame(self, t: float) -> Any:
        """The solution on the whole grid."""
        return self.problem.space.embed(self(np.array([t]))[0] if t > self.problem.t0 else self.problem.u0, t)

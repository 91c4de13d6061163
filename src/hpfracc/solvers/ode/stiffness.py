r"""Stability of fixed steps, for the choice between explicit and implicit ones.

That is how large :math:`h^\alpha |\lambda|` may be for which :math:`\arg\lambda`.

For :math:`D^\alpha y = \lambda y` a method is a convolution, and its solution behaves like :math:`\xi^{-n}`, where
:math:`\xi` is the zero of least modulus of a polynomial in :math:`z = h^\alpha \lambda` whose coefficients are the
generating functions of the weights: :math:`1 - z W(\xi)` for one sum, and for PECE with m corrections

.. math:: 1 - z \big(A(\xi) - a_0\big) \sum_{i<m} (a_0 z)^i - a_0^m z^{m+1} B(\xi).

On each ray the first z with a zero at :math:`|\xi| = e^{-\epsilon}` ends the region of stability (C. Lubich, IMA J.
Numer. Anal. 6 (1986) 87-101; R. Garrappa, Int. J. Comput. Math. 87 (2010) 2281-2290). The solution itself decays for
:math:`|\arg\lambda| > \alpha\pi/2` (D. Matignon, 1996); where it grows there is nothing to be stable.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy.special import rgamma

from hpfracc._xp import NUMPY
from hpfracc.solvers.ode.fixed.scheme import cached_weights
from hpfracc.solvers.ode.problem import Problem, RightHandSide, jacobian_source
from hpfracc.solvers.stepping.jacobian import DENSE_BELOW

Array = np.ndarray[Any, Any]

#: Implicit steps are used above this fraction of the largest stable ``h^alpha |lambda|``.
LIMIT = 0.9
#: Growth of the solution at which the stability of the steps is checked, and number of points for that.
GROWTH = 100.0
GROWTH_POINTS = 5
#: Growth for each step that counts as stable, as a rate: slower growth is an error like others, and is estimated.
_RATE = 0.02
#: Weights in the generating functions, whose tail is below 1e-9 at that rate.
_LENGTH = 1024
#: Intervals of the angle from 0 to pi.
_INTERVALS = 128
#: Iterations to find the largest eigenvalue of a large system.
_ITERATIONS = 12
#: An eigenvalue whose angle is less than this fraction below ``alpha pi/2`` counts as one that does not grow.
_MARGIN = 0.03


class StiffError(Exception):
    """The equation is too stiff for this method; the message says where and how much."""


class StabilityLimits:
    """The region of stability of a method with a fixed step, for each member of a batch.

    Parameters
    ----------
    orders : array, shape (..., d)
        The orders, in the shape of the state.
    step : float
        The step.
    rule : StepMethod
        The method.
    """

    def __init__(self, orders: Array, step: float, rule: Any) -> None:
        self.scale = step**orders
        # A member with several orders: eigenvalues count as decaying if they do at the smallest one.
        members = orders.reshape(-1, orders.shape[-1])
        self.least = members.min(axis=1, keepdims=True)
        ends = np.concatenate([self.least, members.max(axis=1, keepdims=True)], axis=1)
        distinct, which = np.unique(ends, return_inverse=True)
        radii = np.stack([stable_radii(rule, float(each)) for each in distinct])
        self.radii = radii[which.reshape(ends.shape)].min(axis=1)
        angles = np.linspace(np.pi / self.radii.shape[1], np.pi, self.radii.shape[1])  # the upper ends
        relevant = angles >= np.minimum(0.5 * np.pi * self.least, np.pi)
        self._smallest = np.where(relevant, self.radii, np.inf).min(axis=1)

    def number(self, matrices: Array, above: float = 0.0) -> float:
        """The stability number of Jacobians times ``h^alpha``, of shape (..., d, d); see :class:`StiffnessGuard`."""
        if not np.all(np.isfinite(matrices)):
            return 0.0
        matrices = matrices.reshape(-1, *matrices.shape[-2:])
        with np.errstate(over="ignore", invalid="ignore"):
            squares = np.einsum("nij,nij->n", matrices, matrices.conj()).real  # of Frobenius' norm
            chosen = np.isfinite(self._smallest) & (squares > (above * self._smallest) ** 2)
        found = np.linalg.eigvals(matrices[chosen])
        return float(np.max(stability_number(found, self.least[chosen], self.radii[chosen]), initial=0.0))


class StiffnessGuard:
    """Compares the eigenvalues of the Jacobian with the region of stability of a method with a fixed step.

    Parameters
    ----------
    problem : Problem
        The equation, with known orders.
    step : float
        The step.
    rule : StepMethod
        The method.
    """

    def __init__(self, problem: Problem, step: float, rule: Any) -> None:
        self.problem, self.step, self.rule = problem, step, rule
        self._fun: Any = RightHandSide(problem)
        self._slopes = jacobian_source(problem, self._fun)
        self._limits = self.limits(problem.orders.known)
        self._scale: Any = self._limits.scale
        self._ahead = self._scale * rgamma(np.broadcast_to(np.asarray(problem.orders.known), problem.shape) + 1.0)

    def limits(self, orders: Any) -> StabilityLimits:
        """For known orders."""
        whole = np.broadcast_to(np.asarray(orders, dtype=np.float64), self.problem.shape)
        return StabilityLimits(whole, self.step, self.rule)

    @property
    def evaluations(self) -> int:
        """Evaluations of the right-hand side so far."""
        return int(self._fun.count)

    def number(self, t: float, y: Array, above: float = 0.0) -> float:
        """The largest ``h^alpha |lambda|`` over its stable limit, of eigenvalues whose solutions do not grow; or 0.

        Eigenvalues are not computed for members of a batch for which a norm shows that this is at most ``above``.
        """
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            return self._limits.number(self.matrices(t, y), above)

    def matrices(self, t: Any, y: Any) -> Any:
        """``h^alpha`` times the Jacobian of each member, (..., d, d); of large ones the largest eigenvalues only."""
        if y.shape[-1] > DENSE_BELOW:  # all eigenvalues would take too long
            return rotation(np, partial(self._fun, t), y, self._scale)
        slopes = self._slopes(t, y, self._fun(t, y)).reshape(*y.shape, y.shape[-1])
        return self._scale[..., None] * slopes

    def look_ahead(self) -> None:
        """Check the start and the end of an explicit step from it, where new rates may appear."""
        t, y = self.problem.t0, self.problem.y0
        self(t, y)
        value = self._fun(t, y)
        if np.isfinite(value).all():
            with np.errstate(over="ignore", invalid="ignore"):
                self(t + self.step, y + self._ahead * value)

    def __call__(self, t: float, y: Array) -> None:
        """Check one point; raises :class:`StiffError` if a step would not be stable."""
        found = self.number(t, y, LIMIT)
        if found > LIMIT:
            raise StiffError(f"h^alpha |lambda| is {found:.3g} times its largest stable value at t = {t:g}")


def rotation(xp: Any, fun: Callable[[Any], Any], y: Any, scale: Any) -> Any:
    """A matrix (..., 2, 2) for each member, with about the largest eigenvalues of ``scale df/dy``.

    By power iteration on differences of ``fun``; the angle by which a vector is turned is that of the eigenvalues.
    """

    def norm(value: Any) -> Any:
        return xp.sqrt((abs(value) ** 2).sum(-1))[..., None]

    value = fun(y)
    reach = xp.maximum(norm(y), norm(scale * value))
    width = float(xp.finfo(y.dtype).eps) ** (1.0 / 3.0) * xp.where(reach > 0.0, reach, 1.0 + 0.0 * reach)
    direction = xp.where(value == 0.0, 1.0 + 0.0 * value, value)
    along = size = norm(0.0 * y)
    for _ in range(_ITERATIONS):
        length = norm(direction)
        unit = direction / xp.where(length > 0.0, length, 1.0 + 0.0 * length)
        moved = scale * (fun(y + width * unit) - value) / width
        along, size, direction = (unit.conj() * moved).real.sum(-1)[..., None], norm(moved), moved
    across = xp.sqrt(xp.maximum(size**2 - along**2, 0.0 * size))
    return xp.stack([xp.concatenate([along, -across], -1), xp.concatenate([across, along], -1)], -2)


def unstable_growth(
    sizes: Array, time: Callable[[int], float], number: Callable[[int], float], name: str, turned: bool = False
) -> str | None:
    """Why a solution has grown where the equation does not let it; None if it has not.

    Parameters
    ----------
    sizes : array, shape (N + 1,)
        Size of the solution at each step, 0 where it is not finite.
    time, number : callables
        The time of a step, and the stability number there: above 1 an eigenvalue of the Jacobian lies outside of the
        region of stability.
    name : str
        The method.
    turned : bool
        Whether the equation itself is known to turn the solution back where it grows.
    """
    grown = np.flatnonzero(sizes > GROWTH * sizes[:2].max())
    if not grown.size:
        return None
    numbers = [0.0, 0.0]
    if not turned:
        points = grown[np.unique(np.linspace(0, grown.size - 1, GROWTH_POINTS).astype(int))].tolist()
        numbers += [number(n) for n in points]
        if sorted(numbers)[-2] <= 1.0:  # not by one point alone
            return None
    why = f": h^alpha |lambda| is {max(numbers):.3g} times its largest value for {name!r}" if max(numbers) else ""
    return (
        f"The solution grows by more than the equation can, from t = {time(int(grown[0])):g} on, because the steps are "
        f"not stable{why}. Take a smaller step, an implicit method, or no step."
    )


def stable_radii(rule: Any, alpha: float) -> Array:
    """Largest stable ``h^alpha |lambda|`` in each of 128 intervals of ``|arg lambda|`` from 0 to pi; inf if unbounded.

    Parameters
    ----------
    rule : StepMethod
        The method.
    alpha : float
        The order.
    """

    def make(alpha: float, n: int) -> tuple[Array]:
        return (_radii(_boundary(rule, alpha)),)

    # A limit that is accurate to a hundredth need not be computed for every order of a fit or an ensemble.
    alpha = max(round(alpha, 2), 0.01)
    (found,) = cached_weights(("stable radii", rule.name, rule.corrections), alpha, _INTERVALS, make)
    return found


def stability_number(z: Any, alpha: Any, radii: Array) -> Array:
    """``|z|`` over its largest stable value, for each ``z = h^alpha lambda``; 0 where the solution itself grows.

    Parameters
    ----------
    z : array_like of complex, shape (..., d)
        Eigenvalues of the Jacobian times ``h^alpha``.
    alpha : float or array, shape (..., 1)
        The order.
    radii : array, shape (128,) or (..., 128)
        From :func:`stable_radii`.

    Returns
    -------
    array, shape (..., d)
    """
    z = np.asarray(z)
    decays = 0.5 * math.pi * np.asarray(alpha)  # angles above this
    angle, per_radian = np.abs(np.angle(z)), _INTERVALS / math.pi
    place = np.maximum(np.floor(angle * per_radian), np.ceil(decays * per_radian))
    place = np.minimum(place, _INTERVALS - 1).astype(np.int64)
    limit = radii[place] if radii.ndim == 1 else np.take_along_axis(radii, place, axis=-1)
    return np.where(angle >= (1.0 - _MARGIN) * decays, np.abs(z) / limit, 0.0)


def _boundary(rule: Any, alpha: float) -> Array:
    """The z whose solutions grow at the rate `_RATE`, shape (roots, points along the circle)."""
    weights = np.stack(rule.weights(NUMPY, alpha, _LENGTH)[0])
    symbols = np.fft.rfft(weights * np.exp(-_RATE * np.arange(_LENGTH)))
    m, now = rule.corrections, float(weights[-1, 0])
    predicted, corrected = symbols[0], symbols[-1] - now
    inverses: Array = symbols
    if m == 1:
        root = np.sqrt(0.25 * corrected**2 + now * predicted)
        inverses = np.stack([0.5 * corrected + root, 0.5 * corrected - root])
    elif m > 1:
        # The companion matrix of the reversed polynomial, with the coefficients of z^1 .. z^(m+1); its roots are 1/z.
        powers = [corrected * now**i for i in range(m)] + [now**m * predicted]
        matrix = np.zeros((predicted.size, m + 1, m + 1), complex)
        matrix[:, 0] = np.stack(powers, axis=-1)
        matrix[:, range(1, m + 1), range(m)] = 1.0
        inverses = np.linalg.eigvals(matrix).T
    with np.errstate(divide="ignore", invalid="ignore"):  # terms of high orders cancel to 0
        return np.asarray(1.0 / inverses)


def _radii(boundary: Array) -> Array:
    """The least modulus of the boundary in each interval of its angle."""
    edges = np.linspace(0.0, math.pi, _INTERVALS + 1)
    radii = np.full(_INTERVALS, np.inf)
    for branch in (each[np.isfinite(each)] for each in boundary):
        angle, size = np.abs(np.angle(branch)), np.abs(branch)
        low, high = np.minimum(angle[1:], angle[:-1]), np.maximum(angle[1:], angle[:-1])
        # Roots come in any order: what jumps between two branches is no piece of the boundary.
        joined = np.abs(np.diff(branch)) <= 0.3 * np.minimum(size[1:], size[:-1])
        low[~joined], high[~joined] = angle[:-1][~joined], angle[:-1][~joined]
        met = (low[:, None] <= edges[1:]) & (high[:, None] >= edges[:-1])
        least = np.where(met, np.where(joined, np.minimum(size[1:], size[:-1]), size[:-1])[:, None], np.inf)
        radii = np.minimum(radii, least.min(axis=0))
    return radii

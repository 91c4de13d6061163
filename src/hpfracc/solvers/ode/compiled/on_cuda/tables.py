r"""Numbers that all trajectories share: times, weights, and weights as sums of exponentials.

From two steps on the weights of the product rules are integrals of :math:`t^{\alpha-1}/\Gamma(\alpha)`, where that is a
sum :math:`\sum_k c_k e^{-s_k t}` for orders up to 1. With :math:`z = s_k h` and :math:`m = (1 - e^{-z})/z` a term adds

.. math:: c_k h m \, e^{-z (j-1)} \quad\text{and}\quad c_k h m^2 e^{-z (j-1)}

to the weights of the product rectangle and the product trapezoid for a value that lies j steps back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import factorial, rgamma

from hpfracc.history.exponentials import MIN_TOLERANCE, exponential_sum
from hpfracc.solvers.ode.fixed.grid import UniformGrid
from hpfracc.solvers.ode.fixed.scheme import Scheme, trapezoid_weights

__all__ = ["StepTables", "make_tables"]

Array = np.ndarray[Any, Any]

#: Relative error of weights as sums of exponentials: in double precision that of the library's most accurate sums.
_TOLERANCES = {"float64": MIN_TOLERANCE, "float32": 1e-8}
#: Minimum number of steps per term for which sums of exponentials are used. On an H200 both took the same time at
#: about 60 steps with 28 terms (benchmarks/ensemble_kernel.py prints them over the number of steps).
_STEPS_PER_TERM = 2.25


@dataclass(frozen=True, slots=True)
class StepTables:
    """Tables that the kernel reads, for each component of the state.

    Attributes
    ----------
    times : array, shape (N + 1,)
        Times of the steps.
    powers : array, shape (C, N + 1)
        ``(t - t0)^k / k!``, for the initial data.
    weights : array, shape (K, d, N + 1), or (K, d, 2) for exponentials
        Weights of the scheme, that of the newest value last.
    first : array, shape (d, N + 1)
        Additional weight of the value at t0 in the corrector; of shape (1, 1) without one.
    decays, gains : array, shapes (d, Q) and (K, d, Q)
        Factors per step, and weights of the states; Q is 0 for direct sums.
    """

    times: Array
    powers: Array
    weights: Array
    first: Array
    decays: Array
    gains: Array

    @property
    def terms(self) -> int:
        """Number of exponentials; 0 for direct sums."""
        return int(self.decays.shape[1])

    @property
    def depth(self) -> int:
        """Stored numbers per component."""
        return self.terms or len(self.times)


def make_tables(orders: Array, grid: UniformGrid, scheme: Scheme, ceiling: int, dtype: str) -> StepTables:
    """The tables for components of these orders, computed in double precision."""
    corrected = scheme.kind == "corrected"
    scale = grid.step ** orders[:, None]
    weights = np.array([scheme.weights(float(alpha), grid.count) for alpha in orders]).transpose(1, 0, 2) * scale
    first = np.zeros((1, 1))
    if corrected:
        first = np.array([trapezoid_weights(float(alpha), grid.count)[1] for alpha in orders]) * scale
    k = np.arange(ceiling)[:, None]
    powers = grid.elapsed() ** k / factorial(k)
    decays, gains = np.zeros((len(orders), 0)), np.zeros((*weights.shape[:2], 0))
    if float(np.max(orders)) <= 1.0:
        found = _exponentials(orders, grid, len(weights), _TOLERANCES[dtype])
        if grid.steps > _STEPS_PER_TERM * found[0].shape[1]:
            (decays, gains), weights = found, weights[:, :, :2]
    times = np.concatenate([[grid.t0], grid.t0 + grid.elapsed(1)])
    return StepTables(times, powers, weights[:, :, ::-1], first, decays, gains)


def _exponentials(orders: Array, grid: UniformGrid, kinds: int, rtol: float) -> tuple[Array, Array]:
    """Decays and gains of all components; those with fewer terms are padded with zeros."""
    columns = [_terms(float(alpha), grid, rtol) for alpha in orders]
    most = max(len(rates) for rates, _ in columns)
    decays, gains = np.zeros((len(orders), most)), np.zeros((kinds, len(orders), most))
    for row, (rates, amounts) in enumerate(columns):
        decay = np.exp(-rates)
        positive = rates > 0.0
        mean = np.where(positive, -np.expm1(-rates) / np.where(positive, rates, 1.0), 1.0)
        decays[row, : len(rates)] = decay
        for kind in range(kinds):
            gains[kind, row, : len(rates)] = amounts * decay * mean ** (kind + 1)
    return decays, gains


def _terms(alpha: float, grid: UniformGrid, rtol: float) -> tuple[Array, Array]:
    """Rates for step 1, and amounts for the step of the grid."""
    if alpha == 1.0:
        return np.zeros(1), np.full(1, grid.step)
    # The trapezoid's weight of the oldest value reaches one step beyond the interval.
    found = exponential_sum(1.0 - alpha, 1.0, grid.steps + 1.0, rtol)
    return found.rates, found.weights * (rgamma(alpha) * grid.step**alpha)

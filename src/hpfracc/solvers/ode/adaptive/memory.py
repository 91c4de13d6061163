"""The history: states of a sum of exponentials, and their moments over a step."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from hpfracc.solvers.ode.adaptive.kernel import ExponentialKernel, exponential_kernel

__all__ = ["ExponentialMemory", "Snapshot", "Tables", "exponential_moments"]

Array = np.ndarray[Any, Any]

#: Factor by which the kernel is extended below the step that needs it.
_HEADROOM = 1e-3
#: Maximum number of step sizes with cached tables.
_KEPT = 64
#: Maximum number of coefficients of a polynomial of the right-hand side.
_COEFFICIENTS = 8
#: Below this the integrand is smooth enough for quadrature; above it the recurrence loses no digits.
_SWITCH = 12.0
_POINTS, _WEIGHTS = special.roots_legendre(20)
_POINTS, _WEIGHTS = 0.5 * (_POINTS + 1.0), 0.5 * _WEIGHTS


class Tables:
    """Values that depend only on the step length, for all exponentials of a kernel; moments are computed on demand."""

    def __init__(self, kernel: ExponentialKernel, step: float, moments: int) -> None:
        self._products, self._count = kernel.rates * step, moments
        self.decay = np.exp(-self._products)
        self.weighted = self.decay * kernel.weights
        self.needed = kernel.needed(step)

    @functools.cached_property
    def moments(self) -> Array:
        """Moments of shape (exponentials, count); see :func:`exponential_moments`."""
        return exponential_moments(self._products, self._count)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The states at one time: ``states[k, j]`` is the integral of ``u^k exp(-s_j u) f(t - u)`` over the past."""

    kernel: ExponentialKernel
    states: Array

    def history(self, distances: Array) -> Array:
        """Contribution of the history to the integral at these distances after the snapshot, shape (len, n)."""
        power, count = self.kernel.power, self.states.shape[1]
        rates, weights = self.kernel.rates[:count], self.kernel.weights[:count]
        decayed = np.exp(-np.outer(distances, rates)) * weights
        total = np.zeros((len(distances), self.states.shape[2]), self.states.dtype)
        for index in range(power + 1):
            factor = math.comb(power, index) * np.asarray(distances)[:, np.newaxis] ** (power - index)
            total += factor * (decayed @ self.states[index])
        return total


class ExponentialMemory:
    """The history of columns that share an order.

    Only exponentials that matter at the current step length are updated. Those that a shorter step needs again are
    computed from the newest interval only, because their contribution from older ones has decayed.

    Parameters
    ----------
    alpha : float
        The order.
    columns : int
        Number of functions of time.
    longest : float
        The length of the whole interval.
    eps : float
        Relative tolerance of the kernel.
    dtype : dtype
        Dtype of the states.
    coefficients : int
        Maximum number of coefficients of a polynomial.
    """

    def __init__(
        self, alpha: float, columns: int, longest: float, eps: float, dtype: Any, coefficients: int = _COEFFICIENTS
    ) -> None:
        self.alpha, self.longest, self.eps, self.coefficients = alpha, longest, eps, coefficients
        self.kernel = exponential_kernel(alpha, longest, longest, eps)
        self.states = np.zeros((self.kernel.power + 1, 0, columns), dtype)
        self._newest: tuple[float, Array] | None = None
        self._tables: dict[float, Tables] = {}

    def tables(self, step: float) -> Tables:
        """The tables of a step, cached. Extends the states if the step needs more exponentials."""
        if not self.kernel.covers(step):
            self.kernel = exponential_kernel(self.alpha, step * _HEADROOM, self.longest, self.eps)
            self._tables.clear()
        found = self._tables.get(step)
        if found is None:
            found = Tables(self.kernel, step, self.coefficients + self.kernel.power)
            if len(self._tables) >= _KEPT:
                self._tables.pop(next(iter(self._tables)))
            self._tables[step] = found
        if found.needed > self.states.shape[1]:
            self._extend(found.needed)
        return found

    def history(self, step: float) -> Array:
        """Contribution of the history to the fractional integral one step ahead, shape (columns,)."""
        tables = self.tables(step)
        power, count = self.kernel.power, self.states.shape[1]
        row = tables.weighted[:count]
        if power == 0:
            return np.asarray(row @ self.states[0])
        return np.asarray(
            sum(math.comb(power, k) * step ** (power - k) * (row @ self.states[k]) for k in range(power + 1))
        )

    def advance(self, step: float, coefficients: Array) -> None:
        """Add an interval on which the functions are polynomials, ``coefficients[q]`` that of ``x^q`` (see Stencil)."""
        tables = self.tables(step)
        old, power = self.trimmed(tables), self.kernel.power
        count = old.shape[1]
        decay = tables.decay[:count, np.newaxis]
        new = np.empty_like(old)
        for k in range(power + 1):
            shifted = old[k] if k == 0 else sum(math.comb(k, i) * step ** (k - i) * old[i] for i in range(k + 1))
            new[k] = decay * shifted + self._interval(tables, slice(0, count), step, coefficients, k)
        self.replace(new, step, coefficients)

    def trimmed(self, tables: Tables) -> Array:
        """The states that a step needs, and a few more, so that trimming is rare."""
        count = self.states.shape[1]
        if count > tables.needed + 24:
            return np.ascontiguousarray(self.states[:, : tables.needed + 8])
        return self.states

    def replace(self, states: Array, step: float, coefficients: Array) -> None:
        """The states after an interval of this length, on which the functions were these polynomials."""
        self.states = states
        self._newest = (step, coefficients)

    def snapshot(self) -> Snapshot:
        """The current states. They are not modified later."""
        return Snapshot(self.kernel, self.states)

    def _interval(self, tables: Tables, which: slice, step: float, coefficients: Array, power: int) -> Array:
        moments = tables.moments[which, power : power + coefficients.shape[0]]
        return step ** (power + 1) * (moments @ coefficients)

    def _extend(self, needed: int) -> None:
        count = self.states.shape[1]
        extended = np.zeros((self.kernel.power + 1, needed, self.states.shape[2]), self.states.dtype)
        extended[:, :count] = self.states
        if self._newest is not None:
            step, coefficients = self._newest
            moments = exponential_moments(
                self.kernel.rates[count:needed] * step, coefficients.shape[0] + self.kernel.power
            )
            for k in range(self.kernel.power + 1):
                part = moments[:, k : k + coefficients.shape[0]] @ coefficients
                extended[k, count:] = step ** (k + 1) * part
        self.states = extended


def exponential_moments(z: Array, count: int) -> Array:
    r""":math:`M_q(z) = \int_0^1 x^q e^{-zx} dx` for ``z >= 0`` and q = 0 .. count - 1, shape (len(z), count).

    Gauss-Legendre for small z; for z of 12 and more the recurrence :math:`M_q = (q M_{q-1} - e^{-z}) / z`, whose
    errors decrease while q < z, so ``count`` may be at most 12.
    """
    if count == 1:
        return np.where(z > 1e-300, -np.expm1(-z) / np.maximum(z, 1e-300), 1.0)[:, np.newaxis]
    moments = np.empty((z.size, count))
    small = z <= _SWITCH
    powers = _POINTS[:, np.newaxis] ** np.arange(count) * _WEIGHTS[:, np.newaxis]
    moments[small] = np.exp(-np.outer(z[small], _POINTS)) @ powers
    large = z[~small]
    if large.size:
        decayed = np.exp(-large)
        column = -np.expm1(-large) / large
        moments[~small, 0] = column
        for q in range(1, count):
            column = (q * column - decayed) / large
            moments[~small, q] = column
    return moments

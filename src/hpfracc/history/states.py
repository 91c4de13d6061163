r"""The states of a sum of exponentials: their moments over a step, their advance, and what they contribute.

A function f of the past enters a fractional integral through
:math:`S_{k,j}(t) = \int_0^{t} u^k e^{-\lambda_j u} f(t-u)\,du`. Over a step they fade by :math:`e^{-\lambda_j h}`, and
gain the moments of the polynomial that f is there. Written once for arrays of every library (``xp`` is NumPy,
``jax.numpy``, or NumPy for the small arrays of a step and PyTorch for the states); :class:`ExponentialMemory` keeps
only the states that the current step length needs.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from hpfracc._xp import NUMPY, convert_like, namespace_of
from hpfracc.engine.workers import available_cores, run_blocks
from hpfracc.errors import InvalidInputError
from hpfracc.history.exponentials import (
    MomentRule,
    exponential_moments,
    exponential_nodes,
    moment_rule,
    node_weights,
    product,
    sorted_moments,
)

Array = np.ndarray[Any, Any]

#: Factor by which the kernel is extended below the step that needs it.
_HEADROOM = 1e-3
#: Exponentials that are kept beyond those that the current step needs.
_SPARE = 3
#: Maximum number of step sizes with cached tables.
_KEPT = 64
#: Maximum number of coefficients of a polynomial of the right-hand side.
_COEFFICIENTS = 8
#: Times within a step, in steps before its end.
WITHIN = np.linspace(0.1, 0.9, 5)
#: States that are advanced together, so that they stay in the caches, and such blocks that are worth several threads:
#: 255 x 255 points with 29 exponentials take 1.5 ms instead of 2.5 on two cores (benchmarks/pde_times.py).
_BLOCK, _BLOCKS = 1 << 17, 3
#: Relative tolerance of the history of an estimated error.
_ERROR_EPS = 1e-2


# -- states of a known range of distances, for arrays of every library ------------------------------------------------


def combined(xp: Any, row: Any, values: Any) -> Any:
    """``sum_j row[j] values[j]``, where a row may also have the shape of the orders."""
    if row.ndim == 1:
        return product(xp, row[None], values)[0]
    return (row.reshape(row.shape[0], *(1,) * (values.ndim - row.ndim), *row.shape[1:]) * values).sum(0)


class Memory(NamedTuple):
    r""":math:`u^{\alpha-1}/\Gamma(\alpha) \approx u^m \sum_j w_j e^{-s_j u}`, in the library and on the device of y.

    Attributes
    ----------
    rates : array, shape (E,)
        :math:`s_j`, the first of them 0.
    weights : array, shape (E, ...)
        :math:`w_j`, followed by the shape of the order.
    points, quadrature, powers, factorials : arrays
        The :class:`MomentRule`.
    """

    rates: Any
    weights: Any
    points: Any
    quadrature: Any
    powers: Any
    factorials: Any


def make_memory(order: Any, power: int, shortest: float, longest: float, eps: float, like: Any, count: int) -> Memory:
    r"""The kernel of a fractional integral of this order, for distances from ``shortest`` to ``longest``.

    Parameters
    ----------
    order : array
        Above ``power``, at most ``power + 1``; its weights are differentiable in it.
    count : int
        Number of moments.
    """
    nodes = exponential_nodes(0.0, power + 1.0, shortest, longest, eps)
    xp = namespace_of(order)
    with xp.scope():
        order = xp.array(order)
        weights = convert_like(node_weights(xp, power + 1.0 - order, nodes) * xp.rgamma(order), like)
    return Memory(convert_like(nodes.rates, like), weights, *(convert_like(each, like) for each in moment_rule(count)))


def moments(xp: Any, memory: Memory, step: Any) -> Any:
    """The moments of each exponential over a step."""
    return exponential_moments(xp, memory.rates * step, MomentRule(*memory[2:]))


def remembered(xp: Any, memory: Memory, states: Any, distance: Any) -> Any:
    """Contribution of the history to the integral at this distance after it; ``states`` is (m + 1, E, ...)."""
    power = states.shape[0] - 1
    row = xp.exp(-memory.rates * distance)
    row = row.reshape(row.shape[0], *(1,) * (memory.weights.ndim - 1)) * memory.weights
    parts = [combined(xp, row, states[k]) for k in range(power + 1)]
    factors = [math.comb(power, k) * distance ** (power - k) for k in range(power)]
    return sum((factor * part for factor, part in zip(factors, parts, strict=False)), parts[-1])


def remember(xp: Any, memory: Memory, states: Any, step: Any, integrals: Any, coefficients: Any) -> Any:
    """The states after an interval on which the function is a polynomial in (right end - t)/step.

    ``coefficients[q]`` belongs to the q-th power, ``integrals`` are the moments.
    """
    count, decay = coefficients.shape[0], xp.exp(-memory.rates * step)
    faded = decay.reshape(decay.shape[0], *(1,) * (states.ndim - 2))
    new = []
    for k in range(states.shape[0]):
        shifted = sum((math.comb(k, i) * step ** (k - i) * states[i] for i in range(k)), states[k])
        part = step ** (k + 1) * product(xp, integrals[:, k : k + count], coefficients)
        new.append(faded * shifted + part)
    return xp.stack(new)


def _advance_into(found: Array, states: Array, step: float, faded: Array, gains: Any, polynomial: Array) -> None:
    """As :func:`remember`, for large states in blocks of columns on several threads; ``found`` may be ``states``.

    ``gains[k]`` is what the coefficients of a polynomial over the step add to the states of the k-th power.
    """
    powers, terms, columns = states.shape
    part = max(256, _BLOCK // terms)
    if columns > part:

        def advance(start: int) -> None:
            here = slice(start, start + part)
            _advance_into(found[..., here], states[..., here], step, faded, gains, polynomial[:, here])

        run_blocks(advance, range(0, columns, part), available_cores() if columns >= _BLOCKS * part else 1)
        return
    for k in reversed(range(powers)):  # each takes those of lower powers as they were
        moved: Any = states[k]
        for i in range(k):
            moved = moved + math.comb(k, i) * step ** (k - i) * states[i]
        block = np.multiply(moved, faded, out=found[k])
        block += gains[k][:terms, : len(polynomial)] @ polynomial


# -- states that follow the step length -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ExponentialKernel:
    r""":math:`u^{\alpha-1}/\Gamma(\alpha) \approx u^m \sum_j w_j e^{-s_j u}`, between two distances.

    Attributes
    ----------
    alpha : float
        The order.
    power : int
        The largest integer m below ``alpha``.
    rates : numpy.ndarray
        :math:`s_j \ge 0`, increasing.
    weights : numpy.ndarray
        :math:`w_j`.
    reach : float
        Exponentials with :math:`s_j u` above this are below the tolerance and can be omitted at distances of at least
        u.
    """

    alpha: float
    power: int
    rates: Array
    weights: Array
    reach: float

    def needed(self, distance: float) -> int:
        """Number of exponentials that matter at this distance and beyond."""
        return min(int(np.searchsorted(self.rates, self.reach / distance)) + 1, self.rates.size)

    def covers(self, distance: float) -> bool:
        """Whether the sum is accurate at this distance."""
        return self.power + 1 == self.alpha or bool(self.rates[-1] * distance >= self.reach)

    def exact(self, u: Array) -> Array:
        """The kernel itself."""
        return np.asarray(u ** (self.alpha - 1.0) / math.gamma(self.alpha))

    def integrals(self, u: Any, count: int) -> Array:
        r""":math:`\int_0^u k(w) (w/u)^q dw` of the kernel itself for q = 0 .. count - 1, shape u.shape + (count,)."""
        size = np.asarray(u) ** self.alpha / math.gamma(self.alpha)
        return np.asarray(size[..., np.newaxis] / (self.alpha + np.arange(count)))

    def profile(self, u: float, count: int) -> tuple[float, Array]:
        """The same as a size and its multiples, which do not depend on ``u`` if the kernel is a power."""
        return u**self.alpha / math.gamma(self.alpha), 1.0 / (self.alpha + np.arange(count))

    def __call__(self, u: Array) -> Array:
        """The value of the sum."""
        u = np.asarray(u, dtype=float)
        return np.asarray(u**self.power * (np.exp(-u[..., np.newaxis] * self.rates) @ self.weights))


def exponential_kernel(alpha: float, shortest: float, longest: float, eps: float) -> ExponentialKernel:
    r"""The kernel of a fractional integral to a relative tolerance ``eps``.

    Parameters
    ----------
    alpha : float
        Any order above 0. For an integer order the kernel is a power, and the sum has one term with rate 0.
    shortest, longest : float
        Range of distances.
    eps : float
        Relative tolerance, from 1e-15 to 0.1.

    Returns
    -------
    ExponentialKernel
        With O(log(longest/shortest) log(1/eps)) terms. A smaller ``shortest`` appends terms and does not change the
        others.

    Examples
    --------
    >>> import numpy as np
    >>> kernel = exponential_kernel(0.5, 1e-6, 1.0, 1e-8)
    >>> u = np.geomspace(1e-6, 1.0, 200)
    >>> bool(np.all(np.abs(kernel(u) * np.sqrt(np.pi * u) - 1) < 1e-8))
    True
    """
    if not 1e-15 <= eps <= 0.1:
        raise InvalidInputError(f"eps={eps:g} has to lie between 1e-15 and 0.1")
    power = math.ceil(alpha) - 1
    beta = power + 1 - alpha
    reach = math.log(4.0 / eps)
    if beta == 0.0:
        return ExponentialKernel(alpha, power, np.zeros(1), np.array([1.0 / math.gamma(alpha)]), reach)
    # As fast as order 1 needs, so that the last rate covers the shortest distance.
    nodes = exponential_nodes(beta, 1.0, shortest, longest, eps)
    weights = np.asarray(node_weights(NUMPY, beta, nodes)) / math.gamma(alpha)
    return ExponentialKernel(alpha, power, nodes.rates, weights, reach)


class Tables:
    """Values that depend only on the step length; those that rejected steps do not need are computed on demand.

    Attributes
    ----------
    needed : int
        Number of exponentials that matter one step ahead.
    rows : list of arrays, shape (needed,)
        What the states of each power contribute there.
    faded : array, shape (needed and a few more, 1)
        By how much the states fade over the step.
    size, profile : float, bytes
        The integrals of the kernel itself over the step times powers: a size, and the numbers that it multiplies.
    """

    def __init__(self, kernel: ExponentialKernel, step: float) -> None:
        self._kernel, self._step, self.needed, power = kernel, step, kernel.needed(step), kernel.power
        self._products = kernel.rates[: self.needed + _SPARE] * step
        decay = np.exp(-self._products)
        self.faded = decay[:, np.newaxis]
        ahead = decay[: self.needed] * kernel.weights[: self.needed]
        self.rows = [math.comb(power, k) * step ** (power - k) * ahead for k in range(power + 1)]
        self.size, profile = kernel.profile(step, _COEFFICIENTS)
        self.profile = profile.tobytes()

    @functools.cached_property
    def gains(self) -> list[Array]:
        """What the coefficients of a polynomial over the step add to the states of each power."""
        power, step = self._kernel.power, self._step
        found = sorted_moments(self._products, _COEFFICIENTS + power)
        return [step ** (k + 1) * found[:, k : k + _COEFFICIENTS] for k in range(power + 1)]

    @functools.cached_property
    def between(self) -> bytes:
        """The integrals before each of some times within the step, in units of ``size``, shape (times, count)."""
        kernel = self._kernel
        return _power_between(kernel.alpha) if type(kernel) is ExponentialKernel else _between(kernel, self._step)


def _between(kernel: ExponentialKernel, step: float) -> bytes:
    powers, left = np.arange(_COEFFICIENTS), 1.0 - WITHIN
    own = kernel.integrals(left * step, _COEFFICIENTS) * left[:, np.newaxis] ** powers
    shifts = WITHIN[:, np.newaxis, np.newaxis] ** np.maximum(powers[:, np.newaxis] - powers, 0)
    found = np.einsum("kq,tkq,tq->tk", special.binom(powers[:, np.newaxis], powers), shifts, own)
    between: bytes = (found / kernel.profile(step, 1)[0]).tobytes()
    return between


@functools.lru_cache
def _power_between(alpha: float) -> bytes:
    nothing = np.empty(0)
    return _between(ExponentialKernel(alpha, 0, nothing, nothing, 0.0), 1.0)


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
    """The history of columns that share an order, over steps that grow and shrink by any factor.

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
    make_kernel : callable
        Called as :func:`exponential_kernel`; for a shorter distance it may only append rates.
    """

    def __init__(
        self,
        alpha: float,
        columns: int,
        longest: float,
        eps: float,
        dtype: Any,
        *,
        make_kernel: Callable[[float, float, float, float], ExponentialKernel] = exponential_kernel,
    ) -> None:
        self.alpha, self.longest, self.eps = alpha, longest, eps
        self._make_kernel = make_kernel
        self.kernel = make_kernel(alpha, longest, longest, eps)
        self.states = np.zeros((self.kernel.power + 1, 0, columns), dtype)
        self._newest: tuple[float, Array] | None = None
        self._tables: dict[float, Tables] = {}

    def tables(self, step: float) -> Tables:
        """The tables of a step, cached. Extends the states if the step needs more exponentials."""
        found = self._tables.get(step)
        if found is None:
            if not self.kernel.covers(step):
                self.kernel = self._make_kernel(self.alpha, step * _HEADROOM, self.longest, self.eps)
                self._tables.clear()
            found = Tables(self.kernel, step)
            if len(self._tables) >= _KEPT:
                self._tables.pop(next(iter(self._tables)))
            self._tables[step] = found
        if found.needed > self.states.shape[1]:
            self._extend(found.needed)
        return found

    def history(self, step: float) -> Array:
        """Contribution of the history to the fractional integral one step ahead, shape (columns,)."""
        tables, states = self._tables.get(step), self.states
        if tables is None or tables.needed > states.shape[1]:
            tables, states = self.tables(step), self.states
        found: Array = tables.rows[0] @ states[0, : tables.needed]
        for k in range(1, len(states)):
            found += tables.rows[k] @ states[k, : tables.needed]
        return found

    def advance(self, step: float, coefficients: Array) -> None:
        """Add an interval on which functions are polynomials, ``coefficients[q]`` that of ``x^q`` (see StepRules)."""
        tables = self._tables.get(step)
        if tables is None or tables.needed > self.states.shape[1]:
            tables = self.tables(step)
        old = self.states[:, : len(tables.faded)]
        new = np.empty_like(old)
        _advance_into(new, old, step, tables.faded[: old.shape[1]], tables.gains, coefficients)
        self.states, self._newest = new, (step, coefficients)

    def replace(self, states: Array, step: float, coefficients: Array) -> None:
        """The states after an interval of this length, on which the functions were these polynomials."""
        self.states = states
        self._newest = (step, coefficients)

    def multiply(self, factors: Array) -> None:
        """Multiply the past of each column by its factor."""
        self.states = self.states * factors
        if self._newest is not None:
            self._newest = self._newest[0], self._newest[1] * factors

    def snapshot(self) -> Snapshot:
        """The current states. They are not modified later."""
        return Snapshot(self.kernel, self.states)

    def _extend(self, needed: int) -> None:
        powers, count, columns = self.states.shape
        extended = np.concatenate([self.states, np.zeros((powers, needed - count, columns), self.states.dtype)], axis=1)
        if self._newest is not None:
            step, coefficients = self._newest
            added, z = extended[:, count:], self.kernel.rates[count:needed] * step
            integrals = sorted_moments(z, len(coefficients) + self.kernel.power)
            gains = [step ** (k + 1) * integrals[:, k : k + len(coefficients)] for k in range(powers)]
            _advance_into(added, added, step, np.exp(-z)[:, np.newaxis], gains, coefficients)
        self.states = extended


class GatheredMemory(ExponentialMemory):
    """The same for many columns, whose states are read and written once in several steps.

    The newest polynomials wait as rows, and a memory with one column for each of their coefficients has what they add.
    Snapshots are valid if each step is added at once, ``together = 1``.
    """

    def __init__(self, alpha: float, columns: int, longest: float, eps: float, dtype: Any, *, together: int) -> None:
        super().__init__(alpha, columns, longest, eps, dtype)
        self._gains = ExponentialMemory(alpha, together * _COEFFICIENTS, longest, eps, float)
        self._rows, self._length, self._together = list[Array](), 0.0, together

    def history(self, step: float) -> Array:
        """Contribution of the history to the fractional integral one step ahead, shape (columns,)."""
        found, weights, first = super().history(self._length + step), self._gains.history(step), 0
        for rows in self._rows:
            found += weights[first : first + len(rows)] @ rows
            first += len(rows)
        return found

    def advance(self, step: float, coefficients: Array) -> None:
        """Add an interval; see :meth:`ExponentialMemory.advance`."""
        first, width = sum(map(len, self._rows)), self._gains.states.shape[2]
        self._gains.advance(step, np.eye(len(coefficients), width, first))
        self._rows.append(coefficients)
        self._length += step
        if len(self._rows) < self._together:
            return
        self.kernel, count = self._gains.kernel, self._gains.states.shape[1]
        if count > self.states.shape[1]:
            self._extend(count)
        old, faded = self.states[:, :count], np.exp(-self.kernel.rates[:count, np.newaxis] * self._length)
        new, rows = old if self._together > 1 else np.empty_like(old), np.concatenate(self._rows)
        _advance_into(new, old, self._length, faded, self._gains.states[..., : len(rows)], rows)
        self.replace(new, step, coefficients)
        self._gains.replace(np.zeros_like(self._gains.states), step, np.zeros((1, width)))
        self._rows, self._length = [], 0.0

    def multiply(self, factors: Array) -> None:
        """Multiply the past of each column by its factor."""
        super().multiply(factors)
        self._rows = [rows * factors for rows in self._rows]


class TrackedMemory(GatheredMemory):
    """The history of solutions, and with few terms that of their estimated errors, the second half of the columns."""

    def __init__(self, alpha: float, columns: int, longest: float, eps: float, dtype: Any, *, together: int) -> None:
        self._half = columns // 2
        super().__init__(alpha, self._half, longest, eps, dtype, together=together)
        self._error = GatheredMemory(alpha, self._half, longest, max(eps, _ERROR_EPS), dtype, together=together)

    def history(self, step: float) -> Array:
        """Contribution of the history to the fractional integral one step ahead, shape (columns,)."""
        return np.concatenate([super().history(step), self._error.history(step)])

    def advance(self, step: float, coefficients: Array) -> None:
        """Add an interval; see :meth:`ExponentialMemory.advance`."""
        super().advance(step, coefficients[:, : self._half])
        self._error.advance(step, coefficients[:, self._half :])

    def multiply(self, factors: Array) -> None:
        """Multiply the past of the error by its factors; the solution's are 1."""
        self._error.multiply(factors[self._half :])

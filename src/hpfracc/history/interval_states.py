r"""History sums at constant cost per step: the kernel as a sum of exponentials.

With :math:`\omega(t) \approx \sum_j w_j e^{-\lambda_j t}` for all distances that occur, the history of u' is contained
in the states :math:`S_j(t) = \int_0^t e^{-\lambda_j (t-s)} u'(s)\,ds`, which each step multiplies and adds to. The
weights of the newest intervals are exact. L1 keeps the states up to :math:`t_{n-1}`; L2-1sigma up to :math:`t_{n-2}`,
because its parabola on the interval before the newest needs the newest value.

References
----------
S. Jiang, J. Zhang, Q. Zhang, Z. Zhang, Commun. Comput. Phys. 21 (2017) 650-678.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hpfracc._arrays import tracks_gradient
from hpfracc.history.exponentials import exponential_moments, exponential_nodes, moment_rule, node_weights
from hpfracc.history.intervals import IntervalWeights, interval_integrals, order_value

Array = np.ndarray[Any, Any]

#: Exponent from which a decayed exponential is neglected.
_DEAD = 40.0
#: Exponent from which an exponential is set to zero.
_UNDERFLOW = 600.0
#: Steps whose tables are computed together.
TABLE_STEPS = 256
#: Range of orders for which nodes are chosen if the order is traced and has no value.
_ANY_ORDER = (0.02, 0.99)


def _distances(weights: IntervalWeights) -> Array:
    """The distance at which the states are evaluated in each step."""
    sigma: Any = weights.sigma if weights.each is not None else order_value(weights.sigma)
    if weights.each is None and math.isnan(sigma):
        sigma = 0.5
    newest = sigma * weights.steps
    if not weights.parabola:
        return np.asarray(newest)
    return np.asarray(newest + np.concatenate([[math.inf], weights.steps[:-1]]))


def _kernel(weights: IntervalWeights, distances: Array, rtol: float) -> tuple[Array, Any]:
    """Rates, increasing, and weights of the kernel of all terms, in the library of the orders; nodes for ``each``."""
    xp = weights.xp
    shortest, longest = float(distances.min()), float(weights.mesh[-1] - weights.mesh[0])
    shortest = min(shortest, longest)
    if weights.each is not None:
        nodes = exponential_nodes(float(weights.each.min()), float(weights.each.max()), shortest, longest, rtol)
        return nodes.rates, nodes
    terms = [(c, alpha) for c, alpha in weights.orders if not (isinstance(alpha, int | float) and alpha == 1)]
    if not terms:  # all of order 1, without memory
        return np.zeros(1), xp.zeros((1,), "float64")
    values = [order_value(alpha) for _, alpha in terms]
    known = not any(math.isnan(value) for value in values)
    least, most = (min(values), max(values)) if known else _ANY_ORDER
    nodes = exponential_nodes(least, most, shortest, longest, rtol)
    total: Any = None
    for coefficient, alpha in terms:
        order = xp.array(alpha)
        part = node_weights(xp, order, nodes) * (coefficient * xp.rgamma(1.0 - order))
        total = part if total is None else total + part
    return nodes.rates, total


def count_exponentials(weights: IntervalWeights, rtol: float) -> int:
    """The number of states that a mesh needs."""
    if len(weights.mesh) <= 2:
        return 1
    return len(_kernel(weights, _distances(weights)[1:], rtol)[0])


class ExponentialHistory:
    """The same sums as :class:`DirectHistory` for L1 and L2-1sigma, to a relative tolerance of the kernel.

    Parameters
    ----------
    weights : IntervalWeights
        The formula and its mesh.
    like : array
        A state with the shape, dtype and library of the increments.
    rtol : float
        Relative tolerance of the kernel.
    update : callable or None
        ``update(states, decay, p, q, g, x, y)``, compiled, for NumPy: see :func:`_update`.
    """

    name = "exponentials"

    def __init__(self, weights: IntervalWeights, like: Any, rtol: float, update: Any = None) -> None:
        self._weights, self.xp = weights, weights.xp
        xp = self.xp
        count = len(weights.steps)
        self._read = _distances(weights)
        self._alive: Array
        if count > 1:
            self.rates, self._w = _kernel(weights, self._read[1:], rtol)
        else:
            self.rates, self._w = np.zeros(1), xp.zeros((1,), "float64")
        self._nodes: Any = None
        self._newest_kernel = (np.zeros(0), np.zeros(0))
        if weights.each is not None and count > 1:  # the rates serve all orders, so their states do too
            self._nodes, self._w = self._w, np.ones(len(self.rates))
        needed = np.searchsorted(self.rates, _DEAD / self._read, side="right")
        needed[0] = 0
        # A later, shorter step may need exponentials that this one does not.
        self._alive = np.maximum.accumulate(needed[::-1])[::-1]
        self._shape = tuple(like.shape)
        self._complex = xp.is_complex(like)
        #: The exact weights of the newest increment and of the one before it, for every step.
        self.newest: tuple[Any, Any] = self._newest_weights() if weights.each is None else (None, None)
        self._update = update if weights.each is None else None
        self._last: Any = None
        self._pending: Any = None
        self._table_first = -TABLE_STEPS
        self._table: Any = None
        self._done = 0
        self._like = like
        self._states: Any = None

    def _empty(self) -> Any:
        xp = self.xp
        size = math.prod(self._shape) * (2 if self._complex and xp.library == "numpy" else 1)
        if xp.library == "numpy":
            return np.zeros((len(self.rates), size))
        return xp.zeros((len(self.rates), size), "complex128" if self._complex else "float64", self._like)

    def _newest_weights(self, part: slice = slice(None)) -> tuple[Any, Any]:
        """The exact weights of the newest increment and of the one before it, for every step of a part."""
        weights, xp = self._weights, self.xp
        steps, sigma, orders = weights.steps, weights.sigma, weights.orders
        if weights.each is not None:
            sigma, orders = weights.sigma[part], [(1.0, self._orders_of(part.start))]
        own: Any = 0.0
        before: Any = 0.0
        tau = xp.array(steps[part])
        previous = xp.array(np.concatenate([[1.0], steps[:-1]])[part])
        here = xp.array(np.concatenate([[0.0], np.ones(len(steps) - 1)])[part])
        ahead = xp.array(np.concatenate([[1.0], weights.following[:-1]])[part])
        for coefficient, alpha in orders:
            if isinstance(alpha, int | float) and alpha == 1:
                own = own + coefficient / tau
                continue
            mean = xp.exp(-alpha * xp.log(sigma * tau)) * xp.rgamma(xp.array(2.0 - alpha))
            own = own + coefficient * sigma * mean
            if weights.parabola:
                mean, moment = interval_integrals(xp, alpha, sigma * tau, previous, parabola=True)
                b = moment * (2.0 * previous / (previous + ahead)) * here
                own = own + coefficient * b * (previous / ahead)
                before = before + coefficient * (mean * here - b)
        return own, before

    def begin(self, n: int) -> tuple[Any, Any]:
        """The weight of the newest increment, and the sum over the earlier ones; None for the first step."""
        if self._weights.each is None:
            own, before = (one if isinstance(one, float) else one[n - 1] for one in self.newest)
        else:
            own, before = (self._spread(one) for one in self._newest_weights(slice(n - 1, n)))
        if n == 1:
            return own, None
        if self._weights.parabola:
            total = before * self._last
            if n > 2:
                total = total + self._shaped(self._pending)
            return own, total
        return own, self._shaped(self._pending)

    def _orders_of(self, step: int) -> Any:
        """The orders of a step, counted from 0."""
        assert self._weights.each is not None
        return self._weights.each[min(step, len(self._weights.each) - 1)]

    def _spread(self, values: Any) -> Any:
        """One value for each column in the shape of a state; a number where they are all the same."""
        return float(np.ravel(values)[0]) if np.size(values) == 1 else np.reshape(values, self._shape)

    def _kernel_of(self, step: int) -> Array:
        """The weights of the exponentials for the orders of a step, of shape (terms, columns)."""
        orders = self._orders_of(step)
        if not np.array_equal(orders, self._newest_kernel[0]):
            kernel = np.asarray(node_weights(self.xp, orders, self._nodes) * self.xp.rgamma(1.0 - orders))
            # Real and imaginary parts are columns of their own.
            self._newest_kernel = orders, np.repeat(kernel, 1 + (self._complex and orders.size > 1), axis=1)
        return self._newest_kernel[1]

    def remember(self, x: Any) -> None:
        """Append the newest increment: advance the states over one interval and evaluate them for the next step."""
        n = self._done = self._done + 1
        if self._weights.parabola:
            if n >= 2:
                self._move(n, n - 1, self._last, x)
            self._last = x
        else:
            self._move(n, n, x, None)

    def _move(self, n: int, interval: int, x: Any, y: Any) -> None:
        """Advance the states over ``interval`` (counted from 1), before step ``n + 1`` evaluates them."""
        if n >= len(self._weights.steps):
            return
        alive = int(self._alive[n])
        if self._states is None:
            self._states = self._empty()
        if n - self._table_first >= TABLE_STEPS or self._table is None:
            self._make_table(n)
        place = n - self._table_first
        parts: list[Any] = [None if one is None else one[place][:alive] for one in self._table]
        decay, p, q, g = parts
        if self._nodes is not None:
            g = g[:, None] * self._kernel_of(n)[:alive]
        if self.xp.library == "numpy":
            x, y = self._flat(x), None if y is None else self._flat(y)
            if self._states.shape[0] > alive + 8:
                self._states = np.ascontiguousarray(self._states[:alive])
            run = _update if self._update is None else self._update
            self._pending = run(self._states[:alive], decay, p, q, g, x, y)
            return
        free = not any(tracks_gradient(one) for one in (x, g, self._states))
        if self.xp.library == "torch" and free and not self._complex:
            # In place: one pass for the decay and one for each input.
            states = self._states[:alive].mul_(decay[:, None]).addr_(p, x.reshape(-1))
            if y is not None:
                states.addr_(q, y.reshape(-1))
        else:
            states = self._states[:alive] * decay[:, None] + p[:, None] * x.reshape(1, -1)
            if y is not None:
                states = states + q[:, None] * y.reshape(1, -1)
        self._states = states
        xp = self.xp
        if self._complex:
            self._pending = xp.complex(xp.matmul(g, states.real), xp.matmul(g, states.imag))
        else:
            self._pending = xp.matmul(g, states)

    def block(self, first: int, stop: int) -> tuple[Array, Array, Array]:
        """The decay, the weights of the increments and those of the states, for steps ``first`` to ``stop - 1``.

        Their shapes are (terms,), (terms, increments) and (steps, terms). The states contain the intervals up to step
        ``first - 1``, and one fewer with a parabola, whose increments start one earlier.
        """
        weights = self._weights
        mesh, lag = weights.mesh, int(weights.parabola)
        # Before the second step no state is evaluated: the first block uses the exponentials that the second step
        # needs.
        alive = max(1, int(self._alive[min(max(first - 1, 1), len(weights.steps) - 1)]))
        rates = self.rates[:alive]
        begin = mesh[max(0, first - 1 - lag)]
        end = mesh[stop - 1 - lag]
        places = mesh[first - 1 : stop - 1] + weights.sigma * weights.steps[first - 1 : stop - 1]
        read = _decayed((places - begin)[:, None] * rates) * np.asarray(self._w)[:alive]
        intervals = np.arange(first - 1 - lag, stop - 1 - lag)  # counted from 0
        real = intervals[intervals >= 0]
        mean, about = _means(weights.steps[real][:, None] * rates)
        left = _decayed((end - mesh[real + 1])[:, None] * rates)
        added = np.zeros((stop - first + lag, alive))
        skipped = len(intervals) - len(real)
        if weights.parabola:
            own, next_one = self._shares(real, mean, about)
            added[skipped:-1] = left * own
            added[skipped + 1 :] += left * next_one
        else:
            added[skipped:] = left * mean
        return _decayed((end - begin) * rates), np.ascontiguousarray(added.T), read

    def _make_table(self, n: int) -> None:
        """Compute the tables of the next steps."""
        xp = self.xp
        ns = np.arange(n, min(n + TABLE_STEPS, len(self._weights.steps)))
        decay, p, q, g = self.tables(ns)
        self._table_first = n
        self._table = (*(None if one is None else xp.array(one) for one in (decay, p, q)), g)

    def tables(self, ns: Array) -> tuple[Any, Any, Any, Any]:
        """Decay, weights of the increments, and weights of the states, after each of these steps."""
        weights, xp, rates = self._weights, self.xp, self.rates
        intervals = ns - 1 if weights.parabola else ns
        tau = weights.steps[intervals - 1][:, None]
        z = tau * rates
        decay = np.exp(-z)
        mean, about = _means(z)
        reach = weights.steps[ns - 1][:, None] if weights.parabola else 0.0
        if xp.library == "numpy":
            newest = (weights.sigma * weights.steps)[ns][:, None]
            g = np.exp(-(reach + newest) * rates) * np.asarray(self._w)
        else:
            distance = weights.sigma * xp.array(weights.steps[ns][:, None]) + xp.array(np.asarray(reach))
            g = xp.exp(-distance * xp.array(rates)) * self._w
        p, q = self._shares(intervals - 1, mean, about) if weights.parabola else (mean, None)
        return decay, p, q, g

    def _shares(self, intervals: Array, mean: Array, about: Array) -> tuple[Array, Array]:
        """The weights of the increments over these intervals, counted from 0, and over the following ones."""
        tau, following = (each[intervals][:, None] for each in (self._weights.steps, self._weights.following))
        lever = 2.0 * tau / (tau + following) * about
        return mean - lever, lever * (tau / following)

    def _flat(self, x: Any) -> Array:
        flat = np.ascontiguousarray(x).reshape(-1)
        return flat.view(np.float64) if self._complex else flat

    def _shaped(self, flat: Any) -> Any:
        if self._complex and self.xp.library == "numpy":
            flat = flat.view(np.complex128)
        return flat.reshape(self._shape)

    @staticmethod
    def forecast(count: int, size: int) -> int:
        """Bytes for ``count`` exponentials and a state of ``size`` bytes."""
        return count * size + 4 * size + 4 * 8 * count * TABLE_STEPS


def _means(z: Array) -> tuple[Array, Array]:
    r""":math:`\int_0^1 e^{-zx} dx` and :math:`\int_0^1 (1/2 - x) e^{-zx} dx`."""
    found = exponential_moments(np, z.reshape(-1), moment_rule(2)).reshape(*z.shape, 2)
    return found[..., 0], 0.5 * found[..., 0] - found[..., 1]


def _decayed(z: Array) -> Array:
    """``exp(-z)``, set to zero where it would be subnormal, because products with subnormal numbers are slow."""
    return np.where(z < _UNDERFLOW, np.exp(-np.minimum(z, _UNDERFLOW)), 0.0)


def _update(states: Array, decay: Array, p: Array, q: Array | None, g: Array, x: Array, y: Array | None) -> Array:
    """``states <- decay states + p x + q y``, and ``g . states``, for one block of points at a time."""
    found = np.empty(states.shape[1])
    part = max(256, (1 << 16) // max(1, len(decay)))
    for start in range(0, states.shape[1], part):
        here = slice(start, start + part)
        block = states[:, here]
        block *= decay[:, None]
        block += p[:, None] * x[here]
        if y is not None:
            assert q is not None
            block += q[:, None] * y[here]
        found[here] = g @ block if g.ndim == 1 else ((g if g.shape[1] == 1 else g[:, here]) * block).sum(0)
    return found

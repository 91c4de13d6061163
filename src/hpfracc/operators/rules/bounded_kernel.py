"""Rules for a given kernel: its moments, a base class for two degrees, and those for any and for exponential kernels.

On interval l of a uniform grid a kernel K enters through its mean and its tilt,

    mean(l) = int_0^1 K((l+v) h) dv,    tilt(l) = int_0^1 K((l+v) h) (1/2 - v) dv,

which for l >= 8 are smooth functions of l whose only singularity is at 0: on [L, 2L] a polynomial through 20 Chebyshev
points is accurate to rounding. So a million weights take about 350 evaluations.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Any, final

import numpy as np
from numpy.polynomial import chebyshev, legendre

from hpfracc._arrays import library_of, tracks_gradient
from hpfracc._xp import NUMPY, Namespace, namespace_of
from hpfracc.engine.execution.api import exponential_recurrence, unlogged
from hpfracc.errors import InvalidInputError
from hpfracc.operators.core.grids import Grid, known_values
from hpfracc.operators.core.order import Order
from hpfracc.operators.core.rule import Rule
from hpfracc.operators.core.values import Samples, constant, join, scalar, weights_key, weights_of, zeros
from hpfracc.operators.rules.differences import increments
from hpfracc.operators.rules.l1 import with_parabolas

#: Moments up to here are evaluated one by one.
FIRST = 8
#: Chebyshev points of a block [L, 2L]: the error falls like 5.8^-20.
_POINTS = 20
#: Blocks with more points than this use Clenshaw's scheme, which needs no table.
_TABLE = 4096
#: Half the interval of the double exponential rule for kernels with a power at 0: its first point is 1e-270; and its
#: number of points.
DEEP, DEEP_COUNT = 6.0, 320
#: A power of a distance is negligible beyond the double exponential of this over the power.
_NEGLIGIBLE = 13.0
#: Terms of the series of the tilt: enough below z = 2.
_TERMS = 9

Array = np.ndarray[Any, Any]


@lru_cache(maxsize=1)
def _chebyshev() -> tuple[Array, Array]:
    """Points on [-1, 1], and the matrix from values there to coefficients."""
    angles = (np.arange(_POINTS) + 0.5) * np.pi / _POINTS
    matrix = 2.0 / _POINTS * np.cos(np.arange(_POINTS)[:, None] * angles)
    matrix[0] *= 0.5
    return np.cos(angles), matrix


def tabulate(xp: Namespace, evaluate: Callable[[Array], tuple[Any, ...]], n: int) -> tuple[Any, ...]:
    """Sequences for l = 0 .. n-1 from a function that computes them at any real ``l``, 0 .. 7 or above 8.

    Parameters
    ----------
    xp : Namespace
        Namespace of the results of ``evaluate``.
    evaluate : callable
        Takes an array of l (increasing within a block only) and returns the sequences there.
    n : int
        Length of the sequences.
    """
    x, matrix = _chebyshev()
    starts = [FIRST * 2**i for i in range(max(0, (max(n, 1) - 1) // FIRST).bit_length())]
    near = np.arange(min(n, FIRST), dtype=np.float64)
    places = [near, *(start * (1.5 + 0.5 * x) for start in starts)]
    rows = evaluate(np.concatenate(places))
    found = []
    for row in rows:
        parts = [row[: len(near)]]
        for i, start in enumerate(starts):
            low = len(near) + i * _POINTS
            coefficients = xp.matmul(xp.array(matrix), row[low : low + _POINTS].reshape(-1, 1))[:, 0]
            at = 2.0 * np.arange(start, min(2 * start, n)) / start - 3.0
            parts.append(_polynomial(xp, coefficients, at))
        found.append(xp.concatenate(parts))
    return tuple(found)


def _polynomial(xp: Namespace, coefficients: Any, at: Array) -> Any:
    if len(at) <= _TABLE:
        table = xp.array(chebyshev.chebvander(at, _POINTS - 1))
        return xp.matmul(table, coefficients.reshape(-1, 1))[:, 0]
    x = xp.array(at)
    before, last = 0.0 * x, 0.0 * x + coefficients[_POINTS - 1]
    for k in range(_POINTS - 2, 0, -1):
        before, last = last, coefficients[k] + 2.0 * x * last - before
    return coefficients[0] + x * last - before


@lru_cache(maxsize=8)
def _points_of_interval(count: int, power: float) -> tuple[Array, Array]:
    """Points and weights on (0, 1): Gauss's, or for 0 those of a double exponential rule for a power at 0."""
    if count:
        nodes, weights = legendre.leggauss(count)
        return 0.5 * (1.0 + nodes), 0.5 * weights
    left, _, weights = double_exponential(DEEP_COUNT, DEEP, (power, 1.0))
    return left, weights


def double_exponential(
    count: int, width: float, powers: tuple[float, float] = (1.0, 1.0), *, shifted: bool = False
) -> tuple[Array, Array, Array]:
    """Points on (0, 1), their distances from 1, and weights; at the midpoints between one more if ``shifted``.

    An integrand like the distance to the power p - 1 at an end, with p in ``powers``, has a fraction ``x**p`` of its
    integral before a point x: half of it before 1e-270 if p is 0.001. The points that are missing there get the
    integrand of the outermost one, times that power, so that their weights are added to its own.
    """
    step = 2.0 * width / (count if shifted else count - 1)
    place = -width + step * (np.arange(count) + (0.5 if shifted else 0.0))
    turn = np.pi * np.sinh(place)
    left, right = 1.0 / (1.0 + np.exp(-turn)), 1.0 / (1.0 + np.exp(turn))
    weights = left * right * np.pi * np.cosh(place) * step
    for end, power in zip((0, -1), powers, strict=True):
        last = abs(place[end])
        missing = np.arange(last + step, np.arcsinh(_NEGLIGIBLE / max(power, 1e-300) + np.sinh(last)), step)
        shares = np.cosh(missing) / np.cosh(last) * np.exp(-power * np.pi * (np.sinh(missing) - np.sinh(last)))
        weights[end] *= 1.0 + shares.sum()
    return left, right, weights


def kernel_moments(kernel: Callable[[Array], Array], power: float, step: float, at: Array) -> tuple[Array, ...]:
    """Mean, tilt and ``int_0^1 K((l+v) h) (v^2 - v)/2 dv`` at places l: 0, then whole numbers, then from 8 on.

    At 0 the kernel is like the lag to the ``power`` less 1.
    """
    parts = []
    for some, count in ((at[at < 1.0], 0), (at[(at >= 1.0) & (at < FIRST)], 20), (at[at >= FIRST], 6)):
        v, weights = _points_of_interval(count, power)
        inside = np.asarray(kernel(((some[:, None] + v) * step).reshape(-1))).reshape(-1, len(v)) * weights
        parts.append(np.stack([inside.sum(axis=1), inside @ (0.5 - v), inside @ (0.5 * v * (v - 1.0))]))
    return tuple(np.concatenate(parts, axis=1))


def exponential_mean(xp: Namespace, z: Any) -> Any:
    """``int_0^1 exp(-z v) dv`` for z > 0."""
    return -xp.expm1(-z) / z


def exponential_tilt(xp: Namespace, z: Any) -> Any:
    """``int_0^1 exp(-z v) (1/2 - v) dv`` for z > 0; by a series without cancellation if z is small.

    With w = z/2 it is ``exp(-w) (w cosh w - sinh w) / (2 w^2) = exp(-w) w sum_k k/(2k+1)! w^(2k-2)``.
    """
    small = z < 2.0
    half = 0.5 * xp.where(small, z, 1.0)
    total: Any = 0.0 * half
    for k in range(_TERMS, 0, -1):
        total = total * half * half + k / math.factorial(2 * k + 1)
    near = xp.exp(-half) * half * total
    large = xp.where(small, 1.0, z)
    far = 0.5 * exponential_mean(xp, large) - (1.0 - xp.exp(-large) * (1.0 + large)) / large**2
    return xp.where(small, near, far)


class LineOrParabola(Rule):
    """A rule of two degrees: ``"linear"`` (order 2), and ``"quadratic"`` (order 3), linear on the first interval."""

    least = 2

    def __init__(self, *, quadratic: bool) -> None:
        self.quadratic = quadratic

    @property
    def name(self) -> str:  # type: ignore[override]
        """``"linear"`` or ``"quadratic"``."""
        return "quadratic" if self.quadratic else "linear"

    @property
    def companion(self) -> Rule | None:  # type: ignore[override]
        """The linear rule, for the quadratic one."""
        return self.changed(quadratic=False) if self.quadratic else None

    def accuracy(self, alpha: float) -> float:
        """2 or 3."""
        return 3.0 if self.quadratic else 2.0

    def measured_from(self, order: Order) -> int:
        """Two, the end of the first parabola."""
        return 2


class ConvolutionMemory(LineOrParabola):
    """A rule that is one causal convolution of the increments."""

    def apply(self, samples: Samples, order: Order) -> Any:
        """Rows of starting weights belong to the first sample, and to the first increment, which is that of a line."""
        (weights, *rows), key = self.weights(samples, order)
        if not rows:
            return samples.convolve(weights, samples.values, key, differences=True)
        starts = constant(rows[0], samples.values, None if key is None else (key, "starts"))
        first = 1 - (len(starts) - self.quadratic)
        return samples.convolve(weights, samples.values, key, starts, starts_from=first, differences=True)

    @abstractmethod
    def weights(self, samples: Samples, order: Order) -> tuple[tuple[Any, ...], Hashable]:
        """The weights of the increments and the rows of starting weights, if any; and their cache key."""


@final
class KernelMemory(ConvolutionMemory):
    r"""The integral of f' or of f against a kernel with an integrable power :math:`t^{-a}` at 0, on a uniform grid.

    .. math:: \int_{t_0}^{t_k} K(t_k-s) f'(s)\,ds \approx \sum_{j=1}^{k} m_{k-j}\,\delta_j
        + \sum_{j=2}^{k} b_{k-j}\,(\delta_j - \delta_{j-1}), \quad \delta_j = f_j - f_{j-1},

    with the kernel's means m and tilts b. Without the second sum f is interpolated linearly (order 2 - a,
    ``"linear"``), with it quadratically (order 3 - a, ``"quadratic"``). The integral of f is that of f' against the
    integral of the kernel, plus that integral times the first sample, with orders 2 and 3.

    References
    ----------
    Product integration: P. Linz, *Analytical and Numerical Methods for Volterra Equations*, 1985, chapter 8.
    """

    #: The kernel, one more than its power at 0, the key of its weights in the cache, and whether they are tabulated.
    kernel: Callable[[Array], Array]
    power: float
    key: Hashable
    smooth: bool

    def __init__(self, *, quadratic: bool, integral: bool = False) -> None:
        super().__init__(quadratic=quadratic)
        self.integral = integral

    def accuracy(self, alpha: float) -> float:
        """2 or 3, less alpha for a derivative."""
        return 2.0 + self.quadratic - (0.0 if self.integral else alpha)

    def weights(self, samples: Samples, order: Order) -> tuple[tuple[Any, ...], Hashable]:
        """By the moments of the kernel."""
        step = known_values(samples.grid.step)
        if step is None or tracks_gradient(samples.grid.step):
            raise InvalidInputError("an operator with a kernel is not differentiable in the step; detach it")
        own, name = float(step), ("kernel", self.key, float(step))
        moments = weights_of(name, lambda xp, alpha, n: self._moments(own, n), order, samples.n)
        scheme = (*name, self.quadratic, self.integral)
        made = weights_of(scheme, lambda xp, alpha, n: self._put(own, *moments), order, samples.n)
        return made, weights_key(scheme, order, samples.n)

    def _moments(self, step: float, n: int) -> tuple[Array, ...]:
        with unlogged():
            if self.smooth:
                found: tuple[Array, ...] = tabulate(
                    NUMPY, lambda at: kernel_moments(self.kernel, self.power, step, at), n
                )
                return found
            return kernel_moments(self.kernel, self.power, step, np.arange(float(n)))

    def _put(self, step: float, means: Array, tilts: Array, bends: Array) -> tuple[Array, ...]:
        rows = []
        if self.integral:
            # Those of the integral of the kernel.
            total = step * np.concatenate([[0.0], np.cumsum(means[:-1])])
            means, tilts, rows = total + step * (0.5 * means + tilts), step * bends, [total]
        if self.quadratic:
            means, before = with_parabolas(NUMPY, means, tilts)
            rows.append(before)
        return (means, np.stack(rows)) if rows else (means.copy(),)


def on_step(order: Order, step: Any) -> Order:
    """The order in the library of a differentiable step, because the weights depend on both."""
    if order.plain and library_of(step) in ("torch", "jax"):
        xp = namespace_of(step)
        with xp.scope():
            return Order(xp.array(np.float64(order.value)), order.known, order.ceiling, xp)
    return order


def bends_of(steps: Any, grid: Grid) -> Any:
    """Twice the leading coefficient of each interval's parabola times its squared length: scaled second differences.

    The parabola goes through the ends of the interval and the point before, on the first interval through the point
    after; on a uniform grid it is a difference of increments.
    """
    if steps.shape[-1] < 3:
        return steps * 0
    bends = steps[..., 2:] - steps[..., 1:-1]
    if grid.uniform:
        return join([steps[..., :1], bends[..., :1], bends])
    lengths = np.diff(grid.times())
    now, before = lengths[1:], lengths[:-1]
    newer, older = (constant(2.0 * now * factor / (now + before), steps) for factor in (1.0, now / before))
    bends = steps[..., 2:] * newer - steps[..., 1:-1] * older
    return join([steps[..., :1], bends[..., :1] * scalar((before[0] / now[0]) ** 2, steps), bends])


#: Time constants after which the kernel is negligible in double precision.
_GONE = 700.0


@final
class ExponentialRule(LineOrParabola):
    r"""The integral of f' against :math:`e^{-c(t-s)}/(1-\alpha)`, :math:`c = \alpha/(1-\alpha)`, in O(n).

    .. math::
        s_k = e^{-ch} s_{k-1} + \frac{1}{1-\alpha} \Big[ \frac{1-e^{-ch}}{ch}\,\delta_k
        + b\,(\delta_k - \delta_{k-1}) \Big], \quad \delta_k = f_k - f_{k-1},\;
        b = \int_0^1 e^{-chv} (\tfrac12 - v)\,dv.

    Without the term in b, f is interpolated linearly (order 2, ``"linear"``); with it, quadratically (order 3,
    ``"quadratic"``; linearly on the first interval). The order holds at every point after the first, for f with that
    many continuous derivatives. Exactly zero on constants. On other increasing grids h is the length of the k-th
    interval and the second difference is that of the parabola through three neighbours.

    References
    ----------
    M. Caputo, M. Fabrizio, Progr. Fract. Differ. Appl. 1 (2015) 73-85.
    """

    cost = "O(n)"
    any_grid = True

    def __init__(self, *, quadratic: bool, first: float = 0.0) -> None:
        super().__init__(quadratic=quadratic)
        #: The share of the parabola on the first interval.
        self.first = first

    @property
    def companion(self) -> Rule | None:  # type: ignore[override]
        """The other rule, with a parabola on the first interval, where both are linear, in the same direction."""
        return ExponentialRule(quadratic=not self.quadratic, first=-1.0 if self.quadratic else 1.0)

    def apply(self, samples: Samples, order: Order) -> Any:
        """One recurrence over the increments."""
        x, grid = samples.values, samples.grid
        order = on_step(order, grid.step)
        xp = order.xp
        # On a non-uniform grid each interval has its own rate; there is none before the first point.
        steps = None if grid.uniform else np.diff(grid.times())
        lengths = grid.step if steps is None else np.concatenate([[1.0], steps])
        shortest = grid.step if steps is None else float(steps.min(initial=math.inf))
        with xp.scope():
            means, tilts = _moments(xp, order.value, xp.array(lengths))
            mean, tilt = order.guard(means), order.guard(tilts)
            decay, one = _rate(xp, order.value, xp.array(shortest)) * xp.array([1.0]), xp.array([1.0])
        steps = increments(x, 1)
        signal = steps * _factors(mean, x, grid)
        if self.quadratic or self.first:
            bends = bends_of(steps, grid)
            # Without it the first point does not depend on the sample after it.
            head = bends[..., :2] * self.first if self.first else zeros(bends, bends[..., :2].shape[-1])
            bends = join([head, bends[..., 2:] * float(self.quadratic)])
            signal = signal + bends * _factors(tilt, x, grid)
        return exponential_recurrence(decay, one, lengths, signal, backend=samples.backend)


def _rate(xp: Namespace, alpha: Any, shortest: Any) -> Any:
    """``alpha / (1 - alpha)``, limited to a rate at which the kernel is negligible after the shortest interval."""
    room = 1.0 - alpha
    gone = alpha * shortest > _GONE * room
    return xp.where(gone, _GONE / shortest, alpha / xp.where(gone, 1.0, room))


def _moments(xp: Namespace, alpha: Any, lengths: Any) -> tuple[Any, Any]:
    """Mean and tilt of the kernel over an interval, over 1 - alpha: finite and differentiable at alpha = 1 too."""
    room, span = 1.0 - alpha, alpha * lengths
    slow = span < 2.0 * room
    divisor = xp.where(slow, room, 1.0)
    z = xp.where(slow, span, 1.0) / divisor
    # For large z in terms of 1/z, which is 0 at alpha = 1. The remainder has no derivative there.
    w = xp.where(slow, 0.25, room / span)
    left = xp.where(w * _GONE > 1.0, xp.exp(-1.0 / xp.where(w * _GONE > 1.0, w, 1.0)), 0.0)
    fast_mean, fast_tilt = (1.0 - left) / span, ((0.5 - w) * (1.0 - left) + left) / span
    slow_mean, slow_tilt = exponential_mean(xp, z) / divisor, exponential_tilt(xp, z) / divisor
    return xp.where(slow, slow_mean, fast_mean), xp.where(slow, slow_tilt, fast_tilt)


def _factors(value: Any, x: Any, grid: Grid) -> Any:
    return scalar(value, x) if grid.uniform else constant(value, x)

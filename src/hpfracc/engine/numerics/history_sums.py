r"""History sums: the weights of intervals at later points in any array namespace, and the sum by a tree of clusters.

On an interval the mean of the kernel is used, ``(b^q - a^q) / (q (b - a))`` with ``q = p + 1`` for the power ``r^p``
between the distances a and b. Neighbouring powers, which would cancel, are subtracted by ``expm1`` and ``log1p``.

The tree takes O(n log n), to the rounding of the direct sum.

At a distance of at least its own length, a cluster of intervals acts through a polynomial: the kernel
:math:`(t - s)^p` is interpolated in s at Chebyshev nodes of the cluster, so the cluster becomes that number of
point sources, whose strengths (moments) depend only on the samples. The distance makes the interpolation converge like
:math:`(3 + \sqrt 8)^{-m}` with m nodes: with :data:`NODES` nodes the error is 1e-16. Closer intervals are summed
directly.

Moments are computed from the leaves up: those of a leaf by Gauss quadrature of each interval, which is exact for
polynomials of this degree, those of a larger cluster from the nodes of its two halves. All distances are measured from
the end of a cluster, which is a grid point, so that large times lose no digits.

References
----------
L. Greengard, V. Rokhlin, J. Comput. Phys. 73 (1987) 325-348; W. Fong, E. Darve, J. Comput. Phys. 228 (2009) 8712-8725
(Chebyshev interpolation for any smooth kernel).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpfracc._xp import NUMPY, Namespace

Array = np.ndarray[Any, Any]

#: The kernels, with the parameters that follow times and signal.
KINDS: dict[str, tuple[str, ...]] = {
    "power": ("exponent",),
    "tempered": ("exponent", "tempering"),
    "logarithmic": ("exponent",),
    "tabulated": ("knots", "table"),
}


def output_blocks(n: int, block: int, most: int) -> list[tuple[int, int]]:
    """Ranges of outputs that are computed together: about ``block`` weights, and at most ``most`` outputs."""
    blocks, low = [], 0
    while low < n:
        # The maximum number of rows r from ``low`` on for which ``r (low + r)`` weights fit into a block.
        rows = (math.isqrt(low * low + 4 * block) - low) // 2
        high = min(n, low + max(1, min(most, rows)))
        blocks.append((low, high))
        low = high
    return blocks


def mean_power(xp: Namespace, a: Any, width: Any, p: Any, scaled: bool = False) -> Any:
    """The mean of ``r**p`` from ``a`` to ``a + width``; ``a`` may be 0, ``p`` exceeds -1.

    If ``scaled``, times ``p + 1``: then ``p`` may be -1, where only an interval that touches 0 contributes.
    """
    q = p + 1.0
    touches = a <= 0.0
    near = xp.where(touches, width, a)
    ratio = width / near
    away = near**p * xp.expm1(q * xp.log1p(ratio)) / ratio
    mean = xp.where(touches, width**p, away)
    return mean if scaled else mean / q


def distances(xp: Namespace, kind: str, late: Any, early: Any) -> Any:
    """Distance of ``early`` before ``late``: their difference, or that of their logarithms."""
    gap = late - early
    return xp.log1p(gap / early) if kind == "logarithmic" else gap


def block_of_weights(
    xp: Namespace, kind: str, times: Any, parameters: tuple[Any, ...], late: Any, places: Any, scaled: bool = False
) -> tuple[Any, int]:
    """Weights of the outputs at ``places``, whose times are ``late``, for inputs at ``times``; and the first of those.

    Shape ``(outputs, inputs)``, zero for inputs later than the output. For kernels of intervals the inputs start with
    the second point, which ends the first interval.
    """
    late = late[:, None]
    first = 0 if kind == "tabulated" else 1
    causal = xp.asarray(np.arange(first, times.shape[0])[None, :] <= places[:, None], times)
    early = xp.where(causal, times[None, first:], late)
    if kind == "tabulated":
        return xp.where(causal, _interpolate(xp, late - early, *parameters), 0.0), first
    gap = distances(xp, kind, late, early)
    width = distances(xp, kind, times[1:], times[:-1])[None, :]
    weights = mean_power(xp, gap, width, parameters[0], scaled)
    if kind == "tempered":
        weights = weights * xp.exp(-parameters[1] * gap)
    return xp.where(causal, weights, 0.0), first


def _interpolate(xp: Namespace, at: Any, knots: Any, table: Any) -> Any:
    """Linear interpolation between the knots; the first or last value beyond them."""
    index = xp.searchsorted(knots, at.reshape(-1)).reshape(at.shape)
    index = xp.clip(index, 1, knots.shape[0] - 1)
    left, right = knots[index - 1], knots[index]
    share = xp.clip((at - left) / (right - left), 0.0, 1.0)
    return table[index - 1] * (1.0 - share) + table[index] * share


# The tree.

#: Intervals per leaf, and outputs that are computed together. Times for 16 to 64 differ by less than a third.
LEAF = 32
#: Chebyshev nodes of a cluster: with 20 the interpolation error was visible in the 15th digit.
NODES = 22
#: Leaves, and pairs of clusters, whose moments are computed together: a few MiB of polynomials.
_TOGETHER, _PAIRS = 64, 512


def _chebyshev(x: Array) -> Array:
    """The first :data:`NODES` Chebyshev polynomials at ``x``, along a new first axis."""
    table = np.empty((NODES, *x.shape))
    table[0], table[1] = 1.0, x
    twice = 2.0 * x
    for j in range(2, NODES):
        np.multiply(twice, table[j - 1], out=table[j])
        table[j] -= table[j - 2]
    return table


#: The nodes, their distances from the end of [-1, 1], and the matrix from polynomial moments to strengths.
_X = np.cos(np.pi * (np.arange(NODES) + 0.5) / NODES)
_BEFORE = 1.0 - _X
_STRENGTHS = _chebyshev(_X) * (2.0 / NODES)
_STRENGTHS[0] *= 0.5
_GAUSS, _GAUSS_WEIGHTS = np.polynomial.legendre.leggauss(NODES // 2)


@dataclass(frozen=True, slots=True)
class _Clusters:
    """Clusters of intervals.

    ``ends`` are their last points, ``lengths`` how far they reach back, ``strengths`` of shape
    ``(..., clusters, NODES)``.
    """

    ends: Array
    lengths: Array
    strengths: Array


class HistoryTree:
    """A signal on a grid, prepared for sums at the grid points.

    Parameters
    ----------
    kind : str
        ``"power"``, ``"tempered"`` or ``"logarithmic"``.
    times : array, shape (n,)
        Strictly increasing.
    signal : array, shape (..., n)
        Finite, float64 or complex128; the first value is not used.
    parameters : tuple of float
        The exponent, and the tempering of a tempered kernel.
    scaled : bool
        Whether the means are multiplied by ``p + 1``.
    """

    def __init__(
        self, kind: str, times: Array, signal: Array, parameters: tuple[float, ...], scaled: bool = False
    ) -> None:
        self._kind, self._times, self._signal, self._scaled = kind, times, signal, scaled
        self._p = parameters[0]
        self._sigma = parameters[1] if kind == "tempered" else 0.0
        self._n = times.size
        self._widths = np.ones(self._n)
        self._widths[1:] = distances(NUMPY, kind, times[1:], times[:-1])
        #: Positions for the distance criterion.
        self._at = times - times[0] if kind != "logarithmic" else np.log1p((times - times[0]) / times[0])
        #: Index of the first cluster of each size; the leaves come first.
        self._offsets: list[int] = []
        self._clusters = self._grow()
        # As plain numbers, which are faster to read one by one.
        self._reach = (self._at[self._clusters.ends] + self._clusters.lengths * (1.0 + 1e-9)).tolist()

    def _grow(self) -> _Clusters:
        """All clusters, from the leaves up; an incomplete one is never far from any output."""
        ends = LEAF * np.arange(1, (self._n - 1) // LEAF + 1)
        levels = [self._leaves(ends)]
        while len(levels[-1].ends) >= 2:
            levels.append(self._joined(levels[-1]))
        self._offsets = [0, *np.cumsum([len(level.ends) for level in levels])[:-1].tolist()]
        return _Clusters(
            np.concatenate([level.ends for level in levels]),
            np.concatenate([level.lengths for level in levels]),
            np.concatenate([level.strengths for level in levels], axis=-2),
        )

    def _distance(self, late: Array, early: Array) -> Array:
        """Distances of the points ``early`` before the points ``late``."""
        return np.asarray(distances(NUMPY, self._kind, self._times[late], self._times[early]))

    def _faded(self, late: Array, early: Array) -> Array | float:
        """The tempering factor between two points."""
        if self._kind != "tempered":
            return 1.0
        return np.asarray(np.exp(-self._sigma * (self._times[late] - self._times[early])))

    def _leaves(self, ends: Array) -> _Clusters:
        lengths = self._distance(ends, ends - LEAF)
        rows = self._signal.shape[:-1]
        strengths = np.empty((*rows, len(ends), NODES), self._signal.dtype)
        # Distance of a Gauss point from the end of its interval, as a fraction of the width.
        share = 0.5 * (1.0 - _GAUSS)
        for low in range(0, len(ends), _TOGETHER):
            some = slice(low, low + _TOGETHER)
            end = ends[some, None]
            points = end - LEAF + 1 + np.arange(LEAF)
            before = self._distance(end, points)[..., None] + self._widths[points][..., None] * share
            polynomials = _chebyshev(1.0 - before * (2.0 / lengths[some, None, None]))
            means = polynomials @ (0.5 * _GAUSS_WEIGHTS)
            del polynomials  # freed before the next ones are created
            samples = self._signal[..., points] * self._faded(end, points)
            strengths[..., some, :] = np.einsum("...lk,jlk->...lj", samples, means) @ _STRENGTHS
        return _Clusters(ends, lengths, strengths)

    def _joined(self, level: _Clusters) -> _Clusters:
        """Clusters of twice the size, from pairs of neighbours."""
        pairs = len(level.ends) // 2
        left, right = slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)
        ends, half = level.ends[right], level.lengths[right]
        lengths = half + level.lengths[left]
        strengths = np.empty((*level.strengths.shape[:-2], pairs, NODES), level.strengths.dtype)
        for low in range(0, pairs, _PAIRS):
            some = slice(low, low + _PAIRS)
            moments: Any = 0.0
            for side, gap in ((left, half[some]), (right, np.zeros_like(half[some]))):
                before = gap[:, None] + 0.5 * level.lengths[side][some, None] * _BEFORE
                polynomials = _chebyshev(1.0 - before * (2.0 / lengths[some, None]))
                own = level.strengths[..., side, :][..., some, :]
                if self._kind == "tempered":
                    own = own * np.exp(-self._sigma * gap)[:, None]
                moments = moments + np.einsum("...lm,jlm->...lj", own, polynomials)
                del polynomials
            strengths[..., some, :] = moments @ _STRENGTHS
        return _Clusters(ends, lengths, strengths)

    def _split(self, block: int) -> tuple[list[int], list[int]]:
        """The clusters that are far from block number ``block`` of outputs, and the leaves before it that are not."""
        far: list[int] = []
        near: list[int] = []
        here = float(self._at[1 + LEAF * block])
        reach, offsets = self._reach, self._offsets
        # The leaves before the block as whole clusters.
        todo = [(level, (block >> level) - 1) for level in range(len(offsets)) if block >> level & 1]
        while todo:
            level, place = todo.pop()
            number = offsets[level] + place
            if here >= reach[number]:
                far.append(number)
            elif level:
                todo += ((level - 1, 2 * place), (level - 1, 2 * place + 1))
            else:
                near.append(place)
        return far, near

    def sum_block(self, block: int) -> tuple[slice, Array]:
        """Outputs from ``1 + LEAF * block`` on, as many as a leaf has; and their position."""
        low = 1 + LEAF * block
        high = min(self._n, low + LEAF)
        outputs = np.arange(low, high)[:, None]
        far, near = self._split(block)
        own = np.arange(low, high)
        points = np.concatenate([(LEAF * np.sort(near)[:, None] + 1 + np.arange(LEAF)).ravel(), own]) if near else own
        later = points > outputs
        gap = self._distance(outputs, np.minimum(points, outputs))
        weights = mean_power(NUMPY, gap, self._widths[points], self._p, self._scaled)
        if self._kind == "tempered":
            weights = weights * np.exp(-self._sigma * gap)
        weights[later] = 0.0
        value = self._signal[..., points] @ weights.T
        return slice(low, high), value + self._from_far(np.array(far), outputs) if far else value

    def _from_far(self, numbers: Array, outputs: Array) -> Array:
        clusters = self._clusters
        ends = clusters.ends[numbers]
        gap = self._distance(outputs, ends)[..., None] + 0.5 * clusters.lengths[numbers, None] * _BEFORE
        kernel = np.exp(self._p * np.log(gap))
        if self._scaled:
            kernel *= self._p + 1.0
        if self._kind == "tempered":
            kernel *= self._faded(outputs, ends)[..., None]  # type: ignore[index]
        count = len(numbers) * NODES
        strengths = clusters.strengths[..., numbers, :].reshape(*self._signal.shape[:-1], count)
        return np.asarray(strengths @ kernel.reshape(len(outputs), count).T)

    @property
    def blocks(self) -> int:
        """Number of blocks of outputs after the first point."""
        return -(-(self._n - 1) // LEAF)

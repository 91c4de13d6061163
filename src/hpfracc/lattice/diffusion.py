r"""Fractional diffusion on a lattice: powers of the graph Laplacian in its eigenbasis, without a matrix."""

from __future__ import annotations

import contextlib
import math
from collections import deque
from collections.abc import Callable, Iterator
from functools import cached_property, reduce
from typing import Any

import numpy as np

from hpfracc import _reading
from hpfracc._arrays import library_of, to_host
from hpfracc._xp import NUMPY, Namespace, namespace_of
from hpfracc.engine.execution.api import spectral_multiply
from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.lattice.costs import like
from hpfracc.lattice.geometry import Array, Geometry
from hpfracc.lattice.measures import axis_laplacian, axis_transforms, is_regular, laplacian_spectrum
from hpfracc.operators.core.order import Order, read_order


class FractionalDiffusion:
    r"""Fractional Laplacian :math:`L^{\alpha/2}` of a lattice without costs, with its diffusion and random walks.

    :math:`L = D - A` is the graph Laplacian. Its eigenvectors are cosines along bounded axes and complex exponentials
    along periodic ones, so a function of it is one spectral multiplication, :math:`O(N \log N)`, on the fastest
    backend. ``alpha`` may be a tensor or a JAX scalar: everything except sampling is differentiable in it. Create it
    with :meth:`Lattice.fractional`.

    Parameters
    ----------
    geometry : Geometry
        Shape, periodicity and neighbourhood of the lattice.
    alpha : float or scalar array
        Order, above 0. 2 is ordinary diffusion; random walks need at most 2.
    scope : callable
        Returns a context manager for engine calls on given data.

    References
    ----------
    A. P. Riascos, J. L. Mateos, Phys. Rev. E 90 (2014) 032809; T. M. Michelitsch et al., *Fractional Dynamics on
    Networks and Lattices*, Wiley 2019.

    Examples
    --------
    >>> import numpy as np
    >>> from hpfracc.lattice import Lattice
    >>> ring = Lattice((8,), periodic=True).fractional(1.0)
    >>> ring.apply(np.ones(8))
    array([0., 0., 0., 0., 0., 0., 0., 0.])
    >>> bool(np.isclose(ring.transition_row(0).sum(), 1.0))
    True
    """

    def __init__(
        self,
        geometry: Geometry,
        alpha: Any,
        scope: Callable[[Any], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext,
    ) -> None:
        _reading.instance("geometry", geometry, Geometry, "lattice.geometry")
        if geometry.is_moore and not is_regular(geometry):
            laplacian_spectrum(geometry)  # raises the error
        self.geometry = geometry
        self._scope = scope
        self._order: Order = read_order(alpha)
        known = self._order.known
        if known is not None and known <= 0.0:
            raise InvalidInputError(f"alpha={known} is not positive; use a number above 0")

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the arguments only; cached arrays are computed again."""
        return FractionalDiffusion, (self.geometry, self.alpha, self._scope)

    @property
    def alpha(self) -> Any:
        """The order."""
        return self._order.value

    @cached_property
    def _host_powers(self) -> Array:
        found: Array = self._powers(NUMPY)
        found.setflags(write=False)
        return found

    def _powers(self, xp: Namespace) -> Any:
        """``lambda ** (alpha/2)`` for every eigenvalue. Zero eigenvalues give 0 with derivative 0."""
        if not self.geometry.is_moore:
            # Added on the device of the field.
            total = sum(map(xp.array, np.ix_(*(axis_laplacian(*axis) for axis in self.geometry.axes))))
        else:
            total = xp.array(laplacian_spectrum(self.geometry))
        still = total <= 0.0
        powers = xp.exp(0.5 * self._order.value * xp.log(xp.where(still, 1.0, total)))
        return self._order.guard_integral(xp.where(still, 0.0, powers))

    def _symbol(self, field: Any, function: Callable[[Namespace, Any], Any] | None) -> tuple[Any, Any]:
        """Spectral symbol ``function(powers)`` for ``field``, and a cache key where it can be reused."""
        xp = self._order.xp
        if self._order.plain and library_of(field) in ("torch", "jax"):
            xp = namespace_of(field)  # on the field's device, because the symbol is as large as the field
        with xp.scope():
            powers = self._host_powers if xp.library == "numpy" else self._powers(xp)
            symbol = powers if function is None else function(xp, powers)
        key = ("lattice", self.geometry, self._order.value) if function is None and xp.library == "numpy" else None
        return (like(symbol, field) if library_of(field) == "cupy" else symbol), key

    def _multiply(self, field: Any, function: Callable[[Namespace, Any], Any] | None) -> Any:
        shape = self.geometry.shape
        if library_of(field) == "python":
            field = np.asarray(field)
        if tuple(field.shape[-len(shape) :]) != shape or field.ndim < len(shape):
            raise ShapeError(f"field has shape {tuple(field.shape)}; its last axes must be the lattice's, {shape}")
        symbol, key = self._symbol(field, function)
        axes = tuple(range(-len(shape), 0))
        with self._scope(field):
            return spectral_multiply(symbol, field, axes=axes, kinds=axis_transforms(self.geometry), weights_key=key)

    def apply(self, field: Any) -> Any:
        r""":math:`L^{\alpha/2} f`. Leading axes of ``field`` are a batch."""
        return self._multiply(field, None)

    def diffuse(self, field: Any, time: float) -> Any:
        r""":math:`e^{-t L^{\alpha/2}} f`: the field after diffusing for a time."""
        moment = _read_times(time)
        if moment.ndim:
            raise InvalidInputError(f"time={time!r} is an array; use one number")
        return self._multiply(field, lambda xp, powers: xp.exp(-float(moment) * powers))

    def heat_kernel(self, source: Any, time: float) -> Any:
        """:meth:`diffuse` of a unit at one point: the distribution of a continuous-time walker started there."""
        return self.diffuse(self._unit(source), time)

    def _unit(self, source: Any) -> Any:
        self.geometry.check_memory("a field")
        unit = np.zeros(self.geometry.size)
        unit[self.geometry.index(source)] = 1.0
        unit = unit.reshape(self.geometry.shape)
        return like(unit, self._order.value) if not self._order.plain else unit

    def _check_walk(self) -> None:
        known = self._order.known
        if known is not None and known > 2.0:
            raise InvalidInputError(f"alpha={known} gives negative probabilities; walks need an order of at most 2")
        if self.geometry.size == 1:
            raise InvalidInputError("a walker on a lattice of one point has nowhere to go; use a larger lattice")

    def degrees(self) -> Any:
        r"""Fractional degrees :math:`k_i = (L^{\alpha/2})_{ii}` of all points."""
        xp = self._order.xp
        with xp.scope():
            values = self._powers(xp)
            for side, wraps in zip(self.geometry.shape, self.geometry.wraps, strict=True):
                # Contracts the first axis and moves it last; after the loop the axes are in their original order.
                values = xp.matmul(xp.array(_squares(side, wraps)), values.reshape(side, -1)).T
            return values.reshape(self.geometry.shape)

    def transition_row(self, source: Any) -> Any:
        r"""Probabilities of the next step, :math:`P_{ij} = \delta_{ij} - (L^{\alpha/2})_{ij} / k_i`: long-tailed."""
        self._check_walk()
        unit = self._unit(source)
        row = self.apply(unit)
        point = self.geometry.coordinates(self.geometry.index(source))
        return unit - row / row[point]

    def step(self, distribution: Any) -> Any:
        """Distribution after one step, given the current distribution."""
        self._check_walk()
        return distribution - self.apply(distribution / self._degrees_like(distribution))

    def _degrees_like(self, field: Any) -> Any:
        found = self.degrees()
        return like(found, field) if self._order.plain else found

    def _walk(self, source: Any, steps: int) -> Iterator[Any]:
        """Distributions of a walker started at ``source`` after 0, 1, ..., ``steps`` steps."""
        self._check_walk()
        found = self._unit(source)
        degrees = self._degrees_like(found)
        yield found
        for _ in range(_reading.whole("steps", steps, least=0)):
            found = found - self.apply(found / degrees)
            yield found

    def walk_distribution(self, source: Any, steps: int) -> Any:
        """Distribution of a walker started at ``source`` after ``steps`` steps."""
        return deque(self._walk(source, steps), maxlen=1).pop()

    def return_probabilities(self, source: Any, steps: int) -> Array:
        """Probabilities to be back at ``source`` after 0, 1, ..., ``steps`` steps."""
        point = self.geometry.coordinates(self.geometry.index(source))
        return np.array([float(to_host(found)[point]) for found in self._walk(source, steps)])

    def return_probability(self, times: Any) -> Any:
        r"""Mean return probability in continuous time, :math:`\frac1N \sum_k e^{-t \lambda_k^{\alpha/2}}`."""
        xp = self._order.xp
        moments = _read_times(times)
        with xp.scope():
            powers = self._powers(xp).reshape(-1)
            found = xp.stack([xp.exp(-float(t) * powers).mean() for t in moments.reshape(-1)])
        return found.reshape(np.shape(times))

    def sample(
        self, start: Any, steps: int, *, walkers: int = 1, rng: np.random.Generator | int | None = None
    ) -> Array:
        """Sample random walks: indices of the visited points, shape ``(walkers, steps + 1)``.

        Parameters
        ----------
        start : int or coordinates
            Where all walkers start.
        steps : int
            Steps of each walk.
        walkers : int
            Number of walks.
        rng : numpy.random.Generator or seed, optional
            For reproducible walks.
        """
        self._check_walk()
        if self._order.known is None:
            raise InvalidInputError("alpha is traced, and sampling needs its value; give a number")
        counts = [_reading.whole(name, value, least=0) for name, value in (("steps", steps), ("walkers", walkers))]
        first = self.geometry.index(start)
        return _sample_walks(self.geometry, self._order.known, first, counts[0], counts[1], _reading.generator(rng))


def _read_times(times: Any) -> Array:
    """Check times: plain finite numbers of at least 0."""
    try:
        moments = np.asarray(times, dtype=np.float64) if library_of(times) in ("python", "numpy") else None
    except (TypeError, ValueError):
        moments = None
    if moments is None or not ((moments >= 0) & (moments < math.inf)).all():
        raise InvalidInputError(f"time={times!r} is not a time; use finite numbers of at least 0")
    return moments


def _squares(side: int, wraps: bool) -> Array:
    """``phi_k(i)^2`` for the normalised eigenvectors ``phi_k`` of one axis, indexed by point i and wave number k."""
    if wraps:
        return np.full((side, side), 1.0 / side)
    k, i = np.arange(side), np.arange(side)[:, None]
    return np.where(k == 0, 1.0, 2.0 * np.cos(math.pi * k * (i + 0.5) / side) ** 2) / side


# Exact sampling of random walks.
#
# On a ring all rows of the transition matrix are shifts of one kernel, so one table of jumps serves all points. A
# bounded axis of n points is a ring of 2n points folded in half: folding the ring's jumps gives the rows of the bounded
# axis, except for jumps that land on the walker's own mirror image. Those are drawn again.


def _sample_walks(
    geometry: Geometry, alpha: float, start: int, steps: int, walkers: int, rng: np.random.Generator
) -> Array:
    """Indices of the visited points, shape ``(walkers, steps + 1)``."""
    # An axis of one or two points is a ring itself.
    folded = [side > 2 and not wraps for side, wraps in geometry.axes]
    sides = [2 * side if fold else side for side, fold in zip(geometry.shape, folded, strict=True)]
    if geometry.is_moore:
        values = laplacian_spectrum(geometry)
    else:
        rings = zip(sides, folded, geometry.wraps, strict=True)
        values = reduce(np.add.outer, [axis_laplacian(side, fold or wraps) for side, fold, wraps in rings])
    unit = np.zeros(sides)
    unit[(0,) * len(sides)] = 1.0
    powers, axes = values ** (0.5 * alpha), tuple(range(-len(sides), 0))
    kernel = np.asarray(spectral_multiply(powers, unit, axes=axes, kinds="fft")).reshape(-1)
    kernel[0] = 0.0
    cumulative = np.cumsum(np.maximum(-kernel, 0.0))

    def jumped(here: list[Any], count: tuple[int, ...]) -> Array:
        """Indices after jumps from points with these coordinates; along the last axis the jumps add up."""
        drawn = np.searchsorted(cumulative, rng.random(math.prod(count)) * cumulative[-1], side="right")
        there = np.zeros(count, np.int64)
        # Flat, because NumPy returns wrong coordinates for a long column (numpy/numpy#31980).
        shifts = [shift.reshape(count) for shift in np.unravel_index(drawn, sides)]
        for at, shift, ring, fold, stride in zip(here, shifts, sides, folded, geometry.strides, strict=True):
            place = (at + np.cumsum(shift, axis=-1)) % ring
            there += (np.minimum(place, ring - 1 - place) if fold else place) * stride
        return there

    walks = np.empty((walkers, steps + 1), np.int64)
    walks[:, 0] = start
    if not any(folded):
        walks[:, 1:] = jumped(list(geometry.coordinates(start)), (walkers, steps))
        return walks
    for step in range(steps):
        pending = np.arange(walkers)
        while len(pending):
            before = walks[pending, step]
            there = jumped([each[:, None] for each in geometry.columns(before)], (len(pending), 1))[:, 0]
            walks[pending, step + 1] = there
            pending = pending[there == before]
    return walks

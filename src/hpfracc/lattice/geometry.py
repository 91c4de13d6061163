"""Geometry of a lattice: row-major indices, coordinates and neighbours, computed on demand, not stored."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hpfracc import _reading
from hpfracc.engine.memory.budget import HOST, get_budget
from hpfracc.engine.numerics.stencils import NEIGHBOURHOODS, forward_offsets
from hpfracc.errors import InvalidInputError, OutOfMemoryError, ShapeError

Array = np.ndarray[Any, Any]
#: Largest index that an array of int64 can hold.
_MAX_INDEX = 2**63 - 1
#: Lattices with fewer points skip the memory check.
_MIN_CHECKED_POINTS = 2**20


def _integer(value: Any) -> int:
    if isinstance(value, bool):
        raise TypeError
    return operator.index(value)


@dataclass(frozen=True, slots=True)
class Geometry:
    """Shape, periodicity and neighbourhood of a lattice.

    Attributes
    ----------
    shape : tuple of int
        Points along each axis.
    wraps : tuple of bool
        Whether the first and last point of an axis are neighbours. An axis of one or two points never wraps, so that
        the graph stays simple.
    neighbourhood : {"von_neumann", "moore"}
        Steps along one axis, or along any number of them at once.
    """

    shape: tuple[int, ...]
    wraps: tuple[bool, ...]
    neighbourhood: str
    size: int = field(init=False)
    strides: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", math.prod(self.shape))
        strides = tuple(math.prod(self.shape[axis + 1 :]) for axis in range(len(self.shape)))
        object.__setattr__(self, "strides", strides)

    @property
    def axes(self) -> Iterator[tuple[int, bool]]:
        """Number of points of each axis, and whether it wraps."""
        return zip(self.shape, self.wraps, strict=True)

    @property
    def is_moore(self) -> bool:
        """Whether steps may be diagonal."""
        return self.neighbourhood == "moore"

    @property
    def forward(self) -> tuple[tuple[int, ...], ...]:
        """One offset of each pair of opposite steps."""
        return forward_offsets(len(self.shape), self.neighbourhood)

    def index(self, point: Any) -> int:
        """Index of one point, which is given by its index or its coordinates."""
        try:
            number = _integer(point)
        except TypeError:
            pass
        else:
            if not 0 <= number < self.size:
                raise InvalidInputError(f"point {number} is not in the lattice; use an index from 0 to {self.size - 1}")
            return number
        try:
            coordinates = [_integer(value) for value in point]
        except TypeError:
            raise InvalidInputError(
                f"point {point!r} is neither an index nor coordinates; use one int, or {len(self.shape)} coordinates"
            ) from None
        if len(coordinates) != len(self.shape):
            raise InvalidInputError(
                f"point {point!r} has {len(coordinates)} coordinates; the lattice has {len(self.shape)} axes"
            )
        index = 0
        for coordinate, side, stride in zip(coordinates, self.shape, self.strides, strict=True):
            if not 0 <= coordinate < side:
                raise InvalidInputError(f"point {point!r} is outside the lattice of shape {self.shape}; count from 0")
            index += coordinate * stride
        return index

    def coordinates(self, index: int) -> tuple[int, ...]:
        """Coordinates of the point with this index."""
        return tuple(self.columns(index))

    def indices(self, points: Any) -> Array:
        """Indices of many points, given as a 1-d array of indices or an array of coordinates along the last axis."""
        array = np.asarray(points)
        mixed = isinstance(points, list | tuple) and any(isinstance(value, bool) for value in points)
        if array.size and (mixed or array.dtype.kind not in "iu"):
            kind = "bool" if mixed else array.dtype
            raise InvalidInputError(f"points have dtype {kind}; use integer indices or coordinates")
        array = array if array.size else array.astype(np.int64)
        if self.size > _MAX_INDEX:
            raise InvalidInputError(
                f"the lattice of shape {self.shape} has indices beyond {_MAX_INDEX:,}, which do not fit into 64 bits; "
                "pass one point at a time instead of an array"
            )
        if array.ndim <= 1:
            if array.size and (array.min() < 0 or array.max() >= self.size):
                raise InvalidInputError(f"some points are not in the lattice; use indices from 0 to {self.size - 1}")
            return array.astype(np.int64, copy=False)
        if array.shape[-1] != len(self.shape):
            raise ShapeError(f"points have shape {array.shape}; the last axis must have {len(self.shape)} coordinates")
        index = np.zeros(array.shape[:-1], np.int64)
        for axis, (side, stride) in enumerate(zip(self.shape, self.strides, strict=True)):
            coordinate = array[..., axis]
            if coordinate.size and (coordinate.min() < 0 or coordinate.max() >= side):
                raise InvalidInputError(f"some points are outside the lattice of shape {self.shape}; count from 0")
            index += coordinate.astype(np.int64, copy=False) * stride
        return index

    def check_memory(self, what: str, bytes_per_point: int = 16) -> None:
        """Raise :class:`OutOfMemoryError` if an array over all points does not fit into host memory."""
        if self.size < _MIN_CHECKED_POINTS:
            return
        free = get_budget().read(HOST)
        needed = bytes_per_point * self.size
        if free is not None and needed > free:
            raise OutOfMemoryError(
                f"{what} of {self.size:,} points would take {needed / 2**30:,.0f} GiB, and {free / 2**30:,.1f} GiB are "
                "free; query single points, or use a smaller lattice"
            )

    def columns(self, indices: Any) -> list[Any]:
        """Coordinates of an index, or of an array of indices: one number or array for each axis."""
        rest, found = indices, []
        for stride in self.strides[:-1]:
            coordinate = rest // stride
            rest = rest - coordinate * stride
            found.append(coordinate)
        return [*found, rest]

    def neighbours(self, index: int) -> list[int]:
        """Indices of the neighbours of one point, in ascending order."""
        here = self.coordinates(index)
        found = set()
        for offset in self.forward:
            for sign in (1, -1):
                there = 0
                for c, o, side, wrap, stride in zip(here, offset, self.shape, self.wraps, self.strides, strict=True):
                    moved = c + sign * o
                    if not 0 <= moved < side:
                        if not wrap:
                            break
                        moved %= side
                    there += moved * stride
                else:
                    found.add(there)
        return sorted(found)

    def edges(self) -> tuple[Array, Array, Array]:
        """Tails and heads of all edges, each once, and the forward offset that each belongs to."""
        indices = np.arange(self.size, dtype=np.int64).reshape(self.shape)
        found = [np.empty((3, 0), np.int64)]
        inside = {0: slice(None), 1: slice(None, -1), -1: slice(1, None)}
        for kind, offset in enumerate(self.forward):
            if all(abs(step) < side or wrap for step, (side, wrap) in zip(offset, self.axes, strict=True)):
                there = np.roll(indices, [-step for step in offset], range(len(self.shape)))
                places = tuple(inside[0 if wrap else step] for step, wrap in zip(offset, self.wraps, strict=True))
                tails, heads = indices[places].reshape(-1), there[places].reshape(-1)
                found.append(np.stack([tails, heads, np.full(tails.size, kind)]))
        tails, heads, kinds = np.concatenate(found, axis=1)
        return tails, heads, kinds


def make_geometry(shape: Any, periodic: Any, neighbourhood: Any) -> Geometry:
    """Check the description of a lattice."""
    try:
        sides = tuple(operator.index(side) for side in (shape if isinstance(shape, Sequence) else tuple(shape)))
    except TypeError:
        raise InvalidInputError(f"shape={shape!r} is not a shape; use a tuple of integers, such as (64, 64)") from None
    if not sides or min(sides) < 1:
        raise InvalidInputError(f"shape={shape!r}; use at least one axis, and at least one point along each")
    _reading.choice("neighbourhood", neighbourhood, NEIGHBOURHOODS)
    try:
        wanted = (periodic,) * len(sides) if isinstance(periodic, bool | np.bool_) else tuple(periodic)
    except TypeError:
        wanted = ()
    if len(wanted) != len(sides) or not all(isinstance(wrap, bool | np.bool_) for wrap in wanted):
        raise InvalidInputError(
            f"periodic={periodic!r}; use True or False, or one of them for each of {len(sides)} axes"
        )
    return Geometry(sides, tuple(bool(w) and n > 2 for w, n in zip(wanted, sides, strict=True)), neighbourhood)

"""Where the points of a lattice are: row-major indices, coordinates, and who is whose neighbour. Nothing is stored."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hpfracc.engine.memory.budget import HOST, get_budget
from hpfracc.engine.numerics.stencils import NEIGHBOURHOODS, forward_offsets
from hpfracc.errors import InvalidInputError, OutOfMemoryError, ShapeError

__all__ = ["Array", "Geometry", "Point", "make_geometry"]

Array = np.ndarray[Any, Any]
#: The greatest index of an array; points below which memory is not asked for.
_MOST, _SMALL = 2**63 - 1, 2**20
#: A point: its row-major index, or its coordinates.
Point = int | Sequence[int]


@dataclass(frozen=True, slots=True)
class Geometry:
    """A box of points with steps between neighbours.

    Attributes
    ----------
    shape : tuple of int
        Points along each axis.
    wraps : tuple of bool
        Whether the last point of an axis has the first as its neighbour. An axis of one or two points has no step to
        gain by it, so that it never wraps: the graph is simple.
    neighbourhood : {"von_neumann", "moore"}
        Steps along one axis, or along any number of them at once.
    """

    shape: tuple[int, ...]
    wraps: tuple[bool, ...]
    neighbourhood: str
    size: int = field(init=False)
    strides: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        strides = [1] * len(self.shape)
        for axis in range(len(self.shape) - 2, -1, -1):
            strides[axis] = strides[axis + 1] * self.shape[axis + 1]
        object.__setattr__(self, "size", math.prod(self.shape))
        object.__setattr__(self, "strides", tuple(strides))

    @property
    def is_moore(self) -> bool:
        """Whether steps may be diagonal."""
        return self.neighbourhood == "moore"

    @property
    def forward(self) -> tuple[tuple[int, ...], ...]:
        """One of each pair of opposite steps."""
        return forward_offsets(len(self.shape), self.neighbourhood)

    def place(self, point: Any) -> int:
        """The index of one point, given as that or by its coordinates."""
        try:
            number = operator.index(point)
        except TypeError:
            return self._place_of_coordinates(point)
        if not 0 <= number < self.size:
            raise InvalidInputError(f"point {number} of a lattice of {self.size:,}; use 0 to {self.size - 1}")
        return number

    def _place_of_coordinates(self, point: Any) -> int:
        try:
            coordinates = [operator.index(value) for value in point]
        except TypeError:
            raise InvalidInputError(
                f"point {point!r} is neither an index nor coordinates; use an int or {len(self.shape)} of them"
            ) from None
        if len(coordinates) != len(self.shape):
            raise InvalidInputError(
                f"point {point!r} has {len(coordinates)} coordinates; the lattice has {len(self.shape)} axes"
            )
        place = 0
        for coordinate, side, stride in zip(coordinates, self.shape, self.strides, strict=True):
            if not 0 <= coordinate < side:
                raise InvalidInputError(f"point {point!r} lies outside the lattice {self.shape}; count from 0")
            place += coordinate * stride
        return place

    def coordinates(self, place: int) -> tuple[int, ...]:
        """The coordinates of one index."""
        found = []
        for stride in self.strides:
            coordinate, place = divmod(place, stride)
            found.append(coordinate)
        return tuple(found)

    def places(self, points: Any) -> Array:
        """Indices of many points: an array of indices, or one whose last axis has the coordinates."""
        array = np.asarray(points)
        if array.dtype.kind not in "iu":
            if array.size:
                raise InvalidInputError(f"points of dtype {array.dtype}; use integers: indices or coordinates")
            array = array.astype(np.int64)
        return self.places_of(array)

    def places_of(self, array: Array) -> Array:
        """The same for an array of integers; one axis means indices."""
        if self.size > _MOST:
            raise InvalidInputError(
                f"an array of points of a lattice {self.shape}: indices beyond {_MOST:,} do not fit into 64 bits; "
                "ask for one point at a time"
            )
        if array.ndim <= 1:
            if array.size and (array.min() < 0 or array.max() >= self.size):
                raise InvalidInputError(f"points outside a lattice of {self.size:,}; use 0 to {self.size - 1}")
            return array.astype(np.int64, copy=False)
        if array.shape[-1] != len(self.shape):
            raise ShapeError(f"points of shape {array.shape}; the last axis must have {len(self.shape)} coordinates")
        place = np.zeros(array.shape[:-1], np.int64)
        for axis, (side, stride) in enumerate(zip(self.shape, self.strides, strict=True)):
            coordinate = array[..., axis]
            if coordinate.size and (coordinate.min() < 0 or coordinate.max() >= side):
                raise InvalidInputError(f"coordinates outside the lattice {self.shape}; count from 0")
            place += coordinate.astype(np.int64, copy=False) * stride
        return place

    def require_room(self, what: str, each: int = 16) -> None:
        """Refuse an answer with an entry for every point where there is no memory for it."""
        if self.size < _SMALL:
            return
        free = get_budget().read(HOST)
        if free is not None and each * self.size > free:
            raise OutOfMemoryError(
                f"{what} of {self.size:,} points: {each * self.size / 2**30:,.0f} GiB are needed, {free / 2**30:,.1f} "
                "are free; ask for single points, or use a smaller lattice"
            )

    def columns(self, places: Array) -> list[Array]:
        """Coordinates of many indices, an array for each axis."""
        rest, found = places, []
        for stride in self.strides[:-1]:
            coordinate = rest // stride
            rest = rest - coordinate * stride
            found.append(coordinate)
        return [*found, rest]

    def neighbours(self, place: int) -> list[int]:
        """Indices of the neighbours of one point, in rising order."""
        here = self.coordinates(place)
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
        """All steps: tails, heads, and which forward offset each is; every edge once."""
        places = np.arange(self.size, dtype=np.int64).reshape(self.shape)
        tails, heads, kinds = [], [], []
        for kind, offset in enumerate(self.forward):
            if all(abs(step) < side or wrap for step, side, wrap in zip(offset, self.shape, self.wraps, strict=True)):
                there = np.roll(places, [-step for step in offset], range(len(self.shape)))
                inside = tuple(_inside(step, wrap) for step, wrap in zip(offset, self.wraps, strict=True))
                tails.append(places[inside].reshape(-1))
                heads.append(there[inside].reshape(-1))
                kinds.append(np.full(tails[-1].size, kind, np.int64))
        if not tails:
            return (np.empty(0, np.int64),) * 3
        return np.concatenate(tails), np.concatenate(heads), np.concatenate(kinds)


def _inside(step: int, wrap: bool) -> slice:
    if wrap or not step:
        return slice(None)
    return slice(None, -1) if step > 0 else slice(1, None)


def make_geometry(shape: Any, periodic: Any, neighbourhood: Any) -> Geometry:
    """Check what describes a lattice."""
    try:
        sides = tuple(operator.index(side) for side in (shape if isinstance(shape, Sequence) else tuple(shape)))
    except TypeError:
        raise InvalidInputError(f"shape={shape!r}; use a tuple of whole numbers, such as (64, 64)") from None
    if not sides or min(sides) < 1:
        raise InvalidInputError(f"shape={shape!r}; a lattice has at least one axis, and a point along each")
    if neighbourhood not in NEIGHBOURHOODS:
        raise InvalidInputError(f"neighbourhood={neighbourhood!r}; use {' or '.join(map(repr, NEIGHBOURHOODS))}")
    try:
        wanted = (periodic,) * len(sides) if isinstance(periodic, bool | np.bool_) else tuple(periodic)
    except TypeError:
        wanted = ()
    if len(wanted) != len(sides) or not all(isinstance(wrap, bool | np.bool_) for wrap in wanted):
        raise InvalidInputError(f"periodic={periodic!r}; give True or False, or one for each of {len(sides)} axes")
    return Geometry(sides, tuple(bool(w) and n > 2 for w, n in zip(wanted, sides, strict=True)), neighbourhood)

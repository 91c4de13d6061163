"""Closed forms on a lattice without costs: distances, shortest paths and the number of shortest paths."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any

import numpy as np

from hpfracc.errors import InvalidInputError
from hpfracc.lattice.geometry import Array, Geometry


@dataclass(frozen=True, slots=True, eq=False)
class PathBatch:
    """Several paths stored in one array; ``batch[i]`` is the i-th path, as an array of indices.

    Attributes
    ----------
    points : numpy.ndarray
        The points of all paths, concatenated.
    begins : numpy.ndarray
        Start of each path in ``points``, followed by the total length.
    """

    points: Array
    begins: Array

    def __len__(self) -> int:
        return len(self.begins) - 1

    def __getitem__(self, number: int) -> Array:
        if not -len(self) <= number < len(self):
            raise InvalidInputError(f"path {number} of a batch of {len(self)}; count from 0")
        number %= len(self)
        return self.points[self.begins[number] : self.begins[number + 1]]

    def __iter__(self) -> Iterator[Array]:
        return (self[number] for number in range(len(self)))

    @property
    def lengths(self) -> Array:
        """Number of steps of each path."""
        return np.asarray(np.diff(self.begins) - 1)


def _shifts(geometry: Geometry, a: Any, b: Any) -> list[Any]:
    """Signed steps from a to b along each axis, of indices or arrays of them.

    Of two equally short directions, the positive one.
    """
    shifts = []
    for here, there, side, wraps in zip(
        geometry.columns(a), geometry.columns(b), geometry.shape, geometry.wraps, strict=True
    ):
        shift = there - here
        if wraps:
            shift = shift % side
            shift = shift - side * (2 * shift > side)
        shifts.append(shift)
    return shifts


def distance(geometry: Geometry, a: int, b: int) -> int:
    """Number of steps between two points: the sum over the axes, or their maximum where steps may be diagonal."""
    return int((max if geometry.is_moore else sum)(map(abs, _shifts(geometry, a, b))))


def distances(geometry: Geometry, starts: Array, ends: Array) -> Array:
    """:func:`distance` for arrays of indices, with broadcasting."""
    return np.asarray(reduce(np.maximum if geometry.is_moore else np.add, map(np.abs, _shifts(geometry, starts, ends))))


def distance_map(geometry: Geometry, sources: list[int]) -> Array:
    """Steps from the nearest source to every point, in the shape of the lattice."""
    return reduce(lambda found, one: np.minimum(found, one, out=found), (_one_map(geometry, each) for each in sources))


def _one_map(geometry: Geometry, source: int) -> Array:
    along = []
    for (side, wraps), here in zip(geometry.axes, geometry.coordinates(source), strict=True):
        steps = np.abs(np.arange(side) - here)
        along.append(np.minimum(steps, side - steps) if wraps else steps)
    return reduce((np.maximum if geometry.is_moore else np.add).outer, along)


def path(geometry: Geometry, a: int, b: int) -> list[int]:
    """One shortest path: one axis after the other, or all axes at once where steps may be diagonal."""
    axes = [*zip(geometry.coordinates(a), _shifts(geometry, a, b), geometry.shape, geometry.strides, strict=True)]
    if geometry.is_moore:
        return [
            sum((here + max(-turn, min(turn, shift))) % side * stride for here, shift, side, stride in axes)
            for turn in range(max(abs(shift) for _, shift, _, _ in axes) + 1)
        ]
    found = [a]
    for here, shift, side, stride in axes:
        others, step = found[-1] - here * stride, 1 if shift > 0 else -1
        found += [others + at % side * stride for at in range(here + step, here + shift + step, step)]
    return found


def paths(geometry: Geometry, starts: Array, ends: Array) -> tuple[Array, Array]:
    """One shortest path for each pair: the concatenated points, and where each path begins; see :class:`PathBatch`.

    With von Neumann neighbours a path is a few runs of equal moves: one run for each axis, or three where it crosses
    the end of a periodic axis. All paths together are the cumulative sum of all moves.
    """
    shifts = _shifts(geometry, starts, ends)
    if geometry.is_moore:
        return _diagonal_paths(geometry, starts, shifts)
    counts, moves = [], []
    for here, shift, side, stride, wraps in zip(
        geometry.columns(starts), shifts, geometry.shape, geometry.strides, geometry.wraps, strict=True
    ):
        distance_along, step = np.abs(shift), np.sign(shift) * stride
        if wraps:
            before = np.where(shift > 0, side - 1 - here, here)
            crosses = distance_along > before
            counts += [np.minimum(distance_along, before), crosses, np.where(crosses, distance_along - before - 1, 0)]
            moves += [step, step - np.sign(shift) * side * stride, step]
        else:
            counts.append(distance_along)
            moves.append(step)
    begins = _begins(sum(counts, np.zeros(len(starts), np.int64)))
    # The first move of a path is a jump from the end of the previous path.
    jump = np.empty(len(starts), np.int64)
    if len(starts):
        jump[0] = starts[0]
        np.subtract(starts[1:], ends[:-1], out=jump[1:])
    width = len(counts) + 1
    # int32 where it is wide enough, which halves the memory traffic.
    kind = np.int32 if geometry.size < 2**31 else np.int64
    table, repeats = np.empty((len(starts), width), kind), np.empty((len(starts), width), np.int64)
    table[:, 0], repeats[:, 0] = jump, 1
    for column, (move, count) in enumerate(zip(moves, counts, strict=True), 1):
        table[:, column], repeats[:, column] = move, count
    flat = np.repeat(table.reshape(-1), repeats.reshape(-1))
    return np.cumsum(flat, out=flat, dtype=kind), begins


def _begins(lengths: Array) -> Array:
    """Where paths of these numbers of steps begin, one after the other."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths + 1, dtype=np.int64)])


def _diagonal_paths(geometry: Geometry, starts: Array, shifts: list[Array]) -> tuple[Array, Array]:
    lengths = reduce(np.maximum, map(np.abs, shifts))
    begins = _begins(lengths)
    turn = np.arange(begins[-1]) - np.repeat(begins[:-1], lengths + 1)
    flat = np.zeros(len(turn), np.int64)
    for here, shift, side, stride in zip(
        geometry.columns(starts), shifts, geometry.shape, geometry.strides, strict=True
    ):
        signed = np.repeat(np.sign(shift), lengths + 1) * np.minimum(turn, np.repeat(np.abs(shift), lengths + 1))
        flat += (np.repeat(here, lengths + 1) + signed) % side * stride
    return flat, begins


def count_paths(geometry: Geometry, a: int, b: int) -> int:
    """Number of shortest paths, exactly.

    With von Neumann neighbours it is the multinomial coefficient of the shifts, doubled for each periodic axis on which
    both directions are equally short. With Moore neighbours the axes are independent: each takes steps of -1, 0 or 1,
    as many as the longest shift needs, and the numbers of such walks multiply.
    """
    shifts = _shifts(geometry, a, b)
    if not geometry.is_moore:
        total, left = 1, sum(map(abs, shifts))
        for shift, (side, wraps) in zip(shifts, geometry.axes, strict=True):
            total *= math.comb(left, abs(shift)) * (2 if wraps and 2 * abs(shift) == side else 1)
            left -= abs(shift)
        return total
    steps = max(map(abs, shifts))
    ends = zip(geometry.coordinates(a), geometry.coordinates(b), geometry.axes, strict=True)
    return math.prod(_walks(steps, x, y, *axis) for x, y, axis in ends)


def _walks(steps: int, a: int, b: int, side: int, wraps: bool) -> int:
    """Number of walks from a to b in ``steps`` steps of -1, 0 or 1: on a ring, or between walls (method of images)."""
    if wraps:
        first = (b - a) % side - side * ((steps + (b - a) % side) // side)
        return sum(_trinomial(steps, shift) for shift in range(first, steps + 1, side))
    period = 2 * (side + 1)
    total = 0
    for image in range(-(steps // period + 1), steps // period + 2):
        total += _trinomial(steps, b - a + image * period) - _trinomial(steps, b + a + 2 + image * period)
    return total


@lru_cache(maxsize=4096)
def _trinomial(steps: int, shift: int) -> int:
    """Number of sequences of ``steps`` steps of -1, 0 or 1 whose sum is ``shift``."""
    shift = abs(shift)
    return sum(
        math.comb(steps, back) * math.comb(steps - back, back + shift) for back in range((steps - shift) // 2 + 1)
    )

"""Ways to split a call: the axis of the result, and the part of each operand that a piece needs.

A primitive defines this along with its shapes. The engine uses it if a whole call does not fit into memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

__all__ = ["Cut", "broadcast_cuts", "outer_cuts"]


@dataclass(frozen=True, slots=True)
class Cut:
    """One way to split a call.

    Attributes
    ----------
    axis : int
        The axis of the result that is split, counted from the last; for ``merges`` the axis of the operand.
    length : int
        Points along it.
    operands : tuple of (int or None)
        The axis along which each operand is split, counted from the last; None if every piece needs all of it.
    before : int
        Number of points before a piece that its first results need.
    merges : bool
        Whether the axis is not in the result: then the results of the pieces are combined by the primitive's
        :meth:`~hpfracc.engine.primitives.base.Primitive.merge`.
    """

    axis: int
    length: int
    operands: tuple[int | None, ...]
    before: int = 0
    merges: bool = False


def broadcast_cuts(
    shapes: Iterable[tuple[int, ...]], result: tuple[int, ...], core: tuple[int, ...] = ()
) -> Iterator[Cut]:
    """Cuts along every axis that operands share by broadcasting, the longest first.

    ``core`` is the number of last axes of each operand that do not broadcast.
    """
    shapes = tuple(shapes)
    core = core or (0,) * len(shapes)
    inner = len(result) - _broadcast_axes(shapes, core)
    axes = sorted(range(-len(result), -inner), key=lambda axis: -result[axis])
    for axis in axes:
        if result[axis] < 2:
            continue
        operands = tuple(_own_axis(shape, axis + inner - own) for shape, own in zip(shapes, core, strict=True))
        if any(own is not None for own in operands):
            yield Cut(axis, result[axis], operands)


def outer_cuts(
    shapes: Iterable[tuple[int, ...] | None], result: tuple[int, ...], inner: Iterable[int]
) -> Iterator[Cut]:
    """Cuts along every axis of the result but the ``inner`` ones, the longest first; axes count from the last.

    Operands have the same axes as the result, or are repeated along them; None is for one that is never split.
    """
    shapes, kept = tuple(shapes), frozenset(inner)
    axes = [axis for axis in range(-len(result), 0) if axis not in kept and result[axis] > 1]
    for axis in sorted(axes, key=lambda axis: -result[axis]):
        operands = tuple(None if shape is None else _own_axis(shape, axis) for shape in shapes)
        if any(own is not None for own in operands):
            yield Cut(axis, result[axis], operands)


def _broadcast_axes(shapes: tuple[tuple[int, ...], ...], core: tuple[int, ...]) -> int:
    return max((len(shape) - own for shape, own in zip(shapes, core, strict=True)), default=0)


def _own_axis(shape: tuple[int, ...], axis: int) -> int | None:
    """The axis if the operand has it and is not repeated along it."""
    return axis if -axis <= len(shape) and shape[axis] > 1 else None

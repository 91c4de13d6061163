"""Many calls of one operation as one: how operands are laid side by side, and results taken apart again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpfracc.engine.primitives.base import Primitive

__all__ = ["Stacking", "stacking_of"]

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Stacking:
    """How calls of one kind become one.

    Attributes
    ----------
    shapes : tuple of tuple of int
        What each operand is reshaped to before it is stacked along a new first axis.
    params : Mapping
        The parameters of the stacked call.
    drops : tuple of int
        Axes of the stacked result, counted from the last, that single results do not have.
    """

    shapes: tuple[Shape, ...]
    params: Mapping[str, Any]
    drops: tuple[int, ...] = ()


def stacking_of(primitive: Primitive, shapes: Sequence[Shape], params: Mapping[str, Any]) -> Stacking | None:
    """How calls of ``primitive`` with operands of these shapes are stacked, or None where they cannot be."""
    if getattr(primitive, "batchable", False):
        return Stacking(tuple(shapes), params)
    rule = _RULES.get(primitive.name)
    return None if rule is None else rule(tuple(shapes), params)


def _aligned(shapes: tuple[Shape, ...], core: int) -> tuple[Shape, ...]:
    """All with as many axes: what broadcasts from the right would otherwise meet the new axis."""
    most = max(len(shape) - core for shape in shapes)
    return tuple((1,) * (most - (len(shape) - core)) + shape for shape in shapes)


def _elements(shapes: tuple[Shape, ...], params: Mapping[str, Any]) -> Stacking:
    return Stacking(_aligned(shapes, 0), params)


def _rows(shapes: tuple[Shape, ...], params: Mapping[str, Any]) -> Stacking | None:
    # A third operand of a convolution has axes of its own, which do not broadcast.
    return None if not all(shapes) or len(shapes) > 2 else Stacking(_aligned(shapes, 1), params)


def _along_axes(shapes: tuple[Shape, ...], params: Mapping[str, Any]) -> Stacking | None:
    """Operations along chosen axes of their second operand, which the first has too, counted from the last."""
    axes, given = len(shapes[1]), params.get("axes", -1)
    chosen = tuple(given) if isinstance(given, tuple | list) else (given,)
    if not axes or not all(isinstance(axis, int) and -axes <= axis < axes for axis in chosen):
        return None  # the call itself says what is wrong
    return Stacking(_aligned(shapes, 0), {**params, "axes": tuple(axis % axes - axes for axis in chosen)})


def _matmul(shapes: tuple[Shape, ...], params: Mapping[str, Any]) -> Stacking | None:
    if not all(shapes):
        return None
    left, right = shapes
    drops = ((-2,) if len(left) == 1 else ()) + ((-1,) if len(right) == 1 else ())
    matrices = ((1, *left) if len(left) == 1 else left, (*right, 1) if len(right) == 1 else right)
    return Stacking(_aligned(matrices, 2), params, drops)


def _fft(shapes: tuple[Shape, ...], params: Mapping[str, Any]) -> Stacking | None:
    axis = params.get("axis", -1)
    if not shapes[0] or not isinstance(axis, int) or not -len(shapes[0]) <= axis < len(shapes[0]):
        return None  # the call itself says what is wrong
    return Stacking(shapes, {**params, "axis": axis if axis < 0 else axis - len(shapes[0])})


def _reduction(shapes: tuple[Shape, ...], params: Mapping[str, Any]) -> Stacking | None:
    axes, axis = len(shapes[0]), params.get("axis")
    if not axes:
        return None
    chosen = tuple(range(axes)) if axis is None else tuple(axis) if isinstance(axis, tuple | list) else (axis,)
    if not all(isinstance(each, int) and -axes <= each < axes for each in chosen):
        return None
    return Stacking(shapes, {**params, "axis": tuple(each % axes - axes for each in chosen)})


_RULES: dict[str, Callable[[tuple[Shape, ...], Mapping[str, Any]], Stacking | None]] = {
    "causal_convolution": _rows,
    "chirp_transform": _rows,
    "spectral_multiply": _along_axes,
    "toeplitz_apply": _along_axes,
    "elementwise": _elements,
    "bitwise_xor": _elements,
    "mittag_leffler": _elements,
    "matmul": _matmul,
    "fft": _fft,
    "reduction": _reduction,
}

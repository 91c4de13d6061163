"""Arguments of layers, read and refused in one place for PyTorch and JAX, and their options for type checkers."""

from __future__ import annotations

from typing import Any, TypedDict

import numpy as np

from hpfracc import _reading
from hpfracc.errors import InvalidInputError, ShapeError

__all__ = [
    "LayerOptions",
    "LossOptions",
    "RuleOptions",
    "read_channels",
    "read_image_axes",
    "read_kernel",
    "read_learnable",
    "read_loss",
    "read_orders",
]


class RuleOptions(TypedDict, total=False):
    """The options of ``FractionalDerivative`` that convolutions accept, which choose the axes themselves."""

    definition: str
    method: str
    step: float


class LayerOptions(RuleOptions, total=False):
    """The options of ``FractionalDerivative`` that ``FractionalLayer`` accepts besides its own ``axis``."""

    channel_axis: int


class LossOptions(LayerOptions, total=False):
    """The options of ``FractionalDerivative`` that ``FractionalLoss`` accepts."""

    axis: int


def read_orders(alpha: Any) -> float | tuple[float, ...]:
    """An order that is not learned: a number, or one for each channel."""
    values = _reading.numbers("alpha", alpha)
    if values.ndim > 1:
        raise ShapeError(f"alpha has shape {values.shape}; use one number such as 0.5, or one for each channel")
    return float(values) if values.ndim == 0 else tuple(values.tolist())


def read_learnable(alpha: Any, bounds: Any) -> tuple[np.ndarray[Any, Any], float, float]:
    """The start of an order that is learned, and its bounds, between which it lies strictly."""
    start = _reading.numbers("alpha", alpha)
    low, high = _reading.pair("bounds", bounds)
    if start.ndim > 1:
        raise ShapeError(f"alpha has shape {start.shape}; use one number, or one for each channel")
    if not ((start > low) & (start < high)).all():
        raise InvalidInputError(
            f"alpha={start.tolist()} is not strictly between the bounds {low:g} and {high:g}; start inside them"
        )
    return start, low, high


def read_channels(given: Any, made: Any, groups: Any = 1) -> tuple[int, int, int]:
    """Numbers of channels of a convolution, and of groups, which divides both."""
    inputs, outputs = _reading.whole("in_channels", given, least=1), _reading.whole("out_channels", made, least=1)
    parts = _reading.whole("groups", groups, least=1)
    if inputs % parts or outputs % parts:
        raise InvalidInputError(f"in_channels={inputs}, out_channels={outputs}, groups={parts}; give multiples of it")
    return inputs, outputs, parts


def read_kernel(size: Any) -> tuple[int, int]:
    """The height and width of a kernel, from one number or two."""
    both = size if isinstance(size, tuple | list) and len(size) == 2 else (size, size)
    return _reading.whole("kernel_size", both[0], least=1), _reading.whole("kernel_size", both[1], least=1)


def read_image_axes(axes: Any) -> tuple[int, ...]:
    """Axes of an image along which a layer differentiates."""
    if not isinstance(axes, tuple | list) or tuple(axes) not in ((-1,), (-2,), (-2, -1), (-1, -2)):
        raise InvalidInputError(f"axes={_reading.shown(axes)} of an image; use (-1,), (-2,) or (-2, -1)")
    return tuple(axes)


def read_loss(weight: Any, reduction: Any) -> float:
    """The factor of a loss; its ``reduction`` is that of PyTorch's losses."""
    _reading.choice("reduction", reduction, ("mean", "sum", "none"))
    return _reading.number("weight", weight, least=0)

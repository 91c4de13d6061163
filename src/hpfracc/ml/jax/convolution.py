"""Convolutions of fractional derivatives."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Unpack, final

import jax

from hpfracc import _reading
from hpfracc._signatures import names_options_of
from hpfracc.errors import ShapeError
from hpfracc.ml.arguments import RuleOptions, read_channels, read_image_axes, read_kernel
from hpfracc.ml.jax.fractional_layer import FractionalDerivative
from hpfracc.ml.jax.order import OrderLike
from hpfracc.ml.jax.pytrees import as_samples, pytree, uniform_parameters

__all__ = ["FractionalConv1d", "FractionalConv2d"]

#: Options of the derivative that a convolution sets itself.
_SET = ("axis", "channel_axis")


def _convolve(x: Any, weight: Any, bias: Any, stride: int, padding: int, dilation: int, groups: int) -> Any:
    """A convolution like PyTorch's, for samples of shape (batch, channels, ...)."""
    axes = weight.ndim - 2
    if x.ndim != axes + 2:
        raise ShapeError(f"samples of shape {x.shape}; give (batch, channels, ...) with {axes} further axes")
    for points, taps in zip(x.shape[2:], weight.shape[2:], strict=True):
        reach = dilation * (taps - 1) + 1
        if reach > points + 2 * padding:
            raise ShapeError(
                f"a kernel that reaches over {reach} points is larger than the {points + 2 * padding} of samples of "
                f"shape {x.shape}, padding included; use a smaller kernel or more padding"
            )
    kind = jax.numpy.promote_types(x.dtype, weight.dtype)
    y = jax.lax.conv_general_dilated(
        x.astype(kind),
        weight.astype(kind),
        (stride,) * axes,
        [(padding, padding)] * axes,
        rhs_dilation=(dilation,) * axes,
        feature_group_count=groups,
        precision="highest",
    )
    return y if bias is None else y + bias.reshape(-1, *([1] * axes))


def _parameters(channels: int, outputs: int, groups: int, taps: tuple[int, ...], bias: bool, key: Any) -> Any:
    fan = channels // groups * math.prod(taps)
    weight = uniform_parameters(key, (outputs, channels // groups, *taps), fan)
    if not _reading.flag("bias", bias):
        return weight, None
    return weight, uniform_parameters(jax.random.fold_in(key, 1), (outputs,), fan)


@final
@pytree("derivative", "weight", "bias")
@dataclass(init=False, frozen=True)
class FractionalConv1d:
    """An ordinary convolution of the fractional derivative; see :class:`hpfracc.ml.FractionalConv1d`.

    Parameters
    ----------
    in_channels, out_channels, kernel_size : int
        As for a convolution.
    alpha : float, sequence of float, array or LearnableOrder
        One order, or one for each input channel.
    stride, padding, dilation, groups : int
        As for a convolution.
    bias : bool
        Whether to add a bias.
    key : jax.random.key
        Random key for the initial parameters.
    **options
        ``definition``, ``method`` and ``step`` of :class:`FractionalDerivative`.
    """

    derivative: FractionalDerivative
    weight: Any
    bias: Any
    options: tuple[int, int, int, int]

    @names_options_of(FractionalDerivative, leave_out=_SET)
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        alpha: OrderLike = 0.5,
        *,
        stride: int = 1,
        padding: int = 0,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = True,
        key: Any = None,
        **options: Unpack[RuleOptions],
    ) -> None:
        channels = read_channels(in_channels, out_channels, groups)
        weight, shift = _parameters(*channels, (_reading.whole("kernel_size", kernel_size, least=1),), bias, key)
        derivative = FractionalDerivative(alpha, axis=-1, channel_axis=-2, **options)
        for name, value in (("derivative", derivative), ("weight", weight), ("bias", shift)):
            object.__setattr__(self, name, value)
        steps = [_reading.whole("stride", stride, least=1), _reading.whole("padding", padding, least=0)]
        object.__setattr__(self, "options", (*steps, _reading.whole("dilation", dilation, least=1), groups))

    def __call__(self, x: Any) -> Any:
        """Apply the layer to samples of shape (batch, channels, points)."""
        return _convolve(self.derivative(as_samples(x)), self.weight, self.bias, *self.options)


@final
@pytree("derivative", "weight", "bias")
@dataclass(init=False, frozen=True)
class FractionalConv2d:
    """An ordinary convolution of fractional derivatives along axes; see :class:`hpfracc.ml.FractionalConv2d`.

    Parameters
    ----------
    in_channels, out_channels : int
        As for a convolution.
    kernel_size : int or (int, int)
        Size of the kernel.
    alpha : float, sequence of float, array or LearnableOrder
        One order for all axes and channels, or one for each input channel.
    axes : tuple of int
        The axes to differentiate along, of -2 and -1.
    stride, padding, dilation, groups : int
        The same along both axes.
    bias : bool
        Whether to add a bias.
    key : jax.random.key
        Random key for the initial parameters.
    **options
        ``definition``, ``method`` and ``step`` of :class:`FractionalDerivative`.
    """

    derivative: FractionalDerivative
    weight: Any
    bias: Any
    axes: tuple[int, ...]
    options: tuple[int, int, int, int]

    @names_options_of(FractionalDerivative, leave_out=_SET)
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int],
        alpha: OrderLike = 0.5,
        *,
        axes: tuple[int, ...] = (-2, -1),
        stride: int = 1,
        padding: int = 0,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = True,
        key: Any = None,
        **options: Unpack[RuleOptions],
    ) -> None:
        axes = read_image_axes(axes)
        channels = read_channels(in_channels, out_channels, groups)
        weight, shift = _parameters(*channels, read_kernel(kernel_size), bias, key)
        derivative = FractionalDerivative(alpha, axis=axes[0], channel_axis=-3, **options)
        for name, value in (("derivative", derivative), ("weight", weight), ("bias", shift), ("axes", tuple(axes))):
            object.__setattr__(self, name, value)
        steps = [_reading.whole("stride", stride, least=1), _reading.whole("padding", padding, least=0)]
        object.__setattr__(self, "options", (*steps, _reading.whole("dilation", dilation, least=1), groups))

    def __call__(self, x: Any) -> Any:
        """Apply the layer to images of shape (batch, channels, height, width)."""
        y = as_samples(x)
        for axis in self.axes:
            y = self.derivative.along(axis)(y)
        return _convolve(y, self.weight, self.bias, *self.options)

"""Convolutions of fractional derivatives."""

from __future__ import annotations

import math
from typing import Any, Unpack, final

import jax
import jax.numpy as jnp

from hpfracc import _reading
from hpfracc._signatures import names_options_of
from hpfracc.ml.arguments import RuleOptions, check_kernel, read_channels, read_image_axes, read_kernel
from hpfracc.ml.jax.layers import FractionalDerivative, Layer
from hpfracc.ml.jax.order import OrderLike, as_samples, assign, pytree, uniform_parameters

__all__ = ["FractionalConv1d", "FractionalConv2d"]

#: Options of the derivative that a convolution sets itself.
_SET = ("axis", "channel_axis", "config")


class _Convolution(Layer):
    """A convolution of derivatives along some axes, like PyTorch's."""

    derivative: FractionalDerivative
    weight: Any
    bias: Any
    axes: tuple[int, ...]
    options: tuple[int, int, int, int]

    def _make(
        self, alpha: Any, axes: Any, channels: Any, taps: Any, bias: Any, key: Any, steps: tuple[Any, ...], rule: Any
    ) -> None:
        inputs, outputs, groups = channels
        stride, padding, dilation = (
            _reading.whole(name, value, least=least)
            for name, value, least in zip(("stride", "padding", "dilation"), steps, (1, 0, 1), strict=True)
        )
        fan = inputs // groups * math.prod(taps)
        weight, shift = uniform_parameters(key, (outputs, inputs // groups, *taps), fan), None
        if _reading.flag("bias", bias):
            shift = uniform_parameters(jax.random.fold_in(key, 1), (outputs,), fan)
        derivative = FractionalDerivative(alpha, axis=axes[0], channel_axis=-1 - len(taps), **rule)
        fields = {"derivative": derivative, "weight": weight, "bias": shift}
        assign(self, **fields, axes=axes, options=(stride, padding, dilation, groups))

    def forward(self, x: Any) -> Any:
        """Apply the layer to samples of shape (batch, channels, ...), or without the batch."""
        y, (stride, padding, dilation, groups) = as_samples(x), self.options
        taps = self.weight.shape[2:]
        axes = len(taps)
        check_kernel(y.shape, taps, [padding] * axes, [dilation] * axes)
        for axis in self.axes:
            y = self.derivative.along(axis)(y)
        kind = jnp.promote_types(y.dtype, self.weight.dtype)
        single = y.ndim == axes + 1
        found = jax.lax.conv_general_dilated(
            (y[None] if single else y).astype(kind),
            self.weight.astype(kind),
            (stride,) * axes,
            [(padding, padding)] * axes,
            rhs_dilation=(dilation,) * axes,
            feature_group_count=groups,
            precision="highest",
        )
        found = found if self.bias is None else found + self.bias.reshape(-1, *([1] * axes))
        return found[0] if single else found


@final
@pytree("derivative", "weight", "bias")
class FractionalConv1d(_Convolution):
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
        taps = (_reading.whole("kernel_size", kernel_size, least=1),)
        self._make(alpha, (-1,), channels, taps, bias, key, (stride, padding, dilation), options)


@final
@pytree("derivative", "weight", "bias")
class FractionalConv2d(_Convolution):
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
        channels, taps = read_channels(in_channels, out_channels, groups), read_kernel(kernel_size)
        steps = (stride, padding, dilation)
        self._make(alpha, read_image_axes(axes), channels, taps, bias, key, steps, options)

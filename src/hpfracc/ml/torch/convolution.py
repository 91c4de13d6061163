"""Convolutions of fractional derivatives."""

from __future__ import annotations

from typing import Any, TypedDict, Unpack, final

import torch
from torch import Tensor, nn

from hpfracc import _reading
from hpfracc.ml.arguments import check_kernel, read_channels, read_image_axes, read_kernel
from hpfracc.ml.config import LayerConfig
from hpfracc.ml.torch.layers import FractionalDerivative
from hpfracc.ml.torch.order import OrderLike, as_order, check_tensor

__all__ = ["Conv1dOptions", "Conv2dOptions", "FractionalConv1d", "FractionalConv2d"]


class _ConvOptions(TypedDict, total=False):
    groups: int
    bias: bool
    padding_mode: str
    device: Any
    dtype: torch.dtype | None


class Conv1dOptions(_ConvOptions, total=False):
    """The further options of :class:`torch.nn.Conv1d`, for type checkers."""

    stride: int | tuple[int]
    padding: str | int | tuple[int]
    dilation: int | tuple[int]


class Conv2dOptions(_ConvOptions, total=False):
    """The further options of :class:`torch.nn.Conv2d`, for type checkers."""

    stride: int | tuple[int, int]
    padding: str | int | tuple[int, int]
    dilation: int | tuple[int, int]


class _Convolution(nn.Module):
    """A convolution of derivatives along some axes, which share their order."""

    def __init__(
        self, conv: nn.Conv1d | nn.Conv2d, alpha: OrderLike, axes: tuple[int, ...], rule: dict[str, Any]
    ) -> None:
        super().__init__()
        self.conv = conv
        order, channel_axis = as_order(alpha), -1 - len(conv.kernel_size)
        made = [FractionalDerivative(order, axis=axis, channel_axis=channel_axis, **rule) for axis in axes]
        # Names in the state of a layer, which checkpoints have.
        if len(conv.kernel_size) == 1:
            (self.derivative,) = made
        else:
            self.derivatives = nn.Sequential(*made)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer to samples of shape (batch, channels, ...), or without the batch."""
        check_tensor(x)
        check_kernel(x.shape, self.conv.kernel_size, self.conv.padding, self.conv.dilation)
        derivatives = self.derivative if len(self.conv.kernel_size) == 1 else self.derivatives
        y: Tensor = self.conv(derivatives(x))
        return y


@final
class FractionalConv1d(_Convolution):
    r"""An ordinary convolution of the fractional derivative: ``Conv1d(D^alpha x)``.

    Order 0 is :class:`torch.nn.Conv1d`. The derivative is causal: a non-finite sample affects no output whose window
    ends before it.

    Parameters
    ----------
    in_channels, out_channels, kernel_size
        As for :class:`torch.nn.Conv1d`.
    alpha : float, sequence of float, Tensor, Parameter or LearnableOrder
        One order, or one per input channel.
    step : float
        The spacing of the samples.
    definition, method, config
        As for :class:`FractionalDerivative`.
    **options
        ``stride``, ``padding``, ``dilation``, ``groups``, ``bias``, ``padding_mode``, ``device`` and ``dtype`` of
        :class:`torch.nn.Conv1d`.

    Examples
    --------
    >>> import torch
    >>> from hpfracc.ml import FractionalConv1d
    >>> FractionalConv1d(3, 8, 5, alpha=0.4, padding=2)(torch.randn(2, 3, 50)).shape
    torch.Size([2, 8, 50])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        alpha: OrderLike = 0.5,
        *,
        step: float = 1.0,
        definition: str = "grunwald_letnikov",
        method: str = "auto",
        config: LayerConfig | None = None,
        **options: Unpack[Conv1dOptions],
    ) -> None:
        channels = read_channels(in_channels, out_channels, options.get("groups", 1))
        conv = nn.Conv1d(*channels[:2], _reading.whole("kernel_size", kernel_size, least=1), **options)
        rule = {"definition": definition, "method": method, "step": step, "config": config}
        super().__init__(conv, alpha, (-1,), rule)


@final
class FractionalConv2d(_Convolution):
    r"""An ordinary convolution of fractional derivatives along the chosen axes: ``Conv2d(D_y^alpha D_x^alpha x)``.

    Order 0 is :class:`torch.nn.Conv2d`. Each derivative starts at the first row or column.

    Parameters
    ----------
    in_channels, out_channels, kernel_size
        As for :class:`torch.nn.Conv2d`.
    alpha : float, sequence of float, Tensor, Parameter or LearnableOrder
        One order for all axes and channels, or one per input channel.
    axes : tuple of int
        The axes to differentiate along, of -2 and -1.
    step, definition, method, config
        As for :class:`FractionalDerivative`.
    **options
        ``stride``, ``padding``, ``dilation``, ``groups``, ``bias``, ``padding_mode``, ``device`` and ``dtype`` of
        :class:`torch.nn.Conv2d`.

    Examples
    --------
    >>> import torch
    >>> from hpfracc.ml import FractionalConv2d
    >>> FractionalConv2d(1, 4, 3, alpha=0.6, axes=(-1,))(torch.randn(2, 1, 20, 20)).shape
    torch.Size([2, 4, 18, 18])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int],
        alpha: OrderLike = 0.5,
        *,
        axes: tuple[int, ...] = (-2, -1),
        step: float = 1.0,
        definition: str = "grunwald_letnikov",
        method: str = "auto",
        config: LayerConfig | None = None,
        **options: Unpack[Conv2dOptions],
    ) -> None:
        axes = read_image_axes(axes)
        channels = read_channels(in_channels, out_channels, options.get("groups", 1))
        conv = nn.Conv2d(*channels[:2], read_kernel(kernel_size), **options)
        rule = {"definition": definition, "method": method, "step": step, "config": config}
        super().__init__(conv, alpha, axes, rule)

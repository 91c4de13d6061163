"""Layers that apply an operator, for JAX: derivatives, convolutions of them, losses and transforms."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, Unpack, final

import jax
import jax.numpy as jnp

from hpfracc import _reading
from hpfracc._choices import names_options_of
from hpfracc._xp import namespace
from hpfracc.ml import graphs, operator_layers
from hpfracc.ml.config import LayerConfig, LayerOptions, RuleOptions, check_kernel, read_convolution, read_linear
from hpfracc.ml.jax.order import Layer, OrderLike, as_samples, assign, pytree, uniform_parameters

__all__ = [
    "FractionalConv1d", "FractionalConv2d", "FractionalDerivative", "FractionalFourier", "FractionalLayer",
    "FractionalLoss", "times_function",
]  # fmt: skip


@final
@pytree("order")
class FractionalDerivative(operator_layers.DerivativeLayer, Layer):
    """The fractional derivative of order alpha along one axis; see :class:`hpfracc.ml.FractionalDerivative`.

    Parameters
    ----------
    alpha : float, sequence of float, array or LearnableOrder
        The order; a number is fixed. A sequence gives one order per channel, along ``channel_axis``.
    definition, method : str
        The definition of the derivative (Grünwald-Letnikov by default), and its rule.
    step : float
        The spacing of the samples along the axis.
    axis, channel_axis : int
        The axis along which to differentiate, and the axis of the channels.
    config : LayerConfig, optional
        The backend and the mode.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from hpfracc.ml.jax.layers import FractionalDerivative
    >>> FractionalDerivative(1.0)(jnp.array([1.0, 3.0, 6.0])).tolist()
    [1.0, 2.0, 3.0]
    """

    def along(self, axis: int) -> FractionalDerivative:
        """The same derivative along another axis."""
        made = object.__new__(FractionalDerivative)
        assign(made, **{**vars(self), "axis": axis})
        return made


@final
@pytree("derivative", "weight", "bias")
class FractionalLayer(Layer):
    r"""A fractional derivative, then a linear map of the last axis: :math:`y = W (D^\alpha x) + b`.

    See :class:`hpfracc.ml.FractionalLayer`.

    Parameters
    ----------
    alpha : float, sequence of float, array or LearnableOrder
        The order.
    input_dim, output_dim : int, optional
        Number of features along the last axis; without them there is only the derivative.
    axis : int
        The axis of the derivative.
    bias : bool
        Whether the linear map has a bias.
    config : LayerConfig, optional
        The backend and the mode.
    key : jax.random.key
        Random key for the initial parameters of the linear map.
    **options
        ``definition``, ``method``, ``step`` and ``channel_axis`` of :class:`FractionalDerivative`.
    """

    @names_options_of(FractionalDerivative)
    def __init__(
        self,
        alpha: OrderLike = 0.5,
        *,
        input_dim: int | None = None,
        output_dim: int | None = None,
        axis: int = -1,
        bias: bool = True,
        config: LayerConfig | None = None,
        key: Any = None,
        **options: Unpack[LayerOptions],
    ) -> None:
        derivative = FractionalDerivative(alpha, axis=axis, config=config, **options)
        sizes, weight, shift = read_linear(input_dim, output_dim, bias), None, None
        if sizes is not None:
            width, made, biased = sizes
            weight = uniform_parameters(key, (made, width), width)
            shift = uniform_parameters(jax.random.fold_in(key, 1), (made,), width) if biased else None
        assign(self, derivative=derivative, weight=weight, bias=shift)

    def forward(self, x: Any) -> Any:
        """Apply the linear map to the derivative."""
        y = self.derivative(x)
        if self.weight is None:
            return y
        y = jnp.matmul(y, self.weight.T, precision="highest")
        return y if self.bias is None else y + self.bias


class _Convolution(Layer):
    """A convolution of derivatives along some axes, like PyTorch's."""

    #: Number of its axes.
    _count: int

    @names_options_of(FractionalDerivative, leave_out=("axis", "channel_axis", "config"))
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, ...],
        alpha: OrderLike = 0.5,
        *,
        axes: tuple[int, ...] | None = None,
        stride: int = 1,
        padding: int = 0,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = True,
        key: Any = None,
        **options: Unpack[RuleOptions],
    ) -> None:
        read = read_convolution(in_channels, out_channels, groups, kernel_size, axes, self._count)
        inputs, outputs, groups, taps, axes = read
        steps = {"stride": stride, "padding": padding, "dilation": dilation}
        sizes = [_reading.whole(name, each, least=0 if name == "padding" else 1) for name, each in steps.items()]
        fan = inputs // groups * math.prod(taps)
        weight, shift = uniform_parameters(key, (outputs, inputs // groups, *taps), fan), None
        if _reading.flag("bias", bias):
            shift = uniform_parameters(jax.random.fold_in(key, 1), (outputs,), fan)
        derivative = FractionalDerivative(alpha, axis=axes[0], channel_axis=-1 - self._count, **options)
        fields = {"derivative": derivative, "weight": weight, "bias": shift}
        assign(self, **fields, axes=axes, options=(*sizes, groups))

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
    axes : tuple of int, optional
        The axis to differentiate along: -1.
    stride, padding, dilation, groups : int
        As for a convolution.
    bias : bool
        Whether to add a bias.
    key : jax.random.key
        Random key for the initial parameters.
    **options
        ``definition``, ``method`` and ``step`` of :class:`FractionalDerivative`.
    """

    _count = 1


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
    axes : tuple of int, optional
        The axes to differentiate along, of -2 and -1; both by default.
    stride, padding, dilation, groups : int
        The same along both axes.
    bias : bool
        Whether to add a bias.
    key : jax.random.key
        Random key for the initial parameters.
    **options
        ``definition``, ``method`` and ``step`` of :class:`FractionalDerivative`.
    """

    _count = 2


@final
@pytree("derivative")
class FractionalLoss(operator_layers.LossLayer, Layer):
    """The mean square of an error and of its fractional derivative; see :class:`hpfracc.ml.FractionalLoss`.

    Parameters
    ----------
    alpha : float, array or LearnableOrder
        The order.
    weight : float
        The factor of the second term, not negative.
    reduction : {"mean", "sum", "none"}
        How the elements are combined.
    config : LayerConfig, optional
        The backend and the mode.
    **options
        ``definition``, ``method``, ``step``, ``axis`` and ``channel_axis`` of :class:`FractionalDerivative`.
    """

    _derivative_type = FractionalDerivative


@final
@pytree("order")
class FractionalFourier(operator_layers.FourierLayer, Layer):
    """A rotation in the time-frequency plane by a learnable order; see :class:`hpfracc.ml.FractionalFourier`.

    Parameters
    ----------
    order : float, array or LearnableOrder
        The order, in quarter turns.
    axis : int
        The axis of the samples.
    method : {"chirp", "eigen"}
        As for :func:`hpfracc.frft`.
    """


# -- functions of a matrix --------------------------------------------------------------------------------------------


def times_function(f: Any, matrix: tuple[Any, ...], x: Any, alpha: Any) -> Any:
    """``f(L, alpha)`` times each row of ``x``, with derivatives of any order in reverse mode.

    They hold for every basis: ``f(L)`` is linear and symmetric in x, and its derivatives in the order are functions of
    L too.

    Parameters
    ----------
    f : callable
        ``f(values, alpha)``, elementwise; hashable, and equal to other functions with the same results.
    matrix : tuple of arrays
        A dense matrix; or values, rows and columns of a sparse one, sorted by rows.
    x : array, shape (rows, nodes)
        The vectors.
    alpha : float or array of no axes
        The order.
    """
    if isinstance(alpha, float):
        f, alpha = _Fixed(f, alpha), 0.0
    return _derivatives(f, 0, 1, matrix, x, jnp.asarray(alpha, x.dtype))[0]


@dataclass(frozen=True)
class _Fixed:
    """A function whose order is a plain number."""

    f: Any
    alpha: float

    def __call__(self, values: Any, _: Any) -> Any:
        return self.f(values, self.alpha)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _derivatives(f: Any, degree: int, count: int, matrix: tuple[Any, ...], x: Any, alpha: Any) -> tuple[Any, ...]:
    """``count`` derivatives of f in alpha from this degree on, of L, times x: from one basis."""
    found: tuple[Any, ...] = _lanczos(f, degree, count, matrix, x, alpha)
    return found


def _derivatives_forward(f: Any, degree: int, count: int, matrix: Any, x: Any, alpha: Any) -> tuple[Any, Any]:
    further = 0 if isinstance(f, _Fixed) else 1
    found = _derivatives(f, degree, count + further, matrix, x, alpha)
    return found[:count], (matrix, alpha, found[1:] if further else None)


def _derivatives_backward(f: Any, degree: int, count: int, kept: Any, bars: Any) -> tuple[Any, Any, Any]:
    matrix, alpha, slopes = kept
    back = sum(_derivatives(f, degree + k, 1, matrix, bar, alpha)[0] for k, bar in enumerate(bars))
    return None, back, None if slopes is None else sum((bar * s).sum() for bar, s in zip(bars, slopes, strict=True))


_derivatives.defvjp(_derivatives_forward, _derivatives_backward)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _lanczos(f: Any, degree: int, count: int, matrix: tuple[Any, ...], x: Any, alpha: Any) -> tuple[Any, ...]:
    def times(q: Any) -> Any:
        if len(matrix) == 1:
            return jnp.matmul(q, matrix[0], precision="highest")  # L is symmetric
        values, rows, columns = matrix
        products = values[:, None] * q.T[columns]
        return jax.ops.segment_sum(products, rows, q.shape[1], indices_are_sorted=True).T

    def up_to(highest: int, values: Any, a: Any) -> list[Any]:
        """The function and its derivatives in the order."""
        if not highest:
            return [f(values, a)]
        found, slopes = jax.jvp(partial(up_to, highest - 1, values), (a,), (jnp.ones_like(a),))
        return [*found, slopes[-1]]

    def functions(values: Any) -> list[Any]:
        return up_to(degree + count - 1, values, alpha)[degree:]

    return graphs.times_functions(namespace("jax"), times, functions, x)

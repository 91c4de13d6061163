"""The fractional derivative as a layer, alone and before a linear map."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, Unpack, final

import jax
import jax.numpy as jnp

from hpfracc import _reading
from hpfracc._signatures import names_options_of
from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.ml.arguments import LayerOptions
from hpfracc.ml.jax.order import OrderLike, as_order
from hpfracc.ml.jax.pytrees import as_samples, pytree, uniform_parameters, widened
from hpfracc.operators.core.registry import find_definition

__all__ = ["FractionalDerivative", "FractionalLayer"]


@final
@pytree("order")
@dataclass(init=False, frozen=True)
class FractionalDerivative:
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

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from hpfracc.ml.jax.fractional_layer import FractionalDerivative
    >>> FractionalDerivative(1.0)(jnp.array([1.0, 3.0, 6.0])).tolist()
    [1.0, 2.0, 3.0]
    """

    order: Any
    definition: str
    method: str
    step: float
    axis: int
    channel_axis: int

    def __init__(
        self,
        alpha: OrderLike = 0.5,
        *,
        definition: str = "grunwald_letnikov",
        method: str = "auto",
        step: float = 1.0,
        axis: int = -1,
        channel_axis: int = 1,
    ) -> None:
        fields = {
            "order": as_order(alpha),
            "definition": find_definition(definition, "derivative").definition,
            "method": method,
            "step": _reading.number("step", step, above=0),
            "axis": axis,
            "channel_axis": channel_axis,
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def __call__(self, x: Any) -> Any:
        """The derivative, of the shape and dtype of ``x``."""
        x = as_samples(x)
        alpha, count = self.order(), self.order.channels
        if count is None:
            return self._apply(x, alpha)
        axis = self.channel_axis
        if not -x.ndim <= axis < x.ndim or x.shape[axis] != count or axis % x.ndim == self.axis % x.ndim:
            raise ShapeError(
                f"{count} orders for samples of shape {x.shape} whose channels lie along axis {axis}; give as many "
                "orders as channels, along an axis other than that of the derivative"
            )
        rows = [self._apply(jax.lax.slice_in_dim(x, i, i + 1, axis=axis % x.ndim), alpha[i]) for i in range(count)]
        return jnp.concatenate(rows, axis)

    def along(self, axis: int) -> FractionalDerivative:
        """The same derivative along another axis."""
        return FractionalDerivative(
            self.order,
            definition=self.definition,
            method=self.method,
            step=self.step,
            axis=axis,
            channel_axis=self.channel_axis,
        )

    def _apply(self, x: Any, alpha: Any) -> Any:
        kind: Any = find_definition(self.definition, "derivative")
        options: dict[str, Any] = {"method": self.method}
        if self.order.ceiling is not None and "ceiling" in inspect.signature(kind).parameters:
            options["ceiling"] = self.order.ceiling
        return kind(alpha, **options)(widened(x), step=self.step, axis=self.axis).astype(x.dtype)


@final
@pytree("derivative", "weight", "bias")
@dataclass(init=False, frozen=True)
class FractionalLayer:
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
    key : jax.random.key
        Random key for the initial parameters of the linear map.
    **options
        ``definition``, ``method``, ``step`` and ``channel_axis`` of :class:`FractionalDerivative`.
    """

    derivative: FractionalDerivative
    weight: Any
    bias: Any

    @names_options_of(FractionalDerivative)
    def __init__(
        self,
        alpha: OrderLike = 0.5,
        *,
        input_dim: int | None = None,
        output_dim: int | None = None,
        axis: int = -1,
        bias: bool = True,
        key: Any = None,
        **options: Unpack[LayerOptions],
    ) -> None:
        if input_dim is None and output_dim is not None:
            raise InvalidInputError(f"output_dim={output_dim} without input_dim; give both, or neither")
        object.__setattr__(self, "derivative", FractionalDerivative(alpha, axis=axis, **options))
        weight = shift = None
        if input_dim is not None:
            outputs = input_dim if output_dim is None else output_dim
            weight = uniform_parameters(key, (outputs, input_dim), input_dim)
            shift = uniform_parameters(jax.random.fold_in(key, 1), (outputs,), input_dim) if bias else None
        object.__setattr__(self, "weight", weight)
        object.__setattr__(self, "bias", shift)

    def __call__(self, x: Any) -> Any:
        """Apply the linear map to the derivative."""
        y = self.derivative(x)
        if self.weight is None:
            return y
        y = jnp.matmul(y, self.weight.T, precision="highest")
        return y if self.bias is None else y + self.bias

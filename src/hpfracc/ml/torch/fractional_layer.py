r"""The fractional derivative as a layer, alone and before a linear map."""

from __future__ import annotations

from typing import Any, NamedTuple, Unpack, final

import torch
from torch import Tensor, nn

from hpfracc import _reading
from hpfracc._signatures import names_options_of
from hpfracc.engine.backends.registry import library_functions
from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.ml.arguments import LayerOptions
from hpfracc.ml.config import LayerConfig, mode_scope, warn_of_infinite_start
from hpfracc.ml.torch.opaque import opaque
from hpfracc.ml.torch.order import OrderLike, as_order, check_tensor, joined_order, shown_order, split_order
from hpfracc.operators.core.registry import find_definition

__all__ = ["FractionalDerivative", "FractionalLayer"]

_HALF = (torch.float16, torch.bfloat16)


@final
class FractionalDerivative(nn.Module):
    r"""The fractional derivative of order alpha along one axis.

    .. math:: y_n = h^{-\alpha} \sum_{k=0}^{n} (-1)^k \binom{\alpha}{k}\, x_{n-k}

    by default (Grünwald-Letnikov), so that order 0 is the identity and order 1 the first difference (Caputo's
    derivative tends to :math:`f - f(0)` as alpha tends to 0). Its order is its only parameter.

    Parameters
    ----------
    alpha : float, sequence of float, Tensor, Parameter or LearnableOrder
        The order; a number is fixed. A sequence gives one order per channel, along ``channel_axis``.
    definition : str
        Any derivative of hpfracc, such as ``"caputo"``. ``"riemann_liouville"`` (and ``"hadamard"``, ``"marchaud"``,
        ``"tempered"``) is infinite at the first sample unless that is 0, and so are a loss and its gradient: a warning
        says so. To train, use ``"grunwald_letnikov"``, which is finite there and tends to the same derivative as the
        step shrinks, ``"caputo"``, or samples less their first one.
    method : str
        A rule for that definition.
    step : float
        The spacing of the samples along the axis. The derivative scales with ``step**-alpha``, so give the actual step
        of resampled sequences.
    axis : int
        The axis along which to differentiate.
    channel_axis : int
        The axis of the channels, if each has its own order.
    config : LayerConfig, optional
        The backend and the mode.

    Notes
    -----
    Weights are computed in float64 on the device of the samples, outside autocast, and then cast. Half-precision
    samples are differentiated in float32.

    Examples
    --------
    >>> import torch
    >>> from hpfracc.ml import FractionalDerivative
    >>> FractionalDerivative(1.0)(torch.tensor([1.0, 3.0, 6.0]))
    tensor([1., 2., 3.])
    """

    def __init__(
        self,
        alpha: OrderLike = 0.5,
        *,
        definition: str = "grunwald_letnikov",
        method: str = "auto",
        step: float = 1.0,
        axis: int = -1,
        channel_axis: int = 1,
        config: LayerConfig | None = None,
    ) -> None:
        super().__init__()
        self.order = as_order(alpha)
        self.definition = find_definition(definition, "derivative").definition
        warn_of_infinite_start(self.definition)
        self.method = method
        self.step = _reading.number("step", step, above=0)
        self.axis = axis
        self.channel_axis = channel_axis
        self.config = _checked(config)

    def forward(self, x: Tensor) -> Tensor:
        """The derivative, of the shape and dtype of ``x``."""
        check_tensor(x)
        order, alpha = split_order(self.order)
        rule = (self.definition, self.method, self.step, self.axis, self.channel_axis)
        mode = (self.config.engine_backend, self.config.performance_mode)
        return _differentiate([x, *order], alpha, self.order.ceiling, self.order.channels, *rule, *mode)[0]

    def extra_repr(self) -> str:
        """Order, definition, step and axis."""
        return f"alpha={shown_order(self.order)}, definition={self.definition!r}, step={self.step:g}, axis={self.axis}"


def _checked(config: Any) -> LayerConfig:
    if config is None:
        return LayerConfig()
    if not isinstance(config, LayerConfig):
        raise InvalidInputError(
            f"config={config!r} is not a LayerConfig; use LayerConfig(backend=..., performance_mode=...)"
        )
    return config


class _Rule(NamedTuple):
    """What a layer's derivative depends on, besides the samples and a learned order."""

    alpha: float | tuple[float, ...] | None
    ceiling: int | None
    channels: int | None
    definition: str
    method: str
    step: float
    axis: int
    channel_axis: int
    backend: str | None
    mode: str

    def apply(self, x: Tensor, alpha: Any) -> Tensor:
        """With a single order, or one per channel."""
        if self.channels is None:
            return self._apply_one(x, alpha)
        axis = self.channel_axis
        if not -x.ndim <= axis < x.ndim or x.shape[axis] != self.channels or axis % x.ndim == self.axis % x.ndim:
            raise ShapeError(
                f"{self.channels} orders for samples of shape {tuple(x.shape)} whose channels lie along axis {axis}; "
                "give as many orders as channels, along an axis other than that of the derivative"
            )
        rows = [self._apply_one(x.narrow(axis, i, 1), alpha[i]) for i in range(self.channels)]
        return torch.cat(rows, axis)

    def _apply_one(self, x: Tensor, alpha: Any) -> Tensor:
        """The derivative of one order, for samples of float32 or float64."""
        kind: Any = find_definition(self.definition, "derivative")
        options: dict[str, Any] = {"method": self.method}
        if self.ceiling is not None and "ceiling" in kind.__dataclass_fields__:
            options["ceiling"] = self.ceiling
        found: Tensor = kind(alpha, **options)(x, step=self.step, axis=self.axis, backend=self.backend)
        return found


@opaque(lambda tensors, *rule: [torch.empty_like(tensors[0], memory_format=torch.contiguous_format)])
def _differentiate(tensors: list[Tensor], *options: Any) -> tuple[Tensor]:
    """Apply a layer's operator, outside autocast."""
    x, *order = tensors
    rule = _Rule(*options)
    kind = x.dtype
    with torch.autocast(x.device.type, enabled=False), mode_scope(rule.mode):
        wide = x.float() if kind in _HALF else x
        alpha = joined_order(order, rule.alpha)
        if rule.mode == "memory" and library_functions("torch", "tracking").is_only_recorded(wide):
            result: Tensor = _RecomputedDerivative.apply(wide, alpha, rule)
        else:
            result = rule.apply(wide, alpha)
    return (result.to(kind) if kind in _HALF else result,)


class _RecomputedDerivative(torch.autograd.Function):
    """A layer's derivative that saves only its samples and recomputes the rest in the backward pass.

    PyTorch's own checkpoint requires both passes to save the same tensors. Here the engine may use different algorithms
    in the two passes: the numbers agree to rounding, but the saved tensors differ.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, alpha: Any, rule: _Rule) -> Tensor:
        ctx.learned = isinstance(alpha, Tensor)
        ctx.save_for_backward(x, *((alpha,) if ctx.learned else ()))
        ctx.alpha, ctx.rule = None if ctx.learned else alpha, rule
        return rule.apply(x, alpha)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x, *order = ctx.saved_tensors
        create = torch.is_grad_enabled()
        with torch.enable_grad(), torch.autocast(x.device.type, enabled=False):
            result = ctx.rule.apply(x, order[0] if order else ctx.alpha)
            wanted = [tensor for tensor in (x, *order) if tensor.requires_grad]
            found = iter(torch.autograd.grad(result, wanted, slope, create_graph=create))
        by_x = next(found) if x.requires_grad else None
        return by_x, next(found) if order and order[0].requires_grad else None, None


@final
class FractionalLayer(nn.Module):
    r"""A fractional derivative along one axis, then a linear map of the last axis: :math:`y = W (D^\alpha x) + b`.

    Parameters
    ----------
    alpha : float, sequence of float, Tensor, Parameter or LearnableOrder
        The order. A number is fixed; ``LearnableOrder(0.5)`` learns it.
    config : LayerConfig, optional
        The backend and the mode.
    input_dim, output_dim : int, optional
        Number of features along the last axis; without them there is no linear map, only the derivative.
    axis : int
        The axis of the derivative: the last one by default; for sequences, the time axis.
    bias : bool
        Whether the linear map has a bias.
    **options
        ``definition``, ``method``, ``step`` and ``channel_axis`` of :class:`FractionalDerivative`.

    Notes
    -----
    Along an ordered axis (time, a coordinate) this is a filter with long memory. On unordered features it is merely a
    structured linear map.

    Examples
    --------
    >>> import torch
    >>> from hpfracc.ml import FractionalLayer
    >>> model = torch.nn.Sequential(FractionalLayer(alpha=0.5, input_dim=64, output_dim=32), torch.nn.ReLU())
    >>> model(torch.randn(8, 64)).shape
    torch.Size([8, 32])
    """

    @names_options_of(FractionalDerivative)
    def __init__(
        self,
        alpha: OrderLike = 0.5,
        config: LayerConfig | None = None,
        *,
        input_dim: int | None = None,
        output_dim: int | None = None,
        axis: int = -1,
        bias: bool = True,
        **options: Unpack[LayerOptions],
    ) -> None:
        super().__init__()
        self.derivative = FractionalDerivative(alpha, axis=axis, config=config, **options)
        if input_dim is None and output_dim is not None:
            raise InvalidInputError(f"output_dim={output_dim} without input_dim; give both, or neither")
        self.linear: nn.Linear | None = None
        if input_dim is not None:
            width = _reading.whole("input_dim", input_dim, least=1)
            made = width if output_dim is None else _reading.whole("output_dim", output_dim, least=1)
            self.linear = nn.Linear(width, made, bias=_reading.flag("bias", bias))

    @property
    def alpha(self) -> Any:
        """The order: a number, or a tensor if it is learned."""
        return self.derivative.order()

    def forward(self, x: Tensor) -> Tensor:
        """Apply the linear map to the derivative."""
        y: Tensor = self.derivative(x)
        return y if self.linear is None else self.linear(y)

    def extra_repr(self) -> str:
        """Order and definition."""
        return f"alpha={shown_order(self.derivative.order)}, definition={self.derivative.definition!r}"

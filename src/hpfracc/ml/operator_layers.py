"""Layers that apply an operator, for PyTorch and JAX: their arguments, and what they compute.

A layer of either library is one of these classes together with the library's own base class, which supplies the methods
that :class:`OperatorLayer` declares.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from hpfracc import _reading
from hpfracc._arrays import is_array, to_host
from hpfracc._choices import names_options_of
from hpfracc._config import check_backend
from hpfracc._xp import array_namespace
from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.ml.config import LayerConfig, LossOptions, OrderLike, read_config, warn_of_infinite_start
from hpfracc.operators._fractional_laplacian import fractional_laplacian
from hpfracc.operators._frft import frft
from hpfracc.operators.core.registry import find_definition

__all__ = [
    "OPERATIONS", "DerivativeLayer", "FourierLayer", "LaplacianLayer", "LossLayer", "OperatorLayer", "ResidualLayer",
]  # fmt: skip


class OperatorLayer:
    """What a layer of either library has: an order, options, constant arrays, and an operation.

    The library's class has ``_assign(constants=None, like=None, **fields)``, which sets fields and constant arrays on
    the device of ``like``; ``_as_order(alpha)`` and ``_samples(x)``, which read or refuse; ``_operate(kind, x,
    *options)``, which applies one of :data:`OPERATIONS` to samples and the constant arrays; and
    ``_read_matrix(matrix)``, as a NumPy array or a SciPy sparse array of any format.
    """

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def _single_order(self, alpha: OrderLike, what: str) -> Any:
        order = self._as_order(alpha)
        if order.channels is not None:
            raise ShapeError(f"{what} has one order; give a single number")
        return order


class DerivativeLayer(OperatorLayer):
    """The fractional derivative along one axis."""

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
        known = find_definition(definition, "derivative").definition
        warn_of_infinite_start(known)
        rule = {"definition": known, "method": method, "step": _reading.number("step", step, above=0)}
        axes = {"axis": axis, "channel_axis": channel_axis}
        self._assign(order=self._as_order(alpha), **rule, **axes, config=read_config(config))

    def forward(self, x: Any) -> Any:
        """The derivative, of the shape and dtype of ``x``."""
        rule = (self.definition, self.method, self.step, (self.axis, self.channel_axis))
        return self._operate("derivative", x, *rule, self.config.engine_backend)


class LossLayer(OperatorLayer):
    """The mean square of an error and of its derivative, which is of the library's ``_derivative_type``."""

    @names_options_of(DerivativeLayer)
    def __init__(
        self,
        alpha: OrderLike = 0.5,
        weight: float = 1.0,
        *,
        reduction: str = "mean",
        config: LayerConfig | None = None,
        **options: Unpack[LossOptions],
    ) -> None:
        factor = _reading.number("weight", weight, least=0)
        _reading.choice("reduction", reduction, ("mean", "sum", "none"))
        derivative = self._derivative_type(alpha, config=config, **options)
        self._assign(derivative=derivative, weight=factor, reduction=reduction)

    def forward(self, prediction: Any, target: Any) -> Any:
        """The loss; nan where an error is not finite."""
        prediction, target = self._samples(prediction), self._samples(target)
        if prediction.shape != target.shape:
            raise ShapeError(
                f"a prediction of shape {tuple(prediction.shape)} for a target of shape {tuple(target.shape)}; "
                "give both the same shape"
            )
        error = prediction - target
        squares = abs(error) ** 2 + self.weight * abs(self.derivative(error)) ** 2
        if self.reduction == "none":
            return squares
        return squares.mean() if self.reduction == "mean" else squares.sum()


class FourierLayer(OperatorLayer):
    """The fractional Fourier transform along one axis."""

    def __init__(self, order: OrderLike = 0.5, *, axis: int = -1, method: str = "chirp") -> None:
        _reading.choice("method", method, ("chirp", "eigen"))
        self._assign(order=self._single_order(order, "a fractional Fourier layer"), axis=axis, method=method)

    def forward(self, x: Any) -> Any:
        """Complex, of the shape of ``x``."""
        return self._operate("fourier", x, self.axis, self.method)


class ResidualLayer(OperatorLayer):
    """The residual of an equation at given times."""

    def __init__(self, points: Any, alpha: OrderLike = 0.5, *, definition: str = "caputo", axis: int = -1) -> None:
        known = _reading.numbers("points", to_host(points) if is_array(points) else points)
        if known.ndim != 1 or known.size < 2 or not (np.diff(known) > 0.0).all():
            raise InvalidInputError("the points of a residual are not increasing along one axis; sort them")
        _reading.choice("definition", definition, ("caputo", "riemann_liouville"))
        order = self._single_order(alpha, "a residual")
        fields = {"order": order, "definition": definition, "axis": axis, "count": known.size}
        self._assign({"points": known}, points, **fields)

    def forward(self, u: Any, right: Any = 0.0) -> Any:
        """The residual at every point, the first included."""
        u = self._samples(u)
        if u.shape[self.axis] != self.count:
            raise ShapeError(
                f"values of shape {tuple(u.shape)} at {self.count} points along axis {self.axis}; give one value for "
                "each point"
            )
        return self._operate("residual", u, self.definition, self.axis) - right


class LaplacianLayer(OperatorLayer):
    """The residual of an equation with the fractional Laplacian, on a uniform grid."""

    def __init__(
        self,
        alpha: OrderLike = 1.0,
        *,
        step: float = 1.0,
        method: str = "auto",
        axis: int | Sequence[int] | None = None,
        backend: Any = None,
    ) -> None:
        chosen = None if backend is None else check_backend(backend, auto=True)
        axes = tuple(axis) if isinstance(axis, list | tuple) else axis
        order = self._single_order(alpha, "a residual")
        self._assign(order=order, step=_reading.number("step", step, above=0), options=(method, axes, chosen))

    def forward(self, u: Any, right: Any = 0.0) -> Any:
        """The residual at every point."""
        return self._operate("laplacian", u, self.step, *self.options) - right


def _differentiate(
    arrays: list[Any], alpha: Any, ceiling: int | None, channels: int | None, definition: str, method: str,
    step: float, axes: tuple[int, int], backend: str | None,
) -> Any:  # fmt: skip
    """With a single order, or one per channel; along the first of two axes, with the channels along the other."""
    (x,), (axis, channel_axis) = arrays, axes
    kind: Any = find_definition(definition, "derivative")
    options: dict[str, Any] = {"method": method}
    if ceiling is not None and "ceiling" in kind.__dataclass_fields__:
        options["ceiling"] = ceiling

    def apply(x: Any, alpha: Any) -> Any:
        return kind(alpha, **options)(x, step=step, axis=axis, backend=backend)

    if channels is None:
        return apply(x, alpha)
    n = x.ndim
    if not -n <= channel_axis < n or x.shape[channel_axis] != channels or channel_axis % n == axis % n:
        raise ShapeError(
            f"{channels} orders for samples of shape {tuple(x.shape)} whose channels lie along axis {channel_axis}; "
            "give as many orders as channels, along an axis other than that of the derivative"
        )
    before = (slice(None),) * (channel_axis % n)
    rows = [apply(x[(*before, slice(i, i + 1))], alpha[i]) for i in range(channels)]
    return array_namespace(x).concatenate(rows, channel_axis % n)


def _residual(arrays: list[Any], alpha: Any, ceiling: int | None, _: None, definition: str, axis: int) -> Any:
    u, points = arrays
    kind: Any = find_definition(definition, "derivative")
    return kind(alpha, **({} if ceiling is None else {"ceiling": ceiling}))(u, to_host(points), axis=axis)


#: ``f(arrays, alpha, ceiling, channels, *options)`` for samples that are not in half precision, and constant arrays.
OPERATIONS: dict[str, Callable[..., Any]] = {
    "derivative": _differentiate,
    "residual": _residual,
    "laplacian": lambda arrays, alpha, ceiling, channels, step, method, axis, backend: fractional_laplacian(
        arrays[0], alpha=alpha, step=step, method=method, axis=axis, backend=backend
    ),
    "fourier": lambda arrays, order, ceiling, channels, axis, method: frft(arrays[0], order, axis, method=method),
}

"""Optimisers with fractional memory of past gradients, as pairs ``(init, update)`` for JAX.

They follow Optax's interface and work in ``optax.chain``; Optax is not needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from hpfracc.errors import InvalidInputError
from hpfracc.ml.moment_filters import ExponentialFilter, flow_filter, moment_filter, read_filter_order

__all__ = [
    "FilterState",
    "FlowState",
    "Transformation",
    "fractional_adam",
    "fractional_gradient_flow",
    "fractional_sgd",
]


class Transformation(NamedTuple):
    """A pair with the interface of ``optax.GradientTransformation``.

    Attributes
    ----------
    init : callable
        ``init(params)`` returns the state.
    update : callable
        ``update(gradients, state, params=None)`` returns the change of the parameters and the next state.
    """

    init: Callable[[Any], Any]
    update: Callable[..., tuple[Any, Any]]


class FilterState(NamedTuple):
    """Number of steps, moments of shape (n, ...) for each parameter, and second moments (None without them)."""

    count: Any
    moments: Any
    squares: Any


class FlowState(NamedTuple):
    """Moments of shape (n, ...) for each parameter, and the total change of the parameters."""

    moments: Any
    moved: Any


def fractional_adam(
    learning_rate: float = 0.001,
    fractional_order: float = 0.5,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
) -> Transformation:
    """Adam whose first moment has fractional memory: ``OptimizedFractionalAdam`` of :mod:`hpfracc.ml.torch.optimizers`.

    Examples
    --------
    >>> import jax
    >>> from hpfracc.ml.jax.optimizers import fractional_adam
    >>> init, update = fractional_adam(0.05, 0.5)
    >>> x = jax.numpy.zeros(())
    >>> state = init(x)
    >>> changes, state = update(2.0 * (x - 1.0), state)
    >>> x = x + changes
    """
    by = moment_filter(read_filter_order(fractional_order), _read_decay("b1", b1))
    second = _read_decay("b2", b2)

    def init(params: Any) -> FilterState:
        return FilterState(jnp.zeros((), jnp.int32), _zeros(params, by), jax.tree.map(jnp.zeros_like, params))

    def update(gradients: Any, state: FilterState, params: Any = None) -> tuple[Any, FilterState]:
        count = state.count + 1
        moments = _advanced(by, state.moments, gradients)
        squares = jax.tree.map(lambda v, g: second * v + (1.0 - second) * jnp.abs(g) ** 2, state.squares, gradients)

        def change(moment: Any, square: Any) -> Any:
            real = square.real.dtype
            total = _total(by, count, real)
            correction = 1.0 - jnp.asarray(second, real) ** count
            return -learning_rate * (_combined(by, moment) / total) / (jnp.sqrt(square / correction) + eps)

        return jax.tree.map(change, moments, squares), FilterState(count, moments, squares)

    return Transformation(init, update)


def fractional_sgd(learning_rate: float = 0.01, fractional_order: float = 0.5, momentum: float = 0.9) -> Transformation:
    """Gradient descent with fractional momentum; see ``FractionalSGD`` of :mod:`hpfracc.ml.torch.optimizers`."""
    by = moment_filter(read_filter_order(fractional_order), _read_decay("momentum", momentum))

    def init(params: Any) -> FilterState:
        return FilterState(jnp.zeros((), jnp.int32), _zeros(params, by), None)

    def update(gradients: Any, state: FilterState, params: Any = None) -> tuple[Any, FilterState]:
        count = state.count + 1
        moments = _advanced(by, state.moments, gradients)
        changes = jax.tree.map(
            lambda moment: -learning_rate * _combined(by, moment) / _total(by, count, moment.real.dtype), moments
        )
        return changes, FilterState(count, moments, None)

    return Transformation(init, update)


def fractional_gradient_flow(
    learning_rate: float = 0.01, fractional_order: float = 0.5, horizon: int = 100_000
) -> Transformation:
    """The flow ``D^a theta = -eta grad L``; see ``FractionalGradientFlow`` of :mod:`hpfracc.ml.torch.optimizers`."""
    order = read_filter_order(fractional_order)
    if order == 0.0:
        raise InvalidInputError("fractional_order=0: a flow has an order above 0, up to 1")
    if isinstance(horizon, bool) or not isinstance(horizon, int) or horizon < 1:
        raise InvalidInputError(f"horizon={horizon!r} has to be a whole number of steps, 1 or more")
    by = flow_filter(order, horizon)

    def init(params: Any) -> FlowState:
        return FlowState(_zeros(params, by), jax.tree.map(jnp.zeros_like, params))

    def update(gradients: Any, state: FlowState, params: Any = None) -> tuple[Any, FlowState]:
        moments = _advanced(by, state.moments, gradients)
        moved = jax.tree.map(lambda moment: -learning_rate * _combined(by, moment), moments)
        return jax.tree.map(jnp.subtract, moved, state.moved), FlowState(moments, moved)

    return Transformation(init, update)


def _zeros(params: Any, by: ExponentialFilter) -> Any:
    return jax.tree.map(lambda each: jnp.zeros((len(by.rates), *jnp.shape(each)), jnp.result_type(each)), params)


def _advanced(by: ExponentialFilter, moments: Any, gradients: Any) -> Any:
    def one(moment: Any, gradient: Any) -> Any:
        rates = jnp.asarray(by.rates, moment.real.dtype).reshape(-1, *(1,) * (moment.ndim - 1))
        return rates * moment + gradient

    return jax.tree.map(one, moments, gradients)


def _combined(by: ExponentialFilter, moment: Any) -> Any:
    weights = jnp.asarray(by.weights, moment.real.dtype).reshape(-1, *(1,) * (moment.ndim - 1))
    return (weights * moment).sum(0)


def _total(by: ExponentialFilter, count: Any, dtype: Any) -> Any:
    """The sum of the first ``count`` weights."""
    rates, weights = jnp.asarray(by.rates, dtype), jnp.asarray(by.weights, dtype)
    return (weights * (1.0 - rates**count) / (1.0 - rates)).sum()


def _read_decay(name: str, value: Any) -> float:
    if not isinstance(value, int | float) or not 0.0 <= value < 1.0:
        raise InvalidInputError(f"{name}={value!r} has to be a number from 0 to below 1, such as 0.9")
    return float(value)

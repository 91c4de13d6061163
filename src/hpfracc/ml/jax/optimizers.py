"""Optimisers with fractional memory of past gradients, as pairs ``(init, update)`` for JAX.

They follow Optax's interface and work in ``optax.chain``; Optax is not needed. ``learning_rate`` is a number, an array,
or a schedule of Optax, a function of the number of previous steps. With ``optax.inject_hyperparams`` the learning rate
and other numbers may be traced, but not the order and the decay of the memory, which determine its exponentials: leave
them at their defaults, or name them in ``static_args``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hpfracc import _reading
from hpfracc._arrays import is_tracer
from hpfracc.errors import InvalidInputError
from hpfracc.ml.moment_filters import ExponentialFilter, flow_filter, moment_filter, read_decay, read_filter_order

__all__ = [
    "FilterState", "FlowState", "Transformation", "fractional_adam", "fractional_gradient_flow", "fractional_sgd",
]  # fmt: skip


#: A number, an array, or a function of the number of previous steps.
LearningRate = Any


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
    """Number of steps, moments of shape (n, ...) for each parameter, and the total change of the parameters."""

    count: Any
    moments: Any
    moved: Any


def fractional_adam(
    learning_rate: LearningRate = 0.001,
    fractional_order: float | None = None,
    b1: float | None = None,
    b2: float = 0.999,
    eps: float = 1e-8,
) -> Transformation:
    """Adam whose first moment has fractional memory: ``OptimizedFractionalAdam`` of :mod:`hpfracc.ml.torch.optimizers`.

    Parameters
    ----------
    learning_rate : float, array or callable
        The learning rate, or a schedule.
    fractional_order : float, default 0.5
        The order of the memory, from 0 to 1, which is Adam's.
    b1 : float, default 0.9
        Decay of the first moment.
    b2, eps : float
        As for Adam.

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
    second = b2 if is_tracer(b2) else read_decay("b2", b2)
    return _filtered(_moments(fractional_order, "b1", b1), learning_rate, second, eps)


def fractional_sgd(
    learning_rate: LearningRate = 0.01, fractional_order: float | None = None, momentum: float | None = None
) -> Transformation:
    """Gradient descent with fractional momentum; see ``FractionalSGD`` of :mod:`hpfracc.ml.torch.optimizers`.

    The order is 0.5 and the momentum 0.9 by default.
    """
    return _filtered(_moments(fractional_order, "momentum", momentum), learning_rate, None, 0.0)


def _filtered(by: ExponentialFilter, learning_rate: LearningRate, second: Any, eps: float) -> Transformation:
    """Steps along the filtered gradient, over the root of its squares unless their decay ``second`` is None."""

    def init(params: Any) -> FilterState:
        squares = None if second is None else jax.tree.map(jnp.zeros_like, params)
        return FilterState(jnp.zeros((), jnp.int32), _zeros(params, by), squares)

    def update(gradients: Any, state: FilterState, params: Any = None) -> tuple[Any, FilterState]:
        count, rate = state.count + 1, _rate(learning_rate, state.count)
        moments = _advanced(by, state.moments, gradients)

        def change(moment: Any) -> Any:
            return -rate * (_combined(by, moment) / _total(by, count, moment.real.dtype))

        if second is None:
            return jax.tree.map(change, moments), FilterState(count, moments, None)

        def scaled(moment: Any, square: Any) -> Any:
            correction = 1.0 - jnp.asarray(second, square.real.dtype) ** count
            return change(moment) / (jnp.sqrt(square / correction) + eps)

        squares = jax.tree.map(lambda v, g: second * v + (1.0 - second) * jnp.abs(g) ** 2, state.squares, gradients)
        return jax.tree.map(scaled, moments, squares), FilterState(count, moments, squares)

    return Transformation(init, update)


def fractional_gradient_flow(
    learning_rate: LearningRate = 0.01, fractional_order: float | None = None, horizon: int | None = None
) -> Transformation:
    """The flow ``D^a theta = -eta grad L``; see ``FractionalGradientFlow`` of :mod:`hpfracc.ml.torch.optimizers`.

    The order is 0.5 and the horizon 100,000 by default. With a schedule, eta is a function of time: each gradient keeps
    the rate of its step.
    """
    steps = 100_000 if horizon is None else _reading.whole("horizon", _known("horizon", horizon), least=1)
    order = 0.5 if fractional_order is None else _known("fractional_order", fractional_order)
    by = flow_filter(read_filter_order(order, flow=True), steps)

    def init(params: Any) -> FlowState:
        return FlowState(jnp.zeros((), jnp.int32), _zeros(params, by), jax.tree.map(jnp.zeros_like, params))

    def update(gradients: Any, state: FlowState, params: Any = None) -> tuple[Any, FlowState]:
        rate = _rate(learning_rate, state.count)
        moments = _advanced(by, state.moments, jax.tree.map(lambda each: -rate * each, gradients))
        moved = jax.tree.map(lambda moment: _combined(by, moment), moments)
        return jax.tree.map(jnp.subtract, moved, state.moved), FlowState(state.count + 1, moments, moved)

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
    """The sum of the first ``count`` weights; what a decay lacks to 1 has few digits in single precision, or none."""
    rates = np.array(by.rates)
    with np.errstate(divide="ignore"):  # a decay of 0
        logs, scales = jnp.asarray(np.log(rates), dtype), jnp.asarray(by.weights / (1.0 - rates), dtype)
    return -(scales * jnp.expm1(count * logs)).sum()


def _rate(learning_rate: LearningRate, count: Any) -> Any:
    """The learning rate after ``count`` steps."""
    return learning_rate(count) if callable(learning_rate) else learning_rate


def _known(name: str, value: Any) -> Any:
    """The value; raises an error if it is traced."""
    if is_tracer(value):
        raise InvalidInputError(
            f"{name} is traced, and the exponentials of the memory need its value: give a number, and in "
            f"optax.inject_hyperparams static_args=({name!r},)"
        )
    return value


def _moments(order: Any, name: str, decay: Any) -> ExponentialFilter:
    order = 0.5 if order is None else _known("fractional_order", order)
    return moment_filter(read_filter_order(order), read_decay(name, 0.9 if decay is None else _known(name, decay)))

r"""Long memory: fractional filters, and recurrent cells whose memory decays like a power of time.

See :mod:`hpfracc.ml.torch.recurrent`: with :math:`w_k(d) = (-1)^k \binom{d}{k}`, without truncation.

References
----------
J. Zhao, F. Huang, J. Lv, Y. Duan, Z. Qin, G. Li, G. Tian, "Do RNN and LSTM have long memory?", ICML 2020.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from hpfracc import _reading
from hpfracc._arrays import is_tracer
from hpfracc._xp import Namespace, namespace, of_variables
from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.ml.jax.fractional_layer import FractionalDerivative
from hpfracc.ml.jax.order import LearnableOrder, OrderLike, as_order
from hpfracc.ml.jax.pytrees import as_samples, pytree, uniform_parameters
from hpfracc.ml.memory_exponentials import LONGEST, decays, past_inputs, read_memory_option, weight_factors
from hpfracc.operators.core.order import read_order
from hpfracc.operators.core.sequences import binomials
from hpfracc.operators.core.weights import weights_of

__all__ = ["FractionalFilter", "FractionalLSTM", "FractionalRNN"]

#: Steps that the backward pass recomputes together.
_BLOCK = 32


def _make_weights(xp: Namespace, d: Any, n: int) -> tuple[Any]:
    return (binomials(xp, d, n),)


def _memory_weights(order: Any, n: int, dtype: Any) -> Any:
    """``w_0 .. w_{n-1}``; one row per order if there are several."""
    d = order()

    def row(one: Any) -> Any:
        read = read_order(one, ceiling=order.ceiling, name="d")
        (weights,) = weights_of("memory", _make_weights, read, n)
        with jax.enable_x64(True):
            return jnp.asarray(weights).astype(dtype)

    return row(d) if order.channels is None else jnp.stack([row(d[i]) for i in range(order.channels)])


def _check_sequences(x: Any, features: int) -> None:
    if x.ndim != 3 or x.shape[-1] != features or not x.shape[1]:
        raise ShapeError(f"sequences of shape {x.shape}; give (batch, time, {features})")


def _product(x: Any, weight: Any) -> Any:
    return jnp.matmul(x, weight.T, precision="highest")


@final
@pytree("derivative")
@dataclass(init=False, frozen=True)
class FractionalFilter:
    r"""The fractional difference of a sequence: :math:`F_t = \sum_{k=0}^{t} w_k(d)\, x_{t-k}`.

    Parameters
    ----------
    d : float, sequence of float, array or LearnableOrder
        The order; ``LearnableOrder(0.25, bounds=(0, 0.5))`` by default. A sequence gives one order per feature.
    """

    derivative: FractionalDerivative

    def __init__(self, d: OrderLike = None) -> None:
        order = LearnableOrder(0.25, bounds=(0.0, 0.5)) if d is None else as_order(d)
        object.__setattr__(self, "derivative", FractionalDerivative(order, axis=-2, channel_axis=-1))

    def __call__(self, x: Any) -> Any:
        """Filter sequences of shape (..., time, features)."""
        return self.derivative(x)


@final
@pytree("filter", "input_weight", "input_bias", "recurrent_weight")
@dataclass(init=False, frozen=True)
class FractionalRNN:
    r"""A recurrent layer whose inputs include a fractional filter of its input; see :class:`hpfracc.ml.FractionalRNN`.

    Parameters
    ----------
    input_size, hidden_size : int
        Number of features of the input and of the state.
    d : float, sequence of float, array or LearnableOrder
        The order, a single one or one per feature.
    key : jax.random.key
        Random key for the initial parameters.
    """

    filter: FractionalFilter
    input_weight: Any
    input_bias: Any
    recurrent_weight: Any

    def __init__(self, input_size: int, hidden_size: int, d: OrderLike = None, *, key: Any = None) -> None:
        input_size = _reading.whole("input_size", input_size, least=1)
        hidden_size = _reading.whole("hidden_size", hidden_size, least=1)
        object.__setattr__(self, "filter", FractionalFilter(d))
        object.__setattr__(self, "input_weight", uniform_parameters(key, (hidden_size, 2 * input_size), hidden_size))
        object.__setattr__(
            self, "input_bias", uniform_parameters(jax.random.fold_in(key, 1), (hidden_size,), hidden_size)
        )
        recurrent = uniform_parameters(jax.random.fold_in(key, 2), (hidden_size, hidden_size), hidden_size)
        object.__setattr__(self, "recurrent_weight", recurrent)

    def __call__(self, x: Any, state: tuple[Any, Any] | None = None) -> tuple[Any, tuple[Any, Any]]:
        """Outputs of shape (batch, time, hidden), and the final state.

        The state is the last output and all inputs so far, because the filter does not forget: the ``state`` of a call
        that continues the sequence.
        """
        x = as_samples(x)
        _check_sequences(x, self.input_weight.shape[1] // 2)
        past = x if state is None else jnp.concatenate([past_inputs(state, x), x], 1)
        filtered = self.filter(past)[:, -x.shape[1] :]
        driven = _product(jnp.concatenate([x, filtered], -1), self.input_weight) + self.input_bias
        start = jnp.zeros((x.shape[0], self.recurrent_weight.shape[0]), driven.dtype) if state is None else state[0]

        def step(h: Any, one: Any) -> tuple[Any, Any]:
            h = jnp.tanh(one + _product(h, self.recurrent_weight))
            return h, h

        last, outputs = jax.lax.scan(step, start, jnp.moveaxis(driven, 1, 0))
        return jnp.moveaxis(outputs, 0, 1), (last, past)


@final
@pytree("order", "input_weight", "input_bias", "recurrent_weight")
@dataclass(init=False, frozen=True)
class FractionalLSTM:
    r"""An LSTM whose cell has power-law memory instead of a forget gate; see :class:`hpfracc.ml.FractionalLSTM`.

    Parameters
    ----------
    input_size, hidden_size : int
        Number of features of the input and of the state.
    d : float, sequence of float, array or LearnableOrder
        The order, a single one or one per cell.
    memory : {"full", "exponentials"}
        ``"full"`` sums all lags at every step, as a product with all earlier cells: the work grows with the square of
        the time. ``"exponentials"`` keeps 95 numbers per cell instead, for orders from 0 to 1.
    key : jax.random.key
        Random key for the initial parameters.
    """

    order: Any
    input_weight: Any
    input_bias: Any
    recurrent_weight: Any
    memory: str

    def __init__(
        self, input_size: int, hidden_size: int, d: OrderLike = None, *, memory: str = "full", key: Any = None
    ) -> None:
        input_size = _reading.whole("input_size", input_size, least=1)
        hidden_size = _reading.whole("hidden_size", hidden_size, least=1)
        object.__setattr__(self, "memory", read_memory_option(memory))
        order = LearnableOrder(0.25, bounds=(0.0, 0.5)) if d is None else as_order(d)
        if order.channels not in (None, hidden_size):
            raise ShapeError(f"{order.channels} orders for {hidden_size} cells; give one, or one for each")
        object.__setattr__(self, "order", order)
        object.__setattr__(self, "input_weight", uniform_parameters(key, (3 * hidden_size, input_size), hidden_size))
        object.__setattr__(
            self, "input_bias", uniform_parameters(jax.random.fold_in(key, 1), (3 * hidden_size,), hidden_size)
        )
        recurrent = uniform_parameters(jax.random.fold_in(key, 2), (3 * hidden_size, hidden_size), hidden_size)
        object.__setattr__(self, "recurrent_weight", recurrent)

    def __call__(self, x: Any, state: tuple[Any, ...] | None = None) -> tuple[Any, tuple[Any, ...]]:
        """Outputs of shape (batch, time, hidden), and the last state and cell.

        With ``memory="exponentials"`` the memory comes third; the three together are the ``state`` of a call that
        continues the sequence.
        """
        x = as_samples(x)
        _check_sequences(x, self.input_weight.shape[1])
        steps, hidden = x.shape[1], self.recurrent_weight.shape[1]
        driven = _product(x, self.input_weight) + self.input_bias
        if self.memory == "exponentials":
            return self._along(driven, state)
        if state is not None:
            raise InvalidInputError("a state without all earlier cells; use memory='exponentials' to continue")
        weights = -_memory_weights(self.order, steps, driven.dtype)
        # lags[t, s] = -w_{t-s} for s < t, else 0; with a third axis if each cell has its own order.
        apart = jnp.arange(steps)[:, None] - jnp.arange(steps)[None, :]
        lags = jnp.where(apart > 0, weights[..., jnp.maximum(apart, 0)], 0.0)
        lags = jnp.moveaxis(lags, 0, -1) if lags.ndim == 3 else lags[..., None]
        cells = jnp.zeros((steps, x.shape[0], hidden), driven.dtype)
        state = jnp.zeros((x.shape[0], hidden), driven.dtype)

        def step(carry: tuple[Any, Any], one: tuple[Any, Any, Any]) -> tuple[tuple[Any, Any], Any]:
            h, cells = carry
            gates, row, t = one
            enter, leave, candidate = jnp.split(gates + _product(h, self.recurrent_weight), 3, -1)
            c = jax.nn.sigmoid(enter) * jnp.tanh(candidate) + (row[:, None, :] * cells).sum(0)
            h = jax.nn.sigmoid(leave) * jnp.tanh(c)
            return (h, jax.lax.dynamic_update_index_in_dim(cells, c, t, 0)), h

        (h, cells), outputs = jax.lax.scan(step, (state, cells), (jnp.moveaxis(driven, 1, 0), lags, jnp.arange(steps)))
        return jnp.moveaxis(outputs, 0, 1), (h, cells[-1])

    def _along(self, driven: Any, state: tuple[Any, ...] | None) -> tuple[Any, tuple[Any, ...]]:
        """The same with a sum of exponentials, in blocks of steps that the backward pass recomputes."""
        batch, steps = driven.shape[:2]
        if steps > LONGEST:
            raise InvalidInputError(f"{steps:,} steps; exponentials cover {LONGEST:,} lags: use memory='full'")
        first, decay, weights = _exponentials(self.order, driven.dtype)
        if state is None:
            empty = jnp.zeros((batch, self.recurrent_weight.shape[1]), driven.dtype)
            state = empty, empty, jnp.zeros((decay.shape[0], *empty.shape), driven.dtype)

        def step(carry: tuple[Any, ...], gates: Any) -> tuple[tuple[Any, ...], Any]:
            h, before, past = carry
            enter, leave, candidate = jnp.split(gates + _product(h, self.recurrent_weight), 3, -1)
            # Lag 1 separately, the others from the exponentials.
            c = jax.nn.sigmoid(enter) * jnp.tanh(candidate) + first * before + (weights * past).sum(0)
            h = jax.nn.sigmoid(leave) * jnp.tanh(c)
            return (h, c, decay * past + before), h

        rows = jnp.moveaxis(driven, 1, 0)
        whole = steps - steps % _BLOCK
        outputs = []
        if whole:
            blocks = rows[:whole].reshape(whole // _BLOCK, _BLOCK, *rows.shape[1:])
            state, found = jax.lax.scan(
                jax.checkpoint(lambda carry, part: jax.lax.scan(step, carry, part)), state, blocks
            )
            outputs.append(found.reshape(whole, *found.shape[2:]))
        if whole < steps:
            state, found = jax.lax.scan(step, state, rows[whole:])
            outputs.append(found)
        return jnp.moveaxis(jnp.concatenate(outputs), 0, 1), state


def _exponentials(order: Any, dtype: Any) -> tuple[Any, Any, Any]:
    """The weight of lag 1, decays of shape (95, 1, 1), and weights of shape (95, 1, 1) or (95, 1, orders)."""
    d = order()
    if not is_tracer(d) and bool(np.any((np.asarray(d) < 0.0) | (np.asarray(d) > 1.0))):
        raise InvalidInputError(f"d={d}: exponentials are for orders from 0 to 1; use memory='full'")
    xp = namespace("jax")

    def make(one: Any) -> tuple[Any]:
        scale, bent = map(xp.array, weight_factors())
        return (xp.sin(math.pi * one) * scale * xp.exp(one * bent),)

    with xp.scope():  # in double precision
        several = [d] if order.channels is None else [d[i] for i in range(order.channels)]
        weights = jnp.stack([of_variables(xp, make)(xp.array(one))[0] for one in several], -1).astype(dtype)
    return jnp.asarray(d, dtype).reshape(-1), jnp.asarray(decays(), dtype)[:, None, None], weights[:, None, :]

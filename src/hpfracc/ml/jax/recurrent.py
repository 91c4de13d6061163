r"""Long memory: fractional filters, and recurrent cells whose memory decays like a power of time.

See :mod:`hpfracc.ml.torch.recurrent`: with :math:`w_k(d) = (-1)^k \binom{d}{k}`, without truncation.

References
----------
J. Zhao, F. Huang, J. Lv, Y. Duan, Z. Qin, G. Li, G. Tian, "Do RNN and LSTM have long memory?", ICML 2020.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Unpack, final

import jax
import jax.numpy as jnp
import numpy as np

from hpfracc._arrays import is_tracer
from hpfracc._choices import names_options_of
from hpfracc._xp import Namespace, namespace, of_variables
from hpfracc.errors import InvalidInputError
from hpfracc.ml import recurrence
from hpfracc.ml.jax.layers import FractionalDerivative
from hpfracc.ml.jax.order import LearnableOrder, OrderLike, as_order, as_samples, assign, pytree, uniform_parameters
from hpfracc.ml.recurrence import Stack, StackOptions
from hpfracc.solvers.tensors.loops import run_plainly, scan

__all__ = ["FractionalFilter", "FractionalLSTM", "FractionalRNN"]


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
        assign(self, derivative=FractionalDerivative(order, axis=-2, channel_axis=-1))

    def __call__(self, x: Any) -> Any:
        """Filter sequences of shape (..., time, features)."""
        return self.derivative(x)


@dataclass(init=False, frozen=True)
class _Recurrent:
    """Cells in layers and directions: the first is the layer itself, the others are its ``more``."""

    input_weight: Any
    input_bias: Any
    recurrent_weight: Any
    more: Any
    input_size: int
    hidden_size: int
    stack: Stack
    xp: ClassVar[Namespace] = namespace("jax")

    def _assign(self, inputs: int, gates: int, key: Any, more: Any, stack: Stack, **fields: Any) -> None:
        """Set the fields, with random parameters; ``more(width, key)`` makes a further cell."""
        hidden = fields["hidden_size"]
        shapes = (gates, inputs), (gates,), (gates, hidden)
        keys = [key, *(jax.random.fold_in(key, i) for i in (1, 2))] if key is not None else [None] * 3
        weight, bias, recurrent = (uniform_parameters(*each, hidden) for each in zip(keys, shapes, strict=True))
        widths = stack.widths(fields["input_size"], hidden)
        rest = tuple(more(width, jax.random.fold_in(key, 2 + i)) for i, width in enumerate(widths) if i)
        parameters = {"input_weight": weight, "input_bias": bias, "recurrent_weight": recurrent}
        assign(self, **parameters, more=rest, stack=stack, **fields)

    @property
    def _names(self) -> tuple[str, ...]:
        raise NotImplementedError

    def input(self, x: Any) -> Any:
        """The linear map of the inputs."""
        return jnp.matmul(x, self.input_weight.T, precision="highest") + self.input_bias

    def recurrent(self, h: Any) -> Any:
        """The linear map of the state."""
        return jnp.matmul(h, self.recurrent_weight.T, precision="highest")

    def __call__(
        self, x: Any, state: Any = None, *, key: Any = None, inference: bool = False
    ) -> tuple[Any, tuple[Any, ...]]:
        """Outputs, of shape (batch, time, directions * hidden), and the final state.

        Parameters
        ----------
        x : array
            Of shape (batch, time, features), or (time, batch, features) with ``batch_first=False``, or (time, features)
            without a batch.
        state : tuple, optional
            The final state of the call that processed the sequences up to here.
        key : jax.random.key, optional
            Random key of the dropout.
        inference : bool
            Whether to leave the dropout out.
        """
        share = 0.0 if inference else self.stack.dropout
        if share and key is None:
            raise InvalidInputError(f"dropout={share:g} needs key=, or inference=True to leave it out")

        def dropped(x: Any, layer: int) -> Any:
            if not share:
                return x
            kept = jax.random.bernoulli(jax.random.fold_in(key, layer), 1.0 - share, x.shape)
            return jnp.where(kept, x / max(1.0 - share, 1e-30), 0.0)

        return self.stack.run([self, *self.more], as_samples(x), state, self._names, dropped)


_PARAMETERS = ("input_weight", "input_bias", "recurrent_weight", "more")


@final
@pytree("filter", *_PARAMETERS)
@dataclass(init=False, frozen=True)
class FractionalRNN(_Recurrent):
    r"""A recurrent layer whose inputs include a fractional filter of its input; see :class:`hpfracc.ml.FractionalRNN`.

    Parameters
    ----------
    input_size, hidden_size : int
        Number of features of the input and of the state.
    d : float, sequence of float, array or LearnableOrder
        The order, a single one or one per feature. Each layer and direction has its own, which starts with this value.
    key : jax.random.key
        Random key for the initial parameters.
    **options
        ``num_layers``, ``batch_first`` (True by default), ``dropout`` and ``bidirectional``, as for
        :class:`torch.nn.RNN`.
    """

    filter: FractionalFilter

    @names_options_of(Stack.read)
    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        d: OrderLike = None,
        *,
        key: Any = None,
        **options: Unpack[StackOptions],
    ) -> None:
        stack, cell = Stack.read(**options), FractionalFilter(d)
        channels, widths = cell.derivative.order.channels, stack.widths(input_size, hidden_size)
        recurrence.read_cells(input_size, hidden_size, channels, widths, "features")
        fields = {"input_size": input_size, "hidden_size": hidden_size, "filter": cell}
        more = lambda width, key: FractionalRNN(width, hidden_size, d, key=key)  # noqa: E731
        self._assign(2 * input_size, hidden_size, key, more, stack, **fields)

    @property
    def _names(self) -> tuple[str, ...]:
        return "h", "inputs"

    def run(self, x: Any, state: Any, lengths: None) -> tuple[Any, tuple[Any, ...]]:
        """One layer in one direction."""
        return recurrence.run_filtered(self, x, state, lengths)


@final
@pytree("order", *_PARAMETERS)
@dataclass(init=False, frozen=True)
class FractionalLSTM(_Recurrent):
    r"""An LSTM whose cell has power-law memory instead of a forget gate; see :class:`hpfracc.ml.FractionalLSTM`.

    Parameters
    ----------
    input_size, hidden_size : int
        Number of features of the input and of the state.
    d : float, sequence of float, array or LearnableOrder
        The order, a single one or one per cell. Each layer and direction has its own, which starts with this value.
    memory : {"full", "exponentials"}
        ``"full"`` sums all lags at every step, as a product with all earlier cells: the work grows with the square of
        the time. ``"exponentials"`` keeps 95 numbers per cell instead, for orders from 0 to 1.
    key : jax.random.key
        Random key for the initial parameters.
    **options
        ``num_layers``, ``batch_first`` (True by default), ``dropout`` and ``bidirectional``, as for
        :class:`torch.nn.LSTM`.
    """

    order: Any
    memory: str

    @names_options_of(Stack.read)
    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        d: OrderLike = None,
        *,
        memory: str = "full",
        key: Any = None,
        **options: Unpack[StackOptions],
    ) -> None:
        stack = Stack.read(**options)
        order = LearnableOrder(0.25, bounds=(0.0, 0.5)) if d is None else as_order(d)
        recurrence.read_cells(input_size, hidden_size, order.channels, [hidden_size], "cells", memory)
        fields = {"input_size": input_size, "hidden_size": hidden_size, "order": order, "memory": memory}
        more = lambda width, key: FractionalLSTM(width, hidden_size, order, memory=memory, key=key)  # noqa: E731
        self._assign(input_size, 3 * hidden_size, key, more, stack, **fields)

    @property
    def _names(self) -> tuple[str, ...]:
        return ("h", "c") if self.memory == "full" else ("h", "c", "memory")

    def run(self, x: Any, state: Any, lengths: None) -> tuple[Any, tuple[Any, ...]]:
        """One layer in one direction."""
        driven, d, (batch, steps) = self.input(x), self.order(), x.shape[:2]
        orders = [d] if self.order.channels is None else [d[i] for i in range(self.order.channels)]
        if self.memory == "exponentials":
            memory = _exponentials(d, orders, driven.dtype)
            return recurrence.run_remembered(self, driven, state, lengths, memory, run_plainly)
        with self.xp.scope():
            rows = [jnp.asarray(recurrence.memory_weights(one, self.order.ceiling, steps)) for one in orders]
            weights = -jnp.stack(rows, -1).astype(driven.dtype)
        # lags[t, s] = -w_{t-s} for s < t, else 0; the third axis has one order, or that of each cell.
        apart = jnp.arange(steps)[:, None] - jnp.arange(steps)[None, :]
        lags = jnp.where(apart[..., None] > 0, weights[jnp.maximum(apart, 0)], 0.0)

        def step(carry: Any, row: Any) -> Any:
            h, cells = carry
            gates, lag, t = row
            h, c = recurrence.lstm_step(self.xp, gates + self.recurrent(h), (lag[:, None, :] * cells).sum(0))
            return h, cells.at[t].set(c)

        cells = jnp.zeros((steps, batch, self.hidden_size), driven.dtype)
        given = (jnp.moveaxis(driven, 1, 0), lags, jnp.arange(steps))
        (h, cells), outputs = scan(self.xp, step, (0.0 * cells[0], cells), given, keep=True)
        return jnp.moveaxis(outputs[1:], 0, 1), (h, cells[-1])


def _exponentials(d: Any, orders: list[Any], dtype: Any) -> tuple[Any, Any, Any]:
    """The weight of lag 1, decays of shape (95, 1, 1), and weights of shape (95, 1, 1) or (95, 1, orders)."""
    xp = namespace("jax")
    if not is_tracer(d):
        recurrence.check_range(np.asarray(d))
    with xp.scope():  # in double precision
        make = of_variables(xp, lambda one: (recurrence.exponential_weights(xp, one),))
        weights = jnp.stack([make(xp.array(one))[0] for one in orders], -1).astype(dtype)
    return (
        jnp.asarray(d, dtype).reshape(-1),
        jnp.asarray(recurrence.decays(), dtype)[:, None, None],
        weights[:, None, :],
    )

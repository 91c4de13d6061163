r"""Long memory: fractional filters, and recurrent cells whose memory decays like a power of time.

With :math:`w_k(d) = (-1)^k \binom{d}{k}`, which decays like :math:`k^{-d-1}`; the recurrent layers do not truncate it.

References
----------
J. Zhao, F. Huang, J. Lv, Y. Duan, Z. Qin, G. Li, G. Tian, "Do RNN and LSTM have long memory?", ICML 2020.
"""

from __future__ import annotations

import math
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from hpfracc._xp import Namespace
from hpfracc.engine.execution.api import causal_convolution
from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.ml.memory_exponentials import LONGEST, decays, past_inputs, read_memory_option, weight_factors
from hpfracc.ml.torch.fractional_layer import FractionalDerivative
from hpfracc.ml.torch.opaque import opaque
from hpfracc.ml.torch.order import (
    LearnableOrder,
    OrderLike,
    as_order,
    check_tensor,
    joined_order,
    shown_order,
    split_order,
)
from hpfracc.operators.core.lags import Lags
from hpfracc.operators.core.order import read_order
from hpfracc.operators.core.sequences import binomials
from hpfracc.operators.core.weights import weights_of

__all__ = ["FractionalFilter", "FractionalLSTM", "FractionalRNN"]

#: Steps summed one by one; earlier ones are summed together, by FFT.
_BLOCK = 32


def _make_weights(xp: Namespace, d: Any, n: int | Lags) -> tuple[Any]:
    return (binomials(xp, d, n),)


@final
class FractionalFilter(nn.Module):
    r"""The fractional difference of a sequence: :math:`F_t = \sum_{k=0}^{t} w_k(d)\, x_{t-k}`.

    Parameters
    ----------
    d : float, sequence of float, Tensor, Parameter or LearnableOrder
        The order; ``LearnableOrder(0.25, bounds=(0, 0.5))`` by default. A sequence gives one order per feature.

    Examples
    --------
    >>> import torch
    >>> from hpfracc.ml import FractionalFilter
    >>> FractionalFilter(1.0)(torch.tensor([[[1.0], [3.0], [6.0]]])).flatten()
    tensor([1., 2., 3.])
    """

    def __init__(self, d: OrderLike = None) -> None:
        super().__init__()
        order = LearnableOrder(0.25, bounds=(0.0, 0.5)) if d is None else as_order(d)
        self.derivative = FractionalDerivative(order, axis=-2, channel_axis=-1)

    def forward(self, x: Tensor) -> Tensor:
        """Filter sequences of shape (..., time, features)."""
        check_tensor(x)
        if x.ndim < 2:
            raise ShapeError(f"sequences of shape {tuple(x.shape)}; give (..., time, features)")
        y: Tensor = self.derivative(x)
        return y

    def extra_repr(self) -> str:
        """The order."""
        return f"d={shown_order(self.derivative.order)}"


def _check_sequences(x: Tensor, features: int) -> None:
    check_tensor(x)
    if x.ndim != 3 or x.shape[-1] != features or not x.shape[1]:
        raise ShapeError(f"sequences of shape {tuple(x.shape)}; give (batch, time, {features})")


def _initialised(module: nn.Module, hidden: int) -> None:
    bound = 1.0 / math.sqrt(hidden)
    for linear in module.modules():
        if isinstance(linear, nn.Linear):
            for parameter in linear.parameters():
                nn.init.uniform_(parameter, -bound, bound)


def _sizes(input_size: int, hidden_size: int) -> None:
    for name, size in (("input_size", input_size), ("hidden_size", hidden_size)):
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise InvalidInputError(f"{name}={size!r} is not a positive whole number; give the number of features")


@final
class FractionalRNN(nn.Module):
    r"""A recurrent layer whose inputs include a fractional filter of its input.

    .. math:: h_t = \tanh(W x_t + V F_t + U h_{t-1} + b), \quad F_t = \sum_{k=0}^{t} w_k(d)\, x_{t-k}.

    Parameters
    ----------
    input_size, hidden_size : int
        Number of features of the input and of the state.
    d : float, sequence of float, Tensor, Parameter or LearnableOrder
        The order, a single one or one per feature; ``LearnableOrder(0.25, bounds=(0, 0.5))`` by default.

    Examples
    --------
    >>> import torch
    >>> from hpfracc.ml import FractionalRNN
    >>> layer, x = FractionalRNN(3, 5), torch.randn(2, 20, 3)
    >>> outputs, (last, inputs) = layer(x)
    >>> outputs.shape, last.shape
    (torch.Size([2, 20, 5]), torch.Size([2, 5]))
    >>> first, state = layer(x[:, :12])
    >>> bool(torch.allclose(layer(x[:, 12:], state)[0], outputs[:, 12:], atol=1e-5))
    True
    """

    def __init__(self, input_size: int, hidden_size: int, d: OrderLike = None) -> None:
        super().__init__()
        _sizes(input_size, hidden_size)
        self.input_size, self.hidden_size = input_size, hidden_size
        self.filter = FractionalFilter(d)
        self.input = nn.Linear(2 * input_size, hidden_size)
        self.recurrent = nn.Linear(hidden_size, hidden_size, bias=False)
        _initialised(self, hidden_size)

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Outputs of shape (batch, time, hidden), and the final state.

        The state is the last output and all inputs so far, because the filter does not forget: the ``state`` of a call
        that continues the sequence.
        """
        _check_sequences(x, self.input_size)
        past = x if state is None else torch.cat([past_inputs(state, x), x], 1)
        driven = self.input(torch.cat([x, self.filter(past)[:, -x.shape[1] :]], -1))
        h = driven.new_zeros(x.shape[0], self.hidden_size) if state is None else state[0]
        outputs = []
        for t in range(x.shape[1]):
            h = torch.tanh(driven[:, t] + self.recurrent(h))
            outputs.append(h)
        return torch.stack(outputs, 1), (h, past)

    def extra_repr(self) -> str:
        """Sizes."""
        return f"{self.input_size}, {self.hidden_size}"


@final
class FractionalLSTM(nn.Module):
    r"""An LSTM whose cell has power-law memory instead of a forget gate.

    .. math:: c_t = -\sum_{k=1}^{t} w_k(d)\, c_{t-k} + i_t \tilde c_t, \qquad h_t = o_t \tanh c_t,

    with the input gate, output gate and candidate of an LSTM. Order 0 forgets immediately, order 1 is an LSTM whose
    forget gate is 1; between 0 and 1/2 the memory is long and stationary.

    Parameters
    ----------
    input_size, hidden_size : int
        Number of features of the input and of the state.
    d : float, sequence of float, Tensor, Parameter or LearnableOrder
        The order, a single one or one per cell; ``LearnableOrder(0.25, bounds=(0, 0.5))`` by default.
    memory : {"full", "exponentials"}
        ``"full"`` keeps all cells: lags beyond a block are summed by the engine, without truncation. ``"exponentials"``
        keeps 95 numbers per cell for any length of the sequence, for orders from 0 to 1: it represents the weights of a
        million lags to a relative 5e-9, and a call can start from the final state of another.

    Examples
    --------
    >>> import torch
    >>> from hpfracc.ml import FractionalLSTM
    >>> outputs, (h, c) = FractionalLSTM(3, 5)(torch.randn(2, 40, 3))
    >>> outputs.shape, c.shape
    (torch.Size([2, 40, 5]), torch.Size([2, 5]))
    """

    def __init__(self, input_size: int, hidden_size: int, d: OrderLike = None, *, memory: str = "full") -> None:
        super().__init__()
        _sizes(input_size, hidden_size)
        self.input_size, self.hidden_size = input_size, hidden_size
        self.memory = read_memory_option(memory)
        self.order = LearnableOrder(0.25, bounds=(0.0, 0.5)) if d is None else as_order(d)
        if self.order.channels not in (None, hidden_size):
            raise ShapeError(f"{self.order.channels} orders for {hidden_size} cells; give one, or one for each")
        self.input = nn.Linear(input_size, 3 * hidden_size)
        self.recurrent = nn.Linear(hidden_size, 3 * hidden_size, bias=False)
        _initialised(self, hidden_size)

    def forward(self, x: Tensor, state: tuple[Tensor, ...] | None = None) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Outputs of shape (batch, time, hidden), and the last state and cell.

        With ``memory="exponentials"`` the memory comes third, of shape (95, batch, hidden); the three together are the
        ``state`` of a call that continues the sequence.
        """
        _check_sequences(x, self.input_size)
        steps = x.shape[1]
        driven = self.input(x)
        if self.memory == "exponentials":
            return self._along(driven, state)
        if state is not None:
            raise InvalidInputError("a state without all earlier cells; use memory='exponentials' to continue")
        order, d = split_order(self.order)
        weights = -_weights([driven, *order], d, self.order.ceiling, self.order.channels)[0]
        h = driven.new_zeros(x.shape[0], self.hidden_size)
        outputs: list[Tensor] = []
        cells: Tensor | None = None
        for begin in range(0, steps, _BLOCK):
            count = min(_BLOCK, steps - begin)
            history = None if cells is None else _history([weights, cells], count)[0]
            block: list[Tensor] = []
            for j in range(count):
                gates = driven[:, begin + j] + self.recurrent(h)
                enter, leave, candidate = gates.chunk(3, -1)
                c = (torch.sigmoid(enter) * torch.tanh(candidate)).to(weights.dtype)
                if history is not None:
                    c = c + history[..., j]
                if block:
                    c = c + (torch.stack(block, -1) * weights[..., 1 : j + 1].flip(-1)).sum(-1)
                block.append(c)
                h = torch.sigmoid(leave) * torch.tanh(c).to(driven.dtype)
                outputs.append(h)
            made = torch.stack(block, -1)
            cells = made if cells is None else torch.cat([cells, made], -1)
        assert cells is not None
        return torch.stack(outputs, 1), (h, cells[..., -1])

    def _along(self, driven: Tensor, state: tuple[Tensor, ...] | None) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The same with a sum of exponentials, in blocks of steps that the backward pass recomputes."""
        batch, steps = driven.shape[:2]
        if steps > LONGEST:
            raise InvalidInputError(f"{steps:,} steps; exponentials cover {LONGEST:,} lags: use memory='full'")
        order, d = split_order(self.order)
        first, decay, weights = _exponentials([driven, *order], d)
        kind = first.dtype
        if state is None:
            empty = driven.new_zeros(batch, self.hidden_size, dtype=kind)
            state = empty.to(driven.dtype), empty, empty.new_zeros(decay.shape[0], batch, self.hidden_size)

        def run(part: Tensor, h: Tensor, before: Tensor, past: Tensor) -> tuple[Tensor, ...]:
            outputs = []
            for gates in part.unbind(1):
                enter, leave, candidate = (gates + self.recurrent(h)).chunk(3, -1)
                # Lag 1 separately, the others from the exponentials.
                c = torch.sigmoid(enter) * torch.tanh(candidate) + first * before + (weights * past).sum(0)
                past, before = torch.addcmul(before, decay, past), c
                h = torch.sigmoid(leave) * torch.tanh(c).to(part.dtype)
                outputs.append(h)
            return torch.stack(outputs, 1), h, before, past

        found = []
        for part in driven.split(_BLOCK, 1):
            recorded = torch.is_grad_enabled() and steps > _BLOCK
            outputs, *rest = checkpoint(run, part, *state, use_reentrant=False) if recorded else run(part, *state)
            found.append(outputs)
            state = tuple(rest)
        return torch.cat(found, 1), state

    def extra_repr(self) -> str:
        """Sizes, order and memory."""
        return f"{self.input_size}, {self.hidden_size}, d={shown_order(self.order)}, memory={self.memory!r}"


def _wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype of cells and weights: single precision for half-precision sequences."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def _weights_shapes(tensors: list[Tensor], d: Any, ceiling: int | None, channels: int | None) -> list[Tensor]:
    like, steps = tensors[0], tensors[0].shape[1]
    return [like.new_empty(steps if channels is None else (channels, steps), dtype=_wide(like.dtype))]


@opaque(_weights_shapes)
def _weights(tensors: list[Tensor], d: Any, ceiling: int | None, channels: int | None) -> tuple[Tensor]:
    """``w_0, w_1, ...`` for all steps of a sequence, the first of ``tensors``; one row per order for several."""
    like, *order = tensors
    alpha = joined_order(order, d)

    def row(one: Any) -> Tensor:
        if isinstance(one, Tensor) and one.device != like.device:
            one = one.to(like.device)
        read = read_order(one, ceiling=ceiling if isinstance(one, Tensor) else None, name="d")
        (weights,) = weights_of("memory", _make_weights, read, like.shape[1], few=True)
        found = torch.as_tensor(weights.copy() if read.plain else weights, device=like.device)
        return found.to(_wide(like.dtype))

    return (row(alpha) if channels is None else torch.stack([row(alpha[i]) for i in range(channels)]),)


def _exponentials_shapes(tensors: list[Tensor], d: Any) -> list[Tensor]:
    like = tensors[0]
    count = tensors[1].numel() if d is None else len(d) if isinstance(d, tuple) else 1
    sizes = (count,), (len(decays()), 1, 1), (len(decays()), 1, count)
    return [like.new_empty(size, dtype=_wide(like.dtype)) for size in sizes]


@opaque(_exponentials_shapes)
def _exponentials(tensors: list[Tensor], d: Any) -> tuple[Tensor, Tensor, Tensor]:
    """The weight of lag 1, decays of shape (95, 1, 1), and weights of shape (95, 1, 1) or (95, 1, orders)."""
    like, *order = tensors
    kind = _wide(like.dtype)
    with torch.autocast(like.device.type, enabled=False):
        orders = torch.as_tensor(joined_order(order, d), dtype=torch.float64, device=like.device).reshape(-1)
        if not orders.requires_grad and bool(((orders < 0.0) | (orders > 1.0)).any()):
            raise InvalidInputError(f"d={orders.tolist()}: exponentials are for orders from 0 to 1; use memory='full'")
        decay, scale, bent = (torch.as_tensor(each, device=like.device) for each in (decays(), *weight_factors()))
        weights = torch.sin(math.pi * orders) * scale[:, None] * torch.exp(orders * bent[:, None])
    return orders.to(kind), decay.to(kind)[:, None, None], weights.to(kind)[:, None, :]


@opaque(lambda tensors, count: [tensors[1].new_empty(*tensors[1].shape[:-1], count, dtype=tensors[0].dtype)])
def _history(tensors: list[Tensor], count: int) -> tuple[Tensor]:
    """The contribution of all earlier cells to the next ``count`` ones."""
    weights, cells = tensors
    before = cells.shape[-1]
    with torch.autocast(cells.device.type, enabled=False):
        padded = nn.functional.pad(cells.to(weights.dtype), (0, count))
        found: Tensor = causal_convolution(weights[..., : before + count], padded)[..., before:]
    return (found,)

r"""Long memory: fractional filters, and recurrent cells whose memory decays like a power of time.

With :math:`w_k(d) = (-1)^k \binom{d}{k}`, which decays like :math:`k^{-d-1}`; the recurrent layers do not truncate it.

References
----------
J. Zhao, F. Huang, J. Lv, Y. Duan, Z. Qin, G. Li, G. Tian, "Do RNN and LSTM have long memory?", ICML 2020.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Unpack, final

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence
from torch.utils.checkpoint import checkpoint

from hpfracc._choices import names_options_of
from hpfracc._xp import array_namespace, namespace
from hpfracc.engine.execution.api import causal_convolution
from hpfracc.errors import ShapeError
from hpfracc.ml import recurrence
from hpfracc.ml.config import OrderLike
from hpfracc.ml.recurrence import Stack, StackOptions
from hpfracc.ml.torch.layers import FractionalDerivative
from hpfracc.ml.torch.opaque import opaque
from hpfracc.ml.torch.order import LearnableOrder, as_order, check_tensor, joined_order, shown_order, split_order
from hpfracc.solvers.tensors.loops import run_plainly

__all__ = ["FractionalFilter", "FractionalLSTM", "FractionalRNN"]


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


class _Lengths:
    """Sequences of several lengths, padded at their end: those of a ``PackedSequence``."""

    def __init__(self, lengths: Tensor, steps: int, device: torch.device) -> None:
        self.lengths, self.steps = lengths.to(device)[:, None], steps
        self.places = torch.arange(steps, device=device)
        #: Which entries are not padding, shape (batch, time, 1).
        self.inside = (self.places < self.lengths)[..., None]

    def turned(self, x: Tensor) -> Tensor:
        """Each sequence backwards, the padding left at the end."""
        back = torch.where(self.inside[..., 0], self.lengths - 1 - self.places, self.places)
        return x.take_along_dim(back[..., None], 1)

    def last(self, x: Tensor) -> Tensor:
        """The last entry of each sequence, shape (batch, features)."""
        return x.take_along_dim(self.lengths[..., None] - 1, 1)[:, 0]

    def shifted(self, x: Tensor) -> Tensor:
        """Sequences with earlier entries in front, and zeros instead of the padding in front of those."""
        count = x.shape[1]
        places = torch.arange(count, device=x.device) - self.steps + self.lengths
        return x.take_along_dim(places.remainder(count)[..., None], 1)


class _Recurrent(nn.Module):
    """Cells in layers and directions: the first is the module itself, the others are its ``more``."""

    xp = namespace("torch")
    _names: tuple[str, ...]

    def __init__(self, input_size: int, hidden_size: int, inputs: int, gates: int, stack: Stack) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.stack = input_size, hidden_size, stack
        self.input = nn.Linear(inputs, gates)
        self.recurrent = nn.Linear(hidden_size, gates, bias=False)
        bound = 1.0 / math.sqrt(hidden_size)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def forward(self, x: Any, state: Any = None) -> tuple[Any, tuple[Any, ...]]:
        """Outputs, of shape (batch, time, directions * hidden), and the final state.

        Parameters
        ----------
        x : Tensor or PackedSequence
            Of shape (batch, time, features), or (time, batch, features) with ``batch_first=False``, or (time, features)
            without a batch.
        state : tuple, optional
            The final state of the call that processed the sequences up to here.
        """
        packed, lengths = x, None
        if isinstance(packed, PackedSequence):
            x, sizes = pad_packed_sequence(packed, batch_first=True)
            lengths = _Lengths(sizes, x.shape[1], x.device)
        check_tensor(x)

        def dropped(x: Tensor, layer: int) -> Tensor:
            return nn.functional.dropout(x, self.stack.dropout, self.training)

        found, final = self.stack.run([self, *self.more], x, state, self._names, dropped, lengths)
        if lengths is None:
            return found, final
        order = slice(None) if packed.sorted_indices is None else packed.sorted_indices
        data = pack_padded_sequence(found[order], sizes[order if isinstance(order, slice) else order.cpu()], True).data
        return PackedSequence(data, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices), final


@final
class FractionalRNN(_Recurrent):
    r"""A recurrent layer whose inputs include a fractional filter of its input.

    .. math:: h_t = \tanh(W x_t + V F_t + U h_{t-1} + b), \quad F_t = \sum_{k=0}^{t} w_k(d)\, x_{t-k}.

    Order 0 is :class:`torch.nn.RNN` with the input weights W + V.

    Parameters
    ----------
    input_size, hidden_size : int
        Number of features of the input and of the state.
    d : float, sequence of float, Tensor, Parameter or LearnableOrder
        The order, a single one or one per feature; ``LearnableOrder(0.25, bounds=(0, 0.5))`` by default, for each layer
        and direction. One that is given is the order of all of them.
    **options
        ``num_layers``, ``batch_first`` (True by default), ``dropout`` and ``bidirectional``, as for
        :class:`torch.nn.RNN`.

    Notes
    -----
    Sequences are tensors, with or without a batch, or a ``PackedSequence``. The final state is ``(h, inputs)``: h of
    shape (layers * directions, batch, hidden), and for each layer all its inputs so far, of shape (batch, time,
    features), because the filter does not forget. It is the ``state`` of a call that continues the sequences, except
    with two directions.

    Examples
    --------
    >>> import torch
    >>> from hpfracc.ml import FractionalRNN
    >>> layer, x = FractionalRNN(3, 5, num_layers=2), torch.randn(2, 20, 3)
    >>> outputs, (last, inputs) = layer(x)
    >>> outputs.shape, last.shape
    (torch.Size([2, 20, 5]), torch.Size([2, 2, 5]))
    >>> first, state = layer(x[:, :12])
    >>> bool(torch.allclose(layer(x[:, 12:], state)[0], outputs[:, 12:], atol=1e-5))
    True
    """

    _names = ("h", "inputs")

    @names_options_of(Stack.read)
    def __init__(self, input_size: int, hidden_size: int, d: OrderLike = None, **options: Unpack[StackOptions]) -> None:
        stack, order = Stack.read(**options), None if d is None else as_order(d)
        channels = None if order is None else order.channels
        widths = stack.widths(input_size, hidden_size)
        recurrence.read_cells(input_size, hidden_size, channels, widths, "features")
        super().__init__(input_size, hidden_size, 2 * input_size, hidden_size, stack)
        self.filter = FractionalFilter(order)
        self.more = nn.ModuleList([FractionalRNN(width, hidden_size, order) for width in widths[1:]])

    def run(self, x: Tensor, state: Any, lengths: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
        """One layer in one direction."""
        return recurrence.run_filtered(self, x, state, lengths)

    def extra_repr(self) -> str:
        """Sizes and options."""
        return f"{self.input_size}, {self.hidden_size}{self.stack.shown()}"


@final
class FractionalLSTM(_Recurrent):
    r"""An LSTM whose cell has power-law memory instead of a forget gate.

    .. math:: c_t = -\sum_{k=1}^{t} w_k(d)\, c_{t-k} + i_t \tilde c_t, \qquad h_t = o_t \tanh c_t,

    with the input gate, output gate and candidate of an LSTM. Order 0 forgets immediately, order 1 is an LSTM whose
    forget gate is 1; between 0 and 1/2 the memory is long and stationary.

    Parameters
    ----------
    input_size, hidden_size : int
        Number of features of the input and of the state.
    d : float, sequence of float, Tensor, Parameter or LearnableOrder
        The order, a single one or one per cell; ``LearnableOrder(0.25, bounds=(0, 0.5))`` by default, for each layer
        and direction. One that is given is the order of all of them.
    memory : {"full", "exponentials"}
        ``"full"`` keeps all cells: lags beyond a block are summed by the engine, without truncation. ``"exponentials"``
        keeps 95 numbers per cell for any length of the sequence, for orders from 0 to 1: it represents the weights of a
        million lags to a relative 5e-9, and a call can start from the final state of another.
    **options
        ``num_layers``, ``batch_first`` (True by default), ``dropout`` and ``bidirectional``, as for
        :class:`torch.nn.LSTM`.

    Notes
    -----
    Sequences are tensors, with or without a batch, or a ``PackedSequence``. The final state is ``(h, c)``, both of
    shape (layers * directions, batch, hidden). With ``memory="exponentials"`` the memory comes third, of shape
    (layers, 95, batch, hidden); the three together are the ``state`` of a call that continues the sequences, except
    with two directions.

    Examples
    --------
    >>> import torch
    >>> from hpfracc.ml import FractionalLSTM
    >>> outputs, (h, c) = FractionalLSTM(3, 5, bidirectional=True)(torch.randn(2, 40, 3))
    >>> outputs.shape, c.shape
    (torch.Size([2, 40, 10]), torch.Size([2, 2, 5]))
    """

    @names_options_of(Stack.read)
    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        d: OrderLike = None,
        *,
        memory: str = "full",
        **options: Unpack[StackOptions],
    ) -> None:
        stack = Stack.read(**options)
        order = LearnableOrder(0.25, bounds=(0.0, 0.5)) if d is None else as_order(d)
        recurrence.read_cells(input_size, hidden_size, order.channels, [hidden_size], "cells", memory)
        super().__init__(input_size, hidden_size, input_size, 3 * hidden_size, stack)
        self.memory, self.order = memory, order
        self._names = ("h", "c") if memory == "full" else ("h", "c", "memory")
        self.more = nn.ModuleList([
            FractionalLSTM(width, hidden_size, d if d is None else order, memory=memory)
            for width in stack.widths(input_size, hidden_size)[1:]
        ])  # fmt: skip

    def run(self, x: Tensor, state: Any, lengths: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
        """One layer in one direction."""
        driven, steps = self.input(x), x.shape[1]
        order, d = split_order(self.order)
        if self.memory == "exponentials":
            recorded = torch.is_grad_enabled() and steps > recurrence.BLOCK
            record = partial(checkpoint, use_reentrant=False) if recorded else run_plainly
            return recurrence.run_remembered(self, driven, state, lengths, _exponentials([driven, *order], d), record)
        weights = -_weights([driven, *order], d, self.order.ceiling, self.order.channels)[0]
        h = driven.new_zeros(x.shape[0], self.hidden_size)
        outputs: list[Tensor] = []
        cells = h.new_zeros(*h.shape, 0, dtype=weights.dtype)
        for begin in range(0, steps, recurrence.BLOCK):
            count = min(recurrence.BLOCK, steps - begin)
            history = _history([weights, cells], count)[0].unbind(-1) if begin else [torch.zeros_like(h)] * count
            block: list[Tensor] = []
            for j in range(count):
                past = history[j].to(weights.dtype)
                if block:
                    past = past + (torch.stack(block, -1) * weights[..., 1 : j + 1].flip(-1)).sum(-1)
                h, c = recurrence.lstm_step(self.xp, driven[:, begin + j] + self.recurrent(h), past)
                block.append(c)
                outputs.append(h)
            cells = torch.cat([cells, torch.stack(block, -1)], -1)
        found = torch.stack(outputs, 1)
        if lengths is None:
            return found, (h, cells[..., -1])
        return found, (lengths.last(found), lengths.last(cells.movedim(-1, 1)))

    def extra_repr(self) -> str:
        """Sizes, order, memory and options."""
        order = f"d={shown_order(self.order)}, memory={self.memory!r}"
        return f"{self.input_size}, {self.hidden_size}, {order}{self.stack.shown()}"


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
        learned = isinstance(one, Tensor)
        found = recurrence.memory_weights(
            one.to(like.device) if learned else one, ceiling if learned else None, like.shape[1]
        )
        return torch.as_tensor(found if learned else found.copy(), device=like.device).to(_wide(like.dtype))

    return (row(alpha) if channels is None else torch.stack([row(alpha[i]) for i in range(channels)]),)


def _exponentials_shapes(tensors: list[Tensor], d: Any) -> list[Tensor]:
    like = tensors[0]
    count = tensors[1].numel() if d is None else len(d) if isinstance(d, tuple) else 1
    sizes = (count,), (len(recurrence.decays()), 1, 1), (len(recurrence.decays()), 1, count)
    return [like.new_empty(size, dtype=_wide(like.dtype)) for size in sizes]


@opaque(_exponentials_shapes)
def _exponentials(tensors: list[Tensor], d: Any) -> tuple[Tensor, Tensor, Tensor]:
    """The weight of lag 1, decays of shape (95, 1, 1), and weights of shape (95, 1, 1) or (95, 1, orders)."""
    like, *order = tensors
    kind = _wide(like.dtype)
    with torch.autocast(like.device.type, enabled=False):
        orders = torch.as_tensor(joined_order(order, d), dtype=torch.float64, device=like.device).reshape(-1)
        if not orders.requires_grad:
            recurrence.check_range(orders)
        xp = array_namespace(orders)
        decay, weights = xp.array(recurrence.decays()), recurrence.exponential_weights(xp, orders[:, None]).mT
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

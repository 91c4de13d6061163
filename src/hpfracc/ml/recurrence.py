r"""Recurrent layers with fractional memory, for PyTorch and JAX: their arguments, states, layers and steps.

A layer consists of cells, one for each layer and direction. A cell has ``input`` and ``recurrent``, its two linear
maps, and ``xp``, the namespace of its library. Inside, sequences have the shape (batch, time, features).

The weights of the memory can be a sum of exponentials. For lags from 2 on,

.. math:: -w_k(d) = (-1)^{k+1} \binom{d}{k} = \frac{\sin \pi d}{\pi} \int_0^\infty e^{-s(k-d)} (1 - e^{-s})^d\,ds,
    \qquad -1 < d < 2,

which is Euler's integral of :math:`\Gamma(k-d)/\Gamma(k+1)`. The rule of :mod:`hpfracc.history.exponentials` takes
about 60 exponentials for a million lags to 8 digits.
Their decays do not depend on the order, and their weights are smooth in it.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypedDict

import numpy as np

from hpfracc import _reading
from hpfracc._xp import Namespace
from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.history.exponentials import Nodes, exponential_nodes
from hpfracc.operators.core.order import read_order
from hpfracc.operators.core.sequences import binomials
from hpfracc.operators.core.values import weights_of
from hpfracc.solvers.tensors.loops import Loop, scan, walk

__all__ = [
    "BLOCK", "LONGEST", "Stack", "StackOptions", "check_range", "decays", "exponential_weights", "lstm_step",
    "memory_weights", "read_cells", "run_filtered", "run_remembered", "weight_factors",
]  # fmt: skip

Array = np.ndarray[Any, Any]

#: Steps that are summed one by one, or that the backward pass recomputes together.
BLOCK = 32
#: Largest number of lags that the sum approximates.
LONGEST = 1 << 20
#: Relative error of the sum.
_RTOL = 1e-8


class StackOptions(TypedDict, total=False):
    """The options of several layers and directions, for type checkers."""

    num_layers: int
    batch_first: bool
    dropout: float
    bidirectional: bool


class Stack(NamedTuple):
    """Layers and directions of a recurrent layer.

    Attributes
    ----------
    num_layers, directions : int
        Number of layers, and 1 or 2 directions.
    batch_first : bool
        Whether the batch is the first axis of sequences, not the second.
    dropout : float
        Probability that an input of a layer after the first is set to 0.
    """

    num_layers: int = 1
    directions: int = 1
    batch_first: bool = True
    dropout: float = 0.0

    @classmethod
    def read(
        cls, *, num_layers: Any = 1, batch_first: Any = True, dropout: Any = 0.0, bidirectional: Any = False
    ) -> Stack:
        """Check the options, which have the names and meanings of ``torch.nn.RNN``."""
        count = _reading.whole("num_layers", num_layers, least=1)
        share = _reading.number("dropout", dropout, least=0, most=1)
        if share and count == 1:
            raise InvalidInputError(
                f"dropout={share:g} acts between layers; give num_layers=2 or more, or leave it out"
            )
        directions = 2 if _reading.flag("bidirectional", bidirectional) else 1
        return cls(count, directions, _reading.flag("batch_first", batch_first), share)

    def widths(self, input_size: int, hidden_size: int) -> list[int]:
        """Number of features that each cell gets: layer by layer, the backward direction after the forward one."""
        hidden_size = _reading.count("hidden_size", hidden_size)
        later = [self.directions * hidden_size] * (self.directions * (self.num_layers - 1))
        return [input_size] * self.directions + later

    def shown(self) -> str:
        """The options that differ from their defaults, as printed."""
        pairs = self._asdict().items()
        return "".join(f", {name}={value!r}" for name, value in pairs if value != self._field_defaults[name])

    def run(
        self, cells: Sequence[Any], x: Any, state: Any, names: tuple[str, ...], dropped: Callable[[Any, int], Any],
        lengths: Any = None,
    ) -> tuple[Any, tuple[Any, ...]]:  # fmt: skip
        """Outputs and final state of all cells.

        Parameters
        ----------
        cells : sequence
            ``cell.run(x, state, lengths)`` returns the outputs and the state of one cell.
        x : array
            Of shape (batch, time, features) or (time, batch, features), or without the batch.
        state : tuple or None
            One entry for each name.
        names : tuple of str
            What a state consists of.
        dropped : callable
            ``dropped(x, layer)`` applies dropout.
        lengths : optional
            Lengths of the sequences, with ``turned`` to reverse them; then ``x`` has its batch first.
        """
        features = cells[0].input_size
        if x.ndim not in (2, 3) or x.shape[-1] != features or not all(x.shape):
            order = "batch, time" if self.batch_first else "time, batch"
            raise ShapeError(
                f"sequences of shape {tuple(x.shape)}; give ({order}, {features}), or (time, {features}) without batch"
            )
        xp, single = cells[0].xp, x.ndim == 2
        swapped = not (single or self.batch_first) and lengths is None
        x = x[None] if single else xp.moveaxis(x, 0, 1) if swapped else x
        states = self._split(state, names, len(cells), x, single, cells[0].hidden_size)
        turned = functools.partial(_turned, xp) if lengths is None else lengths.turned
        finals: list[Any] = []
        for layer in range(self.num_layers):
            found = []
            for back in range(self.directions):
                place = layer * self.directions + back
                outputs, final = cells[place].run(turned(x) if back else x, states[place], lengths)
                found.append(turned(outputs) if back else outputs)
                finals.append(final)
            x = found[0] if len(found) == 1 else xp.concatenate(found, -1)
            if self.dropout and layer + 1 < self.num_layers:
                x = dropped(x, layer)
        parts = [[_without_batch(name, each) if single else each for each in group]
                 for name, group in zip(names, zip(*finals, strict=True), strict=True)]  # fmt: skip
        joined = (tuple(part) if name == "inputs" else xp.stack(part) for name, part in zip(names, parts, strict=True))
        return x[0] if single else xp.moveaxis(x, 0, 1) if swapped else x, tuple(joined)

    def _split(self, state: Any, names: Any, count: int, x: Any, single: bool, hidden: int) -> list[Any]:
        """The state of each cell."""
        if state is None:
            return [None] * count
        if names[-1] == "c":
            raise InvalidInputError("a state without all earlier cells; use memory='exponentials' to continue")
        if self.directions == 2:
            raise InvalidInputError(
                "a state with bidirectional=True: the backward direction begins at the end of the sequence, so parts "
                "cannot be continued; give the whole sequence"
            )
        if not isinstance(state, tuple | list) or len(state) != len(names):
            lacking = "without the earlier inputs, which the filter needs; " if "inputs" in names else ""
            raise InvalidInputError(
                f"state={type(state).__name__} {lacking}give the whole state that the call before returned, "
                f"({', '.join(names)})"
            )
        if any(len(each) != count for each in state):
            raise ShapeError(f"a state of {[len(each) for each in state]} layers; give that of all {count} layers")
        cells = []
        for place in range(count):
            parts = [_with_batch(name, each[place]) if single else each[place]
                     for name, each in zip(names, state, strict=True)]  # fmt: skip
            if tuple(parts[0].shape) != (x.shape[0], hidden):
                raise ShapeError(
                    f"a state h of shape {tuple(state[0].shape)}; give that of the same sequences: "
                    f"{(count, hidden) if single else (count, x.shape[0], hidden)}"
                )
            cells.append(tuple(parts))
        return cells


def _with_batch(name: str, part: Any) -> Any:
    return part[:, None] if name == "memory" else part[None]


def _without_batch(name: str, part: Any) -> Any:
    return part[:, 0] if name == "memory" else part[0]


def _turned(xp: Namespace, x: Any) -> Any:
    """The sequences backwards."""
    return xp.moveaxis(xp.flip(xp.moveaxis(x, 1, -1)), -1, 1)


def read_cells(
    input_size: Any, hidden_size: Any, channels: int | None, widths: Sequence[int], what: str, memory: str = "full"
) -> None:
    """Check sizes and memory, and that several orders are as many as the features, or cells, of each layer."""
    _reading.choice("memory", memory, ("full", "exponentials"))
    for name, size in (("input_size", input_size), ("hidden_size", hidden_size)):
        _reading.count(name, size)
    _reading.require_room(f"input_size={input_size:,} and hidden_size={hidden_size:,}", input_size * hidden_size, 4)
    for width in widths:
        if channels not in (None, width):
            raise ShapeError(f"{channels} orders for {width} {what}; give one, or one for each, in all layers")


def run_filtered(cell: Any, x: Any, state: Any, lengths: Any) -> tuple[Any, tuple[Any, Any]]:
    """A cell whose inputs include a filter of them; its state is the last output and all inputs so far."""
    xp = cell.xp
    x = x if lengths is None else xp.where(lengths.inside, x, 0.0)
    past = x
    if state is not None:
        before = state[1]
        if before.ndim != 3 or before.shape[0] != x.shape[0] or before.shape[2] != x.shape[2]:
            raise ShapeError(
                f"earlier inputs of shape {tuple(before.shape)} before those of shape {tuple(x.shape)}; give the state "
                "of the same sequences"
            )
        past = xp.concatenate([before, x], 1)
    driven = cell.input(xp.concatenate([x, cell.filter(past)[:, -x.shape[1] :]], -1))
    h = xp.zeros((x.shape[0], cell.hidden_size), driven.dtype, driven) if state is None else state[0]
    tanh = xp.module.tanh
    _, kept = scan(
        xp, lambda carry, row: (tanh(row[0] + cell.recurrent(carry[0])),), (h,), (xp.moveaxis(driven, 1, 0),), keep=True
    )
    outputs = xp.moveaxis(kept[1:], 0, 1)
    if lengths is not None:
        return outputs, (lengths.last(outputs), lengths.shifted(past))
    return outputs, (outputs[:, -1], past)


def lstm_step(xp: Namespace, gates: Any, past: Any) -> tuple[Any, Any]:
    """Output and cell from the sums of the gates (..., 3 hidden), and what the memory contributes to the cell."""
    sigmoid = xp.module.sigmoid if xp.library == "torch" else sys.modules["jax"].nn.sigmoid
    tanh, size = xp.module.tanh, gates.shape[-1] // 3
    entered = sigmoid(gates[..., :size]) * tanh(gates[..., 2 * size :])
    c = xp.astype(entered, past.dtype) + past
    return sigmoid(gates[..., size : 2 * size]) * xp.astype(tanh(c), gates.dtype), c


def run_remembered(
    cell: Any, driven: Any, state: Any, lengths: Any, memory: Sequence[Any], record: Callable[..., Any]
) -> tuple[Any, tuple[Any, ...]]:
    """A cell whose memory is a sum of exponentials; its state is the last output and cell, and the exponentials.

    ``driven`` are the sums of the inputs of the gates, ``memory`` the weight of lag 1, the decays and the weights, and
    ``record`` runs a block of steps.
    """
    xp, (batch, steps) = cell.xp, driven.shape[:2]
    if steps > LONGEST:
        raise InvalidInputError(f"{steps:,} steps; exponentials cover {LONGEST:,} lags: use memory='full'")
    first, decay, weights = memory
    if state is None:
        empty = xp.zeros((decay.shape[0], batch, cell.hidden_size), first.dtype, driven)
        state = xp.astype(empty[0], driven.dtype), empty[0], empty

    def step(carry: Any, row: Any) -> Any:
        h, before, past = carry
        # Lag 1 separately, the others from the exponentials.
        h, c = lstm_step(xp, row[0] + cell.recurrent(h), first * before + (weights * past).sum(0))
        moved = h, c, decay * past + before
        if row[1] is not None:
            moved = tuple(xp.where(row[1], new, old) for new, old in zip(moved, carry, strict=True))
        return moved, moved[0]

    rows = xp.moveaxis(driven, 1, 0), None if lengths is None else xp.moveaxis(lengths.inside, 1, 0)
    state, outputs = walk(xp, step, tuple(state), rows, Loop(record), BLOCK)
    return xp.moveaxis(outputs, 0, 1), state


def _binomials(xp: Namespace, d: Any, n: Any) -> tuple[Any]:
    return (binomials(xp, d, n),)


def memory_weights(order: Any, ceiling: int | None, n: int) -> Any:
    """``w_0 .. w_{n-1}`` for one order, in double precision; an array of NumPy for a plain one."""
    return weights_of("memory", _binomials, read_order(order, ceiling=ceiling, name="d"), n, few=True)[0]


def check_range(orders: Any) -> None:
    """Refuse orders, whose values are known, outside the range of the exponentials."""
    if bool(((orders < 0.0) | (orders > 1.0)).any()):
        raise InvalidInputError(f"d={orders.tolist()}: exponentials are for orders from 0 to 1; use memory='full'")


@functools.cache
def _nodes() -> Nodes:
    # The weights are Laplace transforms of densities like s^d, so that they fall like k^-(1 + d).
    return exponential_nodes(1.0, 2.0, 1.0, float(LONGEST), _RTOL)


def decays() -> Array:
    """The factor by which each exponential decays in a step, shape (count,)."""
    return np.exp(-_nodes().rates[1:])


def weight_factors() -> tuple[Array, Array]:
    """``a`` and ``b`` of shape (count,): ``-w_k(d)`` is the sum of ``sin(pi d) a exp(d b) decays()**(k - 2)``.

    For 2 <= k <= 2**20 and an order d in [0, 1].
    """
    rates = _nodes().rates[1:]
    return _nodes().masses / math.pi * rates * np.exp(-2.0 * rates), rates + np.log(-np.expm1(-rates))


def exponential_weights(xp: Namespace, d: Any) -> Any:
    """The weights of the exponentials for an order, of shape (count,), in double precision."""
    scale, bent = map(xp.array, weight_factors())
    return xp.sin(math.pi * d) * scale * xp.exp(d * bent)

"""Recurrent layers with several layers, both directions, packed and unbatched input, as ``torch.nn``'s have them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hpfracc import ml
from hpfracc.errors import InvalidInputError, ShapeError
from tests.helpers.thinned import thinned

torch = pytest.importorskip("torch")
rnn = torch.nn.utils.rnn

F64 = torch.float64
LENGTHS = [7, 40, 12]


def pair(kind: str, **options: Any) -> tuple[Any, Any]:
    """A layer at an order where ``torch.nn`` has it too, and that one, with the same parameters.

    ``FractionalRNN`` at order 0 has the input weights W + V; ``FractionalLSTM`` at order 1 the forget gate 1.
    """
    torch.manual_seed(0)
    if kind == "rnn":
        ours, theirs = ml.FractionalRNN(2, 3, 0.0, **options), torch.nn.RNN(2, 3, **options)
    else:
        ours, theirs = ml.FractionalLSTM(2, 3, 1.0, memory=kind, **options), torch.nn.LSTM(2, 3, **options)
    ours, theirs = ours.double(), theirs.double()
    directions = ["", "_reverse"] if options.get("bidirectional") else [""]
    suffixes = [f"_l{layer}{way}" for layer in range(options.get("num_layers", 1)) for way in directions]
    with torch.no_grad():
        for cell, suffix in zip([ours, *ours.more], suffixes, strict=True):
            by_input, bias, by_state = cell.input.weight, cell.input.bias, cell.recurrent.weight
            if kind == "rnn":
                by_input = by_input[:, : cell.input_size] + by_input[:, cell.input_size :]
            else:  # in, forget, candidate, out; a forget gate of sigmoid(50) is 1

                def ordered(values: Any, forget: float) -> Any:
                    enter, leave, candidate = values.chunk(3)
                    return torch.cat([enter, torch.full_like(enter, forget), candidate, leave])

                by_input, by_state, bias = ordered(by_input, 0.0), ordered(by_state, 0.0), ordered(bias, 50.0)
            for name, value in (("weight_ih", by_input), ("weight_hh", by_state), ("bias_ih", bias)):
                getattr(theirs, name + suffix).copy_(value)
            getattr(theirs, "bias_hh" + suffix).zero_()
    return ours, theirs


def packed() -> Any:
    sequences = torch.randn(3, 40, 2, dtype=F64, generator=torch.Generator().manual_seed(1))
    return rnn.pack_sequence([x[:n] for x, n in zip(sequences, LENGTHS, strict=True)], enforce_sorted=False)


@pytest.mark.parametrize(("kind", "tolerance"), [("rnn", 1e-12), ("full", 1e-11), ("exponentials", 1e-6)])
def test_layers_and_directions_are_those_of_torch(kind: str, tolerance: float):
    """Shapes and values of outputs and states: batches, single sequences, the time first, and packed sequences."""
    inputs = {
        "batch": ({"batch_first": True}, torch.randn(3, 9, 2, dtype=F64)),
        "single": ({"batch_first": True}, torch.randn(9, 2, dtype=F64)),
        "time first": ({"batch_first": False}, torch.randn(9, 3, 2, dtype=F64)),
        "packed": ({"batch_first": True}, packed()),
    }
    for name, (options, x) in inputs.items():
        for bidirectional in (False, True):
            ours, theirs = pair(kind, num_layers=2, bidirectional=bidirectional, **options)
            (found, state), (right, last) = ours(x), theirs(x)
            if name == "packed":
                assert torch.equal(found.batch_sizes, right.batch_sizes)
                assert torch.equal(found.sorted_indices, right.sorted_indices)
                found, right = found.data, right.data
            torch.testing.assert_close(found, right, rtol=0, atol=tolerance)
            for one, other in zip(state, [last] if kind == "rnn" else last, strict=False):
                torch.testing.assert_close(one, other, rtol=0, atol=tolerance)


@pytest.mark.parametrize("kind", ["rnn", "exponentials"])
@pytest.mark.parametrize("how", ["batch", "single", "packed"])
def test_states_of_all_layers_carry_over(kind: str, how: str):
    """Halves equal the whole at an order that remembers, whatever the lengths of the sequences are."""
    torch.manual_seed(2)
    made = {"rnn": lambda: ml.FractionalRNN(2, 3, 0.3, num_layers=2)}
    made["exponentials"] = lambda: ml.FractionalLSTM(2, 3, 0.3, memory="exponentials", num_layers=2)
    layer, x = made[kind]().double(), torch.randn(3, 40, 2, dtype=F64)
    if how == "packed":
        parts = [[each[:k] for each, k in zip(x, (4, 9, 1), strict=True)]]
        parts += [[each[k:n] for each, k, n in zip(x, (4, 9, 1), LENGTHS, strict=True)]]
        first, state = layer(rnn.pack_sequence(parts[0], enforce_sorted=False))
        second, _ = layer(rnn.pack_sequence(parts[1], enforce_sorted=False), state)
        halves = [torch.cat(each) for each in zip(rnn.unpack_sequence(first), rnn.unpack_sequence(second), strict=True)]
        right = [layer(each[None, :n])[0][0] for each, n in zip(x, LENGTHS, strict=True)]
    else:
        x = x if how == "batch" else x[0]
        first, state = layer(x[..., :13, :])
        halves, right = [torch.cat([first, layer(x[..., 13:, :], state)[0]], -2)], [layer(x)[0]]
    torch.testing.assert_close(halves, right, rtol=0, atol=1e-13)


def test_states_that_cannot_be_continued_are_refused():
    x = torch.randn(2, 5, 2)
    for layer in (ml.FractionalRNN(2, 3, bidirectional=True), ml.FractionalLSTM(2, 3, memory="full")):
        with pytest.raises(InvalidInputError, match="a state with"):
            layer(x, layer(x)[1])
    layer = ml.FractionalLSTM(2, 3, memory="exponentials", num_layers=2)
    h, c, memory = layer(x)[1]
    with pytest.raises(InvalidInputError, match=r"\(h, c, memory\)"):
        layer(x, (h, c))
    with pytest.raises(ShapeError, match="all 2 layers"):
        layer(x, (h[:1], c[:1], memory[:1]))
    with pytest.raises(ShapeError, match="same sequences"):
        layer(x[:1], (h, c, memory))


def test_dropout_acts_between_layers_while_training():
    torch.manual_seed(3)
    x = torch.randn(2, 6, 2)
    layer = ml.FractionalRNN(2, 3, num_layers=2, dropout=0.5)
    assert "num_layers=2, dropout=0.5" in repr(layer)
    assert not torch.equal(layer(x)[0], layer(x)[0])
    torch.testing.assert_close(layer.eval()(x)[0], layer(x)[0])
    assert len(list(layer.parameters())) == 8  # each layer its own order


@pytest.mark.parametrize("kind", ["FractionalRNN", "FractionalLSTM", "exponentials"])
@thinned(lambda kind: kind == "exponentials")
def test_jax_has_the_same_layers_and_directions(kind: str):
    """Against PyTorch with the same parameters, in both directions, without a batch, and with a state."""
    jax = pytest.importorskip("jax")
    from hpfracc.ml import jax as layers

    name, memory = ("FractionalLSTM", {"memory": kind}) if kind == "exponentials" else (kind, {})
    x = torch.randn(5, 3, 2, dtype=F64)
    with jax.enable_x64(True):
        call = jax.jit(lambda layer, x, state: layer(x, state))
        for options in ({"bidirectional": True, "batch_first": False}, {"batch_first": False}):
            theirs = getattr(ml, name)(2, 3, 0.3, num_layers=2, **options, **memory).double()
            ours = getattr(layers, name)(2, 3, 0.3, num_layers=2, key=jax.random.key(0), **options, **memory)
            leaves = [
                jax.numpy.asarray(value.detach().numpy())
                for cell in [theirs, *theirs.more]
                for value in (cell.input.weight, cell.input.bias, cell.recurrent.weight)
            ]
            ours = jax.tree.unflatten(jax.tree.structure(ours), leaves)
            right, last = theirs(x)
            found, state = call(ours, x.numpy(), None)
            np.testing.assert_allclose(found, right.detach().numpy(), atol=1e-12)
            np.testing.assert_allclose(state[0], last[0].detach().numpy(), atol=1e-12)
        np.testing.assert_allclose(call(ours, x[:, 0].numpy(), None)[0], found[:, 0], atol=1e-12)
        if kind != "FractionalLSTM":
            first, state = call(ours, x[:2].numpy(), None)
            second, _ = call(ours, x[2:].numpy(), state)
            np.testing.assert_allclose(np.concatenate([first, second]), found, atol=1e-12)


def test_dropout_of_jax_needs_a_key():
    jax = pytest.importorskip("jax")
    from hpfracc.ml.jax import FractionalRNN

    key, x = jax.random.key(0), np.ones((1, 2, 2), np.float32)
    layer = FractionalRNN(2, 3, 0.3, num_layers=2, dropout=0.5, key=key)
    with pytest.raises(InvalidInputError, match="needs key="):
        layer(x)
    call = jax.jit(lambda key: layer(x, key=key)[0])
    calm = jax.jit(lambda: layer(x, inference=True)[0])()
    assert float(abs(call(key) - calm).max()) > 1e-3

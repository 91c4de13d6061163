"""Both limits of the order of every layer of PyTorch: the ordinary layer, difference or equation that it becomes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hpfracc import ml
from hpfracc.errors import InvalidInputError

torch = pytest.importorskip("torch")

F64 = torch.float64
PATH = torch.tensor([[1.0, -1, 0, 0], [-1, 2, -1, 0], [0, -1, 2, -1], [0, 0, -1, 1]], dtype=F64)
RING = torch.tensor([[1.0, -1, 0], [0, 1, -1], [-1, 0, 1]], dtype=F64)  # directed
POINTS = ml.graded_points(9, 1.0)
LOW = 1e-9  # where order 0 itself is outside the definition


def difference(x: Any, axis: int) -> Any:
    """Of neighbours, the first value as it is."""
    before = torch.zeros_like(x.narrow(axis, 0, 1))
    return x - torch.cat([before, x.narrow(axis, 0, x.shape[axis] - 1)], axis)


def recurrent(layer: Any, filtered: Any, x: Any) -> Any:
    """The states of ``FractionalRNN`` for a known filter of its input."""
    h, found = torch.zeros(x.shape[0], layer.hidden_size, dtype=F64), []
    for t in range(x.shape[1]):
        h = torch.tanh(layer.input(torch.cat([x[:, t], filtered[:, t]], -1)) + layer.recurrent(h))
        found.append(h)
    return torch.stack(found, 1)


def cells(layer: Any, x: Any, forget: float) -> Any:
    """An LSTM with this forget gate."""
    h, c, found = torch.zeros(x.shape[0], 2, dtype=F64), torch.zeros(x.shape[0], 2, dtype=F64), []
    for t in range(x.shape[1]):
        enter, leave, candidate = (layer.input(x[:, t]) + layer.recurrent(h)).chunk(3, -1)
        c = forget * c + torch.sigmoid(enter) * torch.tanh(candidate)
        h = torch.sigmoid(leave) * torch.tanh(c)
        found.append(h)
    return torch.stack(found, 1)


def polar(matrix: Any) -> Any:
    """The factor U V^T of the singular values that are not 0."""
    u, s, v = torch.linalg.svd(matrix)
    return u @ torch.diag((s > 1e-12).double()) @ v


def seconds(u: Any) -> Any:
    """Minus the second difference at steps of 0.3, zero outside."""
    padded = torch.nn.functional.pad(u, (1, 1))
    return (2.0 * u - padded[:-2] - padded[2:]) / 0.09


LSTM = {
    "full": lambda a: ml.FractionalLSTM(2, 2, a),
    "sum": lambda a: ml.FractionalLSTM(2, 2, a, memory="exponentials"),
}
#: By name: a layer from its order, the shape of its input, and for both limits the order and what the layer is there.
LIMITS: dict[
    str, tuple[Callable[[Any], Any], tuple[int, ...], list[tuple[float, Callable[[Any, Any], Any], float]]]
] = {
    "layer": (
        lambda a: ml.FractionalLayer(a, input_dim=3, output_dim=2, axis=-2),
        (2, 5, 3),
        [(0.0, lambda m, x: m.linear(x), 1e-12), (1.0, lambda m, x: m.linear(difference(x, -2)), 1e-12)],
    ),
    "derivative": (
        lambda a: ml.FractionalDerivative(a, step=0.5),
        (2, 6),
        [(0.0, lambda m, x: x, 1e-12), (1.0, lambda m, x: difference(x, -1) / 0.5, 1e-12)],
    ),
    "conv1d": (
        lambda a: ml.FractionalConv1d(2, 3, 3, a),
        (1, 2, 6),
        [(0.0, lambda m, x: m.conv(x), 1e-12), (1.0, lambda m, x: m.conv(difference(x, -1)), 1e-12)],
    ),
    "conv2d": (
        lambda a: ml.FractionalConv2d(1, 2, 2, a),
        (1, 1, 4, 4),
        [
            (0.0, lambda m, x: m.conv(x), 1e-12),
            (1.0, lambda m, x: m.conv(difference(difference(x, -1), -2)), 1e-12),
        ],
    ),
    "filter": (
        lambda a: ml.FractionalFilter(a),
        (2, 5, 2),
        [(0.0, lambda m, x: x, 1e-12), (1.0, lambda m, x: difference(x, -2), 1e-12)],
    ),
    "rnn": (
        lambda a: ml.FractionalRNN(2, 2, a),
        (2, 4, 2),
        [(0.0, lambda m, x: recurrent(m, x, x), 1e-12), (1.0, lambda m, x: recurrent(m, difference(x, -2), x), 1e-12)],
    ),
    "lstm": (
        LSTM["full"],
        (2, 40, 2),
        [(0.0, lambda m, x: cells(m, x, 0.0), 1e-12), (1.0, lambda m, x: cells(m, x, 1.0), 1e-11)],
    ),
    "lstm, exponentials": (
        LSTM["sum"],
        (2, 40, 2),
        [(0.0, lambda m, x: cells(m, x, 0.0), 1e-7), (1.0, lambda m, x: cells(m, x, 1.0), 1e-6)],
    ),
    "diffusion": (
        lambda a: ml.GraphDiffusion(PATH, a, 0.7),
        (4, 2),
        [
            (1e-7, lambda m, x: torch.linalg.solve(torch.eye(4, dtype=F64) + PATH, x), 1e-6),
            (1.0, lambda m, x: torch.matrix_exp(-0.7 * PATH) @ x, 1e-11),
        ],
    ),
    "power": (
        lambda a: ml.LaplacianPower(PATH, a),
        (4, 2),
        [(LOW, lambda m, x: x - x.mean(0), 1e-7), (1.0, lambda m, x: PATH @ x, 1e-12)],
    ),
    "directed power": (
        lambda a: ml.LaplacianPower(RING, a),
        (3, 2),
        [(LOW, lambda m, x: polar(RING) @ x, 1e-7), (1.0, lambda m, x: RING @ x, 1e-12)],
    ),
    "fourier": (
        lambda a: ml.FractionalFourier(a),
        (2, 8),
        [
            (0.0, lambda m, x: x.to(torch.complex128), 1e-12),
            (
                1.0,
                lambda m, x: torch.fft.fftshift(torch.fft.fft(torch.fft.ifftshift(x, -1), norm="ortho"), -1),
                1e-12,
            ),
        ],
    ),
    "laplacian": (
        lambda a: ml.LaplacianResidual(a, step=0.3),
        (7,),
        [(LOW, lambda m, x: x, 1e-7), (2.0, lambda m, x: seconds(x), 1e-10)],
    ),
}


@pytest.mark.parametrize("name", LIMITS)
def test_both_limits(name: str):
    """To rounding where the limit is attained; at order 1e-9 to its own size."""
    make, shape, limits = LIMITS[name]
    torch.manual_seed(5)
    x = torch.randn(shape, dtype=F64)
    for order, ordinary, tolerance in limits:
        layer = make(order).double()
        found = layer(x)
        found = found[0] if isinstance(found, tuple) else found
        torch.testing.assert_close(found, ordinary(layer, x), atol=tolerance, rtol=0.0, msg=f"order {order}")


@pytest.mark.parametrize("kind", ["samples", "points"])
def test_both_limits_of_caputo(kind: str):
    """f - f(0) below, which is no identity, and the slope of a straight line above."""
    t = torch.arange(6, dtype=F64) * 0.5 if kind == "samples" else POINTS

    def layer(order: float) -> Any:
        if kind == "samples":
            return ml.FractionalDerivative(order, definition="caputo", step=0.5)
        return ml.FractionalResidual(POINTS, order)

    values = 2.0 + torch.sin(t)
    torch.testing.assert_close(layer(LOW)(values)[1:], (values - values[0])[1:], atol=1e-7, rtol=0.0)
    torch.testing.assert_close(layer(1.0 - LOW)(1.0 + 3.0 * t)[1:], torch.full_like(t, 3.0)[1:], atol=1e-6, rtol=0.0)


@pytest.mark.parametrize("name", ["FractionalLayer", "FractionalDerivative", "FractionalLSTM"])
@pytest.mark.filterwarnings("ignore:`torch.jit.*is deprecated:DeprecationWarning", "ignore:Converting a tensor")
def test_tracing_for_torchscript_says_what_to_use(name: str):
    """``torch.jit.trace`` would freeze one algorithm."""
    torch = pytest.importorskip("torch")
    given = {"FractionalLayer": (), "FractionalDerivative": (0.5,), "FractionalLSTM": (16, 4)}[name]
    with pytest.raises(InvalidInputError, match=r"torch\.export\.export"):
        torch.jit.trace(getattr(ml, name)(*given), torch.ones(2, 3, 16))

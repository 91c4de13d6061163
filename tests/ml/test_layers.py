"""Layers of PyTorch: derivatives of every kind, both limits of the order, and an order that is not ignored."""

from __future__ import annotations

import copy
import inspect
import io
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.special import erfcx

import hpfracc as hf
from hpfracc import ml
from hpfracc._config import get_settings
from hpfracc.errors import (
    ConfigurationError,
    InvalidInputError,
    PinnedBackendError,
    ShapeError,
    SolveError,
    UnsupportedDtypeError,
)
from tests.helpers.thinned import thinned

torch = pytest.importorskip("torch")

from hpfracc.ml import NeuralFODE  # noqa: E402
from hpfracc.ml.config import INFINITE_AT_START  # noqa: E402
from hpfracc.ml.operator_layers import OPERATIONS  # noqa: E402
from hpfracc.ml.torch.optimizers import FractionalGradientFlow  # noqa: E402
from hpfracc.operators.core.registry import definitions  # noqa: E402

F64 = torch.float64
PATH = torch.tensor([[1.0, -1, 0, 0], [-1, 2, -1, 0], [0, -1, 2, -1], [0, 0, -1, 1]], dtype=F64)
RING = torch.tensor([[1.0, -1, 0], [0, 1, -1], [-1, 0, 1]], dtype=F64)  # directed


def learned(alpha: Any, *bounds: float) -> Any:
    return ml.LearnableOrder(alpha, bounds or (0.0, 1.0))


#: By name: how to make a layer from an order, and the shape of its input.
LAYERS: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "layer": (lambda a: ml.FractionalLayer(a, input_dim=3, output_dim=2, axis=-2), (2, 5, 3)),
    "derivative": (lambda a: ml.FractionalDerivative(a, step=0.5), (2, 6)),
    "caputo": (lambda a: ml.FractionalDerivative(a, definition="caputo"), (6,)),
    "conv1d": (lambda a: ml.FractionalConv1d(2, 3, 3, a), (1, 2, 6)),
    "conv2d": (lambda a: ml.FractionalConv2d(1, 2, 2, a), (1, 1, 4, 4)),
    "filter": (lambda a: ml.FractionalFilter(a), (2, 5, 2)),
    "rnn": (lambda a: ml.FractionalRNN(2, 2, a), (2, 4, 2)),
    "lstm": (lambda a: ml.FractionalLSTM(2, 2, a), (1, 4, 2)),
    "diffusion": (lambda a: ml.GraphDiffusion(PATH, a, 0.7), (4, 2)),
    "power": (lambda a: ml.LaplacianPower(PATH, a), (4, 2)),
    "directed power": (lambda a: ml.LaplacianPower(RING, a), (3, 2)),
    "fourier": (lambda a: ml.FractionalFourier(a), (2, 8)),
    "residual": (lambda a: ml.FractionalResidual(ml.graded_points(7, 1.0), a), (7,)),
    "laplacian": (lambda a: ml.LaplacianResidual(a, step=0.3), (7,)),
}


def made(name: str, alpha: Any) -> tuple[Any, Any]:
    torch.manual_seed(3)
    make, shape = LAYERS[name]
    return make(alpha).double(), torch.randn(shape, dtype=F64)


def output(layer: Any, x: Any) -> Any:
    found = layer(x)
    return found[0] if isinstance(found, tuple) else found


def descend(parameters: Any, loss: Callable[[], Any]) -> None:
    """A dozen steps of a quasi-Newton method."""
    optimiser = torch.optim.LBFGS(parameters, max_iter=12, line_search_fn="strong_wolfe")

    def closure() -> Any:
        optimiser.zero_grad()
        value = loss()
        value.backward()
        return value

    optimiser.step(closure)


@pytest.mark.parametrize("name", LAYERS)
@thinned(one_in=2)
def test_gradients_in_inputs_parameters_and_order(name: str):
    """gradcheck and gradgradcheck of every layer."""
    layer, x = made(name, learned(0.4))
    names = [key for key, _ in layer.named_parameters()]

    def call(x: Any, *parameters: Any) -> Any:
        return torch.func.functional_call(layer, dict(zip(names, parameters, strict=True)), (x,))

    def first(*inputs: Any) -> Any:
        found = call(*inputs)
        return found[0] if isinstance(found, tuple) else found

    inputs = (x.requires_grad_(), *layer.parameters())
    assert any(key.endswith("rho") for key in names)
    assert torch.autograd.gradcheck(first, inputs, fast_mode=True)
    assert torch.autograd.gradgradcheck(first, inputs, fast_mode=True)


@pytest.mark.parametrize("name", LAYERS)
def test_the_order_is_not_ignored(name: str):
    """Two orders give two answers, and a learned order the answer of the number."""
    one, x = made(name, 0.3)
    two, _ = made(name, 0.6)
    three, _ = made(name, learned(0.6))
    found = [output(layer, x) for layer in (one, two, three)]
    assert float((found[0] - found[1]).detach().abs().max()) > 1e-3
    torch.testing.assert_close(found[1], found[2], atol=1e-11, rtol=0)


@pytest.mark.parametrize("name", LAYERS)
def test_layers_travel_and_say_their_order(name: str):
    """pickle, deepcopy and state_dict keep the answer; repr shows the order."""
    layer, x = made(name, learned(0.4))
    right = output(layer, x)
    for other in (pickle.loads(pickle.dumps(layer)), copy.deepcopy(layer)):
        torch.testing.assert_close(output(other, x), right, atol=1e-12, rtol=0)
    fresh, _ = made(name, learned(0.7))
    buffer = io.BytesIO()
    torch.save(layer.state_dict(), buffer)
    buffer.seek(0)
    fresh.load_state_dict(torch.load(buffer, weights_only=True))
    torch.testing.assert_close(output(fresh, x), right, atol=1e-12, rtol=0)
    assert "0.4" in repr(layer)


@pytest.mark.parametrize("d", [0.3, [0.1, 0.3, 0.45]], ids=["one", "each"])
def test_a_sum_of_exponentials_is_the_full_memory(d: Any):
    """Outputs and gradients, that of the order among them, to the tolerance; a sequence in two parts is one."""
    x = torch.randn(2, 70, 2, dtype=F64, generator=torch.Generator().manual_seed(2))
    found = []
    for memory in ("full", "exponentials"):
        torch.manual_seed(1)
        layer = ml.FractionalLSTM(2, 3, learned(d), memory=memory).double()
        outputs, (h, c, *rest) = layer(x)
        outputs.square().sum().backward()
        found.append([outputs, h, c, *(each.grad for each in layer.parameters())])
        assert f"memory={memory!r}" in repr(layer)
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-8)
    assert rest[0].shape == (1, 54, 2, 3)
    first, state = layer(x[:, :33])
    second, _ = layer(x[:, 33:], state)
    torch.testing.assert_close(torch.cat([first, second], 1), found[1][0], rtol=1e-13, atol=1e-14)
    with pytest.raises(InvalidInputError, match="exponentials"):
        ml.FractionalLSTM(2, 3, 0.3).double()(x, state)
    with pytest.raises(InvalidInputError, match="from 0 to 1"):
        ml.FractionalLSTM(2, 3, 1.2, memory="exponentials").double()(x)
    with pytest.raises(InvalidInputError, match="memory='half'"):
        ml.FractionalLSTM(2, 3, memory="half")


def test_orders_by_channel():
    """Each channel has its own order."""
    x = torch.randn(2, 2, 9, dtype=F64)
    found = ml.FractionalDerivative(learned([0.2, 0.7]))(x)
    for i, alpha in enumerate((0.2, 0.7)):
        torch.testing.assert_close(found[:, i], ml.FractionalDerivative(alpha)(x[:, i]), atol=1e-12, rtol=0)
    with pytest.raises(ShapeError, match="3 orders for samples of shape"):
        ml.FractionalDerivative([0.1, 0.2, 0.3])(x)


def test_lanczos_refuses_second_derivatives():
    """In order and features together they would lack a term."""
    order, x = torch.tensor(0.6, dtype=F64, requires_grad=True), torch.ones(4, 1, dtype=F64).cumsum(0).requires_grad_()
    loss = ml.LaplacianPower(PATH, order, method="lanczos")(x).square().sum()
    (slope,) = torch.autograd.grad(loss, order, create_graph=True)
    with pytest.raises(SolveError, match="eigen"):
        torch.autograd.grad(slope, x)


def test_large_graphs_by_lanczos():
    """Without a decomposition: the same values and first derivatives, of a sparse Laplacian."""
    generator = torch.Generator().manual_seed(2)
    edges = (torch.rand(150, 150, generator=generator) < 0.05).double()
    edges = ((edges + edges.T) > 0).double().fill_diagonal_(0.0)
    laplacian = torch.diag(edges.sum(1)) - edges
    x = torch.randn(150, 2, dtype=F64, generator=generator, requires_grad=True)
    slope = torch.randn(150, 2, dtype=F64, generator=generator)
    for make in (ml.GraphDiffusion, ml.LaplacianPower):
        exact = make(laplacian, learned(0.6), method="eigen")
        krylov = make(laplacian.to_sparse(), learned(0.6), method="lanczos")
        one, two = exact(x), krylov(x)
        torch.testing.assert_close(two, one, atol=1e-8, rtol=0)
        for a, b in zip(
            torch.autograd.grad(two, (x, krylov.order.rho), slope),
            torch.autograd.grad(one, (x, exact.order.rho), slope),
            strict=True,
        ):
            torch.testing.assert_close(a, b, atol=1e-8, rtol=1e-8)


def test_diffusion_has_its_closed_form():
    """Order 1/2 on two nodes: the difference decays like exp(4 t) erfc(2 sqrt(t))."""
    two = torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=F64)
    found = ml.GraphDiffusion(two, 0.5, 0.8)(torch.tensor([[1.0], [-1.0]], dtype=F64))
    assert float(found[0, 0]) == pytest.approx(erfcx(2.0 * np.sqrt(0.8)), rel=1e-12)


def test_the_order_learns_within_its_bounds():
    """alpha = lo + (hi - lo) sigmoid(rho), its slope there, groups of parameters, and descent to the right order."""
    order = ml.LearnableOrder(1.3, bounds=(1.0, 2.0))
    assert float(order().detach()) == pytest.approx(1.3, abs=1e-15)
    assert order.ceiling == 2 and ml.LearnableOrder(0.9, bounds=(0.5, 1.5)).ceiling is None
    (slope,) = torch.autograd.grad(order(), order.rho)
    assert float(slope) == pytest.approx(0.3 * 0.7)
    x = torch.linspace(0.0, 1.0, 40, dtype=F64) ** 2
    target = torch.as_tensor(hf.grunwald_letnikov(x.numpy(), step=1.0, alpha=0.62))
    layer = ml.FractionalDerivative(learned(0.3))
    optimiser = torch.optim.Adam(ml.parameter_groups(layer, order_lr=0.2), lr=1e-3)
    assert optimiser.param_groups[1]["weight_decay"] == 0.0 and optimiser.param_groups[1]["lr"] == 0.2
    descend(layer.parameters(), lambda: (1e3 * (layer(x) - target) ** 2).mean())
    assert float(layer.order().detach()) == pytest.approx(0.62, abs=1e-6)


def test_causality_of_convolutions():
    """A sample that is not finite affects no window that ends before it."""
    x = torch.randn(1, 2, 12, dtype=F64)
    x[0, 0, 7] = torch.nan
    found = ml.FractionalConv1d(2, 1, 3, 0.4).double()(x)
    assert torch.isfinite(found[..., :5]).all() and torch.isnan(found[..., 5:]).all()


def test_settings(monkeypatch: pytest.MonkeyPatch):
    """Each setting does something: pinned backends are refused, memory is saved, names are checked."""
    x = torch.randn(3, 64, requires_grad=True)
    with pytest.raises(PinnedBackendError):
        ml.FractionalLayer(0.5, ml.LayerConfig(backend="jax"))(x)
    plain, saving = (
        ml.FractionalLayer(learned(0.5), ml.LayerConfig(performance_mode=mode)) for mode in ("balanced", "memory")
    )
    kept: dict[str, int] = {}
    for name, layer in (("balanced", plain), ("memory", saving)):
        sizes: list[int] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, s=sizes: s.append(t.numel()) or t, lambda t: t):
            found = layer(x)
        kept[name] = sum(sizes)
        (slope,) = torch.autograd.grad(found.sum(), layer.derivative.order.rho)
        assert torch.isfinite(slope)
    assert kept["memory"] < kept["balanced"]
    with pytest.raises(InvalidInputError, match="performance_mode='quick'"):
        ml.LayerConfig(performance_mode="quick")
    with pytest.raises(ConfigurationError, match="fortran"):
        ml.LayerConfig(backend="fortran")
    seen: list[bool] = []
    layer = ml.FractionalDerivative(0.5, config=ml.LayerConfig(performance_mode="deterministic"))
    monkeypatch.setitem(
        OPERATIONS, "derivative", lambda arrays, *_: seen.append(get_settings().deterministic) or arrays[0]
    )
    layer(x)
    assert seen == [True]


def test_memory_is_saved_whatever_the_engine_chooses(monkeypatch: pytest.MonkeyPatch):
    """A pass may take another algorithm than the one before; first and second derivatives go through."""
    config = ml.LayerConfig(performance_mode="memory")
    layer = ml.FractionalDerivative(learned(0.5), config=config).double()
    order, plain = layer.order, ml.FractionalDerivative(layer.order)
    x = torch.randn(2, 6, dtype=F64, requires_grad=True)
    by_rho = torch.autograd.grad(plain(x).pow(2).sum(), [x, order.rho])
    passes: list[int] = []
    apply = OPERATIONS["derivative"]

    def another_way(arrays: list[Any], *rule: Any) -> Any:
        """The same numbers, but from the second pass on a matrix is kept as well."""
        passes.append(1)
        return apply(arrays if len(passes) == 1 else [arrays[0] @ torch.eye(6, dtype=F64)], *rule)

    with monkeypatch.context() as patch:
        patch.setitem(OPERATIONS, "derivative", another_way)
        found = torch.autograd.grad(layer(x).pow(2).sum(), [x, order.rho])
    assert len(passes) == 2
    for one, other in zip(found, by_rho, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
    assert torch.autograd.gradcheck(layer, x, nondet_tol=1e-10)
    assert torch.autograd.gradgradcheck(layer, x, nondet_tol=1e-10)
    torch.testing.assert_close(torch.func.jacrev(layer)(x), torch.func.jacrev(plain)(x))


def test_existing_code_runs_as_written():
    """The calls that users' code already makes."""
    from hpfracc.ml import FractionalLayer, LayerConfig
    from hpfracc.ml.layers import BackendManager

    assert FractionalLayer is ml.FractionalLayer
    assert FractionalLayer(alpha=0.5)(torch.randn(4, 16)).shape == (4, 16)
    config = LayerConfig(backend="auto", performance_mode="balanced")
    assert FractionalLayer(0.5, config)(torch.randn(4, 16)).shape == (4, 16)
    model = torch.nn.Sequential(FractionalLayer(alpha=0.5, input_dim=64, output_dim=32), torch.nn.Linear(32, 1))
    model(torch.randn(8, 64)).sum().backward()
    assert BackendManager.select_optimal_backend(config, (32, 64)).value in ("numpy", "numba", "torch", "jax", "cupy")
    assert BackendManager.select_optimal_backend(LayerConfig(backend="torch"), (32, 64)).value == "torch"


def test_losses_differentiate_the_difference():
    """The minimum is at the target, whose own derivative is not 0."""
    target = torch.cumsum(torch.ones(20, dtype=F64), 0)
    prediction = target.clone().requires_grad_()
    loss = ml.FractionalLoss(0.5, weight=2.0)
    (slope,) = torch.autograd.grad(loss(prediction, target), prediction)
    assert float(loss(prediction, target).detach()) == 0.0 and float(slope.abs().max()) == 0.0
    error = (prediction.detach() + 1.0) - target
    right = (error**2 + 2.0 * ml.FractionalDerivative(0.5)(error) ** 2).mean()
    assert float(loss(prediction.detach() + 1.0, target)) == pytest.approx(float(right), rel=1e-12)
    assert loss.forward(prediction, target).shape == () and ml.FractionalLoss(reduction="none")(
        target, target
    ).shape == (20,)


def test_options_reach_the_derivative():
    """Each option of a layer or loss does what it does for the derivative, and a signature shows it."""
    x, zero = torch.randn(2, 3, 6, dtype=F64), torch.zeros(2, 3, 6, dtype=F64)
    options = {"definition": "caputo", "method": "l1", "step": 0.25, "channel_axis": -1}
    orders = [0.2, 0.3, 0.4, 0.5, 0.6, 0.7]
    right = ml.FractionalDerivative(orders, axis=1, **options)(x)
    torch.testing.assert_close(ml.FractionalLayer(orders, axis=1, **options)(x), right)
    loss = ml.FractionalLoss(orders, reduction="none", axis=1, **options)
    torch.testing.assert_close(loss(x, zero), x**2 + right**2)
    pinned = ml.FractionalLoss(0.5, config=ml.LayerConfig(backend="torch"))
    assert pinned.derivative.config.engine_backend == "torch"
    assert {*options, "axis", "config"} <= inspect.signature(ml.FractionalLoss).parameters.keys()
    for make in (ml.FractionalLayer, ml.FractionalLoss, ml.LaplacianResidual):
        with pytest.raises(TypeError, match="boundary"):
            make(0.5, boundary="periodic")


def test_groups_refuse_what_optimisers_would_ignore():
    """Options of every optimiser, those of the user included; a misspelt one and ``params`` raise an error."""
    layer = ml.FractionalLayer(learned(0.5), input_dim=2)
    for kind in (torch.optim.AdamW, torch.optim.SGD, torch.optim.RMSprop, FractionalGradientFlow):
        for name, option in inspect.signature(kind).parameters.items():
            if name != "params":
                assert ml.parameter_groups(layer, **{name: option.default})[0][name] == option.default
    for wrong in ("weight_decy", "params", "self", "warmth"):
        with pytest.raises(InvalidInputError, match=f"no optimiser has the option '{wrong}'"):
            ml.parameter_groups(layer, **{wrong: 0.1})

    class Warm(torch.optim.SGD):
        def __init__(self, params: Any, warmth: float = 0.0) -> None:
            super().__init__(params)

    assert ml.parameter_groups(layer, warmth=0.1)[0]["warmth"] == 0.1  # type: ignore[call-arg]
    del Warm


@pytest.mark.parametrize("method", ["integral", "periodic", "dirichlet", "neumann"])
def test_residuals_of_the_laplacian_over_axes(method: str):
    """``method``, ``axis`` and ``backend`` are those of the operator."""
    u = torch.randn(2, 5, 4, dtype=F64)
    residual = ml.LaplacianResidual(1.5, step=0.3, method=method, axis=(1, 2), backend="torch")
    right = hf.fractional_laplacian(u, alpha=1.5, step=0.3, method=method, axis=(1, 2))
    torch.testing.assert_close(residual(u, 1.0), right - 1.0)
    with pytest.raises(PinnedBackendError):
        ml.LaplacianResidual(1.5, backend="jax")(u.requires_grad_())


def test_a_residual_learns_the_order_of_an_equation():
    """Values of t^2 at graded points: the residual of its Caputo derivative vanishes at the right order."""
    t = ml.graded_points(129, 1.0, 3.0)
    values, right = t**2, torch.as_tensor(hf.caputo(lambda s: s**2, t.numpy(), 0.6))
    residual = ml.FractionalResidual(t, learned(0.4))
    descend(residual.parameters(), lambda: (residual(values, right) ** 2).mean())
    assert float(residual.order().detach()) == pytest.approx(0.6, abs=5e-3)
    x = torch.linspace(0.0, 1.0, 5, dtype=F64, requires_grad=True)
    torch.testing.assert_close(ml.whole_derivative(x**3, x, 2), 6.0 * x)


BAD: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: ml.LearnableOrder(0.5, bounds=(1.0, 0.0)), InvalidInputError, "low < high"),
    (lambda: ml.LearnableOrder(1.5), InvalidInputError, "strictly between the bounds"),
    (lambda: ml.FractionalLayer("half"), InvalidInputError, "not a number"),
    (lambda: ml.FractionalLayer(0.5, output_dim=3), InvalidInputError, "without input_dim"),
    (lambda: ml.FractionalLayer(0.5, "fast"), InvalidInputError, "no LayerConfig"),
    (lambda: ml.FractionalDerivative(0.5, step=0.0), InvalidInputError, "above 0"),
    (lambda: ml.FractionalDerivative(0.5, definition="nobody"), InvalidInputError, "nobody"),
    (lambda: ml.FractionalDerivative(1.5, definition="caputo_fabrizio")(torch.ones(5)), InvalidInputError, "1.5"),
    (lambda: ml.FractionalConv1d(1, 1, 9)(torch.ones(1, 1, 5)), ShapeError, "larger than the 5"),
    (lambda: ml.FractionalConv2d(1, 1, 3, axes=(0,)), InvalidInputError, "axes"),
    (lambda: ml.FractionalLSTM(2, 3)(torch.ones(4, 3)), ShapeError, r"give \(batch, time, 2\)"),
    (lambda: ml.FractionalRNN(2, 3, batch_first=False)(torch.ones(4)), ShapeError, r"give \(time, batch, 2\)"),
    (lambda: ml.FractionalRNN(2, 3, dropout=0.5), InvalidInputError, "acts between layers"),
    (lambda: ml.FractionalRNN(2, 3, [0.1, 0.2], num_layers=2), ShapeError, "2 orders for 3 features"),
    (lambda: ml.FractionalLSTM(2, 3, [0.1, 0.2]), ShapeError, "2 orders for 3 cells"),
    (lambda: ml.FractionalRNN(0, 3), InvalidInputError, "input_size=0"),
    (lambda: ml.GraphDiffusion(RING), InvalidInputError, "not symmetric"),
    (lambda: ml.GraphDiffusion(-PATH), InvalidInputError, "eigenvalue"),
    (lambda: ml.GraphDiffusion(PATH, 1.5)(torch.ones(4, 1)), InvalidInputError, "outside"),
    (lambda: ml.LaplacianPower(PATH, -1.0)(torch.ones(4, 1)), InvalidInputError, "outside"),
    (lambda: ml.LaplacianPower(PATH)(torch.ones(3, 1)), ShapeError, "4 nodes"),
    (lambda: ml.FractionalResidual(torch.tensor([0.0, 2.0, 1.0])), InvalidInputError, "not increasing"),
    (lambda: ml.FractionalLoss()(torch.ones(3), torch.ones(4)), ShapeError, "same shape"),
    (lambda: ml.FractionalLayer(0.5)(np.ones(4)), InvalidInputError, "takes a torch tensor"),
]


@pytest.mark.parametrize(("call", "error", "text"), BAD)
def test_bad_input(call: Callable[[], Any], error: type[Exception], text: str):
    """A typed error with the value and what to do."""
    with pytest.raises(error, match=text):
        call()


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", [each for each in LAYERS if each not in ("residual", "laplacian")])
def test_half_precision(name: str, kind: Any):
    """Every layer takes it, keeps its dtype and is as near to double precision as the dtype allows; gradients too."""
    layer, x = made(name, 0.4)
    right = output(layer, x)
    found = output(layer.to(kind), x.to(kind).requires_grad_())
    assert found.dtype == (torch.complex64 if name == "fourier" else kind)
    assert (found.to(right.dtype) - right).abs().max() < 60 * torch.finfo(kind).eps * right.abs().max()
    found.abs().sum().backward()


@pytest.mark.parametrize("kind", [torch.int64, torch.int8, torch.bool])
@pytest.mark.parametrize("make", [ml.GraphDiffusion, ml.LaplacianPower])
def test_integer_features_of_a_graph_are_not_rounded(make: Any, kind: Any):
    features = torch.eye(4, dtype=kind)
    found = make(PATH, 0.5)(features)
    assert found.dtype == torch.get_default_dtype()
    torch.testing.assert_close(found, make(PATH, 0.5)(features.double()).float())
    assert 0.0 < float(found[0, 0]) != 1.0


@pytest.mark.parametrize("method", ["eigen", "lanczos"])
def test_complex_features_of_a_graph(method: str):
    x = torch.randn(3, 4, 2, dtype=torch.complex128)
    layer = ml.LaplacianPower(PATH, 0.5, method=method)
    torch.testing.assert_close(layer(x), torch.complex(layer(x.real), layer(x.imag)))


def test_a_fixed_order_is_in_the_state():
    """State dicts contain it, in double precision and on loading; older ones, which do not, keep the layer's own."""
    layer = ml.FractionalDerivative(0.4)
    assert layer.state_dict()["order.alpha"] == torch.tensor(0.4, dtype=F64)
    assert [name for name, _ in layer.named_buffers()] == ["order.alpha"]
    assert layer.bfloat16().state_dict()["order.alpha"] == torch.tensor(0.4, dtype=F64)
    other = ml.FractionalDerivative(0.7)
    other.load_state_dict(layer.state_dict())
    assert other.order() == 0.4
    x = torch.randn(2, 6)
    torch.testing.assert_close(other(x), ml.FractionalDerivative(0.4)(x))
    assert other.load_state_dict({}, strict=True) and other.order() == 0.4
    several = ml.FractionalDerivative([0.1, 0.2])
    several.load_state_dict(ml.FractionalDerivative([0.3, 0.4]).state_dict())
    assert several.order() == (0.3, 0.4)
    model = torch.nn.Sequential(ml.FractionalConv2d(1, 1, 2, 0.3), ml.FractionalLSTM(1, 1, 0.2))
    old = {name: each for name, each in model.state_dict().items() if not name.endswith("alpha")}
    model.load_state_dict(old)
    copied = pickle.loads(pickle.dumps(copy.deepcopy(layer)))
    copied.load_state_dict(ml.FractionalDerivative(0.9).state_dict())
    assert (copied.order(), layer.order()) == (0.9, 0.4)


def test_a_saturated_order_says_what_happened():
    order = ml.LearnableOrder(0.5)
    with torch.no_grad():
        order.rho.fill_(-800.0)
    with pytest.raises(InvalidInputError, match=r"alpha=0.0 is outside \(0, 1\].*learned order.*no longer learns"):
        ml.FractionalDerivative(order)(torch.randn(5))


def test_derivatives_that_are_infinite_at_the_start_say_so():
    """At construction, with what trains instead; all definitions of which this is so."""
    x = torch.arange(1.0, 7.0)
    infinite = set()
    for kind in definitions("derivative"):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                first = ml.FractionalDerivative(0.4, definition=kind)(x)[0]
        except (InvalidInputError, TypeError):  # needs more than an order
            continue
        if not torch.isfinite(first):
            infinite.add(kind)
    assert infinite == INFINITE_AT_START
    with pytest.warns(UserWarning, match="riemann_liouville derivative is infinite at the first.*grunwald_letnikov"):
        ml.FractionalLayer(0.4, definition="rl")


@pytest.mark.parametrize("method", ["eigen", "lanczos"])
@pytest.mark.parametrize("normalised", [False, True])
def test_laplacians_in_single_precision_are_those_of_the_graph(method: str, normalised: bool):
    """Their rounding neither makes them asymmetric or indefinite, nor has the eigenvalue 0 a power."""
    for seed in range(4):
        weights = torch.rand(40, 40, generator=torch.Generator().manual_seed(seed))
        weights = torch.triu(weights * (weights < 0.3), 1)
        weights = weights + weights.T

        def laplacian(given: torch.Tensor, scaled: bool = normalised) -> torch.Tensor:
            degrees = given.sum(1)
            if not scaled:
                return torch.diag(degrees) - given
            return torch.eye(40, dtype=given.dtype) - torch.diag(degrees**-0.5) @ given @ torch.diag(degrees**-0.5)

        rounded, x = laplacian(weights), torch.eye(40, dtype=F64)
        values, vectors = torch.linalg.eigh(laplacian(weights.double()))
        right = vectors @ torch.diag(torch.where(values < 1e-12, 0.0, values**0.1)) @ vectors.T
        for given in (rounded, rounded.to_sparse()):
            found = ml.LaplacianPower(given, 0.1, method=method)(x)
            torch.testing.assert_close(found, right, rtol=0.0, atol=1e-6 if normalised else 1e-13)
            exact = ml.GraphDiffusion(laplacian(weights.double()), 0.5)(x)
            torch.testing.assert_close(ml.GraphDiffusion(given, 0.5, method=method)(x), exact, rtol=0.0, atol=1e-6)


def test_graphs_that_have_no_real_laplacian_are_refused():
    """Complex, infinite and empty ones; no features are no error."""
    hermitian = torch.tensor([[1.0, 1.0j], [-1.0j, 1.0]])
    for given in (hermitian, hermitian.to_sparse()):
        with pytest.raises(UnsupportedDtypeError, match="real numbers"):
            ml.GraphDiffusion(given)
    with pytest.raises(InvalidInputError, match="not finite"):
        ml.GraphDiffusion(torch.full((2, 2), torch.inf).to_sparse())
    with pytest.raises(ShapeError, match="each node"):
        ml.GraphDiffusion(torch.zeros(0, 0))
    assert ml.GraphDiffusion(PATH, method="lanczos")(torch.zeros(3, 4, 0)).shape == (3, 4, 0)


def test_orders_that_are_no_real_numbers_are_refused():
    with pytest.raises(ShapeError, match="real number"):
        ml.FractionalDerivative(torch.tensor(0.5 + 0.2j))
    with pytest.raises(UnsupportedDtypeError, match="real numbers"):
        NeuralFODE(lambda t, y: -y, torch.tensor(0.5 + 0.2j), step=0.1)
    for make in (ml.FractionalDerivative, ml.LearnableOrder):
        with pytest.raises(ShapeError, match="alpha has shape"):
            make([])

"""Layers of JAX: pytrees, the same answers and gradients as PyTorch's with the same parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import hpfracc as hf
from hpfracc import ml
from hpfracc.errors import InvalidInputError, ShapeError, SolveError
from tests.helpers.thinned import thinned

torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
BCOO = pytest.importorskip("jax.experimental.sparse").BCOO

F64 = torch.float64
PATH = np.array([[1.0, -1, 0, 0], [-1, 2, -1, 0], [0, -1, 2, -1], [0, 0, -1, 1]])
RING = np.array([[1.0, -1, 0], [0, 1, -1], [-1, 0, 1]])
POINTS = ml.graded_points(7, 1.0) if torch is not None else None


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def modules() -> Any:
    from hpfracc.ml import jax as layers

    return {name: getattr(layers, name) for name in layers.__all__}


def linear(layer: Any) -> dict[str, Any]:
    return {"weight": layer.weight, "bias": layer.bias}


#: By name: layers of both libraries from their names and orders, parameters of the first, and the shape of the input.
PAIRS: dict[
    str, tuple[Callable[[Any], Any], Callable[[Any, Any], Any], Callable[[Any], dict[str, Any]], tuple[int, ...]]
] = {
    "layer": (
        lambda a: ml.FractionalLayer(a, input_dim=3, output_dim=2, axis=-2),
        lambda j, a: j["FractionalLayer"](a, input_dim=3, output_dim=2, axis=-2, key=jax.random.key(0)),
        lambda m: linear(m.linear),
        (2, 5, 3),
    ),
    "derivative": (
        lambda a: ml.FractionalDerivative(a, step=0.5),
        lambda j, a: j["FractionalDerivative"](a, step=0.5),
        lambda m: {},
        (2, 6),
    ),
    "caputo": (
        lambda a: ml.FractionalDerivative(a, definition="caputo"),
        lambda j, a: j["FractionalDerivative"](a, definition="caputo"),
        lambda m: {},
        (6,),
    ),
    "filter": (lambda a: ml.FractionalFilter(a), lambda j, a: j["FractionalFilter"](a), lambda m: {}, (2, 5, 2)),
    "conv1d": (
        lambda a: ml.FractionalConv1d(2, 4, 3, a, stride=2, padding=1, groups=2),
        lambda j, a: j["FractionalConv1d"](2, 4, 3, a, stride=2, padding=1, groups=2, key=jax.random.key(0)),
        lambda m: linear(m.conv),
        (1, 2, 9),
    ),
    "conv2d": (
        lambda a: ml.FractionalConv2d(1, 2, 2, a),
        lambda j, a: j["FractionalConv2d"](1, 2, 2, a, key=jax.random.key(0)),
        lambda m: linear(m.conv),
        (1, 1, 4, 4),
    ),
    "rnn": (
        lambda a: ml.FractionalRNN(2, 2, a),
        lambda j, a: j["FractionalRNN"](2, 2, a, key=jax.random.key(0)),
        lambda m: {"input_weight": m.input.weight, "input_bias": m.input.bias, "recurrent_weight": m.recurrent.weight},
        (2, 4, 2),
    ),
    "lstm": (
        lambda a: ml.FractionalLSTM(2, 2, a),
        lambda j, a: j["FractionalLSTM"](2, 2, a, key=jax.random.key(0)),
        lambda m: {"input_weight": m.input.weight, "input_bias": m.input.bias, "recurrent_weight": m.recurrent.weight},
        (2, 40, 2),
    ),
    "lstm, exponentials": (
        lambda a: ml.FractionalLSTM(2, 2, a, memory="exponentials"),
        lambda j, a: j["FractionalLSTM"](2, 2, a, memory="exponentials", key=jax.random.key(0)),
        lambda m: {"input_weight": m.input.weight, "input_bias": m.input.bias, "recurrent_weight": m.recurrent.weight},
        (2, 40, 2),
    ),
    "diffusion": (
        lambda a: ml.GraphDiffusion(torch.tensor(PATH), a, 0.7),
        lambda j, a: j["GraphDiffusion"](PATH, a, 0.7),
        lambda m: {},
        (4, 2),
    ),
    "symmetric power": (
        lambda a: ml.LaplacianPower(torch.tensor(PATH), a),
        lambda j, a: j["LaplacianPower"](PATH, a),
        lambda m: {},
        (4, 2),
    ),
    "power": (
        lambda a: ml.LaplacianPower(torch.tensor(RING), a),
        lambda j, a: j["LaplacianPower"](RING, a),
        lambda m: {},
        (3, 2),
    ),
    "fourier": (lambda a: ml.FractionalFourier(a), lambda j, a: j["FractionalFourier"](a), lambda m: {}, (2, 8)),
    "residual": (
        lambda a: ml.FractionalResidual(POINTS, a),
        lambda j, a: j["FractionalResidual"](POINTS.numpy(), a),
        lambda m: {},
        (7,),
    ),
    "laplacian": (
        lambda a: ml.LaplacianResidual(a, step=0.3),
        lambda j, a: j["LaplacianResidual"](a, step=0.3),
        lambda m: {},
        (7,),
    ),
}


def replaced(layer: Any, values: dict[str, Any]) -> Any:
    """The layer with other leaves."""
    paths, structure = jax.tree_util.tree_flatten_with_path(layer)
    leaves = [values.get(path[0].name, leaf) if len(path) == 1 else leaf for path, leaf in paths]
    return jax.tree_util.tree_unflatten(structure, leaves)


@pytest.mark.parametrize("name", PAIRS)
@thinned(lambda name: name in ("layer", "diffusion"))
def test_layers_equal_those_of_torch(name: str):
    """To 1e-12: the answer, and the gradients in the order and in the input."""
    torch.manual_seed(4)
    make, make_jax, parameters, shape = PAIRS[name]
    theirs = make(ml.LearnableOrder(0.4)).double()
    x = torch.randn(shape, dtype=F64, requires_grad=True)
    known = modules()
    values = {key: jax.numpy.asarray(value.detach().numpy()) for key, value in parameters(theirs).items()}
    ours = replaced(make_jax(known, known["LearnableOrder"](0.4)), values)

    def total(layer: Any, x: Any) -> tuple[Any, Any]:
        found = layer(x)
        found = found[0] if isinstance(found, tuple) else found
        return (abs(found) ** 2).sum(), found

    right = theirs(x)
    right = right[0] if isinstance(right, tuple) else right
    rho = next(value for key, value in theirs.named_parameters() if key.endswith("rho"))
    by_input, by_order = torch.autograd.grad((right.abs() ** 2).sum(), (x, rho))
    both = jax.jit(jax.value_and_grad(total, argnums=(0, 1), has_aux=True))
    (_, found), (slopes, slope) = both(ours, x.detach().numpy())
    np.testing.assert_allclose(found, right.detach().numpy(), atol=1e-12)
    np.testing.assert_allclose(slope, by_input.numpy(), atol=1e-11)
    leaves = jax.tree_util.tree_flatten_with_path(slopes)[0]
    (ours_rho,) = [leaf for path, leaf in leaves if path[-1].name == "rho"]
    np.testing.assert_allclose(ours_rho, by_order.numpy(), atol=1e-11, rtol=1e-11)


@pytest.mark.parametrize("name", PAIRS)
@thinned(lambda name: name == "layer")
def test_second_derivatives_equal_those_of_torch(name: str):
    """In inputs, parameters and order, first ones and the product of second ones with a vector."""
    torch.manual_seed(4)
    make, make_jax, parameters, shape = PAIRS[name]
    theirs = make(ml.LearnableOrder(0.4)).double()
    x = (
        torch.randn(*shape[:-2], min(shape[-2], 6), shape[-1], dtype=F64)
        if len(shape) == 3
        else torch.randn(shape).double()
    )
    rho = next(value for key, value in theirs.named_parameters() if key.endswith("rho"))
    named = {"x": x.requires_grad_(), "rho": rho, **parameters(theirs)}
    along = {key: torch.randn(value.shape, dtype=F64) for key, value in named.items()}
    found = theirs(x)
    found = found[0] if isinstance(found, tuple) else found
    first = torch.autograd.grad((found.abs() ** 2 + found.real**3).sum(), list(named.values()), create_graph=True)
    product = sum((a * b).sum() for a, b in zip(first, along.values(), strict=True))
    second = torch.autograd.grad(product, list(named.values()))
    known = modules()
    layer = make_jax(known, known["LearnableOrder"](0.4))
    given = {key: jax.numpy.asarray(value.detach().numpy()) for key, value in named.items()}
    vectors = {key: jax.numpy.asarray(value.numpy()) for key, value in along.items()}

    def loss(given: dict[str, Any]) -> Any:
        leaves, tree = jax.tree_util.tree_flatten_with_path(layer)
        ours = jax.tree_util.tree_unflatten(
            tree, [given.get(path[-1].name, leaf) if hasattr(path[-1], "name") else leaf for path, leaf in leaves]
        )
        found = ours(given["x"])
        found = found[0] if isinstance(found, tuple) else found
        return (abs(found) ** 2 + found.real**3).sum()

    def directed(given: dict[str, Any]) -> tuple[Any, Any]:
        slopes = jax.grad(loss)(given)
        return sum((slopes[key] * vectors[key]).sum() for key in slopes), slopes

    products, slopes = jax.grad(directed, has_aux=True)(given)
    for key, one, two in zip(named, first, second, strict=True):
        scale = 1.0 + float(two.abs().max())
        np.testing.assert_allclose(slopes[key], one.detach().numpy(), rtol=1e-10, atol=1e-10 * scale)
        np.testing.assert_allclose(products[key], two.numpy(), rtol=1e-9, atol=1e-9 * scale)


@pytest.mark.parametrize("name", PAIRS)
@thinned(lambda name: name in ("filter", "laplacian"))
def test_both_limits_equal_those_of_torch(name: str):
    """Near order 0 and at order 1, where PyTorch's layers have closed forms (test_layer_limits.py)."""
    make, make_jax, parameters, shape = PAIRS[name]
    known, x = modules(), torch.randn(shape, dtype=F64)
    for order in (1e-6, 1.0):
        theirs = make(order).double()
        values = {key: jax.numpy.asarray(value.detach().numpy()) for key, value in parameters(theirs).items()}
        right, found = theirs(x), replaced(make_jax(known, order), values)(x.numpy())
        right, found = (each[0] if isinstance(each, tuple) else each for each in (right, found))
        np.testing.assert_allclose(found, right.detach().numpy(), atol=1e-12)


def test_layers_are_pytrees_under_jit():
    """jit, tree.map and a step of descent keep the kind of layer; single precision stays single."""
    known = modules()
    layer = known["FractionalLayer"](known["LearnableOrder"](0.3), input_dim=4, output_dim=2, key=jax.random.key(1))
    x = np.linspace(0.0, 1.0, 12).reshape(3, 4)
    both = jax.jit(jax.value_and_grad(lambda one: (one(x) ** 2).sum()))
    before, slopes = both(layer)
    moved = jax.tree.map(lambda p, g: p - 0.1 * g, layer, slopes)
    assert type(moved) is type(layer) and float(moved.derivative.order.rho) != float(layer.derivative.order.rho)
    assert float(both(moved)[0]) < float(before)
    with jax.enable_x64(False):
        single = known["FractionalDerivative"](known["LearnableOrder"](0.3))
        assert single(np.ones(5, np.float32)).dtype == np.float32


def test_options_of_layers():
    """Options reach the derivative and the Laplacian as with PyTorch; signatures show them; others raise an error."""
    known = modules()
    x = np.random.default_rng(0).standard_normal((2, 3, 6))
    options = {"definition": "caputo", "method": "l1", "step": 0.25, "channel_axis": -1}
    orders = [0.2, 0.3, 0.4, 0.5, 0.6, 0.7]
    right = ml.FractionalDerivative(orders, axis=1, **options)(torch.tensor(x)).numpy()
    np.testing.assert_allclose(known["FractionalLayer"](orders, axis=1, **options)(x), right, atol=1e-12)
    loss = known["FractionalLoss"](orders, reduction="none", axis=1, **options)
    np.testing.assert_allclose(loss(x, np.zeros_like(x)), x**2 + right**2, atol=1e-12)
    residual = known["LaplacianResidual"](1.5, step=0.3, method="periodic", axis=(1, 2), backend="jax")
    right = hf.fractional_laplacian(x, alpha=1.5, step=0.3, method="periodic", axis=(1, 2))
    np.testing.assert_allclose(residual(x), right, atol=1e-10)
    np.testing.assert_allclose(jax.jit(lambda layer, u: layer(u))(residual, x), right, atol=1e-10)
    for name in ("FractionalConv1d", "FractionalConv2d"):
        shown = inspect.signature(known[name]).parameters.keys()
        assert {"definition", "method", "step"} <= shown and not {"axis", "channel_axis", "options"} & shown
    for name in ("FractionalLayer", "FractionalLoss", "LaplacianResidual"):
        with pytest.raises(TypeError, match="boundary"):
            known[name](0.5, boundary="periodic")


def sparse_graph(nodes: int) -> Any:
    """The Laplacian of a random graph."""
    edges = np.random.default_rng(3).random((nodes, nodes)) < 4.0 / nodes
    edges = np.where(edges | edges.T, 1.0, 0.0) * (1.0 - np.eye(nodes))
    return np.diag(edges.sum(1)) - edges


@pytest.fixture
def double_everywhere():
    """Mittag-Leffler functions are found by the host, in threads of JAX's that a local scope does not reach."""
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


@pytest.mark.slow
@pytest.mark.usefixtures("double_everywhere")
@pytest.mark.parametrize("name", ["GraphDiffusion", "LaplacianPower"])
def test_derivatives_of_lanczos(name: str):
    """First derivatives equal PyTorch's, second ones of powers those of the decomposition, in features and order."""
    full, known = sparse_graph(150), modules()
    x, w = np.random.default_rng(4).standard_normal((2, 150, 2))

    def total(rho: Any, x: Any, laplacian: Any, method: str) -> Any:
        layer = known[name](laplacian, known["LearnableOrder"](0.6), method=method)
        return (jax.tree.map(lambda _: rho, layer)(x) ** 2).sum()

    order = ml.LearnableOrder(0.6).double()
    rho, graph = order.rho.detach().numpy(), BCOO.fromdense(full)
    slopes = jax.jit(jax.grad(lambda rho, x: total(rho, x, graph, "lanczos"), argnums=(0, 1)))(rho, x)
    place = torch.tensor(x, requires_grad=True)
    theirs = getattr(ml, name)(torch.tensor(full), order, method="lanczos")
    right = torch.autograd.grad(theirs(place).square().sum(), (order.rho, place))
    for a, b in zip(slopes, right, strict=True):
        np.testing.assert_allclose(a, b.numpy(), atol=1e-10, rtol=1e-10)
    if name == "GraphDiffusion":
        return

    def second(laplacian: Any, method: str) -> Any:
        def along(rho: Any, x: Any) -> Any:
            by_order, by_input = jax.grad(total, argnums=(0, 1))(rho, x, laplacian, method)
            return by_order + (by_input * w).sum()

        return jax.jit(jax.grad(along, argnums=(0, 1)))(rho, x)

    for a, b in zip(second(graph, "lanczos"), second(full, "eigen"), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-8, rtol=1e-8)


@pytest.mark.slow
def test_lanczos_without_an_answer():
    """Of a matrix with negative eigenvalues, and beyond 600 vectors: an error, and nan under jit."""
    kind = modules()["LaplacianPower"]
    with pytest.raises(SolveError, match="negative"):
        kind(-sparse_graph(30), 0.6, method="lanczos")(np.eye(30, 2))
    wide = sparse.diags_array(np.geomspace(1e-9, 1.0, 1200))
    layer = kind(wide, 0.02, method="lanczos")
    with pytest.raises(SolveError, match="600 vectors"):
        layer(np.ones((1200, 1)))
    assert np.isnan(jax.jit(layer)(np.ones((1200, 1)))).all()


def test_settings_and_samples_without_a_batch():
    """The mode that saves memory has the same numbers; a convolution takes one signal; several orders are refused."""
    known, x = modules(), np.linspace(0.0, 1.0, 6) ** 2
    config = ml.LayerConfig(performance_mode="memory")
    for order in (0.4, known["LearnableOrder"](0.4)):
        plain, saving = (known["FractionalDerivative"](order, config=each) for each in (None, config))
        one, other = (jax.grad(lambda x, layer=each: (layer(x) ** 2).sum())(x) for each in (plain, saving))
        np.testing.assert_allclose(one, other, rtol=1e-12)
    conv = known["FractionalConv1d"](1, 2, 3, 0.4, key=jax.random.key(0))
    np.testing.assert_allclose(conv(x[None]), conv(x[None, None])[0], rtol=1e-12)
    for name in ("FractionalFourier", "LaplacianResidual"):
        with pytest.raises(ShapeError, match="has one order"):
            known[name]([0.4, 0.5])
    with pytest.warns(UserWarning, match="infinite at the first sample"):
        known["FractionalDerivative"](0.4, definition="riemann_liouville")
    with pytest.raises(AttributeError, match="immutable"):
        conv.weight = 1.0


def test_bad_input():
    """Tensors of PyTorch's, a missing key, reversed bounds and a large kernel are refused."""
    known = modules()
    with pytest.raises(InvalidInputError, match="not torch"):
        known["FractionalDerivative"](0.5)(torch.ones(4))
    with pytest.raises(InvalidInputError, match="not symmetric"):
        known["LaplacianPower"](RING, 0.5, method="lanczos")
    with pytest.raises(InvalidInputError, match="'chebyshev'"):
        known["GraphDiffusion"](PATH, 0.5, method="chebyshev")
    with pytest.raises(InvalidInputError, match="key="):
        known["FractionalLayer"](0.5, input_dim=3)
    with pytest.raises(InvalidInputError, match="low < high"):
        known["LearnableOrder"](0.5, bounds=(1.0, 0.0))
    with pytest.raises(ShapeError, match="larger than the 5"):
        known["FractionalConv1d"](1, 1, 9, key=jax.random.key(0))(np.ones((1, 1, 5)))

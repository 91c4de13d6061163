"""Neural equations and optimisers with the libraries that people train with: Equinox, Flax, Optax, torchdiffeq."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")
jnp = jax.numpy

from hpfracc.ml.jax import (  # noqa: E402
    LearnableOrder,
    NeuralFODE,
    fractional_adam,
    fractional_gradient_flow,
    fractional_sgd,
)

TIMES = np.linspace(0.0, 1.0, 3)


def mean_square(model: Any) -> Any:
    return (model(jnp.array([0.5, -0.3]), TIMES) ** 2).mean()


def test_equinox_reaches_the_network_and_the_order():
    """``filter_grad``, ``partition``/``combine`` and ``apply_updates`` on a model with an MLP and a learned order."""
    eqx = pytest.importorskip("equinox")
    optax = pytest.importorskip("optax")

    class Field(eqx.Module):
        net: Any

        def __call__(self, t: Any, y: Any) -> Any:
            return self.net(y) - jnp.sin(t)

    net = eqx.nn.MLP(2, 2, 4, 1, key=jax.random.key(0))  # its activations are leaves that are no arrays
    model = NeuralFODE(Field(net), LearnableOrder(0.6), step=0.25)
    moving, still = eqx.partition(model, eqx.is_inexact_array)
    value_of = eqx.filter_jit(mean_square)
    assert float(value_of(eqx.combine(moving, still))) == float(value_of(model))
    slopes = eqx.filter_jit(eqx.filter_grad(mean_square))(model)
    assert isinstance(slopes, NeuralFODE)
    up, down = (eqx.tree_at(lambda m: m.alpha.rho, model, model.alpha.rho + by) for by in (1e-2, -1e-2))
    quotient = float(value_of(up) - value_of(down)) / 2e-2
    assert float(slopes.alpha.rho) == pytest.approx(quotient, rel=2e-2)
    assert float(abs(slopes.func.net.layers[0].weight).max()) > 0.0
    optimizer = optax.adam(1e-2)
    state = optimizer.init(moving)

    @eqx.filter_jit
    def train(model: Any, state: Any) -> tuple[Any, Any, Any]:
        value, slopes = eqx.filter_value_and_grad(mean_square)(model)
        changes, state = optimizer.update(slopes, state)
        return eqx.apply_updates(model, changes), state, value

    values = []
    for _ in range(3):
        model, state, value = train(model, state)
        values.append(float(value))
    assert values[2] < values[0]


def test_flax_modules_are_functions_too():
    """Linen with its parameters as ``args``; an NNX module as it is."""
    flax = pytest.importorskip("flax")
    from flax import linen, nnx

    assert flax.__version__
    net = linen.Dense(2)
    params = net.init(jax.random.key(0), jnp.ones(2))
    by_linen = NeuralFODE(lambda t, y, p: jnp.tanh(net.apply(p, y)), 0.6, step=0.25)
    slopes = jax.grad(lambda p: (by_linen(jnp.ones(2), TIMES, args=(p,)) ** 2).sum())(params)
    assert float(jnp.abs(slopes["params"]["kernel"]).max()) > 0.0

    class Field(nnx.Module):
        def __init__(self) -> None:
            self.linear = nnx.Linear(2, 2, rngs=nnx.Rngs(0))

        def __call__(self, t: Any, y: Any) -> Any:
            return jnp.tanh(self.linear(y))

    model = NeuralFODE(Field(), 0.6, step=0.25)
    found = jax.tree.leaves(jax.grad(mean_square, allow_int=True)(model))
    assert len(found) == 3 and all(bool(jnp.isfinite(each).all()) for each in found)


def test_a_jitted_layer_makes_no_matrix():
    """Of 1,000 points and 3 rows: its gradient took 18 times that of transforms by hand."""
    from hpfracc.ml.jax import FractionalDerivative

    layer, x = FractionalDerivative(LearnableOrder(0.5)), jnp.ones((3, 1000))
    program = str(jax.make_jaxpr(jax.grad(lambda one, x: (one(x) ** 2).sum()))(layer, x))
    assert "fft" in program and "1000,1000" not in program


@pytest.mark.parametrize("make", [fractional_adam, fractional_sgd, fractional_gradient_flow])
def test_learning_rates_of_optax(make: Any):
    """A number, a schedule, and ``inject_hyperparams`` of either; the order cannot be traced."""
    optax = pytest.importorskip("optax")

    def trained(optimizer: Any) -> float:
        x = jnp.ones(2)
        state, update = optimizer.init(x), jax.jit(optimizer.update)
        for _ in range(4):
            changes, state = update(2.0 * x, state, x)
            x = x + changes
        return float(x[0])

    falling = optax.exponential_decay(0.1, 1, 0.5)
    constant = trained(make(0.1))
    assert trained(make(optax.constant_schedule(0.1))) == pytest.approx(constant, rel=1e-6)
    assert trained(optax.inject_hyperparams(make)(learning_rate=0.1)) == pytest.approx(constant, rel=1e-5)
    assert trained(make(falling)) > constant
    injected = optax.inject_hyperparams(make)(learning_rate=falling)
    assert trained(injected) == pytest.approx(trained(make(falling)), rel=1e-5)
    with pytest.raises(ValueError, match="static_args"):
        trained(optax.inject_hyperparams(make)(learning_rate=0.1, fractional_order=0.7))
    fixed = optax.inject_hyperparams(make, static_args=("fractional_order",))
    assert trained(fixed(learning_rate=0.1, fractional_order=0.7)) == pytest.approx(trained(make(0.1, 0.7)), rel=1e-5)


@pytest.mark.parametrize("count", [2, 11, 50])
@pytest.mark.parametrize(("length", "rtol"), [(1.0, 1e-3), (10.0, 1e-3), (10.0, 1e-6)])
def test_evaluations_of_dopri5(length: float, rtol: float, count: int):
    """At order 1 the adaptive solve needs at most three times the evaluations of torchdiffeq's default.

    An output time ends no step.
    """
    torch = pytest.importorskip("torch")
    odeint = pytest.importorskip("torchdiffeq").odeint
    from hpfracc.ml import NeuralFODE as OfTorch

    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2)).double()
    calls = [0]

    class Field(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, t: Any, y: Any) -> Any:
            calls[0] += 1
            return self.net(y)

    field = Field()

    y0, t = torch.randn(8, 2, dtype=torch.float64), torch.linspace(0.0, length, count, dtype=torch.float64)
    with torch.no_grad():
        theirs = odeint(field, y0, t, rtol=rtol, atol=1e-3 * rtol)
        most, calls[0] = 3 * calls[0], 0
        ours = OfTorch(field, 1.0, rtol=rtol, atol=1e-3 * rtol)(y0, t)
    assert calls[0] <= most
    np.testing.assert_allclose(ours, theirs, rtol=10 * rtol, atol=10 * rtol)


def test_a_fourier_order_under_checkpoint_and_scan():
    """The derivative is traced outside the scope of double precision in which the phases are made."""
    from hpfracc.ml.jax import FractionalFourier

    layer, x = FractionalFourier(LearnableOrder(0.5)), jnp.linspace(0.0, 1.0, 8)

    def loss(layer: Any) -> Any:
        return jnp.abs(layer(x)).sum()

    def scanned(layer: Any) -> Any:
        return jax.lax.scan(lambda total, _: (total + loss(layer), None), jnp.zeros(()), None, length=2)[0]

    plain = float(jax.grad(loss)(layer).order.rho)
    assert float(jax.grad(jax.checkpoint(loss))(layer).order.rho) == pytest.approx(plain, rel=1e-4)
    assert float(jax.grad(scanned)(layer).order.rho) == pytest.approx(2.0 * plain, rel=1e-4)


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_half_precision(kind: str):
    """The derivative in float32, rounded to the precision of the samples."""
    from hpfracc.ml.jax import FractionalConv1d, FractionalDerivative

    x = jnp.linspace(0.0, 1.0, 32).reshape(1, 2, 16)
    found = FractionalDerivative(0.5)(x.astype(kind))
    assert str(found.dtype) == kind
    np.testing.assert_allclose(found.astype("float32"), FractionalDerivative(0.5)(x), rtol=0.03, atol=0.03)
    assert FractionalConv1d(2, 3, 3, 0.5, key=jax.random.key(0))(x.astype(kind)).shape == (1, 3, 14)


def test_captured_states_of_stochastic_paths():
    """A state for each path, known under ``jit``."""
    from hpfracc import solve_fsde

    y0 = jnp.ones((2, 1))

    def paths(key: Any) -> Any:
        return solve_fsde(
            lambda t, y: -y, lambda t, y: 0.1 * y, (0.0, 1.0), y0, step=0.25, paths=2, key=key, interpretation="ito"
        ).y

    assert jax.jit(paths)(jax.random.key(0)).shape == (2, 1, 5)

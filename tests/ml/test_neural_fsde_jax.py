"""Neural stochastic equations in JAX: the paths and gradients of PyTorch, pytrees, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hpfracc.errors import InvalidInputError, PinnedBackendError

jax = pytest.importorskip("jax")
from hpfracc.ml.jax import LearnableOrder, NeuralFSDE  # noqa: E402
from hpfracc.ml.neural_equations import simulate  # noqa: E402
from hpfracc.ml.path_losses import energy_score, signature_kernel, signature_mmd  # noqa: E402

TIMES = [0.0, 0.5, 1.0]
KERNEL = np.array([[0.3, -0.8], [0.5, 0.1]])
START = np.array([[1.0, -0.5], [0.2, 0.3]])


@jax.tree_util.register_pytree_node_class
class Layer:
    """A function with an array."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel

    def tree_flatten(self) -> tuple[tuple[Any], None]:
        return (self.kernel,), None

    @classmethod
    def tree_unflatten(cls, static: None, children: tuple[Any]) -> Layer:
        return cls(*children)

    def __call__(self, t: Any, y: Any) -> Any:
        return jax.numpy.tanh(y @ self.kernel)


def strength(t: Any, y: Any) -> Any:
    return 0.3 + 0.2 * jax.numpy.sin(y)


def in_torch(options: dict[str, Any], name: str, value: float) -> tuple[Any, list[Any]]:
    """A loss, and its gradients in the drift's array, the order and the initial values."""
    torch = pytest.importorskip("torch")
    from hpfracc.ml import NeuralFSDE as InTorch

    given = [torch.tensor(each, dtype=torch.float64, requires_grad=True) for each in (KERNEL, value, START)]
    kernel, order, y0 = given
    model = InTorch(
        lambda t, y: torch.tanh(y @ kernel),
        lambda t, y: 0.3 + 0.2 * torch.sin(y),
        step=0.25,
        **{**options, name: order},
    )
    loss = model(y0, TIMES, rng=3).square().sum()
    return loss, list(torch.autograd.grad(loss, given))


CASES = [
    pytest.param({"model": "markov"}, "H", 0.7, id="markov"),
    pytest.param({"model": "volterra"}, "alpha", 0.7, id="volterra", marks=pytest.mark.slow),
    pytest.param({"model": "fbm"}, "H", 0.7, id="fbm", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("options", "name", "value"), CASES)
def test_paths_and_gradients_are_those_of_torch(options: dict[str, Any], name: str, value: float):
    """With the same noise, to 1e-12."""
    expected, slopes = in_torch(options, name, value)
    with jax.enable_x64(True):

        def loss(kernel: Any, order: Any, y0: Any) -> Any:
            model = NeuralFSDE(Layer(kernel), strength, step=0.25, **{**options, name: order})
            functions = (model.drift, model.diffusion, None)
            return (simulate(model.spec, functions, y0, TIMES, model.order(), rng=3)[0] ** 2).sum()

        given = (jax.numpy.array(KERNEL), jax.numpy.array(value), jax.numpy.array(START))
        found, gradients = jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2)))(*given)
    assert float(found) == pytest.approx(expected.item(), rel=1e-12)
    for one, two in zip(gradients, slopes, strict=True):
        np.testing.assert_allclose(one, two.numpy(), rtol=1e-11, atol=1e-12)


@pytest.mark.slow
def test_bound_and_losses_under_jit():
    """As a pytree under jit and grad with a traced key: ``"stored"`` is ``"direct"``, against differences in H."""
    with jax.enable_x64(True):

        def bound(model: Any, gain: Any, key: Any) -> Any:
            control = lambda t, y, factors: gain * y + factors.sum(-1)  # noqa: E731
            data = jax.numpy.ones((3, 2, 2))
            return model.elbo(jax.numpy.array(START), TIMES, data, control, key=key, scale=0.5, samples=3).sum()

        key = jax.random.key(0)
        gradient = jax.jit(jax.grad(bound, argnums=(0, 1)))

        def make(hurst: Any, adjoint: str) -> Any:
            strong = jax.numpy.array([0.2, 0.3])
            return NeuralFSDE(
                Layer(jax.numpy.array(KERNEL)),
                strong,
                "markov",
                H=hurst,
                noise="additive",
                step=0.25,
                adjoint=adjoint,
            )

        pair = [gradient(make(LearnableOrder(0.3), adjoint), 1.0, key) for adjoint in ("direct", "stored")]
        for one, two in zip(*map(jax.tree.leaves, pair), strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-11)
        values = [
            float(jax.jit(bound)(make(jax.numpy.array(0.3 + move), "direct"), 1.0, key)) for move in (1e-5, -1e-5)
        ]
        assert float(pair[0][0].order.rho) == pytest.approx(0.21 * (values[0] - values[1]) / 2e-5, rel=1e-6)


@pytest.mark.slow
def test_nothing_is_kept_between_the_passes():
    """What a backward pass is given does not grow with the steps: the noise is drawn again from its key."""
    kept = {}
    for adjoint in ("direct", "stored"):
        sizes = []
        for steps in (4, 8):

            def loss(rate: Any, steps: int = steps, adjoint: str = adjoint) -> Any:
                model = NeuralFSDE(
                    lambda t, y: -rate * y, lambda t, y: rate * y, alpha=0.7, step=1 / steps, adjoint=adjoint
                )
                return model(jax.numpy.ones((50, 1)), [0.0, 1.0], key=jax.random.key(1)).sum()

            back = jax.vjp(loss, jax.numpy.asarray(0.5))[1]
            sizes.append(sum(each.nbytes for each in jax.tree_util.tree_leaves(back)))
        kept[adjoint] = (sizes[1] - sizes[0]) / (
            50 * 4 * jax.numpy.ones(()).nbytes
        )  # in what 4 more steps have as noise
    assert kept["direct"] > 1.0
    assert kept["stored"] < 0.5


def test_within_an_equinox_module():
    """A network of Equinox's as the drift: its arrays get gradients, its functions are static."""
    equinox = pytest.importorskip("equinox")

    class Drift(equinox.Module):
        net: Any

        def __call__(self, t: Any, y: Any) -> Any:
            return jax.vmap(self.net)(y)

    class Whole(equinox.Module):
        paths: NeuralFSDE
        start: Any

        def __call__(self, key: Any) -> Any:
            return self.paths(self.start, TIMES, key=key)

    net = equinox.nn.MLP(2, 2, 4, 1, activation=jax.numpy.tanh, key=jax.random.key(0))
    order = LearnableOrder(0.7, bounds=(0.5, 1.0))
    whole = Whole(NeuralFSDE(Drift(net), strength, alpha=order, step=0.25), jax.numpy.ones((3, 2)))
    slopes = equinox.filter_jit(equinox.filter_grad(lambda one, key: (one(key) ** 2).sum()))(whole, jax.random.key(1))
    for each in (slopes.paths.drift.net.layers[0].weight, slopes.paths.order.rho, slopes.start):
        assert bool((each != 0).all() and jax.numpy.isfinite(each).all())


@pytest.mark.slow
def test_rough_multiplicative_noise_that_is_traced_gives_nan():
    """An H that JAX traces has no value to refuse."""

    def last(hurst: Any) -> Any:
        model = NeuralFSDE(lambda t, y: -y, strength, "markov", H=hurst, step=0.25)
        return model(jax.numpy.ones((2, 1)), TIMES, key=jax.random.key(1))

    assert np.isnan(jax.jit(last)(0.3)).all() and np.isfinite(jax.jit(last)(0.6)).all()


def test_kernels_are_those_of_torch():
    """Paths of different lengths, to 1e-12."""
    torch = pytest.importorskip("torch")
    from hpfracc.ml import path_losses

    generator = np.random.default_rng(0)
    x, y = generator.standard_normal((2, 4, 2)), generator.standard_normal((1, 3, 2))
    with jax.enable_x64(True):
        found = jax.jit(signature_kernel)(jax.numpy.array(x), jax.numpy.array(y))
    expected = path_losses.signature_kernel(torch.tensor(x), torch.tensor(y))
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-12)


@pytest.mark.slow
def test_losses_are_those_of_torch():
    """Energy score and discrepancy with their gradients, to 1e-12."""
    torch = pytest.importorskip("torch")
    from hpfracc.ml import path_losses

    generator = np.random.default_rng(0)
    x, y = generator.standard_normal((3, 4, 2)), generator.standard_normal((2, 3, 2))
    with jax.enable_x64(True):

        def loss(x: Any) -> Any:
            return signature_mmd(x, jax.numpy.array(y), width=1.5) + energy_score(x, x[0] ** 2, event=2)

        found, slope = jax.jit(jax.value_and_grad(loss))(jax.numpy.array(x))
    own = torch.tensor(x, requires_grad=True)
    expected = path_losses.signature_mmd(own, torch.tensor(y), width=1.5) + path_losses.energy_score(
        own, own[0] ** 2, event=2
    )
    expected.backward()
    assert float(found) == pytest.approx(expected.item(), rel=1e-12)
    np.testing.assert_allclose(slope, own.grad.numpy(), rtol=1e-10, atol=1e-12)


def test_what_is_refused():
    """Before anything is compiled."""
    with pytest.raises(InvalidInputError, match="multiplicative noise"):
        NeuralFSDE(lambda t, y: -y, strength, "fbm", H=0.3, step=0.25)(
            jax.numpy.ones((2, 1)), TIMES, key=jax.random.key(0)
        )
    model = NeuralFSDE(lambda t, y: -y, 0.3, alpha=0.75, noise="additive", step=0.25)
    torch = pytest.importorskip("torch")
    with pytest.raises(PinnedBackendError, match=r"ml\.torch"):
        model(torch.ones(2, 1), TIMES, key=jax.random.key(0))
    with pytest.raises(InvalidInputError, match="not a JAX array"):
        model(np.ones((2, 1)), TIMES, key=jax.random.key(0))

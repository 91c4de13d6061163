"""Neural stochastic equations with memory: known laws, pathwise gradients, bounds of the likelihood, bad input."""

from __future__ import annotations

import gc
import math
import warnings
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc import noise
from hpfracc.errors import InvalidInputError, PinnedBackendError, ShapeError, SolveError

torch = pytest.importorskip("torch")
from torch.multiprocessing.reductions import StorageWeakRef  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

from hpfracc.ml import LearnableOrder, NeuralFODE, NeuralFSDE  # noqa: E402
from tests.helpers.thinned import thinned  # noqa: E402

#: Networks are captured by functions here, and optimised on their own.
pytestmark = pytest.mark.filterwarnings("ignore:.* calls a module:UserWarning")

TIMES = [0.0, 0.5, 1.0]
MODELS: list[dict[str, Any]] = [
    {"model": "volterra", "alpha": 0.7},
    {"model": "fbm", "H": 0.7},
    {"model": "markov", "H": 0.7},
]


def tensor(values: Any) -> Any:
    return torch.tensor(values, dtype=torch.float64)


def still(t: Any, y: Any) -> Any:
    return 0.0 * y


def decay(t: Any, y: Any) -> Any:
    return -y


def strength(t: Any, y: Any) -> Any:
    return 0.3 + 0.2 * torch.sin(y)


@pytest.mark.parametrize(
    ("options", "sets"),
    [
        ({"model": "volterra", "alpha": 1.0}, 1),
        ({"model": "volterra", "alpha": torch.tensor(1.0, dtype=torch.float64)}, 2),
        ({"model": "fbm", "H": 0.5, "interpretation": "ito"}, 1),
        ({"model": "markov", "H": 0.5}, 2),
    ],
)
def test_euler_and_maruyama_at_order_one(options: dict[str, Any], sets: int):
    """Each model on the increments of its own Brownian motion, to 1e-12."""
    model = NeuralFSDE(decay, strength, step=0.125, **options)
    found = model(tensor([[1.0, -0.5], [0.2, 0.3], [0.0, 2.0]]), np.linspace(0.0, 1.0, 9), rng=4)
    motion = noise.Brownian().sample(np.linspace(0.0, 1.0, 9), size=3 * sets * 2, rng=4).reshape(3, sets * 2, 9)
    y = np.array([[1.0, -0.5], [0.2, 0.3], [0.0, 2.0]])
    for index, dw in enumerate(np.moveaxis(np.diff(motion[:, :2]), -1, 0)):
        np.testing.assert_allclose(found[index].numpy(), y, rtol=1e-12, atol=1e-13)
        y = y - 0.125 * y + (0.3 + 0.2 * np.sin(y)) * dw


@pytest.mark.parametrize(
    ("drift", "options", "exact"),
    [
        (decay, {"alpha": 0.75}, 0.606029),
        (still, {"alpha": 0.75}, 1.331872),
        (still, {"model": "fbm", "H": 0.2}, 1.0),
        (still, {"model": "markov", "H": 0.2}, 1.0),
    ],
)
@thinned(one_in=2)
def test_known_variances(drift: Any, options: dict[str, Any], exact: float):
    """At t = 1 with unit noise, within 4 standard errors; an ignored order misses all but the last two by far."""
    model = NeuralFSDE(drift, 1.0, noise="additive", step=0.02, **options)
    values = model(tensor([0.0]), [0.0, 1.0], samples=10_000, rng=1)[-1]
    assert values.var().item() == pytest.approx(exact, rel=4 * math.sqrt(2 / 10_000))


@pytest.mark.parametrize("options", MODELS, ids=lambda options: options["model"])
@pytest.mark.parametrize("kind", ["additive", "diagonal", "general"])
def test_gradients_are_those_of_the_paths(options: dict[str, Any], kind: str):
    """In initial values, a parameter of each function, and the order, against differences with the same noise."""
    name = "alpha" if "alpha" in options else "H"

    def paths(y0: Any, rate: Any, size: Any, order: Any) -> Any:
        if kind == "additive":
            strong: Any = size
        elif kind == "diagonal":
            strong = lambda t, y: size * torch.cos(y)  # noqa: E731
        else:
            strong = lambda t, y: torch.stack([size * torch.cos(y), y.flip(-1), y], -1)  # noqa: E731
        model = NeuralFSDE(lambda t, y: -rate * y, strong, noise=kind, step=0.5, **{**options, name: order})
        return model(y0, TIMES, rng=2)

    given = [tensor(value).requires_grad_() for value in ([[1.0, -0.3]], 1.3, 0.4, options[name])]
    assert torch.autograd.gradcheck(paths, given, atol=1e-7, rtol=1e-5)


@pytest.mark.parametrize("options", [{}, {"model": "markov"}, {"model": "fbm"}], ids=["volterra", "markov", "fbm"])
def test_stored_is_direct(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch):
    """Steps are run again along noise that is drawn again, also with Dropout; over several blocks, up to rounding."""
    from hpfracc.ml.torch import neural_fsde

    monkeypatch.setattr(neural_fsde, "BLOCK", 3)
    found = []
    for adjoint in ("direct", "stored"):
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(2, 5), torch.nn.Dropout(0.3), torch.nn.Linear(5, 2)).double()
        order = LearnableOrder(0.7, bounds=(0.5, 1.0))
        name = "H" if options else "alpha"
        model = NeuralFSDE(
            lambda t, y, net=net: net(y), strength, step=0.125, adjoint=adjoint, **options, **{name: order}
        )
        model(torch.ones(3, 2, dtype=torch.float64), TIMES, rng=1).square().sum().backward()
        found.append([order.rho.grad, *(each.grad for each in net.parameters())])
    for one, two in zip(*found, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-12, atol=1e-14)


class Alive(TorchDispatchMode):  # type: ignore[misc]
    """Bytes of the tensors that were made under it and are still there."""

    def __init__(self) -> None:
        super().__init__()
        self._made: dict[int, tuple[Any, int]] = {}

    def __torch_dispatch__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = function(*args, **(kwargs or {}))
        for each in tree_leaves(found):
            if isinstance(each, torch.Tensor):
                storage = each.untyped_storage()
                self._made[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())
        return found

    @property
    def bytes(self) -> int:
        """Now."""
        return sum(size for storage, size in self._made.values() if not storage.expired())


def test_stored_keeps_neither_activations_nor_noise():
    """Of a wide hidden layer, with an order that learns: the paths, and the 60 numbers of a state once in 32 steps."""
    kept: dict[str, float] = {}
    paths, steps = 20, 64
    for adjoint in ("direct", "stored"):
        net = torch.nn.Sequential(torch.nn.Linear(1, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1)).double()
        order = LearnableOrder(0.7, bounds=(0.5, 1.0))
        model = NeuralFSDE(lambda t, y, net=net: net(y), strength, alpha=order, step=1 / steps, adjoint=adjoint)
        y0 = torch.ones(paths, 1, dtype=torch.float64)
        with Alive() as alive:
            found = model(y0, [0.0, 1.0], rng=1)
            gc.collect()
            kept[adjoint] = alive.bytes / (8.0 * paths * (steps + 1))
        found.sum().backward()
    assert kept["direct"] > 50.0
    assert kept["stored"] < 4.0  # the noise alone, of two sets, is 2


def test_stratonovich_s_integral_at_one_half():
    """dX = X o dW is exp(W): the default is a method that converges to it, and not Euler's."""
    grid = np.linspace(0.0, 1.0, 257)
    model = NeuralFSDE(still, lambda t, y: y, "fbm", H=0.5, interpretation="stratonovich", step=1 / 256)
    found = model(torch.ones(8, 1, dtype=torch.float64), [0.0, 1.0], rng=2)[-1, :, 0]
    motion = noise.Brownian().sample(grid, size=8, rng=2)[:, -1]
    np.testing.assert_allclose(found.numpy(), np.exp(motion), rtol=0.02)


def test_numbers_keep_their_digits():
    """A diffusion that is a plain number is not rounded to single precision."""
    motion = noise.Brownian().sample(np.array([0.0, 1.0]), size=1, rng=1)[0, -1]
    found = NeuralFSDE(still, 0.3, alpha=1.0, noise="additive", step=1.0)(tensor([[0.0]]), [0.0, 1.0], rng=1)
    assert found[-1].item() == pytest.approx(0.3 * motion, rel=1e-14)


def ornstein_uhlenbeck(control: Any, step: float, samples: int) -> tuple[Any, float]:
    """Bounds of single paths for dX = -X dt + dW from 0, observed as 1 at t = 1 with error 1/2; and the likelihood."""
    model = NeuralFSDE(decay, 1.0, "fbm", H=0.5, noise="additive", step=step)
    data = torch.ones(2, samples, 1, dtype=torch.float64)

    def log_prob(x: Any, target: Any) -> Any:
        at_end = torch.distributions.Normal(x[1:], 0.5).log_prob(target[1:])[..., 0]
        return torch.cat([torch.zeros_like(at_end), at_end])

    bounds = model.elbo(
        torch.zeros(samples, 1, dtype=torch.float64), [0.0, 1.0], data, control, log_prob=log_prob, rng=3
    )
    steps, a = round(1 / step), 1.0 - step
    variance = 0.25 + step * sum(a ** (2 * k) for k in range(steps))
    return bounds, -0.5 * math.log(2 * math.pi * variance) - 0.5 / variance


def test_bound_with_a_constant_control():
    """The closed form for the discrete steps, within 4 standard errors."""
    bounds, likelihood = ornstein_uhlenbeck(lambda t, y: torch.full_like(y, 0.7), 0.125, 4000)
    a = 1.0 - 0.125
    mean = 0.7 * 0.125 * sum(a**k for k in range(8))
    variance = 0.125 * sum(a ** (2 * k) for k in range(8))
    exact = -0.5 * math.log(2 * math.pi * 0.25) - 2.0 * ((1.0 - mean) ** 2 + variance) - 0.5 * 0.7**2
    assert abs(bounds.mean().item() - exact) < 4 * bounds.std().item() / math.sqrt(4000)
    assert bounds.mean().item() < likelihood


def test_bound_with_the_best_control():
    """The gradient of the log-likelihood to come, times the diffusion, reaches the log-likelihood for small steps."""

    def best(t: Any, y: Any) -> Any:
        fade = math.exp(-(1.0 - t))
        return fade * (1.0 - fade * y) / (0.25 + 0.5 * (1.0 - fade**2))

    bounds, likelihood = ornstein_uhlenbeck(best, 0.02, 8000)
    error = bounds.std().item() / math.sqrt(8000)
    assert error < 0.015
    assert abs(bounds.mean().item() - likelihood) < 0.01 + 4 * error
    idle, _ = ornstein_uhlenbeck(still, 0.02, 8000)
    assert idle.mean().item() < likelihood - 0.3


def test_bound_of_the_markov_model_learns():
    """Gradients reach drift, diffusion, H, control and scale; the control sees the past of the noise."""
    seen = []
    gain = tensor([0.1] * 8).requires_grad_()
    scale = tensor(0.3).requires_grad_()
    size = torch.nn.Parameter(tensor([0.5]))
    model = NeuralFSDE(decay, size, "markov", H=LearnableOrder(0.3), noise="additive", step=0.25)

    def control(t: Any, y: Any, factors: Any) -> Any:
        seen.append(tuple(factors.shape))
        return factors @ gain

    data = torch.ones(3, 4, 1, dtype=torch.float64)
    bounds = model.elbo(torch.zeros(4, 1, dtype=torch.float64), TIMES, data, control, scale=scale, samples=6, rng=1)
    assert bounds.shape == (4,) and set(seen) == {(24, 1, 8)}
    bounds.sum().backward()
    for each in (gain, scale, size, model.order.rho):
        assert each.grad is not None and bool((each.grad != 0).any()) and bool(each.grad.isfinite().all())


def test_samples_seeds_and_state():
    """Axes of samples, the same paths by the same seed or number, new ones without, and a state_dict."""
    model = NeuralFSDE(decay, strength, alpha=LearnableOrder(0.8, bounds=(0.5, 1.0)), step=0.25)
    y0 = torch.ones(2, 3, 1, dtype=torch.float64)
    with torch.no_grad():
        found = model(y0, TIMES, samples=4, rng=7)
        assert found.shape == (3, 4, 2, 3, 1)
        torch.testing.assert_close(model(y0, TIMES, rng=7, first_path=6), found[:, 1], rtol=0, atol=1e-14)
        torch.manual_seed(1)
        one, two = model(y0, TIMES), model(y0, TIMES)
        torch.manual_seed(1)
        assert torch.equal(model(y0, TIMES), one) and not torch.equal(one, two)
    other = NeuralFSDE(decay, strength, alpha=LearnableOrder(0.6, bounds=(0.5, 1.0)), step=0.25)
    other.load_state_dict(model.state_dict())
    assert "model='volterra', alpha=0.8, noise='diagonal', step=0.25" in repr(other)
    assert model(torch.ones(2, 1), TIMES).dtype == torch.float32


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model": "rough", "alpha": 0.7}, "use 'volterra'"),
        ({"alpha": 0.7, "noise": "white"}, "use 'additive'"),
        ({"H": 0.7}, "takes alpha="),
        ({"model": "markov", "alpha": 0.7}, "takes H="),
        ({"model": "fbm", "H": 0.3}, "multiplicative noise"),
        ({"model": "markov", "H": 0.3}, "multiplicative noise"),
        ({"model": "fbm", "H": 1.2}, "between 0 and 1"),
        ({"model": "fbm", "H": 0.5}, "interpretation='ito' or 'stratonovich'"),
        ({"alpha": 0.4}, "above 1/2"),
        ({"alpha": 0.7, "interpretation": "stratonovich"}, "leave method="),
        ({"alpha": 0.7, "step": 0.0}, "above 0"),
        ({"alpha": 0.7, "step": 0.3}, "whole number of steps"),
        ({"alpha": 0.7, "adjoint": "continuous"}, "use 'direct'"),
        ({"model": "markov", "H": 0.7, "factors": 1}, "at least 2 and at most 16"),
        ({"alpha": 0.7, "noise": "additive"}, "takes numbers or a tensor"),
    ],
)
def test_what_is_refused(options: dict[str, Any], words: str):
    """With the value and what to use."""
    diffusion = (lambda: strength) if options.get("noise") == "additive" else strength
    with pytest.raises(InvalidInputError, match=words):
        NeuralFSDE(decay, diffusion, **{"step": 0.25, **options})(torch.ones(2, 1), TIMES)


def test_shapes_and_owners_that_are_refused():
    """Diffusions of another kind, orders and controls of another shape, and arrays of NumPy."""
    y0 = torch.ones(2, 2)
    with pytest.raises(ShapeError, match="noise='general'"):
        NeuralFSDE(decay, strength, alpha=0.7, noise="general", step=0.25)(y0, TIMES)
    with pytest.raises(ShapeError, match="give one"):
        NeuralFSDE(decay, strength, alpha=[0.7, 0.8], step=0.25)
    model = NeuralFSDE(decay, 1.0, alpha=0.7, noise="additive", step=0.25)
    with pytest.raises(InvalidInputError, match="not a PyTorch tensor"):
        model(np.ones((2, 2)), TIMES)
    with pytest.raises(InvalidInputError, match="increasing"):
        model(y0, [0.0, 0.5, 0.25])
    with pytest.raises(InvalidInputError, match="samples=0"):
        model(y0, TIMES, samples=0)
    data = torch.ones(3, 2, 2)
    with pytest.raises(ShapeError, match="for each path and noise"):
        model.elbo(y0, TIMES, data, lambda t, y: y[:, :1], scale=1.0)
    with pytest.raises(InvalidInputError, match="not positive"):
        model.elbo(y0, TIMES, data, still, scale=-1.0)
    with pytest.raises(InvalidInputError, match="either scale="):
        model.elbo(y0, TIMES, data, still)
    with pytest.raises(ShapeError, match="data has shape"):
        model.elbo(y0, TIMES, data[0], still, scale=1.0)
    with pytest.raises(InvalidInputError, match="use model='markov'"):
        NeuralFSDE(decay, 1.0, "fbm", H=0.7, noise="additive", step=0.25).elbo(y0, TIMES, data, still, scale=1.0)
    jax = pytest.importorskip("jax")
    with pytest.raises(PinnedBackendError, match=r"ml\.jax"):
        model(jax.numpy.ones((2, 2)), TIMES)


def test_a_square_root_of_a_negative_state():
    """The error says which function, at which step and state."""
    model = NeuralFSDE(still, lambda t, y: torch.sqrt(y), "fbm", H=0.5, interpretation="ito", step=0.1)
    with pytest.raises(SolveError, match=r"diffusion of path \d is nan at step \d+, t=.*square root"):
        model(torch.full((8, 1), 0.01), [0.0, 1.0], rng=0)


def test_a_single_number_is_a_drift_or_a_diffusion():
    """It holds for all components, as a number, a scalar tensor or a parameter."""
    y0, times = torch.ones(3, 2, dtype=torch.float64), torch.linspace(0.0, 1.0, 3)

    def paths(drift: Any, diffusion: Any) -> Any:
        model = NeuralFSDE(lambda t, y: drift, lambda t, y: diffusion, alpha=0.75, step=0.25)
        return model(y0, times, rng=1)

    whole = torch.full((1, 2), 0.3, dtype=torch.float64)
    drifts = torch.full((1, 2), 0.5, dtype=torch.float64)
    model = NeuralFSDE(lambda t, y: drifts.expand(y.shape), lambda t, y: whole.expand(y.shape), alpha=0.75, step=0.25)
    right = model(y0, times, rng=1)
    size = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    for strength in (0.3, np.float64(0.3), size):
        torch.testing.assert_close(paths(0.5, strength), right, rtol=0, atol=1e-15)
    paths(0.5, size).sum().backward()
    assert size.grad.isfinite()
    found = hf.solve_fsde(
        lambda t, y: -y,
        lambda t, y: 0.3,
        (0.0, 1.0),
        np.ones(2),
        alpha=0.75,
        step=0.25,
        paths=3,
        rng=1,
        interpretation="ito",
    )
    same = hf.solve_fsde(
        lambda t, y: -y,
        lambda t, y: 0.3 + 0.0 * y,
        (0.0, 1.0),
        np.ones(2),
        alpha=0.75,
        step=0.25,
        paths=3,
        rng=1,
        interpretation="ito",
    )
    np.testing.assert_array_equal(found.y, same.y)


def test_a_module_that_a_function_calls_is_named():
    """Its parameters are not those of the layer: an optimiser would not train it."""
    net = torch.nn.Linear(2, 2)
    with pytest.warns(UserWarning, match="drift calls a module, Linear, whose 6 parameters are not among"):
        NeuralFSDE(lambda t, y: net(y), 0.3, alpha=0.75, noise="additive", step=0.1)
    with pytest.warns(UserWarning, match="func calls a module, Linear"):
        NeuralFODE(lambda t, y: net(y), 0.7, step=0.1)

    class Drift(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, t: Any, y: Any) -> Any:
            return self.net(y)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = NeuralFSDE(Drift(), 0.3, alpha=0.75, noise="additive", step=0.1)
        frozen = torch.nn.Linear(2, 2).requires_grad_(False)
        NeuralFODE(lambda t, y: frozen(y), 0.7, step=0.1)
    assert len(list(model.parameters())) == 2


def test_stored_gradients_twice_along_one_graph():
    """A graph that is kept is recomputed again, with the same noise."""
    y0 = torch.ones(2, 1, dtype=torch.float64, requires_grad=True)
    model = NeuralFSDE(decay, strength, alpha=0.75, step=0.25, adjoint="stored")
    total = model(y0, TIMES, rng=1).square().sum()
    (first,) = torch.autograd.grad(total, y0, retain_graph=True)
    assert torch.equal(torch.autograd.grad(total, y0)[0], first)


def test_late_times_between_two_steps_are_refused():
    """Half a step off is no rounding, unless the times have single precision."""
    model = NeuralFSDE(decay, 0.3, alpha=0.75, noise="additive", step=1e-3)
    with pytest.raises(InvalidInputError, match="whole number of steps"):
        model(torch.ones(1, 1), [1000.0, 1000.0005])
    assert model(torch.ones(1, 1), torch.tensor([1000.0, 1000.004], dtype=torch.float32)).shape == (2, 1, 1)

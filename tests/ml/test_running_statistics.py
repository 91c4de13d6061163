"""Buffers of modules in neural equations: changed by the forward pass, once an evaluation, and by nothing else."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import hpfracc as hf
from tests.helpers.thinned import thinned

torch = pytest.importorskip("torch")
from hpfracc.ml import NeuralFODE, NeuralFSDE  # noqa: E402

#: Networks are captured by functions here, and optimised on their own.
pytestmark = pytest.mark.filterwarnings("ignore:.* calls a module:UserWarning")

F64 = torch.float64
ADJOINTS = ("direct", "recomputed", "stored")


def network() -> Any:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(3, 6), torch.nn.BatchNorm1d(6), torch.nn.Tanh(), torch.nn.Linear(6, 3)]
    return torch.nn.Sequential(*layers).double()


class Timed(torch.nn.Module):
    """A network that is called with the time."""

    def __init__(self, net: Any) -> None:
        super().__init__()
        self.net = net

    def forward(self, t: Any, y: Any, *args: Any) -> Any:
        """Of the state alone."""
        return self.net(y)


def trained(func: Any, net: Any, adjoint: str | None, method: str = "pece", steps: int = 20) -> list[Any]:
    """Buffers and gradients after a forward and a backward pass."""
    y0 = torch.linspace(-1.0, 1.0, 15, dtype=F64).reshape(5, 3).requires_grad_()
    order = torch.nn.Parameter(torch.tensor(0.6, dtype=F64))
    y = NeuralFODE(func, order, method, 1.0 / steps, adjoint=adjoint)(y0, [0.0, 0.5, 1.0])
    found = torch.autograd.grad(y.square().sum(), [y0, order, *net.parameters()])
    return [{name: each.clone() for name, each in net.named_buffers()}, *found]


@pytest.mark.parametrize("steps", [12, 70])
@pytest.mark.parametrize(("method", "evaluations"), [("pece", 2), ("explicit_rectangle", 1)])
@thinned(lambda method, steps: method == "pece")
def test_statistics_are_those_of_plain_autograd(method: str, evaluations: int, steps: int):
    """To rounding for all adjoints, one update for each evaluation of a step and one at the start."""
    found = {}
    for adjoint in ADJOINTS:
        net = network()
        found[adjoint] = trained(Timed(net), net, adjoint, method, steps)
    right, *slopes = found["direct"]
    assert int(right["1.num_batches_tracked"]) == 1 + evaluations * steps
    for adjoint in ("recomputed", "stored"):
        own, *gradients = found[adjoint]
        for name, each in right.items():
            torch.testing.assert_close(own[name], each, rtol=1e-12, atol=1e-14)
        for one, other in zip(slopes, gradients, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("method", ["pece", "implicit_trapezoid", "l1", "adaptive"])
def test_evaluation_mode_changes_nothing(method: str):
    """Statistics are used and stay; implicit and adaptive methods take such a network."""
    net = network()
    trained(Timed(net), net, None)
    net.eval()
    before = {name: each.clone() for name, each in net.named_buffers()}
    step = None if method == "adaptive" else 0.25
    y = NeuralFODE(Timed(net), 0.6, method, step)(torch.ones(2, 3, dtype=F64), [0.0, 1.0])
    y.square().sum().backward()
    assert net[1].weight.grad is not None
    assert all(torch.equal(each, before[name]) for name, each in net.named_buffers())


def test_gradients_in_evaluation_mode_are_one():
    """Three adjoints with the statistics of a trained network."""
    found = []
    for adjoint in ADJOINTS:
        net = network()
        trained(Timed(net), net, "direct")
        found.append(trained(Timed(net.eval()), net, adjoint)[1:])
    for gradients in found[1:]:
        for one, other in zip(found[0], gradients, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_adaptive_steps_count_the_steps_they_repeat():
    """The search for the steps and the backward pass leave the statistics alone."""
    net = network()
    y = NeuralFODE(Timed(net), 0.6, rtol=1e-2)(torch.linspace(0.0, 1.0, 15, dtype=F64).reshape(5, 3), [0.0, 0.5])
    forward = {name: each.clone() for name, each in net.named_buffers()}
    assert int(forward["1.num_batches_tracked"]) > 0
    y.square().sum().backward()
    assert all(torch.equal(each, forward[name]) for name, each in net.named_buffers())


def test_modules_among_the_arguments_and_of_tuple_states():
    """``args`` and a function of several states."""
    for adjoint in ("recomputed", "stored"):
        net = network()
        y0 = torch.linspace(-1.0, 1.0, 15, dtype=F64).reshape(5, 3)
        y = hf.fdeint(
            lambda t, y, own: own(y), y0, [0.0, 1.0], 0.6, method=hf.solvers.ode.PECE(adjoint=adjoint), step=0.25,
            args=(net,),
        )  # fmt: skip
        y.sum().backward()
        assert int(net[1].num_batches_tracked) == 9
        net = network()
        model = NeuralFODE(lambda t, y, net=net: (net(y[0]), -y[1]), 0.6, step=0.25, adjoint=adjoint)
        model((y0, y0), [0.0, 1.0])[0].sum().backward()
        assert int(net[1].num_batches_tracked) == 9


def test_values_that_depend_on_buffers_are_replayed():
    """Spectral normalisation improves its vectors in each evaluation: the recomputed steps see those of their time."""
    found = {}
    for adjoint in ("direct", "recomputed"):
        net = network()
        torch.nn.utils.parametrizations.spectral_norm(net[0])
        net = net.double()
        found[adjoint] = trained(Timed(net), net, adjoint, steps=70)
    for one, other in zip(found["direct"][1:], found["recomputed"][1:], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-13)
    for name, each in found["direct"][0].items():
        assert torch.equal(found["recomputed"][0][name], each), name


def test_a_compiled_network():
    """No warnings, no further compilation in the backward pass, and the same statistics."""
    counted = {}
    for adjoint in ADJOINTS:
        torch.compiler.reset()
        net = network()
        compiled = torch.compile(net, backend="eager")
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            warnings.filterwarnings("ignore", ".* calls a module")
            counted[adjoint], *_ = trained(lambda t, y, compiled=compiled: compiled(y), net, adjoint, steps=4)
        assert not said, [str(each.message) for each in said]
    for adjoint in ("recomputed", "stored"):
        for name, each in counted["direct"].items():
            assert torch.equal(counted[adjoint][name], each)


def test_paths_of_a_stochastic_equation():
    """The block that is run again leaves the statistics as they are."""
    found = {}
    for adjoint in ("direct", "stored"):
        net = network()
        model = NeuralFSDE(Timed(net), 0.3, alpha=0.75, noise="additive", step=0.125, adjoint=adjoint)
        x = model(torch.linspace(-1.0, 1.0, 15, dtype=F64).reshape(5, 3), [0.0, 1.0], rng=3)
        x.square().sum().backward()
        found[adjoint] = {name: each.clone() for name, each in net.named_buffers()}
    assert int(found["direct"]["1.num_batches_tracked"]) >= 8
    assert all(torch.equal(found["stored"][name], each) for name, each in found["direct"].items())

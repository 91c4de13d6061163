"""Neural fractional equations: three gradients that are one, tuple states, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

import hpfracc as hf
from hpfracc.errors import InvalidInputError, PinnedBackendError, ShapeError, SolveError
from tests.helpers.thinned import thinned

torch = pytest.importorskip("torch")
from hpfracc.ml import NeuralFODE  # noqa: E402

#: Networks are captured by functions here, and optimised on their own.
pytestmark = pytest.mark.filterwarnings("ignore:.* calls a module:UserWarning")

ADJOINTS = ("direct", "recomputed", "stored")


def network(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(3, 6), torch.nn.Tanh(), torch.nn.Linear(6, 3)).double()


def gradients(adjoint: str | None, method: Any, alpha: Any, steps: int, above: bool = False) -> list[Any]:
    """In initial values, order, an argument, and the parameters of a network, of a loss at several times."""
    net = network()
    y0 = torch.tensor([[0.3, -0.2, 0.5], [1.0, 0.1, -0.4]], dtype=torch.float64, requires_grad=True)
    order = torch.nn.Parameter(torch.tensor(alpha, dtype=torch.float64))
    raw = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    dy0 = [torch.full((2, 3), 0.2, dtype=torch.float64, requires_grad=True)] if above else None
    model = NeuralFODE(
        lambda t, y, scale: net(y) * scale + torch.sin(torch.as_tensor(t)), order, method, 1.5 / steps, adjoint=adjoint
    )
    t = torch.linspace(0.0, 1.5, 4, dtype=torch.float64)
    y = model(y0, t, args=(raw * 1.0,), dy0=dy0)
    loss = (y**2 * torch.arange(1, 5).reshape(4, 1, 1)).sum()
    return list(torch.autograd.grad(loss, [y0, order, raw, *(dy0 or []), *net.parameters()]))


@pytest.mark.parametrize("method", ["pece", "explicit_rectangle", "implicit_trapezoid", "implicit_rectangle"])
@pytest.mark.parametrize(
    ("alpha", "above"), [(0.6, False), ([0.5, 0.7, 0.9], False), (1.5, True)], ids=["one", "each", "above 1"]
)
@thinned(lambda method, alpha: alpha == 0.6 or method == "pece")
def test_three_adjoints_are_one(method: str, alpha: Any, above: bool):
    """Stored, recomputed and plain autograd to 1e-10; some with more steps than a block has."""
    steps = 66 if method == "pece" or (method == "implicit_trapezoid" and alpha == 0.6) else 12
    found = {each: gradients(each, method, alpha, steps, above) for each in ADJOINTS}
    for each in ("recomputed", "stored"):
        for one, other in zip(found["direct"], found[each], strict=True):
            assert float((one - other).abs().max()) <= 1e-10 * max(1.0, float(one.abs().max())), each


def test_members_of_a_batch_that_depend_on_each_other_get_their_gradient():
    """A matrix for each member would leave out what one member does to another: that is noticed."""
    found = {}
    for adjoint in ("direct", "stored"):
        net = network(2)
        y0 = torch.tensor([[0.3, -0.2, 0.5], [1.0, 0.1, -0.4]], dtype=torch.float64, requires_grad=True)
        model = NeuralFODE(lambda t, y, net=net: net(y) - y.mean(0), 0.7, step=0.02, adjoint=adjoint)
        loss = model(y0, [0.0, 0.5, 1.4])[:, 0].square().sum()
        found[adjoint] = torch.autograd.grad(loss, [y0, *net.parameters()])
    assert float(found["direct"][0][1].abs().max()) > 1e-3
    for one, other in zip(found["direct"], found["stored"], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def graph_and_bytes(adjoint: str, steps: int) -> tuple[int, float]:
    """Nodes of the graph after a solve of one number, and bytes that they keep, in solutions."""
    theta = torch.nn.Parameter(torch.tensor(1.0, dtype=torch.float64))
    model = NeuralFODE(lambda t, y: -theta * y, 0.6, step=1.0 / steps, adjoint=adjoint)
    kept: dict[int, int] = {}

    def pack(tensor: Any) -> Any:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        end = model(torch.ones(1, dtype=torch.float64), [0.0, 1.0])[-1]
    todo, nodes = [end.grad_fn], set[Any]()
    while todo:
        node = todo.pop()
        if node is not None and node not in nodes:
            nodes.add(node)
            todo += [each for each, _ in node.next_functions]
    return len(nodes), sum(kept.values()) / (8.0 * (steps + 1))


def test_what_is_kept_is_a_few_solutions(monkeypatch: pytest.MonkeyPatch):
    """Recomputed and stored; the latter has no node for each step, of 18 kB, where a state takes 8 bytes."""
    from hpfracc.solvers.ode.tensors import blocks

    monkeypatch.setattr(blocks, "BLOCK", 16)
    nodes, size = graph_and_bytes("stored", 128)
    assert nodes < 20  # direct: 2,300
    assert size < 8.0
    assert graph_and_bytes("recomputed", 128)[1] < 12.0


@pytest.mark.parametrize("adjoint", ["recomputed", "stored"])
def test_what_a_function_depends_on_is_found_at_every_time(adjoint: str):
    """A parameter that matters in the second half only, and arguments that depend on each other."""
    found = []
    for way in ("direct", adjoint):
        first, second = (torch.nn.Parameter(torch.tensor(each, dtype=torch.float64)) for each in (1.0, 2.0))

        def func(t: Any, y: Any, a: Any, b: Any, first: Any = first, second: Any = second) -> Any:
            return -(first * a if float(t) < 0.5 else second + b["twice"]) * y

        scale = first.exp()
        model = NeuralFODE(func, 0.6, step=0.125, adjoint=way)
        y = model(torch.ones(1, dtype=torch.float64), [0.0, 1.0], args=(scale, {"twice": 2.0 * scale}))
        found.append(torch.autograd.grad(y.sum(), [first, second]))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=0.0)


def test_second_derivatives_are_right_or_refused(monkeypatch: pytest.MonkeyPatch):
    """Those of plain autograd, with arguments that depend on each other; implicit steps say that they have none."""
    from hpfracc.solvers.ode.tensors import blocks

    monkeypatch.setattr(blocks, "BLOCK", 4)
    found = {}
    for adjoint in ADJOINTS:
        alpha, rate = (torch.nn.Parameter(torch.tensor(each, dtype=torch.float64)) for each in (0.6, 1.2))
        model = NeuralFODE(lambda t, y, a, b: -torch.tanh(a * b * y), alpha, step=0.125, adjoint=adjoint)
        end = model(torch.ones(1, dtype=torch.float64), [0.0, 1.0], args=(rate, rate**2))[-1].sum()
        slopes = torch.autograd.grad(end, [alpha, rate], create_graph=True)
        found[adjoint] = torch.autograd.grad(slopes[0] * slopes[1] + rate**2, [alpha, rate])
    for adjoint in ("recomputed", "stored"):
        torch.testing.assert_close(found[adjoint], found["direct"], rtol=1e-11, atol=1e-13)
    for adjoint in ("recomputed", "stored"):
        rate = torch.nn.Parameter(torch.tensor(1.2, dtype=torch.float64))
        model = NeuralFODE(lambda t, y, rate: -rate * y, 0.6, "implicit_trapezoid", 0.125, adjoint=adjoint)
        end = model(torch.ones(1, dtype=torch.float64), [0.0, 1.0], args=(rate,))[-1].sum()
        (slope,) = torch.autograd.grad(end, rate, create_graph=True)
        with pytest.raises(SolveError, match="differentiated twice"):
            (slope + rate).backward()


def test_recomputed_steps_draw_the_same_random_numbers():
    """Dropout in the right-hand side, against plain autograd."""
    found = []
    for adjoint in ("direct", "recomputed"):
        torch.manual_seed(3)
        func = _Dropping().double()
        y = NeuralFODE(func, 0.6, step=0.0625, adjoint=adjoint)(torch.ones(4, 1, dtype=torch.float64), [0.0, 1.0])
        found.append([y.detach(), torch.rand(()), *torch.autograd.grad(y.square().sum(), list(func.parameters()))])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-14)


def test_the_gradient_tends_to_the_exact_one():
    """D^0.6 y = -theta y: dy(1)/dtheta = -0.285170472307, which an adjoint of Caputo's kind misses by 8 % and more."""
    errors = []
    for steps in (100, 200, 400):
        theta = torch.nn.Parameter(torch.tensor(1.0, dtype=torch.float64))
        model = NeuralFODE(lambda t, y, theta=theta: -theta * y, 0.6, step=1.0 / steps)
        model(torch.ones(1, dtype=torch.float64), [0.0, 1.0])[-1].sum().backward()
        errors.append(abs(float(theta.grad) + 0.285170472307))
    assert errors[2] < 3e-4
    assert errors[1] / errors[2] > 2.2  # order 1 + alpha in the limit


def test_tuple_states_have_their_own_orders():
    """As one state with an order for each component."""
    t = torch.linspace(0.0, 1.0, 3)
    y0 = (torch.ones(2, 1, dtype=torch.float64), torch.zeros(2, 2, dtype=torch.float64))
    order = torch.nn.Parameter(torch.tensor(0.5, dtype=torch.float64))

    def func(t: Any, y: Any) -> Any:
        return -y[0], y[0] - y[1]

    model = NeuralFODE(func, (order, 0.9), step=0.02)
    first, second = model(y0, t)
    assert first.shape == (3, 2, 1)
    assert second.shape == (3, 2, 2)
    whole = hf.fdeint(
        lambda t, y: torch.cat([-y[..., :1], y[..., :1] - y[..., 1:]], -1),
        torch.cat(y0, -1), t, [0.5, 0.9, 0.9], step=0.02, method="pece",
    )  # fmt: skip
    torch.testing.assert_close(torch.cat([first, second], -1).detach(), whole)
    second.sum().backward()
    assert float(order.grad.abs()) > 0.0


def test_state_dict_and_repr():
    """Parameters of network and order travel; the repr says order, derivative, method and step."""
    model = NeuralFODE(network(), torch.nn.Parameter(torch.tensor(0.6)), step=0.1)
    other = NeuralFODE(network(5), torch.nn.Parameter(torch.tensor(0.9)), step=0.1)
    other.load_state_dict(model.state_dict())
    assert float(other.alpha.detach()) == pytest.approx(0.6)
    for word in ("alpha=0.6", "Caputo", "pece", "0.1"):
        assert word in repr(model)


def test_adaptive_steps_without_a_step():
    """Relaxation to the tolerance, with a gradient in the order."""
    order = torch.nn.Parameter(torch.tensor(0.6, dtype=torch.float64))
    model = NeuralFODE(lambda t, y: -y, order, rtol=1e-4)
    y = model(torch.ones(1, dtype=torch.float64), [0.0, 1.0])
    assert abs(float(y[-1].detach()) - float(hf.mittag_leffler(-1.0, 0.6))) < 1e-4
    y[-1].sum().backward()
    exact = (float(hf.mittag_leffler(-1.0, 0.6001)) - float(hf.mittag_leffler(-1.0, 0.5999))) / 2e-4
    assert abs(float(order.grad) - exact) < 1e-3


class _Dropping(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(1, 1)
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, t: Any, y: Any) -> Any:
        return self.drop(self.linear(y))


def test_bad_input():
    """Typed errors with the remedy."""
    y0, t = torch.ones(1), [0.0, 1.0]
    outside = torch.tensor(1.0, requires_grad=True) * 2.0
    cases: list[tuple[type[Exception], str, Any]] = [
        (InvalidInputError, "adjoint", lambda: NeuralFODE(lambda t, y: -y, 0.5, step=0.1, adjoint="continuous")),
        (InvalidInputError, "adjoint", lambda: NeuralFODE(lambda t, y: -y, 0.5, adjoint="stored")),
        (InvalidInputError, "give step", lambda: NeuralFODE(lambda t, y: -y, 0.5, "implicit_trapezoid")),
        (InvalidInputError, "cannot be called", lambda: NeuralFODE(3, 0.5)),
        (
            InvalidInputError,
            "strictly increasing",
            lambda: NeuralFODE(lambda t, y: -y, 0.5, step=0.1)(y0, [0.0, 1.0, 0.5]),
        ),
        (InvalidInputError, "above 0", lambda: NeuralFODE(lambda t, y: -y, -0.5, step=0.1)(y0, t)),
        (ShapeError, "returned", lambda: NeuralFODE(lambda t, y: y[:0], 0.5, step=0.1)(y0, t)),
        (ShapeError, "must agree", lambda: NeuralFODE(lambda t, y: y, 0.5, step=0.1)((torch.ones(2, 1), y0), t)),
        (SolveError, "not finite at t", lambda: NeuralFODE(lambda t, y: y / 0.0, 0.5, step=0.1)(y0, t)),
        (InvalidInputError, "in args", lambda: NeuralFODE(lambda t, y: -outside * y, 0.5, step=0.1)(y0, t)),
        (InvalidInputError, "Dropout", lambda: NeuralFODE(_Dropping(), 0.5, step=0.1)(y0, t)),
        (InvalidInputError, "not a PyTorch tensor", lambda: NeuralFODE(lambda t, y: -y, 0.5, step=0.1)([1.0], t)),
        (ShapeError, "orders", lambda: NeuralFODE(lambda t, y: -y, (0.5, 0.6), step=0.1)(y0, t)),
    ]
    for error, says, call in cases:
        with pytest.raises(error, match=says):
            call()


def test_arrays_of_jax_are_refused():
    """Each library has its own class."""
    jax = pytest.importorskip("jax")
    with pytest.raises(PinnedBackendError, match="JAX"):
        NeuralFODE(lambda t, y: -y, 0.5, step=0.1)(jax.numpy.ones(1), [0.0, 1.0])


@pytest.mark.parametrize("method", ["l1", "implicit_trapezoid"])
def test_implicit_methods_refuse_members_that_depend_on_each_other(method: str):
    """Their gradient is that of separate members: in training BatchNorm is refused, in evaluation it is taken."""
    norm = torch.nn.BatchNorm1d(2).double()
    y0 = torch.linspace(-1.0, 1.0, 6, dtype=torch.float64).reshape(3, 2)
    model = NeuralFODE(lambda t, y: 0.1 * norm(y), 0.6, method, 0.25)
    with pytest.raises(InvalidInputError, match="mixes the members"):
        model(y0, [0.0, 1.0])
    norm.eval()
    model(y0, [0.0, 1.0]).square().sum().backward()
    assert norm.weight.grad is not None

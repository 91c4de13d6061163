"""Optimisers with fractional memory: their filter, their limits, and where they converge."""

from __future__ import annotations

import copy
import itertools
import math
import pickle
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.errors import InvalidInputError

torch = pytest.importorskip("torch")
optimizers = pytest.importorskip("hpfracc.ml.optimized_optimizers")

Adam, SGD, Flow = optimizers.OptimizedFractionalAdam, optimizers.FractionalSGD, optimizers.FractionalGradientFlow


def binomial_weights(order: float, decay: float, count: int) -> list[float]:
    """From the gamma function, not from the recurrence."""
    scale = (1.0 - decay) ** order
    return [
        scale * math.exp(math.lgamma(order + k) - math.lgamma(order) - math.lgamma(k + 1)) * decay**k
        for k in range(count)
    ]


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("kind", [Adam, SGD])
def test_impulse_response(kind: Any, foreach: bool):
    """A gradient of 1 at the first step and 0 afterwards moves the parameter by weights over partial sums.

    With an ignored order the first hundred steps would differ by 0.3 and more of the first.
    """
    weights = np.array(binomial_weights(0.5, 0.9, 200))
    x = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    options = {"eps": 1e-300, "betas": (0.9, 0.0)} if kind is Adam else {"momentum": 0.9}
    optimizer = kind([x], lr=1.0, fractional_order=0.5, foreach=foreach, **options)
    moves = []
    for step in range(200):
        before = x.detach().clone()
        x.grad = torch.full_like(x, 1.0 if step == 0 else 1e-100)
        optimizer.step()
        moves.append(float((before - x.detach())[0]))
    expected = weights / np.cumsum(weights)
    if kind is SGD:
        np.testing.assert_allclose(moves, expected, atol=1e-4)
    else:  # divided by the newest gradient alone, since the second moment forgets at once
        np.testing.assert_allclose(np.array(moves) * np.where(np.arange(200) == 0, 1.0, 1e-100), expected, atol=1e-4)


@pytest.mark.parametrize("foreach", [False, True])
def test_order_one_is_adam(foreach: bool):
    """100 steps of a small network with weight decay, to rounding; another order is not."""

    def trained(make: Any) -> list[Any]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1)).double()
        x = torch.linspace(-1.0, 1.0, 24, dtype=torch.float64).reshape(8, 3)
        optimizer = make(model.parameters())
        for _ in range(100):
            optimizer.zero_grad()
            (model(x) - x.sum(1, keepdim=True) ** 2).square().mean().backward()
            optimizer.step()
        return [each.detach() for each in model.parameters()]

    reference = trained(lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.01))
    ours = trained(lambda p: Adam(p, lr=0.01, fractional_order=1.0, weight_decay=0.01, foreach=foreach))
    other = trained(lambda p: Adam(p, lr=0.01, fractional_order=0.5, weight_decay=0.01, foreach=foreach))
    for a, b in zip(reference, ours, strict=True):
        assert float((a - b).abs().max()) < 1e-12
    assert max(float((a - b).abs().max()) for a, b in zip(reference, other, strict=True)) > 1e-3


@pytest.mark.parametrize("kind", [Adam, SGD, Flow])
def test_tensors_one_by_one_move_as_together(kind: Any):
    """Ten steps of three tensors, one of them complex, with weight decay; the default on a processor is one by one."""

    def moved(**options: Any) -> list[Any]:
        torch.manual_seed(0)
        dtypes = (torch.float64, torch.complex128, torch.float64)
        tensors = [torch.randn(shape, dtype=dtype) for shape, dtype in zip([(3, 4), (5,), ()], dtypes, strict=True)]
        parameters = [each.requires_grad_() for each in tensors]
        optimizer = kind(parameters, lr=0.05, fractional_order=0.5, weight_decay=0.01, **options)
        for _ in range(10):
            for each in parameters:
                each.grad = torch.randn_like(each)
            optimizer.step()
        return [each.detach() for each in parameters]

    alone, together, default = moved(foreach=False), moved(foreach=True), moved()
    for one, other, usual in zip(alone, together, default, strict=True):
        assert float((one - other).abs().max()) < 1e-13
        assert torch.equal(one, usual)


@pytest.mark.parametrize(("kind", "lr", "steps"), [(Adam, 0.05, 600), (SGD, 0.1, 200), (Flow, 0.3, 600)])
def test_the_minimum_is_reached(kind: Any, lr: float, steps: int):
    """1 on ``(x - 1)^2`` from 0, where a Caputo gradient in parameter space stops at 1.5."""
    x = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    optimizer = kind([x], lr=lr, fractional_order=0.5)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = ((x - 1.0) ** 2).sum()
        loss.backward()
        return loss

    for _ in range(steps):
        loss = optimizer.step(closure)
    assert float(loss.detach()) == pytest.approx(float((x.detach() - 1.0) ** 2), abs=1e-2)
    # The tail of the flow is algebraic: 1/(Gamma(1/2) 0.6 sqrt(600)) is left.
    assert abs(float(x.detach()) - 1.0) < (0.05 if kind is Flow else 1e-3)


def test_the_flow_is_a_mittag_leffler_function():
    """On a quadratic, with an error of first order in the step: the error halves with it."""
    order, rate = 0.6, 2.0
    errors = []
    for steps in (200, 400, 800):
        h = 1.0 / steps
        x = torch.ones(1, dtype=torch.float64, requires_grad=True)
        optimizer = Flow([x], lr=h**order, fractional_order=order)
        for _ in range(steps):
            optimizer.zero_grad()
            (0.5 * rate * x**2).sum().backward()
            optimizer.step()
        errors.append(float(x.detach()) - float(hf.mittag_leffler(-rate, order)))
    ratios = [a / b for a, b in itertools.pairwise(errors)]
    assert abs(errors[-1]) < 2e-3
    assert all(1.7 < ratio < 2.3 for ratio in ratios), ratios


@pytest.mark.parametrize("kind", [Adam, SGD, Flow])
def test_state_dict_round_trip(kind: Any):
    """Broken off after 5 steps, saved, loaded and continued: the same as 10 steps at once."""

    def run(optimizer: Any, x: Any, steps: int) -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            ((x - 1.0) ** 2 * torch.tensor([1.0, 3.0])).sum().backward()
            optimizer.step()

    whole = torch.zeros(2, requires_grad=True)
    run(kind([whole], lr=0.05), whole, 10)
    part = torch.zeros(2, requires_grad=True)
    first = kind([part], lr=0.05)
    run(first, part, 5)
    saved = pickle.loads(pickle.dumps(first.state_dict()))
    second = kind([part], lr=0.9)
    second.load_state_dict(copy.deepcopy(saved))
    run(second, part, 5)
    torch.testing.assert_close(part, whole)


def test_groups_have_their_own_orders():
    """Each group its own order and rate; complex parameters too."""
    a, b = torch.zeros(1, requires_grad=True), torch.zeros(1, dtype=torch.complex64, requires_grad=True)
    optimizer = Adam([{"params": [a], "fractional_order": 1.0}, {"params": [b], "lr": 0.05}], lr=0.1)
    for _ in range(400):
        optimizer.zero_grad()
        ((a - 1.0) ** 2).sum().backward()
        (b - (1.0 + 2.0j)).abs().square().sum().backward()
        optimizer.step()
    assert optimizer.state[a]["moments"].shape[0] == 1
    assert optimizer.state[b]["moments"].shape[0] == 6
    assert abs(float(a.detach()) - 1.0) < 0.01
    assert abs(complex(b.detach()) - (1.0 + 2.0j)) < 0.05


def test_state_is_three_and_a_half_times_that_of_adam():
    """In numbers kept."""

    def kept(optimizer: Any, x: Any) -> int:
        x.grad = torch.ones_like(x)
        optimizer.step()
        return sum(each.numel() for each in optimizer.state[x].values() if torch.is_tensor(each) and each.numel() > 1)

    x = torch.zeros(1000, requires_grad=True)
    assert kept(Adam([x]), x) <= 3.5 * kept(torch.optim.Adam([x]), x)
    assert kept(SGD([x]), x) <= 3.5 * kept(torch.optim.Adam([x]), x)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"fractional_order": 1.5}, "at least 0 and at most 1"),
        ({"fractional_order": -0.1}, "at least 0"),
        ({"fractional_order": "half"}, "at least 0"),
        ({"lr": -1.0}, "lr"),
        ({"lr": math.nan}, "lr"),
        ({"betas": (1.0, 0.9)}, r"betas\[0\]"),
        ({"eps": -1.0}, "eps"),
        ({"weight_decay": -0.1}, "weight_decay"),
    ],
)
def test_bad_options(options: dict[str, Any], says: str):
    """Refused where they are given."""
    with pytest.raises(InvalidInputError, match=says):
        Adam([torch.zeros(1, requires_grad=True)], **options)


def test_bad_use():
    """A flow without order, an order that changes, sparse gradients."""
    with pytest.raises(InvalidInputError, match="above 0"):
        Flow([torch.zeros(1, requires_grad=True)], fractional_order=0.0)
    x = torch.zeros(3, requires_grad=True)
    optimizer = Adam([x])
    x.grad = torch.ones(3)
    optimizer.step()
    optimizer.param_groups[0]["fractional_order"] = 1.0
    with pytest.raises(InvalidInputError, match="cannot change"):
        optimizer.step()
    x.grad = torch.ones(3).to_sparse()
    with pytest.raises(InvalidInputError, match="sparse"):
        optimizer.step()


def test_jax_takes_the_same_steps():
    """As torch, in float64, under jit and behind ``optax.chain``."""
    jax = pytest.importorskip("jax")
    from hpfracc.ml.jax import fractional_adam, fractional_gradient_flow, fractional_sgd

    curvature = np.array([1.0, 3.0])
    makers = [
        (Adam, fractional_adam, 0.05),
        (SGD, fractional_sgd, 0.05),
        (Flow, fractional_gradient_flow, 0.1),
    ]
    with jax.enable_x64(True):
        for kind, maker, lr in makers:
            x = torch.zeros(2, dtype=torch.float64, requires_grad=True)
            optimizer = kind([x], lr=lr, fractional_order=0.4)
            init, update = maker(lr, 0.4)
            update = jax.jit(update)
            y = jax.numpy.zeros(2)
            state = init(y)
            for _ in range(20):
                x.grad = 2.0 * torch.as_tensor(curvature) * (x.detach() - 1.0)
                optimizer.step()
                changes, state = update(2.0 * curvature * (y - 1.0), state)
                y = y + changes
            np.testing.assert_allclose(np.asarray(y), x.detach().numpy(), rtol=1e-12)
        optax = pytest.importorskip("optax")
        chained = optax.chain(optax.clip(0.5), fractional_adam(0.1, 0.5))
        y = {"a": jax.numpy.zeros(2)}
        state = chained.init(y)
        for _ in range(3):
            changes, state = chained.update({"a": y["a"] - 1.0}, state, y)
            y = optax.apply_updates(y, changes)
        assert float(y["a"][0]) > 0.1


@pytest.mark.parametrize("decay", [0.9, 0.99999, 1.0 - 1e-9])
def test_jax_corrects_slow_decays_in_single_precision(decay: float):
    """The filtered gradient of constant ones is 1 at every step, if sums of weights have all their digits."""
    jax = pytest.importorskip("jax")
    from hpfracc.ml.jax import fractional_sgd

    for order in (0.5, 1.0):
        init, update = fractional_sgd(1.0, order, decay)
        ones = jax.numpy.ones(1, jax.numpy.float32)
        state = init(ones)
        for _ in range(10):
            change, state = update(ones, state)
            assert abs(float(change[0]) + 1.0) < 3e-6


def test_jax_refuses_bad_options():
    """As torch does."""
    pytest.importorskip("jax")
    from hpfracc.ml.jax import fractional_adam, fractional_gradient_flow

    with pytest.raises(InvalidInputError, match="at most 1"):
        fractional_adam(0.1, 2.0)
    with pytest.raises(InvalidInputError, match="b1"):
        fractional_adam(0.1, 0.5, b1=1.0)
    with pytest.raises(InvalidInputError, match="above 0"):
        fractional_gradient_flow(0.1, 0.0)


@pytest.mark.parametrize("order", [1e-300, 1e-10, 1e-9, 1.0 - 1e-12, 1.0 - 2.0**-53])
def test_orders_next_to_whole_numbers(order):
    """Memory as at 0 or 1: quadrature has no digits there, and gave nan."""
    found = []
    for each in (order, round(order)):
        x = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
        optimiser = Adam([x], lr=0.1, fractional_order=each)
        for _ in range(20):
            x.grad = torch.cos(x.detach())
            optimiser.step()
        found.append(x.detach())
    torch.testing.assert_close(*found, atol=1e-7, rtol=0)


def test_a_learning_rate_that_is_a_tensor():
    """As a number, for one parameter after the other and for all together."""
    torch = pytest.importorskip("torch")
    found = []
    for rate, foreach in ((0.1, False), (torch.tensor(0.1), False), (torch.tensor(0.1), True)):
        x = torch.tensor([1.0, 2.0], requires_grad=True)
        optimiser = Adam([x], lr=rate, foreach=foreach)
        x.square().sum().backward()
        optimiser.step()
        found.append(x.detach())
    torch.testing.assert_close(found[1], found[0])
    torch.testing.assert_close(found[2], found[0])

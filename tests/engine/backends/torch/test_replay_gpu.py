"""Work recorded as CUDA graphs: the same numbers as in the ordinary way, whatever happens between the calls."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import hpfracc as hf
from hpfracc import ml

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("PyTorch sees no CUDA device", allow_module_level=True)
pytestmark = pytest.mark.gpu

from hpfracc.engine.backends.torch import replay  # noqa: E402
from hpfracc.engine.backends.torch.replay import CALLS, Recording, replays  # noqa: E402

OPERATORS = (hf.caputo, hf.grunwald_letnikov, hf.riemann_liouville, hf.riemann_liouville_integral)
ids = {"ids": lambda operator: operator.__name__}


@pytest.fixture(autouse=True)
def _fresh(monkeypatch):
    """No recordings of other tests, and no trials of other arms, which would be recorded apart."""
    there = tuple(each.name for each in threading.enumerate())  # those of the test runner
    monkeypatch.setattr(replay, "_QUIET_NAMES", (*replay._QUIET_NAMES, *there))
    replays.clear()
    with hf.config(exploration_budget=0.0):
        yield
    replays.clear()


def recorded() -> int:
    return sum(isinstance(each, Recording) for each in replays._known.values())


def both(call: Any) -> tuple[Any, Any]:
    found = call()
    with replay.disabled():
        return found, call()


def close(one: Any, other: Any, digits: float) -> bool:
    scale = float(other.abs().nan_to_num(0.0, 0.0, 0.0).max())
    same = torch.isfinite(one) == torch.isfinite(other)
    finite = torch.isfinite(other)
    return bool(same.all()) and float((one - other)[finite].abs().max()) <= digits * scale


@pytest.mark.parametrize("operator", OPERATORS, **ids)
@pytest.mark.parametrize("shape", [(300,), (20_001,), (100_000,), (64, 1000), (3, 2, 500)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_learned_orders(operator, shape, dtype):
    """Samples and order change at every call, as in training."""
    alpha = torch.tensor(0.3, dtype=torch.float64, device="cuda", requires_grad=True)
    digits = 1e-12 if dtype == torch.float64 else 2e-5
    for k in range(CALLS + 6):
        x = torch.randn(shape, dtype=dtype, device="cuda").cumsum(-1).requires_grad_()
        slope = torch.randn(shape, dtype=dtype, device="cuda")
        slope[..., 0] = 0.0  # infinite at the origin
        with torch.no_grad():
            alpha.fill_(0.2 + 0.03 * k)

        def call(x=x, slope=slope):
            result = operator(x, alpha=alpha, step=0.25)
            return (result.detach()[..., 1:], *torch.autograd.grad(result, (x, alpha), slope))

        if k >= CALLS - 1:
            found, expected = both(call)
            assert all(close(one, other, digits) for one, other in zip(found, expected, strict=True))
        else:
            call()
    assert recorded() > 0


@pytest.mark.parametrize("operator", OPERATORS[:2] + OPERATORS[3:], **ids)
@pytest.mark.parametrize("n", [1_000, 100_000])
@pytest.mark.parametrize("tracked", [False, True])
def test_plain_orders_to_the_bit(operator, n, tracked):
    for k in range(2 * CALLS):
        x = torch.randn(n, dtype=torch.float64, device="cuda", requires_grad=tracked)
        if k % 3 == 2:
            with torch.no_grad():
                x[n // 2] = torch.nan
        slope = torch.randn(n, dtype=torch.float64, device="cuda")

        def call(x=x, slope=slope):
            result = operator(x, alpha=0.6, step=0.25)
            return (result.detach(), *(torch.autograd.grad(result, x, slope) if tracked else ()))

        with hf.config(deterministic=True):  # no trials of other arms
            found, expected = both(call)
        assert all(
            torch.equal(one.nan_to_num(7.0), other.nan_to_num(7.0)) for one, other in zip(found, expected, strict=True)
        )


@pytest.mark.parametrize("batches", [1, 2])
def test_training_finds_the_order(batches):
    """With two batches there are two forward passes before the backward pass."""
    torch.manual_seed(0)
    x = torch.randn(16, 512, dtype=torch.float64, device="cuda").cumsum(-1)
    target = hf.caputo(x, alpha=0.35, step=1.0)

    def train() -> float:
        layer = ml.FractionalDerivative(ml.LearnableOrder(0.7), definition="caputo").to("cuda")
        optimizer = torch.optim.Adam(layer.parameters(), lr=0.05)
        losses = []
        for _ in range(120):
            optimizer.zero_grad()
            parts = zip(x.chunk(batches), target.chunk(batches), strict=True)
            loss = sum(((layer(part) - wanted) ** 2).mean() for part, wanted in parts)
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        assert losses[-1] < 1e-2 * losses[0]
        return float(layer.order().detach())

    found = train()
    assert recorded() > 0
    with replay.disabled():
        assert abs(found - train()) < 1e-9
    assert abs(found - 0.35) < 0.02


def test_second_derivatives():
    x = torch.randn(200, dtype=torch.float64, device="cuda", requires_grad=True)
    alpha = torch.tensor(0.6, dtype=torch.float64, device="cuda", requires_grad=True)
    for _ in range(CALLS + 2):
        hf.caputo(x, alpha=alpha, step=0.1)

    def second():
        (first,) = torch.autograd.grad((hf.caputo(x, alpha=alpha, step=0.1) ** 2).sum(), alpha, create_graph=True)
        return torch.autograd.grad(first, (alpha, x))

    found, expected = both(second)
    assert all(close(one, other, 1e-10) for one, other in zip(found, expected, strict=True))


def test_streams_and_threads():
    """Recordings are made in the main thread only; random numbers work in all threads."""
    wrong: list[str] = []

    def work() -> None:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            # PyTorch warns of parameters that are shared between streams.
            alpha = torch.tensor(0.6, dtype=torch.float64, device="cuda", requires_grad=True)
            for _ in range(40):
                x = torch.randn(5000, dtype=torch.float64, device="cuda", requires_grad=True)
                found = torch.autograd.grad(hf.caputo(x, alpha=alpha, step=0.1).sum(), (x, alpha))
                expected = torch.autograd.grad(hf.caputo(x, alpha=alpha, step=0.1, backend="torch").sum(), (x, alpha))
                if not all(close(one, other, 1e-11) for one, other in zip(found, expected, strict=True)):
                    wrong.append("differ")

    threads = [threading.Thread(target=work) for _ in range(3)]
    for each in threads:
        each.start()
    alpha = torch.tensor(0.6, dtype=torch.float64, device="cuda", requires_grad=True)
    for _ in range(3 * CALLS):
        hf.caputo(torch.randn(300, dtype=torch.float64, device="cuda"), alpha=alpha, step=0.1)
    for each in threads:
        each.join()
    torch.cuda.synchronize()
    assert not wrong


def test_plans_of_transforms_that_are_dropped():
    x = torch.randn(70_001, dtype=torch.float64, device="cuda")
    expected = hf.caputo(x, alpha=0.6, step=0.1)
    for _ in range(CALLS + 2):
        hf.caputo(x, alpha=0.6, step=0.1)
    assert recorded() == 1
    torch.backends.cuda.cufft_plan_cache.clear()
    assert torch.equal(hf.caputo(x, alpha=0.6, step=0.1), expected)
    assert recorded() == 0


def test_the_callers_own_graph():
    x = torch.randn(5000, dtype=torch.float64, device="cuda")
    for _ in range(3):
        hf.caputo(x, alpha=0.6, step=0.1)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(3 * CALLS):
            result = hf.caputo(x, alpha=0.6, step=0.1)
    x.normal_()
    graph.replay()
    assert torch.equal(result, hf.caputo(x, alpha=0.6, step=0.1))


def test_memory_is_given_back_and_counted():
    from hpfracc.engine.backends import registry

    x = torch.randn(100_000, dtype=torch.float64, device="cuda", requires_grad=True)
    alpha = torch.tensor(0.6, dtype=torch.float64, device="cuda", requires_grad=True)
    for _ in range(CALLS + 2):
        hf.caputo(x, alpha=alpha, step=0.1).sum().backward()
    (made,) = [each for each in replays._known.values() if isinstance(each, Recording)]
    assert x.nbytes < made.bytes < 60 * x.nbytes + 2**24
    del made
    registry.adapter("torch").release_memory("cuda:0")
    assert recorded() == 0
    hf.caputo(x, alpha=alpha, step=0.1).sum().backward()


def test_decisions_and_deterministic_settings():
    x = torch.randn(4000, dtype=torch.float64, device="cuda", requires_grad=True)
    alpha = torch.tensor(0.6, dtype=torch.float64, device="cuda", requires_grad=True)
    for _ in range(CALLS + 4):
        hf.caputo(x, alpha=alpha, step=0.1)
    assert recorded() > 0
    hf.mittag_leffler(torch.linspace(-1.0, 0.0, 5, device="cuda"), 0.5)
    hf.caputo(x, alpha=alpha, step=0.1)
    assert hf.last_decision().operation == "causal_convolution"
    with hf.config(deterministic=True):
        before = recorded()
        for _ in range(3 * CALLS):
            hf.caputo(x, alpha=alpha, step=0.1)
        assert recorded() == before

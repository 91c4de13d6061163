"""What is learned is learned of the arm that did the work, under its own key, and only where learning is on."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
import torch

import hpfracc as hf
from hpfracc._config import get_settings
from hpfracc.engine.backends import registry
from hpfracc.engine.execution import state
from hpfracc.engine.execution.bind import BoundArm
from hpfracc.engine.execution.plan import make_request
from hpfracc.engine.selection.knowledge import knowledge_for
from tests.helpers.own_operations import double, numbers, own_operation


def last() -> Any:
    decision = hf.last_decision()
    assert decision is not None
    return decision


def test_last_decision_is_what_ran() -> None:
    """Not what the review after the call chose for the next one."""
    ran: list[str] = []

    def note(backend: str, wait: float) -> Any:
        def kernel(x: Any) -> Any:
            ran.append(backend)
            time.sleep(wait)
            return x * 2

        return kernel

    with own_operation(note("numpy", 0.001)) as op:
        op.kernel("torch")(note("torch", 0.0))
        said = []
        for _ in range(40):
            op(numbers())
            said.append(last().backend)
    assert said == ran and set(ran) == {"numpy", "torch"}


def test_compile_times_of_an_earlier_process_are_all_kept() -> None:
    """The median of those nearest in size is expected, not whichever was written last."""
    with own_operation(double) as op:
        op.kernel("numpy", algorithm="compiled", compiles="shape")(double)
        knowledge = knowledge_for(get_settings())
        for n, seconds in ((10, 1.0), (11, 1.0), (12, 1.0), (13, 9.0)):
            request = make_request(op.primitive, (np.ones(n),), {})
            arm = next(arm for arm in registry.arms(op.name) if arm.algorithm == "compiled")
            knowledge.add_compile(request, knowledge.option(request, arm), seconds)
        knowledge.wisdom.flush()
        state.reset()
        rows = {row.arm: row.compile for row in hf.explain(op, np.ones(11)).decision.candidates}
        assert rows["numpy:compiled@cpu"] == pytest.approx(1.0)


class Passed:
    """A timer whose device has passed both marks."""

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def seconds(self) -> float:
        return 0.25


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """PyTorch with a GPU that is none: what is sent there and fetched from there is listed."""
    adapter = registry.adapter("torch")
    moved: list[tuple[str, str]] = []
    sent: set[int] = set()
    from_host, to_host = type(adapter).from_host, type(adapter).to_host

    def send(self: Any, array: np.ndarray, device: str) -> Any:
        made = from_host(self, array, "cpu")
        if device != "cpu":
            moved.append(("in", device))
            made = made.clone()
            sent.add(made.data_ptr())
        return made

    def fetch(self: Any, array: Any) -> np.ndarray:
        moved.append(("out", type(array).__name__))
        return to_host(self, array)

    monkeypatch.setattr(type(adapter), "devices", lambda self: ("cpu", "cuda:0"))
    monkeypatch.setattr(type(adapter), "from_host", send)
    monkeypatch.setattr(type(adapter), "to_host", fetch)
    monkeypatch.setattr(type(adapter), "timer", lambda self, device: None if device == "cpu" else Passed())
    monkeypatch.setattr(type(adapter), "free_bytes", lambda self, device: 2**40)
    monkeypatch.setattr(type(adapter), "release_memory", lambda self, device: None)
    registry.reset()
    return moved


def test_a_tensor_on_the_host_travels_to_the_gpu_and_back(gpu: list[tuple[str, str]]) -> None:
    """An arm of a GPU works on the GPU: a host tensor of the same library is sent there, and its result fetched."""
    x = torch.linspace(0.0, 1.0, 50, dtype=torch.float64)
    primitive = hf.causal_convolution.primitive
    request = make_request(primitive, (x, x), {})
    arm = next(arm for arm in registry.arms(primitive.name) if arm.name == "torch:fft@cuda:0")
    result = BoundArm(primitive, request.call, arm, request.placement, (x, x)).run(x, x)
    assert gpu.count(("in", "cuda:0")) == 2 and [way for way, _ in gpu].count("out") >= 1
    assert isinstance(result, torch.Tensor)
    np.testing.assert_allclose(result.numpy(), np.convolve(x.numpy(), x.numpy())[:50], atol=1e-12)


def test_calls_that_never_come_twice_are_learned_from() -> None:
    """Every length is another, so that each plan has one call: those are timed, or nothing would ever be."""
    with own_operation(lambda x: 2.0 * x, work=lambda x: x.size) as op:
        for n in range(1030, 1060):
            op(np.ones(n))
        (row,) = (row for row in op.decide(np.ones(1060)).candidates if row.refused is None)
    assert row.source == "samples"
    assert row.samples >= 8

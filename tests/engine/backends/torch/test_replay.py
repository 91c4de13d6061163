"""Recordings of launches, with the graph of a GPU replaced by running the function again."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from hpfracc.engine.backends.torch import replay  # noqa: E402
from hpfracc.engine.backends.torch.replay import CALLS, Recording, Replays  # noqa: E402


class HostRecording(Recording):
    """A recording whose graphs run the function again and write into the same results, as a replay does."""

    def _warm_up(self, device: Any, tracked: bool) -> None:
        if tracked:
            self.slope = torch.zeros_like(self._run()[0])

    def _record(self, tracked: bool) -> None:
        class Graph:
            def __init__(self, replay: Any) -> None:
                self.replay = replay

        recorded = self._run()
        self.results = tuple(each.detach().clone() for each in recorded)
        self.gradients = [torch.empty_like(each) for each in self.operands] if tracked else []

        def forward() -> None:
            nonlocal recorded
            with torch.set_grad_enabled(tracked):
                recorded = self._run()
            for one, other in zip(self.results, recorded, strict=True):
                one.copy_(other.detach())

        def backward() -> None:
            with torch.enable_grad():
                found = self._differentiate(recorded)
            for one, other in zip(self.gradients, found, strict=True):
                assert one is not None and other is not None
                one.copy_(other)

        self.graphs = [Graph(forward), Graph(backward)]


class Stream:
    cuda_stream = 7


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> Replays:
    """Recordings on the host."""
    cuda = torch.cuda
    monkeypatch.setattr(cuda, "current_device", lambda: None)
    monkeypatch.setattr(cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(cuda, "current_stream", lambda device=None: Stream())
    monkeypatch.setattr(cuda, "memory_reserved", lambda device=None: 0)
    monkeypatch.setattr(cuda, "mem_get_info", lambda device=None: (2**34, 2**34))
    monkeypatch.setattr(cuda, "get_device_properties", lambda device: type("P", (), {"total_memory": 2**34}))
    monkeypatch.setattr(replay, "_plan_count", lambda device: 3)
    monkeypatch.setattr(replay, "Recording", HostRecording)
    there = tuple(each.name for each in threading.enumerate())  # those of the test runner
    monkeypatch.setattr(replay, "_QUIET_NAMES", (*replay._QUIET_NAMES, *there))
    return Replays()


def product(x: Any, a: Any) -> Any:
    return (x * x * a.to(x.dtype)).cumsum(-1)


def pair() -> tuple[Any, Any]:
    x = torch.linspace(0.1, 1.0, 7, dtype=torch.float64, requires_grad=True)
    return x, torch.tensor(0.7, dtype=torch.float64, requires_grad=True)


def settle(replays: Replays, function: Any = product) -> Any:
    """The first result that is replayed."""
    x, a = pair()
    for _ in range(CALLS):
        assert replays.run_tracked("key", function, (x, a)) is None
    return replays.run_tracked("key", function, (x, a))


def test_first_calls_are_ordinary_and_later_ones_replayed(replays: Replays):
    result = settle(replays)
    x, a = pair()
    assert torch.equal(result, product(x, a))
    assert replays.is_recorded("key", (x, a), True)
    assert not replays.is_recorded("key", (x, a), False) and not replays.is_recorded("other", (x, a), True)


def test_gradients_are_those_of_the_function(replays: Replays):
    settle(replays)
    x, a = pair()
    with torch.no_grad():
        x.mul_(1.5)
    slope = torch.randn(7, dtype=torch.float64)
    found = torch.autograd.grad(replays.run_tracked("key", product, (x, a)), (x, a), slope)
    expected = torch.autograd.grad(product(x, a), (x, a), slope)
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def test_two_forward_passes_before_their_backward_passes(replays: Replays):
    """The intermediate results of the first are overwritten by the second."""
    settle(replays)
    x, a = pair()
    y = (2.0 * x.detach()).requires_grad_()
    first, second = (replays.run_tracked("key", product, (each, a)) for each in (x, y))
    (of_first,) = torch.autograd.grad(first.sum(), x)
    (of_second,) = torch.autograd.grad(second.sum(), y)
    assert torch.equal(of_first, torch.autograd.grad(product(x, a).sum(), x)[0])
    assert torch.equal(of_second, torch.autograd.grad(product(y, a).sum(), y)[0])


def test_results_are_not_overwritten_by_later_calls(replays: Replays):
    settle(replays)
    x, a = pair()
    first = replays.run_tracked("key", product, (x, a))
    kept = first.detach().clone()
    replays.run_tracked("key", product, ((3.0 * x.detach()).requires_grad_(), a))
    assert torch.equal(first, kept)


def test_differentiating_twice_and_twice_over(replays: Replays):
    settle(replays)
    x, a = pair()
    result = replays.run_tracked("key", product, (x, a))
    once = torch.autograd.grad(result.sum(), x, retain_graph=True)[0]
    again = torch.autograd.grad(result.sum(), x)[0]
    assert torch.equal(once, again)
    assert torch.autograd.gradgradcheck(lambda *pair: replays.run_tracked("key", product, pair), (x, a))


def test_a_batch_of_slopes(replays: Replays):
    settle(replays)
    x, a = pair()
    slopes = torch.eye(7, dtype=torch.float64)
    found = torch.autograd.grad(replays.run_tracked("key", product, (x, a)), x, slopes, is_grads_batched=True)[0]
    expected = torch.autograd.grad(product(x, a), x, slopes, is_grads_batched=True)[0]
    assert torch.allclose(found, expected, rtol=1e-15)


def test_an_operand_changed_before_the_backward_pass_is_refused(replays: Replays):
    settle(replays)
    x, a = pair()
    y = x * 1.0
    result = replays.run_tracked("key", product, (y, a))
    y.mul_(2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


def test_checkpoints(replays: Replays):
    from torch.utils.checkpoint import checkpoint

    settle(replays)
    x, a = pair()
    result = checkpoint(lambda *both: replays.run_tracked("key", product, both), x, a, use_reentrant=False)
    found = torch.autograd.grad(result.sum(), (x, a))
    expected = torch.autograd.grad(product(x, a).sum(), (x, a))
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def test_untracked_functions_give_new_tensors(replays: Replays):
    x = torch.arange(4.0)
    function = lambda x: (x + 1.0, x.sum())  # noqa: E731
    for _ in range(CALLS):
        assert replays.run("key", function, (x,)) is None
    first = replays.run("key", function, (x,))
    second = replays.run("key", function, (10.0 * x,))
    assert first is not None and second is not None
    assert first[0].tolist() == [1.0, 2.0, 3.0, 4.0] and second[1].item() == 60.0


def test_in_inference_mode_and_outside(replays: Replays):
    function = lambda x: (2.0 * x,)  # noqa: E731
    with torch.inference_mode():
        for _ in range(CALLS + 2):
            replays.run("key", function, (torch.ones(3),))
    found = replays.run("key", function, (torch.full((3,), 4.0),))
    assert found is not None and found[0].tolist() == [8.0] * 3 and not found[0].is_inference()


def test_other_shapes_streams_and_settings_are_other_kinds(replays: Replays, monkeypatch: pytest.MonkeyPatch):
    settle(replays)
    x, a = pair()
    longer = torch.ones(9, dtype=torch.float64, requires_grad=True)
    assert replays.run_tracked("key", product, (longer, a)) is None
    with replay.disabled():
        assert replays.run_tracked("key", product, (x, a)) is None
    monkeypatch.setattr(Stream, "cuda_stream", 8)
    assert replays.run_tracked("key", product, (x, a)) is None
    monkeypatch.setattr(Stream, "cuda_stream", 7)
    assert replays.run_tracked("key", product, (x, a)) is not None
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert replays.run_tracked("key", product, (x, a)) is None


def test_dropped_plans_of_transforms_end_recordings(replays: Replays, monkeypatch: pytest.MonkeyPatch):
    settle(replays)
    x, a = pair()
    monkeypatch.setattr(replay, "_plan_count", lambda device: 2)
    assert replays.run_tracked("key", product, (x, a)) is None
    assert not replays.is_recorded("key", (x, a), True)
    monkeypatch.setattr(replay, "_plan_count", lambda device: -1)
    for _ in range(2 * CALLS):
        assert replays.run_tracked("key", product, (x, a)) is None


def test_what_cannot_be_recorded_runs_in_the_ordinary_way(replays: Replays, monkeypatch: pytest.MonkeyPatch):
    attempts = []

    class Failing(HostRecording):
        def _record(self, tracked: bool) -> None:
            attempts.append(1)
            raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(replay, "Recording", Failing)
    x, a = pair()
    for _ in range(3 * CALLS):
        assert replays.run_tracked("key", product, (x, a)) is None
    assert len(attempts) == 1


def test_memory_is_bounded(replays: Replays, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device=None: (100, 2**34))
    x, a = pair()
    for _ in range(3 * CALLS):
        assert replays.run_tracked("key", product, (x, a)) is None
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device=None: (2**34, 2**34))

    class Large(HostRecording):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.bytes = 2**28

    monkeypatch.setattr(replay, "Recording", Large)
    for key in range(4):  # of 2^28 bytes, of which 1/32 of 2^34 holds two
        for _ in range(CALLS + 1):
            replays.run_tracked(key, product, (x, a))
    assert [replays.is_recorded(key, (x, a), True) for key in range(4)] == [False, False, True, True]
    assert replays.clear() == 2**29


def test_nothing_is_recorded_beside_other_threads(replays: Replays):
    """PyTorch's random numbers would raise errors there."""
    x, a = pair()
    end = threading.Event()
    for name, recorded in (("a user's thread", False), ("Thread-1 (_pin_memory_loop)", True)):
        replays.clear()
        other = threading.Thread(target=end.wait, name=name)
        other.start()
        for _ in range(CALLS + 1):
            replays.run_tracked("key", product, (x, a))
        assert replays.is_recorded("key", (x, a), True) is recorded
        end.set()
        other.join()
        end.clear()
    replays.clear()
    worker = threading.Thread(target=lambda: [replays.run_tracked("key", product, (x, a)) for _ in range(3 * CALLS)])
    worker.start()
    worker.join()
    assert not replays.is_recorded("key", (x, a), True)


def test_threads_share_a_recording(replays: Replays):
    settle(replays)
    wrong: list[int] = []

    def work(number: int) -> None:
        for k in range(50):
            x, a = pair()
            x = (x.detach() * (number + k + 1.0)).requires_grad_()
            result = replays.run_tracked("key", product, (x, a))
            with contextlib.suppress(AssertionError):
                assert result is not None
                gradient = torch.autograd.grad(result.sum(), x)[0]
                assert torch.equal(result, product(x, a))
                assert torch.equal(gradient, torch.autograd.grad(product(x, a).sum(), x)[0])
                continue
            wrong.append(k)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong

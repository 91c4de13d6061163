"""MachineCalibration is short, separates compile times, and uses everything that it measures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.engine.backends import registry
from hpfracc.engine.execution import calibration, state
from hpfracc.engine.execution.calibration import SIZES, ArmTrial, MachineCalibration, calibrate
from hpfracc.engine.selection.knowledge import knowledge_for
from hpfracc.engine.selection.wisdom_sharing import summarize
from hpfracc.errors import ConfigurationError, UnknownOperationError
from tests.helpers import own_operations


@pytest.fixture
def own_operation() -> Iterator[Callable[..., Any]]:
    """Makes operations of one array, with a NumPy kernel and others by name; they are gone after the test."""
    with ExitStack() as stack:

        def make(default: Callable[[Any], Any], **others: Callable[[Any], Any]) -> Any:
            operation = stack.enter_context(own_operations.own_operation(default, work=lambda x: x.size))
            for algorithm, kernel in others.items():
                operation.kernel("numpy", algorithm=algorithm)(kernel)
            return operation

        yield make


class Clock:
    """A clock that only moves when it is read, a little, and when a kernel says how long it took."""

    def __init__(self) -> None:
        self.now = 1.0

    def perf_counter(self) -> float:
        self.now += 1e-8
        return self.now

    def kernel(self, least: float, per_element: float = 0.0) -> Callable[[Any], Any]:
        """A kernel that takes ``least`` seconds, and ``per_element`` more for each element."""

        def run(x: Any) -> Any:
            self.now += least + per_element * x.size
            return x

        return run


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The only clock there is: what a test sees does not depend on what else the machine does."""
    made = Clock()
    monkeypatch.setattr(calibration, "time", made)
    return made


def quick(operations: list[str], **options: Any) -> MachineCalibration:
    return calibrate(operations, backends=["numpy"], **options)


def times(found: MachineCalibration) -> dict[str, dict[int, float]]:
    """Seconds by algorithm and size."""
    rows: dict[str, dict[int, float]] = {}
    for each in found.timings:
        rows.setdefault(each.arm.partition(":")[2].partition("@")[0], {})[each.shape[0]] = each.seconds
    return rows


def test_what_is_found_decides_at_once_and_in_the_next_process():
    """Calibrated times are what ``explain`` predicts from, in this process and in one that reads the wisdom."""
    found = quick(["reduction"])
    for _ in range(2):
        row = hf.explain("reduction", shape=(4096,), backend="numpy").decision.chosen
        assert row is not None and row.source == "knots"
        assert 0.0 < row.total < 1.0
        state.reset()
    summary = summarize(knowledge_for(hf._config.get_settings()).wisdom)
    assert summary["kinds"]["knot"] >= len(found.timings) == len(SIZES) and found.kept == summary["records"]


def test_an_arm_is_not_timed_where_it_would_take_long(own_operation: Callable[..., Any], clock: Clock):
    """As its last size says; the others are."""
    operation = own_operation(clock.kernel(0.0, 1e-6), quick=clock.kernel(1e-6, 1e-9))
    rows = times(quick([operation.name]))
    assert set(rows["default"]) == {2**k for k in SIZES[:-1]} and set(rows["quick"]) == {2**k for k in SIZES}
    for size, seconds in rows["default"].items():
        assert seconds == pytest.approx(size * 1e-6, rel=0.01)


def test_first_calls_are_apart(own_operation: Callable[..., Any], clock: Clock):
    """A kernel that compiles for 0.6 s is as fast as its later calls; the 0.6 s are reported and remembered."""
    seen: list[int] = []

    def compiles(x: Any) -> Any:
        clock.now += 1e-6 if seen else 0.6
        seen.append(x.size)
        return x

    operation = own_operation(clock.kernel(2e-6))
    operation.kernel("numpy", algorithm="compiled", compiles="signature")(compiles)
    found = quick([operation.name])
    first = next(each for each in found.timings if "compiled" in each.arm)
    assert first.first == pytest.approx(0.6, rel=0.01) and first.seconds == pytest.approx(1e-6, rel=0.05)
    state.reset()
    (row,) = (row for row in hf.explain(operation.name, shape=(16,)).decision.candidates if "compiled" in row.arm)
    assert row.compile == pytest.approx(0.6, rel=0.01)


def test_a_library_without_a_kernel_is_not_imported(own_operation: Callable[..., Any], clock: Clock):
    """An operation with a NumPy kernel alone waits for no other library; who took no part is told."""
    operation = own_operation(clock.kernel(1e-6))
    told: list[tuple[float, str]] = []
    found = calibrate([operation.name], progress=lambda share, text: told.append((share, text)))
    assert [text for _, text in told if "importing" in text] == ["importing numpy"]
    assert [share for share, _ in told] == sorted(share for share, _ in told)
    assert set(found.absent) == {"numba", "torch", "jax", "cupy"}


def test_what_cannot_be_calibrated_is_refused():
    """An unknown operation, an unknown backend, one that is disabled, and deterministic mode."""
    with pytest.raises(UnknownOperationError, match="'causal_convolution'"):
        calibrate(["causal_convolutoin"])
    with pytest.raises(ConfigurationError, match="unknown backend 'fortran'"):
        calibrate(["fft"], backends=["fortran"])
    with hf.config(deterministic=True), pytest.raises(ConfigurationError, match="nothing may be learned"):
        calibrate(["fft"])


class FakeGPU:
    """Stands for an adapter whose library has one GPU, on which copies take a given time."""

    name = "torch"

    def devices(self) -> tuple[str, ...]:
        return "cpu", "cuda:0"

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def from_host(self, array: Any, device: str) -> Any:
        self.clock.now += 1e-3
        return array

    def to_host(self, array: Any) -> Any:
        self.clock.now += 2e-3
        return array

    def synchronize(self, device: str) -> None:
        pass


def test_copies_are_timed_each_way(clock: Clock, monkeypatch: pytest.MonkeyPatch):
    """Every GPU's two routes are learned, so that an arm on it can be priced before it was ever run."""
    monkeypatch.setattr(registry, "adapter", lambda name: FakeGPU(clock))
    found = MachineCalibration()
    calibration._time_copies(["torch"], found)
    assert {route for route, _, _ in found.transfers} == {"host->cuda:0", "cuda:0->host"}
    transfers = knowledge_for(hf._config.get_settings()).transfers
    assert transfers.estimate("host->cuda:0", 2**16) == pytest.approx(1e-3, rel=0.2)
    assert transfers.estimate("cuda:0->host", 2**16) == pytest.approx(2e-3, rel=0.2)


def test_kernels_that_refuse_the_usual_call_are_measured_with_another():
    """Blocks are timed with few weights, and every NumPy arm gets a time of its own."""
    timed: dict[tuple[str, str], set[str]] = {}
    for each in quick(["causal_convolution", "matmul"], sizes=(6, 14)).timings:
        timed.setdefault((each.series.operation, each.series.variant), set()).add(each.arm.partition("@")[0])
    assert timed == {
        ("causal_convolution", ""): {"numpy:direct", "numpy:fft"},
        ("causal_convolution", "prepared"): {"numpy:direct", "numpy:fft"},
        ("causal_convolution", "few weights"): {"numpy:blocked"},
        ("matmul", ""): {"numpy:default"},
    }


@pytest.mark.parametrize("order", ["kept first", "kept last"])
def test_calls_with_a_kept_transform_have_knots_of_their_own(order: str):
    """Whichever are measured first, neither are taken for the others."""
    arrays = np.ones(100), np.ones(100)
    kept, plain = (ArmTrial("causal_convolution", arrays, {}, prepared=prepared) for prepared in (True, False))
    (arm,) = (arm for arm, _ in plain.arms() if arm.name == "numpy:fft@cpu")
    steps = [(plain, 5e-3), (kept, 1e-3)] if order == "kept last" else [(kept, 1e-3), (plain, 5e-3)]
    for trial, seconds in steps:
        trial.knowledge.add_knot(trial.request, trial.knowledge.option(trial.request, arm), seconds)
    assert _predicted(kept, arm) == pytest.approx(1e-3)
    assert _predicted(plain, arm) == pytest.approx(5e-3)


def _predicted(trial: ArmTrial, arm: Any) -> float:
    option = trial.knowledge.option(trial.request, arm)
    return trial.knowledge.costs.estimate(option.key, trial.request.call.bucket, option.x).seconds

"""MachineCalibration is short, separates compile times, and uses everything that it measures."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import hpfracc as hf
from hpfracc.engine.backends import registry
from hpfracc.engine.execution import state
from hpfracc.engine.execution.calibration import runner
from hpfracc.engine.execution.calibration import trial as timing
from hpfracc.engine.execution.calibration.runner import SIZES, MachineCalibration, calibrate
from hpfracc.engine.execution.calibration.trial import (
    DEFAULT_OPERATIONS,
    ArmTrial,
    Series,
    make_operands,
    make_series,
    repeat,
    typical_operands,
)
from hpfracc.engine.primitives import PRIMITIVES
from hpfracc.engine.primitives.base import ArraySpec
from hpfracc.engine.selection.costs import lower_quartile
from hpfracc.engine.selection.knowledge import knowledge_for
from hpfracc.engine.selection.request import Placement
from hpfracc.engine.selection.wisdom_sharing import summarize
from hpfracc.errors import BackendUnavailableError, ConfigurationError, InvalidInputError, UnknownOperationError
from tests.helpers import own_operations
from tests.helpers.contracts import reference


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
    for module in (timing, runner):
        monkeypatch.setattr(module, "time", made)
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


def test_earlier_plans_are_decided_again(own_operation: Callable[..., Any], clock: Clock):
    """A call that was settled on a slow arm goes to the fast one after calibration."""
    operation = own_operation(clock.kernel(2e-3), fast=clock.kernel(1e-6))
    operation(np.ones(8))
    assert hf.last_decision().algorithm == "default"
    found = quick([operation.name])
    assert {each.arm for each in found.fastest()} == {"numpy:fast@cpu"}
    operation(np.ones(8))
    assert hf.last_decision().algorithm == "fast"


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


def test_an_arm_that_fails_is_reported_and_the_others_go_on(own_operation: Callable[..., Any], clock: Clock):
    """A kernel that raises costs its own line, nothing else."""

    def broken(x: Any) -> Any:
        raise RuntimeError("no such device")

    operation = own_operation(clock.kernel(1e-6), broken=broken)
    found = quick([operation.name])
    assert found.skipped == [(operation.name, "numpy:broken@cpu", "RuntimeError: no such device")]
    assert set(times(found)) == {"default"}


def test_operands_that_cannot_be_made_are_reported(own_operation: Callable[..., Any]):
    """An operation of the user's that refuses our example is a line."""

    def only_pairs(*arrays: Any) -> float:
        raise InvalidInputError("it takes two arrays")

    with own_operations.own_operation(lambda x: x, work=only_pairs) as operation:
        found = quick([operation.name])
    assert not found.timings
    assert found.skipped == [(operation.name, "every arm", "InvalidInputError: it takes two arrays")]


def test_a_library_without_a_kernel_is_not_imported(own_operation: Callable[..., Any], clock: Clock):
    """An operation with a NumPy kernel alone waits for no other library; who took no part is told."""
    operation = own_operation(clock.kernel(1e-6))
    told: list[tuple[float, str]] = []
    found = calibrate([operation.name], progress=lambda share, text: told.append((share, text)))
    assert [text for _, text in told if "importing" in text] == ["importing numpy"]
    assert [share for share, _ in told] == sorted(share for share, _ in told)
    assert set(found.absent) == {"numba", "torch", "jax", "cupy"}


def test_what_was_found_is_json_and_reads_well():
    """``to_dict`` holds no nan, and the table names operation, arm and what is kept."""
    found = quick(["bitwise_xor"], sizes=(4, 6), precisions=2)
    again = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert {(row["operation"], row["dtype"], *row["shape"]) for row in again["timings"]} == {
        ("bitwise_xor", dtype, size) for dtype in ("int64", "uint8") for size in (16, 64)
    }
    out = io.StringIO()
    Console(file=out, width=120).print(found)
    for word in ("bitwise_xor", "numpy:default@cpu", "records are kept"):
        assert word in out.getvalue()


def test_what_cannot_be_calibrated_is_refused():
    """An unknown operation, an unknown backend, one that is disabled, and deterministic mode."""
    with pytest.raises(UnknownOperationError, match="'causal_convolution'"):
        calibrate(["causal_convolutoin"])
    with pytest.raises(ConfigurationError, match="unknown backend 'fortran'"):
        calibrate(["fft"], backends=["fortran"])
    with hf.config(deterministic=True), pytest.raises(ConfigurationError, match="nothing may be learned"):
        calibrate(["fft"])


def test_a_disabled_backend_is_refused_by_name(monkeypatch: pytest.MonkeyPatch):
    """Asked for by name it is refused; otherwise it is left alone."""
    monkeypatch.setenv("HPFRACC_DISABLE_NUMBA", "1")
    hf._config.refresh_environment()
    with pytest.raises(BackendUnavailableError, match="HPFRACC_DISABLE_NUMBA"):
        calibrate(["fft"], backends=["numba"])


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
    runner._time_copies(["torch"], found)
    assert {route for route, _, _ in found.transfers} == {"host->cuda:0", "cuda:0->host"}
    transfers = knowledge_for(hf._config.get_settings()).transfers
    assert transfers.estimate("host->cuda:0", 2**16) == pytest.approx(1e-3, rel=0.2)
    assert transfers.estimate("cuda:0->host", 2**16) == pytest.approx(2e-3, rel=0.2)


def test_series_with_a_gpu_cover_operands_there(clock: Clock, monkeypatch: pytest.MonkeyPatch):
    """With a GPU every operation is calibrated twice: operands on the host, and operands that lie on the GPU."""
    monkeypatch.setattr(registry, "adapter", lambda name: FakeGPU(clock))
    made = make_series(DEFAULT_OPERATIONS, ["torch"], 1)
    for name in DEFAULT_OPERATIONS:
        assert {series.placement.start for series in made if series.operation == name} == {"host", "device"}
    assert Placement("torch", "cuda:0") in {series.placement for series in made}


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


@pytest.mark.parametrize("seconds", [0.2e-6, 30e-6, 1e-3, 8e-3])
def test_a_quick_call_is_repeated_for_about_the_effort(seconds: float, clock: Clock):
    """At least five samples, each right, in about the time asked for."""
    kernel, begin = clock.kernel(seconds), clock.now
    samples = repeat(lambda: kernel(np.ones(1)))
    assert 5 <= len(samples) <= 32
    assert samples == pytest.approx([seconds] * len(samples), rel=0.06)
    assert 0.005 < clock.now - begin < 0.06


@pytest.mark.parametrize(("seconds", "count"), [(0.5, 2), (0.04, 3)])
def test_a_slow_call_is_repeated_a_few_times(seconds: float, count: int, clock: Clock):
    """Its warm-up counts."""
    kernel = clock.kernel(seconds)
    assert len(repeat(lambda: kernel(np.ones(1)))) == count


def test_the_lower_quartile_is_no_single_lucky_sample():
    """Of eight samples it is the second smallest, of one or two the smaller."""
    assert lower_quartile([8, 7, 6, 5, 4, 3, 2, 1]) == 2
    assert lower_quartile([3.0]) == 3.0
    assert lower_quartile([3.0, 2.0]) == 2.0


@pytest.mark.parametrize("dtype", ["float32", "complex128", "int8", "uint64", "bool"])
def test_operands_are_the_same_every_time(dtype: str):
    """Shape and dtype as asked, long ones too, and not all alike."""
    specs = [ArraySpec((3, 50_000), dtype), ArraySpec((0,), dtype)]
    first, second = make_operands(specs), make_operands(specs)
    assert [array.shape for array in first] == [(3, 50_000), (0,)]
    assert {array.dtype.name for array in first} == {dtype}
    np.testing.assert_array_equal(first[0], second[0])
    assert len(np.unique(first[0])) > 1


@pytest.mark.parametrize("operation", sorted(PRIMITIVES))
def test_typical_operands_are_those_of_a_real_call(operation: str):
    """What is calibrated has an answer without a hole: times that rise, costs above 0, memory that fades."""
    dtype = "int64" if operation == "bitwise_xor" else "float64"
    specs, params = Series(operation, dtype).operands(4)
    arrays = typical_operands(operation, specs)
    assert [(array.shape, array.dtype.name) for array in arrays] == [(spec.shape, spec.dtype) for spec in specs]
    answer = reference(PRIMITIVES[operation], *arrays, **params)
    assert answer.size
    assert np.isfinite(answer).all()


def test_lattices_are_calibrated_as_squares():
    """A line is no typical maze: its one way is as long as it has points."""
    assert Series("stencil_relax", "float64").shape(10) == (32, 32)


def test_a_trial_with_kept_weights_uses_them():
    """In the prepared variant the transform is made once, and its times are kept apart from the others."""
    weights, signal = make_operands([ArraySpec((512,)), ArraySpec((512,))])
    trial = ArmTrial("causal_convolution", (weights, signal), {}, prepared=True)
    arm = next(arm for arm, refused in trial.arms() if refused is None and arm.algorithm == "fft")
    assert trial.time(arm)[0] > 0.0
    assert trial.request.operation == "causal_convolution+prepared"
    calibrated = {key[0] for key, entry in trial.knowledge.costs._entries.items() if entry.calibrated}
    assert calibrated == {"causal_convolution+prepared"}


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


def test_kept_transforms_are_calibrated_by_default():
    """Operators make no other calls."""
    names = {series.name for series in make_series(DEFAULT_OPERATIONS, ["numpy"], 1)}
    assert "causal_convolution (prepared)" in names

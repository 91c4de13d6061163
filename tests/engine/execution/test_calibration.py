"""Calibration stays within its time limit, separates compile times, and uses everything that it measures."""

from __future__ import annotations

import io
import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import hpfracc as hf
from hpfracc.engine.backends import registry
from hpfracc.engine.execution import state
from hpfracc.engine.execution.calibration import runner
from hpfracc.engine.execution.calibration import trial as timing
from hpfracc.engine.execution.calibration.report import CalibrationReport
from hpfracc.engine.execution.calibration.runner import Step, calibrate
from hpfracc.engine.execution.calibration.trial import (
    DEFAULT_OPERATIONS,
    ArmTrial,
    Series,
    TimeBox,
    TimeGrowth,
    Timing,
    make_operands,
    make_series,
    repeat,
    rounds,
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


@pytest.fixture
def processor_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of this process alone: what else the machine does takes none of the budget."""
    for module in (timing, runner):
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=time.process_time))


def quick(operations: list[str], seconds: float = 0.4, **options: Any) -> CalibrationReport:
    return calibrate(operations, budget_seconds=seconds, backends=["numpy"], **options)


def test_what_is_found_decides_at_once_and_in_the_next_process(processor_time: None):
    """Calibrated times are what ``explain`` predicts from, in this process and in one that reads the wisdom."""
    report = quick(["reduction"])
    assert report.measurements >= 9
    for _ in range(2):
        row = hf.explain("reduction", shape=(4096,), backend="numpy").decision.chosen
        assert row is not None
        assert row.source == "knots"
        assert 0.0 < row.total < 0.1
        state.reset()
    summary = summarize(knowledge_for(hf._config.get_settings()).wisdom)
    assert summary["kinds"]["knot"] >= report.measurements
    assert report.kept == summary["records"]


def test_earlier_plans_are_decided_again(own_operation: Callable[..., Any], clock: Clock):
    """A call that was settled on a slow arm goes to the fast one after calibration."""
    operation = own_operation(clock.kernel(2e-3), fast=clock.kernel(1e-6))
    operation(np.ones(8))
    assert hf.last_decision().algorithm == "default"
    quick([operation.name])
    operation(np.ones(8))
    assert hf.last_decision().algorithm == "fast"


def test_it_ends_within_the_box_and_says_what_was_left_out(own_operation: Callable[..., Any], clock: Clock):
    """Nothing is begun that would not end in time: at 1 us an element the largest sizes are left out, with a reason."""
    operation = own_operation(clock.kernel(0.0, 1e-6))
    report = quick([operation.name], 0.5)
    assert 0.3 < report.spent <= 0.5
    late = {skip.shape for skip in report.skipped if "time limit" in skip.why}
    assert late == {(2**18,), (2**20,)}
    (sizes,) = report.timings.values()
    assert set(sizes) == {(2**k,) for k in range(4, 17, 2)}
    for (size,), row in sizes.items():
        assert row["numpy:default@cpu"].seconds == pytest.approx(size * 1e-6, rel=0.01)


def test_a_hopeless_arm_is_not_timed_at_large_sizes(own_operation: Callable[..., Any], clock: Clock):
    """An arm whose times grow away from the best one's is skipped; one that is slow only at small sizes is not."""
    operation = own_operation(
        clock.kernel(1e-6, 1e-9), grows=clock.kernel(1e-6, 1e-6), starts_slowly=clock.kernel(200e-6, 0.2e-9)
    )
    report = quick([operation.name], 5.0)
    (sizes,) = report.timings.values()
    hopeless = {(skip.arm, skip.shape) for skip in report.skipped if "times slower" in skip.why}
    assert ("numpy:grows@cpu", (2**20,)) in hopeless
    assert "numpy:grows@cpu" in sizes[2**8,]
    assert "numpy:starts_slowly@cpu" in sizes[2**20,]
    winners = [(step.shape, step.arm) for step in report.crossovers(next(iter(report.timings)))]
    assert winners[0] == ((16,), "numpy:default@cpu")
    assert winners[-1][1] == "numpy:starts_slowly@cpu"


def test_first_calls_are_beside_the_box(own_operation: Callable[..., Any], clock: Clock):
    """A kernel that compiles for 0.6 s does not use up a box of 0.4 s; it is reported and remembered."""
    seen: list[int] = []

    def compiles(x: Any) -> Any:
        clock.now += 1e-6 if seen else 0.6
        seen.append(x.size)
        return x

    operation = own_operation(clock.kernel(2e-6))
    operation.kernel("numpy", algorithm="compiled", compiles="signature")(compiles)
    report = quick([operation.name])
    assert report.spent <= 0.4
    assert report.compiling == pytest.approx(0.6, rel=0.01)
    firsts = {timing.arm: timing.first for _, _, timing in report.compiles()}
    assert firsts["numpy:compiled@cpu"] == pytest.approx(0.6, rel=0.01)
    (sizes,) = report.timings.values()
    assert sizes[16,]["numpy:compiled@cpu"].seconds == pytest.approx(1e-6, rel=0.05)
    state.reset()
    (row,) = (row for row in hf.explain(operation.name, shape=(16,)).decision.candidates if "compiled" in row.arm)
    assert row.compile == pytest.approx(0.6, rel=0.01)


def test_an_arm_that_fails_is_reported_and_the_others_go_on(own_operation: Callable[..., Any], clock: Clock):
    """A kernel that raises costs its own line in the report, nothing else."""

    def broken(x: Any) -> Any:
        raise RuntimeError("no such device")

    operation = own_operation(clock.kernel(1e-6), broken=broken)
    report = quick([operation.name], 0.2)
    failed = [skip for skip in report.skipped if skip.arm == "numpy:broken@cpu"]
    assert {skip.why for skip in failed} == {"RuntimeError: no such device"}
    (sizes,) = report.timings.values()
    assert all(set(row) == {"numpy:default@cpu"} for row in sizes.values())


def test_operands_that_cannot_be_made_are_reported(own_operation: Callable[..., Any]):
    """An operation of the user's that refuses our example is a line in the report."""

    def only_pairs(*arrays: Any) -> float:
        raise InvalidInputError("it takes two arrays")

    with own_operations.own_operation(lambda x: x, work=only_pairs) as operation:
        report = quick([operation.name], 0.2)
    assert report.measurements == 0
    assert {skip.why for skip in report.skipped} == {"InvalidInputError: it takes two arrays"}


def test_a_library_without_a_kernel_is_not_imported(own_operation: Callable[..., Any], clock: Clock):
    """An operation with a NumPy kernel alone waits for no other library, and the report says who took no part."""
    operation = own_operation(clock.kernel(1e-6))
    steps: list[Step] = []
    report = calibrate([operation.name], budget_seconds=0.1, progress=steps.append)
    assert {step.subject for step in steps if step.what == "importing"} == {"numpy"}
    assert set(report.absent) == {"numba", "torch", "jax", "cupy"}
    assert report.to_dict()["absent"] == report.absent


def test_arms_compiled_for_each_shape_are_measured_at_few(own_operation: Callable[..., Any], clock: Clock):
    """Between the sizes of the first round they are left out, unless the calibration is thorough."""
    operation = own_operation(clock.kernel(1e-6))
    operation.kernel("numpy", algorithm="traced", compiles="shape")(clock.kernel(2e-6))
    found = {}
    for thorough in (False, True):
        report = quick([operation.name], 1.0, thorough=thorough)
        series = next(iter(report.timings))
        found[thorough] = {shape for shape, row in report.timings[series].items() if "numpy:traced@cpu" in row}
    assert found[False] == {(2**k,) for k in (4, 8, 12, 16, 20)}
    assert found[True] > found[False]


def test_progress_is_told_in_order(processor_time: None):
    """Steps come as the box fills: spent never falls, and every measured arm is named."""
    steps: list[Step] = []
    report = quick(["bitwise_xor"], 0.3, progress=steps.append)
    spent = [step.spent for step in steps]
    assert spent == sorted(spent)
    assert steps[0].what == "importing"
    measured = {timing.arm for sizes in report.timings.values() for row in sizes.values() for timing in row.values()}
    assert measured == {step.arm for step in steps if step.what == "measuring"}
    assert all(step.budget == 0.3 for step in steps)


def test_the_report_is_json_and_reads_well(processor_time: None):
    """``to_dict`` holds no nan, and the table names operation, arm, box and what is kept."""
    report = quick(["bitwise_xor"], 0.3)
    again = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    (operation,) = again["operations"]
    assert operation["operation"] == "bitwise_xor"
    assert operation["crossovers"][0]["from"] == [16]
    assert len(operation["timings"]) == again["measurements"]
    out = io.StringIO()
    Console(file=out, width=120).print(report)
    text = out.getvalue()
    for word in ("bitwise_xor", "numpy:default@cpu", "of 0.3 s", "records are kept"):
        assert word in text


@pytest.mark.parametrize("seconds", [0, -1.0, math.nan, math.inf, "10"])
def test_a_box_that_is_no_time_is_refused(seconds: Any):
    """The value is named in the error."""
    with pytest.raises(InvalidInputError, match=r"budget_seconds=.* above 0"):
        calibrate(["fft"], budget_seconds=seconds)


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
    report = CalibrationReport(1.0, False)
    runner._Runner([], ["torch"], report, lambda step: None)._copies()
    assert {route for route, _, _ in report.transfers} == {"host->cuda:0", "cuda:0->host"}
    transfers = knowledge_for(hf._config.get_settings()).transfers
    assert transfers.estimate("host->cuda:0", 2**16) == pytest.approx(1e-3, rel=0.2)
    assert transfers.estimate("cuda:0->host", 2**16) == pytest.approx(2e-3, rel=0.2)


def test_series_with_a_gpu_cover_operands_there(clock: Clock, monkeypatch: pytest.MonkeyPatch):
    """With a GPU every operation is calibrated twice: operands on the host, and operands that lie on the GPU."""
    monkeypatch.setattr(registry, "adapter", lambda name: FakeGPU(clock))
    made = make_series(None, ["torch"], thorough=False)
    for name in DEFAULT_OPERATIONS:
        assert {series.placement.start for series in made if series.operation == name} == {"host", "device"}
    assert Placement("torch", "cuda:0") in {series.placement for series in made}


def test_kernels_that_refuse_the_usual_call_are_measured_with_another():
    """Blocks are timed with few weights, and every NumPy arm gets a time of its own."""
    report = calibrate(["causal_convolution", "matmul"], budget_seconds=2.0, backends=["numpy"])
    timed = {
        (series.operation, series.variant): {arm.partition("@")[0] for row in sizes.values() for arm in row}
        for series, sizes in report.timings.items()
    }
    assert timed == {
        ("causal_convolution", ""): {"numpy:direct", "numpy:fft"},
        ("causal_convolution", "prepared"): {"numpy:direct", "numpy:fft"},
        ("causal_convolution", "few weights"): {"numpy:blocked"},
        ("matmul", ""): {"numpy:default"},
    }


def test_rounds_cover_every_power_once():
    """Later rounds lie between the earlier ones and repeat nothing."""
    together = [k for exponents in rounds(True) for k in exponents]
    assert sorted(together) == list(range(4, 25))
    assert rounds(False) == rounds(True)[:2]


def test_crossovers_ignore_what_is_within_ten_per_cent():
    """The winner at a smaller size stays until another is clearly faster, or until it is not measured any more."""
    report = CalibrationReport(1.0, False)
    series = Series("fft", "float64")
    table = {16: {"a": 1.0, "b": 2.0}, 64: {"a": 1.05, "b": 1.0}, 256: {"a": 2.0, "b": 1.0}, 1024: {"c": 3.0}}
    for size, row in table.items():
        for arm, seconds in row.items():
            report.add(series, (size,), Timing(arm, seconds, (seconds,), float(size)))
    found = [(step.shape, step.arm, step.seconds) for step in report.crossovers(series)]
    assert found == [((16,), "a", 1.0), ((256,), "b", 1.0), ((1024,), "c", 3.0)]


def test_growth_bounds_what_comes_next():
    """From one time nothing but itself is sure; from two the slope carries on; in between lies the straight line."""
    growth = TimeGrowth()
    assert growth.expected(100) == (0.0, 0.0, 0.0)
    growth.add(100, 1e-3)
    least, _, most = growth.expected(10_000)
    assert (least, most) == pytest.approx((1e-3, 0.1))
    growth.add(10_000, 2e-3)
    assert 2e-3 < growth.expected(1_000_000)[0] < 0.01
    assert growth.expected(1_000) == pytest.approx([math.sqrt(2) * 1e-3] * 3)


@pytest.mark.parametrize("seconds", [0.2e-6, 30e-6, 1e-3, 8e-3])
def test_a_quick_call_is_repeated_for_about_the_effort(seconds: float, clock: Clock):
    """At least five samples, each right, in about the time asked for."""
    kernel, begin = clock.kernel(seconds), clock.now
    samples = repeat(lambda: kernel(np.ones(1)), effort=0.03)
    assert 5 <= len(samples) <= 32
    assert samples == pytest.approx([seconds] * len(samples), rel=0.06)
    assert 0.02 < clock.now - begin < 0.06


@pytest.mark.parametrize(
    ("seconds", "limit", "count"), [(0.5, 60.0, 2), (0.04, 60.0, 3), (0.5, 0.6, 1), (0.04, 0.09, 2)]
)
def test_a_slow_call_is_repeated_a_few_times_within_the_limit(seconds: float, limit: float, count: int, clock: Clock):
    """Its warm-up counts, and no run is begun that would end past the limit."""
    kernel, begin = clock.kernel(seconds), clock.now
    assert len(repeat(lambda: kernel(np.ones(1)), effort=0.03, limit=limit)) == count
    assert clock.now - begin <= limit


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
    assert trial.time(arm, TimeBox(1.0), effort=1e-3).seconds > 0.0
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
        trial.learn(arm, seconds)
    assert _predicted(kept, arm) == pytest.approx(1e-3)
    assert _predicted(plain, arm) == pytest.approx(5e-3)


def _predicted(trial: ArmTrial, arm: Any) -> float:
    option = trial.knowledge.option(trial.request, arm)
    return trial.knowledge.costs.estimate(option.key, trial.request.call.bucket, option.x).seconds


def test_kept_transforms_are_calibrated_by_default():
    """Operators make no other calls."""
    names = {series.name for series in make_series(None, ["numpy"], thorough=False)}
    assert "causal_convolution (prepared)" in names

"""Calibration: within its box of time, compile times apart, and everything it finds put to use."""

from __future__ import annotations

import io
import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import hpfracc as hf
from hpfracc.engine.backends import registry
from hpfracc.engine.execution import state
from hpfracc.engine.execution.calibration import (
    CalibrationReport,
    Series,
    Step,
    TimeBox,
    Timing,
    Trial,
    calibrate,
    make_operands,
    runner,
)
from hpfracc.engine.execution.calibration.growth import Growth
from hpfracc.engine.execution.calibration.series import DEFAULT_OPERATIONS, make_series, rounds
from hpfracc.engine.execution.calibration.stopwatch import lower_quartile, repeat
from hpfracc.engine.primitives.base import ArraySpec
from hpfracc.engine.selection.knowledge import knowledge_for
from hpfracc.engine.selection.placement import Placement
from hpfracc.errors import BackendUnavailableError, ConfigurationError, InvalidInputError, UnknownOperationError
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


def sleeping(seconds_per_element: float, least: float = 0.0) -> Callable[[Any], Any]:
    def kernel(x: Any) -> Any:
        time.sleep(least + seconds_per_element * x.size)
        return x

    return kernel


def quick(operations: list[str], seconds: float = 0.4, **options: Any) -> CalibrationReport:
    return calibrate(operations, budget_seconds=seconds, backends=["numpy"], **options)


def test_what_is_found_decides_at_once_and_in_the_next_process():
    """Calibrated times are what ``explain`` predicts from, in this process and in one that reads the wisdom."""
    report = quick(["reduction"])
    assert report.measurements >= 9
    for _ in range(2):
        row = hf.explain("reduction", shape=(4096,)).decision.chosen
        assert row is not None
        assert row.source == "knots"
        assert 0.0 < row.total < 0.1
        state.reset()
    summary = knowledge_for(hf._config.get_settings()).wisdom.summary()
    assert summary["kinds"]["knot"] >= report.measurements
    assert report.kept == summary["records"]


def test_plans_made_before_are_decided_anew(own_operation: Callable[..., Any]):
    """A call that was settled on a slow arm goes to the fast one after calibration."""
    operation = own_operation(sleeping(0.0, 2e-3), fast=lambda x: x)
    operation(np.ones(8))
    assert hf.last_decision().algorithm == "default"
    quick([operation.name])
    operation(np.ones(8))
    assert hf.last_decision().algorithm == "fast"


def test_it_ends_within_the_box_and_says_what_was_left_out(own_operation: Callable[..., Any]):
    """Nothing is begun that would not end in time: at 1 us an element the largest sizes are left out, with a reason."""
    operation = own_operation(sleeping(1e-6))
    report = quick([operation.name], 0.5)
    assert report.spent <= 0.55
    late = [skip for skip in report.skipped if "box of time" in skip.why]
    assert (2**20,) in {skip.shape for skip in late}
    assert {shape for sizes in report.timings.values() for shape in sizes}.isdisjoint(skip.shape for skip in late)


def test_a_hopeless_arm_is_not_timed_at_large_sizes(own_operation: Callable[..., Any]):
    """An arm whose times grow away from the best one's is skipped; one that is slow only at small sizes is not."""
    operation = own_operation(lambda x: x, grows=sleeping(2e-6), starts_slowly=sleeping(0.0, 2e-3))
    report = quick([operation.name], 2.0)
    (sizes,) = report.timings.values()
    assert "numpy:starts_slowly@cpu" in sizes[16,]
    hopeless = {skip.arm: skip for skip in report.skipped if "times slower" in skip.why}
    assert "numpy:grows@cpu" in hopeless
    assert "numpy:grows@cpu" not in sizes.get((2**20,), {})


def test_first_calls_are_beside_the_box(own_operation: Callable[..., Any]):
    """A kernel that compiles for 0.6 s does not use up a box of 0.4 s; it is reported and remembered."""
    seen: list[int] = []

    def compiles(x: Any) -> Any:
        if not seen:
            time.sleep(0.6)
        seen.append(x.size)
        return x

    operation = own_operation(lambda x: x)
    operation.kernel("numpy", algorithm="compiled", compiles="signature")(compiles)
    report = quick([operation.name])
    assert report.spent <= 0.44
    assert report.compiling >= 0.6
    firsts = {timing.arm: timing.first for _, _, timing in report.compiles()}
    assert firsts["numpy:compiled@cpu"] == pytest.approx(0.6, abs=0.2)
    (sizes,) = report.timings.values()
    assert sizes[16,]["numpy:compiled@cpu"].seconds < 0.01
    state.reset()
    (row,) = (row for row in hf.explain(operation.name, shape=(16,)).decision.candidates if "compiled" in row.arm)
    assert row.compile == pytest.approx(0.6, abs=0.2)


def test_an_arm_that_fails_is_reported_and_the_others_go_on(own_operation: Callable[..., Any]):
    """A kernel that raises costs its own line in the report, nothing else."""

    def broken(x: Any) -> Any:
        raise RuntimeError("no such device")

    operation = own_operation(lambda x: x, broken=broken)
    report = quick([operation.name], 0.2)
    failed = [skip for skip in report.skipped if skip.arm == "numpy:broken@cpu"]
    assert {skip.why for skip in failed} == {"RuntimeError: no such device"}
    (sizes,) = report.timings.values()
    assert all(set(row) == {"numpy:default@cpu"} for row in sizes.values())


def test_arms_compiled_for_each_shape_are_measured_at_few(own_operation: Callable[..., Any]):
    """Between the sizes of the first round they are left out, unless the calibration is thorough."""
    operation = own_operation(lambda x: x)
    operation.kernel("numpy", algorithm="traced", compiles="shape")(lambda x: x)
    found = {}
    for thorough in (False, True):
        report = quick([operation.name], 1.0, thorough=thorough)
        series = next(iter(report.timings))
        found[thorough] = {shape for shape, row in report.timings[series].items() if "numpy:traced@cpu" in row}
    assert found[False] == {(2**k,) for k in (4, 8, 12, 16, 20)}
    assert found[True] > found[False]


def test_progress_is_told_in_order():
    """Steps come as the box fills: spent never falls, and every measured arm is named."""
    steps: list[Step] = []
    report = quick(["bitwise_xor"], 0.3, progress=steps.append)
    spent = [step.spent for step in steps]
    assert spent == sorted(spent)
    assert steps[0].what == "importing"
    measured = {timing.arm for sizes in report.timings.values() for row in sizes.values() for timing in row.values()}
    assert measured == {step.arm for step in steps if step.what == "measuring"}
    assert all(step.budget == 0.3 for step in steps)


def test_the_report_is_json_and_reads_well():
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


class FakeCard:
    """Stands for an adapter whose library has one card, on which copies take a given time."""

    name = "torch"

    def devices(self) -> tuple[str, ...]:
        return "cpu", "cuda:0"

    def from_host(self, array: Any, device: str) -> Any:
        time.sleep(1e-3)
        return array

    def to_host(self, array: Any) -> Any:
        time.sleep(2e-3)
        return array

    def synchronize(self, device: str) -> None:
        pass


def test_copies_are_timed_each_way(monkeypatch: pytest.MonkeyPatch):
    """Every card's two routes are learned, so that an arm on it can be priced before it was ever run."""
    monkeypatch.setattr(registry, "adapter", lambda name: FakeCard())
    report = CalibrationReport(1.0, False)
    runner._Runner([], ["torch"], report, lambda step: None)._copies()
    assert {route for route, _, _ in report.transfers} == {"host->cuda:0", "cuda:0->host"}
    transfers = knowledge_for(hf._config.get_settings()).transfers
    assert transfers.estimate("host->cuda:0", 2**16) == pytest.approx(1e-3, rel=0.5)
    assert transfers.estimate("cuda:0->host", 2**16) == pytest.approx(2e-3, rel=0.5)


def test_series_with_a_card_cover_operands_there(monkeypatch: pytest.MonkeyPatch):
    """With a card every operation is calibrated twice: operands on the host, and operands that lie on the card."""
    monkeypatch.setattr(registry, "adapter", lambda name: FakeCard())
    made = make_series(None, ["torch"], thorough=False)
    for name in DEFAULT_OPERATIONS:
        assert {series.placement.start for series in made if series.operation == name} == {"host", "device"}
    assert Placement("torch", "cuda:0") in {series.placement for series in made}


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
    growth = Growth()
    assert (growth.least(100), growth.most(100)) == (0.0, 0.0)
    growth.add(100, 1e-3)
    assert growth.least(10_000) == pytest.approx(1e-3)
    assert growth.most(10_000) == pytest.approx(0.1)
    growth.add(10_000, 2e-3)
    assert 2e-3 < growth.least(1_000_000) < 0.01
    assert growth.expected(1_000) == pytest.approx(math.sqrt(2) * 1e-3)


def test_repeats_spend_about_the_effort_and_stop_at_the_limit():
    """A quick call is repeated for about as long as asked; a slow one not past the limit."""
    begin = time.perf_counter()
    samples = repeat(lambda: time.sleep(1e-3), effort=0.03)
    assert len(samples) >= 5
    assert time.perf_counter() - begin < 1.0
    assert lower_quartile(samples) >= 1e-3
    box = TimeBox(10.0)
    samples = repeat(lambda: time.sleep(0.05), effort=0.03, limit=0.06)
    assert len(samples) == 1
    assert box.spent < 0.15


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


def test_a_trial_with_kept_weights_uses_them():
    """In the prepared variant the transform is made once, and its times are kept apart from the others."""
    weights, signal = make_operands([ArraySpec((512,)), ArraySpec((512,))])
    trial = Trial("causal_convolution", (weights, signal), {}, prepared=True)
    arm = next(arm for arm, refused in trial.arms() if refused is None and arm.algorithm == "fft")
    assert trial.time(arm, TimeBox(1.0), effort=1e-3).seconds > 0.0
    assert trial.request.operation == "causal_convolution+prepared"
    facts = {fact.key[0] for fact in trial.knowledge.costs.facts() if fact.kind == "knot"}
    assert facts == {"causal_convolution+prepared"}

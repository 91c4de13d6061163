"""Energy: counters, the power of arms, choices by joules, and joules in profiles. All counters are simulated."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc._config import get_settings
from hpfracc.engine.execution import calibration
from hpfracc.engine.execution.calibration import ArmTrial, calibrate
from hpfracc.engine.hardware import GPU
from hpfracc.engine.hardware import energy as hardware_energy
from hpfracc.engine.hardware.energy import read_energy_counters
from hpfracc.engine.selection.costs import CostModel, Option
from hpfracc.engine.selection.knowledge import knowledge_for
from hpfracc.engine.selection.policy import Chooser
from hpfracc.engine.selection.regret import regret_report
from hpfracc.errors import ConfigurationError
from hpfracc.profiling import Profiler, clocks


def use_counters(monkeypatch: pytest.MonkeyPatch, counters: dict[str, Callable[[], float]], reason: str = "") -> None:
    monkeypatch.setattr(hardware_energy, "read_energy_counters", lambda: (counters, reason))


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor whose counter rises by a joule with each reading; a second counts as long enough at once."""
    numbers = itertools.count()
    use_counters(monkeypatch, {"cpu": lambda: float(next(numbers))})
    monkeypatch.setattr(clocks, "MIN_SECONDS", 0.0)
    monkeypatch.setattr(calibration, "POWER_SECONDS", 0.0)


def rapl(root: Path, *packages: int) -> list[Path]:
    files = []
    for number, value in enumerate(packages):
        folder = root / f"sys/class/powercap/intel-rapl:{number}"
        folder.mkdir(parents=True)
        (folder / "max_energy_range_uj").write_text("1000000\n")
        (folder / "energy_uj").write_text(f"{value}\n")
        part = root / f"sys/class/powercap/intel-rapl:{number}:0"  # cores: contained in the package
        part.mkdir()
        (part / "energy_uj").write_text("5\n")
        files.append(folder / "energy_uj")
    return files


def test_packages_are_added_and_wrap_around(tmp_path: Path):
    """Microjoules of all packages, without their parts; a counter that starts again goes on."""
    files = rapl(tmp_path, 100_000, 990_000)
    counters, reason = read_energy_counters(tmp_path)
    assert counters["cpu"]() == 0.0 and "no GPU" in reason
    files[0].write_text("350000\n")
    files[1].write_text("40000\n")
    assert counters["cpu"]() == pytest.approx(0.25 + 0.05)
    assert counters["cpu"]() == pytest.approx(0.3)


def test_what_cannot_be_read_is_said(tmp_path: Path):
    """No files; files that only root reads."""
    assert "no RAPL files" in read_energy_counters(tmp_path)[1]
    (file,) = rapl(tmp_path, 5)
    file.unlink()
    counters, reason = read_energy_counters(tmp_path)
    assert "cpu" not in counters and "root only" in reason


def test_gpus_are_read_through_nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Millijoules by the GPU's id; a GPU that does not count is said."""
    gpu = GPU("cuda:0", "simulated", "1", "GPU-7", "0000:01", None)
    monkeypatch.setattr(hardware_energy, "machine", lambda: SimpleNamespace(gpus=(gpu,)))
    nvml = SimpleNamespace(
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid, nvmlDeviceGetTotalEnergyConsumption=lambda handle: 2500
    )
    monkeypatch.setattr(hardware_energy, "start_nvml", lambda: nvml)
    assert read_energy_counters(tmp_path)[0]["cuda:0"]() == 2.5

    def refuse(handle: Any) -> int:
        raise RuntimeError("Not Supported")

    nvml.nvmlDeviceGetTotalEnergyConsumption = refuse
    assert "Not Supported" in read_energy_counters(tmp_path)[1]


def add_watts(watts: dict[str, float]) -> None:
    """Measured power of arms of a convolution."""
    trial = ArmTrial("causal_convolution", (np.ones(64), np.ones(64)), {})
    for arm, _ in trial.arms():
        if arm.name in watts:
            trial.knowledge.add_power(trial.request, trial.knowledge.option(trial.request, arm), watts[arm.name], 2.0)


def test_the_objective_decides(monkeypatch: pytest.MonkeyPatch):
    """The arm with the least seconds times watts is taken; arms on devices without a reading are refused."""
    use_counters(monkeypatch, {}, "nothing here")
    x = np.ones(512)
    with hf.config(never={"causal_convolution": ["numba", "torch", "jax", "cupy"]}):
        rows = hf.explain(hf.causal_convolution, x, x).decisions[0]
        times = {row.arm: row.total for row in rows.candidates if row.refused is None}
        quick, slow = sorted(times, key=times.__getitem__)[:2]
        with hf.config(objective="energy"):
            with pytest.raises(ConfigurationError, match=r"calibrate --energy`.*nothing here"):
                hf.causal_convolution(x, x)
            add_watts({quick: 100.0, slow: 50.0 * times[quick] / times[slow]})
            found = hf.explain(hf.causal_convolution, x, x).decisions[0]
            assert found.arm == slow and "least energy" in found.reason
            assert np.allclose(hf.causal_convolution(x, x), np.arange(1.0, 513.0))
            assert hf.last_decision().arm == slow
            # Another operation on the same device: the mean of what was measured there.
            assert "least energy" in hf.explain(hf.fft, x).decisions[0].reason
        assert hf.explain(hf.causal_convolution, x, x).decisions[0].arm == quick


def test_regret_is_counted_in_joules():
    """Where energy decides; time and energy are not added, and the report says which is which."""
    costs = CostModel()
    costs.add_knot("quick", 1.0, 1e-3)
    costs.add_knot("frugal", 1.0, 2e-3)
    chooser = Chooser(costs)
    options = [Option("quick", "quick", 1.0, watts=100.0), Option("frugal", "frugal", 1.0, watts=20.0)]
    chooser.choose("fft", "bucket", options)
    chooser.tally("fft", "bucket", options[0], 10)
    row = regret_report(chooser).total
    assert row.objective == "energy" and row.best == pytest.approx(0.4) and row.regret == pytest.approx(1.5)
    assert row.slow == 1.0 and "0.4 J" in str(regret_report(chooser))
    plain = [replace(option, watts=None) for option in options]
    chooser.choose("fft", "bucket", plain)
    chooser.tally("fft", "bucket", plain[0], 10)
    report = regret_report(chooser)
    assert [(each.objective, round(each.regret, 12)) for each in report.operations] == [("energy", 1.5), ("time", 0.0)]
    assert report.total.objective == "both" and np.isnan(report.total.regret) and report.total.calls == 20


def test_power_is_kept_in_the_wisdom(ticking: None):
    """MachineCalibration runs every arm, keeps watts, and a new process knows them."""
    report = calibrate(["fft"], backends=["numpy"], energy=True)
    assert report.powers and all(each.operation == "fft" and each.watts > 0.0 for each in report.powers)
    assert report.to_dict()["powers"][0]["arm"] == report.powers[0].arm
    from hpfracc.engine.selection import knowledge

    knowledge.reset()
    known = knowledge_for(get_settings())
    assert {each.arm for each in report.powers} == {each.arm for each in known.records() if each.kind == "power"}
    with hf.config(objective="energy"):
        assert "W" in hf.explain(hf.fft, np.ones(64)).decisions[0].reason


def test_energy_where_nothing_can_be_read(monkeypatch: pytest.MonkeyPatch):
    """A typed error before anything is timed; nan and a sentence in a sweep's cost; an unknown objective."""
    use_counters(monkeypatch, {}, "no counters on this machine")
    with pytest.raises(ConfigurationError, match="no counters on this machine"):
        calibrate(["fft"], backends=["numpy"], energy=True)
    cost = hf.sweep(lambda x: x, hf.grid(x=[1.0])).cost()
    assert np.isnan(cost.joules) and "no counters on this machine" in cost.energy_note
    with pytest.raises(ConfigurationError, match="objective='cost'"):
        hf.config(objective="cost")


def test_sweeps_and_spans_have_joules(ticking: None):
    """Where a counter is read and the time is long enough; other spans have null."""
    cost = hf.sweep(lambda x: x, hf.grid(x=[1.0, 2.0])).cost()
    assert cost.joules == 1.0 and cost.energy_note == "" and cost.to_dict()["joules"] == 1.0
    profiler = Profiler(energy=True)
    with profiler.profile("work"):
        pass
    trace = profiler._recorder.energy
    assert trace is not None
    (span,) = profiler.get_entries()
    trace._times, trace._joules = [span.start, span.end], [3.0, 8.0]
    assert profiler.document().to_dict()["spans"][0]["joules"] == 5.0
    trace._times, trace._joules = [], []
    assert profiler.document().to_dict()["spans"][0]["joules"] is None
    profiler.configure(energy=False)
    assert "joules" not in profiler.document().to_dict()["spans"][0]


def test_hardware_without_a_gpu_is_read():
    """On whatever machine this runs: counters that rise, or a reason."""
    counters, reason = read_energy_counters()
    assert counters or reason
    for read in counters.values():
        first = read()
        assert read() >= first

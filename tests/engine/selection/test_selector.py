"""Edge cases of the selector: invalid workloads, shared reports, disabled backends, reviews."""

from __future__ import annotations

import logging
import math
from typing import Any

import pytest

import hpfracc as hf
from hpfracc import BackendType, IntelligentBackendSelector, WorkloadCharacteristics
from hpfracc.errors import BackendUnavailableError, InvalidInputError


def workload(operation: str = "matmul", size: int = 10_000) -> WorkloadCharacteristics:
    return WorkloadCharacteristics(operation, size, (size,))


@pytest.mark.parametrize("method", ["select_backend", "explain", "predict_performance"])
def test_what_is_no_workload_is_refused_by_name(method: str) -> None:
    """The value and the remedy, not a missing attribute."""
    with pytest.raises(InvalidInputError, match="workload='matmul' is not a WorkloadCharacteristics"):
        getattr(IntelligentBackendSelector(), method)("matmul")


def test_what_one_selector_reports_the_others_know_at_once() -> None:
    """Costs are shared by all selectors of a process, also by one that has answered before."""
    pytest.importorskip("jax")
    one, other = IntelligentBackendSelector(), IntelligentBackendSelector()
    before = other.select_backend(workload("graph"))
    assert other.select_backend(workload("graph")) is before is not BackendType.JAX
    for _ in range(5):
        one.record_performance(before, "graph", 10_000, 1.0, True)
        one.record_performance(BackendType.JAX, "graph", 10_000, 0.01, True)
    assert other.select_backend(workload("graph")) is BackendType.JAX
    one.reset_performance_history()
    assert other.select_backend(workload("graph")) is before


def test_a_report_beside_unknown_costs_does_not_make_the_unknown_fastest(monkeypatch: pytest.MonkeyPatch) -> None:
    """nan is smaller than nothing."""
    from hpfracc.engine.selection.decision import Candidate, Decision

    rows = (Candidate("numpy:a@cpu", "numpy", total=math.nan), Candidate("torch:a@cpu", "torch", total=math.nan))
    decision = Decision(
        "fft", "torch:a@cpu", "torch", "cpu", "a", "so", (1,), "float64", (0, 0), "host", rows=lambda: rows
    )
    from hpfracc.engine.selection import reports

    settings = IntelligentBackendSelector().settings
    assert reports._with_reports(decision, {"torch": 0.5}, settings).backend == "torch"


def test_a_disabled_backend_is_not_run_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither as the first choice, which is refused with the reason, nor as a fallback."""
    monkeypatch.setenv("HPFRACC_DISABLE_TORCH", "1")
    selector = IntelligentBackendSelector()
    with pytest.raises(BackendUnavailableError, match="HPFRACC_DISABLE_TORCH"):
        selector.execute_with_monitoring("job", "torch", lambda backend: backend, workload())
    ran: list[BackendType] = []

    def job(backend: BackendType) -> BackendType:
        ran.append(backend)
        if backend is not BackendType.NUMPY:
            raise RuntimeError("no")
        return backend

    assert selector.execute_with_monitoring("job", "jax", job, workload(), ["torch"]) is BackendType.NUMPY
    assert ran == [BackendType.JAX, BackendType.NUMPY]


def test_a_monitored_fallback_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """INFO with its reason the first time; a loop of a thousand calls is not a thousand lines."""
    selector = IntelligentBackendSelector()

    def job(backend: BackendType) -> Any:
        if backend is BackendType.TORCH:
            raise RuntimeError("gave up")
        return backend

    with caplog.at_level(logging.INFO, "hpfracc"):
        for _ in range(5):
            assert selector.execute_with_monitoring("job", "torch", job, workload()) is BackendType.NUMPY
    lines = [message for message in caplog.messages if "gave up" in message]
    assert len(lines) == 1 and "torch" in lines[0] and "numpy" in lines[0]


def test_explaining_a_resident_call_that_the_engine_may_choose() -> None:
    """``backend="auto"`` is no library whose arrays could lie on a GPU."""
    with pytest.raises(BackendUnavailableError) as caught:
        hf.explain("fft", shape=(5,), on="cuda:7", backend="auto")
    assert "belong to auto" not in str(caught.value)

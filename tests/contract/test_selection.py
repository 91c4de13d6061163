"""The Selection section of the contract, as written."""

from __future__ import annotations

import logging
import math

import numpy as np
import pytest

import hpfracc as hf
from hpfracc import BackendType, IntelligentBackendSelector, WorkloadCharacteristics, select_optimal_backend
from hpfracc.errors import AllBackendsFailedError, BackendUnavailableError, InvalidInputError
from hpfracc.ml.backends import get_backend

OPERATIONS = [
    "matmul",
    "conv",
    "fft",
    "derivative",
    "fractional_derivative",
    "caputo_derivative",
    "element_wise",
    "reduction",
    "random",
    "transform",
    "graph",
    "neural_network",
    "ode_solve",
    "iterative",
]


def workload(operation: str = "matmul", size: int = 10_000, **more: object) -> WorkloadCharacteristics:
    return WorkloadCharacteristics(operation, size, (size,), **more)  # type: ignore[arg-type]


def test_import_paths_give_the_same_objects() -> None:
    """Old paths hand on the engine's own classes."""
    from hpfracc.ml import backends
    from hpfracc.ml import intelligent_backend_selector as old

    assert old.IntelligentBackendSelector is IntelligentBackendSelector
    assert old.WorkloadCharacteristics is WorkloadCharacteristics
    assert old.select_optimal_backend is select_optimal_backend
    assert old.BackendType is backends.BackendType is BackendType
    assert [member.name for member in BackendType] == ["AUTO", "NUMPY", "NUMBA", "TORCH", "JAX", "CUPY"]


def test_workload_keeps_features_and_can_be_subclassed() -> None:
    """Further keywords are kept, attributes can be added, the shape need not agree with the size."""

    class Mine(WorkloadCharacteristics):
        pass

    made = Mine("derivative", 100, (7, 3), dtype_size=4, is_iterative=True, alpha=0.5)
    made.note = "mine"  # type: ignore[attr-defined]
    assert made.features == {"alpha": 0.5}
    assert IntelligentBackendSelector().select_backend(made) in BackendType


@pytest.mark.parametrize("operation", [*OPERATIONS, "something_else"])
def test_every_operation_type_gets_a_backend(operation: str) -> None:
    """An unknown name counts as ``other`` and is no error."""
    pytest.importorskip("torch")
    selector = IntelligentBackendSelector()
    for size in (0, 1, 1000, 100_000):
        chosen = selector.select_backend(workload(operation, size))
        assert isinstance(chosen, BackendType) and chosen is not BackendType.AUTO
    assert isinstance(select_optimal_backend(operation, (10, 100)), BackendType)
    assert select_optimal_backend(operation, (10, 100), requires_gradient=True) in (BackendType.TORCH, BackendType.JAX)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("matmul", -1, (3,)), "data_size=-1"),
        (("matmul", float("nan"), (3,)), "data_size=nan"),
        (("matmul", 3, (-3,)), r"shape\[0\]=-3"),
        (("matmul", 3, None), "shape=None"),
        (("", 3, (3,)), "operation_type=''"),
    ],
)
def test_bad_workloads(arguments: tuple[object, ...], words: str) -> None:
    """Negative or missing sizes are refused by name."""
    with pytest.raises(InvalidInputError, match=words):
        WorkloadCharacteristics(*arguments)  # type: ignore[arg-type]


def test_predict_performance_has_every_backend_that_could_run_it() -> None:
    """Seconds for each; nothing for those that cannot."""
    predicted = IntelligentBackendSelector().predict_performance(workload("fft"))
    assert BackendType.NUMPY in predicted and BackendType.NUMBA not in predicted
    assert all(isinstance(key, BackendType) for key in predicted)
    assert all(seconds > 0 or math.isnan(seconds) for seconds in predicted.values())


def test_history_and_summary() -> None:
    """What was recorded comes back, with the sums the contract names."""
    selector = IntelligentBackendSelector()
    selector.record_performance(BackendType.TORCH, "matmul", 1000, 0.5, True)
    selector.record_performance("torch", "matmul", 1000, 0.3, success=True)
    selector.record_performance(BackendType.NUMPY, "matmul", 1000, 0.1, False)
    summary = selector.get_performance_summary()
    assert summary["total_records"] == 3
    stats = summary["operation_stats"][BackendType.TORCH, "matmul"]
    assert stats == {"total_time": 0.8, "count": 2, "failures": 0, "avg_time": 0.4}
    failed = summary["operation_stats"][BackendType.NUMPY, "matmul"]
    assert failed["failures"] == 1 and math.isnan(failed["avg_time"])
    assert summary["recent_backends"][-1] is BackendType.NUMPY
    first = selector.get_performance_history()[0]
    assert (first.backend, first.operation, first.data_size, first.execution_time, first.success) == (
        BackendType.TORCH,
        "matmul",
        1000,
        0.5,
        True,
    )
    with pytest.raises(InvalidInputError, match="execution_time=nan"):
        selector.record_performance("numpy", "matmul", 10, math.nan, True)


def test_learning_changes_choices_and_reset_takes_them_back() -> None:
    """Reported times decide where no primitive stands for the work; costs are shared, history is not."""
    pytest.importorskip("jax")
    one, other = IntelligentBackendSelector(), IntelligentBackendSelector()
    before = one.select_backend(workload("graph"))
    for _ in range(5):
        one.record_performance(before, "graph", 10_000, 1.0, True)
        one.record_performance(BackendType.JAX, "graph", 10_000, 0.01, True)
    assert one.select_backend(workload("graph")) is BackendType.JAX
    assert other.select_backend(workload("graph")) is BackendType.JAX
    assert other.get_performance_history() == []
    one.reset_performance_history()
    assert one.get_performance_summary()["total_records"] == 0
    assert one.select_backend(workload("graph")) is before


def test_learning_can_be_switched_off() -> None:
    """History is kept, choices stay."""
    selector = IntelligentBackendSelector(enable_learning=False)
    before = selector.select_backend(workload("graph"))
    selector.record_performance(before, "graph", 10_000, 9.0, True)
    selector.record_performance(BackendType.JAX, "graph", 10_000, 0.01, True)
    assert selector.select_backend(workload("graph")) is before
    assert len(selector.get_performance_history()) == 2


def test_execute_hands_the_backend_to_a_function_that_requires_one() -> None:
    """One required positional parameter gets it; optional ones do not."""
    selector = IntelligentBackendSelector()
    got = selector.execute_with_monitoring("mine", BackendType.NUMPY, lambda backend: backend, workload())
    assert got is BackendType.NUMPY
    inside = selector.execute_with_monitoring("mine", "torch", lambda x=1: get_backend(), workload())
    assert inside is BackendType.TORCH
    assert selector.get_performance_summary()["total_records"] == 2


def test_execute_falls_back_and_really_runs_elsewhere(caplog: pytest.LogCaptureFixture) -> None:
    """Engine calls inside go to the fallback; an explicit wish for the failed backend raises there."""
    selector = IntelligentBackendSelector()
    seen: list[str] = []
    x = np.arange(4.0)

    def job() -> np.ndarray:
        result = hf.causal_convolution(x, x)
        decision = hf.last_decision()
        assert decision is not None
        seen.append(decision.backend)
        if decision.backend == "torch":
            raise RuntimeError("gave up")
        with pytest.raises(BackendUnavailableError, match="failed already"):
            hf.causal_convolution(x, x, backend="torch")
        return result

    with caplog.at_level(logging.INFO, "hpfracc"):
        result = selector.execute_with_monitoring("job", BackendType.TORCH, job, workload(), ["jax"])
    np.testing.assert_allclose(result, np.convolve(x, x)[:4], atol=1e-14)
    assert seen == ["torch", "jax"]
    assert any("torch failed" in message for message in caplog.messages)
    stats = selector.get_performance_summary()["operation_stats"]
    assert stats[BackendType.TORCH, "job"]["failures"] == 1 and stats[BackendType.JAX, "job"]["count"] == 1


def test_numpy_is_tried_last_even_if_not_listed() -> None:
    """And when that fails too, one error carries them all."""
    tried: list[BackendType] = []

    def job(backend: BackendType) -> None:
        tried.append(backend)
        raise RuntimeError(backend.value)

    selector = IntelligentBackendSelector()
    with pytest.raises(AllBackendsFailedError) as caught:
        selector.execute_with_monitoring("job", "torch", job, workload(), fallback_backends=["jax"])
    assert tried == [BackendType.TORCH, BackendType.JAX, BackendType.NUMPY]
    assert set(caught.value.failures) == {"torch", "jax", "numpy"}
    assert isinstance(caught.value.__cause__, ExceptionGroup)


@pytest.mark.parametrize("error", [TypeError, ValueError])
def test_the_callers_own_mistakes_are_raised_at_once(error: type[Exception]) -> None:
    """Unchanged, without a second run."""
    runs = []
    mine = error("mine")

    def job() -> None:
        runs.append(1)
        raise mine

    with pytest.raises(error) as caught:
        IntelligentBackendSelector().execute_with_monitoring("job", "torch", job, workload())
    assert caught.value is mine and runs == [1]


def test_explain_names_every_arm_or_why_not() -> None:
    """Every backend appears, with a time or a reason."""
    pytest.importorskip("numba")
    explanation = IntelligentBackendSelector().explain(workload("fft"))
    rows = explanation.to_dict()["candidates"]
    assert {row["backend"] for row in rows} == {"numpy", "numba", "torch", "jax", "cupy"}
    assert any(row["refused"] == "kernel not implemented" for row in rows)
    assert "numpy" in str(explanation) and "<table>" in explanation._repr_html_()


def test_faces_that_are_kept_alive() -> None:
    """BackendManager, get_backend, calculate_gpu_threshold, calculate_optimal_batch_size."""
    from hpfracc.batch import calculate_optimal_batch_size
    from hpfracc.ml.backends import BackendManager, calculate_gpu_threshold, get_backend

    manager = BackendManager()
    assert BackendType.NUMPY in manager.available_backends
    assert manager.has_gpu() is (manager.gpu_count > 0)
    assert get_backend() is BackendType.AUTO
    assert (calculate_gpu_threshold() > 0) is manager.has_gpu()
    small, large = calculate_optimal_batch_size(100, 8), calculate_optimal_batch_size(100, 80)
    assert 1 <= small < large
    assert calculate_optimal_batch_size(10_000, 1) == 1
    with pytest.raises(InvalidInputError, match="model_size_mb=-1"):
        calculate_optimal_batch_size(-1, 8)

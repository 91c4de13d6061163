"""The engine reports to the profiler: calls, choices, copies, first calls, fallbacks; and nothing while it is off."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.engine.backends.registry import BackendType
from hpfracc.engine.execution.bind import _fetch, _send
from hpfracc.profiling import get_profiler
from tests.helpers.own_operations import Failing, double, numbers, own_operation

W, X = np.ones(8), np.arange(8.0)


def kinds(profiler: Any) -> list[tuple[str, str]]:
    return [(span.kind, span.name) for span in profiler.get_entries()]


def test_a_call_is_a_span_with_its_decision():
    """The result is the same, the choice is a span inside, and the decision is the one that ``last_decision`` gives."""
    expected = hf.causal_convolution(W, X, backend="numpy")
    profiler = get_profiler()
    with hf.use_backend("numpy"):
        result = hf.causal_convolution(W, X)
    np.testing.assert_array_equal(result, expected)
    call, choice = profiler.get_entries()
    assert (call.kind, call.name) == ("call", "causal_convolution")
    assert (choice.kind, choice.parent) == ("decide", call.id)
    (decision,) = profiler.document().decisions
    assert decision["arm"] == hf.last_decision().arm
    assert decision["candidates"] and decision["reason"]


def test_a_fallback_is_a_span_inside_the_call():
    """With what failed, why, and what was taken instead; the decision carries it, and the advice names it."""
    pytest.importorskip("torch")
    profiler = get_profiler()
    with own_operation(Failing(lambda: RuntimeError("driver went away"), times=1)) as op:
        op.kernel("torch")(double)
        op(numbers())
    call, *inside = profiler.get_entries()
    (fallback,) = [span for span in inside if span.kind == "fallback"]
    assert fallback.parent == call.id
    assert fallback.metadata["failed"] == "numpy:default@cpu"
    assert fallback.error == "RuntimeError: driver went away"
    document = profiler.document()
    assert [row["arm"] for row in document.decisions[document.decided[0]]["fallbacks"]] == ["numpy:default@cpu"]
    assert [remark["kind"] for remark in document.advice] == ["fallback"]


class FakeGPU:
    """An adapter whose device is a pocket."""

    name = "fake"

    def from_host(self, array: np.ndarray, device: str) -> np.ndarray:
        return array.copy()

    def to_host(self, array: np.ndarray) -> np.ndarray:
        return array.copy()


def test_copies_are_spans_with_their_bytes():
    """Each way, and they add up to the bytes moved."""
    profiler = get_profiler()
    gpu: Any = FakeGPU()
    there = _send(gpu, "cuda:0", None, np.ones(1000))
    _fetch(gpu, "cuda:0", None, there)
    _send(gpu, "cpu", None, np.ones(1000))
    assert kinds(profiler) == [("transfer", "host->cuda:0"), ("transfer", "cuda:0->host")]
    assert profiler.get_breakdown()["moved_bytes"] == 16_000


def test_monitored_functions_are_spans():
    """``execute_with_monitoring`` names the operation and the backend of each attempt, and its fallback."""
    profiler = get_profiler()
    selector = hf.IntelligentBackendSelector()

    def work(backend: BackendType) -> int:
        if backend is not BackendType.NUMPY:
            raise RuntimeError("no")
        return 3

    workload = hf.WorkloadCharacteristics("matmul", 100, (10, 10))
    assert selector.execute_with_monitoring("mine", "numba", work, workload) == 3
    attempts = [(span.metadata["backend"], span.error) for span in profiler.get_entries() if span.name == "mine"]
    assert attempts == [("numba", "RuntimeError: no"), ("numpy", None)]
    assert ("fallback", "numba failed") in kinds(profiler)


def test_jax_arrays_are_enqueued():
    """JAX returns before the work is done: the span says so, and claims no device time."""
    jnp = pytest.importorskip("jax.numpy")
    signal = jnp.ones(64, dtype="float32")
    profiler = get_profiler()
    hf.causal_convolution(signal, signal, backend="jax")
    call = next(span for span in profiler.get_entries() if span.kind == "call")
    assert (call.device.timing, call.device_duration) == ("enqueued", None)
    with profiler.profile("waited", device="jax:cpu") as span:
        span.synchronize(hf.causal_convolution(signal, signal, backend="jax"))
    waited = next(span for span in profiler.get_entries() if span.name == "waited")
    assert waited.device.timing == "synchronised"


def test_operators_and_solvers_are_spans_around_the_engine_s_calls() -> None:
    """Public entry points show under their names while the profiler is on, with what the engine did inside."""
    t = np.linspace(0.0, 1.0, 64)
    profiler = get_profiler(enabled=True)
    profiler.reset()
    try:
        for _ in range(2):
            hf.caputo(t, step=t[1], alpha=0.5)
        hf.fractional_difference(t, 0.5)
        hf.fractional_laplacian(np.ones((8, 8)), step=0.1, alpha=1.5, axis=(0, 1), method="periodic")
        hf.solve_fode(lambda t, y: -y, (0.0, 1.0), [1.0], 0.5, step=0.1)
        hf.Caputo(0.5).stream(0.1).push(t)
    finally:
        profiler.disable()
    found = {span.id: span for span in profiler.get_entries()}
    names = [span.name for span in found.values() if not span.parent]
    assert [name for name in names if name == "Caputo"] == ["Caputo", "Caputo"]
    assert {"fractional_difference", "FractionalLaplacian", "solve_fode", "OperatorStream.push"} <= set(names)
    inner = next(span for span in found.values() if span.name == "causal_convolution")
    assert found[inner.parent].name == "Caputo"
    profiler.reset()
    hf.caputo(t, step=t[1], alpha=0.5)
    assert profiler.get_entries() == []

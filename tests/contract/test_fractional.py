"""The contract's fractional calculus: names, paths and behaviour that users' code already relies on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import hpfracc
from hpfracc.algorithms import gpu_optimized_methods as gpu
from hpfracc.core.fractional_implementations import FractionalDerivative
from hpfracc.errors import BackendUnavailableError, InvalidInputError

T = np.linspace(0.0, 1.0, 65)
X = np.cos(T)


@pytest.fixture(autouse=True)
def same_arms(fresh_state: None) -> Iterator[None]:
    """Results are compared to the last bit, so every call takes the same arms."""
    with hpfracc.config(deterministic=True):
        yield


def test_create_fractional_derivative():
    """-> a callable ``D(f, x)``, f a function or samples on x; Caputo unless another definition is named."""
    derivative = hpfracc.create_fractional_derivative(0.5)
    np.testing.assert_array_equal(derivative(X, T), hpfracc.caputo(X, T, 0.5))
    np.testing.assert_array_equal(derivative(np.cos, T), hpfracc.caputo(np.cos, T, 0.5))
    np.testing.assert_array_equal(
        hpfracc.create_fractional_derivative(0.5, definition="RL")(X, T), hpfracc.riemann_liouville(X, T, 0.5)
    )


def test_create_fractional_integral():
    """Likewise, Riemann-Liouville by default."""
    integral = hpfracc.create_fractional_integral(0.5, definition="riemann_liouville")
    np.testing.assert_array_equal(integral(X, T), hpfracc.riemann_liouville_integral(X, T, 0.5))


@pytest.mark.parametrize(
    ("method", "function"),
    [("RL", hpfracc.riemann_liouville), ("GL", hpfracc.grunwald_letnikov), ("caputo", hpfracc.caputo)],
)
def test_fractional_derivative_class(method: str, function: Any):
    """``FractionalDerivative(alpha, method).compute(f, x)`` is the same operator; RL is its default."""
    np.testing.assert_array_equal(FractionalDerivative(0.5, method).compute(X, T), function(X, T, 0.5))
    assert FractionalDerivative(0.5).operator == hpfracc.RiemannLiouville(0.5)


@pytest.mark.parametrize(
    ("made", "function"),
    [
        (gpu.GPUOptimizedCaputo, hpfracc.caputo),
        (gpu.GPUOptimizedRiemannLiouville, hpfracc.riemann_liouville),
        (gpu.GPUOptimizedGrunwaldLetnikov, hpfracc.grunwald_letnikov),
    ],
)
def test_gpu_optimized_methods_are_the_same_operators(made: Any, function: Any):
    """``.compute(f, t, h=None)``: samples on t, samples with a step, or a callable."""
    right = function(X, T, 0.5)[1:]
    np.testing.assert_allclose(made(0.5).compute(X, T)[1:], right, rtol=1e-12)
    np.testing.assert_allclose(made(0.5).compute(X, T, h=T[1])[1:], right, rtol=1e-12)
    np.testing.assert_allclose(made(0.5).compute(X, h=T[1])[1:], right, rtol=1e-12)
    np.testing.assert_allclose(made(0.5).compute(np.cos, T), function(np.cos, T, 0.5), rtol=1e-12, atol=1e-14)
    with pytest.raises(InvalidInputError, match=r"h=0.5 is not the step of t"):
        made(0.5).compute(X, T, h=0.5)


def test_batches_give_the_same_rows():
    """Rows worked on two at a time are the rows of one call, in their own shape."""
    rows = np.random.default_rng(1).normal(size=(3, 5, 65))
    made = gpu.GPUOptimizedCaputo(0.5, gpu.GPUConfig(batch_size=2))
    np.testing.assert_allclose(made.compute(rows, T), hpfracc.caputo(rows, T, 0.5), rtol=1e-10, atol=1e-10)
    assert gpu.GPUConfig().rows_at_a_time(rows) >= 15
    with pytest.raises(InvalidInputError, match="batch_size=0"):
        gpu.GPUConfig(batch_size=0)


def test_a_backend_that_cannot_is_replaced_only_if_allowed(monkeypatch: pytest.MonkeyPatch):
    """``fallback_to_cpu`` decides between NumPy's answer and the engine's refusal."""
    monkeypatch.setenv("HPFRACC_DISABLE_NUMBA", "1")
    hpfracc.IntelligentBackendSelector()  # reads the environment again
    willing, strict = gpu.GPUConfig(backend="numba"), gpu.GPUConfig(backend="numba", fallback_to_cpu=False)
    assert willing.select_backend_for_data(X) == "numpy"
    np.testing.assert_allclose(gpu.GPUOptimizedCaputo(0.5, willing).compute(X, T), hpfracc.caputo(X, T, 0.5))
    with pytest.raises(BackendUnavailableError, match="numba"):
        gpu.GPUOptimizedCaputo(0.5, strict).compute(X, T)
    with pytest.raises(BackendUnavailableError, match="numba"):
        strict.select_backend_for_data(X)


def test_the_backend_is_the_one_asked_for():
    """``backend`` is handed on; ``auto`` is the engine's choice."""
    gpu.GPUOptimizedCaputo(0.5, gpu.GPUConfig(backend="numpy")).compute(X, T)
    decision = hpfracc.last_decision()
    assert decision.backend == "numpy"
    assert gpu.GPUConfig().select_backend_for_data(X) in {"numpy", "numba", "torch", "jax", "cupy"}

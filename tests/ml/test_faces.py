"""Faces of the engine that existing code uses: settings, tensor operations, adapters."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.engine import BackendType
from hpfracc.errors import ConfigurationError, InvalidInputError, PinnedBackendError
from hpfracc.ml import LayerConfig
from hpfracc.ml.adapters import HighPerformanceAdapter
from hpfracc.ml.backends import BackendManager
from hpfracc.ml.tensor_ops import TensorOps, create_tensor, get_tensor_ops

SIGNAL = np.array([1.0, 3.0, 6.0])


def test_importing_imports_no_array_library():
    """Names are loaded when they are first used."""
    code = (
        "import sys, hpfracc.ml, hpfracc.ml.layers, hpfracc.ml.adapters, hpfracc.ml.tensor_ops;"
        "print([name for name in ('torch', 'jax') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_an_adapter_is_its_operator_on_a_backend():
    """The backend is obeyed, or refused for arrays of another library; the call can be explained."""
    adapter = HighPerformanceAdapter(hf.GrunwaldLetnikov(1.0), LayerConfig(backend="numpy"))
    np.testing.assert_array_equal(adapter(SIGNAL, step=1.0), [1.0, 2.0, 3.0])
    assert hf.last_decision().backend == "numpy"
    assert "numpy" in str(adapter.explain(SIGNAL, step=1.0))
    with pytest.raises(InvalidInputError, match="cannot be called"):
        HighPerformanceAdapter(3)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="is for layers"):
        HighPerformanceAdapter(hf.caputo, LayerConfig(performance_mode="memory"))
    torch = pytest.importorskip("torch")
    tracked = torch.ones(8, requires_grad=True)
    with pytest.raises(PinnedBackendError):
        adapter(tracked, step=1.0)


def test_tensor_operations():
    """Arrays of the library that was asked for, and the engine's products and transforms."""
    ops = get_tensor_ops("numpy")
    assert ops.backend is BackendType.NUMPY
    np.testing.assert_array_equal(ops.matmul(ops.ones((2, 2)), ops.create_tensor([[1.0], [2.0]])), [[3.0], [3.0]])
    np.testing.assert_allclose(ops.fft(SIGNAL), np.fft.fft(SIGNAL))
    assert ops.stack([SIGNAL, SIGNAL]).shape == (2, 3) and ops.concatenate([SIGNAL, SIGNAL]).shape == (6,)
    with hf.use_backend("numba"):
        assert TensorOps().backend is BackendType.NUMBA
    with pytest.raises(ConfigurationError, match="fortran"):
        TensorOps("fortran")
    with pytest.raises(InvalidInputError, match="requires_grad"):
        create_tensor([1.0], "numpy", requires_grad=True)
    torch = pytest.importorskip("torch")
    tensor = create_tensor([1.0, 2.0], "torch", requires_grad=True)
    assert isinstance(tensor, torch.Tensor) and tensor.requires_grad
    np.testing.assert_array_equal(ops.create_tensor(tensor), [1.0, 2.0])
    assert TensorOps("torch").zeros((2, 3)).dtype == torch.float64


def test_ones_have_the_dtype_of_zeros():
    """Without jax_enable_x64 too."""
    pytest.importorskip("jax")
    assert TensorOps("jax").ones((2,)).dtype == TensorOps("jax").zeros((2,)).dtype == np.float64


def test_a_manager_selects_by_settings_and_shape():
    """A named backend is the answer; otherwise it is one that is available and carries gradients."""
    pytest.importorskip("torch")
    assert BackendManager.select_optimal_backend(LayerConfig(backend="torch"), (4, 8)) is BackendType.TORCH
    chosen = BackendManager().select_optimal_backend(LayerConfig(), (4, 8))
    assert chosen in BackendManager().available_backends
    assert chosen == hf.select_optimal_backend("fractional_derivative", (4, 8), requires_gradient=True)

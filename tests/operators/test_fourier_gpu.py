"""Fractional Fourier transforms, differences and special functions of arrays that live on a GPU."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from tests.helpers.gpus import sees_a_gpu

LIBRARIES = [
    pytest.param(name, marks=pytest.mark.skipif(not sees_a_gpu(name), reason=f"{name} sees no CUDA device"))
    for name in ("torch", "cupy")
]
pytestmark = pytest.mark.gpu
X = np.random.default_rng(4).standard_normal((3, 501)) + 1j
CALLS = {
    "fractional_fft": lambda x: hf.fractional_fft(x, 0.0123),
    "chirp": lambda x: hf.frft(x, 0.37),
    "eigen": lambda x: hf.frft(x, 0.37, method="eigen"),
    "whole": lambda x: hf.frft(x, 3),
    "difference": lambda x: hf.fractional_difference(x, 0.4),
    "windowed": lambda x: hf.fractional_difference(x, 0.4, window=30),
    "undone": lambda x: hf.fractional_difference(x, 0.4, window=30, inverse=True),
    "mittag_leffler": lambda x: hf.mittag_leffler(x, 0.7),
    "mittag_leffler far": lambda x: hf.mittag_leffler(-300.0 * x, 1.4, 0.8),
}


def place(library: str, array: np.ndarray) -> Any:
    module = importlib.import_module(library)
    return module.tensor(array, device="cuda") if library == "torch" else module.asarray(array)


@pytest.mark.parametrize("name", sorted(CALLS))
@pytest.mark.parametrize("library", LIBRARIES)
def test_what_comes_back_is_what_went_in(library: str, name: str):
    """An array on the GPU comes back as one, with NumPy's values."""
    x = place(library, X)
    found = CALLS[name](x)
    assert type(found) is type(x)
    host = found.cpu().numpy() if library == "torch" else found.get()
    right = CALLS[name](X)
    np.testing.assert_allclose(host, right, atol=1e-12 * np.abs(right).max(), rtol=1e-12)


@pytest.mark.skipif(not sees_a_gpu("torch"), reason="PyTorch sees no CUDA device")
@pytest.mark.parametrize("method", ["chirp", "eigen"])
def test_orders_are_learned_on_the_gpu(method: str):
    """The gradient in the order is the one that the host finds, whether the order lies on the GPU or not."""
    import torch

    slopes = []
    for device, home in (("cpu", "cpu"), ("cuda", "cuda"), ("cuda", "cpu")):
        order = torch.tensor(0.37, dtype=torch.float64, device=home, requires_grad=True)
        value = hf.frft(torch.tensor(X, device=device), order, method=method)
        (value.abs() ** 4).sum().backward()
        slopes.append(float(order.grad))
    np.testing.assert_allclose(slopes, slopes[0], rtol=1e-9)


@pytest.mark.skipif(not sees_a_gpu("torch"), reason="PyTorch sees no CUDA device")
def test_parameters_are_learned_on_the_gpu():
    """Slopes of the Mittag-Leffler function in alpha and beta are those of the host."""
    import torch

    slopes = []
    for device in ("cpu", "cuda"):
        alpha, beta = (torch.tensor(v, dtype=torch.float64, device=device, requires_grad=True) for v in (0.7, 1.1))
        z = torch.linspace(-20.0, 2.0, 400, dtype=torch.float64, device=device)
        hf.mittag_leffler(z, alpha, beta).sum().backward()
        slopes.append((float(alpha.grad), float(beta.grad)))
    np.testing.assert_allclose(slopes[1], slopes[0], rtol=1e-12)

"""Arrays that live on a GPU: they stay there, in their own library, and host arrays may travel and return."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import hpfracc as hf
from hpfracc.engine.backends import registry
from hpfracc.engine.execution.bind import BoundArm
from hpfracc.engine.execution.plan import make_request
from hpfracc.engine.selection.decide import masked
from hpfracc.engine.selection.knowledge import knowledge_for
from hpfracc.errors import InvalidInputError, PinnedBackendError

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

RNG = np.random.default_rng(5)


def resident(library: str, array: np.ndarray) -> Any:
    return registry.adapter(library).from_host(array, "cuda:0")


def last() -> Any:
    decision = hf.last_decision()
    assert decision is not None
    return decision


@pytest.mark.parametrize("library", ["torch", "cupy", "jax"])
@pytest.mark.parametrize("n", [16, 1000, 50_000])
def test_resident_arrays_stay(library: str, n: int) -> None:
    """In and out on the same GPU in the same library, many calls long; another backend is refused."""
    if registry.unavailable(library) is not None:
        pytest.skip(f"{library} is not here")
    w, x = RNG.standard_normal(n).astype(np.float32), RNG.standard_normal(n).astype(np.float32)
    dw, dx = resident(library, w), resident(library, x)
    expected = np.fft.irfft(np.fft.rfft(w, 2 * n) * np.fft.rfft(x, 2 * n), 2 * n)[:n]
    for _ in range(30):
        y = hf.causal_convolution(dw, dx)
        assert type(y) is type(dx)
        assert (last().backend, last().device) == (library, "cuda:0")
    np.testing.assert_allclose(registry.adapter(library).to_host(y), expected, atol=2e-4 * np.sqrt(n))
    with pytest.raises(PinnedBackendError, match="live on cuda:0"):
        hf.causal_convolution(dw, dx, backend="numpy")


def test_weights_on_the_host_follow_the_signal() -> None:
    """NumPy weights are moved to where the tensor is; a host tensor beside a GPU's is an oversight."""
    x = torch.randn(500, dtype=torch.float64, device="cuda")
    w = RNG.standard_normal(500)
    y = hf.causal_convolution(w, x, weights_key="w")
    assert y.is_cuda
    np.testing.assert_allclose(y.cpu().numpy(), np.convolve(w, x.cpu().numpy())[:500], atol=1e-10)
    with pytest.raises(InvalidInputError, match="move both to one device"):
        hf.causal_convolution(torch.from_numpy(w), x)


def test_gradient_on_the_gpu() -> None:
    """Autograd goes through, and second derivatives too."""
    w = torch.randn(8, dtype=torch.float64, device="cuda", requires_grad=True)
    x = torch.randn(2, 8, dtype=torch.float64, device="cuda", requires_grad=True)
    assert torch.autograd.gradcheck(hf.causal_convolution, (w, x))
    assert torch.autograd.gradgradcheck(hf.causal_convolution, (w, x))


@pytest.mark.parametrize("n", [10, 100_000, 3_000_000])
def test_every_arm_takes_host_arrays_and_brings_them_back(n: int) -> None:
    """NumPy in, NumPy out through every arm of every GPU, equal to the host's answer, and writable."""
    w, x = RNG.standard_normal(n), RNG.standard_normal(n)
    expected = hf.causal_convolution(w, x, backend="numpy")
    scale = np.abs(w).sum()
    operation = hf.causal_convolution
    request = make_request(operation.primitive, (w, x), {})
    knowledge = knowledge_for(request.settings)
    arms = [arm for arm, refused, _ in masked(request, knowledge.breaker) if refused is None and not arm.on_host]
    assert {arm.backend for arm in arms} >= {"torch"}
    for arm in arms:
        if arm.algorithm == "direct" and n > 10_000:
            continue  # right, but hours
        bound = BoundArm(operation.primitive, request.call, arm, request.placement, (w, x))
        for _ in range(2):
            y = bound.run(w, x)
            assert type(y) is np.ndarray and y.dtype == np.float64
            np.testing.assert_allclose(y, expected, atol=1e-14 * scale * np.abs(x).max(), err_msg=arm.name)
            y += 1.0


def test_memory_mask_reads_the_gpu() -> None:
    """A call that is predicted to take more than its share is refused by name."""
    with hf.config(gpu_memory_limit=1e-4):
        rows = hf.explain("causal_convolution", shape=(1_000_000,)).decision.candidates
    refused = [row.refused for row in rows if row.device == "cuda:0" and row.refused]
    assert any("MiB are free on cuda:0" in why for why in refused)


def test_out_of_memory_falls_back_to_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """The GPU says no in the middle of a call: the same inputs give the right answer elsewhere."""
    n = 200_000
    w, x = RNG.standard_normal(n), RNG.standard_normal(n)
    expected = hf.causal_convolution(w, x, backend="numpy")
    kernels = registry.kernel("causal_convolution", "torch", "fft")

    def full(*arrays: Any, **params: Any) -> Any:
        if arrays[-1].is_cuda:
            return torch.empty(2**50, device="cuda")
        return kernels.run(*arrays, **params)

    from hpfracc.engine.backends.base import Kernel

    monkeypatch.setitem(registry._registry.kernels, ("causal_convolution", "torch", "fft"), Kernel(full))
    for _ in range(30):
        np.testing.assert_allclose(hf.causal_convolution(w, x), expected, atol=1e-9)

"""Whose word counts, and which arrays stay in their own library."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

import hpfracc as hf
from hpfracc.engine.selection import request
from hpfracc.errors import BackendUnavailableError, InvalidInputError, PinnedBackendError

W = np.array([1.0, -0.5, 0.25])
X = np.arange(6.0)
Y = np.convolve(X, W)[:6]


def used() -> str:
    decision = hf.last_decision()
    assert decision is not None
    return decision.backend


def test_argument_beats_context_beats_pin_beats_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each word is heard when the ones above it are silent."""
    monkeypatch.setenv("HPFRACC_FORCE_NUMPY", "1")
    hf.IntelligentBackendSelector()
    hf.causal_convolution(W, X)
    assert used() == "numpy"
    with hf.config(pin={"causal_convolution": "numba"}):
        hf.causal_convolution(W, X)
        assert used() == "numba"
        with hf.use_backend("torch"):
            hf.causal_convolution(W, X)
            assert used() == "torch"
            hf.causal_convolution(W, X, backend="jax")
            assert used() == "jax"


def test_preference_stands_between_context_and_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A selector's preferred backend beats the environment and yields to ``use_backend``."""
    monkeypatch.setenv("HPFRACC_FORCE_NUMPY", "1")
    selector = hf.IntelligentBackendSelector()
    workload = hf.WorkloadCharacteristics("matmul", 256, (16, 16))
    assert selector.select_backend(workload) == hf.BackendType.NUMPY
    assert selector.select_backend(workload, preferred_backend=hf.BackendType.TORCH) == hf.BackendType.TORCH
    with hf.use_backend("jax"):
        assert selector.select_backend(workload, preferred_backend="torch") == hf.BackendType.JAX


def test_a_preference_that_cannot_be_met_is_refused() -> None:
    """With the reason, not with another backend."""
    selector = hf.IntelligentBackendSelector()
    workload = hf.WorkloadCharacteristics("fft", 256, (256,))
    with pytest.raises(BackendUnavailableError, match="numba.*kernel not implemented"):
        selector.select_backend(workload, preferred_backend="numba")


@pytest.mark.parametrize("setting", ["pin", "never"])
def test_a_setting_of_an_unknown_operation_is_told_with_similar_names(setting: str) -> None:
    """At the first call; it was ignored before, as a typing error is."""
    with (
        hf.config(**{setting: {"causal_convolutoin": "numpy"}}),  # type: ignore[arg-type]
        pytest.warns(UserWarning, match=r"'causal_convolutoin', .* did you mean 'causal_convolution'"),
    ):
        hf.causal_convolution(W, X)
    with hf.config(**{setting: {**dict.fromkeys(request._FUNCTIONS, "numba"), "conv": "numba"}}):  # type: ignore[arg-type]
        hf.fft(X)


def test_disabled_backends_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the environment, and by ``never`` for one operation."""
    monkeypatch.setenv("HPFRACC_DISABLE_NUMBA", "1")
    hf.IntelligentBackendSelector()
    rows = {row.arm: row.refused for row in hf.explain(hf.causal_convolution, W, X).decision.candidates}
    assert all("HPFRACC_DISABLE_NUMBA" in str(why) for arm, why in rows.items() if arm.startswith("numba:"))
    with hf.config(never={"causal_convolution": ["numpy"]}):
        assert hf.explain(hf.causal_convolution, W, X).decision.backend not in ("numba", "numpy")
    with pytest.raises(BackendUnavailableError, match="HPFRACC_DISABLE_NUMBA"):
        hf.causal_convolution(W, X, backend="numba")


@pytest.mark.parametrize("kind", ["requires_grad", "functorch", "dual"])
def test_torch_gradients_pin_the_library(kind: str) -> None:
    """A tensor that tracks a gradient stays in torch, keeps its gradient, and refuses other backends."""

    def check(x: torch.Tensor) -> torch.Tensor:
        y = hf.causal_convolution(W, x)
        assert used() == "torch"
        with pytest.raises(PinnedBackendError, match=r"numpy.*torch"):
            hf.causal_convolution(W, x, backend="numpy")
        return y

    x = torch.arange(6.0, dtype=torch.float64)
    if kind == "requires_grad":
        x.requires_grad_()
        y = check(x)
        y.sum().backward()
        assert x.grad is not None
        expected = np.convolve(np.ones(6), W)[:6][::-1]
        np.testing.assert_allclose(x.grad.numpy(), expected)
    elif kind == "functorch":
        gradient = torch.func.grad(lambda z: check(z).sum())(x)
        np.testing.assert_allclose(gradient.numpy(), np.convolve(np.ones(6), W)[:6][::-1])
    else:
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
            y = check(dual)
            tangent = torch.autograd.forward_ad.unpack_dual(y).tangent
            np.testing.assert_allclose(tangent.numpy(), np.convolve(np.ones(6), W)[:6])


def test_tracers_pin_the_library_and_nothing_is_recorded() -> None:
    """Under jit, grad and vmap the work stays in JAX; another backend is an error."""
    x = jnp.arange(6.0)

    def inside(z: jax.Array) -> jax.Array:
        y = hf.causal_convolution(W, z)
        assert used() == "jax"
        with pytest.raises(PinnedBackendError, match="traced by jax"):
            hf.causal_convolution(W, z, backend="numpy")
        return y

    np.testing.assert_allclose(jax.jit(inside)(x), Y, rtol=1e-5)
    gradient = jax.grad(lambda z: inside(z).sum())(x)
    np.testing.assert_allclose(gradient, np.convolve(np.ones(6), W)[:6][::-1], rtol=1e-5)
    batch = jax.vmap(inside)(jnp.stack([x, 2 * x]))
    np.testing.assert_allclose(batch, np.stack([Y, 2 * Y]), rtol=1e-5)


def test_float64_host_arrays_keep_float64_on_jax() -> None:
    """A local x64 scope: the user's own JAX setting stays as it was."""
    before = jax.config.jax_enable_x64
    y = hf.causal_convolution(W, X + 1e-12, backend="jax")
    assert y.dtype == np.float64
    np.testing.assert_allclose(y, np.convolve(X + 1e-12, W)[:6], rtol=1e-15, atol=1e-15)
    assert jax.config.jax_enable_x64 is before
    assert jnp.zeros(2).dtype == (jnp.float64 if before else jnp.float32)


@pytest.mark.parametrize("backend", ["numpy", "numba", "torch", "jax"])
def test_what_comes_back_is_what_went_in(backend: str) -> None:
    """NumPy, torch and JAX arrays come back as such, from whatever backend did the work."""
    assert type(hf.causal_convolution(W, X, backend=backend)) is np.ndarray
    tensor = hf.causal_convolution(torch.from_numpy(W), torch.from_numpy(X), backend=backend)
    assert isinstance(tensor, torch.Tensor) and tensor.dtype == torch.float64
    np.testing.assert_allclose(tensor.numpy(), Y, atol=1e-14)
    array = hf.causal_convolution(jnp.asarray(W), jnp.asarray(X), backend=backend)
    assert isinstance(array, jax.Array) and array.dtype == jnp.asarray(X).dtype
    np.testing.assert_allclose(array, Y, rtol=1e-6, atol=1e-6)


def test_lists_numbers_and_float32() -> None:
    """Lists are arrays; single precision stays single; integers are promoted, not truncated."""
    assert hf.causal_convolution([1, 1], [1, 2, 3]).tolist() == [1.0, 3.0, 5.0]
    assert hf.causal_convolution(W, X.astype(np.float32)).dtype == np.float32
    assert hf.causal_convolution(W, X.astype(np.int32)).dtype == np.float64


def test_mixtures_are_refused() -> None:
    """Two libraries in one call, or a masked array, would need a guess; NumPy sees an object in a sparse one."""
    with pytest.raises(InvalidInputError, match="torch and jax"):
        hf.causal_convolution(torch.from_numpy(W), jnp.asarray(X))
    with pytest.raises(InvalidInputError, match="masked"):
        hf.causal_convolution(W, np.ma.masked_array(X, X > 2))
    for sparse in (csr_array(np.eye(3)), csr_array(np.eye(3)).tocoo()):
        with pytest.raises(InvalidInputError, match=r"sparse .*toarray\(\)"):
            hf.engine.reduction(sparse)
        with pytest.raises(InvalidInputError, match="sparse"):
            hf.engine.matmul(np.eye(3), sparse)


def test_results_may_be_written_to() -> None:
    """A NumPy result belongs to the caller, whichever backend computed it."""
    for backend in ("numpy", "numba", "torch", "jax"):
        y = hf.causal_convolution(W, X, backend=backend)
        y += 1.0
        np.testing.assert_allclose(y, Y + 1.0)
        assert X[1] == 1.0

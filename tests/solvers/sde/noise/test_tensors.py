"""Paths of PyTorch and JAX: those of NumPy to rounding, with their derivative in H."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc import noise
from hpfracc.errors import InvalidInputError

#: d/dH E cos B_2 at H = 0.7.
SLOPE = -0.4888914594


def test_torch_paths_are_those_of_numpy() -> None:
    """Times that are a tensor, or a generator of PyTorch, make tensors; the numbers are the same to rounding."""
    torch = pytest.importorskip("torch")
    t = np.linspace(0, 2, 41)
    for process in (noise.Brownian(), noise.FractionalBrownian(0.3), noise.FractionalBrownian(0.3, "volterra")):
        tensor = process.sample(torch.as_tensor(t), 4, rng=1)
        assert isinstance(tensor, torch.Tensor) and tensor.dtype == torch.float64
        np.testing.assert_allclose(tensor.numpy(), process.sample(t, 4, rng=1), atol=1e-13)
    one, two = (hf.fgn(5, 0.3, rng=torch.Generator().manual_seed(3)) for _ in range(2))
    assert isinstance(one, torch.Tensor) and torch.equal(one, two)
    moving = noise.FractionalBrownian(torch.tensor(0.3, requires_grad=True))
    with pytest.raises(InvalidInputError, match="differentiable in H"):
        moving.sample([0.0, 1.0, 3.0])


def test_derivative_in_h_by_torch() -> None:
    """That of the mean of cos B_2 within 4 standard errors, and that of a difference of the same paths."""
    torch = pytest.importorskip("torch")
    index = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    count = 40_000
    torch.cos(hf.fbm(4, index, T=2.0, size=count, rng=1)[:, -1]).mean().backward()

    def mean(value: float) -> float:
        return float(np.cos(hf.fbm(4, value, T=2.0, size=count, rng=1)[:, -1]).mean())

    assert float(index.grad) == pytest.approx((mean(0.7 + 1e-5) - mean(0.7 - 1e-5)) / 2e-5, rel=1e-6)
    ends = hf.fbm(4, 0.7, T=2.0, size=count, rng=1)[:, -1]
    spread = np.std(np.sin(ends) * ends * np.log(2.0))
    assert abs(float(index.grad) - SLOPE) < 4 * spread / np.sqrt(count)


def test_jax_paths_by_key() -> None:
    """A key makes JAX arrays, in the precision that JAX is set to; several keys are mapped over."""
    jax = pytest.importorskip("jax")
    key = jax.random.key(0)
    plain = hf.fbm(4, 0.3, key=key)
    assert isinstance(plain, jax.Array) and plain.dtype == np.float32
    with pytest.raises(InvalidInputError, match=r"jax\.vmap"):
        hf.fbm(4, 0.3, key=jax.random.split(key, 2))
    with pytest.raises(InvalidInputError, match="both"):
        hf.fbm(4, 0.3, key=key, rng=1)


@pytest.mark.slow
def test_jax_paths_jitted_mapped_and_differentiated() -> None:
    """The same under jit, mapped over keys, with the derivative in H in single precision."""
    jax = pytest.importorskip("jax")
    key = jax.random.key(0)

    def ends(index: Any, key: Any) -> Any:
        return jax.numpy.cos(hf.fbm(4, index, T=2.0, size=2000, key=key)[:, -1]).mean()

    plain = hf.fbm(4, 0.3, key=key)
    np.testing.assert_allclose(jax.jit(lambda key: hf.fbm(4, 0.3, key=key))(key), plain, atol=1e-6)
    keys = jax.random.split(key, 2)
    mapped = jax.vmap(lambda key: hf.fbm(4, 0.3, key=key))(keys)
    np.testing.assert_allclose(mapped[1], hf.fbm(4, 0.3, key=keys[1]), atol=1e-6)
    slope = jax.grad(ends)(0.7, key)
    difference = (ends(0.71, key) - ends(0.69, key)) / 0.02
    assert slope == pytest.approx(float(difference), abs=2e-3)


def test_jax_paths_are_those_of_numpy() -> None:
    """In double precision, from times that are a JAX array."""
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        t = jax.numpy.linspace(0.0, 2.0, 41)
        found = noise.FractionalBrownian(0.3).sample(t, 3, rng=1)
        np.testing.assert_allclose(found, hf.fbm(40, 0.3, T=2.0, size=3, rng=1), atol=1e-13)


def test_refinement_of_tensors() -> None:
    """The points of NumPy, in the library and precision of the path; none for a path with a derivative."""
    torch = pytest.importorskip("torch")
    t = np.linspace(0, 1, 5)
    process = noise.FractionalBrownian(0.3)
    path = process.sample(t, 2, rng=1)
    times, expected = process.refine(path, t, 2, rng=3)
    same, found = process.refine(torch.from_numpy(path), torch.from_numpy(t), 2, rng=3)
    assert isinstance(found, torch.Tensor) and np.array_equal(found.numpy(), expected)
    assert np.array_equal(times, same)
    assert process.refine(torch.from_numpy(path).float(), t, 2, rng=3)[1].dtype == torch.float32
    with pytest.raises(InvalidInputError, match="not differentiable"):
        process.refine(torch.from_numpy(path).requires_grad_(), t)

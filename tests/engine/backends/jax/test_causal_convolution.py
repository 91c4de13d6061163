"""Causal convolution in JAX: traced, mapped, differentiated, in double precision, and with non-finite samples."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.helpers.thinned import thinned

jax = pytest.importorskip("jax", reason="JAX is not installed")

import jax.numpy as jnp  # noqa: E402
from jax.test_util import check_grads  # noqa: E402

from hpfracc.engine.backends.generic.causal_convolution import make_kernels  # noqa: E402
from hpfracc.engine.backends.jax.library import LIBRARY, JAXLibrary  # noqa: E402
from hpfracc.engine.primitives import PRIMITIVES  # noqa: E402

KERNELS = make_kernels(LIBRARY)


class Twisting(JAXLibrary):
    """Right-angle convolutions everywhere, as on GPUs."""

    def twists(self, weights: jax.Array) -> bool:
        return True


TWISTED = make_kernels(Twisting("jax"))["fft"]
CONTRACT = PRIMITIVES["causal_convolution"]
each_algorithm = pytest.mark.parametrize("algorithm", sorted(KERNELS))


@pytest.fixture(autouse=True)
def _double_precision() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def operands(weights: tuple[int, ...], signal: tuple[int, ...], dtype: str = "float64") -> tuple[jax.Array, jax.Array]:
    rng = np.random.default_rng(3)
    pair = [rng.standard_normal(shape) + 1j * rng.standard_normal(shape) for shape in (weights, signal)]
    if not dtype.startswith("complex"):
        pair = [array.real for array in pair]
    return jnp.asarray(pair[0].astype(dtype)), jnp.asarray(pair[1].astype(dtype))


@each_algorithm
@pytest.mark.parametrize("taps", [4, 9])
@thinned(lambda algorithm, taps: taps == 4 and algorithm == "fft")
def test_under_jit_grad_and_vmap(algorithm: str, taps: int):
    """Inside the caller's own transformations the kernel is traced along, and gives what it gives outside."""
    run = KERNELS[algorithm].run
    weights, signal = operands((3, taps), (3, 9))

    def loss(w: jax.Array, x: jax.Array) -> jax.Array:
        return jnp.sum(run(w, x) ** 2)

    mapped = jax.jit(jax.vmap(jax.grad(loss, argnums=(0, 1))))(weights, signal)
    together = jax.jit(jax.grad(loss, argnums=(0, 1)))(weights, signal)
    for one, other in zip(mapped, together, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
    assert mapped[0].dtype == jnp.float64


@each_algorithm
@thinned(lambda algorithm: algorithm == "fft")
def test_kept_transform(algorithm: str):
    """Prepared weights give the same, and let the gradient of the signal through."""
    kernel = KERNELS[algorithm]
    weights, signal = operands((5,), (2, 24))
    prepared = kernel.prepare(weights, CONTRACT.describe(weights, signal))
    np.testing.assert_allclose(kernel.apply(prepared, signal), kernel.run(weights, signal), atol=1e-13)
    check_grads(lambda x: kernel.apply(prepared, x), (signal,), order=1, modes=("rev",))


@pytest.mark.parametrize(("taps", "n"), [(1, 1), (7, 7), (50, 50), (3, 50), (90, 50), (1000, 1009)])
@pytest.mark.parametrize(("rows", "dtype"), [((), "float64"), ((2, 3), "float64"), ((3,), "float32")])
def test_twisted_transforms_are_the_sum(taps: int, n: int, rows: tuple[int, ...], dtype: str):
    """The right-angle convolution, which GPUs use, with fewer, as many and more weights than points."""
    weights, signal = operands((taps,), (*rows, n), dtype)
    prepared = TWISTED.prepare(weights, CONTRACT.describe(weights, signal))
    assert prepared.layout.size < 1.2 * n + 8, "nothing is padded but to a fast length"
    result = KERNELS["fft"].apply(prepared, signal)
    expected = KERNELS["direct"].run(weights.astype("float64"), signal.astype("float64"))
    assert result.dtype == dtype
    accuracy = 1e-6 if dtype == "float32" else 4e-15
    np.testing.assert_allclose(result, expected, rtol=0, atol=accuracy * n**0.5 * float(abs(expected).max()))


def test_twisted_transforms_keep_non_finite_samples_causal_and_have_gradients():
    """Points before the first non-finite sample are those of the finite ones; the gradient is that of the sum."""
    weights, signal = operands((40,), (40,))
    prepared = TWISTED.prepare(weights, CONTRACT.describe(weights, signal))
    result = KERNELS["fft"].apply(prepared, signal.at[17].set(jnp.inf), differences=False)
    expected = KERNELS["direct"].run(weights, signal)
    np.testing.assert_allclose(result[:17], expected[:17], rtol=1e-12)
    assert np.isnan(result[17:]).all()
    check_grads(lambda x: KERNELS["fft"].apply(prepared, x), (signal,), order=2, modes=("fwd", "rev"))

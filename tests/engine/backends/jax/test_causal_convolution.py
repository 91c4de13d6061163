"""Causal convolution in JAX: traced, mapped, differentiated, in double precision, and with non-finite samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from tests.helpers.thinned import thinned

jax = pytest.importorskip("jax", reason="JAX is not installed")

import jax.numpy as jnp  # noqa: E402
from jax.test_util import check_grads  # noqa: E402

from hpfracc.engine.backends.generic.causal_convolution import make_kernels  # noqa: E402
from hpfracc.engine.backends.jax.library import LIBRARY, JAXLibrary  # noqa: E402
from hpfracc.engine.primitives import PRIMITIVES  # noqa: E402
from tests.helpers.contracts import reference  # noqa: E402

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


@pytest.mark.parametrize(
    ("algorithm", "weights", "signal", "dtype"),
    [
        *((algorithm, (6,), (6,), "float64") for algorithm in sorted(KERNELS)),
        *((algorithm, (2, 1, 3), (2, 9), "complex128") for algorithm in sorted(KERNELS)),
    ],
)
@thinned(lambda algorithm, dtype: (algorithm, dtype) in (("blocked", "float64"), ("direct", "complex128")))
def test_derivatives(algorithm: str, weights: tuple[int, ...], signal: tuple[int, ...], dtype: str):
    """Forward and reverse mode agree with finite differences in both operands.

    ``tests/conformance/test_gradients.py`` has the other algorithms in float64.
    """
    check_grads(KERNELS[algorithm].run, operands(weights, signal, dtype), order=1, modes=("fwd", "rev"))


@each_algorithm
@thinned(lambda algorithm: algorithm == "fft")
def test_second_derivatives(algorithm: str):
    """The Hessian of a loss is that of the sum as it is written."""
    weights, signal = operands((4,), (6,))

    def written_out(w: jax.Array, x: jax.Array) -> jax.Array:
        return jnp.stack([sum(w[k] * x[n - k] for k in range(min(n, 3) + 1)) for n in range(6)])

    def hessian(convolve: Callable[..., jax.Array]) -> jax.Array:
        def loss(both: jax.Array) -> jax.Array:
            return jnp.sum(jnp.sin(convolve(both[:4], both[4:])))

        return jax.jit(jax.hessian(loss))(jnp.concatenate([weights, signal]))

    np.testing.assert_allclose(hessian(KERNELS[algorithm].run), hessian(written_out), atol=1e-12)


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


@each_algorithm
@pytest.mark.parametrize(("taps", "way"), [(1, "plain"), (5, "plain"), (5, "vmap"), (40, "plain")])
@thinned(lambda way: way == "vmap")
def test_non_finite_samples_stay_causal(algorithm: str, taps: int, way: str):
    """Points whose sum involves a bad sample are not finite, all others right; also in conformance tests."""
    weights, signal = (np.array(array) for array in operands((taps,), (4, 40)))
    signal[1, 11], signal[2, 3], signal[2, 25], signal[3, -1] = np.nan, np.inf, -np.inf, np.nan
    answer = reference(CONTRACT, weights, signal)
    run = KERNELS[algorithm].run
    result = np.asarray(
        run(weights, signal)
        if way == "plain"
        else jax.vmap(lambda x: run(jnp.asarray(weights), x))(jnp.asarray(signal))
    )
    finite = np.isfinite(answer)
    assert (np.isfinite(result) == finite).all()
    np.testing.assert_allclose(result[finite], answer[finite], rtol=0, atol=1e-13 * np.abs(weights).sum())


@each_algorithm
@thinned(lambda algorithm: algorithm == "blocked")
def test_gradient_beside_a_bad_sample(algorithm: str):
    """A loss over the points before a bad sample has the gradient it has without that sample.

    ``tests/conformance/test_gradients.py`` has the other algorithms.
    """
    run = KERNELS[algorithm].run
    weights, signal = operands((12,), (12,))

    def loss(w: jax.Array, x: jax.Array) -> jax.Array:
        return jnp.sum(run(w, x)[..., :7] ** 2)

    gradient = jax.jit(jax.grad(loss, argnums=(0, 1)))
    beside = gradient(weights, signal.at[7].set(jnp.nan))
    without = gradient(weights[:7], signal[:7])
    for one, other in zip(beside, without, strict=True):
        np.testing.assert_allclose(one, np.pad(other, (0, 5)), rtol=1e-11, atol=1e-11)


def test_single_precision_without_the_scope():
    """Where the user left JAX in single precision, float32 is traced in float32, and nothing warns."""
    with jax.enable_x64(False):
        weights, signal = jnp.ones(6, jnp.float32), jnp.arange(6, dtype=jnp.float32)
        for kernel in KERNELS.values():
            result = jax.jit(kernel.run)(weights, signal)
            assert result.dtype == jnp.float32
            np.testing.assert_allclose(result, np.cumsum(np.arange(6)), atol=1e-5)


@pytest.mark.parametrize("algorithm", ["fft", "blocked"])
@pytest.mark.parametrize("options", [{}, {"differences": True, "starts_from": 1}])
def test_a_specialised_kernel_is_the_kernel_with_these_options(algorithm: str, options: dict[str, int]):
    """It takes no options, and its result is the same to the bit."""
    weights, signal = operands((50,), (50,))
    others = (signal, jnp.ones((2, 50))) if options else (signal,)
    call = CONTRACT.describe(weights, *others, **options)
    kernel = KERNELS[algorithm]
    prepared = kernel.prepare(weights, call)
    expected = kernel.apply(prepared, *others, **options)
    other = KERNELS["direct"].run(weights, *others, **options)
    np.testing.assert_allclose(expected, other, rtol=1e-12, atol=1e-12)


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

"""Rows in NumPy: a complex transform as long as the row gives the causal sum."""

from __future__ import annotations

import numpy as np
import pytest

from hpfracc.engine.backends.numpy.kernels.causal_convolution import KERNELS, Spectrum, twist
from hpfracc.engine.numerics.lengths import fast_length
from hpfracc.engine.primitives import PRIMITIVES

PRIMITIVE = PRIMITIVES["causal_convolution"]
APPLY = KERNELS["fft"].apply


def operands(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights, samples and two rows of starting weights of ``n`` points."""
    generator = np.random.default_rng(n)
    return generator.standard_normal(n), generator.standard_normal(n), generator.standard_normal((2, n))


def twisted(weights: np.ndarray) -> Spectrum:
    """The transform of as many weights as points."""
    return twist(weights, fast_length(weights.size))


def summed(weights: np.ndarray, signal: np.ndarray) -> np.ndarray:
    return np.convolve(weights, signal)[: signal.size]


@pytest.mark.parametrize("n", [8, 1000, 1001])
@pytest.mark.parametrize("first", [0, 1, 5])
@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("single", [False, True])
def test_rows_with_every_option(n: int, first: int, rows: int, single: bool) -> None:
    """Differences and starting weights, also in a dtype that is not that of the row."""
    weights, signal, starts = operands(n)
    starts = starts[:rows].astype(np.float32 if single else np.float64)
    differences = np.diff(signal, prepend=signal[0])
    expected = summed(weights, differences)
    for j in range(first, first + rows):
        expected[j:] += (differences[j] if j else signal[0]) * starts[j - first, j:]
    result = APPLY(twisted(weights), signal, starts, differences=True, starts_from=first)
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-14 * (n + 100))


@pytest.mark.parametrize("n", [40, 1000, 20_000])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.complex128])
@pytest.mark.filterwarnings("error")
def test_transforms_that_overflow(n: int, dtype: type) -> None:
    """Finite samples whose sum is not: the result is that of the direct sum, up to rounding."""
    weights, signal = np.zeros(n, dtype), np.full(n, np.finfo(dtype).max / 4, dtype)
    weights[0] = 1
    kernel = KERNELS["fft"]
    prepared = kernel.prepare(weights, PRIMITIVE.describe(weights, signal))
    for found in (kernel.run(weights, signal), kernel.apply(prepared, signal)):
        np.testing.assert_allclose(found, signal, rtol=1e-5 if dtype is np.float32 else 1e-13)

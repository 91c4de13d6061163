"""Rows in NumPy: a complex transform as long as the row gives the causal sum."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

import hpfracc as hf
from hpfracc.engine.backends.numpy.kernels.causal_convolution import KERNELS, Spectrum, twist
from hpfracc.engine.execution.prepared import prepared_operands
from hpfracc.engine.numerics.lengths import fast_length
from hpfracc.engine.primitives import PRIMITIVES

PRIMITIVE = PRIMITIVES["causal_convolution"]
LENGTHS = (1, 2, 65, 100, 1000, 5003, 20_000)
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


@pytest.mark.parametrize("n", LENGTHS)
def test_a_row(n: int) -> None:
    """Of any length."""
    weights, signal, _ = operands(n)
    prepared = KERNELS["fft"].prepare(weights, PRIMITIVE.describe(weights, signal))
    expected, kept = summed(weights, signal), signal.copy()
    np.testing.assert_allclose(APPLY(prepared, signal), expected, rtol=0, atol=1e-14 * (n + 10))
    np.testing.assert_array_equal(signal, kept)


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


def test_digits() -> None:
    """Weights of a fractional derivative fall by orders of magnitude: the sum is as exact as by padded transforms."""
    n = 500
    weights = hf.generalized_binomial(0.5, np.arange(n)) * (-1.0) ** np.arange(n)
    signal = np.exp(np.linspace(0.0, 3.0, n))
    with mpmath.workdps(40):
        exact = [float(mpmath.fdot(weights[: k + 1].tolist(), signal[k::-1].tolist())) for k in range(0, n, 50)]
    error = abs(APPLY(twisted(weights), signal)[::50] - exact).max()
    assert error <= 4 * np.finfo(float).eps * abs(signal).max()


@pytest.mark.parametrize("rows_first", [True, False])
def test_one_key_for_a_row_and_for_several(rows_first: bool) -> None:
    """Each has a transform of its own, whichever is made first."""
    weights, signal, _ = operands(1000)
    several = np.stack([signal, signal[::-1]])
    expected = np.stack([summed(weights, row) for row in several])
    prepared_operands.reset()
    calls = [(signal, expected[0]), (several, expected)]
    for values, right in calls[:: -1 if rows_first else 1] * 2:
        result = hf.causal_convolution(weights, values, weights_key="twisted", backend="numpy")
        np.testing.assert_allclose(result, right, rtol=0, atol=1e-11)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 1, 700, 1000])
@pytest.mark.filterwarnings("error")
def test_a_bad_sample_reaches_only_later_points(bad: float, place: int) -> None:
    """As in the sum itself, without a warning."""
    weights, signal, starts = operands(1001)
    prepared = twisted(weights)
    whole = APPLY(prepared, signal, starts, differences=True, starts_from=1)
    signal[place] = bad
    result = APPLY(prepared, signal, starts, differences=True, starts_from=1)
    np.testing.assert_allclose(result[:place], whole[:place], rtol=0, atol=1e-11)
    assert not np.isfinite(result[place:]).any()


def test_the_weights_stay_the_caller_s() -> None:
    """A prepared spectrum does not change with the array that it was made of, and counts what it holds."""
    weights, signal, _ = operands(1001)
    expected = summed(weights, signal)
    prepared = KERNELS["fft"].prepare(weights, PRIMITIVE.describe(weights, signal))
    weights[:] = 0.0
    np.testing.assert_allclose(APPLY(prepared, signal), expected, rtol=0, atol=1e-11)
    assert prepared.nbytes == 16 * prepared.turns.size + 8 * 1001


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


def test_differences_that_overflow_with_starts() -> None:
    """The same with the options of the primitive."""
    n = 1000
    signal, starts = np.linspace(0.0, 8e307, n) - 4e307, np.ones((1, n))
    weights = np.full(n, 0.5)
    differences = np.diff(signal, prepend=signal[0])
    expected = 0.5 * np.cumsum(differences)
    expected[1:] += differences[1]
    found = APPLY(twisted(weights), signal, starts, differences=True, starts_from=1)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e294)

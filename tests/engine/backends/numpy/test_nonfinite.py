"""Non-finite samples through NumPy's transforms affect the outputs whose sum includes them, and no others."""

from __future__ import annotations

import numpy as np
import pytest

from hpfracc.engine.backends.numpy.kernels.causal_convolution import KERNELS
from hpfracc.engine.primitives import PRIMITIVES
from tests.helpers.contracts import reference


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(("algorithm", "n"), [("fft", 70), ("blocked", 4500)])
@pytest.mark.parametrize(
    "bad",
    [[np.nan], [np.inf], [-np.inf], [np.inf, np.inf], [np.inf, -np.inf], [np.nan, np.inf, -np.inf]],
    ids=str,
)
def test_outputs_are_finite_where_the_sum_is(
    bad: list[float], algorithm: str, n: int, workers: int, dtype: str
) -> None:
    """Also where infinities of both signs meet, and where a weight of exactly 0 meets one; nan elsewhere."""
    generator = np.random.default_rng(3)
    weights, signal = generator.standard_normal(12).astype(dtype), generator.standard_normal((2, n)).astype(dtype)
    weights[4] = 0
    signal[0, generator.choice(n, len(bad), replace=False)] = bad
    expected = reference(PRIMITIVES["causal_convolution"], weights, signal)
    result = KERNELS[algorithm].run(weights, signal, workers=workers)
    np.testing.assert_array_equal(np.isfinite(result), np.isfinite(expected))
    finite = np.isfinite(expected)
    np.testing.assert_allclose(result[finite], expected[finite], atol=100 * np.finfo(dtype).eps)


@pytest.mark.parametrize("place", [0, 5])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_bad_weight_reaches_only_the_outputs_that_use_it(bad: float, place: int) -> None:
    """Outputs before the weight's own lag stay right."""
    weights, signal = np.linspace(1, 2, 20), np.linspace(-1, 1, 50)
    weights[place] = bad
    expected = reference(PRIMITIVES["causal_convolution"], weights, signal)
    result = KERNELS["fft"].run(weights, signal)
    np.testing.assert_array_equal(np.isfinite(result), np.isfinite(expected))
    np.testing.assert_allclose(result[:place], expected[:place], rtol=1e-13)


def test_half_the_samples_missing_is_no_harder_than_one() -> None:
    """30,000 bad samples take no 30,000 sums."""
    n = 60_000
    signal = np.ones(n)
    signal[1::2] = np.nan
    result = KERNELS["fft"].run(np.array([2.0]), signal)
    np.testing.assert_allclose(result[::2], 2.0, rtol=1e-12)
    assert np.isnan(result[1::2]).all()


def test_complex_outputs_that_involve_a_bad_sample_are_nan() -> None:
    """In both parts; the others stay right."""
    weights, signal = np.ones(3, complex), np.arange(10) * (1 + 1j)
    signal[4] = complex(np.inf, 0)
    result = KERNELS["fft"].run(weights, signal)
    assert np.isnan(result[4:7].real).all()
    assert np.isnan(result[4:7].imag).all()
    assert np.isfinite(np.delete(result, [4, 5, 6])).all()

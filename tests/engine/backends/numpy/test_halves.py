"""Long rows in NumPy: transforms of half the padded length give the causal sum."""

from __future__ import annotations

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.engine.backends.numpy.halves import HalvedSpectrum, convolve_halves, halve
from hpfracc.engine.backends.numpy.kernels.causal_convolution import KERNELS
from hpfracc.engine.execution.prepared import prepared_operands
from hpfracc.engine.primitives import PRIMITIVES

PRIMITIVE = PRIMITIVES["causal_convolution"]
#: A row that is not a fast length itself, and one that is.
LENGTHS = (14_337, 14_406)


def operands(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights, samples and starting weights of ``n`` points."""
    generator = np.random.default_rng(n)
    return generator.standard_normal(n), generator.standard_normal(n), generator.standard_normal((1, n))


def summed(weights: np.ndarray, signal: np.ndarray) -> np.ndarray:
    return np.convolve(weights, signal)[: signal.size]


def some_points(n: int) -> np.ndarray:
    """The first points, the middle, where the two halves meet, and the last: all sums of a long row take too long."""
    return np.unique(np.concatenate([np.arange(8), n // 2 + np.arange(-8, 9), n - 1 - np.arange(8)]))


def summed_at(weights: np.ndarray, signal: np.ndarray, points: np.ndarray) -> np.ndarray:
    return np.array([weights[: point + 1] @ signal[point::-1] for point in points])


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 17, 100, 1001, 4096, 5003])
def test_half_transforms_give_the_sum(n: int, workers: int) -> None:
    """Cyclic and negacyclic convolution of any length, added to what is there."""
    weights, signal, starts = operands(n)
    prepared = halve(weights)
    padded = np.zeros(prepared.size)
    padded[:n] = signal
    result = starts[0].copy()
    convolve_halves(prepared, padded, result, workers)
    np.testing.assert_allclose(result, starts[0] + summed(weights, signal), rtol=0, atol=1e-14 * (n + 10))


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("workers", [1, 2])
def test_rows_with_every_option(n: int, workers: int) -> None:
    """Differences and starting weights; prepared once, used by both kernels."""
    weights, signal, starts = operands(n)
    prepared = KERNELS["fft"].prepare(weights, PRIMITIVE.describe(weights, signal))
    assert isinstance(prepared, HalvedSpectrum)
    differences, points = np.diff(signal, prepend=signal[0]), some_points(n)
    for first in (0, 1, 5):
        sample = differences[first] if first else signal[0]  # the first sample has no difference
        added = np.where(points >= first, sample * starts[0, points], 0.0)
        expected = summed_at(weights, differences, points) + added
        result = KERNELS["fft"].apply(prepared, signal, starts, differences=True, starts_from=first, workers=workers)
        np.testing.assert_allclose(result[points], expected, rtol=0, atol=1e-11)
    plain = KERNELS["fft"].plain
    assert plain is not None
    expected = summed_at(weights, signal, points)
    for apply in (KERNELS["fft"].apply, plain.apply):
        result = apply(prepared, signal, workers=workers)
        np.testing.assert_allclose(result[points], expected, rtol=0, atol=1e-11)


def test_threads_change_no_bit() -> None:
    """The two halves are independent."""
    weights, signal, _ = operands(140_000)
    prepared = halve(weights)
    one, two = (KERNELS["fft"].apply(prepared, signal, workers=workers) for workers in (1, 2))
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("rows_first", [True, False])
def test_one_key_for_a_row_and_for_several(rows_first: bool) -> None:
    """Each has a transform of its own, whichever is made first."""
    n = LENGTHS[0]
    weights, signal, _ = operands(n)
    several = np.stack([signal, signal[::-1]])
    points = some_points(n)
    expected = np.stack([summed_at(weights, row, points) for row in several])
    prepared_operands.reset()
    calls = [(signal, expected[0]), (several, expected)]
    for values, right in calls[:: -1 if rows_first else 1] * 2:
        result = hf.causal_convolution(weights, values, weights_key="both", backend="numpy")
        np.testing.assert_allclose(result[..., points], right, rtol=0, atol=1e-11)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 1, 7000, LENGTHS[0] - 1])
@pytest.mark.filterwarnings("error")
def test_a_bad_sample_reaches_only_later_points(bad: float, place: int) -> None:
    """As in the sum itself, without a warning."""
    weights, signal, starts = operands(LENGTHS[0])
    prepared = halve(weights)
    whole = KERNELS["fft"].apply(prepared, signal, starts, differences=True, starts_from=1)
    signal[place] = bad
    result = KERNELS["fft"].apply(prepared, signal, starts, differences=True, starts_from=1)
    np.testing.assert_allclose(result[:place], whole[:place], rtol=0, atol=1e-11)
    assert not np.isfinite(result[place:]).any()


def test_the_weights_stay_the_caller_s() -> None:
    """A prepared spectrum does not change with the array that it was made of, and counts what it holds."""
    weights, signal, _ = operands(LENGTHS[1])
    points = some_points(LENGTHS[1])
    expected = summed_at(weights, signal, points)
    prepared = KERNELS["fft"].prepare(weights, PRIMITIVE.describe(weights, signal))
    weights[:] = 0.0
    np.testing.assert_allclose(KERNELS["fft"].apply(prepared, signal)[points], expected, rtol=0, atol=1e-11)
    assert prepared.nbytes == 8 * (prepared.size + 2 + prepared.size + prepared.size + LENGTHS[1])

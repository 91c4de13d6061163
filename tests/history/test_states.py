"""States of a sum of exponentials: kernel, moments and memory, each beside its definition."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from scipy.integrate import quad

from hpfracc.errors import InvalidInputError
from hpfracc.history.exponentials import exponential_moments, moment_rule
from hpfracc.history.states import ExponentialMemory, TrackedMemory, exponential_kernel


@pytest.mark.parametrize("eps", [1e-4, 1e-8, 1e-13])
@pytest.mark.parametrize("alpha", [0.05, 0.3, 0.5, 0.99, 1.0, 1.3, 1.999, 2.5])
def test_the_kernel_holds_over_fifteen_decades(alpha: float, eps: float):
    """The sum of exponentials is within eps of the kernel from 1e-15 to 1, with terms as its docstring says."""
    kernel = exponential_kernel(alpha, 1e-15, 1.0, eps)
    u = np.geomspace(1e-15, 1.0, 500)
    exact = u ** (alpha - 1.0) / math.gamma(alpha)
    assert np.max(np.abs(kernel(u) / exact - 1.0)) < max(eps, 3e-15)
    assert kernel.rates.size < 5.0 * math.log(1.0 / eps) + 50


def test_a_kernel_grows_without_changing():
    """Reaching down to shorter distances adds terms and leaves those that are there."""
    wide, narrow = (exponential_kernel(0.4, shortest, 1.0, 1e-9) for shortest in (1e-12, 1e-6))
    assert wide.rates.size > narrow.rates.size
    assert np.array_equal(wide.rates[: narrow.rates.size], narrow.rates)
    assert np.array_equal(wide.weights[: narrow.rates.size], narrow.weights)


@pytest.mark.parametrize(("shortest", "longest", "eps"), [(0.0, 1.0, 1e-6), (2.0, 1.0, 1e-6), (0.1, 1.0, 1e-30)])
def test_a_kernel_that_cannot_be_is_refused(shortest: float, longest: float, eps: float):
    """Distances that do not rise from above 0, or a tolerance below rounding, are errors."""
    with pytest.raises(InvalidInputError):
        exponential_kernel(0.5, shortest, longest, eps)


def test_moments_are_those_of_mpmath():
    """All moments for z from 0 to 1e6 have their digits."""
    z = np.array([0.0, 1e-8, 0.3, 5.0, 11.9, 12.1, 40.0, 1e3, 1e6])
    found = exponential_moments(np, z, moment_rule(9))
    for row, value in zip(found, z, strict=True):
        for q, entry in enumerate(row):
            middle = min(1.0, 40.0 / (value + 1e-9))
            exact = mpmath.quad(lambda x, q=q, v=value: x**q * mpmath.exp(-v * x), [0, middle, 1])
            assert entry == pytest.approx(float(exact), rel=1e-12)


@pytest.mark.parametrize("alpha", [0.3, 0.8, 1.0, 1.5, 2.2])
def test_the_memory_is_the_integral(alpha: float):
    """After steps that grow, shrink a thousandfold and grow again, the past's part is the fractional integral."""
    steps = np.concatenate([1e-6 * 1.7 ** np.arange(24), [1e-4] * 3, [1e-5, 1e-3, 0.1, 0.3]])
    memory = ExponentialMemory(alpha, 1, steps.sum() + 1.0, 1e-13, np.float64)
    edges = np.concatenate([[0.0], np.cumsum(steps)])

    def function(t: float) -> float:
        return 1.0 + 2.0 * t - 0.7 * t * t

    for begin, step in zip(edges[:-1], steps, strict=True):
        end = begin + step
        # In x = (end - t)/step.
        slope, bend = 2.0 - 1.4 * end, -0.7
        memory.advance(step, np.array([[function(end)], [-slope * step], [bend * step * step]]))
    end = edges[-1]
    for distance in (1e-5, 0.05, 1.0):

        def integrand(s: float, t: float = end + distance) -> float:
            return (t - s) ** (alpha - 1.0) * function(s)

        exact = quad(integrand, 0.0, end, limit=200, epsabs=1e-13, epsrel=1e-13)[0] / math.gamma(alpha)
        found = memory.history(distance)[0]
        assert found == pytest.approx(exact, rel=2e-9)
        assert memory.snapshot().history(np.array([distance]))[0, 0] == pytest.approx(found, rel=1e-10)


@pytest.mark.parametrize("together", [1, 4])
@pytest.mark.parametrize("alpha", [0.4, 1.0, 1.6])
def test_a_tracked_memory_has_the_solution_and_a_rough_error(alpha: float, together: int):
    """The columns of the solution are those of a plain memory; those of the error agree to about a percent."""
    columns, rng = 3000, np.random.default_rng(0)  # more than one block
    plain = ExponentialMemory(alpha, 2 * columns, 1.0, 1e-9, float)
    tracked = TrackedMemory(alpha, 2 * columns, 1.0, 1e-9, float, together=together)
    signs = np.repeat([1.0, -1.0], columns)
    for step in (1e-4, 1e-3, 1e-2, 2e-2, 1e-5, 1e-4, 0.1, 1e-5, 1e-3, 1e-6, 0.2):
        polynomial = rng.random((3, 2 * columns))
        expected, found = plain.history(step), tracked.history(step)
        np.testing.assert_allclose(found[:columns], expected[:columns], rtol=1e-8)
        largest = np.abs(expected).max()
        np.testing.assert_allclose(found[columns:], expected[columns:], rtol=0.0, atol=2e-2 * largest)
        for memory in (plain, tracked):
            memory.advance(step, polynomial)
            memory.multiply(signs)
    assert tracked.states.shape[2] == columns

"""The parts of the adaptive method: kernel, moments, stencils and memory, each beside its definition."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from scipy.integrate import quad

from hpfracc.errors import InvalidInputError
from hpfracc.solvers.ode.adaptive.kernel import exponential_kernel
from hpfracc.solvers.ode.adaptive.memory import ExponentialMemory, exponential_moments
from hpfracc.solvers.ode.adaptive.solution import Piece, piece_integral
from hpfracc.solvers.ode.adaptive.stencil import make_stencil


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
    found = exponential_moments(z, 9)
    for row, value in zip(found, z, strict=True):
        for q, entry in enumerate(row):
            middle = min(1.0, 40.0 / (value + 1e-9))
            exact = mpmath.quad(lambda x, q=q, v=value: x**q * mpmath.exp(-v * x), [0, middle, 1])
            assert entry == pytest.approx(float(exact), rel=1e-12)


def test_stencils_reproduce_polynomials():
    """Through k + 1 points a polynomial of degree k comes back, and so does its weighted integral."""
    nodes = np.array([0.0, 1.0, 2.3, 2.9, 5.0])
    stencil = make_stencil(nodes)
    coefficients = np.array([1.0, -2.0, 0.5, 0.25, -0.1])
    values = np.polynomial.polynomial.polyval(nodes, coefficients)
    assert stencil.coefficients(4) @ values == pytest.approx(coefficients, rel=1e-10)
    alpha = 0.6
    exact = np.sum(coefficients / (alpha + np.arange(5)))
    assert (stencil.contributions(alpha) @ values).sum() == pytest.approx(exact, rel=1e-11)


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


@pytest.mark.parametrize("alpha", [0.3, 1.0, 1.7])
def test_pieces_integrate_exactly(alpha: float):
    """What a piece adds, at times within it, just after it and long after it, is the integral."""
    piece = Piece(1.0, 0.5, 1.5, np.array([[1.0], [2.0], [-1.0], [0.5]]))
    times = np.array([1.2, 1.5, 1.6, 1.99, 2.01, 40.0])
    found = piece_integral(piece, alpha, times, slice(None))[:, 0]
    polynomial = np.polynomial.Polynomial([1.0, 2.0, -1.0, 0.5])
    for t, value in zip(times, found, strict=True):

        def smooth(s: float) -> float:
            return float(polynomial((1.5 - s) / 0.5))

        def whole(s: float, t: float = t) -> float:
            return (t - s) ** (alpha - 1.0) * smooth(s)

        if t <= 1.5:
            exact = quad(smooth, 1.0, t, weight="alg", wvar=(0.0, alpha - 1.0))[0]
        else:
            exact = quad(whole, 1.0, 1.5, epsrel=1e-12)[0]
        assert value == pytest.approx(exact / math.gamma(alpha), rel=1e-9)

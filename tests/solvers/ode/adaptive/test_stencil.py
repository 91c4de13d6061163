"""Stencils and pieces of the adaptive method, each beside its definition."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import quad

from hpfracc.solvers.ode.adaptive.memories import Tempering
from hpfracc.solvers.stepping.rules import make_rules
from hpfracc.solvers.stepping.solution import Piece, piece_integral


def test_stencils_reproduce_polynomials():
    """Through k + 1 points a polynomial of degree k comes back, and so does its weighted integral."""
    nodes = np.array([0.0, 1.0, 2.3, 2.9, 5.0])
    alpha = 0.6
    integrals = 1.0 / (alpha + np.arange(5))
    rules = make_rules(tuple(nodes), integrals.tobytes())
    coefficients = np.array([1.0, -2.0, 0.5, 0.25, -0.1])
    values = np.polynomial.polynomial.polyval(nodes, coefficients)
    assert rules.polynomials.T @ rules.differences @ values == pytest.approx(coefficients, rel=1e-10)
    assert rules.sums[4] @ values == pytest.approx(coefficients @ integrals, rel=1e-11)
    # Through the newest two points alone, a straight line; and the next value of one of degree 4 from the others.
    assert rules.sums[1] @ values == pytest.approx(values[0] * (1 - 0.6 / 1.6) / 0.6 + values[1] / 1.6, rel=1e-11)
    cubic = np.polynomial.polynomial.polyval(nodes, coefficients[:4])
    assert rules.ahead[3, 1] @ cubic[1:] == pytest.approx(rules.newest[3] * cubic[0], rel=1e-10)


@pytest.mark.parametrize("rate", [0.0, 2.0, 30.0])
@pytest.mark.parametrize("alpha", [0.3, 1.0, 1.7])
def test_pieces_integrate_exactly(alpha: float, rate: float):
    """What a piece adds, at times within it, just after it and long after it, is the integral."""
    piece = Piece(1.0, 0.5, 1.5, np.array([[1.0], [2.0], [-1.0], [0.5]]))
    times = np.array([1.2, 1.5, 1.6, 1.99, 2.01, 40.0])
    kernel = Tempering(rate).kernel(alpha, 1.0, 1.0, 1e-8)
    found = piece_integral(piece, kernel, times, slice(None))[:, 0]
    polynomial = np.polynomial.Polynomial([1.0, 2.0, -1.0, 0.5])
    for t, value in zip(times, found, strict=True):

        def smooth(s: float, t: float = t) -> float:
            return float(polynomial((1.5 - s) / 0.5)) * math.exp(-rate * (t - s))

        def whole(s: float, t: float = t) -> float:
            return (t - s) ** (alpha - 1.0) * smooth(s)

        if t <= 1.5:
            exact = quad(smooth, 1.0, t, weight="alg", wvar=(0.0, alpha - 1.0))[0]
        else:
            exact = quad(whole, 1.0, 1.5, epsrel=1e-12)[0]
        assert value == pytest.approx(exact / math.gamma(alpha), rel=1e-8, abs=1e-30)

"""Weights of the multistep methods against their generating functions, in exact arithmetic."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest

from hpfracc._xp import NUMPY
from hpfracc.solvers.ode.fixed.starting import starting_weights
from hpfracc.solvers.ode.method import find_method
from hpfracc.solvers.ode.singular import Powers

GENERATING = {
    "bdf2": lambda z, a: (mpmath.mpf(3) / 2 - 2 * z + z**2 / 2) ** (-a),
    "newton_gregory": lambda z, a: (1 - z) ** (-a) * (1 - a / 2 * (1 - z)),
    "multistep_trapezoid": lambda z, a: ((1 + z) / (2 * (1 - z))) ** a,
}


@pytest.mark.parametrize("name", GENERATING)
@pytest.mark.parametrize("alpha", [0.3, 0.8, 1.5])
def test_first_weights_are_taylor_coefficients(name: str, alpha: float):
    """The first ten agree with mpmath's Taylor series of the generating function."""
    with mpmath.workdps(40):
        exact = [float(c) for c in mpmath.taylor(lambda z: GENERATING[name](z, mpmath.mpf(alpha)), 0, 9)]
    method: Any = find_method(name)
    np.testing.assert_allclose(method.weights(NUMPY, alpha, 10)[0][0], exact, rtol=1e-13)


@pytest.mark.parametrize("name", GENERATING)
@pytest.mark.parametrize("exponents", [(0.0, 0.4, 0.8, 1.0), (-0.3, 0.0, 0.4, 0.7, 1.0)])
def test_starting_weights_are_exact_on_their_powers(name: str, exponents: tuple[float, ...]):
    """Sum and starting weights together integrate t^nu exactly, near the origin and far from it."""
    alpha, n = 0.7, 700
    first = 1 if exponents[0] < 0.0 else 0
    powers = Powers(exponents, first)
    method: Any = find_method(name)
    omega = method.weights(NUMPY, alpha, n)[0][0]
    starts = starting_weights(method, alpha, omega, powers)
    nodes = np.arange(first, powers.last + 1.0)
    for nu in exponents:
        samples = np.arange(n, dtype=float)
        samples[first:] **= nu
        for k in (1, 5, 127, 128, 129, 300, 699):
            found = omega[: k + 1][::-1] @ samples[: k + 1] + nodes**nu @ starts[:, k]
            exact = float(mpmath.gamma(nu + 1) / mpmath.gamma(nu + alpha + 1)) * k ** (nu + alpha)
            assert found == pytest.approx(exact, rel=1e-11)

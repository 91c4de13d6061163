"""Weights of the multistep methods against their generating functions, in exact arithmetic."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest

from hpfracc._xp import NUMPY
from hpfracc.solvers.ode.fixed.scheme import trapezoid_weights
from hpfracc.solvers.ode.fixed.starting import starting_weights
from hpfracc.solvers.ode.method import find_method
from hpfracc.solvers.ode.problem import read_problem
from hpfracc.solvers.ode.singular import Powers, starting_powers

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
@pytest.mark.parametrize("alpha", [0.3, 0.8, 1.5])
def test_far_weights_continue_the_near_ones(name: str, alpha: float):
    """Beyond the head they agree with a plain power-series recurrence, run in extended precision."""
    n = 1200
    with mpmath.workdps(30):
        a = mpmath.mpf(alpha)
        if name == "multistep_trapezoid":
            exact = [mpmath.mpf(1), 2 * a]
            for k in range(1, n - 1):
                exact.append((2 * a * exact[k] + (k - 1) * exact[k - 1]) / (k + 1))
            exact = [c / 2**a for c in exact]
        else:
            # q y' = -a q' y for y = q^-a.
            q = [mpmath.mpf(3) / 2, mpmath.mpf(-2), mpmath.mpf(1) / 2] if name == "bdf2" else [1, -1, 0]
            exact = [mpmath.mpf(q[0]) ** (-a)]
            for k in range(1, n):
                total = sum((-a * j - (k - j)) * q[j] * exact[k - j] for j in range(1, min(2, k) + 1))
                exact.append(total / (k * q[0]))
            if name == "newton_gregory":
                exact = [c - a / 2 * (c - (exact[k - 1] if k else 0)) for k, c in enumerate(exact)]
    method: Any = find_method(name)
    np.testing.assert_allclose(method.weights(NUMPY, alpha, n)[0][0], np.array(exact, dtype=float), rtol=2e-12)


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


def test_starting_powers():
    """Powers up to 1 of every order there is; those from infinity for a Riemann-Liouville problem."""
    plain = read_problem(lambda t, y: -y, (0, 1), [1.0], 0.4)
    assert starting_powers(plain).exponents == pytest.approx((0.0, 0.4, 0.8, 1.0))
    mixed = read_problem(lambda t, y: -y, (0, 1), [1.0, 1.0], [0.5, 0.7])
    assert starting_powers(mixed).exponents == pytest.approx((0.0, 0.5, 0.7, 1.0))
    infinite = read_problem(lambda t, y: -y, (0, 1), [1.0], 0.5, derivative="riemann_liouville")
    found = starting_powers(infinite)
    assert found.first == 1 and found.exponents == pytest.approx((-0.5, 0.0, 0.5, 1.0))


@pytest.mark.parametrize("alpha", [0.2, 0.9, 1.6])
def test_trapezoid_weights_integrate_lines(alpha: float):
    """The product trapezoid is exact on 1 and on t, at 10 and at 100,000 steps."""
    for k in (10, 100_000):
        weights, first = trapezoid_weights(alpha, k + 1)
        total = weights.sum() + first[k]
        line = weights[::-1] @ np.arange(k + 1.0)
        assert total == pytest.approx(k**alpha * float(mpmath.rgamma(alpha + 1)), rel=1e-12)
        assert line == pytest.approx(k ** (alpha + 1) * float(mpmath.rgamma(alpha + 2)), rel=1e-12)

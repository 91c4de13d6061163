"""Steady states, against closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import brentq

import hpfracc as hf
from hpfracc.errors import InvalidInputError, SolveError
from hpfracc.pde import Advection, Diffusion, Dirichlet, Disc, Exterior, FractionalDiffusion

X = np.linspace(0.0, 1.0, 33)
#: Bratu's equation u'' + exp(u) = 0: the lower branch.
THETA = brentq(lambda theta: math.sqrt(8.0) * theta / math.cosh(theta) - 1.0, 0.0, 1.19)
BRATU = 2.0 * np.log(np.cosh(THETA) / np.cosh(THETA * (1.0 - 2.0 * X)))


def check(found, exact):
    error = np.abs(found.u - exact).max()
    assert error <= 3.0 * found.error_estimate + 1e-12
    return error


@pytest.mark.parametrize("coefficient", [1.0, lambda x: 1.0 + 0.0 * x])
def test_poisson(coefficient):
    found = hf.steady_state(x=X, space=Diffusion(coefficient), boundary="dirichlet", source=2.0)
    assert check(found, X * (1.0 - X)) < 2e-4
    assert found.residual < 1e-9
    assert found.mass == pytest.approx(1.0 / 6.0, abs=1e-3)


def test_given_values_and_a_coefficient():
    """((1 + x) u')' = 0 from 0 to 1, and ((1 + u) u')' = 0, whose coefficient depends on u."""
    walls = (Dirichlet(0.0), Dirichlet(1.0))
    found = hf.steady_state(x=X, space=Diffusion(lambda x: 1.0 + x), boundary=walls)
    np.testing.assert_allclose(found.u, np.log1p(X) / math.log(2.0), atol=1e-8)
    found = hf.steady_state(x=X, space=Diffusion(lambda x, u: 1.0 + u), boundary=walls)
    np.testing.assert_allclose(found.u, np.sqrt(1.0 + 3.0 * X) - 1.0, atol=1e-8)


def test_bratu():
    errors = []
    for points in (17, 33, 65):
        x = np.linspace(0.0, 1.0, points)
        found = hf.steady_state(lambda t, u: np.exp(u), x=x, space=Diffusion(1.0), boundary="dirichlet")
        exact = 2.0 * np.log(np.cosh(THETA) / np.cosh(THETA * (1.0 - 2.0 * x)))
        errors.append(check(found, exact))
    assert np.log2(np.array(errors[:-1]) / errors[1:]) == pytest.approx(2.0, abs=0.1)
    given = {"x": X, "space": Diffusion(1.0), "boundary": "dirichlet", "jac": lambda t, u: np.exp(u)}
    assert np.abs(hf.steady_state(lambda t, u: np.exp(u), **given).u - BRATU).max() < 2e-4
    with pytest.raises(SolveError, match="u0"):  # no solution above 3.51
        hf.steady_state(lambda t, u: 5.0 * np.exp(u), x=X, space=Diffusion(1.0), boundary="dirichlet")


def test_equilibrium_in_a_double_well():
    """Boltzmann's equilibrium of V = (x^2 - 1)^2, without flux through the ends."""
    errors = []
    for points in (65, 129):
        x = np.linspace(-2.5, 2.5, points)
        terms = Diffusion(0.5) + Advection(lambda x: -4.0 * x * (x**2 - 1.0), conservative=True)
        found = hf.steady_state(x=x, space=terms, boundary="no_flux", mass=2.0)
        exact = np.exp(-2.0 * (x**2 - 1.0) ** 2)
        errors.append(check(found, 2.0 * exact / np.trapezoid(exact, x)))
        assert found.mass == pytest.approx(2.0, rel=1e-12)
    assert math.log2(errors[0] / errors[1]) == pytest.approx(2.0, abs=0.3)


def test_closed_ends_with_a_source_of_no_mass():
    given = {"x": X, "space": Diffusion(1.0), "boundary": "neumann"}
    found = hf.steady_state(mass=2.0, source=lambda t, x: np.cos(np.pi * x), **given)
    np.testing.assert_allclose(found.u, 2.0 + np.cos(np.pi * X) / np.pi**2, atol=1e-10)
    logistic = hf.steady_state(lambda t, u: u * (1.0 - u), 0.8, **given)
    np.testing.assert_allclose(logistic.u, 1.0, atol=1e-8)


def test_system_and_two_dimensions():
    """Two components that exchange, and Poisson's equation on a square: 0.0737 in the middle for f = 1."""
    both = hf.steady_state(
        lambda t, u: np.stack([u[1] - u[0], u[0] - u[1] + 2.0]), np.zeros((2, 33)), x=X, space=Diffusion(1.0),
        boundary="dirichlet",
    )  # fmt: skip
    np.testing.assert_allclose(both.u.sum(0), X * (1.0 - X), atol=2e-4)
    square = hf.steady_state(x=(X, X), space=Diffusion(1.0), boundary="dirichlet", source=1.0)
    assert square.u[16, 16] == pytest.approx(0.0736714, abs=3.0 * square.error_estimate)


def test_integral_laplacian():
    x = np.linspace(-1.0, 1.0, 33)
    found = hf.steady_state(x=x, space=FractionalDiffusion(1.0, "integral"), boundary=Exterior(0.0), source=1.0)
    np.testing.assert_allclose(found.u, np.sqrt(1.0 - x**2), atol=1e-10)


@pytest.mark.parametrize("points", [17, 129])
@pytest.mark.parametrize("order", [0.5, 1.5])
def test_the_estimate_of_a_torsion_function_is_that_of_rounding(order, points):
    """Of an interval and a disc: a source that does not vanish at the ends is no less resolved for that."""
    x = np.linspace(-1.0, 1.0, points)
    given = {"space": FractionalDiffusion(order, "integral"), "boundary": "exterior", "source": 1.0}
    line = hf.steady_state(x=x, **given)
    assert np.abs(line.u - (1.0 - x**2) ** (order / 2) / math.gamma(1.0 + order)).max() < 1e-12
    assert line.error_estimate < 1e-11
    disc = hf.steady_state(x=Disc(2.0, 24, 16), **given)
    exact = (4.0 - disc.x[0] ** 2) ** (order / 2) / (2.0**order * math.gamma(1.0 + order / 2) ** 2)
    assert np.abs(disc.u - exact[:, None]).max() < 1e-11
    assert disc.error_estimate < 1e-11


def test_a_kink_in_a_source_is_seen():
    """The estimate for a nonlocal equation with the source |x|, against a grid that has 8 times as many points."""
    given = {"space": FractionalDiffusion(1.5, "integral"), "boundary": "exterior", "source": lambda t, x: np.abs(x)}
    coarse, fine = (hf.steady_state(x=np.linspace(-1.0, 1.0, points), **given) for points in (33, 257))
    error = np.abs(coarse.u - fine.u[::8]).max()
    assert error < 3.0 * coarse.error_estimate < 30.0 * error


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"boundary": "neumann"}, "give mass="),
        ({"boundary": "neumann", "mass": 1.0, "source": 1.0}, "add 1 to the mass"),
        ({"mass": 1.0}, "boundary conditions determine"),
        ({"source": lambda t, x: t * x}, "depend on t"),
        ({"mass": 1.0, "reaction": lambda t, u: -u}, "without a reaction"),
        ({"rtol": 0.0}, "rtol"),
    ],
)
def test_refusals(change, words):
    given = {"x": X, "space": Diffusion(1.0), "boundary": "dirichlet", **change}
    with pytest.raises(InvalidInputError, match=words):
        hf.steady_state(given.pop("reaction", None), **given)

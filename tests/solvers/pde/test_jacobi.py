"""The integral Laplacian in weighted Jacobi polynomials, on intervals and discs."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hpfracc import solve_fpde
from hpfracc.errors import InvalidInputError
from hpfracc.pde import Diffusion, Disc, Exterior, FractionalDiffusion, Periodic, interval_eigenvalues, jacobi_grid
from hpfracc.solvers.pde.boundary import read_boundary
from hpfracc.solvers.pde.space.base import SpaceSetting
from hpfracc.solvers.pde.space.disc import JacobiDisc
from hpfracc.solvers.pde.space.jacobi import JacobiInterval


def interval(x, order, coefficient=1.0, outside=0.0, **more):
    terms = (FractionalDiffusion(order, "integral", coefficient),)
    return JacobiInterval(SpaceSetting(terms, (x,), read_boundary(Exterior(outside), 1), **more))


@pytest.mark.parametrize("s", [0.25, 0.5, 0.75])
@pytest.mark.parametrize("nodal", [True, False])
def test_the_solution_for_a_constant(s, nodal):
    """f = 1 on (-1, 1): (1 - x^2)^s / Gamma(1 + 2s), and scaled on another interval."""
    x = jacobi_grid(12, 2 * s, (1.0, 4.0)) if nodal else np.linspace(1.0, 4.0, 21)
    space = interval(x, 2 * s, 0.5)
    assert space.nodal is nodal
    u = space.embed(space.solve(0.0, np.ones(space.shape)), 0.0)
    local = np.clip(1.0 - ((x - 2.5) / 1.5) ** 2, 0.0, None)
    exact = 2.0 * 1.5 ** (2 * s) * local**s / math.gamma(1.0 + 2 * s)
    np.testing.assert_allclose(u, exact, atol=1e-12)
    if nodal:
        whole = 2.0 * 1.5 ** (2 * s + 1) * math.sqrt(math.pi) * math.gamma(1 + s)
        whole /= math.gamma(1.5 + s) * math.gamma(1.0 + 2 * s)
        assert space.integrate(u) == pytest.approx(whole, rel=1e-12)


@pytest.mark.parametrize(
    ("order", "first", "second"), [(0.5, 0.9701654187, 1.6015377315), (1.5, 1.597503545650, 5.059759928308)]
)
def test_eigenvalues(order, first, second):
    """Those of pde.md's references to 1e-8, by Galerkin's equations; the evolution's approach them."""
    np.testing.assert_allclose(interval_eigenvalues(2, order, 200), [first, second], atol=1e-9)
    np.testing.assert_allclose(interval_eigenvalues(2, order), [first, second], atol=1e-8)
    errors = [abs(interval(jacobi_grid(n, order), order).symbol[0] + first) for n in (10, 20, 40)]
    assert math.log2(errors[1] / errors[2]) > 2.0 + 2.0 * order - 0.3
    assert errors[2] < 5e-6


def test_spectral_and_integral_differ():
    """f = 1, s = 1/2, at 0: 1 against 0.7424537454, that of the power of the Dirichlet Laplacian."""
    x = jacobi_grid(21, 1.0)
    space = interval(x, 1.0)
    assert space.solve(0.0, np.ones(21))[10] == pytest.approx(1.0, abs=1e-12)
    k = np.arange(1, 200_001, 2)
    spectral = np.sum(4.0 / (math.pi * k) * np.sin(math.pi * k / 2.0) / (math.pi * k / 2.0))
    assert spectral == pytest.approx(0.7424537454, abs=1e-9)


@pytest.mark.parametrize("nodal", [True, False])
def test_data_outside(nodal):
    """u = 1/(1 + x^2) on the whole line has (-Delta)^(1/2) u = (1 - x^2)/(1 + x^2)^2; known outside, found inside."""
    x = jacobi_grid(32, 1.0) if nodal else np.linspace(-1.0, 1.0, 34)
    space = interval(x, 1.0, outside=lambda t, x: math.exp(-t) / (1.0 + x**2))
    assert space.forced
    assert space.forcing_varies
    at = space.points[0]
    f = math.exp(-2.0) * (1.0 - at**2) / (1.0 + at**2) ** 2
    u = space.solve(0.0, f + space.forcing(2.0))
    np.testing.assert_allclose(space.embed(u, 2.0), math.exp(-2.0) / (1.0 + x**2), atol=1e-11)
    constant = interval(x, 1.0, outside=2.0)
    np.testing.assert_allclose(constant.solve(0.0, constant.forcing(0.0)), 2.0, atol=1e-12)
    assert constant.integrate(np.full(34, 2.0)) == pytest.approx(4.0, abs=1e-12)


def test_a_coefficient_that_varies():
    """c(x) (-Delta)^s u = c(x): the same u; and the shifted system has no residual."""
    x = jacobi_grid(20, 1.2)
    space = interval(x, 1.2, lambda x: 2.0 + np.sin(3.0 * x))
    assert space.symbol is not None and space.symbol.max() < 0.0
    # With zeros of the coefficient it is not similar to a symmetric matrix.
    assert interval(x, 1.2, lambda x: np.maximum(x, 0.0)).symbol is None
    inside = x[1:-1]
    exact = (1.0 - inside**2) ** 0.6 / math.gamma(2.2)
    np.testing.assert_allclose(space.solve(0.0, 2.0 + np.sin(3.0 * inside)), exact, atol=1e-12)
    rhs = np.random.default_rng(0).standard_normal((2, 20))
    u = space.solve(3.0, rhs)
    np.testing.assert_allclose(3.0 * u - space.apply(u), rhs, atol=1e-9)


def test_restriction_and_error():
    """Values on the Jacobi grid pass unchanged, others by a spline; the estimate covers the spline's error."""
    x = jacobi_grid(24, 1.0)
    space = interval(x, 1.0)
    values = np.cos(0.5 * math.pi * x)
    np.testing.assert_array_equal(space.restrict(values), values[1:-1])
    assert not space.notes
    even = np.linspace(-1.0, 1.0, 26)
    other = interval(even, 1.0)
    assert "jacobi_grid" in other.notes[0]
    np.testing.assert_allclose(
        other.restrict(np.cos(0.5 * math.pi * even)), np.cos(0.5 * math.pi * other.points[0]), atol=1e-5
    )
    smooth = np.sqrt(1.0 - x[1:-1] ** 2) * np.exp(x[1:-1])
    assert space.space_error(smooth) < 1e-12
    assert 1e-6 < space.space_error(values[1:-1]) < 1e-1


@pytest.mark.parametrize(
    ("terms", "boundary", "words"),
    [
        ((FractionalDiffusion(1.0, "integral"), Diffusion()), "exterior", "no other term"),
        ((FractionalDiffusion(1.0, "riesz"),), "exterior", "integral"),
        ((FractionalDiffusion(1.0, "integral"),), "dirichlet", "Exterior"),
        ((FractionalDiffusion(2.0, "integral"),), "exterior", "Diffusion"),
    ],
)
def test_refusals(terms, boundary, words):
    """Each says why."""
    refusal = JacobiInterval.refuses(SpaceSetting(terms, (np.linspace(0, 1, 9),), read_boundary(boundary, 1)))
    assert refusal is not None
    assert words in refusal


def on_disc(disc, order, outside=0.0):
    terms = (FractionalDiffusion(order, "integral"),)
    ends = (*read_boundary(Exterior(outside), 1), (Periodic(), Periodic()))
    return JacobiDisc(SpaceSetting(terms, disc.grid(order), ends, domain=disc))


@pytest.mark.parametrize("s", [0.25, 0.75])
def test_the_disc(s):
    """f = 1: (R^2 - r^2)^s / (4^s Gamma(1+s)^2); f = x has the factor of the first wave."""
    disc = on_disc(Disc(2.0, 12, 16), 2 * s)
    x, y = disc.points
    edge = (4.0 - x**2 - y**2) ** s
    constant = 4.0**s * math.gamma(1 + s) ** 2
    u = disc.solve(0.0, np.ones(disc.shape))
    np.testing.assert_allclose(u, edge / constant, atol=1e-12)
    volume = math.pi * 4.0 ** (1 + s) / (1 + s) / constant
    assert disc.integrate(disc.embed(u, 0.0)) == pytest.approx(volume, rel=1e-12)
    wave = 4.0**s * math.gamma(1 + s) * math.gamma(2 + s)
    np.testing.assert_allclose(disc.solve(0.0, x), x * edge / wave, atol=1e-8)


def test_eigenvalues_of_the_disc():
    """The lowest ones for s = 1/2 by Dyda, Kuznetsov and Kwasnicki: 2.006119, 3.453332 (twice), 4.768."""
    disc = on_disc(Disc(1.0, 40, 9), 1.0)
    found = np.sort(disc.eigenvalues.min(0))
    np.testing.assert_allclose(found[:3], [2.0061190, 3.4533346, 4.7683389], atol=1e-6)


def test_data_outside_the_disc():
    """u = ((x - 0.3)^2 + y^2 + 1)^(-1/2) has (-Delta)^(1/2) u = that to the power 3."""

    def whole(x, y):
        return ((x - 0.3) ** 2 + y**2 + 1.0) ** -0.5

    disc = on_disc(Disc(1.0, 16, 29), 1.0, lambda t, x, y: whole(x, y))
    x, y = disc.points
    u = disc.solve(0.0, whole(x, y) ** 3 + disc.forcing(0.0))
    np.testing.assert_allclose(u, whole(x, y), atol=1e-9)
    full = disc.embed(u, 0.0)
    np.testing.assert_allclose(full[-1], whole(np.cos(disc.grid[1]), np.sin(disc.grid[1])))
    np.testing.assert_array_equal(disc.restrict(full), u)
    constant = on_disc(Disc(3.0, 8, 8), 1.0, 2.0)
    u = constant.solve(0.0, constant.forcing(0.0))
    np.testing.assert_allclose(u, 2.0, atol=1e-12)
    assert constant.integrate(constant.embed(u, 0.0)) == pytest.approx(18.0 * math.pi, rel=1e-12)


def test_too_many_angles_are_refused():
    """The points along a radius carry waves up to twice their number."""
    with pytest.raises(InvalidInputError, match="at most 31"):
        Disc(1.0, 8, 64)


@pytest.mark.parametrize("alpha", [0.6, 1.0])
def test_evolutions_on_a_disc(alpha):
    """A source of 1 from zero goes to the stationary solution; the lowest mode decays like its eigenvalue."""
    disc = Disc(1.0, 12, 8)
    options = {"x": disc, "space": FractionalDiffusion(1.0, "integral"), "boundary": "exterior", "alpha": alpha}
    result = solve_fpde(None, (0.0, 400.0 if alpha < 1 else 20.0), np.zeros((13, 8)), source=1.0, **options)
    r = result.x[0]
    exact = np.sqrt(1.0 - r**2) / (4.0**0.5 * math.gamma(1.5) ** 2)
    assert np.abs(result.u[-1] - exact[:, None]).max() < (2e-2 if alpha < 1 else 1e-9)
    space = on_disc(disc, 1.0)
    place = np.unravel_index(np.argmin(space.eigenvalues), space.eigenvalues.shape)
    c = np.zeros(space.eigenvalues.shape, complex)
    c[place] = 1.0
    mode = space.embed(space.backward(c), 0.0)
    from hpfracc.special import mittag_leffler

    found = solve_fpde(None, (0.0, 1.0), mode, **options).u[-1]
    factor = float(np.real(mittag_leffler(-space.eigenvalues[place], alpha)))
    np.testing.assert_allclose(found, factor * mode, atol=1e-10)


def test_a_function_at_the_start_of_a_disc():
    """Is called with x and y."""
    disc = Disc(2.0, 6, 8)
    result = solve_fpde(
        None,
        (0.0, 1.0),
        lambda x, y: (4.0 - x**2 - y**2) * (1.0 + x),
        x=disc,
        space=FractionalDiffusion(1.5, "integral"),
        boundary="exterior",
    )
    x, y = disc.coordinates(1.5)
    np.testing.assert_allclose(result.u[0], (4.0 - x**2 - y**2) * (1.0 + x), atol=1e-12)
    for space in (FractionalDiffusion(1.0, "spectral"), Diffusion()):
        with pytest.raises(InvalidInputError, match="disc"):
            solve_fpde(None, (0.0, 1.0), np.zeros((7, 8)), x=disc, space=space, boundary="exterior")

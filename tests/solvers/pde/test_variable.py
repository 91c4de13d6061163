"""Finite volumes with coefficients that vary."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import hpfracc as hf
from hpfracc.errors import InvalidInputError
from hpfracc.pde import Advection, Diffusion, Dirichlet, Neumann, NoFlux, OneSided, Robin
from hpfracc.solvers.pde.boundary import read_boundary
from hpfracc.solvers.pde.space.base import SpaceSetting
from hpfracc.solvers.pde.space.variable import FiniteVolumes


def volumes(x, *terms, boundary="dirichlet", **more):
    axes = x if isinstance(x, tuple) else (x,)
    setting = SpaceSetting(terms, axes, read_boundary(boundary, len(axes)), **more)
    assert FiniteVolumes.refuses(setting) is None
    return FiniteVolumes(setting)


def condition(kind, value, slope):
    return {
        "dirichlet": Dirichlet(value),
        "neumann": Neumann(slope),
        "robin": Robin(2.0, 0.5, 2.0 * value + 0.5 * slope),
    }[kind]


@pytest.mark.parametrize("kinds", [("dirichlet", "dirichlet"), ("neumann", "robin"), ("robin", "dirichlet")])
@pytest.mark.parametrize("uneven", [False, True])
def test_order_two_with_every_condition(kinds, uneven):
    """u = sin x + 2, k = 1 + x^2/2, v = cos x, on even and uneven grids."""
    errors = []
    for n in (40, 80, 160):
        x = np.linspace(0.0, 2.0, n + 1)
        if uneven:
            x = x + 0.15 * np.sin(math.pi * x)
        ends = (
            condition(kinds[0], 2.0, -1.0),
            condition(kinds[1], math.sin(2.0) + 2.0, math.cos(2.0)),
        )
        space = volumes(x, Diffusion(lambda x: 1.0 + x**2 / 2.0), Advection(np.cos), boundary=ends)
        at = space.points[0]
        right = at * np.cos(at) - (1.0 + at**2 / 2.0) * np.sin(at) - np.cos(at) ** 2
        u = space.solve(3.0, 3.0 * (np.sin(at) + 2.0) - right + space.forcing(0.0))
        errors.append(np.abs(space.embed(u, 0.0) - np.sin(x) - 2.0).max())
    assert math.log2(errors[1] / errors[2]) > 1.85


def test_a_coefficient_that_jumps():
    """The stationary flux through two layers is that of their resistances, though the jump lies between points."""
    x = np.linspace(0.0, 1.0, 41)
    jump = 0.5 * (x[20] + x[21])
    space = volumes(x, Diffusion(lambda x: np.where(x < jump, 1.0, 100.0)), boundary=(Dirichlet(1.0), Dirichlet(0.0)))
    u = space.embed(space.solve(0.0, space.forcing(0.0)), 0.0)
    flux = 1.0 / (jump / 1.0 + (1.0 - jump) / 100.0)
    exact = np.where(x < jump, 1.0 - flux * x, flux * (1.0 - x) / 100.0)
    np.testing.assert_allclose(u, exact, atol=1e-10)


@pytest.mark.parametrize(
    "boundary", ["dirichlet", "neumann", "periodic", ("dirichlet", (Robin(1.0, 1.0), Neumann(0.0)))]
)
def test_iterations_do_not_grow(boundary):
    """At most 32 with a ratio of coefficients of 19, on 32^2 and 128^2 points."""
    for n in (32, 128):
        x = np.arange(n) / n if boundary == "periodic" else np.linspace(0.0, 1.0, n + 1)
        k = lambda x, y: 1.0 + 0.9 * np.sin(2 * math.pi * x) * np.cos(2 * math.pi * y)  # noqa: E731
        space = volumes((x, x), Diffusion(k), boundary=boundary)
        for shift in (1.0, 1e4):
            rhs = np.random.default_rng(0).standard_normal(space.shape)
            u = space.solve(shift, rhs)
            np.testing.assert_allclose(shift * u - space.apply(u), rhs, atol=1e-8)
            assert 0 < space.iterations <= 32


def test_transport_in_two_dimensions():
    """By GMRES, with different coefficients along the axes; the matrix is that of the sum of its axes."""
    x, y = np.linspace(0.0, 1.0, 9), np.linspace(0.0, 2.0, 11)
    space = volumes((x, y), Diffusion((0.5, lambda x, y: 1.0 + y)), Advection((lambda x, y: y, -1.0)))
    along_x = volumes(x, Diffusion(0.5), Advection(lambda x: 0.0 * x + 1.0))
    u = np.random.default_rng(1).standard_normal(space.shape)
    first = volumes(x, Diffusion(0.5)).apply(u.T).T
    first += y[1:-1] * (along_x.apply(u.T) - volumes(x, Diffusion(0.5)).apply(u.T)).T
    second = volumes(y, Diffusion(lambda y: 1.0 + y), Advection(-1.0)).apply(u)
    np.testing.assert_allclose(space.apply(u), first + second, atol=1e-11)
    solved = space.solve(2.0, u)
    np.testing.assert_allclose(2.0 * solved - space.apply(solved), u, atol=1e-9)


def test_data_that_move_on_a_side():
    """A side with f(t, x, y): the plane u = t x + y is reproduced exactly."""
    x = np.linspace(0.0, 1.0, 8)
    plane = lambda t, x, y: t * x + y  # noqa: E731
    space = volumes((x, x), Diffusion(lambda x, y: 1.0 + 0.0 * x * y), boundary=Dirichlet(plane))
    u = space.solve(0.0, space.forcing(3.0))
    np.testing.assert_allclose(space.embed(u, 3.0), plane(3.0, x[:, None], x[None, :]), atol=1e-10)


def test_against_a_classical_solver():
    """u_t = A u by SciPy's BDF on A is u_t = (k u_x)_x with its exact decay, to the error of the grid."""
    x = np.linspace(0.0, math.pi, 65)
    space = volumes(x, Diffusion(lambda x: 1.0 + 0.0 * x))
    found = solve_ivp(lambda t, u: space.apply(u), (0.0, 1.0), np.sin(x[1:-1]), "BDF", rtol=1e-8, atol=1e-10).y[:, -1]
    np.testing.assert_allclose(found, math.exp(-1.0) * np.sin(x[1:-1]), atol=1e-4)


def test_refusals_and_bad_coefficients():
    """Fractional terms, uneven periods, coefficients that are not positive."""
    x = np.linspace(0.0, 1.0, 9)
    for terms, grid, boundary, words in (
        ((OneSided(1.5),), x, "dirichlet", "OneSided"),
        ((Diffusion(),), x**2, "periodic", "not uniform"),
        ((Diffusion(),), x, "exterior", "Dirichlet"),
    ):
        refusal = FiniteVolumes.refuses(SpaceSetting(terms, (grid,), read_boundary(boundary, 1)))
        assert refusal is not None
        assert words in refusal
    with pytest.raises(InvalidInputError, match="positive"):
        volumes(x, Diffusion(lambda x: x - 0.5))


@pytest.mark.parametrize("alpha", [1.0, 0.6])
@pytest.mark.parametrize(
    "transport", [Advection(1.0), Advection(lambda x: np.cos(3.0 * x), conservative=True)], ids=["constant", "v(x)"]
)
def test_closed_ends_keep_mass_with_transport(alpha, transport):
    """No flux by diffusion and transport together; a zero slope lets the fluid leave with what it carries."""
    x = np.linspace(0.0, 1.0, 65) ** 1.2
    start = np.exp(-50.0 * (x - 0.5) ** 2)
    given = {"x": x, "space": Diffusion(lambda x: 0.05 + 0.02 * x) + transport, "alpha": alpha, "step": 0.05}
    closed = hf.solve_fpde(None, (0.0, 2.0), start, boundary="no_flux", estimate=False, **given)
    assert np.ptp(closed.mass) < 1e-13
    slope = hf.solve_fpde(None, (0.0, 2.0), start, boundary="neumann", estimate=False, **given)
    assert np.ptp(slope.mass) > 0.1


def test_transport_and_diffusion_balance_with_order_two():
    """Between closed ends the solution tends to a multiple of exp(v x / k)."""
    errors = []
    for points in (17, 33, 65):
        x = np.linspace(0.0, 1.0, points)
        space = Diffusion(0.2) + Advection(1.0)
        found = hf.solve_fpde(None, (0.0, 20.0), np.ones(points), x=x, space=space, boundary="no_flux", step=0.1)
        exact = 5.0 * np.exp(5.0 * x) / math.expm1(5.0)
        errors.append(np.abs(found.u[-1] - exact).max())
    assert np.log2(errors[0] / errors[1]) > 1.8 and np.log2(errors[1] / errors[2]) > 1.8


def test_closed_boxes_in_two_dimensions_and_mixed_ends():
    """Mass is kept in a square; an end may be closed while the other has a value; periodic in conservative form."""
    x, y = np.linspace(0.0, 1.0, 17), np.linspace(0.0, 1.0, 15)
    space = Diffusion(0.1) + Advection((1.0, lambda x, y: np.sin(y) + x), conservative=True)

    def start(x, y):
        return np.exp(-20.0 * (x - 0.5) ** 2 - 10.0 * (y - 0.3) ** 2)

    found = hf.solve_fpde(None, (0.0, 1.0), start, x=(x, y), space=space, boundary="no_flux", step=0.1, estimate=False)
    assert np.ptp(found.mass) < 1e-13
    # A steady flux through neither end: v u = k u' with u(0) = 1 gives exp(v x / k).
    one = hf.solve_fpde(
        None,
        (0.0, 20.0),
        np.exp(2.0 * x),
        x=x,
        space=Diffusion(0.5) + Advection(1.0),
        boundary=(Dirichlet(1.0), NoFlux()),
        step=0.1,
        estimate=False,
    )
    assert np.abs(one.u[-1] - np.exp(2.0 * x)).max() < 2e-2
    z = np.arange(32) / 32
    wind = Diffusion(0.1) + Advection(lambda x: 1.0 + 0.5 * np.sin(2.0 * np.pi * x), conservative=True)
    ring = hf.solve_fpde(
        None, (0.0, 1.0), 1.0 + np.cos(2.0 * np.pi * z), x=z, space=wind, boundary="periodic", step=0.1, estimate=False
    )
    assert np.ptp(ring.mass) < 1e-12


def test_closed_ends_without_transport_are_those_of_zero_slope():
    """And a velocity that varies needs the conservative form."""
    x = np.linspace(0.0, 1.0, 17)
    start = np.exp(-(x**2))
    for space in (Diffusion(1.0), Diffusion(lambda x: 1.0 + x), OneSided(1.6, "left", 0.5) + Advection(0.1)):
        one, two = (
            hf.solve_fpde(None, (0.0, 0.5), start, x=x, space=space, boundary=boundary, step=0.1, estimate=False).u
            for boundary in ("no_flux", "neumann")
        )
        np.testing.assert_allclose(one, two, rtol=1e-12)
    with pytest.raises(InvalidInputError, match=r"Advection\(v, conservative=True\)"):
        hf.solve_fpde(None, (0.0, 1.0), start, x=x, space=Diffusion(1.0) + Advection(lambda x: x), boundary="no_flux")
    with pytest.raises(InvalidInputError, match="conservative=1"):
        Advection(1.0, conservative=1)


def test_few_points_in_several_dimensions_are_diagonalised():
    """So that a linear equation has no error in time; Krylov methods give the same for more points and for tensors."""
    x = np.linspace(0.0, 1.0, 9)
    given = {"x": (x, x), "space": Diffusion((1.0, lambda x, y: 1.0 + x)), "boundary": (0.0, "neumann"), "alpha": 0.7}
    start = np.outer(np.sin(np.pi * x), np.cos(np.pi * x))
    found = hf.solve_fpde(None, (0.0, 0.2), start, **given)
    assert found.decision.method == "exact_modes"
    torch = pytest.importorskip("torch")
    other = hf.solve_fpde(None, (0.0, 0.2), torch.asarray(start), method="l1", step=0.0004, save="last", **given)
    np.testing.assert_allclose(other.u[-1], found.u[-1], atol=1e-4)


@pytest.mark.parametrize("axes", [1, 2])
def test_coefficients_that_are_not_finite(axes):
    """Typed, before the first step."""
    x = np.linspace(0.0, 1.0, 9)
    space = Diffusion(1.0) + Advection((lambda *places: np.where(places[0] > 0.5, np.inf, 1.0),) * axes)
    with pytest.raises(InvalidInputError, match="not finite"):
        hf.solve_fpde(None, (0.0, 1.0), np.zeros((9,) * axes), x=(x,) * axes, space=space, boundary=0.0)


@pytest.mark.parametrize("library", ["numpy", "torch", "jax.numpy"])
def test_bad_coefficients_of_every_library(library: str):
    """Negative ones and those that are not finite are refused before the first step, also as tensors."""
    xp = pytest.importorskip(library)
    x = np.linspace(0.0, 1.0, 9)
    for coefficient, words in ((lambda x: x - 0.5, "has to be positive"), (lambda x: 1.0 / (0.0 * x), "not finite")):
        with pytest.raises(InvalidInputError, match=words), np.errstate(divide="ignore"):
            hf.solve_fpde(
                None, (0.0, 1.0), xp.asarray(np.sin(np.pi * x)), x=x, space=Diffusion(coefficient),
                boundary="dirichlet", alpha=0.6, step=0.1,
            )  # fmt: skip


@pytest.mark.parametrize("boundary", ["neumann", "periodic"])
def test_mass_is_kept(boundary):
    """The integral of A u is zero to rounding."""
    x = np.linspace(0.0, 1.0, 33)[: 33 if boundary == "neumann" else 32]
    k = lambda x, y: 1.0 + 0.9 * np.sin(2 * math.pi * x) * np.cos(2 * math.pi * y)  # noqa: E731
    space = volumes((x, x), Diffusion(k), boundary=boundary)
    u = np.random.default_rng(0).standard_normal((2, *space.shape))
    rate = space.apply(u)
    assert np.abs(space.integrate(space.embed(rate, 0.0))).max() < 1e-12 * np.abs(rate).max()

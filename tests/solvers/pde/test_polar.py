"""Local operators on discs and annuli: against Bessel's zeros and solutions in closed form."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special
from scipy.optimize import brentq

import hpfracc as hf
from hpfracc.errors import AccuracyWarning, InvalidInputError, ShapeError
from hpfracc.pde import (
    Advection,
    Annulus,
    Diffusion,
    Dirichlet,
    Disc,
    FractionalDiffusion,
    Neumann,
    OneSided,
    Periodic,
    Region,
    Robin,
)
from hpfracc.solvers.pde.boundary import read_boundary
from hpfracc.solvers.pde.space.base import SpaceSetting
from hpfracc.solvers.pde.space.disc import PolarModes
from hpfracc.special import mittag_leffler


def polar(domain, *terms, boundary="dirichlet"):
    ends = (*read_boundary(boundary, 1), (Periodic(), Periodic()))
    setting = SpaceSetting(terms, domain.grid(), ends, domain=domain)
    assert PolarModes.refuses(setting) is None
    return PolarModes(setting)


def test_eigenvalues_are_bessels_zeros():
    """Of a disc, waves 0 to 4: the error falls by more than 100 with four more points, to rounding."""
    zeros = np.array([special.jn_zeros(m, 2) for m in range(5)]).T / 2.0
    slopes = np.array([special.jnp_zeros(m, 2) for m in range(1, 5)]).T / 2.0
    errors = []
    for radial in (8, 12, 16):
        given = polar(Disc(2.0, radial, 9), Diffusion(1.0))
        errors.append(np.abs(np.sqrt(given.eigenvalues[:2]) - zeros).max())
    assert errors[0] > 100.0 * errors[1] > 1e4 * errors[2]
    assert errors[2] < 1e-12
    closed = polar(Disc(2.0, 16, 9), Diffusion(1.0), boundary="neumann")
    np.testing.assert_allclose(np.sqrt(closed.eigenvalues[:2, 1:]), slopes, rtol=1e-11)
    assert closed.eigenvalues[0, 0] == 0.0
    open_end = polar(Disc(1.0, 16, 1), Diffusion(1.0), boundary=Robin(1.0, 1.0))
    root = brentq(lambda k: special.j0(k) - k * special.j1(k), 1.0, 2.0)
    assert open_end.eigenvalues[0, 0] == pytest.approx(root**2, rel=1e-12)


def test_eigenvalues_of_an_annulus():
    """Zeros of the cross products of Bessel functions, given values inside and no flux outside."""
    found = polar(Annulus(1.0, 3.0, 20, 9), Diffusion(1.0), boundary=("dirichlet", "neumann")).eigenvalues[0]
    for m, k in enumerate(np.sqrt(found)):

        def cross(k, m=m):
            return special.jv(m, k) * special.yvp(m, 3 * k) - special.yv(m, k) * special.jvp(m, 3 * k)

        assert k == pytest.approx(brentq(cross, 0.99 * k, 1.01 * k, xtol=1e-14), rel=1e-11)


@pytest.mark.parametrize("order", [2.0, 1.2])
@pytest.mark.parametrize("alpha", [0.6, 1.0])
def test_modes_decay_like_mittag_leffler_functions(order, alpha):
    """J_2(k r) sin 2 theta on a disc; the estimate of the error is small, and grows with fewer points."""
    k = float(special.jn_zeros(2, 1)[0])

    def mode(x, y):
        r, theta = np.hypot(x, y), np.arctan2(y, x)
        return special.jv(2, k * r) * np.sin(2.0 * theta)

    space = Diffusion(1.0) if order == 2.0 else FractionalDiffusion(order, "spectral")
    decay = float(np.real(mittag_leffler(-(k**order) * 0.1**alpha, alpha)))
    for radial, least, most in ((16, 0.0, 1e-11), (7, 1e-8, 1e-3)):
        found = hf.solve_fpde(None, (0.0, 0.1), mode, x=Disc(1.0, radial, 8), space=space, boundary=0.0, alpha=alpha)
        error = np.abs(found.u[-1] - decay * found.u[0]).max()
        assert found.decision.method == "exact_modes"
        assert least <= error < most
        assert error - 1e-11 < found.errors.space[-1] < 1e-6 + 3e3 * error


def test_the_estimate_sees_waves_as_they_are():
    """A mode on few angles is exact, and said to be; a jump is not, and the estimate is near its error."""
    disc, zeros = Disc(1.0, 16, 16), special.jn_zeros(0, 400)
    given = {"x": disc, "space": Diffusion(1.0), "boundary": "dirichlet", "alpha": 0.5}

    def mode(x, y):
        return special.jv(2, special.jn_zeros(2, 1)[0] * np.hypot(x, y)) * np.cos(2.0 * np.arctan2(y, x))

    assert hf.solve_fpde(None, (0.0, 0.1), mode, **given).error_estimate.space < 1e-6
    jump = hf.solve_fpde(None, (0.0, 0.1), lambda x, y: 1.0 * (np.hypot(x, y) < 0.5), **given)
    weights = special.jv(1, 0.5 * zeros) / (zeros * special.jv(1, zeros) ** 2)
    exact = special.jv(0, np.outer(disc.grid()[0], zeros)) @ (weights * mittag_leffler(-(zeros**2) * 0.1**0.5, 0.5))
    error = np.abs(jump.u[-1, :, 0] - exact).max()
    assert error < 3.0 * jump.errors.space[-1] < 9.0 * error


def test_a_coefficient_of_the_radius_and_every_condition():
    """u = r^4 cos 2 theta + 3 with k = 1 + r^2, from its source and its data; of finite degree, so exact."""

    def exact(x, y):
        return (x**2 + y**2) * (x**2 - y**2) + 3.0

    def slope(r, x, y):
        return 4.0 / r * (x**2 + y**2) * (x**2 - y**2)

    def condition(kind, r, sign):
        if kind == "dirichlet":
            return Dirichlet(lambda t, x, y: exact(x, y))
        if kind == "neumann":
            return Neumann(lambda t, x, y: sign * slope(r, x, y))
        return Robin(2.0, 0.5, lambda t, x, y: 2.0 * exact(x, y) + 0.5 * sign * slope(r, x, y))

    for kind in ("dirichlet", "neumann", "robin"):
        outer = condition(kind, 1.5, 1.0)
        for domain, ends in (
            (Disc(1.5, 10, 9), outer),
            (Annulus(0.5, 1.5, 10, 9), (condition(kind, 0.5, -1.0), outer)),
        ):
            space = polar(domain, Diffusion(lambda x, y: 1.0 + x**2 + y**2), boundary=ends)
            x, y = space.points
            r2, wave = x**2 + y**2, x**2 - y**2
            right = (1.0 + r2) * 12.0 * wave + 8.0 * r2 * wave
            u = space.solve(3.0, 3.0 * exact(x, y) - right + space.forcing(0.0))
            np.testing.assert_allclose(space.embed(u, 0.0), exact(*domain.coordinates()), rtol=1e-9, atol=1e-9)
            np.testing.assert_array_equal(space.restrict(space.embed(u, 0.0)), u)


def test_data_of_a_power():
    """A harmonic function is at rest under a spectral power with its own boundary values."""
    domain, plane = Annulus(0.5, 1.0, 14, 8), Dirichlet(lambda t, x, y: x / (x**2 + y**2) + y)
    found = hf.solve_fpde(
        None,
        (0.0, 1.0),
        lambda x, y: x / (x**2 + y**2) + y,
        x=domain,
        space=FractionalDiffusion(1.1, "spectral", 2.0),
        boundary=plane,
        method="l1",
        step=0.1,
        alpha=0.7,
    )
    np.testing.assert_allclose(found.u[-1], found.u[0], atol=1e-9)


def test_mass_energy_systems_and_reactions():
    """Mass to rounding without flux; its integral; two components with data of their own."""
    disc = Disc(1.0, 12, 16)
    closed = hf.solve_fpde(
        None, (0.0, 1.0), lambda x, y: 1.0 + x + x**2, x=disc, space=Diffusion(0.5), boundary="neumann", alpha=0.8
    )
    np.testing.assert_allclose(closed.mass, 1.25 * math.pi, rtol=1e-12)
    assert np.all(np.diff(closed.energy) < 0.0)
    start = np.stack([np.full((13, 16), 1.0), np.full((13, 16), 2.0)])
    both = hf.solve_fpde(
        lambda t, u: 0.0 * u, (0.0, 1.0), start, x=disc, space=Diffusion(1.0), boundary=Dirichlet(np.array([1.0, 2.0]))
    )
    np.testing.assert_allclose(both.u[-1], start, atol=1e-6)
    places = hf.solve_fpde(
        None, (0.0, 0.1), lambda x, y: x, x=disc, space=Diffusion(1.0), boundary="neumann", dense_output=True
    )
    half = places.sol(0.0, (np.array([0.5]), np.array([6.2])))  # a radius and an angle
    assert half[0] == pytest.approx(0.5 * math.cos(6.2), abs=1e-3)


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_tensors(library, request):
    """On discs and on regions: the same solution, and the gradient of PyTorch through both."""
    module = pytest.importorskip(library if library == "torch" else "jax.numpy")
    if library == "jax":
        config = pytest.importorskip("jax").config
        request.addfinalizer(lambda before=config.jax_enable_x64: config.update("jax_enable_x64", before))
        config.update("jax_enable_x64", True)
    x = np.linspace(-1.0, 1.0, 9)
    shape = Region((x, x), lambda x, y: (x < 0) | (y < 0))
    start = np.random.default_rng(0).random((9, 9))
    for domain, u0 in ((Disc(1.0, 8, 9), start), (shape, start)):
        given = {"x": domain, "space": Diffusion(0.5), "boundary": Dirichlet(lambda t, x, y: t * x), "alpha": 0.7}
        given |= {"method": "l1", "step": 0.1, "t_span": (0.0, 0.3)}
        with pytest.warns(AccuracyWarning):
            plain = hf.solve_fpde(lambda t, u: -u, u0=u0, **given)
        tensor = module.asarray(u0)
        if library == "torch":
            tensor.requires_grad_(True)
        found = hf.solve_fpde(lambda t, u: -u, u0=tensor, **given)
        host = found.u.detach().numpy() if library == "torch" else np.asarray(found.u)
        np.testing.assert_allclose(host, plain.u, rtol=1e-8, atol=1e-10)
        if library == "torch":
            found.mass[-1].backward()
            assert np.all(np.isfinite(tensor.grad.numpy()))
            assert tensor.grad.numpy().max() > 0.0


def test_bad_discs_and_annuli():
    """Typed errors, before the first step."""
    given = {"u0": lambda x, y: 0.0 * x, "t_span": (0.0, 1.0), "boundary": "neumann", "space": Diffusion(1.0)}

    def solve(**more):
        return hf.solve_fpde(None, **{**given, "x": Annulus(1.0, 2.0, 8, 8), **more})

    with pytest.raises(InvalidInputError, match=r"Annulus: outer=1\.0"):
        Annulus(2.0, 1.0)
    with pytest.raises(InvalidInputError, match="radial=2"):
        Annulus(1.0, 2.0, radial=2)
    for space in (Diffusion(1.0) + Advection((1.0, 0.0)), OneSided(1.5), FractionalDiffusion(1.0, "integral")):
        with pytest.raises(InvalidInputError, match="takes one Diffusion"):
            solve(space=space)
    with pytest.raises(InvalidInputError, match="varies over the angles"):
        solve(space=Diffusion(lambda x, y: 3.0 + x))
    with pytest.raises(InvalidInputError, match="positive everywhere"):
        solve(space=Diffusion(lambda x, y: 1.5 - np.hypot(x, y)))
    with pytest.raises(InvalidInputError, match="not 'periodic'"):
        solve(boundary="periodic")
    with pytest.raises(InvalidInputError, match="a coefficient of -1"):
        solve(space=FractionalDiffusion(1.0, "spectral", -1.0))
    with pytest.raises(InvalidInputError, match="a real state"):
        solve(space=Diffusion(1.0j))
    with pytest.raises(InvalidInputError, match="a disc has one circle"):
        solve(x=Disc(1.0, 8, 8), boundary=("neumann", 0.0))
    with pytest.raises(InvalidInputError, match="no exterior data"):
        solve(boundary="exterior")
    with pytest.raises(ShapeError, match="the grid"):
        solve(u0=np.zeros((8, 9)))

"""Boxes by eigenfunctions: exact on those, lifts of boundary data, Robin conditions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import brentq

from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.pde import Advection, Diffusion, Dirichlet, FractionalDiffusion, Neumann, Periodic, Robin
from hpfracc.solvers.pde.boundary import read_boundary
from hpfracc.solvers.pde.space.base import SpaceSetting
from hpfracc.solvers.pde.space.components import discretise

L = 1.7
_ENDS = {
    "periodic": ("periodic", lambda x: np.sin(4 * np.pi * x / L), 4 * np.pi / L),
    "dirichlet": ("dirichlet", lambda x: np.sin(3 * np.pi * x / L), 3 * np.pi / L),
    "neumann": ("neumann", lambda x: np.cos(3 * np.pi * x / L), 3 * np.pi / L),
    "fixed and free": (("dirichlet", "neumann"), lambda x: np.sin(2.5 * np.pi * x / L), 2.5 * np.pi / L),
    "free and fixed": (("neumann", "dirichlet"), lambda x: np.cos(1.5 * np.pi * x / L), 1.5 * np.pi / L),
}


def _grid(name: str, n: int) -> np.ndarray:
    return np.linspace(0.0, L, n, endpoint=name != "periodic")


def _make(terms, grid, boundary, **more):
    return discretise(SpaceSetting(tuple(terms), tuple(grid), read_boundary(boundary, len(grid)), **more))


@pytest.mark.parametrize("name", _ENDS)
@pytest.mark.parametrize("n", [16, 17])
def test_an_eigenfunction_is_one(name: str, n: int):
    """The Laplacian and its spectral power multiply a function that fits the ends by its eigenvalue."""
    boundary, function, kappa = _ENDS[name]
    x = _grid(name, n)
    space = _make([Diffusion(0.3), FractionalDiffusion(1.4, "spectral", 2.0)], [x], boundary)
    u = space.restrict(function(x))
    expected = -(0.3 * kappa**2 + 2.0 * kappa**1.4)
    assert np.allclose(space.apply(u), expected * u, atol=1e-11)
    assert np.allclose(space.solve(2.0, u), u / (2.0 - expected), atol=1e-13)
    assert np.allclose(space.embed(u, 0.0), function(x), atol=1e-13)
    assert np.allclose(space.backward(space.forward(u)), u, atol=1e-14)


def test_mixed_ends_in_three_dimensions():
    """Products of eigenfunctions of different ends; one coefficient for each axis."""
    names = ("dirichlet", "periodic", "free and fixed")
    grid = [_grid(name, 9 + k) for k, name in enumerate(names)]
    space = _make([Diffusion((1.0, 2.0, 3.0))], grid, [_ENDS[name][0] for name in names])
    values = np.einsum("i,j,k->ijk", *(_ENDS[name][1](x) for name, x in zip(names, grid, strict=True)))
    u = space.restrict(values)
    expected = -sum((k + 1) * _ENDS[name][2] ** 2 for k, name in enumerate(names))
    assert np.allclose(space.apply(u), expected * u, atol=1e-10)
    assert np.allclose(space.embed(u, 0.0), values, atol=1e-13)


def test_transport_along_a_period():
    """Advection moves a wave; the symbol of a real state is Hermitian."""
    x = np.linspace(0.0, 2.0 * np.pi, 12, endpoint=False)
    space = _make([Advection(1.5)], [x], "periodic")
    assert np.allclose(space.apply(np.sin(3 * x)), -4.5 * np.cos(3 * x), atol=1e-12)


@pytest.mark.parametrize(
    ("boundary", "function", "second"),
    [
        ((Dirichlet(2.0), Dirichlet(lambda t: t)), lambda x: 2.0 + (3.0 - 2.0) * x / L, 0.0),
        ((Neumann(-0.5), Neumann(lambda t: t)), lambda x: 0.5 * x + 2.5 * x * x / (2 * L), 2.5 / L),
        ((Dirichlet(1.0), Neumann(3.0)), lambda x: 1.0 + 3.0 * x, 0.0),
        ((Neumann(2.0), Dirichlet(0.5)), lambda x: 0.5 + 2.0 * (L - x), 0.0),
    ],
)
def test_boundary_data_come_in_by_a_lift(boundary, function, second: float):
    """The lift itself has its own second derivative, whatever the data (at t = 3)."""
    x = np.linspace(0.0, L, 21)
    space = _make([Diffusion(2.0)], [x], boundary)
    u = space.restrict(function(x))
    assert np.allclose(space.apply(u) + space.forcing(3.0), 2.0 * second, atol=1e-10)
    assert np.allclose(space.embed(u, 3.0), function(x), atol=1e-13)


def test_harmonic_functions_of_two_dimensions():
    """exp(x) sin(y) by its boundary values converges with order 2; its half power has the same harmonic lift."""
    for terms in ([Diffusion(1.0)], [FractionalDiffusion(1.0, "spectral")]):
        errors = []
        for n in (9, 17, 33):
            x = np.linspace(0.0, 1.0, n)
            space = _make(terms, [x, x], Dirichlet(lambda t, x, y: np.exp(x) * np.sin(y)))
            u = space.solve(0.0, space.forcing(0.0))
            errors.append(np.max(np.abs(space.embed(u, 0.0) - np.exp(x[:, None]) * np.sin(x))))
        assert np.log2(errors[1] / errors[2]) == pytest.approx(2.0, abs=0.1)


def test_robin_eigenvalues():
    """The smallest eigenvalues with u' = a u at one end converge to those of tan(kappa L) = -kappa / a."""
    a, errors = 2.0, []
    kappa = brentq(lambda k: k * np.cos(k * L) + a * np.sin(k * L), 0.6 * np.pi / L, 0.99 * np.pi / L)
    for n in (33, 65):
        space = _make([Diffusion(1.0)], [np.linspace(0.0, L, n)], (Dirichlet(), Robin(a, 1.0)))
        errors.append(abs(-np.max(space.symbol) - kappa**2))
    assert np.log2(errors[0] / errors[1]) == pytest.approx(2.0, abs=0.1)


def test_robin_data():
    """A straight line that satisfies both conditions is steady: 1 + 2x with u - du/dn and 3u + du/dn given."""
    x = np.linspace(0.0, L, 12)
    space = _make([Diffusion(1.0)], [x], (Robin(1.0, 1.0, 1.0 - 2.0), Robin(3.0, 1.0, 3.0 * (1 + 2 * L) + 2.0)))
    u = 1.0 + 2.0 * x
    assert np.allclose(space.apply(u) + space.forcing(0.0), 0.0, atol=1e-10)


def test_bad_questions_are_errors():
    """Which Laplacian, which grids, which data."""
    x = np.linspace(0.0, 1.0, 9)
    with pytest.raises(InvalidInputError, match="kind='spectral' is the power"):
        _make([FractionalDiffusion(1.2)], [x], "dirichlet")
    with pytest.raises(ShapeError, match="shape \\(4,\\)"):
        _make([Diffusion()], [x, x], Dirichlet(lambda t, x, y: np.ones(4))).forcing(0.0)
    with pytest.raises(InvalidInputError, match="both ends or none"):
        read_boundary((Periodic(), Dirichlet()), 1)
    with pytest.raises(ShapeError, match="3 entries for 2 axes"):
        read_boundary(["periodic"] * 3, 2)
    with pytest.raises(InvalidInputError, match="in \\(0, 2\\]"):
        FractionalDiffusion(2.5)
    with pytest.raises(InvalidInputError, match="Dirichlet\\(value / a\\)"):
        Robin(1.0, 0.0)

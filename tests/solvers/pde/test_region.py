"""Masks on a box: against the box's own discretisation, smooth solutions, and the L-shaped membrane."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.sparse.linalg import eigsh

import hpfracc as hf
from hpfracc.errors import AccuracyWarning, InvalidInputError, ShapeError
from hpfracc.pde import (
    Advection,
    Diffusion,
    Dirichlet,
    Exterior,
    FractionalDiffusion,
    Neumann,
    NoFlux,
    OneSided,
    Region,
    Robin,
)
from hpfracc.solvers.pde.boundary import read_boundary
from hpfracc.solvers.pde.space.base import SpaceSetting
from hpfracc.solvers.pde.space.region import RegionSpace
from hpfracc.solvers.pde.space.variable import FiniteVolumes
from hpfracc.special import mittag_leffler

#: The first eigenvalue of the Laplacian on three unit squares (L. Fox, P. Henrici, C. Moler, 1967).
MEMBRANE = 9.6397238440219


def corner(x, y):
    """An L: the box without its upper right quarter."""
    return (x < 0) | (y < 0)


def region_space(domain, *terms, boundary="dirichlet", **more):
    setting = SpaceSetting(terms, domain.grid, read_boundary(boundary, len(domain.grid)), domain=domain, **more)
    assert RegionSpace.refuses(setting) is None
    return RegionSpace(setting)


CONDITIONS = {
    "given": "dirichlet",
    "closed": "neumann",
    "mixed": ((Dirichlet(1.0), Neumann(0.3)), (Robin(1.0, 2.0, 0.5), Robin(2.0, 1.0, lambda t, x, y: x * t))),
    "wrapped": ("periodic", (Dirichlet(2.0), NoFlux())),
}


@pytest.mark.parametrize("name", CONDITIONS)
@pytest.mark.parametrize("moves", [False, True])
def test_a_mask_of_all_cells_is_the_box(name, moves):
    """The same operator, data, values at the ends and integral as the finite volumes of the box."""
    axes, boundary = (np.linspace(0.0, 1.0, 9), np.linspace(0.0, 2.0, 8)), read_boundary(CONDITIONS[name], 2)
    terms = (Diffusion((lambda x, y: 1.0 + x * y, 2.0)),)
    if moves:
        terms = (*terms, Advection((lambda x, y: x + y, -0.2), conservative=True))
    box = FiniteVolumes(SpaceSetting(terms, axes, boundary))
    found = region_space(Region(axes, np.ones((9, 8), bool)), *terms, boundary=CONDITIONS[name])
    u = np.random.default_rng(1).random((9, 8))
    expected = box.apply(box.restrict(u))
    np.testing.assert_allclose(
        found.apply(found.restrict(u)), expected.reshape(-1), atol=1e-12 * np.abs(expected).max()
    )
    if box.forced:
        np.testing.assert_allclose(found.forcing(0.7), box.forcing(0.7).reshape(-1), atol=1e-12)
    np.testing.assert_allclose(found.embed(found.restrict(u), 0.7), box.embed(box.restrict(u), 0.7), atol=1e-15)
    assert found.integrate(u) == pytest.approx(box.integrate(u), rel=1e-14)


def conditions(kind, slope):
    """The value and the slopes of sin x cos y + 2 along both axes, as data of this kind at both ends."""

    def value(t, x, y):
        return np.sin(x) * np.cos(y) + 2.0

    def one(axis, end):
        def outward(t, x, y):
            return (2 * end - 1) * slope(x, y)[axis]

        if kind == "dirichlet":
            return Dirichlet(value)
        if kind == "neumann":
            return Neumann(outward)
        return Robin(2.0, 0.5, lambda t, x, y: 2.0 * value(t, x, y) + 0.5 * outward(t, x, y))

    return tuple((one(axis, 0), one(axis, 1)) for axis in (0, 1))


@pytest.mark.parametrize(
    ("kind", "conservative"), list(itertools.product(["dirichlet", "neumann", "robin"], [False, True]))
)
def test_order_two_with_every_condition(kind, conservative):
    """A smooth solution on an L, with coefficients and velocities that vary; in both forms of transport."""

    def slope(x, y):
        return np.cos(x) * np.cos(y), -np.sin(x) * np.sin(y)

    errors = []
    for n in (17, 33):
        x = np.linspace(-1.0, 1.0, n)
        terms = (
            Diffusion((lambda x, y: 1.0 + 0.3 * x * y, 2.0)),
            Advection((lambda x, y: x + y, 0.5), conservative=conservative),
        )
        space = region_space(Region((x, x), corner), *terms, boundary=conditions(kind, slope))
        x, y = space.points
        u, (ux, uy) = np.sin(x) * np.cos(y) + 2.0, slope(x, y)
        right = 0.3 * y * ux - (1.0 + 0.3 * x * y) * (u - 2.0) - 2.0 * (u - 2.0) - (x + y) * ux - 0.5 * uy
        right = right - conservative * u
        found = space.solve(3.0, 3.0 * u - right + space.forcing(0.0))
        errors.append(np.abs(found - u).max())
    assert math.log2(errors[0] / errors[1]) > 1.8


def test_the_first_eigenvalue_of_the_membrane():
    """Of order 4/3, by the corner; with 40 and 80 cells on a unit, extrapolated, it is right to 2e-4."""
    values = []
    for n in (81, 161):
        x = np.linspace(-1.0, 1.0, n)
        space = region_space(Region((x, x), corner), Diffusion(1.0))
        values.append(float(eigsh(space._a, 1, space._m, 0.0, return_eigenvectors=False)[0]))
    assert values[1] == pytest.approx(MEMBRANE, rel=1e-3)
    factor = 2.0 ** (4.0 / 3.0)
    assert (factor * values[1] - values[0]) / (factor - 1.0) == pytest.approx(MEMBRANE, rel=2e-4)


@pytest.mark.parametrize("power", [1.0, 0.6])
def test_the_membrane_decays_like_a_mittag_leffler_function(power):
    """Its first mode, and sin(pi x) sin(pi y), which is a mode of every square: within the estimate of the error."""
    x = np.linspace(-1.0, 1.0, 25)
    shape = Region((x, x), corner)
    space = Diffusion(1.0) if power == 1.0 else FractionalDiffusion(2.0 * power, "spectral")
    given = {"x": shape, "space": space, "boundary": 0.0, "alpha": 0.6, "t_eval": [0.0, 0.5]}
    plain = region_space(shape, Diffusion(1.0))
    first = plain.embed(plain.backward(np.eye(*plain.symbol.shape)[0]), 0.0)
    found = hf.solve_fpde(None, (0.0, 0.5), first, **given)
    assert found.decision.method == "exact_modes"
    rate = float(-plain.symbol[0]) ** power
    np.testing.assert_allclose(found.u[-1], mittag_leffler(-rate * 0.5**0.6, 0.6) * first, atol=1e-12)
    found = hf.solve_fpde(None, (0.0, 0.5), lambda x, y: np.sin(math.pi * x) * np.sin(math.pi * y), **given)
    decay = mittag_leffler(-((2.0 * math.pi**2) ** power) * 0.5**0.6, 0.6)
    error = np.nanmax(np.abs(found.u[-1] - decay * found.u[0]))
    assert 0.3 * error < found.error_estimate.space < 10.0 * error
    assert np.array_equal(np.isnan(found.u[-1]), shape.outside())


@pytest.mark.parametrize("alpha", [1.0, 0.6])
def test_mass_is_conserved_to_rounding(alpha):
    """With varying diffusion, and with transport through no face; of two parts, each keeps its own."""
    x = np.linspace(-1.0, 1.0, 17)
    apart = Region((x, x), lambda x, y: (np.abs(x) > 0.3) & (x + y < 1.2))
    given = {"alpha": alpha, "step": 0.05, "estimate": False}
    swirl = Advection((lambda x, y: y, lambda x, y: -x), conservative=True)
    for space, boundary in ((Diffusion(lambda x, y: 1.0 + x**2), "neumann"), (Diffusion(0.5) + swirl, "no_flux")):
        found = hf.solve_fpde(None, (0.0, 0.5), lambda x, y: x + y**2, x=apart, space=space, boundary=boundary, **given)
        np.testing.assert_allclose(found.mass, found.mass[0], rtol=1e-12)
        left = np.where(np.isnan(found.u), 0.0, found.u)[:, x < 0.0]
        space = found._tools.space
        volumes = np.zeros((17, 17))
        volumes.reshape(-1)[space._mesh.active] = space._mesh.masses
        parts = (left * volumes[x < 0.0]).sum((1, 2))
        np.testing.assert_allclose(parts, parts[0], rtol=1e-12)


def test_masks_of_points_of_cells_and_of_functions_are_the_same():
    """Points: the cells with all corners inside. In three dimensions, with periodic axes too."""
    x = np.linspace(-1.0, 1.0, 9)
    cells = corner(*np.meshgrid(0.5 * (x[1:] + x[:-1]), 0.5 * (x[1:] + x[:-1]), indexing="ij"))
    points = np.logical_or.outer(x <= 0.0, x <= 0.0)
    for mask in (points, corner):
        assert np.array_equal(Region((x, x), mask).cells(), cells)
    ring = np.ones((8, 9, 9), bool)
    ring[3] = False
    tube = Region((np.arange(8.0), x, x), ring)
    assert tube.cells((True, False, False)).sum() == 6 * 64
    assert tube.outside((True, False, False)).sum() == 81
    space = region_space(tube, Diffusion(1.0), boundary=("periodic", "neumann", "neumann"))
    assert space.integrate(np.ones((8, 9, 9))) == pytest.approx(6 * 4.0, rel=1e-14)


@pytest.mark.parametrize("given", ["function", "array"])
def test_the_estimate_covers_a_staircase_and_a_steady_source(given):
    """Poisson's equation on a disc: u tends to (1 - r^2)/4, with an error of first order in the spacing."""
    x = np.linspace(-1.2, 1.2, 33)
    shape = Region((x, x), lambda x, y: x**2 + y**2 < 1.0)
    source = 1.0 if given == "function" else np.ones((33, 33))
    found = hf.solve_fpde(
        None, (0.0, 20.0), np.zeros((33, 33)), x=shape, space=Diffusion(1.0), boundary=0.0, source=source
    )
    error = np.nanmax(np.abs(found.u[-1] - 0.25 * (1.0 - x[:, None] ** 2 - x**2)))
    assert 0.003 < error < 0.03
    assert 0.3 * error < found.error_estimate.space < 10.0 * error


def test_values_between_the_points_and_beside_the_region():
    """Linear between the points, which is exact here; nan outside; and the picture leaves the outside blank."""
    pytest.importorskip("matplotlib").use("Agg")
    x = np.linspace(-1.0, 1.0, 9)
    linear = Dirichlet(lambda t, x, y: x + 2.0 * y)
    found = hf.solve_fpde(
        None,
        (0.0, 0.2),
        lambda x, y: np.where(corner(x, y) | (x * y == 0.0), x + 2.0 * y, np.nan),
        x=Region((x, x), corner),
        space=Diffusion(1.0),
        boundary=linear,
        step=0.05,
        dense_output=True,
    )
    places = np.array([-0.4, 0.0, 0.3, 0.5]), np.array([0.33, 0.7, -0.9, 0.5])
    np.testing.assert_allclose(found.sol(0.2, places), [*(places[0] + 2.0 * places[1])[:3], math.nan], atol=1e-12)
    for kind in ("frames", "profiles"):
        axes = found.plot(kind)
        first = axes[0].images[0].get_array() if kind == "frames" else axes.lines[0].get_ydata()
        assert np.isnan(np.ma.filled(first, math.nan)).any() or kind == "profiles"


def test_systems():
    """Two components, with data for each."""
    x = np.linspace(-1.0, 1.0, 9)
    found = hf.solve_fpde(
        None,
        (0.0, 1.0),
        lambda x, y: np.stack([1.0 + 0.0 * x * y, 2.0 + (x**2 - 1.0) * (y**2 - 1.0) * x * y]),
        x=Region((x, x), corner),
        space=[Diffusion(1.0), Diffusion(2.0)],
        boundary=Dirichlet(np.array([1.0, 2.0])),
        step=0.1,
        estimate=False,
    )
    inside = ~np.isnan(found.u[-1, 0])
    np.testing.assert_allclose(found.u[-1, :, inside], [[1.0, 2.0]] * inside.sum(), atol=1e-2)
    assert found.mass.shape == (11, 2)


def test_bad_regions():
    """Typed errors, before the first step."""
    x = np.linspace(-1.0, 1.0, 9)
    given = {"u0": np.zeros((9, 9)), "t_span": (0.0, 1.0), "space": Diffusion(1.0), "boundary": "neumann"}

    def solve(inside, **more):
        return hf.solve_fpde(None, **{**given, "x": Region((x, x), inside), **more})

    with pytest.raises(InvalidInputError, match="no cell is inside"):
        solve(np.zeros((9, 9), bool))
    with pytest.raises(ShapeError, match=r"shape \(9, 7\)"):
        solve(np.ones((9, 7), bool))
    with pytest.raises(ShapeError, match="returned shape"):
        solve(lambda x, y: np.ones(3, bool))
    with pytest.raises(InvalidInputError, match="dtype float64"):  # of which all but 0 would be True
        solve(lambda x, y: 0.5 - np.hypot(x, y), boundary=0.0)
    with pytest.raises(InvalidInputError, match="dtype float64"):
        solve(np.ones((9, 9)))
    with pytest.raises(InvalidInputError, match="does not increase"):
        Region((x[::-1], x), corner)
    with pytest.raises(InvalidInputError, match="every point lies on its boundary"):
        solve(np.eye(8, dtype=bool), boundary=0.0)
    with pytest.raises(InvalidInputError, match="positive everywhere"):
        solve(corner, space=Diffusion(lambda x, y: x))
    with pytest.raises(InvalidInputError, match="a coefficient of -1"):
        solve(corner, space=FractionalDiffusion(1.0, "spectral", -1.0))
    refusals = {
        "not OneSided": OneSided(1.5),
        "alone": FractionalDiffusion(1.0, "integral"),
        "real numbers": Diffusion(1.0j),
        "3 coefficients": Diffusion((1.0, 1.0, 1.0)),
    }
    for words, space in refusals.items():
        with pytest.raises(InvalidInputError, match=words):
            solve(corner, space=space)
    with pytest.raises(InvalidInputError, match="a / b of 0"):
        solve(corner, boundary=Robin(-1.0, 1.0))
    with pytest.raises(InvalidInputError, match="no exterior data"):
        solve(corner, boundary=Exterior(0.0))
    with pytest.raises(InvalidInputError, match="for the slope"):
        solve(corner, space=FractionalDiffusion(1.0, "spectral"), boundary=Neumann(1.0))
    with pytest.warns(AccuracyWarning, match="Peclet number of 25"):
        solve(corner, space=Diffusion(0.01) + Advection((1.0, 0.0)), step=0.5)
    with pytest.warns(AccuracyWarning, match=r"at the point \(-?\d"):
        solve(corner, boundary=1.0)

"""Regions with cells that a curve cuts: the membrane of a drum, a manufactured solution, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import j0, jn_zeros

import hpfracc as hf
from hpfracc import pde
from hpfracc.errors import InvalidInputError
from hpfracc.solvers.pde.boundary import read_boundary
from hpfracc.solvers.pde.space import matrix
from hpfracc.solvers.pde.space.base import SpaceSetting
from hpfracc.solvers.pde.space.components import discretise

RATE = float(jn_zeros(0, 1)[0]) ** 2


def disc(points, cut=True):
    x, y = np.linspace(-1.1, 1.13, points), np.linspace(-1.07, 1.2, points + 3)
    return pde.Region((x, y), lambda x, y: x * x + y * y < 1.0, cut=cut)


def space(region, term, boundary=0.0):
    return discretise(SpaceSetting((term,), region.grid, read_boundary(boundary, 2), domain=region))


def slope(points, errors):
    return -np.polyfit(np.log(points), np.log(errors), 1)[0]


def test_the_first_eigenvalue_of_a_drum_has_order_two():
    """The square of Bessel's zero; and the area. By a staircase the order is 1."""
    points = [16, 24, 32, 40]
    spaces = [space(disc(n), pde.Diffusion(1.0)) for n in points]
    errors = [abs(float(-one.symbol.max()) - RATE) for one in spaces]
    assert 1.7 < slope(points, errors) < 2.6
    assert errors[-1] < 0.008
    staircase = abs(float(-space(disc(40, cut=False), pde.Diffusion(1.0)).symbol.max()) - RATE)
    assert staircase > 10.0 * errors[-1]
    ones = np.ones((40, 43))
    assert abs(float(spaces[-1].integrate(ones)) - np.pi) < 0.01


def test_order_two_with_data_and_a_coefficient_that_varies(monkeypatch):
    """The stationary solution of a manufactured equation, by sparse factorisations."""
    monkeypatch.setattr(matrix, "DENSE", 10)
    given = pde.Dirichlet(lambda t, x, y: np.exp(x) * np.cos(y))
    points, errors = [16, 20, 32, 40, 64, 80, 128], []
    for n in points:
        found = space(disc(n), pde.Diffusion(lambda x, y: 1.0 + x**2), given)
        x, y = found.points
        exact = np.exp(x) * np.cos(y)  # harmonic, so div(k grad u) = k' u_x
        gap = found.solve(0.0, found.forcing(0.0) - 2.0 * x * exact) - exact
        assert np.abs(gap).max() < 4.0 / n**2
        errors.append(np.sqrt((gap**2).mean()))
    assert 1.7 < slope(points, errors) < 2.3, errors


@pytest.mark.parametrize("power", [None, 1.2])
def test_a_drum_decays_like_a_mittag_leffler_function(power):
    """Of the Laplacian and of its power; the estimate of the error covers the curve."""
    term = pde.Diffusion(1.0) if power is None else pde.FractionalDiffusion(power, "spectral")
    rate = RATE if power is None else RATE ** (0.5 * power)
    found = hf.solve_fpde(
        None,
        (0.0, 0.5),
        lambda x, y: j0(np.sqrt(RATE * np.minimum(x**2 + y**2, 1.0))),
        x=pde.Region((np.linspace(-1.1, 1.1, 33),) * 2, lambda x, y: x * x + y * y < 1.0, cut=True),
        space=term,
        boundary=0.0,
        alpha=0.6,
        t_eval=[0.5],
    )
    x = found.x[0]
    exact = hf.mittag_leffler(-rate * 0.5**0.6, 0.6) * j0(np.sqrt(RATE * (x[:, None] ** 2 + x**2)))
    inside = np.isfinite(found.u[-1])
    assert np.array_equal(inside, x[:, None] ** 2 + x**2 < 1.0)
    error = np.abs(found.u[-1] - exact)[inside].max()
    assert error < 2e-3 * np.nanmax(found.u[-1])
    assert error < 3.0 * found.error_estimate.space
    assert found.decision.space == "cut_cells"


def test_a_ball_and_a_line():
    """Three dimensions and one: pi^2 and (pi / length)^2."""
    x = np.linspace(-1.2, 1.2, 15)
    ball = pde.Region((x,) * 3, lambda x, y, z: x**2 + y**2 + z**2 < 1.0, cut=True)
    found = discretise(SpaceSetting((pde.Diffusion(1.0),), ball.grid, read_boundary(0.0, 3), domain=ball))
    assert abs(float(-found.symbol.max()) - np.pi**2) < 0.2
    line = pde.Region((np.linspace(0.0, 1.0, 41),), lambda x: np.abs(x - 0.5) < 0.333, cut=True)
    found = discretise(SpaceSetting((pde.Diffusion(1.0),), line.grid, read_boundary(0.0, 1), domain=line))
    np.testing.assert_allclose(float(-found.symbol.max()), (np.pi / 0.666) ** 2, rtol=2e-3)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"boundary": "neumann"}, "cut=True takes Dirichlet conditions"),
        ({"space": pde.Diffusion(1.0) + pde.Advection((1.0, 0.0))}, "cut=True takes Diffusion"),
        ({"space": pde.Diffusion([[1.0, 0.2], [0.2, 1.0]])}, "along the axes"),
        ({"space": pde.Diffusion(lambda x, y: x)}, "positive everywhere"),
        ({"inside": lambda x, y: x > 0.0}, "must not touch the edges"),
        ({"inside": lambda x, y: x > 3.0}, "no point is inside"),
        ({"inside": np.ones((9, 9), bool)}, "cut=True needs a function"),
    ],
)
def test_bad_cuts(change, words):
    """Typed, before the first step."""
    inside = change.pop("inside", lambda x, y: x**2 + y**2 < 1.0)
    x = np.linspace(-1.1, 1.1, 9)
    given = {"space": pde.Diffusion(1.0), "boundary": 0.0, **change}

    def solved():
        region = pde.Region((x, x), inside, cut=True)
        return hf.solve_fpde(None, (0.0, 1.0), np.zeros((9, 9)), x=region, **given)

    with pytest.raises(InvalidInputError, match=words):
        solved()

"""Full tensors of diffusion: a Gaussian that is no product, smooth solutions, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.errors import InvalidInputError, ShapeError, UnsupportedDtypeError
from hpfracc.pde import Diffusion, Dirichlet, FractionalDiffusion, Neumann, Region
from hpfracc.solvers.pde.boundary import read_boundary
from hpfracc.solvers.pde.space.base import SpaceSetting
from hpfracc.solvers.pde.space.components import discretise
from hpfracc.special import mittag_leffler

TENSOR = np.array([[2.0, 0.6], [0.6, 0.5]])


def gaussian(t, x, y):
    """The density of a normal variable with covariance 1/2 + 2 D t."""
    covariance = 0.5 * np.eye(2) + 2.0 * t * TENSOR
    a, b, c = np.linalg.inv(covariance)[[0, 0, 1], [0, 1, 1]]
    return np.exp(-0.5 * (a * x**2 + 2.0 * b * x * y + c * y**2)) / (
        2.0 * math.pi * math.sqrt(np.linalg.det(covariance))
    )


def test_a_rotated_gaussian_by_its_symbol():
    """On a periodic box a constant tensor is diagonal in waves; also for odd numbers of points."""
    for n in (96, 95):
        x = np.linspace(-14.0, 14.0, n, endpoint=False)
        found = hf.solve_fpde(
            None, (0.0, 1.0), lambda x, y: gaussian(0.0, x, y), x=(x, x), space=Diffusion(TENSOR), boundary="periodic"
        )
        assert found.decision.space == "modes"
        np.testing.assert_allclose(found.u[-1], gaussian(1.0, x[:, None], x), atol=1e-9)
    wave = hf.solve_fpde(
        None, (0.0, 1.0), lambda x, y: np.cos(x - 2.0 * y), x=(2.0 * np.pi / 16 * np.arange(16),) * 2,
        space=Diffusion(TENSOR) + FractionalDiffusion(1.2), boundary="periodic", alpha=0.7,
    )  # fmt: skip
    rate = 2.0 - 4.0 * 0.6 + 4.0 * 0.5 + 5.0**0.6
    np.testing.assert_allclose(wave.u[-1], mittag_leffler(-rate, 0.7) * wave.u[0], atol=1e-12)


def test_a_rotated_gaussian_by_finite_volumes():
    """A function that returns the same tensor: of order 2, mass to rounding, and the error within its estimate."""
    errors = []
    for n in (33, 65):
        x = np.linspace(-8.0, 8.0, n)
        found = hf.solve_fpde(
            None,
            (0.0, 0.5),
            lambda x, y: gaussian(0.0, x, y),
            x=(x, x),
            space=Diffusion(lambda x, y: [[2.0 + 0.0 * x, 0.6], [0.6, 0.5]]),
            boundary="neumann",
            method="crank_nicolson",
            step=0.5 / 256,
            estimate="auto" if n == 33 else False,
        )
        errors.append(np.abs(found.u[-1] - gaussian(0.5, x[:, None], x)).max())
        np.testing.assert_allclose(found.mass, found.mass[0], rtol=1e-12)
        if n == 33:
            assert found.decision.space == "region"
            assert 0.3 * errors[0] < found.errors.space[-1] < 10.0 * errors[0]
    assert math.log2(errors[0] / errors[1]) > 1.8


def tensor(x, y):
    return [[2.0 + x, 0.8 + 0.2 * x * y], [0.8 + 0.2 * x * y, 1.0 + y**2]]


def slope(axis, end):
    """The slope of sin(x + 2y) along the conormal."""

    def data(t, x, y):
        rows, c = tensor(x, y)[axis], np.cos(x + 2.0 * y)
        return (2 * end - 1) * (rows[0] * c + rows[1] * 2.0 * c) / rows[axis]

    return data


@pytest.mark.parametrize("kind", ["dirichlet", "neumann"])
def test_order_two_with_a_tensor_that_varies(kind):
    """Given values: the largest error. Given slopes: that in the mean; at corners a logarithm comes to it."""
    if kind == "dirichlet":
        boundary = Dirichlet(lambda t, x, y: np.sin(x + 2.0 * y))
    else:
        boundary = tuple((Neumann(slope(axis, 0)), Neumann(slope(axis, 1))) for axis in (0, 1))
    errors = []
    for n in (17, 33):
        x = np.linspace(0.0, 1.0, n)
        space = discretise(SpaceSetting((Diffusion(tensor),), (x, x), read_boundary(boundary, 2)))
        x, y = space.points
        u, c, off = np.sin(x + 2.0 * y), np.cos(x + 2.0 * y), 0.8 + 0.2 * x * y
        right = c * (1.0 + 0.4 * y + 0.2 * x + 4.0 * y) - u * (2.0 + x + 4.0 * off + 4.0 * (1.0 + y**2))
        gaps = np.abs(space.solve(3.0, 3.0 * u - right + space.forcing(0.0)) - u)
        errors.append(gaps.max() if kind == "dirichlet" else math.sqrt((gaps**2).mean()))
    assert math.log2(errors[0] / errors[1]) > 1.9


def test_three_dimensions_and_uneven_grids():
    """Exact for quadratic functions; and the matrix is symmetric and semidefinite."""
    axes = np.linspace(0.0, 1.0, 6), np.linspace(0.0, 2.0, 5), np.linspace(-1.0, 1.0, 7)
    given = np.array([[2.0, 0.5, 0.3], [0.5, 1.0, -0.4], [0.3, -0.4, 1.5]])

    def quadratic(t, x, y, z):
        return x * y - 2.0 * y * z + 3.0 * x * z + x**2

    space = discretise(SpaceSetting((Diffusion(given),), axes, read_boundary(Dirichlet(quadratic), 3)))
    right = 2.0 * (0.5 + 2.0 * 0.4 + 3.0 * 0.3) + 2.0 * 2.0
    np.testing.assert_allclose(space.apply(quadratic(0.0, *space.points)) + space.forcing(0.0), right, rtol=1e-10)
    uneven = tuple(x + 0.1 * np.sin(math.pi * x) for x in axes)
    closed = discretise(SpaceSetting((Diffusion(given),), uneven, read_boundary("neumann", 3)))
    assert np.all(closed.symbol <= 0.0)
    region = Region((axes[0], axes[1]), lambda x, y: x + y < 2.0)
    part = hf.solve_fpde(None, (0.0, 0.1), lambda x, y: x, x=region, space=Diffusion(TENSOR), boundary="neumann")
    np.testing.assert_allclose(part.mass, part.mass[0], rtol=1e-12)


def test_bad_tensors():
    """Indefinite ones with their eigenvalue, others in words; those of functions before the first step."""
    with pytest.raises(InvalidInputError, match="eigenvalue of -1;"):
        Diffusion([[1.0, 2.0], [2.0, 1.0]])
    with pytest.raises(InvalidInputError, match="not symmetric"):
        Diffusion([[1.0, 2.0], [0.0, 1.0]])
    with pytest.raises(ShapeError, match=r"shape \(2, 3\)"):
        Diffusion(np.ones((2, 3)))
    with pytest.raises(UnsupportedDtypeError, match="real numbers"):
        Diffusion(np.eye(2) * 1j)
    x = np.linspace(0.0, 1.0, 6)
    for space, words in (
        (Diffusion(lambda x, y: [[1.0, 2.0 * x], [2.0 * x, 1.0]]), "eigenvalue of -0"),
        (Diffusion(lambda x, y: [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]), "rows of"),
        (Diffusion(np.eye(3)), "3 coefficients for 2 axes"),
    ):
        with pytest.raises((InvalidInputError, ShapeError), match=words):
            hf.solve_fpde(None, (0.0, 1.0), np.zeros((6, 6)), x=(x, x), space=space, boundary="neumann")

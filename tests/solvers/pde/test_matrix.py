"""Matrices of the user's: graphs and finite elements, against closed forms and another library's meshes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import sparse
from scipy.special import jn_zeros

import hpfracc as hf
from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.pde import Diffusion, Matrix
from hpfracc.solvers.pde.space import matrix
from hpfracc.special import mittag_leffler


def path_graph(count: int) -> sparse.csr_array:
    """The Laplacian D - W of a path; its eigenvalues are ``4 sin^2(pi k / (2 count))``."""
    degrees = np.full(count, 2.0)
    degrees[[0, -1]] = 1.0
    off = -np.ones(count - 1)
    return sparse.csr_array(sparse.diags_array([degrees, off, off], offsets=[0, 1, -1]))


def wave(count: int, k: int) -> tuple[np.ndarray, float]:
    """An eigenvector of the path, and its eigenvalue."""
    return np.cos(math.pi * k * (np.arange(count) + 0.5) / count), 4.0 * math.sin(0.5 * math.pi * k / count) ** 2


@pytest.mark.parametrize("power", [1.0, 0.4])
@pytest.mark.parametrize("alpha", [0.6, 1.0])
def test_a_wave_on_a_path_decays_like_a_mittag_leffler_function(power, alpha):
    """With masses and a coefficient: the eigenvalue is that of the path, over the mass."""
    v, value = wave(30, 3)
    space = Matrix(path_graph(30), mass=np.full(30, 0.5), power=power, coefficient=2.0)
    found = hf.solve_fpde(None, (0.0, 2.0), 1.0 + v, space=space, alpha=alpha)
    decay = float(np.real(mittag_leffler(-2.0 * (value / 0.5) ** power * 2.0**alpha, alpha)))
    assert found.decision.method == "exact_modes"
    np.testing.assert_allclose(found.u[-1], 1.0 + decay * v, atol=1e-12)
    np.testing.assert_allclose(found.mass, 15.0, rtol=1e-12)


@pytest.mark.parametrize("power", [1.0, 0.4])
def test_sparse_factorisations_agree_with_eigenvectors(monkeypatch, power):
    """A power by its rational function, as an operator and in linear systems."""
    v, value = wave(40, 2)
    given = {"space": Matrix(path_graph(40), mass=sparse.eye_array(40) * 2.0, power=power), "alpha": 0.7}
    given |= {"method": "l1", "step": 0.2, "estimate": False, "u0": 0.3 + 0.2 * v, "t_span": (0.0, 1.0)}
    dense = hf.solve_fpde(lambda t, u: u * (1.0 - u), **given)
    monkeypatch.setattr(matrix, "DENSE", 10)
    found = hf.solve_fpde(lambda t, u: u * (1.0 - u), **given)
    assert np.abs(found.u[-1] - dense.u[-1]).max() < 1e-7
    space = found._tools.space
    np.testing.assert_allclose(space.apply(v), -((0.5 * value) ** power) * v, atol=1e-7 * value**power)
    for shift in (3.0, 1e-4):
        right = 1.0 / shift + v / (shift + (0.5 * value) ** power)
        np.testing.assert_allclose(space.solve(shift, 1.0 + v), right, atol=1e-8 + 1e-10 / shift)


def test_the_energy_of_a_network_falls():
    """By the mass matrix, and u A u / 2 without a reaction."""
    rng = np.random.default_rng(0)
    weights = sparse.random_array((25, 25), density=0.3, rng=rng)
    weights = weights + weights.T
    laplacian = sparse.csr_array(sparse.diags_array(weights.sum(axis=0)) - weights)
    u0 = rng.standard_normal(25)
    found = hf.solve_fpde(None, (0.0, 1.0), u0, space=Matrix(laplacian, mass=1.0 + rng.random(25)))
    assert found.energy[0] == pytest.approx(0.5 * u0 @ laplacian @ u0, rel=1e-12)
    assert np.all(np.diff(found.energy) < 0.0)


def test_functions_are_called_with_the_coordinates_of_the_nodes():
    """Of initial values, sources and reactions; ``sol`` has no points between them."""
    points = np.random.default_rng(1).random((2, 20))
    space = Matrix(path_graph(20), points=points)
    found = hf.solve_fpde(
        lambda t, u, x, y: -x * u,
        (0.0, 0.5),
        lambda x, y: x + y,
        space=space,
        source=lambda t, x, y: t * y,
        step=0.05,
        dense_output=True,
    )
    np.testing.assert_allclose(found.u[0], points.sum(axis=0))
    np.testing.assert_allclose(found.sol(0.5), found.u[-1])
    with pytest.raises(InvalidInputError, match="no points between"):
        found.sol(0.5, 0.3)


def test_a_disc_of_finite_elements():
    """scikit-fem's triangles: the lowest mode decays with Bessel's zero, to the error of the elements."""
    fem = pytest.importorskip("skfem")
    from skfem.models.poisson import laplace, mass

    mesh = fem.MeshTri.init_circle(3)
    basis = fem.Basis(mesh, fem.ElementTriP2())
    inside = basis.complement_dofs(basis.get_dofs())
    stiffness, masses = (fem.asm(form, basis)[inside][:, inside] for form in (laplace, mass))
    points = basis.doflocs[:, inside]
    radii = np.hypot(*points)
    from scipy.special import j0

    root = float(jn_zeros(0, 1)[0])
    u0 = j0(root * np.minimum(radii, 1.0))
    for power in (1.0, 0.5):
        space = Matrix(stiffness, mass=masses, power=power, points=points)
        found = hf.solve_fpde(None, (0.0, 0.3), u0, space=space, alpha=0.5)
        decay = float(np.real(mittag_leffler(-(root ** (2.0 * power)) * 0.3**0.5, 0.5)))
        assert np.abs(found.u[-1] - decay * u0).max() < 5e-3


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"operator": np.ones((3, 4))}, ShapeError, "square"),
        ({"operator": np.array([[1.0, 2.0], [0.0, 1.0]])}, InvalidInputError, "not symmetric"),
        ({"operator": -path_graph(5)}, InvalidInputError, "positive semidefinite"),
        ({"mass": np.ones(4)}, ShapeError, "mass of shape"),
        ({"mass": np.zeros(5)}, InvalidInputError, "on its diagonal"),
        ({"power": 1.5}, InvalidInputError, "power=1.5"),
        ({"points": np.zeros((2, 4))}, ShapeError, "points of shape"),
        ({"coefficient": -1.0}, InvalidInputError, "coefficient=-1.0"),
    ],
)
def test_bad_matrices(change, error, words):
    """Typed errors, before the first step."""
    given = {"operator": path_graph(5), **change}
    with pytest.raises(error, match=words):
        hf.solve_fpde(None, (0.0, 1.0), np.ones(5), space=Matrix(**given))


def test_an_indefinite_matrix_is_found_without_eigenvalues(monkeypatch):
    monkeypatch.setattr(matrix, "DENSE", 2)
    with pytest.raises(InvalidInputError, match="negative eigenvalues"):
        hf.solve_fpde(None, (0.0, 1.0), np.ones(5), space=Matrix(sparse.diags_array([1.0, 2.0, -1.0, 1.0, 1.0])))


def test_a_power_of_many_parts_is_refused_without_eigenvectors(monkeypatch):
    """Eight pairs of nodes: as many eigenvalues are zero, of which a few are looked for."""
    pairs = sparse.block_diag([sparse.csr_array([[1.0, -1.0], [-1.0, 1.0]])] * 8)
    monkeypatch.setattr(matrix, "DENSE", 2)
    with pytest.raises(InvalidInputError, match="eigenvalues are zero"):
        hf.solve_fpde(None, (0.0, 1.0), np.ones(16), space=Matrix(pairs, power=0.5))


def test_what_belongs_to_the_matrix_is_refused():
    """A grid, conditions, and further terms; and a grid is needed elsewhere."""
    x, space = np.linspace(0.0, 1.0, 5), Matrix(path_graph(5))
    for extra in ({"x": x}, {"boundary": "neumann"}):
        with pytest.raises(InvalidInputError, match="leave out x and boundary"):
            hf.solve_fpde(None, (0.0, 1.0), x, space=space, **extra)
    with pytest.raises(InvalidInputError, match="the whole operator"):
        hf.solve_fpde(None, (0.0, 1.0), x, x=x, boundary="neumann", space=Diffusion(1.0) + space)
    with pytest.raises(InvalidInputError, match="x and boundary are needed"):
        hf.solve_fpde(None, (0.0, 1.0), x, x=x, space=Diffusion(1.0))

"""What ``solve_fpde`` makes of its arguments before any step: forms of functions, dtypes, and boundary conditions."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.errors import InvalidInputError, ShapeError, UnsupportedDtypeError
from hpfracc.pde import Diffusion, Dirichlet, Disc, Exterior, FractionalDiffusion, Neumann

X = np.linspace(0.0, 1.0, 17)
START = np.sin(np.pi * X)
LINE = {"x": X, "space": Diffusion(1.0), "boundary": "dirichlet", "alpha": 0.6, "step": 0.1}


@pytest.mark.parametrize("method", ["l1", "l2_1sigma", "convolution_quadrature"])
def test_a_reaction_may_take_the_coordinates(method: str):
    """``reaction(t, u, x)`` is recognised by its signature, with and without ``args``."""

    def solved(reaction, **more):
        return hf.solve_fpde(reaction, (0.0, 0.5), START, method=method, estimate=False, **LINE, **more).u[-1]

    expected = solved(lambda t, u: -X * u)
    np.testing.assert_allclose(solved(lambda t, u, x: -x * u), expected, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(solved(lambda t, u, x, k: k * x * u, args=(-1.0,)), expected, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(solved(lambda t, u, k: k * X * u, args=(-1.0,)), expected, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(solved(lambda t, u, *k: -X * u), expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("library", ["torch", "jax.numpy"])
def test_coordinates_are_arrays_of_the_library(library: str):
    """Tensors for tensors."""
    module = pytest.importorskip(library)
    kinds = set()

    def reaction(t, u, x):
        kinds.add(type(x) is type(u))
        return -x * u

    given = {**LINE, "alpha": 1.0, "method": "imex_bdf2", "step": 0.25}
    found = hf.solve_fpde(reaction, (0.0, 0.5), module.asarray(START), **given)
    plain = hf.solve_fpde(lambda t, u: -X * u, (0.0, 0.5), START, **given)
    np.testing.assert_allclose(np.asarray(found.u), plain.u, rtol=1e-6, atol=1e-9)
    assert kinds == {True}


def test_coordinates_in_two_dimensions_on_a_disc_and_of_the_jacobian():
    """One array for each axis, on the whole grid; on a disc x and y."""
    start = np.outer(START, START)
    given = {**LINE, "x": (X, X), "alpha": 0.6}
    seen = []

    def reaction(t, u, x, y):
        seen.append(np.broadcast_shapes(x.shape, y.shape))
        return -x * y * u

    found = hf.solve_fpde(reaction, (0.0, 0.5), start, jac=lambda t, u, x, y: -x * y + 0.0 * u, **given)
    plain = hf.solve_fpde(lambda t, u: -X[:, None] * X * u, (0.0, 0.5), start, **given)
    np.testing.assert_allclose(found.u[-1], plain.u[-1], rtol=1e-6)
    assert seen[0] == (17, 17)
    disc = Disc(1.0, 6, 8)
    coordinates = disc.coordinates(1.0)

    def check(t, u, x, y):
        np.testing.assert_allclose(x, coordinates[0], atol=1e-12)
        np.testing.assert_allclose(y, coordinates[1], atol=1e-12)
        return 0.0 * u

    space = FractionalDiffusion(1.0, "integral")
    hf.solve_fpde(check, (0.0, 0.1), np.zeros((7, 8)), x=disc, space=space, boundary=Exterior(0.0), step=0.1)


def test_a_source_of_time_alone():
    """``source(t)`` is the same at all points."""
    one = hf.solve_fpde(None, (0.0, 0.5), START, source=lambda t: np.cos(t), **LINE)
    two = hf.solve_fpde(None, (0.0, 0.5), START, source=lambda t, x: np.cos(t) + 0.0 * x, **LINE)
    np.testing.assert_allclose(one.u, two.u, rtol=0, atol=1e-13)


@pytest.mark.parametrize("function", [lambda t: 0.0, lambda t, u, x, y, z: u])
def test_other_signatures_are_refused_in_words(function):
    """With the forms that there are, and the number of arguments."""
    with pytest.raises(InvalidInputError, match=r"reaction\(t, u\) or reaction\(t, u, x\), with 2 or 3 arguments"):
        hf.solve_fpde(function, (0.0, 1.0), START, **LINE)
    with pytest.raises(InvalidInputError, match=r"jac has to be jac\(t, u\)"):
        hf.solve_fpde(lambda t, u: u, (0.0, 1.0), START, jac=function, **LINE)
    with pytest.raises(InvalidInputError, match=r"source has to be source\(t, x\) or source\(t\)"):
        hf.solve_fpde(None, (0.0, 1.0), START, source=lambda: 0.0, **LINE)


@pytest.mark.parametrize(
    ("u0", "error"),
    [
        ("abc", UnsupportedDtypeError),
        (["a"] * 17, UnsupportedDtypeError),
        (np.zeros(17, "m8[s]"), InvalidInputError),
        (np.zeros(17, "M8[s]"), InvalidInputError),
        (np.zeros(17, np.float16), UnsupportedDtypeError),
        (np.zeros(17, np.longdouble), UnsupportedDtypeError),
        (np.zeros(17, object), UnsupportedDtypeError),
        ([[1.0, 2.0], [3.0]], ShapeError),
    ],
)
def test_states_that_are_no_numbers_in_double_precision(u0, error):
    """Typed, for u0 and for the velocity."""
    with pytest.raises(error, match="u0"):
        hf.solve_fpde(None, (0.0, 1.0), u0, **LINE)
    with pytest.raises(error, match="du0"):
        hf.solve_fpde(None, (0.0, 1.0), START, du0=u0, **{**LINE, "alpha": 1.5})


@pytest.mark.parametrize("source", [lambda t, x: 1j * x, 1j * X, lambda t: 1j])
def test_imaginary_parts_of_a_source_are_refused(source):
    """For a real u0; a complex one takes them."""
    with pytest.raises(UnsupportedDtypeError, match="source has complex values for a real u0; give u0 as complex"):
        hf.solve_fpde(None, (0.0, 1.0), START, source=source, **LINE)
    found = hf.solve_fpde(None, (0.0, 1.0), START + 0j, source=source, **LINE)
    assert np.abs(found.u[-1].imag).max() > 0.0
    with pytest.raises(UnsupportedDtypeError, match="du0 is complex"):
        hf.solve_fpde(None, (0.0, 1.0), START, du0=1j, **{**LINE, "alpha": 1.5})
    with pytest.raises(UnsupportedDtypeError, match="source has dtype"):
        hf.solve_fpde(None, (0.0, 1.0), START, source="abc", **LINE)


def test_a_pair_of_conditions_for_two_components_is_explained():
    """It stands for the two ends, of both components."""
    two = np.stack([START, START])
    found = hf.solve_fpde(None, (0.0, 1.0), two, **{**LINE, "boundary": ["neumann", "dirichlet"]})
    (note,) = [note for note in found.decision.notes if note.startswith("boundary")]
    assert "Neumann holds at the lower end and Dirichlet at the upper one, for both components" in note
    assert not hf.solve_fpde(None, (0.0, 1.0), START, **{**LINE, "boundary": ["neumann", "dirichlet"]}).decision.notes


def test_numbers_and_names_of_ends():
    """A number or a function is the value of u; a dict has a condition for each end by its name."""

    def solved(boundary, dimensions=1):
        grid = (X,) * dimensions if dimensions > 1 else X
        given = {**LINE, "x": grid, "boundary": boundary, "method": "l1", "step": 0.5}
        with warnings.catch_warnings(action="ignore"):  # u0 does not fit the ends
            return hf.solve_fpde(None, (0.0, 1.0), np.zeros((X.size,) * dimensions), **given).u

    np.testing.assert_array_equal(solved(1.0, 2), solved(Dirichlet(1.0), 2))
    np.testing.assert_array_equal(solved((1.0, "neumann")), solved((Dirichlet(1.0), Neumann(0.0))))
    named = {"left": np.sin, "right": Neumann(2.0)}
    np.testing.assert_array_equal(solved(named), solved((Dirichlet(np.sin), Neumann(2.0))))
    for wrong in ({"left": 0.0}, {"left": 0.0, "right": 0.0, "top": 0.0}, {}):
        with pytest.raises(InvalidInputError, match="give a condition for each of 'left', 'right'"):
            solved(wrong)
    with pytest.raises(InvalidInputError, match="is not known"):
        solved("closed")

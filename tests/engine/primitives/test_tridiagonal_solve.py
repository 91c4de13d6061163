"""The contract of tridiagonal systems: the reference against a dense solve, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from hpfracc._optional import is_installed
from hpfracc.engine.execution.operation import get_operation
from hpfracc.engine.primitives import PRIMITIVES
from hpfracc.errors import ShapeError, UnsupportedDtypeError
from tests.helpers.contracts import cases, reference

CONTRACT = PRIMITIVES["tridiagonal_solve"]
solve = get_operation("tridiagonal_solve")
BACKENDS = [name for name in ("numpy", "numba", "torch", "jax") if is_installed(name)]


def dense(lower: np.ndarray, diagonal: np.ndarray, upper: np.ndarray) -> np.ndarray:
    return np.diag(lower[1:], -1) + np.diag(diagonal) + np.diag(upper[:-1], 1)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_the_reference_solves_the_system(dtype: str) -> None:
    """It is what NumPy's dense solver gives, for a matrix that all right-hand sides share."""
    (case,) = [case for case in cases(CONTRACT, dtype) if case.name == "one matrix"]
    lower, diagonal, upper, rhs = case.arrays
    expected = np.linalg.solve(dense(lower, diagonal, upper), rhs.T).T
    assert np.allclose(reference(CONTRACT, *case.arrays), expected, rtol=1e-13)


def test_ends_are_not_read() -> None:
    """The first of the lower and the last of the upper diagonal may be anything."""
    ones = np.ones(5)
    lower, upper = ones.copy(), ones.copy()
    lower[0] = upper[-1] = np.nan
    rhs = np.arange(5.0)
    assert np.allclose(solve(lower, 4.0 * ones, upper, rhs), np.linalg.solve(dense(ones, 4.0 * ones, ones), rhs))


def test_a_singular_matrix_gives_nan() -> None:
    """And leaves other rows alone."""
    zero, ones = np.zeros((2, 3)), np.ones((2, 3))
    diagonal = np.array([[1.0, 0.0, 1.0], [2.0, 2.0, 2.0]])
    for backend in ("numpy", "numba"):
        found = solve(zero, diagonal, zero, ones, backend=backend)
        assert np.isnan(found[0]).all() and np.array_equal(found[1], [0.5, 0.5, 0.5])


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_singular_complex_matrix_gives_nan(backend: str) -> None:
    """Not an error of Python's complex division."""
    zero, diagonal = np.zeros((2, 3), complex), np.array([[1, 0, 1], [2, 2, 2]], complex)
    found = solve(zero, diagonal, zero, np.ones((2, 3)), backend=backend)
    assert np.isnan(found[0]).all() and np.array_equal(found[1], [0.5, 0.5, 0.5])


@pytest.mark.parametrize("backend", BACKENDS)
def test_single_equations_broadcast_all_operands(backend: str) -> None:
    """Also against the diagonals that are not read; the result may be written to."""
    found = solve(np.full((3, 2, 1), np.nan), np.full(1, 2.0), np.ones((2, 1)), np.ones(1), backend=backend)
    np.testing.assert_array_equal(found, np.full((3, 2, 1), 0.5), strict=True)
    found[0, 0] = 7.0
    assert found[1, 0] == 0.5


def test_what_is_refused() -> None:
    """Diagonals of another length, operands without an axis, and objects."""
    with pytest.raises(ShapeError, match="lower has 4 points"):
        solve(np.ones(4), np.ones(5), np.ones(5), np.ones(5))
    with pytest.raises(ShapeError, match="at least one axis"):
        solve(1.0, np.ones(5), np.ones(5), np.ones(5))
    with pytest.raises(UnsupportedDtypeError):
        solve(np.ones(5, object), np.ones(5), np.ones(5), np.ones(5))

"""The Mittag-Leffler function of matrices."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest
from scipy import linalg

import hpfracc.special as special
from hpfracc.errors import InvalidInputError, ShapeError, UnsupportedDtypeError
from tests.helpers.thinned import thinned

GENERATOR = np.random.default_rng(7)
JORDAN = np.diag([-2.0] * 4) + np.diag([1.0] * 3, 1)
CLOSE = np.diag([-1.0, -1.05, -1.1, 2.0]) + np.triu(GENERATOR.standard_normal((4, 4)), 1)
MATRICES = {
    "general": GENERATOR.standard_normal((5, 5)),
    "jordan": JORDAN,
    "close": CLOSE,
    "two clusters": linalg.block_diag(JORDAN, CLOSE) + np.triu(GENERATOR.standard_normal((8, 8)), 4),
    "symmetric": -(JORDAN @ JORDAN.T),
    "rotation": np.array([[0.0, 3.0], [-3.0, 0.0]]),
    "complex": GENERATOR.standard_normal((3, 3)) + 1j * GENERATOR.standard_normal((3, 3)),
}


def by_series(matrix: np.ndarray, alpha: float, beta: float) -> np.ndarray:
    with mp.workdps(60):
        a, power, total = mp.matrix(matrix.tolist()), mp.eye(len(matrix)), mp.zeros(len(matrix))
        for k in range(600):
            total += power * mp.rgamma(mp.mpf(alpha) * k + beta)
            power = power * a
        return np.array(total.tolist(), dtype=matrix.dtype)


@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize(("alpha", "beta"), [(0.7, 1.0), (0.9, 0.9), (1.5, 2.0)])
@thinned(lambda alpha: alpha == 0.7, one_in=2)
def test_agrees_with_the_series(name, alpha, beta):
    """Agrees with mpmath's power series, also for Jordan blocks and close eigenvalues; real in, real out."""
    matrix = MATRICES[name]
    value, right = special.mittag_leffler_matrix(matrix, alpha, beta), by_series(matrix, alpha, beta)
    assert value.dtype == matrix.dtype
    assert np.abs(value - right).max() <= 1e-12 * np.abs(right).max()


def test_is_expm_at_alpha_one():
    """E_{1,1} of a matrix is its exponential, for each matrix of a batch."""
    batch = GENERATOR.standard_normal((3, 4, 4))
    np.testing.assert_allclose(special.mittag_leffler_matrix(batch, 1.0), linalg.expm(batch), rtol=1e-11, atol=1e-12)


def test_small_matrices():
    """1 x 1 and 0 x 0 matrices are valid."""
    assert special.mittag_leffler_matrix([[-1.0]], 0.5)[0, 0] == special.mittag_leffler(-1.0, 0.5)
    assert special.mittag_leffler_matrix(np.zeros((0, 0)), 0.5).shape == (0, 0)


@pytest.mark.parametrize(
    ("matrix", "error"),
    [
        (np.zeros(3), ShapeError),
        (np.zeros((2, 3)), ShapeError),
        ([[np.nan]], InvalidInputError),
        ([["x"]], UnsupportedDtypeError),
    ],
)
def test_bad_matrices_are_refused(matrix, error):
    """Matrices must be square, finite and numeric."""
    with pytest.raises(error, match="which is not|is not an array of numbers|not finite"):
        special.mittag_leffler_matrix(matrix, 0.5)

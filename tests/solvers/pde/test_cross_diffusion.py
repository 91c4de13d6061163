"""Diffusion between components, against the matrix function of each mode."""

from __future__ import annotations

import math

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.pde import Annulus, CrossDiffusion, Diffusion, Dirichlet, Region

REAL = [[1.0, 0.3], [0.6, 0.5]]
TURNING = [[1.0, -0.8], [0.5, 0.7]]  # complex eigenvalues


def decayed(matrix, rate, t, alpha, start):
    """``E_alpha(-rate D t^alpha) start``."""
    return np.real(hf.mittag_leffler_matrix(-rate * t**alpha * np.array(matrix), alpha)) @ start


@pytest.mark.parametrize("matrix", [REAL, TURNING])
@pytest.mark.parametrize("boundary", ["dirichlet", "neumann", "periodic"])
def test_modes_decay_with_the_matrix(matrix, boundary):
    """A sine, a cosine or a wave of two components; exact in time, at any order up to 2."""
    x = np.linspace(0.0, math.pi, 17) if boundary != "periodic" else np.linspace(0.0, 2.0 * math.pi, 16, endpoint=False)
    wave = np.sin(2.0 * x) if boundary == "dirichlet" else np.cos(2.0 * x)
    start = np.array([1.0, -0.5])
    for alpha in (0.6, 1.0, 1.5):
        found = hf.solve_fpde(
            None,
            (0.0, 0.4),
            start[:, None] * wave,
            x=x,
            space=CrossDiffusion(matrix),
            boundary=boundary,
            alpha=alpha,
            du0=0.0 if alpha > 1.0 else None,
        )
        assert found.decision.method == "exact_modes"
        exact = decayed(matrix, 4.0, 0.4, alpha, start)
        np.testing.assert_allclose(found.u[-1], exact[:, None] * wave, atol=1e-11)
        assert found.u.dtype == np.float64


@pytest.mark.parametrize("matrix", [REAL, TURNING])
@pytest.mark.parametrize(
    ("alpha", "method"), [(1.0, "etdrk4"), (1.0, "imex_bdf2"), (0.7, "l2_1sigma"), (0.7, "adaptive")]
)
def test_with_a_reaction(matrix, alpha, method):
    """R(u) = -K u with a matrix K: the mode decays with 4 D + K; so do uneven grids, up to their error."""
    x = np.linspace(0.0, math.pi, 33)
    start, decay = np.array([1.0, -0.5]), np.array([[0.5, 0.2], [0.0, 1.0]])
    given = {"space": CrossDiffusion(matrix), "boundary": "neumann", "alpha": alpha, "method": method, "rtol": 1e-4}
    total = 4.0 * np.array(matrix) + decay
    exact = np.real(hf.mittag_leffler_matrix(-total * 0.4**alpha, alpha)) @ start
    for points, close in ((x, 3e-4), (x + 0.05 * np.sin(2.0 * x), 2e-2)):
        if close > 1e-3 and method == "etdrk4":
            continue
        found = hf.solve_fpde(
            lambda t, u: -(decay @ u),
            (0.0, 0.4),
            start[:, None] * np.cos(2.0 * points),
            x=points,
            estimate=False,
            **given,
        )
        np.testing.assert_allclose(found.u[-1], exact[:, None] * np.cos(2.0 * points), atol=close)


def test_data_and_other_domains():
    """Straight lines between given values are at rest; on an annulus and a region modes mix as on an interval."""
    x = np.linspace(0.0, 1.0, 11)
    ends = Dirichlet(lambda t, x: np.stack([x, 2.0 - x]))
    lines = np.stack([x, 2.0 - x])
    for matrix in (REAL, TURNING):
        found = hf.solve_fpde(
            None, (0.0, 1.0), lines, x=x, space=CrossDiffusion(matrix), boundary=ends, method="l1", step=0.1, alpha=0.5
        )
        np.testing.assert_allclose(found.u[-1], lines, atol=1e-9)
    ring, shape = Annulus(1.0, 2.0, 10, 8), Region((x, x), lambda x, y: x + y < 1.5)
    for domain, matrix in ((ring, REAL), (shape, TURNING)):
        found = hf.solve_fpde(
            None,
            (0.0, 0.1),
            lambda x, y: np.stack([1.0 + x + 0.0 * y, x * y]),
            x=domain,
            space=CrossDiffusion(matrix),
            boundary="neumann",
            method="crank_nicolson",
            step=0.01,
            source=1.0,
        )
        area = found._tools.space.integrate(np.ones(found.u.shape[2:]))
        np.testing.assert_allclose(found.mass - area * found.t[:, None], found.mass[[0] * found.t.size], atol=1e-9)
        assert math.isfinite(found.error_estimate.space)
        assert np.all(np.isfinite(found.energy))


def test_bad_matrices():
    """Typed errors, before the first step."""
    with pytest.raises(InvalidInputError, match=r"eigenvalue of -1\+0j|eigenvalue of -1;"):
        CrossDiffusion([[1.0, 2.0], [2.0, 1.0]])
    with pytest.raises(InvalidInputError, match="independent"):
        CrossDiffusion([[1.0, 1.0], [0.0, 1.0]])
    with pytest.raises(ShapeError, match=r"shape \(2, 3\)"):
        CrossDiffusion(np.ones((2, 3)))
    x = np.linspace(0.0, 1.0, 9)
    cross = CrossDiffusion(REAL)
    for start, space, words in (
        (np.zeros(9), cross, "one equation"),
        (np.zeros((3, 9)), cross, "3 components"),
        (np.zeros((2, 9)), cross + Diffusion(1.0), "stands alone"),
        (np.zeros((2, 9)), [cross, Diffusion(1.0)], "stands alone"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            hf.solve_fpde(None, (0.0, 1.0), start, x=x, space=space, boundary="neumann")

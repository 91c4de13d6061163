"""Discretisations in space with methods of fractional order in time, against Mittag-Leffler functions of matrices."""

from __future__ import annotations

import math

import numpy as np
import pytest

import hpfracc as hf
from hpfracc import pde
from hpfracc.solvers.pde.boundary import read_boundary
from hpfracc.solvers.pde.space.base import SpaceSetting
from hpfracc.solvers.pde.space.components import discretise
from tests.helpers.thinned import thinned

CASES = {
    "finite_volumes": (pde.Diffusion(lambda x: 1.0 + x), np.linspace(0.0, 1.0, 18), "dirichlet"),
    "finite_volumes, uneven": (pde.Diffusion(0.5), np.linspace(0.0, 1.0, 18) ** 1.3, "neumann"),
    "grunwald": (pde.OneSided(1.6, "left", lambda x: 0.1 + x), np.linspace(0.0, 1.0, 18), "dirichlet"),
    "riesz": (pde.FractionalDiffusion(1.2, "riesz"), np.linspace(0.0, 1.0, 18), "dirichlet"),
    "jacobi": (pde.FractionalDiffusion(1.2, "integral"), pde.jacobi_grid(16, 1.2, (0.0, 1.0)), "exterior"),
    "jacobi, c(x)": (
        pde.FractionalDiffusion(1.2, "integral", lambda x: 1.0 + x),
        pde.jacobi_grid(16, 1.2, (0.0, 1.0)),
        "exterior",
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("alpha", [0.6, 1.0])
@thinned(lambda alpha: alpha == 0.6)
def test_linear_equations_of_both_orders(name, alpha):
    """``u = E_alpha(A t^alpha) u0`` with the matrix of the discretisation, within ten times the tolerance."""
    space, x, boundary = CASES[name]
    u0 = np.sin(math.pi * x) * (1.0 + x) if boundary != "neumann" else np.cos(math.pi * x)
    u0[[0, -1]] = u0[[0, -1]] if boundary == "neumann" else 0.0
    made = discretise(SpaceSetting((space,), (x,), read_boundary(boundary, 1)))
    n = made.shape[0]
    matrix = made.apply(np.eye(n)).T
    exact = np.real(hf.mittag_leffler_matrix(matrix * 0.2**alpha, alpha) @ made.restrict(u0))
    result = hf.solve_fpde(
        None, (0.0, 0.2), u0, x=x, space=space, boundary=boundary, alpha=alpha, rtol=1e-5, atol=1e-8, save="last"
    )
    assert result.success
    assert np.abs(made.restrict(result.u[-1]) - exact).max() < 1e-4 * np.abs(exact).max()


@pytest.mark.parametrize("alpha", [0.7, 1.0])
def test_a_reaction_in_a_medium_that_varies(alpha):
    """A steady state: (k u')' - u^3 + f = 0 with f from u = sin(pi x), reached in time."""
    x = np.linspace(0.0, 1.0, 41)
    exact = np.sin(math.pi * x)

    def source(t, x):
        k, slope = 1.0 + x, 1.0
        bend = slope * math.pi * np.cos(math.pi * x) - k * math.pi**2 * np.sin(math.pi * x)
        return -bend + np.sin(math.pi * x) ** 3

    result = hf.solve_fpde(
        lambda t, u: -(u**3),
        (0.0, 2.0),
        exact,
        x=x,
        space=pde.Diffusion(lambda x: 1.0 + x),
        boundary="dirichlet",
        alpha=alpha,
        source=source,
        step=0.02,
        save="last",
    )
    assert np.abs(result.u[-1] - exact).max() < 2e-3


def test_a_tracer_that_waits_and_jumps():
    """Order 0.8 in time and 1.6 in space, one-sided: mass inside does not grow, and the run ends."""
    equation = pde.problems.column(points=101, t_end=2.0)
    result = equation.solve(alpha=0.8, method="auto", step=0.05, estimate=False)
    assert result.success
    mass = np.asarray(result.mass)
    assert np.all(np.diff(mass) < 1e-6)
    assert mass[-1] > 0.9

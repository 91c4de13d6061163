"""One-sided diffusion with zero flux, against eigenvalues and stationary solutions in closed form."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest

import hpfracc as hf
from hpfracc.errors import InvalidInputError
from hpfracc.pde import Advection, Diffusion, OneSided
from hpfracc.solvers.pde.boundary import read_boundary
from hpfracc.solvers.pde.space import grunwald
from hpfracc.solvers.pde.space.base import SpaceSetting
from hpfracc.solvers.pde.space.grunwald import ReflectingGrunwald


def made(n, *terms):
    return ReflectingGrunwald(SpaceSetting(terms, (np.linspace(0.0, 1.0, n + 1),), read_boundary("neumann", 1)))


def matrix(space):
    return space.apply(np.eye(space.shape[0])).T


def mittag_leffler(beta, z):
    """E_(beta, beta) by its series."""
    return mp.nsum(lambda k: mp.mpf(z) ** k / mp.gamma(beta * k + beta), [0, mp.inf])


def test_the_slowest_mode_has_its_eigenvalue_with_order_one():
    """``x^(b-2) E_(b,b-1)(-lam x^b)`` has no flux at x = 1 where ``E_(b,b)(-lam) = 0``, by mpmath."""
    beta = 1.8
    with mp.workdps(25):
        exact = float(mp.findroot(lambda lam: mittag_leffler(beta, -lam), 7.2))
    errors = []
    for n in (50, 100, 200):
        values = np.linalg.eigvals(matrix(made(n, OneSided(beta))))
        assert values.real.max() < 1e-9 * n**beta
        errors.append(np.abs(values + exact).min() / exact)
    assert errors[-1] < 5e-3
    assert math.log2(errors[1] / errors[2]) == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("beta", [1.2, 1.5, 1.8])
def test_the_stationary_solution_is_a_power(beta, side):
    """``(b - 1) rho^(b-2)``: away from rho = 0 the error falls with order 1."""
    errors = []
    for n in (100, 200):
        space = made(n, OneSided(beta, side, 0.7))
        values, vectors = np.linalg.eig(matrix(space))
        found = vectors[:, np.argmin(np.abs(values))].real
        found /= space.integrate(found)
        rho = space.grid[0] if side == "left" else 1.0 - space.grid[0]
        far = rho > 0.4
        errors.append(np.abs(found[far] - (beta - 1.0) * rho[far] ** (beta - 2.0)).max())
    assert errors[1] < 0.02
    assert math.log2(errors[0] / errors[1]) > 0.85


def test_terms_without_memory_are_those_of_finite_volumes():
    """Diffusion alone has cosines, transport the exponential ``exp(v x / k)`` as its stationary solution."""
    beta, n = 1.5, 200
    space = made(n, OneSided(beta, "left", 0.0), Diffusion(0.5))
    eigenvalues = np.sort(np.linalg.eigvals(matrix(space)).real)[::-1]
    np.testing.assert_allclose(eigenvalues[:4], -0.5 * (np.pi * np.arange(4)) ** 2, rtol=1e-3, atol=1e-9)
    space = made(n, OneSided(beta, "left", 0.0), Diffusion(0.5), Advection(1.5))
    x = space.grid[0]
    assert np.abs(space.apply(np.exp(3.0 * x))).max() < 2e-2 * np.exp(3.0)


@pytest.mark.parametrize("alpha", [0.6, 1.0])
def test_mass_is_kept(alpha):
    """To 1e-12, with transport and diffusion from both sides, in one call."""
    x = np.linspace(0.0, 2.0, 81)
    space = OneSided(1.6, "left", 0.3) + OneSided(1.3, "right", 0.1) + Advection(0.2) + Diffusion(0.05)
    found = hf.solve_fpde(
        None, (0.0, 1.0), np.exp(-20.0 * (x - 1.0) ** 2), x=x, space=space, boundary="neumann", alpha=alpha, step=0.02
    )
    assert found.success
    assert found.decision.space == "reflecting_grunwald"
    np.testing.assert_allclose(found.mass, found.mass[0], rtol=1e-12)
    assert found.u.min() > -1e-6


def test_iterations_agree_with_the_factorisation(monkeypatch):
    monkeypatch.setattr(grunwald, "DENSE", 1000)
    space = made(600, OneSided(1.5), Advection(0.2))
    rhs = np.random.default_rng(1).standard_normal(601)
    dense = space.solve(300.0, rhs)
    assert space.iterations == 0
    monkeypatch.setattr(grunwald, "DENSE_KEPT", 0)
    found = space.solve(300.0, rhs)
    assert 0 < space.iterations < 40
    np.testing.assert_allclose(found, dense, atol=1e-9 * np.abs(dense).max())


@pytest.mark.parametrize(
    ("term", "words"),
    [
        (OneSided(0.5, "left", -1.0), "above 1"),
        (OneSided(1.5, "left", lambda x: 1.0 + x), "constant"),
        (OneSided(1.5) + hf.pde.FractionalDiffusion(1.5, "riesz"), "not FractionalDiffusion"),
    ],
)
def test_refusals(term, words):
    x = np.linspace(0.0, 1.0, 20)
    with pytest.raises(InvalidInputError, match=words):
        hf.solve_fpde(None, (0.0, 1.0), x * (1.0 - x), x=x, space=term, boundary="neumann", step=0.1)

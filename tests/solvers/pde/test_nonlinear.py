"""Reactions: the same solutions in all units, and adaptive steps where reactions are stiff."""

from __future__ import annotations

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.pde import Diffusion
from hpfracc.special import mittag_leffler

X = np.linspace(0.0, 1.0, 17)


@pytest.mark.parametrize("unit", [1e-15, 1e9])
@pytest.mark.parametrize(
    ("method", "alpha", "given"),
    [
        ("imex_bdf2", 1.0, {"step": 0.05}),
        ("l1", 0.6, {"step": 0.05}),
        ("convolution_quadrature", 1.5, {"step": 0.05, "du0": 0.0}),
        ("adaptive", 0.6, {"rtol": 1e-3}),
    ],
)
def test_a_solution_does_not_depend_on_the_unit_of_u(method, alpha, given, unit):
    """Slopes of a reaction are measured over a part of u, not over a fixed change."""
    given = given | {"x": X, "space": Diffusion(0.1), "boundary": "dirichlet", "method": method, "alpha": alpha}

    def solve(unit):
        start = unit * np.sin(np.pi * X)
        return hf.solve_fpde(lambda t, u: 2.0 * u * (1.0 - u / unit), (0.0, 1.0), start, atol=1e-9 * unit, **given)

    plain, scaled = solve(1.0), solve(unit)
    assert plain.success and scaled.success
    assert np.allclose(scaled.u / unit, plain.u, rtol=1e-7, atol=1e-9)


def test_each_component_has_a_unit_of_its_own():
    """The stabilisation of an explicit reaction is the same in all units of each component."""
    x = np.linspace(0.0, 1.0, 17)

    def solve(unit):
        def reaction(t, w):
            u, v = w[0], w[1] / unit
            return np.stack([u * (1.0 - v - u), unit * (u * v - v * v)])

        start = np.stack([1.0 + 0.3 * np.cos(np.pi * x), unit * (0.5 + 0.1 * np.cos(np.pi * x))])
        given = {"x": x, "space": Diffusion(0.1), "boundary": "neumann", "step": 0.05, "method": "imex_bdf2"}
        return hf.solve_fpde(reaction, (0.0, 1.0), start, **given).u / np.array([1.0, unit])[:, None]

    assert np.allclose(solve(1e-9), solve(1.0), rtol=1e-6)


def test_steady_states_do_not_depend_on_the_unit_of_u():
    """A logistic population with closed ends is found from a guess in any unit."""
    for unit in (1e-15, 1.0, 1e9):
        found = hf.steady_state(
            lambda t, u, unit=unit: u * (1.0 - u / unit),
            lambda x, unit=unit: unit * (0.8 + 0.1 * np.cos(np.pi * x)),
            x=X,
            space=Diffusion(0.1),
            boundary="neumann",
            atol=1e-12 * unit,
        )
        assert np.allclose(found.u / unit, 1.0, rtol=1e-7)


def test_adaptive_steps_of_a_reaction_that_is_stiff_at_some_points():
    """A trap with a rate of 1e4 takes as many steps as its solution needs, with the estimated error."""
    x, alpha, rate = np.linspace(0.0, 1.0, 21), 0.5, 1e4
    trap = rate * (np.abs(x - 0.2) < 0.1)
    start = np.sin(np.pi * x) * (1.0 - np.exp(-(((x - 0.2) / 0.15) ** 4)))
    result = hf.solve_fpde(
        lambda t, u: -trap * u,
        (0.0, 1.0),
        start,
        x=x,
        space=Diffusion(0.1),
        boundary="dirichlet",
        alpha=alpha,
        rtol=1e-3,
        max_steps=300,
        estimate=False,
    )
    assert result.decision.method == "adaptive" and result.success
    k = np.arange(1, 20)
    sines = np.sin(np.pi * np.outer(k, x[1:-1]))
    values, vectors = np.linalg.eigh(sines.T @ np.diag(-0.1 * (np.pi * k) ** 2 / 10.0) @ sines - np.diag(trap[1:-1]))
    exact = vectors @ (mittag_leffler(values, alpha) * (vectors.T @ start[1:-1]))
    assert np.abs(result.u[-1, 1:-1] - exact).max() < 3.0 * result.error_estimate.time < 3e-3


def test_adaptive_steps_of_a_stiff_reaction_towards_data_that_change():
    """What data change between the steps is weighed with the damping by the reaction."""
    x, rate = np.linspace(0.0, np.pi, 17), 1e4
    result = hf.solve_fpde(
        lambda t, u: -rate * (u - np.cos(t) * np.sin(x)),
        (0.0, 1.0),
        np.sin(x),
        x=x,
        space=Diffusion(1.0),
        boundary="dirichlet",
        alpha=0.8,
        rtol=1e-4,
    )
    powers = 0.8 + 2.0 * np.arange(8)
    terms = [(-1.0) ** k * mittag_leffler(-rate - 1.0, 0.8, power + 1.0) for k, power in enumerate(powers)]
    exact = mittag_leffler(-rate - 1.0, 0.8) + rate * sum(terms)
    assert result.success and result.stats["steps"] < 40
    assert abs(result.u[-1, 8] - exact) < 1e-4

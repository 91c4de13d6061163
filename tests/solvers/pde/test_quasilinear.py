"""Diffusion with a coefficient of time and of the solution: closed forms and manufactured solutions."""

from __future__ import annotations

import math

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.errors import InvalidInputError
from hpfracc.pde import Advection, Diffusion, DiffusionL1, NoFlux


def barenblatt(t: float, x: np.ndarray) -> np.ndarray:
    """Of the porous medium equation ``u_t = (u^2)_xx``: a parabola with a moving front."""
    return t ** (-1 / 3) * np.maximum(1.0 - x**2 * t ** (-2 / 3) / 12.0, 0.0)


def _solves_of_a_step(found: hf.FPDEResult) -> float:
    """Linear solves of Newton's method a step, without those that estimate its error."""
    return (found.stats["solves"] - found.stats["error_solves"]) / found.stats["steps_in_all"]


def test_the_porous_medium_equation():
    """Barenblatt's solution: second order in the mean; the front is in the right cell and the mass is kept."""
    errors = []
    for points in (61, 121):
        x = np.linspace(-6.0, 6.0, points)
        found = hf.solve_fpde(
            None,
            (1.0, 3.0),
            barenblatt(1.0, x),
            x=x,
            space=Diffusion(lambda x, u: 2.0 * u),
            boundary="neumann",
            rtol=1e-4,
            atol=1e-6,
            estimate=False,
        )
        assert found.success
        assert _solves_of_a_step(found) <= 3.0
        np.testing.assert_allclose(found.mass, found.mass[0], rtol=1e-10)
        exact = barenblatt(3.0, x)
        errors.append(np.abs(found.u[-1] - exact).mean())
        front = x[found.u[-1] > 1e-3].max()
        assert abs(front - math.sqrt(12.0) * 3.0 ** (1 / 3)) < 2.0 * (x[1] - x[0])
    assert errors[1] < 2e-3
    assert errors[1] < 0.45 * errors[0]


def test_newton_takes_few_solves_at_a_front():
    """Fisher's equation with D(u): at most 3 linear solves a step."""
    x = np.linspace(0.0, 20.0, 101)
    found = hf.solve_fpde(
        lambda t, u: u * (1.0 - u), (0.0, 2.0), 1.0 / (1.0 + np.exp(2.0 * (x - 5.0))), x=x, alpha=0.9,
        space=Diffusion(lambda x, u: 0.1 + u), boundary="neumann", rtol=1e-4, atol=1e-7, estimate=False,
    )  # fmt: skip
    assert found.success and _solves_of_a_step(found) <= 3.0


@pytest.mark.parametrize("alpha", [0.6, 1.0])
def test_a_manufactured_solution(alpha):
    """``D^alpha u = (u u_x)_x + f`` with u = 1 + t^2 sin(pi x): order 2 in space, with an estimate that holds."""

    def source(t, x):
        s, c = np.sin(math.pi * x), np.cos(math.pi * x)
        flux = (t * t * math.pi * c) ** 2 - (1.0 + t * t * s) * t * t * math.pi**2 * s
        return 2.0 * t ** (2.0 - alpha) / math.gamma(3.0 - alpha) * s - flux

    errors = []
    for points in (9, 17):
        x = np.linspace(0.0, 1.0, points)
        given = {"x": x, "space": Diffusion(lambda x, u: u), "boundary": 1.0, "source": source, "alpha": alpha}
        found = hf.solve_fpde(None, (0.0, 1.0), np.ones(points), rtol=1e-4, save="last", **given)
        assert found.decision.method == "adaptive"
        errors.append(np.abs(found.u[-1] - 1.0 - np.sin(math.pi * x)).max())
        total = found.error_estimate.space + found.error_estimate.time
        assert errors[-1] < 3.0 * total < 60.0 * errors[-1]
    assert math.log2(errors[0] / errors[1]) == pytest.approx(2.0, abs=0.2)


def test_coefficients_of_time_and_of_both():
    """``D(t)`` stretches the time of a mode; ``D(t, x, u)`` without u in it is the same."""
    x = np.linspace(0.0, 1.0, 21)
    given = {"t_span": (0.0, 0.2), "u0": np.sin(math.pi * x), "x": x, "boundary": "dirichlet", "estimate": False}
    stretched = hf.solve_fpde(None, space=Diffusion(lambda t, x: 1.0 + t + 0.0 * x), rtol=1e-4, **given)
    wave = (40.0 * math.sin(0.025 * math.pi)) ** 2  # of second differences
    np.testing.assert_allclose(stretched.u[-1], math.exp(-wave * 0.22) * np.sin(math.pi * x), atol=1e-4)
    one, two = (
        hf.solve_fpde(None, space=Diffusion(coefficient), method="l1", step=0.02, **given).u
        for coefficient in (lambda t, x: 1.0 + t + 0.0 * x, lambda t, x, u: 1.0 + t + 0.0 * u)
    )
    np.testing.assert_allclose(one, two, rtol=1e-12, atol=1e-14)


def test_a_plane_with_fixed_steps():
    """L1 in two dimensions agrees with ``D(x, y)`` where the coefficient does not depend on u, and keeps the mass."""
    axis = np.linspace(0.0, 1.0, 13)
    x, y = np.meshgrid(axis, axis, indexing="ij")
    u0 = 1.0 + x * y
    given = {"x": (axis, axis), "boundary": "neumann", "alpha": 0.5, "method": "l1", "step": 0.1, "estimate": False}
    moving = hf.solve_fpde(None, (0.0, 1.0), u0, space=Diffusion(lambda x, y, u: u), **given)
    np.testing.assert_allclose(moving.mass, moving.mass[0], rtol=1e-9)
    one = hf.solve_fpde(None, (0.0, 1.0), u0, space=Diffusion(lambda x, y, u: 1.0 + x + 0.0 * u), **given)
    # The mean of the coefficients at two points instead of that between them: equal for a linear one, up to Gauss.
    two = hf.solve_fpde(None, (0.0, 1.0), u0, space=Diffusion(lambda x, y: 1.0 + x), **given)
    assert np.abs(one.u[-1] - two.u[-1]).max() < 1e-3


def test_transport_into_a_closed_end_keeps_the_mass():
    """Burgers-like crowding at a wall: advection and a coefficient of u, with no flux through either end."""
    x = np.linspace(0.0, 1.0, 41)
    space = Diffusion(lambda x, u: 0.05 + 0.1 * u) + Advection(1.0)
    found = hf.solve_fpde(
        None, (0.0, 1.0), 1.0 + 0.0 * x, x=x, space=space, boundary=NoFlux(), alpha=0.8, rtol=1e-4, estimate=False
    )
    assert found.success and found.u[-1, -1] > 3.0
    np.testing.assert_allclose(found.mass, 1.0, rtol=1e-9)


def test_a_coefficient_that_becomes_negative_is_not_passed_over():
    """Known beforehand as a function of t, and found as one of u: the solution ends there, with the reason."""
    x = np.linspace(0.0, 1.0, 11)
    given = {"t_span": (0.0, 2.0), "u0": 0.5 + 0.1 * x, "x": x, "boundary": "neumann", "rtol": 1e-3}
    called = []
    with pytest.raises(InvalidInputError, match=r"a coefficient of -0.03125 at t = 1.03125, below zero"):
        hf.solve_fpde(lambda t, u: called.append(t) or -u, space=Diffusion(lambda t, x: 1.0 - t + 0.0 * x), **given)
    assert not called  # no step was taken
    found = hf.solve_fpde(lambda t, u: u, space=Diffusion(lambda x, u: 1.0 - u), **given)
    assert not found.success and found.u.max() < 1.1
    assert "below zero" in found.message


def test_a_coordinate_may_have_any_name():
    """A function of as many arguments as there are axes is one of the coordinates."""
    x = np.linspace(0.0, 1.0, 11)
    given = {"u0": np.sin(math.pi * x), "t_span": (0.0, 0.1), "x": x, "boundary": 0.0, "alpha": 0.5, "step": 0.02}
    one, two = (hf.solve_fpde(None, space=Diffusion(k), **given) for k in (lambda u: 1.0 + u, lambda x: 1.0 + x))
    np.testing.assert_allclose(one.u, two.u, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"space": Diffusion(lambda x, u: u - 1.0)}, "ill-posed"),
        ({"method": "etdrk4"}, "takes the reaction explicitly"),
        ({"method": DiffusionL1(reaction="imex"), "alpha": 0.5}, "explicit in the reaction"),
        ({"reaction": lambda t, u: u, "jac": lambda t, u: 1.0 + 0.0 * u}, "leave it out"),
        ({"u0": np.ones((2, 11))}, "one real equation"),
        ({"boundary": "exterior"}, "Dirichlet"),
    ],
)
def test_what_it_does_not_take(change, words):
    """Typed errors, before the first step."""
    given = {"reaction": None, "t_span": (0.0, 1.0), "u0": np.full(11, 0.5), "boundary": "neumann"}
    given |= {"x": np.linspace(0.0, 1.0, 11), "space": Diffusion(lambda x, u: u), **change}
    with pytest.raises(InvalidInputError, match=words):
        hf.solve_fpde(**given)

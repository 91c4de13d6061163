"""Orders that differ between components, or vary in time or space."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import gamma

import hpfracc as hf
from hpfracc.errors import InvalidInputError
from hpfracc.pde import Diffusion
from hpfracc.special import mittag_leffler as ml

X = np.linspace(0.0, math.pi, 9)
SINE = np.sin(X)
BOX = {"x": X, "space": Diffusion(1.0), "boundary": "dirichlet"}
#: The eigenvalue of sin x for three-point differences.
SECOND = (2.0 * math.sin(X[1] / 2.0) / X[1]) ** 2


def seen_orders(errors):
    return np.log2(np.array(errors[:-1]) / errors[1:])


@pytest.mark.parametrize("method", ["auto", "l1"])
@pytest.mark.parametrize("orders", [(0.4, 0.7), (0.5, 1.0)])
def test_components_that_do_not_meet(method, orders):
    """Each component decays with its own Mittag-Leffler function."""
    found = hf.solve_fpde(None, (0.0, 1.0), np.stack([SINE, SINE]), alpha=orders, rtol=1e-3, method=method, **BOX)
    exact = np.stack([ml(-(found.t**alpha), alpha) for alpha in orders], axis=1)
    error = np.abs(found.u[:, :, 4] - exact).max()
    assert error < 3.0 * found.error_estimate.time < 1e-2


def test_order_above_one_beside_one_below():
    found = hf.solve_fpde(None, (0.0, 1.0), np.stack([SINE, SINE]), alpha=(0.5, 1.5), du0=0.0, rtol=1e-4, **BOX)
    assert found.decision.method == "adaptive"
    exact = np.stack([ml(-(found.t**alpha), alpha) for alpha in (0.5, 1.5)], axis=1)
    assert np.abs(found.u[:, :, 4] - exact).max() < 3.0 * found.error_estimate.time < 1e-3


@pytest.mark.parametrize("coefficient", [1.0, lambda x: 1.0 + 0.0 * x])
def test_coupled_components(coefficient):
    """u_k = (1 + t^alpha_k) sin x with the exchange u_1 u_2, made so by a source; of order 2 - max alpha."""
    orders, rate = (0.4, 0.8), 1.0 if coefficient == 1.0 else SECOND

    def source(t, x):
        one, two = ((1.0 + t**alpha) * np.sin(x) for alpha in orders)
        left = [gamma(1.0 + alpha) * np.sin(x) for alpha in orders]
        return np.stack([left[0] + rate * one - one * two, left[1] + rate * two + one * two])

    errors = []
    for steps in (32, 64, 128):
        found = hf.solve_fpde(
            lambda t, u: np.stack([u[0] * u[1], -u[0] * u[1]]), (0.0, 1.0), np.stack([SINE, SINE]), alpha=orders,
            source=source, step=1.0 / steps, save="all", **{**BOX, "space": Diffusion(coefficient)},
        )  # fmt: skip
        assert found.decision.method == "l1"
        exact = np.stack([1.0 + found.t**alpha for alpha in orders], axis=1)
        errors.append(np.abs(found.u[:, :, 4] - exact).max())
        assert errors[-1] <= 3.0 * found.error_estimate.time
    assert seen_orders(errors)[-1] == pytest.approx(1.2, abs=0.15)


@pytest.mark.parametrize(("method", "order"), [("l1", 1.2), ("l2_1sigma", 2.0)])
def test_order_of_time(method, order):
    """u = (1 + t^2) sin x with alpha(t) = 0.5 + 0.3 sin t."""

    def alpha(t):
        return 0.5 + 0.3 * math.sin(t)

    def source(t, x):
        return (2.0 * t ** (2.0 - alpha(t)) / gamma(3.0 - alpha(t)) + 1.0 + t**2) * np.sin(x)

    errors = []
    for steps in (32, 64, 128):
        found = hf.solve_fpde(
            None, (0.0, 2.0), SINE, alpha=alpha, source=source, method=method, step=2.0 / steps, save="all", **BOX
        )
        errors.append(np.abs(found.u[:, 4] - 1.0 - found.t**2).max())
        assert errors[-1] <= 3.0 * found.error_estimate.time
    assert seen_orders(errors)[-1] == pytest.approx(order, abs=0.1)


def test_order_of_time_agrees_with_the_ordinary_equation():
    def alpha(t):
        return 0.6 - 0.2 * t

    partial = hf.solve_fpde(None, (0.0, 1.0), SINE, alpha=alpha, rtol=1e-4, save="last", **BOX)
    ordinary = hf.solve_fode(lambda t, y: -y, (0.0, 1.0), [1.0], alpha, rtol=1e-5)
    assert partial.u[-1, 4] == pytest.approx(ordinary.y[0, -1], rel=2e-4)


@pytest.mark.parametrize("in_time", [False, True])
def test_order_of_place(in_time):
    """u = (1 + t^2) sin x with alpha(x) = 0.4 + 0.4 sin x, or alpha(t, x)."""

    def at(t, x):
        return 0.4 + 0.4 * np.sin(x) - (0.1 * t if in_time else 0.0) * np.sin(x)

    def source(t, x):
        alpha = at(t, x)
        return (2.0 * t ** (2.0 - alpha) / gamma(3.0 - alpha) + SECOND * (1.0 + t**2)) * np.sin(x)

    errors = []
    for steps in (64, 128, 256):
        found = hf.solve_fpde(
            None, (0.0, 1.0), SINE, alpha=at if in_time else lambda x: at(0.0, x), source=source, step=1.0 / steps,
            save="all", **BOX,
        )  # fmt: skip
        errors.append(np.abs(found.u - (1.0 + found.t[:, None] ** 2) * SINE).max())
        assert errors[-1] <= 3.0 * found.error_estimate.time
    assert seen_orders(errors)[-1] == pytest.approx(1.2, abs=0.1)


def test_order_of_place_in_two_dimensions():
    """A constant function of place agrees with the constant order."""
    u0 = SINE[:, None] * SINE
    given = {**BOX, "x": (X, X), "space": Diffusion(lambda x, y: 1.0 + 0.0 * (x + y)), "step": 0.1, "save": "last"}
    given["method"] = "l1"
    found = hf.solve_fpde(None, (0.0, 1.0), u0, alpha=lambda x, y: 0.6 + 0.0 * (x + y), **given)
    plain = hf.solve_fpde(None, (0.0, 1.0), u0, alpha=0.6, **given)
    np.testing.assert_allclose(found.u, plain.u, atol=1e-8)
    other = hf.solve_fpde(None, (0.0, 1.0), u0, alpha=lambda x, y: 0.6 + 0.3 * np.sin(x) * np.sin(y), **given)
    assert other.u[-1, 4, 4] < plain.u[-1, 4, 4]


def test_complex_states():
    """The memory of components of complex systems."""
    both = np.stack([SINE + 0j, 1j * SINE])
    given = {**BOX, "alpha": (0.4, 0.8), "step": 0.05, "method": "l1", "save": "last"}
    found = hf.solve_fpde(None, (0.0, 1.0), both, **given)
    plain = hf.solve_fpde(None, (0.0, 1.0), np.stack([SINE, SINE]), **given)
    np.testing.assert_allclose(found.u[0, 0].real, plain.u[0, 0], atol=1e-12)
    np.testing.assert_allclose(found.u[0, 1].imag, plain.u[0, 1], atol=1e-12)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"alpha": (0.5, 0.6, 0.7)}, "3 orders, and u0 has one equation"),
        ({"alpha": (0.5, 2.5)}, r"alpha\[1\]=2.5"),
        ({"alpha": lambda s: 0.5}, "name its arguments"),
        ({"alpha": hf.Caputo(0.5)}, r"Caputo\(alpha=0.5.*is an operator; give its order"),
        ({"alpha": lambda t: 0.5 + t}, "alpha is 1.0.* at t = 0.5"),
        ({"alpha": lambda x: 0.9 - x}, "alpha is .* x = "),
        ({"alpha": lambda t: 0.5, "terms": [(1.0, 0.2)]}, "no terms"),
        ({"alpha": lambda t: 0.5, "form": "fokker_planck"}, "form='caputo'"),
        ({"alpha": lambda t: 0.5, "method": "convolution_quadrature"}, "vary in space or time"),
        ({"alpha": lambda x: 0.5 + 0.0 * x, "method": "l2_1sigma"}, "one order for all unknowns"),
    ],
)
def test_refusals(change, words):
    with pytest.raises(InvalidInputError, match=words):
        hf.solve_fpde(None, (0.0, 1.0), SINE, **{**BOX, **change})


def test_velocity_of_a_component_below_order_one_is_refused():
    with pytest.raises(InvalidInputError, match="du0 is not 0"):
        hf.solve_fpde(None, (0.0, 1.0), np.stack([SINE, SINE]), alpha=(0.5, 1.5), du0=1.0, **BOX)

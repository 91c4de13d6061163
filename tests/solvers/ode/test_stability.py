"""Regions of stability of fixed-step methods, and solutions that grow by more than the equation can."""

from __future__ import annotations

import math

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.solvers.ode.methods.explicit_rectangle import ExplicitRectangle
from hpfracc.solvers.ode.methods.implicit_trapezoid import ImplicitTrapezoid
from hpfracc.solvers.ode.methods.multistep import BDF2
from hpfracc.solvers.ode.methods.pece import PECE
from hpfracc.solvers.ode.stiffness import stability_number, stable_radii


@pytest.mark.parametrize("alpha", [0.3, 0.5, 0.7, 0.9, 1.0, 1.2, 1.5])
def test_real_eigenvalues(alpha: float):
    """PECE is stable up to ``h^alpha |lambda| = Gamma(alpha + 2)`` for negative eigenvalues, and Heun's method to 2."""
    assert stable_radii(PECE(), alpha)[-1] == pytest.approx(math.gamma(alpha + 2.0), rel=0.02)


@pytest.mark.parametrize("alpha", [8.2, 15.0])
def test_orders_whose_weights_cancel(alpha: float):
    """Where sums of weights vanish by rounding there is no boundary, and no warning."""
    assert np.all(stable_radii(PECE(), alpha) > 0.0)


def test_euler_and_the_circle():
    """Euler's method of order 1 is stable in the circle about -1, to the growth of 2 % a step that is left out."""
    radii = stable_radii(ExplicitRectangle(), 1.0)
    for angle in (0.6, 0.75, 0.9):
        assert radii[int(128 * angle)] == pytest.approx(-2.0 * math.cos(math.pi * angle), rel=0.12)


@pytest.mark.parametrize("alpha", [0.3, 0.7, 1.0])
def test_the_implicit_trapezoid_is_stable_up_to_order_one(alpha: float):
    radii = stable_radii(ImplicitTrapezoid(), alpha)
    assert np.isinf(radii[math.ceil(64 * alpha) :]).all()


def test_above_order_one_only_bdf2_has_no_limit():
    trapezoid = stable_radii(ImplicitTrapezoid(), 1.5)
    assert trapezoid[-1] < 10.0 and np.isinf(stable_radii(BDF2(), 1.5)[math.ceil(64 * 1.5) :]).all()
    result = hf.solve_fode(lambda t, y: -1e4 * y, (0.0, 10.0), [1.0], 1.5, dy0=[[0.0]], step=0.1)
    assert result.decision.method == "bdf2" and abs(result.y[0, -1]) < 1e-5
    unstable = hf.solve_fode(
        lambda t, y: -1e4 * y, (0.0, 40.0), [1.0], 1.5, dy0=[[0.0]], step=0.1, method="implicit_trapezoid"
    )
    assert not unstable.success and "grows by more" in unstable.message


@pytest.mark.parametrize("angle", [0.55, 0.7, 0.85, 1.0])
@pytest.mark.parametrize("alpha", [0.5, 0.9])
def test_the_limit_separates_growth_from_decay(alpha: float, angle: float):
    """Against the method itself, with a complex eigenvalue just inside and outside."""
    radii = stable_radii(PECE(), alpha)
    direction = np.exp(1j * math.pi * angle)
    limit = 1.0 / float(stability_number(direction, alpha, radii))
    for factor, stable in ((0.9, True), (1.15, False)):
        y = hf.solve_fode(
            lambda t, y, z: z * y, (0.0, 400.0), [1.0 + 0j], alpha, step=1.0, method="pece",
            args=(factor * limit * direction,),
        ).y  # fmt: skip
        assert (np.abs(y).max() < 10.0) == stable


def test_growing_modes_have_no_limit():
    radii = stable_radii(PECE(), 0.8)
    assert stability_number(50.0, 0.8, radii) == 0.0 and stability_number(50.0j, 0.8, radii) > 1.0


ROTATION = np.array([[0.0, -1.0], [1.0, 0.0]])


@pytest.mark.parametrize("omega", [100.0, 1e3])
@pytest.mark.parametrize("alpha", [0.7, 0.9, 0.95, 1.0])
def test_rotations_are_stiff(alpha: float, omega: float):
    """Explicit steps reached 2.8e215 with success; the solution is at most 1."""
    given = {"t_span": (0.0, 1.0), "y0": [1.0, 0.0], "alpha": alpha, "step": 0.01}
    result = hf.solve_fode(lambda t, y: omega * ROTATION @ y, **given)
    assert result.decision.method == "implicit_trapezoid" and np.abs(result.y).max() <= 1.0 + 1e-9
    for method in ("pece", "explicit_rectangle"):
        asked = hf.solve_fode(lambda t, y: omega * ROTATION @ y, method=method, **given)
        assert not asked.success and "grows by more than the equation can" in asked.message


def test_large_rotations_are_stiff():
    """By power iteration, without all eigenvalues."""
    rng = np.random.default_rng(0)
    a = rng.normal(size=(80, 80))
    a = 100.0 * (a - a.T)
    result = hf.solve_fode(lambda t, y: a @ y, (0.0, 1.0), rng.normal(size=80), 0.9, step=0.02)
    assert result.decision.method == "implicit_trapezoid"


def test_growth_of_the_equation_is_not_a_failure():
    for alpha, rate in ((0.7, 5.0), (1.0, 3.0)):
        result = hf.solve_fode(lambda t, y, rate: rate * y, (0.0, 4.0), [1.0], alpha, step=0.01, args=(rate,))
        assert result.success and result.y[0, -1] > 100.0
    forced = hf.solve_fode(lambda t, y: 1e4 * t - y, (0.0, 10.0), [1e-3], 0.7, step=0.01)
    assert forced.success

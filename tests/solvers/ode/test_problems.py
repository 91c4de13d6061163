"""The library of problems: what is called their solution is one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import quad, solve_ivp

from hpfracc.models.problems.ordinary import _table
from hpfracc.solvers.ode import problems

NONLINEAR = {
    "brusselator": problems.brusselator,
    "lotka_volterra": problems.lotka_volterra,
    "duffing": problems.duffing,
    "lorenz": problems.lorenz,
    "viscoelastic_oscillator": problems.viscoelastic_oscillator,
}


@pytest.mark.parametrize("alpha", [0.4, 0.9, 1.5])
@pytest.mark.parametrize("make", [problems.relaxation, problems.diethelm], ids=["relaxation", "diethelm"])
def test_closed_forms_solve_their_equation(make, alpha: float):
    """The fractional integral of the right-hand side along the solution, by quadrature, is the solution again."""
    problem = make(alpha)

    def integrand(x: float, t: float) -> float:
        s = t * x**3  # smooth at 0, where the solution behaves like s^alpha
        value = float(problem.fun(s, problem.solution(np.array([s]))[:, 0])[0])
        # (1 - x^3)^(alpha-1), less the factor (1 - x)^(alpha-1) that the rule knows
        return value * 3.0 * t * x * x * (t * (1.0 + x + x * x)) ** (alpha - 1.0)

    for t in (0.3, 1.0):
        integral, _ = quad(integrand, 0.0, 1.0, args=(t,), weight="alg", wvar=(0.0, alpha - 1.0), epsrel=1e-10)
        expected = float(problem.solution(np.array([t]))[0, 0] - problem.y0[0])
        assert integral / math.gamma(alpha) == pytest.approx(expected, rel=1e-7)


def test_the_mass_is_conserved():
    """Blood, tissue and what was excreted add up to the dose at all times."""
    problem = problems.pharmacokinetics(0.6)
    _, y = problem.known()
    assert y.sum(axis=0) == pytest.approx(100.0, rel=1e-12)
    assert problem.fun(0.0, y.T).sum(axis=-1) == pytest.approx(0.0, abs=1e-12)


def test_the_plate_in_a_fluid_without_drag_is_an_oscillator():
    """Bagley and Torvik's equation without its fractional term is cos t."""
    problem = problems.bagley_torvik(drag=0.0, load=0.0)
    t, y = problem.known()
    assert y[0] == pytest.approx(np.cos(t), abs=1e-11)
    assert y[1] == pytest.approx(-np.sin(t), abs=1e-11)


def test_the_two_forms_of_the_viscoelastic_oscillator_meet():
    """With no damping, and near beta = 1/2, the solution is the harmonic one."""
    problem = problems.viscoelastic_oscillator(0.5, damping=0.0)
    t, y = problem.known()
    assert y[0] == pytest.approx(np.cos(2.0 * t), abs=1e-10)


@pytest.mark.parametrize("name", sorted({key.split()[0] for key in _table()}))
def test_stored_solutions_are_certain(name: str):
    """Two resolutions of the stored solutions agree to 1e-10, and those of order 1 with SciPy."""
    for key, entry in _table().items():
        if key.split()[0] != name:
            continue
        assert entry["uncertainty"] < 1e-10, key
        orders = tuple(float(order) for order in key.split()[1:])
        if orders == (1.0,):
            problem = NONLINEAR[name](1.0)
            assert problem.reference is not None
            found = solve_ivp(
                problem.fun, problem.t_span, problem.y0, "DOP853", problem.reference.t, rtol=1e-12, atol=1e-13
            )
            assert problem.reference.y == pytest.approx(found.y, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("name", sorted(NONLINEAR))
def test_jacobians_are_those_of_the_functions(name: str):
    """The given Jacobian is the difference quotient of the right-hand side."""
    problem = NONLINEAR[name]()
    y = problem.y0 + 0.3
    change = 1e-6
    columns = [
        (problem.fun(0.7, y + change * unit) - problem.fun(0.7, y - change * unit)) / (2 * change)
        for unit in np.eye(y.size)
    ]
    assert problem.jac(0.7, y) == pytest.approx(np.stack(columns, axis=1), rel=1e-6, abs=1e-7)


def test_a_problem_without_a_stored_solution_says_so():
    """Other parameters have no reference, and asking for one is an error in words."""
    problem = problems.brusselator(0.8, mu=3.0)
    assert problem.reference is None
    with pytest.raises(LookupError, match="no solution of 'brusselator' is stored"):
        problem.known()

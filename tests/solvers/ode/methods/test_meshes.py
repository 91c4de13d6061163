"""L1 and L2-1sigma on graded meshes, and the Mittag-Leffler integrator: the orders their docstrings state."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.solvers.ode import L1, L2Sigma, MittagLeffler, problems
from hpfracc.special import mittag_leffler, mittag_leffler_matrix
from tests.helpers.convergence import measured_order
from tests.helpers.interrupts import part_of
from tests.helpers.thinned import thinned


def relaxation_error(method: Any, alpha: float, n: int, rate: float = 1.0) -> float:
    """The largest error over the mesh, for a solution that begins like t^alpha."""
    problem = problems.relaxation(alpha, rate=rate, t_end=1.0)
    result = hf.solve_fode(problem.fun, problem.t_span, problem.y0, alpha, method=method, step=1.0 / n)
    assert result.success, result.message
    return float(np.max(np.abs(result.y - problem.solution(result.t))))


@pytest.mark.parametrize(
    ("method", "alpha", "order"),
    [
        (L1(), 0.2, 1.8),
        (L1(), 0.5, 1.5),
        (L1(), 0.8, 1.2),
        (L1(1.0), 0.5, 0.5),
        (L1(1.0), 0.8, 0.8),
        (L2Sigma(), 0.2, 2.0),
        (L2Sigma(), 0.5, 2.0),
        (L2Sigma(), 0.8, 2.0),
        (L2Sigma(1.0), 0.8, 0.8),
        (L2Sigma(1.5), 0.8, 1.2),
    ],
    ids=lambda value: f"{value.name} {value.grading}" if isinstance(value, L1 | L2Sigma) else None,
)
@thinned(one_in=2)
def test_orders_on_graded_and_uniform_meshes(method: Any, alpha: float, order: float):
    """Where the solution begins like t^alpha: min(2 - alpha, r alpha) and min(2, r alpha), in the largest error."""
    assert method.promised_order(alpha, rough=True) == pytest.approx(order)
    tolerance = 0.2 if alpha <= 0.2 else 0.15
    assert measured_order(lambda n: relaxation_error(method, alpha, n)) == pytest.approx(order, abs=tolerance)


def test_l1_does_not_ring_where_a_transient_is_not_resolved():
    """With a rate of 1e6, whose transient is over within the first step, the solution stays positive and falls."""
    result = hf.solve_fode(lambda t, y: -1e6 * y, (0.0, 1.0), [1.0], 0.6, method="l1", step=1.0 / 128)
    assert np.all(result.y > 0.0) and np.all(np.diff(result.y) < 0.0)


def test_orders_of_their_own_and_a_nonlinear_system():
    """L1 takes one order for each component; the Brusselator comes nearer to its reference with each halving."""
    problem = problems.brusselator(0.3)
    t, exact = problem.known()
    errors = []
    for n in (200, 400, 800):
        result = hf.solve_fode(
            problem.fun,
            problem.t_span,
            problem.y0,
            (0.3, 0.3),
            method=L1(4.0),
            step=20.0 / n,
            t_eval=t,
            jac=problem.jac,
        )
        errors.append(np.abs(result.y - exact).max())
    assert errors[0] > 2.0 * errors[1] > 4.0 * errors[2]
    mixed = hf.solve_fode(lambda t, y: -y, (0.0, 1.0), [1.0, 1.0], (0.4, 0.8), method="l1", step=1e-3)
    for row, alpha in zip(mixed.y, (0.4, 0.8), strict=True):
        assert row[-1] == pytest.approx(float(mittag_leffler(-1.0, alpha)), abs=1e-3)


def test_events_and_dense_output_on_a_mesh():
    """sol(t) between the steps is as good as the steps, and an event is found there."""

    def half(t: float, y: Any) -> float:
        return float(y[0] - 0.5)

    half.terminal = True  # type: ignore[attr-defined]
    result = hf.solve_fode(
        lambda t, y: -y, (0.0, 4.0), [1.0], 0.5, method="l2_1sigma", step=4.0 / 400, events=half, dense_output=True
    )
    assert result.status == 1 and result.t[-1] == result.t_events[0][0]
    assert mittag_leffler(-math.sqrt(result.t[-1]), 0.5) == pytest.approx(0.5, abs=1e-5)
    t = np.geomspace(1e-6, result.t[-1], 30)
    assert result.sol(t)[0] == pytest.approx(mittag_leffler(-np.sqrt(t), 0.5), abs=1e-5)
    with pytest.raises(InvalidInputError, match="known from 0"):
        result.sol(3.9)


@pytest.mark.parametrize("method", ["l1", "l2_1sigma", "mittag_leffler"])
def test_faults_on_a_mesh(method: str):
    """NaN, too few steps, an interruption: no success, the time, what to do, and the solution up to there."""

    def spoiled(t: float, y: Any) -> Any:
        return -y if t < 0.5 else y * np.nan

    result = hf.solve_fode(spoiled, (0.0, 1.0), [1.0], 0.5, method=method, step=0.01)
    assert not result.success and "not finite at t = " in result.message
    assert 0.4 < result.t[-1] <= 0.5
    result = hf.solve_fode(lambda t, y: -y, (0.0, 1.0), [1.0], 0.5, method=method, step=0.01, max_steps=10)
    assert not result.success and "raise max_steps" in result.message and result.t.size == 11

    def interrupted(t: float, y: Any) -> Any:
        if t > 0.5:
            raise KeyboardInterrupt
        return -y

    result = part_of(lambda: hf.solve_fode(interrupted, (0.0, 1.0), [1.0], 0.5, method=method, step=0.01))
    assert not result.success and result.message.startswith("Interrupted at t = ")


def test_newton_that_does_not_converge_is_said():
    """An equation of a step without a solution: no success, the time, and what to do."""
    result = hf.solve_fode(
        lambda t, y: 1e3 * (2.0 + np.sin(1e6 * y)) * np.sign(np.sin(37.0 * y)),
        (0.0, 1.0),
        [1.0],
        0.5,
        method="l1",
        step=0.1,
    )
    assert not result.success
    assert "Newton's method did not converge at t = " in result.message and "smaller step" in result.message


@pytest.mark.parametrize(
    ("method", "alpha", "options", "complaint"),
    [
        ("l1", 1.0, {}, "orders below 1"),
        ("l1", 0.5, {"compile": True}, "not compiled"),
        ("mittag_leffler", 0.5, {"backend": "numba"}, "is not compiled"),
        ("l2_1sigma", (0.5, 0.6), {}, "use 'l1'"),
        ("mittag_leffler", (0.5, 0.6), {}, "one order for all"),
        ("l1", 0.5, {"derivative": "riemann_liouville"}, "takes Caputo's derivative"),
    ],
)
def test_what_they_do_not_take(method: str, alpha: Any, options: dict[str, Any], complaint: str):
    """Refusals, in words."""
    with pytest.raises(InvalidInputError, match=complaint):
        hf.solve_fode(lambda t, y: -y, (0.0, 1.0), [1.0, 1.0], alpha, method=method, step=0.1, **options)


def test_bad_parameters_of_the_methods():
    """A grading below 1, and a linear part of another shape, are errors."""
    with pytest.raises(InvalidInputError, match="grading"):
        L1(0.5)
    with pytest.raises(InvalidInputError, match="grading"):
        L2Sigma(math.nan)
    with pytest.raises(ShapeError, match=r"give \(1, 1\)"):
        hf.solve_fode(lambda t, y: -y, (0.0, 1.0), [1.0], 0.5, method=MittagLeffler(np.eye(2)), step=0.1)


@pytest.mark.parametrize("alpha", [0.2, 0.5, 0.8, 1.0, 1.5, 1.9])
@thinned(lambda alpha: alpha in (0.5, 1.0, 1.5))
def test_linear_systems_are_exact(alpha: float):
    """Three steps of any length give a stiff linear system its solution, also with a defective matrix."""
    defective = np.array([[-1.0, 1.0], [0.0, -1.0]])
    for matrix in (np.array([[-1000.0, 500.0], [3.0, -2.0]]), defective):
        y0, v0 = np.array([1.0, -1.0]), np.array([0.5, 0.0])
        further = {"dy0": [v0]} if alpha > 1 else {}
        result = hf.solve_fode(
            lambda t, y, m=matrix: y @ m.T, (0.0, 3.0), y0, alpha, method=MittagLeffler(matrix), step=1.0, **further
        )
        for t, y in zip(result.t[1:], result.y.T[1:], strict=True):
            exact = mittag_leffler_matrix(matrix * t**alpha, alpha) @ y0
            if alpha > 1:
                exact = exact + t * mittag_leffler_matrix(matrix * t**alpha, alpha, 2.0) @ v0
            assert y == pytest.approx(exact, rel=1e-7, abs=1e-9)


def test_the_jacobian_is_the_linear_part_by_default():
    """Without a linear part the Jacobian at the start is taken: a linear system is then exact, by differences too."""
    matrix = np.array([[-2.0, 1.0], [0.5, -3.0]])
    result = hf.solve_fode(lambda t, y: y @ matrix.T, (0.0, 2.0), [1.0, 2.0], 0.7, method="mittag_leffler", step=0.5)
    exact = mittag_leffler_matrix(matrix * 2.0**0.7, 0.7) @ [1.0, 2.0]
    assert result.y[:, -1] == pytest.approx(exact, rel=1e-6)
    assert result.njev == 1


@pytest.mark.parametrize("alpha", [0.2, 0.5, 1.5])
def test_the_exponential_integrator_is_exact_between_its_steps_too(alpha: float):
    """A linear equation, however stiff, at times far below the first step and between steps; and one with a source."""
    dy0 = [[0.5]] if alpha > 1.0 else None
    t = np.array([0.0, 1e-9, 1e-4, 0.03, 0.07, 0.123, 0.999])
    for rate in (1.0, 40.0):
        found = hf.solve_fode(
            lambda t, y, rate=rate: 2.0 - rate * y, (0.0, 1.0), [1.0], alpha, dy0=dy0, method=MittagLeffler([[-rate]]),
            step=0.1, dense_output=True,
        )  # fmt: skip
        z = -rate * t**alpha
        exact = mittag_leffler(z, alpha) + 2.0 * t**alpha * mittag_leffler(z, alpha, alpha + 1.0)
        if dy0:
            exact += 0.5 * t * mittag_leffler(z, alpha, 2.0)
        np.testing.assert_allclose(found.sol(t)[0], exact, rtol=1e-9, atol=1e-9)


def test_a_small_solution_is_solved_as_well_as_a_large_one():
    """The equation of a step is solved relative to the solution."""
    sizes = (1.0, 1e-12)
    ends = [hf.solve_fode(lambda t, y: -y, (0.0, 1.0), [s], 0.5, step=0.05, method="l1").y[0, -1] / s for s in sizes]
    assert ends[0] == pytest.approx(ends[1], rel=1e-10)


@pytest.mark.parametrize("alpha", [0.2, 0.5, 0.8])
@pytest.mark.parametrize(
    ("method", "order"), [(L1(1.0), lambda a: 2.0 - a), (L2Sigma(1.0), lambda a: 2.0)], ids=["L1", "L2"]
)
def test_orders_for_smooth_solutions(method: Any, order: Any, alpha: float):
    """y = t^3 on a uniform mesh: 2 - alpha, and 2, at the end."""

    def error_at(n: int) -> float:
        def fun(t: float, y: Any) -> Any:
            return 6.0 / math.gamma(4.0 - alpha) * t ** (3.0 - alpha) + t**3 - y

        result = hf.solve_fode(fun, (0.0, 1.0), [0.0], alpha, method=method, step=1.0 / n)
        return float(abs(result.y[0, -1] - 1.0))

    assert measured_order(error_at) == pytest.approx(order(alpha), abs=0.2 if alpha <= 0.2 else 0.15)

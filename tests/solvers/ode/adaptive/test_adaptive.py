"""The adaptive method: its true error is below ten times the tolerance, whatever the problem."""

from __future__ import annotations

import math
import tracemalloc
from typing import Any

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.special import gamma

import hpfracc as hf
from hpfracc.solvers.ode import problems
from hpfracc.special import mittag_leffler
from tests.helpers.thinned import thinned


def solve(problem: problems.TestEquation, **options: Any) -> Any:
    return hf.solve_fode(
        problem.fun,
        problem.t_span,
        problem.y0,
        problem.alpha,
        jac=problem.jac,
        dy0=list(problem.dy0) or None,
        **options,
    )


def error_over_tolerance(problem: problems.TestEquation, rtol: float) -> tuple[float, Any]:
    """The largest true error over ``atol + rtol max|y(t)|``, the largest component at that time."""
    t, exact = problem.known()
    atol = 1e-3 * rtol
    result = solve(problem, rtol=rtol, atol=atol, t_eval=t)
    assert result.success, result.message
    assert result.decision.method in ("adaptive", "integer_order")
    assert np.array_equal(result.t, t)
    scale = atol + rtol * np.abs(exact).max(axis=0)
    return float(np.max(np.abs(result.y - exact) / scale)), result


QUICK = {
    **{f"relaxation {a}": lambda a=a: problems.relaxation(a) for a in (0.3, 0.5, 0.8, 1.0, 1.5, 1.9)},
    **{f"diethelm {a}": lambda a=a: problems.diethelm(a) for a in (0.3, 0.5, 0.8, 1.0, 1.5)},
    **{f"pharmacokinetics {a}": lambda a=a: problems.pharmacokinetics(a) for a in (0.3, 0.6, 0.9)},
    **{f"duffing {a}": lambda a=a: problems.duffing(a) for a in (0.3, 0.5, 0.9)},
    **{f"lotka_volterra {a}": lambda a=a: problems.lotka_volterra(a) for a in (0.3, 0.5, 0.8)},
    "brusselator 0.3": lambda: problems.brusselator(0.3),
    "bagley_torvik": problems.bagley_torvik,
    "viscoelastic_oscillator 0.5": problems.viscoelastic_oscillator,
    "viscoelastic_oscillator 0.3": lambda: problems.viscoelastic_oscillator(0.3),
}
LONG = {
    **{f"brusselator {a}": lambda a=a: problems.brusselator(a) for a in (0.5, 0.8, 1.0)},
    "brusselator 0.8 0.7": lambda: problems.brusselator((0.8, 0.7)),
    "lotka_volterra 1.0": lambda: problems.lotka_volterra(1.0),
    "duffing 1.0": lambda: problems.duffing(1.0),
    **{f"stiff relaxation {a}": lambda a=a: problems.relaxation(a, rate=1e4) for a in (0.3, 0.5, 0.8, 1.0)},
}


@pytest.mark.parametrize("rtol", [1e-3, 1e-5, 1e-8])
@pytest.mark.parametrize("name", sorted(QUICK))
@thinned(lambda rtol: rtol == 1e-5, one_in=2)
def test_the_true_error_is_below_ten_times_the_tolerance(name: str, rtol: float):
    """For every problem that is not chaotic and every tolerance, at times from the first thousandth on."""
    ratio, result = error_over_tolerance(QUICK[name](), rtol)
    assert ratio < 10.0
    assert result.stats["error_over_tolerance"] <= 1.0


@pytest.mark.parametrize("rtol", [1e-3, 1e-5, 1e-8])
@pytest.mark.parametrize("name", sorted(LONG))
@thinned(lambda rtol: rtol == 1e-3, one_in=3)
def test_so_it_is_for_long_and_stiff_ones(name: str, rtol: float):
    """The same where it takes thousands of steps, several passes or Newton's method."""
    ratio, _ = error_over_tolerance(LONG[name](), rtol)
    assert ratio < 10.0


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(QUICK | LONG))
@pytest.mark.parametrize("rtol", [1e-4, 1e-6, 1e-7])
def test_and_between(name: str, rtol: float):
    """The tolerances between the ones above."""
    ratio, _ = error_over_tolerance((QUICK | LONG)[name](), rtol)
    assert ratio < 10.0


def test_order_one_is_an_ordinary_equation():
    """For alpha = 1 the answer is SciPy's."""
    problem = problems.lotka_volterra(1.0)
    t = np.linspace(0.0, 15.0, 40)
    found = solve(problem, t_eval=t, rtol=1e-8, atol=1e-10)
    exact = solve_ivp(problem.fun, problem.t_span, problem.y0, "DOP853", t, rtol=1e-12, atol=1e-13)
    assert found.y == pytest.approx(exact.y, rel=1e-7)


def test_the_estimate_is_about_the_error():
    """The estimated global error is between a tenth of the true one and a hundred times it, over three tolerances."""
    problem = problems.brusselator(0.8)
    t, exact = problem.known()
    for rtol in (1e-3, 1e-4, 1e-5):
        result = solve(problem, rtol=rtol, atol=1e-3 * rtol, t_eval=t, compile=False)
        true = np.abs(result.y - exact).max()
        assert 0.1 * true < result.error_estimate < 1000.0 * true


def claimed_and_true(alpha: float, rate: float, end: float, rtol: float, k: int) -> None:
    """The true error of ``D^alpha y = -rate y`` with the k-th derivative 1 at 0 is at most three times the claims."""
    dy0 = [[float(k == j)] for j in range(1, math.ceil(alpha))]
    result = hf.solve_fode(
        lambda t, y: -rate * y,
        (0.0, end),
        [float(k == 0)],
        alpha,
        dy0=dy0,
        method="adaptive",
        rtol=rtol,
        dense_output=True,
        compile=False,
    )
    assert result.success, result.message
    t = np.union1d(result.t[1:], np.linspace(0.0, end, 2001)[1:])
    exact = t**k * mittag_leffler(-rate * t**alpha, alpha, k + 1.0)
    error = np.abs(result.sol(t)[0] - exact)
    size = np.maximum.accumulate(t * np.abs(exact)) / t  # the largest |y(s)| s/t before
    assert error.max() < 3.0 * result.error_estimate
    assert (error / (1e-9 + rtol * size)).max() < 3.0 * result.stats["error_over_tolerance"]


@pytest.mark.parametrize(
    ("alpha", "rate", "end", "rtol", "k"),
    [(2.26, 31.9, 22.5, 1e-3, 2), (2.5, 15.3, 4.1, 1e-5, 0), (1.6, 5.9, 4.2, 1e-5, 1)],
)
@thinned(one_in=2)
def test_the_claims_hold_for_oscillations(alpha: float, rate: float, end: float, rtol: float, k: int):
    """Growing and decaying ones: the error estimate, and its ratio to the tolerance as the documentation defines it."""
    claimed_and_true(alpha, rate, end, rtol, k)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_the_claims_hold_for_random_oscillations(seed: int):
    """Orders from 1 to 3, rates up to 50, intervals up to 25."""
    rng = np.random.default_rng(seed)
    alpha, end = rng.uniform(1.01, 2.99), rng.uniform(1.0, 25.0)
    rate, rtol = 50.0 ** rng.uniform(), 10.0 ** rng.uniform(-6.0, -3.0)
    claimed_and_true(alpha, rate, end, rtol, int(rng.integers(math.ceil(alpha))))


def oregonator(t: float, y: Any) -> Any:
    x, z, w = y
    return np.array([77.27 * (z + x * (1 - 8.375e-6 * x - z)), (w - (1 + x) * z) / 77.27, 0.161 * (x - w)])


def test_steps_do_not_depend_on_units():
    """A reaction whose components differ in size by six orders takes the steps that it takes in other units."""
    steps = []
    for units in (np.ones(3), np.array([1e4, 1.0, 1e3])):
        result = hf.solve_fode(
            lambda t, y, units=units: oregonator(t, y * units) / units,
            (0.0, 26.0),
            np.array([1.0, 2.0, 3.0]) / units,
            0.95,
            method="adaptive_local",
            rtol=1e-6,
            atol=1e-6 / units,
            compile=False,
        )
        assert result.success and result.y[0].max() * units[0] > 1e5
        steps.append(result.stats["steps"])
    assert 0.8 < steps[0] / steps[1] < 1.25


def test_time_is_counted_from_the_start():
    """A start at t0 = 1000 has the tiny first steps of one at 0, and gives the same solution."""
    here = hf.solve_fode(lambda t, y: -y, (0.0, 1.0), [1.0], 0.3, rtol=1e-8, atol=1e-11)
    there = hf.solve_fode(lambda t, y: -y, (1000.0, 1001.0), [1.0], 0.3, rtol=1e-8, atol=1e-11)
    assert here.stats["steps"] == there.stats["steps"]
    assert there.y[0, -1] == pytest.approx(here.y[0, -1], rel=1e-13)
    assert here.t[1] < 1e-12


@pytest.mark.parametrize("stiff", [False, True])
@pytest.mark.parametrize("alpha", [0.03, 0.06])
def test_the_estimate_covers_the_times_between_the_steps(alpha: float, stiff: bool):
    """For small orders the error is much larger there than at the steps, where the polynomials meet the solution."""
    rate, rtol = -1.8 if stiff else -0.05, 1e-4

    def exact(t: Any) -> Any:
        z = rate * t**alpha
        source = gamma(3.0) * t ** (alpha + 2.0) * mittag_leffler(z, alpha, alpha + 3.0)
        return 0.7 * mittag_leffler(z, alpha) + 1.3 * source

    result = hf.solve_fode(
        lambda t, y: rate * y + 1.3 * t**2, (0.0, 2.0), [0.7], alpha, rtol=rtol, atol=1e-7, dense_output=True
    )
    assert bool(result.stats["switches"]) == stiff
    between = (result.t[-26:-1, None] + np.diff(result.t[-26:])[:, None] * [0.3, 0.6]).reshape(-1)
    errors = np.abs(result.sol(between)[0] - exact(between))
    assert errors.max() < 2.0 * result.error_estimate
    assert np.all(errors < 1e-7 + rtol * np.abs(exact(between)))
    asked = hf.solve_fode(
        lambda t, y: rate * y + 1.3 * t**2, (0.0, 2.0), [0.7], alpha, rtol=rtol, atol=1e-7, t_eval=between
    )
    assert np.abs(asked.y[0] - exact(between)).max() < 2.0 * asked.error_estimate


def test_dense_output_is_the_solution_everywhere():
    """sol(t) agrees with t_eval and with the exact solution, also where y behaves like t^alpha."""
    t = np.concatenate([[0.0], np.geomspace(1e-9, 10.0, 60)])
    exact = mittag_leffler(-(t**0.4), 0.4)
    result = hf.solve_fode(lambda t, y: -y, (0.0, 10.0), [1.0], 0.4, rtol=1e-7, atol=1e-10, dense_output=True, t_eval=t)
    assert np.max(np.abs(result.y[0] - exact)) < 1e-7
    assert result.sol(t)[0] == pytest.approx(result.y[0], rel=1e-9)
    assert result.sol(np.full((2, 3), 1.0)).shape == (1, 2, 3)
    assert (result.sol.t_min, result.sol.t_max) == (0.0, 10.0)
    with pytest.raises(hf.errors.InvalidInputError, match="known from 0 to 10"):
        result.sol(10.5)


def test_events_end_the_solve_where_they_happen():
    """A terminal event is found between steps to many digits, and the solution ends there."""

    def half(t: float, y: Any) -> float:
        return float(y[0] - 0.5)

    half.terminal = True  # type: ignore[attr-defined]
    result = hf.solve_fode(lambda t, y: -y, (0.0, 10.0), [1.0], 0.5, events=half, rtol=1e-9, atol=1e-12)
    assert result.status == 1
    assert result.t[-1] == result.t_events[0][0]
    assert mittag_leffler(-np.sqrt(result.t[-1]), 0.5) == pytest.approx(0.5, abs=1e-9)
    assert result.y[0, -1] == pytest.approx(0.5, abs=1e-12)


def test_batches_complex_numbers_and_orders_of_their_own():
    """A batch, complex values and one order for each component in one call agree with each solved alone."""
    rates = np.array([[1.0, 2.0 + 1.0j], [0.5, 1.0 - 1.0j]])
    y0 = np.array([[1.0, 1.0j], [2.0, 1.0]])
    orders = np.array([0.5, 0.8])
    result = hf.solve_fode(lambda t, y: -rates * y, (0.0, 2.0), y0, orders, rtol=1e-8, atol=1e-11)
    assert result.y.shape[:2] == (2, 2)
    for i in range(2):
        for j in range(2):
            exact = y0[i, j] * mittag_leffler(-rates[i, j] * 2.0 ** orders[j], orders[j])
            assert abs(result.y[i, j, -1] - exact) < 1e-7


def test_a_long_run_keeps_little():
    """To t = 4000, through 10 oscillations of the load, with a t_eval: no more memory than to t = 1000.

    In NumPy: what a compiler takes is not what is counted here, and it takes minutes while memory is traced.
    """
    peaks = {}
    for end, rtol in ((1e3, 1e-3), (4e3, 1e-3)):
        t = np.linspace(0.0, end, 11)
        tracemalloc.start()
        result = hf.solve_fode(
            lambda t, y: math.cos(0.015 * t) - y,
            (0.0, end),
            [0.0],
            0.7,
            t_eval=t,
            rtol=rtol,
            atol=1e-6,
            method="adaptive_local",
            backend="numpy",
        )
        peaks[end] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert result.success
        steps = result.stats["steps"]
    assert steps > 200
    assert peaks[4e3] < 1.3 * peaks[1e3]
    assert peaks[4e3] < 1.5e6


def test_stiff_equations_change_to_newton_and_are_quick():
    """A rate of 1e6 is noticed, solved by Newton's method, and takes no more steps than its solution has scales."""
    options = {"rtol": 1e-4, "atol": 1e-7, "method": "adaptive"}
    result = hf.solve_fode(lambda t, y: -1e6 * (y - math.cos(t)), (0.0, 5.0), [1.0], 1.0, **options)
    assert result.success and result.stats["switches"] >= 1 and result.njev >= 1
    assert result.nfev < 4000
    assert result.y[0, -1] == pytest.approx(math.cos(5.0), abs=1e-4)


def test_riemann_liouville_with_vanishing_data_is_caputo():
    """Zero initial data make the two derivatives one."""
    options = {"rtol": 1e-7, "atol": 1e-9, "method": "adaptive", "backend": "numpy"}
    pair = [
        hf.solve_fode(lambda t, y: 1.0 - y, (0.0, 1.0), [0.0], 0.6, derivative=kind, **options)
        for kind in ("caputo", "riemann_liouville")
    ]
    assert np.array_equal(pair[0].y, pair[1].y)


def test_riemann_liouville_above_one_starts_with_a_power():
    """D^1.5 y = 0 with D^0.5 y(0) = 1 is the power t^0.5 / Gamma(1.5)."""
    result = hf.solve_fode(
        lambda t, y: 0.0 * y, (0.0, 2.0), [0.0], 1.5, dy0=[[1.0]], derivative="riemann_liouville", method="adaptive"
    )
    assert result.y[0, -1] == pytest.approx(math.sqrt(2.0) / math.gamma(1.5), rel=1e-12)


@pytest.mark.parametrize("alpha", [0.01, 0.005])
@thinned(lambda alpha: alpha == 0.01)
def test_orders_near_zero_are_solved_or_refused(alpha: float):
    """Steps of 1e-290 and less are asked for there: an answer in words where they cannot be taken."""
    found = hf.solve_fode(lambda t, y: -y, (0.0, 1.0), [1.0], alpha, rtol=1e-4)
    if found.success:
        assert abs(found.y[0, -1] - mittag_leffler(-1.0, alpha)) < 1e-4
    else:
        assert "cannot be reached" in found.message


def test_the_error_of_one_component_is_not_lost_among_many():
    """The tolerance holds for each component, also where a thousand others rest."""

    def fun(t: float, y: Any) -> Any:
        value = np.zeros_like(y)
        value[0], value[1] = y[1], -9.0 * y[0]
        return value

    start = np.zeros(1000)
    start[0] = 1.0
    found = hf.solve_fode(fun, (0.0, 10.0), start, 1.0, rtol=1e-4, atol=1e-4)
    assert found.success
    assert np.max(np.abs(found.y[0] - np.cos(3.0 * found.t))) < 2e-4


@pytest.mark.parametrize("alpha", [0.35, 0.9])
def test_between_the_steps_of_a_stiff_equation_the_tolerance_holds_too(alpha: float):
    """Where steps could be long because their own errors are damped, or because the right-hand side is constant."""
    gamma = math.gamma
    cases = (
        (lambda t, y: gamma(alpha + 1.0) - 0.5 * (y**2 - (1.0 + t**alpha) ** 2), lambda t: 1.0 + t**alpha, 50.0),
        (
            lambda t, y: gamma(2.3) / gamma(2.3 - alpha) * t ** (1.3 - alpha) - 1e4 * (y - 1.0 - t**1.3),
            lambda t: 1.0 + t**1.3,
            10.0,
        ),
    )
    for fun, exact, end in cases:
        t = np.linspace(0.01, 1.0, 200) * end
        found = hf.solve_fode(fun, (0.0, end), [1.0], alpha, rtol=1e-6, atol=1e-6, t_eval=t)
        assert found.success and found.stats["switches"]
        assert np.max(np.abs(found.y[0] - exact(t)) / (1e-6 + 1e-6 * exact(t))) < 3.0


@pytest.mark.parametrize("compiled", [False, True])
def test_the_estimate_of_a_rotation_is_stable(compiled: bool):
    """The estimate was 1.8e49 at an error of 3e-13, because its own propagation was not stable."""
    if compiled:
        pytest.importorskip("numba")

    def rotation(t: float, y: Any) -> Any:
        return np.array([-1e3 * y[1], 1e3 * y[0]])

    result = hf.solve_fode(rotation, (0.0, 0.3), [1.0, 0.0], 0.95, compile=compiled)
    exact = hf.mittag_leffler(1e3j * result.t**0.95, 0.95)
    error = max(np.abs(result.y[0] - exact.real).max(), np.abs(result.y[1] - exact.imag).max())
    assert result.success and result.stats["passes"] == 1
    assert error / 3.0 < result.error_estimate < 30.0 * error


@pytest.mark.parametrize("end", [4e3, pytest.param(1e4, marks=pytest.mark.slow)])
def test_robertson_at_order_one(end: float):
    """It took 12,000 steps in six passes to an error 1,000 times too small, and was called chaotic."""

    def reaction(t: float, y: Any) -> Any:
        a, b, c = y
        return np.array([-0.04 * a + 1e4 * b * c, 0.04 * a - 1e4 * b * c - 3e7 * b * b, 3e7 * b * b])

    result = hf.solve_fode(reaction, (0.0, end), [1.0, 0.0, 0.0], 1.0, rtol=1e-5)
    reference = solve_ivp(
        reaction, (0.0, end), [1.0, 0.0, 0.0], method="Radau", rtol=1e-10, atol=1e-13, t_eval=result.t
    )
    error = np.abs(result.y - reference.y).max()
    assert result.success and result.stats["steps"] < 3000 and error < 1e-5
    assert error / 3.0 < result.error_estimate < 10.0 * error


@pytest.mark.parametrize(("alpha", "rtol"), [(0.5, 1e-7), (0.7, 1e-10), (1.0, 1e-8), (1.5, 1e-6)])
def test_a_jump_at_a_tight_tolerance_is_passed(alpha: float, rtol: float):
    """Steps shrank to rounding there, and the solve ended; the error was up to 200 times the estimate."""
    given = {"dy0": [[0.0]]} if alpha > 1.0 else {}
    result = hf.solve_fode(
        lambda t, y: -y + (1.0 if t >= 1.0 else 0.0), (0.0, 3.0), [1.0], alpha, rtol=rtol, atol=1e-3 * rtol, **given
    )
    tau = np.maximum(result.t - 1.0, 0.0)
    exact = mittag_leffler(-(result.t**alpha), alpha) + tau**alpha * mittag_leffler(-(tau**alpha), alpha, alpha + 1.0)
    error = np.abs(result.y[0] - exact).max()
    assert result.success and result.t[-1] == 3.0 and error < 10.0 * rtol
    assert error < 3.0 * result.error_estimate


@pytest.mark.parametrize(("alpha", "rtol", "height"), [(0.61, 2e-5, 0.005), (0.66, 7e-4, 0.038), (0.73, 1e-4, -0.015)])
def test_a_jump_no_larger_than_other_changes_is_found(alpha: float, rtol: float, height: float):
    """Steps were long there, and one that crossed the jump was accepted: the error was ten times the estimate."""
    result = hf.solve_fode(
        lambda t, y: -0.35 * y + (height if t >= 0.77 else 0.0), (0.0, 1.2), [1.0], alpha, rtol=rtol, atol=1e-3 * rtol
    )
    tau = np.maximum(result.t - 0.77, 0.0)
    exact = mittag_leffler(-0.35 * result.t**alpha, alpha)
    exact = exact + height * tau**alpha * mittag_leffler(-0.35 * tau**alpha, alpha, alpha + 1.0)
    error = np.abs(result.y[0] - exact).max()
    assert result.success and error < 2.0 * rtol and error < 3.0 * result.error_estimate


def test_a_jump_that_rounding_hides_is_named():
    result = hf.solve_fode(lambda t, y: -y + (1.0 if t >= 1.0 else 0.0), (0.0, 1.5), [1.0], 0.3, rtol=1e-9, atol=1e-12)
    assert not result.success and "jumps near t = 1," in result.message and result.t[-1] == 1.5


@pytest.mark.parametrize(("alpha", "lower", "rtol"), [(1.134, 0.3753, 8e-5), (1.158, 0.777, 1.6e-8)])
def test_what_only_looks_like_a_jump_does_not_end_the_solve(alpha: float, lower: float, rtol: float):
    """``y = t + t^3``: near t0 values rise out of rounding while steps double; first steps are too short later."""

    def fun(t: float, y: Any) -> Any:
        rest = t ** (1.0 - lower) / gamma(2.0 - lower) + 6.0 / gamma(4.0 - lower) * t ** (3.0 - lower)
        return [6.0 / gamma(4.0 - alpha) * t ** (3.0 - alpha) + 0.7 * rest + t + t**3 - y[0]]

    found = hf.solve_fode(fun, (0.0, 1.0), [0.0], alpha, dy0=[[1.0]], terms=[(0.7, lower)], rtol=rtol, atol=1e-3 * rtol)
    assert found.success, found.message
    assert np.max(np.abs(found.y[0] - found.t - found.t**3)) < min(2.0 * rtol, found.error_estimate)

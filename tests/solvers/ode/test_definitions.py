"""Equations with other derivatives than Caputo's, beside their closed forms."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pytest
from scipy.special import gammainc

import hpfracc as hf
from hpfracc.errors import InvalidInputError, UnsupportedDtypeError
from hpfracc.special import mittag_leffler

ALPHA, RATE = 0.6, 2.0


def _decay(t: Any, y: Any) -> Any:
    return -RATE * y


def _pulled(t: Any, y: Any) -> Any:
    """0 at t = 0 and y = 3, as bounded kernels need."""
    return -RATE * (y - 3.0) + 0.7 * t


def _hadamard(t: Any) -> Any:
    return mittag_leffler(-RATE * np.log(t / 0.5) ** ALPHA, ALPHA)


def _psi(t: Any) -> Any:
    return mittag_leffler(-RATE * (np.square(t) - 0.25) ** ALPHA, ALPHA)


def _tempered(t: Any) -> Any:
    return np.exp(-0.5 * (t - 0.5)) * mittag_leffler(-RATE * (t - 0.5) ** ALPHA, ALPHA)


def _fabrizio(t: Any, share: float = 1.0 - ALPHA, factor: float = ALPHA) -> Any:
    """(1 + a k) u' = a q + b q t - b k u."""
    slow = factor * RATE / (1.0 + share * RATE)
    slope = 0.7 / RATE
    level = (share * 0.7 / (1.0 + share * RATE) - slope) / slow
    return 3.0 + level + slope * t - level * np.exp(-slow * t)


def _baleanu(t: Any) -> Any:
    share, top = 1.0 - ALPHA, 0.7 / (1.0 + (1.0 - ALPHA) * RATE)
    z = -ALPHA * RATE / (1.0 + share * RATE) * np.asarray(t) ** ALPHA
    first = share * t * mittag_leffler(z, ALPHA, 2.0)
    return 3.0 + top * (first + ALPHA * t ** (1.0 + ALPHA) * mittag_leffler(z, ALPHA, 2.0 + ALPHA))


CASES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "caputo_hadamard": (_decay, _hadamard, {}),
    "psi_caputo": (_decay, _psi, {"psi": np.square}),
    "tempered_caputo": (_decay, _tempered, {"rate": 0.5}),
    "caputo_fabrizio": (_pulled, _fabrizio, {}),
    "atangana_baleanu": (_pulled, _baleanu, {}),
}


def _solve(name: str, **options: Any) -> Any:
    fun, _, more = CASES[name]
    start = 0.0 if fun is _pulled else 0.5
    y0 = [3.0] if fun is _pulled else [1.0]
    return hf.solve_fode(fun, (start, 3.0), y0, ALPHA, derivative=name, **more, **options)


@pytest.mark.parametrize("rtol", [1e-4, 1e-8])
@pytest.mark.parametrize("name", CASES)
def test_each_meets_the_tolerance(name: str, rtol: float):
    """With t_eval, the solution is the closed form within the tolerance, and within the estimate."""
    t = np.linspace(0.5, 3.0, 7)
    found = _solve(name, t_eval=t, rtol=rtol, atol=1e-2 * rtol)
    exact = CASES[name][1](t)
    error = np.abs(found.y[0] - exact).max()
    assert found.success and np.array_equal(found.t, t)
    assert error < 3.0 * rtol * np.abs(exact).max()
    assert error <= 3.0 * found.error_estimate < 100.0 * rtol * np.abs(exact).max()


@pytest.mark.parametrize("name", CASES)
def test_events_dense_output_and_steps_in_the_users_time(name: str):
    """A terminal event, sol(t) at scalars and arrays, and the steps themselves are in t and y."""
    level = float(CASES[name][1](np.array(2.0)))

    def crossed(t: float, y: Any, shift: float) -> float:
        return float(y[0]) - level + shift

    crossed.terminal = True  # type: ignore[attr-defined]
    fun, exact, more = CASES[name]
    start, y0 = (0.0, [3.0]) if fun is _pulled else (0.5, [1.0])
    found = hf.solve_fode(
        lambda t, y, shift: fun(t, y), (start, 3.0), y0, ALPHA, derivative=name, events=crossed, args=(0.0,),
        dense_output=True, rtol=1e-7, **more,
    )  # fmt: skip
    assert found.status == 1 and found.t_events[0] == pytest.approx([2.0], abs=1e-5)
    assert found.y_events[0] == pytest.approx(np.array([[level]]), abs=1e-6)
    assert found.t[0] == start and found.t[-1] == pytest.approx(2.0, abs=1e-5)
    assert found.y[0] == pytest.approx(exact(found.t), abs=1e-5)
    times = np.array([[0.8, 1.1], [1.5, 1.9]])
    assert found.sol(times).shape == (1, 2, 2)
    assert found.sol(times)[0] == pytest.approx(exact(times), abs=1e-5)
    assert found.sol(1.5) == pytest.approx([float(exact(np.array(1.5)))], abs=1e-5)


@pytest.mark.parametrize("name", ["caputo_hadamard", "psi_caputo", "caputo_fabrizio", "atangana_baleanu"])
def test_a_fixed_step_has_an_estimate_that_holds(name: str):
    """Equal steps (in log t or psi) are accurate to their order, and the estimate holds."""
    found = [_solve(name, step=0.05 / k, estimate=True, method="implicit_trapezoid") for k in (1, 2, 4)]
    errors = [float(np.abs(each.y[0] - CASES[name][1](each.t)).max()) for each in found]
    assert errors[0] > 2.0 * errors[1] > 4.0 * errors[2]
    assert all(error <= 3.0 * each.error_estimate for error, each in zip(errors, found, strict=True))


def test_a_tempered_equation_with_a_step_says_that_it_has_no_estimate():
    """The largest error of exp(rate t) y says little about that of y."""
    found = _solve("tempered_caputo", step=0.01)
    assert math.isnan(found.error_estimate) and "no error estimate" in found.decision.notes[-1]
    assert found.y[0] == pytest.approx(CASES["tempered_caputo"][1](found.t), abs=2e-3)


@pytest.mark.parametrize("rate", [0.0, 60.0])
def test_a_tempered_solution_that_does_not_decay(rate: float):
    """y = 1 + exp(-rate t) E(-k t^alpha), whose factor exp(rate t) reaches exp(240), keeps its digits at the end."""

    def fun(t: float, y: Any) -> Any:
        return -RATE * (y - 1.0) + rate**ALPHA * gammainc(1.0 - ALPHA, rate * t)

    found = hf.solve_fode(fun, (0.0, 4.0), [2.0], ALPHA, derivative="tempered_caputo", rate=rate, rtol=1e-5)
    exact = 1.0 + np.exp(-rate * found.t) * mittag_leffler(-RATE * found.t**ALPHA, ALPHA)
    error = np.abs(found.y[0] - exact).max()
    assert found.success and error < 5e-5 and error <= 3.0 * found.error_estimate


@pytest.mark.parametrize("method", ["adaptive", "adaptive_local"])
@pytest.mark.parametrize("alpha", [0.3, 0.5, 1.0, 1.5])
def test_a_fast_tempered_kernel_costs_few_steps(alpha: float, method: Any):
    """At a rate of 1e5 the solution is 1/(rate^alpha + 1) after a layer that is resolved."""
    more = {"dy0": [[0.0]]} if alpha > 1.0 else {}
    found = hf.solve_fode(
        lambda t, y: 1.0 - y, (0.0, 1.0), [1.0], alpha, derivative="tempered_caputo", rate=1e5, method=method, **more
    )
    assert found.success and found.stats["steps"] < 500
    assert found.y[0, -1] == pytest.approx(1.0 / (1.0 + 1e5**alpha), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(("alpha", "rate", "end"), [(0.5, 1.0, 1e3), (0.8, 100.0, 100.0)])
@pytest.mark.parametrize("rtol", [1e-4, 1e-6])
def test_a_neutral_tempered_equation(alpha: float, rate: float, end: float, rtol: float):
    """D y = rate^alpha y keeps every error: exp(-x) E(x^alpha), x = rate t, stays at 1/alpha after the layer.

    Its steps become thousands of times as long as the memory, and each is solved as exactly as its errors last.
    """

    def fun(t: float, y: Any) -> Any:
        return rate**alpha * y

    found = hf.solve_fode(
        fun, (0.0, end), [1.0], alpha, derivative="tempered_caputo", rate=rate, rtol=rtol, atol=0.1 * rtol
    )
    x = np.minimum(rate * found.t, 60.0)
    error = np.abs(found.y[0] - np.where(x < 60.0, np.exp(-x) * mittag_leffler(x**alpha, alpha), 1.0 / alpha)).max()
    assert found.success and found.stats["steps"] < 250
    assert error <= found.error_estimate < rtol / alpha


@pytest.mark.parametrize("rate", [1e-12, 7.0, 1e5])
def test_the_layer_of_a_tempered_kernel(rate: float):
    """exp(-rate t) E(-t^alpha) is found at all times, at dense output and at an event."""

    def half(t: float, y: Any) -> float:
        return float(y[0]) - 0.5

    found = hf.solve_fode(
        lambda t, y: -y, (0.0, 2.0), [1.0], ALPHA, derivative="tempered_caputo", rate=rate, dense_output=True,
        events=half, rtol=1e-8, atol=1e-11,
    )  # fmt: skip

    def exact(t: Any) -> Any:
        return np.exp(-rate * t) * mittag_leffler(-(np.asarray(t) ** ALPHA), ALPHA)

    error = np.abs(found.y[0] - exact(found.t)).max()
    assert error < 2e-8 and error <= 3.0 * found.error_estimate
    times = np.geomspace(1e-9, 2.0, 200)
    assert found.sol(times)[0] == pytest.approx(exact(times), abs=2e-8)
    assert float(exact(found.t_events[0][0])) == pytest.approx(0.5, abs=1e-7)


def test_orders_above_one_and_further_terms():
    """Initial derivatives are in psi, or in t for the tempered one; further terms have the same kind of derivative."""
    found = hf.solve_fode(lambda t, y: -y, (1.0, 5.0), [1.0], 1.6, dy0=[[0.5]], derivative="caputo_hadamard", rtol=1e-7)
    x = np.log(found.t)
    exact = mittag_leffler(-(x**1.6), 1.6) + 0.5 * x * mittag_leffler(-(x**1.6), 1.6, 2.0)
    assert found.y[0] == pytest.approx(exact, abs=1e-5)
    found = hf.solve_fode(
        lambda t, y: -y, (0.0, 5.0), [1.0], 1.6, dy0=[[0.5]], derivative="tempered_caputo", rate=0.3, rtol=1e-7
    )
    x = found.t
    exact = mittag_leffler(-(x**1.6), 1.6) + 0.8 * x * mittag_leffler(-(x**1.6), 1.6, 2.0)
    assert found.y[0] == pytest.approx(exact * np.exp(-0.3 * x), abs=1e-5)
    terms = {"terms": [(lambda t: t**2, 0.5)], "dy0": [[1.0]]}  # y = x: x'' + t^2 D^0.5 x with x = log t
    found = hf.solve_fode(
        lambda t, y: t**2 * math.log(t) ** 0.5 / math.gamma(1.5) + 0.0 * y, (1.0, 3.0), [0.0], 1.5,
        derivative="caputo_hadamard", rtol=1e-7, **terms,
    )  # fmt: skip
    assert found.y[0] == pytest.approx(np.log(found.t), abs=1e-5)


def test_breakpoints_are_met_exactly_in_the_users_time():
    """The right-hand side is never called across a breakpoint, and the jump is resolved."""
    place, seen = 1.7, []

    def fun(t: float, y: Any) -> Any:
        seen.append(t)
        return np.array([0.0 if t < place else 1.0])

    found = hf.solve_fode(
        fun, (1.0, 4.0), [0.0], 0.5, derivative="caputo_hadamard", breakpoints=[place], max_step=0.2, rtol=1e-7
    )
    exact = np.maximum(np.log(found.t / place), 0.0) ** 0.5 / math.gamma(1.5)
    assert found.y[0] == pytest.approx(exact, abs=1e-6) and place in seen
    assert found.stats["steps"] < 300


def test_systems_batches_orders_and_normalisations():
    """Several orders of the derivative of Caputo and Fabrizio, of a batch, with its M(alpha) and the Jacobian."""

    def fun(t: float, y: Any) -> Any:
        return -RATE * (y - 3.0) + 0.7 * t

    orders = np.array([ALPHA, 0.8])
    found = hf.solve_fode(
        fun, (0.0, 2.0), np.full((3, 2), 3.0), orders, derivative="caputo_fabrizio", rtol=1e-7,
        normalisation=lambda a: 2.0 - a, jac=lambda t, y: np.broadcast_to(-RATE * np.eye(2), (3, 2, 2)),
    )  # fmt: skip
    for k, order in enumerate(orders):
        exact = _fabrizio(found.t, (1.0 - order) / (2.0 - order), order / (2.0 - order))
        assert found.y[1, k] == pytest.approx(exact, abs=1e-6)


def test_a_nonlinear_bounded_kernel_against_its_own_derivative():
    """The Atangana-Baleanu derivative of the solution, by the operator, is the right-hand side."""

    def fun(t: float, y: Any) -> Any:
        return y * (1.0 - y) + np.sin(t)

    found = hf.solve_fode(fun, (0.0, 3.0), [1.0], 0.7, derivative="atangana_baleanu", t_eval=np.linspace(0, 3, 601))
    left = hf.atangana_baleanu(found.y[0], found.t, 0.7)
    assert left == pytest.approx(fun(found.t, found.y[0]), abs=2e-4)


def test_a_branch_that_ends_is_told():
    """y - (1 - alpha) y^2 = v has no solution above 1/(4 (1 - alpha)): the solve ends with the reason."""
    found = hf.solve_fode(lambda t, y: y**2 + t, (0.0, 20.0), [0.0], 0.5, derivative="caputo_fabrizio", rtol=1e-5)
    assert not found.success and "no solution y near" in found.message


def test_tolerances_hold_where_y_is_more_sensitive_than_its_state():
    """With 1 - (1 - alpha) f_y = 0.05, errors of the state grow twentyfold, and the tolerance still holds."""
    share, rate = 0.5, 1.9

    def fun(t: float, y: Any) -> Any:
        return rate * y + t

    found = hf.solve_fode(fun, (0.0, 0.2), [0.0], 0.5, derivative="caputo_fabrizio", rtol=1e-6, atol=1e-12)
    speed, top = 0.5 * rate / (1.0 - share * rate), 1.0 / (1.0 - share * rate)
    level = (share * top + 0.5 * top / speed) / speed  # (1 - a r) u' = a + b t + b r u
    exact = level * np.exp(speed * found.t) - 0.5 * top / speed * found.t - level
    error = np.abs(found.y[0] - exact).max()
    assert found.success and error < 3e-6 * np.abs(exact).max() and error <= 3.0 * found.error_estimate


def test_tempered_equations_with_numba():
    """Steps around the right-hand side are compiled where that is asked for."""
    pytest.importorskip("numba")
    found = _solve("tempered_caputo", backend="numba")
    assert found.y[0] == pytest.approx(_tempered(found.t), abs=1e-5)


def test_solutions_can_be_pickled():
    """Those that need no function of the user stay callable; others say what is missing."""
    found = pickle.loads(pickle.dumps(_solve("caputo_hadamard", dense_output=True)))
    assert found.sol(2.0) == pytest.approx([float(_hadamard(2.0))], abs=1e-5)
    found = pickle.loads(pickle.dumps(_solve("psi_caputo", dense_output=True)))
    with pytest.raises(InvalidInputError, match="pickled"):
        found.sol(2.0)


def test_explanations_and_fdeint():
    """The method is explained, and fdeint takes the same words."""
    assert "adaptive" in str(hf.explain(hf.solve_fode, _decay, (1.0, 2.0), [1.0], 0.5, derivative="caputo_hadamard"))
    t = np.array([0.5, 1.0, 2.0])
    assert hf.fdeint(_decay, [1.0], t, ALPHA, derivative="caputo_hadamard")[:, 0] == pytest.approx(
        _hadamard(t), abs=1e-5
    )


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"derivative": "hadamard"}, "did you mean 'caputo_hadamard'"),
        ({"derivative": "caputo_hadamard"}, "needs t0 > 0"),
        ({"derivative": "psi_caputo"}, "needs psi="),
        ({"derivative": "psi_caputo", "psi": np.cos}, "increase"),
        ({"derivative": "psi_caputo", "psi": np.square, "inverse": np.exp}, "inverse of psi"),
        ({"derivative": "psi_caputo", "psi": 3.0}, "not a function"),
        ({"derivative": "psi_caputo", "psi": lambda t: np.exp(700.0 * t)}, "divide psi by a constant"),
        ({"derivative": "tempered_caputo"}, "needs rate="),
        ({"derivative": "tempered_caputo", "rate": -1.0}, "at least 0"),
        (
            {"derivative": "tempered_caputo", "rate": 500.0, "step": 0.01},
            "use adaptive steps, or shorten t_span to 0.6",
        ),
        ({"derivative": "caputo_fabrizio"}, "no solution starts at y0. Give a y0"),
        ({"derivative": "atangana_baleanu", "alpha": 1.0}, "0 < alpha < 1"),
        ({"derivative": "atangana_baleanu", "normalisation": 0.0}, "above 0"),
        ({"derivative": "atangana_baleanu", "terms": [(1.0, 0.2)]}, "omit terms"),
        ({"derivative": "tempered_caputo", "rate": 1.0, "delays": [0.5], "history": 1.0}, "no delays"),
        ({"derivative": "tempered_caputo", "rate": 1.0, "alpha": lambda t: 0.5}, "constant orders"),
        ({"derivative": "tempered_caputo", "rate": 1.0, "compile": True}, "not compiled"),
        ({"rate": 1.0}, "belongs to derivative='tempered_caputo'"),
        ({"derivative": "riemann_liouville", "psi": np.log}, "belongs to derivative='psi_caputo'"),
    ],
)
def test_what_a_definition_cannot_do(options: dict[str, Any], complaint: str):
    """It is refused before the first step, in words."""
    given = {"alpha": 0.5} | options
    with pytest.raises(InvalidInputError, match=complaint):
        hf.solve_fode(_decay, (0.0, 1.0), [1.0], **given)


def test_tensors_are_refused():
    """Gradients are for Caputo's derivative."""
    torch = pytest.importorskip("torch")
    with pytest.raises(InvalidInputError, match="NumPy arrays"):
        hf.solve_fode(_decay, (1.0, 2.0), torch.ones(1), 0.5, derivative="caputo_hadamard")


def test_dense_output_ends_in_the_times_of_the_equation():
    """At a terminal event too, which is one of log t inside; further terms are states inside that."""

    def half(t: float, y: Any) -> Any:
        return y[0] - 0.5

    half.terminal = True  # type: ignore[attr-defined]
    found = hf.solve_fode(
        _decay,
        (2.0, 40.0),
        [1.0],
        0.9,
        derivative="caputo_hadamard",
        terms=[(0.5, 0.2)],
        events=half,
        dense_output=True,
    )
    assert (found.sol.t_min, found.sol.t_max) == (2.0, pytest.approx(found.t[-1], rel=1e-14))
    assert found.sol(found.t[-1]) == pytest.approx(0.5, abs=1e-12)
    with pytest.raises(InvalidInputError, match=rf"known from 2 to {found.t[-1]:g}, not at 20 to 20"):
        found.sol(20.0)
    with pytest.raises(UnsupportedDtypeError, match="t='late'"):
        found.sol("late")

"""Every wrong question is a typed error that says what to do; what goes wrong on the way is told in the result."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.errors import BackendUnavailableError, InvalidInputError, ShapeError, SolveError, UnsupportedDtypeError
from hpfracc.solvers.ode import PECE


def decay(t: float, y: Any) -> Any:
    return -y


def solve(fun: Any = decay, t_span: Any = (0.0, 1.0), y0: Any = (1.0,), alpha: Any = 0.5, **options: Any) -> Any:
    return hf.solve_fode(fun, t_span, y0, alpha, **{"step": 0.1, **options})


@pytest.mark.parametrize(
    ("changed", "error", "words"),
    [
        ({"alpha": 0.0}, InvalidInputError, "alpha holds 0.0"),
        ({"y0": np.ma.array([1.0], mask=[True])}, InvalidInputError, "y0 is a masked array"),
        ({"t_eval": np.ma.array([0.5, 1.0], mask=[False, True])}, InvalidInputError, "t_eval is a masked array"),
        ({"y0": np.array([1.0], np.longdouble)}, UnsupportedDtypeError, "double precision; convert it"),
        ({"alpha": -0.5}, InvalidInputError, "above 0"),
        ({"alpha": math.nan}, InvalidInputError, "alpha holds nan"),
        ({"alpha": math.inf}, InvalidInputError, "finite order"),
        ({"alpha": None}, InvalidInputError, "alpha=None"),
        ({"alpha": "half"}, InvalidInputError, "alpha='half'"),
        ({"alpha": 0.5 + 0j}, InvalidInputError, "give real orders"),
        ({"alpha": [0.5, 0.6]}, ShapeError, "one order, or one for each"),
        ({"alpha": lambda t: -t}, InvalidInputError, "alpha\\(0\\)"),
        ({"alpha": lambda t: [0.5, 0.5]}, ShapeError, "one order, or one for each"),
        ({"alpha": lambda t: 0.5 if t in (0.0, 0.5, 1.0) else 2.0}, InvalidInputError, "up to 1"),
        ({"alpha": 1.5}, InvalidInputError, "needs 1 initial derivative beyond y0, and dy0 has 0"),
        ({"alpha": 2.5, "dy0": [[1.0]]}, InvalidInputError, "needs 2 initial derivatives"),
        ({"dy0": [[1.0]]}, InvalidInputError, "leave dy0 out"),
        ({"alpha": 1.5, "dy0": [[1.0, 2.0]]}, ShapeError, "dy0\\[0\\] has shape"),
        ({"y0": [1.0, 1.0], "alpha": [0.5, 1.5], "dy0": [[1.0, 1.0]]}, InvalidInputError, "give 0 there"),
        ({"t_span": (1.0, 0.0)}, InvalidInputError, "low < high"),
        ({"t_span": (1.0, 1.0)}, InvalidInputError, "low < high"),
        ({"t_span": (0.0, math.inf)}, InvalidInputError, "a finite number"),
        ({"t_span": (0.0, 1.0, 2.0)}, InvalidInputError, "pair of numbers"),
        ({"t_span": 3.0}, InvalidInputError, "pair of numbers"),
        ({"y0": [math.nan]}, InvalidInputError, "y0=.* is not finite"),
        ({"y0": []}, ShapeError, "without a component"),
        ({"y0": ["a"]}, UnsupportedDtypeError, "y0=.* is not an array of numbers"),
        ({"y0": [[1.0], [1.0, 2.0]]}, ShapeError, "different lengths"),
        ({"fun": 3.0}, InvalidInputError, "cannot be called"),
        ({"fun": 0.5, "t_span": decay}, InvalidInputError, r"solve_fode\(fun, t_span, y0, alpha\)"),
        ({"t_span": [1.0], "y0": (0.0, 1.0)}, InvalidInputError, r"solve_fode\(fun, t_span, y0, alpha\)"),
        ({"y0": 0.5, "alpha": [1.0, 2.0]}, ShapeError, "y0 and alpha are swapped"),
        ({"alpha": hf.DistributedOrder()}, InvalidInputError, r"not an order.*terms=\[\(coefficient, order\), ...\]"),
        ({"method": "RK45"}, InvalidInputError, "'RK45' is for integer orders; here it is 'adaptive'"),
        ({"alpha": hf.Caputo(0.5)}, InvalidInputError, r"Caputo\(alpha=0.5.*not an order.*derivative="),
        (
            {"events": lambda t, y: y, "y0": [1.0, 2.0]},
            ShapeError,
            r"events\[0\].*returned shape \(2,\).*such as y\[0\]",
        ),
        ({"events": lambda t, y: 1j}, UnsupportedDtypeError, "return a real number"),
        ({"terms": [(1.0, [0.3, 0.5])]}, ShapeError, r"a single order; got \[0.3, 0.5\]"),
        ({"y0": [1.0, 2.0], "alpha": 0.9, "terms": [(np.eye(2), 0.5)]}, ShapeError, r"coefficient of shape \(2, 2\)"),
        (
            {"y0": [1.0, 2.0], "alpha": 0.9, "terms": [(lambda t: np.eye(2), 0.5)]},
            ShapeError,
            r"coefficient of shape \(2, 2\)",
        ),
        ({"jac": 3.0}, InvalidInputError, "jac=3.0"),
        ({"fun": lambda t, y: np.zeros(2)}, ShapeError, "returned shape \\(2,\\)"),
        ({"fun": lambda t, y: 0.0, "y0": [1.0, 2.0]}, ShapeError, "returned shape \\(\\)"),
        ({"fun": lambda t, y: ["a"]}, UnsupportedDtypeError, r"fun\(t, y\)=.* is not an array of numbers"),
        ({"fun": lambda t, y: [[1.0], [1.0, 2.0]]}, ShapeError, "different lengths"),
        ({"fun": lambda t, y: 1j * y}, UnsupportedDtypeError, "give y0 as complex"),
        ({"jac": lambda t, y: np.zeros(1), "method": "bdf2"}, ShapeError, "jac\\(t, y\\) returned"),
        ({"derivative": "weyl"}, InvalidInputError, "derivative='weyl'"),
        ({"method": "pecce"}, InvalidInputError, "did you mean 'pece'"),
        ({"method": "bdf2", "alpha": 0.1}, InvalidInputError, "0.2 or more"),
        ({"method": "bdf2", "step": 0.5}, InvalidInputError, "smaller step"),
        ({"method": "newton_gregory", "alpha": 2.0, "dy0": [[0.0]]}, InvalidInputError, "orders below 2"),
        ({"method": "bdf2", "y0": [1.0] * 3, "alpha": [0.2, 0.25, 0.33]}, InvalidInputError, "have no digits"),
        ({"method": "pece", "alpha": lambda t: 0.5}, InvalidInputError, "variable_order"),
        ({"method": "pece", "derivative": "riemann_liouville"}, InvalidInputError, "is infinite; use"),
        (
            {"method": "variable_order", "alpha": lambda t: 0.5, "derivative": "riemann_liouville"},
            InvalidInputError,
            "Caputo's",
        ),
        ({"method": "variable_order", "alpha": lambda t: 1.5, "dy0": [[0.0]]}, InvalidInputError, "at most 1"),
        ({"method": "variable_order", "alpha": lambda t: 0.5, "compile": True}, InvalidInputError, "not compiled"),
        ({"rtol": 0.0}, InvalidInputError, "rtol=0"),
        ({"rtol": 1e-16}, InvalidInputError, "below what float64 can hold"),
        ({"atol": -1.0}, InvalidInputError, "atol has an entry of -1"),
        ({"atol": [1.0, 2.0]}, ShapeError, "atol has shape"),
        ({"step": 0.0}, InvalidInputError, "step=0"),
        ({"step": math.nan}, InvalidInputError, "step=nan"),
        ({"max_steps": 0}, InvalidInputError, "max_steps=0"),
        ({"t_eval": [0.5, 0.2]}, InvalidInputError, "strictly increasing"),
        ({"t_eval": [0.5, 2.0]}, InvalidInputError, "beyond t_span"),
        ({"t_eval": [[0.5]]}, ShapeError, "an array of 1 axes"),
        ({"t_eval": [0.1, math.nan]}, InvalidInputError, "t_eval"),
        ({"events": 3.0}, InvalidInputError, "events=3.0"),
        ({"events": [3.0]}, InvalidInputError, "events=3.0 is not a function"),
        ({"compile": "yes"}, InvalidInputError, "compile='yes'"),
        ({"progress": "bar"}, InvalidInputError, "progress='bar'"),
        ({"backend": "torch"}, BackendUnavailableError, "give y0 as an array of torch"),
        ({"backend": "numpy", "compile": True}, InvalidInputError, "forbids it"),
    ],
)
def test_a_wrong_question_is_refused(changed: dict[str, Any], error: type[Exception], words: str):
    """Each wrong argument raises its error, and the message names the value and the way out."""
    with pytest.raises(error, match=words):
        solve(**changed)


def test_a_wrong_parameter_of_a_method():
    """A method's own parameters are checked where it is made."""
    with pytest.raises(InvalidInputError, match="corrections=0"):
        PECE(corrections=0)


def test_delays_need_a_history():
    """The problem itself refuses delays without a past."""
    with pytest.raises(InvalidInputError, match="history"):
        hf.solve_fode(decay, (0.0, 1.0), [1.0], 0.5, delays=[0.1])
    with pytest.raises(InvalidInputError, match="above 0"):
        hf.solve_fode(decay, (0.0, 1.0), [1.0], 0.5, delays=[-0.1], history=lambda t: [1.0])
    with pytest.raises(InvalidInputError, match="no delays: give delays="):
        hf.solve_fode(decay, (0.0, 1.0), [1.0], 0.5, history=1.0)


@pytest.mark.parametrize("backend", ["numpy", "numba"])
@pytest.mark.parametrize("method", ["explicit_rectangle", "pece", "implicit_trapezoid", "bdf2"])
def test_a_value_that_is_not_finite_says_where(method: str, backend: str):
    """NaN from t = 0.5 on ends the solve there, with the solution up to it."""

    def fun(t: float, y: Any) -> Any:
        return -y if t < 0.5 else np.full_like(y, np.nan)

    result = solve(fun, method=method, step=0.01, backend=backend, compile=False)
    assert not result.success and result.status == -1
    assert "not finite at t = 0.5:" in result.message
    assert result.t[-1] == pytest.approx(0.49)
    assert np.all(np.isfinite(result.y))


@pytest.mark.parametrize("method", ["explicit_rectangle", "pece", "implicit_trapezoid", "bdf2"])
def test_a_start_that_is_not_finite(method: str):
    """A right-hand side that is infinite at t0 is told there; the implicit rectangle does not ask for it."""

    def fun(t: float, y: Any) -> Any:
        return -y + (t**-0.2 if t > 0.0 else np.inf)

    result = solve(fun, method=method, step=0.01)
    assert not result.success and "at the start, t = 0" in result.message
    assert result.y.shape == (1, 1)
    assert solve(fun, method="implicit_rectangle", step=0.01).success


def test_steps_run_out():
    """``max_steps`` ends a solve with what there is and says how far that is."""
    result = solve(step=0.01, max_steps=30)
    assert not result.success and len(result.t) == 31
    assert "max_steps=30 steps reach t = 0.3 of 1" in result.message


def test_more_steps_than_the_default_limit_are_refused_before_memory_is_taken():
    """A step of 1e-9 needed 2 GiB before ``max_steps`` ended it."""
    with pytest.raises(InvalidInputError, match=r"step=1e-09 takes 1e\+09 steps, and max_steps=10000000"):
        hf.solve_fode(lambda t, y: -y, (0.0, 1.0), [1.0], 0.5, step=1e-9)


@pytest.mark.parametrize("backend", ["numpy", "numba"])
def test_newton_that_does_not_converge(backend: str):
    """A right-hand side without a solution of the implicit equation is told, with advice."""

    def fun(t: float, y: Any) -> Any:
        return np.where(y > 0.9, -1e6, 1e6) * np.ones_like(y)

    result = solve(fun, method="implicit_trapezoid", step=0.1, backend=backend, compile=False)
    assert not result.success
    assert "Newton's method did not converge at t = 0.1" in result.message and "smaller step" in result.message


def test_first_steps_that_do_not_converge():
    """The same for the steps that a multistep method finds together."""

    def fun(t: float, y: Any) -> Any:
        return np.where(y > 0.9, -1e6, 1e6) * np.ones_like(y)

    result = solve(fun, method="bdf2", step=0.1)
    assert not result.success and "first 2 steps" in result.message
    assert result.y.shape == (1, 1)


def test_a_tolerance_that_uniform_steps_cannot_reach():
    """Without a step a fixed-step method says that the tolerance would take too many, and gives its best."""
    result = hf.solve_fode(decay, (0.0, 1.0), [1.0], 0.3, method="pece", rtol=1e-8, max_steps=100_000)
    assert not result.success
    assert "was not reached" in result.message and "max_steps" in result.message
    assert result.y.shape[-1] > 100


def test_an_error_in_the_right_hand_side_is_raised():
    """The user's own exception arrives unchanged, from compiled stepping too."""

    def fun(t: float, y: Any) -> Any:
        raise ZeroDivisionError("mine")

    for backend in ("numpy", "numba"):
        with pytest.raises(ZeroDivisionError, match="mine"):
            solve(fun, backend=backend)


@pytest.mark.parametrize("options", [{"t_eval": [0.5]}, {"events": decay}, {"dense_output": True}])
def test_fdeint_takes_no_such_thing(options: dict[str, Any]):
    """``fdeint`` returns an array and says so."""
    with pytest.raises(InvalidInputError, match="use solve_fode"):
        hf.fdeint(decay, [1.0], [0.0, 1.0], 0.5, **options)


@pytest.mark.parametrize("t", [[0.0], [[0.0, 1.0]], [0.0, 0.0], [0.0, math.nan]])
def test_fdeint_checks_times(t: Any):
    """Times rise, and there are at least two."""
    with pytest.raises(InvalidInputError, match="t ha"):
        hf.fdeint(decay, [1.0], t, 0.5)


def test_fdeint_raises_where_the_solve_stops():
    """No short answer in silence."""
    with pytest.raises(SolveError, match="max_steps=3"):
        hf.fdeint(decay, [1.0], [0.0, 1.0], 0.5, step=0.01, max_steps=3)


@pytest.mark.parametrize(
    "wrong",
    [
        {"events": 3},
        {"t_eval": "soon"},
        {"delays": ["a while"], "history": lambda t: 1.0},
        {"delays": [1.0], "history": "before"},
        {"terms": [(1.0,)]},
        {"terms": [("a", 0.2)]},
        {"alpha": lambda t: "half"},
        {"alpha": lambda t: 0.5 + t},
    ],
    ids=lambda wrong: str(next(iter(wrong))),
)
def test_what_is_no_number_or_function_is_refused_in_words(wrong: dict[str, Any]):
    """With a typed error, before anything is solved."""
    given = {"alpha": 0.5, **wrong}
    with pytest.raises((InvalidInputError, UnsupportedDtypeError)):
        hf.solve_fode(lambda t, y: -y, (0.0, 1.0), [1.0], **given)


@pytest.mark.parametrize("options", [{"step": 0.01}, {"step": 0.01, "method": "implicit_trapezoid"}, {"step": None}])
def test_one_equation_may_return_a_number(options: dict[str, Any]):
    """With d = 1 the right-hand side may return the number itself; the solution is the same to the bit."""
    as_number = solve(lambda t, y: -float(y[0]), backend="numpy", **options)
    as_array = solve(lambda t, y: -y, backend="numpy", **options)
    assert as_number.success
    assert np.array_equal(as_number.y, as_array.y)


def test_times_that_rounding_put_beyond_the_end():
    """``np.arange(0, 0.8, 0.1)`` ends an ulp beyond 0.7, which a user did not mean; more than a few ulps is refused."""
    times = np.arange(0, 0.8, 0.1)
    assert times[-1] > 0.7
    result = solve(t_span=(0.0, 0.7), t_eval=times)
    assert result.success and result.y.shape == (1, len(times)) and result.t[-1] == 0.7
    assert solve(t_span=(0.1, 0.7), t_eval=[np.nextafter(0.1, 0.0), 0.3]).t[0] == 0.1
    with pytest.raises(InvalidInputError, match="beyond t_span"):
        solve(t_span=(0.0, 0.7), t_eval=[0.1, 0.7 + 1e-12])

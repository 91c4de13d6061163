"""The right-hand side is the user's: what it does to its arguments, what it returns, and what it sees around it."""

from __future__ import annotations

import functools
import types
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.engine.selection.rent_or_buy import compile_account
from hpfracc.errors import InvalidInputError, ShapeError, UnsupportedDtypeError
from hpfracc.solvers.ode import all_methods, compilation
from hpfracc.solvers.tensors.programs import same_surroundings, surroundings
from tests.helpers.thinned import thinned

BUFFER = np.empty(2)
FORCING = np.zeros(201)
RATE = 1.0


def plain(t: float, y: Any) -> Any:
    return np.array([y[1] - y[0], -20.0 * y[1]])


def into_one_buffer(t: float, y: Any) -> Any:
    BUFFER[0], BUFFER[1] = y[1] - y[0], -20.0 * y[1]
    return BUFFER


def spoiling_its_argument(t: float, y: Any) -> Any:
    value = plain(t, y)
    y[:] = 7.0
    return value


METHODS = [(each.name, (0.05 if each.implicit else 0.005) if each.fixed else None) for each in all_methods()]


@pytest.mark.parametrize(("method", "step"), METHODS)
@pytest.mark.parametrize("fun", [into_one_buffer, spoiling_its_argument])
@thinned(one_in=3)
def test_a_function_may_use_one_buffer_and_change_its_argument(method: str, step: float | None, fun: Any):
    """Neither changes the solution: what goes in and what comes out is copied."""
    with hf.config(deterministic=True):
        alpha = 1.0 if method == "integer_order" else 0.6
        wanted = hf.solve_fode(plain, (0.0, 1.0), [1.0, 2.0], alpha, method=method, step=step)
        found = hf.solve_fode(fun, (0.0, 1.0), [1.0, 2.0], alpha, method=method, step=step)
    assert found.success
    np.testing.assert_array_equal(found.y, wanted.y)


@pytest.mark.parametrize(("method", "step"), [("adaptive", None), ("pece", 0.001)])
def test_deterministic_solves_repeat_to_the_bit(method: str, step: float | None):
    """However cheap compiling has become by then; asked for, compiled steps are used all the same."""
    with hf.config(deterministic=True):
        first = hf.solve_fode(plain, (0.0, 1.0), [1.0, 2.0], 0.6, method=method, step=step)
        for kind in ("adaptive", "corrected"):
            price = compilation.kernel_price(kind, np.dtype(float))
            price.buy()
            compile_account.credit(price.item, 100.0)
        again = hf.solve_fode(plain, (0.0, 1.0), [1.0, 2.0], 0.6, method=method, step=step)
        np.testing.assert_array_equal(again.y, first.y)
        asked = hf.solve_fode(plain, (0.0, 1.0), [1.0, 2.0], 0.6, method=method, step=step, backend="numba")
        assert asked.success
    np.testing.assert_allclose(asked.y[:, -1], first.y[:, -1], rtol=1e-5)


def test_an_event_and_a_jacobian_may_change_their_argument():
    """They too get copies."""

    def event(t: float, y: Any) -> float:
        value = y[0] - 0.5
        y[:] = 9.0
        return float(value)

    def jac(t: float, y: Any) -> Any:
        y[:] = 9.0
        return np.array([[-1.0, 1.0], [0.0, -20.0]])

    solve = functools.partial(hf.solve_fode, plain, (0.0, 1.0), [1.0, 2.0], 0.6, method="implicit_trapezoid", step=0.05)
    np.testing.assert_allclose(solve(jac=jac, events=event, compile=False).y, solve(compile=False).y, rtol=1e-9)


def switched(t: float, y: Any, rates: Any) -> Any:
    return -rates[0] * y if t < 1.0 else -rates[1] * y


def test_a_compiled_function_sees_an_array_changed_in_place():
    """Also where the change is felt late only."""
    rates = np.array([1.0, 1.0])
    solve = functools.partial(hf.solve_fode, switched, (0.0, 2.0), [1.0], 0.5, step=0.01, method="pece", args=(rates,))
    before = solve(compile=True).y
    rates[1] = 7.0
    after = solve(compile=True).y
    np.testing.assert_allclose(after, solve(compile=False).y, rtol=1e-12)
    assert abs(after - before).max() > 1e-2


def forced(t: float, y: Any) -> Any:
    return -RATE * y + FORCING[0] + helper(t)


def helper(t: float) -> float:
    return t * SETTINGS.scale


SETTINGS = types.ModuleType("settings")
SETTINGS.scale = 1.0  # type: ignore[attr-defined]


def test_surroundings_tell_when_something_changed(monkeypatch: pytest.MonkeyPatch):
    """A rebound global, an array changed in place, a value a helper takes from a module; and undetectable changes."""
    known = surroundings(forced)
    assert known is not None and same_surroundings(known, surroundings(forced))
    with monkeypatch.context() as patch:
        patch.setitem(globals(), "RATE", 3.0)
        assert not same_surroundings(known, surroundings(forced))
    with monkeypatch.context() as patch:
        patch.setattr(SETTINGS, "scale", 2.0)
        assert not same_surroundings(known, surroundings(forced))
    FORCING[0] = 1.0
    assert not same_surroundings(known, surroundings(forced))
    FORCING[0] = 0.0
    assert same_surroundings(known, surroundings(forced))
    state = {"rate": 1.0}
    assert surroundings(lambda t, y: -state["rate"] * y) is None
    assert surroundings(Model()) is None
    assert surroundings(Model().rhs) is None
    assert not same_surroundings(None, None)


def raising(t: float, y: Any) -> Any:
    if t > 1.0:
        raise ValueError("no such time")
    return -y


def outside(t: float, y: Any) -> Any:
    return -y + FORCING[int(t / 0.005 + 0.5)]


@pytest.mark.parametrize(
    ("fun", "error", "method"), [(raising, ValueError, "pece"), (outside, IndexError, "implicit_trapezoid")]
)
def test_what_a_function_raises_is_raised_when_it_is_compiled(
    fun: Any, error: type[Exception], method: str, capfd: Any
):
    """Compiled code can raise nothing: the step is done again in Python, which does."""
    with pytest.raises(error):
        hf.solve_fode(fun, (0.0, 2.0), [1.0], 0.5, step=0.01, method=method, compile=True)
    assert "ignored" not in capfd.readouterr().err


class Model:
    def __call__(self, t: float, y: Any) -> Any:
        return -y

    def rhs(self, t: float, y: Any) -> Any:
        return -y


@pytest.mark.parametrize("fun", [Model(), Model().rhs, functools.partial(switched, rates=(1.0, 1.0))])
def test_what_is_no_plain_function_stays_in_python(fun: Any):
    """An object, a method, a partial: solved as they are, and refused in words where they must be compiled."""
    found = hf.solve_fode(fun, (0.0, 1.0), [1.0], 0.5, step=0.01, backend="numba")
    assert found.success and not found.decision.compiled  # type: ignore[union-attr]
    with pytest.raises(InvalidInputError, match="plain functions"):
        hf.solve_fode(fun, (0.0, 1.0), [1.0], 0.5, step=0.01, compile=True)


def test_values_of_another_kind_are_refused_whenever_they_come():
    """Complex values for a real state, at a late time and in an equation of several terms."""

    def late(t: float, y: Any) -> Any:
        return -y if t < 0.5 else -1j * y

    with pytest.raises(UnsupportedDtypeError, match="complex"):
        hf.solve_fode(late, (0.0, 1.0), [1.0], 0.5)
    with pytest.raises(UnsupportedDtypeError, match="complex"):
        hf.solve_fode(lambda t, y: -1j * y, (0.0, 1.0), [1.0], 1.0, terms=[(1.0, 0.5)])
    with pytest.raises(ShapeError, match="history"):
        hf.solve_fode(lambda t, y, past: -past[0], (0.0, 1.0), [1.0], 0.5, delays=[0.5], history=lambda t: np.zeros(3))
    with pytest.raises(ShapeError, match="jac"):
        hf.solve_fode(lambda t, y: -1e3 * y, (0.0, 1.0), [1.0, 1.0], 0.5, jac=lambda t, y: np.zeros(2))

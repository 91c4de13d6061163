"""Adaptive steps with a compiled right-hand side: the same solution, errors and steps as in Python."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.engine.selection.rent_or_buy import compile_account
from hpfracc.errors import InvalidInputError
from hpfracc.solvers.ode import compilation

pytest.importorskip("numba")


def brusselator(t: float, y: Any) -> Any:
    return np.array([1.0 - 4.0 * y[0] + y[0] ** 2 * y[1], 3.0 * y[0] - y[0] ** 2 * y[1]])


def stiff(t: float, y: Any, rate: float) -> Any:
    return np.array([-rate * (y[0] - y[1]), y[0] - 2.0 * y[1]])


def oscillator(t: float, y: Any) -> Any:
    return -y


def jumping(t: float, y: Any) -> Any:
    return np.array([(1.0 if t < 0.4 else 2.0) - y[0]])


CASES: dict[str, tuple[Any, Any, float, dict[str, Any]]] = {
    "gentle": (brusselator, [1.2, 2.8], 0.8, {}),
    "stiff": (stiff, [1.0, 2.0], 0.6, {"args": (1e3,), "rtol": 1e-4}),
    "two orders": (brusselator, [1.2, 2.8], [0.8, 0.9], {}),
    "above one": (oscillator, [1.0], 1.6, {"dy0": [[0.5]]}),
    "a batch": (oscillator, [[1.0, 2.0], [3.0, -1.0]], 0.7, {"dense_output": True}),
    "a jump": (jumping, [1.0], 0.7, {}),
    "from infinity": (oscillator, [1.0], 0.6, {"derivative": "riemann_liouville"}),
}


@pytest.mark.parametrize("case", CASES)
def test_the_solution_is_that_of_python(case: str):
    """To far below the tolerance, with as many steps and evaluations up to rounding."""
    fun, y0, alpha, options = CASES[case]
    wanted = hf.solve_fode(fun, (0.0, 1.0), y0, alpha, backend="numpy", **options)
    found = hf.solve_fode(fun, (0.0, 1.0), y0, alpha, compile=True, **options)
    assert found.success and found.decision.compiled and not wanted.decision.compiled
    np.testing.assert_allclose(found.y[..., -1], wanted.y[..., -1], rtol=1e-7, atol=1e-9)
    assert found.stats["steps"] == pytest.approx(wanted.stats["steps"], rel=0.02)
    assert found.nfev == pytest.approx(wanted.nfev, rel=0.05)
    assert found.error_estimate == pytest.approx(wanted.error_estimate, rel=0.1)
    if found.sol is not None:
        t = np.linspace(0.0, 1.0, 17)
        np.testing.assert_allclose(found.sol(t), wanted.sol(t), rtol=1e-8, atol=1e-10)


def test_the_function_is_compiled_at_once_for_numba_and_otherwise_when_that_pays(monkeypatch: pytest.MonkeyPatch):
    """Time spent in it counts, so that one without loops stays in Python until its price is reached."""
    solve = functools.partial(hf.solve_fode, brusselator, (0.0, 3.0), [1.2, 2.8], 0.8)
    compile_account.clear()
    wanted = solve()
    assert not wanted.decision.compiled and solve(backend="numba").decision.compiled
    compile_account.clear()
    for name, seconds in (("_FIRST", 1e-4), ("_FUNCTION", 1e-4), ("_COMPILED_CALLS", 0.0)):
        monkeypatch.setattr(compilation, name, seconds)
    found = solve()
    assert found.decision.compiled and found.stats["compile_seconds"] > 0.0
    np.testing.assert_allclose(found.y[:, -1], wanted.y[:, -1], rtol=1e-7)


def shifting(t: float, y: Any) -> Any:
    if t > 0.5:
        raise KeyError(t)
    return -y


def leaving(t: float, y: Any) -> Any:
    return np.array([-1.0 / y[0]]) if y[0] > 0.2 else np.array([np.nan])


@pytest.mark.parametrize("options", [{"compile": False}, {"compile": True}], ids=["in Python", "compiled"])
def test_what_goes_wrong_in_the_function_is_told(options: dict[str, Any]):
    """An exception is raised as it is, also from a compiled function; what is not finite ends the solve in words."""
    if options["compile"] is False:
        with pytest.raises(KeyError):
            hf.solve_fode(shifting, (0.0, 1.0), [1.0], 0.7, backend="numba", **options)
    result = hf.solve_fode(leaving, (0.0, 3.0), [1.0], 0.9, backend="numba", **options)
    assert not result.success and "not finite" in result.message


def test_an_index_beyond_the_end_raises_when_compiled():
    """Compiled code that raised is asked again in Python."""

    def beyond(t: float, y: Any) -> Any:
        return -y if t < 0.5 else y[np.array([7])]

    with pytest.raises(IndexError):
        hf.solve_fode(beyond, (0.0, 1.0), [1.0], 0.7, compile=True)


def test_what_is_not_compiled_is_refused_where_it_was_asked_for():
    """And solved in NumPy where it was not."""
    solve = functools.partial(
        hf.solve_fode, lambda t, y, past: -y, (0.0, 0.5), [1.0], 0.5, delays=[0.1], history=0.0, method="adaptive"
    )
    with pytest.raises(InvalidInputError, match="has delays"):
        solve(backend="numba")
    assert solve().success


def test_complex_states():
    """Of other types."""
    fun = lambda t, y: 1j * y  # noqa: E731
    wanted = hf.solve_fode(fun, (0.0, 3.0), [1.0 + 0j], 0.8, backend="numpy")
    found = hf.solve_fode(fun, (0.0, 3.0), [1.0 + 0j], 0.8, compile=True)
    np.testing.assert_allclose(found.y[:, -1], wanted.y[:, -1], rtol=1e-7)

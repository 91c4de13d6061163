"""Adaptive steps compiled: the same solution, errors and choices as in NumPy, with the function compiled or not."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.engine.selection.rent_or_buy import compile_account
from hpfracc.errors import InvalidInputError
from hpfracc.solvers.ode import compilation
from tests.helpers.interrupts import part_of
from tests.helpers.thinned import thinned

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
    "stiff, between": (stiff, [1.0, 2.0], 0.6, {"args": (1e3,), "rtol": 1e-4, "t_eval": np.linspace(0.0, 1.0, 20)}),
    "above one": (oscillator, [1.0], 1.6, {"dy0": [[0.5]]}),
    "a batch": (oscillator, [[1.0, 2.0], [3.0, -1.0]], 0.7, {"dense_output": True}),
    "a jump": (jumping, [1.0], 0.7, {}),
    "from infinity": (oscillator, [1.0], 0.6, {"derivative": "riemann_liouville"}),
}


@pytest.mark.parametrize(("case", "compiled"), [*((case, False) for case in CASES), ("gentle", True), ("stiff", True)])
@thinned(lambda case, compiled: not compiled)
def test_the_solution_is_that_of_numpy(case: str, compiled: bool):
    """To far below the tolerance, with as many steps and evaluations up to rounding."""
    fun, y0, alpha, options = CASES[case]
    wanted = hf.solve_fode(fun, (0.0, 1.0), y0, alpha, backend="numpy", **options)
    found = hf.solve_fode(fun, (0.0, 1.0), y0, alpha, backend="numba", compile=compiled, **options)
    assert found.success and found.decision.compiled is compiled
    if found.t.shape == wanted.t.shape:
        np.testing.assert_allclose(found.y, wanted.y, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(found.y[..., -1], wanted.y[..., -1], rtol=1e-7, atol=1e-9)
    assert found.stats["steps"] == pytest.approx(wanted.stats["steps"], rel=0.02)
    assert found.nfev == pytest.approx(wanted.nfev, rel=0.05)
    assert found.error_estimate == pytest.approx(wanted.error_estimate, rel=0.1)
    if found.sol is not None:
        t = np.linspace(0.0, 1.0, 17)
        np.testing.assert_allclose(found.sol(t), wanted.sol(t), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(("case", "most"), [("gentle", 210), ("stiff", 177)])
def test_a_step_makes_few_calls(case: str, most: int):
    """Calls of Python and C functions take most of the time of a step; they are counted, because times vary."""
    fun, y0, alpha, options = CASES[case]
    calls, steps = [], []

    def count(frame: Any, event: str, argument: Any) -> None:
        calls[-1] += event in ("call", "c_call")

    for end in (1.0, 1.0, 20.0):  # the first compiles, and the others begin alike
        calls.append(0)
        sys.setprofile(count)
        try:
            found = hf.solve_fode(fun, (0.0, end), y0, alpha, backend="numba", compile=True, **options)
        finally:
            sys.setprofile(None)
        steps.append(found.stats["steps"] + found.stats["rejected"])
    assert (calls[2] - calls[1]) / (steps[2] - steps[1]) < most


def test_a_change_on_the_way_changes_nothing(monkeypatch: pytest.MonkeyPatch):
    """Savings that reach the price during a solve: later steps are compiled, then the function."""
    compile_account.clear()
    for name, seconds in (("_CACHED_KERNEL", 1e-3), ("_COLD_ADAPTIVE", 1e-3), ("_FIRST", 1e-4), ("_FUNCTION", 1e-4)):
        monkeypatch.setattr(compilation, name, seconds)
    monkeypatch.setattr(compilation, "_OWN", 0.0)
    wanted = hf.solve_fode(brusselator, (0.0, 3.0), [1.2, 2.8], 0.8, backend="numpy")
    found = hf.solve_fode(brusselator, (0.0, 3.0), [1.2, 2.8], 0.8)
    assert found.decision.compiled and found.stats["compile_seconds"] > 0.0
    assert compilation.kernel_price("adaptive", np.dtype(float)).seconds() == 0.0
    np.testing.assert_allclose(found.y[:, -1], wanted.y[:, -1], rtol=1e-7)


def test_kernels_in_memory_are_used_at_once(monkeypatch: pytest.MonkeyPatch):
    """And none is made where there is none yet and little to gain: a first short solve stays in NumPy."""
    made: list[Any] = []
    from hpfracc.solvers.ode.compiled import adaptive

    original = adaptive.CompiledArithmetic
    monkeypatch.setattr(adaptive, "CompiledArithmetic", lambda *args: made.append(args) or original(*args))
    compile_account.clear()
    hf.solve_fode(oscillator, (0.0, 0.1), [1.0], 0.7, rtol=1e-3)
    assert not made
    compilation.kernel_price("adaptive", np.dtype(float)).buy()
    hf.solve_fode(oscillator, (0.0, 0.1), [1.0], 0.7, rtol=1e-3)
    assert made and made[0][1] is None


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


def test_ctrl_c_in_a_step():
    """What is done comes back."""

    def fun(t: float, y: Any) -> Any:
        if t > 0.5:
            raise KeyboardInterrupt
        return -y

    result = part_of(lambda: hf.solve_fode(fun, (0.0, 1.0), [1.0], 0.7, backend="numba", compile=False))
    assert not result.success and 0.1 < result.t[-1] <= 0.5


@pytest.mark.parametrize(
    ("alpha", "options", "reason"),
    [
        ([0.5, 0.7], {}, "different orders"),
        (0.5, {"delays": [0.1], "history": lambda t: 0.0}, "has delays"),
    ],
)
def test_what_is_not_compiled_is_refused_where_it_was_asked_for(alpha: Any, options: dict[str, Any], reason: str):
    """And solved in NumPy where it was not."""
    solve = {"fun": lambda t, y, *more: -y, "t_span": (0.0, 0.5), "y0": [1.0, 1.0], "alpha": alpha, **options}
    with pytest.raises(InvalidInputError, match=reason):
        hf.solve_fode(**solve, method="adaptive", backend="numba")
    compilation.kernel_price("adaptive", np.dtype(float)).buy()
    assert hf.solve_fode(**solve, method="adaptive").success


@pytest.mark.slow
def test_complex_states():
    """Another set of kernels."""
    fun = lambda t, y: 1j * y  # noqa: E731
    wanted = hf.solve_fode(fun, (0.0, 3.0), [1.0 + 0j], 0.8, backend="numpy")
    found = hf.solve_fode(fun, (0.0, 3.0), [1.0 + 0j], 0.8, backend="numba", compile=False)
    np.testing.assert_allclose(found.y[:, -1], wanted.y[:, -1], rtol=1e-7)

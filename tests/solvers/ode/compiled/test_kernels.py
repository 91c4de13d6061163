"""The compiled kernels beside the same text run by Python, with the right-hand side called through ctypes."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

import hpfracc as hf

pytest.importorskip("numba")

from hpfracc.solvers.ode.compiled import functions, implicit_kernels, kernels, stepper

Array = np.ndarray[Any, Any]


def brusselator(t: float, y: Array) -> Array:
    return np.array([1.0 - 4.0 * y[0] + y[0] ** 2 * y[1], 3.0 * y[0] - y[0] ** 2 * y[1]])


def call_ordinarily(address: int, t: float, y: Array, out: Array, parameters: Array) -> None:
    """Through ctypes, which knows addresses of functions and of arrays by itself."""
    pointer = ctypes.POINTER(ctypes.c_double)
    function = ctypes.CFUNCTYPE(None, ctypes.c_double, pointer, pointer, pointer)(address)
    function(t, *(each.ctypes.data_as(pointer) for each in (y, out, parameters)))


@pytest.mark.parametrize("method", ["explicit_rectangle", "pece"])
def test_steps_are_those_of_an_ordinary_call(method: str, monkeypatch: pytest.MonkeyPatch):
    """Explicit and corrected steps, to the last digits: sums may be added up in another order."""
    options: dict[str, Any] = {"method": method, "step": 0.05, "compile": True}
    wanted = hf.solve_fode(brusselator, (0.0, 2.0), [1.2, 2.8], 0.8, **options)
    calls = 0

    def call_kernel(kernel: Any, kind: str, *arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        return kernel.py_func(*arguments)

    monkeypatch.setattr(kernels, "call", call_ordinarily)
    monkeypatch.setattr(stepper, "call_kernel", call_kernel)
    found = hf.solve_fode(brusselator, (0.0, 2.0), [1.2, 2.8], 0.8, **options)
    assert calls and found.decision.compiled and found.nfev == wanted.nfev
    np.testing.assert_allclose(found.y, wanted.y, rtol=1e-13)


@pytest.mark.slow
def test_implicit_steps_are_those_of_an_ordinary_call(monkeypatch: pytest.MonkeyPatch):
    """Newton's method in the kernel, with the right-hand side called through ctypes."""
    options: dict[str, Any] = {"method": "implicit_trapezoid", "step": 0.1, "compile": True}
    wanted = hf.solve_fode(brusselator, (0.0, 2.0), [1.2, 2.8], 0.8, **options)

    def call_by_address(fun: int, t: float, y: int, out: int, parameters: int) -> None:
        pointer = ctypes.POINTER(ctypes.c_double)
        function = ctypes.CFUNCTYPE(None, ctypes.c_double, pointer, pointer, pointer)(fun)
        function(t, *(ctypes.cast(each, pointer) for each in (y, out, parameters)))

    for name in ("_begin_newton", "_is_old", "_move", "_renew", "_first_rate", "_correct", "_judge", "_end_newton"):
        monkeypatch.setattr(implicit_kernels, name, getattr(implicit_kernels, name).py_func)
    monkeypatch.setattr(implicit_kernels, "_to_guess", implicit_kernels._to_guess.py_func)
    monkeypatch.setattr(implicit_kernels, "call_by_address", call_by_address)
    monkeypatch.setattr(stepper, "call_kernel", lambda kernel, kind, *arguments: kernel.py_func(*arguments))
    found = hf.solve_fode(brusselator, (0.0, 2.0), [1.2, 2.8], 0.8, **options)
    assert found.decision.compiled and found.stats["newton_iterations"] == wanted.stats["newton_iterations"]
    np.testing.assert_allclose(found.y, wanted.y, rtol=1e-12)


def test_one_value_is_that_of_an_ordinary_call(monkeypatch: pytest.MonkeyPatch):
    """A compiled function that is called for one value."""
    bound = functions.compile_as_given(brusselator, (), 0.0, np.array([1.2, 2.8]), (2,))
    wanted = bound(0.3, np.array([0.7, 3.1]), (2,))
    monkeypatch.setattr(functions, "call_kernel", lambda kernel, kind, *arguments: call_ordinarily(*arguments))
    np.testing.assert_array_equal(bound(0.3, np.array([0.7, 3.1]), (2,)), wanted)
    np.testing.assert_allclose(wanted, brusselator(0.3, np.array([0.7, 3.1])), rtol=1e-14)

"""The compiled kernels beside the same text run by Python, and how they take a compiled right-hand side."""

from __future__ import annotations

import gc
import linecache
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import hpfracc as hf

pytest.importorskip("numba")

import numba

from hpfracc.engine.memory.host import resident_bytes
from hpfracc.solvers.ode import compilation
from hpfracc.solvers.ode.compiled import functions, kernels, stepper
from hpfracc.solvers.ode.compiled.kernels import FunctionReference, refer
from hpfracc.solvers.ode.problem import read_problem

Array = np.ndarray[Any, Any]


def brusselator(t: float, y: Array) -> Array:
    return np.array([1.0 - 4.0 * y[0] + y[0] ** 2 * y[1], 3.0 * y[0] - y[0] ** 2 * y[1]])


def brusselator_jacobian(t: float, y: Array) -> Array:
    return np.array([[2.0 * y[0] * y[1] - 4.0, y[0] ** 2], [3.0 - 2.0 * y[0] * y[1], -(y[0] ** 2)]])


class InPython:
    """Stands for a reference in a kernel that Python runs; tells both functions apart by the size of the result."""

    def evaluate(self, t: float, y: Array, out: Array, parameters: Array) -> None:
        fun = brusselator if out.size == y.size else brusselator_jacobian
        out[:] = fun(t, y).reshape(-1)


def run_in_python(kernel: Any, kind: str, *arguments: Any) -> Any:
    """The text of a kernel."""
    return kernel.py_func(*(InPython() if isinstance(each, FunctionReference) else each for each in arguments))


@pytest.mark.parametrize("method", ["explicit_rectangle", "pece"])
def test_steps_are_those_of_the_same_text_in_python(method: str, monkeypatch: pytest.MonkeyPatch):
    """Explicit and corrected steps, to the last digits: sums may be added up in another order."""
    options: dict[str, Any] = {"method": method, "step": 0.05, "compile": True}
    wanted = hf.solve_fode(brusselator, (0.0, 2.0), [1.2, 2.8], 0.8, **options)
    calls = 0

    def call_kernel(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        return run_in_python(*arguments)

    monkeypatch.setattr(stepper, "call_kernel", call_kernel)
    found = hf.solve_fode(brusselator, (0.0, 2.0), [1.2, 2.8], 0.8, **options)
    assert calls and found.decision.compiled and found.nfev == wanted.nfev
    np.testing.assert_allclose(found.y, wanted.y, rtol=1e-13)


def test_a_call_of_a_kernel_runs_no_python_code():
    """An interrupt would be raised in that code, and Numba loses it or turns it into another error."""
    bound = functions.compile_as_given(brusselator, (), 0.0, np.array([1.2, 2.8]), (2,))
    arguments = (bound.reference, 0.3, np.array([0.7, 3.1]), np.empty(2), bound.parameters)
    kernels.call(*arguments)
    seen: list[str] = []
    sys.setprofile(lambda frame, event, _: seen.append(frame.f_code.co_name) if event == "call" else None)
    try:
        kernels.call(*arguments)
    finally:
        sys.setprofile(None)
    assert seen == ["call"]  # Numba reports the kernel itself


def test_one_kernel_serves_all_functions():
    """It is compiled once, and kept on disk for functions of other processes."""
    options: dict[str, Any] = {"method": "explicit_rectangle", "step": 0.05, "compile": True}
    first = hf.solve_fode(brusselator, (0.0, 2.0), [1.2, 2.8], 0.8, **options)
    known = list(kernels.run_corrected.signatures)
    second = hf.solve_fode(lambda t, y: -y, (0.0, 2.0), [1.2, 2.8], 0.8, **options)
    assert first.decision.compiled and second.decision.compiled and kernels.run_corrected.signatures == known
    assert not np.allclose(first.y, second.y)


def test_a_reference_keeps_the_code_alive_and_no_longer():
    """The code goes with the reference; calls leave the counts of their arrays as they were."""

    def fun(t: float, y: Array, out: Array, parameters: Array) -> None:
        out[0] = -parameters[0] * y[0]

    reference = refer(numba.cfunc("void(float64, float64[::1], float64[::1], float64[::1])")(fun))
    arrays = (np.array([2.0]), np.empty(1), np.array([3.0]))
    before = [sys.getrefcount(each) for each in arrays]
    code = weakref.ref(reference.function)
    gc.collect()
    for _ in range(10):
        kernels.call(reference, 0.3, *arrays)
    assert arrays[1][0] == -6.0
    assert [sys.getrefcount(each) for each in arrays] == before and code() is not None
    del reference
    gc.collect()
    assert code() is None


def compile_generated(number: int) -> tuple[Any, list[str]]:
    """The compiled problem with a right-hand side of its own, and notes; nobody asks for compilation."""
    name, scope = f"<generated {number}>", {"np": np}
    text = "def fun(t, y):\n    return np.array([np.sin(t)" + " * t" * number + " - y[0]])\n"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    exec(compile(text, name, "exec"), scope)
    problem = read_problem(scope["fun"], (0.0, 1.0), [1.0], 0.5)
    notes: list[str] = []
    return compilation.compile_problem(problem, [], notes, must=False)[0], notes


def test_few_functions_are_compiled_without_being_asked_for(monkeypatch: pytest.MonkeyPatch):
    """Numba never frees code. What is compiled already is found, and what is asked for is compiled."""
    monkeypatch.setattr(functions, "_read", {})
    monkeypatch.setattr(functions, "_MAX_COMPILED", 2)
    found = [compile_generated(number) for number in (1, 2, 3, 1)]
    assert [each[0] is not None for each in found] == [True, True, False, True]
    assert "Numba never frees" in found[2][1][0]


@pytest.fixture(scope="class")
def crowded() -> Iterator[None]:
    """As after many tests; in place before those fixtures that every test has."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(functions, "_read", {("", number, 1, 1): None for number in range(600)})
        yield


def test_tests_compile_whatever_ran_before_them(crowded: None):
    """The limit of a process is that of each test."""
    assert compile_generated(1)[0] is not None


@pytest.mark.slow
def test_memory_of_compiled_functions_is_bounded(monkeypatch: pytest.MonkeyPatch):
    """Each takes 0.42 MB that no cache can give back: 90 more take 38 MB, unless they stay in Python."""
    monkeypatch.setattr(functions, "_read", {})
    monkeypatch.setattr(functions, "_MAX_COMPILED", 60)

    resident = []
    for numbers in (range(1, 65), range(65, 155)):
        for number in numbers:
            compile_generated(number)
        gc.collect()
        now = resident_bytes()
        if now is None:
            pytest.skip("the memory of this process cannot be read here")
        resident.append(now[0])
    assert resident[1] - resident[0] < 8e6

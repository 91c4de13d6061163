"""Ctrl-C: what is there comes back, with success=False; in the very first call of the right-hand side the start."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc._interrupts import run_shielded
from hpfracc.solvers.ode.fixed import walk as fixed_solve

WAYS: dict[str, dict[str, Any]] = {
    "auto": {},
    "auto with a step": {"step": 0.1},
    "adaptive": {"method": "adaptive"},
    "halved steps": {"method": "bdf2"},
    "bdf2": {"method": "bdf2", "step": 0.01},
    "pece": {"method": "pece", "step": 0.01},
    "implicit": {"method": "implicit_trapezoid", "step": 0.01},
    "graded": {"method": "l1", "step": 0.01},
    "mittag_leffler": {"method": "mittag_leffler", "step": 0.01},
    "compiled": {"method": "pece", "step": 0.01, "compile": True},
    "numba": {"method": "pece", "step": 0.01, "compile": False, "backend": "numba"},
    "infinite": {"derivative": "riemann_liouville"},
    "infinite with a step": {"derivative": "riemann_liouville", "step": 0.01},
    "terms": {"terms": [(1.0, 0.2)], "step": 0.01},
    "delays": {"delays": [0.1], "history": lambda t: 0.0},
    "events": {"step": 0.1, "events": lambda t, y: y[0]},
}


def interrupted(t: float, y: Any, *more: Any) -> Any:
    raise KeyboardInterrupt


@pytest.mark.parametrize("way", WAYS)
def test_in_the_first_call(way: str):
    """From the method, the stiffness check, the compilation, or the check at the start."""
    if way in ("compiled", "numba"):
        pytest.importorskip("numba")
    result = hf.solve_fode(interrupted, (0.0, 1.0), [1.0, 2.0], 0.6, **WAYS[way])
    assert not result.success and "Interrupted at t = 0" in result.message
    assert result.t.tolist() == [0.0] and result.y.shape == (2, 1)
    expected = [np.inf, np.inf] if "infinite" in way else [1.0, 2.0]
    assert result.y[:, 0].tolist() == expected
    assert (result.t_events is None) == ("events" not in WAYS[way])


@pytest.mark.parametrize("library", ["torch", "jax.numpy"])
def test_with_tensors(library: str):
    """The initial value as it was given, in its own library."""
    xp = pytest.importorskip(library)
    y0 = xp.asarray([1.0, 2.0])
    result = hf.solve_fode(interrupted, (0.0, 1.0), y0, 0.6, step=0.1)
    assert not result.success and type(result.y) is type(y0) and result.y[:, 0].tolist() == [1.0, 2.0]


def test_times_asked_for():
    """The start is among them or it is not."""
    for step in (None, 0.1):
        assert hf.solve_fode(interrupted, (0.0, 1.0), [1.0], 0.6, step=step, t_eval=[0.5, 1.0]).y.shape == (1, 0)
        assert hf.solve_fode(interrupted, (0.0, 1.0), [1.0], 0.6, step=step, t_eval=[0.0, 1.0]).y.shape == (1, 1)


# -- real signals -----------------------------------------------------------------------------------------------------

SOAK = Path(__file__).with_name("_interrupt_soak.py")
SOAK_WAYS = (
    "adaptive, Python",
    "adaptive, steps compiled",
    "adaptive, compiled",
    "fixed, Python",
    "fixed, steps compiled",
    "fixed, compiled",
    "implicit, steps compiled",
    "implicit, compiled",
)


def soak(way: str, count: int) -> dict[str, Any]:
    """Outcomes of solves in a process that gets ``count`` interrupts."""
    child = subprocess.run(
        [sys.executable, str(SOAK), way, str(count)], capture_output=True, text=True, check=False, timeout=3600
    )
    assert child.returncode == 0, child.stderr[-3000:]
    assert "ignored" not in child.stderr, child.stderr[-3000:]  # an unnoticed exception
    found: dict[str, Any] = json.loads(child.stdout)
    return found


def check_soak(way: str, count: int) -> dict[str, int]:
    found = soak(way, count)
    assert found["bad count"] == 0, found["bad"][0]
    ends: dict[str, int] = found["ends"]
    assert sum(ends.values()) == found["sent"] == count
    assert set(ends) <= {"partial result", "KeyboardInterrupt", "finished before"}, ends
    assert ends.get("partial result", 0) + ends.get("KeyboardInterrupt", 0) > 0.5 * count, ends
    return ends


def test_a_few_interrupts():
    """Each ends in the documented partial result, or in KeyboardInterrupt where it comes after the steps."""
    check_soak("fixed, Python", 10)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("way", SOAK_WAYS)
def test_thousands_of_interrupts(way: str):
    """1,300 for each way to step, 10,400 in all; none is lost, and none becomes another error."""
    if "compiled" in way:
        pytest.importorskip("numba")
    print(f"\n{way}: {check_soak(way, 1300)}")


def test_an_interrupt_does_not_break_off_an_import():
    """It ends the wait, and the work goes on to its end."""
    begun, go_on, done = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        go_on.wait(300.0)
        done.set()

    def interrupt() -> None:
        begun.wait(300.0)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        helper = threading.Thread(target=interrupt)
        helper.start()
        with pytest.raises(KeyboardInterrupt):
            run_shielded(work)
        assert not done.is_set()
        go_on.set()
        assert done.wait(300.0)
        helper.join()
    finally:
        signal.signal(signal.SIGINT, before)
    with pytest.raises(ZeroDivisionError):
        run_shielded(lambda: 1 // 0)


def test_an_interrupt_after_the_steps_is_raised(monkeypatch: pytest.MonkeyPatch):
    """The initial value is not told for all that there is."""

    def broken(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(fixed_solve, "FixedSolution", broken)
    with pytest.raises(KeyboardInterrupt):
        hf.solve_fode(lambda t, y: -y, (0.0, 1.0), [1.0], 0.6, step=0.1, method="pece")


# -- nested calls -----------------------------------------------------------------------------------------------------


def _interrupt_after(calls: int) -> Any:
    """A right-hand side that is interrupted in one of its calls."""
    count = 0

    def fun(t: float, y: Any, *more: Any) -> Any:
        nonlocal count
        count += 1
        if count == calls:
            raise KeyboardInterrupt
        return -y

    return fun


def _solve_ode(calls: int = 10) -> float:
    return float(hf.solve_fode(_interrupt_after(calls), (0.0, 1.0), [1.0], 0.6, step=0.01).y[0, -1])


def _solve_pde() -> float:
    x = np.linspace(0.0, 1.0, 9)
    space = hf.pde.Diffusion(1.0)
    given = {"x": x, "space": space, "boundary": "dirichlet", "alpha": 0.6, "step": 0.1}
    return float(hf.solve_fpde(_interrupt_after(5), (0.0, 1.0), np.sin(np.pi * x), **given).u[-1, 4])


def _solve_sde() -> float:
    return float(hf.solve_fsde(_interrupt_after(5), 0.1, (0.0, 1.0), [1.0], step=0.1, paths=2, rng=0).success)


@pytest.mark.parametrize("solve", [_solve_ode, _solve_pde, _solve_sde])
def test_inside_a_batch_or_another_solve_the_interrupt_is_raised(solve: Any):
    """The value at the interruption would be taken for the solution."""
    assert np.isfinite(solve())  # called by the user: the part
    with pytest.raises(KeyboardInterrupt):
        hf.batch.run(lambda item: solve(), [1, 2])
    outer = hf.solve_fode(lambda t, y: [solve()], (0.0, 1.0), [1.0], 0.5, step=0.1)
    assert not outer.success and "Interrupted" in outer.message
    assert np.isfinite(solve())  # the scope has ended


@pytest.mark.parametrize("calls", [1, 3, 40, 400])
def test_inside_a_fit_the_interrupt_is_raised(calls: int):
    t = np.linspace(0.0, 1.0, 8)
    fun = _interrupt_after(calls)
    with pytest.raises(KeyboardInterrupt):
        hf.fit_fode(lambda t, y, rate: rate * fun(t, y), t, hf.mittag_leffler(-(t**0.6), 0.6), parameters={"rate": 0.7})


def test_a_function_that_cannot_return_a_part_raises():
    with pytest.raises(KeyboardInterrupt):
        hf.fdeint(_interrupt_after(5), np.ones(1), np.linspace(0.0, 1.0, 5), 0.5, step=0.1)

"""Ctrl-C: everything raises it, with what was done; in the very first call of a right-hand side that is the start."""

from __future__ import annotations

import functools
import itertools
import os
import signal
import threading
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

import hpfracc as hf
from hpfracc._interrupts import run_shielded
from hpfracc.solvers.ode.fixed import walk as fixed_solve
from tests.helpers.interrupts import part_of

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
    result = part_of(lambda: hf.solve_fode(interrupted, (0.0, 1.0), [1.0, 2.0], 0.6, **WAYS[way]))
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
    result = part_of(lambda: hf.solve_fode(interrupted, (0.0, 1.0), y0, 0.6, step=0.1))
    assert not result.success and type(result.y) is type(y0) and result.y[:, 0].tolist() == [1.0, 2.0]


def test_times_asked_for():
    """The start is among them or it is not."""
    for first, count in ((0.5, 0), (0.0, 1)):
        for step in (None, 0.1):
            part = part_of(functools.partial(solve_ode, interrupted, step=step, t_eval=[first, 1.0]))
            assert part.y.shape == (1, count)


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


def test_outside_of_the_steps(monkeypatch: pytest.MonkeyPatch):
    """The part is the initial value, and says so; also of a second interrupt while the first is handled."""

    def broken(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(fixed_solve, "FixedSolution", broken)
    for fun in (interrupted, lambda t, y: -y):
        part = part_of(lambda fun=fun: hf.solve_fode(fun, (0.0, 1.0), [1.0], 0.6, step=0.1, method="pece"))
        assert "outside of the steps" in part.message and part.y.tolist() == [[1.0]]


# -- what is around a solve --------------------------------------------------------------------------------------------


def interrupted_at(call: int) -> Any:
    """A right-hand side that is interrupted once, in this call."""
    calls = itertools.count(1)

    def fun(t: float, y: Any, *more: Any) -> Any:
        if next(calls) == call:
            raise KeyboardInterrupt
        return -y

    return fun


def solve_ode(fun: Any, **options: Any) -> Any:
    return hf.solve_fode(fun, (0.0, 1.0), [1.0], 0.6, **{"step": 0.01, **options})


def solve_pde(fun: Any, **options: Any) -> Any:
    x = np.linspace(0.0, 1.0, 9)
    given = {"x": x, "space": hf.pde.Diffusion(1.0), "boundary": "dirichlet", "alpha": 0.6, **options}
    return hf.solve_fpde(fun, (0.0, 1.0), np.sin(np.pi * x), **given)


def test_a_loop_of_the_users_own_stops():
    """It stores no value of a solve that was cut off, and none after it."""
    stored: list[float] = []

    def loop() -> None:
        for call in (10_000, 20, 10_000):
            stored.append(solve_ode(interrupted_at(call)).y[0, -1])  # noqa: PERF401

    with pytest.raises(KeyboardInterrupt):
        loop()
    assert len(stored) == 1 and 0.0 < hf.interrupted().t[-1] < 1.0


def test_a_search_around_a_solve_stops():
    """SciPy's, which passes it on."""
    fun = interrupted_at(1000)
    with pytest.raises(hf.errors.Interrupted):
        minimize_scalar(lambda rate: solve_ode(lambda t, y: rate * fun(t, y)).y[0, -1], bounds=(0.1, 5.0))


@pytest.mark.parametrize("solve", [solve_ode, solve_pde])
def test_a_solve_within_a_solve_raises_once(solve: Any):
    """The part is that of the outer one."""
    inner = interrupted_at(300)

    def fun(t: float, y: Any) -> Any:
        return -y * solve_ode(inner, step=0.1).y[0, -1]

    part = part_of(lambda: solve(fun, step=0.1))
    assert not part.success and part.stats["interrupted"] and 1 <= len(part.t) < 10
    assert type(part) is type(solve(lambda t, y: -y, step=0.1))


@pytest.mark.parametrize("options", [{}, {"method": "l1", "rtol": 1e-2}, {"step": 0.01, "method": "l1"}])
def test_fields_have_all_that_was_done(options: dict[str, Any]):
    """At every moment, in the first run and in those that estimate its error: what a field has, and no error."""
    calls = itertools.count(1)
    solve_pde(lambda t, u: -u + 0.0 * next(calls), **options)
    for call in (2, 30, 60, next(calls) - 10):
        part = part_of(lambda call=call: solve_pde(interrupted_at(call), dense_output=True, **options))
        assert not part.success and len(part.t) == len(part.u) >= 1 and np.isnan(part.error_estimate.space)
        assert part.sol(part.t[-1]).shape == (9,)
    if options:  # the run was complete, and its error was being estimated
        assert part.t[-1] == 1.0


@pytest.mark.parametrize("calls", [1, 400, 2500])
def test_a_fit_has_the_best_so_far(calls: int):
    """Estimates without standard errors, their residuals, and a solution; before the first evaluation there is none."""
    t, fun = np.linspace(0.0, 1.0, 8), interrupted_at(calls)
    data = hf.mittag_leffler(-(t**0.6), 0.6)
    fit: Any = None
    with pytest.raises(hf.errors.Interrupted) as caught:
        hf.fit_fode(lambda t, y, rate: rate * fun(t, y), t, data, parameters={"rate": 0.7})
    fit = caught.value.solution
    assert (fit is None) == (calls < 2500) and hf.interrupted() is fit
    if fit is not None:
        assert not fit.success and "best values so far" in fit.message and np.isnan(fit.standard_errors).all()
        expected = hf.mittag_leffler(-fit.parameters["rate"] * t**fit.alpha, fit.alpha)
        np.testing.assert_allclose(fit.sets[0].fitted[0], expected, rtol=1e-3)
        assert "rate" in str(fit)


def test_a_fit_of_a_field_has_the_best_so_far():
    """As that of a system; the data that are missing have no prediction."""
    x, t, fun = np.linspace(0.0, 1.0, 9), np.array([0.1, 0.2]), interrupted_at(100)
    data = np.array([[0.5, np.nan], [0.3, 0.2]])

    def equation(rate: float) -> Any:
        given = {"u0": np.sin(np.pi * x), "x": x, "space": hf.pde.Diffusion(rate), "boundary": "dirichlet"}
        return {**given, "alpha": 0.6, "reaction": fun}

    call = functools.partial(hf.fit_fpde, equation, t, data, points=[0.3, 0.6], parameters={"rate": 0.7})
    part = part_of(lambda: call(step=0.02, method="l1"))
    assert not part.success and np.isnan(part.sets[0].fitted[1, 0]) and np.isfinite(part.sets[0].residuals[0]).all()


def test_a_batch_has_the_items_that_were_done():
    """The others are None; with an executor too."""
    fun = interrupted_at(250)
    part = part_of(lambda: hf.batch.run(lambda k: solve_ode(fun).success, range(4)), "after 1 of 4 items")
    assert part == [True, None, None, None]
    assert issubclass(hf.errors.Interrupted, KeyboardInterrupt)
    assert not issubclass(hf.errors.Interrupted, Exception)


def test_a_sweep_has_the_items_that_were_done():
    """As an incomplete result, with nan for the others."""
    fun = interrupted_at(250)
    part = part_of(lambda: hf.sweep(lambda k: solve_ode(fun).y[0, -1], hf.grid(k=range(4)), batch=1))
    assert not part.complete and np.isfinite(part.values).tolist() == [True, False, False, False]


def test_fdeint_and_models_and_tuning():
    """Their parts: the solution, the best parameters, the best controller."""
    times = np.linspace(0.0, 1.0, 5)
    part = part_of(lambda: hf.fdeint(interrupted_at(60), np.ones(1), times, 0.5, step=0.01))
    assert part.t.tolist() == [0.0, 0.25] or part.t.tolist() == [0.0, 0.25, 0.5]
    calls = itertools.count()

    def objective(law: Any) -> float:
        if next(calls) == 30:
            raise KeyboardInterrupt
        return float(law.Kp)

    plant = hf.control.TransferFunction({0.0: 1.0}, {1.0: 1.0, 0.0: 1.0})
    tuned = part_of(lambda: hf.control.tune(plant, objective, horizon=10.0))
    assert not tuned.success and tuned.evaluations == 31 and tuned.objective == tuned.controller.Kp


def test_a_notebook_ends_the_cell():
    """IPython shows the interrupt, runs no further line of the cell, and what was done is still there."""
    shell = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell()
    shell.user_ns["fun"] = interrupted_at(60)
    cell = "import hpfracc as hf\nsolution = hf.solve_fode(fun, (0.0, 1.0), [1.0], 0.6, step=0.01)\nreached = 1"
    found = shell.run_cell(cell, silent=True)
    assert isinstance(found.error_in_exec, hf.errors.Interrupted)
    assert "solution" not in shell.user_ns and "reached" not in shell.user_ns
    assert 0.0 < hf.interrupted().t[-1] < 1.0

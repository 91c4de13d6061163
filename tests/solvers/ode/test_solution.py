"""Between the steps, and around them: dense output, t_eval, events, progress, interruption, plots."""

from __future__ import annotations

import builtins
import re
import sys
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.errors import InvalidInputError, MissingDependencyError
from hpfracc.special import mittag_leffler
from tests.helpers.interrupts import part_of


def decay(t: float, y: Any) -> Any:
    return -y


@pytest.mark.parametrize("alpha", [0.3, 0.6, 1.0, 1.5])
@pytest.mark.parametrize("method", ["implicit_trapezoid", "bdf2"])
def test_dense_output_knows_how_the_solution_begins(alpha: float, method: str):
    """Inside the first steps it is no worse than at them, and at the steps it is the solution."""
    dy0 = [[0.0]] if alpha > 1.0 else None
    result = hf.solve_fode(
        decay, (0.0, 1.0), [1.0], alpha, dy0=dy0, method=method, step=0.01, dense_output=True, backend="numpy"
    )
    assert result.sol is not None
    np.testing.assert_allclose(result.sol(result.t), result.y, rtol=0, atol=1e-14)
    times = np.concatenate([np.geomspace(1e-6, 0.05, 40), np.linspace(0.05, 1.0, 50)])
    exact = mittag_leffler(-(times**alpha), alpha)
    at_steps = np.abs(result.y[0] - mittag_leffler(-(result.t**alpha), alpha)).max()
    between = np.abs(result.sol(times)[0] - exact).max()
    assert between < (2.0 * at_steps if method == "implicit_trapezoid" else 10.0 * at_steps)
    # A straight line over the first step would be far worse.
    line = abs(1.0 + 0.5 * (result.y[0, 1] - 1.0) - float(mittag_leffler(-(0.005**alpha), alpha)))
    if alpha < 1.0:
        assert abs(result.sol(0.005)[0] - mittag_leffler(-(0.005**alpha), alpha)) < 0.4 * line


def test_dense_output_has_shapes_and_bounds():
    """(..., d) + t.shape, and an error outside the interval."""
    result = hf.solve_fode(decay, (0.0, 1.0), np.ones((2, 3)), 0.5, step=0.1, dense_output=True)
    assert result.sol is not None
    assert result.sol(0.5).shape == (2, 3)
    assert result.sol(np.zeros((4, 5))).shape == (2, 3, 4, 5)
    with pytest.raises(InvalidInputError, match="known from 0 to 1"):
        result.sol(1.5)
    with pytest.raises(InvalidInputError, match="known from"):
        result.sol(np.nan)


@pytest.mark.parametrize("steps", [1, 2, 3, 5])
def test_dense_output_of_few_steps(steps: int):
    """There are enough points for it in the shortest solve."""
    result = hf.solve_fode(decay, (0.0, 1.0), [1.0], 0.8, step=1.0 / steps, dense_output=True)
    assert result.sol is not None
    np.testing.assert_allclose(result.sol(result.t), result.y, atol=1e-14)
    variable = hf.solve_fode(decay, (0.0, 1.0), [1.0], lambda t: 0.8, step=1.0 / steps, dense_output=True)
    assert variable.sol is not None
    np.testing.assert_allclose(variable.sol(variable.t), variable.y, atol=1e-14)


def test_t_eval():
    """The solution at the times asked for, and nothing else; steps among them as they are."""
    whole = hf.solve_fode(decay, (0.0, 1.0), [1.0], 0.6, step=0.01)
    some = hf.solve_fode(decay, (0.0, 1.0), [1.0], 0.6, step=0.01, t_eval=[0.0, 0.255, 0.5, 1.0])
    np.testing.assert_array_equal(some.t, [0.0, 0.255, 0.5, 1.0])
    np.testing.assert_allclose(some.y[0, [0, 2, 3]], whole.y[0, [0, 50, 100]], atol=1e-14)
    assert whole.y[0, 26] < some.y[0, 1] < whole.y[0, 25]


def test_the_step_divides_the_interval():
    """A step that does not is made smaller, and the last time is the end exactly."""
    result = hf.solve_fode(decay, (0.0, 1.0), [1.0], 0.6, step=0.3)
    assert len(result.t) == 5 and result.t[-1] == 1.0
    assert result.stats["step"] == 0.25


class Crossing:
    """An event when the first component passes a level."""

    def __init__(self, level: float, *, terminal: Any = False, direction: float = 0.0) -> None:
        self.level, self.terminal, self.direction = level, terminal, direction

    def __call__(self, t: float, y: Any, *args: Any) -> Any:
        return y[0] - self.level


def test_a_terminal_event_ends_the_solve_at_its_zero():
    """The last point lies on the event, the dense output ends there, and the status is 1."""
    result = hf.solve_fode(
        decay, (0.0, 5.0), [1.0], 0.8, step=1e-3, events=Crossing(0.5, terminal=True), dense_output=True
    )
    assert result.success and result.status == 1 and "terminal event" in result.message
    assert result.t_events is not None and result.y_events is not None
    assert result.y[0, -1] == pytest.approx(0.5, abs=1e-12)
    assert result.t[-1] == result.t_events[0][0]
    assert float(mittag_leffler(-(result.t[-1] ** 0.8), 0.8)) == pytest.approx(0.5, abs=1e-6)
    assert result.y_events[0].shape == (1, 1)
    assert np.all(np.diff(result.t) > 0.0)
    assert result.sol is not None
    with pytest.raises(InvalidInputError, match="known from"):
        result.sol(result.t[-1] + 0.01)


def test_directions_and_counts_of_events():
    """An oscillation of order 1.9 crosses zero; rising and falling ones are told apart, a second one may end it."""
    options: dict[str, Any] = {"dy0": [[0.0]], "step": 0.01, "method": "pece"}
    both, rising, falling = Crossing(0.0), Crossing(0.0, direction=1), Crossing(0.0, direction=-1)
    result = hf.solve_fode(decay, (0.0, 12.0), [1.0], 1.9, events=[both, rising, falling], **options)
    assert result.t_events is not None
    times, up, down = result.t_events
    assert len(times) == 4 and len(up) == 2 and len(down) == 2
    np.testing.assert_allclose(np.sort(np.concatenate([up, down])), times)
    np.testing.assert_allclose(mittag_leffler(-(times**1.9), 1.9), 0.0, atol=1e-3)
    second = hf.solve_fode(decay, (0.0, 12.0), [1.0], 1.9, events=Crossing(0.0, terminal=2), **options)
    assert second.t_events is not None
    np.testing.assert_allclose(second.t_events[0], times[:2], rtol=1e-12)
    assert second.t[-1] == second.t_events[0][-1]


def test_an_event_that_never_happens():
    """Empty arrays of the right shape, and the whole interval."""
    result = hf.solve_fode(decay, (0.0, 1.0), [1.0, 2.0], 0.8, step=0.01, events=Crossing(-1.0, terminal=True))
    assert result.t_events is not None and result.y_events is not None
    assert result.status == 0 and result.t_events[0].shape == (0,) and result.y_events[0].shape == (0, 2)


def test_events_get_the_further_arguments():
    """As the right-hand side does."""
    seen = []

    def event(t: float, y: Any, k: float) -> Any:
        seen.append(k)
        return y[0] - 0.5

    hf.solve_fode(lambda t, y, k: -k * y, (0.0, 1.0), [1.0], 0.8, step=0.1, args=(2.0,), events=event)
    assert set(seen) == {2.0}


def test_events_do_not_depend_on_the_pace(monkeypatch: pytest.MonkeyPatch):
    """The number of steps between two looks follows the speed of the machine; the time of an event does not."""

    def solve(every: int) -> hf.FODEResult:
        monkeypatch.setattr("hpfracc.solvers.ode.fixed.walk._CHECK_EVERY", (every, every, 1))
        return hf.solve_fode(
            lambda t, y: np.array([y[1], -y[0]]), (0.0, 2.0), [1.0, 0.0], 0.6, step=1 / 64, method="l1",
            events=lambda t, y: y[0] - 0.2, compile=False,
        )  # fmt: skip

    monkeypatch.setattr("hpfracc.solvers.ode.fixed.walk._BLOCK_SECONDS", np.inf)
    usual = solve(64)
    just_behind = int(np.searchsorted(usual.t, usual.t_events[0][0]))
    assert solve(just_behind).t_events[0][0] == usual.t_events[0][0]


@pytest.mark.parametrize("backend", ["numpy", "numba"])
@pytest.mark.parametrize("method", ["pece", "implicit_trapezoid"])
def test_an_interrupted_solve_keeps_what_is_done(backend: str, method: str):
    """Ctrl-C in the 500th step gives the solution up to it, with success=False."""

    def fun(t: float, y: Any) -> Any:
        if t > 0.5:
            raise KeyboardInterrupt
        return -y

    options: dict[str, Any] = {"step": 1e-3, "method": method, "backend": backend, "compile": False}
    result = part_of(lambda: hf.solve_fode(fun, (0.0, 1.0), [1.0], 0.7, **options))
    whole = hf.solve_fode(decay, (0.0, 1.0), [1.0], 0.7, **options)
    assert not result.success and "Interrupted at t = 0.5" in result.message
    assert result.t[-1] == pytest.approx(0.5, abs=2e-3)
    np.testing.assert_array_equal(result.y, whole.y[:, : result.y.shape[1]])


def test_a_callback_sees_the_newest_point():
    """``progress`` as a function: rising times, states of the right shape, the end among them."""
    seen: list[tuple[float, Any]] = []
    hf.solve_fode(
        decay,
        (0.0, 1.0),
        np.ones((2, 1)),
        0.7,
        step=1e-3,
        progress=lambda t, y: seen.append((t, y.copy())),
        backend="numpy",
    )
    times = [t for t, _ in seen]
    assert len(times) >= 4 and times == sorted(times) and times[-1] == 1.0
    assert all(y.shape == (2, 1) for _, y in seen)


def test_a_progress_bar(capsys: pytest.CaptureFixture[str]):
    """It runs to the end, and leaves standard output alone."""
    result = hf.solve_fode(decay, (0.0, 1.0), [1.0], 0.7, step=1e-3, progress=True, backend="numpy")
    assert result.success
    assert capsys.readouterr().out == ""


def test_the_text_of_a_progress_bar(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    """The method, the time of the equation, and seconds; "0:54:06" was taken for hours."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    hf.solve_fode(decay, (0.0, 1.0), [1.0], 0.7, step=1e-2, progress=True, backend="numpy")
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err)
    last = [line for line in text.splitlines() if "t = " in line][-1]
    assert re.search(r"pece.* 100%\s+t = 1\s+\d+\.\d s", last), last
    assert not re.search(r"\d:\d\d", text)


def test_plots():
    """Lines for components over time, and one component over another."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    result = hf.solve_fode(lambda t, y: np.stack([-y[1], y[0]]), (0.0, 1.0), [1.0, 0.0], 0.9, step=0.1)
    axes = result.plot()
    assert len(axes.lines) == 2 and axes.get_xlabel() == "t"
    portrait = result.plot(phase=(0, 1), color="black")
    np.testing.assert_array_equal(portrait.lines[0].get_xdata(), result.y[0])
    np.testing.assert_array_equal(portrait.lines[0].get_ydata(), result.y[1])
    again = result.plot(ax=axes)
    assert again is axes and len(axes.lines) == 4
    spiral = hf.solve_fode(lambda t, y: 1j * y, (0.0, 1.0), [1.0 + 0j], 0.9, step=0.1)
    assert len(spiral.plot().lines) == 2
    with pytest.raises(InvalidInputError, match="at least -2 and at most 1"):
        result.plot(phase=(0, 2))
    with pytest.raises(InvalidInputError, match="two or three components"):
        result.plot(phase=(0,))
    with pytest.raises(InvalidInputError, match="ax has two"):
        result.plot(phase=(0, 1, 0), ax=axes)
    space = result.plot(phase=(0, 1, -1))
    assert space.name == "3d" and (space.get_xlabel(), space.get_ylabel(), space.get_zlabel()) == (
        "y[0]",
        "y[1]",
        "y[1]",
    )
    pyplot.close("all")


def test_plots_name_their_extra(monkeypatch: pytest.MonkeyPatch):
    """Without Matplotlib the error says what to install."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    plain = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] == "matplotlib":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return plain(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    monkeypatch.setattr("importlib.import_module", refuse)
    result = hf.solve_fode(decay, (0.0, 1.0), [1.0], 0.9, step=0.1)
    with pytest.raises(MissingDependencyError, match="hpfracc\\[plot\\]"):
        result.plot()


def test_the_result_in_words():
    """The representation says how it went; the decision can be kept as plain data."""
    result = hf.solve_fode(decay, (0.0, 1.0), [1.0], 0.9, step=0.1)
    assert "success" in repr(result) and "pece" in repr(result)
    assert result.decision is not None and result.decision.to_dict()["method"] == "pece"
    assert result.stats["steps"] == 10 and result.stats["seconds"] > 0.0


@pytest.mark.parametrize("method", ["bdf2", "implicit_rectangle"])
def test_a_solution_that_begins_at_infinity_is_known_near_it(method: str):
    """Riemann-Liouville data: infinite at t0 itself, with its sign, finite right after, and no warning."""
    found = hf.solve_fode(
        lambda t, y: -y, (0.0, 1.0), [-1.0], 0.8, derivative="riemann_liouville", step=0.01, method=method,
        dense_output=True,
    )  # fmt: skip
    t = np.array([0.0, 1e-4, 0.005])
    values = found.sol(t)[0]
    exact = -(t[1:] ** -0.2) * mittag_leffler(-(t[1:] ** 0.8), 0.8, 0.8)
    assert values[0] == -np.inf
    np.testing.assert_allclose(values[1:], exact, rtol=0.03)


@pytest.mark.parametrize("derivative", ["caputo", "caputo_hadamard", "tempered_caputo"])
def test_times_rise_from_any_start(derivative: str):
    """The first steps are shorter than times next to t0 = 1.4 can tell; y0 is the only value there."""
    more = {"rate": 1.0} if derivative == "tempered_caputo" else {}
    found = hf.solve_fode(lambda t, y: -3.0 * y, (1.4, 3.0), [1.0], 0.3, derivative=derivative, rtol=1e-8, **more)
    assert found.success and found.t[0] == 1.4 and found.t[-1] == 3.0
    assert np.all(np.diff(found.t) > 0.0) and found.y.shape == (1, found.t.size) and found.y[0, 0] == 1.0


@pytest.mark.parametrize("method", ["explicit_rectangle", "implicit_rectangle", "pece", "implicit_trapezoid"])
@pytest.mark.parametrize("alpha", [0.2, 0.3, 0.5])
def test_between_the_first_steps_the_error_is_that_of_the_steps(method, alpha):
    """Also for a method that does not evaluate the right-hand side at t0."""
    t = np.linspace(0.0, 0.1, 501)[1:]
    found = hf.solve_fode(lambda t, y: -y, (0.0, 0.1), [1.0], alpha, method=method, step=0.01, t_eval=t)
    error = np.abs(found.y[0] - hf.mittag_leffler(-(t**alpha), alpha))
    assert error.max() < 1.2 * error[49::50].max()
    assert error.max() < 3.0 * found.error_estimate

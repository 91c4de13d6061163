"""Adaptive steps in time: modes against closed solutions, jumps, limits of steps, frames, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.errors import InvalidInputError
from hpfracc.pde import Diffusion, Dirichlet
from hpfracc.special import mittag_leffler

X = np.linspace(0.0, math.pi, 17)
SINE = np.sin(X)
LINE: dict[str, Any] = {"x": X, "space": Diffusion(1.0), "boundary": "dirichlet"}
TIMES = np.linspace(0.0, 1.0, 33)


def response(t: np.ndarray, alpha: float, power: float = 0.0) -> np.ndarray:
    """The mode of eigenvalue -1 under a source t^power that is switched on at 0."""
    gone = np.maximum(t, 0.0)
    return (
        math.gamma(power + 1.0) * gone ** (alpha + power) * mittag_leffler(-(gone**alpha), alpha, alpha + power + 1.0)
    )


def pulse(t: float, x: np.ndarray) -> np.ndarray:
    return float(0.3 <= t < 0.6) * np.sin(x)


def solve(source: Callable[..., Any] | None, alpha: float, u0: Any = 0.0 * X, **more: Any) -> Any:
    given = {**LINE, "alpha": alpha, "source": source, "method": "adaptive", "estimate": False, **more}
    if alpha > 1.0:
        given["du0"] = 0.0
    return hf.solve_fpde(None, (0.0, 1.0), u0, **given)


@pytest.mark.parametrize("alpha", [0.4, 0.8, 1.0, 1.5, 2.0])
def test_a_switched_source_costs_few_steps(alpha: float):
    """Both jumps are met, given or found; the error is within the tolerance and not far above its estimate."""
    exact = response(TIMES - 0.3, alpha) - response(TIMES - 0.6, alpha)
    for given in ({}, {"breakpoints": [0.3, 0.6]}):
        found = solve(pulse, alpha, rtol=1e-5, t_eval=TIMES, **given)
        error = np.abs(found.u[:, 8] - exact).max()
        assert found.success and error < 1e-5 * np.abs(exact).max()
        assert error < 3.0 * found.error_estimate.time < 3e-5
        assert found.stats["steps_in_all"] < 600


@pytest.mark.parametrize(
    ("alpha", "power", "rate", "start", "velocity", "rtol"),
    [
        (0.6, 0.0, 1.0, 1.0, 0.0, 1e-3),
        (1.75, 0.0, 1.0, 1.0, 0.0, 3e-3),
        (1.9, 0.0, 4.0, 1.0, 1.0, 1e-3),
        (1.93, 0.5, 1.8, 0.1, 0.0, 2e-4),
    ],
)
def test_estimates_hold_where_the_source_is_not_smooth_at_the_start(
    alpha: float, power: float, rate: float, start: float, velocity: float, rtol: float
):
    """A source that is zero at t0 but not behind it, or starts like a root: few steps, whose errors do not fade."""
    given = {"du0": velocity * SINE} if alpha > 1.0 else {}
    found = hf.solve_fpde(
        None, (0.0, 2.0), start * SINE, **{**LINE, "space": Diffusion(rate)}, alpha=alpha, method="adaptive", rtol=rtol,
        source=lambda t, x: (t**power if t > 0.0 else 0.0) * np.sin(x), estimate=False, **given,
    )  # fmt: skip
    t, z = found.t, -rate * found.t**alpha
    exact = start * mittag_leffler(z, alpha) + velocity * t * mittag_leffler(z, alpha, 2.0)
    exact += math.gamma(power + 1.0) * t ** (alpha + power) * mittag_leffler(z, alpha, alpha + power + 1.0)
    assert found.success and np.abs(found.u[:, 8] - exact).max() < 2.0 * found.error_estimate.time


@pytest.mark.parametrize("alpha", [0.6, 1.5])
def test_a_fast_source_is_followed_as_by_the_mode(alpha: float):
    """As many steps as solve_fode takes for the one mode, within a factor of 2, and the same values."""
    more = {} if alpha < 1.0 else {"dy0": [[0.0]]}
    mode = hf.solve_fode(
        lambda t, y: np.sin(50.0 * t) - y, (0.0, 1.0), [0.0], alpha, rtol=1e-5, backend="numpy", **more
    )
    close = hf.solve_fode(
        lambda t, y: np.sin(50.0 * t) - y, (0.0, 1.0), [0.0], alpha, rtol=1e-8, t_eval=TIMES, backend="numpy", **more
    )
    found = solve(lambda t, x: np.sin(50.0 * t) * np.sin(x), alpha, rtol=1e-5, t_eval=TIMES)
    assert found.success and found.stats["steps"] <= 2 * mode.stats["steps"]
    error = np.abs(found.u[:, 8] - close.y[0]).max()
    assert error < 1e-5 * np.abs(close.y).max() and error < 3.0 * found.error_estimate.time


@pytest.mark.slow
def test_many_modes_at_once():
    """A box that all modes make up: they are those of solve_fode, some of them stiff for the steps."""
    found = solve(lambda t, x: np.cos(20.0 * t) * (np.abs(x - 1.0) < 0.5), 0.7, rtol=1e-5, t_eval=[0.4, 1.0])
    k = np.arange(1.0, 16.0)
    shapes = np.sin(np.outer(k, X[1:-1]))
    sizes = shapes @ (np.abs(X[1:-1] - 1.0) < 0.5) / 8.0
    modes = hf.solve_fode(
        lambda t, y: np.cos(20.0 * t) - k * k * y, (0.0, 1.0), np.zeros(15), 0.7, rtol=1e-6, atol=1e-9,
        t_eval=[0.4, 1.0], jac=lambda t, y: np.diag(-k * k), backend="numpy",
    )  # fmt: skip
    exact = (sizes * modes.y.T) @ shapes
    assert np.abs(found.u[:, 1:-1] - exact).max() < 2e-5 * np.abs(exact).max()


@pytest.mark.parametrize("alpha", [0.5, 0.8])
def test_the_error_falls_with_the_tolerance_behind_jumps(alpha: float):
    """Order in the number of steps: at least 1 + alpha over three digits, with the past as exponentials."""
    errors, steps = [], []
    for rtol in (1e-3, 1e-6):
        found = solve(pulse, alpha, rtol=rtol, atol=1e-10, t_eval=TIMES, breakpoints=[0.3, 0.6])
        exact = response(TIMES - 0.3, alpha) - response(TIMES - 0.6, alpha)
        errors.append(np.abs(found.u[:, 8] - exact).max())
        steps.append(found.stats["steps"])
    assert math.log(errors[0] / errors[1]) / math.log(steps[1] / steps[0]) > 1.0 + alpha


def test_jumps_that_nobody_announced():
    """Forty pulses, more than a graded mesh would meet; and a short one between the looks, whose times are given."""
    edges = np.linspace(0.05, 0.97, 80)
    exact = sum((-1.0) ** i * response(TIMES - edge, 0.7) for i, edge in enumerate(edges))
    found = solve(
        lambda t, x: float(np.searchsorted(edges, t, side="right") % 2) * np.sin(x), 0.7, rtol=1e-3, t_eval=TIMES
    )
    assert found.success and np.abs(found.u[:, 8] - exact).max() < 1e-3 * np.abs(exact).max()
    short = solve(
        lambda t, x: 1e3 * float(0.3 <= t < 0.3002) * np.sin(x), 0.7, rtol=1e-3, t_eval=TIMES, breakpoints=[0.3, 0.3002]
    )
    exact = 1e3 * (response(TIMES - 0.3, 0.7) - response(TIMES - 0.3002, 0.7))
    assert np.abs(short.u[:, 8] - exact).max() < 1e-3 * np.abs(exact).max()


@pytest.mark.slow
@pytest.mark.slow
def test_a_jump_of_the_reaction_at_another_state_is_named():
    """The scan of the data does not see it: steps are rejected down to it, and the message asks for breakpoints."""
    found = hf.solve_fpde(
        lambda t, u: (1e3 if t > 1.0 / 3.0 and u.max() > 1e-3 else 0.0) * SINE + SINE, (0.0, 0.36), 0.0 * X, alpha=0.6,
        rtol=1e-8, method="adaptive", estimate=False, **LINE,
    )  # fmt: skip
    assert not found.success and "the data jump near t = 0.333333; give breakpoints=" in found.message


def test_what_the_steps_do_not_see_shortens_them():
    """A smooth bump that is narrower than the steps, but not than the looks."""
    width = 4e-3

    def bump(t: float, x: np.ndarray) -> np.ndarray:
        return math.exp(-(((t - 0.7) / width) ** 2)) * np.sin(x)

    found = solve(bump, 0.6, SINE, rtol=1e-4, t_eval=TIMES)
    mode = hf.solve_fode(
        lambda t, y: math.exp(-(((t - 0.7) / width) ** 2)) - y, (0.0, 1.0), [1.0], 0.6, rtol=1e-8, max_step=1e-3,
        t_eval=TIMES,
    )  # fmt: skip
    assert found.success and np.abs(found.u[:, 8] - mode.y[0]).max() < 1e-4
    assert found.error_estimate.time < 1e-3


def test_reactions_walls_and_coefficients():
    """A linear reaction, a wall that jumps, D(x): against the mode, and against given steps of L2-1sigma."""
    found = hf.solve_fpde(lambda t, u: -2.0 * u, (0.0, 1.0), SINE, alpha=0.6, rtol=1e-6, estimate=False, **LINE)
    assert found.decision.method == "adaptive"
    assert np.abs(found.u[:, 8] - mittag_leffler(-3.0 * found.t**0.6, 0.6)).max() < 1e-6
    wall = (Dirichlet(lambda t: float(t >= 0.4)), Dirichlet(0.0))
    for more in ({"boundary": (wall,)}, {"space": Diffusion(lambda x: 1.0 + 0.5 * np.sin(x))}):
        given = {**LINE, "alpha": 0.8, "estimate": False, **more}
        steps = hf.solve_fpde(None, (0.0, 1.0), SINE, method="adaptive", rtol=1e-4, t_eval=[1.0], **given)
        mesh = hf.solve_fpde(None, (0.0, 1.0), SINE, method="l2_1sigma", rtol=1e-4, t_eval=[1.0], **given)
        assert steps.success and mesh.success
        assert np.abs(steps.u - mesh.u).max() < 3e-4


@pytest.mark.parametrize("rtol", [1e-4, 1e-8])
def test_terminal_events_obey_the_tolerance(rtol: float):
    """E_1/2(-sqrt(t)) = 1/2 at t = 0.5914836942557233 (bisection of the closed form)."""

    def event(t: float, u: np.ndarray) -> float:
        return float(u[8]) - 0.5

    event.terminal = True  # type: ignore[attr-defined]
    found = solve(lambda t, x: 0.0 * x * np.cos(t), 0.5, SINE, rtol=rtol, events=event)
    assert found.t_events is not None and found.stats["terminated"]
    assert found.t_events[0][0] == pytest.approx(0.5914836942557233, rel=4.0 * rtol)
    assert found.stats["steps_in_all"] < 600


def test_the_solution_between_the_steps():
    """``sol`` is the integral of the method, which starts like t^alpha."""
    found = solve(lambda t, x: 0.0 * x * np.cos(t), 0.5, SINE, rtol=1e-6, dense_output=True)
    times = np.geomspace(1e-9, 1.0, 40)
    values = np.array([found.sol(t, X)[8] for t in times])
    assert np.abs(values - mittag_leffler(-np.sqrt(times), 0.5)).max() < 1e-6


def test_frames_by_default():
    """At most some 200, with both ends, of adaptive and of given steps; more on request."""
    fast = {"alpha": 0.5, "rtol": 1e-5, "estimate": False, "source": lambda t, x: np.sin(50.0 * t) * np.sin(x)}
    for given in (fast, {"alpha": 0.5, "method": "l1", "step": 1e-3, "estimate": False}):
        few = hf.solve_fpde(None, (0.0, 1.0), SINE, **LINE, **given)
        every = hf.solve_fpde(None, (0.0, 1.0), SINE, save="all", **LINE, **given)
        assert 100 <= len(few.t) <= 201 < len(every.t) == every.stats["steps"] + 1
        assert few.t[0] == 0.0 and few.t[-1] == 1.0 and set(few.t) <= set(every.t)
        assert len(few.u) == len(few.t)


def test_limits_of_the_steps():
    """The first and the longest step are those that were asked for."""
    found = solve(lambda t, x: np.cos(t) * np.sin(x), 0.6, SINE, first_step=1e-9, max_step=0.02, save="all", rtol=1e-3)
    lengths = np.diff(found.t)
    assert lengths[0] == pytest.approx(1e-9) and lengths.max() <= 0.02 * (1.0 + 1e-9)


def test_a_source_that_is_infinite_at_the_start_has_a_graded_mesh():
    """``decision`` says which method and why."""
    found = solve(lambda t, x: t**-0.3 * np.sin(x) if t > 0.0 else np.inf * np.sin(x), 0.6, rtol=1e-3, t_eval=TIMES)
    assert found.decision.method == "l2_1sigma" and "not finite at t0" in found.decision.reason
    exact = response(TIMES[1:], 0.6, -0.3)
    assert np.abs(found.u[1:, 8] - exact).max() < 3e-3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"breakpoints": [0.5, 2.0]}, "breakpoints"),
        ({"breakpoints": [-0.1]}, "breakpoints"),
        ({"breakpoints": [0.5], "method": "convolution_quadrature"}, "do not end at breakpoints"),
        ({"first_step": 1e-3, "method": "l1"}, "first_step=0.001"),
        ({"step": 0.1, "method": "adaptive"}, "chooses its steps"),
        ({"terms": [(1.0, 0.2)], "method": "adaptive"}, "one derivative in time"),
        ({"save": "some"}, "save='some'"),
    ],
)
def test_what_is_refused(options: dict[str, Any], words: str):
    """Before the first step, with the value and what to do."""
    given = {**LINE, "alpha": 0.6, "source": pulse, **options}
    with pytest.raises(InvalidInputError, match=words):
        hf.solve_fpde(None, (0.0, 1.0), SINE, **given)


@pytest.mark.parametrize("library", ["torch", "jax.numpy"])
@pytest.mark.parametrize(
    "more",
    [{"method": "adaptive"}, {"first_step": 1e-3}, {"alpha": 1.5, "du0": 0.0, "breakpoints": [0.3]}],
    ids=["asked for", "with a first step", "above order 1"],
)
def test_tensors_are_refused_with_the_methods_that_serve_them(library: str, more: dict[str, Any]):
    """Adaptive steps are written for NumPy; nobody's tensor is copied to the host in silence."""
    xp = pytest.importorskip(library)
    with pytest.raises(InvalidInputError, match="give u0 as such an array, or take 'l1', 'l2_1sigma' or"):
        hf.solve_fpde(lambda t, u: -u, (0.0, 1.0), xp.asarray(SINE), **{**LINE, "alpha": 0.6, **more})


def test_breakpoints_choose_steps_that_meet_them():
    """Also where another method would be the default: at order 1, and above it."""
    for alpha in (1.0, 1.4):
        found = hf.solve_fpde(
            None, (0.0, 1.0), SINE, alpha=alpha, du0=0.0 if alpha > 1.0 else None, source=pulse, breakpoints=[0.3, 0.6],
            rtol=1e-3, estimate=False, **LINE,
        )  # fmt: skip
        assert found.success and found.decision.method == "adaptive"


@pytest.mark.parametrize("orders", [(0.05, 1.9), (0.3, 1.9)])
def test_orders_far_apart_in_one_system(orders: tuple[float, float]):
    """The first steps follow the lowest order, 1e-48 long; the error of the other does not grow over all decades."""
    start = np.stack([SINE, SINE])
    found = hf.solve_fpde(
        None, (0.0, 1.0), start, alpha=orders, du0=0.0 * start, rtol=1e-4, atol=1e-7, estimate=False, **LINE
    )
    assert found.success and found.decision.method == "adaptive" and found.stats["steps_in_all"] < 1000
    exact = np.stack([mittag_leffler(-(found.t**alpha), alpha) for alpha in orders], axis=1)
    assert np.abs(found.u[:, :, 8] - exact).max() < 3.0 * found.error_estimate.time < 1e-3


def test_data_that_are_not_finite_between_two_steps():
    """They are seen, and the solve does not step over them in silence."""
    found = solve(lambda t, x: (math.nan if 0.49 < t < 0.51 else 1.0) * np.sin(x), 0.6, rtol=1e-3)
    assert not found.success and "not finite at t = 0.49" in found.message


@pytest.mark.parametrize("power", [-0.3, -0.42])
def test_a_source_that_divides_by_zero_at_the_start(power: float):
    """As a number of Python, ``t**-0.3`` raises an error at t0; the estimate holds at all times."""
    found = solve(lambda t, x: t**power * np.sin(x), 0.6, rtol=1e-4, save="all")
    exact = response(found.t[1:], 0.6, power)
    assert found.success
    assert np.abs(found.u[1:, 8] - exact).max() < 3.0 * found.error_estimate.time < 1e-3


def test_smooth_data_over_a_long_interval_are_no_singularity():
    """A source that falls from t = 1 on, over an interval of 1e9, leaves the method that was asked for."""
    span = (0.0, 1e9)
    found = hf.solve_fpde(
        None, span, 0.0 * X, source=lambda t, x: np.sin(x) / (1.0 + t), alpha=0.6, method="adaptive", estimate=False,
        rtol=1e-3, atol=1e-12, **LINE,
    )  # fmt: skip
    assert found.success and found.decision.method == "adaptive"

"""Estimates of the errors of grid and steps against the true ones."""

from __future__ import annotations

import math

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.errors import AccuracyWarning
from hpfracc.pde import (
    CorrectedQuadrature,
    Diffusion,
    DiffusionL1,
    DiffusionL2Sigma,
    Dirichlet,
    Disc,
    Exterior,
    FractionalDiffusion,
    OneSided,
    problems,
)

ALPHA = 0.5


def rate(t: float) -> float:
    """The derivative of 1 + t^2."""
    return 2.0 * t ** (2.0 - ALPHA) / math.gamma(3.0 - ALPHA)


@pytest.mark.parametrize(("boundary", "points"), [("dirichlet", 33), ("dirichlet", 50), ("neumann", 33)])
@pytest.mark.parametrize("uneven", [False, True])
def test_the_grid_of_finite_volumes(boundary: str, points: int, uneven: bool):
    """u = (1 + t^2) sin(pi x) or cos(pi x) with k = 1 + x: within a factor of 5, for odd and even numbers of points."""
    x = np.linspace(0.0, 1.0, points) ** (1.5 if uneven else 1.0)
    wave, slope = (np.sin, np.cos) if boundary == "dirichlet" else (np.cos, lambda z: -np.sin(z))

    def source(t: float, x: np.ndarray) -> np.ndarray:
        image = math.pi * slope(math.pi * x) - (1.0 + x) * math.pi**2 * wave(math.pi * x)
        return rate(t) * wave(math.pi * x) - (1.0 + t * t) * image

    given = {"space": Diffusion(lambda x: 1.0 + x), "boundary": boundary, "alpha": ALPHA, "source": source}
    found = hf.solve_fpde(None, (0.0, 1.0), wave(math.pi * x), x=x, step=0.01, save="last", **given)
    error = np.abs(found.u[-1] - 2.0 * wave(math.pi * x)).max()
    assert 0.2 < found.error_estimate.space / error < 5.0


def test_the_grid_in_two_dimensions():
    """The same in a square, where linear systems are solved by iterations."""
    x = np.linspace(0.0, 1.0, 17)
    start = np.outer(np.sin(math.pi * x), np.sin(math.pi * x))

    def source(t: float, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        value = np.sin(math.pi * x) * np.sin(math.pi * y)
        image = math.pi * np.cos(math.pi * x) * np.sin(math.pi * y) - 2.0 * (1.0 + x) * math.pi**2 * value
        return rate(t) * value - (1.0 + t * t) * image

    given = {"space": Diffusion(lambda x, y: 1.0 + x + 0.0 * y), "boundary": "dirichlet", "alpha": ALPHA}
    found = hf.solve_fpde(None, (0.0, 1.0), start, x=(x, x), source=source, step=0.02, save="last", **given)
    error = np.abs(found.u[-1] - 2.0 * start).max()
    assert 0.2 < found.error_estimate.space / error < 5.0


def test_the_grid_of_one_sided_differences():
    """The equation of Tadjeran, Meerschaert and Scheffler, u = e^-t x^3."""
    x = np.linspace(0.0, 1.0, 21)
    found = hf.solve_fpde(
        None,
        (0.0, 1.0),
        x**3,
        x=x,
        space=OneSided(1.8, "left", lambda x: math.gamma(2.2) * x**2.8 / 6.0),
        boundary=(Dirichlet(0.0), Dirichlet(lambda t: math.exp(-t))),
        source=lambda t, x: -(1.0 + x) * math.exp(-t) * x**3,
        method="crank_nicolson",
        step=0.005,
        save="last",
    )
    error = np.abs(found.u[-1] - math.exp(-1.0) * x**3).max()
    assert 0.2 < found.error_estimate.space / error < 5.0


def test_a_solution_that_is_not_smooth_at_the_boundary():
    """(1 - x^2)^(1/2), whose largest error is of order 1/2: the order is seen, not assumed."""
    x = np.linspace(-1.0, 1.0, 33)
    found = hf.solve_fpde(
        None,
        (0.0, 20.0),
        0.0 * x,
        x=x,
        space=FractionalDiffusion(1.0, "riesz", lambda x: 1.0 + 0.0 * x),
        boundary=Exterior(0.0),
        source=np.ones(31),
        method="crank_nicolson",
        step=0.2,
        save="last",
    )
    error = np.abs(found.u[-1] - np.sqrt(1.0 - x**2)).max()
    assert 0.2 < found.error_estimate.space / error < 5.0


def test_the_disc():
    """Small where few functions carry the solution, large where many do; it bounds the error of the mass."""
    smooth = {"space": FractionalDiffusion(1.0, "integral"), "boundary": Exterior(0.0), "alpha": ALPHA}

    def solved(start, radial: int):
        with np.errstate(invalid="ignore"):
            return hf.solve_fpde(None, (0.0, 0.5), start, x=Disc(1.0, radial, 16), **smooth)

    def even(x, y):
        return np.sqrt(np.maximum(1.0 - x * x - y * y, 0.0))

    assert solved(even, 12).error_estimate.space < 1e-3
    with pytest.warns(AccuracyWarning, match="too coarse"):
        rough = solved(lambda x, y: even(x, y) * (x > 0.3), 6)
    fine = solved(lambda x, y: even(x, y) * np.exp(-4.0 * (x * x + y * y)), 24)
    coarse = solved(lambda x, y: even(x, y) * np.exp(-4.0 * (x * x + y * y)), 6)
    assert abs(coarse.mass[-1] - fine.mass[-1]) < math.pi * coarse.error_estimate.space
    assert fine.error_estimate.space < coarse.error_estimate.space < rough.error_estimate.space


@pytest.mark.parametrize(
    ("method", "alpha", "steps"),
    [
        (DiffusionL1(), 0.6, 128),
        (DiffusionL1(grading=1.0), 0.6, 100),  # of order alpha at the start, and not of 2 - alpha
        (DiffusionL2Sigma(), 0.6, 64),
        (DiffusionL2Sigma(), 0.6, 101),  # no common times but the end
        (CorrectedQuadrature(2), 1.6, 96),
        ("imex_bdf2", 1.0, 128),
        ("etdrk4", 1.0, 32),
    ],
)
def test_the_steps(method, alpha: float, steps: int):
    """A reaction -u beside diffusion of a sine: within a factor of 5 of the largest error, or of that at the end."""
    x = np.linspace(0.0, np.pi, 9)
    given = {"x": x, "space": Diffusion(1.0), "boundary": "dirichlet", "alpha": alpha, "method": method}
    more = {"du0": 0.0} if alpha > 1.0 else {}
    found = hf.solve_fpde(lambda t, u: -u, (0.0, 1.0), np.sin(x), step=1.0 / steps, rtol=1e-12, **given, **more)
    exact = hf.mittag_leffler(-2.0 * found.t**alpha, alpha)
    errors = np.abs(found.u[:, 4] - exact)
    compared = errors[-1] if steps == 101 else errors.max()
    assert 0.2 < found.error_estimate.time / compared < 5.0
    assert found.stats["steps"] == steps and 0 < found.stats["estimate_steps"] < steps


def test_who_asks_for_an_estimate_of_the_steps():
    """By default what is not compiled; none where it is not wanted."""
    x = np.linspace(0.0, np.pi, 9)
    given = {"x": x, "space": Diffusion(1.0), "boundary": "dirichlet", "alpha": 0.5, "method": "l1", "step": 0.01}

    def time_error(**more) -> float:
        return hf.solve_fpde(None, (0.0, 1.0), np.sin(x), **given, **more).error_estimate.time

    plain = time_error(compile=False)
    assert plain > 0.0 and math.isnan(time_error(estimate=False))
    assert math.isnan(time_error(compile=True))
    assert time_error(compile=True, estimate=True) == pytest.approx(plain, rel=1e-6)
    with pytest.raises(hf.errors.InvalidInputError, match="estimate"):
        time_error(estimate="never")


def worst(found, exact, rtol: float, atol: float) -> float:
    """The largest error over the tolerance at the times that were kept: the first 40, and every fifth."""
    some = np.unique(np.concatenate([np.arange(min(40, len(found.t))), np.arange(0, len(found.t), 5)]))
    times, values = found.t[some], np.stack([exact(float(t)) for t in found.t[some]])
    gone = np.maximum(times, 1e-300)
    carried = np.maximum.accumulate(np.abs(values).max(axis=1) * gone) / gone
    return float((np.abs(found.u[some] - values).max(axis=1) / (atol + rtol * carried)).max())


@pytest.mark.parametrize("name", ["distributed_order", "diffusion_wave"])
def test_the_tolerance_holds_at_every_time_that_is_kept(name: str):
    """Uniform steps with memory: their start is solved in shorter intervals; 375 times the tolerance without."""
    equation = (
        problems.distributed_order(9) if name == "distributed_order" else problems.diffusion_wave(1.6, 9, 0.0, 1.0)
    )
    given = {"rtol": 1e-4, "atol": 1e-7, "method": CorrectedQuadrature(4 if equation.du0 is None else 2)}

    def exact(t: float) -> np.ndarray:
        return equation.solution(t, equation.x)

    found = equation.solve(save="all", **given)
    assert found.success and worst(found, exact, 1e-4, 1e-7) < 3.0
    assert found.t[0] == 0.0 and np.all(np.diff(found.t) > 0.0) and found.t[1] < 2e-3
    assert found.stats["start_steps"] > 0 and any("start was solved" in note for note in found.decision.notes)
    # Every seventh step of each interval, and its last.
    some = equation.solve(save=7, **given)
    assert len(some.t) < len(found.t) / 5 and worst(some, exact, 1e-4, 1e-7) < 3.0
    # The last frame alone needs no start.
    assert "start_steps" not in equation.solve(save="last", **given).stats


def test_wanted_times_events_and_functionals_of_a_start_that_is_solved_apart():
    """Values at early times by t_eval and sol, an event in the start, and a functional of each step."""
    equation = problems.distributed_order(9)
    given = {"rtol": 1e-4, "atol": 1e-7}
    times = np.array([0.0, 1e-4, 3e-3, 0.0625, 0.3, 2.0])
    found = equation.solve(t_eval=times, dense_output=True, **given)
    np.testing.assert_array_equal(found.t, times)
    for values in (found.u, found.sol(times)):
        exact = np.stack([equation.solution(float(t), equation.x) for t in times])
        assert np.abs(values - exact).max() < 5e-4

    def falls(t: float, u: np.ndarray) -> float:
        return float(u.max()) - 0.9

    seen = equation.solve(events=falls, **given)
    (at,) = seen.t_events[0]
    assert 1e-4 < at < 0.0625 and abs(equation.solution(at, equation.x).max() - 0.9) < 2e-4
    falls.terminal = True
    ended = equation.solve(events=falls, **given)
    assert ended.t[-1] == pytest.approx(at, rel=1e-3) and ended.success
    peaks = equation.solve(save=lambda t, u: u.max(), **given)
    assert peaks.u.shape == peaks.t.shape and np.all(np.diff(peaks.u) < 0.0)


@pytest.mark.filterwarnings("ignore:the integral Laplacian by centred differences")
def test_steps_are_not_refined_far_below_the_error_of_the_grid():
    """A tenth of it is enough, unless rtol is asked for, and the error of both together stays within the estimate."""
    x = np.linspace(-1.0, 1.0, 17)
    given = {
        "x": (x, x),
        "space": FractionalDiffusion(1.0, "integral"),
        "boundary": Exterior(0.0),
        "alpha": 0.6,
        "source": lambda t, x, y: np.cos(3.0 * t) + 0.0 * x * y,
        "save": "last",
        "method": "l2_1sigma",
    }
    found = hf.solve_fpde(None, (0.0, 1.0), np.zeros((17, 17)), **given)
    assert found.success and found.stats["steps_in_all"] < 1000
    assert 0.0 < found.error_estimate.time <= 0.1 * found.error_estimate.space
    assert any("below 0.1 of it, and not to rtol = 1e-06" in note for note in found.decision.notes)
    asked = hf.solve_fpde(None, (0.0, 1.0), np.zeros((17, 17)), **given, estimate=False, rtol=1e-5)
    assert asked.error_estimate.time <= 1e-5 * np.abs(asked.u[-1]).max()
    assert not any("not to rtol" in note for note in asked.decision.notes)
    assert np.abs(found.u[-1] - asked.u[-1]).max() <= found.error_estimate.time + asked.error_estimate.time


def test_a_grid_without_error_leaves_the_tolerance_alone():
    """A sine has none: rtol holds."""
    x = np.linspace(0.0, np.pi, 9)
    given = {"x": x, "space": Diffusion(1.0), "boundary": "dirichlet", "alpha": 0.6, "rtol": 1e-4}
    found = hf.solve_fpde(lambda t, u: -u, (0.0, 1.0), np.sin(x), **given)
    assert found.error_estimate.time <= 1e-4 and not any("not to rtol" in note for note in found.decision.notes)


def test_terminal_events_before_a_jump_have_an_estimate_of_the_grid():
    """Jumps behind the event are not met by the solutions on coarser grids."""

    def low(t, u):
        return float(np.abs(u).max()) - 0.5

    low.terminal = True
    x = np.linspace(0.0, 1.0, 17)
    given = {"x": x, "space": Diffusion(lambda x: 1.0 + x), "boundary": "dirichlet", "alpha": 0.6, "events": low}
    source = lambda t, x: (1.0 if t > 0.7 else 0.0) * x  # noqa: E731
    found = hf.solve_fpde(None, (0.0, 1.0), np.sin(np.pi * x), source=source, rtol=1e-3, **given)
    alone = hf.solve_fpde(None, (0.0, 0.5), np.sin(np.pi * x), rtol=1e-3, **given)
    assert found.status == 1 and found.t[-1] < 0.5
    assert found.error_estimate.space == pytest.approx(alone.error_estimate.space, rel=0.2)


def _forced_mode(t: np.ndarray, rate: float, alpha: float, source: float) -> np.ndarray:
    """The amplitude of sin(pi x) from 1 with D^alpha u = -rate u + source."""
    z = -rate * t**alpha
    return hf.mittag_leffler(z, alpha) + source * t**alpha * hf.mittag_leffler(z, alpha, alpha + 1.0)


def test_quadrature_has_its_order_where_the_source_is_switched_on_at_the_start():
    """The source is 0 at t0 and 1 behind it: the correction of the first step needs the value behind."""
    x = np.linspace(0.0, 1.0, 9)
    sine = np.sin(np.pi * x)
    errors = []
    for steps in (64, 128, 256):
        found = hf.solve_fpde(
            None,
            (0.0, 1.0),
            sine,
            x=x,
            space=FractionalDiffusion(2.0, "spectral", 0.5),
            boundary="dirichlet",
            alpha=0.5,
            source=lambda t, x: np.sin(np.pi * x) if t > 0.0 else 0.0 * x,
            method="convolution_quadrature",
            step=1.0 / steps,
            save="last",
            estimate=False,
        )
        truth = _forced_mode(np.array([1.0]), 0.5 * np.pi**2, 0.5, 1.0)[0] * sine
        errors.append(float(np.abs(found.u[-1] - truth).max()))
    assert np.log2(errors[0] / errors[1]) > 1.8 and np.log2(errors[1] / errors[2]) > 1.8


@pytest.mark.parametrize("rate", [4.0, 39.0, 300.0])
def test_the_estimate_of_given_steps_knows_the_first_one(rate: float):
    """A layer that no step resolves: with fewer steps the error of the first one is smaller."""
    x = np.linspace(0.0, 1.0, 9)
    space = FractionalDiffusion(2.0, "spectral", rate / np.pi**2)
    given = {"x": x, "space": space, "boundary": "dirichlet", "alpha": 0.2, "estimate": True}
    sine = np.sin(np.pi * x)
    found = hf.solve_fpde(None, (0.0, 8.0), sine, method="convolution_quadrature", step=8.0 / 128, **given)
    truth = _forced_mode(found.t, rate, 0.2, 0.0)[:, None] * sine
    error = float(np.abs(found.u - truth).max())
    assert error / 1.5 < found.error_estimate.time < 3.0 * error

"""Data that change between steps, jump, or are singular; events; and what a solve says of them."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import pickle

import numpy as np
import pytest
from scipy.optimize import brentq

import hpfracc as hf
from hpfracc.pde import CorrectedQuadrature, Diffusion, DiffusionL1, DiffusionL2Sigma, Dirichlet, Neumann
from hpfracc.solvers.pde.changes import mesh_breaks, scan_data
from hpfracc.solvers.pde.driver import run_mesh
from hpfracc.solvers.pde.method import Question
from hpfracc.solvers.pde.reading import read_evolution
from hpfracc.solvers.stepping.options import Options
from tests.helpers.convergence import observed_order

ML = hf.mittag_leffler
X = np.linspace(0.0, 1.0, 17)
SINE = np.sin(np.pi * X)
ALPHA = 0.6
RATE = np.pi**2
GIVEN = {"x": X, "space": Diffusion(1.0), "boundary": "dirichlet", "alpha": ALPHA}


def response(t, alpha: float = ALPHA, power: float = 0.0, rate: float = RATE):
    """The solution of D^alpha u = -rate u + t^power from zero."""
    gone = np.maximum(t, 0.0)
    return math.gamma(power + 1.0) * gone ** (power + alpha) * ML(-rate * gone**alpha, alpha, power + alpha + 1.0)


def falls_to(level: float, *, terminal: bool = True):
    """An event: the largest value falls to ``level``."""

    def event(t: float, u: np.ndarray) -> float:
        return float(u.max()) - level

    event.terminal = terminal
    return event


def root(rate: float, level: float = 0.1) -> float:
    return brentq(lambda t: float(ML(-rate * t**ALPHA, ALPHA)) - level, 1e-9, 10.0, xtol=1e-14)


def test_events_and_sol_of_exact_modes_are_evaluated():
    """Times come from the decay of the modes: 101 output times of a long interval do not see the event."""
    found = hf.solve_fpde(None, (0.0, 1000.0), SINE, events=falls_to(0.1), **GIVEN)
    assert found.t_events[0] == pytest.approx([root(RATE)], rel=1e-12)
    assert found.t[-1] == found.t_events[0][0] and found.u[-1].max() == pytest.approx(0.1)
    whole = hf.solve_fpde(None, (0.0, 10.0), SINE, events=falls_to(0.1, terminal=False), dense_output=True, **GIVEN)
    assert len(whole.t) == 101 and len(whole.t_events[0]) == 1
    for sol in (whole.sol, pickle.loads(pickle.dumps(whole)).sol):
        assert sol(0.01)[8] == pytest.approx(float(ML(-RATE * 0.01**ALPHA, ALPHA)), rel=1e-12)
    some = hf.solve_fpde(None, (0.0, 10.0), SINE, events=falls_to(0.1, terminal=False), save=10, **GIVEN)
    assert np.allclose(some.t, np.linspace(0.0, 10.0, 11))


def test_events_of_waves_are_not_missed():
    """Every zero of cos(pi t), between frames that are 5 apart."""
    found = hf.solve_fpde(
        None, (0.0, 100.0), SINE, du0=0.0, events=lambda t, u: u[8], step=5.0, **{**GIVEN, "alpha": 2.0}
    )
    assert np.allclose(found.t_events[0], np.arange(100) + 0.5)


@pytest.mark.parametrize("method", ["l2_1sigma", "l1"])
def test_terminal_events_obey_the_tolerance(method: str):
    """A reaction -u beside diffusion; closer with a smaller rtol, and with an estimate."""
    exact = root(RATE + 1.0)
    for rtol in (1e-3, 1e-4) if method != "l1" else (1e-3,):
        found = hf.solve_fpde(
            lambda t, u: -u, (0.0, 10.0), SINE, events=falls_to(0.1), method=method, rtol=rtol, **GIVEN
        )
        at = found.t_events[0][0]
        assert found.success and abs(at - exact) < 2.0 * rtol * exact
        values = float(ML(-(RATE + 1.0) * at**ALPHA, ALPHA))
        assert abs(values - 0.1) < 3.0 * found.error_estimate.time


@pytest.mark.parametrize("method", ["l2_1sigma", "l1"])
def test_a_pulse_is_seen(method: str):
    """1e3 on [0.3, 0.301]: steps end at its ends, and the error is that of a smooth problem."""

    def source(t: float, x: np.ndarray) -> np.ndarray:
        return 1e3 * (0.3 <= t <= 0.301) * np.sin(np.pi * x)

    rtol = 1e-3 if method == "l2_1sigma" else 1e-2
    found = hf.solve_fpde(None, (0.0, 1.0), 0.0 * X, source=source, method=method, rtol=rtol, **GIVEN)
    exact = 1e3 * (response(found.t - 0.3) - response(found.t - 0.301))
    error = np.abs(found.u[:, 8] - exact).max()
    assert found.success and error < 3.0 * rtol * exact.max() and error < 3.0 * found.error_estimate.time
    assert any("jump at t = 0.3, 0.301" in note for note in found.decision.notes)
    # Interpolation does not cross the kinks.
    times = np.array([0.1, 0.2999, 0.30005, 0.3005, 0.3011, 0.7])
    exact = 1e3 * (response(times - 0.3) - response(times - 0.301))
    given = {"source": source, "method": method, "rtol": rtol, **GIVEN}
    wanted = hf.solve_fpde(None, (0.0, 1.0), 0.0 * X, t_eval=times, dense_output=True, **given)
    assert np.abs(wanted.u[:, 8] - exact).max() < 3.0 * rtol * 20.0
    assert np.abs(wanted.sol(times)[:, 8] - exact).max() < 3.0 * rtol * 20.0


def test_max_step_finds_what_is_narrower():
    """A pulse of 2e-4 of the interval lies between the looks, which a limit of the steps brings closer."""

    def source(t: float, x: np.ndarray) -> np.ndarray:
        return 1e3 * (0.3 <= t <= 0.3002) * np.sin(np.pi * x)

    given = {**GIVEN, "du0": None, "source": source, "args": (), "jac": None, "terms": (), "backend": "numpy"}
    problem = read_evolution(None, (0.0, 1.0), SINE, **given)
    assert scan_data(problem).jumps == ()
    assert scan_data(problem, 2e-4).jumps == pytest.approx((0.3, 0.3002), abs=1e-14)
    lengths = np.diff(hf.solve_fpde(lambda t, u: -u, (0.0, 1.0), SINE, rtol=1e-2, max_step=0.01, save="all", **GIVEN).t)
    assert lengths.max() <= 0.01
    assert np.diff(hf.solve_fpde(None, (0.0, 1.0), SINE, max_step=0.001, save="all", **GIVEN).t).max() <= 0.001 * (
        1.0 + 1e-9
    )


def test_boundary_data_and_reactions_that_jump():
    """A wall that is heated suddenly, and a reaction with a switch: both are found."""
    wall = (Dirichlet(0.0), Dirichlet(lambda t: float(t > 0.5)))
    found = hf.solve_fpde(None, (0.0, 1.0), 0.0 * X, rtol=1e-3, **{**GIVEN, "boundary": (wall,)})
    assert any("jump at t = 0.5" in note for note in found.decision.notes) and found.success
    switched = hf.solve_fpde(lambda t, u: (t > 0.25) * SINE - u, (0.0, 1.0), 0.0 * X, rtol=1e-3, **GIVEN)
    exact = response(switched.t - 0.25, rate=RATE + 1.0)
    assert np.abs(switched.u[:, 8] - exact).max() < 3.0 * switched.error_estimate.time < 3e-3


@pytest.mark.parametrize("alpha", [0.4, 0.7])
@pytest.mark.parametrize("method", [DiffusionL1(), DiffusionL2Sigma()], ids=lambda method: method.name)
def test_orders_behind_jumps(method, alpha: float):
    """The largest error over all steps has the order of the method, 2 - alpha or 2, as steps start anew at a jump.

    A source that is on from 0.3 to 0.65, against Mittag-Leffler functions, with direct sums and with exponentials.
    """

    def source(t: float, x: np.ndarray) -> np.ndarray:
        return float(0.3 <= t < 0.65) * np.sin(np.pi * x)

    given = {**GIVEN, "alpha": alpha, "du0": None, "source": source, "args": (), "jac": None, "terms": ()}
    problem = read_evolution(None, (0.0, 1.0), SINE, backend="numpy", **given)
    jumps = scan_data(problem).jumps
    assert jumps == pytest.approx((0.3, 0.65), abs=1e-14)
    problem.breaks = mesh_breaks(jumps, problem)
    errors, counts = [], (192, 384, 768)
    for steps in counts:
        mesh = method.mesh(problem, steps)
        frames = []
        for memory in ("direct", "exponentials"):
            one = dataclasses.replace(method, memory=memory)
            frames.append(run_mesh(Question(problem, one, Options(), "all"), mesh).frames())
        assert np.abs(frames[0] - frames[1]).max() < 1e-9
        exact = ML(-RATE * mesh**alpha, alpha) + response(mesh - 0.3, alpha) - response(mesh - 0.65, alpha)
        errors.append(np.abs(frames[0][:, 8] - exact).max())
    assert observed_order([1.0 / n for n in counts], errors) == pytest.approx(method.best_order(alpha), abs=0.15)


@pytest.mark.parametrize("near", [[1e-16, 0.4], [0.4, 0.400000000000001], [0.4, 1.0 - 1e-16]])
def test_breakpoints_as_close_as_rounding(near: list[float]):
    """To each other or to an end of the interval: no step has length 0."""
    source = {"source": lambda t, x: float(t >= 0.4) * np.sin(np.pi * x)}
    for method in ("l1", "adaptive"):
        found = hf.solve_fpde(None, (0.0, 1.0), 0.0 * X, breakpoints=near, method=method, rtol=1e-3, **source, **GIVEN)
        assert found.success and np.abs(found.u[:, 8] - response(found.t - 0.4)).max() < 2e-4


def test_tensors_meet_jumps():
    """The steps of PyTorch's tensors are the same."""
    torch = pytest.importorskip("torch")

    def solved(u0):
        def source(t, x):
            return float(t > 0.4) * (np if isinstance(x, np.ndarray) else torch).sin(np.pi * x)

        return hf.solve_fpde(None, (0.0, 1.0), u0, source=source, rtol=1e-2, compile=False, method="l2_1sigma", **GIVEN)

    one, other = solved(SINE), solved(torch.tensor(SINE))
    assert np.array_equal(one.t, other.t) and np.abs(one.u - other.u.numpy()).max() < 1e-9


def test_a_source_that_is_infinite_at_the_start():
    """t^-0.3: the mesh is graded for t^(alpha - 0.3), and the estimate holds at the earliest steps."""

    def source(t: float, x: np.ndarray) -> np.ndarray:
        return (t**-0.3 if t > 0.0 else math.inf) * np.sin(np.pi * x)

    for method in ("l2_1sigma", "l1"):
        found = hf.solve_fpde(None, (0.0, 1.0), 0.0 * X, source=source, method=method, rtol=1e-2, **GIVEN)
        error = np.abs(found.u[:, 8] - response(found.t, power=-0.3)).max()
        assert found.success and error < 3.0 * found.error_estimate.time < 1e-2


def test_a_flux_that_cannot_be_computed_at_the_start():
    """t^(-alpha/2) into a half-line keeps its end at 1, of order 1 too; no method is named, and nothing warned of."""
    x = np.linspace(0.0, 8.0, 81)
    fluxes = {1.0: lambda t: t**-0.5 / math.gamma(0.5), 0.6: lambda t: np.float64(t) ** -0.3 / math.gamma(0.7)}
    for alpha, flux in fluxes.items():
        ends = Neumann(flux), Neumann(0.0)
        given = {"x": x, "space": Diffusion(1.0), "boundary": ends, "alpha": alpha, "rtol": 1e-2}
        found = hf.solve_fpde(None, (0.0, 1.0), 0.0 * x, **given)
        assert "not finite at t0" in found.decision.reason
        assert abs(found.u[-1, 0] - 1.0) < 3.0 * sum(each[-1] for each in found.errors) < 1e-1
    late = hf.solve_fpde(None, (0.0, 1.0), 0.0 * x, **given | {"alpha": 1.5, "du0": 0.0})
    assert "finite ones, or use 'l1'" in late.message


def test_given_steps_see_jumps_in_their_estimate():
    """A source that switches on between coarse steps: the kink is not at the times that are compared."""

    def source(t: float, x: np.ndarray) -> np.ndarray:
        return float(t > 0.4321) * np.sin(np.pi * x)

    for method in ("l1", "l2_1sigma"):
        given = {"source": source, "method": method, "step": 1 / 64, "estimate": True, **GIVEN}
        found = hf.solve_fpde(None, (0.0, 1.0), 0.0 * X, **given)
        error = np.abs(found.u[:, 8] - response(found.t - 0.4321)).max()
        assert error < 3.0 * found.error_estimate.time < 30.0 * error


@pytest.mark.parametrize("method", ["l1", "convolution_quadrature", "crank_nicolson", "adaptive"])
def test_short_steps_see_jumps_too(method: str):
    """A switch between steps that are shorter than the distance between two looks at the data."""

    def source(t: float, x: np.ndarray) -> np.ndarray:
        return float(t > 0.4321) * np.sin(np.pi * x)

    alpha = 1.0 if method == "crank_nicolson" else ALPHA
    given = {"source": source, "method": method, "estimate": True, "save": "all", **GIVEN, "alpha": alpha}
    for asked in ({"rtol": 1e-2},) if method == "adaptive" else ({"step": 1 / 2048}, {"rtol": 1e-2}):
        found = hf.solve_fpde(None, (0.0, 1.0), 0.0 * X, max_steps=4096, **asked, **given)
        error = np.abs(found.u[:, 8] - response(found.t - 0.4321, alpha)).max()
        assert error < 3.0 * found.error_estimate.time
        assert not found.success or "step" in asked or error < 2e-3


def test_delayed_states_are_not_taken_for_data_that_change():
    """The steps for a delay are those that its solution needs; a given step has an estimate that sees its kinks."""
    x, alpha = np.linspace(0.0, np.pi, 9), 0.5
    given = {"x": x, "space": Diffusion(1.0), "boundary": "dirichlet", "alpha": alpha, "delays": [0.3], "save": "all"}
    given |= {"history": 0.2 * np.sin(x), "method": "l2_1sigma", "estimate": True}

    def exact(t):
        late = np.maximum(t - 0.3, 0.0) ** alpha
        answer = 2.8 * late / alpha * ML(-late, alpha, alpha) - 1.2 * late * ML(-late, alpha, alpha + 1.0)
        return ML(-(t**alpha), alpha) - 0.4 * t**alpha * ML(-(t**alpha), alpha, alpha + 1.0) - answer

    for asked in ({"rtol": 1e-3}, {"step": 1 / 1024}):
        found = hf.solve_fpde(lambda t, u, then: -2.0 * then[0], (0.0, 0.6), np.sin(x), **given, **asked)
        error = np.abs(found.u[:, 4] - exact(found.t)).max()
        assert found.success and found.stats["steps"] < 1024 and error < 3.0 * found.error_estimate.time


@pytest.mark.parametrize("points", [17, 65])
def test_the_estimate_for_moving_ends_is_damped_as_they_are(points):
    """What ends do between the steps is carried by the operator: its size, in the cells next to them, is not."""
    x = np.linspace(0.0, 1.0, points)

    def exact(t: float) -> np.ndarray:
        return (1.0 + t**2) * np.exp(x)

    def source(t: float, x: np.ndarray) -> np.ndarray:
        return (2.0 / math.gamma(2.5) * t**1.5 - 0.5 * (1.0 + t**2)) * np.exp(x)

    ends = Dirichlet(lambda t: 1.0 + t**2), Dirichlet(lambda t: math.e * (1.0 + t**2))
    given = {"x": x, "space": Diffusion(0.5), "boundary": ends, "alpha": 0.5, "source": source}
    for method in ("l1", "l2_1sigma"):
        found = hf.solve_fpde(None, (0.0, 1.0), exact(0.0), method=method, step=1 / 40, **given)
        error = np.abs(found.u - np.stack([exact(t) for t in found.t])).max()
        assert error < 3.0 * sum(found.error_estimate) < 9.0 * error


def test_a_blow_up_is_called_so():
    """u' = u^2 from 1 ends at t = 1; of order 0.6 it ends too, where the equation of a step stops converging."""
    x = np.arange(8.0)
    given = {"x": x, "space": Diffusion(1.0), "boundary": "periodic"}
    found = hf.solve_fpde(lambda t, u: u**2, (0.0, 2.0), np.ones(8), **given)
    assert not found.success and "blows up near t = 1" in found.message
    slow = hf.solve_fpde(lambda t, u: u**2, (0.0, 2.0), np.ones(8), alpha=0.9, **given)
    assert not slow.success and "blows up near t = " in slow.message


@pytest.mark.parametrize("method", ["l1", CorrectedQuadrature(2)])
def test_data_that_are_not_finite_are_named(method):
    """nan at t0 and nan later: the time of the data, and not advice on steps."""

    def later(t: float, x: np.ndarray) -> np.ndarray:
        return (math.nan if t > 0.5 else 1.0) + 0.0 * x

    found = hf.solve_fpde(None, (0.0, 1.0), SINE, source=later, method=method, **GIVEN)
    assert not found.success and "source or boundary data are not finite" in found.message
    assert "smaller step" not in found.message

    def first(t: float, x: np.ndarray) -> np.ndarray:
        return (1.0 if t > 0.0 else math.nan) + 0.0 * x

    found = hf.solve_fpde(None, (0.0, 1.0), SINE, source=first, method=method, rtol=1e-2, **GIVEN)
    if method == "l1":  # which never evaluates data at t0
        assert found.success
    else:
        assert "at t = 0 the source or boundary data are not finite" in found.message


def test_missing_estimates_have_a_reason():
    """nan, and a note that says why."""
    for given in ({"step": 0.25}, {"step": 0.01, "estimate": False}):
        found = hf.solve_fpde(lambda t, u: -u, (0.0, 1.0), SINE, **given, **GIVEN)
        assert math.isnan(found.error_estimate.time)
        assert any("has no estimate" in note for note in found.decision.notes)


def test_progress_does_not_start_again(monkeypatch):
    """All refinements are one piece of work, whose share never falls."""
    from hpfracc.solvers.pde import solve

    shares: list[float] = []

    @contextlib.contextmanager
    def recorded(wish, t0, t1, title):
        yield lambda t, u, share: shares.append(share)

    monkeypatch.setattr(solve, "progress_report", recorded)
    for method in ("l2_1sigma", "adaptive"):
        shares.clear()
        found = hf.solve_fpde(lambda t, u: -u, (0.0, 1.0), SINE, rtol=1e-5, method=method, progress=True, **GIVEN)
        assert found.stats["steps_in_all"] >= found.stats["steps"]
        assert np.all(np.diff(shares) >= 0.0) and shares[0] < 0.2 and shares[-1] == pytest.approx(1.0)

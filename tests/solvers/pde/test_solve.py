"""The call: what it keeps, refuses, tells and survives."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.errors import AccuracyWarning, InvalidInputError, OutOfMemoryError, ShapeError, UnsupportedDtypeError
from hpfracc.pde import (
    Advection,
    CorrectedQuadrature,
    Diffusion,
    DiffusionL1,
    DiffusionL2Sigma,
    Dirichlet,
    FractionalDiffusion,
    Neumann,
    OneSided,
)
from tests.helpers.interrupts import part_of

X = np.linspace(0.0, np.pi, 17)
SINE = np.sin(X)


def solve(reaction=None, u0=SINE, span=(0.0, 1.0), **more):
    given = {"x": X, "space": Diffusion(1.0), "boundary": "dirichlet", "alpha": 0.5, **more}
    return hf.solve_fpde(reaction, span, u0, **given)


def exact(t, alpha=0.5):
    return hf.mittag_leffler(-(np.asarray(t) ** alpha), alpha)


@pytest.mark.parametrize("method", ["l2_1sigma", "l1", "convolution_quadrature"])
def test_the_tolerance_holds(method: str):
    """Without a step the error at the steps is within ten times the tolerance, and so is the estimate."""
    found = solve(method=method, rtol=1e-4, atol=1e-7)
    assert found.success
    gap = np.abs(found.u[:, 8] - exact(found.t))
    late = found.t >= 1.0 / 32.0
    assert gap[late].max() < 10 * 1e-4 * found.u[late, 8].max()
    assert found.error_estimate.time < 2e-4
    assert found.error_estimate.space < 1e-12
    assert found.stats["error_over_tolerance"] <= 1.0


def test_first_steps_that_are_too_long_are_refined():
    """The first mesh overflows, as the reaction is explicit; the tolerance holds all the same."""
    x = 2.0 * np.pi / 16 * np.arange(16)
    found = hf.solve_fpde(
        lambda t, u: 20.0 * (u - u**3),
        (0.0, 20.0),
        0.5 + 0.0 * x,
        x=x,
        space=Diffusion(0.1),
        boundary="periodic",
        rtol=1e-4,
    )
    assert found.success
    exact_square = 1.0 / (1.0 + 3.0 * np.exp(-40.0 * found.t))
    assert np.abs(found.u[:, 0] - np.sqrt(exact_square)).max() < 1e-3


def test_too_few_steps_are_told():
    """max_steps without reaching the tolerance: the finest solution, and what to do."""
    found = solve(method="l1", rtol=1e-9, max_steps=200)
    assert not found.success
    assert "max_steps=200" in found.message
    assert found.stats["steps"] == 128
    with pytest.raises(InvalidInputError, match="1,000 steps, more than max_steps=50"):
        solve(method="l1", step=1e-3, max_steps=50)


def test_what_is_kept():
    """All frames, the last, every k-th, a functional, and values at wanted times."""
    method = DiffusionL2Sigma()
    whole = solve(method=method, step=1.0 / 40)
    assert whole.u.shape == (41, 17)
    last = solve(method=method, step=1.0 / 40, save="last")
    assert last.u.shape == (1, 17)
    assert np.allclose(last.u[0], whole.u[-1], rtol=0, atol=1e-14)
    some = solve(method=method, step=1.0 / 40, save=15)
    assert np.allclose(some.t, whole.t[[0, 15, 30, 40]])
    assert np.allclose(some.u, whole.u[[0, 15, 30, 40]], rtol=0, atol=1e-14)
    functional = solve(method=method, step=1.0 / 40, save=lambda t, u: u.max())
    assert np.allclose(functional.u, whole.u.max(axis=1), rtol=0, atol=1e-14)
    with pytest.raises(InvalidInputError, match="kept a functional"):
        _ = functional.mass
    times = [0.0, 0.03, 0.5, 0.99, 1.0]
    wanted = solve(method=method, step=1.0 / 200, t_eval=times)
    assert np.array_equal(wanted.t, times)
    assert wanted.u[:, 8] == pytest.approx(exact(times), abs=2e-5)
    with pytest.raises(InvalidInputError, match="give one of them"):
        solve(method=method, step=0.1, save=3, t_eval=[0.5])


def test_between_steps_and_points():
    """sol(t, x) is as accurate as the steps, at the start too; outside it is refused."""
    found = solve(method="l2_1sigma", step=1.0 / 256, dense_output=True)
    t = np.linspace(0.0, 1.0, 37)
    assert np.max(np.abs(found.sol(t)[:, 8] - exact(t))) < 2e-5
    assert found.sol(0.3, np.array([0.1, 1.0])) == pytest.approx(exact(0.3) * np.sin([0.1, 1.0]), abs=1e-4)
    with pytest.raises(InvalidInputError, match="runs from 0 to 1"):
        found.sol(1.5)
    with pytest.raises(InvalidInputError, match="outside the grid"):
        found.sol(0.5, 4.0)
    y = np.linspace(0.0, 2 * np.pi, 24, endpoint=False)
    plane = hf.solve_fpde(
        None,
        (0.0, 1.0),
        np.cos(y)[:, None] * SINE,
        x=(y, X),
        space=Diffusion(1.0),
        boundary=["periodic", "dirichlet"],
        dense_output=True,
    )
    value = plane.sol(0.5, (np.array([6.2, -0.1]), np.array([1.0, 2.0])))
    assert value == pytest.approx(math.exp(-1.0) * np.cos([6.2, 0.1]) * np.sin([1.0, 2.0]), abs=2e-3)


def test_events_end_a_solve():
    """The time at which the middle falls below 0.6, and a solution that ends there."""

    def low(t, u):
        return u[8] - 0.6

    low.terminal = True
    found = solve(method="l2_1sigma", step=1.0 / 300, events=low)
    assert found.status == 1
    assert exact(found.t_events[0][0]) == pytest.approx(0.6, abs=1e-5)
    assert found.t[-1] == found.t_events[0][0]
    assert found.u[-1, 8] == pytest.approx(0.6, abs=1e-10)


def test_values_that_are_not_finite_are_told():
    """A solution that blows up ends with its time and place, and without warnings of NumPy's."""
    cases = [
        {"method": DiffusionL1(reaction="imex"), "step": 0.01, "alpha": 0.9},
        {"method": "etdrk4", "step": 0.01, "alpha": 1.0},
        {"method": "etdrk4", "alpha": 1.0},
        {"method": "imex_bdf2", "step": 0.01, "alpha": 1.0},
        {"method": "crank_nicolson", "step": 0.01, "alpha": 1.0, "space": OneSided(1.5)},
    ]
    for case in cases:
        found = solve(lambda t, u: 50.0 * u**2, span=(0.0, 3.0), **case)
        assert not found.success
        assert "blows up" in found.message
        assert "not finite at t = " in found.message or case["method"] == "imex_bdf2" or "step" not in case
        assert "not finite" not in found.message or "x = (1." in found.message
        assert np.all(np.isfinite(found.u))


def test_an_interrupt_keeps_what_is_done():
    """Ctrl-C on the way: the steps until then."""
    calls = []

    def reaction(t, u):
        calls.append(t)
        if len(calls) > 125:  # some 65 of them before the first step
            raise KeyboardInterrupt
        return -u

    found = part_of(lambda: solve(reaction, method=DiffusionL1(reaction="imex"), step=0.01))
    assert not found.success
    assert found.stats["interrupted"]
    assert 40 < len(found.t) < 62
    assert "Interrupted at t" in found.message


def test_progress_is_reported():
    """progress(t, u) sees rising times up to the end, and whole frames."""
    seen = []
    solve(method="l1", step=0.01, progress=lambda t, u: seen.append((t, u.shape)))
    assert seen[-1] == (1.0, (17,))
    assert [t for t, _ in seen] == sorted(t for t, _ in seen)


def test_memory_is_forecast():
    """A run that would not fit is refused with the figure, and the forecast is reported."""
    assert solve(method="l1", step=0.01).stats["forecast_bytes"] > 101 * 17 * 8
    x = np.linspace(0.0, 1.0, 200)
    with (
        hf.memory.limit("cpu", "64 MiB"),
        pytest.raises(OutOfMemoryError, match=r"about .* MiB .* free on cpu; save"),
    ):
        hf.solve_fpde(
            None,
            (0.0, 1.0),
            np.zeros((200, 200)),
            x=(x, x),
            space=Diffusion(1.0),
            boundary="dirichlet",
            alpha=0.5,
            method="l1",
            step=1e-3,
        )


def test_systems_have_a_sum_for_each_component():
    """Two species that turn into each other and diffuse at their own pace: two modes, against the matrix function."""
    x = np.linspace(0.0, 2.0 * np.pi, 16, endpoint=False)
    u0 = np.stack([np.cos(x), 0.0 * x])
    found = hf.solve_fpde(
        lambda t, u: np.stack([-u[0] + 0.5 * u[1], u[0] - 0.5 * u[1]]),
        (0.0, 1.0),
        u0,
        x=x,
        space=[Diffusion(1.0), Diffusion(0.1)],
        boundary="periodic",
        alpha=0.7,
        method="l2_1sigma",
        step=1.0 / 200,
    )
    matrix = np.array([[-2.0, 0.5], [1.0, -0.6]])
    values, vectors = np.linalg.eig(matrix)
    weights = np.linalg.solve(vectors, [1.0, 0.0])
    expected = vectors @ (weights * hf.mittag_leffler(values, 0.7))
    assert found.u.shape == (201, 2, 16)
    assert found.u[-1][:, 0] == pytest.approx(expected, abs=2e-5)
    assert found.mass.shape == (201, 2)
    with pytest.raises(InvalidInputError, match="list of 3 sums"):
        hf.solve_fpde(None, (0, 1), u0, x=x, space=[Diffusion()] * 3, boundary="periodic")


def test_the_choice_says_why():
    """Each kind of problem, its method, and a reason in words."""
    assert "no error in time" in solve().decision.reason
    moving = solve(boundary=(Dirichlet(math.sin), "dirichlet"), step=0.1)
    assert (moving.decision.method, moving.decision.space) == ("l2_1sigma", "modes")
    wave = solve(alpha=1.4, du0=0, source=lambda t, x: t * np.sin(x), step=0.1)
    assert wave.decision.method == "convolution_quadrature"
    assert "above 1" in wave.decision.reason
    with pytest.warns(AccuracyWarning, match="differs by 1 from the boundary data"):
        rough = solve(u0=np.ones(17), boundary=Dirichlet(lambda t: 0.0), step=0.1)
    assert rough.decision.method == "l1"
    with pytest.warns(AccuracyWarning, match="differs by 1"):
        steep = solve(u0=np.ones(17), boundary=Dirichlet(lambda t: 0.0), alpha=0.8, step=0.1)
    assert steep.decision.method == "convolution_quadrature" and "boundary values" in steep.decision.reason


@pytest.mark.parametrize(
    ("words", "given"),
    [
        ("differs by", {"u0": np.ones(17), "boundary": Dirichlet(lambda t: 0.0)}),
        ("Peclet", {"space": Diffusion(lambda x: 0.01 + 0.0 * x) + Advection(9.0)}),
        ("too coarse", {"u0": np.where(X > 1.0, 1.0, 0.0), "boundary": "neumann", "span": (0.0, 1e-9)}),
    ],
)
def test_warnings_name_the_line_of_the_caller(words: str, given: dict):
    """Not one inside the library, at which Python would show only the first of many."""
    with pytest.warns(AccuracyWarning, match=words) as caught:
        solve(step=1e-10 if "span" in given else 0.1, **given)
    assert {warning.filename for warning in caught} == {__file__}


def test_results_travel_and_show_themselves():
    """Pickle, repr and plain data of a decision."""
    found = solve(lambda t, u: -u, step=0.1, dense_output=True)
    other = pickle.loads(pickle.dumps(found))
    assert np.array_equal(other.u, found.u)
    assert np.array_equal(other.mass, found.mass)
    np.testing.assert_allclose(other.sol(0.5), found.sol(0.5), rtol=0, atol=1e-13)
    assert "method='l2_1sigma'" in repr(other)
    assert other.decision.to_dict()["history"] == "direct"
    with pytest.raises(InvalidInputError, match="another process"):
        _ = other.energy


def test_complex_states():
    """A Schrödinger equation in time of order 1 by its modes: i u_t = -u_xx."""
    x = np.linspace(0.0, 2.0 * np.pi, 16, endpoint=False)
    found = hf.solve_fpde(None, (0.0, 1.0), np.exp(2j * x), x=x, space=Diffusion(1j), boundary="periodic")
    assert np.allclose(found.u[-1], np.exp(2j * x - 4j))
    assert found.u.dtype == np.complex128


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"alpha": 1.5}, InvalidInputError, "needs du0"),
        ({"du0": 0}, InvalidInputError, "needs none"),
        ({"alpha": 2.5}, InvalidInputError, r"in \(0, 2\]"),
        ({"x": X[::-1]}, InvalidInputError, "does not increase"),
        ({"u0": np.zeros(5)}, ShapeError, "the grid"),
        ({"u0": np.full(17, np.nan)}, InvalidInputError, "not finite at index"),
        ({"boundary": "closed"}, InvalidInputError, "is not known"),
        ({"space": FractionalDiffusion(1.2)}, InvalidInputError, "needs kind="),
        ({"space": FractionalDiffusion(1.2, "spectral", lambda x: 1 + x)}, InvalidInputError, "varies in space"),
        ({"space": "diffusion"}, InvalidInputError, "no sum of terms"),
        ({"space": Diffusion(-1.0)}, InvalidInputError, "ill-posed"),
        ({"reaction": lambda t, u: u[:3], "step": 0.1}, ShapeError, "has to return"),
        ({"reaction": lambda t, u: 1j * u, "step": 0.1}, UnsupportedDtypeError, "complex"),
        ({"source": lambda t, x: np.ones(4)}, ShapeError, "unknown points"),
        ({"boundary": (Dirichlet(lambda t: np.ones(3)), "dirichlet")}, ShapeError, "boundary data of shape"),
        ({"method": "l3"}, InvalidInputError, "method='l3': use .*'l1'"),
        ({"method": CorrectedQuadrature(5), "alpha": 1.5, "du0": 0}, InvalidInputError, "unstable"),
        ({"terms": [(1.0, 0.9)]}, InvalidInputError, "not below the leading one"),
        ({"save": 0}, InvalidInputError, "save=0"),
        ({"backend": "cupy"}, InvalidInputError, "backend='cupy'"),
        ({"span": (1.0, 0.0)}, InvalidInputError, "low < high"),
        ({"atol": [1e-3] * 17}, InvalidInputError, "one number"),
        ({"jac": lambda t, u: u}, InvalidInputError, "without a reaction"),
    ],
)
def test_bad_questions_are_errors(change, error, words):
    """Typed errors, before anything is stepped."""
    with pytest.raises(error, match=words):
        solve(**change)


def test_parameters_of_methods_are_checked():
    """Names and numbers of the methods' own parameters."""
    with pytest.raises(InvalidInputError, match="memory='none'"):
        DiffusionL1(memory="none")
    with pytest.raises(InvalidInputError, match="belongs to reaction='imex'"):
        DiffusionL2Sigma(stabilisation=1.0)
    with pytest.raises(InvalidInputError, match="k=6"):
        CorrectedQuadrature(6)
    with pytest.raises(InvalidInputError, match="orders below 1"):
        solve(alpha=1.0, method="l2_1sigma")
    with pytest.raises(InvalidInputError, match="do not change in time"):
        solve(method="exact_modes", source=lambda t, x: t * x)


def test_a_coarse_grid_is_told():
    """A solution that the grid does not resolve comes with a warning."""
    x = np.linspace(0.0, 1.0, 16, endpoint=False)
    with pytest.warns(AccuracyWarning, match="take more points"):
        hf.solve_fpde(
            None, (0.0, 1e-6), (x == 0.5).astype(float), x=x, space=Diffusion(1.0), boundary="periodic", step=1e-6
        )


def test_neumann_data_in_two_dimensions():
    """x^2 - y^2 is steady with the slopes that belong to it, and stays as it is."""
    x = np.linspace(0.0, 1.0, 9)
    u0 = np.subtract.outer(x**2, x**2)
    found = hf.solve_fpde(
        None,
        (0.0, 1.0),
        u0,
        x=(x, x),
        space=Diffusion(1.0),
        boundary=[(Neumann(0.0), Neumann(2.0)), (Neumann(0.0), Neumann(lambda t, x, y: -2.0 * y))],
        alpha=0.5,
        step=0.1,
    )
    assert np.max(np.abs(found.u - u0)) < 1e-12

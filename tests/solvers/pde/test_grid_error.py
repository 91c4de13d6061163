"""The estimate of the error due to the grid, from solutions on coarser ones."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.pde import Advection, Diffusion, Disc, Exterior, FractionalDiffusion, Neumann

ALPHA = 0.6


@pytest.mark.parametrize("points", [17, 33, 34])
def test_slopes_that_change_in_time(points: int):
    """u = t^2 e^x from its slopes at both ends: 13 times too small from the differences inside alone."""
    x = np.linspace(0.0, 1.0, points)
    found = hf.solve_fpde(
        None,
        (0.0, 1.0),
        0.0 * x,
        x=x,
        space=Diffusion(1.0),
        boundary=(Neumann(lambda t: -t * t), Neumann(lambda t: t * t * math.e)),
        alpha=ALPHA,
        source=lambda t, x: (2.0 * t ** (2.0 - ALPHA) / math.gamma(3.0 - ALPHA) - t * t) * np.exp(x),
        step=1.0 / 256,
    )
    error = np.abs(found.u[-1] - np.exp(x)).max()
    assert 0.3 < error / found.errors.space[-1] < 3.0


@pytest.mark.parametrize(("a", "b"), [(0.25, 0.75), (0.3, 0.62), (0.27, 0.8)])
@pytest.mark.parametrize("t1", [1e-3, 1e-1, 1.0])
def test_boxes(a: float, b: float, t1: float):
    """Jumps between points, early and late: 10 to 90 times too small from the coefficients of the solution alone."""
    x = np.linspace(0.0, 1.0, 33)
    w = math.pi * np.arange(1, 4000)
    c = 2.0 * (np.cos(w * a) - np.cos(w * b)) / w * hf.mittag_leffler(-(w**2) * t1**ALPHA, ALPHA)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hf.errors.AccuracyWarning)
        found = hf.solve_fpde(
            None,
            (0.0, t1),
            ((x >= a) & (x <= b)) * 1.0,
            x=x,
            space=Diffusion(1.0),
            boundary="dirichlet",
            alpha=ALPHA,
        )
    error = np.abs(found.u[-1] - c @ np.sin(w[:, None] * x)).max()
    assert 0.02 < error / found.errors.space[-1] < 1.5


@pytest.mark.parametrize("order", [0.5, 1.0, 1.5, 2.0])
@pytest.mark.parametrize("boundary", ["dirichlet", ("dirichlet", "neumann")])
@pytest.mark.filterwarnings("ignore::hpfracc.errors.AccuracyWarning")  # the highest modes hold much for low orders
def test_a_constant_source_between_ends_at_zero(order: float, boundary: Any):
    """Its coefficients in sines fall like 1/k: the order is that of the operator, and the estimate covers the error."""
    k = np.arange(1, 20001, 2)
    waves = k if boundary == "dirichlet" else 0.5 * k
    c = 4.0 / (math.pi * k) * hf.mittag_leffler(-(waves**order), ALPHA, ALPHA + 1.0)
    space = Diffusion(1.0) if order == 2.0 else FractionalDiffusion(order, "spectral")
    errors = []
    for points in (33, 65, 129):
        x = np.linspace(0.0, math.pi, points)
        given = {"x": x, "space": space, "boundary": boundary, "alpha": ALPHA}
        found = hf.solve_fpde(None, (0.0, 1.0), 0.0 * x, source=1.0, **given)
        assert found.decision.method == "exact_modes"
        errors.append(np.abs(found.u[-1] - c @ np.sin(np.outer(waves, x))).max())
        assert errors[-1] < found.errors.space[-1] < 4.0 * errors[-1]
    assert math.log2(errors[1] / errors[2]) == pytest.approx(order, abs=0.1)


def test_errors_that_add_up_over_time():
    """Transport of a wave once around: the defect at the end alone does not know for how long it acted."""
    x = np.arange(64) / 64

    def start(x: np.ndarray) -> np.ndarray:
        return np.sin(2.0 * np.pi * x)

    space = Diffusion(lambda x: 1e-3 + 0.0 * x) + Advection(1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hf.errors.AccuracyWarning)
        found = hf.solve_fpde(None, (0.0, 4.0), start(x), x=x, space=space, boundary="periodic", step=4.0 / 256)
        many = np.arange(512) / 512
        truth = hf.solve_fpde(
            None, (0.0, 4.0), start(many), x=many, space=space, boundary="periodic", step=4.0 / 256, estimate=False
        )
    error = np.abs(found.u[-1] - truth.u[-1][::8]).max()
    assert 0.3 < error / found.errors.space[-1] < 3.0


def test_two_components_and_data_of_every_form():
    """Arrays for u0, du0 and a steady source are taken at the coarser points; functions are called there."""
    x = np.linspace(0.0, 1.0, 33)
    given = {"x": x, "space": Diffusion(lambda x: 1.0 + x), "boundary": "dirichlet", "alpha": 1.4, "step": 1.0 / 64}
    given["method"] = "convolution_quadrature"  # data that do not change have exact modes
    wave = np.sin(np.pi * x)
    arrays = hf.solve_fpde(None, (0.0, 1.0), wave, du0=2.0 * wave, source=wave, **given)
    functions = hf.solve_fpde(
        None,
        (0.0, 1.0),
        lambda x: np.sin(np.pi * x),
        du0=lambda x: 2.0 * np.sin(np.pi * x),
        source=lambda t, x: np.sin(np.pi * x),
        **given,
    )
    assert arrays.errors.space[-1] == pytest.approx(functions.errors.space[-1], rel=1e-6)
    both = hf.solve_fpde(None, (0.0, 1.0), np.stack([wave, 3.0 * wave]), du0=np.stack([wave, wave]), **given)
    single = hf.solve_fpde(None, (0.0, 1.0), 3.0 * wave, du0=wave, **given)
    assert both.errors.space[-1, 1] == pytest.approx(single.errors.space[-1], rel=1e-6)


def test_what_cannot_be_estimated_says_why():
    """A reaction for this grid alone, too few points, and a solve that asks for none."""
    x = np.linspace(0.0, 1.0, 33)
    given = {"x": x, "space": Diffusion(lambda x: 1.0 + x), "boundary": "dirichlet", "step": 0.1}
    wave = np.sin(np.pi * x)

    def told(found) -> str:
        assert math.isnan(found.errors.space[-1])
        (note,) = [note for note in found.decision.notes if note.startswith("no estimate of the error in space")]
        return note

    assert "ValueError" in told(hf.solve_fpde(lambda t, u: x * u, (0.0, 1.0), wave, **given))
    assert "estimate=True" in told(hf.solve_fpde(None, (0.0, 1.0), wave, estimate=False, **given))
    few = {**given, "x": x[::8]}
    assert "too few" in told(hf.solve_fpde(None, (0.0, 1.0), wave[::8], **few))
    stopped = hf.solve_fpde(lambda t, u: u + (np.inf if t > 0.5 else 0.0), (0.0, 1.0), wave, **given)
    assert not stopped.success and "did not reach" in told(stopped)


def test_it_is_not_paid_for_where_it_is_not_wanted():
    """Counters are those of the solve itself, and ``estimate=False`` makes no other call."""
    calls = []

    def reaction(t: float, u: np.ndarray) -> np.ndarray:
        calls.append(u.shape)
        return -u * u

    x = np.linspace(0.0, 1.0, 33)
    given = {"x": x, "space": Diffusion(lambda x: 1.0 + x), "boundary": "dirichlet", "step": 0.1}
    one = hf.solve_fpde(reaction, (0.0, 1.0), np.sin(np.pi * x), **given)
    assert (17,) in calls and (9,) in calls
    calls.clear()
    two = hf.solve_fpde(reaction, (0.0, 1.0), np.sin(np.pi * x), estimate=False, **given)
    assert set(calls) == {(33,)} and one.stats["reactions"] == two.stats["reactions"]
    np.testing.assert_allclose(one.u, two.u, rtol=0, atol=1e-12)


def test_torch_on_request():
    """The same estimate as for NumPy, without a graph."""
    torch = pytest.importorskip("torch")
    x = np.linspace(0.0, 1.0, 33)
    given = {"x": x, "space": Diffusion(lambda x: 1.0 + x), "boundary": "dirichlet", "step": 0.05, "alpha": 0.7}
    given["method"] = "l2_1sigma"  # arrays of NumPy have exact modes
    plain = hf.solve_fpde(None, (0.0, 1.0), np.sin(np.pi * x), **given)
    start = torch.sin(math.pi * torch.as_tensor(x)).requires_grad_()
    assert math.isnan(hf.solve_fpde(None, (0.0, 1.0), start, **given).errors.space[-1])
    found = hf.solve_fpde(None, (0.0, 1.0), start, estimate=True, **given)
    assert found.errors.space[-1] == pytest.approx(plain.errors.space[-1], rel=1e-6)


def test_methods_with_points_of_their_own_estimate_from_coefficients():
    """Jacobi polynomials on an interval and a disc."""
    x = np.linspace(-1.0, 1.0, 41)
    space = FractionalDiffusion(1.0, "integral")
    found = hf.solve_fpde(None, (0.0, 0.5), (1.0 - x**2) ** 0.5, x=x, space=space, boundary=Exterior(0.0), alpha=0.5)
    assert 0.0 < found.errors.space[-1] < 1e-2
    with np.errstate(invalid="ignore"):
        disc = hf.solve_fpde(
            None,
            (0.0, 0.5),
            lambda x, y: np.sqrt(np.maximum(1.0 - x * x - y * y, 0.0)),
            x=Disc(1.0, 8, 8),
            space=space,
            boundary=Exterior(0.0),
            alpha=0.5,
        )
    assert 0.0 < disc.errors.space[-1] < 1e-2


def test_the_method_that_follows_the_solution_is_not_compared_with_another():
    """One sine mode with a source that oscillates is exact on every grid: the distance of two methods is no error."""
    x = np.linspace(0.0, 1.0, 65)
    found = hf.solve_fpde(
        None, (0.0, 1.0), np.zeros(65), x=x, space=Diffusion(1.0), boundary="dirichlet", alpha=0.6, rtol=1e-5,
        source=lambda t, x: np.sin(50.0 * t) * np.sin(np.pi * x),
    )  # fmt: skip
    assert found.decision.method == "adaptive"
    assert found.errors.space[-1] < 1e-12

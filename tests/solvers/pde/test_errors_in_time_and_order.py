"""Errors of each returned time, of the rule in a distributed order, and of sources that are infinite at the start."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest

import hpfracc as hf
from hpfracc.errors import InvalidInputError
from hpfracc.pde import Diffusion, Dirichlet, DistributedOrder, FractionalDiffusion, Neumann, Robin

X = np.linspace(0.0, np.pi, 17)
SINE = np.sin(X)
GIVEN: dict[str, Any] = {"x": X, "space": Diffusion(1.0), "boundary": "dirichlet"}
TIMES = [1e-4, 0.01]


def bell(width: float) -> tuple[Callable[[Any], Any], list[float]]:
    """A Gaussian weight around 1/2, and places between which it is smooth."""
    places = [0.5 + k * width for k in (-12, -4, 0, 4, 12) if 0.0 < 0.5 + k * width < 1.0]
    return lambda b: mpmath.exp(-(((b - 0.5) / width) ** 2) / 2) / width, [0.0, *places, 1.0]


WEIGHTS = {
    **{f"bell {width}": bell(width) for width in (0.05, 0.03, 0.02, 0.01)},
    "box": (lambda b: mpmath.mpf(0.2 < b < 0.6), [0.2, 0.6]),
}


def relaxed(weight: Callable[[Any], Any], places: list[float], t: float) -> float:
    """The amplitude of the sine: the inverse transform of W(s) / s / (W(s) + 1), W the integral of w(b) s^b."""

    def transform(s: Any) -> Any:
        total = mpmath.quad(lambda b: weight(b) * s**b, places, maxdegree=5)
        return total / s / (total + 1)

    return float(mpmath.invertlaplace(transform, t, method="talbot", degree=14))


@pytest.mark.parametrize("name", WEIGHTS)
def test_narrow_and_rough_weights_of_a_distributed_order(name: str):
    """Nodes for the weight by default; with few nodes the estimate bounds the error."""
    weight, places = WEIGHTS[name]
    truth = np.array([relaxed(weight, places, t) for t in TIMES])
    for nodes, bound in ((None, 1e-8), (16, 1e-8), (2, 0.1)):
        order = DistributedOrder(lambda b: float(weight(b)), nodes=nodes)
        found = hf.solve_fpde(None, (0.0, TIMES[-1]), SINE, alpha=order, t_eval=TIMES, save="all", **GIVEN)
        errors = np.abs(found.u[:, 8] - truth)
        assert found.success and errors.max() < bound
        assert (errors <= 2.0 * found.errors.time + 1e-8).all()
        assert found.error_estimate.time == found.errors.time.max() < bound


def test_a_distribution_above_order_one():
    """Orders from 1.5 to 1.7, where a wrong order shifts waves: one node; its estimate is a bound."""
    given = {**GIVEN, "du0": 0.0, "t_eval": [0.5, 4.0]}

    def solved(nodes: int | None) -> Any:
        return hf.solve_fpde(None, (0.0, 4.0), SINE, alpha=DistributedOrder(1.0, 1.5, 1.7, nodes), **given)

    few, many = solved(1), solved(None)
    errors = np.abs(few.u - many.u).max(axis=1)
    assert (errors <= few.errors.time).all() and (few.errors.time < 300.0 * errors).all()
    assert errors.min() > 100.0 * many.errors.time.max()


def test_one_node_keeps_its_coefficient():
    """2 D^0.5 u = -u, nearly: half of the rate."""
    order = DistributedOrder(2.0 / 1e-6, 0.5 - 5e-7, 0.5 + 5e-7, 1)
    found = hf.solve_fpde(None, (0.0, 1.0), SINE, alpha=order, t_eval=[0.3, 1.0], **GIVEN)
    exact = hf.mittag_leffler(-0.5 * found.t**0.5, 0.5)
    np.testing.assert_allclose(found.u[:, 8], exact, atol=1e-5)


@pytest.mark.parametrize("weight", [lambda b: -1.0, lambda b: "one", lambda b: math.nan])
def test_weights_that_are_none(weight: Any):
    """Negative, not finite or no numbers: refused with the order."""
    with pytest.raises(InvalidInputError, match=r"weight\(0\.\d+\)"):
        hf.solve_fpde(None, (0.0, 1.0), SINE, alpha=DistributedOrder(weight), **GIVEN)


@pytest.mark.parametrize("method", ["auto", "l2_1sigma", "adaptive", "convolution_quadrature"])
def test_the_grid_at_every_time(method: str):
    """Flux through one end into a rod at rest: 2e-3 at the first time, where that of the last one is 1e-6."""
    times = [0.001, 0.1, 2.0]

    def solved(points: int, method: str) -> Any:
        x = np.linspace(0.0, 1.0, points)
        ends = [(Robin(10.0, 1.0, 10.0), Neumann(0.0))]
        given = {"space": Diffusion(1.0), "boundary": ends, "alpha": 0.6, "t_eval": times, "rtol": 1e-5}
        return hf.solve_fpde(None, (0.0, 2.0), 0.0 * x, x=x, method=method, **given)

    found, fine = solved(33, method), solved(513, "auto")
    errors = np.abs(found.u - fine.u[:, ::16]).max(axis=1)
    estimates = found.errors.space + found.errors.time
    assert errors[0] > 100.0 * errors[2] and (errors <= 1.5 * estimates).all()
    assert (found.errors.space < 3.0 * errors).all()
    assert found.error_estimate == (found.errors.time.max(), found.errors.space.max())


def test_errors_of_components():
    """Two uncoupled components: each has the errors of its own equation, and u0 has none."""
    x = np.linspace(0.0, 1.0, 17)
    wave, times = np.sin(np.pi * x), [0.0, 0.01, 0.3]
    given = {"x": x, "boundary": "dirichlet", "alpha": 0.7, "method": "l1", "step": 1.0 / 64, "t_eval": times}
    shaped = Diffusion(lambda x: 1.0 + x)
    apart = [hf.solve_fpde(None, (0.0, 1.0), k * wave, space=shaped, **given) for k in (1.0, 5.0)]
    both = hf.solve_fpde(None, (0.0, 1.0), np.stack([wave, 5.0 * wave]), space=[shaped, shaped], **given)
    assert both.errors.space.shape == both.errors.time.shape == (3, 2)
    for k, one in enumerate(apart):
        np.testing.assert_allclose(both.errors.space[:, k], one.errors.space, rtol=1e-6)
        assert one.errors.space[0] == one.errors.time[0] == 0.0
    assert both.error_estimate.space == both.errors.space.max()
    pytest.importorskip("xarray")
    assert both.to_xarray()["error_in_space"].dims == ("t", "component")


def test_the_plot_of_the_errors():
    """Both over t, on logarithmic axes; those of one component."""
    pyplot = pytest.importorskip("matplotlib.pyplot")
    u0 = np.stack([SINE, 2.0 * SINE])
    found = hf.solve_fpde(lambda t, u: -u, (0.0, 1.0), u0, alpha=0.6, rtol=1e-3, **GIVEN)
    axes = found.plot("errors", component=1)
    in_time, in_space = axes.lines
    later = found.t > 0.0
    np.testing.assert_array_equal(in_time.get_ydata(), found.errors.time[later, 1])
    assert len(in_space.get_xdata()) <= later.sum() and axes.get_yscale() == "log"
    pyplot.close("all")


def forced(t: np.ndarray, alpha: float, power: float, rise: float) -> np.ndarray:
    """u from 0 with D^alpha u = -u + I^(rise - alpha) t^power."""
    end = power + rise
    values = np.array([hf.mittag_leffler(-(one**alpha), alpha, end + 1.0) for one in t])
    return np.asarray(math.gamma(power + 1.0) * t**end * values)


@pytest.mark.parametrize("form", ["caputo", "fokker_planck"])
@pytest.mark.parametrize(("alpha", "power"), [(0.5, -0.4), (0.5, -0.48), (0.9, -0.8), (1.0, -0.9), (0.6, -0.9)])
def test_sources_that_start_from_infinity(form: str, alpha: float, power: float):
    """A power of t times 1 + t, in some hundred steps where u = t^0.1 took 4,096; refused where u(t0) is not u0."""

    def source(t: float, x: np.ndarray) -> np.ndarray:
        return np.float64(t) ** power * (1.0 + t) * np.sin(x)

    given = {**GIVEN, "alpha": alpha, "form": form, "source": source, "rtol": 1e-3}
    if form == "caputo" and alpha + power <= 0.0:
        with pytest.raises(InvalidInputError, match=r"grow like \(t - t0\)\^-0\.9.*would not start from u0"):
            hf.solve_fpde(None, (0.0, 1.0), 0.0 * X, **given)
        return
    found = hf.solve_fpde(None, (0.0, 1.0), 0.0 * X, **given)
    rise = alpha if form == "caputo" else 1.0
    truth = forced(found.t[1:], alpha, power, rise) + forced(found.t[1:], alpha, power + 1.0, rise)
    errors = np.abs(found.u[1:, 8] - truth)
    assert found.success and found.stats["steps"] <= 1024
    assert errors.max() < 2.0 * found.error_estimate.time < 0.03 * truth.max()


def test_a_power_beside_a_reaction_and_with_given_steps():
    """Half of -u in the reaction; of order 2 - alpha on the graded mesh, from the first step on."""

    def source(t: float, x: np.ndarray) -> np.ndarray:
        return np.float64(t) ** -0.3 * np.sin(x)

    given = {**GIVEN, "space": FractionalDiffusion(2.0, "spectral", 0.5), "alpha": 0.5, "source": source}
    errors = []
    for steps in (64, 256, 1024):
        found = hf.solve_fpde(
            lambda t, u: -0.5 * u, (0.0, 1.0), 0.0 * X, method="l1", step=1.0 / steps, save="all", **given
        )
        errors.append(np.abs(found.u[1:, 8] - forced(found.t[1:], 0.5, -0.3, 0.5)).max())
    assert np.log2(errors[0] / errors[1]) > 2.6 and np.log2(errors[1] / errors[2]) > 2.6


@pytest.mark.parametrize(
    ("form", "source"),
    [
        ("caputo", lambda t, x: np.float64(t) ** -0.8 * x),
        ("fokker_planck", lambda t, x: np.float64(t) ** -1.2 * x),
        ("fokker_planck", lambda t, x: np.float64(t) ** -0.5 * x + np.float64(t) ** -0.2),
    ],
)
def test_sources_without_a_solution(form: str, source: Any):
    """Those that grow too fast, and two powers outside the memory."""
    given = {**GIVEN, "alpha": 0.6, "form": form, "source": source, "rtol": 1e-3}
    with pytest.raises(InvalidInputError, match="at t0"):
        hf.solve_fpde(None, (0.0, 1.0), 0.0 * X, **given)


def test_boundary_data_that_grow_too_fast():
    """Also with given steps."""
    given = {**GIVEN, "alpha": 0.5, "boundary": [(Dirichlet(lambda t: np.float64(t) ** -0.6), Dirichlet(0.0))]}
    for more in ({}, {"step": 0.01}):
        with pytest.raises(InvalidInputError, match=r"boundary data or reaction grow like \(t - t0\)\^-0\.6"):
            hf.solve_fpde(None, (0.0, 1.0), 0.0 * X, **given, **more)

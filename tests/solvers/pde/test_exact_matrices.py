"""Linear equations whose matrix is diagonalised once: finite volumes without steps in time."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from scipy.linalg import expm
from scipy.optimize import brentq
from scipy.special import erfcx

import hpfracc as hf
from hpfracc.pde import Advection, Diffusion, Dirichlet, NoFlux, Robin
from hpfracc.solvers.pde.space import components, matrix

X = np.linspace(0.0, 1.0, 33)


def layers(x):
    return np.where(x < 0.5, 1.0, 0.1)


def solve(u0, x=X, boundary="dirichlet", space=None, t1=0.5, **more):
    space = Diffusion(layers) if space is None else space
    return hf.solve_fpde(None, (0.0, t1), u0, x=x, space=space, boundary=boundary, **more)


def line_matrix(x, k, lower, upper):
    """Flux balances of cells around the points, for a conductivity of each interval and Robin numbers a / b."""
    h, n = np.diff(x), x.size
    widths = np.zeros(n)
    widths[:-1] += h / 2
    widths[1:] += h / 2
    found = np.zeros((n, n))
    for i in range(n - 1):
        found[i : i + 2, i : i + 2] += k[i] / h[i] * np.array([[-1.0, 1.0], [1.0, -1.0]])
    found[0, 0] -= k[0] * lower
    found[-1, -1] -= k[-1] * upper
    return found / widths[:, None]


@pytest.mark.parametrize("even", [True, False])
def test_order_one_is_the_exponential_of_the_matrix(even):
    """Two layers, a slope of 0 at one end and Robin's condition with data at the other, and a steady source."""
    x = X if even else np.concatenate([X[:17] ** 1.3 * 0.5 / X[16] ** 1.3, 0.5 + (X[17:] - 0.5)])
    k = layers(0.5 * (x[1:] + x[:-1]))
    a = line_matrix(x, k, 0.0, 2.0)
    source = 1.0 + x
    added = source.copy()
    added[-1] += k[-1] * 3.0 / (0.5 * (x[-1] - x[-2]))
    whole = np.block([[a, added[:, None]], [np.zeros((1, x.size + 1))]])
    start = np.cos(x)
    found = solve(start, x, ("neumann", Robin(2.0, 1.0, 3.0)), source=source, t1=0.3, t_eval=[0.01, 0.3])
    assert found.decision.method == "exact_modes"
    for t, u in zip(found.t, found.u, strict=True):
        np.testing.assert_allclose(u, (expm(t * whole) @ np.append(start, 1.0))[:-1], rtol=1e-10)


@pytest.mark.parametrize("alpha", [0.5, 2.0])
def test_robins_series_on_an_uneven_grid(alpha):
    """u' = 0 at 0 and u' + u = 0 at 1: cos(m x) with m tan m = 1. The error is within its estimate."""
    m = brentq(lambda z: z * math.tan(z) - 1.0, 0.1, 1.5)
    x = np.linspace(0.0, 1.0, 65) ** 1.2
    more = {"du0": np.zeros(65)} if alpha == 2.0 else {}
    found = solve(np.cos(m * x), x, ("neumann", Robin(1.0, 1.0, 0.0)), Diffusion(1.0), alpha=alpha, **more)
    assert found.decision.method == "exact_modes"
    assert found.decision.space == "finite_volumes"
    gone = found.t[-1]
    factor = erfcx(m**2 * math.sqrt(gone)) if alpha == 0.5 else math.cos(m * gone)
    error = np.abs(found.u[-1] - factor * np.cos(m * x)).max()
    assert error < found.error_estimate.space < 30.0 * error
    assert found.error_estimate.time == 0.0


@pytest.mark.parametrize("alpha", [0.6, 1.5])
def test_steps_with_a_tight_tolerance_agree(alpha):
    more = {"du0": X * (1.0 - X)} if alpha > 1.0 else {}
    given = {"boundary": (Dirichlet(1.0), Robin(1.0, 0.5, 0.3)), "source": np.sin(X), "alpha": alpha, "t1": 0.2, **more}
    found = solve(np.cos(X), **given)
    assert found.decision.method == "exact_modes"
    steps = solve(
        np.cos(X), method="convolution_quadrature" if alpha > 1.0 else "adaptive", rtol=1e-5, save="last", **given
    )
    np.testing.assert_allclose(found.u[-1], steps.u[-1], rtol=2e-5)


@pytest.mark.parametrize("alpha", [0.7, 1.0])
def test_the_estimate_holds_for_a_layered_medium(alpha):
    start = lambda x: np.sin(np.pi * x)  # noqa: E731
    fine = np.linspace(0.0, 1.0, 513)
    found, finer = (solve(start(x), x, alpha=alpha, t1=0.1, t_eval=[0.1]) for x in (X, fine))
    error = np.abs(found.u[-1] - finer.u[-1][::16]).max()
    assert error < found.error_estimate.space < 10.0 * error


def test_a_period_with_a_coefficient_that_varies():
    x = np.arange(32) / 32
    k = 1.0 + 0.5 * np.sin(2.0 * np.pi * x)
    start = np.cos(2.0 * np.pi * x)
    found = solve(start, x, "periodic", Diffusion(lambda x: 1.0 + 0.5 * np.sin(2.0 * np.pi * x)), t1=0.05)
    assert found.decision.method == "exact_modes"
    middle = x + 1.0 / 64
    pair = [1.0 + 0.5 * np.sin(2.0 * np.pi * (middle + s / 32 * 0.5 / math.sqrt(3.0))) for s in (-1.0, 1.0)]
    k = 2.0 / (1.0 / pair[0] + 1.0 / pair[1])
    a = np.zeros((32, 32))
    for i in range(32):
        j = (i + 1) % 32
        a[np.ix_([i, j], [i, j])] += k[i] * 32.0**2 * np.array([[-1.0, 1.0], [1.0, -1.0]])
    np.testing.assert_allclose(found.u[-1], expm(0.05 * a) @ start, atol=1e-11)


def test_several_dimensions_beyond_those_of_regions(monkeypatch):
    """The same finite volumes as those that :class:`RegionSpace` makes, and diagonalises, of few points."""
    x = np.linspace(0.0, 1.0, 9)
    given = {"space": Diffusion((1.0, lambda x, y: 1.0 + x)), "boundary": (0.0, "neumann"), "alpha": 0.7}
    start = np.outer(np.sin(np.pi * x), np.cos(np.pi * x))
    found = solve(start, (x, x), **given)
    monkeypatch.setattr(components, "_FEW", 0)
    other = solve(start, (x, x), **given)
    assert (found.decision.space, other.decision.space) == ("region", "finite_volumes")
    assert other.decision.method == "exact_modes"
    np.testing.assert_allclose(other.u, found.u, atol=1e-10)


def test_advection_is_made_symmetric_by_a_scale():
    """Nothing leaves, and the steady state is exp(v x) up to the grid; too strong advection keeps its steps."""
    x, start = np.linspace(0.0, 1.0, 65), np.ones(65)
    found = solve(start, x, NoFlux(), Diffusion(1.0) + Advection(2.0), t1=5.0)
    assert found.decision.method == "exact_modes"
    np.testing.assert_allclose(found.mass, 1.0, rtol=1e-10)
    steady = np.exp(2.0 * x) * 2.0 / math.expm1(2.0)
    error = np.abs(found.u[-1] - steady).max()
    assert error < 1e-3
    assert error < found.error_estimate.space
    strong = Diffusion(1.0) + Advection(40.0)
    told = hf.explain(hf.solve_fpde, None, (0.0, 1.0), 0.0 * x, x=x, space=strong, boundary=0.0)
    assert told.method != "exact_modes"
    assert "advection is too strong" in str(told)


def test_components_have_eigenvectors_of_their_own():
    start = {"u": np.sin(np.pi * X), "v": X * (1.0 - X)}
    spaces = {"u": Diffusion(layers), "v": Diffusion(lambda x: 1.0 + x)}
    both = solve(start, space=spaces, alpha=0.7)
    assert both.decision.method == "exact_modes"
    for number, name in enumerate(start):
        one = solve(start[name], space=spaces[name], alpha=0.7)
        np.testing.assert_allclose(both.u[:, number], one.u, atol=1e-12)
    apart = solve(start, space=spaces, alpha=0.7, boundary={"u": "dirichlet", "v": "neumann"})
    assert apart.decision.method == "exact_modes"
    np.testing.assert_allclose(apart.u[:, 0], both.u[:, 0], atol=1e-12)


def test_events_and_a_solution_that_is_pickled():
    """Half the start of the slowest mode; between the outputs the solution is evaluated."""

    def half(t, u):
        return float(u[16]) - 0.5

    k = 2.0 * (1.0 - math.cos(math.pi / 32)) * 32**2
    found = solve(np.sin(np.pi * X), space=Diffusion(lambda x: 1.0 + 0.0 * x), events=half, dense_output=True, t1=1.0)
    assert found.decision.space == "finite_volumes"
    assert found.t_events is not None
    np.testing.assert_allclose(found.t_events[0], [math.log(2.0) / k], rtol=1e-8)
    again = pickle.loads(pickle.dumps(found))
    np.testing.assert_allclose(again.sol(0.05), math.exp(-0.05 * k) * np.sin(np.pi * X), atol=1e-10)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"source": lambda t, x: t * x}, "do not change in time"),
        ({"space": Diffusion(lambda x: np.where(x < 0.5, 1.0, 1e12))}, "lost in rounding"),
        (
            {
                "x": (np.linspace(0.0, 1.0, 7),) * 2,
                "space": Diffusion(lambda x, y: 1.0 + x * y) + Advection((1.0, 0.0)),
            },
            "",
        ),
    ],
)
def test_explain_says_why_there_are_steps(more, words):
    given = {"x": X, "space": Diffusion(layers), "boundary": "dirichlet", "alpha": 0.6} | more
    u0 = np.zeros([33] if not isinstance(given["x"], tuple) else [7, 7])
    told = hf.explain(hf.solve_fpde, None, (0.0, 1.0), u0, **given)
    assert told.method != "exact_modes"
    assert any("exact_modes" in note and words in note for note in told.notes)


def test_explain_says_that_a_matrix_is_diagonalised_or_too_large(monkeypatch):
    arguments = (hf.solve_fpde, None, (0.0, 1.0), np.sin(np.pi * X))
    given = {"x": X, "space": Diffusion(layers), "boundary": "dirichlet", "alpha": 0.6}
    assert "by the eigenvectors of its matrix" in hf.explain(*arguments, **given).reason
    monkeypatch.setattr(matrix, "DENSE", 30)
    assert any("31 unknowns are more than 30" in note for note in hf.explain(*arguments, **given).notes)

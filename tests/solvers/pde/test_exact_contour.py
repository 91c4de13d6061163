"""Linear equations by inverse Laplace transforms: large sparse matrices, several orders, and orders of place."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from scipy.linalg import expm

import hpfracc as hf
from hpfracc.pde import Diffusion, Matrix, Region, Robin
from hpfracc.solvers.pde.methods import exact_contour
from hpfracc.solvers.pde.space import matrix
from hpfracc.special import mittag_leffler

X = np.linspace(0.0, 1.0, 33)
MODE = np.sin(np.pi * X)
RATE = 2.0 * (1.0 - math.cos(math.pi / 32)) * 32**2


def solve(u0=MODE, x=X, boundary="dirichlet", space=None, t1=0.5, **more):
    return hf.solve_fpde(None, (0.0, t1), u0, x=x, space=space or Diffusion(1.0), boundary=boundary, **more)


@pytest.mark.parametrize("alpha", [0.3, 0.8, 1.0])
def test_mittag_leffler_functions_over_many_scales_of_time(alpha):
    t = np.geomspace(1e-5, 0.5, 40)
    layered = Diffusion(lambda x: 1.0 + 0.0 * x)
    found = solve(alpha=alpha, t_eval=t, space=layered, method="exact_contour")
    exact = mittag_leffler(-RATE * t**alpha, alpha)
    np.testing.assert_allclose(found.u[:, 16], exact, atol=1e-10)
    assert found.error_estimate.time == 0.0
    assert found.error_estimate.space > 0.0


def test_regions_with_more_unknowns_than_are_diagonalised(monkeypatch):
    """The five-point scheme on an L-shape, whose eigenfunctions are those of the square."""
    x = np.linspace(0.0, 2.0, 33)
    shape = np.outer(np.sin(np.pi * x), np.sin(np.pi * x))
    monkeypatch.setattr(matrix, "DENSE", 100)
    region = Region((x, x), lambda x, y: (x < 1.0) | (y < 1.0))
    found = solve(shape, region, boundary=0.0, alpha=0.6, t_eval=[0.01, 0.1])
    assert found.decision.method == "exact_contour"
    rate = 4.0 * (1.0 - math.cos(math.pi / 16)) * 16**2
    for t, u in zip(found.t, found.u, strict=True):
        inside = np.isfinite(u)
        np.testing.assert_allclose(u[inside], (mittag_leffler(-rate * t**0.6, 0.6) * shape)[inside], atol=1e-10)


def test_order_one_with_sources_and_robins_condition():
    more = {"boundary": ("neumann", Robin(2.0, 1.0, 3.0)), "source": 1.0 + X, "space": Diffusion(lambda x: 1.0 + x)}
    one, other = (solve(np.cos(X), t_eval=[0.02, 0.5], method=m, **more) for m in ("exact_contour", "exact_modes"))
    np.testing.assert_allclose(one.u, other.u, atol=1e-9)


def test_a_matrix_with_masses():
    count = 12
    a = (2.0 * np.eye(count) - np.eye(count, k=1) - np.eye(count, k=-1)) * 30.0
    m = np.diag(np.linspace(1.0, 2.0, count))
    start = np.arange(count) % 3 - 0.5
    found = hf.solve_fpde(None, (0.0, 1.0), start, space=Matrix(a, mass=m), t_eval=[0.3], method="exact_contour")
    np.testing.assert_allclose(found.u[0], expm(-0.3 * np.linalg.solve(m, a)) @ start, atol=1e-10)


def test_an_order_that_varies_in_space_against_steps():
    given = {"alpha": lambda x: 0.5 + 0.4 * x, "t_eval": [0.05, 0.5], "source": 1.0}
    found = solve(**given)
    assert found.decision.method == "exact_contour"
    steps = solve(method="l1", step=2e-3, **given)
    np.testing.assert_allclose(found.u, steps.u, atol=2e-3)
    assert np.abs(found.u - steps.u).max() < 1.5 * steps.error_estimate.time
    assert solve(alpha=lambda t, x: 0.5 + 0.4 * x * t, rtol=1e-2, t1=0.1).decision.method != "exact_contour"


def test_several_orders_against_steps():
    given = {"alpha": 0.9, "terms": [(2.0, 0.4)], "t_eval": [0.1, 0.5], "space": Diffusion(lambda x: 1.0 + x)}
    found = solve(**given)
    assert found.decision.method == "exact_contour"
    steps = solve(method="convolution_quadrature", rtol=1e-6, **given)
    np.testing.assert_allclose(found.u, steps.u, atol=3e-6)


def test_a_source_outside_the_memory():
    given = {"alpha": 0.6, "form": "fokker_planck", "source": 1.0 + X, "space": Diffusion(lambda x: 1.0 + x)}
    one, other = (solve(method=m, t_eval=[0.1, 0.5], **given) for m in ("exact_contour", "exact_modes"))
    np.testing.assert_allclose(one.u, other.u, atol=1e-10)


def test_several_dimensions_with_a_period():
    y = np.arange(16) / 16
    x = np.linspace(0.0, 1.0, 9)
    space = Diffusion((lambda x, y: 1.0 + x, lambda x, y: 2.0 + np.sin(2.0 * np.pi * y)))
    given = {"x": (x, y), "space": space, "boundary": (0.0, "periodic"), "alpha": 0.7, "t_eval": [0.1]}
    start = np.outer(np.sin(np.pi * x), 1.0 + np.cos(2.0 * np.pi * y))
    one, other = (solve(start, method=m, **given) for m in ("exact_contour", "exact_modes"))
    np.testing.assert_allclose(one.u, other.u, atol=1e-10)


def test_events_output_between_and_pickling():
    def half(t, u):
        return float(u[16]) - 0.5

    found = solve(events=half, dense_output=True, method="exact_contour", space=Diffusion(lambda x: 1.0 + 0.0 * x))
    np.testing.assert_allclose(found.t_events[0], [math.log(2.0) / RATE], rtol=1e-8)
    again = pickle.loads(pickle.dumps(found))
    np.testing.assert_allclose(again.sol(0.05), math.exp(-0.05 * RATE) * MODE, atol=1e-10)


def test_the_factorisations_do_not_depend_on_the_number_of_outputs(monkeypatch):
    calls = []
    transform = exact_contour.ContourSolution._transform
    monkeypatch.setattr(
        exact_contour.ContourSolution, "_transform", lambda self, z: calls.append(z) or transform(self, z)
    )
    solve(
        method="exact_contour", space=Diffusion(lambda x: 1.0 + x), t_eval=np.linspace(0.1, 0.5, 1000), estimate=False
    )
    assert len(calls) == 26


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"alpha": 1.5, "du0": 0.0}, "orders up to 1"),
        ({"source": lambda t, x: t * x}, "do not change in time"),
        ({"space": Diffusion(1.0) + hf.pde.Advection(60.0)}, "advection is too strong"),
    ],
)
def test_what_it_refuses(more, words):
    with pytest.raises(hf.errors.InvalidInputError, match=words):
        solve(**{"method": "exact_contour", "alpha": 0.6, "space": Diffusion(lambda x: 1.0 + x)} | more)

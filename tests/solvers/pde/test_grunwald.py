"""Weighted shifted Grünwald differences and their linear systems."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

import hpfracc as hf
from hpfracc._xp import NUMPY
from hpfracc.errors import AccuracyWarning, InvalidInputError
from hpfracc.pde import Advection, Diffusion, Dirichlet, Disc, Exterior, FractionalDiffusion, OneSided
from hpfracc.solvers.pde.boundary import read_boundary
from hpfracc.solvers.pde.space import grunwald
from hpfracc.solvers.pde.space.base import SpaceSetting
from hpfracc.solvers.pde.space.grunwald import ShiftedGrunwald
from hpfracc.solvers.pde.space.toeplitz import shifted_grunwald


def setting(x, *terms, boundary="dirichlet", **more):
    axes = x if isinstance(x, tuple) else (x,)
    return SpaceSetting(terms, axes, read_boundary(boundary, len(axes)), **more)


def krylov(monkeypatch):
    monkeypatch.setattr(grunwald, "DENSE", 0)
    monkeypatch.setattr(grunwald, "DENSE_KEPT", 0)


@pytest.mark.parametrize("beta", [1.2, 1.5, 1.8])
@pytest.mark.parametrize("side", ["left", "right"])
def test_one_sided_derivative_has_order_two(beta, side):
    """Against the derivative of rho^3 (rho from the side's end), with a value on the other end."""
    errors = []
    for n in (40, 80, 160):
        x = np.linspace(0.0, 2.0, n + 1)
        rho = x if side == "left" else 2.0 - x
        ends = (Dirichlet(0.0), Dirichlet(8.0)) if side == "left" else (Dirichlet(8.0), Dirichlet(0.0))
        space = ShiftedGrunwald(setting(x, OneSided(beta, side), boundary=ends))
        found = space.apply(rho[1:-1] ** 3) + space.forcing(0.0)
        exact = 6.0 / math.gamma(4.0 - beta) * rho[1:-1] ** (3.0 - beta)
        errors.append(np.abs(found - exact)[n // 4 : -n // 4].max())
    assert math.log2(errors[1] / errors[2]) > 1.85


@pytest.mark.parametrize("beta", [0.4, 0.7])
def test_transport_below_order_one(beta):
    """Orders below 1 too, with coefficients of the sign of transport; the other sign is refused."""
    errors = []
    for n in (80, 160):
        x = np.linspace(0.0, 1.0, n + 1)
        space = ShiftedGrunwald(setting(x, OneSided(beta, "left", -2.0), boundary=(Dirichlet(0.0), Dirichlet(1.0))))
        found = space.apply(x[1:-1] ** 3) + space.forcing(0.0)
        errors.append(np.abs(found + 12.0 / math.gamma(4.0 - beta) * x[1:-1] ** (3.0 - beta)).max())
        assert np.linalg.eigvals(space.matrix).real.max() < 1e-9
    assert math.log2(errors[0] / errors[1]) > 1.85
    with pytest.raises(InvalidInputError, match="lets waves grow"):
        ShiftedGrunwald(setting(x, OneSided(beta, "left", 2.0)))


def test_riesz_is_the_integral_of_a_smooth_bump():
    """(-Delta)^(1/2) of (1 - x^2)^3 at the middle, by its integral (mpmath), with order 2."""
    import mpmath as mp

    exact = float(mp.quad(lambda y: (1 - (1 - y * y) ** 3) / (mp.pi * y * y), [-1, 0, 1])) + 2.0 / math.pi
    errors = []
    for n in (64, 128, 256):
        x = np.linspace(-1.0, 1.0, n + 1)
        space = ShiftedGrunwald(setting(x, FractionalDiffusion(1.0, "riesz")))
        errors.append(abs(-space.apply((1.0 - x[1:-1] ** 2) ** 3)[n // 2 - 1] - exact))
    assert errors[-1] < 1e-3
    assert math.log2(errors[1] / errors[2]) > 1.85


@pytest.mark.parametrize(("m", "published"), [(10, 1.8226e-3), (15, 1.1681e-3), (20, 8.648e-4), (25, 6.849e-4)])
def test_errors_are_a_fifth_of_the_published_ones_of_order_one(m, published):
    """Tadjeran, Meerschaert and Scheffler 2006, table 1: order 1.8 from the left, u = exp(-t) x^3."""
    x, dt = np.linspace(0.0, 1.0, m + 1), 1.0 / m
    term = OneSided(1.8, "left", lambda x: math.gamma(2.2) * x**2.8 / 6.0)
    ends = (Dirichlet(0.0), Dirichlet(lambda t: math.exp(-t)))
    space = ShiftedGrunwald(setting(x, term, boundary=ends))
    inside = x[1:-1]
    u = inside**3
    for step in range(m):
        t = step * dt
        source = -(1.0 + inside) * math.exp(-(t + 0.5 * dt)) * inside**3
        known = 0.5 * (space.forcing(t) + space.forcing(t + dt)) + source
        u = space.solve(2.0 / dt, 2.0 / dt * u + space.apply(u) + 2.0 * known)
    assert np.abs(u - math.exp(-1.0) * inside**3).max() < 0.2 * published


CASES = {
    "left": (OneSided(1.5),),
    "both": (OneSided(1.5), OneSided(1.5, "right", 0.5)),
    "dispersion": (OneSided(1.6, "left", 0.1), Advection(0.5), Diffusion(0.01)),
    "riesz": (FractionalDiffusion(1.5, "riesz"),),
    "coefficient": (OneSided(1.5, "left", lambda x: 0.01 + x**2.8),),
    "two coefficients": (OneSided(1.5, "left", lambda x: 0.1 + x**2), OneSided(1.3, "right", lambda x: np.exp(-3 * x))),
    "to zero": (OneSided(1.8, "left", lambda x: x**2.8),),
    "riesz with a coefficient": (FractionalDiffusion(1.2, "riesz", lambda x: 0.01 + x**2),),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("n", [511, 8191])
def test_iterations_do_not_grow(monkeypatch, name, n):
    """At most 8 with constant coefficients and 13 with others, and the residual is what was asked for."""
    krylov(monkeypatch)
    x = np.linspace(0.0, 1.0, n + 2)
    space = ShiftedGrunwald(setting(x, *CASES[name]))
    rhs = np.random.default_rng(1).standard_normal(n)
    shift = float(n)
    u = space.solve(shift, rhs)
    assert np.linalg.norm(shift * u - space.apply(u) - rhs) < 1e-10 * np.linalg.norm(rhs)
    varying = any(callable(getattr(term, "coefficient", None)) for term in CASES[name])
    assert 0 < space.iterations <= (13 if varying else 8)


def test_iterations_at_65535_points(monkeypatch):
    """Tau and circulant preconditioners need 8 iterations or fewer there."""
    krylov(monkeypatch)
    x = np.linspace(0.0, 1.0, 65_537)
    rhs = np.random.default_rng(2).standard_normal(65_535)
    for term in (FractionalDiffusion(1.5, "riesz"), OneSided(1.5)):
        space = ShiftedGrunwald(setting(x, term))
        space.solve(6e4, rhs)
        assert 0 < space.iterations <= 8


@pytest.mark.parametrize("name", CASES)
def test_dense_and_krylov_agree(monkeypatch, name):
    """LU or eigenvectors, Krylov, and SciPy's solver of the Toeplitz matrices give one answer."""
    n = 120
    x = np.linspace(0.0, 1.0, n + 2)
    space = ShiftedGrunwald(setting(x, *CASES[name]))
    rhs = np.random.default_rng(3).standard_normal((2, n))
    dense = space.solve(37.0, rhs)
    assert space.iterations == 0
    krylov(monkeypatch)
    space = ShiftedGrunwald(setting(x, *CASES[name]))
    found = space.solve(37.0, rhs)
    assert space.iterations > 0
    np.testing.assert_allclose(found, dense, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(np.linalg.solve(37.0 * np.eye(n) - space.matrix, rhs.T).T, dense, rtol=1e-8, atol=1e-12)


def test_two_dimensions(monkeypatch):
    """Riesz is the Kronecker sum of its axes; the integral Laplacian is not, and says its order at the boundary."""
    x, y = np.linspace(0.0, 1.0, 14), np.linspace(0.0, 2.0, 12)
    term = FractionalDiffusion(1.3, "riesz", 0.5)
    both = ShiftedGrunwald(setting((x, y), term))
    one, two = (ShiftedGrunwald(setting(axis, term)).matrix for axis in (x, y))
    np.testing.assert_allclose(both.matrix, np.kron(one, np.eye(10)) + np.kron(np.eye(12), two), atol=1e-9)
    with pytest.warns(AccuracyWarning, match="order 0.65 only"):
        whole = ShiftedGrunwald(setting((x, y), FractionalDiffusion(1.3, "integral"), boundary="exterior"))
    assert np.abs(whole.matrix - 2.0 * both.matrix).max() > 1.0
    krylov(monkeypatch)
    rhs = np.ones((3, 12, 10))
    for space in (both, whole):
        u = space.solve(2.0, rhs)
        np.testing.assert_allclose(2.0 * u - space.apply(u), rhs, atol=1e-10)
        assert space.iterations <= 12
    assert both.embed(u, 0.0).shape == (3, 14, 12)
    np.testing.assert_array_equal(both.restrict(both.embed(u, 0.0)), u)


def test_order_s_at_the_boundary():
    """(-Delta)^s u = 1 by centred differences: the largest error falls with order s, not 2, as the note says."""
    s = 0.5
    errors = []
    for n in (128, 256, 512):
        x = np.linspace(-1.0, 1.0, n + 1)
        with pytest.warns(AccuracyWarning, match=r"order 0\.5 only"):
            space = ShiftedGrunwald(setting(x, FractionalDiffusion(2 * s, "integral"), boundary="exterior"))
        u = space.solve(0.0, np.ones(n - 1))
        errors.append(np.abs(u - (1.0 - x[1:-1] ** 2) ** s / math.gamma(1.0 + 2 * s)).max())
    assert math.log2(errors[1] / errors[2]) == pytest.approx(s, abs=0.05)


def test_a_constant_outside_is_a_solution():
    """With the number g outside, u = g is stationary."""
    x = np.linspace(-1.0, 1.0, 40)
    with pytest.warns(AccuracyWarning):
        space = ShiftedGrunwald(
            setting(x, FractionalDiffusion(1.2, "integral"), Advection(0.1), boundary=Exterior(3.0))
        )
    u = np.full(38, 3.0)
    # Transport by centred differences of a constant vanishes too.
    np.testing.assert_allclose(space.apply(u) + space.forcing(0.0), 0.0, atol=1e-10)
    np.testing.assert_allclose(space.embed(u, 0.0), 3.0)
    assert space.integrate(space.embed(u, 0.0)) == pytest.approx(6.0)


def test_a_value_where_the_derivative_begins_is_refused():
    """Riemann-Liouville derivatives of functions that are not zero at their own end are infinite."""
    x = np.linspace(0.0, 1.0, 20)
    space = ShiftedGrunwald(setting(x, OneSided(1.5), boundary=(Dirichlet(1.0), Dirichlet(0.0))))
    with pytest.raises(InvalidInputError, match="infinite"):
        space.forcing(0.0)
    refusal = ShiftedGrunwald.refuses(setting(x, FractionalDiffusion(1.5, "riesz"), boundary=Dirichlet(1.0)))
    assert refusal is not None
    assert "infinite" in refusal


@pytest.mark.parametrize(
    ("terms", "x", "boundary", "words"),
    [
        ((Diffusion(1.0),), np.linspace(0, 1, 9), "dirichlet", "there are none"),
        ((OneSided(1.5),), np.linspace(0, 1, 9), "neumann", "Neumann"),
        ((OneSided(1.5),), np.linspace(0, 1, 9) ** 2, "dirichlet", "not uniform"),
        ((OneSided(1.5),), np.linspace(0, 1, 9), "exterior", "no data outside"),
        ((FractionalDiffusion(1.5, "spectral"),), np.linspace(0, 1, 9), "dirichlet", "not a Toeplitz"),
        ((FractionalDiffusion(1.5, "integral"),), np.linspace(0, 1, 9), "dirichlet", "Exterior"),
        ((OneSided(1.5), Diffusion(lambda x: x)), np.linspace(0, 1, 9), "dirichlet", "constant"),
    ],
)
def test_refusals(terms, x, boundary, words):
    """Each says why."""
    refusal = ShiftedGrunwald.refuses(setting(x, *terms, boundary=boundary))
    assert refusal is not None
    assert words in refusal


def test_backward_diffusion_is_refused():
    """Above order 1 a negative coefficient is ill-posed."""
    x = np.linspace(0.0, 1.0, 20)
    with pytest.raises(InvalidInputError, match="ill-posed"):
        ShiftedGrunwald(setting(x, OneSided(1.5, "left", lambda x: x - 0.5)))


@pytest.mark.parametrize(
    "coefficient", [-1.0, lambda x: x, lambda x: np.nan * x], ids=["number", "changes sign", "nan"]
)
@pytest.mark.parametrize(("kind", "boundary"), [("riesz", "dirichlet"), ("integral", "exterior")])
def test_fractional_diffusion_backwards_is_refused(kind, boundary, coefficient):
    """With given steps it gave large numbers without a word; a term of higher order may damp it."""
    x = np.linspace(-1.0, 1.0, 17)
    given = {"x": x, "boundary": boundary, "alpha": 0.6, "step": 0.05}
    backwards = FractionalDiffusion(1.2, kind, coefficient)
    with pytest.raises(InvalidInputError, match="backwards is ill-posed"):
        hf.solve_fpde(None, (0.0, 1.0), 1.0 - x**2, space=backwards, **given)
    if kind == "riesz":
        damped = Diffusion(1.0) + FractionalDiffusion(1.2, kind, -0.1)
        assert abs(hf.solve_fpde(None, (0.0, 1.0), 1.0 - x**2, space=damped, **given).u[-1]).max() < 0.5
    elif coefficient == -1.0:
        disc = {**given, "x": Disc(1.0, 8, 8)}
        with pytest.raises(InvalidInputError, match="backwards is ill-posed"):
            hf.solve_fpde(None, (0.0, 1.0), lambda x, y: 1.0 - x**2 - y**2, space=backwards, **disc)


@pytest.mark.parametrize(
    "case", ["riesz", "complex", "coefficient", "two axes", "integral in two dimensions", "a shift for each component"]
)
def test_eigenvectors_are_computed_once_and_give_the_matrix(case):
    """Symmetric terms are diagonalised: products, shifted systems and the whole matrix agree with it."""
    x = np.linspace(-1.0, 1.0, 12)
    axes, coefficient, kind, ends = (x,), 1.0, "riesz", "dirichlet"
    if case == "complex":
        coefficient = 1j
    elif case == "coefficient":
        coefficient = lambda x: 2.0 + np.sin(3.0 * x)  # noqa: E731
    elif case != "riesz":
        axes = (x, np.linspace(0.0, 1.0, 9))
        kind, ends = ("integral", "exterior") if case == "integral in two dimensions" else ("riesz", "dirichlet")
    terms = (FractionalDiffusion(1.3, kind, coefficient),)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AccuracyWarning)
        space = ShiftedGrunwald(
            SpaceSetting(terms, axes, read_boundary(ends, len(axes)), complex_state=case == "complex")
        )
    assert space.symbol is not None and space.symbol.shape == space.shape
    points = math.prod(space.shape)
    rhs = np.random.default_rng(0).standard_normal((2, *space.shape))
    rhs = rhs + 0j if case == "complex" else rhs
    shift = np.array([3.0, 5.0]).reshape(2, *(1,) * len(space.shape)) if case.startswith("a shift") else 3.0
    u = space.solve(shift, rhs)
    np.testing.assert_allclose(shift * u - space.apply(u), rhs, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(space.backward(space.forward(rhs)), rhs, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(space.backward(space.symbol * space.forward(rhs)), space.apply(rhs), atol=1e-9)
    if case != "complex":
        values = np.sort(np.linalg.eigvals(space.matrix).real)
        np.testing.assert_allclose(np.sort(space.symbol.reshape(-1)), values, rtol=1e-9, atol=1e-9)
    assert space.step_bytes() <= 16 * points**2


def test_no_step_of_a_riesz_equation_factorises(monkeypatch):
    """257 points: no time steps without a source, and no linear system with one."""
    monkeypatch.setattr("scipy.linalg.lu_factor", None)
    x = np.linspace(-1.0, 1.0, 257)
    given = {"x": x, "space": FractionalDiffusion(1.5, "riesz"), "boundary": "dirichlet", "alpha": 0.6}
    plain = hf.solve_fpde(None, (0.0, 1.0), (1.0 - x**2) ** 2, **given)
    assert plain.decision.method == "exact_modes"
    stepped = hf.solve_fpde(None, (0.0, 1.0), (1.0 - x**2) ** 2, method="l2_1sigma", rtol=1e-5, save="last", **given)
    np.testing.assert_allclose(stepped.u[-1], plain.u[-1], atol=3e-5)


def test_weights_are_those_of_tian_zhou_and_deng():
    """``w_0 = beta/2 g_0``, ``w_k = beta/2 g_k + (2 - beta)/2 g_(k-1)``, with binomials of SciPy's."""
    from scipy.special import binom

    beta, k = 1.3, np.arange(12)
    g = (-1.0) ** k * binom(beta, k)
    expected = 0.5 * beta * g
    expected[1:] += 0.5 * (2.0 - beta) * g[:-1]
    near, far = shifted_grunwald(NUMPY, beta, 11)
    np.testing.assert_allclose(near, expected[1:], rtol=1e-13)
    np.testing.assert_allclose(far[:3], [expected[1], expected[0], 0.0], rtol=1e-13)

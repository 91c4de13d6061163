"""Methods in time: their orders, and that every way to sum the past gives the same."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from scipy.integrate import quad

import hpfracc as hf
from hpfracc.errors import AccuracyWarning, InvalidInputError
from hpfracc.history.intervals import IntervalWeights
from hpfracc.pde import CorrectedQuadrature, Diffusion, DiffusionL1, DiffusionL2Sigma, Dirichlet, Neumann
from tests.helpers.thinned import thinned

X = np.linspace(0.0, np.pi, 9)
SINE = np.sin(X)


def amplitude(method, alpha: float, steps: int, **more):
    """The solution in the middle, whose mode has the eigenvalue -1, at the steps."""
    given = {"x": X, "space": Diffusion(1.0), "boundary": "dirichlet", "alpha": alpha, "save": "all", **more}
    reaction = given.pop("reaction", None)
    return hf.solve_fpde(reaction, (0.0, 1.0), SINE, method=method, step=1.0 / steps, **given)


def order_of(errors: list[float]) -> float:
    return math.log2(errors[-2] / errors[-1])


@pytest.mark.parametrize("alpha", [0.3, 0.5, 0.8, 1.0])
@pytest.mark.parametrize("memory", ["direct", "exponentials"])
def test_l1_has_order_two_minus_alpha(alpha: float, memory: str):
    """The largest error over all steps of a solution that starts like t^alpha, on the graded mesh."""
    errors = []
    for steps in (32, 64, 128):
        found = amplitude(DiffusionL1(memory=memory), alpha, steps)
        errors.append(np.max(np.abs(found.u[:, 4] - hf.mittag_leffler(-(found.t**alpha), alpha))))
    assert order_of(errors) > (2.0 - alpha) - 0.15


@pytest.mark.parametrize("alpha", [0.3, 0.5, 0.8])
@pytest.mark.parametrize("memory", ["direct", "exponentials"])
def test_l2_1sigma_has_order_two(alpha: float, memory: str):
    """The largest error over all steps, on the graded mesh."""
    errors = []
    for steps in (64, 128):
        found = amplitude(DiffusionL2Sigma(memory=memory), alpha, steps)
        errors.append(np.max(np.abs(found.u[:, 4] - hf.mittag_leffler(-(found.t**alpha), alpha))))
    assert order_of(errors) > 1.85


def test_uniform_l1_has_order_alpha_at_the_start_and_one_at_the_end():
    """What pde.md warns of: a uniform mesh does not resolve t^alpha."""
    largest, last = [], []
    for steps in (256, 512):
        found = amplitude(DiffusionL1(grading=1.0), 0.4, steps)
        gap = np.abs(found.u[:, 4] - hf.mittag_leffler(-(found.t**0.4), 0.4))
        largest.append(gap.max())
        last.append(gap[-1])
    assert order_of(largest) == pytest.approx(0.38, abs=0.06)
    assert order_of(last) == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("alpha", [0.3, 0.5, 0.8, 1.0, 1.3, 1.6])
@pytest.mark.parametrize("k", [2, 3, 4, 5])
@thinned(lambda alpha, k: alpha in (0.5, 1.3) or (alpha, k) == (1.6, 5))
def test_corrected_quadrature_has_order_k(alpha: float, k: int):
    """At a fixed time, with an initial state and a source that do not vanish there, and an initial velocity above 1."""
    method = CorrectedQuadrature(k)
    if (k == 5 and alpha > 1.4) or (k == 4 and alpha > 1.68):
        with pytest.raises(InvalidInputError, match="unstable"):
            amplitude(method, alpha, 8, du0=0)
        return
    exact = float(hf.mittag_leffler(-1.0, alpha))
    if alpha > 1.0:
        exact += 0.5 * float(hf.mittag_leffler(-1.0, alpha, 2.0))
    exact += quad(
        lambda z: hf.mittag_leffler(-z, alpha, alpha) * math.cos(1.0 - z ** (1 / alpha)) / alpha, 0, 1, epsrel=1e-12
    )[0]
    errors = []
    for steps in (48, 96):
        found = amplitude(
            method,
            alpha,
            steps,
            du0=0.5 * SINE if alpha > 1.0 else None,
            source=lambda t, x: math.cos(t) * np.sin(x),
        )
        errors.append(abs(found.u[-1, 4] - exact))
    assert order_of(errors) > k - 0.15 or errors[-1] < 2e-8


def test_rough_data_with_quadrature_and_l1():
    """A step as initial state: order 2 at a fixed time for BDF2, 1 or more for L1 on its mesh."""
    x = np.linspace(0.0, np.pi, 65)
    u0 = np.where((x > 1.0) & (x < 2.0), 1.0, 0.0)
    given = {"x": x, "space": Diffusion(1.0), "boundary": "dirichlet", "alpha": 0.5}
    exact = hf.solve_fpde(None, (0.0, 0.5), u0, t_eval=[0.5], **given).u[-1]
    for method, least in ((CorrectedQuadrature(2), 1.85), (DiffusionL1(), 1.35)):
        errors = [
            np.max(np.abs(hf.solve_fpde(None, (0.0, 0.5), u0, method=method, step=0.5 / n, **given).u[-1] - exact))
            for n in (64, 128)
        ]
        assert order_of(errors) > least


@pytest.mark.parametrize("reaction", ["newton", "imex"])
@pytest.mark.parametrize("method", [DiffusionL1, DiffusionL2Sigma])
def test_reactions_keep_the_order(method, reaction: str):
    """A linear reaction on the right is the same equation with a larger eigenvalue."""
    errors = []
    for steps in (64, 128):
        found = amplitude(method(reaction=reaction), 0.6, steps, reaction=lambda t, u: -u)
        errors.append(np.max(np.abs(found.u[:, 4] - hf.mittag_leffler(-2.0 * found.t**0.6, 0.6))))
    assert order_of(errors) > (1.25 if method is DiffusionL1 else 1.85)


def test_manufactured_reaction():
    """u = (1 + t^alpha) sin x solves a cubic reaction with the source that belongs to it, by Newton's method."""
    alpha, gamma = 0.7, math.gamma(1.7)

    def exact(t, x):
        return (1.0 + t**alpha) * np.sin(x)

    def source(t, x):
        u = exact(t, x)
        return gamma * np.sin(x) + u + 40.0 * (u**3)

    errors = []
    for steps in (32, 64):
        found = amplitude(
            DiffusionL2Sigma(), alpha, steps, reaction=lambda t, u: -40.0 * u**3, source=source, rtol=1e-9
        )
        assert found.success
        errors.append(np.max(np.abs(found.u - exact(found.t[:, None], X))))
    assert order_of(errors) > 1.8
    assert found.stats["newton_iterations"] > 0


@pytest.mark.parametrize("method", [DiffusionL1, DiffusionL2Sigma])
@pytest.mark.parametrize("boundary", ["periodic", (Dirichlet(math.sin), Neumann(0.3))])
@thinned(one_in=2)
def test_every_way_to_sum_the_past_agrees(method, boundary):
    """Direct sums and exponentials, compiled and not, with moving boundaries and complex coefficients."""
    x = np.linspace(0.0, 3.0, 24, endpoint=boundary != "periodic")
    u0 = np.sin(2.0 * np.pi * x / 3.0) if boundary == "periodic" else x * (x - 3.0)
    given = {"x": x, "space": Diffusion(0.7), "boundary": boundary, "alpha": 0.45, "step": 1.0 / 90}
    found = [
        hf.solve_fpde(None, (0.0, 1.0), u0, method=method(memory=memory), compile=compiled, **given).u
        for memory in ("direct", "exponentials")
        for compiled in (False, True)
    ]
    for other in found[1:]:
        assert np.max(np.abs(other - found[0])) < 1e-10


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.3, 0.5, 0.8, 1.0, 1.3, 1.6])
@pytest.mark.parametrize("start", ["hat", "step", "one"])
def test_orders_at_a_time_for_data_that_are_not_smooth(start: str, alpha: float):
    """A kink, two jumps, and data that do not fit the boundary; against exact modes on the same grid."""
    x = np.linspace(0.0, np.pi, 33)
    hat = np.minimum(x, np.pi - x)
    u0 = {"hat": hat, "step": np.where(np.abs(x - 1.6) < 0.6, 1.0, 0.0), "one": np.ones(x.size)}[start]
    given = {"x": x, "space": Diffusion(1.0), "boundary": "dirichlet", "alpha": alpha, "save": "last"}
    given |= {"estimate": False, "du0": 0.0 if alpha > 1.0 else None}
    methods = [(CorrectedQuadrature(k), k) for k, most in ((2, 2.0), (3, 1.91), (4, 1.68), (5, 1.40)) if alpha <= most]
    if alpha <= 1.0:
        methods.append((DiffusionL1(), 2.0 - alpha))
    if alpha < 1.0:
        methods.append((DiffusionL2Sigma(), 2.0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AccuracyWarning)
        exact = hf.solve_fpde(None, (0.0, 1.0), u0, method="exact_modes", **given).u[-1]
        for method, order in methods:
            steps = (80, 160) if order == 5 else (160, 320) if alpha <= 1.0 else (320, 640)
            errors = [
                np.abs(hf.solve_fpde(None, (0.0, 1.0), u0, method=method, step=1.0 / n, **given).u[-1] - exact).max()
                for n in steps
            ]
            # Below that rounding decides.
            assert order_of(errors) > order - 0.15 or errors[-1] < 1e-10


def test_quadrature_by_transforms(monkeypatch):
    """The history by FFT is the direct one."""
    from hpfracc.solvers.pde.methods import convolution_quadrature

    direct = amplitude(CorrectedQuadrature(2), 0.6, 400).u
    monkeypatch.setattr(convolution_quadrature, "TRANSFORMS_FROM", 100)
    other = amplitude(CorrectedQuadrature(2), 0.6, 400)
    assert other.decision.history == "fft"
    assert np.max(np.abs(other.u - direct)) < 1e-13


def test_weights_keep_their_digits():
    """Weights of tiny intervals far away, against 40 digits."""
    import mpmath

    mesh, alpha = np.array([0.0, 1e-14, 1e-6, 0.1, 0.35, 1.0]), 0.35
    sigma = 1.0 - alpha / 2
    rows = IntervalWeights(((1.0, alpha),), mesh, sigma, parabola=True).rows(1, 6)
    with mpmath.workdps(40):
        a, scale = mpmath.mpf(alpha), 1 / mpmath.gamma(1 - mpmath.mpf(alpha))
        t = [mpmath.mpf(one) for one in mesh]
        star = t[4] + mpmath.mpf(sigma) * (t[5] - t[4])

        def area(d):
            return d ** (1 - a) / (1 - a)

        def lever(d):
            return d ** (2 - a) / (2 - a)

        expected = [mpmath.mpf(0)] * 5
        for k in range(1, 6):
            tau, end = t[k] - t[k - 1], min(t[k], star)
            expected[k - 1] += scale * (area(star - t[k - 1]) - area(star - end)) / tau
            if k < 5:
                d1, d0, following = star - t[k - 1], star - t[k], t[k + 1] - t[k]
                moment = (d1 + d0) / 2 * (area(d1) - area(d0)) - (lever(d1) - lever(d0))
                b = 2 * scale * moment / (tau * (tau + following))
                expected[k - 1] -= b
                expected[k] += b * tau / following
        assert max(abs(float(rows[4, k] / expected[k]) - 1.0) for k in range(5)) < 1e-14

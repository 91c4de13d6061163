"""The Fokker-Planck form: the memory stands before the terms in space, source and reaction outside."""

from __future__ import annotations

import math

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.errors import InvalidInputError
from hpfracc.pde import Advection, Diffusion, DiffusionL2Sigma
from hpfracc.special import mittag_leffler as ml

X = np.linspace(0.0, math.pi, 9)
FORM = {"x": X, "space": Diffusion(1.0), "boundary": "dirichlet", "alpha": 0.6, "form": "fokker_planck"}


def seen_orders(errors):
    return np.log2(np.array(errors[:-1]) / errors[1:])


def test_steady_source_is_exact():
    """u_t = D^(1-alpha) u_xx + sin x from zero: t E_(alpha,2)(-t^alpha) sin x, with the event where it is 1/2."""
    found = hf.solve_fpde(
        None, (0.0, 2.0), 0.0 * X, source=np.sin(X), events=lambda t, u: u[4] - 0.5, dense_output=True, **FORM
    )
    assert found.decision.method == "exact_modes"
    t = found.t[1:]
    np.testing.assert_allclose(found.u[1:, 4], t * ml(-(t**0.6), 0.6, 2.0), rtol=1e-12)
    when = float(found.t_events[0][0])
    assert when * ml(-(when**0.6), 0.6, 2.0) == pytest.approx(0.5, rel=1e-8)


@pytest.mark.parametrize(("method", "order"), [("l1", 1.4), ("l2_1sigma", 2.0)])
@pytest.mark.parametrize("power", [0, 2])
def test_order_with_a_source(method, order, power):
    """The response to t^p outside the memory is p! t^(p+1) E_(alpha,p+2)."""
    errors = []
    for steps in (32, 64, 128):
        found = hf.solve_fpde(
            None, (0.0, 2.0), np.sin(X), source=lambda t, x: t**power * np.sin(x), method=method, step=2.0 / steps,
            save="all", **FORM,
        )  # fmt: skip
        t = found.t[1:]
        exact = ml(-(t**0.6), 0.6) + math.factorial(power) * t ** (power + 1) * ml(-(t**0.6), 0.6, power + 2.0)
        errors.append(np.abs(found.u[1:, 4] - exact).max())
        assert errors[-1] <= 3.0 * found.error_estimate.time
    assert seen_orders(errors)[-1] == pytest.approx(order, abs=0.12)


@pytest.mark.parametrize(("method", "order"), [("l1", 1.4), ("l2_1sigma", 2.0)])
def test_reaction_outside_the_memory(method, order):
    """u_t = D^(1/2) u_xx - u at alpha = 1/2: roots of s + sqrt(s) + 1 give the decay of sin x."""
    root = np.roots([1.0, 1.0, 1.0])  # s + sqrt(s) + 1 = (q - q1)(q - q2), q = sqrt(s)
    shares = 1.0 / np.array([root[0] - root[1], root[1] - root[0]])
    errors = []
    for steps in (32, 64, 128):
        found = hf.solve_fpde(
            lambda t, u: -u, (0.0, 2.0), np.sin(X), method=method, step=2.0 / steps, save="all",
            **{**FORM, "alpha": 0.5},
        )  # fmt: skip
        t = found.t[1:]
        # 1 / (q - r) in q = sqrt(s) is t^(-1/2) E_(1/2,1/2)(r sqrt(t)).
        parts = [c * t**-0.5 * ml(r * t**0.5, 0.5, 0.5) for c, r in zip(shares, root, strict=True)]
        errors.append(np.abs(found.u[1:, 4] - sum(parts).real).max())
    assert seen_orders(errors)[-1] == pytest.approx(order if method == "l2_1sigma" else 1.5, abs=0.15)


def test_reaction_to_a_tolerance_and_with_jac():
    """A given Jacobian has the weight of its reaction."""
    given = {**FORM, "rtol": 1e-4, "save": "last"}
    plain = hf.solve_fpde(lambda t, u: -(u**3), (0.0, 1.0), np.sin(X), **given)
    other = hf.solve_fpde(lambda t, u: -(u**3), (0.0, 1.0), np.sin(X), jac=lambda t, u: -3 * u**2, **given)
    np.testing.assert_allclose(plain.u, other.u, atol=1e-6)
    finer = hf.solve_fpde(lambda t, u: -(u**3), (0.0, 1.0), np.sin(X), **{**given, "rtol": 1e-5})
    assert np.abs(plain.u - finer.u).max() <= 3.0 * plain.error_estimate.time


def test_without_source_and_at_order_one_both_forms_agree():
    one = hf.solve_fpde(None, (0.0, 1.0), np.sin(X), **FORM)
    other = hf.solve_fpde(None, (0.0, 1.0), np.sin(X), **{**FORM, "form": "caputo"})
    np.testing.assert_allclose(one.u, other.u, rtol=0, atol=1e-12)
    given = {**FORM, "alpha": 1.0, "source": np.sin(X)}
    one = hf.solve_fpde(None, (0.0, 1.0), np.sin(X), **given)
    other = hf.solve_fpde(None, (0.0, 1.0), np.sin(X), **{**given, "form": "caputo"})
    np.testing.assert_allclose(one.u, other.u, rtol=0, atol=1e-12)


def test_harmonic_well():
    """The mean of a density in V = x^2/2 relaxes like E_alpha(-t^alpha), and the density to Boltzmann's."""
    x = np.linspace(-5.0, 5.0, 101)
    well = {"x": x, "space": Diffusion(1.0) + Advection(lambda x: -x, conservative=True), "boundary": "no_flux"}
    start = np.exp(-2.0 * (x - 1.0) ** 2) * math.sqrt(2.0 / math.pi)
    found = hf.solve_fpde(None, (0.0, 1e5), start, alpha=0.7, form="fokker_planck", rtol=1e-4, **well)
    mean = (found.u * x).sum(-1) * (x[1] - x[0])
    assert np.abs(mean - ml(-(found.t**0.7), 0.7)).max() < 1e-4
    assert np.ptp(found.mass) < 1e-10
    boltzmann = np.exp(-(x**2) / 2.0) / math.sqrt(2.0 * math.pi)
    # At 1e5 the mean is 1e-4 of its start.
    error = np.abs(found.u[-1] - boltzmann).max()
    assert error < min(1e-3, 3.0 * (found.error_estimate.space + found.error_estimate.time) + 1e-4)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"form": "riemann"}, "form"),
        ({"alpha": 1.5, "du0": 0.0}, "alpha=1.5"),
        ({"terms": [(1.0, 0.3)]}, "terms"),
        ({"method": "convolution_quadrature"}, "outside the memory"),
        ({"space": Diffusion(lambda x, u: 1.0 + u**2)}, "Diffusion of t or u"),
        ({"source": lambda t, x: np.inf * x if t == 0.0 else x}, "not finite at t0"),
    ],
)
def test_refusals(change, words):
    with pytest.raises(InvalidInputError, match=words), np.errstate(all="ignore"):
        hf.solve_fpde(None, (0.0, 1.0), np.sin(X), **{**FORM, "source": lambda t, x: t * np.sin(x), **change})


def test_quasilinear_diffusion_without_a_source_is_the_same():
    given = {**FORM, "space": Diffusion(lambda x, u: 1.0 + u**2), "rtol": 1e-3, "save": "last"}
    one = hf.solve_fpde(None, (0.0, 0.5), np.sin(X), **given)
    other = hf.solve_fpde(None, (0.0, 0.5), np.sin(X), **{**given, "form": "caputo"})
    np.testing.assert_allclose(one.u, other.u, rtol=0, atol=1e-12)


def test_gradient_of_the_order():
    """Tensors give the same values, and the derivative by the order that differences give on the same mesh."""
    torch = pytest.importorskip("torch")
    given = {**FORM, "method": DiffusionL2Sigma(grading=3.0), "step": 0.1, "save": "last", "source": np.ones(9)}

    def solved(u0, alpha):
        return hf.solve_fpde(lambda t, u: -(u**3), (0.0, 1.0), u0, **{**given, "alpha": alpha, "rtol": 1e-10}).u[-1, 4]

    alpha = torch.tensor(0.6, dtype=torch.float64, requires_grad=True)
    value = solved(torch.tensor(np.sin(X)), alpha)
    value.backward()
    assert float(value.detach()) == pytest.approx(solved(np.sin(X), 0.6), rel=1e-9)
    slope = (solved(np.sin(X), 0.6 + 1e-4) - solved(np.sin(X), 0.6 - 1e-4)) / 2e-4
    assert float(alpha.grad) == pytest.approx(slope, rel=1e-5)

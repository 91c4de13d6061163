"""Katugampola's operators and those of Erdélyi and Kober: closed forms, orders of convergence, limits and inverses."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pytest

import hpfracc as hf
from hpfracc.errors import InvalidInputError
from tests.helpers.convergence import measured_order
from tests.helpers.exact import of_polynomial, of_power

COEFFICIENTS = [1.0, -2.0, 3.0, -1.0, 2.0]
KATUGAMPOLA = {
    hf.katugampola: hf.riemann_liouville,
    hf.caputo_katugampola: hf.caputo,
    hf.katugampola_integral: hf.riemann_liouville_integral,
}
Array = np.ndarray[Any, Any]


def polynomial(x: Array) -> Array:
    return np.polynomial.polynomial.polyval(x, COEFFICIENTS)


def signed(operator: Any, alpha: float) -> tuple[float, int]:
    """The order of the derivative, and the lowest power that counts."""
    sign = -1.0 if operator.__name__.endswith("integral") else 1.0
    return sign * alpha, math.ceil(alpha) if operator.__name__.startswith("caputo") else 0


def factor(operator: Any, p: float, alpha: float, eta: float, sigma: float) -> float:
    """By which Erdélyi and Kober's operators multiply t^p."""
    low, high = mpmath.mpf(eta + 1.0 + p / sigma), mpmath.mpf(eta + alpha + 1.0 + p / sigma)
    if operator is hf.erdelyi_kober_integral:
        return float(mpmath.gamma(low) * mpmath.rgamma(high))
    return float(mpmath.gamma(high) * mpmath.rgamma(low))


@pytest.mark.parametrize("operator", KATUGAMPOLA)
@pytest.mark.parametrize(("rho", "start"), [(0.5, 0.0), (2.3, 0.0), (2.0, 0.7)])
def test_katugampola_of_a_callable(operator: Any, rho: float, start: float):
    """Polynomials in x = (t^rho - a^rho) / rho come out to rounding, and so does the definition itself by mpmath."""
    t = np.linspace(start, start + 1.5, 12)[1:]
    x = (t**rho - start**rho) / rho
    for alpha in (0.3, 1.6):
        order, lowest = signed(operator, alpha)
        value = operator(lambda s: polynomial((s**rho - start**rho) / rho), t, alpha, rho, origin=start)
        np.testing.assert_allclose(value, of_polynomial(COEFFICIENTS, order, x, lowest), rtol=1e-8, atol=1e-9)
    if operator is hf.katugampola_integral:
        with mpmath.workdps(30):
            whole = mpmath.quad(
                lambda s: s ** (rho - 1) * mpmath.sin(s) / (mpmath.mpf(t[5]) ** rho - s**rho) ** mpmath.mpf("0.6"),
                mpmath.linspace(start, t[5], 5),
            )
        exact = float(rho ** mpmath.mpf("0.6") / mpmath.gamma(0.4) * whole)
        value = operator(np.sin, t[5], 0.4, rho, origin=start)
        assert value == pytest.approx(exact, rel=1e-8)


@pytest.mark.parametrize("alpha", [0.4, 1.3])
@pytest.mark.parametrize("uniform", [True, False])
@pytest.mark.parametrize("operator", KATUGAMPOLA)
def test_katugampola_converges_at_the_order_of_the_rule(operator: Any, uniform: bool, alpha: float):
    """On points uniform in t^rho, and in t alone."""
    order, lowest = signed(operator, alpha)

    def error_at(n: int) -> float:
        x = np.linspace(0.0, 1.0, n + 1)
        t = np.sqrt(2.0 * x) if uniform else np.linspace(1.0, 2.0, n + 1)
        x = (t**2 - t[0] ** 2) / 2.0
        right = of_polynomial(COEFFICIENTS, order, np.maximum(x, 1e-9), lowest)
        return float(np.abs(operator(polynomial(x), t, alpha, 2.0) - right)[n // 2 :].max())

    kind = getattr(hf, "".join(word.capitalize() for word in operator.__name__.split("_")))
    rules = kind.rules if uniform else kind.any_grid_rules
    assert measured_order(error_at) == pytest.approx(next(iter(rules.values())).accuracy(alpha), abs=0.15)


@pytest.mark.parametrize("operator", KATUGAMPOLA)
def test_katugampola_has_both_limits(operator: Any):
    """rho = 1 is Riemann-Liouville's or Caputo's to the bit, and a small rho is Hadamard's."""
    t = np.linspace(0.0, 2.0, 65)
    f = np.cos(3.0 * t) + t
    np.testing.assert_array_equal(operator(f, t, 0.4, 1.0)[1:], KATUGAMPOLA[operator](f, t, 0.4)[1:])
    hadamard = getattr(hf, operator.__name__.replace("katugampola", "hadamard"))
    points = np.array([1.5, 2.0, 4.0])
    np.testing.assert_allclose(
        operator(np.sin, points, 0.4, 1e-7, origin=1.0), hadamard(np.sin, points, 0.4), rtol=1e-6, atol=1e-7
    )


@pytest.mark.parametrize("operator", [hf.erdelyi_kober, hf.erdelyi_kober_integral])
@pytest.mark.parametrize(("eta", "sigma"), [(0.0, 1.0), (-0.5, 2.0), (0.7, 0.5)])
def test_erdelyi_kober_multiplies_powers(operator: Any, eta: float, sigma: float):
    """Callables, also singular ones with a factor, and at the origin; samples with an estimate that holds."""
    t = np.linspace(0.0, 1.5, 161) ** (1.0 / sigma)
    for alpha in (0.4, 1.6):
        powers = [(k * sigma, c) for k, c in enumerate((1.0, 2.0, -1.0))]
        truth = sum(c * factor(operator, p, alpha, eta, sigma) * t**p for p, c in powers)
        value = operator(lambda s, powers=powers: sum(c * s**p for p, c in powers), t[::16], alpha, eta, sigma)
        np.testing.assert_allclose(value, truth[::16], rtol=1e-8, atol=1e-8)
        result = operator(sum(c * t**p for p, c in powers), t, alpha, eta, sigma, full_output=True)
        assert result.value[0] == pytest.approx(truth[0], rel=1e-13)
        known = np.isfinite(result.error_estimate)
        assert known[20:].all()
        assert (np.abs(result.value - truth) <= 3.0 * result.error_estimate + 1e-13)[known].all()
        assert np.abs(result.value - truth)[80:].max() < 1e-2
    rough = operator(lambda s: s**-0.2, t[1::16], 0.4, eta, sigma, factor=-0.2)
    np.testing.assert_allclose(rough, factor(operator, -0.2, 0.4, eta, sigma) * t[1::16] ** -0.2, rtol=1e-10)


@pytest.mark.parametrize(("operator", "bound"), [(hf.erdelyi_kober, 2.5), (hf.erdelyi_kober_integral, 2.1)])
def test_erdelyi_kober_converges(operator: Any, bound: float):
    """Simpson's rule at 2 + eta, because of the weight; L1-2 at its own order, 3 - alpha."""
    alpha, eta = 0.5, 0.1
    rates = np.array([1.0, -2.0, 1.5])

    def error_at(n: int) -> float:
        t = np.linspace(0.0, 1.0, n + 1)
        truth = sum(c * factor(operator, k, alpha, eta, 1.0) * t**k for k, c in enumerate(rates))
        value = operator(sum(c * t**k for k, c in enumerate(rates)), t, alpha, eta)
        return float(np.abs(value - truth)[n // 2 :].max())

    assert measured_order(error_at) == pytest.approx(bound, abs=0.15)


def test_derivatives_invert_their_integrals():
    """Katugampola's and Erdélyi and Kober's, of a callable."""
    t = np.linspace(0.2, 1.0, 5)
    inner = lambda s: hf.katugampola_integral(np.cos, s, 0.6, 2.0)  # noqa: E731
    np.testing.assert_allclose(hf.katugampola(inner, t, 0.6, 2.0, rtol=1e-6), np.cos(t), atol=1e-5)
    inner = lambda s: hf.erdelyi_kober_integral(np.cos, s, 0.6, 0.3)  # noqa: E731
    np.testing.assert_allclose(hf.erdelyi_kober(inner, t, 0.6, 0.3, rtol=1e-8), np.cos(t), atol=1e-7)


def test_erdelyi_kober_is_riemann_liouville_between_powers():
    """With sigma = 1 and any eta, for samples of another library too."""
    t = np.linspace(0.0, 1.0, 33)
    mean = hf.erdelyi_kober_integral(t, t, 0.5)
    np.testing.assert_allclose(mean[1:], of_power(1, -0.5, t)[1:] * t[1:] ** -0.5, rtol=1e-12)
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    f = np.cos(3.0 * t)
    for operator in (hf.erdelyi_kober, hf.erdelyi_kober_integral, hf.katugampola, hf.katugampola_integral):
        right = operator(f, t, 0.4, 0.3) if "kober" in operator.__name__ else operator(f, t, 0.4, 1.5)
        more = 0.3 if "kober" in operator.__name__ else 1.5
        value = operator(torch.tensor(f), t, 0.4, more)
        np.testing.assert_allclose(value.numpy()[1:], right[1:], rtol=1e-10, atol=1e-12)
        with jax.enable_x64(True):
            value = jax.jit(lambda x, a, op=operator, more=more: op(x, t, a, more))(f, 0.4)
        np.testing.assert_allclose(np.asarray(value)[1:], right[1:], rtol=1e-9, atol=1e-11)
        inputs = [torch.tensor(each, dtype=torch.float64, requires_grad=True) for each in (f[:9], 0.4)]
        assert torch.autograd.gradcheck(
            lambda x, a, op=operator, more=more: op(x, t[:9], a, more)[1:], inputs, atol=1e-5
        )


def test_katugampola_carries_gradients_in_the_step():
    """The points move with the step, and their images with them."""
    torch = pytest.importorskip("torch")
    f = torch.cos(torch.linspace(0.0, 2.0, 9, dtype=torch.float64))
    step = torch.tensor(0.2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda h: hf.caputo_katugampola(f, step=h, alpha=0.4, rho=2.0)[1:], (step,))


def test_refusals():
    """Exponents that are not positive, points before 0, an origin that is not 0."""
    t = np.linspace(0.0, 1.0, 9)
    with pytest.raises(InvalidInputError, match="rho"):
        hf.katugampola(t, t, 0.5, 0.0)
    with pytest.raises(InvalidInputError, match=r"starts at origin=-1, but t\^rho needs t >= 0"):
        hf.katugampola(t, t - 1.0, 0.5, 2.0)
    with pytest.raises(InvalidInputError, match="eta"):
        hf.erdelyi_kober(t, t, 0.5, -1.0)
    with pytest.raises(InvalidInputError, match="sigma"):
        hf.erdelyi_kober(t, t, 0.5, 0.0, -1.0)
    with pytest.raises(InvalidInputError, match="starts at 0, not at origin=1"):
        hf.erdelyi_kober_integral(t, t + 1.0, 0.5)
    with pytest.raises(InvalidInputError, match="starts at 0, not at origin=1"):
        hf.erdelyi_kober(np.sin, t + 1.0, 0.5, origin=1.0)
    torch = pytest.importorskip("torch")
    step = torch.tensor(0.1, dtype=torch.float64, requires_grad=True)
    with pytest.raises(InvalidInputError, match="not differentiable in the step"):
        hf.erdelyi_kober(torch.tensor(t), step=step, alpha=0.5)

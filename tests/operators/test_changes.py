"""Operators by a change of variable: those of log t and of psi(t) are the ordinary ones on the images, to the bit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.polynomial.polynomial import polyval

import hpfracc as hf
from hpfracc.errors import InvalidInputError
from tests.helpers.convergence import measured_order
from tests.helpers.exact import of_polynomial

X = np.linspace(0.0, 2.0, 65)
F = np.cos(3.0 * X) + X
LOG = {
    hf.Hadamard: hf.RiemannLiouville,
    hf.CaputoHadamard: hf.Caputo,
    hf.HadamardIntegral: hf.RiemannLiouvilleIntegral,
}


@pytest.mark.parametrize("operator", LOG)
@pytest.mark.parametrize("start", [0.01, 1.0, 300.0])
def test_log_operators_are_the_ordinary_ones_in_log_t(operator: Any, start: float):
    """On points uniform in log t, for every rule; batches, axes, single precision and complex samples too."""
    t = start * np.exp(X)
    for method in operator.rules:
        for alpha in (0.4, 1.6):
            right = LOG[operator](alpha, method=method)(F, X)
            value = operator(alpha, method=method)(F, t)
            np.testing.assert_allclose(value[1:], right[1:], rtol=1e-10, atol=1e-10, err_msg=method)
            np.testing.assert_array_equal(operator(alpha, method=method)(F, step=1.0 / 32)[1:], right[1:])
    stack = np.stack([F, 1j * F], axis=1)
    np.testing.assert_allclose(
        operator(0.4)(stack, t, axis=0)[1:, 1].imag, operator(0.4)(F, t)[1:], rtol=1e-10, atol=1e-12
    )
    single = operator(0.4)(F.astype("float32"), t.astype("float32"))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single[1:], operator(0.4)(F, t)[1:], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("operator", LOG)
def test_geomspace_is_noticed(operator: Any):
    """``np.geomspace`` is uniform in log t within rounding, over a short and a long reach; its origin is its start."""
    for start, stop in ((1.0, 1.001), (1e-6, 1e6), (3.0, 4.0)):
        t = np.geomspace(start, stop, 1001)
        result = operator(0.5)(np.log(t), t, full_output=True)
        assert result.origin == start
        assert result.value.shape == (1001,)


def test_where_they_start():
    """The origin of a callable is 1 unless it is named, that of samples their first point; 0 has no logarithm."""
    np.testing.assert_allclose(
        hf.hadamard(lambda t: np.log(t) ** 2, [2.0, 3.0], 0.5), hf.riemann_liouville(np.square, np.log([2.0, 3.0]), 0.5)
    )
    assert hf.hadamard(np.log, 2.0, 0.5, full_output=True).origin == 1.0
    assert hf.caputo_hadamard(np.log, 6.0, 0.5, origin=3.0, full_output=True).origin == 3.0
    assert hf.psi_caputo(np.sin, 6.0, 0.5, np.exp, origin=3.0, full_output=True).origin == 3.0


@pytest.mark.parametrize("images", ["callable", "samples"])
def test_psi_caputo_is_caputo_in_psi(images: str):
    """psi as a function or as samples; psi = t is Caputo's own, psi = log t Caputo-Hadamard's."""
    t = np.sqrt(X + 1.0)
    psi = (lambda s: s**2) if images == "callable" else t**2
    for alpha in (0.4, 1.6):
        right = hf.caputo(F, X, alpha)
        np.testing.assert_allclose(hf.psi_caputo(F, t, alpha, psi), right, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(hf.psi_caputo(F, X, 0.4, lambda s: s), hf.caputo(F, X, 0.4))
    even = np.geomspace(1.0, 5.0, 65)
    np.testing.assert_allclose(
        hf.psi_caputo(F, even, 0.4, np.log), hf.caputo_hadamard(F, even, 0.4), rtol=1e-11, atol=1e-12
    )
    np.testing.assert_allclose(
        hf.psi_caputo(np.sin, even, 1.3, np.log, origin=1.0), hf.caputo_hadamard(np.sin, even, 1.3), atol=1e-7
    )


def test_gradients_go_through_the_change():
    """In samples, order and step (in log t), and in points that carry a derivative."""
    torch = pytest.importorskip("torch")
    inputs = [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (F[:12], 0.4, 0.1)]
    for operator in LOG:
        assert torch.autograd.gradcheck(lambda x, a, h, op=operator: op(a)(x, step=h)[1:], inputs, atol=1e-5)
    assert torch.autograd.gradcheck(
        lambda x, a: hf.psi_caputo(x, np.sqrt(np.arange(12.0)), a, np.square), inputs[:2], atol=1e-5
    )
    # The points t0 exp(k h): their derivative along h is that of the step.
    step = torch.tensor(0.1, dtype=torch.float64, requires_grad=True)
    t = torch.exp(step * torch.arange(12))
    one = hf.caputo_hadamard(inputs[0].detach(), t, 0.4).sum()
    other = hf.caputo_hadamard(inputs[0].detach(), step=step, alpha=0.4).sum()
    (slope,), (right,) = torch.autograd.grad(one, step), torch.autograd.grad(other, step)
    assert float(slope) == pytest.approx(float(right), rel=1e-9)
    bent = torch.linspace(1.0, 2.0, 12, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda t: hf.caputo_hadamard(inputs[0].detach(), t, 0.4), (bent,), atol=1e-5)


def test_jax_orders_in_log_t():
    """A traced order and step under jit."""
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        value = jax.jit(lambda a, h: hf.caputo_hadamard(F, step=h, alpha=a))(0.4, 1.0 / 32)
    np.testing.assert_allclose(np.asarray(value), hf.caputo(F, X, 0.4), atol=1e-11)


@pytest.mark.parametrize("alpha", [0.25, 0.75, 1.3])
@pytest.mark.parametrize("name", ["hadamard", "caputo_hadamard", "hadamard_integral", "psi_caputo"])
def test_points_that_are_uniform_in_t_alone(name: str, alpha: float):
    """By the rules for any grid: their orders in the step of log t or psi."""
    operator, sign = getattr(hf, name), -1.0 if name.endswith("integral") else 1.0
    coefficients = [1.0, -2.0, 3.0, -1.0, 2.0]
    lowest = math.ceil(alpha) if "caputo" in name else 0

    def error_at(n: int) -> float:
        t = np.linspace(1.0, 2.0, n + 1)
        x = t**2 - 1.0 if name == "psi_caputo" else np.log(t)
        value = operator(polyval(x, coefficients), t, alpha, **({"psi": np.square} if name == "psi_caputo" else {}))
        return float(np.abs(value[-1] - of_polynomial(coefficients, sign * alpha, x[-1:], lowest)[0]))

    promised = 2.0 if sign < 0 else math.ceil(alpha) + 1.0 - alpha
    assert measured_order(error_at) == pytest.approx(promised, abs=0.15)


def test_refusals():
    """No logarithm of 0, no psi that falls, no rule for uniform grids on a grid that is not."""
    with pytest.raises(InvalidInputError, match=r"starts at origin=0, but log t needs t > 0"):
        hf.hadamard(F, X, 0.5)
    with pytest.raises(InvalidInputError, match="needs t > 0"):
        hf.caputo_hadamard(np.sin, X, 0.5, origin=0.0)
    with pytest.raises(InvalidInputError, match=r"t\[0\]=0.5 lies before the origin 1"):
        hf.hadamard(np.sin, 0.5, 0.5)
    with pytest.raises(InvalidInputError, match="psi must be finite and increase, but is -0 at t=0 and -0.03125"):
        hf.psi_caputo(F, X, 0.5, np.negative)
    with pytest.raises(InvalidInputError, match="psi must be finite and increase"):
        hf.psi_caputo(np.sin, [1.0, 2.0], 0.5, lambda s: np.where(s > 1.5, np.nan, s))
    with pytest.raises(InvalidInputError, match="no method 'l1-2' for samples on a grid that is not uniform"):
        hf.caputo_hadamard(F, X + 1.0, 0.5, method="l1-2")
    with pytest.raises(InvalidInputError, match="psi is not given"):
        hf.psi_caputo(F, X, 0.5)
    with pytest.raises(hf.errors.ShapeError, match=r"psi has shape \(3,\) but f has 65 samples"):
        hf.psi_caputo(F, X, 0.5, np.arange(3.0))
    with pytest.raises(hf.errors.ShapeError, match="psi returned shape"):
        hf.psi_caputo(F, X, 0.5, lambda s: 1.0)
    with pytest.raises(InvalidInputError, match="psi is given by samples, but f is a callable"):
        hf.psi_caputo(np.sin, X, 0.5, X)
    with pytest.raises(InvalidInputError, match="psi must be finite and increase, but is 1 at t=0 and 0 at t=1"):
        hf.psi_caputo(np.sin, [1.0, 2.0], 0.5, lambda s: np.where(s == 0.0, 1.0, s - 1.0))
    torch = pytest.importorskip("torch")
    step = torch.tensor(0.1, dtype=torch.float64, requires_grad=True)
    with pytest.raises(InvalidInputError, match="not differentiable in the step"):
        hf.psi_caputo(torch.tensor(F), step=step, alpha=0.5, psi=np.exp)
    with pytest.raises(InvalidInputError, match="not differentiable in the step"):
        hf.psi_caputo(torch.tensor(F), torch.tensor(X**2, requires_grad=True), 0.5, np.exp)


def test_psi_caputo_carries_gradients_in_the_step_and_the_points():
    """gradcheck in samples, step and order where psi is written in torch; JAX under jit against differences."""
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    t = np.linspace(0.0, 1.0, 9)
    x = np.cos(3.0 * t) + t**2

    def tracked(value: Any) -> Any:
        return torch.tensor(value, dtype=torch.float64, requires_grad=True)

    def psi(at: Any) -> Any:
        return at + 0.3 * at**2

    for shape, alpha in ((psi, 0.4), (lambda at: 2.0 * at, 1.4)):
        assert torch.autograd.gradcheck(
            lambda x, h, a, shape=shape: hf.psi_caputo(x, step=h, alpha=a, psi=shape)[1:],
            (tracked(x), tracked(0.125), tracked(alpha)),
            atol=1e-4,
        )
    assert torch.autograd.gradcheck(lambda at: hf.psi_caputo(x, at, 0.4, psi)[1:], (tracked((t + 0.1) ** 1.5),))
    small = 1e-5
    up, down = (hf.psi_caputo(x, step=0.125 + e, alpha=0.4, psi=psi).sum() for e in (small, -small))
    with jax.enable_x64(True):
        found = jax.jit(jax.grad(lambda h: hf.psi_caputo(x, step=h, alpha=0.4, psi=psi).sum()))(0.125)
    assert float(found) == pytest.approx((up - down) / (2.0 * small), rel=1e-7)


def test_a_psi_that_cannot_carry_the_derivative_says_so():
    """Samples of psi do not move with the step; a psi of numbers gives no tensor."""
    torch = pytest.importorskip("torch")
    t, step = np.linspace(0.0, 1.0, 9), torch.tensor(0.125, dtype=torch.float64, requires_grad=True)
    with pytest.raises(hf.errors.InvalidInputError, match="if psi is given by samples"):
        hf.psi_caputo(t, step=step, alpha=0.4, psi=np.sinh(t))
    with pytest.raises(hf.errors.InvalidInputError, match="give psi in functions of torch, or detach"):
        hf.psi_caputo(t, step=step, alpha=0.4, psi=lambda at: np.sinh(np.asarray(getattr(at, "detach", lambda: at)())))


def test_psi_is_checked_from_the_origin_on():
    """It is finite and increases before the first point too, is real, and its inverse is its own."""
    for psi, given in ((np.log, {}), (np.floor, {}), (lambda s: 0.0 * s, {}), (np.negative, {})):
        with pytest.raises(InvalidInputError, match="psi must be finite and increase"), np.errstate(divide="ignore"):
            hf.psi_caputo(np.sin, [0.5, 1.0], 0.5, psi, **given)
    for psi in (lambda s: s + 0j, F + 0j):
        with pytest.raises(InvalidInputError, match="must give real numbers"):
            hf.psi_caputo(F, X, 0.5, psi)
    for inverse in (lambda x: x, lambda x: x**0.500001, lambda x: np.nan * x):
        with pytest.raises(InvalidInputError, match="give the inverse of psi"):
            hf.psi_caputo(np.sin, 1.0, 0.5, np.square, inverse=inverse)
    for t in ([0.0], [1e-9], [0.0, 1e-3, 1.0], [1e6]):
        found = hf.psi_caputo(lambda s: s**4, t, 0.5, np.square, inverse=np.sqrt)
        np.testing.assert_allclose(found, hf.psi_caputo(lambda s: s**4, t, 0.5, np.square), rtol=1e-9)

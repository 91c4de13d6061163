"""Derivatives through the operators in space: in samples, order and step, by PyTorch and JAX, traced and mapped."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from tests.helpers.thinned import thinned

EVERY = [
    (hf.Weyl, "spectral"),
    *((hf.Riesz, method) for method in hf.Riesz.rules),
    *((hf.FractionalLaplacian, method) for method in hf.FractionalLaplacian.rules),
]
NAMES = [f"{operator.__name__}-{method}" for operator, method in EVERY]
F = np.random.default_rng(1).standard_normal((2, 9))
SQUARE = np.random.default_rng(2).standard_normal((4, 5))


@pytest.mark.parametrize("alpha", [0.6, 1.5])
@pytest.mark.parametrize(("operator", "method"), EVERY, ids=NAMES)
@thinned(lambda alpha: alpha == 0.6)
def test_torch_gradcheck(operator: Any, method: str, alpha: float):
    """In samples, order and step, first and (of the samples and the order) second derivatives."""
    torch = pytest.importorskip("torch")

    def apply(f: Any, a: Any, h: Any) -> Any:
        return operator(a, method)(f, step=h)

    operands = [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (F, alpha, 0.4)]
    assert torch.autograd.gradcheck(apply, operands, fast_mode=True)
    if method in ("spectral", "integral"):
        assert torch.autograd.gradgradcheck(apply, operands, fast_mode=True)
    complex_f = torch.tensor(F + 1j * F[::-1].copy(), requires_grad=True)
    assert torch.autograd.gradcheck(apply, (complex_f, *operands[1:]), fast_mode=True)


@pytest.mark.parametrize("method", hf.FractionalLaplacian.rules)
def test_torch_gradcheck_over_two_axes(method: str):
    """The same in the plane, whose weights are an integral over time."""
    torch = pytest.importorskip("torch")

    def apply(f: Any, a: Any, h: Any) -> Any:
        return hf.fractional_laplacian(f, step=h, alpha=a, method=method, axis=(0, 1))

    operands = [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (SQUARE, 1.2, 0.4)]
    assert torch.autograd.gradcheck(apply, operands, fast_mode=True)
    value = apply(*(operand.detach() for operand in operands))
    right = hf.fractional_laplacian(SQUARE, step=0.4, alpha=1.2, method=method, axis=(0, 1))
    np.testing.assert_allclose(value.numpy(), right, atol=1e-12)


#: Compiling takes JAX a second each, and those left out are made of the same parts.
TRACED = [
    pytest.param(operator, method, marks=() if method in ("spectral", "integral") else pytest.mark.slow)
    for operator, method in EVERY
]


@pytest.mark.parametrize(("operator", "method"), TRACED, ids=NAMES)
def test_jax_transforms(operator: Any, method: str):
    """Under jit, grad and vmap in the order and the samples, equal to differences of the plain answer."""
    jax = pytest.importorskip("jax")
    jnp = jax.numpy
    with jax.enable_x64(True):
        f = jnp.asarray(F)

        def loss(a: Any, f: Any) -> Any:
            return (operator(a, method)(f, step=0.4) ** 2).sum()

        slopes = jax.jit(jax.vmap(jax.grad(loss, argnums=(0, 1)), in_axes=(0, None)))
        by_order, by_samples = slopes(jnp.asarray([0.6, 1.5]), f)
        for alpha, slope, gradient in zip((0.6, 1.5), by_order, by_samples, strict=True):
            plain = [(operator(a, method)(F, step=0.4) ** 2).sum() for a in (alpha + 1e-5, alpha - 1e-5)]
            assert float(slope) == pytest.approx((plain[0] - plain[1]) / 2e-5, rel=1e-6)
            change = np.random.default_rng(4).standard_normal(F.shape)
            moved = [(operator(alpha, method)(F + e * change, step=0.4) ** 2).sum() for e in (1e-6, -1e-6)]
            assert float((gradient * change).sum()) == pytest.approx((moved[0] - moved[1]) / 2e-6, rel=1e-5)


def test_jax_over_two_axes_and_orders_outside_are_nan():
    """The plane's weights are traced in the order; the integral definition is nan beyond 2 and at 0, not wrong."""
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        at = jax.jit(lambda a: hf.fractional_laplacian(jax.numpy.asarray(SQUARE), step=0.4, alpha=a, axis=(0, 1)))
        np.testing.assert_allclose(
            at(1.2), hf.fractional_laplacian(SQUARE, step=0.4, alpha=1.2, axis=(0, 1)), atol=1e-12
        )
        for alpha in (-0.5, 0.0, 2.5):
            assert np.isnan(at(alpha)).all()


@pytest.mark.parametrize("library", ["torch", "jax"])
@pytest.mark.parametrize(("operator", "method"), TRACED, ids=NAMES)
@thinned(lambda library, method: library == "torch" or method == "spectral")
def test_what_comes_back_is_what_went_in(operator: Any, method: str, library: str):
    """Tensors and JAX arrays of single precision stay so, for plain and for array orders."""
    module = pytest.importorskip("torch" if library == "torch" else "jax.numpy")
    make = module.tensor if library == "torch" else module.asarray
    for dtype, alpha in (("complex64", 0.5), ("float32", make(np.float32(0.5)))):
        samples = make(F.astype(dtype))
        value = operator(alpha, method)(samples, step=0.4)
        assert type(value).__module__.partition(".")[0].removesuffix("lib") == library
        assert value.dtype == samples.dtype
        np.testing.assert_allclose(np.asarray(value), operator(0.5, method)(F, step=0.4), atol=1e-5)


def test_a_periodic_callable_carries_gradients():
    """Of its own parameters and of the order: ``D^a sin(c t)``."""
    torch = pytest.importorskip("torch")
    at = torch.linspace(0.0, 3.0, 7, dtype=torch.float64)

    def apply(c: Any, a: Any) -> Any:
        return hf.weyl(lambda t: c * torch.sin(2.0 * t), at, a, period=torch.pi)

    operands = [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (1.3, 0.6)]
    assert torch.autograd.gradcheck(apply, operands)
    np.testing.assert_allclose(
        apply(*operands).detach(), 1.3 * 2**0.6 * np.sin(2 * at.numpy() + 0.3 * np.pi), atol=1e-12
    )


@pytest.mark.parametrize("alpha", [0.4, 1.6])
@thinned(lambda alpha: alpha == 0.4)
def test_riesz_feller_of_samples_that_do_not_end_in_0(alpha: float):
    """At both ends it is infinite; the inner points have a derivative in the order all the same."""
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    x = np.linspace(0.0, 1.0, 12)

    def inner(a: Any) -> Any:
        return hf.riesz_feller(torch.cos(torch.tensor(x)), x, a, 0.2)[2:-2]

    order = torch.tensor(alpha, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(inner, (order,))
    with jax.enable_x64(True):
        slope = jax.grad(lambda a: hf.riesz_feller(jax.numpy.cos(x), x, a, 0.2, ceiling=math.ceil(alpha))[5])(alpha)
    (by_torch,) = torch.autograd.grad(inner(order)[3], order)
    np.testing.assert_allclose(float(slope), float(by_torch), rtol=1e-9)

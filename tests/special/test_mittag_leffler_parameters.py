"""Derivatives of the Mittag-Leffler function with respect to its parameters."""

from __future__ import annotations

import importlib

import mpmath
import numpy as np
import pytest

import hpfracc as hf
from hpfracc.engine.numerics.mittag_leffler_plan import make_contour_plan
from hpfracc.engine.numerics.mittag_leffler_values import evaluate
from hpfracc.errors import InvalidInputError, PinnedBackendError
from tests.helpers.thinned import thinned

PAIRS = [(0.3, 1.0), (0.7, 1.0), (0.95, 0.4), (1.0, 1.0), (1.4, 0.8), (2.0, 1.0), (2.5, 1.3)]
Z = np.array([-3.0, -0.4, 0.0, 0.2, 1.3])


def slope_of_reciprocal_gamma(x: mpmath.mpf) -> mpmath.mpf:
    small = mpmath.mpf(10) ** -30
    return (mpmath.rgamma(x + small) - mpmath.rgamma(x - small)) / (2 * small)


def slopes(alpha: float, beta: float, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Derivatives with respect to alpha and beta, from power series summed by mpmath with 90 digits."""
    with mpmath.workdps(90):
        steps = range(int(110 / alpha) + 30)
        terms = [slope_of_reciprocal_gamma(mpmath.mpf(alpha) * k + mpmath.mpf(beta)) for k in steps]
        in_alpha, in_beta = [], []
        for point in map(mpmath.mpc, z):
            powers = [point**k for k in range(len(terms))]
            in_alpha.append(complex(mpmath.fsum(k * t * p for k, (t, p) in enumerate(zip(terms, powers, strict=True)))))
            in_beta.append(complex(mpmath.fsum(t * p for t, p in zip(terms, powers, strict=True))))
    return np.array(in_alpha), np.array(in_beta)


def ours(alpha: float, beta: float, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return z * evaluate(z, make_contour_plan(alpha, beta, 1, 1)), evaluate(z, make_contour_plan(alpha, beta, 0, 1))


@pytest.mark.parametrize(("alpha", "beta"), PAIRS)
@thinned(one_in=3)
def test_slopes_agree_with_mpmath(alpha: float, beta: float):
    """The relative error is at most 1e-11 on the real axis and in the complex plane, for all ranges of |z|."""
    radii = np.linspace(0.05, 14.0, 16) ** alpha
    for z in (np.concatenate([-radii, radii[:12]]), radii * np.exp(1j * np.linspace(-3.1, 3.1, radii.size))):
        for found, right in zip(ours(alpha, beta, z), slopes(alpha, beta, z), strict=True):
            assert (np.abs(found - right) <= 1e-11 * np.abs(right)).all()


@pytest.mark.parametrize(("alpha", "beta"), [(0.5, 1.0), (0.8, 0.8), (1.0, 1.0), (1.6, 2.0)])
def test_slopes_far_out(alpha: float, beta: float):
    """At large negative z the slopes agree with the expansion in 1/z, differentiated by mpmath."""
    for z in (-300.0, -9e3):
        with mpmath.workdps(40):

            def expansion(b: mpmath.mpf, z: float = z) -> mpmath.mpf:
                terms = [mpmath.rgamma(b - mpmath.mpf(alpha) * k) * mpmath.mpf(z) ** -k for k in range(1, 12)]
                poles = mpmath.mpf(0)
                if alpha > 1:
                    s = mpmath.mpf(-z) ** (1 / mpmath.mpf(alpha)) * mpmath.expjpi(1 / mpmath.mpf(alpha))
                    poles = 2 * (s ** (1 - b) * mpmath.exp(s) / alpha).real
                return poles - mpmath.fsum(terms)

            small = mpmath.mpf(10) ** -12
            right = (expansion(mpmath.mpf(beta) + small) - expansion(mpmath.mpf(beta) - small)) / (2 * small)
        found = evaluate(np.array([z]), make_contour_plan(alpha, beta, 0, 1))[0]
        assert found == pytest.approx(float(right), rel=1e-11)


@pytest.mark.parametrize(("alpha", "beta"), [(0.7, 1.0), (1.0, 1.0), (1.5, 0.8)])
@thinned(one_in=2)
def test_gradients_in_torch(alpha: float, beta: float):
    """gradcheck in z, alpha and beta, real and complex, in forward mode too; second derivatives at one pair."""
    torch = importlib.import_module("torch")
    z = torch.tensor(Z, requires_grad=True)
    w = torch.tensor([-2 + 1j, 0.3 - 0.5j], dtype=torch.complex128, requires_grad=True)
    a, b = (torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (alpha, beta))
    assert torch.autograd.gradcheck(hf.mittag_leffler, (z, a, b), check_forward_ad=alpha == 1.0, fast_mode=True)
    assert torch.autograd.gradcheck(hf.mittag_leffler, (w, a, b), fast_mode=True)
    if alpha == 0.7:
        few = torch.tensor([-3.0, 0.2], dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradgradcheck(hf.mittag_leffler, (few, a, b), fast_mode=True)
    value = hf.mittag_leffler(z, a, b)
    np.testing.assert_allclose(value.detach().numpy(), hf.mittag_leffler(z.detach(), alpha, beta).numpy(), rtol=1e-15)


def test_learning_alpha_in_torch():
    """Single precision is kept; vmap works over alpha; the third derivative raises an error."""
    torch = importlib.import_module("torch")
    alphas = torch.tensor([0.5, 0.7])
    rows = torch.func.vmap(torch.func.grad(lambda a: hf.mittag_leffler(torch.tensor(-1.0), a)))(alphas)
    assert rows.dtype == torch.float32
    np.testing.assert_allclose(rows, [slopes(a, 1.0, np.array([-1.0]))[0][0].real for a in (0.5, 0.7)], rtol=1e-5)
    slope = torch.func.grad(torch.func.grad(torch.func.grad(lambda a: hf.mittag_leffler(torch.tensor(-1.0), a))))
    with pytest.raises(InvalidInputError, match="less often"):
        slope(torch.tensor(0.5))


def test_gradients_in_jax():
    """grad and hessian work under jit and vmap with traced alpha; nan outside the supported range."""
    jax = importlib.import_module("jax")

    def total(a, b):
        return hf.mittag_leffler(Z, a, b).sum()

    in_alpha, in_beta = (part.real.sum() for part in slopes(0.7, 1.0, Z))
    with jax.enable_x64(True):
        for derivative in (jax.grad(total, (0, 1)), jax.jit(jax.grad(total, (0, 1)))):
            np.testing.assert_allclose(derivative(0.7, 1.0), (in_alpha, in_beta), rtol=1e-11)
        second = jax.jit(jax.hessian(total, (0, 1)))(0.7, 1.0)
        ahead, behind = (jax.grad(total, (0, 1))(0.7 + e, 1.0) for e in (1e-5, -1e-5))
        np.testing.assert_allclose(second[0], [(x - y) / 2e-5 for x, y in zip(ahead, behind, strict=True)], rtol=1e-7)
        rows = jax.vmap(lambda a: total(a, 1.0))(np.array([0.5, 0.7]))
        np.testing.assert_allclose(rows, [hf.mittag_leffler(Z, a).sum() for a in (0.5, 0.7)], rtol=1e-14)
        assert np.isnan(jax.jit(total)(-0.7, 1.0))
        with pytest.raises(InvalidInputError, match="less often"):
            jax.grad(jax.grad(jax.grad(total)))(0.7, 1.0)
    assert hf.mittag_leffler(jax.numpy.asarray([-1.0]), jax.numpy.asarray(0.5)).dtype == "float32"


@pytest.mark.parametrize(
    ("alpha", "options", "error", "words"),
    [
        (-0.5, {}, InvalidInputError, "alpha=-0.5"),
        (0.5, {"beta": 1e3}, InvalidInputError, "beta=1000.0"),
        ([0.5, -0.6], {}, InvalidInputError, "alpha=-0.6"),
        (0.5, {"gamma": 2.0}, InvalidInputError, "gamma=2.0"),
        (0.5, {"backend": "numpy"}, PinnedBackendError, "backend='numpy'"),
    ],
)
def test_bad_parameters_are_named(alpha, options, error, words):
    """Invalid tensors raise a typed error with the value, like plain numbers."""
    torch = importlib.import_module("torch")
    with pytest.raises(error, match=words):
        hf.mittag_leffler(-1.0, torch.tensor(alpha, dtype=torch.float64), **options)


def test_parameters_broadcast_with_z():
    """Each element of the result belongs to its own pair of NumPy parameters; empty arrays give empty results."""
    alpha, beta = np.array([0.3, 0.7, 1.0])[:, None, None], np.array([[1.0], [0.8]])
    value = hf.mittag_leffler(Z, alpha, beta)
    assert value.shape == (3, 2, 5)
    for i, j in np.ndindex(3, 2):
        alone = hf.mittag_leffler(Z, alpha.flat[i], beta.flat[j])
        np.testing.assert_allclose(value[i, j], alone, rtol=4e-15)  # perhaps by another backend
    np.testing.assert_allclose(
        hf.special.mittag_leffler_derivative(Z, [0.7] * 5), hf.special.mittag_leffler_derivative(Z, 0.7), rtol=4e-15
    )
    assert hf.mittag_leffler(Z + 1j, [0.5] * 5).dtype == np.complex128
    assert hf.mittag_leffler(-1.0, [0.5, 0.7], gamma=2.0).shape == (2,)
    assert hf.mittag_leffler(np.zeros(0), [0.5]).shape == (0,)
    with pytest.raises(InvalidInputError, match="shapes that broadcast"):
        hf.mittag_leffler(Z, [0.5, 0.7])


def test_gradients_of_arrays_of_parameters_in_torch():
    """gradcheck to second order; a broadcast parameter gets the summed gradient; vmap works over rows of pairs."""
    torch = importlib.import_module("torch")
    z, a, b = (
        torch.tensor(one, dtype=torch.float64, requires_grad=True)
        for one in ([-1.0, -0.5, 0.3], [0.4, 0.7, 1.2], [1.0, 0.8, 1.2])
    )
    assert torch.autograd.gradcheck(hf.mittag_leffler, (z, a, b), fast_mode=True)
    assert torch.autograd.gradgradcheck(hf.mittag_leffler, (z[:1], a[:1], b[:2]), fast_mode=True)
    (rows,) = torch.autograd.grad(hf.mittag_leffler(torch.tensor(Z), a[:, None]).sum(), a)
    for one, slope in zip(a.detach(), rows, strict=True):
        single = one.clone().requires_grad_()
        (right,) = torch.autograd.grad(hf.mittag_leffler(torch.tensor(Z), single).sum(), single)
        assert float(slope) == pytest.approx(float(right), rel=1e-12)
    pairs = torch.func.vmap(hf.mittag_leffler)(z.detach(), a.detach(), b.detach())
    np.testing.assert_array_equal(pairs, hf.mittag_leffler(z.detach(), a.detach(), b.detach()))
    assert hf.mittag_leffler(torch.tensor(-1.0), np.array([0.5, 0.7])).shape == (2,)


def test_gradients_of_arrays_of_parameters_in_jax():
    """Under jit and vmap, values and slopes equal those of single calls; nan outside the supported range."""
    jax = importlib.import_module("jax")
    alpha = np.array([0.4, 0.7, 1.2])
    with jax.enable_x64(True):
        right = np.stack([hf.mittag_leffler(Z, a) for a in alpha])
        np.testing.assert_allclose(jax.jit(hf.mittag_leffler)(Z, alpha[:, None]), right, rtol=1e-14)
        slope = jax.jit(jax.grad(lambda a: hf.mittag_leffler(Z, a[:, None]).sum()))(alpha)
        np.testing.assert_allclose(slope, [slopes(a, 1.0, Z)[0].real.sum() for a in alpha], rtol=1e-10)
        rows = jax.vmap(lambda a: hf.mittag_leffler(Z[:3], a))(np.stack([alpha, alpha[::-1]]))
        np.testing.assert_allclose(rows[1], hf.mittag_leffler(Z[:3], alpha[::-1]), rtol=1e-14)
        bad = jax.jit(hf.mittag_leffler)(Z[:2], np.array([0.5, -0.5]))
        assert np.isfinite(bad[0]) and np.isnan(bad[1])


def test_numbers_in_numbers_out():
    """Special functions of plain numbers return NumPy scalars; 0-d tensors stay tensors."""
    special = hf.special
    for value in (-1.0, -1, np.float64(-1.0), np.array(-1.0)):
        assert type(hf.mittag_leffler(value, 0.5)) is np.float64
        assert type(special.mittag_leffler_derivative(value, 0.5)) is np.float64
        assert type(hf.mittag_leffler(value, 0.5, gamma=1.5)) is np.float64
        assert type(special.wright(value, 0.5, 1.0)) is np.float64
    assert type(hf.mittag_leffler(-1.0 + 1.0j, 0.5)) is np.complex128
    assert type(hf.mittag_leffler(np.float32(-1.0), 0.5)) is np.float32
    for found in (
        special.gamma(0.5),
        special.digamma(0.5),
        special.beta(1.0, 2.0),
        special.incomplete_beta(1.0, 2.0, 0.5),
        special.m_wright(1.0, 0.5),
        special.generalized_binomial(0.5, 2),
        special.generalized_binomial(0.5, 1.5),
    ):
        assert type(found) is np.float64
    torch = pytest.importorskip("torch")
    assert hf.mittag_leffler(torch.tensor(-1.0), 0.5).shape == ()


@pytest.mark.parametrize(
    ("alpha", "beta", "z"),
    [
        (150, -20, -7e104),
        (150, 0, -1e200),
        (60, 0, 1.0),
        (60.5, 0, 3e60),
        (1, -80, 2.5),
        (2, -150, -9.0),
        (0.9, -120, 27.66),
        (1.1, -120, 57.8),
        (2.5, -149.5, -500.0),
        (0.9, -149.5, -3.0),
    ],
)
@pytest.mark.filterwarnings("error")
def test_extreme_parameters(alpha, beta, z):
    """Large alpha, or beta far below 0: they were lost in cancellation, or errors of Python."""
    with mpmath.workdps(400):
        terms = [mpmath.mpf(z) ** k * mpmath.rgamma(mpmath.mpf(alpha) * k + mpmath.mpf(beta)) for k in range(700)]
        exact = float(mpmath.fsum(terms))
    assert hf.mittag_leffler(float(z), float(alpha), float(beta)) == pytest.approx(exact, rel=2e-13)


def test_parameters_beyond_the_range_of_gamma():
    with pytest.raises(InvalidInputError, match="beyond the range of float64"):
        hf.mittag_leffler(1.0, 50.0, -149.5)

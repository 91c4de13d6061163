"""Gamma, digamma and beta functions on each library's arrays."""

from __future__ import annotations

import importlib

import mpmath
import numpy as np
import pytest
from scipy import special as scipy_special

import hpfracc.special as special
from hpfracc.errors import InvalidInputError, UnsupportedDtypeError
from tests.helpers.thinned import thinned

Z = np.concatenate([np.linspace(-20.3, 50.2, 400), [1e-8, -1e-8, 0.5]])
CALLS = [
    (special.gamma, scipy_special.gamma, (Z,), 2e-15),
    (special.digamma, scipy_special.digamma, (np.linspace(0.1, 30, 99),), 1e-12),
    (special.beta, scipy_special.beta, (2.5, np.array([1.0, 30.0, 100.0, -1.3])), 1e-12),
    (special.incomplete_beta, scipy_special.betainc, (2.0, 3.5, np.linspace(0, 1, 9)), 1e-11),
]
IDS = ["gamma", "digamma", "beta", "incomplete_beta"]


@pytest.mark.parametrize(("ours", "theirs", "operands", "rtol"), CALLS, ids=IDS)
def test_numpy_is_scipy(ours, theirs, operands, rtol):
    """NumPy arrays get SciPy's values, bit for bit; except those of beta, where SciPy loses digits."""
    if ours is special.beta:
        np.testing.assert_allclose(ours(*operands), theirs(*operands), rtol=2e-14)
    else:
        assert np.array_equal(ours(*operands), theirs(*operands))


@pytest.mark.parametrize(("ours", "theirs", "operands", "rtol"), CALLS, ids=IDS)
def test_tensors_are_computed_by_torch(ours, theirs, operands, rtol):
    """The result is a tensor with the right value and sign."""
    torch = importlib.import_module("torch")
    value = ours(*operands[:-1], torch.tensor(operands[-1]))
    assert isinstance(value, torch.Tensor)
    np.testing.assert_allclose(value.numpy(), theirs(*operands), rtol=rtol)


@pytest.mark.parametrize(("ours", "theirs", "operands", "rtol"), CALLS, ids=IDS)
@thinned(one_in=2)
def test_jax_arrays_are_computed_by_jax(ours, theirs, operands, rtol):
    """The result is a JAX array, also under jit."""
    jax = importlib.import_module("jax")
    with jax.enable_x64(True):
        last = jax.numpy.asarray(operands[-1])
        value = jax.jit(lambda x: ours(*operands[:-1], x))(last)
        assert isinstance(value, jax.Array)
        np.testing.assert_allclose(value, theirs(*operands), rtol=rtol)


def test_beta_in_single_precision_where_gamma_overflows():
    """Gamma(40) is beyond the range of float32, B(40, 40) is not."""
    torch = importlib.import_module("torch")
    a, b = torch.tensor([20.0, 40.0, 70.0]), torch.tensor([30.0, 40.0, 0.5])
    np.testing.assert_allclose(special.beta(a, b).numpy(), scipy_special.beta(a.numpy(), b.numpy()), rtol=1e-4)


def gamma_of(library: str, z: np.ndarray) -> np.ndarray:
    if library == "torch":
        return special.gamma(importlib.import_module("torch").tensor(z)).numpy()
    jax = importlib.import_module("jax")
    with jax.enable_x64(True):
        return np.asarray(jax.jit(special.gamma)(jax.numpy.asarray(z)))


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_gamma_keeps_its_digits_and_signs(library: str):
    """Values agree with mpmath within 5 units of rounding from -170 to overflow, including the sign."""
    z = np.concatenate([np.linspace(-169.87, 171.6, 700), [1e-300, -1e-8, -3.0000001, 15.999999, 16.0, -16.000001]])
    right = np.array([float(mpmath.gamma(mpmath.mpf(float(point)))) for point in z])
    np.testing.assert_allclose(gamma_of(library, z), right, rtol=5 * 2.3e-16)
    ends = gamma_of(library, np.array([171.7, 1e10, np.inf, -300.5, -np.inf, np.nan, 0.0]))
    np.testing.assert_array_equal(np.abs(ends), [np.inf, np.inf, np.inf, 0.0, np.nan, np.nan, np.inf])


def test_gradients_in_torch():
    """Gradients of gamma to second order, of beta in both operands, of incomplete beta in x; a and b raise an error."""
    torch = importlib.import_module("torch")
    z = torch.tensor([2.5, -1.3, 7.0], dtype=torch.float64, requires_grad=True)
    x = torch.tensor([0.2, 0.7, 0.5], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(special.gamma, (z,), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(special.gamma, (z,))
    assert torch.autograd.gradcheck(special.beta, (z, x))
    assert torch.autograd.gradcheck(lambda v: special.incomplete_beta(2.0, 3.0, v), (x,))
    with pytest.raises(UnsupportedDtypeError, match="detach"):
        special.incomplete_beta(z, 3.0, x)


def test_gradients_in_jax():
    """Gamma' = Gamma psi."""
    jax = importlib.import_module("jax")
    with jax.enable_x64(True):
        slope = jax.grad(special.gamma)(2.5)
        assert float(slope) == pytest.approx(scipy_special.gamma(2.5) * scipy_special.digamma(2.5), rel=1e-13)


def test_objects_of_the_contract():
    """``GammaFunction().compute`` and ``BetaFunction().compute`` are the functions."""
    assert special.GammaFunction().compute(5) == 24
    assert special.BetaFunction().compute(2, 3) == special.beta(2, 3) == pytest.approx(1 / 12)


def test_complex_tensors_are_refused():
    """PyTorch has no complex gamma function; the error says what to do."""
    torch = importlib.import_module("torch")
    with pytest.raises(UnsupportedDtypeError, match="convert the tensor to NumPy"):
        special.gamma(torch.tensor([1j]))


@pytest.mark.parametrize(
    "call",
    [
        special.gamma,
        lambda x: special.beta(2.0, x),
        lambda x: special.generalized_binomial(x, 2),
        lambda x: special.mittag_leffler(x, 0.5, 1.0, 0.5),
        lambda x: special.mittag_leffler(1.0, x),
        lambda x: special.wright(x, 0.5, 1.0),
        lambda x: special.m_wright(x, 0.5),
    ],
)
def test_masked_arrays_are_refused(call):
    """The values below a mask would appear in the result as if they were data."""
    with pytest.raises(InvalidInputError, match="masked array"):
        call(np.ma.masked_array([0.5, 0.7], mask=[False, True]))


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("pole", [1, 2, 20, 1000])
def test_digamma_next_to_its_poles(library, pole):
    """All digits there, where SciPy and PyTorch have three left; on a pole the value is theirs."""
    for distance in (0.05, 1e-3, 1e-9, -1e-12):
        z = distance - pole
        given = importlib.import_module("torch").tensor(z, dtype=float) if library == "torch" else z
        assert float(special.digamma(given)) == pytest.approx(float(mpmath.digamma(z)), rel=1e-13)
    assert np.isnan(special.digamma(-2.0))


LIBRARIES = ["numpy", "torch", "jax"]


def beta_of(library: str, a: float, b: float) -> float:
    if library == "numpy":
        return float(special.beta(a, b))
    if library == "torch":
        return float(special.beta(importlib.import_module("torch").tensor(a, dtype=float), b))
    jax = importlib.import_module("jax")
    with jax.enable_x64(True):
        return float(jax.jit(special.beta)(jax.numpy.asarray(a), b))


@pytest.mark.parametrize("library", LIBRARIES)
def test_beta_of_large_arguments(library):
    """Logarithms of Gamma cancel there: at 1e15 no digit was left, at 1e17 the value was 1."""
    for a in (90.0, 1e3, 1e5, 1e12, 1e17):
        for b in (1e-5, 0.5, 1.0, 10.0, 20.0, 90.0):
            with mpmath.workdps(60):
                exact = float(mpmath.beta(a, b))
            assert beta_of(library, a, b) == pytest.approx(exact, rel=2e-13, abs=1e-300)


@pytest.mark.parametrize("library", LIBRARIES)
def test_beta_of_negative_arguments(library):
    """All digits, at poles that cancel too: 1e-10 was lost at 1e5, 1e-4 at 1e10, and PyTorch and JAX gave nan there."""
    pairs = [(-1e5 - 0.7, 0.3), (-1e5 - 0.7, 1e5), (1e5 + 0.3, -1e5 + 0.2), (-1e10 - 0.5, 0.3), (-1e10 - 0.5, 1e10)]
    pairs += [(-100.3, 50.2), (-100.3, 101.7), (-100.3, -50.2), (-0.5, 1e10), (-7.3, 500.0), (-150.3, -0.2)]
    pairs += [(-2.0, 1.0), (-3.0, 2.0), (-100.0, 50.0), (-1e10, 3.0), (-1e17, 2.0), (-0.5, -0.5), (-1e14 - 0.5, 1.5)]
    for a, b in pairs:
        with mpmath.workdps(60):
            exact = float(mpmath.beta(a, b))
        assert beta_of(library, a, b) == pytest.approx(exact, rel=2e-14, abs=0)
    for a, b in [(-2.0, 3.0), (-2.0, 0.5), (-3.0, -1.0), (0.0, 1.0), (-2.5, 0.0)]:
        assert abs(beta_of(library, a, b)) == np.inf


@pytest.mark.parametrize("library", LIBRARIES[1:])
def test_slopes_of_beta(library):
    """B' = B (psi(a) - psi(a + b)), also where the square of Gamma(a + b) overflows and at negative arguments."""
    for a, b in [(-100.3, 50.0), (51.3, 50.0), (-2.3, 1.0), (-7.3, 500.0), (-0.5, 1e3), (-3.3, -1.2), (-1.3, 1.5)]:
        exact = float(mpmath.beta(a, b) * (mpmath.psi(0, a) - mpmath.psi(0, a + b)))
        if library == "torch":
            x = importlib.import_module("torch").tensor(a, dtype=float, requires_grad=True)
            special.beta(x, b).backward()
            slope = x.grad
        else:
            jax = importlib.import_module("jax")
            with jax.enable_x64(True):
                slope = jax.grad(special.beta)(a, b)
        assert float(slope) == pytest.approx(exact, rel=1e-11)

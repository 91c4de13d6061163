"""The Mittag-Leffler function: accuracy against a table by mpmath, dtypes, gradients and errors."""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import time
from itertools import groupby
from pathlib import Path

import mpmath
import numpy as np
import pytest
from scipy import special as scipy_special

import hpfracc.special as special
from hpfracc.errors import InvalidInputError, UnsupportedDtypeError
from tests.helpers.thinned import thinned

TABLE = json.loads((Path(__file__).parent / "data" / "mittag_leffler.json").read_text(encoding="utf-8"))
BACKENDS = ["numpy", "numba", "torch"]


def evaluate(backend: str, z: np.ndarray, alpha: float, beta: float = 1.0, order: int = 0) -> np.ndarray:
    """The function by a backend, or a derivative of it."""
    module = importlib.import_module({"torch": "torch", "jax": "jax.numpy"}.get(backend, "numpy"))
    with importlib.import_module("jax").enable_x64(True) if backend == "jax" else contextlib.nullcontext():
        if order:
            return np.asarray(special.mittag_leffler_derivative(module.asarray(z), alpha, beta, order, backend=backend))
        return np.asarray(special.mittag_leffler(module.asarray(z), alpha, beta, backend=backend))


def misses(backend: str, rows: list[list[float]], as_complex: bool) -> list[str]:
    """Rows whose relative error exceeds 1e-13 max(1, kappa/80); nan where the phase has no digits is none."""
    found = []
    for (alpha, beta), group in groupby(rows, key=lambda row: (row[0], row[1])):
        chosen = [row for row in group if as_complex or row[3] == 0]
        if not chosen:
            continue
        z = np.array([complex(row[2], row[3]) for row in chosen])
        right = np.array([complex(float(row[4]), float(row[5])) for row in chosen])
        value = evaluate(backend, z if as_complex else z.real.copy(), alpha=alpha, beta=beta)
        bar = 1e-13 * np.maximum(1, np.array([row[6] for row in chosen]) / 80)
        error = np.abs(value - right) / np.abs(right)
        phase = np.abs((z ** (1.0 / alpha)).imag) if as_complex else np.zeros(z.shape)
        missed = ~(error <= bar) & ~(np.isnan(value) & (phase > 3e14 * min(alpha, 1.0)))
        found += [f"E_{alpha},{beta}({z[i]}): {error[i]:.1e}" for i in np.nonzero(missed)[0]]
    return found


def test_the_table_is_hard_enough():
    """The table has at least 2,000 points, alpha from 0.05 to above 2, |z| up to 1e4, and arguments near pi alpha."""
    assert len(TABLE) >= 2000
    alphas = {row[0] for row in TABLE}
    assert min(alphas) == 0.05
    assert max(alphas) > 2
    assert max(math.hypot(row[2], row[3]) for row in TABLE) > 5e3
    near = [row for row in TABLE if row[0] < 1 and abs(abs(math.atan2(row[3], row[2])) / (math.pi * row[0]) - 1) < 0.03]
    assert len(near) > 100


def some_pairs(one_in: int) -> list[list[float]]:
    """The rows of one in ``one_in`` pairs of parameters."""
    pairs = sorted({(row[0], row[1]) for row in TABLE})[::one_in]
    return [row for row in TABLE if (row[0], row[1]) in pairs]


@pytest.mark.parametrize("as_complex", [False, True], ids=["real", "complex"])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("one_in", [5, 1])
@thinned(lambda backend, as_complex, one_in: one_in == (1 if backend == "numpy" and not as_complex else 5))
def test_agrees_with_mpmath(backend: str, as_complex: bool, one_in: int):
    """The relative error is at most 1e-13 max(1, kappa/80) at every point; real z also as complex numbers.

    All points as real numbers in NumPy; the others, whose source is the same, take those of one pair of parameters in
    five.
    """
    assert misses(backend, some_pairs(one_in), as_complex) == []


@pytest.mark.parametrize("one_in", [320, pytest.param(40, marks=pytest.mark.slow)])
def test_agrees_with_mpmath_in_jax(one_in: int):
    """The same for JAX at some points, because it compiles for each pair of parameters."""
    assert misses("jax", some_pairs(one_in), as_complex=True) == []


@pytest.mark.parametrize(
    ("alpha", "beta", "formula"),
    [
        (1.0, 1.0, np.exp),
        (1.0, 2.0, lambda z: np.expm1(z) / z),
        (2.0, 1.0, lambda z: np.where(z > 0, np.cosh(np.sqrt(np.abs(z))), np.cos(np.sqrt(np.abs(z))))),
        (0.5, 1.0, lambda z: scipy_special.erfcx(-z)),
    ],
    ids=["exp", "expm1", "cos", "erfcx"],
)
def test_elementary_cases(alpha, beta, formula):
    """Special cases agree with elementary functions; E_{1,2} is accurate near 0."""
    z = np.concatenate([-np.geomspace(1e-12, 50, 200), np.geomspace(1e-12, 20, 100)])
    right = formula(z)
    value = special.mittag_leffler(z, alpha, beta)
    slope = special.mittag_leffler_derivative(z, alpha, beta)
    kappa = np.abs(z * slope / right)
    assert np.all(np.abs(value - right) <= 1.5e-13 * np.maximum(1, kappa / 100) * np.abs(right))


def test_a_value_others_get_wrong():
    """E_{3,1}(-1000) = -71.40768781..."""
    assert special.mittag_leffler(-1000.0, 3.0) == pytest.approx(-71.407687812437788, rel=1e-14)


@pytest.mark.parametrize(
    ("alpha", "beta", "z"),
    [
        (1.7, 150.0, 240.87),
        (1.7, 150.0, 16815.6),
        (5.0, 142.73, 31577354266.3),
        (0.3, 150.0, 4.853),
        (0.5, 140.0, 13.606236),
        (12.0, 1e-20, 1e-292),
        (33.3, 150.0, -2.7e82),
        (100.0, 126.8, 6.5e250),
        (150.0, 0.5, -1e250),
    ],
)
@pytest.mark.parametrize("backend", [*BACKENDS, "jax"])
@thinned(lambda backend, alpha, beta, z: backend != "jax" or alpha in (0.5, 33.3))
def test_factors_beyond_float64(backend, alpha, beta, z):
    """Values in range whose coefficients or residues are products of numbers that are not."""
    with mpmath.workdps(120):
        a, b, total, term, k = mpmath.mpf(alpha), mpmath.mpf(beta), 0, 1, 0
        while alpha * k < 300 + abs(z) ** (1 / alpha) * 4 or abs(term) > abs(total) * 1e-30:
            term = mpmath.mpf(z) ** k * mpmath.rgamma(a * k + b)
            total, k = total + term, k + 1
    assert evaluate(backend, np.array([z]), alpha=alpha, beta=beta)[0] == pytest.approx(float(total), rel=1e-13, abs=0)
    if alpha == 12.0:  # z^51 exp(z)
        value = evaluate(backend, np.array([-800.0]), alpha=1.0, beta=-50.0)[0]
        assert value == pytest.approx(-4.1879724299219489e-200, rel=1e-13, abs=0)


@pytest.mark.parametrize(("alpha", "beta"), [(1.9, -50.0), (1.9, -100.3), (1.99, -10.0)])
def test_residues_that_vanish_late(alpha, beta):
    """Far to the left of the origin -1/(z Gamma(beta - alpha)) remains, although residues are larger for long."""
    with mpmath.workdps(40):
        right = float(mpmath.rgamma(mpmath.mpf(beta) - mpmath.mpf(alpha)) / mpmath.mpf(10) ** 60)
    for backend in BACKENDS:
        assert evaluate(backend, np.array([-1e60]), alpha=alpha, beta=beta)[0] == pytest.approx(right, rel=1e-14, abs=0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_overflow_is_inf(backend: str):
    """Overflow is inf, values far to the left are 0 or small, and only nan gives nan."""
    z = np.array([1e4, 1e300, np.inf, -1e300, -np.inf, np.nan])
    value = evaluate(backend, z, alpha=0.5)
    assert np.array_equal(value[:3], [np.inf] * 3)
    assert 0 < value[3] < 1e-299
    assert value[4] == 0
    assert np.isnan(value[5])
    assert evaluate(backend, np.array([-1e9]), alpha=2.5)[0] in (np.inf, -np.inf)
    huge = evaluate(backend, np.array([40 + 1j, 700 * (1 + 0.01j)]), alpha=0.5)
    assert np.isinf(huge.real).all()
    assert not np.isnan(huge.imag).any()


@pytest.mark.parametrize(
    ("z", "dtype"),
    [
        (-1.0, "float64"),
        ([-1, 2], "float64"),
        (np.float32([-1.5]), "float32"),
        (np.array([[1j]]), "complex128"),
        (np.complex64([1 + 1j]), "complex64"),
        (np.zeros((0, 3)), "float64"),
    ],
)
def test_what_comes_back_is_what_went_in(z, dtype):
    """Real in, real out; shape and precision are kept, and integers become floats."""
    value = special.mittag_leffler(z, 0.7)
    assert np.asarray(value).dtype == dtype
    assert np.shape(value) == np.shape(z)


@pytest.mark.parametrize(
    ("alpha", "beta"),
    [(0.0, 1.0), (-1.0, 1.0), (math.nan, 1.0), (math.inf, 1.0), (0.5, math.nan), ([0.5, -1.0], 1.0), (0.5, 1e3)],
)
def test_bad_parameters_are_refused(alpha, beta):
    """The error names parameters outside the supported range."""
    with pytest.raises(InvalidInputError, match="Mittag-Leffler function takes"):
        special.mittag_leffler(-1.0, alpha, beta)


def test_gradients_in_torch():
    """First and second derivatives of real and complex tensors, in forward mode too, and under vmap."""
    torch = importlib.import_module("torch")
    z = torch.tensor([-3.0, -0.4, 0.2, 1.3], dtype=torch.float64, requires_grad=True)
    w = torch.tensor([-2 + 1j, 0.3 - 0.5j], dtype=torch.complex128, requires_grad=True)
    for alpha, beta in ((0.7, 1.0), (1.5, 0.8)):

        def function(x, alpha=alpha, beta=beta):
            return special.mittag_leffler(x, alpha, beta)

        assert torch.autograd.gradcheck(function, (z,), check_forward_ad=True, fast_mode=True)
        assert torch.autograd.gradgradcheck(function, (z,), fast_mode=True)
        assert torch.autograd.gradcheck(function, (w,), fast_mode=True)
        slopes = torch.func.vmap(torch.func.grad(function))(z.detach())
        right = special.mittag_leffler_derivative(z.detach().numpy(), alpha, beta)
        np.testing.assert_allclose(slopes.numpy(), right, rtol=1e-12)


def test_gradients_in_jax():
    """First and second derivatives under jit and vmap; single precision is kept."""
    jax = importlib.import_module("jax")
    with jax.enable_x64(True):
        z = jax.numpy.asarray([-3.0, -0.4, 0.2, 1.3])
        second = jax.jit(jax.vmap(jax.grad(jax.grad(lambda x: special.mittag_leffler(x, 0.7)))))(z)
        np.testing.assert_allclose(second, special.mittag_leffler_derivative(np.asarray(z), 0.7, order=2), rtol=1e-12)
    single = special.mittag_leffler(jax.numpy.asarray([-2.0], dtype="float32"), 0.7)
    assert single.dtype == "float32"
    np.testing.assert_allclose(single, special.mittag_leffler(-2.0, 0.7), rtol=2e-7)


@pytest.mark.parametrize(
    ("alpha", "beta", "gamma", "z", "right"),
    [
        (0.5, 1.0, 1.5, -3.0, 0.0629091174626818),
        (0.7, 0.91, 1.3, -20.0, 0.00033884733968347),
        (0.9, 1.0, 0.4, -5.0, 0.383665732152375),
        (0.6, 2.0, 2.5, -2 + 3j, -0.0190428153570976 + 0.0187087196184744j),
        (0.6, 2.0, 3.0, 2 + 1j, -155.87941291696964 - 28.16629107228681j),
        (1.4, 1.0, 0.5, 2.0, 2.21574484720232),
        (0.5, 1.0, -2.0, -3.0, 16.770275002573076),
    ],
)
@thinned(one_in=2)
def test_three_parameters(alpha, beta, gamma, z, right):
    """Prabhakar's function agrees with its series, summed by mpmath with 160 digits."""
    value = special.mittag_leffler(z, alpha, beta, gamma)
    assert value == pytest.approx(right, rel=1e-13)
    assert np.iscomplexobj(value) == isinstance(z, complex)


def test_three_parameters_without_accuracy():
    """An error is raised where neither the series nor the contour is accurate."""
    with pytest.raises(InvalidInputError, match="cannot be computed accurately"):
        special.mittag_leffler(-4000.0, 1.5, 1.0, 0.5)
    with pytest.raises(InvalidInputError, match="gamma=nan"):
        special.mittag_leffler(-1.0, 0.5, 1.0, math.nan)


def test_three_parameters_of_a_tensor():
    """Integer gamma is computed in PyTorch; other values raise an error."""
    torch = importlib.import_module("torch")
    z = torch.tensor([-1.0], dtype=torch.float64)
    assert float(special.mittag_leffler(z, 0.6, 2.0, 2.0)) == pytest.approx(special.mittag_leffler(-1.0, 0.6, 2.0, 2.0))
    with pytest.raises(UnsupportedDtypeError, match="convert z"):
        special.mittag_leffler(z, 0.6, 2.0, 1.5)


@pytest.mark.bench
@pytest.mark.parametrize(("alpha", "low"), [(0.5, -100.0), (0.8, -10.0), (0.99, -50.0), (1.5, -100.0)])
def test_a_million_real_points_a_second(alpha, low):
    """The compiled kernel computes at least 1e6 real points per second on one core."""
    z = np.random.default_rng(1).uniform(low, 5.0, 200_000)
    evaluate("numba", z, alpha)
    best = math.inf
    for _ in range(5):
        start = time.thread_time()
        evaluate("numba", z, alpha)
        best = min(best, time.thread_time() - start)
    assert z.size / best >= 1e6


@pytest.mark.parametrize(("alpha", "gamma"), [(0.7, 1.5), (0.7, -0.4), (0.5, 1.5), (0.99, 6.5), (0.05, 0.5)])
def test_third_parameter_where_the_series_overflows(alpha, gamma):
    """The expansion at infinity, summed by mpmath; an overflowing series was taken for infinity, and refused."""
    with mpmath.workdps(40):
        for z in (-1e6, -1e12, -1e100) if alpha > 0.1 else (-1e12,):
            terms = (
                mpmath.rf(gamma, k)
                / mpmath.factorial(k)
                * mpmath.rgamma(mpmath.mpf(1) - mpmath.mpf(alpha) * (gamma + k))
                / mpmath.mpf(z) ** k
                for k in range(12)
            )
            exact = float(mpmath.mpf(-z) ** -gamma * sum(terms))
            assert special.mittag_leffler(z, alpha, 1.0, gamma) == pytest.approx(exact, rel=1e-11)
    assert special.mittag_leffler(-30.0, 0.7, 1.0, 1.5) == pytest.approx(-0.00022679802253684997, rel=1e-13)
    assert special.mittag_leffler(1e6, 0.7, 1.0, 1.5) == np.inf


@pytest.mark.parametrize("beta", [1e-6, 1e-12, 1e-15, -1e-9, -1.0 + 1e-9])
@pytest.mark.parametrize("alpha", [0.3, 2.3, 20.0, 50.0])
@pytest.mark.parametrize("gamma", [2, 3])
@thinned(one_in=3)
def test_third_parameter_with_beta_next_to_a_pole(beta, alpha, gamma):
    """The beta of the derivative is rounded; 1/Gamma of the lowest term is still that of the given one."""
    for z in (0.0, 1e-9, -0.5, 3.0):
        with mpmath.workdps(60):
            a, b = mpmath.mpf(alpha), mpmath.mpf(beta)
            terms = (
                mpmath.rf(gamma, k) / mpmath.factorial(k) * mpmath.rgamma(a * k + b) * mpmath.mpf(z) ** k
                for k in range(400)
            )
            exact = float(mpmath.fsum(terms))
        assert special.mittag_leffler(z, alpha, beta, gamma) == pytest.approx(exact, rel=1e-11)


@pytest.mark.parametrize("library", [*BACKENDS, "jax"])
@pytest.mark.parametrize(("alpha", "size"), [(0.5, 1e17), (0.7, 1e20), (1.5, 1e30), (0.05, 10.0**0.9)])
def test_a_phase_without_digits_is_nan(alpha: float, size: float, library: str) -> None:
    """Next to a Stokes line the exponential of ``s* = z^(1/a)`` was 652, or inf, by chance; away from it, it is 0."""
    turns = np.array([1.0, 1.0 + 1e-15, 1.01, 1.2, 1.3, 0.0])
    z = size * np.exp(0.5j * math.pi * alpha * turns)
    found = evaluate(library, z, alpha=alpha)
    assert np.isnan(found[:2]).all()
    assert np.isinf(found[-1])
    exact = [complex(-sum(mpmath.rgamma(1 - alpha * k) / mpmath.mpc(point) ** k for k in range(1, 41))) for point in z]
    np.testing.assert_allclose(found[2:-1], exact[2:-1], rtol=1e-13)


@pytest.mark.parametrize("backend", [*BACKENDS, "jax"])
@pytest.mark.parametrize(
    ("alpha", "beta"),
    [(1 + 1e-9, -50.0), (1 - 1e-12, -50.0), (1 + 1e-12, -100.0), (2 + 1e-10, -40.0), (1.0, -50 + 1e-9)],
)
@thinned(lambda beta, backend: backend == "numpy" or beta == -100.0)
def test_negative_beta_next_to_integers(alpha: float, beta: float, backend: str) -> None:
    """1/Gamma nearly vanishes, and so does the integral of large numbers: 4 % was lost at (1 + 1e-12, -100, 20)."""
    z = np.array([-80.0, -40.0, -20.0, -10.0, -5.0, -2.0, 2.0, 5.0, 10.0, 20.0])
    exact, slopes = [], []
    with mpmath.workdps(250):
        c = [mpmath.rgamma(mpmath.mpf(alpha) * k + beta) for k in range(500)]
        for x in map(mpmath.mpf, z.tolist()):
            exact.append(float(mpmath.fsum(c[k] * x**k for k in range(500))))
            slopes.append(float(mpmath.fsum(k * c[k] * x ** (k - 1) for k in range(1, 500))))
    np.testing.assert_allclose(evaluate(backend, z, alpha=alpha, beta=beta), exact, rtol=2e-13)
    np.testing.assert_allclose(evaluate(backend, z + 0j, alpha=alpha, beta=beta), exact, rtol=2e-13)
    if backend != "numba":
        np.testing.assert_allclose(evaluate(backend, z, alpha=alpha, beta=beta, order=1), slopes, rtol=1e-12)


def test_continuous_in_alpha_at_one():
    """There is no jump at the elementary formula: E_{1+-d} differs from exp by about d."""
    z = np.linspace(-15, 5, 41)
    for distance in (1e-9, 1e-12):
        around = [special.mittag_leffler(z, 1 + sign * distance) for sign in (-1, 1)]
        np.testing.assert_allclose((around[0] + around[1]) / 2, np.exp(z), rtol=1e-10)


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize(("alpha", "beta"), [(0.3, 1.0), (0.7, 0.7), (1.0, 1.0), (1.6, 2.0), (2.4, 0.5)])
@thinned(one_in=2)
def test_derivatives_agree_with_a_recurrence(alpha, beta, order):
    """a z E^(n+1) = E_{b-1}^(n) - (b - 1 + a n) E_b^(n), with separate tables for each term."""
    z = np.concatenate([-np.geomspace(0.05, 60, 40), np.geomspace(0.05, 3, 20)])
    lower = special.mittag_leffler_derivative(z, alpha, beta - 1, order - 1)
    same = special.mittag_leffler_derivative(z, alpha, beta, order - 1)
    other = (beta - 1 + alpha * (order - 1)) * same
    error = np.abs(alpha * z * special.mittag_leffler_derivative(z, alpha, beta, order) - (lower - other))
    assert np.all(error <= 1e-12 * (np.abs(lower) + np.abs(other)))


def test_kummer():
    """E_{1,b}^g(z) is 1F1(g; b; z)/Gamma(b)."""
    z = np.linspace(-30, 0, 31)
    right = scipy_special.hyp1f1(0.3, 1.7, z) / scipy_special.gamma(1.7)
    np.testing.assert_allclose(special.mittag_leffler(z, 1.0, 1.7, 0.3), right, rtol=1e-12)

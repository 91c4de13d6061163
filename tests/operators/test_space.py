"""Operators in space: what they are exact on, their orders of convergence, symmetry, limits and grids."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy import special

import hpfracc as hf
from hpfracc._xp import NUMPY
from hpfracc.operators.core.sequences import centred_binomials
from tests.helpers.convergence import measured_order
from tests.helpers.thinned import thinned

ORDERS = [0.1, 0.25, 0.5, 0.75, 0.9, 1.3, 1.8]
PERIOD = 3.0
X = np.linspace(-1.0, -1.0 + PERIOD, 40, endpoint=False)
WAVE = 2.0 * np.pi / PERIOD


def of_bump(alpha: float, p: float, square: np.ndarray, dimensions: int = 1) -> np.ndarray:
    """``(-Laplacian)^(alpha/2) (1 - |x|^2)_+^p`` inside the unit ball (B. Dyda, Fract. Calc. Appl. Anal. 15 (2012))."""
    d = dimensions
    front = 2.0**alpha * special.gamma((d + alpha) / 2) * special.gamma(p + 1)
    front /= special.gamma(d / 2) * special.gamma(p + 1 - alpha / 2)
    return front * special.hyp2f1((d + alpha) / 2, alpha / 2 - p, d / 2, square)


# Periodic: exact on waves.


@pytest.mark.parametrize("alpha", [*ORDERS, 1.0, 2.0, 2.5, -0.5, -1.0])
@pytest.mark.parametrize("k", [1, -1, 7, -19])
@thinned(lambda alpha, k: alpha in (0.1, 0.5, 1.3) or k == 7)
def test_weyl_is_exact_on_exponentials(alpha: float, k: int):
    """``(i kappa)^alpha exp(i kappa x)``, the principal branch, for waves of both directions."""
    wave = np.exp(1j * WAVE * k * X)
    right = (1j * WAVE * k) ** alpha * wave
    np.testing.assert_allclose(hf.weyl(wave, X, alpha), right, atol=1e-12 * abs(right[0]) + 1e-13, rtol=0)


@pytest.mark.parametrize("n", [1, 2, 8, 9])
@pytest.mark.parametrize("alpha", [0.5, 1.5, -0.7])
def test_weyl_of_real_samples_is_the_trigonometric_interpolant_s(n: int, alpha: float):
    """Real in, real out, equal to the complex answer; the highest wave of an even number of samples is a cosine."""
    x = np.arange(n) * 0.3
    f = np.random.default_rng(n).standard_normal((3, n))
    value = hf.weyl(f, x, alpha)
    assert value.dtype == np.float64
    together = hf.weyl(f + 0j, step=0.3, alpha=alpha)
    np.testing.assert_allclose(together.real, value, atol=1e-12)
    np.testing.assert_allclose(together.imag, 0.0, atol=1e-12)
    waves = 2 * np.pi * np.arange(1, (n + 1) // 2) / (n * 0.3)
    expected = np.zeros((3, n))
    for k in waves:
        for wave, turned in ((np.cos, np.cos), (np.sin, np.sin)):
            amplitude = 2.0 / n * (f * wave(k * x)).sum(-1, keepdims=True)
            expected += amplitude * k**alpha * turned(k * x + 0.5 * np.pi * alpha)
    if n % 2 == 0:
        k = np.pi / 0.3
        expected += (f * np.cos(k * x)).mean(-1, keepdims=True) * k**alpha * np.cos(0.5 * np.pi * alpha) * np.cos(k * x)
    np.testing.assert_allclose(value, expected, atol=1e-11 * max(1.0, np.abs(expected).max()))


def test_weyl_orders_add_up_and_integrals_undo_derivatives():
    """``D^a D^b = D^(a+b)`` and ``I^a D^a f = f - mean``."""
    f = np.exp(np.sin(WAVE * X))
    both = hf.weyl(hf.weyl(f, X, 0.3), X, 0.9)
    np.testing.assert_allclose(both, hf.weyl(f, X, 1.2), atol=1e-12)
    np.testing.assert_allclose(hf.weyl_integral(hf.weyl(f, X, 0.8), X, 0.8), f - f.mean(), atol=1e-13)
    np.testing.assert_allclose(hf.weyl(f, X, 0.0), f, atol=1e-14)
    assert "mean" in hf.weyl_integral(f, X, 0.8, full_output=True).message


@pytest.mark.parametrize("operator", [hf.weyl, hf.riesz])
def test_periodic_callables_come_out_near_rounding(operator: Any):
    """Sampled over a period as finely as needed, at points anywhere; the estimate bounds the error."""

    def f(t: Any) -> Any:
        return 1.0 / (1.3 - np.cos(t))

    at = np.array([-7.0, -0.3, 0.2, 5.0, 40.0])
    q = 1.3 - math.sqrt(1.3**2 - 1.0)
    k = np.arange(1, 120)
    amplitudes = 2.0 / math.sqrt(1.3**2 - 1.0) * q**k
    turn = 0.5 * np.pi * 0.7 if operator is hf.weyl else np.pi
    right = (amplitudes * k**0.7 * np.cos(np.outer(at, k) + turn)).sum(-1)
    result = operator(f, at, 0.7, method="spectral", period=2 * np.pi, full_output=True)
    assert result.converged
    error = np.abs(result.value - right).max()
    assert error < 1e-11 * np.abs(right).max()
    assert error < 50 * result.error_estimate
    rough = operator(lambda t: np.abs(np.sin(t)), at, 0.7, method="spectral", period=np.pi, full_output=True)
    assert not rough.converged
    assert "not smooth enough" in rough.message


def test_a_period_is_compared_with_the_samples():
    """A grid that includes the end of the period is noticed when the period is named, and the remedy told."""
    x = np.linspace(0.0, 1.0, 21)
    with pytest.raises(hf.errors.InvalidInputError, match="the last sample repeats the first"):
        hf.weyl(np.sin(2 * np.pi * x), x, 0.5, period=1.0)
    hf.weyl(np.sin(2 * np.pi * x[:-1]), x[:-1], 0.5, period=1.0)


# The line, with zeros outside.


@pytest.mark.parametrize("alpha", ORDERS)
@pytest.mark.parametrize(
    ("method", "p", "order"),
    [("centred", 4.0, 2.0), ("centred4", 5.0, 4.0), ("centred", None, None), ("centred4", 0.5, 1.5)],
)
@thinned(lambda alpha: alpha in (0.25, 1.3))
def test_centred_differences_converge(method: str, p: float | None, order: float | None, alpha: float):
    """On ``(1 - x^2)^p``, zero outside: order 2 or 4 where that is smooth, ``1 + p`` at points inside where it is not.

    Without p the solution ``(1 - x^2)^(alpha/2)`` of ``(-Laplacian)^(alpha/2) u = Gamma(1 + alpha)``.
    """
    power = alpha / 2 if p is None else p

    def error_at(n: int) -> float:
        x = np.linspace(-1.0, 1.0, n + 1)
        inside = slice(n // 4, 3 * n // 4 + 1, n // 16)
        value = hf.riesz(np.maximum(1 - x**2, 0) ** power, x, alpha, method=method)[inside]
        return float(np.abs(value + of_bump(alpha, power, x[inside] ** 2)).max())

    tolerance = 0.2 if alpha <= 0.2 else 0.15
    expected = 1 + alpha / 2 if order is None else order
    assert measured_order(error_at) == pytest.approx(expected, abs=tolerance)


@pytest.mark.parametrize("alpha", [0.2, 0.5, 1.0, 1.5, 1.9])
def test_the_solution_of_the_constant_problem(alpha: float):
    """``(-Laplacian)^s u = 1`` for ``u = (1 - x^2)^s / Gamma(1 + 2s)``."""
    x = np.linspace(-1.0, 1.0, 2049)
    u = np.maximum(1 - x**2, 0) ** (alpha / 2) / math.gamma(1 + alpha)
    value = hf.fractional_laplacian(u, x, alpha)[512:-512]
    np.testing.assert_allclose(value, 1.0, atol=3e-4)


def test_the_error_estimate_of_centred_differences():
    """The distance from order 4 bounds the error where both orders hold."""
    x = np.linspace(-1.0, 1.0, 201)
    result = hf.riesz((1 - x**2) ** 5, x, 1.3, full_output=True)
    inside = np.abs(x) < 0.9
    error = np.abs(result.value + of_bump(1.3, 5.0, np.minimum(x**2, 0.99)))[inside]
    assert result.method == "centred"
    assert (error <= 1.1 * result.error_estimate[inside] + 1e-7).all()
    assert result.error_estimate[inside].max() < 20 * error.max()


# The fractional Laplacian in one to three dimensions.


@pytest.mark.parametrize("alpha", ORDERS)
@pytest.mark.parametrize(("dimensions", "counts"), [(1, (128, 256, 512)), (2, (32, 64, 128)), (3, (12, 24, 48))])
@thinned(lambda alpha: alpha in (0.25, 1.3))
def test_the_integral_definition_converges(dimensions: int, counts: tuple[int, ...], alpha: float):
    """On ``(1 - |x|^2)^4`` in one to three dimensions, at points inside the ball, with order 2."""

    def error_at(n: int) -> float:
        x = np.linspace(-1.0, 1.0, n + 1)
        square = sum(np.meshgrid(*[x**2] * dimensions, indexing="ij"))
        value = hf.fractional_laplacian(
            np.maximum(1 - square, 0) ** 4, [x] * dimensions, alpha, axis=tuple(range(dimensions))
        )
        some = np.ix_(*[np.arange(n // 4, 3 * n // 4 + 1, n // 4)] * dimensions)
        near = square[some] < 0.6
        return float(np.abs(value[some][near] - of_bump(alpha, 4.0, square[some][near], dimensions)).max())

    tolerance = 0.2 if alpha <= 0.2 else 0.15
    assert measured_order(error_at, counts) == pytest.approx(2.0, abs=tolerance)


WAVES = {
    "periodic": lambda n: (np.arange(n) / n, lambda x, k: np.cos(2 * np.pi * k * x + 0.3), lambda k: 2 * np.pi * k),
    "dirichlet": lambda n: (np.arange(1, n + 1) / (n + 1), lambda x, k: np.sin(np.pi * k * x), lambda k: np.pi * k),
    "neumann": lambda n: ((np.arange(n) + 0.5) / n, lambda x, k: np.cos(np.pi * k * x), lambda k: np.pi * k),
}


@pytest.mark.parametrize("method", WAVES)
@pytest.mark.parametrize("alpha", [0.1, 1.3, 2.0, 3.5, -0.6])
@thinned(lambda alpha: alpha in (1.3, -0.6))
def test_the_laplacian_is_exact_on_the_waves_of_each_edge(method: str, alpha: float):
    """``|kappa|^alpha`` of products of waves, in one, two and three dimensions, with unequal steps and axes moved."""
    grids = [WAVES[method](n) for n in (12, 9, 10)]
    lengths = (1.0, 2.5, 0.7)
    points = [grid[0] * length for grid, length in zip(grids, lengths, strict=True)]
    waves = [grid[1](grid[0], k) for grid, k in zip(grids, (2, 1, 3), strict=True)]
    numbers = [grid[2](k) / length for grid, k, length in zip(grids, (2, 1, 3), lengths, strict=True)]
    line = hf.fractional_laplacian(waves[0], points[0], alpha, method=method)
    np.testing.assert_allclose(line, numbers[0] ** alpha * waves[0], atol=1e-11 * numbers[0] ** alpha)
    cube = np.einsum("i,j,k->ijk", *waves)
    factor = sum(number**2 for number in numbers) ** (alpha / 2)
    value = hf.fractional_laplacian(cube, points, alpha, method=method, axis=(0, 1, 2))
    np.testing.assert_allclose(value, factor * cube, atol=1e-11 * factor)
    moved = hf.fractional_laplacian(cube.transpose(2, 0, 1), points, alpha, method=method, axis=(1, 2, 0))
    np.testing.assert_allclose(moved, factor * cube.transpose(2, 0, 1), atol=1e-11 * factor)
    both = hf.fractional_laplacian(cube + 2j * cube, points, alpha, method=method, axis=(0, 1, 2))
    np.testing.assert_allclose(both, (1 + 2j) * factor * cube, atol=2e-11 * factor)


def test_batches_and_the_laplacian_of_a_callable():
    """Further axes are independent; a callable is its samples on the grid, in one and two dimensions."""
    x, y = np.linspace(-1, 1, 17), np.linspace(-1, 1, 12)
    f = np.random.default_rng(1).standard_normal((3, 17, 2, 12))
    value = hf.fractional_laplacian(f, (x, y), 1.2, axis=(1, 3))
    alone = hf.fractional_laplacian(f[1, :, 1], (x, y), 1.2, axis=(0, 1))
    np.testing.assert_allclose(value[1, :, 1], alone, atol=1e-11)

    def bump(*at: Any) -> Any:
        return np.exp(-sum(9 * one**2 for one in at))

    direct = hf.fractional_laplacian(bump, (x, y), 1.2, axis=(0, 1))
    np.testing.assert_allclose(
        direct, hf.fractional_laplacian(bump(x[:, None], y), (x, y), 1.2, axis=(0, 1)), atol=1e-13
    )
    np.testing.assert_allclose(
        hf.fractional_laplacian(bump, x, 1.2), hf.fractional_laplacian(bump(x), x, 1.2), atol=1e-13
    )
    np.testing.assert_allclose(hf.riesz(bump, x, 1.2), -hf.fractional_laplacian(bump, x, 1.2), atol=1e-12)
    full = hf.fractional_laplacian(f[0, :, 0], (x, y), 1.2, axis=(0, 1), full_output=True)
    assert (full.method, full.decision.operation, full.origin) == ("integral", "toeplitz_apply", -1.0)


# What all have in common.

EVERY = [
    *((hf.Weyl, {"method": "spectral"}),),
    *((hf.Riesz, {"method": method}) for method in hf.Riesz.rules),
    *((hf.FractionalLaplacian, {"method": method}) for method in hf.FractionalLaplacian.rules),
]
NAMES = [f"{operator.__name__}-{options['method']}" for operator, options in EVERY]


@pytest.mark.parametrize(("operator", "options"), EVERY, ids=NAMES)
def test_order_two_is_the_second_derivative(operator: Any, options: dict[str, str]):
    """Orders close to 2 come close to it, and 2 itself is it."""
    x = np.linspace(-4.0, 4.0, 161)[1:-1]
    f, right = np.exp(-4 * x**2), (64 * x**2 - 8) * np.exp(-4 * x**2)
    sign = -1.0 if operator is hf.FractionalLaplacian else 1.0
    for alpha, tolerance in ((2.0, 0.05), (2.0 - 1e-7, 0.0501)):
        value = sign * operator(alpha, **options)(f, x)
        np.testing.assert_allclose(value, right, atol=tolerance)


@pytest.mark.parametrize(("operator", "options"), EVERY, ids=NAMES)
def test_dtypes_axes_and_bad_samples(operator: Any, options: dict[str, str]):
    """float32 stays, integers are promoted, complex is its parts, any axis; a bad sample spoils its own row only."""
    apply = operator(0.7, **options)
    f = np.random.default_rng(3).standard_normal((4, 16))
    right = apply(f, step=0.5)
    single = apply(f.astype("float32"), step=0.5)
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, right, atol=3e-6)
    counts = np.arange(16) % 5
    np.testing.assert_allclose(apply(counts, step=0.5), apply(counts.astype(float), step=0.5), atol=1e-13)
    np.testing.assert_allclose(apply(f[0] + 1j * f[1], step=0.5), right[0] + 1j * right[1], atol=1e-12)
    np.testing.assert_allclose(apply(f.T, step=0.5, axis=0), right.T, atol=1e-13)
    f[2, 5] = np.nan
    tainted = apply(f, step=0.5)
    assert np.isnan(tainted[2]).all()
    np.testing.assert_allclose(tainted[[0, 1, 3]], right[[0, 1, 3]], atol=1e-13)


@pytest.mark.parametrize("alpha", [0.1, 0.3, 1.0, 1.7, 2.5])
def test_centred_weights_keep_their_digits(alpha: float):
    """Against 40 digits, from the recurrence to the expansion."""
    weights = centred_binomials(NUMPY, alpha, 100_001)
    with mpmath.workdps(40):
        for k in (0, 1, 5, 128, 129, 1000, 100_000):
            a = mpmath.mpf(alpha)
            right = (-1) ** k * mpmath.gamma(a + 1) * mpmath.rgamma(a / 2 - k + 1) * mpmath.rgamma(a / 2 + k + 1)
            assert abs(weights[k] / right - 1) < 2e-14


@pytest.mark.parametrize(("operator", "options"), EVERY, ids=NAMES)
def test_linear_and_self_adjoint(operator: Any, options: dict[str, str]):
    """``D(a f + b g) = a D f + b D g``; ``<D f, g> = <f, D g>``, or the wave backwards for Weyl."""
    f, g = np.random.default_rng(2).standard_normal((2, 31))
    apply = operator(1.3, **options)
    np.testing.assert_allclose(
        apply(2 * f - 3 * g, step=0.1), 2 * apply(f, step=0.1) - 3 * apply(g, step=0.1), atol=1e-9
    )
    other = apply(g[::-1], step=0.1)[::-1] if operator is hf.Weyl else apply(g, step=0.1)
    assert np.dot(apply(f, step=0.1), g) == pytest.approx(np.dot(f, other), rel=1e-10)

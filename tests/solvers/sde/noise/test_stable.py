"""Stable and tempered stable motion, and the inverse subordinator: distributions and moments."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from scipy import special, stats

from hpfracc import noise
from hpfracc.errors import InvalidInputError
from hpfracc.solvers.sde.noise.stable import standard_stable
from hpfracc.solvers.sde.noise.subordinated import increment_moment
from tests.helpers.law import mean_error
from tests.helpers.thinned import thinned

COUNT = 20_000


def characteristic(alpha: float, beta: float, scale: float, t: float, u: np.ndarray) -> np.ndarray:
    """That of S1, as in the docstring."""
    if alpha == 1.0:
        return np.exp(-t * scale * np.abs(u) * (1 + 1j * beta * 2 / np.pi * np.sign(u) * np.log(np.abs(u))))
    skew = 1j * beta * np.sign(u) * np.tan(0.5 * np.pi * alpha)
    return np.exp(-t * np.abs(scale * u) ** alpha * (1 - skew))


@pytest.mark.parametrize(("alpha", "beta"), [(0.5, 1.0), (0.7, -0.3), (1.0, 0.0), (1.0, 0.6), (1.5, 0.0), (1.9, 1.0)])
def test_characteristic_function(alpha: float, beta: float) -> None:
    """Of the values at two times that are no multiples of a step, within 4.5 standard errors at 6 frequencies."""
    process = noise.StableLevy(alpha, beta, scale=1.3)
    t = np.array([0.3, 1.7])
    paths = process.sample(t, COUNT, rng=1)
    u = np.array([-1.0, -0.3, 0.2, 0.5, 1.0, 2.0])
    for column, time in zip(paths.T, t, strict=True):
        waves = np.exp(1j * u[:, None] * column)
        error = waves.mean(-1) - characteristic(alpha, beta, 1.3, time, u)
        assert np.max(np.abs(error)) < 4.5 / np.sqrt(COUNT)


@pytest.mark.parametrize(
    ("process", "law"),
    [
        (noise.StableLevy(1.0), stats.cauchy()),
        (noise.StableLevy(2.0), stats.norm(scale=np.sqrt(2.0))),
        (noise.StableLevy(0.5, 1.0), stats.levy()),
    ],
    ids=["cauchy", "normal", "levy"],
)
def test_kolmogorov_smirnov(process: noise.StableLevy, law: object) -> None:
    """The three stable laws with a closed form."""
    values = process.sample([1.0], COUNT, rng=2)[:, 0]
    assert stats.kstest(values, law.cdf).pvalue > 1e-3  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.parametrize(("alpha", "beta"), [(1.5, 0.0), (0.8, 0.5)])
def test_kolmogorov_smirnov_by_quadrature(alpha: float, beta: float) -> None:
    """Others against SciPy's distribution function."""
    values = noise.StableLevy(alpha, beta).sample([1.0], 300, rng=3)[:, 0]
    assert stats.kstest(values, stats.levy_stable(alpha, beta).cdf).pvalue > 1e-3


@pytest.mark.parametrize("alpha", [1.0 - 1e-6, 1.0 + 1e-6, 1.0 + 1e-9])
def test_skewed_numbers_near_index_1(alpha: float) -> None:
    """The transform in 50 digits: to a few units in the last place of the shift, which is infinite at 1."""
    found = standard_stable(np, alpha, 0.5, np.array([0.3, 0.9]), np.array([0.7, 2.0]))
    with mpmath.workdps(50):
        a = mpmath.mpf(alpha)
        tangent = mpmath.tan(mpmath.pi * a / 2) / 2
        for value, u, wait in zip(found.tolist(), (0.3, 0.9), (0.7, 2.0), strict=True):
            v = mpmath.pi * (mpmath.mpf(u) - 0.5)
            turned = a * v + mpmath.atan(tangent)
            size = (1 + tangent**2) ** (1 / (2 * a)) * mpmath.sin(turned) / mpmath.cos(v) ** (1 / a)
            exact = size * (mpmath.cos(v - turned) / mpmath.mpf(wait)) ** ((1 - a) / a)
            assert abs(value / float(exact) - 1.0) < 2e-15


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("alpha", [0.3, 0.999, 1.0, 1.0 + 1e-6, 1.5, 2.0 - 1e-9, 2.0])
@pytest.mark.parametrize("beta", [1.0, -1.0, 0.999999])
def test_numbers_near_both_ends(alpha: float, beta: float, dtype: type) -> None:
    """The transform in 50 digits, from uniform numbers next to 0 and 1, where the tails are."""
    eps = float(np.finfo(dtype).eps)
    uniform = np.array([0.5 * eps, 4 * eps, 1e3 * eps, 0.7, 1.0 - 1e3 * eps, 1.0 - 4 * eps, 1.0 - eps], dtype)
    found = standard_stable(np, alpha, beta, uniform, np.full(7, 0.75, dtype))
    with mpmath.workdps(50):
        a, skew, wait = mpmath.mpf(alpha), mpmath.mpf(beta), mpmath.mpf(0.75)
        for value, u in zip(found.tolist(), uniform.tolist(), strict=True):
            v = mpmath.pi * (mpmath.mpf(u) - 0.5)
            if alpha == 1.0:
                half = mpmath.pi / 2 + skew * v
                logarithm = mpmath.log(mpmath.pi / 2 * wait * mpmath.cos(v) / half)
                exact = 2 / mpmath.pi * (half * mpmath.tan(v) - skew * logarithm)
            else:
                tangent = skew * mpmath.tan(mpmath.pi * a / 2)
                turned = a * v + mpmath.atan(tangent)
                size = (1 + tangent**2) ** (1 / (2 * a)) * mpmath.sin(turned) / mpmath.cos(v) ** (1 / a)
                exact = size * (mpmath.cos(v - turned) / wait) ** ((1 - a) / a)
            assert abs(value - float(exact)) < 64 * eps * (abs(float(exact)) + 0.1)


@pytest.mark.parametrize("alpha", [0.01, 0.999])
def test_tempered_and_inverse_motion_at_extreme_indices(alpha: float) -> None:
    """Laplace transform and moments within 4 standard errors, where powers of stable numbers leave double precision."""
    jumps = noise.TemperedStable(alpha, 1.3).sample(np.linspace(0.0, 1.0, 6), COUNT, rng=7)[:, -1]
    assert abs(mean_error(np.exp(-2.0 * jumps), np.exp(1.3**alpha - 3.3**alpha))) < 4
    for index in (alpha, 0.1 * alpha):
        clock = noise.InverseSubordinator(index).sample([0.5, 3.0], COUNT, rng=8)[:, 1]
        for k in (1, 2):
            assert (
                abs(mean_error(clock**k, special.gamma(k + 1) * 3.0 ** (k * index) / special.gamma(1 + k * index))) < 4
            )


def test_fractional_moment() -> None:
    """E |X|^0.5 of the symmetric stable law with index 1.5."""
    values = np.abs(noise.StableLevy(1.5).sample([1.0], 10 * COUNT, rng=4)[:, 0]) ** 0.5
    assert abs(mean_error(values, 1.080429797374515)) < 4


@pytest.mark.parametrize(("alpha", "rate"), [(0.4, 0.5), (0.7, 3.0), (1.3, 0.4), (1.7, 0.5)])
@thinned(one_in=2)
def test_tempered_laplace_transform(alpha: float, rate: float) -> None:
    """At two times, within 4 standard errors; above alpha = 1 the mean is 0 and the variance that of the formula."""
    process = noise.TemperedStable(alpha, rate, scale=0.8)
    t = np.array([0.4, 1.0])
    paths = process.sample(t, COUNT, rng=5)
    for column, time in zip(paths.T, t, strict=True):
        for s in (0.3, 1.0):
            grown = (s + rate) ** alpha - rate**alpha
            drift = s * alpha * rate ** (alpha - 1) if alpha > 1 else 0.0
            exact = np.exp(np.sign(alpha - 1) * time * 0.8**alpha * (grown - drift))
            assert abs(mean_error(np.exp(-s * column), exact)) < 4
        if alpha > 1:
            variance = time * 0.8**alpha * alpha * (alpha - 1) * rate ** (alpha - 2)
            assert abs(mean_error(column, 0.0)) < 4
            assert abs(mean_error(column**2, variance)) < 4.5


@pytest.mark.parametrize("alpha", [0.3, 0.7, 0.95])
@thinned(one_in=2)
def test_moments_of_the_inverse_subordinator(alpha: float) -> None:
    """k! t^(k alpha) / Gamma(1 + k alpha), at the last of several times."""
    clock = noise.InverseSubordinator(alpha).sample([0.2, 0.5, 1.0], COUNT, rng=6)
    assert np.all(np.diff(clock) >= 0)
    for time, column in zip((0.2, 0.5, 1.0), clock.T, strict=True):
        for k in (1, 2):
            exact = special.factorial(k) * time ** (k * alpha) / special.gamma(1 + k * alpha)
            assert abs(mean_error(column**k, exact)) < 4
    if alpha == 0.7:
        assert 1 / special.gamma(1.7) == pytest.approx(1.100547405523666, rel=1e-14)
        assert special.factorial(2) / special.gamma(2.4) == pytest.approx(1.610086425694325, rel=1e-14)


def test_joint_law_of_the_inverse_subordinator() -> None:
    """E E_s E_t by its double integral, which a product of independent times would not give."""
    alpha, s, t = 0.6, 0.5, 1.0
    clock = noise.InverseSubordinator(alpha).sample([0.1, s, t], 2 * COUNT, rng=7)
    # E E_s E_t = 1/(Gamma(1+a) Gamma(a)) int_0^s ((t-r)^a + (s-r)^a) r^(a-1) dr.
    beta = special.beta(alpha, alpha + 1)
    nodes, weights = special.roots_jacobi(200, 0.0, alpha - 1)
    r = 0.5 * s * (nodes + 1)
    first = (0.5 * s) ** alpha * np.sum(weights * (t - r) ** alpha)
    exact = (first + s ** (2 * alpha) * beta) / (special.gamma(1 + alpha) * special.gamma(alpha))
    assert abs(mean_error(clock[:, 1] * clock[:, 2], exact)) < 4


def test_subordinated_brownian_motion_is_subdiffusion() -> None:
    """E X^2 = t^alpha / Gamma(1 + alpha), and the density of sqrt(2) W(E_1) at x = 1 and 2 is the M-Wright function."""
    from hpfracc import m_wright

    alpha = 0.6
    paths = noise.Subordinated(noise.Brownian(), alpha).sample([0.3, 1.0], COUNT, rng=8)
    for time, column in zip((0.3, 1.0), paths.T, strict=True):
        assert abs(mean_error(column**2, time**alpha / special.gamma(1 + alpha))) < 4
    clock = noise.InverseSubordinator(alpha).sample([1.0], COUNT, rng=9)[:, 0]
    for x in (1.0, 2.0):
        density = np.exp(-(x**2) / (4 * clock)) / np.sqrt(4 * np.pi * clock)
        assert abs(mean_error(density, 0.5 * float(m_wright(x, 0.5 * alpha)))) < 4


@pytest.mark.parametrize(("x", "exact"), [(1.0, 0.1916677082853418), (2.0, 0.0806255417272929)])
def test_walkers_on_a_slow_clock_solve_the_diffusion_equation(x: float, exact: float) -> None:
    """N(0, 2 E_1) densities, averaged over E_1 of index 1/2, are the fundamental solution of order 1/2."""
    clock = noise.InverseSubordinator(0.5).sample([1.0], COUNT, rng=13)[:, 0]
    density = np.exp(-(x**2) / (4 * clock)) / np.sqrt(4 * np.pi * clock)
    assert abs(mean_error(density, exact)) < 4


def test_subordinated_fractional_and_stable_motion() -> None:
    """E B(E_t)^2 = E E_t^(2H); a clock that stands still holds the path; E cos X of stable motion on such a clock."""
    alpha, index = 0.8, 0.3
    slow = noise.Subordinated(noise.FractionalBrownian(index), alpha)
    paths = slow.sample([0.5, 0.500000001, 1.0], 3000, rng=10)
    exact = special.gamma(1 + 2 * index) / special.gamma(1 + 2 * index * alpha)
    assert abs(mean_error(paths[:, 2] ** 2, exact)) < 4
    assert np.mean(paths[:, 0] == paths[:, 1]) > 0.95
    heavy = noise.Subordinated(noise.StableLevy(1.2), alpha).sample([1.0], COUNT, rng=11)[:, 0]
    clock = noise.InverseSubordinator(alpha).sample([1.0], COUNT, rng=12)[:, 0]
    assert abs(np.cos(heavy).mean() - np.exp(-clock).mean()) < 4 * np.sqrt(0.7 / COUNT)


@pytest.mark.usefixtures("rounding_as_on_arm")
@pytest.mark.parametrize(
    "process",
    [
        noise.StableLevy(1.5, 0.5),
        noise.TemperedStable(0.7, 2.0),
        noise.TemperedStable(1.4, 0.5),
        noise.InverseSubordinator(0.6),
        noise.Subordinated(noise.Brownian(), 0.7),
        noise.Subordinated(noise.FractionalBrownian(0.3), 0.7),
        noise.FractionalOU(0.3, 2.0),
    ],
    ids=lambda process: repr(process)[:40],
)
def test_paths_do_not_depend_on_the_batch(process: noise.Noise) -> None:
    """All at once, and from the middle on; up to rounding where there are transforms, to the bit elsewhere."""
    t = np.linspace(0.0, 1.0, 12)
    whole = process.sample(t, 40, rng=13)
    rounded = isinstance(process, noise.FractionalOU)
    part = process.sample(t, 7, rng=13, first_path=20)
    np.testing.assert_allclose(part, whole[20:27], rtol=0.0, atol=1e-13 if rounded else 0.0)
    assert np.all(np.isfinite(whole))


def test_tensors() -> None:
    """Paths of PyTorch are those of NumPy to rounding, for each process."""
    torch = pytest.importorskip("torch")
    t = np.linspace(0.0, 1.0, 8)
    for process in (noise.StableLevy(1.5, 0.5), noise.TemperedStable(0.7, 2.0), noise.InverseSubordinator(0.6)):
        found = process.sample(torch.as_tensor(t), 5, rng=14)
        assert isinstance(found, torch.Tensor)
        np.testing.assert_allclose(found.numpy(), process.sample(t, 5, rng=14), rtol=1e-11, atol=1e-13)


def test_refuses() -> None:
    """Indices outside their range, and what a law does not have, with the remedy."""
    for alpha in (0.0, -1.0, 2.5, np.nan):
        with pytest.raises(InvalidInputError, match="alpha"):
            noise.StableLevy(alpha)
    with pytest.raises(InvalidInputError, match="beta=2"):
        noise.StableLevy(1.5, 2.0)
    for alpha, words in ((1.0, "not 1"), (2.0, "below 2")):
        with pytest.raises(InvalidInputError, match=words):
            noise.TemperedStable(alpha, 1.0)
    with pytest.raises(InvalidInputError, match="rate"):
        noise.TemperedStable(0.5, 0.0)
    with pytest.raises(InvalidInputError, match="above 0 and below 1"):
        noise.InverseSubordinator(1.0)
    with pytest.raises(InvalidInputError, match="Levy process"):
        noise.Subordinated(noise.InverseSubordinator(0.5), 0.5)
    with pytest.raises(InvalidInputError, match="no finite covariance"):
        noise.StableLevy(1.5).covariance(0.5, 1.0)
    with pytest.raises(InvalidInputError, match="pieces"):
        noise.TemperedStable(0.5, 1e16).sample([0.0, 1.0])


@pytest.mark.parametrize(
    "process",
    [
        noise.TemperedStable(0.7, 1.5, 1.2),
        noise.TemperedStable(1.4, 1.5, 0.8),
        noise.StableLevy(2.0, scale=0.7),
        noise.InverseSubordinator(0.7),
        noise.Subordinated(noise.TemperedStable(0.7, 1.5), 0.6),
        noise.Subordinated(noise.Brownian(), 0.6),
    ],
    ids=["tempered", "compensated", "normal", "clock", "tempered by a clock", "brownian by a clock"],
)
def test_covariance_where_it_is_finite(process: noise.Noise) -> None:
    """Of samples at three times, within 4.5 standard errors."""
    t = np.array([0.2, 0.5, 1.3])
    paths = process.sample(t, 2_000, rng=4)
    off = paths - paths.mean(0)
    products = off[:, :, None] * off[:, None, :]
    expected = process.covariance(t[:, None], t)
    for i, j in [(0, 0), (0, 2), (1, 2), (2, 2)]:
        assert abs(mean_error(products[:, i, j], expected[i, j])) < 4.5


def test_moments_of_a_clock() -> None:
    """Of its increments: the mean and the square in closed form, any power from 0 on; fractional motion by them."""
    alpha, s, t = 0.7, 0.3, 1.1
    clock, mean = noise.InverseSubordinator(alpha), (t**alpha - s**alpha) / special.gamma(1 + alpha)
    square = clock.covariance(t, t) + clock.covariance(s, s) - 2 * clock.covariance(s, t) + mean**2
    assert increment_moment(alpha, 1.0, s, t) == pytest.approx(mean, rel=1e-13)
    assert increment_moment(alpha, 2.0, s, t) == pytest.approx(square, rel=1e-13)
    assert increment_moment(alpha, 1.4, 0.0, 2.0) == pytest.approx(
        special.gamma(2.4) / special.gamma(1 + 1.4 * alpha) * 2.0 ** (1.4 * alpha), rel=1e-13
    )
    slow = noise.Subordinated(noise.FractionalBrownian(0.5), alpha)
    assert slow.covariance(s, t) == pytest.approx(s**alpha / special.gamma(1 + alpha), rel=1e-13)
    assert slow.covariance(0.0, t) == slow.covariance(0.0, 0.0) == 0.0
    with pytest.raises(InvalidInputError, match="from 0 on"):
        clock.covariance(-1.0, 1.0)
    with pytest.raises(InvalidInputError, match="not known"):
        noise.Subordinated(noise.FractionalOU(0.3), alpha).covariance(s, t)
    with pytest.raises(InvalidInputError, match="does not determine the value of the subordinator"):
        clock.refine([0.0, 1.0], [0.0, 1.0])

"""Caputo's equation with additive fractional and stable noise: laws in closed form, strong order, refusals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import linalg, special

import hpfracc as hf
from hpfracc import noise
from hpfracc._xp import NUMPY
from hpfracc.errors import InvalidInputError
from hpfracc.solvers.sde.methods import methods_for
from hpfracc.solvers.sde.methods.caputo_additive import joint_weights
from hpfracc.solvers.sde.noise.circulant import autocovariance
from hpfracc.solvers.sde.problem import read_problem
from tests.helpers.caputo_order import integrate
from tests.helpers.law import mean_error


def forced(alpha: float, process: noise.Noise, rate: float = 0.0, **options: Any) -> hf.FSDEResult:
    given: dict[str, Any] = {"step": 1 / 64, "paths": 2500, "rng": 1, **options}
    return hf.solve_fsde(lambda t, y: -rate * y, 1.0, (0, 1), 0.0, alpha=alpha, noise=process, **given)


@pytest.mark.parametrize(("alpha", "index"), [(0.75, 0.7), (0.4, 0.7), (0.8, 0.3)])
def test_variance_of_the_integral_of_fractional_noise(alpha: float, index: float) -> None:
    """In closed form, at an early and at the last time: the means alone would miss up to a fifth of it."""
    found = forced(alpha, noise.FractionalBrownian(index))
    power = 2 * (alpha + index - 1)
    gammas = math.gamma(2 * index) / (math.gamma(alpha) * math.gamma(alpha + 2 * index - 1))
    for place in (8, 64):
        exact = index * gammas * found.t[place] ** power / (0.5 * power)
        assert abs(mean_error(found.y[:, 0, place] ** 2, exact)) < 4


@pytest.mark.parametrize(
    ("alpha", "index", "exact", "method"),
    [(0.75, 0.7, 0.4388676930449638, "euler"), (0.8, 0.3, 1.1025282009156186, "implicit_euler")],
)
def test_variance_of_the_linear_equation(alpha: float, index: float, exact: float, method: str) -> None:
    """D^a X = -X + (B^H)': Var X(1) by the double series of t^(a-1) E_{a,a}(-t^a), summed with 40 digits."""
    found = forced(alpha, noise.FractionalBrownian(index), 1.0, save="last", method=method)
    assert abs(mean_error(found.y[:, 0] ** 2, exact)) < 4


@pytest.mark.parametrize(("alpha", "index"), [(0.7, 1.5), (0.5, 1.5), (0.7, 0.8)])
def test_law_of_the_integral_of_stable_noise(alpha: float, index: float) -> None:
    """Stable, with the scale of the power p of the kernel; below p = 1 the means alone do."""
    found = forced(alpha, noise.StableLevy(index), save="last")
    scale = 1 / (math.gamma(alpha) ** index * (1 - (1 - alpha) * index))
    assert abs(mean_error(np.cos(found.y[:, 0]), math.exp(-scale))) < 4


def test_mean_with_a_rising_process() -> None:
    """Tempered stable noise: its mean, a constant force."""
    found = forced(0.6, noise.TemperedStable(0.7, 2.0), save="last", paths=2000, step=1 / 32)
    assert abs(mean_error(found.y[:, 0], 0.7 * 2.0**-0.3 / math.gamma(1.6))) < 4


@pytest.mark.parametrize(("alpha", "index"), [(0.75, 0.7), (0.9, 0.35)])
def test_strong_order(alpha: float, index: float) -> None:
    """alpha + H - 1 less 0.15, with a drift that is not linear, against the finest grid on the same noise."""
    process = noise.FractionalBrownian(index)
    problem = read_problem(lambda t, y: np.sin(y) - y, np.ones(1), 0.0, np.ones((1, 1)), process, None)
    method = methods_for(problem.traits, ordinary=False)["euler"]
    count, finest = 200, 1024
    t = np.linspace(0, 1, finest + 1)
    driving = process.sample(t, (count, 1), rng=1)
    random = np.random.default_rng(2)

    def last(steps: int) -> np.ndarray:
        rest = np.cumsum(random.standard_normal((count, 1, steps + 1)), -1)
        both = np.concatenate([driving[:, :, :: finest // steps], rest], 1)
        grid = t[:: finest // steps]
        return integrate(problem, method, alpha, grid, 1 / steps, np.ones((count, 1)), both, keep=False)

    exact, counts = last(finest), (8, 16, 32, 64)
    errors = [np.sqrt(np.mean((last(steps) - exact) ** 2)) for steps in counts]
    assert -np.polyfit(np.log(counts), np.log(errors), 1)[0] > alpha + index - 1 - 0.15


@pytest.mark.usefixtures("rounding_as_on_arm")
@pytest.mark.parametrize(
    "process", [noise.FractionalBrownian(0.7), noise.StableLevy(1.5)], ids=["fractional", "stable"]
)
def test_paths_do_not_depend_on_how_many_there_are(process: noise.Noise) -> None:
    """Up to rounding, in pairs too; fractional noise is that of the ordinary equation with the same seed."""
    options: dict[str, Any] = {"step": 0.1, "alpha": 0.7, "noise": process, "rng": 4}
    for pairs in (False, True):
        whole = hf.solve_fsde(lambda t, y: -y, 1.0, (0, 1), [1.0, 2.0], paths=12, antithetic=pairs, **options)
        part = hf.solve_fsde(
            lambda t, y: -y, 1.0, (0, 1), [1.0, 2.0], paths=4, first_path=6, antithetic=pairs, **options
        )
        np.testing.assert_allclose(part.y, whole.y[6:10], rtol=0.0, atol=1e-13)
        np.testing.assert_allclose(part.noise, whole.noise[6:10], rtol=0.0, atol=1e-13)
    if isinstance(process, noise.FractionalBrownian):
        plain = hf.solve_fsde(
            lambda t, y: -y, 1.0, (0, 1), [1.0, 2.0], paths=12, antithetic=True, **{**options, "alpha": 1.0}
        )
        np.testing.assert_array_equal(whole.noise, plain.noise)


def test_torch_paths_and_derivatives() -> None:
    """The paths of NumPy; in the order and in H against differences."""
    torch = pytest.importorskip("torch")

    def total(alpha: Any, index: Any) -> Any:
        start = torch.zeros(1, dtype=torch.float64)
        process = noise.FractionalBrownian(index)
        given: dict[str, Any] = {"step": 0.1, "paths": 3, "rng": 1, "alpha": alpha, "noise": process}
        return hf.solve_fsde(lambda t, y: -y, 1.0, (0, 1), start, **given).y.sum()

    plain = forced(0.6, noise.FractionalBrownian(0.7), 1.0, step=0.1, paths=3).y.sum()
    assert float(total(0.6, 0.7)) == pytest.approx(plain, rel=1e-12)
    alpha, index = (torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (0.6, 0.7))
    slopes = torch.autograd.grad(total(alpha, index), [alpha, index])
    differences = [
        float(total(0.6 + 1e-5, 0.7) - total(0.6 - 1e-5, 0.7)) / 2e-5,
        float(total(0.6, 0.7 + 1e-5) - total(0.6, 0.7 - 1e-5)) / 2e-5,
    ]
    np.testing.assert_allclose([float(slope) for slope in slopes], differences, rtol=1e-6)


@pytest.mark.slow
def test_jax_paths_and_a_traced_index() -> None:
    """The paths of NumPy, the derivative in H, and nan where the integral does not exist."""
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):

        def total(index: Any) -> Any:
            process = noise.FractionalBrownian(index)
            given: dict[str, Any] = {"step": 0.25, "paths": 2, "rng": 1, "alpha": 0.6, "noise": process}
            return hf.solve_fsde(lambda t, y: -y, 1.0, (0, 1), jax.numpy.zeros(1), **given).y.sum()

        plain = forced(0.6, noise.FractionalBrownian(0.7), 1.0, step=0.25, paths=2).y.sum()
        assert float(total(0.7)) == pytest.approx(plain, rel=1e-10)
        slope = jax.jit(jax.grad(total))
        difference = float(total(0.7 + 1e-5) - total(0.7 - 1e-5)) / 2e-5
        assert float(slope(0.7)) == pytest.approx(difference, rel=1e-5)
        assert math.isnan(float(jax.jit(total)(0.35)))


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"alpha": 0.3, "noise": noise.FractionalBrownian(0.7)}, "above 1 - H, 0.3"),
        ({"alpha": 0.7, "noise": noise.FractionalBrownian(0.2)}, "above 1 - H, 0.8"),
        ({"alpha": 0.3, "noise": noise.StableLevy(1.5)}, "above 0.333333"),
        ({"alpha": 0.0, "noise": noise.StableLevy(0.5)}, "above 0,"),
        ({"alpha": 0.7, "noise": noise.FractionalBrownian(0.7), "diffusion": lambda t, y: y}, "known to converge"),
        (
            {"alpha": 0.7, "noise": noise.StableLevy(1.5), "diffusion": lambda t, y: y, "interpretation": "ito"},
            "multiplicative noise with jumps",
        ),
        ({"alpha": 0.7, "noise": noise.FractionalBrownian(0.7), "method": "milstein"}, "'implicit_euler'"),
    ],
    ids=["order", "rough", "stable", "zero", "multiplicative", "jumps", "method"],
)
def test_refuses(bad: dict[str, Any], words: str) -> None:
    """Integrals that do not exist, and schemes that are not known to converge, with the reason."""
    given = {"drift": lambda t, y: -y, "diffusion": 1.0, "t_span": (0, 1), "y0": 1.0, "step": 0.1, "rng": 1, **bad}
    with pytest.raises(InvalidInputError) as caught:
        hf.solve_fsde(**given)
    assert words in str(caught.value)


def test_explains() -> None:
    """Its order, and why the others are not taken."""
    found = hf.explain(
        hf.solve_fsde, lambda t, y: -y, 1.0, (0, 1), 1.0, step=0.1, alpha=0.7, noise=noise.FractionalBrownian(0.7)
    )
    assert found.method == "euler" and found.order.startswith("alpha + H - 1") and not found.refused


def covariance(s: float, t: float, alpha: float, index: float) -> float:
    """E S_s S_t of the integral of the kernel, s <= t: incomplete beta functions."""
    p, gap = alpha + 2 * index - 1, t - s
    scale = index * math.gamma(2 * index) / (math.gamma(alpha) * math.gamma(p))
    if not gap:
        return float(scale * s ** (alpha + p - 1) / (alpha + index - 1))
    one = s**alpha * gap ** (p - 1) / alpha * special.hyp2f1(1 - p, alpha, alpha + 1, -s / gap)
    two = s**p * gap ** (alpha - 1) / p * special.hyp2f1(1 - alpha, p, p + 1, -s / gap)
    return float(scale * (one + two))


@pytest.mark.parametrize(("alpha", "index"), [(0.75, 0.7), (0.8, 0.35)])
def test_joint_law_of_noise_and_integrals(alpha: float, index: float) -> None:
    """Their covariances are the closed form to rounding, and those of means over a grid 256 times as fine."""
    steps, parts = 4, 256
    own, other = joint_weights(NUMPY, alpha, index, steps, 1.0)
    later = np.arange(1.0, steps * parts + 1) ** alpha / math.gamma(alpha + 1)
    means = np.append(later[0], np.diff(later))
    gain = own + np.tril(linalg.toeplitz(means[:steps]), -1)
    noises = linalg.toeplitz(autocovariance(index, steps)[:-1])
    found = gain @ noises @ gain.T + other @ other.T
    exact = [[covariance(min(i, j), max(i, j), alpha, index) for j in range(1, 5)] for i in range(1, 5)]
    np.testing.assert_allclose(found, exact, rtol=1e-11)
    # The same without any formula of ours: kernel means times increments, both of the fine grid.
    fine = linalg.toeplitz(autocovariance(index, steps * parts)[:-1]) / parts ** (2 * index)
    kernel = np.tril(linalg.toeplitz(means))[parts - 1 :: parts] * parts ** (1 - alpha)
    sums = np.kron(np.eye(steps), np.ones(parts))
    np.testing.assert_allclose(gain @ noises, kernel @ fine @ sums.T, atol=5e-3)
    apart = ~np.eye(steps, dtype=bool)
    np.testing.assert_allclose(found[apart], (kernel @ fine @ kernel.T)[apart], atol=5e-3)


def test_neighbouring_times_have_their_covariance() -> None:
    """At the first steps, where numbers of the newest step alone are off by 0.02, within 4 standard errors."""
    alpha, index = 0.8, 0.3
    found = forced(alpha, noise.FractionalBrownian(index), step=1 / 8, paths=40_000)
    for i, j in [(1, 1), (1, 2), (1, 3), (2, 3), (3, 4), (7, 8), (1, 8)]:
        exact = covariance(i / 8, j / 8, alpha, index)
        assert abs(mean_error(found.y[:, 0, i] * found.y[:, 0, j], exact)) < 4

"""Stable motion between known values: refined paths have the law of the process."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, stats

from hpfracc import noise
from hpfracc.errors import InvalidInputError
from hpfracc.solvers.sde.noise.stable import standard_density
from tests.helpers.thinned import thinned


@pytest.mark.parametrize(("alpha", "parts"), [(0.7, 2), (1.0, 3), (1.5, 2), (1.8, 4)])
@thinned(one_in=2)
def test_refined_paths_have_independent_stable_increments(alpha: float, parts: int) -> None:
    """Of both levels together: Kolmogorov-Smirnov, and no dependence of neighbours' sizes and signs."""
    process = noise.StableLevy(alpha, scale=1.4)
    t = np.array([0.0, 0.5, 2.0])
    coarse = process.sample(t, 2000, rng=1)
    times, fine = process.refine(coarse, t, parts, rng=2)
    np.testing.assert_array_equal(fine[:, ::parts], coarse)
    steps = np.diff(fine) / (1.4 * np.diff(times) ** (1.0 / alpha))
    expected = noise.StableLevy(alpha).sample([1.0], 10_000, rng=3)[:, 0]
    for column in steps.T:
        test = stats.kstest(column, stats.cauchy.cdf) if alpha == 1.0 else stats.ks_2samp(column, expected)
        assert test.pvalue > 1e-3
    for one, two in zip(steps.T[:-1], steps.T[1:], strict=True):
        for kind in (np.sign, np.arctan, lambda x: np.arctan(np.abs(x))):
            assert abs(stats.pearsonr(kind(one), kind(two)).statistic) < 4 / math.sqrt(2000)


def test_a_jump_falls_into_one_part() -> None:
    """With equal probability into each."""
    _, fine = noise.StableLevy(1.2).refine(np.tile([0.0, 1e9], (900, 1)), [0.0, 1.0], 3, rng=4)
    steps = np.diff(fine)
    assert np.all(np.sort(np.abs(steps))[:, 1] < 1e8)
    share = np.bincount(np.argmax(steps, axis=1), minlength=3) / 900
    assert np.all(np.abs(share - 1 / 3) < 4 * math.sqrt(2 / 9 / 900))


def test_paths_do_not_depend_on_the_batch() -> None:
    """Alone and with others."""
    process = noise.StableLevy(1.5)
    t = np.linspace(0.0, 1.0, 5)
    coarse = process.sample(t, 30, rng=5)
    _, fine = process.refine(coarse, t, 4, rng=6)
    np.testing.assert_array_equal(process.refine(coarse[20:], t, 4, rng=6, first_path=20)[1], fine[20:])


def test_brownian_index() -> None:
    """At index 2 the variance given both ends is that of a Brownian bridge with variance 2 t."""
    _, fine = noise.StableLevy(2.0).refine(np.zeros((4000, 2)), [0.0, 1.0], 2, rng=7)
    assert np.mean(fine[:, 1] ** 2) == pytest.approx(0.5, abs=4 * 0.5 * math.sqrt(2 / 4000))


def test_refusals() -> None:
    """With the reason."""
    for process, words in (
        (noise.StableLevy(1.5, 0.3), "symmetric"),
        (noise.StableLevy(0.2), "alpha=0.2"),
        (noise.TemperedStable(0.7, 1.0), "no bridge"),
        (noise.InverseSubordinator(0.7), "no bridge"),
        (noise.Subordinated(noise.Brownian(), 0.7), "clock cannot be inferred"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            process.refine([0.0, 1.0], [0.0, 1.0], 2, rng=1)
    with pytest.raises(InvalidInputError, match="factor=2000"):
        noise.StableLevy(1.5).refine([0.0, 1.0], [0.0, 1.0], 2000, rng=1)


@pytest.mark.parametrize(
    ("alpha", "x", "exact"),
    [
        # mpmath, 30 digits.
        (0.5, 0.0, 2.0 / math.pi),
        (1.5, 0.0, math.gamma(1 / 1.5) / (1.5 * math.pi)),
        (1.5, 1.0, 0.2020381596078401),
        (1.5, 5.0, 0.0071117360476548),
        (1.0, 3.0, 1.0 / (10.0 * math.pi)),
        (2.0, 1.0, math.exp(-0.25) / math.sqrt(4.0 * math.pi)),
    ],
)
def test_density(alpha: float, x: float, exact: float) -> None:
    """Against closed forms, and the fundamental solution of the fractional diffusion equation."""
    assert standard_density(alpha, np.array([x, -x])) == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("alpha", [0.3, 0.7, 1.2, 1.9])
def test_density_is_one_in_all_and_continuous(alpha: float) -> None:
    """The integral is 1 with the tail of the series; table and series agree where they meet."""
    y = np.linspace(-30.0, 60.0, 20_001)
    total = 2.0 * integrate.trapezoid(standard_density(alpha, np.exp(y)) * np.exp(y), y)
    assert total == pytest.approx(1.0, abs=2e-6)
    near, far = standard_density(alpha, np.array([60.0 * (1 - 1e-12), 60.0]))
    assert near == pytest.approx(far, rel=1e-9)

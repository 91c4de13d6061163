"""Random walks in continuous time: their laws, the same paths in any batch, and walls."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import special, stats

import hpfracc as hf
from hpfracc import noise, transport
from hpfracc.errors import InvalidInputError
from hpfracc.solvers.sde.noise.source import make_source
from hpfracc.solvers.sde.transport.laws import Draw
from tests.helpers.law import mean_error
from tests.helpers.thinned import thinned

COUNT = 20_000
GAUSSIAN = transport.GaussianJumps(math.sqrt(2.0))


def _mittag_leffler_cdf(t: np.ndarray) -> np.ndarray:
    return 1.0 - hf.mittag_leffler(-((t / 2.0) ** 0.6), 0.6)


@pytest.mark.parametrize(
    ("law", "cdf"),
    [
        (transport.ExponentialWaiting(2.0), stats.expon(scale=2.0).cdf),
        (transport.ParetoWaiting(0.7, 3.0), stats.pareto(0.7, scale=3.0).cdf),
        (transport.MittagLefflerWaiting(0.6, 2.0), _mittag_leffler_cdf),
        (transport.MittagLefflerWaiting(1.0, 2.0), stats.expon(scale=2.0).cdf),
        # E exp(-s T) = exp(-sqrt(tau s)) is Levy's law of scale tau / 2.
        (transport.StableWaiting(0.5, 3.0), stats.levy(scale=1.5).cdf),
        (transport.GaussianJumps(1.5), stats.norm(scale=1.5).cdf),
        (transport.StableJumps(1.0, scale=2.0), stats.cauchy(scale=2.0).cdf),
        (transport.StableJumps(2.0, scale=2.0), stats.norm(scale=math.sqrt(8.0)).cdf),
        (transport.StableJumps(0.5, 1.0), stats.levy().cdf),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, transport.WaitingTimes | transport.Jumps) else "",
)
def test_laws(law: transport.WaitingTimes, cdf: Callable[[np.ndarray], np.ndarray]) -> None:
    """Kolmogorov-Smirnov against closed forms of other libraries."""
    values = law._draw(Draw(make_source(1, None), np.arange(COUNT // 4), 4, 0)).ravel()
    assert stats.kstest(values, cdf).pvalue > 1e-3


def test_skewed_jumps_are_steps_of_the_process() -> None:
    """At index 1 a skewed law drifts with its scale: the same law as a step of the motion."""
    jumps = transport.StableJumps(1.0, 0.6, 0.25)
    found = jumps._draw(Draw(make_source(1, None), np.arange(4000), 1, 0))[:, 0]
    steps = noise.StableLevy(1.0, 0.6).sample([0.25], 4000, rng=2)[:, 0]
    assert stats.ks_2samp(found, steps).pvalue > 1e-3


@pytest.mark.parametrize("alpha", [0.6, 1.0])
def test_mean_squared_displacement(alpha: float) -> None:
    """2 t^alpha / Gamma(1 + alpha) with Mittag-Leffler waiting times, at early and late times."""
    walk = transport.ContinuousTimeRandomWalk(transport.MittagLefflerWaiting(alpha), GAUSSIAN)
    t = np.array([0.01, 0.5, 7.0, 20.0])
    paths = walk.sample(t, COUNT, rng=3)
    for column, time in zip(paths.T, t, strict=True):
        exact = 2.0 * time**alpha / special.gamma(1.0 + alpha)
        assert abs(mean_error(column**2, exact)) < 4
        assert np.isclose(walk.covariance(time, 50.0), exact)


def test_late_walks_with_pareto_waiting_times() -> None:
    """The mean number of jumps grows like t^alpha / (Gamma(1 - alpha) Gamma(1 + alpha)); the covariance is refused."""
    walk = transport.ContinuousTimeRandomWalk(transport.ParetoWaiting(0.5), transport.GaussianJumps())
    paths = walk.sample([1e5], 3000, rng=4)[:, 0]
    assert abs(mean_error(paths**2, math.sqrt(1e5) / (math.gamma(0.5) * math.gamma(1.5)))) < 4
    with pytest.raises(InvalidInputError, match="no closed form"):
        walk.covariance(1.0, 1.0)


def test_law_of_the_poisson_walk() -> None:
    """The share that has not moved is exp(-t); displacements are a mixture of normal laws."""
    walk = transport.ContinuousTimeRandomWalk(transport.ExponentialWaiting(), transport.GaussianJumps())
    paths = walk.sample([0.7, 2.0], COUNT, rng=5)
    for column, time in zip(paths.T, (0.7, 2.0), strict=True):
        assert abs(mean_error((column == 0.0).astype(float), math.exp(-time))) < 4
        for u in (0.5, 2.0):
            exact = math.exp(time * (math.exp(-0.5 * u * u) - 1.0))
            assert abs(mean_error(np.cos(u * column), exact)) < 4


def test_limit_is_the_fractional_diffusion_equation() -> None:
    """Averages of cos(k x) of a walk with short waits are E_alpha(-k^2 t^alpha), the modes of the equation."""
    alpha, tau = 0.5, 1e-4
    walk = transport.ContinuousTimeRandomWalk(
        transport.MittagLefflerWaiting(alpha, tau), transport.GaussianJumps(math.sqrt(2.0 * tau**alpha))
    )
    paths = walk.sample([1.0], 5000, rng=6)[:, 0]
    for k in (1.0, 2.0):
        # Exact for the walk itself: N jumps have E z^N = E_alpha(-(1 - z) (t / tau)^alpha).
        rate = -math.expm1(-(tau**alpha) * k * k) / tau**alpha
        assert abs(mean_error(np.cos(k * paths), float(hf.mittag_leffler(-rate, alpha)))) < 4
        assert abs(hf.mittag_leffler(-rate, alpha) - hf.mittag_leffler(-k * k, alpha)) < 0.01


@pytest.mark.parametrize(("x", "exact"), [(1.0, 0.1916677082853418), (2.0, 0.0806255417272929)])
def test_fundamental_solution(x: float, exact: float) -> None:
    """Normal densities averaged over the clock solve D^0.5 p = p_xx."""
    clock = noise.InverseSubordinator(0.5).sample([1.0], COUNT, rng=7)[:, 0]
    density = np.exp(-(x**2) / (4.0 * clock)) / np.sqrt(4.0 * math.pi * clock)
    assert abs(mean_error(density, exact)) < 4


def _walks() -> dict[str, transport.ContinuousTimeRandomWalk]:
    make = transport.ContinuousTimeRandomWalk
    walls = {"domain": (-1.0, 2.0), "start": 0.25}
    return {
        "pareto": make(transport.ParetoWaiting(0.7, 0.01), transport.GaussianJumps()),
        "flight": make(transport.FixedWaiting(0.05), transport.StableJumps(1.3)),
        "stable": make(transport.StableWaiting(0.6, 0.02), transport.StableJumps(1.5, 0.4)),
        **{
            boundary: make(transport.ExponentialWaiting(0.02), transport.StableJumps(1.3), boundary=boundary, **walls)
            for boundary in ("absorb", "mirror", "stop", "reject")
        },
    }


@pytest.mark.parametrize("name", list(_walks()))
@thinned(one_in=2)
def test_paths_do_not_depend_on_the_batch(name: str) -> None:
    """Nor on the times at which they are looked at; with and without Numba."""
    walk = _walks()[name]
    t = np.linspace(0.0, 3.0, 61)
    paths = walk.sample(t, 2100, rng=8)
    np.testing.assert_array_equal(walk.sample(t, 5, rng=8, first_path=2040), paths[2040:2045])
    np.testing.assert_array_equal(walk.sample(t[::20], 7, rng=8), paths[:7, ::20])
    np.testing.assert_array_equal(walk.sample([3.0], (2, 3), rng=8), paths[:6, -1].reshape(2, 3, 1))
    for backend in ("numpy", "numba"):
        with hf.use_backend(backend):
            np.testing.assert_array_equal(walk.sample(t, 20, rng=8), paths[:20])


def test_flights_jump_at_multiples_of_their_step() -> None:
    """Also where sums of the step are rounded: 0.1 + 0.1 + 0.1 > 0.3."""
    walk = transport.ContinuousTimeRandomWalk(transport.FixedWaiting(0.1), transport.GaussianJumps())
    paths = walk.sample(np.arange(31) / 10, 50, rng=9)
    assert np.all(np.diff(paths) != 0.0)
    assert np.all(paths[:, 0] == 0.0)
    assert walk.covariance(0.3, 0.7) == 3.0


@pytest.mark.parametrize("boundary", ["mirror", "reject"])
def test_uniform_between_walls(boundary: str) -> None:
    """Mirrored and rejected jumps leave the uniform law alone."""
    walk = transport.ContinuousTimeRandomWalk(
        transport.ExponentialWaiting(), transport.StableJumps(1.2), 0.5, (-1.0, 2.0), boundary
    )
    places = walk.sample([60.0], 5000, rng=10)[:, 0]
    assert stats.kstest(places, stats.uniform(-1.0, 3.0).cdf).pvalue > 1e-3


def test_stopped_flights_gather_at_the_walls() -> None:
    """Beta(alpha/2, alpha/2) in the limit of small steps (Denisov, Horsthemke, Haenggi, 2008)."""
    alpha, step = 1.0, 4e-3
    walk = transport.ContinuousTimeRandomWalk(
        transport.FixedWaiting(step), transport.StableJumps(alpha, scale=step ** (1 / alpha)), 0.0, (-1.0, 1.0), "stop"
    )
    places = walk.sample([3.0], 2000, rng=11)[:, 0]
    for x in (-0.8, -0.3, 0.1, 0.7):
        exact = special.betainc(0.5 * alpha, 0.5 * alpha, 0.5 * (1 + x))
        assert abs(np.mean(places < x) - exact) < 4 * 0.5 / math.sqrt(2000)


def test_one_wall() -> None:
    """A mirror at 0 makes |x| of a symmetric walk, at either end of a half-line; nothing crosses a wall."""
    free = transport.ContinuousTimeRandomWalk(transport.ExponentialWaiting(), transport.GaussianJumps(), 1e-9)
    right = transport.ContinuousTimeRandomWalk(free.waiting, free.jumps, 1e-9, (0.0, math.inf), "mirror")
    left = transport.ContinuousTimeRandomWalk(free.waiting, free.jumps, -1e-9, (-math.inf, 0.0), "mirror")
    expected = np.abs(free.sample([5.0], 4000, rng=12)[:, 0])
    assert stats.ks_2samp(expected, right.sample([5.0], 4000, rng=13)[:, 0]).pvalue > 1e-3
    assert stats.ks_2samp(-expected, left.sample([5.0], 4000, rng=14)[:, 0]).pvalue > 1e-3


def test_absorbed_walks_are_over() -> None:
    """Values are nan from the passage on, at the time that first_passage tells."""
    walk = transport.ContinuousTimeRandomWalk(
        transport.ExponentialWaiting(0.1), transport.GaussianJumps(0.3), 0.2, (0.0, 1.0), "absorb"
    )
    t = np.linspace(0.0, 2.0, 81)
    paths = walk.sample(t, 300, rng=15)
    free = transport.ContinuousTimeRandomWalk(walk.waiting, walk.jumps, 0.2)
    left = transport.first_passage(free, (0.0, 1.0), paths=300, rng=15)
    np.testing.assert_array_equal(np.isnan(paths), t >= left.times[:, None])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: transport.ParetoWaiting(-0.5), "alpha=-0.5"),
        (lambda: transport.MittagLefflerWaiting(1.2), "at most 1"),
        (lambda: transport.StableWaiting(1.0), "above 0 and below 1"),
        (lambda: transport.StableJumps(2.5), "at most 2"),
        (lambda: transport.ContinuousTimeRandomWalk("pareto", GAUSSIAN), "waiting='pareto'"),
        (lambda: transport.ContinuousTimeRandomWalk(transport.FixedWaiting(), 1.0), "jumps=1.0"),
        (lambda: _boxed((0, 1), None), "belong together"),
        (lambda: _boxed((0, 1), "bounce"), "boundary='bounce'"),
        (lambda: _boxed((1, 0), "stop"), "low < high"),
        (lambda: _boxed((-math.inf, math.inf), "stop"), "no finite end"),
        (lambda: _boxed(3, "stop"), r"give \(low, high\)"),
        (lambda: _boxed((1, 2), "stop"), "inside the domain"),
    ],
)
def test_refusals(make: Callable[[], object], words: str) -> None:
    """Typed, with the value."""
    with pytest.raises(InvalidInputError, match=words):
        make()


def _boxed(domain: object, boundary: object) -> transport.ContinuousTimeRandomWalk:
    return transport.ContinuousTimeRandomWalk(transport.FixedWaiting(), GAUSSIAN, 0.5, domain, boundary)  # type: ignore[arg-type]


def test_two_dimensions():
    """Isotropic jumps: the mean squared displacement has as many parts, and paths are keyed as on a line."""
    walk = transport.ContinuousTimeRandomWalk(
        transport.MittagLefflerWaiting(0.7), transport.GaussianJumps(0.5), start=(0.0, 1.0)
    )
    t = np.linspace(0.0, 20.0, 6)
    paths = walk.sample(t, 2000, rng=1)
    assert paths.shape == (2000, 2, 6) and np.all(paths[:, :, 0] == [0.0, 1.0])
    found = transport.msd(paths, t)
    exact = 2.0 * 0.25 * t[1:] ** 0.7 / math.gamma(1.7)
    assert np.all(np.abs(found.value - exact) < 4.0 * found.standard_error)
    np.testing.assert_array_equal(walk.sample(t, 3, rng=1, first_path=7), paths[7:10])
    assert walk.covariance(1.0, 2.0) == pytest.approx(0.25 / math.gamma(1.7))


def test_stable_jumps_in_two_dimensions():
    """The characteristic function of isotropic stable jumps is the same in all directions."""
    walk = transport.ContinuousTimeRandomWalk(
        transport.FixedWaiting(1.0), transport.StableJumps(1.3, scale=0.7), start=(0.0, 0.0)
    )
    ends = walk.sample([0.0, 3.0], 20_000, rng=2)[:, :, 1]
    for direction in ((1.0, 0.0), (0.6, 0.8)):
        waves = np.cos(ends @ direction)
        assert abs(waves.mean() - math.exp(-3.0 * 0.7**1.3)) < 4.0 * waves.std() / math.sqrt(20_000)
    for start, jumps, options in (
        ((0.0, 0.0), transport.StableJumps(1.3, 0.5), {}),
        ((0.0, 0.0), transport.TemperedJumps(0.5, 1.0), {}),
        ((0.0, 0.0), transport.GaussianJumps(), {"domain": (-1.0, 1.0), "boundary": "stop"}),
    ):
        with pytest.raises(InvalidInputError, match="isotropic|several"):
            transport.ContinuousTimeRandomWalk(transport.FixedWaiting(1.0), jumps, start, **options).sample([0.0, 2.0])
    with pytest.raises(InvalidInputError, match="several components"):
        transport.first_passage(walk, (-1.0, 1.0), until=1.0)

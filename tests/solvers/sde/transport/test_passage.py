"""First passage against closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special, stats

from hpfracc import noise, transport
from hpfracc.errors import HpfraccError, InvalidInputError
from hpfracc.solvers.sde.transport.domains import exit_quantile
from tests.helpers.interrupts import part_of

COUNT = 20_000


def off(found: transport.PassageEstimate, exact: float) -> float:
    """By how many standard errors."""
    return abs(found.value - exact) / found.standard_error


@pytest.mark.parametrize("alpha", [0.5, 1.0, 1.5, 1.9])
@pytest.mark.parametrize("start", [0.5, -0.9])
def test_stable_motion_leaves_an_interval(alpha: float, start: float) -> None:
    """Mean time by Getoor's formula, and the end by the law of Blumenthal, Getoor and Ray; no steps, no bias."""
    scale = 1.7
    left = transport.first_passage(noise.StableLevy(alpha, scale=scale), (-1, 1), start=start, paths=COUNT, rng=1)
    assert left.method == "spheres"
    assert off(left.mean(), (1 - start**2) ** (alpha / 2) / math.gamma(1 + alpha) / scale**alpha) < 4
    assert off(left.exit_probability("right"), special.betainc(alpha / 2, alpha / 2, (1 + start) / 2)) < 4
    assert not np.any(np.abs(left.places) < 1.0)


def test_where_stable_motion_lands() -> None:
    """From the middle at 1 / sqrt(B), B of the law Beta; from elsewhere by the law of Blumenthal, Getoor and Ray."""
    alpha, start = 1.2, 0.4
    left = transport.first_passage(noise.StableLevy(alpha), (-1, 1), start=start, paths=COUNT, rng=2)

    def density(y: np.ndarray) -> np.ndarray:
        """At 1 + y."""
        return np.asarray(factor * ((1 - start**2) / (y * (y + 2))) ** (alpha / 2) / (1 + y - start))

    # P(1 < Y < 2), with the singularity at 1 taken out by y = s^5.
    factor = math.sin(math.pi * alpha / 2) / math.pi
    s = (np.arange(4000) + 0.5) / 4000
    exact = np.mean(density(s**5) * 5 * s**4)
    share = np.mean((left.places > 1) & (left.places < 2))
    assert abs(share - exact) < 4 * 0.5 / math.sqrt(COUNT)


def test_half_line_of_stable_motion() -> None:
    """Places only: Y of a half-line has the density sin(pi a/2) / pi (x/y)^(a/2) / (x + y) below it."""
    left = transport.first_passage(noise.StableLevy(1.0), (0, math.inf), start=2.0, paths=COUNT, rng=3)
    # At alpha = 1, with y = x tan^2(phi): phi is uniform on (0, pi/2).
    angle = np.arctan(np.sqrt(-left.places / 2.0))
    assert stats.kstest(angle, stats.uniform(0, math.pi / 2).cdf).pvalue > 1e-3
    with pytest.raises(InvalidInputError, match="infinite"):
        left.mean()


def test_brownian_motion() -> None:
    """Mean, end and Laplace transform of the exit time of an interval; the law of the half-line."""
    left = transport.first_passage(noise.Brownian(), (-1, 2), start=-0.2, paths=COUNT, rng=4)
    assert off(left.mean(), 0.8 * 2.2) < 4
    assert off(left.exit_probability("right"), 0.8 / 3) < 4
    values = np.exp(-left.times)
    exact = math.cosh(0.7 * math.sqrt(2)) / math.cosh(1.5 * math.sqrt(2))
    assert abs(values.mean() - exact) < 4 * values.std() / math.sqrt(COUNT)
    half = transport.first_passage(noise.StableLevy(2.0, scale=0.5), (-math.inf, 1.0), paths=COUNT, rng=5)
    # Variance t / 2: tau is Levy's law with scale 2.
    assert stats.kstest(half.times, stats.levy(scale=2.0).cdf).pvalue > 1e-3
    assert np.all(half.places == 1.0)


def test_subordinated_brownian_motion() -> None:
    """Survival is 1 less the time-fractional heat equation on the half-line, which is 0.4214253280337984."""
    slow = noise.Subordinated(noise.StableLevy(2.0), 0.5)
    left = transport.first_passage(slow, (0, math.inf), start=1.0, paths=5 * COUNT, rng=6)
    assert off(left.survival(1.0), 1 - 0.4214253280337984) < 4
    # On an interval, E_a(-(pi k / L)^2 t^a) for the modes of the start.
    between = transport.first_passage(slow, (0.0, 2.0), start=0.7, paths=COUNT, until=5.0, rng=7)
    k = np.arange(1, 400, 2)
    for t in (0.1, 1.0, 5.0):
        # erfcx is E_{1/2}(-x).
        modes = special.erfcx((math.pi * k / 2) ** 2 * math.sqrt(t)) * np.sin(math.pi * k * 0.7 / 2) * 4 / (math.pi * k)
        assert off(between.survival(t), float(modes.sum())) < 4
    with pytest.raises(InvalidInputError, match="infinite"):
        between.mean()


@pytest.mark.parametrize("alpha", [0.8, 1.5])
def test_sparre_andersen(alpha: float) -> None:
    """A symmetric flight from the end survives n steps with probability C(2n, n) / 4^n, whatever its jumps."""
    left = transport.first_passage(
        noise.StableLevy(alpha), (0, math.inf), start=1e-300, step=1.0, until=256, paths=COUNT, rng=8
    )
    n = np.array([1, 4, 16, 64, 256])
    exact = np.exp(special.gammaln(2 * n + 1) - 2 * special.gammaln(n + 1) - 2 * n * math.log(2))
    value, error = left.survival(n)
    assert np.all(np.abs(value - exact) < 4 * error)
    # The law itself is -0.493 between 20 and 256.
    assert off(left.tail_exponent(20.0), 0.495) < 4
    assert left.method == "steps"


def test_steps_of_stable_motion() -> None:
    """The same in law as walks on spheres, for small steps; skewed motion too, in steps only."""
    inside = {"start": 0.3, "paths": 2000}
    stepped = transport.first_passage(noise.StableLevy(1.2), (-1, 1), step=0.01, rng=9, **inside)
    assert off(stepped.mean(), (1 - 0.09) ** 0.6 / math.gamma(2.2)) < 5
    skewed = transport.first_passage(noise.StableLevy(0.5, 1.0), (0, 1), step=2e-3, rng=10, start=1e-9, paths=2000)
    # A subordinator passes 1 at E_1, whose mean is 1 / Gamma(1 + alpha), in S1 of scale |cos(pi a / 2)|^(1/a).
    assert off(skewed.mean(), math.cos(math.pi / 4) / math.gamma(1.5)) < 4
    assert np.all(skewed.places >= 1.0)


def test_subordinated_stable_motion_in_steps() -> None:
    """In short steps of the parent, survival is an average of that of the parent over the clock."""
    slow = noise.Subordinated(noise.StableLevy(1.5), 0.7)
    left = transport.first_passage(slow, (-1, 1), step=0.02, until=2.0, paths=2000, rng=11)
    parent = transport.first_passage(noise.StableLevy(1.5), (-1, 1), step=0.02, paths=2000, rng=12)
    clock = noise.InverseSubordinator(0.7).sample([2.0], 2000, rng=13)[:, 0]
    expected = np.mean(parent.times > np.ceil(clock / 0.02) * 0.02 - 0.02 + 1e-9)
    assert abs(left.survival(2.0).value - expected) < 5 * 0.7 / math.sqrt(2000)


def test_tempered_motion_above_one() -> None:
    """Wald's identities of the steps: E X = start, and E (X - start)^2 is the variance of a step times their number."""
    motion, step = noise.TemperedStable(1.5, 1.0), 0.05
    left = transport.first_passage(motion, (-1, 1), start=0.2, step=step, paths=2000, rng=22)
    assert left.method == "steps"
    moved = left.places - 0.2
    assert abs(moved.mean()) < 4 * moved.std() / math.sqrt(2000)
    # 1.5 * 0.5 a unit of time.
    excess = moved**2 - 0.75 * left.times
    assert abs(excess.mean()) < 4 * excess.std() / math.sqrt(2000)
    jumps = transport.TemperedJumps(1.5, 1.0, step ** (1 / 1.5))
    assert jumps.variance == pytest.approx(0.75 * step) and jumps.mean == 0.0


def test_tempered_motion_below_one_passes_a_level() -> None:
    """A rising motion: its mean passage time in steps is the renewal function, by a Laplace transform inverted."""
    mpmath = pytest.importorskip("mpmath")
    step, level = 0.1, 1.0
    left = transport.first_passage(noise.TemperedStable(0.6, 1.5), (-math.inf, level), step=step, paths=4000, rng=23)

    def transform(s: float) -> float:
        exponent = (s + 1.5) ** mpmath.mpf("0.6") - mpmath.mpf("1.5") ** mpmath.mpf("0.6")
        return step / (s * (1 - mpmath.exp(-step * exponent)))

    assert off(left.mean(), float(mpmath.invertlaplace(transform, level, method="talbot"))) < 4
    mean = 0.6 * 1.5**-0.4
    assert transport.TemperedJumps(0.6, 1.5).mean == pytest.approx(mean)
    excess = left.places - mean * left.times
    assert abs(excess.mean()) < 4 * excess.std() / math.sqrt(4000)
    # On the clock of subdiffusion, in the same steps of its own time.
    slow = noise.Subordinated(noise.TemperedStable(0.6, 1.5), 0.7)
    late = transport.first_passage(slow, (-math.inf, level), step=step, paths=2000, rng=24)
    assert late.infinite_mean
    value, error = late.survival(1.0)
    clock = noise.InverseSubordinator(0.7).sample([1.0], 4000, rng=25)[:, 0]
    expected = np.mean(left.times > np.floor(clock / step) * step + 1e-9)
    assert abs(value - expected) < 5 * error


def test_progress_and_interrupts(capsys: pytest.CaptureFixture[str]) -> None:
    """Reports of the share inside, or of the mean time; Ctrl-C keeps the paths that were followed, to the bit."""
    seen: list[tuple[int, int, float, float]] = []
    walk = transport.ContinuousTimeRandomWalk(transport.ExponentialWaiting(), transport.GaussianJumps())
    whole = transport.first_passage(
        walk, (-3, 3), paths=1000, until=2.0, rng=26, progress=lambda *told: seen.append(told)
    )
    assert len(seen) == 20 and seen[-1][:2] == (1000, 1000)
    share = whole.survival(2.0).value
    assert seen[-1][2] == pytest.approx(share)
    assert seen[-1][3] == pytest.approx(math.sqrt(share * (1 - share) / 999))
    transport.first_passage(noise.Brownian(), (-1, 1), paths=100, rng=1, progress=lambda *told: seen.append(told))
    assert seen[-1][2] == pytest.approx(
        transport.first_passage(noise.Brownian(), (-1, 1), paths=100, rng=1).mean().value
    )
    transport.first_passage(noise.Brownian(), (-1, 1), paths=100, rng=1, progress=True)
    assert capsys.readouterr().out == ""

    def stop(done: int, *_: float) -> None:
        if done >= 300:
            raise KeyboardInterrupt

    some = part_of(lambda: transport.first_passage(walk, (-3, 3), paths=1000, until=2.0, rng=26, progress=stop))
    assert not some.success and 0 < some.paths < 1000 and f"after {some.paths} of 1,000" in some.message
    np.testing.assert_array_equal(some.times, whole.times[: some.paths])
    np.testing.assert_array_equal(some.places, whole.places[: some.paths])
    assert whole.success and "followed" in whole.message

    def never(*_: float) -> None:
        raise KeyboardInterrupt

    none = part_of(lambda: transport.first_passage(walk, (-3, 3), paths=10, until=2.0, progress=never))
    with pytest.raises(InvalidInputError, match="before the interrupt"):
        none.survival(1.0)


def test_generators_of_other_libraries() -> None:
    """Paths are followed on the host; times that are tensors give tensors, and tensors of paths are measured."""
    torch = pytest.importorskip("torch")
    left = transport.first_passage(noise.Brownian(), (-1, 1), paths=50, rng=torch.Generator().manual_seed(1))
    assert isinstance(left.times, np.ndarray)
    walk = transport.ContinuousTimeRandomWalk(transport.ExponentialWaiting(), transport.GaussianJumps())
    t = np.linspace(0.0, 10.0, 11)
    found = walk.sample(torch.as_tensor(t), 40, rng=2)
    assert isinstance(found, torch.Tensor)
    np.testing.assert_array_equal(found.numpy(), walk.sample(t, 40, rng=2))
    one, two = transport.msd(found.requires_grad_(), torch.as_tensor(t)), transport.msd(found.detach().numpy(), t)
    assert one.exponent == two.exponent


def test_walks() -> None:
    """A walk with exponential waits: the mean passage time is the mean number of steps of the flight."""
    walk = transport.ContinuousTimeRandomWalk(transport.ExponentialWaiting(0.5), transport.StableJumps(1.0))
    flight = transport.ContinuousTimeRandomWalk(transport.FixedWaiting(0.5), walk.jumps)
    one = transport.first_passage(walk, (-3, 3), paths=COUNT, rng=14).mean()
    two = transport.first_passage(flight, (-3, 3), paths=COUNT, rng=15).mean()
    assert abs(one.value - two.value) < 4 * math.hypot(one.standard_error, two.standard_error)


def test_reflection_on_one_side() -> None:
    """Between a mirror at 0 and an end at 1 a walk leaves like one between -1 and 1."""
    jumps = transport.GaussianJumps(0.2)
    wall = transport.ContinuousTimeRandomWalk(
        transport.ExponentialWaiting(), jumps, 0.3, domain=(0.0, math.inf), boundary="mirror"
    )
    free = transport.ContinuousTimeRandomWalk(transport.ExponentialWaiting(), jumps, 0.3)
    one = transport.first_passage(wall, (-math.inf, 1.0), paths=COUNT // 2, rng=16)
    two = transport.first_passage(free, (-1.0, 1.0), paths=COUNT // 2, rng=17)
    assert stats.ks_2samp(one.times, two.times).pvalue > 1e-3
    assert math.isfinite(one.mean().value)


@pytest.mark.parametrize(
    ("process", "options"),
    [
        (noise.Brownian(), {}),
        (noise.Subordinated(noise.Brownian(), 0.6), {}),
        (noise.StableLevy(1.5), {}),
        (noise.StableLevy(1.5), {"step": 0.05}),
        (noise.TemperedStable(1.5, 1.0), {"step": 0.2}),
        (
            transport.ContinuousTimeRandomWalk(transport.ParetoWaiting(0.7), transport.GaussianJumps(0.1)),
            {"until": 100.0},
        ),
    ],
)
def test_paths_do_not_depend_on_the_batch(process: noise.Noise, options: dict[str, float]) -> None:
    """Times and places are the same alone and with others."""
    many = transport.first_passage(process, (-1, 1), start=0.3, paths=2200, rng=18, **options)
    few = transport.first_passage(process, (-1, 1), start=0.3, paths=9, rng=18, first_path=2100, **options)
    np.testing.assert_array_equal(few.times, many.times[2100:2109])
    np.testing.assert_array_equal(few.places, many.places[2100:2109])


def test_what_is_not_known_is_refused() -> None:
    """Means of paths that are still inside, times after the end, laws from mean times."""
    walk = transport.ContinuousTimeRandomWalk(transport.ExponentialWaiting(), transport.GaussianJumps())
    left = transport.first_passage(walk, (-3, 3), paths=100, until=2.0, rng=19)
    with pytest.raises(InvalidInputError, match="still inside at until=2"):
        left.mean()
    with pytest.raises(InvalidInputError, match="until=2, before t=3"):
        left.survival(3.0)
    assert np.isinf(left.quantile(0.99))
    assert left.survival(0.0).value == 1.0
    assert left.survival(0.0).standard_error > 0.0
    with pytest.raises(InvalidInputError, match="side='up'"):
        left.exit_probability("up")  # type: ignore[arg-type]
    spheres = transport.first_passage(noise.StableLevy(1.5), (-1, 1), paths=100, rng=20)
    for ask in (lambda: spheres.survival(1.0), lambda: spheres.quantile(0.5), spheres.plot):
        with pytest.raises(InvalidInputError, match="step="):
            ask()


@pytest.mark.parametrize(
    ("process", "options", "words"),
    [
        (noise.FractionalOU(0.7), {}, "first passages are available for"),
        (noise.TemperedStable(0.7, 1.0), {}, "simulated in steps: give step="),
        (noise.TemperedStable(1.5, 1.0), {"step": 0.1, "domain": (-1, math.inf)}, "give until="),
        (noise.Brownian(), {"progress": "yes"}, "progress='yes'"),
        (noise.StableLevy(1.5, 0.5), {}, "not symmetric"),
        (noise.StableLevy(1.5), {"until": 1.0}, "give step= too"),
        (noise.StableLevy(1.5), {"step": 0.1, "domain": (-1, math.inf)}, "give until="),
        (noise.Brownian(), {"step": 0.1}, "omit step"),
        (noise.Brownian(), {"start": 1.0}, "inside the domain"),
        (noise.Brownian(), {"paths": 0}, "paths=0"),
        (noise.Brownian(), {"until": -1.0}, "until=-1.0"),
    ],
)
def test_refusals(process: noise.Noise, options: dict[str, object], words: str) -> None:
    """Typed, with the remedy."""
    domain = options.pop("domain", (-1, 1))
    with pytest.raises(InvalidInputError, match=words):
        transport.first_passage(process, domain, **options)  # type: ignore[arg-type]


def test_plot() -> None:
    """The curve is the survival probability."""
    pytest.importorskip("matplotlib").use("Agg")
    left = transport.first_passage(noise.Brownian(), (0, math.inf), start=1.0, until=100.0, paths=500, rng=21)
    axes = left.plot()
    line = axes.lines[0]
    np.testing.assert_array_equal(line.get_ydata(), left.survival(line.get_xdata()).value)
    assert axes.get_xscale() == "log"
    assert left.plot(log=False).get_xscale() == "linear"
    assert "paths=500" in repr(left)


def test_fractional_motion_on_a_half_line():
    """At H = 1/2 the law is known: the error counts what happens between the steps, and coarser steps have more."""
    t = np.array([0.5, 1.0, 4.0])
    exact = special.erf(1.0 / np.sqrt(2.0 * t))
    errors = []
    for steps in (128, 1024):
        found = transport.first_passage(
            noise.FractionalBrownian(0.5), (-math.inf, 1.0), until=4.0, step=4.0 / steps, paths=3000, rng=1
        )
        value, error = found.survival(t)
        assert found.method == "grid" and np.all(np.abs(value - exact) < 3.0 * error)
        errors.append(error)
    assert np.all(errors[1] < errors[0])
    assert np.all((found.places == 1.0) | np.isnan(found.places))


@pytest.mark.parametrize("index", [0.4, 0.7])
def test_fractional_motion_persists(index):
    """The survival probability on a half-line decays like t^(H-1)."""
    found = transport.first_passage(
        noise.FractionalBrownian(index), (-math.inf, 0.1), until=100.0, step=0.1, paths=2000, rng=1
    )
    value, error = found.tail_exponent(5.0)
    assert abs(value - (1.0 - index)) < 2.5 * error < 0.6


def test_fractional_motion_leaves_an_interval():
    """Both sides alike; mean times scale like the width to the power 1/H; needs a step and an end."""
    means = []
    for width in (1.0, 2.0):
        scale = width ** (1.0 / 0.7)
        found = transport.first_passage(
            noise.FractionalBrownian(0.7), (-width, width), until=30.0 * scale, step=0.05 * scale, paths=1000, rng=1
        )
        value, error = found.exit_probability()
        assert abs(value - 0.5) < 4.0 * error
        means.append(found.mean().value)
    assert means[1] / means[0] == pytest.approx(2.0 ** (1.0 / 0.7), rel=1e-9)
    with pytest.raises(InvalidInputError, match="give step= and until="):
        transport.first_passage(noise.FractionalBrownian(0.7), (-1.0, 1.0))


def test_fractions_and_times_are_read() -> None:
    """Numbers that are no fractions, and text, are errors with their value."""
    left = transport.first_passage(noise.Brownian(), (-1.0, 1.0), paths=10, rng=1)
    for q in (1.5, -0.1, float("nan"), "median"):
        with pytest.raises(HpfraccError, match="q"):
            left.quantile(q)
    with pytest.raises(HpfraccError, match="t='late'"):
        left.survival("late")


def test_the_tail_of_times_beyond_the_largest_number() -> None:
    """At index 0.01 a third of the times overflows: they count as censored, not as a slope of 0."""
    slow = transport.first_passage(noise.Subordinated(noise.Brownian(), 0.01), (-1.0, 1.0), paths=4000, rng=2)
    value, error = slow.tail_exponent(1.0)
    assert np.isinf(slow.times).any() and 0.005 < value < 0.015 and 0.0 < error < 0.001


def test_exit_time_of_the_unit_interval() -> None:
    """Quantiles against the other of the two series for the distribution."""
    p = np.array([1e-9, 1e-3, 0.2, 0.4999, 0.5001, 0.9, 1 - 1e-9])
    t = exit_quantile(p)
    odd = 2.0 * np.arange(60)[:, None] + 1
    sign = np.where(odd % 4 == 1, 1.0, -1.0)
    late = 4 / math.pi * np.sum(sign / odd * np.exp(-(odd**2) * math.pi**2 * t / 8), 0)
    early = 2 * np.sum(sign * special.erfc(odd / np.sqrt(2 * t)), 0)
    np.testing.assert_allclose(early[:-1], p[:-1], rtol=1e-12)
    np.testing.assert_allclose(late[1:], 1 - p[1:], rtol=1e-9)

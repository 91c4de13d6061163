"""The rough Bergomi model."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from hpfracc.errors import AccuracyWarning, InvalidInputError
from hpfracc.rough import Bergomi, black_price
from hpfracc.solvers.sde.rough.bergomi import _Scheme
from tests.helpers.interrupts import part_of

MODEL = Bergomi(H=0.07, eta=1.9, rho=-0.9, xi=0.235**2)


def volterra_covariance(s: float, t: float, H: float) -> float:
    """E Y_s Y_t of the Riemann-Liouville process, s < t."""
    scale = 2.0 * H / (H + 0.5) * s ** (H + 0.5) * t ** (H - 0.5)
    return float(scale * special.hyp2f1(0.5 - H, 1.0, H + 1.5, s / t))


@pytest.mark.parametrize("H", [0.07, 0.3, 0.5])
def test_covariance_of_the_scheme(H):
    """The discrete process has nearly the covariance of the Volterra process, and of it with the Brownian motion."""
    scheme = _Scheme(Bergomi(H=H, eta=1.0, rho=0.0, xi=0.04), 1.0, 512)
    kernel, n = scheme.kernel, 512

    def discrete(i: int, j: int) -> float:
        return float(kernel[:i] @ kernel[j - i : j]) + (scheme.across**2 if i == j else 0.0)

    assert discrete(n, n) == pytest.approx(1.0, rel=1e-3)
    assert discrete(n // 2, n) == pytest.approx(volterra_covariance(0.5, 1.0, H), rel=1e-3)
    # Cov(W_s, Y_t) = sqrt(2H) / (H + 1/2) (t^(H+1/2) - (t-s)^(H+1/2))
    exact = np.sqrt(2 * H) / (H + 0.5) * (1.0 - 0.5 ** (H + 0.5))
    assert kernel[n // 2 :].sum() / np.sqrt(n) == pytest.approx(exact, rel=1e-12)


def test_without_roughness_of_the_variance_it_is_black():
    """eta = 0 gives Black's prices to rounding, whatever the paths; a forward variance curve enters by its mean."""
    model = Bergomi(H=0.2, eta=0.0, rho=-0.5, xi=lambda t: 0.04 + 0.02 * t, S0=100.0, r=0.02, q=0.01)
    steps, T = 50, 0.5
    mean = np.mean(0.04 + 0.02 * T / steps * np.arange(steps))
    found = model.price([90.0, 110.0], T, paths=64, steps=steps, rng=0)
    exact = np.exp(-0.02 * T) * black_price(model.forward(T), [90.0, 110.0], T, np.sqrt(mean))
    assert np.all(np.abs(found.value - exact) < 1e-9 + 4.0 * found.error)
    volatility = model.implied_volatility(100.0, T, paths=4000, steps=steps, rng=0)
    assert abs(volatility.value - np.sqrt(mean)) < 1e-6 + 4.0 * volatility.error


def test_published_smile():
    """H = 0.07, eta = 1.9, rho = -0.9, three months, 312 steps: a volatility of 0.1576 at log-moneyness 0.1041."""
    found = MODEL.implied_volatility(np.exp(0.1041), 0.25, paths=6000, steps=312, rng=11)
    assert found.error < 0.002
    assert abs(found.value - 0.1576) < 4.0 * found.error


@pytest.mark.slow
def test_price_at_one_year():
    """T = 1, K = 1, 2,048 steps: 0.07906 with a standard error of 1.1e-4."""
    found = MODEL.price(1.0, 1.0, paths=40_000, steps=2048, rng=3)
    assert abs(found.value - 0.07906) < 4.0 * np.hypot(found.error, 1.1e-4)


def test_controls_do_not_bias():
    """Prices with controls agree with plain means over simulated payoffs, and are several times more accurate."""
    paths = MODEL.sample(np.linspace(0.0, 1.0, 65), 8000, rng=2)
    strikes = np.array([0.8, 1.0, 1.2])
    payoffs = np.maximum(paths.S[:, -1:] - strikes, 0.0)
    plain, error = payoffs.mean(axis=0), payoffs.std(axis=0) / np.sqrt(8000)
    found = MODEL.price(strikes, 1.0, paths=8000, steps=64, rng=9)
    assert np.all(np.abs(found.value - plain) < 4.0 * np.hypot(found.error, error))
    assert np.all(found.error[:2] < 0.5 * error[:2])
    puts = MODEL.price(strikes, 1.0, paths=8000, steps=64, rng=9, kind="put")
    np.testing.assert_allclose(found.value - puts.value, 1.0 - strikes, atol=1e-12)


@pytest.mark.parametrize("paths", [64, 4000])
def test_a_known_variance_is_no_reason_to_warn(paths):
    """At eta = 0 the variance is a number: its mean is off by rounding alone, and the price is Black's."""
    found = Bergomi(H=0.1, eta=0.0, rho=-0.5, xi=0.04).price(1.1, 0.5, paths=paths, steps=20, rng=1)
    assert abs(found.value - black_price(1.0, 1.1, 0.5, 0.2)) < 4.0 * found.error + 1e-12


def test_unreliable_errors_are_told():
    """At a huge eta a few paths carry the variance: two seeds differ by far more than their errors say."""
    wild = Bergomi(H=0.07, eta=8.0, rho=-0.9, xi=0.235**2)
    with pytest.warns(AccuracyWarning, match="unreliable; use more paths"):
        one, two = (wild.price(1.0, 1.0, paths=4000, steps=32, rng=seed) for seed in (0, 1))
    assert abs(one.value - two.value) > 4.0 * np.hypot(one.error, two.error)


@pytest.mark.usefixtures("rounding_as_on_arm")
def test_paths():
    """S is a martingale, V has the mean xi, and paths depend on how many are made together by rounding alone."""
    t = np.linspace(0.0, 0.5, 33)
    paths = MODEL.sample(t, 4000, rng=4)
    for values, mean in ((paths.S[:, -1], 1.0), (paths.V[:, 5], 0.235**2)):
        assert abs(values.mean() - mean) < 4.0 * values.std() / np.sqrt(4000)
    part = MODEL.sample(t, (2, 5), rng=4, first_path=100)
    np.testing.assert_allclose(part.S.reshape(10, 33), paths.S[100:110], rtol=1e-12)
    np.testing.assert_allclose(part.V.reshape(10, 33), paths.V[100:110], rtol=1e-12)
    assert np.isnan(paths.bias)


def test_bad_input():
    """Parameters, times and numbers of paths outside the model are refused with their value."""
    with pytest.raises(InvalidInputError, match="H=0.7"):
        Bergomi(H=0.7, eta=1.0, rho=0.0, xi=0.04)
    with pytest.raises(InvalidInputError, match="xi=0.0: give a finite number above 0"):
        Bergomi(H=0.1, eta=1.0, rho=0.0, xi=0.0)
    with pytest.raises(InvalidInputError, match="xi\\(t\\) is not finite and positive"):
        Bergomi(H=0.1, eta=1.0, rho=0.0, xi=lambda t: -t).price(1.0, 1.0)
    with pytest.raises(InvalidInputError, match="paths=2"):
        MODEL.price(1.0, 1.0, paths=2)
    with pytest.raises(InvalidInputError, match="not equidistant"):
        MODEL.sample([0.0, 0.1, 1.0])


def test_progress_and_interrupts(monkeypatch):
    """Reports of the price so far; Ctrl-C gives the price of the paths that were finished, and says how many."""
    seen = []
    whole = MODEL.price(1.0, 0.25, paths=1024, steps=512, rng=1, progress=lambda *told: seen.append(told))
    assert len(seen) > 10 and seen[-1][:2] == (1024, 1024)
    assert seen[-1][2] == pytest.approx(float(whole.value)) and seen[-1][3] == pytest.approx(float(whole.error))

    def stop(done, *_):
        if done > 400:
            raise KeyboardInterrupt

    some = part_of(
        lambda: MODEL.price([1.0, 1.1], [[0.25], [0.5]], paths=1024, steps=512, rng=1, progress=stop),
        "after 448 of 1,024 paths at T=0.25",
    )
    alone = MODEL.price([1.0, 1.1], 0.25, paths=448, steps=512, rng=1)
    np.testing.assert_allclose(some.value[0], alone.value, rtol=1e-13)
    assert np.all(np.isnan(some.value[1]))
    monkeypatch.setattr(_Scheme, "terminal", lambda *_: stop(500))
    assert np.isnan(part_of(lambda: MODEL.price(1.0, 0.25, paths=16, steps=4, rng=1)).value)
    with pytest.raises(InvalidInputError, match="progress=3"):
        MODEL.price(1.0, 0.25, progress=3)

"""Derivatives of noisy samples: coverage of the band, methods, streams, grids, and bad input."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from scipy import integrate, interpolate

import hpfracc as hf
from hpfracc.errors import AccuracyWarning, InvalidInputError, ShapeError
from hpfracc.operators._smoothing import Curves

Array = np.ndarray


def exact(t: Array, alpha: float) -> Array:
    """Caputo derivative of 1 + sin(3 t), by D^alpha e^(zt) = z^p t^(p - alpha) E_(1, p - alpha + 1)(z t)."""
    p = math.ceil(alpha)
    return ((3j) ** p * t ** (p - alpha) * hf.mittag_leffler(3j * t, 1.0, p - alpha + 1.0)).imag


METHODS = ["tikhonov", "spline", "kalman"]


def coverage(alpha: float, draws: int, noise: str | float, method: str = "tikhonov") -> tuple[float, float]:
    """Share of points within two standard errors, and the mean error over the root mean square."""
    random = np.random.default_rng(7)
    t = np.sort(random.uniform(0.0, 2.0, 120))
    t -= t[0]
    truth = exact(t, alpha)
    inside, errors = [], []
    for _ in range(draws):
        found = hf.smooth_derivative(
            1.0 + np.sin(3.0 * t) + 0.02 * random.standard_normal(t.size), t, alpha, noise=noise, method=method
        )
        low, high = found.band()
        inside.append(np.mean((low <= truth) & (truth <= high)))
        errors.append(np.sqrt(np.mean((found.value - truth) ** 2) / np.mean(truth**2)))
    return float(np.mean(inside)), float(np.mean(errors))


@pytest.mark.parametrize(("alpha", "most"), [(0.5, 0.06), (1.0, 0.12), (1.5, 0.15), (2.6, 0.4), (3.0, 1.0)])
def test_the_band_covers(alpha: float, most: float):
    """Bands of two standard errors cover on a grid that is not uniform, and the derivative is no noise."""
    inside, error = coverage(alpha, 40, "estimate")
    assert inside > 0.95 and error < most


@pytest.mark.parametrize(("alpha", "method"), [(0.5, "spline"), (2.6, "spline"), (0.5, "kalman"), (1.5, "kalman")])
def test_the_band_of_each_method_covers(alpha: float, method: str):
    """The same with splines and with a filter."""
    inside, error = coverage(alpha, 40 if method == "spline" else 8, "estimate", method)
    assert inside > 0.95 and error < 0.4


def test_the_band_covers_what_the_samples_leave_open():
    """The samples of exp(-2t) could be a parabola: with the likeliest weight alone 80 % of the points were covered."""
    random = np.random.default_rng(1)
    t, inside = np.linspace(0.0, 2.0, 120), []
    truth = hf.caputo(lambda x: np.exp(-2.0 * x), t, 1.5)
    for _ in range(40):
        found = hf.smooth_derivative(np.exp(-2.0 * t) + 0.02 * random.standard_normal(t.size), t, 1.5)
        inside.append(np.mean(np.abs(found.value - truth) <= 2.0 * found.standard_error))
    assert np.mean(inside) > 0.9


def share_inside(curve: str, t: Array, alpha: float, draws: int, rho: float = 0.0, noise: object = "estimate") -> Array:
    """Of each draw with a standard deviation of 0.05, the share of points within the band."""
    random, function = np.random.default_rng(3), LIVELY[curve]
    truth, clean, found = hf.caputo(function, t, alpha), function(t), []
    for _ in range(draws):
        errors = random.standard_normal(t.size)
        for k in range(1, t.size):
            errors[k] = rho * errors[k - 1] + math.sqrt(1.0 - rho**2) * errors[k]
        each = hf.smooth_derivative(clean + 0.05 * errors, t, alpha, noise=noise)
        found.append(np.mean(np.abs(each.value - truth) <= 2.0 * each.standard_error))
    return np.array(found)


LIVELY = {
    "start": lambda t: np.exp(-2.0 * t),
    "end": lambda t: np.exp(2.0 * t - 10.0),
    "power": lambda t: 1.0 / (1.0 + 2.0 * t),
    "sine": lambda t: 1.0 + np.sin(3.0 * t),
}


@pytest.mark.slow
@pytest.mark.parametrize("end", [2.0, 5.0, 10.0])
@pytest.mark.parametrize("alpha", [0.5, 1.0, 1.5, 2.5])
@pytest.mark.parametrize("curve", ["start", "end", "power"])
def test_the_band_covers_lively_ends_in_many_draws(curve: str, alpha: float, end: float):
    """On average over 200 draws at least 95 % of the points are within the band; few draws have less than half."""
    t = np.linspace(0.0, end, 250)
    inside = share_inside(curve, t if curve != "end" else t * 5.0 / end, alpha, 200)
    assert inside.mean() > 0.95 and np.mean(inside < 0.5) < 0.06


def test_correlated_noise_is_told():
    """Autoregressive noise is called correlated, also where the curve follows it, and independent noise is not."""
    t = np.linspace(0.0, 2.0, 250)
    for rho in (0.7, 0.95):
        with pytest.warns(AccuracyWarning, match=r"the noise looks correlated.*noise='ar\(1\)'"):
            share_inside("sine", t, 0.5, 1, rho)


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.5, 1.5])
@pytest.mark.parametrize("rho", [0.7, 0.95])
def test_the_band_covers_with_correlated_noise_in_many_draws(alpha: float, rho: float):
    """On average over 60 draws: where the correlation lasts nearly as long as a swing, a little less than 95 %."""
    assert share_inside("sine", np.linspace(0.0, 2.0, 250), alpha, 60, rho, "ar(1)").mean() > (
        0.93 if rho < 0.9 else 0.86
    )


def test_the_autoregression_is_found():
    """Coefficients of noise of order 2, and the correlation of a mean step at random times."""
    random, n = np.random.default_rng(8), 1000
    noise = np.zeros(n)
    for k in range(n):
        noise[k] = 0.6 * noise[k - 1] - 0.5 * noise[k - 2] + 0.05 * random.standard_normal()
    t = np.linspace(0.0, 5.0, n)
    found = hf.smooth_derivative(np.sin(t) + noise, t, 0.5, noise="ar(2)", nodes=40)
    np.testing.assert_allclose(found.autoregression, [0.6, -0.5], atol=0.08)
    assert found.noise == pytest.approx(noise.std(), rel=0.1)
    t = np.cumsum(random.exponential(1.0, 400)) / 50.0
    correlations = 0.8 ** (np.diff(t, prepend=0.0) / np.diff(t).mean())
    state, noise = 0.0, []
    for each in correlations:
        state = each * state + math.sqrt(1.0 - each**2) * random.standard_normal()
        noise.append(0.1 * state)
    found = hf.smooth_derivative(np.sin(t) + noise, t, 0.5, noise="ar(1)", nodes=40)
    assert found.autoregression[0] == pytest.approx(0.8, abs=0.08)


def test_a_covariance_whitens():
    """The covariance of independent noise gives what its standard deviation does."""
    t = np.linspace(0.0, 1.0, 50)
    samples = np.sin(5.0 * t) + 0.02 * np.random.default_rng(0).standard_normal(50)
    one = hf.smooth_derivative(samples, t, 0.5, noise=0.02)
    other = hf.smooth_derivative(samples, t, 0.5, noise=0.02**2 * np.eye(50))
    for name in ("value", "standard_error", "noise", "roughness"):
        np.testing.assert_allclose(getattr(other, name), getattr(one, name), rtol=1e-6, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["estimate", 0.02])
@pytest.mark.parametrize("alpha", [0.5, 1.0, 1.5, 2.0, 2.6])
@pytest.mark.parametrize("method", METHODS)
def test_the_band_covers_in_many_draws(alpha: float, noise: str | float, method: str):
    """On average over 1,000 draws (200 of the filter) at least 95 % of the points are within the band."""
    assert coverage(alpha, 200 if method == "kalman" else 1000, noise, method)[0] > 0.95


@pytest.mark.parametrize("method", METHODS)
def test_the_band_covers_with_little_noise(method: str):
    """Where each sample counts, the band is that of the curve between them."""
    random = np.random.default_rng(2)
    t = np.sort(random.uniform(0.0, 2.0, 60))
    t -= t[0]
    for noise in (1e-4, 0.0):
        found = hf.smooth_derivative(1.0 + np.sin(3.0 * t) + noise * random.standard_normal(60), t, 0.5, method=method)
        assert np.mean(np.abs(found.value - exact(t, 0.5)) <= 2.0 * found.standard_error) > 0.9


def conditioned(t: Array, y: Array, alpha: float, noise: float, roughness: float) -> tuple[float, float]:
    """The derivative at the last sample and its standard error, by covariances of an integrated Wiener process."""
    p = math.ceil(alpha)

    def covariance(a: float, b: float, first: float, second: float) -> float:
        if a > b:
            a, b, first, second = b, a, second, first
        if a == b:
            found = a ** (first + second + 1.0) / (first + second + 1.0)
        else:
            options = {"weight": "alg", "wvar": (0.0, first), "epsabs": 1e-14, "epsrel": 1e-12}
            found = integrate.quad(lambda u: (b - u) ** second, 0.0, a, **options)[0] if a else 0.0
        return roughness**2 * found / (math.gamma(first + 1.0) * math.gamma(second + 1.0))

    samples = np.array([[covariance(a, b, p, p) for b in t] for a in t]) + noise**2 * np.eye(t.size)
    between = np.array([covariance(t[-1], b, p - alpha, p) for b in t])
    powers = [k - alpha for k in range(p + 1)]
    last = np.array([t[-1] ** q / math.gamma(q + 1.0) if q >= 0.0 else 0.0 for q in powers])
    basis = np.array([[x**k / math.factorial(k) for k in range(p + 1)] for x in t])
    solved = np.linalg.solve(samples, np.column_stack([y, basis, between]))
    inverse = np.linalg.inv(basis.T @ solved[:, 1:-1])
    start = inverse @ (basis.T @ solved[:, 0])
    rest = last - between @ solved[:, 1:-1]
    variance = covariance(t[-1], t[-1], p - alpha, p - alpha) - between @ solved[:, -1] + rest @ inverse @ rest
    return float(last @ start + between @ (solved[:, 0] - solved[:, 1:-1] @ start)), math.sqrt(variance)


@pytest.mark.parametrize("alpha", [0.5, 0.9, 1.0, 1.3, 2.5])
def test_a_stream_is_the_process_given_the_samples(alpha: float):
    """Derivative and standard error at the newest sample are those of the covariances."""
    t = 0.1 * np.arange(12)
    y = 1.0 + np.sin(3.0 * t) + 0.02 * np.random.default_rng(1).standard_normal(12)
    stream = hf.SmoothDerivativeStream(alpha, 0.1, noise=0.02, roughness=3.0)
    found = [stream.push(sample) for sample in y]
    assert all(math.isnan(each) for pair in found[: math.ceil(alpha)] for each in pair)
    np.testing.assert_allclose(found[-1], conditioned(t, y, alpha, 0.02, 3.0), rtol=1e-6)


def test_a_stream_ends_where_the_smoother_does():
    """The newest value of a stream is the last one of all samples; it goes on after it was pickled."""
    random = np.random.default_rng(6)
    t = np.linspace(0.0, 3.0, 80)
    samples = np.sin(2.0 * t) + 0.03 * random.standard_normal(80)
    stream = hf.SmoothDerivativeStream(0.7, t[1], warmup=80)
    for sample in samples:
        found = stream.push(sample)
    whole = hf.smooth_derivative(samples, t, 0.7, method="kalman")
    np.testing.assert_allclose(found[0], whole.value[-1], atol=0.2 * whole.standard_error[-1])
    np.testing.assert_allclose(found[1], whole.standard_error[-1], rtol=0.1)
    assert stream.count == 80 and stream.noise == pytest.approx(whole.noise, rel=0.05)
    other = pickle.loads(pickle.dumps(stream))
    assert other.push(0.1) == stream.push(0.1)
    assert "81 samples" in repr(stream)


def test_a_stream_covers():
    """Bands at the newest sample cover, and the derivative is better than that of the plain stream."""
    random = np.random.default_rng(8)
    t = 0.02 * np.arange(300)
    truth, inside = exact(t, 0.5)[150:], []
    for _ in range(5):
        stream = hf.SmoothDerivativeStream(0.5, 0.02, warmup=150)
        noisy = 1.0 + np.sin(3.0 * t) + 0.02 * random.standard_normal(300)
        found = np.array([stream.push(sample) for sample in noisy])[150:]
        inside.append(np.mean(np.abs(found[:, 0] - truth) <= 2.0 * found[:, 1]))
        plain = hf.Caputo(0.5).stream(0.02).push(noisy)[150:]
        assert np.std(found[:, 0] - truth) < 0.7 * np.std(plain - truth)
    assert np.mean(inside) > 0.93


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"alpha": 0.0}, "alpha=0"),
        ({"step": 0.0}, "step=0"),
        ({"noise": -1.0}, "noise=-1"),
        ({"roughness": 1.0}, "roughness is given, and noise is to be estimated"),
        ({"roughness": -1.0, "noise": 1.0}, "roughness=-1"),
        ({"warmup": 3}, "warmup=3"),
    ],
)
def test_bad_streams(changes: dict[str, object], words: str):
    """Errors name the value."""
    with pytest.raises(InvalidInputError, match=words):
        hf.SmoothDerivativeStream(**({"alpha": 0.5, "step": 0.1} | changes))
    with pytest.raises(InvalidInputError, match="value=nan"):
        hf.SmoothDerivativeStream(0.5, 0.1).push(math.nan)


def test_the_noise_is_found():
    """The estimated noise is that of the samples, and a known one is used."""
    random = np.random.default_rng(3)
    t = np.linspace(0.0, 5.0, 400)
    samples = np.exp(-t) + 0.05 * random.standard_normal(400)
    found = hf.smooth_derivative(samples, t, 0.7)
    assert found.noise == pytest.approx(0.05, rel=0.1)
    assert np.abs(found.smooth - np.exp(-t)).max() < 0.05
    assert 2.0 <= found.degrees_of_freedom < 20.0
    known = hf.smooth_derivative(samples, t, 0.7, noise=0.1)
    assert known.noise == 0.1 and known.standard_error.mean() > found.standard_error.mean()
    assert "400 points" in repr(known)


def test_polynomials_are_exact():
    """Curves without a penalty are kept: t^2 has the derivative 2 t^(2 - alpha) / Gamma(3 - alpha)."""
    t = np.concatenate([[0.0], np.geomspace(0.01, 3.0, 40)])
    found = hf.smooth_derivative(t**2, t, 1.4)
    np.testing.assert_allclose(found.value, 2.0 * t**0.6 / math.gamma(1.6), atol=1e-6)


def test_units_and_blocks_do_not_matter(monkeypatch: pytest.MonkeyPatch):
    """The units of time and of f scale the result, and samples may be compressed in blocks."""
    random = np.random.default_rng(4)
    t = np.linspace(0.0, 1.0, 150)
    samples = np.cos(4.0 * t) + 0.01 * random.standard_normal(150)
    one, other = hf.smooth_derivative(samples, t, 0.5), hf.smooth_derivative(samples, 3.0 + 100.0 * t, 0.5)
    np.testing.assert_allclose(other.value, one.value / 10.0, rtol=1e-6, atol=1e-8)
    for size in (2.0**-540, 2.0**540):
        for noise in ("estimate", 0.01):
            scaled = "estimate" if isinstance(noise, str) else noise * size
            one, other = (
                hf.smooth_derivative(f, t, 0.5, noise=level)
                for f, level in ((samples, noise), (samples * size, scaled))
            )
            for name in ("value", "standard_error", "smooth", "noise", "roughness"):
                np.testing.assert_allclose(getattr(other, name) / size, getattr(one, name), rtol=1e-9)
    one = hf.smooth_derivative(samples, t, 0.5)
    monkeypatch.setattr("hpfracc.operators._smoothing.ROWS", 37)
    blocks = hf.smooth_derivative(samples, t, 0.5)
    np.testing.assert_allclose(blocks.value, one.value, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(blocks.standard_error, one.standard_error, rtol=1e-5)


def test_too_few_nodes_are_reported():
    """Samples with less noise than the nodes resolve: a warning, and none with several for each."""
    t = np.linspace(0.0, 1.0, 100)
    with pytest.warns(AccuracyWarning, match="of 50 nodes.*give more than nodes=50"):
        hf.smooth_derivative(np.sin(t), t, 0.5, nodes=50)
    found = hf.smooth_derivative(np.sin(t), t, 0.5, nodes=400)
    assert np.mean(np.abs(found.value - hf.caputo(np.sin, t, 0.5)) <= 2.0 * found.standard_error) > 0.95


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"alpha": 3.5}, InvalidInputError, "alpha=3.5: give a finite number above 0 and at most 3"),
        ({"noise": -0.1}, InvalidInputError, "noise=-0.1"),
        ({"noise": "guess"}, InvalidInputError, "noise='guess'"),
        ({"noise": "ar(1)", "method": "kalman", "f": np.ones(20), "t": np.arange(20.0)}, InvalidInputError, "kalman"),
        ({"noise": "ar(2)", "t": np.arange(10.0) ** 2}, InvalidInputError, "takes equal steps"),
        ({"noise": "ar(3)"}, InvalidInputError, "10 samples are too few"),
        ({"noise": np.ones(10)}, ShapeError, r"noise has shape \(10,\)"),
        ({"noise": np.ones((10, 10))}, InvalidInputError, "no covariance"),
        ({"t": np.r_[0.0, 2.0, 1.0, 3.0:10.0]}, InvalidInputError, r"t must increase, but goes back at t\[2\]=1"),
        ({"f": np.r_[np.nan, 1.0:10.0]}, InvalidInputError, "f has entries that are not finite"),
        ({"f": np.ones(9)}, ShapeError, "9 samples and t 10 times"),
        ({"f": np.ones(3), "t": np.arange(3.0)}, ShapeError, "3 samples are too few; give at least 4"),
        ({"nodes": 2}, InvalidInputError, "nodes=2"),
        ({"method": "wavelet"}, InvalidInputError, "method='wavelet'.*tikhonov"),
    ],
)
def test_bad_input(changes: dict[str, object], error: type[Exception], words: str):
    """Errors name the value and what to give."""
    given: dict[str, object] = {"f": np.ones(10), "t": np.arange(10.0), "alpha": 0.5}
    with pytest.raises(error, match=words):
        hf.smooth_derivative(**(given | changes))


def test_the_spline_is_scipys():
    """The curve of a weight, with a node at each sample, is SciPy's smoothing spline."""
    random = np.random.default_rng(5)
    x = np.sort(random.uniform(0.0, 1.0, 50))
    x = (x - x[0]) / (x[-1] - x[0])
    samples, weight = np.sin(6.0 * x) + 0.1 * random.standard_normal(50), 1e-4
    curves = Curves(x, 1, True)
    penalty = np.sqrt(weight) * np.eye(curves.size)[2:]
    rows = np.vstack([curves.integrals(x, 1.0), penalty])
    found = np.linalg.lstsq(rows, np.append(samples, np.zeros(len(penalty))), rcond=None)[0]
    expected = interpolate.make_smoothing_spline(x, samples, lam=weight)
    np.testing.assert_allclose(curves.integrals(x, 1.0) @ found, expected(x), atol=1e-9)
    np.testing.assert_allclose(curves.integrals(x, 0.0) @ found, expected.derivative()(x), atol=1e-8)

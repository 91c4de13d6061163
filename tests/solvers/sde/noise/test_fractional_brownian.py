"""Fractional Brownian motion: law, not looks."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

import hpfracc as hf
from hpfracc import noise
from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.solvers.sde.noise.circulant import autocovariance, eigenvalues, solve
from hpfracc.solvers.sde.noise.fractional_brownian import HybridScheme, sample_hybrid
from hpfracc.solvers.sde.noise.source import make_source
from tests.helpers.law import covariance_errors
from tests.helpers.thinned import thinned

INDICES = [0.05, 0.3, 0.5, 0.7, 0.95]


def pairs_of(points: int, seed: int) -> list[tuple[int, int]]:
    chosen = np.random.default_rng(seed).integers(1, points, (20, 2))
    return [(int(i), int(j)) for i, j in chosen]


@pytest.mark.parametrize("index", [0.01, 0.3, 0.49999, 0.5, 0.7, 0.99])
def test_autocovariance_keeps_its_digits(index: float) -> None:
    """To 2e-13 of its own size at every lag, near H = 1/2 too, where all of it is a difference."""
    found = autocovariance(index, 3000)
    with mpmath.workdps(50):
        power = 2 * mpmath.mpf(index)
        for lag in [0, 1, 2, 3, 4, 5, 6, 10, 57, 1000, 3000]:
            k = mpmath.mpf(lag)
            exact = float(((k + 1) ** power - 2 * k**power + abs(k - 1) ** power) / 2)
            assert found[lag] == pytest.approx(exact, rel=2e-13, abs=0)


@pytest.mark.parametrize("index", INDICES)
@pytest.mark.parametrize("method", ["circulant", "cholesky"])
@thinned(one_in=2)
def test_covariance_of_paths(index: float, method: str) -> None:
    """20 pairs of points of 5,000 paths on [0, 2], within 4 standard errors."""
    n, count = 50, 5000
    paths = hf.fbm(n, index, T=2.0, size=count, rng=1, method=method)
    t = np.linspace(0, 2, n + 1)
    expected = noise.FractionalBrownian(index).covariance(t[:, None], t)
    assert np.all(paths[:, 0] == 0)
    assert np.max(np.abs(covariance_errors(paths, expected, pairs_of(n + 1, 2)))) < 4


@pytest.mark.slow
@pytest.mark.parametrize("index", INDICES)
def test_covariance_of_many_paths(index: float) -> None:
    """The same of 100,000 paths of 200 steps."""
    paths = hf.fbm(200, index, size=100_000, rng=11)
    t = np.linspace(0, 1, 201)
    expected = noise.FractionalBrownian(index).covariance(t[:, None], t)
    assert np.max(np.abs(covariance_errors(paths, expected, pairs_of(201, 3)))) < 4


@pytest.mark.parametrize("kind", ["fbm", "volterra"])
@pytest.mark.parametrize("index", [0.1, 0.8])
@thinned(one_in=2)
def test_covariance_on_any_grid(kind: str, index: float) -> None:
    """Times of any kind, the first of them not 0."""
    process = noise.FractionalBrownian(index, kind)
    t = np.array([0.1, 0.15, 0.4, 0.9, 1.0, 3.0])
    paths = process.sample(t, 5000, rng=4)
    every = [(i, j) for i in range(t.size) for j in range(i, t.size)]
    assert np.max(np.abs(covariance_errors(paths, process.covariance(t[:, None], t), every))) < 4


def test_volterra_values() -> None:
    """The covariance of the Riemann-Liouville process at H = 0.07 to 15 digits; variance t^(2H); other than fBm."""
    process = noise.FractionalBrownian(0.07, "volterra")
    assert process.covariance(0.5, 1.0) == pytest.approx(0.1979131489474115, rel=1e-14)
    assert process.covariance(0.5, 0.5) == pytest.approx(0.5**0.14, rel=1e-14)
    assert abs(process.covariance(0.5, 1.0) - noise.FractionalBrownian(0.07).covariance(0.5, 1.0)) > 0.1
    assert process.covariance(0.0, 1.0) == 0


@pytest.mark.parametrize("index", [1e-3, 0.05, 0.3, 0.5, 0.7, 0.999])
def test_variance_of_the_hybrid_scheme(index: float) -> None:
    """At all times to 4e-4 of that at the end, and exact after the first step."""
    scheme = HybridScheme(index, 5000, 1 / 5000)
    found = np.cumsum(scheme.kernel**2) + scheme.across**2
    exact = (np.arange(1, 5001) / 5000) ** (2 * index)
    assert np.abs(found - exact).max() < 4e-4
    assert found[0] == pytest.approx(exact[0], rel=1e-13)


def test_long_volterra_paths_and_their_brownian_motion() -> None:
    """The hybrid scheme: variances to 4e-4 and sampling error, the given covariance with its Brownian motion."""
    n, count = 128, 10_000
    source = make_source(1, None)
    paths = sample_hybrid(source, 0.07, n, 1 / n, count)
    increments = source.numbers(0, count, 2 * n)[:, :n] / np.sqrt(n)
    error = 4 * np.sqrt(2 / count)
    assert abs(paths[:, -1].var() - 1) < error + 1e-3
    middle = increments[:, : n // 2].sum(-1)
    assert abs(np.mean(middle * paths[:, -1]) - 0.2142480972770609) < 4 * np.sqrt(0.55 / count) + 1e-3
    assert abs(np.mean(paths[:, n // 2] * paths[:, -1]) - 0.1979131489474115) < 4 * np.sqrt(0.9 / count) + 1e-3
    long = noise.FractionalBrownian(0.3, "volterra").sample(np.linspace(0, 1, 5001), 2, rng=1)
    assert long.shape == (2, 5001) and np.all(np.isfinite(long))


@pytest.mark.parametrize("index", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("kind", ["fbm", "volterra"])
@thinned(one_in=2)
def test_refined_paths_have_the_law_of_the_fine_process(index: float, kind: str) -> None:
    """Coarse and fine points together: covariances within 4 standard errors, the given points untouched."""
    process = noise.FractionalBrownian(index, kind)
    t = np.linspace(0, 1, 9)
    coarse = process.sample(t, 5000, rng=5)
    fine, paths = process.refine(coarse, t, 3, rng=5)
    np.testing.assert_array_equal(paths[:, ::3], coarse)
    np.testing.assert_allclose(fine, np.linspace(0, 1, 25), atol=1e-15)
    expected = process.covariance(fine[:, None], fine)
    assert np.max(np.abs(covariance_errors(paths, expected, pairs_of(25, 6)))) < 4


@pytest.mark.parametrize("index", [0.1, 0.5, 0.9])
def test_refinement_is_exact(index: float) -> None:
    """The correction is linear: with the matrices written out, the covariance of fine points is that of the process."""
    parts, n = 2, 12
    process = noise.FractionalBrownian(index)
    fine = np.arange(n * parts) + 1.0
    whole = process.covariance(fine[:, None], fine)
    sums = np.kron(np.eye(n), np.ones((1, parts)))
    toeplitz = autocovariance(index, n * parts)
    steps = toeplitz[np.abs(np.subtract.outer(np.arange(n * parts), np.arange(n * parts)))]
    coarse = autocovariance(index, n)[:-1] * parts ** (2 * index)
    gain = steps @ sums.T @ solve(coarse, np.eye(n))
    left = np.eye(n * parts) - gain @ sums
    total = left @ steps @ left.T + gain @ (sums @ steps @ sums.T) @ gain.T
    summed = np.tril(np.ones((n * parts, n * parts)))
    np.testing.assert_allclose(summed @ total @ summed.T, whole, rtol=1e-12, atol=1e-12)


def test_brownian_motion() -> None:
    """Covariance min(s, t) on any grid, bridges, and the same numbers whatever the batch."""
    process, t = noise.Brownian(), np.array([0.2, 0.3, 1.0, 2.0])
    paths = process.sample(t, 5000, rng=6)
    every = [(i, j) for i in range(4) for j in range(i, 4)]
    assert np.max(np.abs(covariance_errors(paths, process.covariance(t[:, None], t), every))) < 4
    fine, refined = process.refine(paths, t, 3, rng=6)
    np.testing.assert_array_equal(refined[:, ::3], paths)
    expected = process.covariance(fine[:, None], fine)
    assert np.max(np.abs(covariance_errors(refined, expected, pairs_of(fine.size, 7)))) < 4
    np.testing.assert_array_equal(process.sample(t, 3, rng=6, first_path=40), paths[40:43])


@pytest.mark.parametrize("index", [0.01, 0.1, 0.5, 0.9, 0.99])
def test_no_eigenvalue_is_negative(index: float) -> None:
    """From 1 step on, at lengths of all kinds."""
    for n in (1, 2, 3, 4, 5, 7, 64, 1000, 30_011):
        assert eigenvalues(autocovariance(index, n)).min() >= 0


@pytest.mark.usefixtures("rounding_as_on_arm")
@pytest.mark.parametrize("method", ["circulant", "cholesky"])
def test_paths_do_not_depend_on_the_batch(method: str) -> None:
    """Up to rounding: all at once, one by one, in parts, and in many chunks."""
    whole = hf.fbm(100, 0.3, size=(3, 40), rng=9, method=method).reshape(120, -1)
    for first, count in [(0, 1), (1, 1), (31, 33), (100, 20)]:
        part = hf.fbm(100, 0.3, size=count, rng=9, first_path=first, method=method)
        np.testing.assert_allclose(part, whole[first : first + count], rtol=0.0, atol=1e-13)
    np.testing.assert_allclose(hf.fbm(100, 0.3, rng=9, method=method), whole[0], rtol=0.0, atol=1e-13)


def test_noise_is_the_increments_of_motion() -> None:
    """``fgn`` with a step and ``fbm`` on the interval, from one seed."""
    steps = hf.fgn(64, 0.7, step=2.0 / 64, size=3, rng=2)
    np.testing.assert_allclose(np.diff(hf.fbm(64, 0.7, T=2.0, size=3, rng=2)), steps, atol=1e-14)
    np.testing.assert_allclose(hf.fgn(64, 0.7, size=3, rng=2) * (2.0 / 64) ** 0.7, steps, rtol=1e-13)


def test_generators_and_seeds() -> None:
    """A seed repeats, a generator goes on, no seed is new each time; float32 is the same path rounded."""
    assert np.array_equal(hf.fgn(8, 0.3, rng=1), hf.fgn(8, 0.3, rng=np.random.SeedSequence(1)))
    generator = np.random.default_rng(1)
    assert not np.array_equal(hf.fgn(8, 0.3, rng=generator), hf.fgn(8, 0.3, rng=generator))
    assert not np.array_equal(hf.fgn(8, 0.3), hf.fgn(8, 0.3))
    narrow = hf.fbm(500, 0.3, size=4, rng=1, dtype="float32")
    assert narrow.dtype == np.float32
    np.testing.assert_allclose(narrow, hf.fbm(500, 0.3, size=4, rng=1), atol=2e-6)
    assert hf.fbm(5, 0.3, size=(2, 0), rng=1).shape == (2, 0, 6)


REFUSED: list[tuple[dict[str, object], str]] = [
    ({"H": 0.0}, "strictly between 0 and 1"),
    ({"H": 1.0}, "H=1.0"),
    ({"H": float("nan")}, "H=nan"),
    ({"H": "rough"}, "'rough'"),
    ({"n": 0}, "n=0"),
    ({"n": 2.5}, "n=2.5"),
    ({"size": -1}, "size=-1"),
    ({"size": 2.5}, "size=2.5"),
    ({"rng": -3}, "rng=-3"),
    ({"rng": "seed"}, "rng='seed'"),
    ({"method": "hosking"}, "'circulant'"),
    ({"T": -1.0}, "above 0"),
    ({"dtype": "int32"}, "float64 or float32"),
    ({"first_path": -1}, "first_path=-1"),
    ({"key": 3}, "jax.random.key"),
]


@pytest.mark.parametrize(("bad", "words"), REFUSED, ids=lambda value: str(value)[:24])
def test_refuses(bad: dict[str, object], words: str) -> None:
    """A typed error with the value and the remedy."""
    with pytest.raises(InvalidInputError) as caught:
        hf.fbm(**{"n": 4, "H": 0.3, **bad})  # type: ignore[arg-type]
    assert words in str(caught.value)


def test_refuses_grids_and_kinds() -> None:
    """Times that decrease, repeat, begin before 0 or are too many; kinds that are none; paths of another length."""
    process = noise.FractionalBrownian(0.3)
    for t in ([0.0, 1.0, 1.0], [1.0, 0.5], [-1.0, 1.0], [0.0, np.nan]):
        with pytest.raises(InvalidInputError, match="increasing"):
            process.sample(t)
    with pytest.raises(ShapeError, match="one axis"):
        process.sample([[0.0, 1.0]])
    with pytest.raises(InvalidInputError, match="uniform grid"):
        process.sample(np.linspace(0, 1, 5000) ** 2)
    with pytest.raises(InvalidInputError, match="'volterra'"):
        noise.FractionalBrownian(0.3, "levy")  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match="3 times"):
        process.refine(np.zeros(4), [0.0, 1.0, 2.0])
    with pytest.raises(InvalidInputError, match="factor=0"):
        process.refine(np.zeros(3), [0.0, 1.0, 2.0], 0)

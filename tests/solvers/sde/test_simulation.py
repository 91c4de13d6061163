"""Chunks, moments, progress, interrupts, memory, explanations, and correlated noise of a simulation."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc import noise, transport
from hpfracc.engine.memory.budget import HOST, get_budget
from hpfracc.errors import InvalidInputError, OutOfMemoryError, ShapeError
from hpfracc.solvers.sde import simulation
from tests.helpers.interrupts import part_of


def drift(t: Any, y: Any) -> Any:
    return -y


def solve(**options: Any) -> hf.FSDEResult:
    given: dict[str, Any] = {"step": 0.1, "paths": 100, "rng": 1, **options}
    return hf.solve_fsde(drift, 1.0, (0, 1), given.pop("y0", 0.0), **given)


@pytest.mark.parametrize("antithetic", [False, True])
def test_moments_are_those_of_the_values(antithetic: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """In many small chunks, of paths and of a function of them."""
    monkeypatch.setattr(simulation, "_CHUNK_ON_HOST", 1 << 12)
    for save in ("all", "last", lambda t, y: y.max(-1)):
        values = solve(save=save, antithetic=antithetic, y0=[0.0, 1.0])
        moments = solve(save=save, antithetic=antithetic, y0=[0.0, 1.0], keep="moments")
        assert values.stats["chunks"] > 5
        assert moments.y is None and moments.noise is None and moments.paths == 100
        np.testing.assert_allclose(moments.mean(), values.mean(), rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(moments.standard_error, values.standard_error, rtol=1e-12, atol=1e-15)
    with pytest.raises(InvalidInputError, match="keep='values'"):
        moments.quantile(0.5)


def _peak(paths: int, steps: int) -> int:
    tracemalloc.start()
    with hf.use_backend("numpy"):  # importing Numba on the way would count
        result = solve(save=lambda t, y: y[:, 0, -1] ** 2, keep="moments", paths=paths, step=1 / steps)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert result.paths == paths
    h = 1 / steps
    exact = h * sum((1 - h) ** (2 * k) for k in range(steps))  # Euler's own second moment
    assert abs(float(result.mean()) - exact) < 4 * float(result.standard_error)
    return peak


def test_many_paths_in_constant_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten times as many paths take no more memory."""
    monkeypatch.setattr(simulation, "_CHUNK_ON_HOST", 1 << 19)
    _peak(2_000, 4)
    few, many = _peak(2_500, 4), _peak(25_000, 4)
    assert many < 1.2 * few + 2**16


@pytest.mark.slow
def test_ten_million_paths_in_constant_room() -> None:
    """With a function of the paths: below 64 MiB, as for three chunks."""
    few, many = _peak(500_000, 4), _peak(10_000_000, 4)
    assert many < 64 * 2**20
    assert many < 1.2 * few + 2**20


def test_progress_tells_paths_and_errors(capsys: pytest.CaptureFixture[str]) -> None:
    """A function is told after each chunk; the bar goes to stderr."""
    seen: list[tuple[int, int, float, float]] = []
    result = solve(save="last", progress=lambda *told: seen.append(told))
    assert len(seen) == 20 and [told[0] for told in seen] == list(range(5, 101, 5))
    assert seen[-1][1] == 100
    assert seen[-1][2] == pytest.approx(float(result.mean()[0]))
    assert seen[-1][3] == pytest.approx(float(result.standard_error[0]))
    np.testing.assert_array_equal(result.y, solve(save="last").y)
    solve(progress=True)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("save", ["all", "last", lambda t, y: y[:, 0, -1]], ids=["all", "last", "function"])
def test_an_interrupt_keeps_what_is_done(save: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The chunks that were finished, with success=False; nothing at all of none."""
    monkeypatch.setattr(simulation, "_CHUNK_ON_HOST", 1 << 12)
    calls = [0]

    def stopping(limit: int) -> hf.FSDEResult:
        calls[0] = 0

        def slope(t: Any, y: Any) -> Any:
            calls[0] += 1
            if calls[0] > limit:
                raise KeyboardInterrupt
            return -y

        return part_of(lambda: hf.solve_fsde(slope, 1.0, (0, 1), 0.0, step=0.1, paths=100, rng=1, save=save))

    whole = solve(save=save)
    some = stopping(25)
    assert not some.success and 0 < some.paths < 100
    assert f"after {some.paths} of 100 paths" in some.message
    np.testing.assert_array_equal(some.y, whole.y[: some.paths])
    if save == "all":
        np.testing.assert_array_equal(some.noise, whole.noise[: some.paths])
    none = stopping(2)
    assert none.paths == 0 and none.y.shape[0] == 0 and "stopped" in repr(none)
    assert whole.success and "finished" in whole.message


def test_a_forecast_above_the_budget_is_refused() -> None:
    """Before anything is drawn, with bytes and remedies; a function of the paths needs little."""
    budget = get_budget()
    before = budget.cap(HOST, 100 * 2**20)
    try:
        with pytest.raises(OutOfMemoryError, match=r"1,616,000,000 bytes .* are free; give save= a function"):
            solve(paths=1_000_000, step=0.01)
        with pytest.raises(OutOfMemoryError, match="bytes for the result"):
            solve(paths=1_000_000, step=0.5, save=lambda t, y: np.zeros((len(y), 50)))
        explained = hf.explain(hf.solve_fsde, drift, 1.0, (0, 1), 0.0, step=0.01, paths=1_000_000)
        assert explained.kept_bytes == 1_616_000_000
    finally:
        budget.cap(HOST, before)


def test_samples_above_the_budget_are_refused() -> None:
    """Before anything is drawn: noise, walks, passages and rough models, with bytes and remedies."""
    walk = transport.ContinuousTimeRandomWalk(transport.ExponentialWaiting(), transport.GaussianJumps())
    t = np.linspace(0.0, 1.0, 101)
    calls: list[Callable[[], Any]] = [
        lambda: hf.fbm(100, 0.3, size=10**6, rng=1),
        lambda: hf.fgn(10**9, 0.3, rng=np.random.default_rng(1)),
        lambda: noise.FractionalBrownian(0.3).sample(t, 10**6, rng=1),
        lambda: noise.StableLevy(1.5).sample(t, 10**6, rng=1),
        lambda: walk.sample(t, 10**6, rng=1),
        lambda: transport.first_passage(noise.Brownian(), (-1, 1), paths=10**8),
        lambda: hf.rough.Bergomi(H=0.1, eta=1.0, rho=-0.5, xi=0.04).sample(t, 10**6, rng=1),
        lambda: hf.rough.Heston(H=0.1, kappa=0.3, theta=0.04, sigma=0.4, rho=-0.7, v0=0.04).sample(t, 10**6, rng=1),
    ]
    budget = get_budget()
    before = budget.cap(HOST, 100 * 2**20)
    try:
        for call in calls:
            with pytest.raises(OutOfMemoryError, match=r"bytes, and [\d,]+ are free; draw fewer at a time"):
                call()
    finally:
        budget.cap(HOST, before)


def test_a_simulation_is_explained() -> None:
    """Without a step: which method, why, what it takes, and why not another."""
    calls = [0]

    def slope(t: Any, y: Any) -> Any:
        calls[0] += 1
        return -y

    process = noise.FractionalBrownian(0.3)
    found = hf.explain(
        hf.solve_fsde, slope, lambda t, y: y, (0, 1), 1.0, step=0.01, noise=process, paths=10**6, save="last"
    )
    assert calls[0] == 1
    assert found.method == "doss_sussmann" and found.steps == 100 and found.library == "numpy"
    assert found.chunks * found.rows >= 10**6 and found.kept_bytes == 8 * 10**6
    assert "does not converge" in found.refused["euler"]
    assert "1,000,000 in" in str(found) and "not 'euler'" in str(found)
    assert found.to_dict()["rows"] == found.rows
    caputo = hf.explain(hf.solve_fsde, slope, 1.0, (0, 1), 1.0, step=0.1, alpha=0.7, method="milstein")
    assert caputo.order == "2 alpha - 1" and "by its name" in caputo.reason
    assert "below 1" in hf.explain(hf.solve_fsde, slope, 1.0, (0, 1), 1.0, step=0.1, alpha=0.7).reason
    with pytest.raises(InvalidInputError, match="needs its equation"):
        hf.explain("solve_fsde")


MATRIX = np.array([[1.0, 0.6, -0.3], [0.6, 1.0, 0.2], [-0.3, 0.2, 1.0]])


@pytest.mark.parametrize(
    ("process", "alpha"), [(noise.FractionalBrownian(0.3), 1.0), (noise.Brownian(), 0.7)], ids=["fractional", "Caputo"]
)
def test_correlated_noise(process: noise.Noise, alpha: float) -> None:
    """The correlations of the noise, and of the state that is driven by it, within 4 standard errors."""
    count = 20_000
    result = hf.solve_fsde(
        lambda t, y: 0 * y,
        1.0,
        (0, 1),
        np.zeros(3),
        step=0.25,
        noise=process,
        alpha=alpha,
        paths=count,
        rng=5,
        correlation=MATRIX,
    )
    for values in (result.noise[:, :, -1], result.y[:, :, -1]):
        found = np.corrcoef(values.T)
        assert np.all(np.abs(found - MATRIX) < 4 * (1 - MATRIX**2 + 1e-12) / np.sqrt(count))
    again = hf.solve_fsde(
        lambda t, y: 0 * y,
        1.0,
        (0, 1),
        np.zeros(3),
        step=0.25,
        noise=process,
        alpha=alpha,
        paths=3,
        first_path=7,
        rng=5,
        correlation=MATRIX,
    )
    np.testing.assert_allclose(again.y, result.y[7:10], rtol=1e-12, atol=1e-13)


BAD: list[tuple[Any, type[Exception], str]] = [
    ([[1.0, 0.9, -0.9], [0.9, 1.0, 0.9], [-0.9, 0.9, 1.0]], InvalidInputError, "smallest eigenvalue is -0.8"),
    ([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]], InvalidInputError, "not positive definite"),
    ([[1.0, 0.5, 0.0], [0.4, 1.0, 0.0], [0.0, 0.0, 1.0]], InvalidInputError, "entries (0, 1) and (1, 0)"),
    (2.0 * np.eye(3), InvalidInputError, "standard deviations"),
    (np.eye(2), ShapeError, "give (3, 3)"),
    (np.full((3, 3), np.nan), InvalidInputError, "not finite"),
    ("high", InvalidInputError, "matrix of numbers"),
]


@pytest.mark.parametrize(("matrix", "error", "words"), BAD, ids=[words for _, _, words in BAD])
def test_refuses_correlations(matrix: Any, error: type[Exception], words: str) -> None:
    """A typed error with the smallest eigenvalue, or what else is wrong."""
    with pytest.raises(error) as caught:
        solve(y0=np.zeros(3), correlation=matrix)
    assert words in str(caught.value)


def test_refuses_what_does_not_go_together() -> None:
    """Correlated jumps, unknown ways to keep, progress that is neither."""
    with pytest.raises(InvalidInputError, match="no finite variance"):
        solve(y0=np.zeros(2), correlation=np.eye(2), noise=noise.StableLevy(1.5))
    with pytest.raises(InvalidInputError, match="'moments'"):
        solve(keep="mean")
    with pytest.raises(InvalidInputError, match="progress='yes'"):
        solve(progress="yes")
    with pytest.raises(InvalidInputError, match="y0='one'"):
        solve(y0="one")
    with pytest.raises(InvalidInputError, match="diffusion='much'"):
        hf.solve_fsde(drift, "much", (0, 1), 1.0, step=0.1)
    with pytest.raises(ShapeError, match="diffusion has shape"):
        hf.solve_fsde(drift, np.ones(3), (0, 1), [1.0, 2.0], step=0.1)

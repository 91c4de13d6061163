"""Equations with noise: strong orders on shared paths, exact laws, and refusals of what does not converge."""

from __future__ import annotations

from functools import partial
from math import gamma
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc import noise
from hpfracc.errors import InvalidInputError, ShapeError, SolveError
from hpfracc.solvers.sde.methods import METHODS
from hpfracc.solvers.sde.noise.process import read_grid
from hpfracc.solvers.sde.problem import read_problem
from hpfracc.solvers.sde.stiffness import stability_limit
from tests.helpers.caputo_order import integrate
from tests.helpers.law import mean_error
from tests.helpers.thinned import thinned

RATE, SIZE = -0.5, 0.8


def linear(t: float, y: np.ndarray) -> np.ndarray:
    return RATE * y


def multiple(t: float, y: np.ndarray) -> np.ndarray:
    return SIZE * y


def strong_order(process: noise.Noise, method: str, meaning: str | None, correction: float = 0.0) -> float:
    """The slope of the mean error at time 1 of ``dX = a X dt + s X dZ``, over steps of 1/32 to 1/512."""
    problem = read_problem(linear, multiple, 0.0, np.ones((1, 1)), process, meaning)
    count, finest = 400, 512
    t = np.linspace(0, 1, finest + 1)
    driving = process.sample(t, (count, 1), rng=1)
    exact = np.exp(RATE - correction + SIZE * driving[:, 0, -1])
    errors, steps = [], []
    for thin in (16, 8, 4, 2, 1):
        grid, coarse = t[::thin], driving[:, :, ::thin]
        found = integrate(problem, METHODS[method], 1.0, grid, thin / finest, np.ones((count, 1)), coarse)
        errors.append(np.mean(np.abs(found[:, 0, -1] - exact)))
        steps.append(thin / finest)
    return float(np.polyfit(np.log(steps), np.log(errors), 1)[0])


@pytest.mark.parametrize("index", [0.6, 0.7, 0.85])
def test_orders_for_smooth_noise(index: float) -> None:
    """Euler 2H - 1; with the second term 2H - 1/2, at most 1; less 0.15."""
    process = noise.FractionalBrownian(index)
    assert strong_order(process, "euler", None) > 2 * index - 1 - 0.15
    assert strong_order(process, "second_order", None) > min(1.0, 2 * index - 0.5) - 0.15


@pytest.mark.parametrize("index", [0.3, 0.4])
def test_orders_for_rough_noise(index: float) -> None:
    """The second-order method 2H - 1/2, less 0.15."""
    assert strong_order(noise.FractionalBrownian(index), "second_order", None) > 2 * index - 0.5 - 0.15


def test_orders_for_brownian_motion() -> None:
    """Ito: Euler 1/2 and Milstein 1; Stratonovich by the second-order method 1."""
    half = 0.5 * SIZE**2
    assert strong_order(noise.Brownian(), "euler", "ito", half) > 0.5 - 0.15
    assert strong_order(noise.Brownian(), "second_order", "ito", half) > 1.0 - 0.15
    assert strong_order(noise.Brownian(), "second_order", "stratonovich") > 1.0 - 0.15


@pytest.mark.parametrize("index", [0.1, 0.3, 0.7])
@thinned(lambda index: index != 0.1)
def test_doss_sussmann_for_every_index(index: float) -> None:
    """Exact where drift and noise commute; it converges where they do not."""
    process = noise.FractionalBrownian(index)
    result = hf.solve_fsde(
        linear, multiple, (0, 1), 1.0, step=1 / 128, noise=process, paths=50, rng=2, method="doss_sussmann"
    )
    exact = np.exp(RATE * result.t + SIZE * result.noise[:, 0])
    np.testing.assert_allclose(result.y[:, 0], exact, rtol=1e-7)

    def both(thin: int) -> np.ndarray:
        problem = read_problem(lambda t, y: 1.0 + 0 * y, multiple, 0.0, np.ones((1, 1)), process, None)
        grid, driving = np.linspace(0, 1, 257)[::thin], paths[:, :, ::thin]
        return integrate(problem, METHODS["doss_sussmann"], 1.0, grid, thin / 256, np.ones((40, 1)), driving)[:, 0, -1]

    # X = e^{sB_1} (1 + int e^{-sB}), by a fine sum.
    paths = process.sample(np.linspace(0, 1, 257), (40, 1), rng=3)
    finest = both(1)
    errors = [np.mean(np.abs(both(thin) - finest)) for thin in (64, 16, 4)]
    assert errors[0] > 1.5 * errors[1] > 2.25 * errors[2]


@pytest.mark.parametrize("index", [0.26, 0.4])
def test_rough_noise_is_followed_by_its_flow(index: float) -> None:
    """Below 1/2 ``"auto"`` has all digits of exp(a t + s Z), of which steps of order 2H - 1/2 have none at 0.26."""
    found = hf.solve_fsde(
        linear, multiple, (0, 1), 1.0, step=0.05, noise=noise.FractionalBrownian(index), paths=9, rng=3
    )
    np.testing.assert_allclose(found.y[:, 0], np.exp(RATE * found.t + SIZE * found.noise[:, 0]), rtol=1e-8)


def test_several_noises_that_commute() -> None:
    """Two components and two shared noises in a diagonal matrix are the two scalar equations."""
    process = noise.FractionalBrownian(0.7)

    def matrix(t: float, y: np.ndarray) -> np.ndarray:
        return SIZE * np.stack([y * [1, 0], y * [0, 1]], axis=-1)

    options: dict[str, Any] = {"step": 0.01, "noise": process, "paths": 3, "rng": 5, "method": "second_order"}
    general = hf.solve_fsde(linear, matrix, (0, 1), [1.0, 2.0], **options)
    diagonal = hf.solve_fsde(linear, multiple, (0, 1), [1.0, 2.0], **options)
    np.testing.assert_allclose(general.y, diagonal.y, rtol=1e-8)
    np.testing.assert_array_equal(general.noise, diagonal.noise)


def test_additive_noise_of_any_kind() -> None:
    """The variance of the fractional Ornstein-Uhlenbeck process, and the stable one's characteristic function."""
    fou = hf.solve_fsde(
        lambda t, y: -y,
        1.0,
        (0, 8),
        0.0,
        step=0.02,
        noise=noise.FractionalBrownian(0.7),
        paths=4000,
        rng=6,
        save="last",
    )
    assert fou.method == "euler"
    assert abs(mean_error(fou.y[:, 0] ** 2, 0.6210846722521527)) < 4
    stable = hf.solve_fsde(
        lambda t, y: -y, 1.0, (0, 2), 0.0, step=0.01, noise=noise.StableLevy(1.5), paths=4000, rng=7, save="last"
    )
    exact = np.exp(-(1 - np.exp(-3.0)) / 1.5)
    assert abs(mean_error(np.cos(stable.y[:, 0]), exact)) < 4


@pytest.mark.usefixtures("rounding_as_on_arm")
def test_paths_do_not_depend_on_how_many_there_are() -> None:
    """Up to rounding, nor on chunks: a functional of many paths is that of the paths one by one."""
    options: dict[str, Any] = {"step": 0.01, "noise": noise.FractionalBrownian(0.4), "rng": 8}
    whole = hf.solve_fsde(linear, multiple, (0, 1), [1.0, 2.0], paths=12, **options)
    part = hf.solve_fsde(linear, multiple, (0, 1), [1.0, 2.0], paths=4, first_path=6, **options)
    np.testing.assert_allclose(part.y, whole.y[6:10], rtol=1e-10)
    last = hf.solve_fsde(linear, multiple, (0, 1), [1.0, 2.0], paths=12, save="last", **options)
    np.testing.assert_allclose(last.y, whole.y[:, :, -1], rtol=1e-10)
    peak = hf.solve_fsde(linear, multiple, (0, 1), [1.0, 2.0], paths=12, save=lambda t, y: y[:, 0].max(-1), **options)
    np.testing.assert_allclose(peak.y, whole.y[:, 0].max(-1), rtol=1e-10)
    assert last.noise is None and whole.noise.shape == (12, 2, 101)


def test_statistics_and_antithetic_paths() -> None:
    """Means within their errors; opposite noise makes that of the noise itself exactly 0."""
    options: dict[str, Any] = {"step": 0.05, "paths": 2000, "rng": 9, "interpretation": "ito", "save": "last"}
    plain = hf.solve_fsde(linear, multiple, (0, 1), 1.0, **options)
    assert abs(plain.mean()[0] - (1 + RATE * 0.05) ** 20) < 4 * plain.standard_error[0]
    paired = hf.solve_fsde(linear, multiple, (0, 1), 1.0, antithetic=True, **options)
    assert paired.standard_error[0] < plain.standard_error[0]
    zero = hf.solve_fsde(lambda t, y: 0 * y, 1.0, (0, 1), 0.0, step=0.1, paths=10, antithetic=True, rng=1)
    np.testing.assert_allclose(zero.mean(), 0.0, atol=1e-15)
    low, high = plain.quantile([0.1, 0.9])
    assert low[0] < plain.mean()[0] < high[0]


def test_pictures() -> None:
    """A fan and paths, where Matplotlib is installed; nothing to draw of last values."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    result = hf.solve_fsde(linear, 1.0, (0, 1), 1.0, step=0.1, paths=20, rng=1)
    assert len(result.plot().collections) == 3
    assert len(result.plot(kind="paths", most=5).lines) == 5
    last = hf.solve_fsde(linear, 1.0, (0, 1), 1.0, step=0.1, paths=20, rng=1, save="last")
    with pytest.raises(InvalidInputError, match="save='all'"):
        last.plot()
    moments = hf.solve_fsde(lambda t, y: -y, 1.0, (0, 1), 1.0, step=0.25, paths=10, rng=1, keep="moments")
    drawn = moments.plot().lines[0].get_ydata()
    assert np.array_equal(drawn, moments.mean()[0])
    with pytest.raises(InvalidInputError, match="stores no paths for kind='fan'"):
        moments.plot(kind="fan")
    with pytest.raises(InvalidInputError, match="component=3 of 1"):
        moments.plot(3)


ROUGH, BROWN, JUMPS = noise.FractionalBrownian(0.3), noise.Brownian(), noise.StableLevy(1.5)
REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"noise": BROWN}, InvalidInputError, "'ito' or 'stratonovich'"),
    ({"noise": ROUGH, "interpretation": "ito"}, InvalidInputError, "not a semimartingale"),
    ({"noise": ROUGH, "interpretation": "young"}, InvalidInputError, "H > 1/2"),
    ({"noise": JUMPS}, InvalidInputError, "the Ito sense"),
    ({"noise": JUMPS, "interpretation": "ito", "method": "second_order"}, InvalidInputError, "jumps"),
    ({"noise": noise.FractionalBrownian(0.2), "method": "second_order"}, InvalidInputError, "H > 1/4"),
    ({"noise": BROWN, "interpretation": "stratonovich", "method": "euler"}, InvalidInputError, "the Ito solution"),
    (
        {"noise": BROWN, "interpretation": "ito", "method": "doss_sussmann"},
        InvalidInputError,
        "the Stratonovich solution",
    ),
    ({"noise": noise.FractionalBrownian(0.3, "volterra")}, InvalidInputError, "kind='fbm'"),
    ({"noise": noise.InverseSubordinator(0.5)}, InvalidInputError, "driven by"),
    ({"interpretation": "pathwise"}, InvalidInputError, "'young'"),
    ({"method": "heun", "noise": ROUGH}, InvalidInputError, "'doss_sussmann'"),
    ({"step": 0.0, "noise": ROUGH}, InvalidInputError, "step=0.0"),
    ({"step": 2.0, "noise": ROUGH}, InvalidInputError, "step=2.0"),
    ({"t_span": (1, 0), "noise": ROUGH}, InvalidInputError, "t_span"),
    ({"paths": 0, "noise": ROUGH}, InvalidInputError, "paths=0"),
    ({"paths": 3, "antithetic": True, "noise": ROUGH}, InvalidInputError, "even"),
    ({"y0": np.ones((3, 1)), "noise": ROUGH}, ShapeError, "y0 has shape (3, 1)"),
    ({"y0": np.nan, "noise": ROUGH}, InvalidInputError, "not finite"),
    ({"drift": 3.0, "noise": ROUGH}, InvalidInputError, "drift=3.0"),
    ({"drift": lambda t, y: y[0], "noise": ROUGH}, ShapeError, "drift returned shape"),
    ({"diffusion": lambda t, y: y[0], "noise": ROUGH}, ShapeError, "diffusion returned shape"),
    ({"save": "none", "noise": ROUGH}, InvalidInputError, "'last'"),
    ({"save": lambda t, y: y[0], "noise": ROUGH, "paths": 4}, ShapeError, "one row for each path"),
    ({"drift": lambda t, y: y**3, "y0": 50.0, "noise": ROUGH}, SolveError, "smaller step"),
]


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning", "ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize(("bad", "error", "words"), REFUSED, ids=[words for _, _, words in REFUSED])
def test_refuses(bad: dict[str, Any], error: type[Exception], words: str) -> None:
    """A typed error with the reason and the remedy."""
    given = {"drift": linear, "diffusion": multiple, "t_span": (0, 1), "y0": 1.0, "step": 0.1, "rng": 1, **bad}
    with pytest.raises(error) as caught:
        hf.solve_fsde(**given)
    assert words in str(caught.value)


def test_non_commuting_noises_are_refused_where_they_do_not_converge() -> None:
    """Two noises that do not commute: H <= 1/3, and Ito's equation beyond Euler."""

    def mixed(t: float, y: np.ndarray) -> np.ndarray:
        return np.stack([np.stack([y[:, 1], y[:, 0] * 0 + 1], -1), np.stack([y[:, 0], y[:, 1]], -1)], axis=1)

    for index, words in ((0.3, "H > 1/3"), (0.2, "no method supports")):
        with pytest.raises(InvalidInputError, match=words):
            hf.solve_fsde(linear, mixed, (0, 1), [1.0, 1.0], step=0.1, noise=noise.FractionalBrownian(index))
    result = hf.solve_fsde(linear, mixed, (0, 1), [1.0, 1.0], step=0.1, noise=BROWN, interpretation="ito", rng=1)
    assert result.method == "euler"


@pytest.mark.parametrize("alpha", [1.0, 0.7])
def test_a_stiff_drift_is_told(alpha: float) -> None:
    """Explicit steps of a drift that decays too fast grow: a warning, and a result that is no success."""
    options: dict[str, Any] = {"rng": 1, "paths": 3, "alpha": alpha}
    for save, since in (("all", "t=0.02"), ("last", "t=1"), (lambda t, y: y[:, 0, -1], "t=0.02")):
        with pytest.warns(hf.errors.AccuracyWarning, match="use method='implicit_euler', or step="):
            wild = hf.solve_fsde(lambda t, y: -2000.0 * y, 0.1, (0, 1), 1.0, step=0.02, save=save, **options)
        assert not wild.success and wild.stats["diverged"] == 3 and "diverged" in repr(wild)
        assert f"3 of 3 paths diverged, the first by {since}:" in wild.message
        assert "or less, or method='implicit_euler'" in wild.message
        assert np.abs(wild.y).max() > 1e50


@pytest.mark.parametrize("alpha", [1.0, 0.9, 0.6])
@pytest.mark.parametrize("over", [0.95, 1.05])
@pytest.mark.filterwarnings("ignore::hpfracc.errors.AccuracyWarning")
def test_the_limit_of_explicit_steps_is_that_of_the_linear_equation(alpha: float, over: float) -> None:
    """Just below it solutions decay, and just above they grow, for orders below 1 too."""
    h = 0.01
    rate = over * stability_limit(alpha) * gamma(alpha + 1) / h**alpha
    found = hf.solve_fsde(lambda t, y: -rate * y, 0.0, (0, 5), 1.0, step=h, rng=1, alpha=alpha)
    assert (np.abs(found.y[0, 0, -1]) > 10) == (not found.success) == (over > 1)


def test_growth_is_no_divergence() -> None:
    """Solutions that grow, noise that is large against its start, and jumps of any size."""
    grows = hf.solve_fsde(lambda t, y: 50.0 * y, 0.1, (0, 1), 1.0, step=0.01, rng=1, paths=5)
    assert grows.success and np.all(np.abs(grows.y[:, 0, -1]) > 1e15)
    for process in (noise.Brownian(), noise.FractionalBrownian(0.2), noise.StableLevy(0.5)):
        found = hf.solve_fsde(lambda t, y: -150.0 * y, 1.0, (0, 1), 0.0, step=0.01, rng=1, paths=2000, noise=process)
        assert found.success and found.stats["diverged"] == 0


@pytest.mark.parametrize(
    "options",
    [{}, {"noise": noise.FractionalBrownian(0.7)}, {"alpha": 0.8}, {"noise": noise.StableLevy(1.5)}],
    ids=["Brownian", "fractional", "Caputo", "stable"],
)
def test_steps_along_the_same_noise(options: dict[str, Any]) -> None:
    """With one ``noise_step``, solutions of different steps follow the same noise, also in pairs."""
    solve = partial(hf.solve_fsde, lambda t, y: -y, 1.0, (0, 1), [1.0, 2.0], rng=1, paths=4, antithetic=True, **options)
    fine = solve(step=0.025)
    for step, every in ((0.05, 2), (0.1, 4)):
        coarse = solve(step=step, noise_step=0.025)
        np.testing.assert_array_equal(coarse.noise, fine.noise[..., ::every])
        assert np.abs(coarse.y - fine.y[..., ::every]).max() < 1.0


def test_strong_order_along_the_same_noise() -> None:
    """Euler's strong order 1/2 with multiplicative noise, against the exact solution on the same path."""
    errors, steps = [], (2**-4, 2**-6, 2**-8)
    for step in steps:
        found = hf.solve_fsde(
            lambda t, y: 0.0 * y, lambda t, y: y, (0, 1), 1.0, step=step, noise_step=2**-8, paths=500, rng=2,
            interpretation="ito", method="euler",
        )  # fmt: skip
        errors.append(np.sqrt(np.mean((found.y[:, 0, -1] - np.exp(found.noise[:, 0, -1] - 0.5)) ** 2)))
    assert np.polyfit(np.log(steps), np.log(errors), 1)[0] == pytest.approx(0.5, abs=0.15)


@pytest.mark.parametrize("process", [noise.Brownian(), noise.FractionalBrownian(0.7)], ids=repr)
def test_a_step_of_the_noise_keeps_the_law(process: noise.Noise) -> None:
    """Caputo's equation draws the newest integral apart: its variance is that without ``noise_step``."""
    options: dict[str, Any] = {"alpha": 0.75, "noise": process, "paths": 4000, "save": "last", "step": 0.1}
    one = hf.solve_fsde(lambda t, y: -y, 1.0, (0, 1), 0.0, rng=1, **options).y[:, 0] ** 2
    two = hf.solve_fsde(lambda t, y: -y, 1.0, (0, 1), 0.0, rng=2, noise_step=0.025, **options).y[:, 0] ** 2
    assert abs(one.mean() - two.mean()) < 4.0 * np.hypot(one.std(), two.std()) / np.sqrt(4000)


def test_saved_times() -> None:
    """``t_eval`` are times of steps; values and noise are those of all steps there."""
    solve = partial(hf.solve_fsde, lambda t, y: -y, 1.0, (1, 2), [1.0, 2.0], step=0.1, rng=1, paths=3)
    whole, some = solve(), solve(t_eval=[1.0, 1.3, 2.0])
    np.testing.assert_array_equal(some.t, whole.t[[0, 3, 10]])
    np.testing.assert_array_equal(some.y, whole.y[..., [0, 3, 10]])
    np.testing.assert_array_equal(some.noise, whole.noise[..., [0, 3, 10]])
    for given, message in (
        ({"t_eval": [1.05]}, "1.05, which is not the time of a step"),
        ({"t_eval": [2.5]}, "2.5, which is not"),
        ({"t_eval": [0.5]}, "t_eval must be finite"),
        ({"t_eval": [1.5], "save": "last"}, "t_eval= with save='last'"),
        ({"noise_step": 0.03}, "noise_step=0.03 does not divide the step 0.1"),
        ({"noise_step": 0.2}, "noise_step=0.2 does not divide"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            solve(**given)


@pytest.mark.parametrize(
    ("y0", "message"),
    [
        (1j, "y0 is complex128"),
        (["a"], "y0=.* has dtype str"),
        (np.array([1], "m8[s]"), "y0 holds dates or time differences"),
        (np.ones(1, np.float16), "y0 is float16"),
    ],
    ids=["complex", "text", "time", "half"],
)
def test_values_that_are_not_real_are_refused(y0: Any, message: str) -> None:
    """Nothing is dropped from them."""
    with pytest.raises(InvalidInputError, match=message):
        hf.solve_fsde(lambda t, y: -y, 1.0, (0, 1), y0, step=0.1)


def test_functions_that_are_not_real_are_refused() -> None:
    """Nor from drift and diffusion, which may become complex later."""
    for drift, diffusion, name in (
        (lambda t, y: -1j * y, 1.0, "the value of drift is complex"),
        (lambda t, y: -y if t < 0.5 else np.emath.sqrt(-y), 1.0, "the value of drift is complex"),
        (lambda t, y: -y, lambda t, y: 1j * y, "the value of diffusion is complex"),
        (lambda t, y: -y, 1j, "diffusion is complex"),
    ):
        with pytest.raises(InvalidInputError, match=name):
            hf.solve_fsde(drift, diffusion, (0, 1), 9.0, step=0.1, interpretation="ito", rng=1)


def test_a_number_is_the_diffusion_of_all_components() -> None:
    """From the function as from the argument."""
    plain = hf.solve_fsde(lambda t, y: -y, 0.3, (0, 1), [1.0, 2.0], step=0.1, rng=1)
    function = hf.solve_fsde(
        lambda t, y: -y, lambda t, y: 0.3, (0, 1), [1.0, 2.0], step=0.1, rng=1, interpretation="ito", method="euler"
    )
    np.testing.assert_allclose(function.y, plain.y, rtol=1e-14)


def test_times_in_single_precision_are_those_that_were_meant() -> None:
    """0.1 in single precision is no divisor of 1, and a grid of such times is uniform all the same."""
    single = np.float32
    given: dict[str, Any] = {"step": single(0.1), "noise_step": single(0.05), "breakpoints": [single(0.3)], "rng": 1}
    found = hf.solve_fsde(lambda t, y: -y, 0.1, (single(0), single(0.7)), 1.0, **given)
    np.testing.assert_allclose(found.t, np.linspace(0.0, 0.7, 8), atol=1e-7)
    some = hf.solve_fsde(lambda t, y: -y, 0.1, (0, 1), 1.0, step=0.1, t_eval=np.array([0.3, 0.7], single), rng=1)
    np.testing.assert_allclose(some.t, [0.3, 0.7], rtol=1e-15)
    grids = np.linspace(0, 1, 5001, dtype=single), np.linspace(0, 1, 5001)
    one, two = (noise.FractionalBrownian(0.3).sample(grid, rng=1) for grid in grids)  # too long for a matrix
    np.testing.assert_array_equal(one, two)
    uneven = np.cumsum([0.0, 0.1, 0.1001, 0.0999], dtype=single)  # not by rounding
    assert read_grid(uneven).step is None


def test_times_that_coincide_are_refused() -> None:
    """Where steps are below the spacing of numbers, in the precision in which the functions see the time."""
    with pytest.raises(InvalidInputError, match="coincide in float64"):
        hf.solve_fsde(lambda t, y: -y, 0.1, (1e16, 1e16 + 10), 1.0, step=0.5)
    jax = pytest.importorskip("jax")
    one = jax.numpy.ones(1, "float32")
    with pytest.raises(InvalidInputError, match="coincide in float32"):
        hf.solve_fsde(lambda t, y: -y, 0.1, (1e6, 1e6 + 1), one, step=0.01)


def test_strengths_that_depend_on_other_components():
    """One noise for each component, but not of its own strength: methods that lose their order then are not used."""
    equation = {"t_span": (0, 1), "y0": [1.0, 0.04], "step": 0.1, "rng": 1}

    def solve(**options):
        return hf.solve_fsde(lambda t, y: 0 * y, lambda t, y: y * np.sqrt(y[:, 1:]), **{**equation, **options})

    assert solve(interpretation="ito").method == "euler"
    own = hf.solve_fsde(lambda t, y: 0 * y, lambda t, y: y, interpretation="ito", **equation)
    assert own.method == "second_order"
    assert solve(interpretation="stratonovich").method == "second_order"
    with pytest.raises(InvalidInputError, match="depends on other components"):
        solve(interpretation="ito", method="milstein")
    with pytest.raises(InvalidInputError, match="depends on that component only"):
        solve(noise=noise.FractionalBrownian(0.4), method="doss_sussmann")


def test_strengths_may_refuse_states_beside_the_start():
    """The search for dependence moves the start; what a function raises there is no error of the simulation."""

    def diffusion(t, y):
        if (y > 1.0).any():
            raise ValueError("no population is above 1")
        return 0.0 * y

    found = hf.solve_fsde(lambda t, y: -y, diffusion, (0, 1), [1.0, 1.0], step=0.1, interpretation="ito", rng=1)
    assert found.success


def test_euler_would_be_wrong_for_rough_multiplicative_noise() -> None:
    """Forced at H = 0.3, it tends to 0 with the step instead of to the solution: it is refused."""
    process = noise.FractionalBrownian(0.3)
    problem = read_problem(linear, multiple, 0.0, np.ones((1, 1)), process, None)
    ratios = []
    for n in (64, 512, 4096):
        t = np.linspace(0, 1, n + 1)
        driving = process.sample(t, (20, 1), rng=4)
        found = integrate(problem, METHODS["euler"], 1.0, t, 1 / n, np.ones((20, 1)), driving)[:, 0, -1]
        ratios.append(np.median(np.abs(found) / np.exp(RATE + SIZE * driving[:, 0, -1])))
    assert ratios[0] > 3 * ratios[1] > 9 * ratios[2]
    with pytest.raises(InvalidInputError, match="does not converge"):
        hf.solve_fsde(linear, multiple, (0, 1), 1.0, step=0.1, noise=process, method="euler")


def test_the_second_order_method_would_be_wrong_below_one_quarter() -> None:
    """Forced at H = 0.15, its error grows with the number of steps; at H = 0.4 it shrinks: the first is refused."""
    medians = {}
    for index in (0.15, 0.4):
        process = noise.FractionalBrownian(index)
        problem = read_problem(linear, multiple, 0.0, np.ones((1, 1)), process, None)
        for n in (64, 2048):
            t = np.linspace(0, 1, n + 1)
            driving = process.sample(t, (40, 1), rng=4)
            found = integrate(problem, METHODS["second_order"], 1.0, t, 1 / n, np.ones((40, 1)), driving)[:, 0, -1]
            exact = np.exp(RATE + SIZE * driving[:, 0, -1])
            medians[index, n] = float(np.median(np.abs(np.log(np.abs(found) / exact))))
    assert medians[0.15, 2048] > 2 * medians[0.15, 64] > 1
    assert medians[0.4, 2048] < 0.5 * medians[0.4, 64]
    with pytest.raises(InvalidInputError, match="H > 1/4"):
        hf.solve_fsde(
            linear, multiple, (0, 1), 1.0, step=0.1, noise=noise.FractionalBrownian(0.15), method="second_order"
        )


def test_rough_noises_that_do_not_commute_would_be_wrong() -> None:
    """Forced at H = 0.2, the variance of the area between two noises grows with the steps; at H = 0.45 it settles."""

    def area(t: float, y: np.ndarray) -> np.ndarray:
        one, zero = np.ones_like(y[:, 0]), np.zeros_like(y[:, 0])
        return np.stack([np.stack(row, -1) for row in ([one, zero], [zero, one], [-y[:, 1], y[:, 0]])], 1)

    growth = {}
    for index in (0.2, 0.45):
        process = noise.FractionalBrownian(index)
        problem = read_problem(lambda t, y: 0 * y, area, 0.0, np.zeros((1, 3)), process, None)
        squares = []
        for n in (16, 512):
            t = np.linspace(0, 1, n + 1)
            driving = process.sample(t, (400, 2), rng=1)
            found = integrate(problem, METHODS["second_order"], 1.0, t, 1 / n, np.zeros((400, 3)), driving, keep=False)
            squares.append(np.mean(found[:, 2] ** 2))
        growth[index] = squares[1] / squares[0]
    assert growth[0.2] > 2.0 and 0.7 < growth[0.45] < 1.5
    with pytest.raises(InvalidInputError, match="no method supports"):
        hf.solve_fsde(lambda t, y: 0 * y, area, (0, 1), np.zeros(3), step=0.1, noise=noise.FractionalBrownian(0.2))

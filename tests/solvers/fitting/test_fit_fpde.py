"""``fit_fpde``: estimates and their uncertainty, beside closed forms."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import optimize

import hpfracc as hf
from hpfracc.errors import AccuracyWarning, InvalidInputError, ShapeError, SolveError
from hpfracc.pde import Diffusion, FractionalDiffusion

Array = np.ndarray[Any, Any]
X, T = np.linspace(0.0, np.pi, 33), np.linspace(0.2, 2.0, 8)
POINTS = np.array([0.5, 1.0, 1.7, 2.4])
START: dict[str, Any] = {"k": 1.0, "alpha": 0.8, "height": 1.0}
BOUNDS = {"k": (0.0, None), "alpha": (0.05, 1.0)}
TRUTH = np.array([0.7, 0.6, 1.2])


def plume(k: float, alpha: float, height: float) -> dict[str, Any]:
    start = height * np.sin(X) + 0.5 * np.sin(2.0 * X)
    return {"u0": start, "x": X, "space": Diffusion(k), "boundary": "dirichlet", "alpha": alpha}


def exact(t: Array, k: float, alpha: float, height: float) -> Array:
    """Two modes at the points, shape (N, P)."""
    slow, fast = (hf.mittag_leffler(-rate * k * t**alpha, alpha)[:, None] for rate in (1.0, 4.0))
    return np.asarray(height * slow * np.sin(POINTS) + 0.5 * fast * np.sin(2.0 * POINTS))


def noisy(seed: int, size: float = 0.01) -> Array:
    return exact(T, *TRUTH) + size * np.random.default_rng(seed).standard_normal((T.size, POINTS.size))


def fitted(seed: int = 0, **options: Any) -> hf.FPDEFit:
    return hf.fit_fpde(plume, T, noisy(seed), points=POINTS, parameters=START, bounds=BOUNDS, **options)


def test_estimates_and_covariance_are_those_of_curve_fit():
    """SciPy's curve_fit on the closed form knows nothing of our solver or our derivatives."""
    fit = fitted()
    values, covariance = optimize.curve_fit(
        lambda t, *p: exact(T, *p).ravel(), T, noisy(0).ravel(), [1.0, 0.8, 1.0], bounds=([0, 0.05, -9], [9, 1, 9])
    )
    assert fit.success and fit.names == ("k", "alpha", "height") and fit.degrees_of_freedom == 29
    np.testing.assert_allclose(fit.estimates, values, rtol=1e-3)
    np.testing.assert_allclose(fit.covariance, covariance, rtol=2e-2)
    assert fit.parameters == dict(zip(fit.names, fit.estimates.tolist(), strict=True))
    np.testing.assert_allclose((fit.estimates - TRUTH) / fit.standard_errors, _linear(0), atol=0.1)
    assert fit.evaluations > 10 and fit.sets[0].data.shape == fit.sets[0].fitted.shape == (4, 8)


def _linear(seed: int) -> Array:
    """Errors over standard errors of the model linearised at the truth, with the noise of this seed: no search."""
    sides = [[exact(T, *(TRUTH + sign * row)).ravel() for sign in (1.0, -1.0)] for row in 1e-5 * np.eye(3)]
    slopes = np.stack([(above - below) / 2e-5 for above, below in sides], axis=1)
    noise = (noisy(seed) - exact(T, *TRUTH)).ravel()
    moved = np.linalg.pinv(slopes) @ noise
    variance = np.sum((noise - slopes @ moved) ** 2) / (noise.size - 3)
    return np.asarray(moved / np.sqrt(variance * np.diag(np.linalg.inv(slopes.T @ slopes))))


@pytest.mark.slow
def test_repeated_draws_err_as_the_linear_model_does():
    """Each draw by itself, and two standard errors cover their share within four deviations of its binomial count."""
    fits = [fitted(seed) for seed in range(60)]
    errors = np.array([(fit.estimates - TRUTH) / fit.standard_errors for fit in fits])
    np.testing.assert_allclose(errors, [_linear(seed) for seed in range(60)], atol=0.5)
    share = 0.945  # of Student's distribution with 29 degrees of freedom
    assert (np.mean(np.abs(errors) < 2.0, axis=0) > share - 4.0 * np.sqrt(share * (1.0 - share) / 60)).all()


def test_an_order_in_space_from_data_on_the_grid():
    """Powers of the spectral Laplacian: modes decay like exp(-K k^(order) t)."""

    def levy(order: float, K: float) -> dict[str, Any]:
        space = FractionalDiffusion(order, "spectral", K)
        return {"u0": np.sin(X) + np.sin(3.0 * X), "x": X, "space": space, "boundary": "dirichlet"}

    def modes(order: float, K: float) -> Array:
        return np.asarray(sum(np.exp(-K * k**order * T)[:, None] * np.sin(k * X) for k in (1.0, 3.0)))

    data = modes(1.4, 0.5) + 0.01 * np.random.default_rng(5).standard_normal((T.size, X.size))
    data[3, 4] = np.nan
    fit = hf.fit_fpde(levy, T, data, parameters={"order": 1.8, "K": 0.3}, bounds={"order": (0.1, 2.0), "K": (0.0, 9.0)})
    assert fit.degrees_of_freedom == T.size * X.size - 3
    assert np.abs((fit.estimates - [1.4, 0.5]) / fit.standard_errors).max() < 3.5
    assert fit.spread == pytest.approx(0.01, rel=0.2)


def test_a_reaction_with_steps_and_robust_loss():
    """A growth rate of a front with memory, by adaptive steps, from data with an outlier."""
    x = np.linspace(0.0, 10.0, 41)

    def front(rate: float) -> dict[str, Any]:
        start = 1.0 / (1.0 + np.exp(2.0 * (x - 3.0)))
        return {
            "reaction": lambda t, u: rate * u * (1.0 - u), "u0": start, "x": x, "space": Diffusion(0.5),
            "boundary": "neumann", "alpha": 0.8,
        }  # fmt: skip

    times = np.array([1.0, 2.0])
    clean = hf.solve_fpde(t_span=(0.0, 2.0), t_eval=times, step=0.05, **front(1.1)).u[:, ::4]
    data = clean + 0.005 * np.random.default_rng(1).standard_normal(clean.shape)
    data[0, 3] += 0.5
    fit = hf.fit_fpde(
        front, times, data, points=x[::4], parameters={"rate": 0.8}, loss="soft_l1", f_scale=0.01, step=0.05
    )
    assert abs(fit.estimates[0] - 1.1) < 3.5 * fit.standard_errors[0] < 0.1


def test_an_initial_field_on_the_grid_with_a_smoothness_penalty():
    """Values of u0 at the grid from two later pictures: a penalty on their curvature determines them better."""
    x, t = np.linspace(0.0, np.pi, 17), np.array([0.05, 0.1])
    truth = np.sin(x) + 0.3 * np.sin(2.0 * x)

    def heat(field: Array) -> dict[str, Any]:
        return {"u0": np.concatenate([[0.0], field, [0.0]]), "x": x, "space": Diffusion(1.0), "boundary": "dirichlet"}

    clean = hf.solve_fpde(t_span=(0.0, 0.1), reaction=None, t_eval=t, **heat(truth[1:-1])).u
    data = clean + 0.01 * np.random.default_rng(2).standard_normal(clean.shape)
    options: dict[str, Any] = {"parameters": {"field": np.zeros(15)}, "sigma": 0.01, "absolute_sigma": True}
    smooth = hf.fit_fpde(heat, t, data, penalty=lambda field: 20.0 * np.diff(field, 2), **options)
    assert smooth.names[0] == "field[0]" and smooth.parameters["field"].shape == (15,)
    errors = (smooth.parameters["field"] - truth[1:-1]) / smooth.standard_errors
    assert np.abs(errors).max() < 4.0 and smooth.standard_errors.max() < 0.05
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        rough = hf.fit_fpde(heat, t, data, **options)
    assert any("nearly collinear" in str(each.message) for each in told)
    assert rough.standard_errors.max() > 3.0 * smooth.standard_errors.max()


def test_what_is_observed_may_be_any_function_of_the_solution():
    """The mass alone determines one of two parameters, which is told."""

    def decaying(rate: float, k: float) -> dict[str, Any]:
        start = 1.0 + np.cos(X)
        return {
            "reaction": lambda t, u: -rate * u, "u0": start, "x": X, "space": Diffusion(k), "boundary": "neumann",
            "alpha": 0.7,
        }  # fmt: skip

    mass = np.pi * hf.mittag_leffler(-0.8 * T**0.7, 0.7) * (1.0 + 0.003 * np.random.default_rng(4).standard_normal(8))
    with pytest.warns(AccuracyWarning, match="do not determine k"):
        fit = hf.fit_fpde(
            decaying,
            T,
            mass,
            observe=lambda result: result.mass,
            parameters={"rate": 0.5, "k": 1.0},
            step=0.02,
            bounds={"k": (0.1, 10.0)},
        )
    assert np.isinf(fit.standard_errors[1]) and abs(fit.estimates[0] - 0.8) < 4.0 * fit.standard_errors[0]


def test_correlated_residuals_are_told():
    """Noise that is the same at all times of a point."""
    x, t, random = np.linspace(0.0, np.pi, 17), np.linspace(0.1, 2.0, 20), np.random.default_rng(0)

    def plume(speed: float) -> dict[str, Any]:
        return {"u0": np.sin(x), "x": x, "space": Diffusion(speed), "boundary": "dirichlet", "alpha": 0.6}

    data = hf.mittag_leffler(-0.7 * t**0.6, 0.6)[:, None] * np.sin([0.8, 1.0, 2.0]) + 0.05 * random.standard_normal(3)
    with pytest.warns(AccuracyWarning, match="residuals are correlated"):
        hf.fit_fpde(plume, t, data, points=[0.8, 1.0, 2.0], parameters={"speed": 1.0}, bounds={"speed": (0.0, None)})


def test_a_coarse_grid_is_told():
    """Three inner points cannot carry the data, whose noise is small: the estimate absorbs the error of the grid."""
    x = np.linspace(0.0, 1.0, 9)

    def pulse(k: float) -> dict[str, Any]:
        start = np.exp(-60.0 * (x - 0.5) ** 2)
        variable = Diffusion(lambda x: k * (1.0 + 0.0 * x))
        return {"u0": start, "x": x, "space": variable, "boundary": "neumann", "alpha": 0.9}

    fine = np.linspace(0.0, 1.0, 129)
    start = np.exp(-60.0 * (fine - 0.5) ** 2)
    options: dict[str, Any] = {"x": fine, "space": Diffusion(0.02), "boundary": "neumann", "alpha": 0.9}
    data = hf.solve_fpde(None, (0.0, 0.5), start, t_eval=[0.2, 0.5], **options).u[:, ::16]
    with pytest.warns(AccuracyWarning, match="take a finer grid"):
        hf.fit_fpde(pulse, [0.2, 0.5], data, parameters={"k": 0.03}, sigma=1e-5, absolute_sigma=True, step=0.01)


def test_a_fit_is_solved_again_drawn_stored_and_pickled(tmp_path: Path):
    """As a fit of an ordinary equation."""
    fit = fitted()
    later = fit.solve([1.0, 4.0])
    slow, fast = (hf.mittag_leffler(-k * fit.estimates[0] * 4.0 ** fit.estimates[1], fit.estimates[1]) for k in (1, 4))
    top = fit.estimates[2] * slow * np.sin(X) + 0.5 * fast * np.sin(2.0 * X)
    np.testing.assert_allclose(later.u[-1], top, atol=1e-6)
    assert fit.solve().t[-1] == 2.0
    assert "alpha" in str(fit) and repr(fit).startswith("FPDEFit(success: k=")
    assert set(fit.confidence_intervals()) == set(fit.names)
    loaded = hf.FPDEFit.load(fit.save(tmp_path / "fit"))
    np.testing.assert_array_equal(loaded.estimates, fit.estimates)
    copy = pickle.loads(pickle.dumps(fit))
    with pytest.raises(InvalidInputError, match="drops its functions"):
        copy.solve()
    pytest.importorskip("matplotlib").use("agg")
    assert len(fit.plot()) == 2


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"equation": 3.0}, InvalidInputError, "not a function"),
        ({"equation": lambda *p: {"u0": X}}, InvalidInputError, "at least u0 and space"),
        ({"equation": lambda *p: {**plume(*p), "rtol": 1e-3}}, InvalidInputError, "options to fit_fpde itself"),
        ({"equation": lambda *p: [1.0]}, InvalidInputError, "Mapping"),
        ({"t": T[::-1]}, InvalidInputError, "increasing"),
        ({"t0": 1.0}, InvalidInputError, "from t0=1 on"),
        ({"data": np.ones((4, 8))}, ShapeError, "times first"),
        ({"data": np.ones((8, 5))}, ShapeError, "what is observed"),
        ({"data": np.where(T > 0.3, np.nan, 1.0)[:, None] * [1.0, np.nan, np.nan, 1.0]}, InvalidInputError, "2 data"),
        ({"sigma": np.ones(3)}, ShapeError, "sigma has shape"),
        ({"sigma": 0.0}, InvalidInputError, "above 0"),
        ({"sigma": np.inf}, InvalidInputError, "finite"),
        ({"points": [9.0]}, InvalidInputError, "outside the grid"),
        ({"observe": lambda result: result.mass}, InvalidInputError, "omit points"),
        ({"bounds": {"K": (0, 1)}}, InvalidInputError, "names are alpha, height, k"),
        ({"bounds": {"k": (2.0, 3.0)}}, InvalidInputError, "outside its bounds"),
        ({"parameters": {}}, InvalidInputError, "nothing is free"),
        ({"alpha": 0.5}, InvalidInputError, "equation returns it"),
        ({"events": len}, InvalidInputError, "the fit sets it"),
        ({"loss": "hubber"}, InvalidInputError, "did you mean 'huber'"),
        ({"max_steps": 3, "method": "l1"}, SolveError, r"cannot be solved at the guess \(k = 1"),
    ],
)  # fmt: skip
def test_bad_input(changes: dict[str, Any], error: type[Exception], says: str):
    """A typed error with the remedy."""
    given: dict[str, Any] = {"equation": plume, "t": T, "data": noisy(0), "points": POINTS, "parameters": START}
    with pytest.raises(error, match=says):
        hf.fit_fpde(**(given | changes))

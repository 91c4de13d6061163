"""Calibration of the models to implied volatilities, by least squares."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import optimize

from hpfracc import _reading
from hpfracc._interrupts import raise_interrupted
from hpfracc.errors import AccuracyWarning, InvalidInputError, ShapeError
from hpfracc.solvers.sde.rough.black import black_price, implied_volatility

#: Where parameters are looked for.
BOUNDS = {
    "H": (0.005, 0.5),
    "v0": (1e-4, 4.0),
    "theta": (1e-4, 4.0),
    "xi": (1e-4, 4.0),
    "kappa": (1e-3, 20.0),
    "sigma": (1e-2, 5.0),
    "eta": (1e-2, 10.0),
    "rho": (-0.999, 0.999),
}
#: Other seeds from which the sampling error of parameters is estimated, and the least ratio of singular values of a
#: surface that determines all parameters.
_SEEDS, _SINGULAR = 8, 1e-6
#: Relative changes of the sum of squares and of the parameters at which the search ends.
_TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False)
class Calibration:
    """A model that was fitted to implied volatilities.

    Attributes
    ----------
    model : Heston or Bergomi
        The fitted model.
    parameters, standard_errors : dict of float
        The fitted parameters and their standard errors: from the errors of the quotes if they were given, otherwise
        from the residuals; for models that are sampled they include the sampling error.
    fitted, residuals : ndarray
        Volatilities of the fitted model, and those minus the quotes, in the shape of the quotes.
    root_mean_square : float
        Of the residuals.
    evaluations : int
        Number of surfaces that were evaluated.
    success : bool
        Whether the search converged, to parameters that the quotes determine.
    message : str
        How it ended.
    """

    model: Any
    parameters: dict[str, float]
    standard_errors: dict[str, float]
    fitted: np.ndarray
    residuals: np.ndarray
    root_mean_square: float
    evaluations: int
    success: bool
    message: str


def fit_quotes(
    model: Any, K: Any, T: Any, volatility: Any, error: Any, free: Any, most: int, accuracy: dict[str, Any]
) -> Calibration:
    """Fit ``model``; see :meth:`~hpfracc.solvers.sde.rough.model.VolatilityModel.calibrate`."""
    if "rng" in accuracy:  # a generator would draw other numbers each time
        accuracy = {**accuracy, "rng": _reading.whole("rng", accuracy["rng"], least=0)}
    strikes, maturities, quotes, spread = read_quotes(
        K=K, T=T, volatility=volatility, error=1.0 if error is None else error
    )
    names = model._free_names() if free is None else tuple(_reading.listed("free", free, "names of parameters"))
    for name in names:
        _reading.choice("free", name, model._free_names())
    if not names or quotes.size < len(names):
        raise InvalidInputError(f"{quotes.size} quotes for the parameters {names}; give at least as many as parameters")
    forward = model.forward(maturities)
    lower, upper = np.minimum(forward, strikes), np.maximum(forward, strikes)
    target = black_price(lower, upper, maturities, quotes)
    distance = np.log(upper / lower) / (quotes * np.sqrt(maturities))
    vega = lower * np.sqrt(maturities / (2.0 * np.pi)) * np.exp(-0.5 * (distance - 0.5 * quotes * maturities**0.5) ** 2)
    weights = 1.0 / (vega * spread)

    def surface(point: tuple[float, ...], slopes: bool = True, **other: Any) -> Any:
        trial = dataclasses.replace(model, **dict(zip(names, point, strict=True)))
        with warnings.catch_warnings():  # of prices far from the quotes; those of the fit are evaluated again
            warnings.simplefilter("ignore", AccuracyWarning)
            return trial._priced(strikes, maturities, names if slopes else (), **{**accuracy, **other})

    once = functools.cache(surface)
    low, high = np.array([BOUNDS[name] for name in names]).T
    leading: list[Any] = [np.inf, (), target]

    def residuals(point: np.ndarray) -> np.ndarray:
        here = tuple(point.tolist())
        prices = once(here)[0].value
        off = ((prices - target) * weights).ravel()
        if off @ off < leading[0]:
            leading[:] = off @ off, here, prices
        return np.asarray(off)

    try:
        found = optimize.least_squares(
            residuals,
            np.clip([getattr(model, name) for name in names], low + 1e-6, high - 1e-6),
            lambda point: (once(tuple(point.tolist()))[1] * weights[..., None]).reshape(-1, len(names)),
            bounds=(low, high),
            x_scale="jac",
            max_nfev=most,
            **{"ftol": _TOLERANCE, "xtol": _TOLERANCE, "gtol": 1e-15},
        )
    except KeyboardInterrupt:
        numbers, count = dict(zip(names, leading[1], strict=False)), once.cache_info().misses
        off = np.asarray(implied_volatility(leading[2], lower, upper, maturities)) - quotes
        told = f"Interrupted after {count} evaluations: these are the best parameters so far."
        part = Calibration(
            dataclasses.replace(model, **numbers), numbers, dict.fromkeys(numbers, np.nan), off + quotes, off,
            float(np.sqrt(np.mean(off**2))), count, False, told,
        )  # fmt: skip
        raise_interrupted(told, part if numbers else None)
    best = tuple(found.x.tolist())
    numbers = dict(zip(names, best, strict=True))
    prices = once(best)[0].value
    fitted = np.asarray(implied_volatility(prices, lower, upper, maturities))
    sizes = np.linalg.norm(found.jac, axis=0)
    _, scales, turned = np.linalg.svd(found.jac / sizes, full_matrices=False)
    covariance = (turned.T / scales**2) @ turned / np.outer(sizes, sizes)
    if error is None:
        left = quotes.size - len(names)
        covariance *= 2.0 * found.cost / left if left else np.nan
    if "rng" in accuracy:
        seeds = np.random.SeedSequence(accuracy["rng"]).spawn(_SEEDS)
        others = [((surface(best, False, rng=seed)[0].value - prices) * weights).ravel() for seed in seeds]
        # A Gauss-Newton step to each; the difference of two independent surfaces has twice the variance of one.
        moved = np.linalg.lstsq(found.jac, np.stack(others, -1), rcond=None)[0]
        covariance = covariance + 0.5 * moved @ moved.T / _SEEDS
    message = str(found.message)
    determined = bool(scales[-1] > _SINGULAR * scales[0])
    near = [name for name, x, a, b in zip(names, found.x, low, high, strict=True) if min(x - a, b - x) < 1e-3 * (b - a)]
    if not determined:
        message += " The quotes do not determine all parameters: fix some of them with free=."
    if near:
        message += f" At an end of their range: {', '.join(near)}."
    errors = dict(zip(names, np.sqrt(np.diag(covariance)).tolist(), strict=True))
    off, success = fitted - quotes, bool(found.status > 0 and determined)
    size, evaluations = float(np.sqrt(np.mean(off**2))), once.cache_info().misses
    fit = dataclasses.replace(model, **numbers)
    return Calibration(fit, numbers, errors, fitted, off, size, evaluations, success, message)


def read_quotes(**given: Any) -> tuple[np.ndarray, ...]:
    """Arrays by name, all finite and positive, broadcast to one shape."""
    arrays = {name: _reading.numbers(name, value, finite=False) for name, value in given.items()}
    for name, array in arrays.items():
        if not (np.isfinite(array) & (array > 0.0)).all():
            raise InvalidInputError(
                f"{name} has entries that are not finite and positive: {_reading.shown(given[name])}"
            )
    try:
        return np.broadcast_arrays(*arrays.values())
    except ValueError:
        shapes = ", ".join(f"{name} of shape {array.shape}" for name, array in arrays.items())
        raise ShapeError(f"{shapes} do not broadcast") from None

"""The search of all fits: least squares with bounds; covariances, and unknowns that the data do not determine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, get_args

import numpy as np

from hpfracc._choices import LossName
from hpfracc._interrupts import raise_interrupted
from hpfracc.errors import SolveError, warn

Array = np.ndarray[Any, Any]

#: Changes of the cost and of the unknowns, and gradient, below which a search over solutions ends.
_TOLERANCES = (1e-9, 1e-9, 1e-12)
#: Losses of ``scipy.optimize.least_squares``.
LOSSES: tuple[str, ...] = get_args(LossName)
#: Singular values below this fraction of the largest, with scaled columns, count as zero: finite differences have about
#: six digits.
_RANK = 3e-6
#: Two estimates with a larger correlation cannot be distinguished by the data.
_ALIKE = 0.999
#: An unknown whose relative effect on the prediction is below this has none beyond rounding, which is about 1e-12 in a
#: difference quotient with a step of 1e-4.
_FELT = 1e-9
#: A search whose evaluations are limited ends if this number of them lowers the norm of the residuals by less than
#: this share. The latter, while the residuals are larger than those of a constant: it crawls where nothing is fitted.
_PATIENCE, _LOST = (30, 1e-3), (15, 0.1)
#: A search that ends by its gradient with residuals below this share of those at the start goes on: the bound of the
#: gradient was that of the start.
_FALLEN = 1e-3
#: Residuals that are a smaller share of the data are errors of a solver rather than noise, and are not tested.
SYSTEMATIC = 1e-5
#: A sum of products of independent residuals exceeds this number of standard deviations in 1 of 4,000 fits.
_SUSPICIOUS = 3.5
#: Below this number of them, residuals look random; the sum of so few products that are all equal is 5 of them.
_RANDOM, _ENOUGH = 2.0, 25


def differences(
    values: Callable[[Array], Array], x: Array, delta: Array, lower: Array, upper: Array, here: Array | None = None
) -> Array:
    """Derivatives (n, p) of ``values(x)`` by central differences, or one-sided ones at a bound or with ``here``, it."""
    high, low = np.minimum(x + delta, upper), np.maximum(x - delta, lower)
    units = np.eye(x.size, dtype=bool)
    if here is not None:
        other = np.where(high > x, high, low)
        found = [(values(np.where(unit, other, x)) - here) / (other - x)[k] for k, unit in enumerate(units)]
        return np.stack(found, axis=1)
    sides = [[values(np.where(unit, side, x)) for side in (high, low)] for unit in units]
    return np.stack([(above - below) / (high - low)[k] for k, (above, below) in enumerate(sides)], axis=1)


class _StalledError(Exception):
    """A search makes no progress."""


class LeastSquares:
    """Minimises the sum of ``rho((values(x) - observed)^2)``.

    Parameters
    ----------
    names : tuple of str
        Names of the unknowns.
    values, slopes : callables
        The prediction (n,) in units of ``sigma`` and its derivatives (n, p). A ``SolveError`` or a value that is not
        finite is avoided.
    observed : array, shape (n,)
        The data in units of ``sigma``.
    lower, upper : arrays, shape (p,)
        Bounds.
    logarithmic : array of bool, shape (p,), optional
        Unknowns whose logarithm is varied.
    """

    def __init__(
        self, names: tuple[str, ...], values: Callable[[Array], Array], slopes: Callable[[Array], Array],
        observed: Array, lower: Array, upper: Array, logarithmic: Array | None = None,
    ) -> None:  # fmt: skip
        self.names, self.values, self.slopes, self.observed = names, values, slopes, observed
        self.logarithmic = np.zeros(lower.size, bool) if logarithmic is None else logarithmic
        self.bounds = self._inner(lower), self._inner(upper)
        self.calls, self.message = 0, ""
        #: The unknowns with the smallest residuals so far, and these.
        self.best: tuple[Array, Array] | None = None
        self._last: tuple[Array, Array] | None = None

    def _inner(self, x: Array) -> Array:
        with np.errstate(divide="ignore"):  # the bound 0
            return np.where(self.logarithmic, np.log(np.where(self.logarithmic, x, 1.0)), x)

    def _outer(self, u: Array) -> Array:
        return np.where(self.logarithmic, np.exp(np.clip(np.where(self.logarithmic, u, 0.0), -700.0, 700.0)), u)

    def predicted(self, x: Array) -> Array:
        """``values(x)``, which is kept until it is asked for elsewhere."""
        if self._last is None or not np.array_equal(self._last[0], x):
            self._last = x.copy(), self.values(x)
        return self._last[1]

    def residuals(self, x: Array) -> Array:
        """Prediction minus data; nan where the prediction fails."""
        self.calls += 1
        try:
            found = self.predicted(x) - self.observed
        except SolveError as error:
            self.message = str(error)
            return np.full(self.observed.size, np.nan)
        if np.isfinite(found).all() and (self.best is None or np.linalg.norm(found) < np.linalg.norm(self.best[1])):
            self.best = x.copy(), found
        return found

    def minimise(self, start: Array, tolerances: Sequence[float] = _TOLERANCES, **options: Any) -> Any:
        """SciPy's result, with ``x`` in the units of ``start``."""
        from scipy.optimize import least_squares

        first = np.abs(self.residuals(start)).max()
        if not np.isfinite(first):
            shown = ", ".join(f"{n} = {v:g}" for n, v in zip(self.names, start, strict=True))
            raise SolveError(f"the equation cannot be solved at the guess ({shown}): {self.message or 'not finite'}")

        # Of the residuals, because the bound of the gradient must not depend on the units of the data.
        unit = max(first, _FELT * np.abs(self.observed).max()) or 1.0
        options |= {"f_scale": options.get("f_scale", 1.0) / unit}

        def jacobian(u: Array) -> Array:
            x = self._outer(u)
            found = self.slopes(x)
            sizes = np.maximum(np.abs(x), np.abs(start)) + (start == 0.0)
            # Rounding must not move an unknown without an effect.
            return np.where(unfelt(found, sizes, self.observed), 0.0, found * np.where(self.logarithmic, x, 1.0)) / unit

        lowest: list[float] = []
        patience, progress = _PATIENCE
        level = float(np.linalg.norm(self.observed - self.observed.mean())) / unit
        best = self._inner(start)

        def relative(u: Array) -> Array:
            nonlocal best, patience, progress
            found = self.residuals(self._outer(u)) / unit
            norm = float(np.linalg.norm(found))
            if not lowest or norm < lowest[-1]:
                best = u.copy()
            lowest.append(norm if not lowest else min(lowest[-1], norm) if np.isfinite(norm) else lowest[-1])
            patience, progress = _LOST if lowest[-1] > level else _PATIENCE
            limited = "max_nfev" in options and len(lowest) > patience
            if limited and lowest[-1] > (1.0 - progress) * lowest[-1 - patience]:
                raise _StalledError
            return np.asarray(found)

        ends = dict(zip(("ftol", "xtol", "gtol"), tolerances, strict=True))
        given = {"jac": jacobian, "bounds": self.bounds, "x_scale": "jac", **ends, **options}
        try:
            found = least_squares(relative, self._inner(start), **given)
        except _StalledError:
            lowest.clear()
            found = least_squares(relative, best, **{**given, "max_nfev": 1})
            found.success = False
            found.message = (
                f"{patience} evaluations lowered the residuals by less than {100 * progress:g} %, and the search was "
                "ended: start elsewhere (other signs or sizes of the guess), or give bounds"
            )
        if found.status == 1 and unit == first and np.abs(found.fun).max() < _FALLEN:
            return self.minimise(self._outer(found.x), tolerances, **(options | {"f_scale": options["f_scale"] * unit}))
        width, u = self.bounds[1] - self.bounds[0], found.x
        slack = 1e-8 * np.where(np.isfinite(width), width, np.abs(u))
        close = np.minimum(u - self.bounds[0], self.bounds[1] - u) < slack
        found.at_bound = close | (found.active_mask != 0)
        found.x = self._outer(u)
        found.slopes = found.jac * unit / np.where(self.logarithmic, found.x, 1.0)
        found.cost *= unit**2
        return found

    def report(
        self, found: Any, start: Array, loss: str, f_scale: float, absolute: bool, series: Sequence[Array],
        magnitudes: Callable[[Array], Array],
    ) -> dict[str, Any]:  # fmt: skip
        """Estimates and their uncertainty, as fields of a fit.

        ``series`` are the places of data that follow each other. ``magnitudes`` are those of a prediction, in the units
        of the data, with which residuals may grow.
        """
        # Those of SciPy are weighted by the loss.
        residuals = self.residuals(found.x)
        slopes = found.slopes if loss == "linear" else self.slopes(found.x)
        sizes = np.maximum(np.abs(found.x), np.abs(start))
        sizes = np.where(sizes > 0.0, sizes, 1.0)
        predicted = residuals + self.observed
        sure = certainty(self.names, slopes, residuals, predicted, sizes, found.at_bound, loss, f_scale, absolute)
        complaints = (*sure.complaints, *residual_complaints(residuals, predicted, series, magnitudes(predicted)))
        return {
            "names": self.names,
            "estimates": found.x,
            "standard_errors": np.sqrt(np.diagonal(sure.covariance)),
            "covariance": sure.covariance,
            "correlation": sure.correlation,
            "spread": sure.spread,
            "degrees_of_freedom": self.observed.size - int((~found.at_bound).sum()),
            "success": bool(found.success),
            "message": ". ".join([str(found.message).rstrip("."), *complaints]) + ".",
            "warnings": complaints,
        }

    def part(self) -> tuple[Array, dict[str, Any], Array]:
        """What an interrupted search has: the best unknowns, fields of a fit, and the prediction."""
        if self.best is None:
            raise_interrupted("Interrupted before anything was fitted.", None)
        x, residuals = self.best
        unknown, free = np.full((x.size, x.size), np.nan), self.observed.size - x.size
        report = {
            "names": self.names,
            "estimates": x,
            "standard_errors": unknown[0],
            "covariance": unknown,
            "correlation": unknown,
            "spread": float(np.sqrt(residuals @ residuals / free)) if free > 0 else float("nan"),
            "degrees_of_freedom": free,
            "success": False,
            "message": f"Interrupted after {self.calls:,} evaluations: these are the best values so far.",
            "warnings": (),
        }
        return x, report, residuals + self.observed


def residual_complaints(
    residuals: Array, predicted: Array, series: Sequence[Array], magnitudes: Array
) -> tuple[str, ...]:
    """What the residuals say against the standard errors: they are correlated, or change with the magnitude."""
    if np.linalg.norm(residuals) <= SYSTEMATIC * np.linalg.norm(predicted):
        return ()
    products = _neighbours(residuals, series)
    if products.sum() > _SUSPICIOUS * np.linalg.norm(products):
        near = products.sum() / max(float(sum(residuals[each] @ residuals[each] for each in series)), 1e-300)
        return (
            f"the residuals are correlated (by {near:.2f} from one datum to the next), so that the standard errors are "
            "too small: change the model, or keep data that are further apart",
        )
    places = np.concatenate(list(series))
    trend = trend_with(residuals[places], magnitudes[places])
    if abs(trend) <= _SUSPICIOUS:
        return ()
    grow = "grow" if trend > 0.0 else "shrink"
    return (
        f"the residuals, in units of sigma, {grow} with the magnitude of the data, so that the standard errors are "
        f"wrong: give a sigma= that {grow}s {'with it' if trend > 0.0 else 'less with it, such as sigma=1'}",
    )


def looks_random(residuals: Array, predicted: Array, series: Sequence[Array]) -> bool:
    """Whether residuals are negligible, or so many that a wrong model would show, and not correlated."""
    negligible = np.linalg.norm(residuals) <= SYSTEMATIC * np.linalg.norm(predicted)
    products = _neighbours(residuals, series)
    return bool(negligible or (products.size >= _ENOUGH and products.sum() < _RANDOM * np.linalg.norm(products)))


def _neighbours(residuals: Array, series: Sequence[Array]) -> Array:
    """Products of adjacent residuals."""
    return np.concatenate([residuals[each[1:]] * residuals[each[:-1]] for each in series])


def trend_with(residuals: Array, magnitudes: Array) -> float:
    """Spearman's rank correlation of absolute residuals and magnitudes, in units of its standard deviation."""
    if residuals.size < 3 or np.ptp(magnitudes) == 0.0:
        return 0.0
    ranks = [np.argsort(np.argsort(each, kind="stable")) - 0.5 * (each.size - 1) for each in
             (np.abs(residuals), magnitudes)]  # fmt: skip
    return float(ranks[0] @ ranks[1] / (ranks[0] @ ranks[0]) * np.sqrt(residuals.size - 1.0))


def add_complaints(report: dict[str, Any], complaints: Sequence[str], most: int) -> None:
    """Add further complaints to a report, say that the search was cut off at ``most`` calls, and warn of everything."""
    report["warnings"] = (*report["warnings"], *complaints)
    stalled = report["success"] or "evaluations lowered" in report["message"]
    cut = [] if stalled else [f"Raise max_evaluations={most}"]
    report["message"] = ". ".join([report["message"].rstrip("."), *cut, *complaints]) + "."
    for complaint in report["warnings"]:
        warn(complaint)


class Certainty(NamedTuple):
    """Uncertainty of the estimates.

    Attributes
    ----------
    covariance : array, shape (p, p)
        ``inf`` on the diagonal for unknowns that the data do not determine, ``nan`` at a bound or without degrees of
        freedom.
    correlation : array, shape (p, p)
        Correlation of the estimates.
    spread : float
        Standard deviation of the residuals, in units of ``sigma``.
    complaints : tuple of str
        What the data do not determine, in words.
    """

    covariance: Array
    correlation: Array
    spread: float
    complaints: tuple[str, ...]


def certainty(
    names: tuple[str, ...],
    jacobian: Array,
    residuals: Array,
    predicted: Array,
    sizes: Array,
    at_bound: Array,
    loss: str,
    scale: float,
    absolute: bool,
) -> Certainty:
    """Uncertainty from the problem linearised at the solution; by Huber's formula for robust losses.

    Parameters
    ----------
    jacobian : array, shape (n, p)
        Jacobian of the residuals.
    predicted : array, shape (n,)
        Predictions divided by ``sigma``.
    sizes : array, shape (p,)
        Magnitudes of the unknowns, above 0.
    at_bound : array of bool, shape (p,)
        Unknowns that ended at a bound, and count as fixed.
    scale : float
        ``f_scale`` of the loss.
    absolute : bool
        Whether ``sigma`` is the standard deviation, not only proportional to it.

    References
    ----------
    P. J. Huber, E. M. Ronchetti, Robust Statistics, 2nd ed., Wiley 2009, section 7.6.
    """
    n, p = jacobian.shape
    covariance = np.full((p, p), np.nan)
    correlation = np.full((p, p), np.nan)
    inside = np.flatnonzero(~at_bound)
    free = n - inside.size
    psi, slope = _influence(residuals, loss, scale)
    variance = float(psi @ psi) / free if free > 0 else float("nan")
    spread = float(np.sqrt(residuals @ residuals / free)) if free > 0 else float("nan")
    factor = 1.0 if absolute and loss == "linear" else variance / float(np.mean(slope)) ** 2
    complaints = [f"{names[k]} ended at a bound: it counts as fixed there" for k in np.flatnonzero(at_bound)]
    if not inside.size:
        return Certainty(covariance, correlation, spread, tuple(complaints))
    columns = jacobian[:, inside]
    blind = unfelt(columns, sizes[inside], predicted)
    lengths = np.where(blind, 0.0, np.sqrt(np.sum(columns**2, axis=0)))
    _, values, rows = np.linalg.svd(np.where(blind, 0.0, columns) / (lengths + blind), full_matrices=False)
    rows = rows[: min(n, inside.size)]
    good = values > _RANK * max(float(values[0]), np.finfo(np.float64).tiny)
    lost = np.sum(rows[good] ** 2, axis=0) < 1.0 - 1e-6  # these have a component along a direction without information
    scaled = (rows[good].T / values[good] ** 2) @ rows[good]
    found = factor * scaled / np.outer(lengths + blind, lengths + blind)
    deviations = np.sqrt(np.diagonal(found))
    with np.errstate(invalid="ignore", divide="ignore"):
        shared = found / np.outer(deviations, deviations)
    if lost.any():
        found[lost] = found[:, lost] = np.nan
        found[lost, lost] = np.inf
        shared[lost] = shared[:, lost] = np.nan
        inner = [names[k] for k in inside[lost]]
        complaints.append(
            f"the data do not determine {_listed(inner)}: "
            + ("some combination of them leaves" if len(inner) > 1 else "it leaves")
            + " the fit unchanged; fix one, or observe more"
        )
    np.fill_diagonal(shared, np.where(np.isnan(np.diagonal(shared)), np.nan, 1.0))
    covariance[np.ix_(inside, inside)] = found
    correlation[np.ix_(inside, inside)] = shared
    complaints += [
        f"{names[j]} and {names[i]} are nearly collinear (correlation {correlation[i, j]:.5f}): fix one, or observe "
        "more"
        for i in range(p)
        for j in range(i)
        if abs(correlation[i, j]) > _ALIKE
    ]
    if free <= 0:
        complaints.append(f"{n} data for {inside.size} unknowns leave no degree of freedom: no standard errors")
    return Certainty(covariance, correlation, spread, tuple(complaints))


def unfelt(columns: Array, sizes: Array, predicted: Array) -> Array:
    """Unknowns without an effect beyond rounding."""
    effect = np.sqrt(np.sum(columns**2, axis=0)) * sizes
    return np.asarray(effect <= max(_FELT * float(np.linalg.norm(predicted)), np.finfo(np.float64).tiny))


def _influence(residuals: Array, loss: str, scale: float) -> tuple[Array, Array]:
    """``psi = r rho'(z)`` and its derivative in r, for ``z = (r/scale)^2``."""
    z = (residuals / scale) ** 2
    if loss == "linear":
        first, second = np.ones_like(z), np.zeros_like(z)
    elif loss == "soft_l1":
        first, second = (1.0 + z) ** -0.5, -0.5 * (1.0 + z) ** -1.5
    elif loss == "huber":
        far = np.maximum(z, 1.0)
        first, second = np.where(z <= 1.0, 1.0, far**-0.5), np.where(z <= 1.0, 0.0, -0.5 * far**-1.5)
    elif loss == "cauchy":
        first, second = 1.0 / (1.0 + z), -1.0 / (1.0 + z) ** 2
    else:
        first, second = 1.0 / (1.0 + z**2), -2.0 * z / (1.0 + z**2) ** 2
    return residuals * first, first + 2.0 * z * second


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"

"""The search of all fits: least squares with bounds, and what it found."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hpfracc.errors import AccuracyWarning, SolveError
from hpfracc.solvers.ode.fitting.statistics import certainty, unfelt

Array = np.ndarray[Any, Any]

#: Changes of the cost and of the unknowns, and gradient, below which a search over solutions ends.
_TOLERANCES = (1e-9, 1e-9, 1e-12)


def differences(values: Callable[[Array], Array], x: Array, delta: Array, lower: Array, upper: Array) -> Array:
    """Derivatives (n, p) of ``values(x)`` by central differences, or one-sided ones at a bound."""
    high, low = np.minimum(x + delta, upper), np.maximum(x - delta, lower)
    units = np.eye(x.size, dtype=bool)
    sides = [[values(np.where(unit, side, x)) for side in (high, low)] for unit in units]
    return np.stack([(above - below) / (high - low)[k] for k, (above, below) in enumerate(sides)], axis=1)


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

    def _inner(self, x: Array) -> Array:
        with np.errstate(divide="ignore"):  # the bound 0
            return np.where(self.logarithmic, np.log(np.where(self.logarithmic, x, 1.0)), x)

    def _outer(self, u: Array) -> Array:
        return np.where(self.logarithmic, np.exp(np.clip(np.where(self.logarithmic, u, 0.0), -700.0, 700.0)), u)

    def residuals(self, x: Array) -> Array:
        """Prediction minus data; nan where the prediction fails."""
        self.calls += 1
        try:
            return self.values(x) - self.observed
        except SolveError as error:
            self.message = str(error)
            return np.full(self.observed.size, np.nan)

    def minimise(self, start: Array, tolerances: Sequence[float] = _TOLERANCES, **options: Any) -> Any:
        """SciPy's result, with ``x`` in the units of ``start``."""
        from scipy.optimize import least_squares

        if not np.isfinite(self.residuals(start)).all():
            shown = ", ".join(f"{n} = {v:g}" for n, v in zip(self.names, start, strict=True))
            raise SolveError(f"the equation cannot be solved at the guess ({shown}): {self.message or 'not finite'}")

        def jacobian(u: Array) -> Array:
            x = self._outer(u)
            found = self.slopes(x)
            sizes = np.maximum(np.abs(x), np.abs(start)) + (start == 0.0)
            # Rounding must not move an unknown without an effect.
            return np.where(unfelt(found, sizes, self.observed), 0.0, found * np.where(self.logarithmic, x, 1.0))

        ends = dict(zip(("ftol", "xtol", "gtol"), tolerances, strict=True))
        found = least_squares(
            lambda u: self.residuals(self._outer(u)), self._inner(start), jac=jacobian, bounds=self.bounds,
            x_scale="jac", **ends, **options,
        )  # fmt: skip
        width, u = self.bounds[1] - self.bounds[0], found.x
        slack = 1e-8 * np.where(np.isfinite(width), width, np.abs(u))
        close = np.minimum(u - self.bounds[0], self.bounds[1] - u) < slack
        found.at_bound = close | (found.active_mask != 0)
        found.x = self._outer(u)
        found.slopes = found.jac / np.where(self.logarithmic, found.x, 1.0)
        return found

    def report(self, found: Any, start: Array, loss: str, f_scale: float, absolute: bool) -> dict[str, Any]:
        """Estimates and their uncertainty, as fields of a fit."""
        # Those of SciPy are weighted by the loss.
        residuals = self.residuals(found.x)
        slopes = found.slopes if loss == "linear" else self.slopes(found.x)
        sizes = np.maximum(np.abs(found.x), np.abs(start))
        sizes = np.where(sizes > 0.0, sizes, 1.0)
        predicted = residuals + self.observed
        sure = certainty(self.names, slopes, residuals, predicted, sizes, found.at_bound, loss, f_scale, absolute)
        return {
            "names": self.names,
            "estimates": found.x,
            "standard_errors": np.sqrt(np.diagonal(sure.covariance)),
            "covariance": sure.covariance,
            "correlation": sure.correlation,
            "spread": sure.spread,
            "degrees_of_freedom": self.observed.size - int((~found.at_bound).sum()),
            "success": bool(found.success),
            "message": ". ".join([str(found.message).rstrip("."), *sure.complaints]) + ".",
            "warnings": sure.complaints,
        }


def add_complaints(report: dict[str, Any], complaints: Sequence[str], most: int, stacklevel: int = 3) -> None:
    """Add further complaints to a report, say that the search was cut off at ``most`` calls, and warn of everything."""
    report["warnings"] = (*report["warnings"], *complaints)
    cut = [] if report["success"] else [f"Raise max_evaluations={most}"]
    report["message"] = ". ".join([report["message"].rstrip("."), *cut, *complaints]) + "."
    for complaint in report["warnings"]:
        warnings.warn(complaint, AccuracyWarning, stacklevel=stacklevel)

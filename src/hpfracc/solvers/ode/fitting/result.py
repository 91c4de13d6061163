"""Results of a fit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import special

from hpfracc.errors import InvalidInputError

__all__ = ["Estimates", "FODEFit", "FittedSet"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, eq=False)
class FittedSet:
    """One data set with its prediction.

    Attributes
    ----------
    t : array, shape (N,)
        Times of the data.
    data, fitted, residuals : array, shape (m, N)
        Data, prediction, and data minus prediction; nan for missing data.
    curve_t, curve : arrays, shape (M,) and (m, M)
        The prediction at more times, for a smooth line.
    """

    t: Array
    data: Array
    fitted: Array
    residuals: Array
    curve_t: Array
    curve: Array


class Estimates:
    """What a fit found: names, estimates and standard errors, as intervals and as a table."""

    __slots__ = ()

    names: tuple[str, ...]
    estimates: Array
    standard_errors: Array
    degrees_of_freedom: int

    def confidence_intervals(self, level: float = 0.95) -> dict[str, tuple[float, float]]:
        """Confidence intervals of each unknown at this level, from Student's distribution."""
        if not 0.0 < level < 1.0:
            raise InvalidInputError(f"level={level!r} has to lie between 0 and 1, such as 0.95")
        free = self.degrees_of_freedom
        width = float(special.stdtrit(free, 0.5 + 0.5 * level)) if free > 0 else math.nan
        pairs = zip(self.names, self.estimates, self.standard_errors, strict=True)
        return {name: (float(value - width * error), float(value + width * error)) for name, value, error in pairs}

    def table(self) -> list[str]:
        """The lines of a table."""
        intervals = self.confidence_intervals()
        width = max(9, *(len(name) for name in self.names))
        lines = [f"{'unknown':<{width}}  {'estimate':>12}  {'std. error':>11}  95 % interval"]
        for name, value, error in zip(self.names, self.estimates, self.standard_errors, strict=True):
            low, high = intervals[name]
            lines.append(f"{name:<{width}}  {value:>12.6g}  {error:>11.3g}  [{low:.6g}, {high:.6g}]")
        return lines


@dataclass(frozen=True, slots=True, eq=False)
class FODEFit(Estimates):
    """Estimates of a fractional equation's parameters, with their uncertainty.

    Attributes
    ----------
    names : tuple of str
        Names of the unknowns, such as ``("k", "alpha", "y0[0]")``.
    estimates, standard_errors : array, shape (p,)
        In the order of ``names``. A standard error is ``inf`` if the data do not determine the unknown, and ``nan`` at
        a bound or without degrees of freedom.
    covariance, correlation : array, shape (p, p)
        Covariance and correlation of the estimates.
    parameters : dict of str to float or array
        The parameters in the order of the arguments of ``fun``.
    alpha : float or array
        The order, estimated or given.
    y0 : array, or tuple of arrays
        The initial state, of each data set if there are several.
    spread : float
        Standard deviation of the residuals, in units of ``sigma`` if that is given.
    degrees_of_freedom : int
        Number of data minus number of unknowns.
    halved : dict of str to float, or None
        The estimates with half the step, if a ``step`` was given. An estimate that changes by a standard error has
        absorbed a discretisation error.
    success : bool
        Whether the search converged.
    message : str
        Why the search stopped, and what the data do not determine.
    warnings : tuple of str
        Unknowns that are not identified, at a bound, or changed by the step.
    evaluations : int
        Number of predictions with derivatives.
    sets : tuple of FittedSet
        Data and prediction.
    """

    names: tuple[str, ...]
    estimates: Array
    standard_errors: Array
    covariance: Array
    correlation: Array
    parameters: dict[str, Any]
    alpha: Any
    y0: Any
    spread: float
    degrees_of_freedom: int
    halved: dict[str, float] | None
    success: bool
    message: str
    warnings: tuple[str, ...]
    evaluations: int
    sets: tuple[FittedSet, ...] = field(repr=False)

    def to_dict(self) -> Mapping[str, Any]:
        """Estimates and standard errors as plain data."""
        return {
            "estimates": dict(zip(self.names, self.estimates.tolist(), strict=True)),
            "standard_errors": dict(zip(self.names, self.standard_errors.tolist(), strict=True)),
            "spread": self.spread,
            "halved": self.halved,
            "success": self.success,
            "message": self.message,
        }

    def plot(self, *, axes: Any = None) -> Any:
        """Plot data and fit above, residuals below; returns the two axes.

        Needs Matplotlib (``pip install hpfracc[plot]``).
        """
        from hpfracc.solvers.ode.plot import plot_fit

        return plot_fit(self.sets, axes)

    def __str__(self) -> str:
        lines = self.table()
        if self.halved is not None:
            moved = ", ".join(f"{name} = {value:.6g}" for name, value in self.halved.items())
            lines.append(f"with half the step: {moved}")
        return "\n".join([*lines, self.message])

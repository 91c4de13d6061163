"""Results of a fit."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy import special

from hpfracc import _reading
from hpfracc._choices import FloatOrArray
from hpfracc._optional import import_optional
from hpfracc._results import MAX_NAMED, LabelledArrays, Result, SmallCurve
from hpfracc.errors import InvalidInputError, SolveError
from hpfracc.solvers.fitting.unknowns import read_times

if TYPE_CHECKING:
    from hpfracc._results import Axes

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


def partly_fitted(sets: Iterable[tuple[Array, Array, Array]], predicted: Array) -> tuple[FittedSet, ...]:
    """Data sets ``(t, data, sigma)`` with the prediction of the data that are not missing, in units of ``sigma``."""
    found, begin = [], 0
    for t, data, sigma in sets:
        keep, fitted = np.isfinite(data), np.full(data.shape, np.nan)
        end = begin + int(keep.sum())
        fitted[keep] = predicted[begin:end] * np.broadcast_to(sigma, data.shape)[keep]
        begin = end
        found.append(FittedSet(t, data, fitted, data - fitted, t, fitted))
    return tuple(found)


class Estimates:
    """What a fit found: names, estimates and standard errors, as intervals and as a table."""

    __slots__ = ()

    names: tuple[str, ...]
    estimates: Array
    standard_errors: Array
    degrees_of_freedom: int

    def confidence_intervals(self, level: float = 0.95) -> dict[str, tuple[float, float]]:
        """Confidence intervals of each unknown at this level, from Student's distribution."""
        level = _reading.number("level", level, above=0, below=1)
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


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Fit(Estimates, Result):
    """What all fits to data sets share; their own docstrings have the attributes."""

    names: tuple[str, ...]
    estimates: Array
    standard_errors: Array
    covariance: Array
    correlation: Array
    parameters: dict[str, FloatOrArray]
    spread: float
    degrees_of_freedom: int
    success: bool
    message: str
    warnings: tuple[str, ...]
    evaluations: int
    sets: tuple[FittedSet, ...] = field(repr=False)
    _model: Any = field(repr=False)

    _parts: ClassVar[tuple[type, ...]] = (FittedSet,)

    def _state(self) -> dict[str, Any]:
        return Result._state(self) | {"_model": None}

    def _labelled(self) -> LabelledArrays:
        rows = ("unknown",)
        low, high = np.array(list(self.confidence_intervals().values())).T
        found = {"estimate": self.estimates, "standard_error": self.standard_errors, "low": low, "high": high}
        variables: dict[str, tuple[tuple[str, ...], Any]] = {name: (rows, each) for name, each in found.items()}
        variables["covariance"] = (("unknown", "other_unknown"), self.covariance)
        variables["correlation"] = (("unknown", "other_unknown"), self.correlation)
        names = np.array(self.names)
        return LabelledArrays(variables, {"unknown": names, "other_unknown": names}, "unknown", tuple(found))

    def _facts(self) -> dict[str, Any]:
        facts = {"spread": float(self.spread), "degrees_of_freedom": int(self.degrees_of_freedom)}
        return {**facts, "success": bool(self.success), "message": self.message}

    def _curves(self) -> list[SmallCurve]:
        """The fitted curves and the data."""
        lines = [SmallCurve(each.curve_t, row) for each in self.sets for row in each.curve]
        points = [SmallCurve(each.t, row, as_points=True) for each in self.sets for row in each.data]
        return [each for both in zip(lines, points, strict=True) for each in both]

    def to_dict(self) -> Mapping[str, Any]:
        """Estimates and standard errors as plain data."""
        return {
            "estimates": dict(zip(self.names, self.estimates.tolist(), strict=True)),
            "standard_errors": dict(zip(self.names, self.standard_errors.tolist(), strict=True)),
            "spread": self.spread,
            "success": self.success,
            "message": self.message,
        }

    def plot(self, *, ax: Any = None) -> tuple[Axes, Axes]:
        """Plot data and fit above, residuals below.

        Parameters
        ----------
        ax : two matplotlib axes, optional
            Axes for the fit and for the residuals; a new figure by default.

        Returns
        -------
        tuple of two matplotlib axes
        """
        pyplot = import_optional("matplotlib.pyplot")
        if ax is None:
            _, ax = pyplot.subplots(2, 1, sharex=True, height_ratios=(3, 1), layout="constrained")
        if np.size(ax) != 2:
            raise InvalidInputError(f"ax has {np.size(ax)} elements; give two, for the fit and for the residuals")
        above, below = np.ravel(ax)
        rows = [(place, each, row) for place, each in enumerate(self.sets) for row in range(len(each.data))]
        for number, (place, each, row) in enumerate(rows):
            colour, member = f"C{number % 10}", f" of set {place}" if len(self.sets) > 1 else ""
            name = f"observed {row}{member}" if len(rows) > 1 else "data"
            above.plot(each.t, each.data[row], "o", color=colour, markersize=4, alpha=0.6, label=name)
            above.plot(each.curve_t, each.curve[row], color=colour, label="fit" if len(rows) == 1 else None)
            below.plot(each.t, each.residuals[row], "o", color=colour, markersize=3)
        below.axhline(0.0, color="0.5", linewidth=0.8)
        below.set_xlabel("t")
        below.set_ylabel("residual")
        if len(rows) <= MAX_NAMED:
            above.legend()
        return above, below

    def __repr__(self) -> str:
        pairs = zip(self.names, self.estimates, self.standard_errors, strict=True)
        told = ", ".join(f"{name}={value:.6g} ± {error:.2g}" for name, value, error in pairs)
        return f"{type(self).__name__}({'success' if self.success else 'stopped'}: {told})"

    def __str__(self) -> str:
        return "\n".join([*self.table(), self.message])


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FODEFit(Fit):
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
    dy0 : list of arrays, or tuple of lists
        The initial derivatives, of each data set if there are several.
    terms : list of (coefficient, order)
        The further terms.
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

    alpha: Any
    y0: Any
    dy0: Any
    terms: list[tuple[Any, float]]
    halved: dict[str, float] | None

    def predict(self, t: Any, *, number: int = 0, return_std: bool = False) -> Any:
        r"""The fitted solution at any times from the start on, beyond the data too, as it would be observed.

        Parameters
        ----------
        t : array_like, shape (N,)
            Increasing times, not before the start of the derivative.
        number : int
            Number of the data set, whose initial state is used.
        return_std : bool
            Whether to return standard errors too. They are those of the curve, not of a further datum, from the
            covariance of the estimates, :math:`\sqrt{J C J^T}` with J the derivatives of the prediction in the
            unknowns (delta method). Unknowns that ended at a bound count as fixed there.

        Returns
        -------
        prediction : array, shape (m, N)
            Like the data.
        standard_errors : array, shape (m, N)
            If ``return_std``; ``inf`` where the prediction depends on an unknown that the data do not determine,
            ``nan`` without degrees of freedom.

        Examples
        --------
        >>> import numpy as np
        >>> import hpfracc as hf
        >>> t = np.linspace(0.0, 2.0, 9)
        >>> data = hf.mittag_leffler(-(t**0.6), 0.6)
        >>> fit = hf.fit_fode(lambda t, y, k: -k * y, t, data, parameters={"k": 0.8}, alpha=0.6, y0=[1.0])
        >>> bool(abs(fit.predict([5.0])[0, 0] - hf.mittag_leffler(-(5.0**0.6), 0.6)) < 1e-4)
        True
        """
        if self._model is None:
            raise InvalidInputError("this fit was pickled or loaded, which drops its functions; call predict before")
        times, place = read_times(t), _reading.whole("number", number, least=0, most=len(self.sets) - 1)
        first = self._model.equation.t0
        if times[0] < first or times[-1] <= first:
            raise InvalidInputError(f"t={_reading.shown(t)}: give times from t0={first:g} on, and one after it")
        try:
            if not return_std:
                return self._model.predict(self.estimates, place, times)
            value, slopes = self._model(self.estimates, place, times)
        except SolveError as error:
            raise SolveError(f"the equation cannot be solved up to t={times[-1]:g}: {error}") from error
        return value, self._spread_of(slopes)

    def _spread_of(self, slopes: Array) -> Array:
        """Standard errors of a prediction with these derivatives, shape (m, N, p)."""
        if self.degrees_of_freedom <= 0:
            return np.full(slopes.shape[:-1], np.nan)
        lost, known = np.isinf(self.standard_errors), np.isfinite(self.standard_errors)
        part = slopes[..., known]
        variance = np.einsum("...i,ij,...j->...", part, self.covariance[np.ix_(known, known)], part)
        return np.where((slopes[..., lost] != 0.0).any(-1), np.inf, np.sqrt(np.maximum(variance, 0.0)))

    def to_dict(self) -> Mapping[str, Any]:
        """Estimates and standard errors as plain data."""
        return {**Fit.to_dict(self), "halved": self.halved}

    def __str__(self) -> str:
        lines = self.table()
        if self.halved is not None:
            moved = ", ".join(f"{name} = {value:.6g}" for name, value in self.halved.items())
            lines.append(f"with half the step: {moved}")
        return "\n".join([*lines, self.message])

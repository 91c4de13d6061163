"""What all models share: parameters in words, values, a fit with standard errors, a plot.

A model is data: its equations, its parameters, and functions of them. To change a value, make another model with
:meth:`Model.replace`.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from hpfracc._interrupts import raise_interrupted
from hpfracc._reading import choice, flag, instance, listed, number, text
from hpfracc._results import as_html, new_axes
from hpfracc.errors import InvalidInputError, warn
from hpfracc.solvers.fitting.result import Estimates
from hpfracc.solvers.fitting.search import LeastSquares, differences, looks_random
from hpfracc.solvers.fitting.unknowns import read_sigma

if TYPE_CHECKING:
    from hpfracc._results import Axes

__all__ = ["Model", "ModelFit", "Parameter", "described", "new_axes"]

Array = np.ndarray[Any, Any]

#: Distance of a fitted value from the end of a finite interval that does not belong to it.
_INSIDE = 0.01
#: Number of starts that are searched from: the values of the model, and the best of the random ones.
_SEARCHES = 3
#: Step of central differences and tolerance of the search: of closed forms, and of solutions.
_EXACT, _SOLVED = (1e-5, 1e-13), (1e-3, 1e-8)
#: Step of the one-sided differences with which closed forms are searched; the standard errors are of central ones.
_QUICK = 1e-6


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a model.

    Attributes
    ----------
    name : str
        Its name, as in the equations.
    value : float
        Its value.
    unit : str
        Its unit in words, such as ``"pascal"``.
    meaning : str
        What it is.
    low, high : float
        It lies above ``low`` and up to ``high``.
    closed : bool
        Whether it may equal ``low``.
    known : bool
        Whether a fit leaves it as it is, unless it is named.
    """

    name: str
    value: float
    unit: str = "dimensionless"
    meaning: str = ""
    low: float = 0.0
    high: float = math.inf
    closed: bool = False
    known: bool = False

    def __post_init__(self) -> None:
        text("name", self.name)
        for each in ("unit", "meaning"):
            instance(each, getattr(self, each), str, f"{each}='pascal'")
        low, high = (number(each, getattr(self, each), infinite=True) for each in ("low", "high"))
        flag("known", self.known)
        limits = {"least" if flag("closed", self.closed) else "above": low, "most": high}
        object.__setattr__(self, "value", number(self.name, self.value, **limits))  # type: ignore[arg-type]

    @property
    def is_scale(self) -> bool:
        """Whether it may be any positive number; then its logarithm is fitted."""
        return self.low == 0.0 and self.high == math.inf and not self.closed

    @property
    def bounds(self) -> tuple[float, float]:
        """Bounds of a fit."""
        if self.is_scale:
            return 0.0, math.inf
        inside = 0.0 if self.closed or self.high == math.inf else _INSIDE * (self.high - self.low)
        return min(self.low + inside, self.value), self.high


@functools.cache
def _catalogue() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(resources.files(__package__).joinpath("catalogue.json").read_text("utf-8"))
    return found


def described(key: str, *values: Any) -> dict[str, Any]:
    """Name, equations, reference and parameters of a model of the catalogue, as fields of :class:`Model`."""
    entry = dict(_catalogue()[key])
    parameters = [
        Parameter(value=value, **{**each, "low": -math.inf if each.get("low", 0.0) is None else each.get("low", 0.0)})
        for each, value in zip(entry["parameters"], values, strict=True)
    ]
    return {**entry, "parameters": tuple(parameters)}


@dataclass(frozen=True, slots=True, eq=False)
class ModelFit(Estimates):
    """A fitted model.

    Attributes
    ----------
    model : Model
        The model with the fitted values.
    names : tuple of str
        The fitted parameters.
    estimates, standard_errors : array, shape (p,)
        Their values and standard errors: ``inf`` if the data do not determine one, ``nan`` at a bound.
    covariance, correlation : array, shape (p, p)
        Covariance and correlation.
    spread : float
        Standard deviation of the residuals, in units of ``sigma``.
    degrees_of_freedom : int
        Number of real data minus number of parameters.
    success : bool
        Whether the search converged.
    message : str
        How it ended, and what the data do not determine.
    warnings : tuple of str
        The latter alone.
    x, data, fitted : array
        What was fitted, and the fit there.
    quantity : str
        Which quantity of the model the data are.
    """

    model: Any
    names: tuple[str, ...]
    estimates: Array
    standard_errors: Array
    covariance: Array
    correlation: Array
    spread: float
    degrees_of_freedom: int
    success: bool
    message: str
    warnings: tuple[str, ...]
    x: Array
    data: Array
    fitted: Array
    quantity: str = ""

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the data as dots and the fit as lines; returns the axes. Needs Matplotlib (extra ``plot``)."""
        ax = new_axes(ax)
        self.model.draw(ax, self.x, self.data, self.quantity, linestyle="none", marker="o", markersize=4, alpha=0.6)
        ax.set_prop_cycle(None)  # the colours of the data
        drawn: Axes = self.model.draw(ax, self.x, self.fitted, self.quantity)
        return drawn

    def __str__(self) -> str:
        return "\n".join([*self.table(), self.message])


#: What stands in LaTeX, and in plain text.
_WORDS = (
    (r"\\frac(\d)(\d)", r"\1/\2"), (r"\\sqrt(?:\{(.*?)\}|(\d))", r"sqrt(\1\2)"), (r"\\text\{(.*?)\}", r"\1"),
    (r"\^\{(.*?)\}", r"^(\1)"), (r"_\{(.*?)\}", r"_\1"), (r"\\[, ]", " "), (r"\\to\b", "->"),
    (r"(?<=[A-Za-z0-9)])\\", r" \\"), (r"\\(?:var)?", ""), (" {2,}", " "),
)  # fmt: skip


def _plain(equation: str) -> str:
    """An equation for a terminal."""
    for pattern, words in _WORDS:
        equation = re.sub(pattern, words, equation)
    return equation


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """A model: names, words, and parameters.

    Attributes
    ----------
    name : str
        Name of the model.
    equations : tuple of str
        Its equations, in LaTeX.
    reference : str
        Source in the literature.
    parameters : tuple of Parameter
        Its parameters, with values, units in words and limits.
    """

    name: str
    equations: tuple[str, ...]
    reference: str
    parameters: tuple[Parameter, ...]

    def __post_init__(self) -> None:
        text("name", self.name)
        instance("reference", self.reference, str, "'M. Caputo, F. Mainardi, Pure Appl. Geophys. 91 (1971) 134-147'")
        object.__setattr__(self, "equations", tuple(listed("equations", self.equations, "strings of LaTeX")))
        given = tuple(listed("parameters", self.parameters, "Parameters"))
        for each in given:
            instance("parameters", each, Parameter, "Parameter('tau', 1.0, 'second', 'relaxation time')")
        object.__setattr__(self, "parameters", given)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters; equal ones are numbered from 1 on."""
        often, seen, found = Counter(each.name for each in self.parameters), Counter[str](), []
        for each in self.parameters:
            seen[each.name] += 1
            found.append(f"{each.name}{seen[each.name]}" if often[each.name] > 1 else each.name)
        return tuple(found)

    @property
    def values(self) -> dict[str, float]:
        """Values of the parameters."""
        return dict(zip(self.names, (each.value for each in self.parameters), strict=True))

    def replace(self, **values: Any) -> Self:
        """The same model with other values of these parameters."""
        names = self.names
        for name in values:
            choice("parameter", name, names)
        new = [
            dataclasses.replace(each, value=values.get(name, each.value))
            for name, each in zip(names, self.parameters, strict=True)
        ]
        return dataclasses.replace(self, parameters=tuple(new))

    def __repr__(self) -> str:
        told = ", ".join(f"{name}={value:g}" for name, value in self.values.items())
        return f"{type(self).__name__}({self.name!r}: {told})"

    def _repr_html_(self) -> str:
        facts = {f"equation {k}": f"${each}$" for k, each in enumerate(self.equations, 1)}
        rows = [
            (name, each.value, each.unit, each.meaning) for name, each in zip(self.names, self.parameters, strict=True)
        ]
        head = ("parameter", "value", "unit", "meaning")
        return as_html(self.name, {**facts, "reference": self.reference}, rows=[head, *rows])

    def __str__(self) -> str:
        rows = [
            f"  {name} = {each.value:g}  ({each.unit}; {each.meaning})"
            for name, each in zip(self.names, self.parameters, strict=True)
        ]
        return "\n".join([self.name, *(f"  {_plain(each)}" for each in self.equations), *rows, f"  {self.reference}"])

    def draw(self, ax: Axes, x: Array, y: Array, quantity: str, **style: Any) -> Axes:
        """Draw values of a quantity into axes."""
        for row in np.atleast_2d(y):
            ax.plot(x, row, **style)
        return ax

    def simulate(self, x: Any = None) -> Any:
        """What the model does at ``x``; each kind of model has its own."""
        raise NotImplementedError

    def plot(self, x: Any = None, ax: Axes | None = None, **style: Any) -> Axes:
        """Simulate and draw; returns the axes. Needs Matplotlib (extra ``plot``)."""
        drawn: Axes = self.simulate(x).plot(ax=ax, **style)
        return drawn

    def least_squares(
        self,
        predict: Callable[..., Any],
        x: Array,
        data: Array,
        *,
        free: Any = None,
        sigma: Any = None,
        absolute_sigma: bool = False,
        quantity: str = "",
        candidates: int = 0,
        solved: bool = False,
        told: bool = True,
    ) -> ModelFit:
        """Fit ``predict(*values)``, of the shape of the data, by least squares; see :meth:`ResponseModel.fit`.

        Data that are nan are left out. Values for which ``predict`` raises :class:`SolveError` are avoided. ``solved``:
        whether predictions have the error of a solver, for wider differences and an earlier end. ``told``: whether it
        warns.
        """
        names = self.names
        usual = [name for name, each in zip(names, self.parameters, strict=True) if not each.known]
        wanted = usual if free is None else listed("free", free, f"names of parameters: {', '.join(names)}")
        places = sorted({names.index(choice("free", each, names)) for each in wanted})
        chosen = [self.parameters[k] for k in places]
        lower, upper = (np.array([each.bounds[k] for each in chosen]) for k in (0, 1))
        scales = np.array([each.is_scale for each in chosen], bool)
        start = np.array([each.value for each in chosen])
        spread, keep = read_sigma(sigma, data), np.isfinite(data)
        weight, parts = 1.0 / spread, 2 if data.dtype.kind == "c" else 1

        def flat(values: Array) -> Array:
            kept = (values * weight)[keep]
            return np.concatenate([kept.real, kept.imag]) if data.dtype.kind == "c" else kept

        observed = flat(data)
        if not places or observed.size < len(places):
            raise InvalidInputError(
                f"{observed.size} data for {len(places)} parameters; give at least as many data as parameters, and "
                "name at least one in free"
            )

        def predicted(x: Array) -> Any:
            values = [each.value for each in self.parameters]
            for place, value in zip(places, x.tolist(), strict=True):
                values[place] = value
            with np.errstate(all="ignore"):
                return np.asarray(predict(*values))

        step, end = _SOLVED if solved else _EXACT

        def slopes(x: Array, quick: bool = not solved) -> Array:
            delta = (_QUICK if quick else step) * np.where(scales, x, np.maximum(1.0, np.abs(x)))
            return differences(problem.values, x, delta, lower, upper, problem.predicted(x) if quick else None)

        fitted = tuple(names[k] for k in places)
        problem = LeastSquares(fitted, lambda x: flat(predicted(x)), slopes, observed, lower, upper, scales)
        # Rows of the data, or all of them, in the order of x.
        rows = np.split(np.arange(keep.sum()), np.cumsum(np.atleast_2d(keep).sum(axis=1))[:-1])
        if data.ndim == 1:
            rows = [np.argsort(x[keep], kind="stable")]
        series = [each + k * int(keep.sum()) for k in range(parts) for each in rows]

        def magnitudes(values: Array) -> Array:
            apart = np.split(values * np.tile(spread[keep], parts), parts)
            return np.tile(np.linalg.norm(apart, axis=0), parts)

        def searched(start: Array) -> tuple[Array, dict[str, Any]]:
            # The data of a closed form may be in other units: parameters with one unit go along.
            for unit in dict.fromkeys(each.unit for each in chosen if candidates):
                share = np.array([each.unit == unit for each in chosen]) & scales
                with np.errstate(all="ignore"):
                    ratio = np.linalg.norm(observed) / np.linalg.norm(flat(predicted(start)))
                    ways = [start, *(start * ratio ** (k * share) for k in (1, -1))]
                    costs = [float(np.linalg.norm(problem.residuals(each))) for each in ways]
                start = ways[int(np.argmin(np.nan_to_num(costs, nan=math.inf)))]
            tried = [problem.minimise(start, (end, end, end))]
            residuals = problem.residuals(tried[0].x)
            # A search from elsewhere is of no use if it ended at residuals like noise.
            done = tried[0].success and looks_random(residuals, residuals + observed, series)
            further = 0 if done and not tried[0].at_bound.any() else candidates
            rng, others = np.random.default_rng(7), []
            anywhere = scales | np.isinf(lower) | np.isinf(upper)
            for _ in range(further):
                far = rng.normal(0.0, 2.0, start.size)
                moved = np.where(scales, start * np.exp(far), start + far)
                inside = rng.uniform(np.where(anywhere, 0.0, lower), np.where(anywhere, 1.0, upper))
                trial = np.clip(np.where(anywhere, moved, inside), lower, upper)
                cost = float(np.linalg.norm(problem.residuals(trial)))
                if math.isfinite(cost):
                    others.append((cost, trial.tolist()))
            with np.errstate(over="ignore"):  # of trials far from the data
                for _, trial in sorted(others)[: _SEARCHES - 1]:
                    tried.append(problem.minimise(np.array(trial), (end, end, end)))
            found = min(tried, key=lambda each: float(each.cost))
            if not solved:
                found.slopes = slopes(found.x, quick=False)
            absolute = flag("absolute_sigma", absolute_sigma)
            return found.x, problem.report(found, start, "linear", 1.0, absolute, series, magnitudes)

        interrupted = False
        try:
            best, report = searched(start)
        except KeyboardInterrupt:
            (best, report, _), interrupted = problem.part(), True
        for complaint in report["warnings"] if told else ():
            warn(complaint)
        model = self.replace(**dict(zip(fitted, best.tolist(), strict=True)))
        fit = ModelFit(model=model, x=x, data=data, fitted=predicted(best), quantity=quantity, **report)
        if interrupted:
            raise_interrupted(fit.message, fit)
        return fit

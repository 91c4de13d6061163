"""``fit_fpde``: least squares over ``solve_fpde``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack

import numpy as np

from hpfracc import _reading
from hpfracc._arrays import to_host
from hpfracc._choices import EvolutionMethodName, LossName, names_options_of
from hpfracc._interrupts import raise_interrupted
from hpfracc._reading import choice, flag, function, instance, shown, whole
from hpfracc.errors import InvalidInputError, ShapeError, SolveError
from hpfracc.solvers.fitting import unknowns as arguments
from hpfracc.solvers.fitting.models import FitModel
from hpfracc.solvers.fitting.result import Fit, FittedSet, partly_fitted
from hpfracc.solvers.fitting.search import LOSSES, LeastSquares, add_complaints, differences
from hpfracc.solvers.pde.interpolation import FrameSolution
from hpfracc.solvers.pde.method import EvolutionMethod
from hpfracc.solvers.pde.reading import EQUATION
from hpfracc.solvers.pde.result import FPDEResult
from hpfracc.solvers.pde.solve import solve_fpde

Array = np.ndarray[Any, Any]

#: Relative steps of finite differences: solutions differ by errors of the solver, up to ``rtol``.
_DELTA = 1e-3
#: Errors of the solution below this share of it are not told, whatever the noise.
_NEGLIGIBLE = 1e-6
#: What the user's function returns: the arguments of ``solve_fpde`` that make up the equation.
_EQUATION = (*(name for name in EQUATION if name != "t_span"), "args")
#: Options of ``solve_fpde`` that a fit does not accept.
_REFUSED = (*_EQUATION, "t_eval", "events", "dense_output", "save", "progress", "estimate", "max_seconds")


class EvolutionFitOptions(TypedDict, total=False):
    """The options of ``solve_fpde`` that ``fit_fpde`` accepts, for type checkers."""

    method: EvolutionMethodName | EvolutionMethod
    rtol: float
    atol: float
    step: float | None
    max_steps: int
    max_step: float | None
    first_step: float | None
    breakpoints: Sequence[float]
    backend: Any
    compile: bool | str


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FPDEFit(Fit):
    """Estimates of the parameters of a partial differential equation, with their uncertainty.

    Attributes
    ----------
    names : tuple of str
        Names of the unknowns, such as ``("D", "alpha", "heights[0]")``.
    estimates, standard_errors : array, shape (p,)
        In the order of ``names``. A standard error is ``inf`` if the data do not determine the unknown, and ``nan`` at
        a bound or without degrees of freedom.
    covariance, correlation : array, shape (p, p)
        Covariance and correlation of the estimates.
    parameters : dict of str to float or array
        The parameters in the order of the arguments of the equation.
    spread : float
        Standard deviation of the residuals, in units of ``sigma`` if that is given.
    degrees_of_freedom : int
        Number of data minus number of unknowns.
    success : bool
        Whether the search converged.
    message : str
        Why the search stopped, what the data do not determine, and whether the grid is too coarse.
    warnings : tuple of str
        The latter alone.
    evaluations : int
        Number of solves.
    sets : tuple of FittedSet
        Data and prediction over time, a row for each point.
    """

    def solve(self, t: Any = None, **options: Unpack[EvolutionFitOptions]) -> FPDEResult:
        """The solution of the fitted equation, at times ``t`` or at the steps.

        Parameters
        ----------
        t : array_like, shape (N,), optional
            Increasing times from the start of the equation on, beyond the data too.
        **options
            Options that :func:`fit_fpde` takes for the solver; by default those of the fit.

        Returns
        -------
        FPDEResult
        """
        if self._model is None:
            raise InvalidInputError("this fit was pickled or loaded, which drops its functions; call solve before")
        end = float(self.sets[0].t[-1]) if t is None else float(arguments.read_times(t)[-1])
        times = {} if t is None else {"t_eval": t}
        found: FPDEResult = self._model.solve(list(self.parameters.values()), end, **times, **options)
        return found


class _Evolution(FitModel):
    """The equation, solved for parameters, and what is observed of it."""

    def __init__(self, equation: Any, points: Any, observe: Any, t0: float, options: dict[str, Any]) -> None:
        self.given, self.points, self.observe, self.t0, self.options = equation, points, observe, t0, options
        self.calls = 0

    def solve(self, parameters: list[Any], end: float, **options: Any) -> FPDEResult:
        """The solution up to a time."""
        made = instance("equation(...)", self.given(*parameters), Mapping, "{'u0': ..., 'x': x, 'space': ...}")
        strange = made.keys() - set(_EQUATION)
        if strange or not {"u0", "space"} <= made.keys():
            raise InvalidInputError(
                f"equation(...) returned the names {sorted(made)}; give arguments of solve_fpde out of "
                f"{', '.join(_EQUATION)}, with at least u0 and space, and options to fit_fpde itself"
            )
        self.calls += 1
        reaction = made.get("reaction")
        others = {name: value for name, value in made.items() if name != "reaction"}
        return solve_fpde(reaction, (self.t0, end), **others, **{**self.options, **options})

    def seen(self, result: FPDEResult, shape: tuple[int, ...]) -> Array:
        """The prediction of the data, of their shape."""
        if self.observe is not None:
            value = np.asarray(to_host(self.observe(result)))
        else:
            value = np.asarray(to_host(result.u))
            if self.points is not None:
                grid = result.x if isinstance(result.x, tuple) else (result.x,)
                frames = FrameSolution(lambda n: value[int(n)], (0, len(value) - 1), grid, result._tools.periodic)
                value = frames(np.arange(len(value)), self.points)
        if np.iscomplexobj(value):
            raise InvalidInputError("the solution is complex; give observe=, a function that returns real numbers")
        if value.shape != shape:
            raise ShapeError(
                f"the data have shape {shape} and what is observed {value.shape}: give data of shape (N, ...) as u of "
                "solve_fpde, with points= where they were taken, or observe="
            )
        return value


@names_options_of(solve_fpde, leave_out=_REFUSED)
def fit_fpde(
    equation: Callable[..., Mapping[str, Any]],
    t: Any,
    data: Any,
    *,
    parameters: Mapping[str, Any],
    points: Any = None,
    observe: Callable[[FPDEResult], Any] | None = None,
    t0: float = 0.0,
    bounds: Mapping[str, Any] | None = None,
    penalty: Callable[..., Any] | None = None,
    loss: LossName = "linear",
    f_scale: float = 1.0,
    sigma: Any = None,
    absolute_sigma: bool = False,
    max_evaluations: int = 50,
    **options: Unpack[EvolutionFitOptions],
) -> FPDEFit:
    r"""Estimate parameters, orders and initial fields of a partial differential equation from data.

    Minimises :math:`\frac12 \sum_i \rho\big((d_i - u(t_i, x_i; p))^2/\sigma_i^2\big)` by a trust-region Gauss-Newton
    method (``scipy.optimize.least_squares``), with u the solution of :func:`solve_fpde`.

    Parameters
    ----------
    equation : callable
        ``equation(*parameters)`` returns a dict of the arguments of :func:`solve_fpde` that make up the equation:
        ``u0`` and ``space``, and ``reaction, x, boundary, alpha, du0, source, jac, terms, args`` as needed. Any of them
        may depend on the parameters: coefficients, orders in time and space, the initial field.
    t : array_like, shape (N,)
        Increasing times of the data, from ``t0`` on.
    data : array_like, shape (N, ...)
        As ``solve_fpde(...).u`` on the grid, or at ``points``; ``nan`` for missing data.
    parameters : mapping of str to float or array
        Names and initial guesses, in the order of the arguments of ``equation``.
    points : array_like or tuple of array_like, optional
        Where the data were taken: of shape (P,) in one dimension, one array for each axis in more; data then have the
        shape (N, P), (N, components, P) for a system. Between points of the grid by cubic splines. The grid by default.
    observe : callable, optional
        ``observe(result)``, the prediction of all data from an :class:`FPDEResult` at the times of the data: a mass, a
        flux, one component. Instead of ``points``.
    t0 : float
        Start of the equation, and time of ``u0``.
    bounds : mapping of str to (lower, upper), optional
        Bounds of parameters. Coefficients of diffusion and orders should have them.
    penalty : callable, optional
        ``penalty(*parameters)``, an array of further residuals, such as ``weight * np.diff(u0, 2)`` for values of an
        initial field on a grid: prior knowledge. They count as data 0 with the standard deviation 1 (in units of
        ``sigma``), so standard errors are those of data and prior together.
    loss, f_scale, sigma, absolute_sigma
        As in :func:`fit_fode`; ``sigma`` broadcasts to ``data``.
    max_evaluations : int
        Maximum number of steps of the search; each takes 1 to 2 p + 1 solves for p unknowns.
    **options
        Options of :func:`solve_fpde`: ``method, rtol, atol, step, max_steps, max_step, first_step, breakpoints,
        backend, compile``.

    Returns
    -------
    FPDEFit
        ``.estimates .standard_errors .correlation .confidence_intervals() .parameters .message .plot() .solve(t)``; it
        prints as a table.

    Warns
    -----
    AccuracyWarning
        If the data do not determine an unknown, one ends at a bound, the estimated error of the solution could shift
        the estimates by their standard errors, or the residuals are correlated in time or grow or shrink with the size
        of the data.

    See Also
    --------
    solve_fpde, fit_fode, FPDEFit

    Notes
    -----
    Derivatives are central differences. Standard errors are those of the linearised problem, as in :func:`fit_fode`
    (G. A. F. Seber, C. J. Wild, Nonlinear Regression, Wiley 1989, chapter 5).

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> from hpfracc.pde import Diffusion
    >>> x, t = np.linspace(0.0, np.pi, 17), np.linspace(0.2, 2.0, 6)
    >>> def plume(D, alpha):
    ...     return {"u0": np.sin(x), "x": x, "space": Diffusion(D), "boundary": "dirichlet", "alpha": alpha}
    >>> noise = 1e-3 * np.random.default_rng(0).standard_normal((6, 2))
    >>> data = hf.mittag_leffler(-0.7 * t**0.6, 0.6)[:, None] * np.sin([1.0, 2.0]) + noise
    >>> bounds = {"D": (0.0, None), "alpha": (0.1, 1.0)}
    >>> fit = hf.fit_fpde(plume, t, data, points=[1.0, 2.0], parameters={"D": 1.0, "alpha": 0.8}, bounds=bounds)
    >>> bool(np.all(np.abs(fit.estimates - [0.7, 0.6]) < 4 * fit.standard_errors))
    True
    """
    for name in options:
        if name in _REFUSED:
            where = "equation returns it" if name in _EQUATION else "the fit sets it"
            raise InvalidInputError(f"fit_fpde does not take {name}: {where}; omit it")
    function("equation", equation, "(*parameters), the arguments of solve_fpde as a dict")
    choice("loss", loss, LOSSES)
    f_scale = _reading.number("f_scale", f_scale, above=0.0)
    max_evaluations = whole("max_evaluations", max_evaluations, least=1)
    if points is not None and observe is not None:
        raise InvalidInputError("points and observe are given; observe computes all data itself, so omit points")
    times, first = arguments.read_times(t), _reading.number("t0", t0)
    if times[0] < first or times[-1] <= first:
        raise InvalidInputError(f"t={shown(t)}: give times from t0={first:g} on, and one after it")
    table = _reading.numbers("data", arguments.on_host(data), finite=False)
    if table.ndim < 1 or table.shape[0] != times.size:
        raise ShapeError(f"data has shape {table.shape}; give ({times.size}, ...), times first")
    spread = arguments.read_sigma(sigma, table)
    ((_, rows, deviations),) = arguments.read_sets(times, _rows(table), _rows(spread), several=False)
    kept = np.isfinite(rows)
    limits = arguments.read_table("bounds", bounds)
    entries = arguments.read_parameters(parameters, limits, {}, set())
    search = arguments.collect(entries, limits)
    model = _Evolution(equation, points, observe, first, {"estimate": False, **options})

    def values_of(x: Array) -> list[Any]:
        return [each.plain(x) for each in search.quantities]

    def frames(x: Array) -> Array:
        result = model.solve(values_of(x), float(times[-1]), t_eval=times)
        if not result.success:
            raise SolveError(result.message)
        return model.seen(result, table.shape)

    def prior(x: Array) -> Array:
        return np.zeros(0) if penalty is None else np.ravel(np.asarray(penalty(*values_of(x)), np.float64))

    def predicted(x: Array) -> Array:
        return np.concatenate([(_rows(frames(x)) / deviations)[kept], prior(x)])

    def slopes(x: Array) -> Array:
        sizes = np.maximum(np.abs(x), np.abs(search.start))
        return differences(predicted, x, _DELTA * np.where(sizes > 0.0, sizes, 1.0), search.lower, search.upper)

    observed = np.concatenate([(rows / deviations)[kept], np.zeros_like(prior(search.start))])
    if observed.size < len(search.names):
        raise InvalidInputError(
            f"{observed.size} data for {len(search.names)} unknowns ({', '.join(search.names)}): fix some, or observe "
            "more"
        )
    problem = LeastSquares(search.names, predicted, slopes, observed, search.lower, search.upper)
    series = np.split(np.arange(kept.sum()), np.cumsum(kept.sum(axis=1))[:-1])
    sigmas = np.append(deviations[kept], np.ones(observed.size - int(kept.sum())))
    interrupted = False
    try:
        found = problem.minimise(search.start, loss=loss, f_scale=f_scale, max_nfev=max_evaluations)
        x, absolute = found.x, flag("absolute_sigma", absolute_sigma)
        report = problem.report(found, search.start, loss, f_scale, absolute, series, lambda u: np.abs(u * sigmas))
        fitted = _rows(frames(x))
        sets: tuple[FittedSet, ...] = (FittedSet(times, rows, fitted, rows - fitted, times, fitted),)
        complaints = _grid_complaints(model, values_of(x), times, deviations[kept], report)
        add_complaints(report, complaints, max_evaluations)
    except KeyboardInterrupt:
        (x, report, told), interrupted = problem.part(), True
        sets = partly_fitted([(times, rows, deviations)], told)
    estimated = dict(zip(parameters, values_of(x), strict=True))
    fit = FPDEFit(**report, parameters=estimated, evaluations=model.calls, sets=sets, _model=model)
    if interrupted:
        raise_interrupted(fit.message, fit)
    return fit


def _rows(table: Array) -> Array:
    """A row over time for each point, shape (m, N), from data of shape (N, ...)."""
    return np.ascontiguousarray(table.reshape(len(table), -1).T)


def _grid_complaints(
    model: _Evolution, parameters: list[Any], times: Array, deviations: Array, report: dict[str, Any]
) -> list[str]:
    """What the error of the solution may do to the estimates: less than the noise of their number of data, or told."""
    checked = model.solve(parameters, float(times[-1]), t_eval=times, estimate="auto")
    error = float(np.nansum(checked.error_estimate))
    n, p = deviations.size, len(report["names"])
    noise = report["spread"] * float(deviations.min()) * (p / n) ** 0.5
    noise = max(noise, _NEGLIGIBLE * float(np.abs(to_host(checked.u)).max()))
    if not error > noise:
        return []
    return [
        f"the solution may be off by {error:.2g}, which the estimates absorb, and that is more than the noise allows "
        f"({noise:.2g}): take a finer grid or a smaller rtol"
    ]

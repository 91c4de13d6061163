"""``fit_fode``: least squares over ``solve_fode``."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict, Unpack

import numpy as np

from hpfracc import _reading
from hpfracc._arrays import library_of, refuse_chunked
from hpfracc._choices import LossName, MethodName
from hpfracc._reading import array, choice, instance, listed, numbers, shown, whole
from hpfracc._signatures import names_options_of
from hpfracc.errors import AccuracyWarning, InvalidInputError, PinnedBackendError, ShapeError, SolveError
from hpfracc.solvers.ode.fitting.models import Equation, PlainModel, TensorModel
from hpfracc.solvers.ode.fitting.result import FittedSet, FODEFit
from hpfracc.solvers.ode.fitting.statistics import LOSSES, certainty
from hpfracc.solvers.ode.fitting.unknowns import on_host, read_free, read_times, read_unknowns
from hpfracc.solvers.ode.method import Method
from hpfracc.solvers.ode.solve import solve_fode

__all__ = ["fit_fode"]

Array = np.ndarray[Any, Any]

#: Options of ``solve_fode`` that a fit does not accept, and why.
_REFUSED = {
    "args": "the parameters are what fun takes besides t and y",
    "t_eval": "the times are those of the data",
    "events": "a fit compares at the times of the data",
    "dense_output": "the fit keeps a fine curve",
    "delays": "a fit takes equations without delays",
    "history": "a fit takes equations without delays",
    "terms": "a fit takes equations with one derivative",
    "derivative": "a fit takes Caputo's derivative",
    "jac_sparsity": "a fit solves small systems",
    "compile": "the parameters and their neighbours are solved as one batch, in Python",
    "backend": "the library is that of the data and the guesses",
    "progress": "a solve is one of many",
    "estimate": "a step is checked by halving it",
}


class FitOptions(TypedDict, total=False):
    """The options of ``solve_fode`` that ``fit_fode`` accepts, for type checkers."""

    rtol: float
    atol: Any
    max_steps: int
    max_step: float | None
    first_step: float | None
    breakpoints: Sequence[float]
    dy0: Any


#: Number of times at which the fitted curve is stored.
_CURVE = 200


@names_options_of(solve_fode, leave_out=_REFUSED)
def fit_fode(
    fun: Callable[..., Any],
    t: Any,
    data: Any,
    *,
    parameters: Mapping[str, Any],
    alpha: Any = "free",
    y0: Any = "free",
    guess: Mapping[str, Any] | None = None,
    bounds: Mapping[str, Any] | None = None,
    loss: LossName = "linear",
    f_scale: float = 1.0,
    sigma: Any = None,
    absolute_sigma: bool = False,
    observe: Callable[..., Any] | int | Sequence[int] | None = None,
    t0: float | None = None,
    jac: Callable[..., Any] | None = None,
    jac_parameters: Callable[..., Any] | None = None,
    method: MethodName | Method = "auto",
    step: float | None = None,
    halve: bool = True,
    max_evaluations: int = 100,
    **options: Unpack[FitOptions],
) -> FODEFit:
    r"""Estimate parameters, order and initial values of :math:`D^\alpha y = f(t, y; p)` from data.

    Minimises :math:`\frac12 \sum_i \rho\big((d_i - o(t_i, y(t_i)))^2/\sigma_i^2\big)` by a trust-region Gauss-Newton
    method (``scipy.optimize.least_squares``). y is the solution of :func:`solve_fode`.

    Parameters
    ----------
    fun : callable
        ``fun(t, y, *parameters)`` with y of shape (d,), in NumPy, PyTorch or JAX.
    t : array_like, shape (N,)
        Increasing times of the data. A list of such arrays for several data sets, which share parameters and order.
    data : array_like, shape (m, N) or (N,)
        As ``solve_fode(...).y``; ``nan`` for missing data. A list for several data sets. If it, ``y0`` or a guess is a
        tensor or JAX array, ``fun`` is called with arrays of that library, in double precision.
    parameters : mapping of str to float or array
        Names and initial guesses, in the order of the arguments of ``fun``.
    alpha : "free", float, or list
        The order: ``"free"`` is one unknown order; a list such as ``["free", 1.0]`` has one for each component.
    y0 : "free", array_like, or list
        Initial value at ``t0``; a list may mix ``"free"`` and numbers. With several data sets, a list with one such
        value for each, or one value for all of them.
    guess : mapping, optional
        Starting values for ``"alpha"`` (0.8 by default) and ``"y0"`` (the first datum of each component, if all
        components are observed).
    bounds : mapping of str to (lower, upper), optional
        Bounds of parameters, ``"alpha"`` and ``"y0"``. Orders stay within (0.01, 1), or above 1 if ``dy0`` is given.
    loss : {"linear", "soft_l1", "huber", "cauchy", "arctan"}
        SciPy's loss functions; all but the first are robust to outliers.
    f_scale : float
        Residuals above this value, in units of ``sigma``, count as outliers.
    sigma : array_like, optional
        Standard deviations of the data, up to a common factor; broadcasts to ``data``.
    absolute_sigma : bool
        Whether that factor is 1; otherwise it is estimated from the residuals.
    observe : callable, int or list of int, optional
        The observed components, or ``observe(t, y, *parameters)`` of shape (m, N) for y of shape (d, N).
    t0 : float, optional
        Start of the derivative, and time of ``y0``; by default the first time of the data. Give it if the first datum
        is later, because the solution depends on the start.
    jac, jac_parameters : callables, optional
        ``jac(t, y, *parameters)``, shape (d, d), and ``jac_parameters(t, y, *parameters)``, shape (d, P). With NumPy
        and both, derivatives with respect to parameters and initial values come from the variational equation instead
        of finite differences.
    method, step, **options
        As in :func:`solve_fode`: ``rtol``, ``atol``, ``max_steps``, ``max_step``, ``first_step``,
        ``breakpoints``, ``dy0``.
    halve : bool
        Whether a fit with a ``step`` is repeated with half the step (``halved`` of the result), because an estimated
        order easily absorbs the discretisation error.
    max_evaluations : int
        Maximum number of evaluations.

    Returns
    -------
    FODEFit
        ``.estimates .standard_errors .correlation .confidence_intervals() .parameters .alpha .y0 .message .plot()
        .predict(t)``; it prints as a table.

    Warns
    -----
    AccuracyWarning
        If the data do not determine an unknown, one ends at a bound, or half the step changes one by more than its
        standard error.

    See Also
    --------
    solve_fode, FODEFit, hpfracc.models.ModelFit

    Notes
    -----
    Derivatives are those of the discrete solution for PyTorch and JAX (forward mode); for NumPy, finite differences
    of solutions with the same steps. Standard errors are those of the linearised problem. They are too small if the
    problem is strongly nonlinear or the errors of the data are correlated. With few data an interval of two standard
    errors covers less than 95 % (94.3 % with 23 degrees of freedom); ``confidence_intervals`` uses Student's
    distribution to account for this.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> t = np.linspace(0.0, 4.0, 30)
    >>> data = 2.0 * hf.mittag_leffler(-1.5 * t**0.7, 0.7)
    >>> fit = hf.fit_fode(lambda t, y, rate: -rate * y, t, data, parameters={"rate": 1.0})
    >>> bool(abs(fit.alpha - 0.7) < 1e-4), bool(abs(fit.parameters["rate"] - 1.5) < 1e-4)
    (True, True)
    """
    for name in options:
        if name in _REFUSED:
            raise InvalidInputError(f"fit_fode does not take {name}: {_REFUSED[name]}; omit it")
    choice("loss", loss, LOSSES)
    f_scale = _reading.number("f_scale", f_scale, above=0.0)
    max_evaluations = whole("max_evaluations", max_evaluations, least=1)
    if jac_parameters is not None and jac is None:
        raise InvalidInputError("jac_parameters is used together with jac; give both, or neither")
    several = isinstance(t, list | tuple) and len(t) > 0 and np.ndim(on_host(t[0])) > 0
    times = [read_times(each) for each in (t if several else [t])]
    tables = _read_tables(data, times, several)
    spreads = _read_sigma(sigma, tables, several)
    first = min(float(each[0]) for each in times) if t0 is None else _reading.number("t0", t0)
    if any(each[0] < first or each[-1] <= first for each in times):
        raise InvalidInputError(f"t0={first:g} lies beyond data: every set needs times from t0 on, and one after it")
    guess, bounds = _read_table("guess", guess), _read_table("bounds", bounds)
    chosen = _read_observe(observe)
    states = _read_states(y0, guess, tables, times, first, chosen, several)
    given = options.get("dy0")
    if given is not None:
        given = (
            [given] if isinstance(given, str) else listed("dy0", given, "the initial derivatives, as in dy0=[[0.0]]")
        )
    if given is not None and _any_free(given):
        raise InvalidInputError(
            "dy0 holds 'free': a fit takes initial derivatives as given; make them a parameter by writing the equation "
            "for y - dy0 t, or fix them, as in dy0=[[0.0]]"
        )
    unknowns = read_unknowns(parameters, alpha, states, guess, bounds, 0 if given is None else len(given))
    count = sum(int(np.isfinite(each).sum()) for each in tables)
    if count < len(unknowns.names):
        raise InvalidInputError(
            f"{count} data for {len(unknowns.names)} unknowns ({', '.join(unknowns.names)}): fix some, or observe more"
        )
    solving = {**options, "estimate": False, "method": method}
    if step is not None:
        solving["step"] = step

    def made(step: float | None) -> PlainModel | TensorModel:
        steps = {} if step is None else {"step": step}
        equation = Equation(fun, jac, jac_parameters, chosen, first, unknowns, {**solving, **steps})
        like = _tensor_among([data, y0, *parameters.values(), *guess.values()])
        if like is None:
            return PlainModel(equation)
        return TensorModel(equation, like, library_of(like))

    problem = _LeastSquares(made(step), times, tables, spreads)
    found = problem.minimise(unknowns.start, unknowns, loss, float(f_scale), max_evaluations)
    x = found.x
    residuals, jacobian = problem.at(x)
    near = _at_bounds(found, unknowns)
    sizes = np.maximum(np.abs(x), np.abs(unknowns.start))
    sizes = np.where(sizes > 0.0, sizes, 1.0)
    predicted = residuals + problem.observed
    sure = certainty(
        unknowns.names, jacobian, residuals, predicted, sizes, near, loss, float(f_scale), bool(absolute_sigma)
    )
    errors = np.sqrt(np.diagonal(sure.covariance))
    halved, complaints = None, list(sure.complaints)
    if step is not None and halve:
        finer = _LeastSquares(made(0.5 * step), times, tables, spreads)
        repeated = finer.minimise(x, unknowns, loss, float(f_scale), max_evaluations)
        halved = dict(zip(unknowns.names, (float(each) for each in repeated.x), strict=True))
        complaints += _moved(halved, x, errors)
    for complaint in complaints:
        warnings.warn(complaint, AccuracyWarning, stacklevel=2)
    predictions = problem.model.predict(x, problem.times)
    if predictions is None:
        raise SolveError(f"the equation cannot be solved at the estimate: {problem.model.message}")
    fine = {number: np.linspace(first, float(when[-1]), _CURVE) for number, when in problem.times.items()}
    curves = problem.model.predict(x, fine) or [np.full((len(each), _CURVE), np.nan) for each in tables]
    sets = [
        FittedSet(when, table, fitted, table - fitted, fine[number], curve)
        for number, (when, table, fitted, curve) in enumerate(zip(times, tables, predictions, curves, strict=True))
    ]
    starts = tuple(each.at(x) for each in unknowns.y0)
    ended = found.message if found.success else f"{found.message} Raise max_evaluations={max_evaluations}."
    return FODEFit(
        names=unknowns.names,
        estimates=x,
        standard_errors=errors,
        covariance=sure.covariance,
        correlation=sure.correlation,
        parameters={each.name: _number(each.at(x)) for each in unknowns.parameters},
        alpha=_number(unknowns.alpha.at(x)),
        y0=starts if several else starts[0],
        spread=sure.spread,
        degrees_of_freedom=count - int((~near).sum()),
        halved=halved,
        success=bool(found.success),
        message=". ".join([ended.rstrip("."), *complaints]) + ".",
        warnings=tuple(complaints),
        evaluations=problem.calls,
        sets=tuple(sets),
        _model=problem.model,
    )


def _read_table(name: str, value: Any) -> dict[str, Any]:
    """A dict by the names of unknowns; empty for None."""
    return dict(instance(name, {} if value is None else value, Mapping, f"{name}={{'alpha': ...}}"))


class _LeastSquares:
    """Residuals and their derivatives, one evaluation for both."""

    def __init__(
        self, model: PlainModel | TensorModel, times: list[Array], tables: list[Array], spreads: list[Array]
    ) -> None:
        self.model, self.tables, self.spreads = model, tables, spreads
        self.times = dict(enumerate(times))
        self.calls = 0
        scaled = [table / spread for table, spread in zip(tables, spreads, strict=True)]
        #: The data divided by ``sigma``, shape (n,), in the order of the residuals.
        self.observed = np.concatenate([each[np.isfinite(each)] for each in scaled])
        self._x: Array | None = None
        self._found: tuple[Array, Array] | None = None

    def at(self, x: Array) -> tuple[Array, Array]:
        """Residuals (n,) divided by ``sigma`` and their derivatives (n, p); nan if the solve fails."""
        if self._x is not None and np.array_equal(x, self._x) and self._found is not None:
            return self._found
        self.calls += 1
        found = self.model(x, self.times)
        rows, columns = [], []
        for place, (table, scale) in enumerate(zip(self.tables, self.spreads, strict=True)):
            keep = np.isfinite(table)
            if found is None:
                value, slope = np.full(table.shape, np.nan), np.full((*table.shape, x.size), np.nan)
            else:
                value, slope = found[0][place], found[1][place]
            if value.shape != table.shape:
                raise ShapeError(
                    f"the data have shape {table.shape} and what is observed {value.shape}: give data of shape "
                    "(m, N) as solve_fode does, and observe= where some components are not measured"
                )
            rows.append(((value - table) / scale)[keep])
            columns.append((slope / scale[..., None])[keep])
        pair = np.concatenate(rows), np.concatenate(columns)
        self._x, self._found = x.copy(), pair
        return pair

    def minimise(self, start: Array, unknowns: Any, loss: str, f_scale: float, limit: int) -> Any:
        from scipy.optimize import least_squares

        if not np.isfinite(self.at(start)[0]).all():
            shown = ", ".join(f"{n} = {v:g}" for n, v in zip(unknowns.names, start, strict=True))
            raise SolveError(f"the equation cannot be solved at the guess ({shown}): {self.model.message}")
        return least_squares(
            lambda x: self.at(x)[0],
            start,
            jac=lambda x: self.at(x)[1],
            bounds=(unknowns.lower, unknowns.upper),
            x_scale="jac",
            loss=loss,
            f_scale=f_scale,
            max_nfev=limit,
            ftol=1e-9,
            xtol=1e-9,
            gtol=1e-12,
        )


def _read_tables(data: Any, times: list[Array], several: bool) -> list[Array]:
    given = data if several else [data]
    if not isinstance(given, list | tuple) or len(given) != len(times):
        raise ShapeError(f"t holds {len(times)} data sets; give as many in data")
    tables = []
    for each, when in zip(given, times, strict=True):
        refuse_chunked(each, "data")
        table = numbers("data", on_host(each), finite=False)
        table = table[None] if table.ndim == 1 else table
        if table.ndim != 2 or table.shape[-1] != when.size:
            turned = " (transpose it)" if table.ndim == 2 and table.shape[0] == when.size else ""
            raise ShapeError(f"data has shape {table.shape}; give (m, {when.size}), times last{turned}")
        if np.any(np.isinf(table)):
            raise InvalidInputError("data holds infinite values; use nan where a datum is missing")
        tables.append(table)
    return tables


def _read_sigma(sigma: Any, tables: list[Array], several: bool) -> list[Array]:
    given = sigma if several and isinstance(sigma, list | tuple) else [1.0 if sigma is None else sigma] * len(tables)
    found = []
    for each, table in zip(given, tables, strict=True):
        each_spread = numbers("sigma", on_host(each), finite=False)
        try:
            spread = np.array(np.broadcast_to(each_spread, table.shape))
        except ValueError:
            raise ShapeError(f"sigma has shape {np.shape(each)} and the data {table.shape}") from None
        if not np.all(spread[np.isfinite(table)] > 0.0):
            raise InvalidInputError("sigma has to be above 0 for every datum")
        found.append(spread)
    return found


def _read_observe(observe: Any) -> Any:
    if observe is None or callable(observe):
        return observe
    chosen = np.atleast_1d(array("observe", observe))
    if chosen.ndim != 1 or chosen.dtype.kind not in "iu":
        raise InvalidInputError(f"observe={shown(observe)} has to be a component, a list of them, or a function")
    return chosen


def _read_states(
    y0: Any, guess: Mapping[str, Any], tables: list[Array], times: list[Array], t0: float, observe: Any, several: bool
) -> list[tuple[Array, Array]]:
    """Initial values, and which of them are free, for each set."""
    own = several and isinstance(y0, list | tuple) and len(y0) == len(tables) and not _is_flat(y0)
    found = []
    for number, table in enumerate(tables):
        value = y0[number] if own else y0
        start: Any = guess.get("y0")
        if start is None and _any_free(value):
            start = _first_data(value, table, observe)
        values, free = read_free("y0", value, 0.0 if start is None else start)
        values = np.atleast_1d(values)
        if values.ndim != 1:
            raise ShapeError(f"y0 has shape {values.shape}; a fit takes states of shape (d,)")
        if callable(observe) or observe is None or np.all((observe >= -values.size) & (observe < values.size)):
            found.append((values, np.atleast_1d(free)))
            continue
        raise InvalidInputError(f"observe={observe.tolist()} names a missing component; y0 has {values.size}")
    return found


def _is_flat(y0: Any) -> bool:
    """Whether a list has the entries of one state, not one state per set."""
    return all(np.ndim(on_host(each)) == 0 and not (isinstance(each, str) and len(y0) == 1) for each in y0)


def _any_free(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, list | tuple) and any(isinstance(v, str) for v in value))


def _first_data(value: Any, table: Array, observe: Any) -> Array:
    """A guess from the first datum of each component."""
    if callable(observe):
        raise InvalidInputError("y0 is free and observe is a function: give guess={'y0': [...]} to start from")
    firsts = np.array([row[np.isfinite(row)][0] if np.isfinite(row).any() else 0.0 for row in table])
    if observe is None:
        return firsts
    if isinstance(value, str):
        raise InvalidInputError(
            "y0='free' with components that are not observed: give guess={'y0': [...]}, one for each component"
        )
    start = np.zeros(len(value))
    start[observe] = firsts
    if any(isinstance(v, str) and k not in observe % len(value) for k, v in enumerate(value)):
        raise InvalidInputError("a free initial value is not observed: give guess={'y0': [...]}")
    return start


def _tensor_among(values: list[Any]) -> Any:
    """The first tensor or JAX array among the arguments; all must be of one library."""
    found = [each for each in _flattened(values) if library_of(each) in ("torch", "jax")]
    libraries = {library_of(each) for each in found}
    if len(libraries) > 1:
        raise PinnedBackendError("data, y0 and guesses hold tensors of PyTorch and arrays of JAX; use one library")
    return found[0] if found else None


def _flattened(values: Any) -> list[Any]:
    return [one for each in values for one in (_flattened(each) if isinstance(each, list | tuple) else [each])]


def _at_bounds(found: Any, unknowns: Any) -> Array:
    near = np.asarray(found.active_mask) != 0
    width = np.where(np.isfinite(unknowns.upper - unknowns.lower), unknowns.upper - unknowns.lower, np.inf)
    with np.errstate(invalid="ignore"):
        close = np.minimum(found.x - unknowns.lower, unknowns.upper - found.x) < 1e-8 * np.where(
            np.isfinite(width), width, np.abs(found.x)
        )
    result: Array = near | close
    return result


def _moved(halved: Mapping[str, float], x: Array, errors: Array) -> list[str]:
    """Warnings for estimates that half the step changes by more than their standard error."""
    return [
        f"{name} goes from {old:.6g} to {new:.6g} with half the step, more than its standard error {error:.2g}: take "
        "a smaller step"
        for (name, new), old, error in zip(halved.items(), x, errors, strict=True)
        if abs(new - old) > error
    ]


def _number(value: Array) -> Any:
    return float(value) if value.ndim == 0 else value

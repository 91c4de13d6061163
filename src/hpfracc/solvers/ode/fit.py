"""``fit_fode``: least squares over ``solve_fode``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict, Unpack

import numpy as np

from hpfracc import _reading
from hpfracc._arrays import library_of
from hpfracc._choices import LossName, MethodName, RateFunction, names_options_of
from hpfracc._interrupts import raise_interrupted
from hpfracc._reading import choice, whole
from hpfracc.errors import InvalidInputError, ShapeError, SolveError
from hpfracc.solvers.fitting import unknowns as arguments
from hpfracc.solvers.fitting.models import Equation, PlainModel, TensorModel
from hpfracc.solvers.fitting.result import FittedSet, FODEFit, partly_fitted
from hpfracc.solvers.fitting.search import LOSSES, LeastSquares, add_complaints
from hpfracc.solvers.fitting.unknowns import DataSet
from hpfracc.solvers.ode.method import Method
from hpfracc.solvers.ode.solve import solve_fode

Array = np.ndarray[Any, Any]

#: Options of ``solve_fode`` that a fit does not accept, and why.
_REFUSED = {
    "args": "the parameters are what fun takes besides t and y",
    "t_eval": "the times are those of the data",
    "events": "a fit compares at the times of the data",
    "dense_output": "the fit keeps a fine curve",
    **dict.fromkeys(("derivative", "psi", "inverse", "rate", "normalisation"), "a fit takes Caputo's derivative"),
    "jac_sparsity": "a fit solves small systems",
    "compile": "the parameters and their neighbours are solved as one batch, in Python",
    "backend": "the library is that of the data and the guesses",
    **dict.fromkeys(("progress", "max_seconds"), "a solve is one of many"),
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


#: Number of times at which the fitted curve is stored.
_CURVE = 200


@names_options_of(solve_fode, leave_out=_REFUSED)
def fit_fode(
    fun: RateFunction,
    t: Any,
    data: Any,
    *,
    parameters: Mapping[str, Any],
    alpha: Any = "free",
    y0: Any = "free",
    dy0: Any = None,
    terms: Sequence[tuple[Any, Any]] = (),
    delays: Sequence[float] = (),
    history: Any = None,
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
    r"""Estimate parameters, orders and initial values of :math:`D^\alpha y = f(t, y; p)` from data.

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
    dy0 : list, optional
        Initial derivatives for orders above 1: for each ``"free"``, an array, or a list of numbers and ``"free"``. With
        several data sets, each has its own unknowns.
    terms : sequence of (coefficient, order), optional
        Further terms on the left, as in :func:`solve_fode`; coefficients and orders may be ``"free"``. NumPy only.
    delays, history
        As in :func:`solve_fode`: ``fun(t, y, (y(t - delay_1), ...), *parameters)``.
    guess : mapping, optional
        Starting values for ``"alpha"`` (0.8 by default), ``"y0"`` (the first datum of each component, if all
        components are observed), ``"dy0"`` (a list; 0), ``"coefficients"`` of terms (1) and their ``"orders"``.
    bounds : mapping of str to (lower, upper), optional
        Bounds of parameters and of the names of ``guess``. Orders stay within (0.01, 1), or above 1 if ``dy0`` is
        given, and those of terms between two integers.
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
        As in :func:`solve_fode`: ``rtol``, ``atol`` (by default 1e-9, or 1e-9 of the largest datum if that is less),
        ``max_steps``, ``max_step``, ``first_step``, ``breakpoints``.
    halve : bool
        Whether a fit with a ``step`` is repeated with half the step (``halved`` of the result), because an estimated
        order easily absorbs the discretisation error.
    max_evaluations : int
        Maximum number of evaluations.

    Returns
    -------
    FODEFit
        ``.estimates .standard_errors .correlation .confidence_intervals() .parameters .alpha .y0 .dy0 .terms .message
        .plot() .predict(t)``; it prints as a table.

    Warns
    -----
    AccuracyWarning
        If the data do not determine an unknown, one ends at a bound, half the step changes one by more than its
        standard error, or the residuals are correlated in time or grow or shrink with the size of the data, so that the
        standard errors are wrong.

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
    several = isinstance(t, list | tuple) and len(t) > 0 and np.ndim(arguments.on_host(t[0])) > 0
    sets = arguments.read_sets(t, data, sigma, several)
    first = min(float(each.t[0]) for each in sets) if t0 is None else _reading.number("t0", t0)
    if any(each.t[0] < first or each.t[-1] <= first for each in sets):
        raise InvalidInputError(f"t0={first:g} lies beyond data: every set needs times from t0 on, and one after it")
    guess, bounds = arguments.read_table("guess", guess), arguments.read_table("bounds", bounds)
    chosen = arguments.read_observe(observe)
    if not callable(chosen):  # a tolerance above the data would leave only noise of the solver
        options.setdefault("atol", 1e-9 * min(1.0, arguments.largest_datum(sets)))
    states = arguments.read_states(y0, guess, sets, chosen, several)
    slopes = arguments.read_slopes(dy0, guess, states)
    coefficients, factors, orders = arguments.read_terms(terms, guess)
    unknowns = arguments.read_unknowns(parameters, alpha, states, slopes, factors, orders, guess, bounds)
    count = sum(int(np.isfinite(each.data).sum()) for each in sets)
    if count < len(unknowns.names):
        raise InvalidInputError(
            f"{count} data for {len(unknowns.names)} unknowns ({', '.join(unknowns.names)}): fix some, or observe more"
        )
    like = arguments.tensor_among([data, y0, *parameters.values(), *guess.values()])
    if like is not None and coefficients:
        raise InvalidInputError(f"terms are for NumPy arrays, and there are arrays of {library_of(like)}; convert them")

    def search(step: float | None) -> tuple[_Predictions, LeastSquares]:
        solving = {**options, "delays": delays, "history": history, "estimate": False, "method": method, "step": step}
        equation = Equation(fun, jac, jac_parameters, chosen, first, unknowns, coefficients, solve_fode, solving)
        made = _Predictions(
            PlainModel(equation) if like is None else TensorModel(equation, like, library_of(like)), sets
        )
        problem = LeastSquares(
            unknowns.names, lambda x: made.at(x)[0], lambda x: made.at(x)[1], made.observed, unknowns.lower,
            unknowns.upper,
        )  # fmt: skip
        return made, problem

    def minimised(problem: LeastSquares, start: Array) -> Any:
        return problem.minimise(start, loss=loss, f_scale=f_scale, max_nfev=max_evaluations)

    made, problem = search(step)
    halved, complaints, interrupted = None, [], False
    try:
        found = minimised(problem, unknowns.start)
        x = found.x
        series, sigmas = made.layout()
        report = problem.report(
            found, unknowns.start, loss, f_scale, bool(absolute_sigma), series, lambda y: np.abs(y * sigmas)
        )
        if step is not None and halve:
            finer = minimised(search(0.5 * step)[1], x).x
            halved = dict(zip(unknowns.names, finer.tolist(), strict=True))
            complaints += [
                f"{name} goes from {old:.6g} to {new:.6g} with half the step, more than its standard error "
                f"{error:.2g}: take a smaller step"
                for name, old, new, error in zip(unknowns.names, x, finer, report["standard_errors"], strict=True)
                if abs(new - old) > error
            ]
        fitted = tuple(made.fitted(x, first))
        add_complaints(report, complaints, max_evaluations)
    except KeyboardInterrupt:
        (x, report, predicted), interrupted = problem.part(), True
        fitted = partly_fitted(sets, predicted)
    starts = tuple(each.at(x) for each in unknowns.y0)
    steep = tuple([each.at(x) for each in rows] for rows in unknowns.dy0)
    found_terms = zip(coefficients, unknowns.coefficients.at(x).tolist(), unknowns.orders.at(x).tolist(), strict=True)
    fit = FODEFit(
        **report,
        parameters={each.name: each.plain(x) for each in unknowns.parameters},
        alpha=unknowns.alpha.plain(x),
        y0=starts if several else starts[0],
        dy0=steep if several else steep[0],
        terms=[(value if isinstance(given, str) else given, order) for given, value, order in found_terms],
        halved=halved,
        evaluations=made.calls,
        sets=fitted,
        _model=made.model,
    )
    if interrupted:
        raise_interrupted(fit.message, fit)
    return fit


class _Predictions:
    """Predictions and their derivatives in units of ``sigma``, one evaluation for both."""

    def __init__(self, model: PlainModel | TensorModel, sets: list[DataSet]) -> None:
        self.model, self.sets = model, sets
        self.calls = 0
        #: The data divided by ``sigma``, shape (n,), in the order of the residuals.
        self.observed = np.concatenate([(each.data / each.sigma)[np.isfinite(each.data)] for each in sets])
        self._newest: tuple[Array, Array, Array] | None = None

    def at(self, x: Array) -> tuple[Array, Array]:
        """Predictions (n,) and their derivatives (n, p)."""
        if self._newest is None or not np.array_equal(x, self._newest[0]):
            self.calls += 1
            rows, columns = zip(*(self._part(x, n, each) for n, each in enumerate(self.sets)), strict=True)
            self._newest = x.copy(), np.concatenate(rows), np.concatenate(columns)
        return self._newest[1:]

    def _part(self, x: Array, number: int, given: DataSet) -> tuple[Array, Array]:
        """Prediction and derivatives for the data that are not missing, divided by ``sigma``."""
        value, slope = self.model(x, number, given.t)
        if value.shape != given.data.shape:
            raise ShapeError(
                f"the data have shape {given.data.shape} and what is observed {value.shape}: give data of shape "
                "(m, N) as solve_fode does, and observe= where some components are not measured"
            )
        keep = np.isfinite(given.data)
        return (value / given.sigma)[keep], (slope / given.sigma[..., None])[keep]

    def layout(self) -> tuple[list[Array], Array]:
        """The places of each row of data among the residuals, and the standard deviations."""
        counts = [np.isfinite(row).sum() for each in self.sets for row in each.data]
        sigmas = np.concatenate([each.sigma[np.isfinite(each.data)] for each in self.sets])
        return np.split(np.arange(sigmas.size), np.cumsum(counts)[:-1]), sigmas

    def fitted(self, x: Array, first: float) -> list[FittedSet]:
        """The data sets with their predictions."""
        found = []
        for number, (t, data, _) in enumerate(self.sets):
            fine = np.linspace(first, float(t[-1]), _CURVE)
            try:
                value = self.model.predict(x, number, t)
                curve = self.model.predict(x, number, fine)
            except SolveError as error:
                raise SolveError(f"the equation cannot be solved at the estimate: {error}") from error
            found.append(FittedSet(t, data, value, data - value, fine, curve))
        return found

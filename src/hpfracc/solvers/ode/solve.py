"""The public function ``solve_fode``, and how it would solve a problem."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from hpfracc._arrays import dtype_name
from hpfracc._choices import ArrayOut, DerivativeName, MethodName, Numbers, Orders, RateFunction, SolverBackendName
from hpfracc._interrupts import raise_interrupted
from hpfracc._optional import is_installed
from hpfracc._reading import corrects_keywords
from hpfracc._results import PlainData
from hpfracc.engine.backends import registry
from hpfracc.engine.memory.budget import HOST, get_budget
from hpfracc.errors import InvalidInputError, OutOfMemoryError
from hpfracc.profiling.recorder import watched
from hpfracc.solvers.ode.auto import solve_auto, solve_with
from hpfracc.solvers.ode.compilation import compile_price, read_backend
from hpfracc.solvers.ode.compiled import on_cuda
from hpfracc.solvers.ode.fixed.grid import REMEDY, initial_part, least_bytes, make_grid
from hpfracc.solvers.ode.method import Method, find_method, noting
from hpfracc.solvers.ode.multiterm import solve_reduced
from hpfracc.solvers.ode.problem import Problem, read_problem, starts_infinite
from hpfracc.solvers.ode.result import FODEResult, SolveDecision
from hpfracc.solvers.stepping.events import EventWatch
from hpfracc.solvers.stepping.options import MAX_STEPS, Options, read_options

if TYPE_CHECKING:
    from hpfracc.operators._sonine import SonineDerivative


@watched
@corrects_keywords
def solve_fode(
    fun: RateFunction,
    t_span: Sequence[float],
    y0: Numbers | ArrayOut,
    alpha: Orders,
    *,
    method: MethodName | Method = "auto",
    rtol: float = 1e-6,
    atol: Any = 1e-9,
    step: float | None = None,
    t_eval: Any = None,
    args: Any = (),
    jac: Callable[..., Any] | None = None,
    jac_sparsity: Any = None,
    events: Any = None,
    dense_output: bool = False,
    max_steps: int = MAX_STEPS,
    max_step: float | None = None,
    first_step: float | None = None,
    max_seconds: float | None = None,
    breakpoints: Sequence[float] = (),
    dy0: Any = None,
    derivative: DerivativeName | SonineDerivative = "caputo",
    psi: Callable[[Any], Any] | None = None,
    inverse: Callable[[Any], Any] | None = None,
    rate: float | None = None,
    normalisation: float | Callable[[Any], Any] | None = None,
    terms: Sequence[tuple[Any, Any]] = (),
    delays: Sequence[float] = (),
    history: Callable[[float], Any] | Any = None,
    backend: SolverBackendName | Enum = "auto",
    compile: bool | str = "auto",
    progress: bool | Callable[..., Any] = False,
    estimate: bool | str = "auto",
) -> FODEResult[ArrayOut]:
    r"""Solve an initial-value problem of fractional order, with the interface of ``scipy.integrate.solve_ivp``.

    .. math:: D^\alpha y(t) = f(t, y(t)), \quad t_0 < t \le t_1

    Parameters
    ----------
    fun : callable
        ``fun(t, y, *args)`` with y of shape (..., d); returns an array of that shape. Leading axes are a batch.
    t_span : pair of float
        ``(t0, t1)``. The derivative starts at t0; earlier times have no influence.
    y0 : array_like, shape (..., d)
        Real or complex. For the Caputo derivative the value at t0. For Riemann-Liouville the initial value of the
        fractional integral, :math:`I^{n-\alpha} y(t_0^+)` with n = ceil(alpha); y is infinite at t0 unless that is
        zero.
    alpha : float, array_like, callable or None
        The order, above 0: one number, one for each component (anything that broadcasts to the shape of ``y0``), or a
        function of t (then at most 1). None for a ``derivative`` with a kernel of the user's own, which has no order.
    method : str or Method, default "auto"
        ``"auto"``: with a ``step``, PECE, or the implicit trapezoid if the equation is stiff for that step; without a
        ``step``, adaptive steps, and for whole orders LSODA (``"integer_order"``). By name: ``"explicit_rectangle"``,
        ``"implicit_rectangle"``, ``"implicit_trapezoid"``, ``"pece"``, ``"bdf2"``, ``"newton_gregory"``,
        ``"multistep_trapezoid"``, ``"variable_order"`` and the others of
        :func:`hpfracc.solvers.ode.method.all_methods`.
    rtol, atol : float
        The tolerance is ``atol + rtol |y|`` if no ``step`` is given; ``atol`` may have the shape of ``y0``. With
        adaptive steps ``|y|`` is, for each component, the maximum of ``|y(s)| s / t`` up to the time t (counted from
        t0). So for an oscillating solution the error near a zero is relative to the preceding amplitude, and may exceed
        ``rtol |y(t)|``. Other methods use ``|y(t)|`` itself.
    step : float, optional
        A fixed step; the largest step not above it that divides the interval is used.
    t_eval : array_like, optional
        Times at which to return the solution, instead of at the steps.
    args : tuple, optional
        Further arguments of ``fun``, ``jac`` and events.
    jac : callable, optional
        ``jac(t, y, *args)``, of shape (..., d, d), for implicit methods; for y of shape (d,) it may be a SciPy sparse
        matrix. Computed by finite differences if not given.
    jac_sparsity : array_like, sparse matrix or pair of int, optional
        Where the Jacobian may be nonzero, of shape (d, d), or the numbers of diagonals ``(lower, upper)`` of a banded
        one. Finite differences then need one evaluation for each group of columns that share no row, and large systems
        are solved by sparse factorisation. Cannot be combined with ``jac``.
    events : callable or list of callables, optional
        ``event(t, y, *args)``, whose zeros are located; ``event.terminal`` and ``event.direction`` as in SciPy.
    dense_output : bool, default False
        Whether the result has ``sol(t)``. Its interpolation takes the singularity of fractional solutions at t0 into
        account.
    max_steps : int
        Maximum number of steps. If it is exceeded, ``success`` is False.
    max_step : float, optional
        The longest step of adaptive methods. They evaluate the right-hand side at their steps only, so they may miss a
        pulse that is shorter than a step, unless this is at most the length of the pulse.
    first_step : float, optional
        The first step that they try; by default it is estimated from the tolerance and the right-hand side.
    max_seconds : float, optional
        After how many seconds the solve ends, with ``success=False`` and the solution up to then. A solve that will
        take minutes says so once, as a warning of the logger ``"hpfracc"``. For NumPy arrays.
    breakpoints : sequence of float, optional
        Increasing times between t0 and t1 at which the right-hand side jumps or is not smooth. Adaptive steps end
        there, and start anew behind: ``fun`` is called with times before the breakpoint up to it, and with the
        breakpoint itself behind it. Jumps that are not given are found, with more steps.
    dy0 : list of array_like, optional
        The further initial values that an order above 1 needs: y'(t0), y''(t0), ..., each in the shape of ``y0``.
    derivative : str or SonineDerivative, default "caputo"
        Definition of the derivative: ``"caputo"``, ``"riemann_liouville"``; ``"caputo_hadamard"``, in log t, for
        t0 > 0, and ``"psi_caputo"``, in ``psi(t)``, both of whose ``step``, ``max_step``, ``first_step`` and ``dy0``
        are in units of log t or psi; ``"tempered_caputo"``, :math:`e^{-\lambda t} D^\alpha e^{\lambda t} y` with
        :math:`\lambda` the ``rate``; ``"caputo_fabrizio"`` and ``"atangana_baleanu"`` (ABC), of orders below 1, for
        which ``fun(t0, y0)`` must be 0, because these derivatives are 0 at t0. As in :class:`hpfracc.CaputoHadamard`,
        :class:`hpfracc.PsiCaputo`, :class:`hpfracc.TemperedCaputo`, :class:`hpfracc.CaputoFabrizio` and
        :class:`hpfracc.AtanganaBaleanu`. All but the first two take NumPy arrays, constant orders and no delays, and
        the last two no ``terms``. ``hf.SonineDerivative(kernel)``, the user's own kernel: adaptive steps only, with its
        associated kernel as a sum of exponentials, whose error is part of ``error_estimate`` and has to be below rtol.
    psi, inverse : callables, optional
        The increasing function of an array of times for ``"psi_caputo"``, and its inverse; by bisection if not given.
    rate : float, optional
        The rate :math:`\lambda` for ``"tempered_caputo"``, 0 or more; with equal steps at most 300 over the length of
        ``t_span``.
    normalisation : float or callable, optional
        M(alpha) for ``"caputo_fabrizio"`` or B(alpha) for ``"atangana_baleanu"``: a number, or a function of alpha; 1
        by default.
    terms : sequence of (coefficient, order), optional
        Further terms on the left, :math:`D^\alpha y + \sum_i c_i D^{\alpha_i} y = f(t, y)`, of orders below alpha; a
        coefficient is a number, an array that broadcasts to the state, or a function of t. Orders of terms and alpha
        may differ between the members of a batch, as arrays of shape (members, 1).
    delays : sequence of float, optional
        Constant delays: ``fun`` is then called as ``fun(t, y, (y(t - delay_1), ...), *args)``. Needs ``history``. With
        a ``step`` the delayed states are interpolated between the steps, and a delay may be shorter than a step.
    history : callable or array_like, optional
        ``history(t)``, the state before t0, for delays; or a constant that broadcasts to the shape of ``y0``.
    backend : str, default "auto"
        For NumPy problems ``"numpy"`` or ``"numba"``, which is an error where Numba is not installed; tensors and JAX
        arrays stay in their own library. ``"numba-cuda"``: an ensemble, y0 of shape (members, d), with a ``step`` by
        ``"pece"`` or ``"explicit_rectangle"``, a GPU thread for each member, in float32 if ``y0`` is so. ``fun`` has to
        be one that ``compile="auto"`` takes, whose members do not depend on each other; arrays in ``args`` whose first
        axis is as long as the ensemble belong to the members. An error where that is not so, or where there is no GPU.
        With ``"auto"`` such an ensemble moves there, in float64, if that ends sooner than its remaining steps on the
        host and both agree so far; ``decision.notes`` says so.
    compile : bool or "auto"
        Whether ``fun`` is compiled with Numba. ``"auto"``: if compilation pays off, and if the source shows that the
        results cannot differ from Python's beyond rounding: float arithmetic, listed functions of NumPy and ``math``,
        known loops, and captured numbers. Otherwise it stays in Python, and ``decision.notes`` says why. ``True``:
        always, with Numba's semantics if the source cannot be analysed. Then integers may overflow, captured arrays and
        objects are frozen at the start of the solve, ``np.random`` is Numba's own generator, an unbound name may have
        any value, intermediate infinities may raise or errors may be missed, and a long evaluation cannot be
        interrupted. ``False``: never. With ``hf.config(deterministic=True)`` nothing is compiled unless requested here
        or by ``backend="numba"``, because the decision depends on measured times and affects the last digits.
    progress : bool or callable
        Whether to show a progress bar with the elapsed time, or ``progress(t, y)``, called from time to time with the
        newest point.
    estimate : bool or "auto"
        Whether to compute an ``error_estimate`` of a solution with a given ``step``, from its defect at up to 24
        steps, and more for jumps and oscillations (``stats["estimate_evaluations"]`` evaluations). ``"auto"``: unless
        the right-hand side is compiled, because the estimate would then be slow in comparison. If it exceeds a
        tenth of a component's maximum, ``message`` names the component and the times. (With ``terms``, these are the
        components of the equivalent system: those of y, then those of its derivatives.)

    Returns
    -------
    FODEResult
        ``.t .y .success .message .nfev .njev .sol .stats .error_estimate .decision .t_events .y_events``, with ``y`` of
        shape (..., d, N). Failures during the solve (a non-finite value, no convergence of Newton's method, too few
        steps) give ``success=False`` and a message. Invalid arguments raise an error, and Ctrl-C raises
        :class:`~hpfracc.errors.Interrupted` with the result up to then.

    See Also
    --------
    fdeint, fit_fode, solve_fpde, solve_fsde, FODEResult

    Notes
    -----
    Garrappa's MATLAB codes take ``(alpha, f_fun, t0, T, y0, h, param)``; here that is
    ``solve_fode(f_fun, (t0, T), y0, alpha, step=h, args=param)``.

    Examples
    --------
    >>> import hpfracc as hf
    >>> solution = hf.solve_fode(lambda t, y: -y, (0.0, 2.0), [1.0], 0.5, step=0.01)
    >>> solution.success, solution.y.shape
    (True, (1, 201))
    >>> from hpfracc.special import mittag_leffler
    >>> bool(abs(solution.y[0, -1] - mittag_leffler(-(2.0**0.5), 0.5)) < 1e-4)
    True
    """
    problem = read_problem(
        fun, t_span, y0, alpha, dy0=dy0, derivative=derivative, args=args, jac=jac, jac_sparsity=jac_sparsity,
        terms=terms, delays=delays, history=history,
    )  # fmt: skip
    options = read_options(
        problem.t0, problem.t1, problem.shape, rtol=rtol, atol=atol, step=step, t_eval=t_eval, events=events,
        dense_output=dense_output, max_steps=max_steps, max_step=max_step, first_step=first_step,
        breakpoints=breakpoints, backend=backend, compile=compile, progress=progress, estimate=estimate,
        max_seconds=max_seconds,
    )  # fmt: skip
    if max_seconds is not None and (problem.library != "numpy" or on_cuda.is_asked(options)):
        raise InvalidInputError("max_seconds is for NumPy arrays on the host, whose steps it can end; leave it out")
    if options.step is not None and options.max_steps == MAX_STEPS and not options.events:
        _check_steps(make_grid(problem.t0, problem.t1, options.step).steps, options.step)
    is_auto = isinstance(method, str) and method == "auto"
    if on_cuda.is_asked(options):
        method = find_method("pece" if is_auto else method)
        on_cuda.check(problem, options, method)
        options = dataclasses.replace(options, precision="float32" if dtype_name(y0) == "float32" else "float64")

    def solve(problem: Problem, options: Options) -> FODEResult:
        if problem.terms:
            return solve_reduced(problem, options, solve)
        if is_auto:
            return solve_auto(problem, options)
        return solve_with(find_method(method), problem, options)

    defining = {"psi": psi, "inverse": inverse, "rate": rate, "normalisation": normalisation}
    try:
        if problem.derivative in ("caputo", "riemann_liouville") and all(each is None for each in defining.values()):
            result = solve(problem, options)
        else:
            from hpfracc.solvers.ode.definitions import solve_defined

            adaptive = options.step is None if is_auto else not find_method(method).fixed
            result = solve_defined(problem, options, solve, defining, adaptive)
    except KeyboardInterrupt:
        result = _only_the_start(problem, options)
    except OutOfMemoryError:
        raise
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and not registry.adapter(problem.library).is_out_of_memory(error):
            raise
        raise _out_of_memory(problem, options, error) from error
    if (
        derivative == "caputo"
        and problem.library == "numpy"
        and not (problem.terms or problem.delays or callable(alpha))
    ):
        # What hf.audit needs to know of the equation.
        known = {"alpha": alpha, "dy0": dy0 or [], "rtol": rtol, "atol": atol}
        result.stats["equation"] = {name: np.asarray(each, dtype=float).tolist() for name, each in known.items()}
    if result.stats.get("interrupted") and not result.success:
        raise_interrupted(result.message, result)
    return cast(FODEResult[ArrayOut], result)


def _check_steps(steps: int, step: float) -> None:
    """Refuse more steps than the default limit, before there is memory for those up to it."""
    if steps > MAX_STEPS:
        raise InvalidInputError(
            f"step={step:g} takes {steps:.3g} steps, and max_steps={MAX_STEPS} is the most by default; take a larger "
            "step, or give another max_steps"
        )


def _only_the_start(problem: Problem, options: Options) -> FODEResult:
    """The result of a solve that was interrupted outside of its steps."""
    times = np.array([problem.t0])
    y = problem.y0[..., None]
    if problem.library == "numpy" and starts_infinite(problem):
        y = initial_part(problem, np.zeros(1)).reshape(y.shape)
    if options.t_eval is not None and not np.any(options.t_eval == problem.t0):
        times, y = times[:0], y[..., :0]
    message = f"Interrupted at t = {problem.t0:g}, outside of the steps: this is the initial value."
    stats = {"steps": 0, "interrupted": True, "terminated": False}
    t_events, y_events = EventWatch(options.events, ()).collected(problem.shape, problem.dtype)
    return FODEResult(times, y, False, message, 0, stats=stats, t_events=t_events, y_events=y_events)


def _out_of_memory(problem: Problem, options: Options, error: BaseException) -> OutOfMemoryError:
    """The error to raise when memory ran out, with the known figures."""
    get_budget().invalidate()
    free, need = get_budget().read(HOST), ""
    have = "" if free is None else f", {free / 2**20:,.1f} MiB are free on the host now"
    if options.step is not None:
        points = 1 + min(math.ceil((problem.t1 - problem.t0) / options.step), options.max_steps)
        need = f" of at least {least_bytes(problem, points) / 2**20:,.1f} MiB for {points:,} points"
    return OutOfMemoryError(
        f"solve_fode: memory ran out in a solve of {math.prod(problem.shape):,} components{need}{have} "
        f"({registry.describe_failure(error)}); {REMEDY}"
    )


@dataclass(frozen=True, slots=True)
class SolveExplanation(PlainData):
    """How an equation would be solved, and why.

    Attributes
    ----------
    method : str
        Name of the method.
    reason : str
        Why this method is used.
    order : str
        Its order of accuracy, and where that holds.
    steps : int or None
        Number of equal steps; None if the steps adapt to the tolerance.
    step : float or None
        Their size.
    stepping : str
        Description of the steps.
    compiling : str
        Whether the right-hand side would be compiled.
    """

    method: str
    reason: str
    order: str
    steps: int | None
    step: float | None
    stepping: str
    compiling: str

    def __str__(self) -> str:
        return (
            f"solve_fode: method {self.method!r}, because {self.reason}\n  order: {self.order}\n"
            f"  steps: {self.stepping}\n  right-hand side: {self.compiling}"
        )


def explain_solve(*args: Any, **kwargs: Any) -> SolveExplanation:
    """The method that this call of ``solve_fode`` would use, and how.

    The arguments are read and checked as for a solve. With ``method="auto"`` and a step the right-hand side is called a
    few times at t0 and one step ahead, to check for stiffness. No steps are taken.
    """
    noted: list[tuple[Method, Problem, Options]] = []

    def note(method: Method, problem: Problem, options: Options) -> FODEResult:
        noted.append((method, problem, options))
        # Looks like a solve that was interrupted at once, which callers do not continue, but successful.
        result = _only_the_start(problem, options)
        result.success = True
        result.decision = SolveDecision(method.name, "it was asked for by its name")
        return result

    token = noting.set(note)
    try:
        result = solve_fode(*args, **kwargs)
    finally:
        noting.reset(token)
    method, problem, options = noted[-1]
    assert result.decision is not None
    steps = step = None
    if not method.fixed:
        stepping = f"they adapt to rtol={options.rtol:g}, atol={options.atol}"
    elif kwargs.get("step") is None:
        stepping = f"halved until two solutions agree to rtol={options.rtol:g}, atol={options.atol}"
    else:
        grid = make_grid(problem.t0, problem.t1, float(kwargs["step"]))
        steps, step, stepping = grid.steps, grid.step, f"{grid.steps:,} of {grid.step:.6g}"
    compiling = _compiling(problem, options) + _moving(problem, options, method)
    chosen = result.decision
    return SolveExplanation(chosen.method, chosen.reason, method.order, steps, step, stepping, compiling)


def _compiling(problem: Problem, options: Options) -> str:
    if problem.library != "numpy":
        return f"called with arrays of {problem.library}, as it is given"
    if on_cuda.is_asked(options):
        return "compiled into a kernel with a GPU thread for each member (backend='numba-cuda')"
    if problem.memory is not None:
        return "called in Python (its derivative is not Caputo's)"
    if options.compile is True:
        return "compiled with Numba at once (compile=True)"
    if options.compile is False:
        return "called in Python (compile=False)"
    if read_backend(options) == "numpy":
        return "called in Python (the settings ask for NumPy, or rule Numba out)"
    price = compile_price(problem.fun)
    if price is None or not is_installed("numba"):
        return "called in Python (Numba is not installed, or the run is deterministic)"
    left = max(0.0, price.seconds - price.credited())
    return f"called in Python; compiled, if possible, once it has taken {left:.2g} s, the cost of compiling"


def _moving(problem: Problem, options: Options, method: Method) -> str:
    if problem.library != "numpy" or on_cuda.is_asked(options):
        return ""
    from hpfracc.solvers.ode.compiled.on_cuda import choice

    if choice.may_move(problem, options, method.name) and choice.has_gpu():
        return "; an ensemble whose members are independent moves to the GPU if it ends sooner there"
    return ""

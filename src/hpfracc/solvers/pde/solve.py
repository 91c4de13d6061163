"""``solve_fpde``, the public entry point."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, cast

import numpy as np

from hpfracc._arrays import dtype_name, is_array, is_tracer, library_of
from hpfracc._choices import ArrayOut, BoundaryName, EvolutionMethodName, Numbers, RateFunction
from hpfracc._interrupts import raise_interrupted
from hpfracc._reading import corrects_keywords
from hpfracc._xp import namespace_of
from hpfracc.errors import InvalidInputError, warn
from hpfracc.profiling.recorder import watched
from hpfracc.solvers.pde.adaptive_steps import can_step, run_steps
from hpfracc.solvers.pde.boundary import BoundaryCondition
from hpfracc.solvers.pde.changes import refuse_gaps, refuse_growth, scan_data
from hpfracc.solvers.pde.driver import StepProgress, check_memory, exact_mesh, given_steps, run_estimated, run_mesh
from hpfracc.solvers.pde.grid_error import errors_of_run
from hpfracc.solvers.pde.interpolation import FrameCubic, FrameSolution
from hpfracc.solvers.pde.method import EvolutionMethod, Question, find_evolution_method
from hpfracc.solvers.pde.methods.adaptive import AdaptiveSteps
from hpfracc.solvers.pde.methods.convolution_quadrature import CorrectedQuadrature
from hpfracc.solvers.pde.methods.differences import DiffusionL1, DiffusionL2Sigma
from hpfracc.solvers.pde.methods.exact_contour import ExactContour
from hpfracc.solvers.pde.methods.exact_modes import ExactModes
from hpfracc.solvers.pde.methods.splitting import Yoshida4, conserves_norm
from hpfracc.solvers.pde.problem import EvolutionProblem
from hpfracc.solvers.pde.reading import EQUATION, read_evolution
from hpfracc.solvers.pde.recording import MAX_FRAMES, Run, read_save, smooth_power
from hpfracc.solvers.pde.refinement import run_refined
from hpfracc.solvers.pde.result import EvolutionDecision, FPDEResult, SpaceTimeError
from hpfracc.solvers.stepping.events import progress_report
from hpfracc.solvers.stepping.options import Options, read_options
from hpfracc.solvers.stepping.walk import interrupted_at

#: Default limit on the number of steps.
MAX_FPDE_STEPS = 1_000_000
_BACKENDS = ("auto", "numpy", "numba")
#: The reason of a method that the user chose.
_ASKED = "it was asked for"
#: Methods for first order in time, in the order in which they are tried.
_FIRST_ORDER = ("etdrk4", "imex_bdf2", "crank_nicolson")
#: Order in time above which, for incompatible initial data, corrected quadrature is chosen instead of L1 (of order 2 -
#: alpha): at 0.5 both take the same time, at 0.7 L1 takes three times as long.
_QUADRATURE_FROM = 0.6


@watched
@corrects_keywords
def solve_fpde(
    reaction: RateFunction | None,
    t_span: Sequence[float],
    u0: Numbers | Sequence[Any] | Callable[..., Any] | Mapping[str, Any] | ArrayOut,
    *,
    x: Any = None,
    space: Any,
    boundary: BoundaryName | BoundaryCondition | tuple[Any, ...] | list[Any] | dict[str, Any] | float | None = None,
    alpha: Any = 1.0,
    form: Literal["caputo", "fokker_planck"] = "caputo",
    du0: Any = None,
    source: Any = None,
    method: EvolutionMethodName | EvolutionMethod = "auto",
    rtol: float = 1e-6,
    atol: float = 1e-9,
    step: float | None = None,
    t_eval: Any = None,
    args: Any = (),
    jac: Callable[..., Any] | None = None,
    terms: Sequence[tuple[Any, Any]] = (),
    delays: Sequence[float] = (),
    history: Any = None,
    events: Any = None,
    dense_output: bool = False,
    save: str | int | Callable[..., Any] = "auto",
    max_steps: int = MAX_FPDE_STEPS,
    max_step: float | None = None,
    first_step: float | None = None,
    max_seconds: float | None = None,
    breakpoints: Sequence[float] = (),
    backend: Any = "auto",
    compile: bool | str = "auto",
    progress: bool | Callable[..., Any] = False,
    estimate: bool | str = "auto",
) -> FPDEResult[ArrayOut]:
    r"""Solve a partial differential equation of fractional order in time or space, on a box of 1 to 3 dimensions.

    .. math:: D_t^\alpha u = \mathcal{A} u + f(t, x) + R(t, u), \quad t_0 < t \le t_1

    with Caputo's derivative in time and :math:`\mathcal{A}` a sum of terms in space.

    Parameters
    ----------
    reaction : callable or None
        ``reaction(t, u, *args)`` or ``reaction(t, u, x, *args)`` (``reaction(t, u, x, y, *args)``), recognised by its
        signature, with u and the coordinates on the whole grid; returns an array of the shape of u. None for linear
        equations.
    t_span : pair of float
        ``(t0, t1)``.
    u0 : array_like or callable
        The solution at t0 on the whole grid, boundary points included, or ``u0(x)`` (``u0(x, y)``); real or complex.
        Of shape (components, ...) for a system, or a dict ``{"u": ..., "v": ...}`` with the names of the components
        and an array, function or number for each; ``boundary``, ``space``, ``alpha``, ``du0``, ``source`` and
        ``history`` may then be dicts with the same names. A tensor or JAX array is solved in its library, on its
        device.
    x : array_like or tuple of array_like
        The grid: increasing points, one array for each axis. Transforms need equal spacing. Or a
        :class:`~hpfracc.pde.Disc` or :class:`~hpfracc.pde.Annulus`; functions are then called with the coordinates x
        and y, and results have an axis of radii and an axis of angles. Or a :class:`~hpfracc.pde.Region`, a part of a
        box; results are nan outside. Not given with a Matrix.
    space : SpaceTerm, TermSum or list of these
        A sum of :class:`~hpfracc.pde.Diffusion`, :class:`~hpfracc.pde.Advection`,
        :class:`~hpfracc.pde.FractionalDiffusion` and :class:`~hpfracc.pde.OneSided`, or a
        :class:`~hpfracc.pde.Matrix`. For a system: one sum for all components, a list with one sum for each, or a
        :class:`~hpfracc.pde.CrossDiffusion`.
    boundary : str, condition, number, sequence or dict
        ``"periodic"``, ``"dirichlet"``, ``"neumann"`` (zero data), ``"no_flux"``, :class:`~hpfracc.pde.Dirichlet`,
        :class:`~hpfracc.pde.Neumann`, :class:`~hpfracc.pde.NoFlux`, :class:`~hpfracc.pde.Robin`,
        :class:`~hpfracc.pde.Exterior`, with numbers, f(t) or f(t, x): one for all axes, or a sequence with one, or a
        pair for the two ends, for each axis. In one dimension a pair stands for the two ends. A number or function
        alone is the value of u, and a dict has the ends ``"left"`` and ``"right"`` (``"bottom"``, ``"top"``,
        ``"back"``, ``"front"``). All components of a system share the conditions, unless a dict gives those of each by
        its name (see ``u0``): they may then differ in kind. Not given with a Matrix.
    alpha : float, scalar array, sequence, callable or DistributedOrder
        The order in time, in (0, 2]. A sequence has one for each component of a system, by ``"adaptive"``, or
        ``"l1"`` up to order 1. ``alpha(t)``, ``alpha(x)`` and ``alpha(t, x)`` (``alpha(x, y)``, ...), recognised by
        the names of their arguments, vary in (0, 1]: the order at the present time and place, in the kernel
        :math:`(t-s)^{-\alpha(t,x)}/\Gamma(1-\alpha(t,x))` of u' (type I of Lorenzo and Hartley, as
        :func:`solve_fode` takes it), by ``"l1"``, and ``"l2_1sigma"`` for ``alpha(t)``. In space such an order takes
        one equation with local terms. For NumPy arrays.
    form : {"caputo", "fokker_planck"}
        Where the memory stands. ``"caputo"``: the equation above. ``"fokker_planck"``, as Metzler and Klafter write it:
        :math:`u_t = D_t^{1-\alpha} \mathcal{A} u + f + R`, with the Riemann-Liouville derivative of the terms in space
        and their boundary data, and source and reaction outside the memory. It is solved as
        :math:`D_t^\alpha u = \mathcal{A} u + I^{1-\alpha} (f + R)`, with Caputo's derivative; without f and R both
        forms are the same. For a reaction inside the memory use ``"caputo"``. One order in (0, 1]; with f or R by
        ``"exact_modes"``, ``"l1"`` and ``"l2_1sigma"``.
    du0 : array_like or callable, optional
        The derivative in time at t0, for orders above 1; a number is the same everywhere.
    source : callable or array_like, optional
        ``source(t, x, *args)`` (``source(t, x, y, *args)``) or ``source(t, *args)``, with arrays of coordinates that
        broadcast against the unknown points; or numbers, if it is constant in time. Real for a real ``u0``. It may be
        infinite at t0: steps of ``"l1"`` and ``"l2_1sigma"`` are exact for a part ``c(x) t^p`` from t0 = 0, p above
        -alpha (-1 in Fokker-Planck form).
    method : str or EvolutionMethod
        The method in time. ``"auto"`` chooses by the problem, and ``decision.reason`` says why:
        ``"exact_modes"``, without steps, for linear equations with data that are constant in time, if the operator in
        space is diagonalised (a matrix of at most 2,000 unknowns, symmetric up to their scale); ``"exact_contour"``
        for larger matrices, several orders and orders of place, up to 1. By name: these, ``"l1"``, ``"l2_1sigma"`` and
        what :func:`hpfracc.solvers.pde.method.all_evolution_methods` lists in addition.
    rtol, atol : float
        If no ``step`` is given, the mesh is refined until the error in time is below ``atol + rtol U`` at the times t
        of the first mesh, which has 32 steps. U is the largest ``|u|`` over the box at t, or that at an earlier time s
        times ``(s - t0) / (t - t0)`` if that is larger, because u may pass through zero. Before the first of these
        times, at steps that are returned, U is the largest ``|u|`` of all. The time of a terminal event holds to
        ``rtol``. Where source, boundary data or reaction jump in time, steps of ``"l1"`` and ``"l2_1sigma"`` end, and
        the mesh is graded anew behind. The first steps of a uniform
        mesh with memory (``"convolution_quadrature"``) are less accurate: output before the first of these times is
        computed separately, in a shorter interval with its own steps, and no step before the first time of the shortest
        interval is kept. The error of the grid is estimated separately and is not controlled; where it is larger, a
        tenth of it is enough in time (at most 1 %, in units of the largest ``|u|`` at the end), unless ``estimate`` is
        True or False. ``decision.notes`` says so.
    step : float, optional
        A fixed mean step: the number of steps of a uniform mesh with this step. Methods that grade their mesh still do.
    t_eval : array_like, optional
        Times at which the solution is returned, instead of the steps.
    args : tuple, optional
        Additional arguments of ``reaction``, ``source``, ``jac`` and events.
    jac : callable, optional
        ``jac(t, u, *args)`` or ``jac(t, u, x, *args)``: the derivative of the reaction at each point, of the shape of
        u, or (components, components, ...) for a system; by finite differences if it is not given.
    terms : sequence of (coefficient, order), optional
        Further derivatives on the left-hand side, :math:`D^\alpha u + \sum_i c_i D^{\alpha_i} u`, of orders below
        alpha. An order from -2 to below 0 is an integral, :math:`c\,I^\beta u` for ``(c, -beta)``, by
        ``"convolution_quadrature"`` and ``"l1"``, for NumPy arrays.
    delays : sequence of float, optional
        Constant delays: ``reaction`` (and ``jac``) is then called as ``reaction(t, u, (u(t - delay_1), ...), *args)``,
        with the coordinates, if it takes them, behind the delayed states. Needs ``history``. By ``"l1"``,
        ``"l2_1sigma"``, and, if the history ends with u0, ``"convolution_quadrature"`` and at order 1 ``"imex_bdf2"``.
        Delayed states are linear between the steps. Without a ``step``, the mesh of the first two is graded anew
        behind the first delays. For NumPy arrays.
    history : callable or array_like, optional
        ``history(t)`` or ``history(t, x)``, the solution on the whole grid before t0, for delays; or values that
        broadcast to ``u0``.
    events : callable or list of callables, optional
        ``event(t, u, *args)``, whose zeros are found; ``event.terminal`` and ``event.direction`` as in SciPy. Between
        steps, or, for ``"exact_modes"``, of the solution itself at times that the decay of its modes needs.
    dense_output : bool
        Whether the result has ``sol(t, x)``.
    save : {"auto", "all", "last"}, int or callable
        What is kept: about 100 to 200 frames, evenly among the steps (or all of fewer steps), every step, the last one,
        every k-th step (an integer k), or the value of ``save(t, u)`` at each.
    max_steps : int
        Largest number of steps; a solve that needs more ends with ``success=False``.
    max_step : float, optional
        The longest step. Without a ``step``, source, boundary data and reaction are looked at about 1,000 times over
        the interval (256 times on large grids) for changes between the steps: what is narrower may be missed, unless
        ``max_step`` is as short.
    first_step : float, optional
        The first step of ``"adaptive"``.
    max_seconds : float, optional
        After how many seconds the steps end, with ``success=False`` and the solution up to then.
    breakpoints : sequence of float, optional
        Times within the interval at which source, boundary data or reaction jump: steps of ``"adaptive"``, ``"l1"`` and
        ``"l2_1sigma"`` end there and start anew behind. Jumps are also looked for (see ``max_step``).
    backend : {"auto", "numpy", "numba"}
        How loops over steps run for NumPy problems; tensors and JAX arrays stay in their own library.
    compile : bool or "auto"
        Whether those loops are compiled with Numba; ``"auto"``: if it is installed and the problem is not small. For
        tensors and JAX arrays with ``"etdrk4"``, whether their own library compiles: JAX a whole step (``"auto"``: many
        or large ones), PyTorch with True the reaction, which must then be a pure function.
    progress : bool or callable
        A progress bar over the steps of all meshes, or a callback ``progress(t, u)``, for which t starts again with
        each finer mesh.
    estimate : bool or "auto"
        Whether the errors are estimated. ``error_estimate.space``, for NumPy arrays unless it is False: by solving
        again on every second and every fourth point, with few steps, at up to 12 of the returned times. Functions are
        called with the coordinates of these points; where they fail on them, the estimate is nan and
        ``decision.notes`` says why. With True also for tensors. ``error_estimate.time`` of a solution with a given
        ``step``: it is compared with solutions of an eighth and a sixteenth of its steps (down to a fourth and an
        eighth, if it has few), at common times; if these fractions do not divide the number of steps, at the end only.
        Data that change between the steps count too. ``stats["estimate_steps"]`` counts the extra steps. ``"auto"``:
        for NumPy arrays and 32 steps or more, unless the loop over the steps runs compiled. Without a ``step``, True
        and False refine in time to ``rtol`` even where the error of the grid is larger.

    Returns
    -------
    FPDEResult
        ``.t .x .u .sol .error_estimate .errors .mass .energy .decision .stats .plot()``; ``u[n]`` is the solution at
        ``t[n]``.
        A failure during the solve (non-finite values, no convergence, too few steps) gives ``success=False`` and a
        message; invalid arguments raise an error, and Ctrl-C :class:`~hpfracc.errors.Interrupted` with the result up
        to then.

    See Also
    --------
    solve_fode, FPDEResult, hpfracc.pde.Diffusion, hpfracc.pde.FractionalDiffusion

    Examples
    --------
    Subdiffusion of a sine, which decays like a Mittag-Leffler function:

    >>> import numpy as np
    >>> import hpfracc as hf
    >>> from hpfracc.pde import Diffusion
    >>> x = np.linspace(0.0, np.pi, 33)
    >>> result = hf.solve_fpde(
    ...     None, (0.0, 1.0), np.sin(x), x=x, space=Diffusion(1.0), boundary="dirichlet", alpha=0.5
    ... )
    >>> float(result.u[-1, 16])  # E_0.5(-1)
    0.427583576155807
    >>> result.decision.method
    'exact_modes'
    """
    try:
        question = read_question(**locals())
    except KeyboardInterrupt:  # in a function that is tried
        raise_interrupted("Interrupted before the first step.", None)
    started = time.perf_counter()
    problem = question.problem
    shown = question.options.progress, problem.t0, problem.t1, f"solve_fpde ({question.method.name})"
    with problem.xp.scope(), progress_report(*shown) as report:
        runs, interrupted = StepProgress(report), False
        try:
            result = _result(*_solve(question, runs), u0)
        except KeyboardInterrupt:
            run, interrupted = runs.run or Run(question, 0), True
            run.fail(interrupted_at(run.reached()))
            result = _result(run.question, run, math.nan, math.nan, u0)
    result.stats |= {"interrupted": interrupted, "seconds": time.perf_counter() - started}
    if interrupted:
        raise_interrupted(result.message, result)
    return cast(FPDEResult[ArrayOut], result)


def read_question(*, method: Any, args: Any, backend: Any, compile: Any, save: Any, **others: Any) -> Question:
    """Read all arguments of :func:`solve_fpde`, before any step is made."""
    name = getattr(backend, "value", backend)
    where = "auto" if name is None else str(name).casefold()
    if where not in _BACKENDS:
        raise InvalidInputError(f"backend={backend!r}: use {', '.join(map(repr, _BACKENDS))}")
    equation = {name: others.pop(name) for name in EQUATION}
    if compile is True and library_of(equation["u0"]) == "torch" and callable(equation["reaction"]):
        # JAX compiles the reaction together with the step.
        equation["reaction"] = sys.modules["torch"].compile(equation["reaction"], dynamic=False)
    problem = read_evolution(**equation, args=args, backend=where)
    library = problem.xp.library
    if np.ndim(others["atol"]):
        raise InvalidInputError(f"atol has shape {np.shape(others['atol'])}; give one number")
    options = read_options(problem.t0, problem.t1, problem.state_shape, backend=where, compile=compile, **others)
    kept = read_save(save, options)
    if library != "numpy" and where != "auto":
        raise InvalidInputError(
            f"backend={backend!r}: u0 is of {library}, which stays in its own library; leave backend out"
        )
    problem.rtol, problem.atol = options.rtol, float(options.atol)
    problem.backend, problem.compile = where, compile
    extra = tuple(args) if isinstance(args, tuple | list) else (args,)
    with problem.xp.scope():
        chosen, reason = _choose_method(method, problem, options)
    if library != "numpy" and compile is True:
        if not chosen.compiles_tensors:
            raise InvalidInputError(
                f"compile=True: u0 is of {library}, and method {chosen.name!r} has no steps that it compiles; leave "
                "compile out, or use method='etdrk4' at alpha = 1"
            )
        problem.stats["compiled"] = library == "torch" and problem.reaction is not None
    return Question(problem, chosen, options, kept, extra, reason)


def _choose_method(
    method: str | EvolutionMethod, problem: EvolutionProblem, options: Options
) -> tuple[EvolutionMethod, str]:
    """The method that was asked for, or that ``"auto"`` chooses by the problem, and why."""
    if not (isinstance(method, str) and method.casefold() == "auto"):
        found = find_evolution_method(method)
        reason = refusal_of(found, problem, options)
        if reason is not None:
            raise InvalidInputError(reason)
        return found, _ASKED
    candidates: list[EvolutionMethod] = [ExactModes(), ExactContour()]
    several = len(problem.orders) > 1
    alpha = problem.alpha_value
    if alpha == 1.0 and not several:
        if conserves_norm(problem):
            candidates.append(Yoshida4())
        candidates += map(find_evolution_method, _FIRST_ORDER)
    if several and problem.linear and alpha <= 1.0:
        candidates.append(CorrectedQuadrature(4))
    if problem.frozen is not None and not several:
        candidates.append(AdaptiveSteps())
    if several or alpha >= 1.0:
        candidates.append(CorrectedQuadrature(2))
    candidates.append(AdaptiveSteps())
    if not problem.compatible:
        if problem.linear and alpha > _QUADRATURE_FROM:
            candidates.append(CorrectedQuadrature(3))
        candidates.append(DiffusionL1())
    candidates += [DiffusionL2Sigma(), DiffusionL1()]
    refusals = []
    for one in candidates:
        reason = refusal_of(one, problem, options)
        if reason is None:
            words = one.reason(problem)
            if isinstance(one, CorrectedQuadrature) and not several and alpha < 1.0:
                words = "u0 does not have the boundary values, and corrected BDF3 has order 3 for t > t0 all the same"
            if isinstance(one, DiffusionL1) and not several and not problem.compatible:
                words = "u0 does not have the boundary values, and L1 damps the layer that comes of it"
            return one, words
        refusals.append(reason)
    raise InvalidInputError(f"no method takes this equation: {'; '.join(dict.fromkeys(refusals))}")


def refusal_of(method: EvolutionMethod, problem: EvolutionProblem, options: Options) -> str | None:
    """Why a method cannot solve a problem; None if it can."""
    library = problem.xp.library
    if method.chooses_steps and options.step is not None:
        return f"method={method.name!r} chooses its steps, and step={options.step:g} was given; leave one of them out"
    if options.first_step is not None and not (method.chooses_steps or method.exact):
        return f"method={method.name!r} does not start with first_step={options.first_step:g}; use method='adaptive'"
    if options.breakpoints and not (method.meets_breaks or method.exact):
        return f"steps of method={method.name!r} do not end at breakpoints; use 'adaptive', 'l1' or 'l2_1sigma'"
    if problem.frozen is not None and getattr(method, "reaction", "newton") != "newton":
        return f"method={method.name!r} is explicit in the reaction, and Diffusion depends on t or u; use 'newton'"
    if library not in method.libraries:
        takes = " and ".join(sorted(method.libraries))
        return (
            f"method={method.name!r} takes arrays of {takes}, and not of {library}: give u0 as such an array, or take "
            "'l1', 'l2_1sigma' or 'convolution_quadrature', whose steps serve tensors"
        )
    return method.lacks(problem) or method.refuses(problem)


def _solve(question: Question, progress: StepProgress) -> tuple[Question, Run, float, float]:
    problem, method, options, *_ = question
    if method.exact:
        outputs = mesh = exact_mesh(problem, options)
        if options.events:
            mesh = np.union1d(mesh, method.event_times(problem, options.rtol))
        problem.stats["forecast_bytes"] = check_memory(question, len(outputs) - 1)
        return question, run_mesh(question, mesh, outputs=outputs, progress=progress), 0.0, 0.0
    refuse_growth(problem)
    if options.step is None:
        if is_tracer(problem.u0) or math.isnan(problem.alpha_value):
            raise InvalidInputError(
                "a traced solve (jax.jit, vmap) cannot refine its steps until two solutions agree; give step="
            )
        stats = dict(problem.stats)
        data = scan_data(problem, options.max_step)
        needs_start = method.chooses_steps or (question.reason != _ASKED and not method.meets_breaks)
        if needs_start and not can_step(problem, data):
            method = DiffusionL1() if problem.alpha_value == 1.0 else method.stand_in(problem)
            question = question._replace(
                method=method, reason="the data are not finite at t0, towards which its mesh is graded"
            )
        elif data.jumps and not method.meets_breaks and question.reason != _ASKED:
            other = AdaptiveSteps()
            if refusal_of(other, problem, options) is None:
                method, question = other, question._replace(method=other, reason=other.reason(problem))
        problem.stats.clear()
        problem.stats.update(stats)
        if method.chooses_steps:
            problem.stats["forecast_bytes"] = check_memory(question, MAX_FRAMES)
            run, error, ratio = run_steps(question, data, progress)
        else:
            run, error, ratio = run_refined(question, data, progress)
        refuse_gaps(run, data, problem)
        return question, run, error, ratio
    steps = given_steps(problem, options)
    if steps > options.max_steps:
        raise InvalidInputError(
            f"step={options.step:g} takes {steps:,} steps, more than max_steps={options.max_steps:,}; give a larger "
            "step, or more steps"
        )
    problem.stats["forecast_bytes"] = check_memory(question, steps)
    run, error = run_estimated(question, steps, progress)
    return question, run, error, math.nan


def _result(question: Question, run: Run, error: float, ratio: float, u0: Any) -> FPDEResult:
    problem, method, options, save, _, reason = question
    xp, space = problem.xp, problem.space
    times = np.array(run.times)
    frames = not callable(save)
    if not frames:
        kept = run.kept[: len(run.times)]  # an interrupt may occur between the two
        first = kept[0] if kept else None
        u = namespace_of(first).stack(kept) if library_of(first) in ("torch", "jax") else np.array(kept)
    else:
        u = run.frames() if run.times else xp.zeros((0, *problem.state_shape), "float64")
        if is_array(u0) and library_of(u0) == xp.library and dtype_name(u0) in ("float32", "complex64"):
            u = xp.astype(u, "complex64" if xp.is_complex(u) else dtype_name(u0))
    sol = None
    if options.dense_output:
        exact = method.solution(problem)
        frame = run.frame if exact is None else exact.frame
        reached = run.newest[0] if run.ended is None else run.ended
        if frame is None:
            known = min(len(run.step_times), len(run.step_frames))
            steps, stored = np.array(run.step_times[:known]), xp.stack(run.step_frames[:known])
            frame = FrameCubic(steps, stored, smooth_power(problem), problem.breaks)
        grid = () if space.name == "matrix" else space.grid
        sol = FrameSolution(frame, (problem.t0, reached), grid, problem.periodic, xp)
    whole = tuple(axis.size for axis in space.grid)
    shape = whole if problem.components is None else (problem.components, *whole)
    happened = run.events.collected(shape, complex if xp.is_complex(problem.u0) else float)
    errors, why = errors_of_run(question, run, error, u if frames else None)
    most = [float(np.max(one[~np.isnan(one)], initial=-1.0)) for one in errors]
    in_time, in_space = (math.nan if one < 0.0 else one for one in most)
    if math.isnan(in_space):
        problem.notes.append(f"no estimate of the error in space: {why}")
    elif why:
        problem.notes.append(
            f"the error in space is estimated from the highest modes of the solution, which do not see all of it: {why}"
        )
    stats = {
        "steps": run.steps,
        "frames": frames,
        "terminated": run.ended is not None,
        **problem.stats,
    }
    if not math.isnan(ratio):
        stats["error_over_tolerance"] = ratio
    if run.success and space.symbol is not None and frames and run.times and not is_tracer(run.newest[1]):
        newest = xp.stop_gradient(run.newest[1])
        largest, tail = float(xp.abs(newest).max()), space.space_error(newest)
        if tail > 0.05 * largest > 0.0:
            warn(
                f"the grid is too coarse: the highest third of the modes holds about {tail:.2g} of a solution of size "
                f"{largest:.2g}; take more points in x"
            )
    decision = EvolutionDecision(
        method.name,
        reason,
        space.name,
        space.accuracy,
        method.history(problem, max(1, run.steps)),
        tuple(problem.notes),
    )
    return FPDEResult(
        times,
        space.grid[0] if len(space.grid) == 1 else space.grid,
        u,
        run.success,
        run.message,
        sol,
        SpaceTimeError(float(np.fmax(error, in_time)) if options.dense_output else in_time, in_space),
        errors,
        decision,
        stats,
        *happened,
        components=problem.names,
        _tools=problem,
    )

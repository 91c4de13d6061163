"""One solve on tensors or JAX arrays, from the problem to the result."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from hpfracc._arrays import is_transformed, library_of, to_host
from hpfracc._config import get_settings
from hpfracc._torch_transforms import is_wrapped
from hpfracc._xp import array_namespace, convert_like, namespace_of
from hpfracc.engine.selection.request import never_reason
from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.solvers.ode.compilation import OPERATION, solve_preference
from hpfracc.solvers.ode.fixed.grid import UniformGrid, initial_polynomial, make_grid
from hpfracc.solvers.ode.problem import Problem
from hpfracc.solvers.ode.result import FODEResult, SolveDecision
from hpfracc.solvers.ode.tensors.blocks import StepGrid, System
from hpfracc.solvers.ode.tensors.sums import make_sums
from hpfracc.solvers.stepping.events import progress_report
from hpfracc.solvers.stepping.options import Options
from hpfracc.solvers.stepping.walk import REACHED, interrupted_at

Array = np.ndarray[Any, Any]

#: ``judge(states)`` returns the states, and a message if they are not stable.
Judge = Callable[[Any], tuple[Any, str | None]]
#: ``told(done, kept)`` after some steps, with what was kept of them: the states first.
Told = Callable[[int, Any], None]

#: Times closer to a step than this, in steps, count as that step.
_ON_STEP = 1e-6
#: For a given step: what an error estimate would need is not computed along with a gradient.
NO_ESTIMATE = " No error is estimated for tensors with a given step: compare with half the step, or leave step out."


def refuse_tensors(problem: Problem, options: Options, name: str) -> str | None:
    """Reason why a method does not support these arrays, as a sentence; None if it does."""
    arrays = f"arrays of {problem.library}"
    if problem.terms or problem.delays:
        return f"method={name!r} takes one derivative and no delays for {arrays}"
    if problem.orders.function is not None:
        return f"method={name!r} takes constant orders for {arrays}"
    if problem.derivative != "caputo":
        return f"method={name!r} takes Caputo's derivative for {arrays}, and not derivative={problem.derivative!r}"
    if options.events:
        return f"method={name!r} takes no events for {arrays}: search the solution, or convert y0 to NumPy"
    if options.dense_output:
        return f"method={name!r} has no dense_output for {arrays}: give t_eval"
    wish = solve_preference(options)
    if wish is not None and wish.backend != problem.library:
        return (
            f"backend {wish.backend!r} was requested by {wish.source}, and y0 is of {problem.library}: omit it, or "
            "convert y0"
        )
    never = never_reason(OPERATION, problem.library, get_settings())
    if never is not None:
        return f"y0 is of {problem.library}, and {never}: change the setting, or convert y0"
    if options.progress and problem.library == "jax":
        return f"progress is not reported for {arrays}, because the solve is one program; omit it"
    if options.compile is True:
        return f"compile=True is for NumPy problems, not for {arrays}; omit it"
    if str(problem.dtype).rpartition(".")[2] not in ("float32", "float64", "complex64", "complex128"):
        return f"y0 has dtype {problem.dtype}; give float32, float64 or their complex kinds"
    return None


def solve_tensor_mesh(
    problem: Problem,
    options: Options,
    decision: SolveDecision,
    grid: UniformGrid,
    run: Callable[[list[int], Told], Any],
    judge: Judge | None = None,
    rule: Any = None,
) -> FODEResult:
    """Run the steps on a mesh, and say what came of them.

    Parameters
    ----------
    run : callable
        ``run(calls, told)`` gives the states, shape (steps + 1, ...), or fewer after an interrupt. It counts the
        evaluations in ``calls`` if it can, and calls ``told(done, kept)``.
    judge : callable, optional
        Whether the states are stable.
    rule : StepMethod, optional
        The rule, if the steps are of one size.
    """
    started, steps = time.perf_counter(), grid.steps
    if steps > options.max_steps:
        message = f"{steps} steps exceed max_steps={options.max_steps}: raise it, or take a larger step."
        first = problem.y0[..., None]
        stats = {"steps": 0, "step": options.step, "interrupted": False}
        return FODEResult(np.array([problem.t0]), first, False, message, 0, stats=stats, decision=decision)
    mesh, calls = grid.times(), [0]
    with progress_report(options.progress, problem.t0, problem.t1, decision.method) as report:

        def told(done: int, kept: Any) -> None:
            newest = kept[0][-1].detach()
            report(float(mesh[done]), lambda: newest)

        states = run(calls, told)
    known = states.shape[0] - 1
    bad = first_bad(states)
    success, message = True, REACHED
    if judge is not None and states.shape[0] > 2 and 0 not in problem.shape:
        states, unstable = judge(states)
        success, message = unstable is None, unstable or message
    if success and options.estimate is not False:
        message += NO_ESTIMATE
    if known < steps:
        success = False
        message = interrupted_at(mesh[known])
    if bad is not None and success:
        success = False
        solved = ", or Newton's method did not converge there" if rule is None or rule.implicit else ""
        blind = rule is not None and rule.starts_blind
        message = (None if bad > 1 or blind else bad_start(problem)) or (
            f"The solution is not finite at t = {mesh[bad]:g}{solved}: take a smaller step, or check whether the "
            "solution ends there."
        )
    reached = mesh[: known + 1]
    if options.t_eval is not None:
        reached, states = states_at(problem, options, grid, states)
    evaluations = calls[0] or (None if rule is None or rule.implicit else 1 + (1 + rule.corrections) * known)
    seconds = time.perf_counter() - started
    stats = {"steps": known, "step": grid.longest, "seconds": seconds, "interrupted": known < steps}
    return FODEResult(reached, time_last(states), success, message, nfev=evaluations, stats=stats, decision=decision)


def solve_tensors(problem: Problem, options: Options, rule: Any, reason: str, judge: Any = None) -> FODEResult:
    """Solve with the step of ``options``; ``judge(grid, states)`` says whether the states are stable."""
    assert options.step is not None
    grid = make_grid(problem.t0, problem.t1, options.step)
    decision = SolveDecision(rule.name, reason, "blocks", problem.library == "jax")

    def run(calls: list[int], told: Told) -> Any:
        sums = make_sums(rule, order_of(problem), grid.steps, grid.step, problem.y0)
        steps = StepGrid(grid.t0, grid.step, grid.steps)
        system = System(array_namespace(problem.y0), rule, steps, (problem.y0, *problem.dy0), sums)
        return library_solves(problem).solve_fixed(problem, system, calls, told)

    judged = None if judge is None else partial(judge, grid)
    return solve_tensor_mesh(problem, options, decision, grid, run, judged, rule)


def states_at(problem: Problem, options: Options, grid: UniformGrid, states: Any) -> tuple[Array, Any]:
    r"""The output times that were reached, and the states there, shape (len(times), ..., d).

    A solution starts with powers of :math:`\tau^\alpha`, which a polynomial in :math:`\tau = t - t_0` interpolates
    badly in the first steps. Therefore, with equal steps, the polynomial of the further initial values is subtracted,
    and the rest is interpolated by the cubic in :math:`\tau^\alpha` through the four nearest steps. Far from the start
    this is as accurate as a cubic in :math:`\tau`. The order may be traced, because no list of powers is needed. On a
    graded mesh the cubic is in the index of the step. Where the times have a gradient, it is that of the interpolation.
    """
    assert options.t_eval is not None
    known, moving, equal = states.shape[0], options.moving, grid.grading == 1.0
    place: Any = grid.place(options.t_eval - grid.t0)
    times = options.t_eval[place <= known - 1 + _ON_STEP]
    place = place[: times.size]
    nearest = np.rint(place)
    if moving is None and np.all(np.abs(place - nearest) <= _ON_STEP):
        return times, states[nearest.astype(np.int64)]
    width = min(4, known)
    first = np.clip(np.floor(place).astype(np.int64) - 1, 0, known - width)
    if moving is not None:
        xp, part = array_namespace(moving), (moving[: times.size] - grid.t0) / (grid.t1 - grid.t0)
        safe = xp.where(part > 0.0, part, 1.0 + 0.0 * part)
        place = grid.steps * (part if equal else xp.where(part > 0.0, xp.exp(xp.log(safe) / grid.grading), 0.0 * part))
    step, alpha, further = (grid.step, order_of(problem), problem.dy0) if equal else (1.0, np.asarray(1.0), ())

    def given(place: Any) -> Any:
        """The polynomial of the further initial values."""
        tau = convert_like(place * step, states).reshape(-1, *(1,) * (states.ndim - 1))
        return initial_polynomial(tau, (0.0, *further))

    nodes = [first + float(j) for j in range(width)]
    total: Any = given(place)
    for j, factor in enumerate(_factors(place, nodes, alpha, states)):
        total = total + (states[first + j] - given(nodes[j])) * factor
    return times, total


def _factors(place: Any, nodes: list[Any], alpha: Any, like: Any) -> list[Any]:
    """Lagrange factors in powers of the order, each of shape (times, ...) that broadcasts to the states."""
    xp = namespace_of(alpha if library_of(place) == "numpy" else place)
    with xp.scope():
        order = xp.array(alpha)
        column = (slice(None), *(None,) * order.ndim)

        def raised(steps: Any) -> Any:
            """``steps^alpha``, 0 at 0."""
            values = xp.array(steps)
            after = values > 0.0
            safe = xp.where(after, values, 1.0 + 0.0 * values)
            return xp.exp(order * xp.log(safe)[column]) * xp.where(after, 1.0 + 0.0 * safe, 0.0 * safe)[column]

        here, powers = raised(place), [raised(node) for node in nodes]
        found = []
        for node in powers:
            factors = ((here - other) / (node - other) for other in powers if other is not node)
            found.append(convert_like(math.prod(factors, start=1.0 + 0.0 * here), like))
    missing = like.ndim - found[0].ndim
    return [each.reshape(each.shape[0], *(1,) * missing, *each.shape[1:]) for each in found]


def library_solves(problem: Problem) -> Any:
    """The solves of the library of ``problem``: ``solve_fixed``, ``solve_differences`` and ``adapt``."""
    if problem.library == "jax":
        for name, function in (("fun", problem.fun), ("jac", problem.jac)):
            if function is not None:
                given = (convert_like(problem.t0, problem.y0), problem.y0, *problem.args)
                _checked(sys.modules["jax"].eval_shape(function, *given), problem, name)
    return import_module(f"hpfracc.solvers.ode.tensors.on_{problem.library}.solves")


def order_of(problem: Problem) -> Any:
    """The order as given, a single known order as a number: then history sums are matrix products."""
    value = problem.orders.value
    if library_of(value) in ("torch", "jax"):
        return value.reshape(()) if value.ndim and int(np.prod(value.shape)) == 1 else value
    return np.asarray(problem.orders.known if problem.orders.single is None else problem.orders.single)


def torch_functions(
    problem: Problem, calls: list[int], args: tuple[Any, ...] | None = None
) -> tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any] | None]:
    """``fun(t, y)`` and ``jac(t, y)``, with what they return checked, and calls of the first counted."""
    own, shape, kind = problem.fun, tuple(problem.shape), type(problem.y0)
    args = problem.args if args is None else args
    torch = sys.modules["torch"]
    real, device = problem.y0.real.dtype, problem.y0.device
    newest: list[Any] = [math.nan, None]

    def as_tensor(t: Any) -> Any:
        # Evaluations at one time share it, unless one changes it; filled on the device, without a copy from the host.
        if isinstance(t, float) and (t != newest[0] or newest[1].is_inference() or _version(newest[1])):
            newest[:] = t, torch.full((), t, dtype=real, device=device)
        return newest[1] if isinstance(t, float) else t

    def fun(t: Any, y: Any) -> Any:
        calls[0] += 1
        before = _version(y)
        value = own(as_tensor(t), y, *args)
        if type(value) is not kind or value.shape != shape:
            value = _checked(value, problem)
        if _version(y) != before:
            raise InvalidInputError("fun(t, y) changes y in place, and y is part of the solution; work on y.clone()")
        return value

    def jacobian(t: Any, y: Any) -> Any:
        assert problem.jac is not None
        return _checked(problem.jac(as_tensor(t), y, *args), problem, "jac")

    return fun, None if problem.jac is None else jacobian


def _version(y: Any) -> int:
    """Number of in-place changes of a tensor; 0 in inference mode, where they are not counted."""
    return 0 if y.is_inference() else int(y._version)


def _checked(value: Any, problem: Problem, name: str = "fun") -> Any:
    """The result of ``fun`` or ``jac``; raises an error unless it is an array of the right shape."""
    wanted = problem.shape if name == "fun" else (*problem.shape, problem.shape[-1])
    shape = getattr(value, "shape", None)
    foreign = problem.library == "torch" and library_of(value) != "torch"
    if shape is None or foreign or tuple(shape) != wanted:
        found = f"no array of {problem.library}" if shape is None or foreign else f"shape {tuple(shape)}"
        asked = "an array of the shape of y" if name == "fun" else f"{wanted}, a row for each component of fun"
        raise ShapeError(f"{name}(t, y) returned {found}, and y has shape {problem.shape}: it has to return {asked}")
    return value


def bad_start(problem: Problem) -> str | None:
    """Why a solve cannot start: values that are not finite at t0; None if they are, or are not known."""
    value = problem.fun(convert_like(problem.t0, problem.y0), problem.y0, *problem.args)
    for name, each in (("y0", problem.y0), ("The right-hand side", value)):
        if first_bad(each[None]) is not None:
            return (
                f"{name} is not finite at the start, t = {problem.t0:g}: correct it there, or use "
                "method='implicit_rectangle', which does not need the right-hand side there."
            )
    return None


def first_bad(states: Any) -> int | None:
    """The first non-finite step; None if there is none, or if the values are traced."""
    if is_transformed(states) and (library_of(states) == "jax" or is_wrapped(states)):
        return None
    xp = array_namespace(states)
    if bool(xp.isfinite(states[-1]).all()):
        return None
    good = to_host(xp.isfinite(xp.stop_gradient(states))).reshape(states.shape[0], -1).all(1)
    return int(np.argmin(good))


def is_wide(like: Any) -> bool:
    """Whether an array has double precision."""
    return str(like.dtype).rpartition(".")[2] in ("float64", "complex128")


def time_last(states: Any) -> Any:
    """Time as the last axis."""
    return array_namespace(states).moveaxis(states, 0, -1)

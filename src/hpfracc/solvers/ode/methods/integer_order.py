"""Whole orders by SciPy's LSODA, with an estimate of the global error from passes with smaller tolerances."""

from __future__ import annotations

import dataclasses
import math
import time
import warnings
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
import scipy

from hpfracc.solvers.ode.compilation import refuse_compiled
from hpfracc.solvers.ode.fixed.grid import times_within
from hpfracc.solvers.ode.method import Method, find_method, register_method
from hpfracc.solvers.ode.multiterm import solve_reduced
from hpfracc.solvers.ode.problem import Problem, RightHandSide, jacobian_source
from hpfracc.solvers.ode.result import FODEResult, SolveDecision, finish
from hpfracc.solvers.stepping.events import Report, progress_report
from hpfracc.solvers.stepping.jacobian import is_sparse
from hpfracc.solvers.stepping.options import Options
from hpfracc.solvers.stepping.step import RESOLVED
from hpfracc.solvers.stepping.system import NotFiniteError
from hpfracc.solvers.stepping.walk import MAX_PASSES, TOLERATED, Walk, inaccurate

Array = np.ndarray[Any, Any]

#: The most unknowns whose Jacobian is a full matrix.
_FULL = 300
#: The tolerances of a pass relative to those of the one before, and by how much more than in proportion to them the
#: error may have fallen less.
_FINER, _MARGIN = 0.1, 2.0
#: The first SciPy whose LSODA serves solves in several threads, or within each other: before, they share its memory.
_SCIPY = (1, 17)
#: The smallest tolerance of LSODA, and the most steps at which two passes are compared.
_LEAST, _COMPARED = 3e-14, 2000


@register_method
@final
@dataclass(frozen=True, slots=True)
class IntegerOrder(Method):
    r"""SciPy's LSODA, where all orders are whole: higher orders as systems of order 1.

    Adams and BDF methods of variable order and step, which switch by stiffness. The local error is controlled; the
    global one is the difference of two passes, the second with a tenth of the tolerances, whose error is at most a
    fifth of it if the error falls half as much as the tolerances do. Passes are repeated until that is below ``rtol``
    and ``atol``. Where LSODA fails, as at a right-hand side that is not finite, ``adaptive`` takes over. Jacobians are
    banded where ``jac_sparsity`` or the members of a batch make them so.

    References
    ----------
    L. Petzold, SIAM J. Sci. Stat. Comput. 4 (1983) 136-148.
    """

    name: ClassVar[str] = "integer_order"
    aliases: ClassVar[tuple[str, ...]] = ("lsoda",)
    order: ClassVar[str] = "1 to 12, chosen from step to step; the error follows rtol and atol"
    fixed: ClassVar[bool] = False
    takes: ClassVar[frozenset[str]] = frozenset({"order 1", "orders above 1", "several orders"})

    def refuses(self, problem: Problem, options: Options) -> str | None:
        """Needs whole orders, real states, and a Jacobian that is small or banded."""
        known, name = problem.orders.known, self.name
        if tuple(int(part) for part in scipy.__version__.split(".")[:2]) < _SCIPY:
            return f"method={name!r} needs SciPy 1.17, and {scipy.__version__} is installed; use 'adaptive', or upgrade"
        if known is None or np.any(known != known.flat[0]) or float(known.flat[0]) % 1.0:
            return f"method={name!r} takes one whole order; use 'adaptive'"
        if options.step is not None:
            return f"method={name!r} chooses its steps, and step={options.step:g} was given; omit step"
        if np.any(np.asarray(options.atol) <= 0.0):
            return f"method={name!r} needs atol above 0: a solution that vanishes has no relative error"
        if problem.dtype.kind == "c":
            return f"method={name!r} takes real states; use 'adaptive'"
        if problem.y0.size > _FULL and problem.jac_sparsity is None and problem.shape[-1] > _FULL // 10:
            return (
                f"method={name!r} takes up to {_FULL} unknowns without jac_sparsity, and there are {problem.y0.size}; "
                "give that, or use 'adaptive'"
            )
        return Method.refuses(self, problem, options) or refuse_compiled(options, name)

    def solve(self, problem: Problem, options: Options) -> FODEResult:
        """Passes until the error is small; what fails otherwise is left to adaptive steps."""
        if problem.dy0:
            return solve_reduced(problem, options, self.solve)
        started, notes = time.perf_counter(), list[str]()
        fun = RightHandSide(problem)
        if (why := _first_value(problem, fun)) is not None:
            return _by_adaptive(problem, options, fun, why)
        share, number, error, ratio = 1.0, 0, np.inf, np.inf
        before: _Pass | None = None
        with progress_report(options.progress, problem.t0, problem.t1, self.name) as report:
            for number in range(1, MAX_PASSES + 2):
                current = _Pass(problem, options, share, fun, report)
                with warnings.catch_warnings():
                    warnings.filterwarnings("ignore", "lsoda", UserWarning)  # which it returns, too
                    current.follow(current.steps)
                if not current.success or current.interrupted:
                    break
                if before is not None:
                    error, ratio = current.distance(before)
                    fallen = min(1.0, _MARGIN * share / before.share)
                    error, ratio = fallen * error, fallen * ratio
                    if ratio <= 1.0 or current.least:
                        break
                    notes.append(f"pass {number}: the global error was {ratio:.2g} times the tolerance")
                before = current
                share *= _FINER if before is None or ratio == np.inf else max(min(_FINER, 0.5 / ratio), 1e-3)
        ends = current.interrupted or options.clock.late or current.steps_made >= options.max_steps
        if not (current.success or ends):
            return _by_adaptive(problem, options, fun, current.message)
        if current.success and not current.interrupted and not ratio <= TOLERATED:
            current.fail(inaccurate(ratio, options.rtol))
        stats = {
            "steps": current.steps_made, "passes": number, "error_over_tolerance": ratio,
            "seconds": time.perf_counter() - started,
        }  # fmt: skip
        chosen = SolveDecision(self.name, "it was asked for", "none", False, tuple(notes))
        y = np.array(current.kept).reshape(len(current.kept), -1).T.reshape(*problem.shape, -1)
        found = finish(current, problem, np.array(current.times), y, stats, chosen, current.solution())
        found.error_estimate, found.nfev, found.njev = float(error), fun.count, current.njev
        if not np.isfinite(error):
            found.error_estimate = np.nan
        return found


def _first_value(problem: Problem, fun: RightHandSide) -> str | None:
    """Why the right-hand side has no value at the start; None if it has."""
    try:
        good = np.isfinite(fun(problem.t0, problem.y0)).all()
    except ArithmeticError as error:
        return str(error)
    return None if good else f"fun(t, y) is not finite at t = {problem.t0:g}"


def _by_adaptive(problem: Problem, options: Options, fun: RightHandSide, why: str) -> FODEResult:
    found = find_method("adaptive").solve(problem, options)
    assert found.decision is not None and found.nfev is not None
    notes = *found.decision.notes, f"LSODA failed, and adaptive steps took over: {why}"
    found.decision, found.nfev = dataclasses.replace(found.decision, notes=notes), found.nfev + fun.count
    return found


class DenseSolution:
    """The solution at any time, of shape (..., d) + t.shape: the polynomials of the steps."""

    def __init__(self, shape: tuple[int, ...], times: list[float], pieces: list[Any], end: float) -> None:
        self.shape, self._times, self._pieces = shape, np.array(times), pieces
        self.t_min, self.t_max = times[0], end

    def flat(self, t: Array) -> Array:
        """Flat states, of shape (n, len(t))."""
        places = np.clip(np.searchsorted(self._times, t) - 1, 0, len(self._pieces) - 1)
        cuts = np.flatnonzero(np.diff(places)) + 1
        parts = zip(np.split(t, cuts), places[np.concatenate([[0], cuts])], strict=True)
        return np.concatenate([self._pieces[place](part) for part, place in parts], axis=1)

    def __call__(self, t: Any) -> Array:
        """The solution at ``t``."""
        times = times_within(t, self.t_min, self.t_max)
        flat, order = times.reshape(-1), np.argsort(times.reshape(-1), kind="stable")
        found = np.empty((int(np.prod(self.shape)), flat.size))
        if flat.size:
            found[:, order] = self.flat(np.clip(flat[order], self.t_min, self.t_max))
        return found.reshape(*self.shape, *times.shape)


class _Pass(Walk):
    """One pass with a share of the tolerances."""

    def __init__(self, problem: Problem, options: Options, share: float, fun: RightHandSide, report: Report) -> None:
        super().__init__(options, problem.t1, problem.args, options.t_eval)
        self.problem, self.share, self.fun, self._report = problem, share, fun, report
        self.walked, self.pieces, self.states = [problem.t0], list[Any](), [problem.y0.reshape(-1)]
        self.steps_made = self.njev = 0
        #: Whether the tolerances cannot be smaller.
        self.least = options.rtol * share <= _LEAST

    def reached(self) -> float:
        """The time of the newest step."""
        return self.walked[-1]

    def shown(self, state: Array) -> Array:
        """In the shape of the state."""
        return state.reshape(self.problem.shape)

    def between(self, times: Array) -> Any:
        """The flat states within the newest step."""
        if not self.pieces:
            return [self.states[0]] * len(times)
        return self.pieces[-1](np.minimum(times, self.walked[-1])).T

    def solution(self) -> DenseSolution | None:
        """The solution at any time, if there is one."""
        end = self.walked[-1] if self.ended is None else self.ended
        return DenseSolution(self.problem.shape, self.walked, self.pieces, end) if self.pieces else None

    def steps(self) -> str | None:
        """Step from one breakpoint to the next."""
        problem, options = self.problem, self.options
        if not self.record(problem.t0, self.states[0], last=False):
            return None
        # Without events, only steps behind the next requested time are looked at.
        wanted = None if options.events or self.wanted is None or not self.wanted.size else self.wanted
        for end in (*options.breakpoints, problem.t1):
            solver = self._solver(end)
            while solver.status == "running":
                if self.steps_made >= options.max_steps:
                    return self.too_many(f"loosen rtol={options.rtol:g}")
                message, t = solver.step(), float(solver.t)
                if solver.status == "failed" or t <= self.walked[-1]:
                    return f"No step from t = {self.reached():g} was possible ({message})"
                self.steps_made += 1
                self.pieces.append(solver.dense_output())
                self.walked.append(t)
                self.states.append(solver.y)
                due = t >= problem.t1 or wanted is None or t >= float(wanted[min(self.next, len(wanted) - 1)])
                if (due and not self.record(t, solver.y, last=t >= problem.t1)) or not (
                    t >= problem.t1 or self.in_time()
                ):
                    return None
                if options.progress:
                    self._report(t, lambda: self.shown(self.states[-1]))
            self.njev += solver.njev
        return None

    def _solver(self, end: float) -> Any:
        from scipy.integrate import LSODA

        problem, options, given = self.problem, self.options, dict[str, Any]()
        pattern, (members, d) = problem.jac_sparsity, (problem.y0.size // problem.shape[-1], problem.shape[-1])
        if problem.jac is not None and members == 1:
            source = jacobian_source(problem, self.fun)

            def jac(t: float, y: Array) -> Array:
                found = source(t, y, y)
                return np.asarray(found.toarray() if is_sparse(found) else found[0])

            given["jac"] = jac
        elif pattern is not None or members > 1:
            rows, columns = (np.array([0, d - 1]),) * 2 if pattern is None else pattern.tocoo().coords
            if pattern is None:
                columns = columns[::-1]
            given["lband"] = int(max((rows - columns).max(initial=0), 0))
            given["uband"] = int(max((columns - rows).max(initial=0), 0))
        atol = np.broadcast_to(options.atol, problem.shape).reshape(-1)
        rtol = max(self.share * options.rtol, _LEAST)
        last = np.nextafter(end, -np.inf) if end < problem.t1 else end
        if options.first_step is not None and self.steps_made == 0:
            given["first_step"] = options.first_step

        def slope(t: float, y: Array) -> Array:
            value = self.fun.flat(min(t, last), y)
            if not math.isfinite(value.dot(value)) and not np.isfinite(value).all():  # LSODA would go on
                raise NotFiniteError(f"fun(t, y) is not finite at t = {t:.6g}")
            return value

        return LSODA(
            slope, self.walked[-1], self.states[-1], end, rtol=rtol,
            atol=self.share * atol, max_step=options.max_step, **given,
        )  # fmt: skip

    def distance(self, other: _Pass) -> tuple[float, float]:
        """The largest distance of two passes, and in units of the tolerance."""
        mine, theirs = self.solution(), other.solution()
        if mine is None or theirs is None:
            return 0.0, 0.0
        end = min(mine.t_max, theirs.t_max)
        times = np.array(other.walked[1:])[:: max(1, len(other.walked) // _COMPARED)]
        times = np.union1d(times[times <= end], [end])
        if self.options.t_eval is not None:
            times = np.union1d(times, self.options.t_eval[self.options.t_eval <= end])
        one, two = mine.flat(times), theirs.flat(times)
        gone = np.maximum(times - self.problem.t0, 1e-300)
        largest = np.maximum.accumulate(np.abs(one) * gone, axis=1) / gone
        largest = np.maximum(largest, np.abs(self.states[0])[:, None] * (gone <= 1e-300))
        options = self.options
        tolerance = np.broadcast_to(options.atol, self.problem.shape).reshape(-1, 1) + options.rtol * largest
        apart = np.maximum(np.abs(one - two), RESOLVED * 1e-3 * tolerance)
        return float(apart.max()), float((apart / tolerance).max())

r"""Equations that are solved as other ones; multi-term equations as systems.

For :math:`D^\alpha y + \sum_i c_i D^{\alpha_i} y = f(t, y)`, with all orders and the integers between them
sorted, :math:`0 = b_0 < b_1 < \dots < b_L = \alpha`, the states
:math:`u_l = D^{b_l} y` satisfy :math:`D^{b_{l+1}-b_l} u_l = u_{l+1}` and, for the last, the equation itself. For
the Caputo derivative this is equivalent (K. Diethelm, The Analysis of Fractional Differential Equations (2010), theorem
8.1). Initial values of integer order are given; the others are 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from hpfracc._reading import broadcasts, check_value
from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.solvers.ode.fixed.grid import times_within
from hpfracc.solvers.ode.problem import Orders, Problem, Term
from hpfracc.solvers.ode.result import FODEResult, later_times
from hpfracc.solvers.stepping.jacobian import check_jacobian, is_sparse
from hpfracc.solvers.stepping.options import Options

Array = np.ndarray[Any, Any]


class Substitution:
    """The equation that is solved instead, with time x and state z. This one changes neither."""

    #: The kind of equation, in the plural, for errors; and what a failure adds to its message.
    what: ClassVar[str] = "such equations"
    remark: str = ""
    problem: Problem

    def __getstate__(self) -> dict[str, Any]:
        """Without the other equation, which a solution does not need."""
        return {name: value for name, value in self.__dict__.items() if name != "problem"}

    def inside(self, t: Array) -> Array:
        """The times x at the user's times t."""
        return t

    def outside(self, x: Array) -> Array:
        """The user's times t at the times x."""
        return x

    def states(self, x: Array, z: Array) -> Array:
        """The solution (..., d, N) from the states z, which may have more components, at the times x, shape (N,)."""
        return z

    def options(self, options: Options) -> Options:
        """The options of the other solve; times and functions are changed already."""
        return options

    def estimate(self, result: FODEResult, y: Array, options: Options) -> None:
        """Change the error estimate of the other solve to one of the solution ``y`` at its times."""

    def at(self, x: float, z: Array) -> tuple[float, Array]:
        """Time and solution at one time x."""
        place = np.array([x])
        return float(self.outside(place)[0]), self.states(place, z[..., None])[..., 0]

    def watched(self, event: Callable[..., Any]) -> Callable[..., Any]:
        """An event of the other equation."""

        def value(x: float, z: Array, *args: Any) -> Any:
            return event(*self.at(x, z), *args)

        for name in ("terminal", "direction"):
            setattr(value, name, getattr(event, name, 0))
        return value


@dataclass(frozen=True, slots=True)
class _Solution:
    """``sol(t)`` from that of the other equation."""

    whole: Any
    change: Substitution | None

    t_min = property(lambda self: float(self.change.outside(np.array([self.whole.t_min]))[0]))
    t_max = property(lambda self: float(self.change.outside(np.array([self.whole.t_max]))[0]))

    def __call__(self, t: Any) -> Array:
        if self.change is None:
            raise InvalidInputError("this solution was pickled, which drops the functions that it needs; solve again")
        times = times_within(t, self.t_min, self.t_max)
        x = np.clip(self.change.inside(times.reshape(-1)), self.whole.t_min, self.whole.t_max)
        y = self.change.states(x, self.whole(x))
        return y.reshape(*y.shape[:-1], *times.shape)


def solve_substituted(
    change: Substitution, options: Options, solve: Callable[[Problem, Options], FODEResult]
) -> FODEResult:
    """Solve the other equation with ``solve``; returns the result in the user's times and states."""
    if options.compile is True:
        raise InvalidInputError(f"compile=True: {change.what} are not compiled; omit compile")
    times, tell = options.t_eval, options.progress
    inner = replace(
        options,
        t_eval=None if times is None else change.inside(times),
        breakpoints=tuple(change.inside(np.array(options.breakpoints)).tolist()),
        events=tuple(change.watched(event) for event in options.events),
        progress=(lambda x, z: tell(*change.at(x, z))) if callable(tell) else tell,
    )
    result = solve(change.problem, change.options(inner))
    x, z = result.t, result.y
    if times is None:
        result.t = change.outside(x)
        kept = later_times(result.t)
        result.t, x, z = result.t[kept], x[kept], z[..., kept]
    else:
        result.t = times[: x.size]
    result.y = change.states(x, z)
    if result.y_events is not None and result.t_events is not None:
        moved = [np.moveaxis(each, 0, -1) for each in result.y_events]
        pairs = zip(result.t_events, moved, strict=True)
        result.y_events = [np.moveaxis(change.states(*pair), -1, 0) for pair in pairs]
        result.t_events = [change.outside(each) for each in result.t_events]
    change.estimate(result, result.y, options)
    if result.sol is not None:
        result.sol = _Solution(result.sol, change)
    if change.remark and (not result.success or result.stats.get("terminated")):
        result.message += f" ({change.remark})"
    return result


def _read_orders(problem: Problem) -> Array:
    """The orders of the states and the leading order, ascending, of shape (states + 1, ..., 1): one for each member."""
    known = problem.orders.known
    if known is None or np.any(known != (known[..., :1] if known.ndim else known)):
        raise InvalidInputError("terms are for one leading order of all components; give a number as alpha")
    if problem.derivative != "caputo" or problem.library != "numpy":
        given = f"derivative={problem.derivative!r} and y0 of {problem.library}"
        raise InvalidInputError(f"multi-term equations take Caputo's derivative and NumPy arrays, not {given}")
    leading = known[..., :1] if known.ndim else known.reshape(1)
    for term in problem.terms:
        if np.any(term.order >= leading):
            order, alpha = (float(np.max(each)) for each in (term.order, leading))
            raise InvalidInputError(f"a term has order {order:g}, and alpha={alpha:g}; give the highest order as alpha")
    integers = range(math.ceil(float(leading.max())))
    every = np.broadcast_arrays(leading, *(term.order for term in problem.terms), *integers)
    rows = np.unique([each.reshape(-1) for each in every], axis=0)  # in ascending order of the first member
    if np.any(np.diff(rows, axis=0) <= 0.0):
        raise InvalidInputError("the orders of terms have another sequence in some members; solve these apart")
    return np.asarray(rows.reshape(-1, *every[0].shape))


def _coefficient(term: Term, t: float, shape: tuple[int, ...]) -> Array:
    """The coefficient at a time; raises an error if it would change the shape of the state."""
    value = np.asarray(term.coefficient(t) if callable(term.coefficient) else term.coefficient)
    if value.ndim and not broadcasts(value.shape, shape):
        remedy = f"give numbers that broadcast to {shape}; a matrix belongs in fun, in a system of lower derivatives"
        raise ShapeError(f"terms holds a coefficient of shape {value.shape}; {remedy}")
    return value


def _companion(states: int, blocks: list[tuple[int, Any]]) -> Any:
    """The sparse matrix of the system: each state's derivative is the next, and the last row has these blocks."""
    from scipy.sparse import coo_array, csc_array, eye_array

    d = blocks[0][1].shape[0]
    size = d * states
    total = eye_array(size, k=d)
    for place, block in blocks:
        entries = coo_array(block)
        where = entries.row + (size - d), entries.col + place * d
        total = total + coo_array((entries.data, where), shape=(size, size))
    return csc_array(total)


def reduce_terms(problem: Problem) -> Problem:
    """The equivalent system, whose first d components are the solution."""
    orders = _read_orders(problem)
    places = orders[:-1]
    shape, d = problem.shape, int(problem.shape[-1])
    size = d * len(places)
    read = [next(k for k, b in enumerate(places) if np.all(b == term.order)) for term in problem.terms]

    def terms(t: float) -> list[tuple[int, Array]]:
        """The state that each further term reads, and its coefficient."""
        return [(k, _coefficient(term, t, shape)) for k, term in zip(read, problem.terms, strict=True)]

    def call(function: Any, t: float, y: Array, more: tuple[Any, ...]) -> Any:
        """A function of the equation, with its own components of the state and of delayed states."""
        if problem.delays:
            more = (tuple(state[..., :d] for state in more[0]), *more[1:])
        return function(t, y[..., :d].copy(), *more)

    def fun(t: float, y: Array, *more: Any) -> Array:
        last = check_value(call(problem.fun, t, y, more), shape, y.dtype, "fun")
        for place, coefficient in terms(t):
            last = last - coefficient * y[..., place * d : (place + 1) * d]
        return np.concatenate([y[..., d:], last], axis=-1)

    def jac(t: float, y: Array, *more: Any) -> Any:
        given = check_jacobian(call(problem.jac, t, y, more), shape, y.dtype)
        if is_sparse(given):
            from scipy.sparse import diags_array

            blocks = [(place, -diags_array(np.broadcast_to(factor, (d,)))) for place, factor in terms(t)]
            return _companion(len(places), [(0, given), *blocks])
        matrix = np.zeros((*y.shape, size), dtype=y.dtype)
        matrix[..., : size - d, d:] = np.eye(size - d)
        matrix[..., size - d :, :d] += given
        for place, coefficient in terms(t):
            factor = np.broadcast_to(coefficient, shape)[..., np.newaxis]
            matrix[..., size - d :, place * d : (place + 1) * d] -= factor * np.eye(d)
        return matrix

    def history(t: float) -> Array:
        """The given history of y. Its derivatives do not occur with delays."""
        assert problem.history is not None
        value = np.broadcast_to(np.asarray(problem.history(t)), shape)
        return np.concatenate([value, *[np.zeros_like(value)] * (len(places) - 1)], axis=-1)

    terms(problem.t0)  # which checks the coefficients
    initial = [problem.y0, *problem.dy0]
    nothing = np.zeros_like(problem.y0)
    states = [initial[int(b.flat[0])] if np.all(b == b.flat[0] // 1.0) else nothing for b in places]
    gaps = np.concatenate([np.repeat(gap, d, axis=-1) for gap in np.diff(orders, axis=0)], axis=-1)
    sparsity = problem.jac_sparsity
    if sparsity is not None:
        from scipy.sparse import eye_array

        sparsity = _companion(len(places), [(0, sparsity), *((k, eye_array(d)) for k in read)]).astype(bool)
    return replace(
        problem,
        fun=fun,
        jac=None if problem.jac is None else jac,
        y0=np.concatenate(states, axis=-1),
        dy0=(),
        orders=Orders(gaps, gaps, None, 1),
        terms=(),
        jac_sparsity=sparsity,
        history=None if problem.history is None else history,
    )


def solve_reduced(problem: Problem, options: Options, solve: Callable[[Problem, Options], FODEResult]) -> FODEResult:
    """Solve the system with ``solve``, and return the components of y."""
    return solve_substituted(_FirstComponents(problem.shape, reduce_terms(problem)), options, solve)


class _FirstComponents(Substitution):
    """The solution of the equation as the first components of the system."""

    what = "multi-term equations"

    def __init__(self, shape: tuple[int, ...], problem: Problem) -> None:
        self.shape, self.problem = shape, problem

    def states(self, x: Array, z: Array) -> Array:
        return z[..., : self.shape[-1], :]

    def options(self, options: Options) -> Options:
        if not np.ndim(options.atol):
            return options
        one, copies = np.broadcast_to(options.atol, self.shape), self.problem.shape[-1] // self.shape[-1]
        return replace(options, atol=np.concatenate([one] * copies, axis=-1))

    def estimate(self, result: FODEResult, y: Array, options: Options) -> None:
        if "component_errors" in result.stats:  # of y only, without its derivatives
            errors = result.stats["component_errors"] = result.stats["component_errors"][..., : self.shape[-1]]
            result.error_estimate = float(errors.max())

"""Initial-value problems of fractional order, as plain data, read and checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np

from hpfracc._arrays import library_of, refuse_masked
from hpfracc._choices import DerivativeName
from hpfracc._reading import choice, listed
from hpfracc.errors import HpfraccError, InvalidInputError, ShapeError, UnsupportedDtypeError
from hpfracc.solvers.ode.jacobian import DENSE_BELOW, is_sparse, read_sparsity
from hpfracc.solvers.ode.orders import Orders, check_values, read_orders

__all__ = [
    "DERIVATIVES",
    "Jacobian",
    "NotFiniteError",
    "Problem",
    "RightHandSide",
    "Term",
    "read_problem",
    "starts_infinite",
]

Array = np.ndarray[Any, Any]

#: Supported definitions of the derivative.
DERIVATIVES: tuple[str, ...] = get_args(DerivativeName)

#: The longest interval for which powers and quotients of times stay within float64.
LONGEST = 1e100


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """One further term ``coefficient * D^order y`` on the left-hand side of a multi-term equation."""

    coefficient: Any
    order: float


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    r"""``D^alpha y = f(t, y)`` for t in (t0, t1], with initial data at t0.

    Attributes
    ----------
    fun : callable
        ``fun(t, y, *args)``, with y of shape (..., d), returns an array of that shape. With ``delays`` it is called as
        ``fun(t, y, (y(t - delay_1), ...), *args)``.
    t0, t1 : float
        Ends of the interval, ``t0 < t1``.
    y0 : array, shape (..., d)
        For the Caputo derivative the value at t0. For Riemann-Liouville that of the fractional integral,
        :math:`I^{n-\alpha} y(t_0^+)` with n the order rounded up; the solution is then infinite at t0 unless this is
        zero or the order is an integer.
    dy0 : tuple of arrays, each of the shape of ``y0``
        The further initial values that the highest order needs. Caputo: the derivatives y', y'', ... at t0.
        Riemann-Liouville: :math:`D^{\alpha-n+k} y(t_0^+)` for k = 1 .. n-1.
    orders : Orders
        The order or orders.
    derivative : str
        ``"caputo"`` or ``"riemann_liouville"``.
    args : tuple
        Further arguments of ``fun`` and ``jac``.
    jac : callable or None
        ``jac(t, y, *args)`` of shape (..., d, d), or sparse.
    terms : tuple of Term
        Further terms on the left-hand side; ``orders`` belongs to the leading one.
    delays : tuple of float
        Constant delays, each above zero.
    history : callable or None
        ``history(t)`` of the shape of ``y0``, for t before t0. A constant is converted to a function.
    library : str
        Library of ``y0`` and of the values of ``fun``: ``"numpy"``, ``"torch"`` or ``"jax"``.
    jac_sparsity : sparse array or None
        Where the Jacobian may be nonzero, for differences.
    """

    fun: Callable[..., Any]
    t0: float
    t1: float
    y0: Any
    dy0: tuple[Any, ...]
    orders: Orders
    derivative: str
    args: tuple[Any, ...]
    jac: Callable[..., Any] | None
    terms: tuple[Term, ...]
    delays: tuple[float, ...]
    history: Callable[[float], Any] | None
    library: str
    jac_sparsity: Any = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the state, (..., d)."""
        return tuple(self.y0.shape)

    @property
    def dtype(self) -> Any:
        """float64 or complex128 for NumPy; the tensor's or array's own otherwise."""
        return self.y0.dtype

    def without_functions(self) -> Problem:
        """The data without the functions, which can always be pickled."""
        terms = tuple(Term(0.0 if callable(term.coefficient) else term.coefficient, term.order) for term in self.terms)
        orders = replace(self.orders, value=None, function=None)
        return replace(self, fun=_no_function, orders=orders, args=(), jac=None, terms=terms, history=None)

    def evaluate(self, t: float, y: Any) -> Any:
        """``fun(t, y, *args)`` of a NumPy problem, with shape and dtype checked."""
        return check_value(self.fun(t, y, *self.args), self.shape, self.dtype, "fun")


def _no_function(*_: Any) -> Any:
    raise InvalidInputError("only the data of this problem were stored, not its right-hand side; solve it again")


def check_value(value: Any, shape: tuple[int, ...], dtype: Any, name: str) -> Array:
    """The result of the user's function as an array; raises an error if its shape or dtype is wrong."""
    try:
        array = np.asarray(value)
    except ValueError:
        raise ShapeError(f"{name}(t, y) returned a ragged sequence; return an array of shape {shape}") from None
    if array.dtype.kind not in "fciub":
        raise UnsupportedDtypeError(f"{name}(t, y) returned values of dtype {array.dtype}; return numbers")
    if array.shape == () and shape == (1,):  # one equation: fun may return the number itself
        array = array.reshape(shape)
    if array.shape != shape:
        raise ShapeError(
            f"{name}(t, y) returned shape {array.shape}, and y has shape {shape}: it has to return an array of "
            "the shape of y"
        )
    if array.dtype.kind == "c" and np.dtype(dtype).kind != "c":
        raise UnsupportedDtypeError(f"{name}(t, y) returned complex values for a real y; give y0 as complex numbers")
    return array.astype(dtype, copy=False)


def check_jacobian(value: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """The result of ``jac`` for a state of ``shape``: an array of shape (..., d, d), or sparse if d is large."""
    d = shape[-1]
    wanted = (*shape, d)
    if is_sparse(value):
        if len(shape) > 1:
            raise ShapeError(
                f"jac(t, y) returned a sparse matrix, and y has shape {shape}: a sparse Jacobian is for one state of "
                f"shape ({d},); return a dense array of shape {wanted} for a batch"
            )
        if d <= DENSE_BELOW or value.shape != wanted:
            return check_jacobian(value.toarray(), shape, dtype)
        kind = check_value(value.data, value.data.shape, dtype, "jac").dtype
        from scipy.sparse import csc_array

        return csc_array(value, dtype=kind)
    if np.shape(value) != wanted:
        raise ShapeError(
            f"jac(t, y) returned shape {np.shape(value)}, and y has shape {shape}: it has to return {wanted}, a row "
            "for each component of fun"
        )
    return check_value(value, wanted, dtype, "jac")


def read_problem(
    fun: Callable[..., Any],
    t_span: Sequence[float],
    y0: Any,
    alpha: Any,
    *,
    dy0: Any = None,
    derivative: str = "caputo",
    args: Any = (),
    jac: Callable[..., Any] | None = None,
    jac_sparsity: Any = None,
    terms: Sequence[tuple[Any, float]] = (),
    delays: Sequence[float] = (),
    history: Any = None,
) -> Problem:
    """Read and check the arguments; raises a typed error with a remedy if one is invalid."""
    if not callable(fun):
        raise InvalidInputError(
            f"fun={fun!r} cannot be called; give the right-hand side as a function fun(t, y). The order of the "
            "arguments is solve_fode(fun, t_span, y0, alpha)"
        )
    if jac is not None and not callable(jac):
        raise InvalidInputError(f"jac={jac!r} cannot be called; give a function jac(t, y), or omit it")
    derivative = choice("derivative", derivative, DERIVATIVES)
    t0, t1 = _read_span(t_span)
    state = _read_state(y0, "y0")
    given = _read_derivatives(dy0, state)
    orders = read_orders(alpha, tuple(state.shape), t0, t1, len(given))
    _check_count(orders, given, derivative)
    known_terms = tuple(_read_term(term) for term in listed("terms", terms, "pairs (coefficient, order)"))
    try:
        lags = tuple(float(delay) for delay in delays)
    except (TypeError, ValueError):
        raise InvalidInputError(f"delays={delays!r} has to be a list of numbers above 0") from None
    if any(not (math.isfinite(lag) and lag > 0.0) for lag in lags):
        raise InvalidInputError(f"delays={lags} have to be finite and above 0")
    if lags and history is None:
        raise InvalidInputError(
            "an equation with delays needs a history: give history=, a function of t before t0 or a constant"
        )
    past = _read_history(history, state)
    library = library_of(state)
    if library == "numpy" and given:
        kind = np.result_type(state, *given)
        state, given = state.astype(kind, copy=False), tuple(each.astype(kind, copy=False) for each in given)
    arguments = args if isinstance(args, tuple) else (args,)
    sparsity = _read_sparsity(jac_sparsity, jac, library, state.shape[-1])
    return Problem(
        fun, t0, t1, state, given, orders, derivative, arguments, jac, known_terms, lags, past, library, sparsity
    )


def _read_sparsity(given: Any, jac: Callable[..., Any] | None, library: str, d: int) -> Any:
    if given is None:
        return None
    if library != "numpy":
        raise InvalidInputError(f"jac_sparsity is for NumPy arrays, and y0 is of {library}; leave it out")
    if jac is not None:
        raise InvalidInputError("jac_sparsity is for Jacobians by differences, and jac is given; give one of them")
    return read_sparsity(given, d)


def _read_history(history: Any, state: Any) -> Callable[[float], Any] | None:
    """The history as a function of t; a number or an array that broadcasts to the state is constant."""
    if history is None:
        return None
    if callable(history) and library_of(history) == "python":
        given: Callable[[float], Any] = history
        return given
    if library_of(state) != "numpy":
        return lambda t: history
    try:
        value = np.asarray(history)
        broadcast = value.dtype.kind in "fciub" and np.broadcast_shapes(value.shape, state.shape) == state.shape
    except (TypeError, ValueError):
        broadcast = False
    if not broadcast:
        raise InvalidInputError(
            f"history={history!r} is neither a function of t before t0 nor a constant that broadcasts to the shape "
            f"{tuple(state.shape)} of y0"
        )
    if not np.all(np.isfinite(value)):
        raise InvalidInputError(f"history={history!r} is not finite; give finite numbers")
    kept = np.array(value)
    return lambda t: kept


def _read_span(t_span: Sequence[float]) -> tuple[float, float]:
    try:
        t0, t1 = (float(t) for t in t_span)
    except (TypeError, ValueError):
        raise InvalidInputError(
            f"t_span={t_span!r} has to be two numbers (t0, t1). The order of the arguments is "
            "solve_fode(fun, t_span, y0, alpha)"
        ) from None
    if not (math.isfinite(t0) and math.isfinite(t1)):
        raise InvalidInputError(f"t_span=({t0}, {t1}) is not finite; give a finite interval")
    if t1 - t0 > LONGEST:
        raise InvalidInputError(
            f"t_span=({t0:g}, {t1:g}) has the length {t1 - t0:g}, beyond {LONGEST:g}, whose powers overflow; use "
            "other time units"
        )
    if t1 == t0:
        raise InvalidInputError(f"t_span=({t0}, {t1}) is empty; the end has to lie beyond the start")
    if t1 < t0:
        raise InvalidInputError(
            f"t_span=({t0}, {t1}) runs backwards; a fractional derivative remembers the past, so the end has to lie "
            "beyond the start"
        )
    return t0, t1


def _read_state(value: Any, name: str) -> Any:
    if library_of(value) in ("torch", "jax"):
        if value.ndim == 0:
            raise ShapeError(f"{name} has no axis; give a tensor of shape (d,) or (..., d)")
        return value
    refuse_masked(value, name)
    try:
        state = np.asarray(value)
    except ValueError:
        raise ShapeError(f"{name} is a ragged sequence; give numbers of shape (d,) or (..., d)") from None
    if state.dtype.kind not in "fciub":
        raise UnsupportedDtypeError(f"{name} has dtype {state.dtype}; give real or complex numbers")
    if state.dtype.kind in "fc" and state.dtype.itemsize > (8 if state.dtype.kind == "f" else 16):
        raise UnsupportedDtypeError(
            f"{name} has dtype {state.dtype}, and equations are solved in double precision; convert it to float64 or "
            "complex128"
        )
    state = np.array(state, dtype=np.complex128 if state.dtype.kind == "c" else np.float64, ndmin=1)
    if state.size == 0:
        raise ShapeError(f"{name} has shape {state.shape}, without a component; give at least one number")
    if not np.isfinite(state).all():
        raise InvalidInputError(f"{name}={np.array2string(state, threshold=8)} is not finite; give finite initial data")
    return state


def _read_derivatives(dy0: Any, state: Any) -> tuple[Any, ...]:
    if dy0 is None:
        return ()
    if library_of(dy0) == "python" and not isinstance(dy0, list | tuple):
        dy0 = [dy0]
    given = []
    for number, each in enumerate(dy0):
        value = _read_state(each, f"dy0[{number}]")
        if library_of(value) == "numpy" and library_of(state) == "numpy" and value.shape == (1,) != state.shape:
            value = np.broadcast_to(value, state.shape)
        if tuple(value.shape) != tuple(state.shape):
            raise ShapeError(
                f"dy0[{number}] has shape {tuple(value.shape)} and y0 has shape {tuple(state.shape)}: dy0 is a list "
                "with one array of the shape of y0 for each derivative"
            )
        given.append(value)
    return tuple(given)


def _check_count(orders: Orders, given: tuple[Any, ...], derivative: str) -> None:
    needed = orders.ceiling - 1
    if len(given) != needed:
        shown = "variable" if orders.known is None else f"up to {float(orders.known.max()):g}"
        what = "y'(t0), y''(t0), ..." if derivative == "caputo" else "D^(alpha-n+k) y at t0, k = 1, 2, ..."
        raise InvalidInputError(
            f"an order {shown} needs {needed} initial derivative{'s' * (needed != 1)} beyond y0, and dy0 has "
            f"{len(given)}: " + (f"give dy0=[...] with {needed} of {what}" if needed else "leave dy0 out")
        )
    for number, each in enumerate(given):
        if library_of(each) != "numpy":
            continue
        idle = np.broadcast_to(orders.ceilings() <= number + 1, each.shape)
        if np.any(each[idle] != 0):
            raise InvalidInputError(
                f"dy0[{number}] is not 0 for a component whose order is at most {number + 1}, which has no such "
                "initial value; give 0 there"
            )


def _read_term(term: tuple[Any, float] | Term) -> Term:
    try:
        coefficient, order = (term.coefficient, term.order) if isinstance(term, Term) else term
        value = np.asarray(order, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInputError(f"terms holds {term!r}; a term is a pair (coefficient, order)") from None
    if not callable(coefficient) and np.asarray(coefficient).dtype.kind not in "fciub":
        raise InvalidInputError(
            f"terms holds the coefficient {coefficient!r}; give a number, an array or a function of t"
        )
    if value.ndim:
        raise ShapeError(f"each term takes a single order; got {order!r}")
    if float(value) != 0.0:  # a plain multiple of y is a term too
        check_values(value, "the order of a term")
    return Term(coefficient, float(value))


def starts_infinite(problem: Problem) -> bool:
    """Whether the solution of a Riemann-Liouville problem is infinite at t0."""
    if problem.derivative != "riemann_liouville" or problem.orders.known is None:
        return False
    broken = np.broadcast_to(problem.orders.known != np.ceil(problem.orders.known), problem.shape)
    return bool(np.any(problem.y0[broken] != 0))


class NotFiniteError(HpfraccError, ArithmeticError):
    """The right-hand side was not finite. A shorter step is tried before the solve fails."""


class RightHandSide:
    """``fun(t, y, *args)`` of a NumPy problem, with a fast path for arrays of the right dtype and shape."""

    def __init__(self, problem: Problem) -> None:
        self.count = 0
        fun, args = problem.fun, problem.args
        #: ``fun(t, y)`` without checks; a call that unpacks no arguments takes 0.1 us less.
        self.bare: Callable[..., Any] = (lambda t, y: fun(t, y, *args)) if args else fun
        self._shape = problem.shape
        self._dtype = problem.dtype

    def __call__(self, t: float, y: Array) -> Array:
        """The value at a copy of a state."""
        self.count += 1
        # Copies, because the function may store or change its argument, and return the same array each time.
        value = self.bare(t, y.copy())
        if type(value) is np.ndarray and value.shape == self._shape and value.dtype == self._dtype:
            return value.copy()
        return self.read(value).copy()

    def read(self, value: Any) -> Array:
        """The returned value as an array of the state's shape and dtype; raises an error if it is not."""
        return check_value(value, self._shape, self._dtype, "fun")


class Jacobian:
    """``jac(t, y, *args)``, of shape (..., d, d), or sparse if d is large."""

    def __init__(self, problem: Problem) -> None:
        assert problem.jac is not None
        self._jac = problem.jac
        self._args = problem.args
        self._shape = problem.shape
        self._dtype = problem.dtype

    def __call__(self, t: float, y: Array) -> Any:
        """The matrix at a copy of a state."""
        return check_jacobian(self._jac(t, y.copy(), *self._args), self._shape, self._dtype).copy()

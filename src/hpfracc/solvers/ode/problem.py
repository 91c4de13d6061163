"""Initial-value problems of fractional order, as plain data, read and checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, get_args

import numpy as np

from hpfracc._arrays import is_tracer, library_of, refuse_masked, refuse_units
from hpfracc._choices import DerivativeName
from hpfracc._reading import array, broadcasts, check_value, choice, function, listed, number, pair, shown
from hpfracc.errors import InvalidInputError, ShapeError, UnsupportedDtypeError
from hpfracc.solvers.stepping.jacobian import JacobianSource, check_jacobian, read_sparsity
from hpfracc.solvers.stepping.newton import PART, Newton
from hpfracc.solvers.stepping.options import Options

Array = np.ndarray[Any, Any]

_DERIVATIVES: tuple[str, ...] = get_args(DerivativeName)
#: The longest interval for which powers and quotients of times stay within float64.
LONGEST = 1e100
_ARGUMENTS = "The order of the arguments is solve_fode(fun, t_span, y0, alpha)"


@dataclass(frozen=True, slots=True, eq=False)
class Orders:
    """The given ``alpha``, and what is known about it.

    Attributes
    ----------
    value : number, array, or callable
        As given. A tensor or JAX array stays differentiable.
    known : numpy.ndarray or None
        The numbers, float64, of shape ``()`` or one that broadcasts to that of ``y0``; None for a traced value or a
        function of t.
    function : callable or None
        ``alpha(t)``, for an order that varies with time.
    ceiling : int
        The highest order rounded up: the number of initial values that the equation needs.
    """

    value: Any
    known: Array | None
    function: Callable[[float], Any] | None
    ceiling: int

    @property
    def single(self) -> float | None:
        """The order as one number, if all components share it."""
        if self.known is None or self.known.size == 0:
            return None
        first = float(self.known.flat[0])
        return first if self.known.size == 1 or bool(np.all(self.known == first)) else None


def _read_orders(alpha: Any, shape: tuple[int, ...], t0: float, t1: float, derivatives: int) -> Orders:
    """Check ``alpha`` against the shape of ``y0``; ``derivatives`` is their given number, for a traced order."""
    if alpha is None or isinstance(alpha, bool | np.bool_ | str) or hasattr(alpha, "definition"):
        raise InvalidInputError(
            f"alpha={shown(alpha)} is not an order; use a number such as 0.5, or one for each component. A sum of "
            "derivatives has the others in terms=[(coefficient, order), ...]; another kind is named by derivative="
        )
    refuse_masked(alpha, "alpha")
    if callable(alpha) and library_of(alpha) == "python":
        # Probed at both ends and in the middle.
        probed = [_check_orders(alpha(t), shape, f"alpha({t:g})") for t in (t0, 0.5 * (t0 + t1), t1)]
        highest = max(float(values.max(initial=0.0)) for values in probed)
        if highest > 1.0:
            raise InvalidInputError(f"alpha(t) reaches {highest:g}; an order that is a function of t may be at most 1")
        return Orders(alpha, None, alpha, math.ceil(highest))
    try:
        known = alpha.detach().cpu().numpy() if library_of(alpha) == "torch" else alpha
    except RuntimeError:  # mapped by torch.func
        known = None
    if known is None or (library_of(alpha) == "jax" and is_tracer(alpha)):
        return Orders(alpha, None, None, derivatives + 1)
    known = _check_orders(known, shape, "alpha")
    return Orders(alpha, known, None, math.ceil(float(known.max(initial=1.0))))


def _check_orders(given: Any, shape: tuple[int, ...], name: str) -> Array:
    """Finite orders above 0, of a shape that broadcasts to the state."""
    values: Array = np.asarray(array(name, given))
    if values.dtype.kind == "c":
        raise InvalidInputError(f"{name} has dtype {values.dtype}; give real orders")
    values = values.astype(np.float64)
    bad = values[~(np.isfinite(values) & (values > 0.0))]
    if bad.size:
        raise InvalidInputError(f"{name} holds {bad.flat[0]}; an equation has a finite order above 0, such as 0.5")
    if values.ndim and not broadcasts(values.shape, shape):
        raise ShapeError(
            f"{name} has shape {values.shape} and y0 has shape {shape}: give one order, or one for each component. If "
            "this is the initial state, y0 and alpha are swapped: the order comes last"
        )
    return values


class Term(NamedTuple):
    """One further term ``coefficient * D^order y`` on the left-hand side of a multi-term equation."""

    coefficient: Any
    order: Any


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
        Definition of the derivative; methods know ``"caputo"`` and ``"riemann_liouville"``.
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
    memory : EquationMemory or None
        A kernel in place of :math:`u^{\alpha-1}/\Gamma(\alpha)`, which adaptive steps take.
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
    memory: Any = None

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


def read_problem(
    fun: Callable[..., Any],
    t_span: Sequence[float],
    y0: Any,
    alpha: Any,
    *,
    dy0: Any = None,
    derivative: Any = "caputo",
    args: Any = (),
    jac: Callable[..., Any] | None = None,
    jac_sparsity: Any = None,
    terms: Sequence[tuple[Any, Any]] = (),
    delays: Sequence[float] = (),
    history: Any = None,
) -> Problem:
    """Read and check the arguments; raises a typed error with a remedy if one is invalid."""
    if not callable(fun):
        raise InvalidInputError(f"fun={shown(fun)} cannot be called; give a function fun(t, y). {_ARGUMENTS}")
    if jac is not None:
        function("jac", jac, "(t, y)")
    if isinstance(derivative, str):
        derivative = choice("derivative", derivative, _DERIVATIVES)
    try:
        t0, t1 = pair("t_span", t_span)
    except InvalidInputError as error:
        raise InvalidInputError(f"{error}. {_ARGUMENTS}") from None
    memory = None
    if not isinstance(derivative, str):
        from hpfracc.solvers.ode.adaptive.memories import read_sonine  # which few equations need

        memory, alpha = read_sonine(derivative, alpha, t0, t1)
        derivative = "sonine"
    if t1 - t0 > LONGEST:
        raise InvalidInputError(f"t_span=({t0:g}, {t1:g}) is longer than {LONGEST:g}; use other time units")
    state = _read_state(y0, "y0")
    given = _read_derivatives(dy0, state)
    orders = _read_orders(alpha, tuple(state.shape), t0, t1, len(given))
    _check_count(orders, given, derivative)
    library = library_of(state)
    if library == "numpy" and given:
        kind = np.result_type(state, *given)
        state, given = state.astype(kind, copy=False), tuple(each.astype(kind, copy=False) for each in given)
    if jac_sparsity is not None and (library != "numpy" or jac is not None):
        why = "jac is given; give one of them" if jac is not None else f"y0 is of {library}; leave it out"
        raise InvalidInputError(f"jac_sparsity is for Jacobians of NumPy arrays by differences, and {why}")
    sparsity = read_sparsity(jac_sparsity, state.shape[-1])
    lags = tuple(number("delays", each, above=0.0) for each in listed("delays", delays, "numbers above 0"))
    if lags and history is None:
        raise InvalidInputError("delays need a history: give history=, a function of t before t0 or a constant")
    if history is not None and not lags:
        raise InvalidInputError("history is given, and no delays: give delays=, or omit it")
    past = _read_history(history, state)
    args = args if isinstance(args, tuple) else (args,)
    others = tuple(_read_term(term, state.shape) for term in listed("terms", terms, "pairs (coefficient, order)"))
    return Problem(
        fun, t0, t1, state, given, orders, derivative, args, jac, others, lags, past, library, sparsity, memory
    )


def _read_history(history: Any, state: Any) -> Callable[[float], Any] | None:
    """The history as a function of t; a number or an array that broadcasts to the state is constant."""
    if history is None or (callable(history) and library_of(history) == "python"):
        return history  # type: ignore[no-any-return]
    if library_of(state) != "numpy":
        return lambda t: history
    try:
        value = np.array(array("history", history))
        good = broadcasts(value.shape, state.shape) and np.isfinite(value).all()
    except (ShapeError, UnsupportedDtypeError):
        good = False
    if not good:
        wanted = f"finite numbers that broadcast to the shape {tuple(state.shape)} of y0"
        raise InvalidInputError(f"history={shown(history)}: give a function of t before t0, or {wanted}")
    return lambda t: value


def _read_state(value: Any, name: str) -> Any:
    refuse_units(value, name)
    if library_of(value) in ("torch", "jax"):
        if value.ndim == 0:
            raise ShapeError(f"{name} has no axis; give a tensor of shape (d,) or (..., d)")
        return value
    refuse_masked(value, name)
    state = np.asarray(array(name, value))
    wide = np.complex128 if state.dtype.kind == "c" else np.float64
    if state.dtype.itemsize > np.dtype(wide).itemsize:
        raise UnsupportedDtypeError(f"{name} is {state.dtype}; equations are solved in double precision; convert it")
    state = np.array(state, dtype=wide, ndmin=1)
    if state.size == 0:
        raise ShapeError(f"{name} has shape {state.shape}, without a component; give at least one number")
    if not np.isfinite(state).all():
        raise InvalidInputError(f"{name}={np.array2string(state, threshold=8)} is not finite; give finite initial data")
    return state


def _read_derivatives(dy0: Any, state: Any) -> tuple[Any, ...]:
    if dy0 is None:
        return ()
    if getattr(dy0, "ndim", 1) == 0 or (library_of(dy0) == "python" and not isinstance(dy0, list | tuple)):
        dy0 = [dy0]
    given = []
    for place, each in enumerate(dy0):
        value = _read_state(each, f"dy0[{place}]")
        if library_of(value) == library_of(state) == "numpy" and value.shape == (1,):
            value = np.broadcast_to(value, state.shape)
        if tuple(value.shape) != tuple(state.shape):
            shape = tuple(state.shape)
            raise ShapeError(f"dy0[{place}] has shape {tuple(value.shape)}; give a list of arrays of shape {shape}")
        given.append(value)
    return tuple(given)


def _check_count(orders: Orders, given: tuple[Any, ...], derivative: str) -> None:
    needed = orders.ceiling - 1
    if len(given) != needed:
        highest = "variable" if orders.known is None else f"up to {float(orders.known.max()):g}"
        what = "y'(t0), y''(t0), ..." if derivative == "caputo" else "D^(alpha-n+k) y at t0, k = 1, 2, ..."
        remedy = f"give dy0=[...] with {needed} of {what}" if needed else "leave dy0 out"
        needs = f"needs {needed} initial derivative{'s' * (needed != 1)} beyond y0, and dy0 has {len(given)}"
        raise InvalidInputError(f"an order {highest} {needs}: {remedy}")
    for place, each in enumerate(given):
        if orders.known is None or library_of(each) != "numpy":
            continue
        if np.any(each[np.broadcast_to(np.ceil(orders.known) <= place + 1, each.shape)] != 0):
            where = f"a component whose order is at most {place + 1}"
            raise InvalidInputError(f"dy0[{place}] is not 0 for {where}, which has no such value; give 0 there")


def _read_term(term: tuple[Any, Any], shape: tuple[int, ...]) -> Term:
    try:
        coefficient, order = term
        value = np.asarray(order, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInputError(f"terms holds {shown(term)}; a term is a pair (coefficient, order)") from None
    if not callable(coefficient):
        array("the coefficient of a term", coefficient)
    if value.ndim and not broadcasts(value.shape, (*shape[:-1], 1)):
        raise ShapeError(f"each term takes a single order; got {order!r}. Members of a batch have theirs along an axis")
    for each in value.flat:
        number("the order of a term", each, least=0.0)  # of order 0: a multiple of y
    return Term(coefficient, value if value.ndim else float(value))


def history_at(problem: Problem, t: float) -> Array:
    """``history(t)``, flat and checked."""
    assert problem.history is not None
    given = np.asarray(problem.history(t))
    if not broadcasts(given.shape, problem.shape):
        raise ShapeError(f"history(t) returned shape {given.shape}; return an array of the shape {problem.shape} of y0")
    given = np.broadcast_to(given, problem.shape)
    return check_value(given, problem.shape, problem.dtype, "history").reshape(-1)


def starts_infinite(problem: Problem) -> bool:
    """Whether the solution of a Riemann-Liouville problem is infinite at t0."""
    if problem.derivative != "riemann_liouville" or problem.orders.known is None:
        return False
    broken = np.broadcast_to(problem.orders.known != np.ceil(problem.orders.known), problem.shape)
    return bool(np.any(problem.y0[broken] != 0))


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

    def flat(self, t: float, y: Array) -> Array:
        """The value for a flat state, flat."""
        return self(t, y.reshape(self._shape)).reshape(-1)

    def read(self, value: Any) -> Array:
        """The returned value as an array of the state's shape and dtype; raises an error if it is not."""
        return check_value(value, self._shape, self._dtype, "fun")


def jacobian_source(problem: Problem, evaluate: Callable[[float, Array], Array]) -> JacobianSource:
    """The Jacobian of a NumPy problem, as given or by differences of ``evaluate(t, y)``."""
    jac, shape, args = problem.jac, problem.shape, problem.args

    def given(t: float, y: Array) -> Any:
        assert jac is not None
        return check_jacobian(jac(t, y.copy(), *args), shape, problem.dtype).copy()

    return JacobianSource(shape, problem.dtype, evaluate, None if jac is None else given, problem.jac_sparsity)


def make_newton(problem: Problem, options: Options, fun: RightHandSide, part: float = PART) -> Newton:
    """Newton's method for the steps of a fixed-step method; ``part`` as for :class:`Newton`."""
    shape, source = problem.shape, jacobian_source(problem, fun)
    atol = np.broadcast_to(options.atol, shape).reshape(-1) if np.ndim(options.atol) else options.atol
    newton = Newton(fun.flat, source, shape[-1])
    newton.rtol, newton.atol, newton.part = options.rtol, atol, part
    newton.jacobian, newton.price = source.jac, source.evaluations + 1
    return newton

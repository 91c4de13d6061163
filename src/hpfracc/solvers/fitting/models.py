"""Predictions and their derivatives: by batches in NumPy, by automatic differentiation in PyTorch and JAX."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpfracc._reading import check_value
from hpfracc._xp import namespace
from hpfracc.errors import ShapeError, SolveError
from hpfracc.solvers.fitting.unknowns import Quantity, Unknowns, on_host
from hpfracc.solvers.stepping.jacobian import check_jacobian

Array = np.ndarray[Any, Any]

#: Relative steps of finite differences. All members of a batch share their time steps, so errors of the solver cancel,
#: except for that of the sum of exponentials, about 1e-10 for each order.
_DELTA = 1e-4


@dataclass(frozen=True, slots=True, eq=False)
class Equation:
    """The equation of a model.

    Attributes
    ----------
    fun, jac, jac_parameters : callables
        ``f(t, y, *parameters)``, and its derivatives in y and in the parameters, or None.
    observe : callable, array of int or None
        ``observe(t, y, *parameters)`` for y of shape (d, N); or the components; None for all of them.
    t0 : float
        Start of the derivative.
    unknowns : Unknowns
        The unknowns.
    coefficients : list
        Those of further terms as given, "free" for unknowns.
    solver : callable
        ``solver(fun, t_span, y0, alpha, t_eval=..., **options)``, such as ``solve_fode``.
    options : dict
        Its options.
    """

    fun: Callable[..., Any]
    jac: Callable[..., Any] | None
    jac_parameters: Callable[..., Any] | None
    observe: Any
    t0: float
    unknowns: Unknowns
    coefficients: list[Any]
    solver: Callable[..., Any]
    options: dict[str, Any]

    def solve(self, fun: Any, t: Array, start: Any, order: Any, **options: Any) -> Any:
        """The solution at these times."""
        result = self.solver(fun, (self.t0, float(t[-1])), start, order, t_eval=t, **{**self.options, **options})
        if not result.success:
            raise SolveError(result.message)
        return result.y

    def seen(self, t: Any, y: Any, parameters: Any) -> Any:
        """The observed part of a solution of shape (d, N), of shape (m, N)."""
        if self.observe is None:
            return y
        if not callable(self.observe):
            return y[self.observe]
        value = self.observe(t, y, *parameters)
        shape: tuple[int, ...] = getattr(value, "shape", ())
        if len(shape) not in (1, 2) or shape[-1] != len(t):
            raise ShapeError(f"observe(t, y, ...) returned shape {tuple(shape)}; return (m, {len(t)}) or ({len(t)},)")
        return value if len(shape) == 2 else value[None]


class FitModel:
    """Predicts the data of an equation."""

    def __init__(self, equation: Equation) -> None:
        self.equation = equation

    def __reduce__(self) -> Any:
        """Pickled as None, because the user's functions may not be picklable."""
        return type(None), ()


class PlainModel(FitModel):
    r"""NumPy: one batch of solves computes the prediction and its derivatives.

    Differences are central, or one-sided at a bound, and all members take the same steps. With ``jac_parameters``,
    derivatives with respect to parameters and initial values come from the variational equation
    :math:`D^\alpha s = f_y s + f_p` instead, and finite differences are used for orders only.
    """

    def predict(self, x: Array, number: int, t: Array) -> Array:
        """The prediction (m, N) for a data set, without derivatives."""
        return self._batch(x[None], number, t, [])[0][0]

    def __call__(self, x: Array, number: int, t: Array) -> tuple[Array, Array]:
        """Prediction (m, N) and derivatives (m, N, p) for a data set."""
        unknowns = self.equation.unknowns
        states = [unknowns.y0[number], *unknowns.dy0[number]]
        others = {k for each in (*unknowns.parameters, *states) for k in each.free}
        delays = self.equation.options.get("delays")
        exact = sorted(others) if self.equation.jac_parameters is not None and not delays else []
        orders = (unknowns.alpha, unknowns.coefficients, unknowns.orders)
        moved = sorted({*(k for each in orders for k in each.free), *others}.difference(exact))
        sizes = np.maximum(np.abs(x), np.abs(unknowns.start))
        delta = _DELTA * np.where(sizes > 0.0, sizes, 1.0)
        high, low = np.minimum(x + delta, unknowns.upper), np.maximum(x - delta, unknowns.lower)
        unit = np.eye(x.size, dtype=bool)
        rows = [x, *(np.where(unit[k], side, x) for k in moved for side in (high, low))]
        values, slopes = self._batch(np.array(rows), number, t, exact)
        jacobian = np.zeros((*values[0].shape, x.size))
        for k, slope in zip(exact, slopes, strict=True):
            jacobian[..., k] = slope
        for k, above, below in zip(moved, values[1::2], values[2::2], strict=True):
            jacobian[..., k] = (above - below) / (high[k] - low[k])
        return values[0], jacobian

    def _batch(self, rows: Array, number: int, t: Array, exact: list[int]) -> tuple[list[Array], list[Array]]:
        """Observations of each row of unknowns, and the derivatives in the unknowns ``exact`` at the first row."""
        equation, unknowns = self.equation, self.equation.unknowns
        members, d = len(rows), unknowns.y0[number].base.size
        parameters = [[each.plain(row) for each in unknowns.parameters] for row in rows]
        direction = np.eye(rows.shape[1])[exact]
        start, *slopes = (
            np.concatenate([each.at(rows), direction @ each.select.T])
            for each in (unknowns.y0[number], *unknowns.dy0[number])
        )

        def shared(values: Array) -> Any:
            """Values of the members, and of the directions; one for all if they are equal."""
            if np.all(values == values[:1]):
                return float(values[0, 0]) if values.shape[1] == 1 else values[0]
            return np.concatenate([values, np.repeat(values[:1], len(exact), axis=0)])

        order = shared(unknowns.alpha.at(rows).reshape(members, -1))
        into = np.hstack([np.zeros((len(exact), 0)), *(direction @ each.select.T for each in unknowns.parameters)])

        def fun(time: float, states: Array, *past: Any) -> Array:
            out = np.empty_like(states)
            for i in range(members):
                more = [tuple(each[i] for each in states) for states in past]
                value = equation.fun(time, states[i].copy(), *more, *parameters[i])
                out[i] = check_value(value, (d,), np.float64, "fun")
            if exact:
                forcing = self._parameter_matrix(time, states[0], parameters[0], into.shape[1])
                out[members:] = states[members:] @ self._matrix(time, states[0], parameters[0]).T + into @ forcing.T
            return out

        def jac(time: float, states: Array, *past: Any) -> Array:
            more = [[tuple(each[i] for each in states) for states in past] for i in range(members)]
            found = [self._matrix(time, states[i], [*more[i], *parameters[i]]) for i in range(members)]
            return np.stack(found + [found[0]] * len(exact))

        options: dict[str, Any] = {} if equation.jac is None else {"jac": jac}
        if slopes:
            options["dy0"] = slopes
        powers = unknowns.orders.at(rows)
        if powers.size and np.any(powers >= np.reshape(order, (-1, 1))[:members]):
            raise SolveError("the order of a term reaches alpha")
        pairs = zip(unknowns.coefficients.at(rows).T, powers.T, equation.coefficients, strict=True)
        options["terms"] = [
            (shared(factor[:, None]) if isinstance(given, str) else given, shared(power[:, None]))
            for factor, power, given in pairs
        ]
        y = equation.solve(fun, t, start, order, **options)
        seen = [np.asarray(equation.seen(t, y[i], parameters[i]), np.float64) for i in range(members)]
        tangents = zip(y[members:], direction, strict=True)
        return seen, [self._observed_slope(t, y[0], tangent, rows[0], along) for tangent, along in tangents]

    def _observed_slope(self, t: Array, y: Array, tangent: Array, x: Array, direction: Array) -> Array:
        """The derivative of the observation along a change of state and unknowns."""
        if not callable(self.equation.observe):
            return np.asarray(self.equation.seen(t, tangent, ()))
        size = max(float(np.abs(tangent).max()), float(np.abs(direction).max()), 1e-300)
        epsilon = 1e-5 * max(float(np.abs(y).max()), float(np.abs(x).max())) / size
        sides = []
        for shift in (epsilon, -epsilon):
            given = [each.plain(x + shift * direction) for each in self.equation.unknowns.parameters]
            sides.append(np.asarray(self.equation.seen(t, y + shift * tangent, given), np.float64))
        return (sides[0] - sides[1]) / (2.0 * epsilon)

    def _matrix(self, time: float, y: Array, parameters: list[Any]) -> Array:
        assert self.equation.jac is not None
        found = check_jacobian(self.equation.jac(time, y.copy(), *parameters), y.shape, np.float64)
        return np.asarray(found.toarray() if hasattr(found, "toarray") else found)

    def _parameter_matrix(self, time: float, y: Array, parameters: list[Any], count: int) -> Array:
        assert self.equation.jac_parameters is not None
        matrix = np.asarray(self.equation.jac_parameters(time, y.copy(), *parameters), np.float64)
        if matrix.shape != (y.size, count):
            raise ShapeError(
                f"jac_parameters returned shape {matrix.shape}; return ({y.size}, {count}), a row for each component "
                "of fun and a column for each parameter"
            )
        return matrix


class TensorModel(FitModel):
    """PyTorch and JAX: forward-mode derivatives of the discrete solution; ``like`` is an array of the library."""

    def __init__(self, equation: Equation, like: Any, library: str) -> None:
        super().__init__(equation)
        self.library, self._like = library, like
        #: Programs by the number of a data set, with their times; in JAX they are compiled.
        self._programs: dict[int, tuple[Array, Callable[[Any], Any]]] = {}

    def predict(self, x: Array, number: int, t: Array) -> Array:
        """The prediction (m, N) for a data set, without derivatives."""
        with namespace(self.library).scope():
            return _finite(self._prediction(self._tensor(x), number, t))

    def __call__(self, x: Array, number: int, t: Array) -> tuple[Array, Array]:
        """Prediction (m, N) and derivatives (m, N, p) for a data set."""
        with namespace(self.library).scope():
            slopes, value = self._program(number, t)(self._tensor(x))
            return _finite(value), _finite(slopes)

    def _program(self, number: int, t: Array) -> Callable[[Any], Any]:
        if number not in self._programs or self._programs[number][0] is not t:
            library = sys.modules[self.library]

            def both(x: Any) -> tuple[Any, Any]:
                value = self._prediction(x, number, t)
                return value, value

            made = getattr(library, "func", library).jacfwd(both, has_aux=True)
            self._programs[number] = t, made if self.library == "torch" else library.jit(made)
        return self._programs[number][1]

    def _prediction(self, x: Any, number: int, t: Array) -> Any:
        equation, unknowns = self.equation, self.equation.unknowns
        parameters = tuple(self._value(each, x) for each in unknowns.parameters)
        alpha = self._value(unknowns.alpha, x) if unknowns.alpha.free else unknowns.alpha.plain(unknowns.start)
        start = self._value(unknowns.y0[number], x)
        options: dict[str, Any] = {} if equation.jac is None else {"jac": equation.jac}
        if unknowns.dy0[number]:
            options["dy0"] = [self._value(each, x) for each in unknowns.dy0[number]]
        y = equation.solve(equation.fun, t, start, alpha, args=parameters, **options)
        return equation.seen(self._tensor(t), y, parameters)

    def _value(self, quantity: Quantity, x: Any) -> Any:
        value = self._tensor(quantity.base) + self._tensor(quantity.select) @ x
        return value.reshape(quantity.shape)

    def _tensor(self, values: Any) -> Any:
        library = sys.modules[self.library]
        if self.library == "torch":
            return library.as_tensor(np.array(values, np.float64), device=self._like.device)
        return library.numpy.asarray(values, dtype="float64")


def _finite(value: Any) -> Array:
    """The value on the host."""
    found = np.asarray(on_host(value), np.float64)
    if not np.isfinite(found).all():
        raise SolveError("the solution or its derivative is not finite")
    return found

"""Predictions and their derivatives: by batches in NumPy, by automatic differentiation in PyTorch and JAX."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpfracc._interrupts import interrupt_scope
from hpfracc._xp import namespace
from hpfracc.errors import ShapeError
from hpfracc.solvers.ode.fitting.unknowns import Quantity, Unknowns
from hpfracc.solvers.ode.problem import check_jacobian, check_value
from hpfracc.solvers.ode.solve import solve_fode

__all__ = ["Equation", "PlainModel", "TensorModel"]

Array = np.ndarray[Any, Any]
#: Times by the number of a data set.
Times = Mapping[int, Array]

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
    options : dict
        Options of ``solve_fode``.
    """

    fun: Callable[..., Any]
    jac: Callable[..., Any] | None
    jac_parameters: Callable[..., Any] | None
    observe: Any
    t0: float
    unknowns: Unknowns
    options: dict[str, Any]

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


class PlainModel:
    r"""NumPy: one batch of solves computes the prediction and its derivatives.

    Differences are central, or one-sided at a bound, and all members take the same steps. With ``jac_parameters``,
    derivatives with respect to parameters and initial values come from the variational equation
    :math:`D^\alpha s = f_y s + f_p` instead, and finite differences are used for orders only.
    """

    def __init__(self, equation: Equation) -> None:
        self.equation = equation
        self.message = ""

    def predict(self, x: Array, sets: Times) -> list[Array] | None:
        """The prediction without derivatives, at the times of each set."""
        found = [self._batch(number, t, x[None], [])[0] for number, t in sets.items()]
        return None if any(each is None for each in found) else [each[0] for each in found]  # type: ignore[index]

    def __call__(self, x: Array, sets: Times) -> tuple[list[Array], list[Array]] | None:
        """Predictions (m, N) and derivatives (m, N, p) for each set; None if a solve fails."""
        found = [self._evaluate(number, t, x) for number, t in sets.items()]
        if any(each is None for each in found):
            return None
        values, slopes = zip(*found, strict=True)
        return list(values), list(slopes)

    def _evaluate(self, number: int, t: Array, x: Array) -> tuple[Array, Array] | None:
        unknowns = self.equation.unknowns
        orders = {int(k) for k in unknowns.alpha.free}
        others = {int(k) for each in (*unknowns.parameters, unknowns.y0[number]) for k in each.free}
        exact = sorted(others) if self.equation.jac_parameters is not None else []
        stencils = {k: self._stencil(k, x) for k in sorted((orders | others) - set(exact))}
        unit = np.eye(x.size)
        rows = [x, *(x + shift * unit[k] for k, (shifts, _) in stencils.items() for shift in shifts)]
        values, slopes = self._batch(number, t, np.array(rows), exact)
        if values is None:
            return None
        jacobian = np.zeros((*values[0].shape, x.size))
        for k, slope in zip(exact, slopes, strict=True):
            jacobian[..., k] = slope
        # Relative to the prediction, so that a one-sided difference does not lose its digits.
        moved = iter(values[1:])
        for k, (_, factors) in stencils.items():
            jacobian[..., k] = sum(factor * (next(moved) - values[0]) for factor in factors)
        return values[0], jacobian

    def _stencil(self, k: int, x: Array) -> tuple[tuple[float, float], tuple[float, float]]:
        unknowns = self.equation.unknowns
        low, high = float(unknowns.lower[k]), float(unknowns.upper[k])
        size = max(abs(float(x[k])), abs(float(unknowns.start[k]))) or 1.0
        delta = min(_DELTA * size, (high - low) / 4.0)
        if x[k] + delta <= high and x[k] - delta >= low:
            return (delta, -delta), (0.5 / delta, -0.5 / delta)
        delta = delta if x[k] + 2.0 * delta <= high else -delta
        return (delta, 2.0 * delta), (2.0 / delta, -0.5 / delta)

    def _batch(self, number: int, t: Array, rows: Array, exact: list[int]) -> tuple[list[Array] | None, list[Array]]:
        """Observations of each row of unknowns, and the derivatives in the unknowns ``exact`` at the first row."""
        equation, unknowns = self.equation, self.equation.unknowns
        start = unknowns.y0[number].at(rows)
        members, d = start.shape
        extra = len(exact)
        parameters = [[_plain(each.at(row)) for each in unknowns.parameters] for row in rows]
        alpha = unknowns.alpha.at(rows).reshape(members, -1)
        direction = np.eye(rows.shape[1])[exact]
        if extra:
            tangents = direction @ unknowns.y0[number].select.T
            start = np.concatenate([start, tangents])
            alpha = np.concatenate([alpha, np.repeat(alpha[:1], extra, axis=0)])
        order: Any = alpha
        if np.all(alpha == alpha[:1]):
            order = float(alpha[0, 0]) if alpha.shape[1] == 1 else alpha[0]
        into = np.concatenate([np.zeros((extra, 0)), *(direction @ each.select.T for each in unknowns.parameters)], 1)

        def fun(time: float, states: Array) -> Array:
            out = np.empty_like(states)
            for i in range(members):
                out[i] = check_value(equation.fun(time, states[i].copy(), *parameters[i]), (d,), np.float64, "fun")
            if extra:
                forcing = self._parameter_matrix(time, states[0], parameters[0], into.shape[1])
                out[members:] = states[members:] @ self._matrix(time, states[0], parameters[0]).T + into @ forcing.T
            return out

        def jac(time: float, states: Array) -> Array:
            found = [self._matrix(time, states[i], parameters[i]) for i in range(members)]
            return np.stack(found + [found[0]] * extra)

        options = dict(equation.options)
        dy0 = options.pop("dy0", None)
        if dy0 is not None:
            given = [np.asarray(each, np.float64) for each in dy0]
            options["dy0"] = [
                np.concatenate([np.broadcast_to(each, (members, d)), np.zeros((extra, d))]) for each in given
            ]
        if equation.jac is not None:
            options["jac"] = jac
        last = float(t[-1])
        with interrupt_scope():
            result = solve_fode(fun, (equation.t0, last), start, order, t_eval=t, **options)
        if not result.success:
            self.message = result.message
            return None, []
        seen = [np.asarray(equation.seen(t, result.y[i], parameters[i]), np.float64) for i in range(members)]
        tangents = result.y[members:]
        pairs = zip(tangents, direction, strict=True)
        return seen, [self._observed_slope(t, result.y[0], tangent, rows[0], along) for tangent, along in pairs]

    def _observed_slope(self, t: Array, y: Array, tangent: Array, x: Array, direction: Array) -> Array:
        """The derivative of the observation along a change of state and unknowns."""
        if not callable(self.equation.observe):
            return np.asarray(self.equation.seen(t, tangent, ()))
        size = max(float(np.abs(tangent).max()), float(np.abs(direction).max()), 1e-300)
        epsilon = 1e-5 * max(float(np.abs(y).max()), float(np.abs(x).max())) / size
        sides = []
        for sign in (1.0, -1.0):
            moved = x + sign * epsilon * direction
            given = [_plain(each.at(moved)) for each in self.equation.unknowns.parameters]
            sides.append(np.asarray(self.equation.seen(t, y + sign * epsilon * tangent, given), np.float64))
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


class TensorModel:
    """PyTorch and JAX: forward-mode derivatives of the discrete solution."""

    def __init__(self, equation: Equation, like: Any, library: str) -> None:
        self.equation, self.library = equation, library
        self.message = ""
        self._like = like
        self._latest: tuple[Times, Callable[[Any], Any]] | None = None

    def predict(self, x: Array, sets: Times) -> list[Array] | None:
        """The prediction without derivatives."""
        with namespace(self.library).scope():
            found = self._predictions(self._tensor(x), sets)
            values = [np.asarray(_host(each)) for each in found]
        return values if all(np.isfinite(each).all() for each in values) else None

    def __call__(self, x: Array, sets: Times) -> tuple[list[Array], list[Array]] | None:
        """Predictions (m, N) and derivatives (m, N, p) for each set; None if a solve fails."""
        with namespace(self.library).scope():
            slopes, values = self._program(sets)(self._tensor(x))
        host = [[np.asarray(_host(each), np.float64) for each in group] for group in (values, slopes)]
        if not all(np.isfinite(each).all() for group in host for each in group):
            self.message = "the solution or its derivative is not finite"
            return None
        return host[0], host[1]

    def _program(self, sets: Times) -> Callable[[Any], Any]:
        """The program; in JAX it is compiled once if the times stay the same."""
        if self._latest is None or self._latest[0] is not sets:
            library = sys.modules[self.library]

            def both(x: Any) -> tuple[Any, Any]:
                values = tuple(self._predictions(x, sets))
                return values, values

            made = getattr(library, "func", library).jacfwd(both, has_aux=True)
            self._latest = sets, made if self.library == "torch" else library.jit(made)
        return self._latest[1]

    def _predictions(self, x: Any, sets: Times) -> list[Any]:
        equation, unknowns = self.equation, self.equation.unknowns
        parameters = tuple(self._value(each, x) for each in unknowns.parameters)
        alpha = (
            self._value(unknowns.alpha, x) if unknowns.alpha.free.size else _plain(unknowns.alpha.at(unknowns.start))
        )
        found = []
        for number, t in sets.items():
            start = self._value(unknowns.y0[number], x)
            options = dict(equation.options)
            if options.get("dy0") is not None:
                options["dy0"] = [self._tensor(np.broadcast_to(each, start.shape)) for each in options["dy0"]]
            if equation.jac is not None:
                options["jac"] = equation.jac
            with interrupt_scope():
                result = solve_fode(
                    equation.fun, (equation.t0, float(t[-1])), start, alpha, t_eval=t, args=parameters, **options
                )
            if not result.success:
                self.message = result.message
            found.append(equation.seen(self._tensor(t), result.y, parameters))
        return found

    def _value(self, quantity: Quantity, x: Any) -> Any:
        value = self._tensor(quantity.base) + self._tensor(quantity.select) @ x
        return value.reshape(quantity.shape)

    def _tensor(self, values: Any) -> Any:
        library = sys.modules[self.library]
        if self.library == "torch":
            return library.as_tensor(np.array(values, np.float64), device=self._like.device)
        return library.numpy.asarray(values, dtype="float64")


def _plain(value: Array) -> Any:
    """A number as a float."""
    return float(value) if value.ndim == 0 else value


def _host(value: Any) -> Any:
    return value.detach().cpu().numpy() if hasattr(value, "detach") else value

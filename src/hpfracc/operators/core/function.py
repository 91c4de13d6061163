"""Reading the arguments of an operator: samples or a callable, with the points they are taken at."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hpfracc._arrays import library_of, to_host
from hpfracc._reading import number, whole
from hpfracc._xp import user_scope
from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.operators.core.grids import Grid, known_values, read_grid, read_points, require_increasing
from hpfracc.operators.core.values import Samples, as_values, check_axis, flip, move_axis, points_like

RTOL = 1e-10
#: The names of the method that keeps its memory as a sum of exponentials.
FAST = ("fast", "soe")


@dataclass(frozen=True, slots=True)
class Function:
    """A callable and the points at which an operator's result is computed.

    Attributes
    ----------
    f : callable
        Maps an array of points to values: shape ``(n,)``, or ``(..., n)`` for several functions at once.
    points : numpy.ndarray
        The points of the result, one-dimensional.
    origin : float
        Where the operator starts.
    factor : float
        The power of ``t - origin`` that the function contains; 0 if none was declared.
    rtol : float
        Tolerance relative to the largest value.
    axis : int
        The axis of the function's values along which the points lie.
    like : array
        The caller's ``t``; the function is called with arrays of its library.
    shape : tuple of int
        Shape of the caller's ``t``.
    backend : str or None
        Passed to every engine call.
    scope : callable
        A context with the user's own settings of array libraries, in which f is called.
    own_to_user : callable or None
        Maps ``points``, if they are in an operator's own variable, to the variable of f.
    """

    f: Callable[[Any], Any]
    points: np.ndarray[Any, Any]
    origin: float
    factor: float
    rtol: float
    axis: int
    like: Any
    shape: tuple[int, ...]
    backend: Any = None
    scope: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext
    own_to_user: Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]] | None = None

    #: The end of the interval, if ``points`` are distances from it.
    reflected_at: float | None = None

    @property
    def start(self) -> float:
        """Where the operator starts, in the caller's own variable."""
        return self.origin if self.reflected_at is None else self.reflected_at

    @property
    def end(self) -> float:
        """The last point of the result."""
        return float(self.points[-1])

    def at(self, points: np.ndarray[Any, Any]) -> Any:
        """The values at ``points``, shape ``(..., n)``, in the caller's library; raises for a wrong shape or a nan."""
        points = points if self.own_to_user is None else self.own_to_user(points)
        values = self._values(points)
        self._refuse_nonfinite(values, points)
        return values

    def at_end(self) -> np.ndarray[Any, Any]:
        """The value at the last point, where alone f may be undefined: nan then."""
        last = np.array([self.end if self.end > self.origin else self.origin + 1e-3])
        with np.errstate(divide="ignore", invalid="ignore"):
            value = to_host(self._values(last if self.own_to_user is None else self.own_to_user(last)))
        return np.where(np.isfinite(value), value, math.nan)

    def _values(self, points: np.ndarray[Any, Any]) -> Any:
        given = points_like(points, self.like)
        try:
            with self.scope():
                values = self.f(given)
        except Exception as error:
            error.add_note(
                f"raised by f, which was called with an array of {len(points)} points; "
                "if it takes single numbers only, give np.vectorize(f)"
            )
            raise
        return self._along_last(as_values(values, given), len(points))

    def _along_last(self, values: Any, count: int) -> Any:
        """Values of f with their points along the last axis; raises an error if there is not one for each point."""
        if not values.shape or values.shape[self.axis if values.ndim > 1 else -1] != count:
            raise ShapeError(
                f"f returned shape {tuple(values.shape)} for {count} points; it must return one value per point, "
                f"along axis {self.axis}: give np.vectorize(f) if it takes single numbers only"
            )
        return move_axis(values, self.axis, -1) if values.ndim > 1 else values

    def changed(self, change: Callable[[Any, Any], Any]) -> Function:
        """The function ``change(t, f(t))``, whose values have their points along the last axis."""

        def f(t: Any) -> Any:
            values = as_values(self.f(t))
            return change(t, self._along_last(values, len(t)) if values.shape else values)

        return replace(self, f=f, axis=-1)

    def _refuse_nonfinite(self, values: Any, points: np.ndarray[Any, Any]) -> None:
        known = known_values(values)
        if known is None:
            return
        bad = ~np.isfinite(known)
        if bad.any():
            where = np.flatnonzero(bad.reshape(-1, bad.shape[-1]).any(axis=0))
            raise InvalidInputError(
                f"f is not finite at t={points[where[0]]:.17g} (and at {len(where) - 1} further points of the "
                f"{len(points)} it was asked for); an operator needs f finite between the origin and t: "
                "declare a singular power with factor=, or move the origin"
            )

    def shaped(self, value: Any) -> Any:
        """The result with its points along ``axis``, or without that axis if ``t`` was a single number."""
        if self.shape == ():
            # For NumPy a number, not a zero-dimensional array.
            return value[..., 0][()] if library_of(value) == "numpy" else value[..., 0]
        return move_axis(value, -1, self.axis) if value.ndim > 1 else value


def called_once(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The function f, called once per array of points, for several operators that need the same ones."""
    seen: dict[bytes, Any] = {}

    def call(t: Any) -> Any:
        key = to_host(t).tobytes()
        if key not in seen:
            seen[key] = f(t)
        return seen[key]

    return call


def read_callable(
    f: Callable[[Any], Any], t: Any, origin: Any, factor: Any, rtol: Any, axis: Any, backend: Any, right: bool
) -> Function:
    """Read and check the points, the origin and the tolerance.

    With ``right``, f is read as a function of the distance from the end, for an operator with ``side="right"``.
    """
    if t is None:
        raise InvalidInputError("f is a callable, so give t, the points at which to compute the result")
    points = read_points(t)
    if points.ndim > 1:
        raise ShapeError(f"t has shape {points.shape}; give a number or a one-dimensional array of points")
    shape, points = points.shape, points.reshape(-1)
    require_increasing(points)
    if right and origin is None and not shape:
        raise InvalidInputError(
            "side='right' of a callable reaches from t up to an end, which a single t does not define; give origin="
        )
    start = (float(points[-1]) if right else 0.0) if origin is None else number("origin", origin)
    if right and points[-1] > start:
        raise InvalidInputError(
            f"t={points[-1]:g} lies beyond origin={start:g}, the end up to which the operator reaches with "
            "side='right'; give origin= at or beyond the last point"
        )
    if not right and points[0] < start:
        raise InvalidInputError(
            f"t[0]={points[0]:g} lies before the origin {start:g}, where the operator starts; give origin= at or "
            "before the first point"
        )
    power = 0.0 if factor is None else number("factor", factor, above=-1.0)
    tolerance = RTOL if rtol is None else number("rtol", rtol, above=0.0, below=1.0)
    axis = whole("axis", axis)
    like = t if library_of(t) in ("torch", "jax", "cupy") else points
    if library_of(like) != "numpy" and not str(like.dtype).removeprefix("torch.").startswith("float"):
        like = as_values(like)
    found = Function(f, points, start, power, tolerance, axis, like, shape, backend, user_scope())
    if not right:
        return found
    return replace(
        found, points=(start - points)[::-1], origin=0.0, own_to_user=lambda x: start - x, reflected_at=start
    )


#: Placeholder for the grid of samples if f is a callable.
_NO_GRID = Grid(0, 0.0, None)


def read_problem(
    operator: Any,
    f: Any,
    t: Any,
    step: Any,
    axis: Any,
    origin: Any,
    factor: Any,
    rtol: Any,
    backend: Any,
    *,
    right: bool,
) -> tuple[Samples | Function, Grid, int]:
    """Samples, with their points along the last axis, or a callable; the grid of the samples; and their axis.

    With ``right``, for an operator with ``side="right"``, points are distances from the end.
    """
    if origin is None and (t is None or callable(f)):
        origin = operator.usual_origin
    if callable(f) and not hasattr(f, "dtype"):
        if step is not None:
            raise InvalidInputError("step= is for samples; give the points t at which to compute a callable's result")
        initial = getattr(operator, "initial", None)
        if initial is not None:
            raise InvalidInputError(
                f"initial={initial!r} is for samples; the derivatives of a callable are computed by {operator.who} "
                "itself"
            )
        origin = origin if right else operator._start_of(t, origin)
        return read_callable(f, t, origin, factor, rtol, axis, backend, right), _NO_GRID, axis
    if factor is not None:
        raise InvalidInputError(f"factor={factor!r} is for callables; samples do not use it")
    tolerance = None if rtol is None else operator._tolerance(rtol)
    values = as_values(f, operator._order_like(), step)
    axis = check_axis(axis, values.ndim)
    values = move_axis(values, axis, -1)
    grid = read_grid(t, step, origin, values.shape[-1], from_end=right)
    own = grid
    if right:
        values, own = flip(values), grid.reflected()
    return Samples(values, operator._own_grid(own, t), backend, tolerance), grid, axis

"""Judging a numerical solution by its defect, whoever computed it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import interpolate, special

from hpfracc import _reading
from hpfracc._arrays import is_array, to_host
from hpfracc.errors import InvalidInputError, ShapeError

Array = np.ndarray[Any, Any]

#: Gauss points of a panel, panels that the interval has at least and at most, and halvings of one.
_POINTS, _LEAST, _MOST, _HALVINGS = 6, 128, 4_000, 60
#: The share of the tolerance that a panel may leave unresolved, and the factor of the bound over the estimate.
_UNRESOLVED, _SAFETY = 0.02, 1.5
#: Iterations of Newton's method in a panel.
_NEWTON = 6
_X = 0.5 * (special.roots_legendre(_POINTS)[0] + 1.0)
_W = 0.5 * special.roots_legendre(_POINTS)[1]
_LOG_X, _LOG_W = special.roots_legendre(24)
_POWERS = np.linalg.inv(_X[:, None] ** np.arange(_POINTS))


def _basis(x: Array) -> Array:
    """The polynomials through the Gauss points at ``x`` in [0, 1], shape (*x.shape, points)."""
    return np.asarray(x[..., None] ** np.arange(_POINTS) @ _POWERS)


@dataclass(frozen=True, slots=True)
class Audit:
    r"""What :func:`audit` found.

    Attributes
    ----------
    ok : bool
        Whether the error is at most the tolerance.
    error : float
        A bound of the largest absolute error: 1.5 times the estimate, and what the quadrature leaves open.
    defect : float
        The largest :math:`|D^\alpha y_h - f(t, y_h)|` behind the first hundredth of the interval, where it may be
        infinite.
    t : float
        Where the error is largest, in units of the tolerance.
    message : str
        The verdict in a sentence.
    """

    ok: bool
    error: float
    defect: float
    t: float
    message: str


class _Solution(NamedTuple):
    """A solution as a function of time: flat states, shape (n, times)."""

    state: Callable[[Array], Array]
    times: Array
    shape: tuple[int, ...]
    between: bool  # whether it is given between its times, too


def audit(
    fun: Callable[..., Any],
    solution: Any,
    *,
    alpha: Any = None,
    rtol: float | None = None,
    t_span: tuple[float, float] | None = None,
    dy0: Any = None,
    args: tuple[Any, ...] = (),
    seed: int = 0,
) -> Audit:
    r"""Judge a solution of :math:`D^\alpha y = f(t, y)` (Caputo), from any source, without knowing the exact one.

    The residual :math:`r = y_h - T - I^\alpha f(\cdot, y_h)`, the integral of the defect, is computed by a quadrature
    of its own, on panels that are halved until f along the solution is resolved, also at random times between the
    steps. The error solves :math:`e = r + I^\alpha (f(\cdot, y_h) - f(\cdot, y_h - e))` on the same panels, by
    Newton's method: to first order, the linearised equation with the defect as its source.

    Parameters
    ----------
    fun : callable
        ``fun(t, y, *args)``, as for :func:`hpfracc.solve_fode`.
    solution : FODEResult, pair of arrays or callable
        A result; ``(t, y)`` with y of shape (..., d, N), which is judged at these times; or ``y(t)``, of shape
        (..., d) for a number t, with ``t_span``. A result with ``dense_output=True`` is judged between its steps, too.
    alpha : float or array_like
        The order, one number or one for each component. Not needed for a result of ``solve_fode``.
    rtol : float, optional
        The error allowed, relative to the largest value of each component. By default ``atol + rtol |y|`` of the
        result, and 1e-6 otherwise.
    t_span : pair of float, optional
        Start and end, for a callable.
    dy0 : list of array_like, optional
        Further initial values for orders above 1; by default those of the result.
    args : tuple, optional
        Further arguments of ``fun``.
    seed : int
        Seed of the random times.

    Returns
    -------
    Audit
        ``ok``, ``error``, ``defect``, ``t`` and ``message``.

    See Also
    --------
    solve_fode : solves such equations, with an estimate of the error.

    Notes
    -----
    Every panel, at most a 128th of the interval, is looked at in 6 Gauss points and at 2 random times: a pulse as long
    as 1 % of the interval is always seen, one of 0.1 % in about half of the cases. It takes some thousand evaluations,
    and d times as many for the Jacobian.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> t = np.linspace(0.0, 1.0, 101)
    >>> right, wrong = hf.mittag_leffler(-(t**0.5), 0.5), hf.mittag_leffler(-(t**0.51), 0.51)
    >>> hf.audit(lambda t, y: -y, (t, right[None]), alpha=0.5).ok
    True
    >>> hf.audit(lambda t, y: -y, (t, wrong[None]), alpha=0.5).ok
    False
    """
    if not callable(fun):
        raise InvalidInputError(f"audit: fun={_reading.shown(fun)} is not a function; give fun(t, y)")
    stats = (getattr(solution, "stats", None) or {}).get("equation", {})
    given, seed = _read(solution, t_span), _reading.whole("seed", seed, least=0)
    rtol = None if rtol is None else _reading.number("rtol", rtol, above=0.0)
    if not isinstance(args, tuple | list):
        raise InvalidInputError(f"audit: args={_reading.shown(args)} is not a tuple")
    alpha = stats.get("alpha") if alpha is None else alpha
    if alpha is None:
        raise InvalidInputError(
            "audit: alpha, the order of the equation, is needed for a solution that does not state it"
        )
    n, t0 = math.prod(given.shape), float(given.times[0])
    orders = _fitted("alpha", alpha, given.shape)
    if not np.all(orders > 0.0):
        raise InvalidInputError(f"audit: alpha={alpha!r}; the order has to be above 0")
    values = given.state(given.times)
    if not np.all(np.isfinite(values)):
        where = float(given.times[~np.isfinite(values).all(axis=0)][0])
        return Audit(False, math.inf, math.inf, where, f"The solution is not finite at t = {where:g}.")
    size = np.abs(values).max(axis=1)
    if rtol is not None or "rtol" not in stats:
        allowed = (1e-6 if rtol is None else rtol) * np.where(size > 0.0, size, 1.0)
    else:
        allowed = np.broadcast_to(np.asarray(stats["atol"], dtype=float), given.shape).ravel() + stats["rtol"] * size
    slopes = stats.get("dy0") or [] if dy0 is None else _reading.listed("dy0", dy0, "arrays")
    initial = [values[:, 0], *(_fitted("dy0", each, given.shape) for each in slopes)]
    if len(initial) < math.ceil(orders.max()):
        raise InvalidInputError(f"audit: dy0, the derivatives at the start, are needed for alpha={alpha!r}")

    def f(t: float, y: Array) -> Array:
        return np.asarray(fun(t, y.reshape(given.shape), *args), dtype=float).reshape(n)

    panels, left_open = _resolve(f, given, orders, allowed, np.random.default_rng(seed))
    ends, error, defect = _errors(f, given, panels, orders, initial, t0, allowed)
    over = np.abs(error) / allowed[:, None]
    worst = np.unravel_index(int(np.nanargmax(np.where(np.isnan(over), np.inf, over))), over.shape)
    ratio, t = float(over[worst]), float(ends[worst[1]])
    bound = float((_SAFETY * np.abs(error).max(axis=1) + left_open).max())
    ok = ratio <= 1.0
    verdict = f"within the tolerance ({ratio:.2g} of it)" if ok else f"{ratio:.3g} times the tolerance"
    message = f"The error is {verdict}; it is largest at t = {t:.6g}, and at most about {bound:.2g}."
    return Audit(ok, bound, defect, t, message)


def _fitted(name: str, value: Any, shape: tuple[int, ...]) -> Array:
    """One number for each component."""
    found = _reading.numbers(name, to_host(value) if is_array(value) else value)
    try:
        return np.broadcast_to(found, shape).ravel()
    except ValueError:
        raise ShapeError(f"audit: {name} has shape {found.shape}, and the solution {shape}; give one number") from None


def _read(solution: Any, t_span: Any) -> _Solution:
    """The solution as a function of time."""
    if callable(solution):
        if t_span is None:
            raise InvalidInputError("audit: t_span=(start, end) is needed for a solution that is a function")
        times = np.array(_reading.pair("t_span", t_span))
        if not times[0] < times[1]:
            raise InvalidInputError(f"audit: t_span={_reading.shown(t_span)}; the end has to be later than the start")
        shape = np.shape(solution(times[0]))
        return _Solution(lambda t: np.stack([np.ravel(solution(float(x))) for x in t], axis=1), times, shape, True)
    result = hasattr(solution, "t") and hasattr(solution, "y")
    if not result and not (isinstance(solution, tuple | list) and len(solution) == 2):
        shown = _reading.shown(solution)
        raise InvalidInputError(f"audit: solution={shown}; give a result, (t, y), or a function of t")
    t, y = (solution.t, solution.y) if result else solution
    times, values = (
        _reading.numbers(name, to_host(each) if is_array(each) else each, finite=name == "t")
        for name, each in (("t", t), ("y", y))
    )
    if times.ndim != 1 or times.size < 2 or values.ndim < 2 or values.shape[-1] != times.size:
        raise InvalidInputError(
            f"audit: t of shape {times.shape} and y of shape {values.shape}; y has to have the shape (..., d, N) "
            "for N times t, at least 2"
        )
    if not np.all(np.diff(times) > 0.0):
        raise InvalidInputError("audit: the times have to increase")
    shape = values.shape[:-1]
    flat = values.reshape(-1, times.size)
    sol = getattr(solution, "sol", None)
    if sol is not None:
        return _Solution(lambda t: np.asarray(sol(t)).reshape(-1, np.size(t)), times, shape, True)
    if not np.all(np.isfinite(flat)):
        return _Solution(lambda t: flat, times, shape, False)
    pieces = interpolate.PchipInterpolator(times, flat, axis=1)
    return _Solution(lambda t: np.asarray(pieces(t)), times, shape, False)


class _Panels(NamedTuple):
    """Panels in order: left ends and widths, shape (m,), and states and right-hand sides, (m, n, points)."""

    left: Array
    width: Array
    y: Array
    f: Array


def _resolve(
    f: Callable[..., Array], given: _Solution, orders: Array, allowed: Array, rng: np.random.Generator
) -> tuple[_Panels, Array]:
    """Panels on which f along the solution is a polynomial up to a share of the tolerance; and what is left open."""
    times = given.times[:: max(1, given.times.size // 1_000)]
    edges = np.union1d(np.append(times, given.times[-1]), np.linspace(times[0], given.times[-1], _LEAST + 1))
    # The error starts like t^alpha even where f along the solution does not: halves towards the start.
    halvings = np.arange(1, math.ceil(15.0 / orders.min()) + 7)
    edges = np.union1d(edges, edges[0] + (edges[-1] - edges[0]) * 2.0**-halvings)
    todo = [(a, b - a) for a, b in itertools.pairwise(edges.tolist())]
    kept: list[tuple[float, float, Array, Array]] = []
    left_open = np.zeros(orders.size)
    for round_ in range(_HALVINGS + 1):
        halves: list[tuple[float, float]] = []
        for a, width in todo:
            x = np.append(_X, np.sort(rng.random(2)))
            y = given.state(a + width * x)
            values = np.stack([f(t, y[:, i]) for i, t in enumerate(a + width * x)], axis=1)
            missed = np.abs(values[:, _POINTS:] - values[:, :_POINTS] @ _basis(x[_POINTS:]).T).max(axis=1)
            open_ = width**orders / special.gamma(1.0 + orders) * missed
            last = round_ == _HALVINGS or len(kept) + len(halves) > _MOST or width < 1e-13 * edges[-1]
            if last or np.all(open_ <= _UNRESOLVED * allowed):
                left_open = np.maximum(left_open, open_)
                kept.append((a, width, y[:, :_POINTS], values[:, :_POINTS]))
            else:
                halves += [(a, 0.5 * width), (a + 0.5 * width, 0.5 * width)]
        todo = halves
        if not todo:
            break
    kept.sort(key=lambda panel: panel[0])
    return _Panels(*(np.array(part) for part in zip(*kept, strict=True))), left_open


def _own(order: float, x: Array) -> Array:
    """Weights of a panel's values in the integral from its left end to ``x`` of its width, in units of width^order."""
    nodes, weights = special.roots_jacobi(_POINTS + 2, order - 1.0, 0.0)
    nodes, weights = 0.5 * (nodes + 1.0), weights / 2.0**order / special.gamma(order)
    return np.stack([c**order * (weights @ _basis(c * nodes)) for c in x])


def _earlier(order: float, times: Array, panels: _Panels, count: int) -> Array:
    """Weights of the values on the first panels in the integral up to later times, (times, count * points)."""
    left, width = panels.left[:count], panels.width[:count]
    distance = times[:, None, None] - (left[:, None] + width[:, None] * _X)
    weights = np.abs(distance) ** (order - 1.0) * (width[:, None] * _W) / special.gamma(order)
    near = np.flatnonzero(times.min() - left - width < 1.5 * width)
    for k in near:
        # In the logarithm of the distance the integrand is smooth however near the panel is.
        low, high = np.log(times - left[k] - width[k]), np.log(times - left[k])
        half = 0.5 * (high - low)[:, None]
        away = np.exp(half * _LOG_X + 0.5 * (high + low)[:, None])
        places = _basis((times[:, None] - away - left[k]) / width[k])
        weights[:, k] = np.einsum("tq,tqp->tp", half * _LOG_W * away**order / special.gamma(order), places)
    return np.asarray(weights.reshape(times.size, count * _POINTS))


def _errors(
    f: Callable[..., Array],
    given: _Solution,
    panels: _Panels,
    orders: Array,
    initial: list[Array],
    t0: float,
    allowed: Array,
) -> tuple[Array, Array, float]:
    """Times, errors there (n, times) by Newton's method for the equation of the error, and the largest defect."""
    n, targets = orders.size, np.append(_X, 1.0)
    groups = [(order, np.flatnonzero(orders == order)) for order in np.unique(orders)]
    own = {order: _own(order, targets) for order, _ in groups}
    slopes = np.linalg.solve(_X[:, None] ** np.arange(_POINTS), np.eye(_POINTS))
    ders = {n_: _slopes(n_, slopes) for n_ in {math.ceil(order) for order, _ in groups}}
    fractions = {order: math.ceil(order) - order for order, _ in groups}
    own_slope = {order: _own(fraction, targets) for order, fraction in fractions.items() if fraction}
    count = panels.left.size
    source = np.zeros((n, count * _POINTS))  # -f(y_h - e), whose integral is e - y_h + T
    raised = {order: np.zeros((which.size, count * _POINTS)) for order, which in groups}
    times, errors, defect = [], [], 0.0
    nodes = given.times
    for m in range(count):
        a, width = float(panels.left[m]), float(panels.width[m])
        t = a + width * targets
        y = np.concatenate([panels.y[m], given.state(t[-1:])], axis=1)
        jacobian = np.stack([_jacobian(f, t[j], y[:, j], panels.f[m][:, j]) for j in range(_POINTS)])
        known = y - sum(
            each[:, None] * (t - t0) ** k / math.factorial(k) * (k < np.ceil(orders))[:, None]
            for k, each in enumerate(initial)
        )
        inside = np.zeros((n, targets.size, _POINTS))
        for order, which in groups:
            inside[which] = own[order] * width**order
            known[which] += (
                source[which, : m * _POINTS] @ _earlier(order, t, panels, m).T - panels.f[m][which] @ inside[which[0]].T
            )
            raised[order][:, m * _POINTS : (m + 1) * _POINTS] = (
                panels.y[m][which] @ ders[math.ceil(order)].T / width ** math.ceil(order)
            )
            if a - t0 >= 0.01 * (given.times[-1] - t0):
                rate = raised[order][:, m * _POINTS : (m + 1) * _POINTS]
                if fraction := fractions[order]:
                    rate = rate @ (own_slope[order][:_POINTS] * width**fraction).T
                    rate = rate + raised[order][:, : m * _POINTS] @ _earlier(fraction, t[:_POINTS], panels, m).T
                defect = max(defect, float(np.abs(rate - panels.f[m][which]).max()))
        # e_i(t) - sum_j inside_i(t, j) sum_l f_y(j)_il e_l(j) = known_i(t), at the Gauss points.
        system = np.eye(n * _POINTS).reshape(n, _POINTS, n, _POINTS) - np.einsum(
            "itj,jil->itlj", inside[:, :_POINTS], jacobian
        )
        solver = np.linalg.inv(system.reshape(n * _POINTS, -1))
        error, grown = np.zeros((n, _POINTS)), np.zeros((n, _POINTS))
        for _ in range(_NEWTON):
            rest = known[:, :_POINTS] + np.einsum("itj,ij->it", inside[:, :_POINTS], grown) - error
            if np.all(np.abs(rest).max(axis=1) <= 1e-3 * _UNRESOLVED * allowed):
                break
            error = error + (solver @ rest.ravel()).reshape(n, _POINTS)
            corrected = np.stack([f(t[j], y[:, j] - error[:, j]) for j in range(_POINTS)], axis=1)
            grown = panels.f[m] - corrected
        end = known[:, -1] + np.einsum("ij,ij->i", inside[:, -1], grown)
        source[:, m * _POINTS : (m + 1) * _POINTS] = grown - panels.f[m]
        if given.between:
            times += t.tolist()
            errors.append(np.column_stack([error, end]))
        elif (k := int(np.searchsorted(nodes, t[-1] - 1e-12 * abs(t[-1])))) < nodes.size and math.isclose(
            nodes[k], t[-1], rel_tol=1e-12
        ):
            times.append(float(t[-1]))
            errors.append(end[:, None])
    return np.array(times), np.concatenate(errors, axis=1), defect


def _slopes(order: int, powers: Array) -> Array:
    """The matrix of the derivative of that order of the polynomials through the Gauss points, at these."""
    k = np.arange(_POINTS)
    factor = special.poch(k - order + 1.0, order)
    return np.asarray((np.where(k >= order, factor, 0.0) * _X[:, None] ** np.maximum(k - order, 0)) @ powers)


def _jacobian(f: Callable[..., Array], t: float, y: Array, value: Array) -> Array:
    step = 1e-7 * np.maximum(np.abs(y), 1e-3 * max(1.0, float(np.abs(y).max())))
    return np.stack([(f(t, y + change) - value) / change.max() for change in np.diag(step)], axis=1)

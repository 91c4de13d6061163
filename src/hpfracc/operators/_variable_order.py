"""The Caputo derivative of variable order."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Unpack, final

import numpy as np

from hpfracc._arrays import device_of, is_array, library_of, refuse_masked, to_host, tracks_gradient
from hpfracc._xp import Namespace, namespace_of, of_variables
from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.operators._caputo import Caputo
from hpfracc.operators.core.applying import estimated_distance, largest_nearby, no_estimate, pick_rule, unmeasured
from hpfracc.operators.core.base import CallOptions, FractionalOperator, function_of
from hpfracc.operators.core.function import Function, refuse_initial
from hpfracc.operators.core.grids import Grid, known_values
from hpfracc.operators.core.order import Order, read_order
from hpfracc.operators.core.reporting import Outcome
from hpfracc.operators.core.sequences import power_differences, trapezoid_defects
from hpfracc.operators.core.spectral import differentiate
from hpfracc.operators.core.values import Samples, constant, join, scalar, zeros
from hpfracc.operators.core.weights import weights_key, weights_of
from hpfracc.operators.rules.increments import increments
from hpfracc.operators.rules.l1 import L1Rule
from hpfracc.operators.rules.start import FittedStart, read_initial

__all__ = ["VariableOrder", "Varying", "of_function", "of_samples", "variable_order"]

_PLACES = ("t", "s", "t-s")


@final
@dataclass(frozen=True, slots=True)
class VariableOrder(FractionalOperator):
    r"""Caputo derivative whose order depends on the time t, the past time s, or the lag t - s.

    .. math::
        \texttt{at="t"}:\quad & D f(t) = \frac{1}{\Gamma(n-\alpha(t))}
        \int_{t_0}^{t} (t-s)^{n-1-\alpha(t)} f^{(n)}(s)\,ds, \quad n-1 < \alpha \le n, \\
        \texttt{at="s"}:\quad & D f(t) = \int_{t_0}^{t} \frac{(t-s)^{-\alpha(s)}}{\Gamma(1-\alpha(s))} f'(s)\,ds, \\
        \texttt{at="t-s"}:\quad & D f(t) = \int_{t_0}^{t} \frac{(t-s)^{-\alpha(t-s)}}{\Gamma(1-\alpha(t-s))} f'(s)\,ds,
        \quad 0 < \alpha \le 1.

    The first is, at each t, the constant-order derivative of order alpha(t); it is Coimbra's for f continuous at the
    origin. In the second the order is that of the past time s, in the third that of the lag t - s: the two types of
    Lorenzo and Hartley. All are exactly zero on constants, and equal the Caputo derivative if alpha is constant.
    Otherwise the three differ, and none has an inverse of the same kind.

    Parameters
    ----------
    alpha : callable, array or float
        The order as a function of an array of points t (of lags t - t0 for ``at="t-s"``), or its samples at the points
        of f. A tensor or JAX array is differentiable, point by point. All values must lie in one interval (n-1, n].
    at : {"t", "s", "t-s"}
        What the order depends on.
    method : str
        For samples on a uniform grid and ``at="t"``: ``"l1-2"`` (order n + 2 - alpha(t) at t; used by ``"auto"``)
        or ``"l1"`` (n + 1 - alpha(t)); on any other grid ``"l1"`` or ``"fast"``. For the other two, on uniform grids
        only, ``"l1"``, of order 2 - alpha(t) and 2 - alpha(0): f and the effect of alpha are interpolated linearly. For
        callables ``"spectral"`` or ``"graded"`` (not for ``at="t-s"``, which takes samples).
    ceiling : int, optional
        The integer n, needed only if ``alpha`` is traced and above 1.
    initial : sequence, optional
        For samples and orders above 1: as for :class:`Caputo`, the derivatives 1 to n - 1 at the origin.
        The fit without them has powers of :math:`t^{\alpha(t_0)}`; for traced orders it is a polynomial.

    Notes
    -----
    The cost is O(M n log n) for n samples on a uniform grid, not O(n^2). The derivative is an entire function of its
    order, so it is computed at M = 24 + log n Chebyshev orders of (n-1, n] by the rule of :class:`Caputo` and
    interpolated, to rounding accuracy.

    References
    ----------
    C. F. M. Coimbra, Ann. Phys. 12 (2003) 692-703; C. F. Lorenzo, T. T. Hartley, Nonlinear Dynam. 29 (2002) 57-98.
    """

    alpha: Any
    at: str = "t"
    method: str = "auto"
    ceiling: int | None = None
    initial: Any = None

    definition = "variable_order"
    short_names = ("VO", "coimbra")
    who = "the derivative of variable order"
    formula = (
        r"\frac{1}{\Gamma(n-\alpha(t))} \int_{t_0}^{t} (t-s)^{n-1-\alpha(t)} f^{(n)}(s)\,ds"
        r"\quad\text{(or with } \alpha(s),\ \alpha(t-s) \text{ inside)}"
    )
    rules = Caputo.rules
    any_grid_rules = Caputo.any_grid_rules

    def _order_like(self) -> Any:
        return self.alpha if is_array(self.alpha) else None

    def _varying(self) -> Varying:
        if self.at not in _PLACES:
            raise InvalidInputError(f"at={self.at!r} is not known; the order depends on one of {', '.join(_PLACES)}")
        return Varying(self.alpha, self.ceiling)

    def _of_samples(self, samples: Samples) -> Outcome:
        return of_samples(samples, self._varying(), self.at, self)

    def _of_function(self, function: Function) -> Outcome:
        refuse_initial(self.initial, self.who)
        return of_function(function, self._varying(), self.at, self.method)


@function_of(VariableOrder)
def variable_order(
    f: Any,
    t: Any = None,
    alpha: Callable[[Any], Any] | Any = None,
    *,
    at: str = "t",
    method: str = "auto",
    ceiling: int | None = None,
    initial: Any = None,
    **options: Unpack[CallOptions],
) -> Any:
    """Caputo derivative of variable order, of samples or of a callable.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> t = np.linspace(0.0, 1.0, 101)
    >>> value = hf.variable_order(t, t, lambda t: 0.5 + 0.4 * t)  # at t = 1: order 0.9
    >>> bool(np.isclose(value[-1], hf.caputo(t, t, 0.9)[-1]))
    True
    """
    return VariableOrder(alpha, at, method, ceiling, initial)(f, t, **options)


_WHO = "the derivative of variable order"
#: Number of Chebyshev orders for a callable, whose values span as many decades as its points.
_NODES_OF_FUNCTIONS = 40
#: Cache key of the weights of constant orders.
_PIECES = "varying"

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Varying:
    """An order as a callable, an array or a number, and its ceiling if that cannot be read."""

    alpha: Any
    ceiling: int | None

    def at(self, points: Callable[[], Array], count: int, what: str) -> Any:
        """The order at each of ``count`` points, a float64 array of its own library; errors call the points ``what``.

        The points are computed only if the order is a function of them.
        """
        if self.alpha is None or isinstance(self.alpha, bool | str):
            raise InvalidInputError(f"alpha={self.alpha!r} is not an order; give a number, an array or a function")
        refuse_masked(self.alpha, "alpha", "t")
        alpha = self.alpha(points()) if callable(self.alpha) and not is_array(self.alpha) else self.alpha
        xp = namespace_of(alpha)
        try:
            with xp.scope():
                values = xp.array(alpha)
        except (TypeError, ValueError) as error:
            raise InvalidInputError(f"alpha is not an array of real orders ({error}); use numbers like 0.5") from None
        if values.shape == ():
            with xp.scope():
                values = values + xp.array(np.zeros(count))
        if tuple(values.shape) != (count,):
            raise ShapeError(f"alpha has shape {tuple(values.shape)}; it must have one order for each of {what}")
        return values

    def interval(self, values: Any) -> int:
        """The integer n with ``n - 1 < alpha <= n`` for all of them; raises an error if there is none."""
        known = known_values(values)
        if known is None:
            return 1 if self.ceiling is None else self.ceiling
        if not np.isfinite(known).all():
            raise InvalidInputError(f"alpha is {known[~np.isfinite(known)][0]} at a point; orders are finite")
        low, high = float(known.min()), float(known.max())
        n = math.ceil(high)
        if n < 1 or low <= n - 1 or (self.ceiling is not None and self.ceiling != n):
            raise InvalidInputError(
                f"alpha runs from {low:g} to {high:g}; a derivative of variable order keeps within one interval "
                f"(n-1, n] of whole numbers from 0 on{'' if self.ceiling is None else f', here ceiling={self.ceiling}'}"
            )
        return n


def _nodes(n: int, count: int) -> Array:
    """Chebyshev orders in (n-1, n)."""
    return n - 0.5 + 0.5 * np.cos((np.arange(count) + 0.5) * np.pi / count)


def _shares(xp: Namespace, alpha: Any, n: int, count: int, known: bool) -> tuple[Any, ...]:
    """The weight of the operator at each Chebyshev order for each order alpha, one row per Chebyshev order."""
    found: tuple[Any, ...] = of_variables(xp, lambda alpha: _make_shares(xp, alpha, n, count, known))(alpha)
    return found


def _make_shares(xp: Namespace, alpha: Any, n: int, count: int, known: bool) -> tuple[Any, ...]:
    angles = (np.arange(count) + 0.5) * np.pi / count
    matrix = 2.0 / count * np.cos(np.arange(count) * angles[:, None])
    matrix[:, 0] *= 0.5
    x = 2.0 * (alpha - n) + 1.0
    table = [0.0 * x + 1.0, x]
    for _ in range(count - 2):
        table.append(2.0 * x * table[-1] - table[-2])
    shares = xp.matmul(xp.array(matrix), xp.stack(table))
    return tuple(shares if known else xp.where((alpha > n - 1) & (alpha <= n), shares, math.nan))


def _beside(alpha: Any, values: Any) -> tuple[Namespace, Any]:
    """The orders on the device of the samples, in a library that can be multiplied with them."""
    if library_of(alpha) in ("torch", "jax") and library_of(alpha) != library_of(values):
        raise InvalidInputError(
            f"alpha gives arrays of {library_of(alpha)} but f is of {library_of(values)}; convert them to one library"
        )
    if library_of(alpha) == "torch" and device_of(alpha) != device_of(values):
        alpha = alpha.to(values.device)
    return namespace_of(alpha), alpha


def _is_known(alpha: Any) -> bool:
    return known_values(alpha) is not None


def of_samples(samples: Samples, varying: Varying, at: str, operator: Any) -> Outcome:
    """The derivative of samples whose order depends on ``at``, by the method and the rules of ``operator``."""
    method = operator.method
    step = samples.grid.step
    if callable(varying.alpha) and not is_array(varying.alpha) and library_of(step) in ("torch", "jax"):
        _refuse_moving_points(step)
    if at == "t":
        return _by_time(samples, varying, pick_rule(operator, method, _WHO, samples.grid), operator.initial)
    samples.grid.require_uniform(f"{_WHO} at={at!r}")
    if method not in ("auto", "l1"):
        raise InvalidInputError(f"method={method!r} is for at='t'; for at={at!r} use 'auto' or 'l1'")
    rule = L1Rule()
    rule.check(samples, read_order(0.5), _WHO)
    start = samples.grid.origin if at == "t-s" else 0.0
    alpha = varying.at(lambda: samples.grid.times() - start, samples.n, f"{samples.n} samples")
    if varying.interval(alpha) != 1:
        raise InvalidInputError(f"at={at!r} takes orders in (0, 1]; use at='t' above")
    read_initial(operator.initial, read_order(0.5), _WHO)
    xp, alpha = _beside(alpha, samples.values)
    with np.errstate(invalid="ignore"):
        value = (_by_past if at == "s" else _by_lag)(samples, xp, alpha)
    return Outcome(value, "l1", message=f"no error estimate for at={at!r}")


def _refuse_moving_points(step: Any) -> None:
    if tracks_gradient(step):
        raise InvalidInputError(
            f"{_WHO} has no gradient in the step if its order is a function, which is called with plain numbers; "
            "detach the step, or give the orders at the points as an array"
        )


def _by_time(samples: Samples, varying: Varying, rule: Any, initial: Any) -> Outcome:
    x = samples.values
    if not samples.n:
        rule.check(samples, read_order(0.5), _WHO)
    alpha = varying.at(samples.grid.times, samples.n, f"{samples.n} samples")
    n = varying.interval(alpha)
    xp, alpha = _beside(alpha, x)
    rule.check(samples, read_order(n - 0.5), _WHO)
    given = read_initial(initial, read_order(n - 0.5), _WHO)
    known = known_values(alpha)
    exponent = read_order(float(n) if known is None or not n - 1 < known[0] < n else float(known[0]), ceiling=n)
    unit, scale, reach = samples, None, float(samples.n)
    if samples.grid.uniform:
        unit, scale = replace(samples, grid=Grid(samples.n, 0.0, 1.0)), _scale(samples, alpha)
        width = samples.grid.step
    else:
        # In units of the mean step, the kernel extends from the shortest step to the longest lag.
        grid, times = samples.grid, samples.grid.times()
        width = float(times[-1] - times[0]) / (samples.n - 1)
        places = (times - times[0]) / width
        traced = None if grid.traced is None else (grid.traced - grid.traced[0]) / width
        unit, scale = replace(samples, grid=Grid(samples.n, 0.0, None, places, traced)), _scale(samples, alpha, width)
        reach = samples.n / min(1.0, float(np.diff(places).min()))
    plain_rule = rule
    if n > 1:
        scaled = None if given is None else tuple(one * scalar(width, x) ** k for k, one in enumerate(given, 1))
        rule = FittedStart(rule, scaled)
    count = 24 + round(math.log(reach))
    with xp.scope():
        shares = _shares(xp, alpha, n, count, _is_known(alpha))

    def combine(part: Callable[[Order], Any]) -> Any:
        total: Any = None
        with np.errstate(invalid="ignore"):
            for share, node in zip(shares, _nodes(n, count), strict=True):
                one = part(read_order(float(node))) * constant(share, x)
                total = one if total is None else total + one
            return total if scale is None else total * scale

    def apply(rule: Any, some: Samples) -> Any:
        if some is not samples:
            return _by_time(some, Varying(alpha[::2], n), plain_rule, initial).value
        return combine(lambda order: rule.apply(unit, order, exponent) if n > 1 else rule.apply(unit, order))

    value = apply(rule, samples)
    middle = read_order(n - 0.5)

    def error() -> Any:
        distance = estimated_distance(rule, samples, middle, value, apply)
        if n > 1:
            # As a sum of signed terms: the interpolation between orders is linear in them.
            distance = distance + abs(combine(lambda order: rule.start_error(unit, order, exponent)))
        return largest_nearby(unmeasured(distance, rule.measured_from(middle)))

    missing = no_estimate(rule, samples, middle)
    return Outcome(value, rule.name, None if missing else error, message=missing)


def _scale(samples: Samples, alpha: Any, width: float | None = None) -> Any:
    """``step ** -alpha`` at each point, or that of another ``width``, as a factor for the values."""
    x, step = samples.values, samples.grid.step if width is None else width
    if library_of(step) in ("torch", "jax"):
        return scalar(step, x) ** (-constant(alpha, x))
    xp = namespace_of(alpha)
    with xp.scope():
        return constant(xp.exp(-alpha * math.log(float(step))), x)


def _by_past(samples: Samples, xp: Namespace, alpha: Any) -> Any:
    """Distribute each increment over the Chebyshev orders by the orders at its ends, and convolve each share."""
    x = samples.values
    count = 24 + round(math.log(samples.n))
    with xp.scope():
        shares = _shares(xp, alpha, 1, count, _is_known(alpha))
    steps, scale, none = increments(x, 1)[..., 1:], _scale(samples, alpha), zeros(x, 1)
    total: Any = None
    for row, node in zip(shares, _nodes(1, count), strict=True):
        order = read_order(float(node))
        mean, tilt = weights_of(_PIECES, _make_pieces, order, samples.n)
        key = weights_key(_PIECES, order, samples.n)
        share = constant(row, x) * scale
        middle, slope = 0.5 * (share[1:] + share[:-1]), share[1:] - share[:-1]
        part = samples.convolve(mean, join([none, steps * middle]), (key, "mean"))
        part = part + samples.convolve(tilt, join([none, steps * slope]), (key, "tilt"))
        total = part if total is None else total + part
    return total


def _by_lag(samples: Samples, xp: Namespace, alpha: Any) -> Any:
    """One convolution, with weights distributed over the Chebyshev orders in the same way."""
    x, n = samples.values, samples.n
    count = 24 + round(math.log(n))
    with xp.scope():
        shares = _shares(xp, alpha, 1, count, _is_known(alpha))
    scale = _scale(samples, alpha)
    weights: Any = 0.0
    for row, node in zip(shares, _nodes(1, count), strict=True):
        mean, tilt = weights_of(_PIECES, _make_pieces, read_order(float(node)), n)
        share = constant(row, x) * scale
        weights = weights + 0.5 * (share[1:] + share[:-1]) * constant(mean[:-1], x)
        weights = weights - (share[1:] - share[:-1]) * constant(tilt[:-1], x)
    steps = increments(x, 1)
    return join([steps[..., :1], samples.convolve(weights, steps[..., 1:])])


def _make_pieces(xp: Namespace, order: Any, n: int) -> tuple[Any, Any]:
    """Mean of the kernel of a constant order over every interval, and its trapezoidal defect, at step 1."""
    scale = xp.rgamma(2.0 - order)
    return power_differences(xp, 1.0 - order, n) * scale, trapezoid_defects(xp, 1.0 - order, n) * scale


def of_function(function: Function, varying: Varying, at: str, method: str) -> Outcome:
    """The derivative of a callable."""
    if at == "t-s":
        raise InvalidInputError("at='t-s' takes samples, not a callable; give f(t) on a uniform grid")
    wanted = function.points
    kept = replace(function, f=_remembered(function.f))
    if at == "t":
        alpha = varying.at(lambda: wanted, len(wanted), f"{len(wanted)} points")
        n = varying.interval(alpha)
        xp, alpha = _beside(alpha, function.at(wanted[:1]))
        with xp.scope():
            shares = _shares(xp, alpha, n, _NODES_OF_FUNCTIONS, _is_known(alpha))
        found = [
            differentiate(kept, read_order(float(node)), method, initial_terms=False)
            for node in _nodes(n, _NODES_OF_FUNCTIONS)
        ]
        return _combined([(one, constant(share, one.value)) for one, share in zip(found, shares, strict=True)])
    if is_array(varying.alpha):
        raise InvalidInputError("at='s' of a callable needs the order between the points; give alpha as a callable")
    if function.factor != 0.0:
        raise InvalidInputError(f"factor={function.factor:g}: at='s' needs a derivative at the origin; give samples")

    def slope(points: Array) -> Any:
        return differentiate(replace(kept, points=points), read_order(1.0), "auto", initial_terms=False).value

    found_parts = []
    slopes = _remembered(lambda t: slope(to_host(t).astype(np.float64)))
    for index, node in enumerate(_nodes(1, _NODES_OF_FUNCTIONS)):

        def part(t: Any, index: int = index) -> Any:
            alpha = varying.at(lambda: to_host(t).astype(np.float64), len(t), "the points of f")
            if varying.interval(alpha) != 1:
                raise InvalidInputError("at='s' takes orders in (0, 1]; use at='t' above")
            values = slopes(t)
            xp, alpha = _beside(alpha, values)
            with xp.scope():
                share = _shares(xp, alpha, 1, _NODES_OF_FUNCTIONS, True)[index]
            return values * constant(share, values)

        inner = replace(function, f=part, axis=-1)
        found_parts.append((differentiate(inner, read_order(float(node) - 1.0), method, initial_terms=False), 1.0))
    return _combined(found_parts)


def _combined(parts: list[tuple[Outcome, Any]]) -> Outcome:
    total = sum((one.value * share for one, share in parts[1:]), parts[0][0].value * parts[0][1])
    first = parts[0][0]

    def error() -> Any:
        found = (abs(share) * float(np.max(to_host(one.error()))) for one, share in parts if one.error is not None)
        return sum(found)

    methods = {one.method for one, _ in parts}
    return Outcome(
        total,
        first.method if len(methods) == 1 else "graded",
        error if all(one.error is not None for one, _ in parts) else None,
        all(one.converged for one, _ in parts),
        f"at {len(parts)} constant orders; the first: {first.message}",
        first.rtol,
        looked=all(one.looked for one, _ in parts),
    )


def _remembered(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The function f, called once per array of points: every order needs the same ones."""
    seen: dict[bytes, Any] = {}

    def call(t: Any) -> Any:
        key = to_host(t).tobytes()
        if key not in seen:
            seen[key] = f(t)
        return seen[key]

    return call

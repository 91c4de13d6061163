"""The Caputo derivative of variable order."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Unpack, final

import numpy as np

from hpfracc._arrays import device_of, is_array, library_of, refuse_masked, to_host, tracks_gradient
from hpfracc._choices import L1Name
from hpfracc._reading import choice
from hpfracc._xp import Namespace, namespace_of, of_variables
from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.operators._caputo import Caputo
from hpfracc.operators.core.applying import apply_rule, pick_rule
from hpfracc.operators.core.base import FractionalOperator, function_of
from hpfracc.operators.core.call_types import MISSING, InitialOptions, OrderOrFunction
from hpfracc.operators.core.function import Function, called_once
from hpfracc.operators.core.grids import Grid, known_values
from hpfracc.operators.core.order import Order, read_order
from hpfracc.operators.core.reporting import Outcome, weighted_outcome
from hpfracc.operators.core.rule import DelegatingRule, Rule
from hpfracc.operators.core.sequences import power_differences, trapezoid_defects
from hpfracc.operators.core.spectral import differentiate
from hpfracc.operators.core.values import Samples, constant, join, scalar, weights_key, weights_of, zeros
from hpfracc.operators.rules.differences import increments
from hpfracc.operators.rules.l1 import L1Rule
from hpfracc.operators.rules.start import FittedStart, read_initial

#: What the order may depend on.
_PLACES = ("t", "s", "t-s")
#: Number of Chebyshev orders for a callable, whose values span as many decades as its points.
_NODES_OF_FUNCTIONS = 40
#: Cache key of the weights of constant orders.
_PIECES = "varying"
Array = np.ndarray[Any, Any]


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

    alpha: OrderOrFunction | Sequence[float]
    at: str = "t"
    method: L1Name = "auto"
    ceiling: int | None = None
    initial: Any = None

    definition = "variable_order"
    short_names = ("VO", "coimbra")
    who = "the derivative of variable order"
    formula = (
        r"D^{\alpha(t)} f(t) = \frac{1}{\Gamma(n-\alpha(t))} \int_{t_0}^{t} (t-s)^{n-1-\alpha(t)} f^{(n)}(s)\,ds"
        r"\quad\text{(or with } \alpha(s),\ \alpha(t-s) \text{ inside)}"
    )
    inner = Caputo

    def _order_like(self) -> Any:
        return self.alpha if is_array(self.alpha) else None

    def _orders(self, points: Callable[[], Array], count: int, what: str) -> Any:
        """The order at each of ``count`` points, a float64 array of its own library; errors call the points ``what``.

        ``points`` computes them; they are needed only for an order given as a function.
        """
        alpha = self.alpha
        if alpha is None or isinstance(alpha, bool | str):
            raise InvalidInputError(f"alpha={alpha!r} is not an order; give a number, an array or a function")
        refuse_masked(alpha, "alpha", "t")
        alpha = alpha(points()) if callable(alpha) and not is_array(alpha) else alpha
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

    def _interval(self, values: Any) -> int:
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
        if n > 1 and self.at != "t":
            raise InvalidInputError(f"at={self.at!r} takes orders in (0, 1]; use at='t' above")
        return n

    def _of_samples(self, samples: Samples) -> Outcome:
        choice("at", self.at, _PLACES)
        grid, step = samples.grid, samples.grid.step
        if callable(self.alpha) and not is_array(self.alpha) and library_of(step) != "python" and tracks_gradient(step):
            raise InvalidInputError(
                f"{self.who} has no gradient in the step if its order is a function, which is called with plain "
                "numbers; detach the step, or give the orders at the points as an array"
            )
        if self.at == "t":
            rule = pick_rule(self, self.method, self.who, grid)
            if not samples.n:
                rule.check(samples, read_order(0.5), self.who)
            alpha = self._orders(grid.times, samples.n, f"{samples.n} samples")
            n = self._interval(alpha)
            middle = read_order(n - 0.5)
            initial = read_initial(self.initial, middle, self.who)
            varying = _Varying(rule, _beside(alpha, samples.values), n, initial)
            return apply_rule(varying, samples, middle, self.who)
        grid.require_uniform(f"{self.who} at={self.at!r}")
        if self.method not in ("auto", "l1"):
            raise InvalidInputError(f"method={self.method!r} is for at='t'; for at={self.at!r} use 'auto' or 'l1'")
        L1Rule().check(samples, read_order(0.5), self.who)
        start = grid.origin if self.at == "t-s" else 0.0
        alpha = self._orders(lambda: grid.times() - start, samples.n, f"{samples.n} samples")
        self._interval(alpha)
        read_initial(self.initial, read_order(0.5), self.who)
        with np.errstate(invalid="ignore"):
            value = (_by_past if self.at == "s" else _by_lag)(samples, _beside(alpha, samples.values))
        return Outcome(value, "l1", message=f"no error estimate for at={self.at!r}")

    def _of_function(self, function: Function) -> Outcome:
        if choice("at", self.at, _PLACES) == "t-s":
            raise InvalidInputError("at='t-s' takes samples, not a callable; give f(t) on a uniform grid")
        kept, points = replace(function, f=called_once(function.f)), function.points
        if self.at == "t":
            alpha = self._orders(lambda: points, len(points), f"{len(points)} points")
            shares = _shares(_beside(alpha, function.at(points[:1])), self._interval(alpha), _NODES_OF_FUNCTIONS)
            found = [(differentiate(kept, order, self.method, initial_terms=False), row) for order, row in shares]
            return weighted_outcome(
                [(one, constant(row, one.value)) for one, row in found], f"at {len(found)} constant orders"
            )
        if is_array(self.alpha):
            raise InvalidInputError("at='s' of a callable needs the order between the points; give alpha as a callable")
        if function.factor != 0.0:
            raise InvalidInputError(
                f"factor={function.factor:g}: at='s' needs a derivative at the origin; give samples"
            )

        def slope(t: Any) -> Any:
            there = replace(kept, points=to_host(t).astype(np.float64))
            return differentiate(there, read_order(1.0), "auto", initial_terms=False).value

        slopes, parts = called_once(slope), []
        for index in range(_NODES_OF_FUNCTIONS):

            def part(t: Any, index: int = index) -> Any:
                alpha = self._orders(lambda: to_host(t).astype(np.float64), len(t), "the points of f")
                values, n = slopes(t), self._interval(alpha)
                return values * constant(_shares(_beside(alpha, values), n, _NODES_OF_FUNCTIONS)[index][1], values)

            order = read_order(float(_nodes(1, _NODES_OF_FUNCTIONS)[index]) - 1.0)
            inner = replace(function, f=part, axis=-1)
            parts.append((differentiate(inner, order, self.method, initial_terms=False), 1.0))
        return weighted_outcome(parts, f"at {len(parts)} constant orders")


class VariableOptions(InitialOptions[L1Name], total=False):
    """The options of :func:`variable_order`."""

    at: str


@function_of(VariableOrder, see_also="caputo, solve_fode")
def variable_order(
    f: Any, t: Any = None, alpha: OrderOrFunction | Sequence[float] = MISSING, **options: Unpack[VariableOptions]
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


def _nodes(n: int, count: int) -> Array:
    """Chebyshev orders in (n-1, n)."""
    return n - 0.5 + 0.5 * np.cos((np.arange(count) + 0.5) * np.pi / count)


def _shares(alpha: Any, n: int, count: int) -> list[tuple[Order, Any]]:
    """Chebyshev orders in (n-1, n), and the weight of the operator of each for every order alpha."""
    angles = (np.arange(count) + 0.5) * np.pi / count
    matrix = 2.0 / count * np.cos(np.arange(count) * angles[:, None])
    matrix[:, 0] *= 0.5
    xp, known = namespace_of(alpha), known_values(alpha) is not None

    def make(alpha: Any) -> tuple[Any, ...]:
        x = 2.0 * (alpha - n) + 1.0
        table = [0.0 * x + 1.0, x]
        for _ in range(count - 2):
            table.append(2.0 * x * table[-1] - table[-2])
        shares = xp.matmul(xp.array(matrix), xp.stack(table))
        return tuple(shares if known else xp.where((alpha > n - 1) & (alpha <= n), shares, math.nan))

    with xp.scope():
        rows = of_variables(xp, make)(alpha)
    return [(read_order(float(node)), row) for node, row in zip(_nodes(n, count), rows, strict=True)]


def _beside(alpha: Any, values: Any) -> Any:
    """The orders on the device of the samples, in a library that can be multiplied with them."""
    if library_of(alpha) in ("torch", "jax") and library_of(alpha) != library_of(values):
        raise InvalidInputError(
            f"alpha gives arrays of {library_of(alpha)} but f is of {library_of(values)}; convert them to one library"
        )
    if library_of(alpha) == "torch" and device_of(alpha) != device_of(values):
        alpha = alpha.to(values.device)
    return alpha


@final
class _Varying(DelegatingRule):
    """A rule of :class:`Caputo` at orders that vary from point to point, by those at Chebyshev orders."""

    def __init__(self, rule: Rule, alpha: Any, n: int, initial: tuple[Any, ...] | None) -> None:
        super().__init__(rule)
        self.alpha, self.n, self.initial = alpha, n, initial
        self.one_call = False  # type: ignore[misc]

    def apply(self, samples: Samples, order: Order) -> Any:
        """The rule at every Chebyshev order."""
        return self._combined(samples, lambda rule, *parts: rule.apply(*parts))

    def start_error(self, samples: Samples, order: Order) -> Any:
        """As a sum of signed terms: the interpolation between orders is linear in them."""
        return abs(self._combined(samples, lambda rule, *parts: rule.start_error(*parts))) if self.n > 1 else 0.0

    def _combined(self, samples: Samples, part: Callable[..., Any]) -> Any:
        """The sum of ``part(rule, samples, order)`` over Chebyshev orders, times the share of each at every point."""
        x, grid, n, rule = samples.values, samples.grid, self.n, self.rule
        alpha = self.alpha if samples.n == len(self.alpha) else self.alpha[::2]
        if grid.uniform:
            width, reach, unit = grid.step, float(samples.n), Grid(samples.n, 0.0, 1.0)
        else:
            # In units of the mean step, the kernel extends from the shortest step to the longest lag.
            times = grid.times()
            width = float(times[-1] - times[0]) / (samples.n - 1)
            places = (times - times[0]) / width
            traced = None if grid.traced is None else (grid.traced - grid.traced[0]) / width
            unit = Grid(samples.n, 0.0, None, places, traced)
            reach = samples.n / min(1.0, float(np.diff(places).min()))
        more: tuple[Order, ...] = ()
        if n > 1:
            given = self.initial and tuple(one * scalar(width, x) ** k for k, one in enumerate(self.initial, 1))
            known, rule = known_values(alpha), FittedStart(rule, given)
            first = float(n) if known is None or not n - 1 < known[0] < n else float(known[0])
            more = (read_order(first, ceiling=n),)
        scaled, total = replace(samples, grid=unit), 0.0
        with np.errstate(invalid="ignore"):
            for order, share in _shares(alpha, n, 24 + round(math.log(reach))):
                total = total + part(rule, scaled, order, *more) * constant(share, x)
            return total * _scale(x, alpha, width)


def _scale(x: Any, alpha: Any, width: Any) -> Any:
    """``width ** -alpha`` at each point, as a factor for the values ``x``."""
    if library_of(width) in ("torch", "jax"):
        return scalar(width, x) ** (-constant(alpha, x))
    xp = namespace_of(alpha)
    with xp.scope():
        return constant(xp.exp(-alpha * math.log(float(width))), x)


def _pieces(samples: Samples, alpha: Any) -> Iterator[tuple[Order, Any, Any, Any, Any]]:
    """Constant orders; the mean and slope, over every interval, of their shares times ``step ** -alpha``; weights."""
    x, n = samples.values, samples.n
    scale = _scale(x, alpha, samples.grid.step)
    for order, row in _shares(alpha, 1, 24 + round(math.log(n))):
        share = constant(row, x) * scale
        yield (
            order,
            0.5 * (share[1:] + share[:-1]),
            share[1:] - share[:-1],
            *weights_of(_PIECES, _make_pieces, order, n),
        )


def _by_past(samples: Samples, alpha: Any) -> Any:
    """Distribute each increment over the Chebyshev orders by the orders at its ends, and convolve each share."""
    steps, none = increments(samples.values, 1)[..., 1:], zeros(samples.values, 1)
    total: Any = None
    for order, middle, slope, mean, tilt in _pieces(samples, alpha):
        key = weights_key(_PIECES, order, samples.n)
        part = samples.convolve(mean, join([none, steps * middle]), (key, "mean"))
        part = part + samples.convolve(tilt, join([none, steps * slope]), (key, "tilt"))
        total = part if total is None else total + part
    return total


def _by_lag(samples: Samples, alpha: Any) -> Any:
    """One convolution, with weights distributed over the Chebyshev orders in the same way."""
    x, weights = samples.values, 0.0
    for _, middle, slope, mean, tilt in _pieces(samples, alpha):
        weights = weights + middle * constant(mean[:-1], x) - slope * constant(tilt[:-1], x)
    steps = increments(x, 1)
    return join([steps[..., :1], samples.convolve(weights, steps[..., 1:])])


def _make_pieces(xp: Namespace, order: Any, n: int) -> tuple[Any, Any]:
    """Mean of the kernel of a constant order over every interval, and its trapezoidal defect, at step 1."""
    scale = xp.rgamma(2.0 - order)
    return power_differences(xp, 1.0 - order, n) * scale, trapezoid_defects(xp, 1.0 - order, n) * scale

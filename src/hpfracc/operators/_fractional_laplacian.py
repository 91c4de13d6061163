"""The Riesz and Riesz-Feller derivatives, and the fractional Laplacian in one to three dimensions (or more)."""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Unpack, final

import numpy as np

from hpfracc._arrays import is_chunked, library_of, tracks_gradient
from hpfracc._choices import LaplacianName, RieszName
from hpfracc._reading import number
from hpfracc._xp import array_namespace, namespace_of, user_scope
from hpfracc.engine.execution.api import composite
from hpfracc.engine.selection.decision import join_decisions
from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.operators._riemann_liouville import RiemannLiouville
from hpfracc.operators.core.applying import UNIFORM, apply_rule, order_beside, pick_rule
from hpfracc.operators.core.base import FractionalOperator, function_of
from hpfracc.operators.core.call_types import MISSING, CeilingOptions, MethodOptions, OrderNumber, PeriodOptions
from hpfracc.operators.core.function import Function
from hpfracc.operators.core.grids import Grid, read_grid
from hpfracc.operators.core.order import Order, read_order
from hpfracc.operators.core.reporting import OperatorResult, Outcome, weighted_outcome
from hpfracc.operators.core.rule import Rule, RuleTable, later
from hpfracc.operators.core.values import Samples, as_values, check_axis, flip, points_like, scalar, zeros
from hpfracc.operators.rules.periodic import LaplacianRule, RieszWaves, check_period, of_periodic_function, sampled
from hpfracc.operators.rules.space import Integral


@final
@dataclass(frozen=True, slots=True)
class FractionalLaplacian(FractionalOperator):
    r"""Fractional Laplacian :math:`(-\Delta)^{\alpha/2}`: positive, of order alpha.

    .. math:: (-\Delta)^{\alpha/2} f(x) = C_{d,\alpha} \,\mathrm{p.v.}\!\int_{\mathbb{R}^d}
        \frac{f(x) - f(y)}{|x-y|^{d+\alpha}}\,dy, \quad \text{of waves } |\kappa|^\alpha e^{i\kappa\cdot x}.

    alpha = 2 is minus the Laplacian; the Riesz derivative is minus this operator. On a bounded set several different
    operators have this name; ``method`` selects one.

    Parameters
    ----------
    alpha : float or scalar array
        The order, twice the power :math:`s = \alpha/2`; differentiable if it is a tensor or JAX array.
    method : str
        - ``"integral"`` (used by ``"auto"``): the integral above over the whole space, with f zero outside its samples.
          :math:`0 < \alpha \le 2`. Order 2 if f extended by zero is smooth.
        - ``"periodic"``: by Fourier series, for samples over one period without its end. Any alpha: a negative one
          gives the Riesz potential of f minus its mean.
        - ``"dirichlet"``: the spectral power with f zero on the boundary, by sine series, for samples at the interior
          points, ``np.linspace(a, b, n + 2)[1:-1]``. Any alpha.
        - ``"neumann"``: the spectral power with zero normal derivative, by cosine series, for samples at the midpoints
          of n cells.

    Notes
    -----
    ``axis`` may be several axes; then ``t`` has a grid for each, and ``step`` is one number or one for each. The
    operator is that of the multidimensional space, not a sum over axes. A callable is sampled on the given grid:
    ``f(x)``, or ``f(x, y)`` with arrays of all points (``np.meshgrid(..., indexing="ij")``). Every value depends on
    every sample, so one non-finite sample makes the whole result of its batch non-finite.

    References
    ----------
    M. Kwaśnicki, Fract. Calc. Appl. Anal. 20 (2017) 7-51; A. Lischke et al., J. Comput. Phys. 404 (2020) 109009.
    """

    alpha: OrderNumber
    method: LaplacianName = "auto"

    definition = "fractional_laplacian"
    short_names = ("laplacian", "FL")
    scales = True
    who = "the fractional Laplacian"
    rules = RuleTable(
        {
            "integral": later("space.Integral"),
            "periodic": later("space.PeriodicWaves"),
            "dirichlet": later("space.DirichletWaves"),
            "neumann": later("space.NeumannWaves"),
        }
    )
    grids = ("uniform",)
    unused = ("origin", "factor", "rtol")

    def _call_plain(self, f: Any, t: Any, step: Any, axis: Any, *, full_output: bool, **options: Any) -> Any:
        for name in self.unused:
            if options[name] is not None:
                raise InvalidInputError(f"{name}={options[name]!r}: {self.who} does not take it; omit it")
        if not isinstance(axis, Sequence) or is_chunked(f):
            along = tuple(axis) if isinstance(axis, Sequence) else axis
            return FractionalOperator._call_plain(self, f, t, step, along, full_output=full_output, **options)
        if "noise" in options:
            raise InvalidInputError(f"noise={options['noise']:g}: it is for samples along one axis; omit it")
        return call_over_axes(self, f, t, step, axis, options["backend"], full_output=full_output)

    def _chosen(self) -> tuple[LaplacianRule, Order]:
        """The method, and the order that it must support."""
        rule = pick_rule(self, self.method, self.who, UNIFORM)
        order = read_order(self.alpha)
        assert isinstance(rule, LaplacianRule)
        if isinstance(rule, Integral) and order.known is not None and not 0.0 < order.known <= 2.0:
            raise InvalidInputError(
                f"alpha={order.known:g}: {self.who} by its integral needs an order in (0, 2]; use method='periodic' or "
                "'dirichlet' for others"
            )
        return rule, order

    def _of_samples(self, samples: Samples) -> Outcome:
        rule, order = self._chosen()
        return apply_rule(rule, samples, order, self.who)

    def _of_function(self, function: Function) -> Outcome:
        return self._of_samples(sampled(function, self.who))


@function_of(FractionalLaplacian, see_also="riesz, weyl, solve_fpde")
def fractional_laplacian(
    f: Any, t: Any = None, alpha: OrderNumber = MISSING, **options: Unpack[MethodOptions[LaplacianName]]
) -> Any:
    r"""Fractional Laplacian :math:`(-\Delta)^{\alpha/2}` of samples or of a callable, over one axis or several.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> x = np.linspace(0.0, 2.0 * np.pi, 16, endpoint=False)
    >>> f = np.cos(x)[:, None] * np.cos(2 * x)
    >>> value = hf.fractional_laplacian(f, (x, x), 1.5, method="periodic", axis=(0, 1))
    >>> bool(np.allclose(value, (1 + 4) ** 0.75 * f))
    True
    """


def call_over_axes(
    operator: Any, f: Any, t: Any, step: Any, axes: Sequence[int], backend: Any, *, full_output: bool
) -> Any:
    """Read the grids of all axes, apply the operator's method over them, and put the axes back."""
    if not axes:
        raise InvalidInputError("axis=() names no axis; give one, or several")
    steps = _each("step", step, len(axes))
    if callable(f) and not hasattr(f, "dtype"):
        if t is None:
            raise InvalidInputError("f is a callable, so give t, the points along each of the axes")
        f = _sampled(f, _each("t", t, len(axes)))
    values = as_values(f, operator._order_like(), *(one for one in steps if one is not None))
    chosen = [check_axis(axis, values.ndim) for axis in axes]
    if len(set(chosen)) < len(chosen):
        raise ShapeError(f"axis={tuple(axes)!r} names an axis twice; name each once")
    lengths = [values.shape[axis] for axis in chosen]
    grids = [
        read_grid(points, one, None, n) for points, one, n in zip(_each("t", t, len(axes)), steps, lengths, strict=True)
    ]
    for grid in grids:
        grid.require_uniform("an operator over several axes")
    # One step for all axes may carry a gradient: the ratio of steps is always 1.
    ratios = _ratios(grids) if t is not None or isinstance(step, Sequence) else (1.0,) * len(grids)
    # The axes of space are moved behind all others, in the caller's order.
    behind: Any = tuple(range(-len(chosen), 0))
    places: Any = tuple(chosen)
    values = array_namespace(values).moveaxis(values, places, behind)
    with namespace_of(operator._order_like()).scope(), composite() as decisions:
        rule, order = operator._chosen()
        order = order_beside(order, values)
        with np.errstate(invalid="ignore"):
            value = rule.over(Samples(values, grids[0], backend), ratios, order)
        made = list(decisions)
    value = array_namespace(value).moveaxis(value, behind, places)
    if not full_output:
        return value
    notes = "; ".join(
        ["no error estimate: there is none over several axes", *(grid.note for grid in grids if grid.note)]
    )
    return OperatorResult(value, rule.name, math.nan, join_decisions(made), grids[0].origin, message=notes)


def _each(name: str, given: Any, count: int) -> list[Any]:
    """One entry per axis: the given ones, or the same for all (steps only)."""
    if given is None:
        return [None] * count
    if isinstance(given, Sequence):
        if len(given) != count:
            raise ShapeError(f"{name} has {len(given)} entries for {count} axes; give one for each")
        return list(given)
    if name == "t":
        raise ShapeError(f"t is one array for {count} axes; give a sequence with the points along each")
    return [given] * count


def _ratios(grids: Sequence[Grid]) -> tuple[float, ...]:
    """The squared first step divided by the squared step of each axis."""
    first = grids[0].step
    ratios = []
    for grid in grids:
        if any(library_of(one) in ("torch", "jax") and tracks_gradient(one) for one in (first, grid.step)):
            raise InvalidInputError("several steps that carry gradients; give one step for all axes, or plain numbers")
        ratio = (float(first) / float(grid.step)) ** 2
        ratios.append(1.0 if abs(ratio - 1.0) < 1e-12 else ratio)
    return tuple(ratios)


def _sampled(f: Any, grids: Sequence[Any]) -> Any:
    """The values of a callable at all points of the grid."""
    points = [np.asarray(read_grid(grid, None, None, len(grid)).times()) for grid in grids]
    like = next((grid for grid in grids if library_of(grid) in ("torch", "jax", "cupy")), points[0])
    mesh = [points_like(np.ascontiguousarray(part), like) for part in np.meshgrid(*points, indexing="ij")]
    with user_scope()():
        values = f(*mesh)
    shape = tuple(len(part) for part in points)
    if tuple(getattr(values, "shape", ())) != shape:
        raise ShapeError(
            f"f returned shape {tuple(getattr(values, 'shape', ()))} for a grid of {shape}; it is called with an array "
            "for each axis, shaped like the grid, and must return one value per point"
        )
    return values


class RieszOperator(FractionalOperator, ABC):
    """A two-sided derivative of a function on the line, or of a periodic one by ``"spectral"``."""

    __slots__ = ()

    period: Any
    theta: float = 0.0
    scales = True
    grids = ("uniform",)
    unused = ("origin", "factor")
    instead = "for the Riesz potential use fractional_laplacian with a negative order"

    def _rule(self, order: Order, grid: Grid, who: str) -> Rule:
        rule = pick_rule(self, self.method, who, grid)
        if isinstance(rule, RieszWaves):
            check_period(grid, self.period, who)
            return RieszWaves(self.theta) if self.theta else rule
        if self.period is not None:
            raise InvalidInputError(f"period={self.period!r} is for method='spectral'; {rule.name!r} is not periodic")
        return rule

    def _of_function(self, function: Function) -> Outcome:
        if isinstance(pick_rule(self, self.method, self.who, UNIFORM), RieszWaves):
            return of_periodic_function(function, RieszWaves(self.theta), self._order(), self.period, self.who)
        return self._of_samples(sampled(function, self.who))


@final
@dataclass(frozen=True, slots=True)
class Riesz(RieszOperator):
    r"""Riesz derivative: symmetric in space, and self-adjoint.

    .. math:: \frac{d^\alpha f}{d|x|^\alpha} = -(-\Delta)^{\alpha/2} f, \quad
        \text{of waves } -|\kappa|^\alpha e^{i\kappa x}.

    For every :math:`\alpha > 0`; the second derivative for :math:`\alpha = 2`. It equals the sum of both one-sided
    Riemann-Liouville derivatives divided by :math:`-2\cos(\pi\alpha/2)`, a formula that fails at odd orders.

    Parameters
    ----------
    alpha : float or scalar array
        The order; differentiable if it is a tensor or JAX array.
    method : str
        ``"centred"`` (order 2; used by ``"auto"``) and ``"centred4"`` (order 4) are for a function on the line that is
        zero outside its samples; the order holds if the function extended by zero is smooth. ``"spectral"`` is for a
        periodic function sampled over one period, and is exact on the waves that the samples resolve.
    period : float, optional
        For ``"spectral"``: the length L, by default n times the spacing of n samples; required for a callable.

    Notes
    -----
    A callable is sampled at the points ``t``, a uniform grid, for the centred methods; for ``"spectral"`` it is sampled
    over its period as finely as needed, and ``t`` may be any points. Every value depends on every sample, so one
    non-finite sample makes its row non-finite.

    References
    ----------
    M. D. Ortigueira, Int. J. Math. Math. Sci. 2006, 48391; C. Çelik, M. Duman, J. Comput. Phys. 231 (2012) 1743-1750.
    """

    alpha: OrderNumber
    method: RieszName = "auto"
    period: Any = None

    definition = "riesz"
    short_names = ("R",)
    who = "the Riesz derivative"
    rules = RuleTable(
        {
            "centred": later("space.Centred"),
            "centred4": later("space.Centred4"),
            "spectral": later("periodic.RieszWaves"),
        }
    )


@function_of(Riesz, see_also="riesz_feller, fractional_laplacian, weyl")
def riesz(f: Any, t: Any = None, alpha: OrderNumber = MISSING, **options: Unpack[PeriodOptions[RieszName]]) -> Any:
    """Riesz derivative of samples or of a callable.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> x = np.linspace(0.0, 2.0 * np.pi, 32, endpoint=False)
    >>> bool(np.allclose(hf.riesz(np.cos(2 * x), x, 1.5, method="spectral"), -(2**1.5) * np.cos(2 * x)))
    True
    >>> hf.riesz(np.array([0.0, 1.0, 4.0, 1.0, 0.0]), step=1.0, alpha=2.0)  # the second difference
    array([ 1.,  2., -6.,  2.,  1.])
    """


@final
@dataclass(frozen=True, slots=True)
class RieszFeller(RieszOperator):
    r"""Riesz-Feller derivative: the Riesz derivative with a skewness, which generates the stable densities.

    .. math:: D^\alpha_\theta f = -\big(c_+ D^\alpha_+ + c_- D^\alpha_-\big) f, \quad
        c_\pm = \frac{\sin((\alpha\mp\theta)\pi/2)}{\sin(\alpha\pi)}, \quad
        \text{of waves } -|\kappa|^\alpha e^{-i\,\mathrm{sgn}(\kappa)\,\theta\pi/2} e^{i\kappa x},

    with the one-sided derivatives from minus and from plus infinity. theta = 0 is :class:`Riesz`, and at alpha = 1 it
    is :math:`\cos(\theta\pi/2)` times that plus :math:`\sin(\theta\pi/2) f'`.

    Parameters
    ----------
    alpha : float or scalar array
        The order, above 0 and at most 2; differentiable if it is a tensor or JAX array.
    theta : float
        The skewness, at most alpha and at most 2 - alpha in absolute value.
    method : str
        ``"centred"`` (order 2; used by ``"auto"``) for a function on the line that is zero outside its samples: the
        even part by the centred differences of :class:`Riesz`, the odd part by both one-sided derivatives.
        ``"spectral"`` for a periodic function sampled over one period.
    period : float, optional
        For ``"spectral"``: the length L, by default n times the spacing of n samples; required for a callable.
    ceiling : int, optional
        For ``"centred"``: the integer n, needed only if ``alpha`` is traced and above 1.

    Notes
    -----
    Densities of stable laws solve :math:`u_t = D^\alpha_\theta u`; the sign of theta is that of Feller and of Mainardi,
    Luchko and Pagnini, whose Fourier transform has :math:`e^{+i\kappa x}`. Callables are sampled as for :class:`Riesz`.

    References
    ----------
    W. Feller, Meddelanden Lunds Univ. Mat. Sem., suppl. M. Riesz (1952) 73-81; F. Mainardi, Y. Luchko, G. Pagnini,
    Fract. Calc. Appl. Anal. 4 (2001) 153-192.
    """

    alpha: OrderNumber
    theta: float = 0.0
    method: RieszName = "auto"
    period: Any = None
    ceiling: int | None = None

    definition = "riesz_feller"
    short_names = ("RF", "feller")
    who = "the Riesz-Feller derivative"
    rules = RuleTable({"centred": later("space.Centred"), "spectral": later("periodic.RieszWaves")})

    def _order(self) -> Order:
        order, skew = FractionalOperator._order(self), abs(number("theta", self.theta))
        if order.known is not None and not skew <= min(order.known, 2.0 - order.known):
            raise InvalidInputError(
                f"theta={self.theta:g} with alpha={order.known:g}: {self.who} has orders up to 2 and a skewness of at "
                "most alpha and 2 - alpha; give a smaller theta"
            )
        return order

    def _of_samples(self, samples: Samples) -> Outcome:
        even, values = self.applied(samples, self.who), samples.values
        if not self.theta or even.method == "spectral":
            return even
        one_sided = RiemannLiouville(self.alpha, ceiling=self.ceiling)
        left = one_sided.applied(samples, self.who)
        right = one_sided.applied(replace(samples, values=flip(values), grid=samples.grid.reflected()), self.who)
        error = right.error
        right = replace(right, value=flip(right.value), error=error and (lambda: flip(error())))
        order, angle = order_beside(self._order(), values), 0.5 * math.pi * self.theta
        with order.xp.scope():
            size = scalar(0.5 * math.sin(angle) / order.xp.sin(order.xp.array(0.5 * math.pi) * order.value), values)
        odd = weighted_outcome([(left, 1.0), (right, -1.0)], "")
        xp, nothing = array_namespace(values), zeros(odd.value, samples.n)
        # At an end where f is not 0 it is infinite, which a derivative of the factor would multiply by 0.
        finite = xp.isfinite(odd.value)
        value = xp.where(finite, odd.value, nothing) * size
        value = value + xp.stop_gradient(xp.where(finite, nothing, odd.value * size))
        total = weighted_outcome([(even, math.cos(angle)), (odd.changed(value, abs(size)), 1.0)], "")
        return replace(total, method=even.method)


class FellerOptions(PeriodOptions[RieszName], CeilingOptions[RieszName], total=False):
    """The options of :func:`riesz_feller`."""


@function_of(RieszFeller, see_also="riesz, weyl, riemann_liouville")
def riesz_feller(
    f: Any, t: Any = None, alpha: OrderNumber = MISSING, theta: float = 0.0, **options: Unpack[FellerOptions]
) -> Any:
    """Riesz-Feller derivative of samples or of a callable.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> x = np.linspace(0.0, 2.0 * np.pi, 32, endpoint=False)
    >>> value = hf.riesz_feller(np.cos(x), x, 1.5, 0.5, method="spectral")
    >>> bool(np.allclose(value, -np.cos(x - np.pi / 4)))
    True
    """

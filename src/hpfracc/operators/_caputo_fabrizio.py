"""The Caputo-Fabrizio derivative and integral, and what all operators with a bounded memory kernel share."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Unpack, final

import numpy as np

from hpfracc._arrays import library_of, to_host
from hpfracc._choices import IntegralName, KernelName
from hpfracc._reading import number
from hpfracc.errors import InvalidInputError
from hpfracc.operators._riemann_liouville import RiemannLiouvilleIntegral
from hpfracc.operators.core.applying import apply_beside_whole, derivative_of_whole_order
from hpfracc.operators.core.base import FractionalOperator, function_of
from hpfracc.operators.core.call_types import MISSING, NormalisedOptions, OrderNumber
from hpfracc.operators.core.function import Function
from hpfracc.operators.core.grids import known_values
from hpfracc.operators.core.order import Order, read_order
from hpfracc.operators.core.reporting import Outcome
from hpfracc.operators.core.rule import by_degree
from hpfracc.operators.core.spectral import differentiate
from hpfracc.operators.core.values import Samples, constant, join, real_dtype, scalar
from hpfracc.operators.rules.bounded_kernel import DEEP, double_exponential

#: Numbers of points of the double exponential rule, tried in turn.
_COUNTS = (48, 96, 192, 384, 768, 1536)
#: Number of points if the values are traced and unknown; the result says so.
_BLIND = 192
#: Half the interval of that rule: beyond it the points are within 1e-24 of the ends.
_WIDTH = 3.6
#: Values of f that are processed together.
_CHUNK = 2**18

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class MemoryKernel:
    """A kernel K that decreases from K(0) = 1, and its decay rate: at lags u > 0, as arrays of the order's library."""

    value: Callable[[Array], Any]
    fall: Callable[[Array], Any]


class BoundedKernelDerivative(FractionalOperator, ABC):
    """The integral of f' against a bounded kernel, for orders up to 1; order 1 is the ordinary derivative."""

    __slots__ = ()

    normalisation: Any

    @abstractmethod
    def _kernel(self, order: Order) -> MemoryKernel:
        """The kernel, for callables."""

    def _completed(self, outcome: Outcome, samples: Samples, order: Order) -> Outcome:
        """The outcome of a rule with what the definition adds to it."""
        return outcome

    def _order(self) -> Order:
        return read_memory_order(self.alpha, self.who)

    def applied(self, samples: Samples, who: str) -> Outcome:
        """Apply to samples. Errors call the operator ``who``."""
        order = self._order()
        rule = self._rule(order, samples.grid, who)
        outcome = apply_beside_whole(
            rule,
            samples,
            order,
            who,
            lambda some: derivative_of_whole_order(some, 1, who),
            at=1,
            complete=lambda outcome, order: self._completed(outcome, samples, order),
        )
        return normalised(outcome, self.normalisation, order)

    def _of_function(self, function: Function) -> Outcome:
        order = self._order()
        if order.is_integer:
            outcome = differentiate(function, order, "auto", initial_terms=False)
        else:
            kernel = self._kernel(order)
            outcome = integrate_function(function, order, kernel, self.method, initial_term=self.initial_terms)
        return normalised(outcome, self.normalisation, order)


def read_memory_order(alpha: Any, who: str) -> Order:
    """Check that an order lies in (0, 1]."""
    order = read_order(alpha)
    if order.known is not None and not 0.0 < order.known <= 1.0:
        kind, instead = "derivative", "take whole derivatives of f first, or use caputo"
        if "integral" in who:
            kind, instead = "integral", "use riemann_liouville_integral"
        raise InvalidInputError(
            f"alpha={order.known:g}: {who} is defined for 0 < alpha < 1 (1 is the ordinary {kind}); {instead}"
        )
    return order


def normalised(outcome: Outcome, normalisation: Any, order: Order, *, divide: bool = False) -> Outcome:
    """The outcome times (or divided by) the normalisation at this order: a number, or a function of the order."""
    factor = normalisation(order.value) if callable(normalisation) else normalisation
    known = known_values(factor)
    if known is not None:
        # Tensors and JAX arrays may have several numbers, such as one for each row.
        numbers = known.ravel().tolist() if known.size and library_of(factor) in ("torch", "jax") else [factor]
        for each in numbers:
            number("normalisation", each, above=0.0)
    if known is not None and known.size == 1 and float(known.reshape(())) == 1.0 and not callable(normalisation):
        return outcome
    factor = scalar(1.0 / factor if divide else factor, outcome.value)
    return outcome.changed(outcome.value * factor, abs(factor))


def integrate_function(
    function: Function, order: Order, kernel: MemoryKernel, method: str, *, initial_term: bool
) -> Outcome:
    r"""The integral of f' against a kernel, over 1 - alpha, for a callable f whose derivative is unknown.

    .. math:: \int_{t_0}^{t} K(t-s) f'(s)\,ds = K(t-t_0)\,[f(t) - f(t_0)]
        + \int_0^{t-t_0} [-K'(u)]\,[f(t) - f(t-u)]\,du,

    where the integral on the right is computed by the double exponential rule, which handles the power of u with which
    K decreases at 0 and a power of f at the origin. Its points are doubled until the result converges, also at the
    points in between.

    Parameters
    ----------
    function, order, kernel
        f with the points of the result, alpha, and the kernel.
    method : str
        ``"auto"`` or ``"quadrature"``.
    initial_term : bool
        Whether to add :math:`K(t-t_0) f(t_0)`, the additional term of the derivative of the integral.
    """
    if function.factor < 0.0:
        raise InvalidInputError(f"factor={function.factor:g}: f is infinite at the origin, where f(t0) is needed")
    here, first = function.at(function.points), function.at(np.array([function.origin]))
    lag = function.points - function.origin
    # At the origin itself K is 1.
    at_origin = constant(np.where(lag > 0.0, 0.0, 1.0), here)
    end = constant(kernel.value(np.where(lag > 0.0, lag, 1.0)), here) * (1.0 - at_origin) + at_origin
    outside = end * (here if initial_term else here - first)
    found = convolve_function(function, kernel.fall, method, here, outside)
    factor = scalar(1.0 / (1.0 - order.value), found.value)
    return found.changed(found.value * factor, abs(factor))


def convolve_function(
    function: Function,
    fall: Callable[[Array], Any],
    method: str,
    here: Any = None,
    outside: Any = 0.0,
    powers: tuple[float, float] | None = None,
) -> Outcome:
    """``outside`` plus the integral of ``fall(u)`` times f(t - u), or times f(t) - f(t - u) with ``here`` = f(t).

    ``powers`` are those of a ``fall`` that is singular at 0 and of a singular f: see :func:`double_exponential`.
    """
    if method not in ("auto", "quadrature"):
        raise InvalidInputError(f"method={method!r} is for samples; a callable takes 'auto' or 'quadrature'")
    change, converged, value = math.inf, False, _quadrature(function, fall, here, powers, _COUNTS[0])
    looked = known_values(value) is not None
    if not looked:
        value = _quadrature(function, fall, here, powers, _BLIND)
        message = f"{_BLIND} points of quadrature; f is traced, so that its values are unknown"
    # Differences of f are formed, each with a rounding error of f.
    size = value if here is None else here
    rounding = float(np.finfo(real_dtype(size)).eps) * _largest(size) if looked else math.nan
    for count in _COUNTS[1:] if looked else ():
        finer = _quadrature(function, fall, here, powers, count)
        change, allowed = _largest(finer - value), max(function.rtol * _largest(finer + outside), 10.0 * rounding)
        value = finer
        if change <= allowed:
            # Repeat at the points between: features that all earlier points missed, such as a narrow pulse, show there.
            between = _quadrature(function, fall, here, powers, count - 1, shifted=True)
            change, value = _largest(between - value), 0.5 * (value + between)
            converged = change <= allowed
        message = f"{2 * count - 1} points of quadrature"
        if converged:
            break
        message = f"{count} points of quadrature, which were not enough: f may be noisy or discontinuous; give samples"
    error = (lambda: change + 2.0 * rounding) if looked else None
    return Outcome(outside + value, "quadrature", error, converged, message, function.rtol, looked=looked)


def _largest(values: Any) -> float:
    return float(np.abs(to_host(values)).max(initial=0.0))


def _quadrature(
    function: Function,
    fall: Callable[[Array], Any],
    here: Any,
    powers: tuple[float, float] | None,
    count: int,
    shifted: bool = False,
) -> Any:
    """The integral in :func:`convolve_function` with ``count`` points, or with those between them if ``shifted``."""
    width = _WIDTH if powers is None else DEEP
    left, right, weight = double_exponential(count, width, powers or (1.0, 1.0), shifted=shifted)
    lag, parts = function.points - function.origin, []
    size = max(1, _CHUNK // count)
    for start in range(0, len(lag), size):
        length = lag[start : start + size, None]
        u = length * left
        # Computed from the nearer end, so that both ends keep their digits.
        points = np.where(left < 0.5, function.points[start : start + size, None] - u, function.origin + length * right)
        safe = np.where(u > 0.0, u, 1.0)
        rate = fall(safe.reshape(-1)).reshape(*u.shape)
        before = function.at(points.reshape(-1))
        before = before.reshape(*before.shape[:-1], *u.shape)
        change = before if here is None else here[..., start : start + size, None] - before
        # The rates alone may exceed the range of single precision.
        parts.append((change * constant(rate * constant(length * weight, rate), before)).sum(-1))
    return parts[0] if len(parts) == 1 else join(parts)


@final
@dataclass(frozen=True, slots=True)
class CaputoFabrizio(BoundedKernelDerivative):
    r"""Caputo-Fabrizio derivative: an exponential kernel, without a singularity.

    .. math:: D^\alpha f(t) = \frac{M(\alpha)}{1-\alpha} \int_{t_0}^{t} e^{-\frac{\alpha}{1-\alpha}(t-s)} f'(s)\,ds,
        \quad 0 < \alpha < 1.

    Zero on constants. It is f' after a low-pass filter with time constant (1 - alpha)/alpha, the solution of a
    first-order equation. It is not the inverse of a power-law integral: do not confuse it with the Caputo derivative.
    At the origin it is 0 for any f'.

    Parameters
    ----------
    alpha : float or scalar array
        The order, between 0 and 1; differentiable if it is a tensor or JAX array. 1 is the ordinary derivative,
        with the one-sided derivative in the order.
    method : str
        For samples on any increasing grid ``"quadratic"`` (order 3; used by ``"auto"``) or ``"linear"`` (order 2),
        both O(n); for callables ``"quadrature"``.
    normalisation : float or callable
        M(alpha), 1 by default: a positive number, or a function of alpha such as ``lambda a: 2 / (2 - a)``.

    References
    ----------
    M. Caputo, M. Fabrizio, Progr. Fract. Differ. Appl. 1 (2015) 73-85; the normalisation 2/(2 - alpha): J. Losada, J.
    J. Nieto, ibid. 87-92.
    """

    alpha: OrderNumber
    method: KernelName = "auto"
    normalisation: Any = 1.0

    definition = "caputo_fabrizio"
    short_names = ("CF",)
    who = "the Caputo-Fabrizio derivative"
    rules = by_degree("bounded_kernel.ExponentialRule")

    def _of_function(self, function: Function) -> Outcome:
        order = self._order()
        if order.known == 1.0 and not order.plain:
            return normalised(_near_one(function, order), self.normalisation, order)
        return BoundedKernelDerivative._of_function(self, function)

    def _kernel(self, order: Order) -> MemoryKernel:
        xp = order.xp
        rate = order.guard(order.value / (1.0 - order.value))
        return MemoryKernel(lambda u: xp.exp(-rate * xp.array(u)), lambda u: rate * xp.exp(-rate * xp.array(u)))


def _near_one(function: Function, order: Order) -> Outcome:
    """A differentiable order of 1: f' with its first two one-sided derivatives in alpha, after the origin.

    The operator is ``(1 + (1 - alpha) (d/dt - 1))^-1 f'``.
    """
    first, second, third = (differentiate(function, read_order(k), "auto", initial_terms=False) for k in (1, 2, 3))
    with order.xp.scope():
        room = 1.0 - order.value
        near, far = scalar(-room, first.value), scalar(room * room, first.value)
    bend = third.value - 2.0 * second.value + first.value
    return replace(first, value=first.value + near * (second.value - first.value) + far * bend)


@function_of(CaputoFabrizio, see_also="caputo_fabrizio_integral, atangana_baleanu, caputo")
def caputo_fabrizio(
    f: Any, t: Any = None, alpha: OrderNumber = MISSING, **options: Unpack[NormalisedOptions[KernelName]]
) -> Any:
    """Caputo-Fabrizio derivative of samples or of a callable.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> t = np.linspace(0.0, 1.0, 101)
    >>> float(np.round(hf.caputo_fabrizio(t, t, 0.5)[-1], 10))  # of t: (1 - exp(-t)) / alpha
    1.2642411177
    """


class MeanIntegral(FractionalOperator, ABC):
    """The inverse of a derivative with a bounded kernel: the mean of f and an integral, with weights 1-alpha, alpha."""

    __slots__ = ()

    normalisation: Any
    inner = RiemannLiouvilleIntegral

    def _of_samples(self, samples: Samples) -> Outcome:
        order = read_memory_order(self.alpha, self.who)
        return self._mixed(self._inner().applied(samples, self.who), samples.values, order)

    def _of_function(self, function: Function) -> Outcome:
        order = read_memory_order(self.alpha, self.who)
        return self._mixed(self._inner()._of_function(function), function.at(function.points), order)

    def _mixed(self, outcome: Outcome, values: Any, order: Order) -> Outcome:
        """``(1 - alpha) f`` and ``alpha`` times its integral, over the normalisation."""
        share = scalar(order.value, values)
        mean = outcome.changed((1.0 - share) * values + share * outcome.value, share)
        return normalised(mean, self.normalisation, order, divide=True)


@final
@dataclass(frozen=True, slots=True)
class CaputoFabrizioIntegral(MeanIntegral):
    r"""Caputo-Fabrizio integral: the weighted mean of f and its integral.

    .. math:: I^\alpha f(t) = \frac{1}{M(\alpha)} \Big[ (1-\alpha) f(t) + \alpha \int_{t_0}^{t} f(s)\,ds \Big],
        \quad 0 < \alpha \le 1.

    It inverts :class:`CaputoFabrizio` up to the value at the origin: I D f = f - f(t0).

    Parameters
    ----------
    alpha : float or scalar array
        The order, between 0 and 1; differentiable if it is a tensor or JAX array.
    method : str
        For the ordinary integral, as for :class:`RiemannLiouvilleIntegral` at order 1: ``"simpson"`` (order 4; used by
        ``"auto"``), ``"trapezoid"``, ``"cq2"`` to ``"cq6"``; for callables ``"spectral"`` or ``"graded"``.
    normalisation : float or callable
        M(alpha), 1 by default: a positive number, or a function of alpha such as ``lambda a: 2 / (2 - a)``.

    References
    ----------
    J. Losada, J. J. Nieto, Progr. Fract. Differ. Appl. 1 (2015) 87-92, with M(alpha) = 2/(2 - alpha).
    """

    alpha: OrderNumber
    method: IntegralName = "auto"
    normalisation: Any = 1.0

    definition = "caputo_fabrizio"
    short_names = ("CF",)
    who = "the Caputo-Fabrizio integral"

    def _inner(self) -> RiemannLiouvilleIntegral:
        return RiemannLiouvilleIntegral(1.0, self.method)


@function_of(CaputoFabrizioIntegral, see_also="caputo_fabrizio, atangana_baleanu_integral")
def caputo_fabrizio_integral(
    f: Any, t: Any = None, alpha: OrderNumber = MISSING, **options: Unpack[NormalisedOptions[IntegralName]]
) -> Any:
    """Caputo-Fabrizio integral of samples or of a callable.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> t = np.linspace(0.0, 1.0, 5)
    >>> hf.caputo_fabrizio_integral(np.ones(5), t, 0.5).round(3)
    array([0.5  , 0.625, 0.75 , 0.875, 1.   ])
    """

"""Common parts of the operators with a bounded memory kernel, Caputo-Fabrizio and Atangana-Baleanu."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hpfracc._arrays import library_of, to_host
from hpfracc._reading import number
from hpfracc.errors import InvalidInputError
from hpfracc.operators.core.applying import apply_rule
from hpfracc.operators.core.base import FractionalOperator
from hpfracc.operators.core.function import Function
from hpfracc.operators.core.grids import known_values
from hpfracc.operators.core.order import Order, read_order
from hpfracc.operators.core.reporting import Outcome
from hpfracc.operators.core.spectral import differentiate
from hpfracc.operators.core.values import Samples, constant, join, real_dtype, scalar
from hpfracc.operators.rules.differences import Differences

__all__ = ["BoundedKernelDerivative", "MemoryKernel", "integrate_function", "normalised", "read_memory_order"]

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
        if order.is_integer:
            outcome = apply_rule(Differences(), samples, order, who)
        else:
            outcome = self._completed(apply_rule(rule, samples, order, who), samples, order)
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
        raise InvalidInputError(
            f"alpha={order.known:g}: {who} is defined for 0 < alpha < 1 (1 is the ordinary "
            + (
                "integral); use riemann_liouville_integral"
                if "integral" in who
                else "derivative); take whole derivatives of f first, or use caputo"
            )
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
    return _scaled(outcome, 1.0 / factor if divide else factor)


def _scaled(outcome: Outcome, factor: Any) -> Outcome:
    factor, error = scalar(factor, outcome.value), outcome.error
    return replace(
        outcome,
        value=outcome.value * factor,
        error=None if error is None else lambda: error() * abs(factor),
        reusable=None,
    )


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
    if method not in ("auto", "quadrature"):
        raise InvalidInputError(f"method={method!r} is for samples; a callable takes 'auto' or 'quadrature'")
    if function.factor < 0.0:
        raise InvalidInputError(f"factor={function.factor:g}: f is infinite at the origin, where f(t0) is needed")
    here, first = function.at(function.points), function.at(np.array([function.origin]))
    lag = function.points - function.origin
    end = kernel.value(np.where(lag > 0.0, lag, 1.0))
    at_origin = constant(np.where(lag > 0.0, 0.0, 1.0), here)
    # At the origin itself K is 1.
    end = constant(end, here) * (1.0 - at_origin) + at_origin
    outside = end * (here if initial_term else here - first)
    # Differences of f are formed, each with a rounding error of f.
    rounding = 2.0 * float(np.finfo(real_dtype(here)).eps) * _largest(here)
    value, change, looked = _quadrature(function, kernel, here, lag, _COUNTS[0]), math.inf, True
    for count in _COUNTS[1:]:
        if known_values(value) is None:
            value, looked = _quadrature(function, kernel, here, lag, _BLIND), False
            break
        finer = _quadrature(function, kernel, here, lag, count)
        change = float(np.abs(to_host(finer) - to_host(value)).max(initial=0.0))
        size = float(np.abs(to_host(finer + outside)).max(initial=0.0))
        floor = 10.0 * float(np.finfo(real_dtype(here)).eps) * float(np.abs(to_host(here)).max(initial=0.0))
        value = finer
        if change <= max(function.rtol * size, floor):
            # Repeat at the points between: features that all earlier points missed, such as a narrow pulse, show there.
            between = _quadrature(function, kernel, here, lag, count - 1, shifted=True)
            change = float(np.abs(to_host(between) - to_host(value)).max(initial=0.0))
            value = 0.5 * (value + between)
            if change <= max(function.rtol * size, floor):
                break
    converged = looked and change <= max(function.rtol * size, floor)
    if not looked:
        message = f"{_BLIND} points of quadrature; f is traced, so that its values are unknown"
    elif converged:
        message = f"{2 * count - 1} points of quadrature"
    else:
        message = f"{count} points of quadrature, which were not enough: f may be noisy or discontinuous; give samples"
    found = Outcome(
        outside + value,
        "quadrature",
        (lambda: change + rounding) if looked else None,
        converged,
        message,
        function.rtol,
        looked=looked,
    )
    return _scaled(found, 1.0 / (1.0 - order.value))


def _largest(values: Any) -> float:
    known = known_values(values)
    return math.nan if known is None else float(np.abs(known).max(initial=0.0))


def _quadrature(
    function: Function, kernel: MemoryKernel, here: Any, lag: Array, count: int, shifted: bool = False
) -> Any:
    """Quadrature with ``count`` points from end to end or, with ``shifted``, at the midpoints between one more."""
    step = 2.0 * _WIDTH / (count if shifted else count - 1)
    place = -_WIDTH + step * (np.arange(count) + (0.5 if shifted else 0.0))
    turn = np.pi * np.sinh(place)
    left, right = 1.0 / (1.0 + np.exp(-turn)), 1.0 / (1.0 + np.exp(turn))
    weight = left * right * np.pi * np.cosh(place) * step
    parts = []
    size = max(1, _CHUNK // count)
    for start in range(0, len(lag), size):
        length = lag[start : start + size, None]
        u = length * left
        # Computed from the nearer end, so that both ends keep their digits.
        points = np.where(left < 0.5, function.points[start : start + size, None] - u, function.origin + length * right)
        safe = np.where(u > 0.0, u, 1.0)
        fall = kernel.fall(safe.reshape(-1)).reshape(*u.shape)
        before = function.at(points.reshape(-1))
        before = before.reshape(*before.shape[:-1], *u.shape)
        change = here[..., start : start + size, None] - before
        parts.append((change * constant(fall, here) * constant(length * weight, here)).sum(-1))
    return parts[0] if len(parts) == 1 else join(parts)

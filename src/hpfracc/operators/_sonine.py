"""Derivatives and integrals with the user's own kernel, and the kernel that is associated with it."""

from __future__ import annotations

from abc import ABC
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Unpack, final

import numpy as np
from numpy.polynomial import legendre

from hpfracc._arrays import to_host
from hpfracc._choices import KernelName
from hpfracc._reading import number
from hpfracc.errors import InvalidInputError
from hpfracc.operators._prabhakar import Array, KernelFunction, KernelOperator
from hpfracc.operators.core.base import function_of
from hpfracc.operators.core.call_types import MethodOptions
from hpfracc.operators.core.function import Function
from hpfracc.operators.core.graded import gauss_points
from hpfracc.operators.core.order import Order, read_order
from hpfracc.operators.core.reporting import Outcome
from hpfracc.operators.core.rule import by_degree
from hpfracc.operators.core.values import Samples, largest
from hpfracc.operators.rules.bounded_kernel import DEEP, double_exponential

#: The associated kernel is a polynomial in log t with this number of coefficients on each panel between these lags, as
#: parts of the end. What lies below the last 16 panels only provides for them, so that the first ones may be wide.
_POINTS = 12
_EDGES = np.concatenate([[1e-30, 1e-26, 1e-22], np.geomspace(1e-18, 1.0, 17)])
_PANELS, _PROVIDE = len(_EDGES) - 1, 3
#: Points of the convolution with it on each panel, and for its check.
_COUNT, _CHECK_COUNT = 120, 160
#: Points of Gauss's rule on a panel for the integrals of the associated kernel.
_GAUSS = 32
#: Smallest and largest power of 1/t at 0 of a kernel that has an associated one.
_LEAST, _MOST = 0.006, 0.99
#: Largest accepted distance of the convolution from 1.
_LARGEST_RESIDUAL = 1e-4


@final
@dataclass(frozen=True, slots=True, eq=False)
class AssociatedKernel:
    r"""The kernel :math:`\kappa` with :math:`\int_0^t k(t-s)\,\kappa(s)\,ds = 1`, found numerically; it can be called.

    Attributes
    ----------
    end : float
        The last lag at which it is known.
    power : float
        It starts like ``t**(power - 1)``.
    residual : float
        Largest measured distance of the convolution from 1, at lags from 1e-18 of the end on.

    See Also
    --------
    SonineDerivative, SonineIntegral

    Examples
    --------
    Of a power :math:`t^{-1/2}` it is :math:`t^{-1/2}/\pi`:

    >>> import hpfracc as hf
    >>> kernel = hf.SonineDerivative(lambda t: t**-0.5).associated(1.0)
    >>> round(float(kernel(0.25)), 6)
    0.63662
    """

    end: float
    power: float
    residual: float
    _values: Array = field(repr=False)

    def __call__(self, t: Any) -> Array:
        """The kernel at lags above 0 and up to ``end``."""
        t = np.asarray(t, dtype=np.float64)
        panel = np.clip(np.searchsorted(_EDGES, t / self.end, side="right") - 1, 0, _PANELS - 1)
        found = (_polynomials(t / self.end, panel) * self._values[panel]).sum(axis=-1)
        return np.asarray(found * t ** (self.power - 1.0)).reshape(t.shape)

    def integrals(self, u: Any, count: int) -> Array:
        """Integrals of the kernel times ``(s/u)**j`` over s from 0 to each u, for j below ``count``."""
        u = np.maximum(np.asarray(u, dtype=np.float64), 1e-300)[..., np.newaxis]
        edges, powers = self.end * _EDGES, np.arange(count)
        first, panel = np.minimum(edges[0], u), np.clip(np.searchsorted(edges, u, side="right") - 1, 0, _PANELS - 1)
        start = self(first) * first * (first / u) ** powers / (self.power + powers)
        below = np.minimum(edges[1:] / u, 1.0)[..., np.newaxis] ** powers * _panel_integrals(self, count)
        last = _integrate(self, np.minimum(edges[panel], u), u, count)
        return np.asarray(start + last + (below * (np.arange(_PANELS) < panel)[..., np.newaxis]).sum(axis=-2))


def _integrate(kernel: AssociatedKernel, low: Array, high: Array, count: int) -> Array:
    """Of the kernel times ``(s/high)**j`` over s from ``low`` to ``high`` (..., 1), by Gauss's rule in log s."""
    x, weights = gauss_points(_GAUSS, 0.0)
    places = (low / high) ** (0.5 * (1.0 - x))
    shares = kernel(high * places) * high * places * (0.5 * np.log(high / low) * weights)
    return np.asarray((shares[..., np.newaxis] * places[..., np.newaxis] ** np.arange(count)).sum(axis=-2))


@lru_cache(maxsize=16)
def _panel_integrals(kernel: AssociatedKernel, count: int) -> Array:
    edges = kernel.end * _EDGES[:, np.newaxis]
    return _integrate(kernel, edges[:-1], edges[1:], count)


def _polynomials(places: Array, panel: Array) -> Array:
    """Those of each panel at places in it, (..., coefficient); constant before the first panel."""
    low, high = np.log(_EDGES[panel]), np.log(_EDGES[panel + 1])
    x = np.clip((np.log(places) - low) / (high - low), 0.0, 1.0)
    return np.asarray(legendre.legvander(2.0 * x - 1.0, _POINTS - 1))


def find_associated(kernel: KernelFunction, end: float) -> AssociatedKernel:
    """The associated kernel up to a lag; a function whose values have changed since it was asked is a new one."""
    t = end * np.geomspace(_EDGES[0], 1.0, 600)
    values = np.asarray(kernel(t), dtype=np.float64)
    return _found(kernel, end, _checked_power(t, values), values.tobytes())


@lru_cache(maxsize=16)
def _found(kernel: KernelFunction, end: float, power: float, content: bytes) -> AssociatedKernel:
    """Collocation of the Volterra equation of the first kind, checked at lags from 1e-18 of the end to the end."""
    edges = end * _EDGES

    def convolution(x: Array, count: int) -> Array:
        """At the places x of every panel, from the coefficients; each panel has its own rule up to its ends."""
        left, right, weights = double_exponential(count, DEEP, (power, 1.0 - power))
        table = np.zeros((_PANELS, len(x), _PANELS, _POINTS))
        for row, column in np.ndindex(_PANELS, len(x)):
            t = edges[row] * (edges[row + 1] / edges[row]) ** (0.5 + 0.5 * x[column])
            low, high = edges[: row + 1, np.newaxis], np.append(edges[1 : row + 1], t)[:, np.newaxis]
            width, first = np.log(high / low), edges[0]
            past = np.vstack([first * left, low * np.exp(width * left)])
            lags = np.vstack([t - first + first * right, t - high - high * np.expm1(-width * right)])
            factors = np.asarray(kernel(lags)) * past**power * weights
            factors *= np.vstack([1.0 / left, width * np.ones_like(left)])
            basis = _polynomials(past / end, np.maximum(np.arange(-1, row + 1), 0)[:, np.newaxis])
            shares = (factors[:, np.newaxis] @ basis)[:, 0]
            table[row, column, : row + 1] = shares[1:]
            table[row, column, 0] += shares[0]
        return table.reshape(_PANELS * len(x), -1)

    # Radau's points, with the end of each panel: those of Gauss are unstable for kernels that are nearly bounded.
    nodes = np.sort(legendre.legroots([*np.zeros(_POINTS - 1), -1.0, 1.0]).real)
    table = convolution(nodes, _COUNT)
    values = np.linalg.solve(table, np.ones(len(table)))
    check = convolution(np.array([-0.93, -0.4, 0.1, 0.7, 1.0]), _CHECK_COUNT) @ values
    residual = float(np.abs(check - 1.0)[_PROVIDE * 5 :].max())
    if not residual <= _LARGEST_RESIDUAL:
        raise InvalidInputError(
            f"no associated kernel was found up to t={end:g}: the convolution with the best one differs from 1 by "
            f"{residual:.2g}; a Sonine kernel is smooth for t > 0, decreases, and starts like a power of t"
        )
    return AssociatedKernel(end, power, residual, values.reshape(_PANELS, _POINTS))


def _checked_power(t: Array, values: Array) -> float:
    """The power of 1/t with which a kernel starts, from its values; raises an error if it has no associated one."""
    if values.shape != t.shape or not (np.isfinite(values) & (values >= 0.0)).all() or values[-1] == values[0]:
        raise InvalidInputError(
            f"kernel gives {values[:1]} at t={t[0]:.3g} and {values[-1:]} at t={t[-1]:.3g}; it must give a finite and "
            "positive number for each lag of an array, and decrease"
        )
    rise = np.flatnonzero(np.diff(values) > 1e-12 * values[:-1])
    if rise.size:
        j = int(rise[0])
        raise InvalidInputError(
            f"kernel increases from {values[j]:.6g} at t={t[j]:.3g} to {values[j + 1]:.6g} at t={t[j + 1]:.3g}: such a "
            "kernel has no associated one; give one that decreases"
        )
    power = -float(np.log(values[1] / values[0]) / np.log(t[1] / t[0]))
    if not _LEAST <= power <= _MOST:
        what = "it is bounded, or nearly so," if power < _LEAST else "it is not integrable"
        raise InvalidInputError(
            f"kernel starts like t**{0.0 - power:.4g} (measured at t={t[0]:.3g}): {what} and has no associated kernel; "
            "give one that starts like a power between 0 and -1, such as t**-0.5"
        )
    return power


class SonineOperator(KernelOperator, ABC):
    """An operator of the user's own kernel."""

    __slots__ = ()

    kernel: Any

    @property
    def alpha(self) -> float:
        """1: it has no order of its own, and derivatives are of order below 1."""
        return 1.0

    def __post_init__(self) -> None:
        if not callable(self.kernel):
            raise InvalidInputError(f"kernel={self.kernel!r} is not a function; give k(t), as in lambda t: t**-0.5")

    def associated(self, end: float) -> AssociatedKernel:
        r"""The kernel :math:`\kappa` whose convolution with this one is 1, up to the lag ``end``.

        Raises
        ------
        InvalidInputError
            If there is none: the kernel is bounded, increases or is not integrable, or the convolution is not 1.
        """
        return find_associated(self.kernel, number("end", end, above=0.0))

    def _order(self) -> Order:
        return read_order(self.alpha)

    def _key(self, end: float) -> Hashable:
        return type(self), self.associated(end)


@final
@dataclass(frozen=True, slots=True)
class SonineDerivative(SonineOperator):
    r"""General fractional derivative: the user's own kernel, of which Caputo's power law is one.

    .. math:: D_k f(t) = \frac{d}{dt} \int_{t_0}^{t} k(t-s)\,[f(s) - f(t_0)]\,ds
        = \int_{t_0}^{t} k(t-s)\,f'(s)\,ds.

    Zero on constants. k = :math:`t^{-\alpha}/\Gamma(1-\alpha)` gives the Caputo derivative. It has an inverse,
    :class:`SonineIntegral`, if k has an associated kernel :math:`\kappa` with :math:`k * \kappa = 1` (Sonine's
    condition); ``associated(end)`` finds it, with the measured residual. A kernel without one is refused.

    Parameters
    ----------
    kernel : callable
        k(t) of a NumPy array of lags t > 0: positive and decreasing, and like a power between 0 and -1 at 0.
    method : str
        For samples on a uniform grid ``"quadratic"`` (order 3 - a for a kernel like :math:`t^{-a}`; used by ``"auto"``)
        or ``"linear"`` (2 - a); for callables ``"quadrature"``.

    References
    ----------
    A. N. Kochubei, Integral Equations Operator Theory 71 (2011) 583-600; Y. Luchko, Mathematics 9 (2021) 594; N.
    Sonine, Acta Math. 4 (1884) 171-176.
    """

    kernel: Any = None
    method: KernelName = "auto"

    definition = "sonine"
    who = "the Sonine derivative"

    def _kernel(self, end: float) -> tuple[KernelFunction, float]:
        return self.kernel, 1.0 - self.associated(end).power


@function_of(SonineDerivative, see_also="sonine_integral, caputo, prabhakar, tempered_caputo")
def sonine_derivative(f: Any, t: Any = None, kernel: Any = None, **options: Unpack[MethodOptions[KernelName]]) -> Any:
    """General fractional derivative, with the kernel that is given, of samples or of a callable.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> t = np.linspace(0.0, 1.0, 101)
    >>> value = hf.sonine_derivative(t, t, lambda u: (u**-0.5 + u**-0.2) / 2)  # of t: t^0.5 + t^0.8 / 1.6
    >>> bool(np.allclose(value, t**0.5 + t**0.8 / 1.6))
    True
    >>> hf.SonineDerivative(lambda u: (u**-0.5 + u**-0.2) / 2).associated(1.0).residual < 1e-8
    True
    """


@final
@dataclass(frozen=True, slots=True)
class SonineIntegral(SonineOperator):
    r"""General fractional integral: the inverse of the derivative with the user's own kernel.

    .. math:: I_\kappa f(t) = \int_{t_0}^{t} \kappa(t-s)\,f(s)\,ds, \quad \int_0^t k(t-s)\,\kappa(s)\,ds = 1.

    The kernel is that of the derivative; the associated kernel :math:`\kappa` is found numerically, so that
    :math:`D_k I_\kappa f = f` and :math:`I_\kappa D_k f = f - f(t_0)` up to its residual and the error of the rule.

    Parameters
    ----------
    kernel : callable
        k(t) of a NumPy array of lags t > 0: positive and decreasing, and like a power between 0 and -1 at 0.
    method : str
        For samples on a uniform grid ``"quadratic"`` (order 3; used by ``"auto"``) or ``"linear"`` (order 2); for
        callables ``"quadrature"``.

    References
    ----------
    Y. Luchko, Mathematics 9 (2021) 594; S. G. Samko, R. P. Cardoso, Int. J. Math. Math. Sci. 2003, 3609-3632.
    """

    kernel: Any = None
    method: KernelName = "auto"

    definition = "sonine"
    who = "the Sonine integral"
    kind = "integral"
    rules = by_degree("bounded_kernel.KernelMemory", integral=True)

    def _kernel(self, end: float) -> tuple[KernelFunction, float]:
        found = self.associated(end)
        return found, found.power

    def _of_samples(self, samples: Samples) -> Outcome:
        outcome = KernelOperator._of_samples(self, samples)
        return self._with_residual(outcome, samples.n * float(to_host(samples.grid.step)))

    def _of_function(self, function: Function) -> Outcome:
        return self._with_residual(KernelOperator._of_function(self, function), function.end - function.origin or 1.0)

    def _with_residual(self, outcome: Outcome, end: float) -> Outcome:
        """The errors of the associated kernel are up to ten times its residual, relative to its size."""
        error, share = outcome.error, 10.0 * self.associated(end).residual
        return replace(outcome, error=error and (lambda: error() + share * largest(outcome.value)), reusable=None)


@function_of(SonineIntegral, see_also="sonine_derivative, riemann_liouville_integral")
def sonine_integral(f: Any, t: Any = None, kernel: Any = None, **options: Unpack[MethodOptions[KernelName]]) -> Any:
    """General fractional integral, the inverse of the derivative with the kernel that is given.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> t = np.linspace(0.0, 1.0, 101)
    >>> value = hf.sonine_integral(np.ones(101), t, lambda u: (np.pi * u) ** -0.5)  # the half integral
    >>> bool(np.allclose(value, 2 * np.sqrt(t / np.pi)))
    True
    """

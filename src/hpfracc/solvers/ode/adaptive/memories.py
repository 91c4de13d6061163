r"""Kernels other than the power: of tempered derivatives, and of the user's own.

Tempered, :math:`e^{-\lambda t} D^\alpha e^{\lambda t} y = f` is :math:`y = e^{-\lambda t} T(t) + \int_0^t
e^{-\lambda u} u^{\alpha-1}/\Gamma(\alpha) f(t-u) du`: the rates of the exponentials grow by lambda. A derivative with a
Sonine kernel k, :math:`D_k y = f`, is :math:`y = y_0 + \int_0^t \kappa(u) f(t-u) du` with the associated kernel, whose
sum of exponentials is fitted.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, ClassVar, final

import numpy as np
from scipy import special

from hpfracc._reading import shown
from hpfracc.errors import InvalidInputError
from hpfracc.history.states import ExponentialKernel, exponential_kernel
from hpfracc.operators._sonine import AssociatedKernel, SonineDerivative

Array = np.ndarray[Any, Any]

#: Below this product of rate and distance the kernel is a power to rounding.
_FLAT = 1e-8
#: Spacing of the logarithms of the fitted rates, and the points for each of them: fits of powers reach 1e-12.
_SPACING, _POINTS = 0.25, 3
#: The slowest rate but 0, times the longest distance; the shortest distance of the first fit, as a part of that.
_SLOWEST, _SHORTEST = 1e-3, 1e-18
#: Largest error of a kernel, as a share of rtol.
_SHARE = 0.3


class EquationMemory(ABC):
    """The kernel of an equation."""

    #: Whether it fades exponentially, so that steps may grow beyond its length.
    fades: ClassVar[bool] = False

    @abstractmethod
    def kernel(self, alpha: float, shortest: float, longest: float, eps: float) -> ExponentialKernel:
        """The kernel for components of this order; as :func:`~hpfracc.history.states.exponential_kernel`."""

    def fading(self, tau: float) -> float:
        """The factor of the polynomial of the initial values."""
        return 1.0


class _OtherKernel(ExponentialKernel):
    """Not a power."""

    __slots__ = ()

    def profile(self, u: float, count: int) -> tuple[float, Array]:
        """The integrals as a size and its multiples."""
        found = self.integrals(u, count)
        return float(found[0]), found / found[0]


@final
@dataclass(frozen=True, slots=True)
class TemperedKernel(_OtherKernel):
    """A power times ``exp(-rate u)``."""

    rate: float

    def exact(self, u: Array) -> Array:
        """The kernel itself."""
        return np.asarray(ExponentialKernel.exact(self, u) * np.exp(-self.rate * u))

    def integrals(self, u: float | Array, count: int) -> Array:
        """By the incomplete gamma function."""
        u = np.asarray(u, dtype=float)
        z, a = self.rate * u[..., np.newaxis], self.alpha + np.arange(count)
        large = np.maximum(z, _FLAT)
        whole = special.gammainc(a, large) * special.gamma(a) * large**-a
        size = u[..., np.newaxis] ** self.alpha / math.gamma(self.alpha)
        return np.asarray(size * np.where(z > _FLAT, whole, 1.0 / a))


@final
@dataclass(frozen=True, slots=True)
class Tempering(EquationMemory):
    """Tempering with a rate."""

    fades: ClassVar[bool] = True

    rate: float

    def kernel(self, alpha: float, shortest: float, longest: float, eps: float) -> TemperedKernel:
        """The power's, with faster rates."""
        power = exponential_kernel(alpha, shortest, longest, eps)
        given = {field.name: getattr(power, field.name) for field in fields(power)}
        return TemperedKernel(**given | {"rates": power.rates + self.rate}, rate=self.rate)

    def fading(self, tau: float) -> float:
        """Exponential."""
        return math.exp(-self.rate * tau)


@final
@dataclass(frozen=True, slots=True)
class SonineKernel(_OtherKernel):
    """An associated kernel, and the exponentials fitted to it."""

    associated: AssociatedKernel
    error: float

    def exact(self, u: Array) -> Array:
        """The kernel itself."""
        return self.associated(u)

    def integrals(self, u: float | Array, count: int) -> Array:
        """Of the associated kernel."""
        return self.associated.integrals(u, count)


@final
@dataclass(frozen=True, slots=True)
class SonineMemory(EquationMemory):
    """The memory of a derivative with a Sonine kernel, given by the associated kernel."""

    associated: AssociatedKernel

    def kernel(self, alpha: float, shortest: float, longest: float, eps: float) -> SonineKernel:
        """The kernel with fitted exponentials."""
        return fit_exponentials(self.associated, min(shortest, _SHORTEST * longest))

    def error(self) -> float:
        """The relative error of the kernel and its exponentials: errors of the former are ten times its residual."""
        found = fit_exponentials(self.associated, _SHORTEST * self.associated.end)
        return found.error + 10.0 * self.associated.residual

    def check(self, rtol: float) -> None:
        """Raise an error if the kernel is not known well enough for the tolerance."""
        if self.error() > _SHARE * rtol:
            raise InvalidInputError(
                f"the associated kernel as a sum of exponentials has an error of {self.error():.2g}, too much for "
                f"rtol={rtol:g}; give rtol={self.error() / _SHARE:.1g} or more, or a kernel that is smoother in log t"
            )


def read_sonine(derivative: Any, alpha: Any, t0: float, t1: float) -> tuple[SonineMemory, float]:
    """The memory of ``derivative=SonineDerivative(...)``, and the order that its solutions start with."""
    if not isinstance(derivative, SonineDerivative):
        raise InvalidInputError(
            f"derivative={shown(derivative)} is neither a name, such as 'caputo', nor a hf.SonineDerivative; give one"
        )
    if alpha is not None:
        raise InvalidInputError(f"alpha={shown(alpha)}: a Sonine derivative has a kernel and no order; give alpha=None")
    associated = derivative.associated(t1 - t0)
    return SonineMemory(associated), associated.power


@lru_cache(maxsize=8)
def fit_exponentials(kernel: AssociatedKernel, shortest: float) -> SonineKernel:
    """Exponentials with rates in a geometric sequence, by least squares of the relative error."""
    longest, reach = kernel.end, -math.log(1e-16)
    count = math.ceil(math.log(reach * longest / (shortest * _SLOWEST)) / _SPACING) + 1
    rates = np.concatenate([[0.0], _SLOWEST / longest * np.exp(_SPACING * np.arange(count))])
    octaves = math.log(longest / shortest)
    u = longest * np.exp(-np.linspace(0.0, octaves, math.ceil(_POINTS * octaves / _SPACING)))
    # The sizes of the weights of a positive sum.
    sizes = kernel(np.minimum(1.0 / np.maximum(rates, 1.0 / longest), longest))
    table = np.exp(-np.multiply.outer(u, rates)) * sizes / kernel(u)[:, np.newaxis]
    weights = np.linalg.lstsq(table, np.ones(u.size), rcond=1e-14)[0] * sizes
    between = np.sqrt(u[1:]) * np.sqrt(u[:-1])
    fitted = np.exp(-np.multiply.outer(between, rates)) @ weights
    error = float(np.abs(fitted / kernel(between) - 1.0).max())
    return SonineKernel(kernel.power, 0, rates, weights, reach, kernel, error)

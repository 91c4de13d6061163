"""The Hadamard derivative and integral, and the Caputo-Hadamard derivative: operators in log t."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import Any, Unpack, final

import numpy as np

from hpfracc._choices import RuleName
from hpfracc._xp import NUMPY, namespace_of
from hpfracc.errors import InvalidInputError
from hpfracc.operators._caputo import Caputo
from hpfracc.operators._psi_caputo import ChangedVariable
from hpfracc.operators._riemann_liouville import RiemannLiouville, RiemannLiouvilleIntegral
from hpfracc.operators.core.base import function_of
from hpfracc.operators.core.call_types import MISSING, CeilingOptions, InitialOptions, MethodOptions, OrderNumber
from hpfracc.operators.core.function import Function
from hpfracc.operators.core.grids import Grid


class PowerVariable(ChangedVariable, ABC):
    """An operator in x = (t^rho - a^rho) / rho, whose limit for rho = 0 is log(t / a)."""

    __slots__ = ()

    rho: Any = 0.0

    def _image(self, points: Any, origin: float) -> tuple[Any, float]:
        rho, a, xp = self.rho, origin, namespace_of(points)
        if a < 0.0 or a == rho == 0.0:
            raise InvalidInputError(
                f"{self.who} starts at origin={a:g}, but {'t^rho needs t >= 0' if rho else 'log t needs t > 0'} from "
                f"the first point on; omit the points before, or give origin= {'0 or more' if rho else 'above 0'}"
            )
        with xp.scope():
            if not a:
                x = xp.array(points) ** rho / rho
            else:
                # log1p keeps the digits near a; the derivative of the quotient is that at t.
                x = np.log1p((points - a) / a) if xp is NUMPY else xp.log(xp.array(points) / a)
                x = xp.expm1(rho * x) * (a**rho / rho) if rho else x
        return x, 0.0 if xp is not NUMPY else float(x[-1]) * max(rho, 1.0) + a**rho

    def _original(self, x: np.ndarray[Any, Any], function: Function) -> np.ndarray[Any, Any]:
        rho, a = self.rho, function.origin
        if not a:
            return np.asarray((rho * x) ** (1.0 / rho))
        return np.asarray(a + a * np.expm1(np.log1p(rho * x / a**rho) / rho if rho else x))


class LogarithmicOperator(PowerVariable, ABC):
    """An operator in log t; a step given without points is a step in it."""

    __slots__ = ()

    grids = ("uniform in log t", "any")
    usual_origin = 1.0

    def _own_grid(self, grid: Grid, t: Any) -> Grid:
        return Grid(grid.n, 0.0, grid.step) if grid.points is None else PowerVariable._own_grid(self, grid, t)


@final
@dataclass(frozen=True, slots=True)
class Hadamard(LogarithmicOperator):
    r"""Hadamard derivative: the Riemann-Liouville derivative in log t. Not zero on constants.

    .. math:: D^\alpha f(t) = \frac{1}{\Gamma(n-\alpha)} \Big(t \frac{d}{dt}\Big)^n
        \int_{a}^{t} \Big(\log\frac{t}{s}\Big)^{n-\alpha-1} f(s)\,\frac{ds}{s}, \quad n = \lceil\alpha\rceil,\ a > 0.

    It maps :math:`(\log(t/a))^p` to :math:`\Gamma(p+1)/\Gamma(p+1-\alpha)\,(\log(t/a))^{p-\alpha}`. With
    :math:`x = \log(t/a)` it is the Riemann-Liouville derivative of :math:`f(a e^x)` in x, and it is computed as such:
    on points uniform in log t (``np.geomspace``) by the rules of :class:`RiemannLiouville` for uniform grids, with
    their orders in the step of log t, and on other points by those for arbitrary grids. Integer orders are
    :math:`(t\,d/dt)^n`, negative orders Hadamard integrals.

    Parameters
    ----------
    alpha : float or scalar array
        The order; differentiable if it is a tensor or JAX array.
    method : str
        As for :class:`RiemannLiouville`: ``"l1-2"`` (order n + 2 - alpha; used by ``"auto"``), ``"l1"``
        (n + 1 - alpha), ``"cq2"`` to ``"cq6"``; on points not uniform in log t ``"l1"`` or ``"fast"``; for callables
        ``"spectral"`` or ``"graded"``.
    ceiling : int, optional
        The integer n, needed only if ``alpha`` is traced and above 1.

    Notes
    -----
    The origin a is the first point of samples, and ``origin=`` or 1 for callables. ``step=`` is the spacing in log t;
    it may be differentiable.

    References
    ----------
    A. A. Kilbas, H. M. Srivastava, J. J. Trujillo, *Theory and Applications of Fractional Differential Equations*,
    2006, section 2.7.
    """

    alpha: OrderNumber
    method: RuleName = "auto"
    ceiling: int | None = None

    definition = "hadamard"
    who = "the Hadamard derivative"
    inner = RiemannLiouville


@function_of(Hadamard, see_also="caputo_hadamard, hadamard_integral, psi_caputo")
def hadamard(f: Any, t: Any = None, alpha: OrderNumber = MISSING, **options: Unpack[CeilingOptions]) -> Any:
    """Hadamard derivative of samples or of a callable.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> t = np.geomspace(1.0, np.e, 101)
    >>> float(np.round(hf.hadamard(np.log(t), t, 0.5)[-1], 10))  # 1 / Gamma(1.5)
    1.1283791671
    >>> float(np.round(hf.hadamard(np.log, np.e, 0.5), 10))
    1.1283791671
    """


@final
@dataclass(frozen=True, slots=True)
class CaputoHadamard(LogarithmicOperator):
    r"""Caputo-Hadamard derivative: the Caputo derivative in log t. Zero on constants, unlike Hadamard's.

    .. math:: D^\alpha f(t) = \frac{1}{\Gamma(n-\alpha)} \int_{a}^{t} \Big(\log\frac{t}{s}\Big)^{n-\alpha-1}
        \Big(s \frac{d}{ds}\Big)^n f(s)\,\frac{ds}{s}, \quad n = \lceil\alpha\rceil,\ a > 0.

    Parameters
    ----------
    alpha : float or scalar array
        The order; differentiable if it is a tensor or JAX array. Negative orders are Hadamard integrals.
    method : str
        As for :class:`Caputo`, with the same orders in the step of log t: ``"l1-2"`` (n + 2 - alpha; used by ``"auto"``
        on points uniform in log t), ``"l1"`` (n + 1 - alpha; used by ``"auto"`` on other points), ``"fast"``; for
        callables ``"spectral"`` or ``"graded"``.
    ceiling : int, optional
        The integer n, needed only if ``alpha`` is traced and above 1.
    initial : sequence, optional
        For samples and orders above 1: as for :class:`Caputo`, the derivatives 1 to n - 1 at the origin, in log t:
        :math:`(t\,d/dt)^k f` at t = a.

    Notes
    -----
    ``origin=`` and ``step=`` are as for :class:`Hadamard`.

    References
    ----------
    F. Jarad, T. Abdeljawad, D. Baleanu, Adv. Difference Equ. 2012:142.
    """

    alpha: OrderNumber
    method: RuleName = "auto"
    ceiling: int | None = None
    initial: Any = None

    definition = "caputo_hadamard"
    short_names = ("CH",)
    who = "the Caputo-Hadamard derivative"
    inner = Caputo


@function_of(CaputoHadamard, see_also="hadamard, psi_caputo, caputo")
def caputo_hadamard(f: Any, t: Any = None, alpha: OrderNumber = MISSING, **options: Unpack[InitialOptions]) -> Any:
    """Caputo-Hadamard derivative of samples or of a callable.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> t = np.geomspace(1.0, np.e, 101)
    >>> float(np.round(hf.caputo_hadamard(3.0 + np.log(t), t, 0.5)[-1], 10))  # 1 / Gamma(1.5), whatever is added
    1.1283791671
    """


@final
@dataclass(frozen=True, slots=True)
class HadamardIntegral(LogarithmicOperator):
    r"""Hadamard integral: the Riemann-Liouville integral in log t.

    .. math:: I^\mu f(t) = \frac{1}{\Gamma(\mu)} \int_{a}^{t} \Big(\log\frac{t}{s}\Big)^{\mu-1} f(s)\,\frac{ds}{s},
        \quad \mu > 0,\ a > 0.

    Parameters
    ----------
    alpha : float or scalar array
        The order, positive (0 gives f itself); differentiable if it is a tensor or JAX array.
    method : str
        As for :class:`RiemannLiouvilleIntegral`, with the same orders in the step of log t: ``"simpson"`` (used by
        ``"auto"``), ``"trapezoid"``, ``"cq2"`` to ``"cq6"``; on points not uniform in log t ``"trapezoid"`` or
        ``"fast"``; for callables ``"spectral"`` or ``"graded"``.

    Notes
    -----
    ``origin=`` and ``step=`` are as for :class:`Hadamard`.

    References
    ----------
    J. Hadamard, J. Math. Pures Appl. 8 (1892) 101-186; Kilbas, Srivastava, Trujillo 2006, section 2.7.
    """

    alpha: OrderNumber
    method: RuleName = "auto"

    definition = "hadamard"
    who = "the Hadamard integral"
    inner = RiemannLiouvilleIntegral


@function_of(HadamardIntegral, see_also="hadamard, caputo_hadamard, riemann_liouville_integral")
def hadamard_integral(f: Any, t: Any = None, alpha: OrderNumber = MISSING, **options: Unpack[MethodOptions]) -> Any:
    """Hadamard integral of samples or of a callable.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> t = np.geomspace(1.0, np.e, 101)
    >>> float(np.round(hf.hadamard_integral(np.ones(101), t, 1.0)[-1], 10))  # log t
    1.0
    """

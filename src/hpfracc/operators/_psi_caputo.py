"""Operators in another variable: psi-Caputo, Hadamard and Caputo-Hadamard, and the change of variable itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Unpack, final

import numpy as np

from hpfracc._arrays import is_tracer, library_of, refuse_masked, to_host, tracks_gradient
from hpfracc._choices import CqName, IntegralName, L1Name
from hpfracc._xp import NUMPY, namespace_of
from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.operators._caputo import Caputo
from hpfracc.operators._riemann_liouville import RiemannLiouville, RiemannLiouvilleIntegral
from hpfracc.operators.core.base import FractionalOperator, function_of
from hpfracc.operators.core.call_types import MISSING, CeilingOptions, InitialOptions, MethodOptions, OrderNumber
from hpfracc.operators.core.function import Function
from hpfracc.operators.core.grids import Grid, images_of, invert, require_rising, rounding_of_points, uniform_step
from hpfracc.operators.core.reporting import Outcome
from hpfracc.operators.core.values import Samples

Array = np.ndarray[Any, Any]


#: Largest distance of psi of its inverse, relative to the largest value of psi.
_ALIKE = 1e-8


class ChangedVariable(FractionalOperator, ABC):
    """Another operator in a variable x(t) that increases from 0 at the origin."""

    __slots__ = ()

    @abstractmethod
    def _image(self, points: Any, origin: float) -> tuple[Any, float]:
        """The new variable at points of any library, and its size, to which its rounding error is relative."""

    @abstractmethod
    def _original(self, x: Array, function: Function) -> Array:
        """The points of t at x."""

    def _own_grid(self, grid: Grid, t: Any) -> Grid:
        if grid.n == 0:
            return grid  # the method raises the error, with the number of points that it needs
        moving = _moving_points(grid, t)
        traced = None if moving is None else self._image(moving, grid.origin)[0]
        if is_tracer(grid.step):
            # Neither the values nor their uniformity can be checked.
            return Grid(grid.n, 0.0, None, None, traced)
        x, size = self._image(grid.times(), grid.origin)
        step: Any = uniform_step(x, rounding_of_points(t) * size)
        if step is None or traced is None:
            return Grid(grid.n, 0.0, step, x, traced)
        return Grid(grid.n, 0.0, (traced[-1] - traced[0]) / max(grid.n - 1, 1), x)

    def _of_samples(self, samples: Samples) -> Outcome:
        return self._inner().applied(samples, self.who)

    def _of_function(self, function: Function) -> Outcome:
        points, _ = self._image(function.points, function.origin)
        return self._inner()._of_function(
            replace(function, points=points, origin=0.0, own_to_user=lambda x: self._original(x, function))
        )


@final
@dataclass(frozen=True, slots=True)
class PsiCaputo(ChangedVariable):
    r"""Caputo derivative with respect to an increasing function psi.

    .. math:: D^{\alpha,\psi} f(t) = \frac{1}{\Gamma(n-\alpha)} \int_{t_0}^{t} \psi'(s)
        \big(\psi(t)-\psi(s)\big)^{n-\alpha-1} \Big(\frac{1}{\psi'(s)}\frac{d}{ds}\Big)^n f(s)\,ds,
        \quad n = \lceil\alpha\rceil.

    With :math:`x = \psi(t) - \psi(t_0)` it is the Caputo derivative of f in x: psi = t gives the Caputo derivative, psi
    = log t Caputo-Hadamard, psi = t^rho / rho Caputo-Katugampola. It maps
    :math:`(\psi-\psi(t_0))^p` to :math:`\Gamma(p+1)/\Gamma(p+1-\alpha)\,(\psi-\psi(t_0))^{p-\alpha}`, and constants to
    zero. The derivative of psi is not needed, because of the change of variable.

    Parameters
    ----------
    alpha : float or scalar array
        The order; differentiable if it is a tensor or JAX array.
    psi : callable or array_like
        The increasing function, called with a NumPy array of points, or its samples at the points of f. If the step or
        the points are differentiable, it is also called with them, and must be written in functions of their library.
    inverse : callable, optional
        The inverse of psi, for callables f; computed by bisection by default.
    method : str
        As for :class:`Caputo`: on points that psi maps to a uniform grid ``"l1-2"`` (order n + 2 - alpha in the step
        of psi) or ``"l1"`` (n + 1 - alpha), on others ``"l1"`` or ``"fast"``; for callables ``"spectral"`` or
        ``"graded"``.
    ceiling : int, optional
        The integer n, needed only if ``alpha`` is traced and above 1.
    initial : sequence, optional
        For samples and orders above 1: as for :class:`Caputo`, the derivatives 1 to n - 1 at the origin with respect to
        psi, :math:`(\psi'^{-1} d/dt)^k f`.

    References
    ----------
    R. Almeida, Commun. Nonlinear Sci. Numer. Simul. 44 (2017) 460-481.
    """

    alpha: OrderNumber
    psi: Any = None
    inverse: Callable[[Any], Any] | None = None
    method: L1Name = "auto"
    ceiling: int | None = None
    initial: Any = None

    definition = "psi_caputo"
    who = "the psi-Caputo derivative"
    inner = Caputo
    grids = ("uniform in psi", "any")

    def __post_init__(self) -> None:
        if self.psi is None:
            raise InvalidInputError("psi is not given; use an increasing function such as np.log, or its samples")

    def _image(self, points: Any, origin: float) -> tuple[Any, float]:
        if library_of(points) != "numpy":
            return self._traced(points), 0.0
        here = points[0] == origin
        given = points if here else np.append(origin, points)
        images = self._sampled(len(points)) if here and not callable(self.psi) else self._images(given)
        require_rising(images, given)
        images = images.astype(np.float64)
        return images[len(given) - len(points) :] - images[0], float(np.abs(images[[0, -1]]).max())

    def _sampled(self, n: int) -> Array:
        refuse_masked(self.psi, "psi", "t")
        images = to_host(self.psi)
        if images.shape != (n,):
            raise ShapeError(f"psi has shape {images.shape} but f has {n} samples; give psi at each point")
        return images

    def _traced(self, points: Any) -> Any:
        """Evaluate psi at differentiable points; raises an error if psi does not support them."""
        if not callable(self.psi):
            raise InvalidInputError(
                f"{self.who} is not differentiable in the step or the points if psi is given by samples; "
                "give psi as a callable, or detach them"
            )
        try:
            images = self.psi(points)
        except Exception as error:
            raise InvalidInputError(
                f"{self.who} is not differentiable in the step or the points here, because psi does not accept points "
                f"of {library_of(points)} ({error}); write it in functions of {library_of(points)}, or detach them"
            ) from error
        if library_of(images) != library_of(points) or tuple(images.shape) != tuple(points.shape):
            raise InvalidInputError(
                f"{self.who}: psi gave {type(images).__name__} for points of {library_of(points)} that carry a "
                f"derivative; give psi in functions of {library_of(points)}, or detach the step and the points"
            )
        return images - images[0]

    def _images(self, points: Array) -> Array:
        if not callable(self.psi):
            raise InvalidInputError("psi is given by samples, but f is a callable; give psi as a callable too")
        return images_of(self.psi, points)

    def _original(self, x: Array, function: Function) -> Array:
        """The points at which psi has these values, between the origin and the last point."""
        start, end = self._images(np.array([function.origin, function.end]))
        images = x + start
        found = invert(self.psi, self.inverse, images, function.origin, function.end)
        if self.inverse is not None:
            gap = np.abs(self._images(found) - images)
            if not gap.max(initial=0.0) <= _ALIKE * max(abs(start), abs(end), np.abs(images).max(initial=0.0)):
                j = int(gap.argmax())
                raise InvalidInputError(
                    f"inverse gives {found[j]:.12g} for {images[j]:.12g}, but psi there differs from it by "
                    f"{gap[j]:.2g}; give the inverse of psi, or omit it: it is then found by bisection"
                )
        return found


def _moving_points(grid: Grid, t: Any) -> Any:
    """Differentiable points if the caller's points or the step are differentiable, otherwise None."""
    if grid.traced is not None:
        return grid.traced
    step = grid.step
    if library_of(step) not in ("torch", "jax") or not tracks_gradient(step):
        return None
    if library_of(t) in ("torch", "jax"):
        return t
    xp = namespace_of(step)
    with xp.scope():
        return grid.origin + xp.array(np.arange(grid.n, dtype=np.float64)) * xp.array(step)


class PsiOptions(InitialOptions[L1Name], total=False):
    """The options of :func:`psi_caputo`."""

    inverse: Callable[[Any], Any] | None


@function_of(PsiCaputo, see_also="caputo, caputo_hadamard")
def psi_caputo(
    f: Any, t: Any = None, alpha: OrderNumber = MISSING, psi: Any = None, **options: Unpack[PsiOptions]
) -> Any:
    """psi-Caputo derivative of samples or of a callable.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> float(np.round(hf.psi_caputo(lambda t: t**4, 1.0, 0.5, np.square), 10))  # psi^2: 2 / Gamma(2.5)
    1.5045055561
    """


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

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> t = np.geomspace(1.0, 4.0, 201)
    >>> value = hf.Hadamard(0.5)(np.log(t), t)  # 2 sqrt(log t / pi)
    >>> bool(np.allclose(value, 2.0 * np.sqrt(np.log(t) / np.pi)))
    True
    """

    alpha: OrderNumber
    method: CqName = "auto"
    ceiling: int | None = None

    definition = "hadamard"
    who = "the Hadamard derivative"
    inner = RiemannLiouville


@function_of(Hadamard, see_also="caputo_hadamard, hadamard_integral, psi_caputo")
def hadamard(f: Any, t: Any = None, alpha: OrderNumber = MISSING, **options: Unpack[CeilingOptions[CqName]]) -> Any:
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
    method: L1Name = "auto"
    ceiling: int | None = None
    initial: Any = None

    definition = "caputo_hadamard"
    short_names = ("CH",)
    who = "the Caputo-Hadamard derivative"
    inner = Caputo


@function_of(CaputoHadamard, see_also="hadamard, psi_caputo, caputo")
def caputo_hadamard(
    f: Any, t: Any = None, alpha: OrderNumber = MISSING, **options: Unpack[InitialOptions[L1Name]]
) -> Any:
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
    method: IntegralName = "auto"

    definition = "hadamard"
    who = "the Hadamard integral"
    inner = RiemannLiouvilleIntegral


@function_of(HadamardIntegral, see_also="hadamard, caputo_hadamard, riemann_liouville_integral")
def hadamard_integral(
    f: Any, t: Any = None, alpha: OrderNumber = MISSING, **options: Unpack[MethodOptions[IntegralName]]
) -> Any:
    """Hadamard integral of samples or of a callable.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> t = np.geomspace(1.0, np.e, 101)
    >>> float(np.round(hf.hadamard_integral(np.ones(101), t, 1.0)[-1], 10))  # log t
    1.0
    """

"""The psi-Caputo derivative, and the change of variable that it shares with other operators."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Unpack, final

import numpy as np

from hpfracc._arrays import is_tracer, library_of, refuse_masked, to_host, tracks_gradient
from hpfracc._choices import RuleName
from hpfracc._xp import namespace_of
from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.operators._caputo import Caputo
from hpfracc.operators.core.base import FractionalOperator, function_of
from hpfracc.operators.core.call_types import MISSING, InitialOptions, OrderNumber
from hpfracc.operators.core.function import Function
from hpfracc.operators.core.grids import Grid, images_of, invert, require_rising, rounding_of_points, uniform_step
from hpfracc.operators.core.reporting import Outcome
from hpfracc.operators.core.values import Samples

Array = np.ndarray[Any, Any]


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
    method: RuleName = "auto"
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
        images = self._sampled(len(points)) if here and not callable(self.psi) else self._images(points)
        require_rising(images, points)
        start = float(images[0] if here else self._images(np.array([origin]))[0])
        if not start <= images[0]:
            raise InvalidInputError(
                f"psi does not increase: {start:g} at the origin {origin:g} and {images[0]:g} at t={points[0]:g}"
            )
        return images - start, max(abs(start), abs(float(images[-1])))

    def _sampled(self, n: int) -> Array:
        refuse_masked(self.psi, "psi", "t")
        images = to_host(self.psi).astype(np.float64)
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
        images = x + float(self._images(np.array([function.origin]))[0])
        return invert(self.psi, self.inverse, images, function.origin, function.end)


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


class PsiOptions(InitialOptions, total=False):
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

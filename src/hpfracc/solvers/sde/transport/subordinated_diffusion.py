"""Diffusion in a force field, subordinated to an inverse stable subordinator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from hpfracc.errors import InvalidInputError, ShapeError, SolveError
from hpfracc.solvers.sde.noise.process import Noise, TimeGrid, read_fields
from hpfracc.solvers.sde.noise.source import RandomSource
from hpfracc.solvers.sde.noise.subordinated import InverseSubordinator
from hpfracc.solvers.sde.transport.domains import read_start

#: Streams of the normal numbers: one for each time and block of steps.
_STREAM, _PER_TIME = 1 << 54, 1 << 24
#: Steps whose numbers are drawn together.
_BLOCK = 16


@final
@dataclass(frozen=True)
class SubordinatedDiffusion(Noise):
    r"""A diffusion :math:`dX_u = f(X_u)\,du + g(X_u)\,dW_u` (Ito) at the inverse stable time :math:`E_t`.

    Its density solves the fractional Fokker-Planck equation [1]

    .. math:: D_t^\alpha p = -\partial_x (f p) + \tfrac12 \partial_x^2 (g^2 p)

    with the Caputo derivative. With :math:`f(x) = -V'(x)` it is subdiffusion in the potential V.

    Parameters
    ----------
    drift : callable
        ``f(x)`` of an array of positions, one for each path; returns an array of that shape, or a number.
    diffusion : float or callable
        ``g(x)``.
    alpha : float
        Index of the clock, between 0 and 1.
    step : float
        Longest step of the Euler-Maruyama method, in the time u of the clock. The weak error is of first order in it.
    start : float
        Initial position.

    Notes
    -----
    The joint law of the clock at all times is exact. Between two of its values the diffusion takes equal steps of at
    most ``step``, so it is known exactly at the values of the clock. For diffusion without a force use
    :class:`~hpfracc.noise.Subordinated`, which is exact.

    References
    ----------
    1. M. Magdziarz, A. Weron, K. Weron, "Fractional Fokker-Planck dynamics: stochastic representation and computer
       simulation", Phys. Rev. E 75, 2007.

    Examples
    --------
    >>> import numpy as np
    >>> from hpfracc import transport
    >>> trapped = transport.SubordinatedDiffusion(lambda x: -x, 1.0, 0.7, step=0.01, start=1.0)
    >>> trapped.sample(np.linspace(0, 1, 5), size=3, rng=1).shape
    (3, 5)
    """

    drift: Callable[[np.ndarray], Any]
    diffusion: float | Callable[[np.ndarray], Any]
    alpha: float
    step: float
    start: float = 0.0

    def __post_init__(self) -> None:
        if not callable(self.drift):
            raise InvalidInputError(f"drift={self.drift!r}: give a function of the position, such as lambda x: -x")
        if not callable(self.diffusion):
            read_fields(self, "diffusion")
        object.__setattr__(self, "alpha", InverseSubordinator(self.alpha).alpha)
        read_fields(self, "step")
        object.__setattr__(self, "start", read_start(self.start, None))

    def _sample(self, source: RandomSource, grid: TimeGrid, count: int) -> Any:
        def draw(part: RandomSource, rows: int) -> np.ndarray:
            spans = np.diff(InverseSubordinator(self.alpha)._sample(part, grid, rows), prepend=0.0)
            place, result = np.full(rows, self.start), np.empty(spans.shape)
            for index in range(grid.times.size):
                self._move(part, place, spans[:, index], index)
                result[:, index] = place
            return result

        return source.array(source.on_host().in_chunks(count, 32, draw))

    def _move(self, host: RandomSource, place: np.ndarray, spans: np.ndarray, index: int) -> None:
        """Steps over spans of the clock, one span for each path."""
        steps = np.ceil(spans / self.step).astype(np.int64)
        most = int(steps.max(initial=0))
        if most > _BLOCK * _PER_TIME:
            raise InvalidInputError(
                f"the clock advances by {spans.max():.3g} between two times: {most:,} steps of {self.step:g}; use a "
                "larger step, or more times"
            )
        width = spans / np.maximum(steps, 1)
        for taken in range(0, most, _BLOCK):
            going = np.flatnonzero(steps > taken)
            stream = _STREAM + index * _PER_TIME + taken // _BLOCK
            normals = host.numbers_of(going, min(_BLOCK, most - taken), stream=stream)
            for k in range(normals.shape[1]):
                on = steps[going] > taken + k
                where = going[on]
                x, h = place[where], width[where]
                drift, diffusion = (self._value(name, x) for name in ("drift", "diffusion"))
                place[where] = x + drift * h + diffusion * np.sqrt(h) * normals[on, k]
        if not np.all(np.isfinite(place)):
            raise SolveError(f"paths are not finite after time number {index}; use a smaller step than {self.step:g}")

    def _value(self, name: str, x: np.ndarray) -> np.ndarray:
        given = getattr(self, name)
        value = np.asarray(given(x) if callable(given) else given, dtype=np.float64)
        if value.shape not in ((), x.shape):
            raise ShapeError(f"{name} returned shape {value.shape} for positions of shape {x.shape}; return that shape")
        return value

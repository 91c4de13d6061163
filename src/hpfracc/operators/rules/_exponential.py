"""Caputo-Fabrizio: interpolated samples under an exponential kernel."""

from __future__ import annotations

from typing import Any, final

import numpy as np

from hpfracc.engine.execution.api import exponential_recurrence
from hpfracc.operators._grids import Grid
from hpfracc.operators._order import Order
from hpfracc.operators._values import Samples, constant, scalar
from hpfracc.operators.rules._increments import increments
from hpfracc.operators.rules._line_or_parabola import LineOrParabola
from hpfracc.operators.rules._memory import bends_of, on_step
from hpfracc.operators.rules._moments import exponential_mean, exponential_tilt

__all__ = ["ExponentialMemory"]


@final
class ExponentialMemory(LineOrParabola):
    r"""The integral of f' against :math:`e^{-c(t-s)}/(1-\alpha)`, :math:`c = \alpha/(1-\alpha)`, in O(n).

    .. math::
        s_k = e^{-ch} s_{k-1} + \frac{1}{1-\alpha} \Big[ \frac{1-e^{-ch}}{ch}\,\delta_k
        + b\,(\delta_k - \delta_{k-1}) \Big], \quad \delta_k = f_k - f_{k-1},\;
        b = \int_0^1 e^{-chv} (\tfrac12 - v)\,dv.

    Without the term in b f is interpolated by lines (order 2, ``"linear"``), with it by parabolas (order 3,
    ``"quadratic"``; the first interval by a line), at every point beyond the first, for f with as many continuous
    derivatives. Zero, exactly, on constants. On any increasing grid, h being the length of the k-th interval and the
    bend that of the parabola through three neighbours.

    References
    ----------
    M. Caputo, M. Fabrizio, Progr. Fract. Differ. Appl. 1 (2015) 73-85.
    """

    cost = "O(n)"
    any_grid = True

    def apply(self, samples: Samples, order: Order) -> Any:
        """One recurrence over the increments."""
        x, grid = samples.values, samples.grid
        order = on_step(order, grid.step)
        xp = order.xp
        # On a grid that is not uniform each interval has its own; the point before the first has none.
        lengths = grid.step if grid.uniform else np.diff(grid.times(), prepend=grid.times()[0] - 1.0)
        with xp.scope():
            factor = order.guard(1.0 / (1.0 - order.value))
            rate = order.value * factor
            z = rate * xp.array(lengths)
            mean, tilt = factor * exponential_mean(xp, z), factor * exponential_tilt(xp, z)
            decay, one = rate * xp.array([1.0]), xp.array([1.0])
        steps = increments(x, 1)
        signal = steps * _factors(mean, x, grid)
        if self.quadratic:
            signal = signal + bends_of(steps, grid) * _factors(tilt, x, grid)
        return exponential_recurrence(decay, one, lengths, signal, backend=samples.backend)


def _factors(value: Any, x: Any, grid: Grid) -> Any:
    return scalar(value, x) if grid.uniform else constant(value, x)

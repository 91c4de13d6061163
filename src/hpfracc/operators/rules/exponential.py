"""Caputo-Fabrizio: interpolated samples under an exponential kernel."""

from __future__ import annotations

import math
from typing import Any, final

import numpy as np

from hpfracc._xp import Namespace
from hpfracc.engine.execution.api import exponential_recurrence
from hpfracc.operators.core.grids import Grid
from hpfracc.operators.core.order import Order
from hpfracc.operators.core.values import Samples, constant, scalar
from hpfracc.operators.rules.bounded_kernel import LineOrParabola, bends_of, exponential_mean, exponential_tilt, on_step
from hpfracc.operators.rules.increments import increments

__all__ = ["ExponentialRule"]

#: Time constants after which the kernel is negligible in double precision.
_GONE = 700.0


@final
class ExponentialRule(LineOrParabola):
    r"""The integral of f' against :math:`e^{-c(t-s)}/(1-\alpha)`, :math:`c = \alpha/(1-\alpha)`, in O(n).

    .. math::
        s_k = e^{-ch} s_{k-1} + \frac{1}{1-\alpha} \Big[ \frac{1-e^{-ch}}{ch}\,\delta_k
        + b\,(\delta_k - \delta_{k-1}) \Big], \quad \delta_k = f_k - f_{k-1},\;
        b = \int_0^1 e^{-chv} (\tfrac12 - v)\,dv.

    Without the term in b, f is interpolated linearly (order 2, ``"linear"``); with it, quadratically (order 3,
    ``"quadratic"``; linearly on the first interval). The order holds at every point after the first, for f with that
    many continuous derivatives. Exactly zero on constants. On other increasing grids h is the length of the k-th
    interval and the second difference is that of the parabola through three neighbours.

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
        # On a non-uniform grid each interval has its own rate; there is none before the first point.
        lengths = grid.step if grid.uniform else np.concatenate([[1.0], np.diff(grid.times())])
        with xp.scope():
            means, tilts = _moments(xp, order.value, xp.array(lengths))
            mean, tilt = order.guard(means), order.guard(tilts)
            decay, one = _rate(xp, order.value, xp.array(_shortest(grid))) * xp.array([1.0]), xp.array([1.0])
        steps = increments(x, 1)
        signal = steps * _factors(mean, x, grid)
        if self.quadratic:
            signal = signal + bends_of(steps, grid) * _factors(tilt, x, grid)
        return exponential_recurrence(decay, one, lengths, signal, backend=samples.backend)


def _shortest(grid: Grid) -> Any:
    """The length of the shortest interval."""
    if grid.uniform:
        return grid.step
    return float(np.diff(grid.times()).min(initial=math.inf))


def _rate(xp: Namespace, alpha: Any, shortest: Any) -> Any:
    """``alpha / (1 - alpha)``, limited to a rate at which the kernel is negligible after the shortest interval."""
    room = 1.0 - alpha
    gone = alpha * shortest > _GONE * room
    return xp.where(gone, _GONE / shortest, alpha / xp.where(gone, 1.0, room))


def _moments(xp: Namespace, alpha: Any, lengths: Any) -> tuple[Any, Any]:
    """Mean and tilt of the kernel over an interval, over 1 - alpha: finite and differentiable at alpha = 1 too."""
    room, span = 1.0 - alpha, alpha * lengths
    slow = span < 2.0 * room
    divisor = xp.where(slow, room, 1.0)
    z = xp.where(slow, span, 1.0) / divisor
    # For large z in terms of 1/z, which is 0 at alpha = 1. The remainder has no derivative there.
    w = xp.where(slow, 0.25, room / span)
    left = xp.where(w * _GONE > 1.0, xp.exp(-1.0 / xp.where(w * _GONE > 1.0, w, 1.0)), 0.0)
    fast_mean, fast_tilt = (1.0 - left) / span, ((0.5 - w) * (1.0 - left) + left) / span
    slow_mean, slow_tilt = exponential_mean(xp, z) / divisor, exponential_tilt(xp, z) / divisor
    return xp.where(slow, slow_mean, fast_mean), xp.where(slow, slow_tilt, fast_tilt)


def _factors(value: Any, x: Any, grid: Grid) -> Any:
    return scalar(value, x) if grid.uniform else constant(value, x)

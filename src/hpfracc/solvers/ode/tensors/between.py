"""The solution between the steps of a solve on tensors, differentiable in the order too."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpfracc._arrays import library_of
from hpfracc._xp import namespace_of
from hpfracc.solvers.ode.fixed.grid import UniformGrid
from hpfracc.solvers.ode.tensors.adams import initial_polynomial
from hpfracc.solvers.ode.tensors.rule import convert_like

__all__ = ["interpolated", "states_at"]

Array = np.ndarray[Any, Any]

#: Times closer to a step than this, in steps, count as that step.
_ON_STEP = 1e-6


def states_at(
    times: Array, grid: UniformGrid, states: Any, alpha: Any, further: tuple[Any, ...], moving: Any = None
) -> tuple[Array, Any]:
    r"""The times that were reached, and the states there, shape (len(times), ..., d).

    A solution starts with powers of :math:`\tau^\alpha`, which a polynomial in :math:`\tau = t - t_0` interpolates
    badly in the first steps. Therefore the polynomial of the ``further`` initial values is subtracted, and the rest is
    interpolated by the cubic in :math:`\tau^\alpha` through the four nearest steps. Far from the start this is as
    accurate as a cubic in :math:`\tau`. The order may be traced, because no list of powers is needed. ``moving`` are
    the times with their gradient: that of the interpolation.
    """
    known = states.shape[0]
    place = (times - grid.t0) / grid.step
    times = times[place <= known - 1 + _ON_STEP]
    place = place[: times.size]
    nearest = np.rint(place)
    if moving is None and np.all(np.abs(place - nearest) <= _ON_STEP):
        return times, states[nearest.astype(np.int64)]
    width = min(4, known)
    first = np.clip(np.floor(place).astype(np.int64) - (width - 2) // 2, 0, known - width)
    there = place if moving is None else (moving[: times.size] - grid.t0) / grid.step
    return times, interpolated(there, first, width, grid.step, states, alpha, further)


def interpolated(
    place: Any, first: Array, width: int, step: float, states: Any, alpha: Any, further: tuple[Any, ...]
) -> Any:
    """The polynomial in powers of the order through ``width`` states from ``first`` on, at each ``place``.

    Places are in units of ``step`` and count from t0.
    """

    def given(tau: Any) -> Any:
        """The polynomial of the further initial values."""
        return initial_polynomial(convert_like(tau, states).reshape(-1, *(1,) * (states.ndim - 1)), (0.0, *further))

    nodes = [first + float(j) for j in range(width)]
    total: Any = given(place * step)
    for j, factor in enumerate(_factors(place, nodes, alpha, states)):
        total = total + (states[first + j] - given(nodes[j] * step)) * factor
    return total


def _factors(place: Any, nodes: list[Any], alpha: Any, like: Any) -> list[Any]:
    """Lagrange factors in powers of the order, each of shape (times, ...) that broadcasts to the states."""
    xp = namespace_of(alpha if library_of(place) == "numpy" else place)
    with xp.scope():
        order = xp.array(alpha)
        column = (slice(None), *(None,) * order.ndim)

        def raised(steps: Any) -> Any:
            """``steps^alpha``, 0 at 0."""
            values = xp.array(steps)
            after = values > 0.0
            safe = xp.where(after, values, 1.0 + 0.0 * values)
            return xp.exp(order * xp.log(safe)[column]) * xp.where(after, 1.0 + 0.0 * safe, 0.0 * safe)[column]

        here, powers = raised(place), [raised(node) for node in nodes]
        found = []
        for j in range(len(nodes)):
            factor = 1.0 + 0.0 * here
            for i in range(len(nodes)):
                if i != j:
                    factor = factor * (here - powers[i]) / (powers[j] - powers[i])
            found.append(convert_like(factor, like))
    missing = like.ndim - found[0].ndim
    return [each.reshape(each.shape[0], *(1,) * missing, *each.shape[1:]) for each in found]

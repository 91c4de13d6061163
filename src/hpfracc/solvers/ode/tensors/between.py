"""The solution between the steps of a solve on tensors, differentiable in the order too."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

from hpfracc._arrays import library_of
from hpfracc._xp import namespace_of
from hpfracc.solvers.ode.fixed.grid import UniformGrid
from hpfracc.solvers.ode.tensors.rule import convert_like

__all__ = ["states_at"]

Array = np.ndarray[Any, Any]

#: Times closer to a step than this, in steps, count as that step.
_ON_STEP = 1e-6


def states_at(times: Array, grid: UniformGrid, states: Any, alpha: Any, further: tuple[Any, ...]) -> tuple[Array, Any]:
    r"""The times that were reached, and the states there, shape (len(times), ..., d).

    A solution starts with powers of :math:`\tau^\alpha`, which a polynomial in :math:`\tau = t - t_0` interpolates
    badly in the first steps. Therefore the polynomial of the ``further`` initial values is subtracted, and the rest is
    interpolated by the cubic in :math:`\tau^\alpha` through the four nearest steps. Far from the start this is as
    accurate as a cubic in :math:`\tau`. The order may be traced, because no list of powers is needed.
    """
    known = states.shape[0]
    place = (times - grid.t0) / grid.step
    times = times[place <= known - 1 + _ON_STEP]
    place = place[: times.size]
    nearest = np.rint(place)
    if np.all(np.abs(place - nearest) <= _ON_STEP):
        return times, states[nearest.astype(np.int64)]
    width = min(4, known)
    first = np.clip(np.floor(place).astype(np.int64) - (width - 2) // 2, 0, known - width)
    total: Any = _further(place * grid.step, further, states)
    for j, factor in enumerate(_factors(place, first, width, alpha, states)):
        node = states[first + j]
        begin = _further((first + j) * grid.step, further, states)
        part = (node if begin is None else node - begin) * factor
        total = part if total is None else total + part
    return times, total


def _factors(place: Array, first: Array, width: int, alpha: Any, like: Any) -> list[Any]:
    """Lagrange factors in powers of the order, each of shape (times, ...) that broadcasts to the states."""
    xp = namespace_of(alpha)
    with xp.scope():
        order = xp.array(alpha)
        column = (slice(None), *(None,) * order.ndim)

        def raised(steps: Array) -> Any:
            """``steps^alpha``, 0 at 0."""
            logarithms = xp.array(np.log(np.where(steps > 0.0, steps, 1.0))[column])
            return xp.exp(order * logarithms) * xp.array((steps > 0.0)[column].astype(np.float64))

        here = raised(place)
        nodes = [raised((first + j).astype(np.float64)) for j in range(width)]
        found = []
        for j in range(width):
            factor = 1.0 + 0.0 * here
            for i in range(width):
                if i != j:
                    factor = factor * (here - nodes[i]) / (nodes[j] - nodes[i])
            found.append(convert_like(factor, like))
    missing = like.ndim - found[0].ndim
    return [each.reshape(each.shape[0], *(1,) * missing, *each.shape[1:]) for each in found]


def _further(tau: Array, further: tuple[Any, ...], like: Any) -> Any:
    """The polynomial of the further initial values at these times; None if there are none."""
    total: Any = None
    for number, value in enumerate(further, start=1):
        part = value * _column(tau**number / math.factorial(number), like)
        total = part if total is None else total + part
    return total


def _column(values: Array, like: Any) -> Any:
    shaped = values.reshape(-1, *(1,) * (like.ndim - 1))
    if library_of(like) == "torch":
        return like.new_tensor(shaped)
    return sys.modules["jax"].numpy.asarray(shaped, dtype=like.dtype)

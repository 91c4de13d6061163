"""Derivatives under a bounded memory kernel: the samples' increments, convolved with the kernel's moments."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpfracc._arrays import library_of
from hpfracc.operators._namespace import namespace_of
from hpfracc.operators._order import Order
from hpfracc.operators.core.grids import Grid
from hpfracc.operators.core.values import constant, join, zeros

__all__ = ["bends_of", "on_step"]


def on_step(order: Order, step: Any) -> Order:
    """The order in the library of a step that carries a derivative: such weights depend on both."""
    if order.plain and library_of(step) in ("torch", "jax"):
        xp = namespace_of(step)
        with xp.scope():
            return Order(xp.array(np.float64(order.value)), order.known, order.ceiling, xp)
    return order


def bends_of(steps: Any, grid: Grid) -> Any:
    """How much each increment differs from what the parabola through it and the one before has for a line.

    ``2 f[t_{k-2}, t_{k-1}, t_k] h_k^2``, on a uniform grid the difference of the two; 0 where there is none before.
    """
    head = zeros(steps, min(2, steps.shape[-1]))
    if grid.uniform:
        return join([head, steps[..., 2:] - steps[..., 1:-1]])
    lengths = np.diff(grid.times())
    now, before = lengths[1:], lengths[:-1]
    newer, older = (constant(2.0 * now * factor / (now + before), steps) for factor in (1.0, now / before))
    return join([head, steps[..., 2:] * newer - steps[..., 1:-1] * older])

r"""The gradient of a fixed-step solve as the exact transpose of its steps, from stored states; for PyTorch and JAX.

For PECE the steps are :math:`p_n = T_n + \sum_{j<n} b_{n-j} f_j` and
:math:`y_n = T_n + c_n f_0 + \sum_{j<n} a_{n-j} f_j + a_0 f(p_n)`. With g the gradient in the solution, backwards in n,

.. math::
    \bar f_n &= \sum_{m>n} (a_{m-n} \bar y_m + b_{m-n} \bar p_m), \\
    \bar y_n &= g_n + f_y(y_n)^T \bar f_n, \quad \bar p_n = a_0 f_y(p_n)^T \bar y_n,

history sums in reversed time. Other rules have fewer or other terms.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from hpfracc.solvers.ode.tensors.blocks import HistoryStep, System, TensorFunctions, Trajectory, march_blocks
from hpfracc.solvers.ode.tensors.newton import solve_transposed
from hpfracc.solvers.ode.tensors.sums import Sums, correlations, sum_to, turned, weighted

#: ``pull(kind, n, t, y, bar, totals)`` gives f at a point, ``f_y^T bar``, and ``totals`` with the gradients of all else
#: that f depends on. Point 0 of step n is its state, and the others are those of its corrections.
Pull = Callable[[int, Any, Any, Any, Any, Any], tuple[Any, Any, Any]]
#: ``prepare(first, last)`` before the steps from ``last`` down to ``first``; what it gives is called after them.
Prepare = Callable[[int, int], Callable[[], None] | None]


def transpose(
    system: System, functions: TensorFunctions, pull: Pull, found: Trajectory, grad: Any, totals: Any, wanted: bool,
    prepare: Prepare | None = None,
) -> tuple[list[Any], Sums | None, Any]:  # fmt: skip
    """Gradients from ``grad``, that of the states.

    In the initial values, in the weights if they are ``wanted``, and in all else that f depends on.
    """
    xp, rule, grid, initial, sums = system
    fun, jacobian = functions
    states, points, count, newest = found.states, found.points, grid.steps, sums.newest
    kinds, shape = len(sums.sequences), states.shape[1:]
    order = sums.sequences[0].shape[1:]

    def noted(newest_bar: Any, product: Any) -> Any:
        return newest_bar + sum_to(product, order) if wanted else newest_bar

    def make_step(_: Any) -> HistoryStep:
        def step(r: Any, later: Any, carry: Any) -> Any:
            totals, newest_bar = carry
            n = count - r
            t, y, value_bar = grid.time(n, states), states[n], later[0]
            if rule.implicit:
                slopes = None if jacobian is None else partial(jacobian, t)
                bar = solve_transposed(partial(fun, t), slopes, y, newest, value_bar, grad[n])
                value, _, totals = pull(0, n, t, y, value_bar + newest * bar, totals)
                return (totals, noted(newest_bar, bar * value)), (bar,), (value,) if wanted else ()
            value, back, totals = pull(0, n, t, y, value_bar, totals)
            bar = grad[n] + back
            total = None
            for i in range(len(points) - 1, -1, -1):
                total = bar if total is None else total + bar
                there, back, totals = pull(1 + i, n, t, points[i][n - 1], newest * bar, totals)
                newest_bar = noted(newest_bar, bar * there)
                bar = back
            return (totals, newest_bar), (bar,) if total is None else (bar, total), (value,) if wanted else ()

        return step

    def given(begin: int, length: int) -> Any:
        return xp.zeros((length, 1, *shape), states.dtype, like=states)

    def around(begin: int, length: int) -> Any:
        return None if prepare is None else prepare(count - begin - length + 1, count - begin)

    carry = (totals, None if newest is None else 0.0 * newest)
    (totals, newest_bar), parts, kept = march_blocks(
        xp, make_step, (tuple(sums.sequences),), count, given, carry, around=around
    )
    bars = xp.concatenate(parts)
    del parts
    # By r = N - n, for steps N .. 1: it is the weights that are turned.
    start_bar, value = grad[0] + bars.sum((0, 1)), 0.0 * states[0]
    first_bar = None if sums.first is None else 0.0 * sums.first
    if not rule.starts_blind:
        value_bar = 0.0 * start_bar
        for each, bar in zip((*sums.sequences, sums.first), (*xp.moveaxis(bars, 1, 0), bars[:, -1]), strict=True):
            if each is not None:
                value_bar = value_bar + weighted(xp, turned(xp, each[1 : count + 1]), bar)
        value, back, totals = pull(0, 0, grid.time(0, states), initial[0], value_bar, totals)
        start_bar = start_bar + back
        if wanted and sums.first is not None:
            first_bar = xp.concatenate([0.0 * sums.first[:1], turned(xp, sum_to(bars[:, -1] * value, order, 1))])
    tau = grid.step * turned(xp, xp.arange(1, count + 1, states.dtype, like=states))
    factors = [tau**number / math.factorial(number) for number in range(1, len(initial))]
    initial_bar = [start_bar, *(weighted(xp, each, bars).sum(0) for each in factors)]
    if not wanted:
        return initial_bar, None, totals
    values = xp.concatenate([value[None], turned(xp, xp.concatenate(kept[0])[1:])])
    own = correlations(xp, bars, values, order)
    return initial_bar, Sums(tuple(own[kind] for kind in range(kinds)), first_bar, newest_bar), totals

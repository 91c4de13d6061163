"""The gradient of a fixed-step solve on JAX arrays as the exact transpose of its steps, from stored states.

The formulae are those of :mod:`hpfracc.solvers.ode.tensors.on_torch.stored`: backwards in n, the gradient with respect
to f_n is a sum over later steps, the sums of the forward pass in reversed time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hpfracc.solvers.ode.tensors.on_jax.newton import solve_transposed
from hpfracc.solvers.ode.tensors.on_jax.sums import GROUP, padded, past_rows, segment_sums, weighted, window
from hpfracc.solvers.ode.tensors.rule import Sums, TensorRule

__all__ = ["Recorded", "transposed"]

#: Maximum bytes of the transforms of a group of columns.
WORKSPACE = 1 << 28


class Recorded(NamedTuple):
    """Data of the forward pass that the backward pass needs.

    Attributes
    ----------
    t0, step : arrays
        The grid.
    initial, sums, args
        As given.
    states : array, shape (N + 1, ...)
        The solution.
    points : tuple of arrays, each of the shape of the states
        Points at which the corrections of a step are evaluated.
    """

    t0: Any
    step: Any
    initial: tuple[Any, ...]
    sums: Sums
    args: tuple[Any, ...]
    states: Any
    points: tuple[Any, ...]


def transposed(
    fun: Callable[..., Any],
    jacobian: Callable[..., Any] | None,
    rule: TensorRule,
    steps: int,
    block: int,
    recorded: Recorded,
    grad: Any,
) -> tuple[Any, Any, tuple[Any, ...], Sums, tuple[Any, ...]]:
    """Gradients with respect to t0 and step (zeros), the initial values, the weights and the arguments."""
    t0, step, initial, sums, args, states, points = recorded
    leaves, tree = jax.tree_util.tree_flatten(args)
    smooth = [k for k, leaf in enumerate(leaves) if jnp.issubdtype(jnp.result_type(leaf), jnp.inexact)]

    def evaluate(t: Any, y: Any, some: tuple[Any, ...]) -> Any:
        whole = list(leaves)
        for k, leaf in zip(smooth, some, strict=True):
            whole[k] = leaf
        return fun(t, y, *jax.tree_util.tree_unflatten(tree, whole))

    chosen = tuple(jnp.asarray(leaves[k]) for k in smooth)
    back_step = partial(_step, evaluate, jacobian, rule, t0, step, sums, chosen, args)
    count = -(-(steps + 1) // block)
    shape = states.shape[1:]
    sequences = tuple(padded(each, count * block + 1) for each in sums.sequences)
    missing = count * block - steps - 1
    reverse = partial(_reversed, missing)
    pending = [jnp.zeros((block, *shape), states.dtype)] * count
    newest_bar = None if sums.newest is None else jnp.zeros_like(sums.newest)
    carried: Any = (tuple(jnp.zeros_like(each) for each in chosen), newest_bar)
    all_states, all_grads, all_points = reverse(states), reverse(grad), tuple(map(reverse, points))
    bars: list[Any] = []
    values: list[Any] = []
    for number in range(count):
        part = slice(number * block, (number + 1) * block)
        inputs = (all_states[part], all_grads[part], tuple(each[part] for each in all_points))
        run = partial(_block, back_step, sequences, block, steps)
        bar, value, carried = run(number * block, pending[number], inputs, carried)
        bars.append(bar)
        values.append(value)
        done = number + 1
        if done == count:
            break
        width = done & -done
        reach = min(width, count - done)
        past = jnp.concatenate(bars[done - width : done])
        added = sum(segment_sums(reach * block, (each,), past[:, kind])[0] for kind, each in enumerate(sequences))
        for offset in range(reach):
            pending[done + offset] = pending[done + offset] + added[offset * block : (offset + 1) * block]
    # Indexed by n = 1 .. N.
    bar = jnp.concatenate(bars)[:steps][::-1]
    value = jnp.concatenate(values)[:steps][::-1]
    chosen_bar, newest_bar = carried
    start_bar = grad[0] + bar.sum((0, 1))
    first_value = jnp.zeros_like(value[0])
    first_bar = None if sums.first is None else jnp.zeros_like(sums.first)
    if not rule.starts_blind:
        value_bar = sum(weighted(each[1 : steps + 1], bar[:, kind]) for kind, each in enumerate(sums.sequences))
        if sums.first is not None:
            value_bar = value_bar + weighted(sums.first[1 : steps + 1], bar[:, -1])
        at = jnp.asarray(t0, initial[0].real.dtype)
        first_value, back = jax.vjp(lambda y, some: evaluate(at, y, some), initial[0], chosen)
        more, some_bar = back(value_bar.astype(first_value.dtype))
        start_bar = start_bar + more
        chosen_bar = jax.tree.map(jnp.add, chosen_bar, some_bar)
        if sums.first is not None:
            product = _summed(bar[:, -1] * first_value, sums.first.shape[1:])
            first_bar = jnp.zeros_like(sums.first).at[1 : steps + 1].set(product)
    both = bar.sum(1)
    tau = step * jnp.arange(1, steps + 1, dtype=both.dtype)
    further = [weighted(tau**number / math.factorial(number), both) for number in range(1, len(initial))]
    whole = jnp.concatenate([first_value[None], value])
    shifted = jnp.concatenate([jnp.zeros_like(bar[:1]), bar])
    sequences_bar = tuple(_correlation(shifted[:, kind], whole, each) for kind, each in enumerate(sums.sequences))
    leaves_bar: list[Any] = [np.zeros(np.shape(leaf), jax.dtypes.float0) for leaf in leaves]
    for k, each in zip(smooth, chosen_bar, strict=True):
        leaves_bar[k] = each
    return (
        jnp.zeros_like(t0),
        jnp.zeros_like(step),
        (start_bar, *further),
        Sums(sequences_bar, first_bar, newest_bar),
        jax.tree_util.tree_unflatten(tree, leaves_bar),
    )


def _reversed(missing: int, values: Any) -> Any:
    """Reindexed by r = N - n, padded with the first value."""
    turned = values[::-1]
    return jnp.concatenate([turned, jnp.repeat(turned[-1:], missing, axis=0)]) if missing else turned


def _block(
    back_step: Callable[..., Any],
    sequences: tuple[Any, ...],
    block: int,
    steps: int,
    begin: int,
    given: Any,
    inputs: tuple[Any, ...],
    carried: Any,
) -> tuple[Any, Any, Any]:
    """A scan over groups of steps, each of which is a scan over steps, backwards in time."""
    short = [window(each, GROUP) for each in sequences]
    long = [window(each, block) for each in sequences]
    kinds, shape = len(sequences), given.shape[1:]

    def one(state: tuple[Any, Any, Any], given: tuple[Any, ...]) -> tuple[tuple[Any, Any, Any], tuple[Any, Any]]:
        recent, r, totals = state
        at, (y, grad, points) = given
        index = (r - begin) % GROUP
        for kind, each in enumerate(short):
            row = jax.lax.dynamic_slice_in_dim(each, GROUP - index, GROUP)
            at = at + weighted(row, recent[:, kind])
        bar, value, totals = back_step(steps - r, at, y, grad, points, totals)
        return (recent.at[index].set(bar), r + 1, totals), (bar, value)

    def group(state: tuple[Any, Any, Any], given: tuple[Any, ...]) -> tuple[tuple[Any, Any, Any], tuple[Any, Any]]:
        past, first, totals = state
        at, rest = given
        added = sum(past_rows(each, past[:, kind], first, block) for kind, each in enumerate(long))
        nothing = jnp.zeros((GROUP, kinds, *shape), past.dtype)
        (bars, _, totals), found = jax.lax.scan(one, (nothing, begin + first, totals), (at + added, rest))
        past = jax.lax.dynamic_update_slice_in_dim(past, bars, first, 0)
        return (past, first + GROUP, totals), found

    groups = block // GROUP
    grouped = jax.tree.map(lambda each: each.reshape(groups, GROUP, *each.shape[1:]), (given, inputs))
    nothing = jnp.zeros((block, kinds, *shape), given.dtype)
    (_, _, carried), (bars, values) = jax.lax.scan(group, (nothing, 0, carried), grouped)
    return bars.reshape(block, kinds, *shape), values.reshape(block, *shape), carried


def _step(
    evaluate: Callable[..., Any],
    jacobian: Callable[..., Any] | None,
    rule: TensorRule,
    t0: Any,
    step: Any,
    sums: Sums,
    chosen: tuple[Any, ...],
    args: tuple[Any, ...],
    n: Any,
    value_bar: Any,
    y: Any,
    grad: Any,
    points: tuple[Any, ...],
    totals: Any,
) -> tuple[Any, Any, Any]:
    """One backward step: gradients of its sums, the value at its state, and contributions to arguments and weights."""
    live = n >= 1
    t = t0 + jnp.asarray(n, y.real.dtype) * step
    chosen_bar, newest_bar = totals
    value, back = jax.vjp(partial(evaluate, t), y, chosen)
    if rule.implicit:
        slopes = None if jacobian is None else jacobian(t, y, *args)
        found = solve_transposed(lambda y: evaluate(t, y, chosen), slopes, y, sums.newest, value_bar, grad)
        _, some = back(value_bar + sums.newest * found)
        newest = _to_shape(found * value, sums.newest)
        bars = [found]
    else:
        more, some = back(value_bar)
        bar, newest, bars = grad + more, newest_bar, []
        if rule.name == "pece":
            total = jnp.zeros_like(bar)
            newest = jnp.zeros_like(sums.newest)
            for point in reversed(points):
                total = total + bar
                there, through = jax.vjp(partial(evaluate, t), point, chosen)
                newest = newest + _to_shape(bar * there, sums.newest)
                bar, extra = through(sums.newest * bar)
                some = jax.tree.map(jnp.add, some, extra)
            bars = [bar, total]
        else:
            bars = [bar]
    gained = jax.tree.map(lambda old, new: old + jnp.where(live, new, jnp.zeros_like(new)), chosen_bar, some)
    if newest_bar is not None:
        newest_bar = newest_bar + jnp.where(live, newest, jnp.zeros_like(newest_bar))
    stacked = jnp.stack(bars)
    return jnp.where(live, stacked, jnp.zeros_like(stacked)), value, (gained, newest_bar)


def _to_shape(product: Any, like: Any) -> Any:
    """Sum over the axes that ``like`` does not have."""
    extra = product.ndim - like.ndim
    product = product.sum(tuple(range(extra)))
    ones = tuple(k for k, size in enumerate(like.shape) if size == 1 and product.shape[k] != 1)
    return product.sum(ones, keepdims=True) if ones else product


def _summed(product: Any, shape: tuple[int, ...]) -> Any:
    """Sum over all axes after the first that the order does not have."""
    return jax.vmap(lambda each: _to_shape(each, jnp.zeros(shape)))(product)


def _correlation(bar: Any, values: Any, like: Any) -> Any:
    """``out[l] = sum_n bar[n] f[n - l]``, l >= 1, by FFT; summed to the shape of the order."""
    count = values.shape[0]
    size = 1 << (2 * count - 1).bit_length()
    if like.ndim == 1:
        columns = math.prod(values.shape[1:])
        width = max(1, min(columns, WORKSPACE // (32 * size)))
        segments = -(-columns // width)
        flat = [
            jnp.pad(each.reshape(count, columns), ((0, 0), (0, segments * width - columns))) for each in (bar, values)
        ]
        pieces = tuple(jnp.moveaxis(each.reshape(count, segments, width), 1, 0) for each in flat)

        def add(total: Any, pair: tuple[Any, Any]) -> tuple[Any, None]:
            one, other = (jnp.fft.rfft(each, size, axis=0) for each in pair)
            return total + (one * jnp.conj(other)).sum(1), None

        nothing = jnp.fft.rfft(jnp.zeros(size, values.dtype))
        spectrum = jax.lax.scan(add, nothing, pieces)[0]
    else:
        one, other = (jnp.fft.rfft(each, size, axis=0) for each in (bar, values))
        spectrum = _summed(one * jnp.conj(other), like.shape[1:])
    found = jnp.fft.irfft(spectrum, size, axis=0)[:count]
    return found.at[0].set(0.0).astype(like.dtype)

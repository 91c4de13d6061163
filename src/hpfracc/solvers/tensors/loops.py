"""Loops over steps of traced arrays: in Python, or by ``lax.scan`` in JAX, which compiles the step once."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from hpfracc._arrays import library_of
from hpfracc._xp import Namespace

Carry = tuple[Any, ...]
#: ``step(carry, row)`` gives the carry and what is kept.
Step = Callable[[Any, Any], tuple[Any, Any]]
#: ``record(function, arrays)`` gives ``function(arrays)``, and decides what its derivative keeps.
Record = Callable[[Callable[[Any], Any], Any], Any]

#: Number of steps that are recomputed together in the backward pass.
REPEATED = 16


def run_plainly(function: Callable[[Any], Any], arrays: Any) -> Any:
    """As it is: the library keeps everything, or no derivative is asked for."""
    return function(arrays)


class Loop(NamedTuple):
    """How the steps are run.

    Attributes
    ----------
    record : callable
        Runs a block, or a sum over a segment.
    graph : bool
        Whether each value is an array of its own, because autograd or ``torch.func`` watches; else they are written to
        a buffer.
    wrapped : bool
        Whether ``torch.func`` watches.
    report : callable
        ``report(steps, newest)`` after each block.
    keeps : bool
        Whether an interrupt ends the steps with those that were done, instead of being raised.
    """

    record: Record = run_plainly
    graph: bool = False
    wrapped: bool = False
    report: Callable[[int, Any], None] = lambda steps, newest: None
    keeps: bool = False


PLAIN = Loop()


def scan(
    xp: Namespace, step: Callable[[Carry, Any], Carry], carry: Carry, rows: tuple[Any, ...], *, keep: bool
) -> tuple[Carry, Any]:
    """``carry = step(carry, row)`` over the rows of arrays; with ``keep`` also collects the first element of carry.

    Parameters
    ----------
    rows : tuple of arrays
        The first axis of each is the steps; ``row`` is the tuple of one step.

    Returns
    -------
    carry : tuple
        The carry after the last step.
    kept : array or None
        Shape ``(steps + 1, ...)``, including the initial one.
    """
    if xp.library == "jax":

        def body(carry: Carry, row: Any) -> tuple[Carry, Any]:
            moved = step(carry, row)
            return moved, moved[0] if keep else None

        last, states = sys.modules["jax"].lax.scan(body, carry, rows)
        return last, xp.concatenate([carry[0][None], states]) if keep else None
    steps = len(rows[0])
    if xp.library == "numpy" and keep:
        kept = np.empty((steps + 1, *carry[0].shape))
        kept[0] = carry[0]
        for index in range(steps):
            carry = step(carry, tuple(array[index] for array in rows))
            kept[index + 1] = carry[0]
        return carry, kept
    states = [carry[0]]
    if xp.library == "torch":
        # Unbind all rows at once: the backward pass of indexing one row creates an array of all rows at every step.
        rows = tuple(array.unbind(0) if library_of(array) == "torch" else array for array in rows)
    for index in range(steps):
        carry = step(carry, tuple(array[index] for array in rows))
        if keep:
            states.append(carry[0])
    return carry, xp.stack(states) if keep else None


def iterate(xp: Namespace, times: int, step: Callable[[Carry], Carry], carry: Carry) -> Carry:
    """Apply ``carry = step(carry)`` a given number of times."""
    if xp.library == "jax" and times > 2:
        found: Carry = sys.modules["jax"].lax.fori_loop(0, times, lambda _, carry: step(carry), carry)
        return found
    for _ in range(times):
        carry = step(carry)
    return carry


def walk(xp: Namespace, step: Step, carry: Any, rows: Any, loop: Loop, group: int = REPEATED) -> tuple[Any, Any]:
    """The last carry, and what is kept of all steps, (count, ...), or fewer after an interrupt.

    Groups of steps are recorded together. ``rows`` is a tuple of arrays, lists of numbers, and None.
    """
    count = next(len(each) for each in rows if each is not None)
    if xp.library == "jax":
        jax, whole = sys.modules["jax"], count - count % group
        first = jax.tree.map(lambda each: each[:whole].reshape(whole // group, group, *each.shape[1:]), rows)
        several = jax.checkpoint(partial(jax.lax.scan, step))
        carry, found = jax.lax.scan(several, carry, first)
        carry, last = several(carry, jax.tree.map(lambda each: each[whole:], rows))
        return carry, xp.concatenate([found.reshape(whole, *found.shape[2:]), last])
    # Unbound at once: the backward pass of indexing one row creates an array of all rows at every step.
    columns = [[None] * count if each is None else list(each) for each in rows]
    single = [getattr(type(rows), "_make", tuple)(each) for each in zip(*columns, strict=True)]

    def run(begin: int, carry: Any) -> Any:
        kept = []
        for row in single[begin : begin + group]:
            carry, found = step(carry, row)
            kept.append(found)
        return carry, xp.stack(kept)

    parts: list[Any] = []
    for begin in range(0, count, group):
        try:
            carry, found = loop.record(partial(run, begin), carry)
        except KeyboardInterrupt:
            if not loop.keeps:
                raise
            break
        parts.append(found)
        loop.report(min(begin + group, count), (found,))
    return carry, xp.concatenate(parts) if parts else None

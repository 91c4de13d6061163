"""Loops over steps: in Python, or by ``lax.scan`` in JAX, which compiles the step once."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from hpfracc._arrays import library_of
from hpfracc._xp import Namespace

Carry = tuple[Any, ...]


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

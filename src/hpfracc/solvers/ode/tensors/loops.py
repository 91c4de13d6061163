"""Loops and branches of a program: in Python, or by JAX's ``while_loop`` and ``cond``, which compile a turn once."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from hpfracc._xp import Namespace

__all__ = ["branch", "repeat_while"]


def repeat_while(xp: Namespace, go_on: Callable[[Any], Any], turn: Callable[[Any], Any], state: Any) -> Any:
    """``state = turn(state)`` while ``go_on(state)``."""
    if xp.library == "jax":
        return sys.modules["jax"].lax.while_loop(go_on, turn, state)
    while bool(go_on(state)):
        state = turn(state)
    return state


def branch(xp: Namespace, flag: Any, one: Callable[[Any], Any], other: Callable[[Any], Any], state: Any) -> Any:
    """``one(state)`` if ``flag`` is true, and ``other(state)`` if not."""
    if xp.library == "jax":
        return sys.modules["jax"].lax.cond(flag, one, other, state)
    return one(state) if flag else other(state)

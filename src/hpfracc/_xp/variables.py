"""Derivatives and precision of JAX: functions of variables in double precision, and user code among them."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from hpfracc._xp.base import Namespace

__all__ = ["of_variables", "user_scope"]


def user_scope() -> Callable[[], contextlib.AbstractContextManager[Any]]:
    """A context that restores JAX's current precision, for user code that is called inside our ``scope``."""
    jax = sys.modules.get("jax")
    if jax is None:
        return contextlib.nullcontext
    wide = bool(jax.config.jax_enable_x64)
    return lambda: jax.enable_x64(wide)


#: Whether a function with a custom derivative is being evaluated.
_within: ContextVar[bool] = ContextVar("hpfracc_within_variables", default=False)


def of_variables(xp: Namespace, make: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``make``, which computes arrays from scalars, so that JAX can differentiate it with x64 disabled.

    JAX runs the backward pass after our ``scope`` has ended. Arrays that it creates there itself (the zeros around a
    slice, the result of a matrix product) are then float32. Therefore the derivative is computed in the forward pass,
    and the backward pass only multiplies by it. Higher derivatives work in the same way. One variable may also be an
    array, if each point along the last axis depends only on its own element.
    """
    if xp.library != "jax" or _within.get():
        return make
    jax = sys.modules["jax"]

    def whole(*scalars: Any) -> Any:
        # Nested calls need no derivative rule of their own.
        token = _within.set(True)
        try:
            return make(*scalars)
        finally:
            _within.reset(token)

    def slopes(place: int) -> Callable[..., Any]:
        def slope(*scalars: Any) -> Any:
            def moved(one: Any) -> Any:
                return whole(*scalars[:place], one, *scalars[place + 1 :])

            return jax.jvp(moved, (scalars[place],), (jax.numpy.ones_like(scalars[place]),))[1]

        return slope

    made = jax.custom_jvp(whole)

    def rule(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
        with xp.scope():
            total: Any = None
            for place, change in enumerate(tangents):
                slope = of_variables(xp, slopes(place))(*primals)
                part = jax.tree_util.tree_map(lambda one, change=change: one * change, slope)
                total = part if total is None else jax.tree_util.tree_map(lambda a, b: a + b, total, part)
            return made(*primals), total

    made.defjvp(rule)
    found: Callable[..., Any] = made
    return found

"""JAX for generic kernels: compiled once per shape, loops as ``lax.scan``, double precision in a scope."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, wraps
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from hpfracc.engine.backends.generic.library import Library
from hpfracc.engine.backends.jax.wide import call_wide

__all__ = ["LIBRARY"]

#: Steps of a part of which the states are recomputed in the backward pass.
_PART = 1 << 14


def _in_scope(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def scoped(*arrays: Any, **params: Any) -> Any:
        with jax.enable_x64(True):
            return function(*arrays, **params)

    return scoped


class JAXLibrary(Library):
    """On the host and on GPUs."""

    def compiled_wide(self, function: Callable[..., Any], static: Sequence[str]) -> Callable[..., Any]:
        """Without the scope double precision would be truncated if x64 is off."""
        return self.xp.jit(_in_scope(function), static)

    def wide(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """As a JAX primitive of its own, whose derivatives run in double precision too."""

        @cache
        def program(params: tuple[tuple[str, Any], ...]) -> Callable[..., Any]:
            compiled: Callable[..., Any] = jax.jit(_in_scope(lambda *arrays: function(*arrays, **dict(params))))
            return compiled

        def positional(*operands: Any) -> Any:
            return program(operands[-1])(*operands[:-1])

        def call(*arrays: Any, **params: Any) -> Any:
            return call_wide(positional, arrays, (tuple(params.items()),))

        return call

    def multiply(self, product: jax.Array, factor: jax.Array) -> jax.Array:
        """XLA decides what is overwritten."""
        return product * factor

    def widen(self, array: jax.Array) -> jax.Array:
        """Products have full precision."""
        return array

    def only_if(self, flags: jax.Array, function: Callable[..., Any], value: jax.Array) -> jax.Array:
        """Decided on the device."""
        result: jax.Array = lax.cond(jnp.any(flags), function, lambda same: same, value)
        return result

    def scan(
        self, step: Callable[..., Any], state: jax.Array, inputs: tuple[jax.Array, ...]
    ) -> tuple[jax.Array, jax.Array]:
        """One compiled step."""
        found: tuple[jax.Array, jax.Array] = lax.scan(step, state, inputs)
        return found

    def recomputed(self, function: Callable[..., Any], *tensors: jax.Array) -> Callable[..., Any]:
        """By JAX's checkpoints."""
        found: Callable[..., Any] = jax.checkpoint(function)
        return found

    def is_differentiated(self, *arrays: jax.Array) -> bool:
        """Unknown while tracing."""
        return True

    def part_length(self, n: int, *arrays: jax.Array) -> int:
        """Parts of long signals."""
        return min(n, _PART)


LIBRARY = JAXLibrary("jax")

"""JAX for generic kernels: compiled once per shape, loops as ``lax.scan``, double precision in a scope."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, reduce, wraps
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from hpfracc.engine.backends.generic.library import Library
from hpfracc.engine.backends.jax.wide import call_wide

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

    rounds = 1

    def compiled_wide(self, function: Callable[..., Any], static: Sequence[str]) -> Callable[..., Any]:
        """Without the scope double precision would be truncated if x64 is off."""
        return self.xp.jit(_in_scope(function), static)

    def wide(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """As a JAX primitive of its own, whose derivatives run in double precision too."""

        @cache
        def program(params: tuple[tuple[str, Any], ...]) -> Callable[..., Any]:
            return jax.jit(_in_scope(lambda *arrays: function(*arrays, **dict(params))))

        def positional(*operands: Any) -> Any:
            return program(operands[-1])(*operands[:-1])

        def call(*arrays: Any, **params: Any) -> Any:
            return call_wide(positional, arrays, (tuple(params.items()),))

        return call

    def unrecorded(self, prepare: Callable[..., Any]) -> Callable[..., Any]:
        """Waits until it is made: on the host JAX reads the memory of NumPy arrays, which may change after the call."""
        return lambda *operands: jax.block_until_ready(prepare(*operands))

    def multiply(self, product: jax.Array, factor: jax.Array) -> jax.Array:
        """XLA decides what is overwritten."""
        return product * factor

    def widen(self, array: jax.Array) -> jax.Array:
        """Products have full precision."""
        return array

    def only_if(self, flags: jax.Array, function: Callable[..., Any], value: jax.Array) -> jax.Array:
        """Decided on the device."""
        return lax.cond(jnp.any(flags), function, lambda same: same, value)

    def seen(self, flags: jax.Array) -> jax.Array:
        """From the place of the first flag, which XLA finds faster than a cumulative sum.

        Up to 262,144 points the axis is reduced in 32 parts, whose minimum belongs to the expression that uses it: XLA
        reduces a longer axis by two kernels.
        """
        n = flags.shape[-1]
        points = jnp.arange(n, dtype=jnp.int32)
        places = jnp.where(flags, points, n)
        if n > 32 * 8192:
            return points >= jnp.min(places, axis=-1, keepdims=True)
        places = jnp.pad(places, [(0, 0)] * (flags.ndim - 1) + [(0, -n % 32)], constant_values=n)
        firsts = jnp.min(places.reshape(*flags.shape[:-1], 32, -1), axis=-1)
        return points >= reduce(jnp.minimum, [firsts[..., part : part + 1] for part in range(32)])

    def add_from(self, result: jax.Array, place: int, values: jax.Array) -> jax.Array:
        """Selected, not added to a slice, for which XLA has a separate kernel."""
        width = [(0, 0)] * (values.ndim - 1) + [(place, 0)]
        return result + (jnp.pad(values, width) if place else values)

    def twists(self, weights: jax.Array) -> bool:
        """On a GPU: a call launches fewer kernels, and takes 0.7 of the time at 100,000 points.

        On the host that takes 0.9 to 1.2 of the time (benchmarks/operators.py).
        """
        return not isinstance(weights, jax.core.Tracer) and all(d.platform != "cpu" for d in weights.devices())

    def scan(
        self, step: Callable[..., Any], state: jax.Array, inputs: tuple[jax.Array, ...]
    ) -> tuple[jax.Array, jax.Array]:
        """One compiled step."""
        return lax.scan(step, state, inputs)

    def recomputed(self, function: Callable[..., Any], *tensors: jax.Array) -> Callable[..., Any]:
        """By JAX's checkpoints."""
        return jax.checkpoint(function)

    def is_differentiated(self, *arrays: jax.Array) -> bool:
        """Unknown while tracing."""
        return True

    def part_length(self, n: int, *arrays: jax.Array) -> int:
        """Parts of long signals."""
        return min(n, _PART)


LIBRARY = JAXLibrary("jax")

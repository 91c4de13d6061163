"""JAX's functions. Within :meth:`JAXNamespace.scope` float64 is float64."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from types import ModuleType
from typing import Any

import numpy as np

from hpfracc._arrays import is_tracer
from hpfracc._xp.base import Namespace

#: Axes that XLA transforms together.
_TOGETHER = 3


class JAXNamespace(Namespace):
    """JAX."""

    def _module(self) -> ModuleType:
        found: ModuleType = sys.modules["jax"].numpy
        return found

    def array(self, values: Any) -> Any:
        """As float64, within :meth:`scope`."""
        return self.module.asarray(values, dtype="float64")

    def astype(self, x: Any, dtype: Any, like: Any = None) -> Any:
        """``x`` in that dtype."""
        return x.astype(dtype)

    def zeros(self, shape: Sequence[int], dtype: Any, like: Any = None) -> Any:
        """In that dtype, also outside :meth:`scope`."""
        with self.scope():
            return self.module.zeros(tuple(shape), dtype)

    def contiguous(self, x: Any) -> Any:
        """JAX arrays have no strides."""
        return x

    def can_cache(self, like: Any) -> bool:
        """Not while JAX traces, and not on several devices."""
        return not is_tracer(like) and len(like.devices()) == 1

    def cacheable(self, array: np.ndarray[Any, Any], dtype: str, like: Any) -> Any:
        """On the device of ``like``, and no tracer even while JAX traces."""
        jax = sys.modules["jax"]
        with self.scope(), jax.ensure_compile_time_eval():
            return jax.device_put(np.array(array, dtype=dtype), like.sharding)

    def complex(self, real: Any, imag: Any) -> Any:
        """JAX's own."""
        return sys.modules["jax"].lax.complex(real, imag)

    def from_pairs(self, x: Any) -> Any:
        """From two slices."""
        return self.complex(x[..., ::2], x[..., 1::2])

    def put(self, x: Any, index: Any, value: Any) -> Any:
        """A copy."""
        return x.at[index].set(value)

    def copy(self, x: Any) -> Any:
        """A copy."""
        return self.module.array(x, copy=True)

    def _transform(self, kind: str, x: Any, sizes: Sequence[int] | None, axes: tuple[int, ...], **options: Any) -> Any:
        """XLA transforms at most three axes together."""
        first, last, back = axes[:-_TOGETHER], axes[-_TOGETHER:], kind.startswith("i")
        for axis in first if back else ():
            x = self.fft.ifft(x, axis=axis)
        x = getattr(self.fft, kind)(x, None if sizes is None else sizes[-_TOGETHER:], axes=last)
        for place, axis in enumerate(() if back else first):
            x = self.fft.fft(x, None if sizes is None else sizes[place], axis=axis)
        return x

    def is_complex(self, x: Any) -> bool:
        """Whether the dtype of ``x`` is complex."""
        return bool(self.module.iscomplexobj(x))

    def matmul(self, a: Any, b: Any) -> Any:
        """In full precision: JAX's default rounds float32 to TF32 on a GPU."""
        if b.ndim <= 2 and a.ndim and b.ndim and a.dtype == b.dtype:
            # Not jnp.matmul, which passes the dtype of the result to the backward pass too: see of_variables.
            contracted = (((a.ndim - 1,), (0,)), ((), ()))
            return sys.modules["jax"].lax.dot_general(a, b, contracted, precision="highest")
        return self.module.matmul(a, b, precision="highest")

    def lgamma(self, x: Any) -> Any:
        """JAX's own."""
        return sys.modules["jax"].lax.lgamma(x)

    def stop_gradient(self, x: Any) -> Any:
        """JAX's own."""
        return sys.modules["jax"].lax.stop_gradient(x)

    def repeat_while(self, go_on: Callable[[Any], Any], turn: Callable[[Any], Any], state: Any) -> Any:
        """A turn is compiled once."""
        return sys.modules["jax"].lax.while_loop(go_on, turn, state)

    def branch(self, flag: Any, one: Callable[[Any], Any], other: Callable[[Any], Any], state: Any) -> Any:
        """Both branches are compiled."""
        return sys.modules["jax"].lax.cond(flag, one, other, state)

    def jit(self, function: Callable[..., Any], static: Sequence[str] = ()) -> Callable[..., Any]:
        """Compiled once per shape and value of the static arguments."""
        compiled: Callable[..., Any] = sys.modules["jax"].jit(function, static_argnames=tuple(static))
        return compiled

    def scope(self) -> contextlib.AbstractContextManager[Any]:
        """Double precision in this thread."""
        found: contextlib.AbstractContextManager[Any] = sys.modules["jax"].enable_x64(True)
        return found


#: Whether a function with a custom derivative is being evaluated.
_within: ContextVar[bool] = ContextVar("hpfracc_within_variables", default=False)


def of_jax_variables(xp: Namespace, make: Callable[..., Any]) -> Callable[..., Any]:
    """``of_variables`` for JAX.

    JAX runs the backward pass after our ``scope`` has ended. Arrays that it creates there itself (the zeros around a
    slice, the result of a matrix product) are then float32. Therefore the derivative is computed in the forward pass,
    and the backward pass only multiplies by it. Higher derivatives work in the same way. One variable may also be an
    array, if each point along the last axis depends only on its own element.
    """
    if _within.get():
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
                slope = of_jax_variables(xp, slopes(place))(*primals)
                part = jax.tree_util.tree_map(lambda one, change=change: one * change, slope)
                total = part if total is None else jax.tree_util.tree_map(lambda a, b: a + b, total, part)
            return made(*primals), total

    made.defjvp(rule)
    found: Callable[..., Any] = made
    return found

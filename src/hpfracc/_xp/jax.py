"""JAX's functions. Within :meth:`JAXNamespace.scope` float64 is float64."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from hpfracc._arrays import is_tracer
from hpfracc._xp.base import Namespace

__all__ = ["JAXNamespace"]

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

    def copy(self, x: Any) -> Any:
        """A copy."""
        return self.module.array(x, copy=True)

    def fftn(self, x: Any, axes: tuple[int, ...]) -> Any:
        """XLA transforms at most three axes together."""
        return self._further(self.fft.fftn(x, axes=axes[-_TOGETHER:]), self.fft.fft, axes)

    def ifftn(self, x: Any, sizes: list[int], axes: tuple[int, ...]) -> Any:
        """Its inverse."""
        return self.fft.ifftn(self._further(x, self.fft.ifft, axes), sizes[-_TOGETHER:], axes=axes[-_TOGETHER:])

    def rfftn(self, x: Any, axes: tuple[int, ...]) -> Any:
        """Of a real signal."""
        return self._further(self.fft.rfftn(x, axes=axes[-_TOGETHER:]), self.fft.fft, axes)

    def irfftn(self, x: Any, sizes: list[int], axes: tuple[int, ...]) -> Any:
        """Its inverse."""
        return self.fft.irfftn(self._further(x, self.fft.ifft, axes), sizes[-_TOGETHER:], axes=axes[-_TOGETHER:])

    def _further(self, x: Any, transform: Callable[..., Any], axes: tuple[int, ...]) -> Any:
        for axis in axes[:-_TOGETHER]:
            x = transform(x, axis=axis)
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

    def jit(self, function: Callable[..., Any], static: Sequence[str] = ()) -> Callable[..., Any]:
        """Compiled once per shape and value of the static arguments."""
        compiled: Callable[..., Any] = sys.modules["jax"].jit(function, static_argnames=tuple(static))
        return compiled

    def scope(self) -> contextlib.AbstractContextManager[Any]:
        """Double precision in this thread."""
        found: contextlib.AbstractContextManager[Any] = sys.modules["jax"].enable_x64(True)
        return found

"""Fourier transforms in JAX: DUCC on the host, cuFFT on CUDA devices."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.numerics.lengths import transformed_shape

__all__ = ["KERNELS"]

_TRANSFORMS = {"fft": jnp.fft.fft, "ifft": jnp.fft.ifft, "rfft": jnp.fft.rfft, "irfft": jnp.fft.irfft}


@partial(jax.jit, static_argnames=("kind", "n", "axis", "norm"))
def transform(
    x: jax.Array, kind: str = "fft", n: int | None = None, axis: int = -1, norm: str = "backward"
) -> jax.Array:
    """One transform along ``axis``, cut or zero-padded to ``n`` points."""
    shape = transformed_shape(x.shape, kind, n, axis)
    if 0 in shape:  # which XLA refuses to plan for
        complex_dtype = jnp.result_type(x.dtype, jnp.complex64)
        return jnp.zeros(shape, jnp.finfo(complex_dtype).dtype if kind == "irfft" else complex_dtype)
    return _TRANSFORMS[kind](x, n=n, axis=axis, norm=norm)


KERNELS: dict[str, Kernel] = {"default": Kernel(transform)}

"""Exclusive or of integers and truth values, in JAX."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from hpfracc.engine.backends.base import Kernel

__all__ = ["KERNELS"]

KERNELS: dict[str, Kernel] = {"default": Kernel(jax.jit(jnp.bitwise_xor))}

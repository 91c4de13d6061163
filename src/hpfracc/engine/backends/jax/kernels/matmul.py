"""Matrix products in JAX, in full precision: its own default would round float32 to TF32 on a GPU."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from hpfracc.engine.backends.base import Kernel

__all__ = ["KERNELS"]

KERNELS: dict[str, Kernel] = {"default": Kernel(jax.jit(partial(jnp.matmul, precision=lax.Precision.HIGHEST)))}

"""History sum in JAX: blocks of weights by ``lax.map``, each recomputed in the backward pass."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.generic.history_sum import sum_causally
from hpfracc.engine.backends.jax.library import LIBRARY
from hpfracc.engine.numerics.history_sums import block_of_weights

_XP = LIBRARY.xp
#: Weights of a block (also in the declaration): 8 MiB.
_HISTORY_BLOCK = 1 << 20


def sum_direct(times: Any, signal: Any, *parameters: Any, kernel: str = "power", scaled: bool = False) -> jax.Array:
    """The sum, a block of outputs at a time, each for all inputs, so that one program serves every block."""

    def sum_of(times: jax.Array, x: jax.Array, options: tuple[jax.Array, ...]) -> jax.Array:
        n = x.shape[-1]
        rows = max(1, min(n, _HISTORY_BLOCK // n))
        blocks = -(-n // rows)

        def block(part: tuple[jax.Array, jax.Array]) -> jax.Array:
            weights, first = block_of_weights(_XP, kernel, times, options, *part, scaled)
            return _XP.matmul(x[..., first:], weights.T.astype(x.dtype))

        late = jnp.pad(times, (0, blocks * rows - n), mode="edge").reshape(blocks, rows)
        places = jnp.minimum(jnp.arange(blocks * rows), n - 1).reshape(blocks, rows)
        if blocks == 1:
            return block((late[0], places[0]))
        y = jnp.moveaxis(lax.map(jax.checkpoint(block), (late, places)), 0, -2)
        return y.reshape((*x.shape[:-1], blocks * rows))[..., :n]

    return sum_causally(LIBRARY, sum_of, times, signal, parameters, kernel)


KERNELS: dict[str, Kernel] = {"direct": Kernel(LIBRARY.wide(sum_direct))}

"""A jitted fractional derivative as a layer of JAX, against the same sum by hand: forward, and with its gradient.

    python benchmarks/jax_layer.py

Both run in turn, so that a busy machine slows both; the smallest times and their ratios are shown.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from hpfracc.ml.jax.layers import FractionalDerivative
from hpfracc.ml.jax.order import LearnableOrder

ROWS, POINTS, ROUNDS, CALLS = 3, 1000, 200, 5


def by_hand(rho: Any, x: Any) -> Any:
    """Grünwald-Letnikov weights by their recurrence, and one padded transform."""
    alpha, n = jax.nn.sigmoid(rho), x.shape[-1]
    k = jnp.arange(1, n)
    weights = jnp.concatenate([jnp.ones(1), jnp.cumprod((k - 1 - alpha) / k)])
    return jnp.fft.irfft(jnp.fft.rfft(weights, 2 * n) * jnp.fft.rfft(x, 2 * n), 2 * n)[..., :n]


def apply(layer: Any, x: Any) -> Any:
    return layer(x)


def gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    return jax.jit(jax.grad(lambda parameters, x: (function(parameters, x) ** 2).sum(), argnums=(0, 1)))


def seconds(run: Callable[..., Any], *given: Any) -> float:
    started = time.perf_counter()
    for _ in range(CALLS):
        found = run(*given)
    jax.block_until_ready(found)
    return (time.perf_counter() - started) / CALLS


def main() -> None:
    x = jax.random.normal(jax.random.key(0), (ROWS, POINTS))
    layer, rho = FractionalDerivative(LearnableOrder(0.5)), jnp.zeros(())
    for name, ready in (("forward", jax.jit), ("gradient", gradient)):
        pair = [(ready(apply), layer), (ready(by_hand), rho)]
        for run, one in pair:
            jax.block_until_ready(run(one, x))
        best = [
            min(each)
            for each in zip(*([seconds(run, one, x) for run, one in pair] for _ in range(ROUNDS)), strict=True)
        ]
        print(f"{name:9} {1e6 * best[0]:8.0f} us, by hand {1e6 * best[1]:8.0f} us, ratio {best[0] / best[1]:.2f}")


if __name__ == "__main__":
    main()

"""History sums on JAX arrays: within a group of steps, within a block, and of whole segments."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

__all__ = ["GROUP", "padded", "past_rows", "segment_sums", "weighted", "window"]

#: Steps of a group within a block. The backward pass stores the values of a block once per group.
GROUP = 16
#: Segments longer than this use FFTs.
LONGEST_PRODUCT = 2048


def padded(weights: Any, length: int) -> Any:
    """Pad with zeros, so that the last block may exceed the end."""
    missing = max(length - weights.shape[0], 0)
    return jnp.concatenate([weights, jnp.zeros((missing, *weights.shape[1:]), weights.dtype)])


def window(weights: Any, length: int) -> Any:
    """Weights reversed, after zeros: a slice is ``w[index - j]`` for j = 0 .. length - 1, and 0 from j = index on."""
    zeros = jnp.zeros((length, *weights.shape[1:]), weights.dtype)
    return jnp.concatenate([zeros, weights[1 : length + 1]])[::-1]


def past_rows(window: Any, past: Any, first: Any, block: int) -> Any:
    """``sum_j w[first + i - j] past[j]`` for the steps i of a group; ``past`` is zero from ``first`` on."""
    if window.ndim == 1:
        place = block - first - jnp.arange(GROUP)[:, None] + jnp.arange(block)[None, :]
        return jnp.tensordot(window[place].astype(past.dtype), past, axes=1, precision="highest")
    # Step by step: all weights of a group at once would take GROUP times the memory of the history.
    return jax.lax.map(
        lambda i: weighted(jax.lax.dynamic_slice_in_dim(window, block - first - i, block), past), jnp.arange(GROUP)
    )


def weighted(row: Any, past: Any) -> Any:
    """``sum_j row[j] past[j]``, where a row may also have the shape of the orders."""
    if row.ndim == 1:
        return jnp.tensordot(row.astype(past.dtype), past, axes=1, precision="highest")
    return (row.reshape(row.shape[0], *(1,) * (past.ndim - row.ndim), *row.shape[1:]) * past).sum(0)


def segment_sums(reach: int, weights: tuple[Any, ...], *segment: Any) -> Any:
    """``out[i] = sum_j w[L + i - j] f[j]`` for each of K sequences and the next ``reach`` sums, (K, reach, ...)."""
    values = jnp.concatenate(segment)
    length = values.shape[0]
    kernels = [padded(each[1 : length + reach], length + reach - 1) for each in weights]
    if kernels[0].ndim == 1 and min(length, reach) <= LONGEST_PRODUCT and length * reach <= LONGEST_PRODUCT**2:
        place = length - 1 + jnp.arange(reach)[:, None] - jnp.arange(length)[None, :]
        matrix = jnp.concatenate([kernel[place] for kernel in kernels]).astype(values.dtype)
        product = jnp.matmul(matrix, values.reshape(length, -1), precision="highest")
        return product.reshape(len(kernels), reach, *values.shape[1:])
    return jnp.stack([_transformed(kernel, values, reach) for kernel in kernels])


def _transformed(kernel: Any, values: Any, reach: int) -> Any:
    length = values.shape[0]
    kernel = kernel.reshape(kernel.shape[0], *(1,) * (values.ndim - kernel.ndim), *kernel.shape[1:])
    size = 1 << (length + reach - 2).bit_length()  # wrap-around affects only sums that are not needed
    forward, back = (jnp.fft.fft, jnp.fft.ifft) if jnp.iscomplexobj(values) else (jnp.fft.rfft, jnp.fft.irfft)
    product = forward(kernel, size, axis=0) * forward(values, size, axis=0)
    return back(product, size, axis=0)[length - 1 : length - 1 + reach]

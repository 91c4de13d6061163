"""Causal convolution in JAX: a Toeplitz product, one padded FFT, or FFTs of blocks.

Each is compiled once per shape; it can be traced under the caller's ``jit``, ``grad`` or ``vmap``, and differentiated
in both operands.

Non-finite samples stay causal, although a transform or a matrix product would spread them: the sum is computed with
non-finite samples set to 0, then every point whose sum includes one is set to nan. Non-finite samples get a gradient of
0, all others the correct one. If a *weight* is not finite, the whole row may be nan.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial, reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.generic.causal_convolution import with_starts
from hpfracc.engine.numerics.lengths import fast_length
from hpfracc.engine.primitives.base import Call
from hpfracc.engine.primitives.causal_convolution import block_length

__all__ = ["KERNELS"]


class Matrix(NamedTuple):
    """The weights as a matrix: ``y = x @ matrix``."""

    matrix: jax.Array
    taps: int


class CausalSpectrum(NamedTuple):
    """The transform of the weights, zero-padded to ``size`` points."""

    transform: jax.Array
    size: int
    taps: int
    real: bool


def _operands(weights: jax.Array, signal: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Both in the dtype of the result, with no more weights than points."""
    dtype = signal.dtype if jnp.issubdtype(signal.dtype, jnp.inexact) else jnp.dtype("float64")
    if jnp.iscomplexobj(weights):
        dtype = jnp.result_type(dtype, jnp.complex64)
    return weights.astype(dtype)[..., : signal.shape[-1]], signal.astype(dtype)


def _weights_for(weights: jax.Array, call: Call) -> jax.Array:
    return weights.astype(call.dtype)[..., : call.length]


def _sum_of_nothing(batch: tuple[int, ...], signal: jax.Array, taps: int, dtype: jnp.dtype) -> jax.Array | None:
    """The result if there are no points, rows or weights; otherwise None."""
    shape = jnp.broadcast_shapes((*batch, 1), signal.shape)
    return None if taps and 0 not in shape else jnp.zeros(shape, dtype)


# Direct: multiply with the Toeplitz matrix of the weights.


def _toeplitz(weights: jax.Array, n: int) -> jax.Array:
    """``T[..., j, i] = weights[..., i - j]``, 0 outside."""
    padded = jnp.pad(weights, [(0, 0)] * (weights.ndim - 1) + [(n - 1, n - weights.shape[-1])])
    points = jnp.arange(n, dtype=jnp.int32)
    return padded[..., points[None, :] - points[:, None] + (n - 1)]


def _multiply(signal: jax.Array, matrix: jax.Array) -> jax.Array:
    # Highest: on a GPU the default would round float32 to TF32.
    return jnp.matmul(signal[..., None, :], matrix, precision=lax.Precision.HIGHEST)[..., 0, :]


@jax.jit
def convolve_direct(weights: jax.Array, signal: jax.Array) -> jax.Array:
    """The sum as a product with an n x n matrix, for short signals."""
    weights, signal = _operands(weights, signal)
    n, taps = signal.shape[-1], weights.shape[-1]
    nothing = _sum_of_nothing(weights.shape[:-1], signal, taps, signal.dtype)
    if nothing is not None:
        return nothing
    return apply_causally(partial(_multiply, matrix=_toeplitz(weights, n)), signal, taps)


@partial(jax.jit, static_argnames="n")
def _make_matrix(weights: jax.Array, n: int) -> jax.Array:
    return _toeplitz(weights, n) if n else weights[..., None]


@partial(jax.jit, static_argnames="taps")
def _apply_matrix(matrix: jax.Array, signal: jax.Array, taps: int) -> jax.Array:
    signal = signal.astype(matrix.dtype)
    nothing = _sum_of_nothing(matrix.shape[:-2], signal, taps, matrix.dtype)
    return apply_causally(partial(_multiply, matrix=matrix), signal, taps) if nothing is None else nothing


def prepare_direct(weights: jax.Array, call: Call) -> Matrix:
    """The matrix."""
    weights = _weights_for(weights, call)
    return Matrix(_make_matrix(weights, call.length), weights.shape[-1])


def apply_direct(prepared: Matrix, signal: jax.Array) -> jax.Array:
    """Multiply with a cached matrix."""
    return _apply_matrix(prepared.matrix, signal, prepared.taps)


# FFT: one transform of everything, padded so that the cyclic product does not wrap into the first n points.


def _forward(array: jax.Array, size: int, real: bool) -> jax.Array:
    return jnp.fft.rfft(array, size) if real else jnp.fft.fft(array, size)


def _spectral_product(signal: jax.Array, transform: jax.Array, size: int, real: bool) -> jax.Array:
    """The cyclic convolution along the last axis, ``size`` points of it."""
    product = _forward(signal, size, real) * transform
    return jnp.fft.irfft(product, size) if real else jnp.fft.ifft(product)


def _convolve_spectrum(transform: jax.Array, signal: jax.Array, size: int, taps: int, real: bool) -> jax.Array:
    n = signal.shape[-1]
    return apply_causally(lambda x: _spectral_product(x, transform, size, real)[..., :n], signal, taps)


@jax.jit
def convolve_fft(weights: jax.Array, signal: jax.Array) -> jax.Array:
    """Transform, multiply, transform back."""
    weights, signal = _operands(weights, signal)
    n, taps = signal.shape[-1], weights.shape[-1]
    nothing = _sum_of_nothing(weights.shape[:-1], signal, taps, signal.dtype)
    if nothing is not None:
        return nothing
    size, real = fast_length(n + taps - 1), not jnp.iscomplexobj(signal)
    return _convolve_spectrum(_forward(weights, size, real), signal, size, taps, real)


@partial(jax.jit, static_argnames=("size", "real"))
def _make_spectrum(weights: jax.Array, size: int, real: bool) -> jax.Array:
    if 0 in weights.shape:
        return jnp.zeros((*weights.shape[:-1], size), jnp.result_type(weights.dtype, jnp.complex64))
    return _forward(weights, size, real)


@partial(jax.jit, static_argnames=("size", "taps", "real", "blocked"))
def _apply_spectrum(
    transform: jax.Array, signal: jax.Array, size: int, taps: int, real: bool, blocked: bool
) -> jax.Array:
    if not real:
        signal = signal.astype(transform.dtype)
    nothing = _sum_of_nothing(transform.shape[:-1], signal, taps, signal.dtype)
    if nothing is not None:
        return nothing
    convolve = _convolve_blocks if blocked else _convolve_spectrum
    return convolve(transform, signal, size, taps, real)


def prepare_fft(weights: jax.Array, call: Call) -> CausalSpectrum:
    """The transform of the weights, for signals of ``call.length`` points."""
    return _spectrum(weights, call, fast_length(max(1, call.length + min(weights.shape[-1], call.length) - 1)))


def _spectrum(weights: jax.Array, call: Call, size: int) -> CausalSpectrum:
    weights = _weights_for(weights, call)
    real = not jnp.iscomplexobj(weights)
    return CausalSpectrum(_make_spectrum(weights, size, real), size, weights.shape[-1], real)


def apply_fft(prepared: CausalSpectrum, signal: jax.Array) -> jax.Array:
    """Convolve with weights whose transform is cached: two transforms instead of three."""
    return _apply_spectrum(prepared.transform, signal, prepared.size, prepared.taps, prepared.real, blocked=False)


# Blocked: the signal in blocks a few times as long as the weights; what hangs over is added to the next block.


def _convolve_blocks(transform: jax.Array, signal: jax.Array, size: int, taps: int, real: bool) -> jax.Array:
    n, overlap = signal.shape[-1], taps - 1
    step = size - overlap
    blocks = -(-n // step)

    def product(x: jax.Array) -> jax.Array:
        rows = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, blocks * step - n)]).reshape(*x.shape[:-1], blocks, step)
        pieces = _spectral_product(rows, transform[..., None, :], size, real)
        result = pieces[..., :step]
        if overlap and blocks > 1:
            result = result.at[..., 1:, :overlap].add(pieces[..., :-1, step:])
        return result.reshape(*result.shape[:-2], blocks * step)[..., :n]

    return apply_causally(product, signal, taps)


@jax.jit
def convolve_blocked(weights: jax.Array, signal: jax.Array) -> jax.Array:
    """Overlap-add: the work is ``n log(taps)`` instead of ``n log(n)``."""
    weights, signal = _operands(weights, signal)
    taps = weights.shape[-1]
    nothing = _sum_of_nothing(weights.shape[:-1], signal, taps, signal.dtype)
    if nothing is not None:
        return nothing
    size, real = block_length(taps), not jnp.iscomplexobj(signal)
    return _convolve_blocks(_forward(weights, size, real), signal, size, taps, real)


def prepare_blocked(weights: jax.Array, call: Call) -> CausalSpectrum:
    """The transform of the weights, as long as a block."""
    return _spectrum(weights, call, block_length(min(weights.shape[-1], call.length)))


def apply_blocked(prepared: CausalSpectrum, signal: jax.Array) -> jax.Array:
    """Convolve block by block with weights whose transform is cached."""
    return _apply_spectrum(prepared.transform, signal, prepared.size, prepared.taps, prepared.real, blocked=True)


# Non-finite samples, differences, and starting weights.


def apply_causally(product: Callable[[jax.Array], jax.Array], signal: jax.Array, taps: int) -> jax.Array:
    """``product(signal)`` for a product that spreads non-finite samples, repaired.

    ``taps`` is the number of outputs that depend on one sample.
    """
    finite = jnp.isfinite(signal)
    result = product(jnp.where(finite, signal, 0))
    n = signal.shape[-1]
    points = jnp.arange(n, dtype=jnp.int32)
    if taps >= n:
        return jnp.where(points >= _first_false(finite), jnp.nan, result)

    def tainted(values: jax.Array) -> jax.Array:
        return jnp.where(_reach(~finite, taps), jnp.nan, values)

    # With few weights, a non-finite sample has a limited effect: more work, done only if there is one.
    return lax.cond(jnp.all(finite), lambda values: values, tainted, result)


def _first_false(flags: jax.Array) -> jax.Array:
    """The place of the first False along the last axis, which is kept; its length if there is none.

    Up to 262,144 points the axis is reduced in 32 parts, whose minimum belongs to the expression that uses it: XLA
    reduces a longer axis by two kernels.
    """
    n = flags.shape[-1]
    places = jnp.where(flags, n, jnp.arange(n, dtype=jnp.int32))
    if n > 32 * 8192:
        return jnp.min(places, axis=-1, keepdims=True)
    places = jnp.pad(places, [(0, 0)] * (flags.ndim - 1) + [(0, -n % 32)], constant_values=n)
    firsts = jnp.min(places.reshape(*flags.shape[:-1], 32, -1), axis=-1)
    return reduce(jnp.minimum, [firsts[..., part : part + 1] for part in range(32)])


def _reach(bad: jax.Array, taps: int) -> jax.Array:
    """Whether one of the last ``taps`` samples is non-finite, by doubling windows.

    Unrolled, because XLA compiles that in half the time of a scan.
    """
    width = 1
    while width < taps:
        shift = min(width, taps - width)
        bad = bad | jnp.pad(bad[..., :-shift], [(0, 0)] * (bad.ndim - 1) + [(shift, 0)])
        width += shift
    return bad


@jax.jit
def differences(signal: jax.Array) -> jax.Array:
    """``signal[n] - signal[n-1]`` along the last axis, 0 at the first point."""
    return signal - jnp.concatenate([signal[..., :1], signal[..., :-1]], axis=-1)


@partial(jax.jit, static_argnames="first")
def add_starts(result: jax.Array, signal: jax.Array, summands: jax.Array, starts: jax.Array, first: int) -> jax.Array:
    """``result`` with ``starts[j] * summands[..., first + j]`` added from that point on.

    The first sample has no difference: it is multiplied itself.
    """
    points = jnp.arange(result.shape[-1], dtype=jnp.int32)
    for j in range(first, first + starts.shape[0]):
        sample, begun = (summands if j else signal)[..., j : j + 1], points >= j
        # Selected, not added to a slice, for which XLA has a separate kernel. Twice: neither a non-finite sample nor
        # a non-finite weight counts before the sample, also in gradients.
        weights = jnp.where(begun, starts[j - first].astype(result.dtype), 0)
        result += jnp.where(begun, sample * weights, 0)
    return result


_PLAIN: dict[str, Kernel] = {
    "direct": Kernel(convolve_direct, prepare_direct, apply_direct),
    "fft": Kernel(convolve_fft, prepare_fft, apply_fft),
    "blocked": Kernel(convolve_blocked, prepare_blocked, apply_blocked),
}
KERNELS: dict[str, Kernel] = {name: with_starts(kernel, differences, add_starts) for name, kernel in _PLAIN.items()}


Program = Callable[..., jax.Array]


@lru_cache(maxsize=1024)
def _program(size: int, taps: int, real: bool, blocked: bool, differenced: bool, first: int) -> Program:
    """The convolution with differences before it and starting weights after it, compiled as one.

    A function for each set of constants: passing six static arguments through ``jax.jit`` takes 5 us a call, 4 % of a
    row of 100,000 points on an H200 (benchmarks/operators.py).
    """

    @jax.jit
    def program(transform: jax.Array, signal: jax.Array, *starts: jax.Array) -> jax.Array:
        summands = differences(signal) if differenced else signal
        result = _apply_spectrum(transform, summands, size, taps, real, blocked)
        return add_starts(result, signal, summands, *starts, first) if starts else result

    compiled: Program = program
    return compiled


def _with_options(blocked: bool) -> Callable[..., jax.Array]:
    """``apply`` with the options of the primitive, in one compiled call instead of three."""

    def apply(
        prepared: CausalSpectrum, signal: jax.Array, *starts: jax.Array, differences: bool = False, starts_from: int = 0
    ) -> jax.Array:
        transform, size, taps, real = prepared
        program = _program(size, taps, real, blocked, bool(differences), int(starts_from))
        return program(transform, signal, *starts)

    return apply


for _name in ("fft", "blocked"):
    KERNELS[_name] = replace(KERNELS[_name], apply=_with_options(_name == "blocked"))

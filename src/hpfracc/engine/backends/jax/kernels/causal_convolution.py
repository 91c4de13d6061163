"""Causal convolution in JAX: a Toeplitz product, one padded FFT, or FFTs of blocks.

Each is compiled once per shape; it can be traced under the caller's ``jit``, ``grad`` or ``vmap``, and differentiated
in both operands.

Non-finite samples stay causal, although a transform or a matrix product would spread them: the sum is computed with
non-finite samples set to 0, then every point whose sum includes one is set to nan. Non-finite samples get a gradient of
0, all others the correct one. If a *weight* is not finite, the whole row may be nan.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial, reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.generic.causal_convolution import with_starts
from hpfracc.engine.numerics.lengths import block_length, fast_length
from hpfracc.engine.primitives.base import Call

__all__ = ["KERNELS"]


class Matrix(NamedTuple):
    """The weights as a matrix: ``y = x @ matrix``."""

    matrix: jax.Array
    taps: int


@partial(jax.tree_util.register_dataclass, data_fields=["transform"], meta_fields=["size", "taps", "real", "twisted"])
@dataclass(frozen=True, slots=True)
class CausalSpectrum:
    """The transform of the weights, zero-padded to ``size`` points; only the transform is an operand of programs.

    ``real`` says that it is the transform of real numbers, ``twisted`` that it is that of :func:`_twisted_product`.
    """

    transform: jax.Array
    size: int
    taps: int
    real: bool
    twisted: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes of the transform."""
        return int(self.transform.nbytes)


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


def _spectral_product(signal: jax.Array, spectrum: CausalSpectrum) -> jax.Array:
    """The cyclic convolution along the last axis, ``size`` points of it."""
    if spectrum.twisted:
        return _twisted_product(signal, spectrum)
    product = _forward(signal, spectrum.size, spectrum.real) * spectrum.transform
    return jnp.fft.irfft(product, spectrum.size) if spectrum.real else jnp.fft.ifft(product)


def _twist(size: int, dtype: jnp.dtype) -> jax.Array:
    """The powers ``0 <= k < size`` of the ``4 size``-th root of unity."""
    angle = jnp.arange(size, dtype=dtype) * (jnp.pi / (2 * size))
    return lax.complex(jnp.cos(angle), jnp.sin(angle))


def _twisted_product(signal: jax.Array, spectrum: CausalSpectrum) -> jax.Array:
    """The right-angle convolution of real numbers: the point k of the sum plus i times its point ``size + k``.

    The real part is the causal sum, with complex transforms of ``size`` instead of real ones of ``2 size`` points. The
    inverse is a forward transform of the conjugate: XLA scales inverse transforms by a separate kernel. The transform
    of the weights has that factor.
    """
    n, twist = signal.shape[-1], _twist(spectrum.size, signal.dtype)
    product = jnp.fft.fft(signal * twist[:n], spectrum.size) * spectrum.transform
    return jnp.real(jnp.fft.fft(jnp.conj(product)) * twist)


def _convolve_whole(spectrum: CausalSpectrum, signal: jax.Array) -> jax.Array:
    n = signal.shape[-1]
    return apply_causally(lambda x: _spectral_product(x, spectrum)[..., :n], signal, spectrum.taps)


@jax.jit
def convolve_fft(weights: jax.Array, signal: jax.Array) -> jax.Array:
    """Transform, multiply, transform back."""
    weights, signal = _operands(weights, signal)
    n, taps = signal.shape[-1], weights.shape[-1]
    nothing = _sum_of_nothing(weights.shape[:-1], signal, taps, signal.dtype)
    if nothing is not None:
        return nothing
    size, real = fast_length(n + taps - 1), not jnp.iscomplexobj(signal)
    return _convolve_whole(CausalSpectrum(_forward(weights, size, real), size, taps, real), signal)


@partial(jax.jit, static_argnames=("size", "real", "twisted"))
def _make_spectrum(weights: jax.Array, size: int, real: bool, twisted: bool) -> jax.Array:
    if 0 in weights.shape:
        return jnp.zeros((*weights.shape[:-1], size), jnp.result_type(weights.dtype, jnp.complex64))
    if twisted:
        return jnp.fft.fft(weights * _twist(size, weights.dtype)[: weights.shape[-1]], size) / size
    return _forward(weights, size, real)


@partial(jax.jit, static_argnames="blocked")
def _apply_spectrum(spectrum: CausalSpectrum, signal: jax.Array, blocked: bool) -> jax.Array:
    if not spectrum.real:
        signal = signal.astype(spectrum.transform.dtype)
    nothing = _sum_of_nothing(spectrum.transform.shape[:-1], signal, spectrum.taps, signal.dtype)
    if nothing is not None:
        return nothing
    return _convolve_blocks(spectrum, signal) if blocked else _convolve_whole(spectrum, signal)


def prepare_fft(weights: jax.Array, call: Call) -> CausalSpectrum:
    """The transform of the weights, for signals of ``call.length`` points.

    Real weights on a GPU are twisted: a call launches fewer kernels, and takes 0.7 of the time at 100,000 points
    (benchmarks/operators.py). On the host that takes 0.9 to 1.2 of the time.
    """
    if _is_on_gpu(weights) and not call.dtype.startswith("complex"):
        return prepare_twisted(weights, call)
    return _spectrum(weights, call, fast_length(max(1, call.length + min(weights.shape[-1], call.length) - 1)))


def prepare_twisted(weights: jax.Array, call: Call) -> CausalSpectrum:
    """The transform of real weights for the right-angle convolution."""
    return _spectrum(weights, call, fast_length(max(1, call.length)), twisted=True)


def _is_on_gpu(array: jax.Array) -> bool:
    return not isinstance(array, jax.core.Tracer) and all(device.platform != "cpu" for device in array.devices())


def _spectrum(weights: jax.Array, call: Call, size: int, twisted: bool = False) -> CausalSpectrum:
    weights = _weights_for(weights, call)
    real = not jnp.iscomplexobj(weights)
    return CausalSpectrum(_make_spectrum(weights, size, real, twisted), size, weights.shape[-1], real, twisted)


def apply_fft(prepared: CausalSpectrum, signal: jax.Array) -> jax.Array:
    """Convolve with weights whose transform is cached: two transforms instead of three."""
    return _apply_spectrum(prepared, signal, blocked=False)


# Blocked: the signal in blocks a few times as long as the weights; what hangs over is added to the next block.


def _convolve_blocks(spectrum: CausalSpectrum, signal: jax.Array) -> jax.Array:
    n, overlap = signal.shape[-1], spectrum.taps - 1
    step = spectrum.size - overlap
    rows_of = replace(spectrum, transform=spectrum.transform[..., None, :])
    blocks = -(-n // step)

    def product(x: jax.Array) -> jax.Array:
        rows = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, blocks * step - n)]).reshape(*x.shape[:-1], blocks, step)
        pieces = _spectral_product(rows, rows_of)
        result = pieces[..., :step]
        if overlap and blocks > 1:
            result = result.at[..., 1:, :overlap].add(pieces[..., :-1, step:])
        return result.reshape(*result.shape[:-2], blocks * step)[..., :n]

    return apply_causally(product, signal, spectrum.taps)


@jax.jit
def convolve_blocked(weights: jax.Array, signal: jax.Array) -> jax.Array:
    """Overlap-add: the work is ``n log(taps)`` instead of ``n log(n)``."""
    weights, signal = _operands(weights, signal)
    taps = weights.shape[-1]
    nothing = _sum_of_nothing(weights.shape[:-1], signal, taps, signal.dtype)
    if nothing is not None:
        return nothing
    size, real = block_length(taps), not jnp.iscomplexobj(signal)
    return _convolve_blocks(CausalSpectrum(_forward(weights, size, real), size, taps, real), signal)


def prepare_blocked(weights: jax.Array, call: Call) -> CausalSpectrum:
    """The transform of the weights, as long as a block."""
    return _spectrum(weights, call, block_length(min(weights.shape[-1], call.length)))


def apply_blocked(prepared: CausalSpectrum, signal: jax.Array) -> jax.Array:
    """Convolve block by block with weights whose transform is cached."""
    return _apply_spectrum(prepared, signal, blocked=True)


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


@cache
def _program(blocked: bool, differenced: bool, first: int) -> Callable[..., jax.Array]:
    """The convolution with differences before it and starting weights after it, compiled as one."""

    @jax.jit
    def program(spectrum: CausalSpectrum, signal: jax.Array, *starts: jax.Array) -> jax.Array:
        summands = differences(signal) if differenced else signal
        result = _apply_spectrum(spectrum, summands, blocked)
        return add_starts(result, signal, summands, *starts, first) if starts else result

    compiled: Callable[..., jax.Array] = program
    return compiled


def _in_one_program(kernel: Kernel, blocked: bool) -> Kernel:
    """A kernel that applies a spectrum, with the options of the primitive, in one compiled call instead of three."""

    def apply(
        prepared: CausalSpectrum, signal: jax.Array, *starts: jax.Array, differences: bool = False, starts_from: int = 0
    ) -> jax.Array:
        return _program(blocked, bool(differences), int(starts_from))(prepared, signal, *starts)

    def specialise(call: Call) -> Callable[..., jax.Array]:
        return _program(blocked, call.facts["differences"], call.facts["starts_from"])

    return replace(kernel, apply=apply, specialise=specialise)


for _name in ("fft", "blocked"):
    KERNELS[_name] = _in_one_program(KERNELS[_name], _name == "blocked")

"""Causal convolution in NumPy: the sum, one padded FFT, or FFTs of blocks.

A single row goes through ``scipy.fft``: 10,000 points take 0.26 ms there and 0.34 ms by ``numpy.fft``
(benchmarks/overhead.py on a Xeon). So does single precision, where NumPy's ``rfft`` computes in double and takes twice
as long. Several rows and long ones in double precision use ``numpy.fft``, which can write to existing buffers. Rows are
divided among the engine's threads.
"""

from __future__ import annotations

import contextvars
import math
from dataclasses import replace
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.generic.causal_convolution import take_differences, with_starts_on_host
from hpfracc.engine.backends.numpy.halves import HalvedSpectrum, convolve_halves, halve, scipy_fft
from hpfracc.engine.backends.numpy.library import all_finite
from hpfracc.engine.backends.numpy.nonfinite import repaired, rescaled
from hpfracc.engine.backends.numpy.twisted import TwistedSpectrum, convolve_twisted, twist
from hpfracc.engine.memory.buffers import host_buffers
from hpfracc.engine.numerics.lengths import block_length, fast_length
from hpfracc.engine.primitives.base import Call
from hpfracc.engine.workers import even_blocks, run_blocks

__all__ = ["KERNELS", "CausalSpectrum"]

#: Points of all blocks that are transformed together (also in the adapter): 1 MB of doubles, which stay in cache.
_TOGETHER = 1 << 17
Array = np.ndarray[Any, Any]

#: Minimum number of points for padded buffers from the pool: 0.5 MB of doubles. 256 rows of 1,024 points took 5.0 ms
#: instead of 8.6, a row of four million 1.18 s instead of 1.34; below this, the pool costs what it saves.
_MIN_POOLED = 1 << 16
#: The same for a single row in double precision. The allocator keeps smaller buffers, and SciPy's inverse transform,
#: which cannot write to a given buffer, is faster than NumPy's: a row of 100,000 points took 1.05 times the bare pair
#: of transforms instead of 1.16. One of 250,000 takes 0.84 times with the pool, 1.03 without (benchmarks/overhead.py).
_MIN_POOLED_ROW = 1 << 18
#: Minimum number of points of a row with as many weights for a complex transform instead of a padded one. The turns of
#: shorter ones are not worth their rounding errors: the direct sum is faster there.
_MIN_TWISTED = 64
#: Minimum number of points of a row with as many weights for two transforms of half the padded length instead of a
#: complex one, whose larger buffers the allocator does not keep (benchmarks/results/house.txt).
_MIN_HALVED = 7 << 11
#: Minimum number of points for the two halves on two threads.
_MIN_IN_THREADS = 1 << 17

# inf - inf inside a transform needs no warning: the result is repaired afterwards.
_QUIET = np.errstate(all="ignore")


class CausalSpectrum(NamedTuple):
    """Weights cut to the signal's length, and their transform padded to ``size`` points and divided by ``size``.

    With the division made once, inverse transforms need not scale their results: one pass less for each.
    """

    transform: Array
    size: int
    weights: Array

    @property
    def nbytes(self) -> int:
        """Bytes of the cached object."""
        return self.transform.nbytes + self.weights.nbytes


def convolve_direct(weights: Array, signal: Array) -> Array:
    """The direct sum, by ``numpy.convolve`` for each row."""
    n = signal.shape[-1]
    if weights.ndim == 1 and signal.ndim == 1 and n and weights.shape[0]:
        return np.convolve(weights[:n], signal)[:n]
    weights = weights[..., :n]
    shape = _result_shape(weights, signal)
    result = np.zeros(shape, signal.dtype)
    if result.size and weights.shape[-1]:
        rows = np.broadcast_to(weights, (*shape[:-1], weights.shape[-1]))
        signal = np.broadcast_to(signal, shape)
        for index in np.ndindex(shape[:-1]):
            result[index] = np.convolve(rows[index], signal[index])[:n]
    return result


def _result_shape(weights: Array, signal: Array) -> tuple[int, ...]:
    shape: tuple[int, ...] = signal.shape
    if weights.ndim == 1:
        return shape
    return (*np.broadcast_shapes(weights.shape[:-1], shape[:-1]), shape[-1])


# One transform of everything, padded so that the cyclic product does not wrap into the first n points.


@_QUIET
def convolve_fft(weights: Array, signal: Array, *, workers: int = 1) -> Array:
    """Transform, multiply, transform back."""
    n = signal.shape[-1]
    weights = weights[..., :n]
    shape = _result_shape(weights, signal)
    if not weights.size or 0 in shape:
        return np.zeros(shape, signal.dtype)
    size = fast_length(n + weights.shape[-1] - 1)
    if workers > 1 and signal.ndim == 1 and weights.ndim == 1:
        # A single row cannot be split, but its two transforms can run in parallel.
        transform, ahead = run_blocks(lambda array: _forward(array, size), (weights, signal), workers)
        result = _product(_divided(transform, size), ahead, size, signal)[:n].copy()
        return _checked(result, result[..., 0], weights, signal, convolve_fft)
    return _apply(_spectrum(weights, size), signal, workers)


def _spectrum(weights: Array, size: int) -> CausalSpectrum:
    return CausalSpectrum(_divided(_forward(weights, size), size), size, weights)


def _divided(transform: Array, size: int) -> Array:
    transform *= 1.0 / size
    return transform


@_QUIET
def prepare_fft(weights: Array, call: Call) -> CausalSpectrum | HalvedSpectrum | TwistedSpectrum:
    """The transform of the weights, for signals of ``call.length`` points; unpadded for a row of as many doubles."""
    weights = _own(weights, call)
    if call.dtype == "float64" and weights.shape == call.shape == (call.length,) and call.length >= _MIN_TWISTED:
        return halve(weights) if call.length >= _MIN_HALVED else twist(weights)
    size = fast_length(max(1, call.length + weights.shape[-1] - 1))
    return _spectrum(weights, size)


@_QUIET
def apply_fft(prepared: CausalSpectrum | HalvedSpectrum | TwistedSpectrum, signal: Array, *, workers: int = 1) -> Array:
    """Convolve with weights whose transform is cached: two transforms instead of three."""
    if isinstance(prepared, TwistedSpectrum):
        return _twisted_row(prepared, signal, (), False, 0)
    if isinstance(prepared, HalvedSpectrum):
        return _halved_row(prepared, signal, (), False, 0, workers)
    return _apply(prepared, signal, workers)


def _apply(prepared: CausalSpectrum, signal: Array, workers: int) -> Array:
    shape = _result_shape(prepared.weights, signal)
    if not prepared.weights.size or 0 in shape:
        return np.zeros(shape, signal.dtype)
    if workers <= 1 or len(shape) == 1:
        result = _whole(prepared.transform, prepared.size, signal, shape)
    else:
        result = np.empty(shape, signal.dtype)
        axis = int(np.argmax(shape[:-1])) - len(shape)

        def work(block: tuple[int, int]) -> None:
            transform, part, target = (_cut(array, axis, block) for array in (prepared.transform, signal, result))
            _multiply(transform, prepared.size, part, target)

        run_blocks(work, even_blocks(shape[axis], workers), workers)
    return _checked(result, result[..., 0], prepared.weights, signal, convolve_fft)


def _is_pooled(size: int, signal: Array, shape: tuple[int, ...]) -> bool:
    rows = math.prod(shape[:-1])
    return signal.dtype.char in "dD" and rows * size >= _MIN_POOLED and signal.shape == shape


def _whole(transform: Array, size: int, signal: Array, shape: tuple[int, ...]) -> Array:
    """The result of all rows, created after the spectrum is freed."""
    if _is_pooled(size, signal, shape):
        result = np.empty(shape, signal.dtype)
        _multiply_pooled(transform, size, signal, result)
        return result
    return _product(transform, _forward(signal, size), size, signal)[..., : shape[-1]].copy()


def _multiply(transform: Array, size: int, signal: Array, result: Array) -> None:
    if _is_pooled(size, signal, result.shape):
        _multiply_pooled(transform, size, signal, result)
    else:
        result[...] = _product(transform, _forward(signal, size), size, signal)[..., : result.shape[-1]]


def _multiply_pooled(transform: Array, size: int, signal: Array, result: Array) -> None:
    """The same in reused padded buffers: only the result needs new memory pages."""
    batch, real = result.shape[:-1], signal.dtype.kind == "f"
    there, back = (np.fft.rfft, np.fft.irfft) if real else (np.fft.fft, np.fft.ifft)
    with (
        host_buffers.borrow((*batch, size // 2 + 1 if real else size), np.complex128, clear=False) as spectrum,
        host_buffers.borrow((*batch, size), signal.dtype, clear=False) as product,
    ):
        there(signal, size, out=spectrum)
        np.multiply(spectrum, transform, out=spectrum)
        back(spectrum, size, norm="forward", out=product)
        result[...] = product[..., : result.shape[-1]]


def _product(transform: Array, spectrum: Array, size: int, signal: Array) -> Array:
    """The cyclic convolution; ``transform`` was divided by ``size``, ``spectrum`` is written over where it fits."""
    fits = transform.ndim == 1 or np.broadcast_shapes(transform.shape, spectrum.shape) == spectrum.shape
    spectrum = np.multiply(spectrum, transform, out=spectrum if fits else None)
    fft = _transforms(signal)
    back = fft.ifft if signal.dtype.kind == "c" else fft.irfft
    return np.asarray(back(spectrum, size, norm="forward"))


def _transforms(array: Array) -> ModuleType:
    return np.fft if array.dtype.char in "dD" and array.ndim > 1 else scipy_fft()


def _cut(array: Array, axis: int, block: tuple[int, int]) -> Array:
    """Part of an operand along one of the result's axes; all of it if it is broadcast along it."""
    if array.ndim < -axis or array.shape[axis] == 1:
        return array
    part: tuple[Any, ...] = (..., slice(*block), *(slice(None),) * (-axis - 1))
    view: Array = array[part]
    return view


def _forward(array: Array, size: int) -> Array:
    fft = _transforms(array)
    return np.asarray(fft.fft(array, size) if array.dtype.kind == "c" else fft.rfft(array, size))


def _own(weights: Array, call: Call) -> Array:
    """A copy, because the cached array must not change with the caller's."""
    return np.array(weights[..., : call.length], dtype=call.dtype, order="C")


def _checked(result: Array, witnesses: Array, weights: Array, signal: Array, convolve: Any) -> Array:
    """``result``, repaired if a first point is not finite: a non-finite sample affects the first point of its row."""
    if all_finite(witnesses):
        return result
    if all_finite(weights) and all_finite(signal):
        return rescaled(convolve, weights, signal, result)
    return repaired(convolve, weights, signal)


# The signal in blocks a few times as long as the weights (overlap-save).


def convolve_blocked(weights: Array, signal: Array, *, workers: int = 1) -> Array:
    """Overlap-save: the work is ``n log(taps)`` instead of ``n log(n)``, and each block stays in cache."""
    return apply_blocked(_block_spectrum(weights[..., : signal.shape[-1]]), signal, workers=workers)


def prepare_blocked(weights: Array, call: Call) -> CausalSpectrum:
    """The transform of the weights, as long as a block."""
    return _block_spectrum(_own(weights, call))


@_QUIET
def _block_spectrum(weights: Array) -> CausalSpectrum:
    return _spectrum(weights, block_length(weights.shape[-1]))


@_QUIET
def apply_blocked(prepared: CausalSpectrum, signal: Array, *, workers: int = 1) -> Array:
    """Convolve block by block with weights whose transform is cached."""
    transform, size, weights = prepared
    shape, overlap = _result_shape(weights, signal), weights.shape[-1] - 1
    result = np.empty(shape, signal.dtype)
    if not weights.size or not result.size:
        result[...] = 0
        return result
    n, step = shape[-1], size - overlap
    blocks = -(-n // step)
    rows = result.size // n
    together = max(1, _TOGETHER // (size * rows))

    def work(part: tuple[int, int]) -> None:
        for first in range(part[0], part[1], together):
            count = min(together, part[1] - first)
            _save(transform, size, signal, result, (first, count, overlap))

    run_blocks(work, even_blocks(blocks, workers), workers)
    return _checked(result, result[..., ::step], weights, signal, convolve_blocked)


def _save(transform: Array, size: int, signal: Array, result: Array, place: tuple[int, int, int]) -> None:
    """Blocks ``first`` to ``first + count``, each with the earlier samples that its first outputs need."""
    first, count, overlap = place
    n, step = signal.shape[-1], size - overlap
    begin, end = first * step - overlap, min(n, (first + count) * step)
    seen = np.zeros((*signal.shape[:-1], count * step + overlap), signal.dtype)
    seen[..., max(0, -begin) : end - begin] = signal[..., max(0, begin) : end]
    windows = np.lib.stride_tricks.sliding_window_view(seen, size, axis=-1)[..., ::step, :]
    points = _product(transform[..., None, :], _forward(windows, size), size, signal)[..., overlap:]
    points = points.reshape((*points.shape[:-2], count * step))
    result[..., first * step : end] = points[..., : end - first * step]


_PLAIN: dict[str, Kernel] = {
    "direct": Kernel(convolve_direct),
    "fft": Kernel(convolve_fft, prepare_fft, apply_fft),
    "blocked": Kernel(convolve_blocked, prepare_blocked, apply_blocked),
}
KERNELS: dict[str, Kernel] = {name: with_starts_on_host(kernel) for name, kernel in _PLAIN.items()}
_COMPOSED = KERNELS["fft"].apply


def _apply_fft_with_options(
    prepared: CausalSpectrum | HalvedSpectrum | TwistedSpectrum,
    signal: Array,
    *starts: Array,
    differences: bool = False,
    starts_from: int = 0,
    workers: int = 1,
) -> Array:
    """:func:`apply_fft` with the options of the primitive; a row in double precision needs fewer passes."""
    row = not starts or (starts[0].size > 0 and starts[0].dtype.char == "d")
    if row and isinstance(prepared, TwistedSpectrum):
        return _QUIET_CONTEXT.copy().run(_twisted_row, prepared, signal, starts, differences, starts_from)
    if row and isinstance(prepared, HalvedSpectrum):
        return _QUIET_CONTEXT.copy().run(_halved_row, prepared, signal, starts, differences, starts_from, workers)
    row = row and signal.ndim == prepared.weights.ndim == 1 and signal.dtype.char == "d"
    if row and isinstance(prepared, CausalSpectrum) and signal.size and prepared.weights.size:
        if prepared.size < _MIN_POOLED_ROW:
            return _QUIET_CONTEXT.copy().run(_short_row, prepared, signal, starts, differences, starts_from)
        return _long_row(prepared, signal, starts, differences, starts_from)
    assert _COMPOSED is not None
    result: Array = _COMPOSED(
        prepared, signal, *starts, differences=differences, starts_from=starts_from, workers=workers
    )
    return result


def _quiet_context() -> contextvars.Context:
    context = contextvars.Context()
    context.run(np.seterr, all="ignore")
    return context


#: A context in which NumPy ignores floating-point errors. Running in a copy of it takes 0.4 us; ``np.errstate`` takes
#: 3 us, 5 % of a row of 1,000 points (benchmarks/overhead.py).
_QUIET_CONTEXT = _quiet_context()


def _short_row(
    prepared: CausalSpectrum, signal: Array, starts: tuple[Array, ...], differences: bool, starts_from: int
) -> Array:
    """A row whose buffers are too small for the pool. Each is freed early, so that the next reuses it."""
    transform, size, weights = prepared
    n = signal.shape[0]
    padded = _padded_row(signal, size, differences)
    begun = _begun(signal, padded, starts, starts_from)
    fft = scipy_fft()
    spectrum = fft.rfft(padded)
    del padded
    np.multiply(spectrum, transform, spectrum)
    product = fft.irfft(spectrum, size, norm="forward", overwrite_x=True)
    del spectrum
    result = _cut_row(product, n, begun, starts, starts_from)
    if math.isfinite(result[0]):
        return result
    return _repaired_row(weights, signal, starts, differences, starts_from)


def _padded_row(signal: Array, size: int, differences: bool) -> Array:
    """The summands of a row and zeros; padded here and not by a transform, which would copy the summands."""
    padded = np.empty(size)
    padded[signal.shape[0] :] = 0.0
    _fill_row(padded, signal, differences)
    return padded


def _fill_row(target: Array, signal: Array, differences: bool) -> None:
    """The samples or their differences at the beginning of ``target``."""
    n = signal.shape[0]
    if differences:
        np.subtract(signal[1:], signal[:-1], target[1:n])
        target[0] = signal[0] - signal[0]  # not 0 if the first sample is not finite
    else:
        target[:n] = signal


def _halved_row(
    prepared: HalvedSpectrum,
    signal: Array,
    starts: tuple[Array, ...],
    differences: bool,
    starts_from: int,
    workers: int,
) -> Array:
    """A long row whose weights are as many, by transforms of half the padded length."""
    padded = _padded_row(signal, prepared.size, differences)
    if starts:
        begun = _begun(signal, padded, starts, starts_from)
        result = np.asarray(starts[0][0] * begun[0])
        result[:starts_from] = 0.0
        for j in range(1, len(begun)):
            result[starts_from + j :] += begun[j] * starts[0][j, starts_from + j :]
    else:
        result = np.zeros(signal.shape)
    convolve_halves(prepared, padded, result, workers if signal.size >= _MIN_IN_THREADS else 1)
    if math.isfinite(result[0]):
        return result
    return _repaired_row(prepared.weights, signal, starts, differences, starts_from)


def _twisted_row(
    prepared: TwistedSpectrum, signal: Array, starts: tuple[Array, ...], differences: bool, starts_from: int
) -> Array:
    """A short row whose weights are as many, by complex transforms of its own length."""
    turned = np.zeros(prepared.turns.shape[0], np.complex128)
    summands = turned.real
    _fill_row(summands, signal, differences)
    begun = _begun(signal, summands, starts, starts_from)
    product = convolve_twisted(prepared, turned).real
    result = _cut_row(product, signal.shape[0], begun, starts, starts_from)
    if math.isfinite(result[0]):
        return result
    return _repaired_row(prepared.weights, signal, starts, differences, starts_from)


@_QUIET
def _long_row(
    prepared: CausalSpectrum, signal: Array, starts: tuple[Array, ...], differences: bool, starts_from: int
) -> Array:
    """A row whose padded buffers come from the pool."""
    transform, size, weights = prepared
    summands = take_differences(signal) if differences else signal
    with (
        host_buffers.borrow((size // 2 + 1,), np.complex128, clear=False) as spectrum,
        host_buffers.borrow((size,), signal.dtype, clear=False) as product,
    ):
        np.fft.rfft(summands, size, out=spectrum)
        np.multiply(spectrum, transform, out=spectrum)
        np.fft.irfft(spectrum, size, norm="forward", out=product)
        begun = _begun(signal, summands, starts, starts_from)
        result = _cut_row(product, signal.shape[0], begun, starts, starts_from)
    if math.isfinite(result[0]):
        return result
    return _repaired_row(weights, signal, starts, differences, starts_from)


def _begun(signal: Array, summands: Array, starts: tuple[Array, ...], first: int) -> Array:
    """The summands that have starting weights; the first sample itself, which has no difference."""
    if not starts:
        return signal[:0]
    begun = summands[first : first + starts[0].shape[0]].copy()
    if not first:
        begun[0] = signal[0]
    return begun


def _cut_row(product: Array, n: int, begun: Array, starts: tuple[Array, ...], first: int) -> Array:
    """The first ``n`` points of a product, with the starting weights of summands ``begun`` added from ``first`` on."""
    if not starts:
        return product[:n].copy()
    result = np.empty(n)
    np.multiply(starts[0][0], begun[0], result)
    np.add(result, product[:n], result)
    result[:first] = product[:first]
    for j in range(1, len(begun)):
        result[first + j :] += begun[j] * starts[0][j, first + j :]
    return result


def _repaired_row(weights: Array, signal: Array, starts: tuple[Array, ...], differences: bool, first: int) -> Array:
    """A row whose first point was not finite, because a non-finite sample or an overflow affects every point."""
    summands = take_differences(signal) if differences else signal
    result = convolve_fft(weights, summands)
    for j, sample in enumerate(_begun(signal, summands, starts, first)):
        result[first + j :] += sample * starts[0][j, first + j :]
    return result


KERNELS["fft"] = replace(KERNELS["fft"], apply=_apply_fft_with_options)

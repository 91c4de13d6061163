"""Causal convolution in NumPy: the generic product with a matrix, transforms of whole rows, or of blocks of them.

Complex rows are padded. Real ones are not: with ``turn[j] = exp(i pi j / 2m)``, the cyclic convolution of
``turn * weights`` and ``turn * row`` over ``m`` points is ``turn[k] * (c[k] + i c[k + m])``, where ``c`` is the full
convolution of weights and row. The real part of the factor is the causal convolution, and the part that wraps around is
imaginary ("right-angle convolution", R. Crandall and B. Fagin, Math. Comp. 62, 1994). A complex transform of ``m``
points takes less time than a real one of ``2m``: see "Rows of samples" in benchmarks/results/house.txt. Of the blocks
of a long row the imaginary part is what hangs over into the next block.

Rows and blocks are processed in groups that stay in cache, which are divided among the engine's threads.
"""

from __future__ import annotations

import cmath
import contextvars
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from hpfracc._xp import NUMPY
from hpfracc.engine.backends.base import Kernel, too_long_for_causal_matrix
from hpfracc.engine.backends.generic.causal_convolution import PreparedWeights, add_starts, make_kernels, reach
from hpfracc.engine.backends.generic.causal_convolution import differences as differences_of
from hpfracc.engine.backends.numpy.library import LIBRARY, all_finite
from hpfracc.engine.numerics.lengths import block_length, fast_length
from hpfracc.engine.primitives.base import Call
from hpfracc.engine.workers import run_blocks

#: Points of all rows or blocks that are transformed together (also in the declaration): their buffers stay in cache.
_TOGETHER = 1 << 14
Array = np.ndarray[Any, Any]
Starts = tuple[Array, ...]


class Spectrum(NamedTuple):
    """The transform of weights, which includes the scale of the inverse transform, and the weights.

    With ``turns``, and their conjugates ``back``, it is that of weights times turns; all spectra of the same size share
    these. Without, it is that of complex weights, padded.
    """

    transform: Array
    weights: Array
    turns: Array | None = None
    back: Array | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the cached object, without the turns."""
        return self.transform.nbytes + self.weights.nbytes


@functools.lru_cache(maxsize=16)
def _turns(size: int, dtype: str) -> tuple[Array, Array]:
    # Freed at once: glibc then keeps buffers up to that size, and later calls have no page faults. Of 20,000 points a
    # call took 0.57 ms instead of 0.83.
    np.empty(4 * size, dtype)
    turns = np.exp(np.arange(size) * (0.5j * np.pi / size)).astype(dtype)
    return turns, turns.conj()


def twist(weights: Array, size: int) -> Spectrum:
    """Transform real weights, at most ``size`` of each row, in an array that is not modified later."""
    dtype = np.result_type(weights.dtype, np.complex64)
    turns, back = _turns(size, dtype.char)
    turned = np.zeros((*weights.shape[:-1], size), dtype)
    turned.real[..., : weights.shape[-1]] = weights
    turned *= turns
    return Spectrum(NUMPY.fft.fft(turned, norm="forward", overwrite_x=True), weights, turns, back)


def transform_padded(weights: Array, size: int) -> Spectrum:
    """Transform complex weights, padded to ``size``."""
    return Spectrum(NUMPY.fft.fft(weights, size, norm="forward"), weights)


def convolve_rows(spectrum: Spectrum, rows: Array) -> Array:
    """Returns a complex array whose real part is the convolution, all of it if the weights are complex.

    The real part of the complex ``rows``, or all of them, are the rows, padded with zeros to the length of the
    transform; they are overwritten.
    """
    transform, _, turns, back = spectrum
    fft = NUMPY.fft
    if turns is not None:
        np.multiply(rows, turns, rows)
    rows = fft.fft(rows, overwrite_x=True)
    rows = np.multiply(rows, transform, rows if transform.ndim == 1 else None)
    rows = fft.ifft(rows, norm="forward", overwrite_x=True)
    return rows if back is None else np.multiply(rows, back, rows)


def _prepare(weights: Array, n: int, dtype: Any) -> Spectrum:
    """The transform of a copy of the weights, because the cached array must not change with the caller's."""
    weights = np.array(weights[..., :n], dtype=dtype, order="C")
    if weights.dtype.kind == "c":
        return transform_padded(weights, fast_length(max(1, n + weights.shape[-1] - 1)))
    return twist(weights, fast_length(max(1, n)))


def _prepare_block(weights: Array, n: int, dtype: Any) -> Spectrum:
    """The same, for blocks."""
    weights = np.array(weights[..., :n], dtype=dtype, order="C")
    size = block_length(weights.shape[-1])
    return transform_padded(weights, size) if weights.dtype.kind == "c" else twist(weights, size // 2)


def _kernel(prepare_for: Callable[[Array, int, Any], Spectrum], sum_of: Callable[..., Array]) -> Kernel:
    """A kernel with the options of the primitive; ``sum_of(spectrum, signal, starts, differences, first, workers)``."""

    def apply(
        prepared: Spectrum,
        signal: Array,
        *starts: Array,
        differences: bool = False,
        starts_from: int = 0,
        workers: int = 1,
    ) -> Array:
        args = (prepared, signal, starts, differences, starts_from, workers)
        return _QUIET_CONTEXT.copy().run(_checked, sum_of, *args)

    def run(weights: Array, signal: Array, *starts: Array, workers: int = 1, **options: Any) -> Array:
        dtype = np.result_type(signal, weights) if weights.dtype.kind == "c" else signal.dtype
        prepared = _QUIET_CONTEXT.copy().run(prepare_for, weights, signal.shape[-1], dtype)
        return apply(prepared, signal, *starts, workers=workers, **options)

    def prepare(weights: Array, call: Call) -> Spectrum:
        return _QUIET_CONTEXT.copy().run(prepare_for, weights, call.length, call.dtype)

    return Kernel(run, prepare, apply)


def _quiet_context() -> contextvars.Context:
    context = contextvars.Context()
    context.run(np.seterr, all="ignore")
    return context


#: A context in which NumPy ignores floating-point errors. Running in a copy of it takes 0.4 us; ``np.errstate`` takes
#: 3 us, 5 % of a row of 1,000 points (benchmarks/overhead.py).
_QUIET_CONTEXT = _quiet_context()


def _sum_rows(
    spectrum: Spectrum, signal: Array, starts: Starts, differences: bool, first: int, workers: int = 1
) -> Array:
    """Whole rows, in groups that stay in cache if they have the same weights."""
    n = signal.shape[-1]
    if signal.ndim == 1 or spectrum.weights.ndim > 1 or signal.size <= _TOGETHER:
        return _sum_together(spectrum, signal, starts, differences, first)
    rows = signal.reshape(-1, n)
    result = np.empty(rows.shape, spectrum.weights.dtype)
    step = max(1, _TOGETHER // n)

    def work(low: int) -> None:
        result[low : low + step] = _sum_together(spectrum, rows[low : low + step], starts, differences, first)

    run_blocks(work, range(0, len(rows), step), workers)
    return result.reshape(signal.shape)


def _sum_together(spectrum: Spectrum, signal: Array, starts: Starts, differences: bool, first: int) -> Array:
    n, transform = signal.shape[-1], spectrum.transform
    buffer = np.zeros((*signal.shape[:-1], transform.shape[-1]), transform.dtype)
    summands = buffer if spectrum.turns is None else buffer.real
    _fill(summands, signal, differences)
    begun = _begun(signal, summands, starts, first)
    product = convolve_rows(spectrum, buffer)
    return _cut(product if spectrum.turns is None else product.real, n, begun, starts, first)


def _fill(target: Array, signal: Array, differences: bool) -> None:
    """The samples or their differences at the beginning of ``target``."""
    n = signal.shape[-1]
    if differences:
        np.subtract(signal[..., 1:], signal[..., :-1], target[..., 1:n])
        target[..., 0] = signal[..., 0] - signal[..., 0]  # not 0 if the first sample is not finite
    else:
        target[..., :n] = signal


def _begun(signal: Array, summands: Array, starts: Starts, first: int) -> Array:
    """The summands that have starting weights; the first sample itself, which has no difference."""
    if not starts:
        return signal[..., :0]
    begun = summands[..., first : first + starts[0].shape[0]].copy()
    if not first:
        begun[..., 0] = signal[..., 0]
    return begun


def _cut(product: Array, n: int, begun: Array, starts: Starts, first: int) -> Array:
    """The first ``n`` points of a product, with the starting weights of summands ``begun`` added from ``first`` on."""
    if not begun.shape[-1]:
        return product[..., :n].copy()
    result: Array = np.multiply(starts[0][0], begun[..., :1])
    if result.ndim == product.ndim and result.shape[:-1] == product.shape[:-1]:
        np.add(result, product[..., :n], result)
    else:  # several rows of weights for one row of samples
        result = result + product[..., :n]
    result[..., :first] = product[..., :first]
    for j in range(1, begun.shape[-1]):
        result[..., first + j :] += begun[..., j : j + 1] * starts[0][j, first + j :]
    return result


def _sum_blocks(
    spectrum: Spectrum, signal: Array, starts: Starts, differences: bool, first: int, workers: int = 1
) -> Array:
    """Blocks of a row, each with what hangs over from the block before it (overlap-add)."""
    n, (transform, weights, turns, _) = signal.shape[-1], spectrum
    summands = signal
    if differences:
        summands = np.empty_like(signal)
        _fill(summands, signal, differences)
    batch = np.broadcast_shapes(weights.shape[:-1], signal.shape[:-1])
    result = np.empty((*batch, n), weights.dtype)
    if transform.ndim > 1:
        spectrum = spectrum._replace(transform=transform[..., None, :])
    step = transform.shape[-1] - (0 if turns is not None else weights.shape[-1] - 1)
    # All rows at once if there are several rows of weights.
    rows = [()] if weights.ndim > 1 else list(np.ndindex(signal.shape[:-1]))
    chunk = max(1, 4 * _TOGETHER // step) * step

    def work(place: tuple[tuple[int, ...], int]) -> None:
        row, low = place
        high = min(n, low + chunk)
        result[row][..., low:high] = _sum_chunk(spectrum, summands[row], low, high, step)

    run_blocks(work, [(row, low) for row in rows for low in range(0, n, chunk)], workers)
    return _cut(result, n, _begun(signal, summands, starts, first), starts, first) if starts else result


def _sum_chunk(spectrum: Spectrum, summands: Array, low: int, high: int, step: int) -> Array:
    """Points ``low`` to ``high``, from the block before them on, of which only the overhang counts."""
    transform, _, turns, _ = spectrum
    before = max(0, low - step)
    count = -(-(high - before) // step)
    given = np.zeros((*summands.shape[:-1], count * step), transform.dtype if turns is None else transform.real.dtype)
    given[..., : high - before] = summands[..., before:high]
    buffer = np.zeros((*summands.shape[:-1], count, transform.shape[-1]), transform.dtype)
    target = buffer if turns is None else buffer.real
    target[..., :step] = given.reshape(*given.shape[:-1], count, step)
    product = convolve_rows(spectrum, buffer)
    points = (product if turns is None else product.real)[..., :step]
    over = product[..., step:] if turns is None else product.imag
    points[..., 1:, : over.shape[-1]] += over[..., :-1, :]
    return points.reshape(*points.shape[:-2], count * step)[..., low - before : high - before]


def _checked(
    sum_of: Callable[..., Array],
    spectrum: Spectrum,
    signal: Array,
    starts: Starts,
    differences: bool,
    first: int,
    workers: int,
) -> Array:
    """The sum, repaired if a non-finite sample, or an overflow, has affected more than it should."""
    weights = spectrum.weights
    if not weights.size or not signal.size:
        shape = (*np.broadcast_shapes(weights.shape[:-1], signal.shape[:-1]), signal.shape[-1])
        return np.zeros(shape, weights.dtype)
    result = sum_of(spectrum, signal, starts, differences, first, workers)
    # Each non-finite sample affects all points of its row or block.
    step = signal.shape[-1] if sum_of is _sum_rows else spectrum.transform.shape[-1] // 2
    if cmath.isfinite(result[0]) if result.ndim == 1 and step == result.size else all_finite(result[..., ::step]):
        return result
    summands = signal
    if differences:
        summands = np.empty_like(signal)
        _fill(summands, signal, differences)
    bad, lost = ~np.isfinite(summands), ~np.isfinite(weights)
    n, taps = signal.shape[-1], weights.shape[-1]

    def plain(weights: Array, summands: Array) -> Array:
        made = _prepare(weights, n, spectrum.weights.dtype)
        return _sum_rows(made, summands, (), False, 0, workers)

    result = _rescaled(plain, np.where(lost, 0, weights), np.where(bad, 0, summands))
    late = np.logical_or.accumulate(np.pad(lost, [(0, 0)] * (lost.ndim - 1) + [(0, n - taps)]), -1)
    affected = np.broadcast_to(reach(LIBRARY.xp, bad, taps) | late, result.shape)
    result[affected] = complex(np.nan, np.nan) if result.dtype.kind == "c" else np.nan
    return _cut(result, n, _begun(signal, summands, starts, first), starts, first)


def _rescaled(convolve: Callable[[Array, Array], Array], weights: Array, signal: Array) -> Array:
    """``convolve(weights, signal)`` of finite operands, scaled by powers of two if their transforms might overflow."""
    limit = np.finfo(signal.dtype).maxexp // 2 - 8
    shifts = [max(0, _largest_exponent(array) + array.shape[-1].bit_length() - limit) for array in (weights, signal)]
    found = convolve(*(array * 2.0**-shift for array, shift in zip((weights, signal), shifts, strict=True)))
    for shift in shifts:
        found *= 2.0**shift
    return found


def _largest_exponent(array: Array) -> int:
    parts = (array.real, array.imag) if array.dtype.kind == "c" else (array,)
    return max(int(np.frexp(np.abs(part).max(initial=0.0))[1]) for part in parts)


# The sum itself: with a cached matrix if there are few points, otherwise by ``numpy.convolve`` for each row.

_MATRIX = make_kernels(LIBRARY)["direct"]


def _sum_directly(weights: Array, signal: Array) -> Array:
    n = signal.shape[-1]
    weights = weights[..., :n]
    shape = (*np.broadcast_shapes(weights.shape[:-1], signal.shape[:-1]), n)
    result = np.zeros(shape, signal.dtype)
    if result.size and weights.shape[-1]:
        rows = np.broadcast_to(weights, (*shape[:-1], weights.shape[-1]))
        signal = np.broadcast_to(signal, shape)
        for index in np.ndindex(shape[:-1]):
            result[index] = np.convolve(rows[index], signal[index])[:n]
    return result


@np.errstate(all="ignore")
def convolve_direct(
    prepared: Array | PreparedWeights, signal: Array, *starts: Array, differences: bool = False, starts_from: int = 0
) -> Array:
    """With weights, or with their cached matrix."""
    if isinstance(prepared, PreparedWeights):
        assert _MATRIX.apply is not None
        return np.asarray(_MATRIX.apply(prepared, signal, *starts, differences=differences, starts_from=starts_from))
    summands = differences_of(LIBRARY.xp, signal) if differences else signal
    result = _sum_directly(prepared, summands)
    return np.asarray(add_starts(LIBRARY, result, signal, summands, starts[0], starts_from) if starts else result)


def prepare_direct(weights: Array, call: Call) -> Array | PreparedWeights:
    """The matrix of the weights, or a copy of them if it would be large."""
    if too_long_for_causal_matrix(call) is None and _MATRIX.prepare is not None:
        made: PreparedWeights = _MATRIX.prepare(weights, call)
        return made
    return np.array(weights[..., : call.length], dtype=call.dtype, order="C")


KERNELS: dict[str, Kernel] = {
    "direct": Kernel(convolve_direct, prepare_direct, convolve_direct),
    "fft": _kernel(_prepare, _sum_rows),
    "blocked": _kernel(_prepare_block, _sum_blocks),
}

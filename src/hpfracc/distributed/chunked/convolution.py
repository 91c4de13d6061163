r"""Causal convolution over chunks of time.

A series in P chunks of B points is convolved by overlap-save. With the weights in blocks :math:`w_d` of B, block m is

.. math:: y_m = w_0 * x_m + \Big[\mathcal{F}^{-1} \sum_{d=1}^{m} W_d X_{m-d}\Big]_{B..2B}, \qquad
    X_j = \mathcal{F}_{2B} (x_j, 0), \quad W_d = \mathcal{F}_{2B} (w_{d-1}, w_d),

with transforms of 2B points, of which the last B are kept. At each frequency the sum is a causal convolution over the
chunk index. The first term and that sum are calls of the engine. A non-finite value affects its own chunk, there only
later points, and all later chunks.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from hpfracc import _reading
from hpfracc._arrays import is_chunked, wraps_chunks
from hpfracc._frames import has_labels, open_samples
from hpfracc._optional import import_optional
from hpfracc.distributed.chunked import planning
from hpfracc.distributed.chunked.planning import ChunkedWay, Resources, blocks, whole_way
from hpfracc.engine.execution.api import causal_convolution, fft
from hpfracc.engine.primitives.base import signal_dtype
from hpfracc.errors import InvalidInputError, ShapeError

_WAYS = ("auto", "blockwise", "rechunk", "overlap", "spectrum")


def convolve(weights: Any, signal: Any, *, dim: Any = None, way: str = "auto", backend: Any = None) -> Any:
    r"""Causal convolution of a Dask array, :math:`y_n = \sum_{k \le n} w_k x_{n-k}`, along its last axis.

    Parameters
    ----------
    weights : array_like or Dask array, shape (K,)
        The weights; a Dask array if they are too many for one worker.
    signal : Dask array, shape (..., N), or DataArray
        The signal; an xarray ``DataArray`` may have its points along any dimension.
    dim : str, optional
        The dimension of the points of a ``DataArray``; not needed if there is only one.
    way : {"auto", "blockwise", "rechunk", "overlap", "spectrum"}
        ``"blockwise"``: the last axis is one chunk; no communication. ``"rechunk"``: time to rows and back; moves the
        data twice, and needs a whole row in a worker. ``"overlap"``: at most as many weights as the shortest chunk has
        points; each chunk needs the end of the previous one. ``"spectrum"``: transforms of chunks, transposed to
        frequencies and back; moves the data four times for any number of chunks, accurate to a few eps of ``sum|w|
        max|x|``. ``"auto"`` takes the first that is possible, and the spectrum instead of rechunking for rows of at
        least 2^20 points on four workers each; ``hf.explain`` shows tasks, bytes and memory.
    backend : str, optional
        Backend of the engine for each task.

    Returns
    -------
    Dask array, shape (..., N), or DataArray
        With the chunks and labels of the signal. Nothing is computed yet.

    Examples
    --------
    >>> import dask.array as da
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> signal = da.ones(12, chunks=4)
    >>> hf.distributed.convolve(np.array([1.0, 0.5]), signal, way="spectrum").compute().round(12).tolist()
    [1.0, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5]
    """
    _reading.choice("way", way, _WAYS)
    array, opened = import_optional("dask.array"), None
    if wraps_chunks(weights):
        weights = weights.data
    if not is_chunked(signal) and has_labels(signal):
        opened = open_samples(signal, dim=dim, by_row=True, chunked=True)
        values = opened.values if is_chunked(opened.values) else array.from_array(np.asarray(opened.values), chunks=-1)
        signal = array.moveaxis(values, opened.axis, -1)
    elif dim is not None:
        raise InvalidInputError(f"dim={dim!r} is for a DataArray of xarray; move the points to the last axis instead")
    elif not is_chunked(signal):
        signal = array.from_array(_reading.array("signal", signal), chunks=-1)
    lazy = is_chunked(weights)
    if lazy:
        planning.check_chunks(weights, "weights")
    else:
        weights = _reading.array("weights", weights)
    if weights.ndim != 1 or signal.ndim < 1 or not weights.shape[0]:
        raise ShapeError(
            f"weights of shape {weights.shape} and a signal of shape {signal.shape}; a chunked signal takes one row of "
            "weights"
        )
    planning.check_chunks(signal, "signal")
    resources, along, sizes = Resources.known(), (signal.ndim - 1,), signal.chunks[-1]
    weights = weights[: signal.shape[-1]]
    name = "causal_convolution"
    dtype = np.dtype(signal_dtype(name, signal, weights=weights))
    # Lazy weights are an additional operand of each task.
    given = weights.rechunk(-1).to_delayed().reshape(-1)[0] if lazy else weights

    def call(block: Any, weights: Any) -> Any:
        return causal_convolution(weights, block, backend=backend)

    ways = whole_way(name, call, signal, along, resources, dtype, given)
    if len(sizes) > 1:
        by_spectra = functools.partial(convolve_spectra, weights, signal, dtype, backend, resources)
        spectrum: dict[ChunkedWay, planning.Build] = {spectrum_way(signal, resources): by_spectra}
        ways = planning.with_chunks_of_time(ways, spectrum, signal, along, resources.workers)
        ways = {**spectrum, **ways} if lazy else ways
        depth = int(weights.shape[0]) - 1
        if depth <= min(sizes):
            ways = {_overlap_way(signal): functools.partial(_overlap, given, depth, signal, dtype, backend), **ways}
    found = planning.run_way(name, signal, along, ways, way)
    return found if opened is None else opened.close(array.moveaxis(found, -1, opened.axis))


def apply_operation(operation: Any, arrays: tuple[Any, ...], backend: Any, params: Any) -> Any:
    """Apply an operation of the engine to Dask arrays: a causal convolution; others are refused with advice.

    The signal may be a ``DataArray`` that wraps one, with the dimension of its points as ``dim``.
    """
    if operation.name != "causal_convolution" or len(arrays) != 2 or params.keys() - {"dim"}:
        raise InvalidInputError(
            f"{operation.name} does not take Dask arrays{' with these options' if params else ''}; apply it to their "
            "blocks by map_blocks, or load them with .compute()"
        )
    return convolve(*arrays, dim=params.get("dim"), backend=backend)


# Short weights: each chunk together with the end of the previous one.


def _overlap_way(signal: Any) -> ChunkedWay:
    way = planning.blockwise_way(signal)
    rows = signal.nbytes // max(1, signal.shape[-1])
    return ChunkedWay(
        "overlap", "a few eps of sum|w| max|x|", 2 * way.tasks, rows * signal.numblocks[-1], 2 * way.task_bytes
    )


def _overlap(weights: Any, depth: int, signal: Any, dtype: Any, backend: Any) -> Any:
    array, last = import_optional("dask.array"), signal.ndim - 1

    def tail(block: Any, weights: Any) -> Any:
        return causal_convolution(weights, block, backend=backend)[..., depth:]

    extended = signal
    if depth:
        before = array.zeros((*signal.shape[:-1], depth), chunks=(*signal.chunks[:-1], depth), dtype=signal.dtype)
        padded = array.concatenate([before, signal], axis=last)
        extended = array.overlap.overlap(padded, depth={last: (depth, 0)}, boundary="none")[..., depth:]
    return blocks("overlap", tail, extended, weights, dtype=dtype, chunks=signal.chunks)


# One long series: by the spectra of its chunks.


def spectrum_way(signal: Any, resources: Resources) -> ChunkedWay:
    """Tasks and bytes of a convolution by the spectra of chunks."""
    count, length = _blocks_of(signal)
    rows = max(1, planning.rows_of(signal, (signal.ndim - 1,)))
    complex_bytes = 16 if signal.dtype.itemsize >= 8 else 8
    moved = 2 * (2 * rows * count * (length + 1) * complex_bytes)
    width = _slice_width(count, rows_in_block(signal), complex_bytes, resources)
    # A chunk with its transforms, or a slice of the frequencies of all chunks.
    task = max(12 * length, 4 * count * min(width, length + 1)) * rows_in_block(signal) * complex_bytes
    refusal = resources.refusal(f"a chunk of {length:,} points", task)
    slices = math.ceil((length + 1) / width)
    tasks = math.prod(signal.numblocks[:-1]) * (5 * count + 3 * slices)
    return ChunkedWay("spectrum", "a few eps of sum|w| max|x|", tasks, moved, task, refusal)


def rows_in_block(signal: Any) -> int:
    """Number of rows of the largest chunk."""
    return math.prod(max(sizes) for sizes in signal.chunks[:-1])


def _blocks_of(signal: Any) -> tuple[int, int]:
    """Number of time blocks and their length."""
    length = max(signal.chunks[-1])
    return math.ceil(signal.shape[-1] / length), length


def _slice_width(count: int, rows: int, itemsize: int, resources: Resources) -> int:
    """Number of frequencies in one slice; even, so that every slice starts at an even frequency."""
    width = planning.block_bytes(resources) // max(1, count * rows * itemsize)
    return max(2, width - width % 2)


def convolve_spectra(weights: Any, signal: Any, dtype: Any, backend: Any, resources: Resources) -> Any:
    """Build the graph of a convolution by the spectra of chunks; the signal has its points along the last axis."""
    array, method = import_optional("dask.array"), planning.rechunk_method(resources)
    n, (count, length) = signal.shape[-1], _blocks_of(signal)
    kind = "fft" if np.dtype(dtype).kind == "c" else "rfft"
    wide = np.result_type(dtype, np.complex64)
    x = _in_blocks(array, signal.astype(dtype), count, length)
    w = weights if is_chunked(weights) else array.from_array(weights, chunks=length)
    w = _in_blocks(array, w.astype(dtype), count, length)

    def own(weights: Any, block: Any) -> Any:
        return causal_convolution(weights.reshape(-1), block, backend=backend)

    def transform(block: Any) -> Any:
        return fft(block, kind=kind, n=2 * length, axis=-1, backend=backend)

    def over_chunks(signal: Any, weights: Any) -> Any:
        """Causal convolution over the chunk index at each frequency, excluding each chunk's own part."""
        sign = np.where(np.arange(weights.shape[-1]) % 2, -1.0, 1.0).astype(weights.real.dtype)
        pairs = weights[:-1] + sign * weights[1:]  # (w_{d-1}, w_d), for d = 1 ..
        rows = np.ascontiguousarray(np.moveaxis(pairs, -2, -1))
        given = np.ascontiguousarray(np.moveaxis(signal[..., :-1, :], -2, -1))
        summed = np.moveaxis(np.asarray(causal_convolution(rows, given, backend=backend)), -1, -2)
        return np.concatenate([np.zeros_like(signal[..., :1, :]), summed], axis=-2)

    def back(block: Any) -> Any:
        found = fft(block, kind=f"i{kind}", n=2 * length, axis=-1, backend=backend)[..., length:]
        return np.asarray(found).astype(dtype, copy=False)

    found = blocks("own", own, w[..., :1, :], x, dtype=dtype, ndim=x.ndim)
    if count > 1:
        size = 2 * length if kind == "fft" else length + 1
        width = _slice_width(count, rows_in_block(signal), np.dtype(wide).itemsize, resources)
        spectra = [
            blocks("spectrum", transform, each, dtype=wide, chunks=(*each.chunks[:-1], (size,))) for each in (x, w)
        ]
        turned = [each.rechunk({each.ndim - 2: -1, each.ndim - 1: width}, method=method) for each in spectra]
        # The operand with more axes first: blocks of the weights are repeated over the rows.
        summed = blocks("chunks", over_chunks, *turned, dtype=wide, ndim=x.ndim)
        summed = summed.rechunk({x.ndim - 2: 1, x.ndim - 1: -1}, method=method)
        found = found + blocks("back", back, summed, dtype=dtype, chunks=(*summed.chunks[:-1], (length,)))
    found = found.reshape((*found.shape[:-2], count * length))[..., :n]
    return found if found.chunks == signal.chunks else found.rechunk(signal.chunks)


def _in_blocks(array: Any, series: Any, count: int, length: int) -> Any:
    """``(..., N)`` as ``(..., count, length)``, one block per chunk, padded with zeros at the end."""
    missing = count * length - series.shape[-1]
    if missing:
        zeros = array.zeros(
            (*series.shape[:-1], missing), chunks=(*series.chunks[:-1], min(missing, length)), dtype=series.dtype
        )
        series = array.concatenate([series, zeros], axis=-1)
    series = series.rechunk({series.ndim - 1: length})
    return series.reshape((*series.shape[:-1], count, length))

"""Copies between NumPy and CuPy arrays at the speed of the link.

In both directions through pinned memory, as for PyTorch, with two differences: CuPy's allocator cannot register that
another stream uses an array, so copies stay on the caller's stream; and host memory is copied by the engine's threads.
"""

from __future__ import annotations

import threading
from typing import Any

import cupy
import numpy as np

from hpfracc.engine.backends.cuda import keep_pinned, pinned_ledger
from hpfracc.engine.memory.staging import SMALL_BYTES, StagingRing
from hpfracc.engine.workers import available_cores, even_blocks, run_blocks

#: Chunks are larger than PyTorch's, because waking the engine's threads takes longer than an OpenMP team; few threads
#: saturate the link.
_CHUNK_BYTES = 16 * 2**20
_COPY_THREADS = 8
_MIN_BLOCK = 2**20


class _CudaLink:
    """Interface of a device for the ring; copies use the current stream."""

    def pinned(self, size: int) -> np.ndarray[Any, Any] | None:
        try:
            return np.frombuffer(cupy.cuda.alloc_pinned_memory(size), np.uint8, size)
        except cupy.cuda.runtime.CUDARuntimeError:
            return None

    def view(self, buffer: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return buffer

    def marker(self) -> Any:
        return cupy.cuda.Event(disable_timing=True)

    def wait(self, marker: Any) -> None:
        marker.synchronize()

    def enqueue(self, target: Any, source: Any, marker: Any) -> None:
        runtime = cupy.cuda.runtime
        stream = cupy.cuda.get_current_stream()
        if isinstance(target, cupy.ndarray):
            kind, to, origin = runtime.memcpyHostToDevice, target.data.ptr, source.ctypes.data
        else:
            kind, to, origin = runtime.memcpyDeviceToHost, target.ctypes.data, source.data.ptr
        runtime.memcpyAsync(to, origin, target.nbytes, kind, stream.ptr)
        marker.record(stream)

    def host_copy(self, target: np.ndarray[Any, Any], source: np.ndarray[Any, Any]) -> None:
        workers = min(_COPY_THREADS, available_cores())

        def copy(block: tuple[int, int]) -> None:
            np.copyto(target[slice(*block)], source[slice(*block)])

        run_blocks(copy, even_blocks(target.nbytes, workers, _MIN_BLOCK), workers)


_lock = threading.Lock()
_rings: dict[int, StagingRing] = {}


def _ring(index: int) -> StagingRing:
    known = _rings.get(index)
    if known is None:
        with _lock:
            known = _rings.setdefault(index, StagingRing(_CudaLink(), chunk=_CHUNK_BYTES))
    return known


def upload(array: np.ndarray[Any, Any], index: int) -> cupy.ndarray:
    """A copy of a host array on device ``index``. The array may be changed after this returns."""
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    with cupy.cuda.Device(index):
        if array.nbytes < SMALL_BYTES:
            return cupy.array(array, order="C")
        source = np.ascontiguousarray(array)
        target = cupy.empty(source.shape, source.dtype)
        _ring(index).upload(source.reshape(-1).view(np.uint8), target.reshape(-1).view(np.uint8), target.nbytes)
        return target


def download(array: cupy.ndarray) -> np.ndarray[Any, Any]:
    """A device array as a NumPy array, complete on return."""
    with cupy.cuda.Device(array.device.id):
        if array.nbytes < SMALL_BYTES:
            return cupy.asnumpy(array)
        source = cupy.ascontiguousarray(array)
        result = _pinned_result(source)
        if result is not None:
            marker = cupy.cuda.Event(disable_timing=True)
            _CudaLink().enqueue(result, source, marker)
            marker.synchronize()
            return result
        result = np.empty(source.shape, source.dtype)
        flat = source.reshape(-1).view(np.uint8)
        _ring(array.device.id).download(flat, result.reshape(-1).view(np.uint8), result.nbytes)
        return result


def _pinned_result(source: cupy.ndarray) -> np.ndarray[Any, Any] | None:
    """Pinned memory for the result; None if the limit or the system does not allow it."""
    ledger = pinned_ledger("cupy")
    if not ledger.reserve(source.nbytes):
        return None
    memory = _CudaLink().pinned(source.nbytes)
    if memory is None:  # out of page-locked memory; pageable memory may still be available
        ledger.release(source.nbytes)
        return None
    return keep_pinned(ledger, memory, source.nbytes).view(source.dtype).reshape(source.shape)

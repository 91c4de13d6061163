"""Copies between NumPy arrays and CUDA tensors at the speed of the link.

To the device: pageable memory goes through a ring of pinned slots, filled by PyTorch's threads while the copy engine
empties the others, on a separate stream. To the host: into pinned memory that becomes the NumPy result itself, up to a
limit on what callers hold; beyond it through the ring into new memory, whose pages the copying threads touch in
parallel. Small arrays and pinned memory are copied directly. No call waits for more than its own data.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hpfracc.engine.backends.cuda import keep_pinned, pinned_ledger
from hpfracc.engine.memory.staging import SMALL_BYTES, PinnedLedger, StagingRing
from hpfracc.engine.numerics.lengths import power_of_two


def as_tensor(array: np.ndarray, *, shared: bool = True) -> Tensor:
    """A CPU tensor on the array's memory, or on a copy if PyTorch cannot share it.

    Parameters
    ----------
    array : numpy.ndarray
        Any. Negative strides, foreign byte orders, and elements that do not begin at multiples of their size are
        copied: PyTorch ends the process at a complex128 that begins at an odd multiple of 8.
    shared : bool
        Whether the tensor is returned to users: then a read-only array is copied too, because tensors have no such
        flag. False means that the tensor is only read.
    """
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    strided = any(stride < 0 or stride % array.itemsize for stride in array.strides)
    # NumPy aligns complex numbers as their parts. The address is read only for them: it takes microseconds.
    aligned = array.flags.aligned and not (array.dtype.kind == "c" and array.ctypes.data % array.itemsize)
    if strided or not aligned or (shared and not array.flags.writeable):
        array = array.copy()
    return torch.from_numpy(array) if array.flags.writeable else _for_reading(array)


def _for_reading(array: np.ndarray) -> Tensor:
    """A tensor on the memory of a read-only array.

    ``torch.from_numpy`` warns about it. DLPack has a flag for read-only memory since version 1.0, which PyTorch accepts
    without a warning. An older NumPy or PyTorch refuses, and then the array is copied: one pass over it, and its memory
    a second time.
    """
    try:
        return torch.from_dlpack(array)
    except BufferError:
        return torch.from_numpy(array.copy())


def _bytes_of(tensor: Tensor) -> Tensor:
    """The memory of a contiguous tensor."""
    return tensor.view(-1).view(torch.uint8)


class CudaLink:
    """Interface of a device for the ring; copies use the current stream of the ring's call."""

    def pinned(self, size: int) -> np.ndarray | None:
        """Page-locked host memory from PyTorch's allocator; None if it ran out."""
        try:
            memory: np.ndarray = torch.empty(size, dtype=torch.uint8, pin_memory=True).numpy()
        except RuntimeError:
            return None
        return memory

    def view(self, buffer: np.ndarray) -> Tensor:
        """As a tensor; the driver recognises page-locked memory by its address."""
        return torch.from_numpy(buffer)

    def marker(self) -> Any:
        """An event."""
        return torch.cuda.Event()

    def wait(self, marker: Any) -> None:
        """Wait until the device has passed it."""
        marker.synchronize()

    def enqueue(self, target: Tensor, source: Tensor, marker: Any) -> None:
        """Copy on the current stream, and record the event there."""
        target.copy_(source, non_blocking=True)
        marker.record()

    def host_copy(self, target: Tensor, source: Tensor) -> None:
        """Copy with PyTorch's number of threads."""
        target.copy_(source)


class Lane:
    """Transfers of one device: a stream for each direction, so that they overlap, and one ring."""

    def __init__(self, device: torch.device, ring: StagingRing, ledger: PinnedLedger) -> None:
        self.device = device
        self.inward = torch.cuda.Stream(device)
        self.outward = torch.cuda.Stream(device)
        self.ring = ring
        self.ledger = ledger

    def upload(self, source: Tensor) -> Tensor:
        """A contiguous CPU tensor's copy on the device, ready for the caller's current stream."""
        current = torch.cuda.current_stream(self.device)
        done = torch.cuda.Event()
        with torch.cuda.stream(self.inward):
            # Allocated on the copying stream, so that nothing on the caller's stream has to end first. The caller's
            # stream is registered with the allocator, so that the memory is not reused while kernels there still read
            # it.
            target = torch.empty(source.shape, dtype=source.dtype, device=self.device)
            target.record_stream(current)
            pinned = source.is_pinned()
            if pinned:
                target.copy_(source, non_blocking=True)
            else:
                self.ring.upload(_bytes_of(source), _bytes_of(target), target.nbytes)
            done.record()
        current.wait_event(done)
        if pinned:
            done.synchronize()  # the caller may change the array once this returns
        return target

    def download(self, source: Tensor) -> np.ndarray:
        """A contiguous device tensor as a NumPy array; complete on return."""
        self.outward.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self.outward):
            pinned = self._pinned_result(source)
            if pinned is not None:
                done = torch.cuda.Event()
                pinned[0].copy_(source, non_blocking=True)
                done.record()
                done.synchronize()
                return pinned[1]
            result = np.empty(tuple(source.shape), dtype=torch.empty(0, dtype=source.dtype).numpy().dtype)
            self.ring.download(_bytes_of(source), _bytes_of(torch.from_numpy(result)), source.nbytes)
            return result

    def _pinned_result(self, source: Tensor) -> tuple[Tensor, np.ndarray] | None:
        """Pinned memory for the result, as tensor and array; None if the limit or the system does not allow it."""
        size = power_of_two(source.nbytes)  # as PyTorch's host allocator rounds it
        if not self.ledger.reserve(size):
            return None
        try:
            tensor = torch.empty(source.shape, dtype=source.dtype, pin_memory=True)
        except RuntimeError:  # out of page-locked memory; pageable memory may still be available
            self.ledger.release(size)
            return None
        return tensor, keep_pinned(self.ledger, tensor.numpy(), size)


_lock = threading.Lock()
_lanes: dict[int, Lane] = {}


def lane(device: torch.device) -> Lane:
    """The lane of a device, created on first use."""
    index = torch.cuda.current_device() if device.index is None else device.index
    with _lock:
        if index not in _lanes:
            with torch.cuda.device(index):
                _lanes[index] = Lane(torch.device("cuda", index), StagingRing(CudaLink()), pinned_ledger("torch"))
        return _lanes[index]


def upload(array: np.ndarray, device: str) -> Tensor:
    """A copy of a host array on ``device``. The array may then be changed; the copy may still be running."""
    source = as_tensor(array, shared=False)
    if array.nbytes < SMALL_BYTES:
        # From pageable memory this returns once the driver has its own copy; from pinned memory it might not.
        return source.to(device, non_blocking=not source.is_pinned())
    return lane(torch.device(device)).upload(source.contiguous())


def download(tensor: Tensor) -> np.ndarray:
    """A CUDA tensor as a NumPy array, complete on return."""
    source = tensor.detach().resolve_conj().resolve_neg()
    if source.nbytes < SMALL_BYTES:
        return source.cpu().numpy()
    return lane(source.device).download(source.contiguous())

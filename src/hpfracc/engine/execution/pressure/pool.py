"""The public memory pool: host buffers, page-locked if there is a GPU, and device buffers of the libraries."""

from __future__ import annotations

import math
import weakref
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np

from hpfracc import _reading
from hpfracc._arrays import nbytes
from hpfracc._interrupts import Guarded
from hpfracc.engine import hardware
from hpfracc.engine.backends import registry
from hpfracc.engine.memory.budget import parse_bytes
from hpfracc.engine.memory.buffers import CAPACITY, BufferPool, PoolStats, pinned_buffers
from hpfracc.errors import InvalidInputError


def _pinned(size: int) -> Any:
    """Page-locked memory of a library that is loaded and has a GPU."""
    loaded = (registry.adapter(name) for name in ("torch", "cupy") if registry.is_loaded(name))
    return next((made for adapter in loaded if (made := adapter.pinned_bytes(size)) is not None), None)


class MemoryPool(Guarded):
    """A pool of reusable buffers, each with one owner at a time.

    Host buffers are stored here, up to a limit. Device buffers come from the library's own pool (PyTorch's caching
    allocator, CuPy's memory pool), which keeps them; this pool records them and counts requests.

    Parameters
    ----------
    max_bytes : int or str
        Maximum bytes of idle host buffers.
    pinned : bool, optional
        Whether host buffers are page-locked, for faster copies to a GPU; by default if there is one.
    """

    def __init__(self, max_bytes: int | str = CAPACITY, pinned: bool | None = None) -> None:
        super().__init__()
        if pinned is None:
            pinned = bool(hardware.machine().gpus)
        self._host = BufferPool(
            parse_bytes("max_bytes", max_bytes), _pinned if _reading.flag("pinned", pinned) else None
        )
        self._device: dict[int, tuple[weakref.ref[Any], int]] = {}
        self._hits = self._misses = 0

    def __reduce__(self) -> NoReturn:
        raise TypeError("a MemoryPool belongs to its process; call get_memory_pool() in the other one")

    def allocate(
        self,
        shape: int | tuple[int, ...],
        dtype: Any = "float64",
        *,
        device: str = "cpu",
        library: str | None = None,
        clear: bool = True,
    ) -> Any:
        """A buffer of that shape and dtype.

        Parameters
        ----------
        shape, dtype
            Shape and dtype of the array; the dtype by name or as a NumPy dtype.
        device : str
            ``"cpu"``, or a device such as ``"cuda:0"``.
        library : str, optional
            Library of an array on a device: ``"torch"`` or ``"cupy"``; by default the one that is loaded.
        clear : bool
            Whether the buffer is filled with zeros; otherwise its content is undefined.

        Returns
        -------
        numpy.ndarray, torch.Tensor or cupy.ndarray
        """
        if device == "cpu":
            if library not in (None, "numpy"):
                raise InvalidInputError(f"library={library!r} on the host; host buffers are NumPy arrays: omit it")
            return self._host.allocate(shape, dtype, clear=clear)
        name = library or next((name for name in ("torch", "cupy") if registry.is_loaded(name)), None)
        if name not in ("torch", "cupy"):
            raise InvalidInputError(f"library={library!r} for {device}; use 'torch' or 'cupy', and import it first")
        adapter = registry.adapter(name)
        kept = adapter.reserved_bytes(device)
        kind = str(np.dtype(dtype if isinstance(dtype, type) else str(dtype).removeprefix("torch.")))
        made = adapter.empty(shape if isinstance(shape, tuple) else (shape,), kind, device)
        if clear:
            made[...] = 0
        with self._lock:
            # It came from the library's pool if no memory was requested from the driver.
            grew = adapter.reserved_bytes(device) > kept
            self._hits, self._misses = self._hits + (not grew), self._misses + grew
            self._device[id(made)] = (weakref.ref(made), nbytes(made))
        return made

    def release(self, buffer: Any) -> None:
        """Return a buffer; raises an error if it is not from the pool, or was released before."""
        with self._lock:
            entry = self._device.get(id(buffer))
            if entry is not None and entry[0]() is buffer:
                del self._device[id(buffer)]  # the library's pool gets it once the caller drops it
                return
        self._host.release(buffer)

    def get_stats(self) -> PoolStats:
        """Hits, misses, hit rate and bytes, host and device together."""
        host = self._host.stats()
        with self._lock:
            alive = [size for made, size in self._device.values() if made() is not None]
            hits, misses = host.hits + self._hits, host.misses + self._misses
        rate, used = hits / (hits + misses) if hits + misses else math.nan, host.used_bytes + sum(alive)
        return replace(host, hits=hits, misses=misses, hit_rate=rate, used_bytes=used)

    def clear(self) -> int:
        """Drop all idle buffers; returns their host bytes."""
        with self._lock:
            self._device = {key: entry for key, entry in self._device.items() if entry[0]() is not None}
        return self._host.clear()

    def borrow(self, shape: int | tuple[int, ...], dtype: Any = "float64", *, clear: bool = True) -> Any:
        """A host buffer for the length of a ``with`` block."""
        return self._host.borrow(shape, dtype, clear=clear)


_pool: MemoryPool | None = None


def get_memory_pool(max_bytes: int | str | None = None, pinned: bool | None = None) -> MemoryPool:
    """The process's pool, or a new one if a limit or the kind of memory is given.

    Examples
    --------
    >>> from hpfracc import memory
    >>> pool = memory.get_memory_pool(max_bytes="16MiB", pinned=False)
    >>> for _ in range(4):
    ...     buffer = pool.allocate((100, 100))
    ...     pool.release(buffer)
    >>> pool.get_stats().hit_rate
    0.75
    """
    global _pool
    if max_bytes is not None or pinned is not None:
        return MemoryPool(CAPACITY if max_bytes is None else max_bytes, pinned)
    if _pool is None:
        _pool = MemoryPool()
    return _pool


def reset() -> None:
    """Discard the pools of this process."""
    global _pool
    _pool = None
    pinned_buffers.reset()

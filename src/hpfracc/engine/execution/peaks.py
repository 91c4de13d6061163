"""Measures a call's peak memory from new high-water marks, without resetting counters.

The system tracks a process's high-water mark, and a library that of its pool. If a call leaves a new mark, it is the
peak of that call; otherwise the peak is unknown and not recorded.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from hpfracc._arrays import file_mapping
from hpfracc.engine.backends import registry
from hpfracc.engine.backends.base import Arm
from hpfracc.engine.memory.buffers import host_buffers
from hpfracc.engine.memory.forecast import MIN_BYTES, forecasts
from hpfracc.engine.memory.host import free_heap_bytes, resident_bytes
from hpfracc.engine.selection.candidates import forecast_kind, modelled_bytes, stays_put
from hpfracc.engine.selection.request import Request

__all__ = ["Marks", "read_marks", "record_peak"]

#: Minimum size of measured calls on the host, where all other activity of the process is included.
_MIN_ON_HOST = 4 * MIN_BYTES
#: Maximum free heap before a call, as a fraction of the call, because memory from the heap is not measured. Arrays
#: above the second size are never allocated from glibc's heap (DEFAULT_MMAP_THRESHOLD_MAX).
_MAX_FREE, _HEAP_ARRAY = 0.1, 2**25


class Marks(NamedTuple):
    """Bytes in use, the peak so far, and bytes that the engine's pool has reused."""

    used: int
    peak: int
    reused: int = 0


def read_marks(request: Request, arm: Arm, arrays: tuple[Any, ...]) -> Marks | None:
    """The marks before a call, or None if it cannot be measured."""
    need = modelled_bytes(request.primitive, request.call, arm)
    if need < (_MIN_ON_HOST if arm.on_host else MIN_BYTES):
        return None
    # JAX frees memory some time after a call, in its own threads.
    if arm.on_host and (arm.backend == "jax" or _takes_from_heap(request.call.output_bytes, need)):
        return None
    # Pages of a mapped file become resident while a call reads them, although its operands are not allocated by it.
    if arm.on_host and any(file_mapping(array) is not None for array in arrays):
        return None
    return _read(arm)


def _takes_from_heap(array: int, need: int) -> bool:
    return array <= _HEAP_ARRAY and free_heap_bytes() > _MAX_FREE * need


def _read(arm: Arm) -> Marks | None:
    marks = resident_bytes() if arm.on_host else registry.adapter(arm.backend).peak_bytes(arm.device)
    return None if marks is None else Marks(*marks, host_buffers.reused if arm.on_host else 0)


def record_peak(request: Request, arm: Arm, before: Marks | None) -> None:
    """Record the peak of a call that left a new high-water mark."""
    after = None if before is None else _read(arm)
    if before is None or after is None or after.peak <= before.peak:
        return
    taken = after.peak - before.used + after.reused - before.reused
    if stays_put(request.placement, arm):
        taken += request.call.input_bytes
    need = modelled_bytes(request.primitive, request.call, arm)
    forecasts.observe(forecast_kind(request.call, arm), request.call.bucket, need, taken)

"""Measures a call's peak memory from new high-water marks, without resetting counters.

The system keeps a process's high-water mark, and a library that of its pool. A call that leaves a new one behind has
set it; of any other call nothing is known, and nothing is recorded.
"""

from __future__ import annotations

from hpfracc.engine.backends import registry
from hpfracc.engine.backends.base import Arm
from hpfracc.engine.memory.buffers import host_buffers
from hpfracc.engine.memory.forecast import LEAST_BYTES, forecasts
from hpfracc.engine.memory.host import resident_bytes, reusable_bytes
from hpfracc.engine.selection.candidates import Request, stays_put
from hpfracc.engine.selection.needs import forecast_kind, modelled_bytes

__all__ = ["Marks", "read_marks", "record_peak"]

#: Bytes in use, and the most so far.
Marks = tuple[int, int]

#: On the host everything else that the process does shows too: only calls well above that are looked at.
_LEAST_ON_HOST = 4 * LEAST_BYTES


def read_marks(request: Request, arm: Arm) -> Marks | None:
    """The marks before a call, or None where it is too small to be measured."""
    need = modelled_bytes(request.primitive, request.call, arm)
    if need < (_LEAST_ON_HOST if arm.on_host else LEAST_BYTES):
        return None
    if not arm.on_host:
        return registry.adapter(arm.backend).peak_bytes(arm.device)
    # JAX frees what a call is done with some time after it, in threads of its own.
    marks = None if arm.backend == "jax" else resident_bytes()
    # What the heap and the engine's pool keep free is used first, without a trace in the marks.
    return None if marks is None else (marks[0] - reusable_bytes() - host_buffers.stats().held_bytes, marks[1])


def record_peak(request: Request, arm: Arm, before: Marks | None) -> None:
    """Keep the peak of a call that left a new high-water mark."""
    if before is None:
        return
    after = resident_bytes() if arm.on_host else registry.adapter(arm.backend).peak_bytes(arm.device)
    if after is None or after[1] <= before[1]:
        return
    taken = after[1] - before[0]
    if stays_put(request.placement, arm):
        taken += request.call.input_bytes
    need = modelled_bytes(request.primitive, request.call, arm)
    forecasts.observe(forecast_kind(request.call, arm), request.call.bucket, need, taken)

"""How much memory a call really took, seen without disturbing anyone: by the marks that were never reached before.

A process remembers the most memory it ever had, and so does a library's pool. Where a call leaves a new highest mark,
that mark is the call's own; where it does not, nothing is known of it, and nothing is recorded.
"""

from __future__ import annotations

from hpfracc.engine.backends import registry
from hpfracc.engine.backends.base import Arm
from hpfracc.engine.memory.forecast import LEAST_BYTES, forecasts
from hpfracc.engine.memory.host import resident_bytes
from hpfracc.engine.selection.candidates import forecast_key, modelled_bytes, stays_put
from hpfracc.engine.selection.request import Request

__all__ = ["Marks", "read_marks", "record_peak"]

#: (bytes in use, the most so far)
Marks = tuple[int, int]

#: On the host everything else that the process does shows too: only calls well above that are looked at.
_LEAST_ON_HOST = 4 * LEAST_BYTES


def read_marks(request: Request, arm: Arm) -> Marks | None:
    """The marks before a call, or None where they would say nothing."""
    need = modelled_bytes(request.primitive, request.call, arm)
    if need < (_LEAST_ON_HOST if arm.on_host else LEAST_BYTES):
        return None
    if not arm.on_host:
        return registry.adapter(arm.backend).peak_bytes(arm.device)
    # JAX frees what a call is done with some time after it, in threads of its own.
    return None if arm.backend == "jax" else resident_bytes()


def record_peak(request: Request, arm: Arm, before: Marks | None) -> None:
    """Keep what a call took, if it left a new highest mark behind."""
    if before is None:
        return
    after = resident_bytes() if arm.on_host else registry.adapter(arm.backend).peak_bytes(arm.device)
    if after is None or after[1] <= before[1]:
        return
    taken = after[1] - before[0]
    if stays_put(request.placement, arm):
        taken += request.call.input_bytes
    need = modelled_bytes(request.primitive, request.call, arm)
    forecasts.observe(forecast_key(request.call, arm), need, taken, exact=not arm.on_host)

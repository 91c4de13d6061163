"""Whose word counts: the backend that was asked for, and by whom.

In this order: the ``backend=`` argument, the innermost ``use_backend`` block, a selector's ``preferred_backend``,
``config(pin=...)``, ``HPFRACC_FORCE_*``; then the engine chooses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hpfracc._config import Settings, check_backend
from hpfracc.engine.workload import named_for

__all__ = ["Wish", "wished"]


@dataclass(frozen=True, slots=True)
class Wish:
    """A backend that must be taken, and who says so."""

    backend: str
    source: str


def wished(
    operation: str,
    settings: Settings,
    *,
    argument: Any = None,
    context: str | None = None,
    preferred: Any = None,
) -> Wish | None:
    """The wish that counts, or None if the engine may choose."""
    if argument is not None:
        name = check_backend(argument, auto=True)
        if name != "auto":
            return Wish(name, "the backend= argument")
    if context is not None:
        return Wish(context, "use_backend")
    if preferred is not None:
        name = check_backend(preferred, auto=True)
        if name != "auto":
            return Wish(name, "preferred_backend")
    pinned = named_for(operation, settings.pin)
    if pinned is not None:
        return Wish(pinned, f"config(pin={{{operation!r}: {pinned!r}}})")
    if settings.force is not None:
        return Wish(settings.force, f"HPFRACC_FORCE_{settings.force.upper()}")
    return None

"""Profiling: spans with device times, breakdowns, exports and a page that works offline.

Examples
--------
>>> from hpfracc.profiling import get_profiler
>>> profiler = get_profiler(enabled=True)
>>> with profiler.profile("load", rows=1000):
...     pass
>>> profiler.get_summary()["load"]["count"]
1
>>> profiler.disable()
>>> profiler.reset()

Names are loaded on first use. While profiling is off, the engine only reads a flag.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hpfracc.profiling.comparison import Comparison, compare_profiles
    from hpfracc.profiling.document import load_profile
    from hpfracc.profiling.profiler import Profiler, get_profiler
    from hpfracc.profiling.spans import Span

__all__ = ["Comparison", "Profiler", "Span", "compare_profiles", "get_profiler", "load_profile"]

_HOMES = {
    "Comparison": "hpfracc.profiling.comparison",
    "Profiler": "hpfracc.profiling.profiler",
    "Span": "hpfracc.profiling.spans",
    "compare_profiles": "hpfracc.profiling.comparison",
    "get_profiler": "hpfracc.profiling.profiler",
    "load_profile": "hpfracc.profiling.document",
}


# Hidden from type checkers, which would otherwise accept any attribute.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)

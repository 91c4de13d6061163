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

from hpfracc import _lazy

__getattr__, __dir__, __all__ = _lazy.attach(__name__)

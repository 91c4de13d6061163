"""Memory: monitoring, limits, reusable buffers and reactions to memory pressure.

``get_memory_monitor`` watches memory, ``get_memory_pool`` hands out reusable buffers, ``report`` shows free memory and
the accuracy of predicted peaks, ``limit`` bounds the memory of engine calls, ``span`` names a section of a program so
that memory growth can be attributed to it, and a ``Spillable`` array can be moved off its device when that is full.
"""

from __future__ import annotations

from hpfracc.engine.execution.pressure.growth import Growth
from hpfracc.engine.execution.pressure.ladder import CleanupReport, RungReport, Spillable
from hpfracc.engine.execution.pressure.monitor import (
    MemoryMonitor,
    MemorySnapshot,
    MemoryStats,
    Pressure,
    get_memory_monitor,
)
from hpfracc.engine.execution.pressure.pool import MemoryPool, get_memory_pool
from hpfracc.engine.execution.pressure.report import MemoryReport, limit, report
from hpfracc.engine.memory.buffers import PoolStats
from hpfracc.engine.memory.spans import span
from hpfracc.engine.selection.call_memory import ForecastRow

__all__ = [
    "CleanupReport",
    "ForecastRow",
    "Growth",
    "MemoryMonitor",
    "MemoryPool",
    "MemoryReport",
    "MemorySnapshot",
    "MemoryStats",
    "PoolStats",
    "Pressure",
    "RungReport",
    "Spillable",
    "get_memory_monitor",
    "get_memory_pool",
    "limit",
    "report",
    "span",
]

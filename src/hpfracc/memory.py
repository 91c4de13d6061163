"""Memory: what is free, what calls take of it, and what is done when it runs short.

``get_memory_monitor`` watches, ``get_memory_pool`` hands out buffers that are used again, ``report`` says what is free
and how well peaks were predicted, ``limit`` sets a bound for engine calls, ``span`` names a part of a program so that
growth can be told to come from there, and a ``Spillable`` array may leave its device while that is full.
"""

from __future__ import annotations

from hpfracc.engine.execution.pressure.account import MemoryReport, limit, report
from hpfracc.engine.execution.pressure.growth import Growth
from hpfracc.engine.execution.pressure.ladder import CleanupReport, RungReport
from hpfracc.engine.execution.pressure.levels import Pressure
from hpfracc.engine.execution.pressure.monitor import (
    MemoryMonitor,
    MemorySnapshot,
    MemoryStats,
    get_memory_monitor,
)
from hpfracc.engine.execution.pressure.pool import MemoryPool, get_memory_pool
from hpfracc.engine.execution.pressure.spill import Spillable
from hpfracc.engine.memory.buffers import PoolStats
from hpfracc.engine.memory.forecast import ForecastRow
from hpfracc.engine.memory.spans import span

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

"""Memory: monitoring, limits, reusable buffers and reactions to memory pressure.

``get_memory_monitor`` watches memory, ``get_memory_pool`` hands out reusable buffers, ``report`` shows free memory and
the accuracy of predicted peaks, ``limit`` bounds the memory of engine calls, ``span`` names a section of a program so
that memory growth can be attributed to it, and a ``Spillable`` array can be moved off its device when that is full.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from hpfracc._reading import format_bytes
from hpfracc.engine import hardware
from hpfracc.engine.execution.prepared import prepared_operands
from hpfracc.engine.execution.pressure.ladder import CleanupReport, RungReport, Spillable
from hpfracc.engine.execution.pressure.monitor import (
    MemoryMonitor,
    MemorySnapshot,
    MemoryStats,
    Pressure,
    get_memory_monitor,
)
from hpfracc.engine.execution.pressure.pool import MemoryPool, get_memory_pool
from hpfracc.engine.memory.budget import HOST, get_budget, parse_bytes
from hpfracc.engine.memory.buffers import PoolStats, host_buffers, pinned_buffers
from hpfracc.engine.memory.host import Growth, HostMemory, HostProbe, span
from hpfracc.engine.memory.staging import RingStats, staging_stats
from hpfracc.engine.selection.call_memory import ForecastRow, forecasts
from hpfracc.engine.selection.decision import as_text
from hpfracc.errors import InvalidInputError
from hpfracc.profiling.formats import make_table

__all__ = [
    "CleanupReport", "ForecastRow", "Growth", "MemoryMonitor", "MemoryPool", "MemoryReport", "MemorySnapshot",
    "MemoryStats", "PoolStats", "Pressure", "RungReport", "Spillable", "cache_limit", "get_memory_monitor",
    "get_memory_pool", "limit", "report", "span",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """The result of :func:`report`; print it, or use :meth:`to_dict`.

    Attributes
    ----------
    host : HostMemory
        Every limit on this process's memory, and the free memory under each.
    devices : dict of str to (hardware.DriverMemory or None)
        Memory of each GPU according to its driver, including other processes; None without nvidia-ml-py.
    caps : dict of str to int
        Limits set with :func:`limit`.
    forecasts : tuple of ForecastRow
        Predicted against actual peaks, and how the predictions are corrected.
    pool : PoolStats
        The engine's buffers, for padding and transfers.
    kept : int
        Bytes of arrays kept between calls: weights, transforms, tables; see :func:`cache_limit`.
    transfers : RingStats
        Chunks that were copied between host and GPU through page-locked memory of that pool, and how many allocated it.
    """

    host: HostMemory
    devices: dict[str, hardware.DriverMemory | None]
    caps: dict[str, int]
    forecasts: tuple[ForecastRow, ...]
    pool: PoolStats
    kept: int
    transfers: RingStats

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "host": self.host.to_dict(),
            "devices": {name: None if found is None else found.to_dict() for name, found in self.devices.items()},
            "caps": dict(self.caps),
            "forecasts": [row.to_dict() for row in self.forecasts],
            "pool": self.pool.to_dict(),
            "kept": self.kept,
            "transfers": asdict(self.transfers),
        }

    def __rich__(self) -> Any:
        from rich.console import Group
        from rich.text import Text

        limits = make_table(limit="text", size="number", used="number", free="number")
        for bound in self.host.bounds:
            limits.add_row(Text(bound.name), *map(format_bytes, (bound.limit, bound.used, bound.free)))
        for name, gpu in self.devices.items():
            if gpu is not None:
                limits.add_row(name, *map(format_bytes, (gpu.total, gpu.used, gpu.free)))
        for name, size in self.caps.items():
            limits.add_row(f"set for {name}", format_bytes(size), "", "")
        parts: list[Any] = [limits]
        if self.forecasts:
            numbers = dict.fromkeys(("predicted", "actual", "error", "corrected", "samples"), "number")
            table = make_table(call="text", on="text", **numbers)
            for row in self.forecasts:
                sizes = format_bytes(row.predicted), format_bytes(row.actual)
                found = *sizes, f"{row.error:.0%}", f"x {row.correction:.2f}", str(row.samples)
                table.add_row(f"{row.operation} ({row.kind})", f"{row.kernel} {row.device}", *found)
            parts.append(table)
        rate = "-" if self.pool.hits + self.pool.misses == 0 else f"{self.pool.hit_rate:.0%}"
        held, kept = format_bytes(self.pool.held_bytes), format_bytes(self.kept)
        parts.append(Text(f"buffers: {held} kept, {rate} of requests met by them; arrays kept between calls: {kept}"))
        if self.transfers.uses:
            through = format_bytes(self.transfers.held_bytes)
            asked = f"{self.transfers.uses:,} chunks, {self.transfers.fills:,} of them asked for memory"
            parts.append(Text(f"transfers: {asked}, {through} page-locked"))
        return Group(*parts)

    def __str__(self) -> str:
        return as_text(self)

    __repr__ = __str__


def report() -> MemoryReport:
    """Limits and free memory, GPUs, predicted against actual peaks of calls, and the engine's buffers.

    Examples
    --------
    >>> from hpfracc import memory
    >>> memory.report().host.free > 0
    True
    """
    gpus = hardware.machine().gpus
    return MemoryReport(
        host=HostProbe().read(),
        devices={gpu.device: hardware.driver_memory(gpu.device) for gpu in gpus},
        caps=get_budget().caps(),
        forecasts=tuple(forecasts.rows()),
        pool=(pinned_buffers if gpus else host_buffers).stats(),
        kept=prepared_operands.bytes,
        transfers=staging_stats(),
    )


def cache_limit(size: int | str | None = None) -> int:
    """Bytes that arrays kept between calls may take in this process, 256 MiB by default.

    Weights, transforms, tables and matrices that later calls of the same order and length use again share this limit;
    the least recently used go first. The newest stays even if it alone is larger.

    Parameters
    ----------
    size : int or str, optional
        The new limit: bytes, or text such as ``"1GiB"``.

    Examples
    --------
    >>> from hpfracc import memory
    >>> memory.cache_limit("1GiB")
    1073741824
    >>> memory.report().kept <= memory.cache_limit()
    True
    """
    if size is not None:
        prepared_operands.limit(parse_bytes("size", size))
    return prepared_operands.capacity


@contextmanager
def limit(device: str, size: int | str) -> Iterator[None]:
    """Limit the memory of each engine call on a device to ``size`` within a ``with`` block.

    Larger calls are run in chunks. The limit applies to the whole process.

    Parameters
    ----------
    device : str
        ``"cpu"`` for the host, or a device such as ``"cuda:0"`` (``"cuda"`` for short).
    size : int or str
        Bytes, or text such as ``"2GiB"``.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> from hpfracc import memory
    >>> with memory.limit("cpu", "4MiB"):
    ...     rows = hf.fft(np.ones((1000, 1000)), kind="rfft")
    >>> hf.last_decision().chunks > 1
    True
    """
    if device != HOST and not device.startswith("cuda"):
        raise InvalidInputError(f"device={device!r} is not a device; use 'cpu' or a GPU such as 'cuda:0'")
    name = "cuda:0" if device == "cuda" else device
    cap, before = parse_bytes("size", size), get_budget().caps().get(name)
    try:
        get_budget().cap(name, cap)
        yield
    finally:
        get_budget().cap(name, before)

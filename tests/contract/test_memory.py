"""The names of memory and batches that existing code uses, with the words it uses."""

from __future__ import annotations

import numpy as np
import pytest

from hpfracc.batch import calculate_optimal_batch_size
from hpfracc.memory import get_memory_monitor, get_memory_pool


def test_memory_monitor() -> None:
    """Arguments and methods by their names."""
    monitor = get_memory_monitor(device_id=0, enable_auto_cleanup=True, cleanup_threshold=0.85)
    assert monitor.can_allocate(size_mb=1, safety_margin=0.1) is True
    assert monitor.can_allocate(size_mb=10**9, safety_margin=0.1) is False
    calls: list[int] = []
    monitor.register_cleanup_callback(lambda: calls.append(1))
    monitor.cleanup_memory()
    assert calls == [1]
    assert monitor.get_pressure() in ("low", "moderate", "high", "critical")
    stats = monitor.get_stats()
    assert stats.peak_allocated_mb >= stats.current_allocated_mb > 0
    history = monitor.get_snapshot_history()
    assert history and history[-1].timestamp >= history[0].timestamp


def test_memory_pool() -> None:
    """Allocate, release, ask, clear."""
    pool = get_memory_pool()
    buffer = pool.allocate((100, 100), dtype=np.float32)
    assert buffer.shape == (100, 100) and buffer.dtype == np.float32
    pool.release(buffer)
    again = pool.allocate((100, 100), dtype=np.float32)
    assert pool.get_stats().hit_rate == pytest.approx(0.5)
    pool.release(again)
    pool.clear()
    assert pool.get_stats().held_bytes == 0


def test_batch_size() -> None:
    """The estimate from the size of a model."""
    assert calculate_optimal_batch_size(model_size_mb=100, gpu_memory_gb=16) >= 1

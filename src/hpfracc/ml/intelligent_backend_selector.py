"""Keeps an old import path alive: the selector lives in :mod:`hpfracc.engine.selection.selector`."""

from hpfracc.engine.backends.registry import BackendType
from hpfracc.engine.selection.selector import (
    IntelligentBackendSelector,
    calculate_gpu_threshold,
    select_optimal_backend,
)
from hpfracc.engine.workload import WorkloadCharacteristics

__all__ = [
    "BackendType",
    "IntelligentBackendSelector",
    "WorkloadCharacteristics",
    "calculate_gpu_threshold",
    "select_optimal_backend",
]

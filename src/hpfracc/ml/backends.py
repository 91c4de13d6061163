"""Keeps an old import path alive: backends live in :mod:`hpfracc.engine.backends`."""

from hpfracc.engine.backends.registry import BackendManager, BackendType, get_backend
from hpfracc.engine.selection.selector import calculate_gpu_threshold

__all__ = ["BackendManager", "BackendType", "calculate_gpu_threshold", "get_backend"]

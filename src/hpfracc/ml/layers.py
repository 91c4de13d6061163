"""Keeps an old import path alive: layers live in :mod:`hpfracc.ml.torch`, and are names of :mod:`hpfracc.ml`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hpfracc import ml
from hpfracc.engine.backends.registry import BackendManager, BackendType
from hpfracc.engine.selection.selector import select_optimal_backend
from hpfracc.ml.config import LayerConfig

if TYPE_CHECKING:
    from hpfracc.ml import FractionalConv1d, FractionalConv2d, FractionalLayer, FractionalLSTM, LearnableOrder

__all__ = [
    "BackendManager", "BackendType", "FractionalConv1d", "FractionalConv2d", "FractionalLSTM", "FractionalLayer",
    "LayerConfig", "LearnableOrder", "select_optimal_backend",
]  # fmt: skip

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(ml, name)

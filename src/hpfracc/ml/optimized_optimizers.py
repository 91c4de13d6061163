"""Optimisers with fractional memory for PyTorch, which is imported when one of them is first used.

They are defined in :mod:`hpfracc.ml.torch.optimizers`; :mod:`hpfracc.ml.jax.optimizers` has the same for JAX.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hpfracc.ml.torch.optimizers import FractionalGradientFlow, FractionalSGD, OptimizedFractionalAdam

__all__ = ["FractionalGradientFlow", "FractionalSGD", "OptimizedFractionalAdam"]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module("hpfracc.ml.torch.optimizers"), name)

"""Exclusive or of integers and truth values."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpfracc._xp import Namespace
from hpfracc.engine.backends.base import Kernel

__all__ = ["make_kernels"]


def make_kernels(xp: Namespace) -> dict[str, Kernel]:
    """``a ^ b`` over broadcast arrays of one dtype."""
    return {"default": Kernel(_in_numpy if xp.library == "numpy" else xp.jit(xp.bitwise_xor))}


def _in_numpy(a: Any, b: Any) -> Any:
    """NumPy converts 0-d arrays to scalars."""
    return np.asarray(np.bitwise_xor(a, b))

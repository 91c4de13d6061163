"""Exclusive or in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpfracc.engine.backends.base import Kernel

__all__ = ["KERNELS"]

Array = np.ndarray[Any, Any]


def bitwise_xor(a: Array, b: Array) -> Array:
    """``a ^ b``."""
    return np.asarray(np.bitwise_xor(a, b))


KERNELS: dict[str, Kernel] = {"default": Kernel(bitwise_xor)}

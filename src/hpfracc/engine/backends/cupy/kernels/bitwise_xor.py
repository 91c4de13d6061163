"""Exclusive or of integers and truth values, in CuPy."""

from __future__ import annotations

import cupy

from hpfracc.engine.backends.base import Kernel

__all__ = ["KERNELS"]

KERNELS: dict[str, Kernel] = {"default": Kernel(cupy.bitwise_xor)}

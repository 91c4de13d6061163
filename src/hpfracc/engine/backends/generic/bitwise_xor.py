"""Exclusive or of integers and truth values."""

from __future__ import annotations

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.generic.library import Library


def make_kernels(library: Library) -> dict[str, Kernel]:
    """``a ^ b`` over broadcast arrays of one dtype."""
    return {"default": Kernel(library.finished(library.xp.jit(library.xp.bitwise_xor)))}

"""History sum in CuPy: the generic kernel, with blocks that fill a GPU."""

from __future__ import annotations

from hpfracc._xp import namespace
from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.generic.history_sum import make_kernels

__all__ = ["KERNELS"]

#: Weights of a block (also in the adapter): 128 MiB, enough to fill a GPU; and its outputs.
_HISTORY_BLOCK, _HISTORY_ROWS = 1 << 24, 2048

KERNELS: dict[str, Kernel] = make_kernels(namespace("cupy"), _HISTORY_BLOCK, _HISTORY_ROWS)
